package exec

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate/txstatetest"
)

// benchKeys is how many keys each of benchTasks tasks has for an exchange.
const benchKeys, benchTasks = 20_000, 4

func benchExecutor(st *plan.State, next func() plan.StageTask, db *pebblestate.DB) *exchangeRun {
	e := &plan.Exchange{Name: "totals", Merge: agg.Merge, State: st, Next: next, FormatKey: func(key []byte) string { return fmt.Sprintf("%x", key) }}
	x := New(Config{Plan: &plan.Plan{Name: "bench", Exchanges: []*plan.Exchange{e}}, DB: db, Shards: plan.DefaultShards, Now: time.Now})
	return &exchangeRun{x: x, e: e}
}

// again makes r the run of a new batch.
func (r *exchangeRun) again() {
	r.f = &flight{b: &batch.Batch{Txid: 2, Time: time.Unix(3600, 0)}, overlays: map[string]*overlay{}, left: &times{}}
}

func userKey(prefix []byte, i int) []byte {
	return value.AppendKey(append([]byte(nil), prefix...), value.StringOf(fmt.Sprintf("user-%06d", i)))
}

// BenchmarkExchange brings the deltas of four tasks together, most of whose keys all of them have: sorted by key, combined in
// the order of the tasks, and made writes of a state.
func BenchmarkExchange(b *testing.B) {
	st := &plan.State{Schema: state.Schema{Name: "totals", Kind: "aggregate"}, Mergeable: true}
	r := benchExecutor(st, nil, nil)
	for t := range benchTasks {
		d := new(plan.Deltas)
		d.Reset(plan.DefaultShards)
		for i := range benchKeys {
			if err := d.Add(userKey(nil, (i*7919+t)%(benchKeys+benchTasks)), agg.AppendSumInt(agg.AppendCount(nil, 1), 0, uint64(i), 1)); err != nil {
				b.Fatal(err)
			}
		}
		d.Finish()
		r.in = append(r.in, d)
	}
	b.ReportAllocs()
	for b.Loop() {
		r.again()
		if _, err := r.run(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
		if n := r.f.sets[0].Writes; n < benchKeys || n > benchKeys+benchTasks {
			b.Fatalf("%d keys were written, want about %d", n, benchKeys)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchTasks*benchKeys), "ns/delta")
}

// counter is a stage that counts its rows.
type counter struct{ n *int }

func (counter) Begin(*plan.TaskContext) error { return nil }
func (c counter) Row(_, _ []byte) error       { *c.n++; return nil }
func (counter) End() error                    { return nil }

// BenchmarkWindowClose reads a window's rows from the store, beside the rows of a window that stays open, and sends them to the stage behind.
func BenchmarkWindowClose(b *testing.B) {
	ctx := context.WithoutCancel(b.Context())
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: b.TempDir() + "/bench", Pipeline: "bench", Shards: plan.DefaultShards, CreateIfMissing: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	}()
	schema := state.Schema{
		Name: "totals", Kind: "aggregate", Key: []state.Column{{Name: "user", Type: "string"}}, Values: []state.Column{{Name: "n", Type: "int"}},
		Window: &state.Window{Size: int64(time.Hour)},
	}
	closing := value.AppendKeyTime(nil, 0)
	set := &state.WriteSet{State: schema.Name, Shards: make([][]state.Write, plan.DefaultShards)}
	for _, start := range [][]byte{closing, value.AppendKeyTime(nil, int64(time.Hour))} {
		for i := range benchKeys {
			key := userKey(start, i)
			shard := state.ShardOf(key, plan.DefaultShards)
			set.Shards[shard] = append(set.Shards[shard], state.Write{Op: state.Set, Key: key, Value: agg.AppendCount(nil, int64(i))})
			set.Writes++
		}
	}
	entry, pos := txstatetest.Simple(1, 1)
	if err := db.Commit(ctx, []pebblestate.Commit{{Entry: entry, Positions: pos, Sets: []*state.WriteSet{set}, Schemas: []state.Schema{schema}}}); err != nil {
		b.Fatal(err)
	}
	sent := 0
	st := &plan.State{Schema: schema, Emit: plan.EmitCloses, Clock: plan.ClockBatch}
	r := benchExecutor(st, func() plan.StageTask { return counter{&sent} }, db)
	r.x.cfg.Procs = 1 // one counter
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		r.again()
		if _, err := r.run(ctx, windowSet{schema.Name: {string(closing): 0}}); err != nil {
			b.Fatal(err)
		}
	}
	if sent != n*benchKeys {
		b.Fatalf("%d rows were sent, want %d", sent, n*benchKeys)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(sent), "ns/row")
}
