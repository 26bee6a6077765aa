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
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/sink"
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
	shard    int            // behind a persist, the number of the task that had the rows
	out      []*plan.Deltas // nil if there is no stage, only an operator
	persist  []any
	sinks    []*sink.Buffer
	rejected []plan.Rejected
	filtered int64
	peeked   []plan.Peeked
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
	hand := func(st *stageOut) {
		if st == nil {
			return
		}
		f.stages = append(f.stages, st)
		for i := range st.parts {
			if out := st.parts[i].out; out != nil {
				inputs = append(inputs, out)
			}
			f.countRejected(st.parts[i].rejected, x.onBad)
			f.counts.Filtered += st.parts[i].filtered
		}
	}
	for i, e := range x.plan.Exchanges {
		for j, p := range x.plan.Persists {
			if p.Before != e {
				continue
			}
			st, err := x.runPersist(ctx, f, before, j)
			if err != nil {
				return err
			}
			hand(st)
		}
		r := &exchangeRun{x: x, f: f, before: before, e: e}
		for _, out := range inputs {
			if out[i].Len() > 0 {
				r.in = append(r.in, out[i])
			}
		}
		st, err := r.run(ctx, windows)
		if err != nil {
			return err
		}
		hand(st)
	}
	through := len(f.stages)
	for j, p := range x.plan.Persists {
		if p.Before != nil {
			continue
		}
		st, err := x.runPersist(ctx, f, before, j)
		if err != nil {
			return err
		}
		hand(st)
	}
	x.checkOrder(f, through)
	x.collectRejected(f)
	x.inherit(f, before)
	if err := x.collectDead(f); err != nil {
		return err
	}
	if err := x.collectSinks(f); err != nil {
		return err
	}
	if x.windowed {
		x.closeWindows(f, windows)
	}
	f.collectTimers()
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
	next    *stagePart // what the later stage handed over, and what an operator turned away
	timers  []timerChange
	rows    []outputRow
}

// exchangeRun is one exchange of one batch.
type exchangeRun struct {
	x      *Executor
	f      *flight
	before []*flight // in flight ahead of the batch, the newest first
	e      *plan.Exchange
	in     []*plan.Deltas // of the tasks that have some, in their order

	view    *view                 // of the state before the batch; nil if that isn't read
	output  *view                 // of the operator's output before the batch; nil if it has none
	closing [][]byte              // encoded starts of the windows whose rows go on
	scan    *pebblestate.Snapshot // what the rows of closing windows are read from
	due     [][][]byte            // by shard: keys whose timers are due, sorted; nil if there is none
	now     int64                 // the operator's clock
}

// run merges the deltas of each shard in key order and task order, and updates the state or hands them to the later stage. It
// returns what that handed over; nil if there is nothing.
func (r *exchangeRun) run(ctx context.Context, windows windowSet) (*stageOut, error) {
	x, st := r.x, r.e.State
	if st != nil && st.Emit&plan.EmitCloses != 0 {
		r.closing = r.f.closing(st, windows[st.Schema.Name], r.in)
	}
	if r.e.Operator != nil {
		if err := r.findDue(ctx); err != nil {
			return nil, err
		}
	}
	if len(r.in) == 0 && len(r.closing) == 0 && r.due == nil {
		return nil, nil
	}
	if st != nil && !st.Mergeable {
		var err error
		if r.view, err = x.viewOf(st.Schema.Name, r.before); err != nil {
			return nil, err
		}
	}
	if r.e.Output != nil {
		var err error
		if r.output, err = x.viewOf(r.e.Output.Schema.Name, r.before); err != nil {
			return nil, err
		}
	}
	if len(r.closing) > 0 {
		snap, err := x.cfg.DB.Snapshot()
		if err != nil {
			return nil, err
		}
		defer snap.Close() //nolint:errcheck // it only reads
		r.scan = snap
	}
	shards := make([]shardOut, x.cfg.Shards)
	err := r.runShards(ctx, shards)
	for i := range shards {
		if next := shards[i].next; next != nil {
			r.f.peeked = append(r.f.peeked, next.peeked...)
		}
	}
	if err != nil {
		return nil, err
	}
	if st != nil {
		x.collectState(r.f, st, shards)
	}
	if r.e.Operator != nil {
		if err := r.collectOperator(ctx, shards); err != nil {
			return nil, err
		}
	}
	if r.e.Next == nil && r.e.Operator == nil {
		return nil, nil
	}
	out := &stageOut{name: r.e.Name}
	for i := range shards {
		if shards[i].next != nil {
			out.parts = append(out.parts, *shards[i].next)
		}
	}
	return out, nil
}

func (r *exchangeRun) runShards(ctx context.Context, shards []shardOut) error {
	x := r.x
	var turns []int
	if x.turns != nil {
		turns = x.turns(x.cfg.Shards)
	}
	failed := newFirstFailure()
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	workers := min(x.cfg.Procs, x.cfg.Shards)
	if r.e.Parallel > 0 {
		workers = min(workers, r.e.Parallel)
	}
	for range workers {
		wg.Go(func() {
			if err := acquire(ctx, x.shardSlots); err != nil {
				failed.note(x.cfg.Shards, err)
				return
			}
			defer func() { <-x.shardSlots }()
			w := &shardWorker{exchangeRun: r}
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
			r.f.pages = append(r.f.pages, &w.mem)
			mu.Unlock()
		})
	}
	wg.Wait()
	return failed.first()
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
	if set.Writes == 0 {
		return // windows closed, or an operator left everything as it was
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
	*exchangeRun
	mem arena

	refs     []ref
	acc, tmp []byte
	stage    plan.StageTask
	read     func(string) state.Reader
	operator plan.Operator
	deltas   [][]byte
}

// ref is one delta and the task it comes from.
type ref struct {
	plan.Delta
	task int32
}

// gather sorts the deltas of a shard by key, then task, then as they were added.
func (w *shardWorker) gather(shard int) {
	w.refs = w.refs[:0]
	for t, d := range w.in {
		for _, e := range d.Shard(shard) {
			w.refs = append(w.refs, ref{e, int32(t)})
		}
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
}

// group returns the key of ref i and the index behind its last delta.
func (w *shardWorker) group(i int) (key []byte, end int) {
	first := &w.refs[i]
	key = w.in[first.task].Key(&first.Delta)
	for end = i + 1; end < len(w.refs); end++ {
		r := &w.refs[end]
		if r.Prefix != first.Prefix || !bytes.Equal(w.in[r.task].Key(&r.Delta), key) {
			break
		}
	}
	return key, end
}

func (w *shardWorker) delta(i int) []byte { return w.in[w.refs[i].task].Value(&w.refs[i].Delta) }

func (w *shardWorker) run(ctx context.Context, shard int, out *shardOut) error {
	w.gather(shard)
	var due [][]byte
	if w.due != nil {
		due = w.due[shard]
	}
	if len(w.refs) == 0 && len(w.closing) == 0 && len(due) == 0 {
		return nil
	}
	out.digest = seedChange
	if w.e.State != nil {
		out.writes = make([]state.Write, 0, len(w.refs))
		if w.view != nil {
			out.values = make(map[string][]byte, len(w.refs))
		}
	}
	var closing map[string][]byte
	if len(w.closing) > 0 {
		var err error
		if closing, err = w.closingRows(ctx, shard); err != nil {
			return err
		}
		if len(w.refs) == 0 && len(closing) == 0 {
			return nil
		}
	}
	var tc *plan.TaskContext
	if w.sends() || w.e.Operator != nil {
		out.next = &stagePart{shard: shard}
		tc = w.x.stageContext(w.f, shard)
	}
	if w.sends() {
		if w.stage == nil {
			w.stage, w.read = w.e.Next(), w.x.readerOf(w.f, w.before)
		}
		tc.Out, tc.State = w.x.outs.get(w.x.cfg.Shards), w.read
		defer func() { out.next.peeked = tc.Peeked }()
		if err := w.stage.Begin(tc); err != nil {
			return err
		}
	}
	var err error
	if w.e.Operator != nil {
		err = w.operate(ctx, shard, due, tc, out)
	} else {
		err = w.merge(ctx, shard, out)
	}
	if err == nil && len(w.closing) > 0 {
		tc.Final = true
		err = w.sendClosing(closing, out.values)
	}
	if err != nil {
		return err
	}
	if w.sends() {
		if err := w.stage.End(); err != nil {
			return err
		}
	}
	if tc != nil {
		out.next.finish(tc)
	}
	return nil
}

// sends tells whether rows may go to the stage behind.
func (r *exchangeRun) sends() bool {
	st := r.e.State
	return r.e.Next != nil && (st == nil || r.e.Operator != nil || st.Emit&plan.EmitUpdates != 0 || len(r.closing) > 0)
}

// stageContext is the context of a task of a later stage.
func (x *Executor) stageContext(f *flight, shard int) *plan.TaskContext {
	return &plan.TaskContext{
		Batch: f.b, Shard: shard, OnBad: x.onBad, Watermarks: f.left.marks, Statics: f.tables,
		EventTime: txstate.NoTime, Persist: make([]any, len(x.plan.Persists)), Sinks: make([]*sink.Buffer, len(x.plan.Sinks)),
	}
}

// finish takes over what a task left in its context.
func (p *stagePart) finish(tc *plan.TaskContext) {
	for _, d := range tc.Out {
		d.Finish()
	}
	p.out, p.persist, p.sinks, p.rejected, p.filtered = tc.Out, tc.Persist, tc.Sinks, tc.Rejected, tc.Filtered
}

// merge combines the deltas of each key, and updates the state or hands them on.
func (w *shardWorker) merge(ctx context.Context, shard int, out *shardOut) error {
	emits := w.sends() && (w.e.State == nil || w.e.State.Emit&plan.EmitUpdates != 0)
	for i := 0; i < len(w.refs); {
		key, j := w.group(i)
		delta := w.delta(i)
		if w.e.Merge == nil && j > i+1 {
			w.acc = append(w.acc[:0], delta...)
			for k := i + 1; k < j; k++ {
				w.acc = append(w.acc, w.delta(k)...)
			}
			delta = w.acc
		}
		for k := i + 1; k < j && w.e.Merge != nil; k++ {
			merged, err := w.e.Merge(w.tmp[:0], delta, w.delta(k))
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
		if emits && row != nil {
			if err := w.stage.Row(key, row); err != nil {
				return err
			}
		}
		i = j
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
	if keep {
		w.tmp = value
	} else {
		value = nil
	}
	return w.write(key, value, keep, out), nil
}

// write sets or removes a key, and returns the value as it is kept.
func (w *shardWorker) write(key, value []byte, keep bool, out *shardOut) []byte {
	if !keep {
		out.writes = append(out.writes, state.Write{Op: state.Delete, Key: key})
		out.values[string(key)] = nil
		return nil
	}
	value = w.mem.copy(value) // never nil: an empty value is a value
	out.writes = append(out.writes, state.Write{Op: state.Set, Key: key, Value: value})
	out.values[string(key)] = value
	return value
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
