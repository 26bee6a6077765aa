package exec_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// The same ranges give the same bytes and the same ledger, on any number of cores, with any number of batches in
// flight, and whether sums are written as merge operands or read and written.
func TestSameBytes(t *testing.T) {
	w := newWorld(t)
	w.fill(150)
	entries := w.split(rand.New(rand.NewPCG(3, 4)))
	first := vfs.NewMem()
	if err := w.drive(first, entries, 1, func(c *exec.Config) { c.Procs = 1 }); err != nil {
		t.Fatal(err)
	}
	want := w.outcomeOf(first)
	if err := want.check(w); err != nil {
		t.Fatal(err)
	}
	rows := map[string]int64{}
	for _, s := range want.states {
		rows[s.State] = s.Rows
	}
	for _, s := range []string{"sums", "means", "lasts", "windowed", "windowed_too", "rolls", "team_events", "sizes", "history", "kept", "words", "_windows", exec.RejectedState} {
		if rows[s] == 0 {
			t.Errorf("state %s is empty", s)
		}
	}
	var n txstate.Counts
	for _, e := range want.entries {
		n.Rejected, n.Late, n.Future = n.Rejected+e.Counts.Rejected, n.Late+e.Counts.Late, n.Future+e.Counts.Future
	}
	if n.Rejected == 0 || n.Late == 0 || n.Future == 0 || rows[exec.RejectedState] != n.Rejected+n.Late+n.Future {
		t.Errorf("%d rows were turned away and kept, counted were %+v", rows[exec.RejectedState], n)
	}
	if n := w.totalsTurnedAway(first); n < 5 {
		t.Errorf("%d rows of the later stage were turned away", n)
	}

	open, all := w.windows("_windows", first), w.windows("windowed", first)
	if len(all) == 0 {
		t.Error("no window is left")
	}
	for start := range all { // order: each by itself
		if !open[start] {
			t.Errorf("rows of the window %x are left, though it has expired", start)
		}
	}
	var written int64
	for _, e := range want.entries {
		for _, s := range e.States {
			if s.State == "_windows" {
				written += s.Writes
			}
		}
	}
	if written < 2*rows["_windows"] {
		t.Errorf("%d changes of %d windows: none has expired", written, rows["_windows"])
	}

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 2, 16} {
		runtime.GOMAXPROCS(procs)
		for _, pending := range []int{1, 4} {
			for _, merge := range []bool{true, false} {
				fs := vfs.NewMem()
				err := w.drive(fs, entries, pending, func(c *exec.Config) {
					c.Procs = procs
					for _, e := range c.Plan.Exchanges {
						if e.State != nil {
							e.State.Mergeable = e.State.Mergeable && merge
						}
					}
				})
				when := fmt.Sprintf("%d procs, %d in flight, merge operands %t", procs, pending, merge)
				if err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				w.same(want, w.outcomeOf(fs), when)
			}
		}
	}
}

// What doesn't depend on the borders of batches comes out the same, however the records are dealt out.
func TestSplitsDoNotShow(t *testing.T) {
	w := newWorld(t)
	w.fill(60)
	independent := []string{"sums", "team_events", "kept", "words"}
	var want map[string]pebblestate.StateDigest
	rapid.Check(t, func(rt *rapid.T) {
		entries := w.split(rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)))
		fs := vfs.NewMem()
		if err := w.drive(fs, entries, rapid.IntRange(1, 5).Draw(rt, "pending"), nil); err != nil {
			rt.Fatal(err)
		}
		o := w.outcomeOf(fs)
		if err := o.check(w); err != nil {
			rt.Fatal(err)
		}
		got := map[string]pebblestate.StateDigest{}
		for _, s := range o.states {
			if slices.Contains(independent, s.State) {
				got[s.State] = s
			}
		}
		if len(got) != len(independent) {
			rt.Fatalf("states %v", got)
		}
		if want == nil {
			want = got
		}
		for name, s := range want {
			if got[name] != s {
				rt.Errorf("state %s: %+v, with other borders %+v", name, got[name], s)
			}
		}
	})
}

// A replay of a ledger gives the ledger. What differs is told by the first batch that differs and what it is, and
// nothing of that batch is applied.
func TestDriveFindsTheDifference(t *testing.T) {
	w := newWorld(t)
	w.fill(60)
	o := w.once(vfs.NewMem())
	find := w.tablesOf(t, o)
	tables := func(c *exec.Config) { c.Tables = find }
	fs := vfs.NewMem()
	if err := w.drive(fs, o.entries, 4, tables); err != nil {
		t.Fatal(err)
	}
	w.same(o, w.outcomeOf(fs), "replayed")

	at := len(o.entries) / 2
	for name, c := range map[string]struct {
		change func(e *txstate.Entry)
		what   string
	}{
		"a state's digest": {func(e *txstate.Entry) { e.States[0].Digest++ }, "state _rejected"},
		"a state too many": {func(e *txstate.Entry) { e.States = e.States[1:] }, "state _rejected"},
		"a state too few":  {func(e *txstate.Entry) { e.States = append(e.States, txstate.StateDigest{State: "other", Writes: 1}) }, "state other"},
		"counts":           {func(e *txstate.Entry) { e.Counts.Late++ }, "counts"},
		"chain":            {func(e *txstate.Entry) { e.Chain++ }, "chain"},
	} {
		entries := make([]txstate.Entry, len(o.entries))
		for i := range o.entries {
			entries[i] = o.entries[i].Clone()
		}
		if entries[at].States[0].State != exec.RejectedState {
			t.Fatalf("txid %d turned no row away", at+1)
		}
		c.change(&entries[at])
		fs := vfs.NewMem()
		err := w.drive(fs, entries, 4, tables)
		var d *exec.Difference
		if !errors.As(err, &d) || d.Txid != batch.Txid(at+1) || d.What != c.what || d.Want == d.Got {
			t.Errorf("%s: error %v", name, err)
		}
		if got := w.outcomeOf(fs); len(got.entries) != at {
			t.Errorf("%s: %d batches were applied, want %d", name, len(got.entries), at)
		}
	}

	// A record that changed is unreplayable, with both figures.
	r := o.entries[at].Ranges[0]
	w.events.set(r.Number, r.Start, record("mallory", 1, 0))
	err := w.drive(vfs.NewMem(), o.entries, 4, tables)
	var e *batch.Error
	if !errors.As(err, &e) || e.Code != batch.CodeUnreplayable || e.Kind != batch.Permanent || e.Txid != batch.Txid(at+1) ||
		e.Partition != r.Partition || e.Offset != r.Start || e.Pipeline != "test" || e.Remedy == "" {
		t.Fatalf("error %+v", err)
	}
	for _, figure := range []string{fmt.Sprintf("[%d,%d)", r.Start, r.End), fmt.Sprintf("%d records with digest %016x", r.Records, r.Digest)} {
		if !strings.Contains(e.Error(), figure) {
			t.Errorf("%q is missing in: %v", figure, e)
		}
	}
}

// windows lists the encoded starts of a state's windows: those of "windowed" in _windows, or those that lead its rows.
func (w *world) windows(name string, fs vfs.FS) map[string]bool {
	w.t.Helper()
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
	starts := map[string]bool{}
	for row, err := range snap.Scan(w.t.Context(), name, nil, nil) {
		if err != nil {
			w.t.Fatal(err)
		}
		v, rest, err := value.DecodeKey(row.Key)
		if err != nil {
			w.t.Fatal(err)
		}
		switch {
		case name != "_windows":
			starts[string(row.Key[:len(row.Key)-len(rest)])] = true
		case v.Str() == "windowed":
			starts[string(rest)] = true
		}
	}
	return starts
}

// totalsTurnedAway counts the rows in _rejected that come of the batch aggregate, and checks where they say they come from.
func (w *world) totalsTurnedAway(fs vfs.FS) (n int) {
	w.t.Helper()
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
	schema := exec.RejectedSchema()
	err = query.Rows(w.t.Context(), snap, schema, nil, func(row []value.Value) error {
		if row[0].Str() != "per_batch" {
			return nil
		}
		n++
		// source, topic, partition, offset, n; kind, step, cause, txid, timestamp, key, value
		if row[1].Str() != "" || row[3].Int() != row[8].Int() || row[4].Int() != 0 || row[5].Str() != "bad" || string(row[10].Bytes()) != "dan" ||
			!row[9].IsNull() || !row[11].IsNull() {
			w.t.Errorf("a row of the later stage is kept as %v", row)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// tablesOf finds static tables in the store whose outcome o is.
func (w *world) tablesOf(t *testing.T, o *outcome) func(context.Context, string, uint64) (pebblestate.StaticTable, bool, error) {
	db, err := w.open(o.fs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db.StaticWith
}

// TestDriveTakesEntriesAsItGoes: however long a ledger is, no more of it is held than of the batches at work.
func TestDriveTakesEntriesAsItGoes(t *testing.T) {
	const pending = 3
	w := newWorld(t)
	w.fill(150)
	entries := w.split(rand.New(rand.NewPCG(3, 4)))
	taken, committed := 0, 0
	err := w.driven(vfs.NewMem(), func(c *exec.Config) {
		c.OnCommit = func(*txstate.Entry) { committed++ }
	}, func(ctx context.Context, x *exec.Executor) error {
		_, err := x.DriveWith(ctx, func(yield func(txstate.Entry, error) bool) {
			for _, e := range entries {
				if taken++; taken-committed > pending+1 {
					t.Errorf("entry %d is taken when %d have committed", taken, committed)
				}
				if !yield(e, nil) {
					return
				}
			}
		}, exec.DriveOptions{Pending: pending})
		return err
	})
	if err != nil || committed != len(entries) || committed < 4*pending {
		t.Errorf("%d of %d committed, %v", committed, len(entries), err)
	}
	gone := errors.New("gone")
	err = w.driven(vfs.NewMem(), nil, func(ctx context.Context, x *exec.Executor) error {
		_, err := x.DriveWith(ctx, func(yield func(txstate.Entry, error) bool) {
			_ = yield(entries[0], nil) && yield(txstate.Entry{}, gone)
		}, exec.DriveOptions{Pending: pending})
		return err
	})
	if !errors.Is(err, gone) {
		t.Errorf("a ledger that can't be read on: %v", err)
	}
}
