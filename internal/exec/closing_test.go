package exec_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/window"
)

type spanned = engine.Result[string, int64]

func userOf(e event) string { return e.User }

// noted counts the results that are sent on, by their windows, in a state.
func noted(s engine.Stream[spanned], name string) {
	texts := engine.Map(s, func(r spanned) string {
		return fmt.Sprintf("%s %s-%s", r.Key, r.Window.Start.Sub(clock0), r.Window.End.Sub(clock0))
	})
	engine.Aggregate(engine.GroupBy(texts, func(s string) string { return s }, "row"), name, agg.Count[string]("n"))
}

// rowsOf are the rows of a state that noted keeps.
func (w *world) rowsOf(fs vfs.FS, name string) map[string]int64 {
	db, err := w.open(fs)
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	snap, err := db.Snapshot()
	if err != nil {
		w.t.Fatal(err)
	}
	defer snap.Close()
	rows, err := engine.ReadSnapshot[string, int64](w.t.Context(), snap, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// Case G28: a partition without data holds windows and sessions back until it has been idle for its limit, restarts included;
// what it brings for a window that has closed meanwhile is listed as late.
func TestSilentPartition(t *testing.T) {
	w := newWorld(t)
	w.batch.MaxRecords = 100
	w.build = func() *engine.Pipeline {
		p := engine.New("test", engine.WithBatching(w.batch), engine.OnBadRecord(engine.Skip))
		events := engine.From(p, "events", w.events, codec.JSON[event]()).
			EventTime(func(e event) time.Time { return e.At }, 0, engine.IdleAfter(50*time.Millisecond), engine.FutureBound(24*time.Hour))
		minutes := engine.GroupByWindow(events, window.Tumbling(time.Minute), userOf, "user")
		noted(engine.Closed[int64](engine.Aggregate(minutes, "minutes", agg.Count[event]("n"))), "minutes_closed")
		visits := engine.GroupByWindow(events, window.Session(30*time.Second), userOf, "user")
		noted(engine.Closed[int64](engine.Aggregate(visits, "visits", agg.Count[event]("n"))), "visits_closed")
		return p
	}
	start := time.Now()
	w.now = func() time.Time { return clock0.Add(time.Since(start)) }
	w.events.add(3) // there are partitions 0 and 3
	run := func(fs vfs.FS, done func(e *txstate.Entry) bool) {
		t.Helper()
		p, err := w.start(fs)
		if err != nil {
			t.Fatal(err)
		}
		p.done = done
		if err := p.finish(); err != nil {
			t.Fatal(err)
		}
	}
	fs := vfs.NewMem()
	for i := range 5 {
		w.events.add(0, record("ann", 1, time.Duration(i)*time.Minute))
	}
	run(fs, func(e *txstate.Entry) bool { return len(e.Ranges) > 0 })
	for i := 5; i < 10; i++ {
		w.events.add(0, record("ann", 1, time.Duration(i)*time.Minute))
	}
	run(fs, func(e *txstate.Entry) bool {
		return slices.ContainsFunc(e.States, func(s txstate.StateDigest) bool { return s.State == "minutes_closed" })
	})
	w.events.add(3, record("ann", 1, 3*time.Minute))
	run(fs, func(e *txstate.Entry) bool {
		return slices.ContainsFunc(e.Ranges, func(r txstate.RangeEntry) bool { return r.Number == 3 })
	})
	minutes, visits := w.rowsOf(fs, "minutes_closed"), w.rowsOf(fs, "visits_closed")
	for i := range 9 {
		at := time.Duration(i) * time.Minute
		if n := minutes[fmt.Sprintf("ann %s-%s", at, at+time.Minute)]; n != 1 {
			t.Errorf("the window of minute %d has been sent %d times", i, n)
		}
		if n := visits[fmt.Sprintf("ann %s-%s", at, at+30*time.Second)]; n != 1 {
			t.Errorf("the session of minute %d has been sent %d times", i, n)
		}
	}
	if len(minutes) != 9 || len(visits) != 9 {
		t.Errorf("sent: %v and %v", minutes, visits)
	}
	o := w.outcomeOf(fs)
	if last := o.entries[len(o.entries)-1]; last.Counts.Late != 2 { // for the window, and for the session
		t.Errorf("the last batch has %+v", last.Counts)
	}
	late := 0
	w.scan(fs, exec.RejectedState, func(_, _ []byte) { late++ })
	if late != 2 {
		t.Errorf("%d rows are listed as turned away", late)
	}
}

// A window of batch time closes when the batches' clock has passed its end: a batch begins for that, and no earlier. It needs neither
// event times nor records, and a restart in between.
func TestWindowOfBatchTimeCloses(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		w := newWorld(t)
		w.build = func() *engine.Pipeline {
			p := engine.New("test", engine.WithBatching(w.batch))
			events := engine.From(p, "events", w.events, codec.JSON[event]())
			g := engine.GroupByWindow(events, window.Tumbling(time.Hour).ByBatchTime(), userOf, "user")
			noted(engine.Closed[int64](engine.Aggregate(g, "hours", agg.Count[event]("n"))), "closed")
			return p
		}
		w.events.add(0, record("ann", 1, 0))
		start := time.Now()
		hour := clock0.Truncate(time.Hour)
		var moved atomic.Int64
		w.now = func() time.Time { return clock0.Add(time.Since(start) + time.Duration(moved.Load())) }
		fs := vfs.NewMem()
		done := func(e *txstate.Entry) bool {
			if e.Txid == 1 {
				moved.Store(int64(hour.Add(time.Hour).Sub(clock0) - 20*time.Millisecond - time.Since(start)))
			}
			return restarts || e.Txid == 2
		}
		for range 2 {
			p, err := w.start(fs)
			if err != nil {
				t.Fatal(err)
			}
			p.done = done
			if err := p.finish(); err != nil {
				t.Fatal(err)
			}
			if !restarts {
				break
			}
		}
		o := w.outcomeOf(fs)
		if len(o.entries) != 2 || len(o.entries[1].Ranges) != 0 || o.entries[1].Time.Before(hour.Add(time.Hour)) {
			t.Errorf("restarts %t: %d batches, the last %+v", restarts, len(o.entries), o.entries[len(o.entries)-1])
		}
		from := hour.Sub(clock0)
		if rows := w.rowsOf(fs, "closed"); len(rows) != 1 || rows[fmt.Sprintf("ann %s-%s", from, from+time.Hour)] != 1 {
			t.Errorf("restarts %t: sent %v", restarts, rows)
		}
	}
}
