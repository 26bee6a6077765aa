package exec

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// overlay holds the new values of one state that a batch in flight has set, per shard; nil values are deletions.
// It is written by the state stage of its batch and read by those of later ones.
type overlay struct {
	shards []map[string][]byte
	// dropped are the encoded starts of windows whose rows, but for those in shards, the batch removes.
	dropped [][]byte
}

// get returns what the batch makes of a key; known is false if it leaves it as it is.
func (o *overlay) get(shard int, key []byte) (val []byte, known bool) {
	if val, known = o.shards[shard][string(key)]; known {
		return val, true
	}
	for _, start := range o.dropped {
		if bytes.HasPrefix(key, start) {
			return nil, true
		}
	}
	return nil, false
}

// view reads a state as it is before a batch: the overlays of the batches in flight before it, the newest first,
// over what has committed.
type view struct {
	overlays []*overlay
	base     state.Reader
}

func (v *view) get(ctx context.Context, shard int, key []byte) ([]byte, bool, error) {
	for _, o := range v.overlays {
		if val, known := o.get(shard, key); known {
			return val, val != nil, nil
		}
	}
	return v.base.Get(ctx, key)
}

func (x *Executor) viewOf(name string, before []*flight) (*view, error) {
	base, err := x.cfg.DB.State(name)
	if err != nil {
		return nil, err
	}
	v := &view{base: base}
	for _, f := range before {
		if o := f.overlays[name]; o != nil {
			v.overlays = append(v.overlays, o)
		}
	}
	return v, nil
}

// before lists the batches in flight ahead of f, the newest first.
func (x *Executor) before(f *flight) []*flight {
	x.mu.Lock()
	defer x.mu.Unlock()
	var fs []*flight
	for t := f.b.Txid - 1; x.flights[t] != nil; t-- {
		fs = append(fs, x.flights[t])
	}
	return fs
}

// stageOut is what the tasks of a later stage handed over: one part for each shard that had rows, in shard order.
type stageOut struct {
	name  string // the exchange's
	parts []stagePart
}

type stagePart struct {
	shard    int
	out      []*plan.Deltas
	persist  []any
	rejected []plan.Rejected
}

// partition stands for a shard of a later stage where a source partition would.
func (st *stageOut) partition(p *stagePart) batch.Partition {
	return batch.Partition{Source: st.name, Number: int32(p.shard)}
}

// stateStage brings the deltas of all tasks together, exchange by exchange, and collects what the states become.
func (x *Executor) stateStage(ctx context.Context, f *flight, before []*flight, windows windowSet) error {
	began := x.cfg.Now()
	inputs := make([][]*plan.Deltas, 0, len(f.results))
	for _, r := range f.results {
		inputs = append(inputs, r.out)
	}
	for i, e := range x.plan.Exchanges {
		deltas := make([]*plan.Deltas, 0, len(inputs))
		for _, out := range inputs {
			if out[i].Len() > 0 {
				deltas = append(deltas, out[i])
			}
		}
		if len(deltas) == 0 {
			continue
		}
		st, err := x.runExchange(ctx, f, before, e, deltas)
		if err != nil {
			return err
		}
		if st != nil {
			f.stages = append(f.stages, st)
			for i := range st.parts {
				inputs = append(inputs, st.parts[i].out)
				f.countRejected(st.parts[i].rejected)
			}
		}
	}
	if err := x.runPersists(ctx, f, before); err != nil {
		return err
	}
	x.collectRejected(f)
	if x.windowed {
		x.closeWindows(f, windows)
	}
	slices.SortFunc(f.sets, func(a, b *state.WriteSet) int { return bytes.Compare([]byte(a.State), []byte(b.State)) })
	for _, s := range f.sets {
		f.states = append(f.states, txstate.StateDigest{State: s.State, Writes: s.Writes, Digest: s.Digest})
	}
	f.took.Process = x.cfg.Now().Sub(began)
	return nil
}

// shardOut is what one shard of an exchange came to.
type shardOut struct {
	writes  []state.Write
	values  map[string][]byte // new values, for the overlay
	digest  digest
	changes int64
	next    *stagePart // what the later stage handed over
}

// runExchange merges the deltas of each shard in key order and source-partition order, and updates the state or
// feeds the next stage. Shards run in parallel; their results are put together in shard order.
func (x *Executor) runExchange(ctx context.Context, f *flight, before []*flight, e *plan.Exchange, in []*plan.Deltas) (*stageOut, error) {
	var v *view
	if e.State != nil && !e.State.Mergeable {
		var err error
		if v, err = x.viewOf(e.State.Schema.Name, before); err != nil {
			return nil, err
		}
	}
	shards := make([]shardOut, x.cfg.Shards)
	var turns []int
	if x.turns != nil {
		turns = x.turns(x.cfg.Shards)
	}
	failed := newFirstFailure()
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range min(x.cfg.Procs, x.cfg.Shards) {
		wg.Go(func() {
			if err := acquire(ctx, x.shardSlots); err != nil {
				failed.note(x.cfg.Shards, err)
				return
			}
			defer func() { <-x.shardSlots }()
			w := &shardWorker{x: x, f: f, e: e, in: in, view: v}
			// Shards are taken in order: when one has failed, those before it have been taken, and run to their end.
			for k := int(next.Add(1)) - 1; k < x.cfg.Shards; k = int(next.Add(1)) - 1 {
				i := k
				if turns != nil {
					i = turns[k]
				}
				if !failed.matters(i) {
					return
				}
				err := w.run(ctx, i, &shards[i])
				if err == nil {
					err = context.Cause(ctx)
				}
				if err != nil {
					failed.note(i, err)
					return
				}
			}
			mu.Lock()
			f.pages = append(f.pages, &w.mem)
			mu.Unlock()
		})
	}
	wg.Wait()
	if err := failed.first(); err != nil {
		return nil, err
	}
	if e.State != nil {
		x.collectState(f, e.State, shards)
	}
	if e.Next == nil {
		return nil, nil
	}
	st := &stageOut{name: e.Name}
	for i := range shards {
		if shards[i].next != nil {
			st.parts = append(st.parts, *shards[i].next)
		}
	}
	return st, nil
}

func (x *Executor) collectState(f *flight, st *plan.State, shards []shardOut) {
	set := &state.WriteSet{State: st.Schema.Name, Shards: make([][]state.Write, len(shards))}
	d := digest(seedChange)
	var o *overlay
	if !st.Mergeable {
		o = &overlay{shards: make([]map[string][]byte, len(shards))}
	}
	for i := range shards {
		s := &shards[i]
		if s.changes == 0 {
			continue
		}
		set.Shards[i] = s.writes
		set.Writes += s.changes
		d = d.word(uint64(i)).word(uint64(s.changes)).word(s.digest.sum())
		if o != nil {
			o.shards[i] = s.values
		}
	}
	set.Digest = d.sum()
	f.sets = append(f.sets, set)
	if o != nil {
		f.overlays[st.Schema.Name] = o
	}
}

// shardWorker runs shards of one exchange, one after the other. What it writes refers to the tasks' arenas and
// to mem, which live until the batch has committed.
type shardWorker struct {
	x    *Executor
	f    *flight
	e    *plan.Exchange
	in   []*plan.Deltas
	view *view
	mem  arena

	refs     []ref
	acc, tmp []byte
	stage    plan.StageTask
}

// ref is one delta and the task it comes from.
type ref struct {
	plan.Delta
	task int32
}

func (w *shardWorker) run(ctx context.Context, shard int, out *shardOut) error {
	w.refs = w.refs[:0]
	for t, d := range w.in {
		for _, e := range d.Shard(shard) {
			w.refs = append(w.refs, ref{e, int32(t)})
		}
	}
	if len(w.refs) == 0 {
		return nil
	}
	slices.SortFunc(w.refs, func(a, b ref) int {
		if a.Prefix != b.Prefix {
			if a.Prefix < b.Prefix {
				return -1
			}
			return 1
		}
		if c := bytes.Compare(w.in[a.task].Key(&a.Delta), w.in[b.task].Key(&b.Delta)); c != 0 {
			return c
		}
		if a.task != b.task {
			return int(a.task - b.task)
		}
		if a.Before(&b.Delta) {
			return -1
		}
		return 1
	})
	out.digest = seedChange
	if w.e.State != nil {
		out.writes = make([]state.Write, 0, len(w.refs))
		if w.view != nil {
			out.values = make(map[string][]byte, len(w.refs))
		}
	}
	var tc *plan.TaskContext
	if w.e.Next != nil {
		if w.stage == nil {
			w.stage = w.e.Next()
		}
		out.next = &stagePart{shard: shard, out: w.x.outs.get(w.x.cfg.Shards)}
		tc = &plan.TaskContext{
			Batch: w.f.b, Shard: shard, OnBad: w.x.onBad, Watermarks: w.f.left.marks, Statics: w.f.tables,
			EventTime: txstate.NoTime, Out: out.next.out, Persist: make([]any, len(w.x.plan.Persists)),
		}
		if err := w.stage.Begin(tc); err != nil {
			return err
		}
	}
	for i := 0; i < len(w.refs); {
		first := &w.refs[i]
		key := w.in[first.task].Key(&first.Delta)
		delta := w.in[first.task].Value(&first.Delta)
		j := i + 1
		for ; j < len(w.refs); j++ {
			r := &w.refs[j]
			if r.Prefix != first.Prefix || !bytes.Equal(w.in[r.task].Key(&r.Delta), key) {
				break
			}
			merged, err := w.e.Merge(w.tmp[:0], delta, w.in[r.task].Value(&r.Delta))
			if err != nil {
				return w.fail("merge", key, err)
			}
			w.acc, w.tmp = merged, w.acc // delta may lie in acc: the next merge writes to the other
			delta = merged
		}
		if j > i+1 && w.e.State != nil {
			delta = w.mem.copy(delta)
		}
		out.digest = out.digest.bytes(key).bytes(delta)
		out.changes++
		row := delta
		if w.e.State != nil {
			value, err := w.update(ctx, shard, key, delta, out)
			if err != nil {
				return err
			}
			row = value
		}
		if w.e.Next != nil && row != nil {
			if err := w.stage.Row(key, row); err != nil {
				return err
			}
		}
		i = j
	}
	if w.e.Next != nil {
		if err := w.stage.End(); err != nil {
			return err
		}
		for _, d := range tc.Out {
			d.Finish()
		}
		out.next.persist, out.next.rejected = tc.Persist, tc.Rejected
	}
	return nil
}

// update writes the change of one key and returns its new value: nil if it was removed, or isn't known as the
// state is written as merge operands.
func (w *shardWorker) update(ctx context.Context, shard int, key, delta []byte, out *shardOut) ([]byte, error) {
	st := w.e.State
	if st.Mergeable {
		out.writes = append(out.writes, state.Write{Op: state.Merge, Key: key, Value: delta})
		return nil, nil
	}
	old, ok, err := w.view.get(ctx, shard, key)
	if err != nil {
		return nil, err
	}
	if !ok {
		old = nil
	}
	value, keep, err := st.Update(w.tmp[:0], old, delta)
	if err != nil {
		return nil, w.fail("update", key, err)
	}
	if !keep {
		out.writes = append(out.writes, state.Write{Op: state.Delete, Key: key})
		out.values[string(key)] = nil
		return nil, nil
	}
	w.tmp = value
	value = w.mem.copy(value) // never nil: an empty value is a value
	out.writes = append(out.writes, state.Write{Op: state.Set, Key: key, Value: value})
	out.values[string(key)] = value
	return value, nil
}

func (w *shardWorker) fail(op string, key []byte, err error) error {
	name := fmt.Sprintf("%x", key)
	if w.e.FormatKey != nil {
		name = w.e.FormatKey(key)
	}
	return batch.NewError(batch.Permanent, codeOf(err), op, fmt.Errorf("stream %s, key %s: %w", w.e.Name, name, err), "the state is as it was before this batch")
}

func codeOf(err error) batch.Code {
	if batch.KindOf(err) == batch.Permanent {
		return batch.CodeOf(err)
	}
	return batch.CodeUserError
}
