package daemon

import (
	"context"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// idle is the backend of a process that stays up without a pipeline that runs: it says why, and can be stopped.
type idle struct {
	target *target
	began  time.Time
	why    error // asked for anything else than its status, it answers with this
	stop   func()
}

var _ server.Backend = (*idle)(nil)

func (b *idle) Status(context.Context) server.Status { return serverStatus(b.status()) }

func (b *idle) status() engine.Status {
	return engine.Status{
		Pipeline: b.target.pipeline.Name(), Dir: b.target.dir, Began: b.began,
		Reasons: []string{b.why.Error()}, Failure: b.why, FailureSince: b.began, Failing: true,
	}
}

func (b *idle) States(context.Context) ([]state.Schema, error)                  { return nil, b.why }
func (b *idle) Query(context.Context, string, []string, server.RowWriter) error { return b.why }
func (b *idle) Stop()                                                           { b.stop() }
func (b *idle) Ledger(context.Context, batch.Txid, batch.Txid, func(*txstate.Entry) error) error {
	return b.why
}
