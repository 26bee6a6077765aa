package exec_test

import (
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
)

// While memory is short no batch begins before the one in front of it has committed, and all records are worked on nevertheless.
func TestShortOfMemory(t *testing.T) {
	w := newWorld(t)
	w.fill(200)
	w.pressed = func() bool { return true }
	var inFlight, most atomic.Int64
	w.hook = func(call string, _ *batch.Batch, after bool) error {
		switch {
		case call == "process" && !after:
			most.Store(max(most.Load(), inFlight.Add(1)))
		case call == "commit" && after:
			inFlight.Add(-1)
		}
		return nil
	}
	o := w.once(vfs.NewMem())
	if err := o.check(w); err != nil {
		t.Error(err)
	}
	if len(o.entries) < 12 || most.Load() != 1 {
		t.Errorf("%d batches, at most %d in flight", len(o.entries), most.Load())
	}
}
