package exec_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// A partition is idle once it has stood at its end for the limit (an hour here) of batch time since a batch last moved
// it, restarts included. Then the others move event time on without it; what comes of it ends that.
func TestIdlePartition(t *testing.T) {
	steps := []struct {
		at   time.Duration
		to   int32 // which partition gets a record
		idle bool  // whether partition 1 is idle in the batch
	}{
		{30 * time.Minute, 0, false},
		{59 * time.Minute, 0, false},
		{60 * time.Minute, 0, true},
		{70 * time.Minute, 1, false},
		{129 * time.Minute, 0, false},
		{131 * time.Minute, 0, true},
	}
	for _, restarts := range []bool{false, true} {
		w := newWorld(t)
		w.batch.MaxPending = 1
		var now atomic.Int64
		tick := ticking()
		w.now = func() time.Time { return tick().Add(time.Duration(now.Load())) }
		w.events.add(0, record("ann", 1, 0))
		w.events.add(1, record("ann", 1, 0))
		next := 0
		more := func() bool { // takes the next step
			if next == len(steps) {
				return false
			}
			s := steps[next]
			next++
			now.Store(int64(s.at))
			w.events.add(s.to, record("ann", 1, s.at))
			return true
		}
		if !restarts {
			// The next step comes when a planning has found nothing: that was begun with the clock of the step before.
			w.hook = func(call string, b *batch.Batch, after bool) error {
				if call == "plan" && after && len(b.Ranges) == 0 {
					more()
				}
				return nil
			}
		}
		fs := vfs.NewMem()
		for again := true; again; again = restarts && more() {
			p, err := w.start(fs)
			if err != nil {
				t.Fatal(err)
			}
			p.done = func(*txstate.Entry) bool { return restarts || next == len(steps) }
			if err := p.finish(); err != nil {
				t.Fatal(err)
			}
		}
		o := w.outcomeOf(fs)
		if len(o.entries) != 1+len(steps) {
			t.Fatalf("restarts %t: %d batches", restarts, len(o.entries))
		}
		one := batch.Partition{Source: "events", Topic: "events", Number: 1}
		mark := clock0.Add(-5 * time.Second)
		for i, s := range steps {
			e := o.entries[i+1]
			if idle := len(e.Idle) == 1 && e.Idle[0] == one; idle != s.idle {
				t.Errorf("restarts %t: at %s partition 1 is idle: %t, want %t (%v)", restarts, s.at, idle, s.idle, e.Idle)
			}
			// Partition 0 was at 1h when partition 1 woke up at 1h10m.
			switch {
			case s.idle:
				mark = clock0.Add(s.at - 5*time.Second)
			case s.at == 129*time.Minute:
				mark = clock0.Add(70*time.Minute - 5*time.Second)
			}
			if len(e.Watermarks) != 1 || e.Watermarks[0].Time != mark.UnixNano() {
				t.Errorf("restarts %t: at %s the watermarks are %+v, want %s", restarts, s.at, e.Watermarks, mark)
			}
		}
	}
}
