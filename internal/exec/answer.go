package exec

import (
	"bytes"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// Answers answers the queries of a plan, each over one snapshot: what it finds there is a function of the arguments and of the
// snapshot's txid. It may be used by many goroutines at once.
type Answers struct {
	plan *plan.Plan

	mu     sync.Mutex
	tables map[string]builtTable // of static tables, the version that was asked last
}

type builtTable struct {
	digest uint64
	built  any
}

// NewAnswers prepares to answer the queries of p.
func NewAnswers(p *plan.Plan) *Answers {
	return &Answers{plan: p, tables: map[string]builtTable{}}
}

// QueryNamed finds a query of a plan. The error for one that isn't there names those that are.
func QueryNamed(p *plan.Plan, name string) (*plan.Query, error) {
	var have []string
	for _, q := range p.Queries {
		if q.Name == name {
			return q, nil
		}
		have = append(have, q.Name)
	}
	msg := fmt.Sprintf("no query %q; there is %s", name, strings.Join(have, ", "))
	if len(have) == 0 {
		msg = fmt.Sprintf("no query %q: the pipeline declares none", name)
	}
	if near, ok := names.Nearest(name, have); ok {
		msg += fmt.Sprintf("; did you mean %s?", near)
	}
	return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "query", errorText(msg), "")
}

// Answer is what a query came to at a txid.
type Answer struct {
	Txid  batch.Txid
	Query *plan.Query
	// Parts is what the tasks left at the query's end, in their order.
	Parts []any
}

// Rows passes the rows of the answer to emit. The row may be used until emit returns.
func (a *Answer) Rows(emit func(row []value.Value) error) error {
	for _, p := range a.Parts {
		if err := a.Query.Rows(p, emit); err != nil {
			return err
		}
	}
	return nil
}

// Ask runs a query over a snapshot. clock is the Time of the snapshot's last batch.
func (a *Answers) Ask(ctx context.Context, q *plan.Query, args any, snap *pebblestate.Snapshot, clock time.Time) (_ *Answer, err error) {
	r := &answering{
		ctx: ctx, q: q, answer: &Answer{Txid: snap.Txid(), Query: q},
		b:       &batch.Batch{Txid: snap.Txid(), Time: clock},
		readers: map[string]state.Reader{}, snap: snap,
	}
	if r.tables, err = a.tablesOf(ctx, q, snap); err != nil {
		return nil, err
	}
	for range q.Exchanges {
		d := new(plan.Deltas)
		d.Reset(plan.DefaultShards)
		r.out = append(r.out, d)
	}
	if err := r.run(args); err != nil {
		return nil, fmt.Errorf("query %s: %w", q.Name, err)
	}
	return r.answer, nil
}

// tablesOf makes the static tables that a query looks up, as the snapshot's last batch used them, by index in Plan.Statics.
func (a *Answers) tablesOf(ctx context.Context, q *plan.Query, snap *pebblestate.Snapshot) ([]any, error) {
	all := make([]any, len(a.plan.Statics))
	for i, s := range a.plan.Statics {
		if !slices.Contains(q.Tables, s.Name) {
			continue
		}
		a.mu.Lock()
		have, known := a.tables[s.Name]
		a.mu.Unlock()
		var digest *uint64
		if known {
			digest = &have.digest
		}
		t, ok, err := snap.Static(ctx, s.Name, digest)
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return nil, batch.NewError(batch.Transient, batch.CodeUnavailable, "query",
				fmt.Errorf("static table %s isn't in the store: no batch has committed yet", s.Name), "ask again once one has")
		}
		if !known || t.Digest != have.digest {
			have.digest = t.Digest
			if have.built, err = s.Build(partsOf(&t)); err != nil {
				return nil, err
			}
			a.mu.Lock()
			a.tables[s.Name] = have
			a.mu.Unlock()
		}
		all[i] = have.built
	}
	return all, nil
}

// answering is one call of a query. Its tasks run one after the other: what they have for an exchange is put into one Deltas, in
// their order.
type answering struct {
	ctx     context.Context
	q       *plan.Query
	b       *batch.Batch
	snap    *pebblestate.Snapshot
	tables  []any
	out     []*plan.Deltas // by exchange
	readers map[string]state.Reader
	answer  *Answer
}

// snapshotReader reads one state of a snapshot.
type snapshotReader struct {
	snap *pebblestate.Snapshot
	name string
}

func (r *snapshotReader) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	return r.snap.Get(ctx, r.name, key)
}

func (r *answering) state(name string) state.Reader {
	if r.readers[name] == nil {
		r.readers[name] = &snapshotReader{r.snap, name}
	}
	return r.readers[name]
}

func (r *answering) context(shard int) *plan.TaskContext {
	return &plan.TaskContext{
		Batch: r.b, Partition: batch.Partition{Source: r.q.Name}, Shard: shard, OnBad: plan.Stop, Careful: true,
		Statics: r.tables, EventTime: txstate.NoTime, Out: r.out, Persist: make([]any, 1), State: r.state,
	}
}

func (r *answering) run(args any) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = batch.NewError(batch.Permanent, batch.CodeUserError, "query", &panicked{value: v, stack: debug.Stack()}, "mend the function")
		}
	}()
	tc := r.context(0)
	task := r.q.NewTask(args)
	if err := task.Begin(tc); err != nil {
		return err
	}
	if err := task.End(); err != nil {
		return err
	}
	r.take(tc)
	for i, e := range r.q.Exchanges {
		r.out[i].Finish()
		if err := r.exchange(e, r.out[i]); err != nil {
			return err
		}
	}
	return context.Cause(r.ctx)
}

// take keeps what a task has left at the query's end.
func (r *answering) take(tc *plan.TaskContext) {
	if left := tc.Persist[0]; left != nil {
		r.answer.Parts = append(r.answer.Parts, left)
	}
}

// exchange gives the deltas of each shard to the stage behind, by key, as a batch would.
func (r *answering) exchange(e *plan.Exchange, in *plan.Deltas) error {
	if in.Len() == 0 {
		return nil
	}
	task := e.Next()
	var acc, tmp []byte
	for shard := range plan.DefaultShards {
		entries := slices.Clone(in.Shard(shard))
		if len(entries) == 0 {
			continue
		}
		if err := context.Cause(r.ctx); err != nil {
			return err
		}
		slices.SortStableFunc(entries, func(a, b plan.Delta) int { return bytes.Compare(in.Key(&a), in.Key(&b)) })
		tc := r.context(shard)
		if err := task.Begin(tc); err != nil {
			return err
		}
		for i := 0; i < len(entries); {
			key := in.Key(&entries[i])
			acc = append(acc[:0], in.Value(&entries[i])...)
			for i++; i < len(entries) && bytes.Equal(in.Key(&entries[i]), key); i++ {
				delta := in.Value(&entries[i])
				if e.Merge == nil {
					acc = append(acc, delta...)
					continue
				}
				merged, err := e.Merge(tmp[:0], acc, delta)
				if err != nil {
					return batch.NewError(batch.Permanent, codeOf(err), "merge", fmt.Errorf("%s, key %s: %w", e.Name, value.KeyText(key), err), "")
				}
				acc, tmp = merged, acc
			}
			if err := task.Row(key, acc); err != nil {
				return err
			}
		}
		if err := task.End(); err != nil {
			return err
		}
		r.take(tc)
	}
	return nil
}
