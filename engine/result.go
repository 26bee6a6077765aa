package engine

import (
	"fmt"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/windowop"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/window"
)

// State is a state that an Aggregate keeps, by whose rows further streams can begin: Updates and Closed.
type State[K comparable] struct {
	stateRows
	key *value.Codec[K]
}

// stateRows is a state, whatever its keys are.
type stateRows struct {
	p        *Pipeline
	name     string
	exchange *plan.Exchange // nil after a failure
	sources  []*sourceDef
	trail    *trail
	rows     *node[stateRow] // what the stage behind the state takes; nil as long as nobody asks
	timed    bool            // the stream that it is kept of has event times
	// Where an operator keeps the windows: what it hands on.
	keyed    *window.Windows
	emit     plan.Emit
	sendLate bool
}

// state is the state whose rows they are.
func (s *stateRows) state() *plan.State {
	if s.keyed == nil && s.exchange.Output != nil { // they expire
		return s.exchange.Output
	}
	return s.exchange.State
}

// Span is a window: from Start to less than End, both UTC; or the values of a key from the one numbered First to less than Limit, from
// 0. It is zero where a state has no windows.
type Span struct {
	Start, End   time.Time
	First, Limit int64
}

// Result is a row of a state.
type Result[K comparable, R any] struct {
	Window Span
	Key    K
	Value  R
}

// stateRow is a row as the stage behind the state takes it.
type stateRow struct {
	key   []byte // behind the window
	cells []byte
	span  Span
	kind  windowop.RowKind
	from  int64 // of a late value: its time
}

// Updates sends on the new value of each key that a batch changed: once per batch and key, in the order of shards and keys. In
// Trident's words it is the stream of new values of a persistentAggregate. R is the aggregate's value (int64 for a count), or the
// struct of accumulators given to agg.Fields. Where the state has windows of event time, a result's is the last nanosecond of its
// window.
func Updates[R any, K comparable](s *State[K]) Stream[Result[K, R]] {
	return results[R](s, "updates of", plan.EmitUpdates)
}

// Closed sends on the rows of each window when it closes: once the watermark, or the batches' clock, has passed its end, by which
// the batch begins that sends them even if there are no records; a window of so many values, in the batch that has the last of
// them. A result's event time is the last nanosecond of its window, and it is never late: windows over windows lose nothing. A
// tumbling or sliding window that a batch writes to after it has closed, as a source that joined holds the watermark back,
// closes again, and its rows are sent again.
func Closed[R any, K comparable](s *State[K]) Stream[Result[K, R]] {
	if s.exchange != nil && s.keyed == nil && s.exchange.State.Schema.Window == nil {
		s.p.errorf("Closed: state %s has no windows; use Updates", s.name)
	}
	return results[R](s, "closed windows of", plan.EmitCloses)
}

func results[R any, K comparable](s *State[K], what string, kind plan.Emit) Stream[Result[K, R]] {
	p := s.p
	step := what + " " + s.name
	out := Stream[Result[K, R]]{p: p, n: &node[Result[K, R]]{}, sources: s.sources, trail: s.trail.behind(&step)}
	if s.exchange == nil {
		return out
	}
	st := s.state()
	schema := st.Schema
	out.at = []*int{&s.exchange.Parallel}
	if s.keyed != nil {
		schema = s.exchange.Output.Schema
		out.timed = s.keyed.Kind() == window.OfSession
	} else {
		out.timed = schema.Window != nil && !schema.Window.ByBatch
	}
	if _, err := decoderOf[R](schema.Values); err != nil {
		p.errorf("%s: %w", step, err)
		return out
	}
	if s.keyed != nil {
		s.emit |= kind
	} else {
		st.Emit |= kind
		st.Mergeable = false
	}
	s.stage(step)
	rowKind := windowop.Update
	if kind == plan.EmitCloses {
		rowKind = windowop.Final
	}
	s.rows.outs = append(s.rows.outs, func(b *builder) push[stateRow] {
		next := out.n.build(b)
		dec, err := decoderOf[R](schema.Values)
		if err != nil {
			panic(err) // it was tried above
		}
		return func(rc *rec, row stateRow) {
			if row.kind != rowKind {
				return
			}
			r := Result[K, R]{Window: row.span}
			if r.Key, err = s.key.Decode(row.key); err == nil {
				err = dec(row.cells, &r.Value)
			}
			if err != nil {
				rc.fail(internalError(step, rc.key, err))
				return
			}
			next(rc, r)
		}
	})
	p.describe("  %s", step)
	return out
}

func internalError(step string, key []byte, err error) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeInternal, step, fmt.Errorf("key %s: %w", value.KeyText(key), err), "")
}

// stage makes the stage behind the state, if there is none yet.
func (s *stateRows) stage(step string) {
	if s.rows != nil {
		return
	}
	if s.p.hasStage(s.name) {
		s.p.errorf("%s: a batch aggregate is named %q, too", step, s.name)
	}
	rows, name := &node[stateRow]{}, s.name
	s.rows = rows
	if w := s.keyed; w != nil {
		s.exchange.Next = func() plan.StageTask {
			return &resultTask{chains: chains[stateRow]{n: rows}, name: name, decode: keyedRow(w.Kind())}
		}
		return
	}
	w := s.exchange.State.Schema.Window
	s.exchange.Next = func() plan.StageTask {
		return &resultTask{chains: chains[stateRow]{n: rows}, name: name, decode: timedRow(w)}
	}
}

// lateRows attaches what takes the values that come too late for the windows of an operator.
func (s *stateRows) lateRows(f func(b *builder) push[stateRow]) {
	s.sendLate = true
	s.stage("late for " + s.name)
	s.rows.outs = append(s.rows.outs, func(b *builder) push[stateRow] {
		next := f(b)
		return func(rc *rec, row stateRow) {
			if row.kind == windowop.Late {
				next(rc, row)
			}
		}
	})
}

// resultTask pushes the rows of one shard of a state on.
type resultTask struct {
	chains[stateRow]
	name   string
	decode func(tc *plan.TaskContext, key, b []byte) (row stateRow, time int64, err error)
	tc     *plan.TaskContext
	row    int64
}

// timedRow decodes the rows of a state with windows of time, or without windows.
func timedRow(w *state.Window) func(tc *plan.TaskContext, key, b []byte) (stateRow, int64, error) {
	return func(tc *plan.TaskContext, key, b []byte) (stateRow, int64, error) {
		row := stateRow{key: key, cells: b, kind: windowop.Update}
		if tc.Final {
			row.kind = windowop.Final
		}
		if w == nil {
			return row, txstate.NoTime, nil
		}
		start, rest, err := value.DecodeKey(key)
		if err == nil && w.Slide != 0 {
			_, rest, err = value.DecodeKey(rest)
		}
		if err != nil {
			return row, 0, err
		}
		end := w.End(start.Nanos())
		row.key, row.span = rest, timeSpan(start.Nanos(), end)
		if w.ByBatch {
			return row, txstate.NoTime, nil
		}
		return row, end - 1, nil
	}
}

// keyedRow decodes the rows that an operator hands on.
func keyedRow(kind window.Kind) func(tc *plan.TaskContext, key, b []byte) (stateRow, int64, error) {
	return func(_ *plan.TaskContext, key, b []byte) (stateRow, int64, error) {
		r, err := windowop.ReadRow(b)
		row := stateRow{key: key, cells: r.Cells, kind: r.Kind}
		switch {
		case err != nil:
			return row, 0, err
		case r.Kind == windowop.Late:
			row.from = r.Start
			return row, r.Start, nil
		case kind == window.OfCount:
			row.span = Span{First: r.Start, Limit: r.End}
			return row, txstate.NoTime, nil
		}
		row.span = timeSpan(r.Start, r.End)
		return row, r.End - 1, nil
	}
}

func timeSpan(start, end int64) Span {
	return Span{Start: time.Unix(0, start).UTC(), End: time.Unix(0, end).UTC()}
}

func (t *resultTask) Begin(tc *plan.TaskContext) error {
	tc.Careful = true // a panic can't be blamed on a record here, but on its step and key
	tc.Partition = batch.Partition{Source: t.name, Number: int32(tc.Shard)}
	t.tc, t.row = tc, 0
	return t.start(tc)
}

func (t *resultTask) Row(key, b []byte) error {
	row, at, err := t.decode(t.tc, key, b)
	if err != nil {
		return internalError(t.name, key, err)
	}
	t.rc.key, t.rc.offset, t.rc.time = key, t.row, at
	t.row++
	t.cur.push(&t.rc, row)
	return t.rc.err
}

func (t *resultTask) End() error { return t.finish() }
