package exec_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/exec"
)

// TestCheckEqual checks every batch of a pipeline with everything in it: none differs, and the check changes nothing.
func TestCheckEqual(t *testing.T) {
	w := newWorld(t)
	w.fill(60)
	entries := w.split(rand.New(rand.NewPCG(1, 1)))
	plain := vfs.NewMem()
	if err := w.drive(plain, entries, 4, nil); err != nil {
		t.Fatal(err)
	}
	for _, procs := range []int{1, 4} {
		var checked atomic.Int64
		fs := vfs.NewMem()
		err := w.drive(fs, entries, 4, func(c *exec.Config) {
			c.Check, c.Procs, c.OnChecked = 1, procs, func(batch.Txid) { checked.Add(1) }
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := checked.Load(); n != int64(len(entries)) {
			t.Errorf("%d batches of %d were checked", n, len(entries))
		}
		w.same(w.outcomeOf(plain), w.outcomeOf(fs), "with every batch checked")
	}
}

// TestCheckShare: which batches are checked is a function of the ledger, and about as many as was asked for.
func TestCheckShare(t *testing.T) {
	w := newWorld(t)
	w.fill(200)
	entries := w.split(rand.New(rand.NewPCG(2, 2)))
	var all [2]map[batch.Txid]bool
	for i := range all {
		all[i] = map[batch.Txid]bool{}
		err := w.drive(vfs.NewMem(), entries, 1, func(c *exec.Config) {
			c.Check, c.OnChecked = 0.3, func(txid batch.Txid) { all[i][txid] = true }
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := len(all[0]); n < len(entries)/6 || n > len(entries)/2 || len(all[1]) != n {
		t.Errorf("%d and %d batches of %d were checked", n, len(all[1]), len(entries))
	}
	for txid := range all[0] {
		if !all[1][txid] {
			t.Errorf("txid %d was checked once only", txid)
		}
	}
}

// TestCheckFinds has one function that isn't pure, at each kind of step, and wants batch, state, key, values, partition, record and step named.
func TestCheckFinds(t *testing.T) {
	var calls atomic.Int64
	impure := func(s string) string { // for one record only
		if s == "odd" {
			return s + strings.Repeat("!", int(calls.Add(1)))
		}
		return s
	}
	count := func(s engine.Stream[string], name string) {
		engine.Aggregate(engine.GroupBy(s, func(s string) string { return s }, "word"), name, agg.Count[string]("n"))
	}
	for name, tc := range map[string]struct {
		attach func(lines engine.Stream[string])
		record bool // the partition is told, and the offset of the record
		text   []string
	}{
		"map": {func(s engine.Stream[string]) {
			count(engine.Map(engine.Map(s, strings.TrimSpace), impure), "words")
		}, true, []string{"state words, key word=odd!", "step map 2", `which handed on "odd!`}},
		"filter": {func(s engine.Stream[string]) {
			count(s.Filter(func(s string) bool { return s != "odd" || calls.Add(1)%2 == 0 }), "words")
		}, true, []string{"state words, key word=odd", "n=1", "nothing", "step filter 1"}},
		"flat map, behind a merge": {func(s engine.Stream[string]) {
			bent := engine.FlatMap(s, func(s string) []string { return make([]string, len(impure(s))) })
			count(engine.Merge(s, bent), "words")
		}, true, []string{"state words, key word=:", "step flat_map 1"}},
		"key": {func(s engine.Stream[string]) {
			engine.Aggregate(engine.GroupBy(s, impure, "word"), "words", agg.Count[string]("n"))
		}, false, []string{"state words, key word=odd!", "step group by or aggregate words"}},
		"aggregate": {func(s engine.Stream[string]) {
			engine.Aggregate(engine.GroupBy(s, func(string) int64 { return 0 }, "k"), "sums",
				agg.SumOf("sum", func(s string) int64 { return int64(len(impure(s))) }))
		}, false, []string{"state sums, key k=0: sum=", "step group by or aggregate sums"}},
		"behind a batch aggregate": {func(s engine.Stream[string]) {
			totals := engine.BatchAggregate[int64](engine.GroupBy(s, func(s string) string { return s }, "word"), "totals", agg.Count[string]("n"))
			bent := engine.Map(totals, func(t engine.Total[string, int64]) string { return impure(t.Key) })
			count(bent, "bent")
		}, false, []string{"totals", "state bent, key word=odd!"}},
		"persist": {func(s engine.Stream[string]) {
			engine.PartitionPersist(s, "kept", func(_ *engine.Batch, rows []string, st *engine.KV[string, string]) error {
				for _, r := range rows {
					if err := st.Set(r, impure(r)); err != nil {
						return err
					}
				}
				return nil
			}, "key")
		}, false, []string{"state kept, key key=odd: value=odd!", "step persist kept"}},
		"rows of a persist": {func(s engine.Stream[string]) {
			engine.PartitionPersist(engine.Map(s, impure), "kept", func(_ *engine.Batch, rows []string, st *engine.KV[string, int64]) error {
				return st.Set("n", int64(len(rows[len(rows)-1])))
			}, "key")
		}, true, []string{"state kept, key key=n", "step map 1"}},
		"bad record": {func(s engine.Stream[string]) {
			count(engine.TryMap(s, func(_ *engine.Batch, s string) (string, error) {
				if s == "odd" && calls.Add(1)%2 == 0 {
					return "", errAway.Err
				}
				return s, nil
			}), "words")
		}, true, []string{"rows turned away", "map 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			calls.Store(0)
			w := newWorld(t)
			w.build = func() *engine.Pipeline {
				p := engine.New("test", engine.OnBadRecord(engine.Skip))
				tc.attach(engine.From(p, "lines", w.lines, codec.String()))
				return p
			}
			w.lines.add(0, "a", "b", "c")
			w.lines.add(1, "d", "e", "odd")
			fs := vfs.NewMem()
			entries := w.split(rand.New(rand.NewPCG(3, 3)))
			var last int
			for i, e := range entries {
				for _, r := range e.Ranges {
					if r.Number == 1 && r.Start <= 2 && r.End > 2 {
						last = i
					}
				}
			}
			err := w.drive(fs, entries, 2, func(c *exec.Config) { c.Check = 1 })
			if batch.CodeOf(err) != batch.CodeNotDeterministic || batch.KindOf(err) != batch.Permanent {
				t.Fatalf("%v, want code %s", err, batch.CodeNotDeterministic)
			}
			e, ok := errors.AsType[*batch.Error](err)
			if !ok {
				t.Fatal(err)
			}
			if e.Txid != entries[last].Txid || e.Pipeline != "test" || e.Remedy == "" {
				t.Errorf("%+v, want txid %d", e, entries[last].Txid)
			}
			for _, want := range tc.text {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
			if tc.record && (e.Partition.Number != 1 || e.Partition.Source != "lines" || e.Offset != 2) {
				t.Errorf("%s offset %d is named, want partition 1, offset 2", e.Partition, e.Offset)
			}
			if got := w.outcomeOf(fs); got.snap.Txid != e.Txid-1 {
				t.Errorf("txid %d has committed, want %d", got.snap.Txid, e.Txid-1)
			}
		})
	}
}

// TestCheckChangedInput: a source that doesn't give the same records again is no fault of a function.
func TestCheckChangedInput(t *testing.T) {
	w := newWorld(t)
	w.fill(20)
	entries := w.split(rand.New(rand.NewPCG(4, 4)))
	reads := 0
	w.lines.read = func(_ context.Context, r batch.Range) error {
		if r.Start <= 7 && r.End > 7 {
			if reads++; reads == 2 {
				w.lines.set(0, 7, "other")
			}
		}
		return nil
	}
	err := w.drive(vfs.NewMem(), entries, 1, func(c *exec.Config) { c.Check = 1 })
	e, ok := errors.AsType[*batch.Error](err)
	if !ok || e.Code != batch.CodeUnreplayable || e.Partition.Source != "lines" {
		t.Errorf("%v, want code %s for lines", err, batch.CodeUnreplayable)
	}
}
