package zkstore

import (
	"context"
	"time"

	"github.com/tridentd/tridentd/txstate"
)

var _ txstate.Confirming = (*Lease)(nil)

// Confirm implements txstate.Confirming.
func (e *Lease) Confirm(ctx context.Context) error {
	called := e.lock.now()
	for {
		e.mu.Lock()
		changed, fresh := e.changed, e.tenure.confirmed >= called
		e.mu.Unlock()
		if fresh {
			return e.Pass(ctx)
		}
		if _, err := e.state(); err != nil {
			return err
		}
		e.poke()
		timer := time.NewTimer(recheck)
		select {
		case <-changed:
		case <-timer.C:
		case <-e.lost:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}
