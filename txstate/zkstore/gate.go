package zkstore

import (
	"context"
	"fmt"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// Pass implements txstate.Gate. Under Continue it lets everything pass, until the run must end. Under Stall it lets a batch
// pass while the record can be written: the connection is up, the last write succeeded, and what has committed isn't
// unwritten for longer than UpdateInterval and a second; where that is 0, nothing that has committed is unwritten.
func (r *Record) Pass(ctx context.Context) error {
	for {
		r.mu.Lock()
		broken, changed := r.err, r.changed
		r.mu.Unlock()
		if broken != nil {
			return broken
		}
		if r.cfg.WhileAway == Continue || r.Holding() == nil {
			return nil
		}
		// With everything written no round would come of itself that finds out, warns and counts the time.
		r.urge()
		t := time.NewTimer(recheck)
		select {
		case <-changed:
		case <-t.C:
		case <-r.broken:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
		t.Stop()
	}
}

// Holding is why Pass keeps batches waiting under Stall; nil if it doesn't.
func (r *Record) Holding() error {
	if r.cfg.WhileAway == Continue {
		return nil
	}
	if err := r.away(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.Err != nil {
		return r.status.Err
	}
	if !r.status.Pending {
		return nil
	}
	var allowed time.Duration
	if r.cfg.UpdateInterval > 0 {
		allowed = r.cfg.UpdateInterval + slack
	}
	if late := r.cfg.Now().Sub(r.behind); allowed == 0 || late > allowed {
		return batch.NewError(batch.Transient, batch.CodeZKNoAnswer, "record",
			fmt.Errorf("what has committed since txid %d is being written to %s, for %s", r.status.Txid, r.name, late.Round(time.Millisecond)), "")
	}
	return nil
}
