package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/server"
)

// access is how others reach a run's store: by the socket in its data directory, and through a server that outlives the
// times in which a standby leads. Only who has the directory serves the socket in it.
type access struct {
	standby bool
	log     hclog.Logger

	mu   sync.Mutex
	srv  *server.Server // nil until it has been started
	dir  string
	open bool // the store is
}

// begin is told that the store has been opened.
func (a *access) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = true
	a.admit()
}

// end is told that the store is about to be closed: nobody reads from it any more when it returns.
func (a *access) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = false
	if a.srv == nil {
		return
	}
	a.srv.EndReads()
	if !a.standby {
		return // the socket goes with the server, and until then says why nothing is answered
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := a.srv.CloseSocket(ctx); err != nil {
		a.log.Warn("closing the socket", "error", err)
	}
}

// serve is told the server, once it runs.
func (a *access) serve(srv *server.Server, dir string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.srv, a.dir = srv, dir
	a.admit()
}

// admit opens what there is to open. REQUIRES: a.mu is held.
func (a *access) admit() {
	if a.srv == nil || !a.open || !a.standby {
		return
	}
	a.srv.BeginReads()
	if err := a.srv.OpenSocket(a.dir); err != nil {
		a.log.Error("the commands can't reach this process by its socket", "error", err)
	}
}
