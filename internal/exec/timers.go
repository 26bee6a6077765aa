package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/enc"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// TimersState is the state that keeps, in the order of their times, which keys of operators want to be woken. It is derived from
// the operators' own states and changes in the same commits: a key has one row there if Operator.Wake gives its value a time,
// and none otherwise.
const TimersState = "_timers"

// TimersSchema describes it. There are no values.
func TimersSchema() state.Schema {
	return state.Schema{
		Name: TimersState, Kind: "opaque",
		Key: []state.Column{{Name: "state", Type: "string"}, {Name: "wake", Type: "timestamp"}, {Name: "key", Type: "bytes"}},
	}
}

// never is later than every timer.
const never = math.MaxInt64

func timersOf(name string) []byte { return value.AppendKeyString(nil, name) }

func timerKey(name string, wake int64, key []byte) []byte {
	return value.AppendKeyBytes(value.AppendKeyTime(timersOf(name), wake), key)
}

// decodeTimer reads what follows timersOf in a row's key.
func decodeTimer(b []byte) (wake int64, key []byte, err error) {
	at, rest, err := value.DecodeKey(b)
	if err == nil {
		var k value.Value
		if k, rest, err = value.DecodeKey(rest); err == nil && len(rest) == 0 && at.Kind() == value.Time && k.Kind() == value.Bytes {
			return at.Nanos(), k.Bytes(), nil
		}
	}
	return 0, nil, batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "load timers",
		fmt.Errorf("state %s, key %x: it is no timer", TimersState, b), "restore a savepoint, or rebuild by replay")
}

// timerOf reads a key that this process has made, or that findDue has read already.
func timerOf(b []byte) (wake int64, key []byte) {
	wake, key, err := decodeTimer(b)
	if err != nil {
		panic("exec: " + err.Error())
	}
	return wake, key
}

// timerChange is a key whose wish to be woken has changed; NoWake: none.
type timerChange struct {
	key      []byte
	was, now int64
}

// outputRow is a row that an operator wrote to its output; a nil value is a deletion.
type outputRow struct{ key, value []byte }

// clockOf is what the timers of an operator's state, or the windows of a windowed one, go by in batch f.
func (f *flight) clockOf(st *plan.State) int64 {
	if st.Clock == plan.ClockBatch {
		return f.b.Time.UnixNano()
	}
	return f.left.least(st.TimeSources)
}

// findDue finds the keys that the batch wakes: those whose timers the operator's clock has reached, by what the batches before it
// have left.
func (r *exchangeRun) findDue(ctx context.Context) error {
	st := r.e.State
	name := st.Schema.Name
	r.now = r.f.clockOf(st)
	if r.f.wakes == nil {
		r.f.wakes = map[string]int64{}
	}
	wakes := r.x.committedWakes()
	if len(r.before) > 0 {
		wakes = r.before[0].wakes
	}
	if first, known := wakes[name]; known && first > r.now {
		r.f.wakes[name] = first
		return nil
	}
	due := map[string]struct{}{}
	lead := timersOf(name)
	next := int64(never)
	snap, err := r.x.cfg.DB.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close() //nolint:errcheck // it only reads
	for row, err := range snap.Scan(ctx, TimersState, lead, enc.PrefixEnd(lead)) {
		if err != nil {
			return err
		}
		wake, _, err := decodeTimer(row.Key[len(lead):])
		if err != nil {
			return err
		}
		if wake > r.now {
			next = wake
			break
		}
		due[string(row.Key)] = struct{}{}
	}
	for _, f := range slices.Backward(r.before) { // the oldest first
		o := f.overlays[TimersState]
		if o == nil {
			continue
		}
		for _, m := range o.shards {
			for k, v := range m { // order: a key is there once
				if !bytes.HasPrefix([]byte(k), lead) {
					continue
				}
				switch wake, _ := timerOf([]byte(k)[len(lead):]); {
				case v == nil:
					delete(due, k)
				case wake > r.now:
					next = min(next, wake)
				default:
					due[k] = struct{}{}
				}
			}
		}
	}
	r.f.wakes[name] = next
	if len(due) == 0 {
		return nil
	}
	r.due = make([][][]byte, r.x.cfg.Shards)
	for k := range due { // order: sorted below
		_, key := timerOf([]byte(k)[len(lead):])
		shard := state.ShardOf(key, r.x.cfg.Shards)
		r.due[shard] = append(r.due[shard], key)
	}
	for _, keys := range r.due {
		slices.SortFunc(keys, bytes.Compare)
	}
	return nil
}

func (x *Executor) committedWakes() map[string]int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.wakes
}

// operate gives the operator the keys of one shard that have deltas or are due, in key order.
func (w *shardWorker) operate(ctx context.Context, shard int, due [][]byte, tc *plan.TaskContext, out *shardOut) error {
	if w.operator == nil {
		w.operator = w.e.Operator()
	}
	var key []byte
	c := &plan.KeyContext{
		Batch: w.f.b, Shard: shard, OnBad: w.x.onBad, Now: w.now,
		Emit: func(row []byte) error {
			if !w.sends() {
				panic("exec: " + w.e.Name + " sends rows on, and nothing takes them")
			}
			return w.stage.Row(key, row)
		},
		Reject: func(r plan.Rejected) { tc.Rejected = append(tc.Rejected, r) },
		Row: func(k []byte) ([]byte, bool, error) {
			return w.output.get(ctx, state.ShardOf(k, w.x.cfg.Shards), k)
		},
		Put: func(k, v []byte) {
			out.rows = append(out.rows, outputRow{bytes.Clone(k), append(make([]byte, 0, len(v)), v...)})
		},
		Delete: func(k []byte) { out.rows = append(out.rows, outputRow{key: bytes.Clone(k)}) },
	}
	for i := 0; i < len(w.refs) || len(due) > 0; {
		w.deltas = w.deltas[:0]
		order := 1 // of the first due key to that of ref i
		if i == len(w.refs) {
			order = -1
		} else if len(due) > 0 {
			order = bytes.Compare(due[0], w.in[w.refs[i].task].Key(&w.refs[i].Delta))
		}
		if order >= 0 {
			var j int
			for key, j = w.group(i); i < j; i++ {
				w.deltas = append(w.deltas, w.delta(i))
			}
		} else {
			key = due[0]
		}
		if order <= 0 {
			due = due[1:]
		}
		if err := w.work(ctx, c, key, out); err != nil {
			return err
		}
	}
	return nil
}

// work gives the operator one key with w.deltas.
func (w *shardWorker) work(ctx context.Context, c *plan.KeyContext, key []byte, out *shardOut) error {
	old, ok, err := w.view.get(ctx, c.Shard, key)
	if err != nil {
		return err
	}
	was := int64(plan.NoWake)
	if ok {
		was = w.operator.Wake(old)
	} else {
		old = nil
	}
	val, keep, err := w.operator.Key(c, key, old, w.deltas)
	if err != nil {
		if _, ok := errors.AsType[*batch.Error](err); ok {
			return err
		}
		return w.fail("operate", key, err)
	}
	wake := int64(plan.NoWake)
	if keep {
		if wake = w.operator.Wake(val); wake != plan.NoWake && wake <= w.now {
			panic(fmt.Sprintf("exec: %s: key %x wants to be woken at %d, though its clock has reached %d: a batch would follow on the other for ever", w.e.Name, key, wake, w.now))
		}
	}
	if wake != was {
		out.timers = append(out.timers, timerChange{key, was, wake})
	}
	switch {
	case keep && (!ok || !bytes.Equal(old, val)):
		val = w.write(key, val, true, out)
	case !keep && ok:
		val = w.write(key, nil, false, out)
	default:
		return nil // it stays as it is
	}
	out.digest = out.digest.bytes(key).nullable(val)
	out.changes++
	return nil
}

// collectOperator brings together what an operator wrote besides its own state, in the order of shards.
func (r *exchangeRun) collectOperator(ctx context.Context, shards []shardOut) error {
	f, name := r.f, r.e.State.Schema.Name
	var output *rowWriter
	for i := range shards {
		for _, t := range shards[i].timers {
			if f.timers == nil {
				f.timers = newRowWriter(ctx, nil, r.x.cfg.Shards)
			}
			if t.was != plan.NoWake {
				f.timers.Delete(timerKey(name, t.was, t.key))
			}
			if t.now != plan.NoWake {
				f.timers.Set(timerKey(name, t.now, t.key), nil)
				f.wakes[name] = min(f.wakes[name], t.now)
			}
		}
		for _, row := range shards[i].rows {
			if r.e.Output == nil {
				panic("exec: " + r.e.Name + " writes to an output that it doesn't have")
			}
			if output == nil {
				output = newRowWriter(ctx, nil, r.x.cfg.Shards)
			}
			output.put(row.key, row.value)
		}
	}
	if output != nil {
		set, o := output.set(r.e.Output.Schema.Name)
		f.sets, f.overlays[set.State] = append(f.sets, set), o
	}
	return nil
}

// collectTimers makes a write set of the timers that changed.
func (f *flight) collectTimers() {
	if f.timers == nil {
		return
	}
	set, o := f.timers.set(TimersState)
	f.sets, f.overlays[TimersState] = append(f.sets, set), o
}

// Due tells the time at which the pipeline wants a batch even without data: a window whose rows are to be sent on can be closed, or
// a key wants to be woken. Whoever is in flight settles that first.
func (x *Executor) Due() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.flights) > 0 {
		return time.Time{}
	}
	atOnce := time.UnixMilli(1)
	if x.closable(x.times, txstate.NoTime) {
		return atOnce
	}
	first := x.firstEnd()
	for st := range operators(x.plan) {
		wake, known := x.wakes[st.Schema.Name]
		if !known || st.Clock == plan.ClockEvent && wake <= x.times.least(st.TimeSources) {
			return atOnce
		}
		if st.Clock == plan.ClockBatch {
			first = min(first, wake)
		}
	}
	at := x.idleDue()
	if first != never {
		if t := time.Unix(0, first).UTC(); at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if at.IsZero() {
		return at
	}
	// The batch's clock has whole milliseconds: it must have reached the time.
	return at.Add(time.Millisecond - 1).Truncate(time.Millisecond)
}

// closable tells whether a window whose rows are to be sent on has ended by the watermarks of times, or by a batch's clock, and
// hasn't been closed by a committed batch. REQUIRES: x.mu is held.
func (x *Executor) closable(times *times, now int64) bool {
	for _, st := range windowedStates(x.plan) {
		if st.Emit&plan.EmitCloses == 0 {
			continue
		}
		mark := now
		if st.Clock == plan.ClockEvent {
			mark = times.least(st.TimeSources)
		}
		for start, closed := range x.windows[st.Schema.Name] { // order: whether there is one
			if closed == 0 && endOf(st.Schema.Window, st.Schema.Name, start) <= mark {
				return true
			}
		}
	}
	return false
}

// firstEnd is the earliest end of an open window of batch time whose rows are to be sent on. REQUIRES: x.mu is held.
func (x *Executor) firstEnd() int64 {
	first := int64(never)
	for _, st := range windowedStates(x.plan) {
		if st.Emit&plan.EmitCloses == 0 || st.Clock != plan.ClockBatch {
			continue
		}
		for start, closed := range x.windows[st.Schema.Name] { // order: a minimum
			if closed == 0 {
				first = min(first, endOf(st.Schema.Window, st.Schema.Name, start))
			}
		}
	}
	return first
}

// due tells whether batch b, for which no source has data, has something to do. What is in flight may do it: then nothing is due yet.
func (x *Executor) due(ctx context.Context, b *batch.Batch) (bool, error) {
	x.mu.Lock()
	idle, times, joining, waits := len(x.flights) == 0, x.times, x.joining, x.waits()
	x.mu.Unlock()
	if !idle {
		return false, nil
	}
	if found, err := x.lets(ctx, times, b.Time); err != nil || found {
		return found, err
	}
	if !waits {
		return false, nil
	}
	// A partition that is idle from now on may have held the watermark back.
	x.planIdle(b)
	next := times.next(x.plan, &batch.Batch{Joined: joining, Idle: b.Idle}, nil)
	if slices.Equal(next.marks, times.marks) {
		return false, nil
	}
	return x.lets(ctx, next, b.Time)
}

// lets tells whether a window can be closed, or a key woken, by the watermarks of times and a batch's clock. Nothing is in flight.
func (x *Executor) lets(ctx context.Context, times *times, now time.Time) (bool, error) {
	x.mu.Lock()
	closable, wakes := x.closable(times, now.UnixNano()), maps.Clone(x.wakes)
	x.mu.Unlock()
	if closable {
		return true, nil
	}
	if wakes == nil {
		wakes = map[string]int64{}
	}
	found := false
	for st := range operators(x.plan) {
		name := st.Schema.Name
		clock := now.UnixNano()
		if st.Clock == plan.ClockEvent {
			clock = times.least(st.TimeSources)
		}
		if wake, known := wakes[name]; known && wake > clock {
			continue
		}
		wake, err := x.firstTimer(ctx, name)
		if err != nil {
			return false, err
		}
		wakes[name] = wake
		found = found || wake <= clock
	}
	x.mu.Lock()
	x.wakes = wakes // no commit has come between, as only Plan lets a batch fly
	x.mu.Unlock()
	return found, nil
}

// firstTimer is the earliest committed timer of an operator's state.
func (x *Executor) firstTimer(ctx context.Context, name string) (int64, error) {
	snap, err := x.cfg.DB.Snapshot()
	if err != nil {
		return 0, err
	}
	defer snap.Close() //nolint:errcheck // it only reads
	lead := timersOf(name)
	for row, err := range snap.Scan(ctx, TimersState, lead, enc.PrefixEnd(lead)) {
		if err != nil {
			return 0, err
		}
		wake, _, err := decodeTimer(row.Key[len(lead):])
		return wake, err
	}
	return never, nil
}

// operators iterates over the states that operators keep.
func operators(p *plan.Plan) func(yield func(*plan.State) bool) {
	return func(yield func(*plan.State) bool) {
		for _, e := range p.Exchanges {
			if e.Operator != nil && !yield(e.State) {
				return
			}
		}
	}
}

// settled tells whether nothing is left that the watermarks of times let close or wake. Clocks of batches don't count: they go on for
// ever.
func (x *Executor) settled(times *times) bool {
	x.mu.Lock()
	closable, wakes := x.closable(times, txstate.NoTime), x.wakes
	x.mu.Unlock()
	if closable {
		return false
	}
	for st := range operators(x.plan) {
		clock := times.least(st.TimeSources)
		if wake, known := wakes[st.Schema.Name]; st.Clock == plan.ClockBatch || known && wake > clock {
			continue
		}
		// What can't be read now fails the next batch, or nothing.
		if wake, err := x.firstTimer(context.Background(), st.Schema.Name); err == nil && wake <= clock {
			return false
		}
	}
	return true
}
