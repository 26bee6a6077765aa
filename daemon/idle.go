package daemon

import (
	"context"
	"os"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// idle is the backend of a process that stays up without a pipeline that runs: it says why, and can be stopped.
type idle struct {
	target *target
	began  time.Time
	listen string
	why    error // asked for anything else than its status, it answers with this
	failed bool  // it has stopped for good; otherwise it waits
	stop   func()
}

var _ server.Backend = (*idle)(nil)

func (b *idle) Status(context.Context) server.Status {
	st := server.Status{
		Pipeline: b.target.pipeline.Name(), Version: version(), PID: os.Getpid(), Data: b.target.dir, Listen: b.listen,
		Started: b.began.UTC(), Uptime: time.Since(b.began).Seconds(), Reasons: []string{b.why.Error()},
		InFlight: []server.InFlight{}, Partitions: []server.PartitionStatus{}, Failing: b.failed,
	}
	if b.failed {
		st.LastError = server.ErrorStatusOf(b.why, b.began)
	}
	return st
}

func (b *idle) States(context.Context) ([]state.Schema, error)                  { return nil, b.why }
func (b *idle) Query(context.Context, string, []string, server.RowWriter) error { return b.why }
func (b *idle) Stop()                                                           { b.stop() }
func (b *idle) Ledger(context.Context, batch.Txid, batch.Txid, func(*txstate.Entry) error) error {
	return b.why
}
