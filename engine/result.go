package engine

import (
	"fmt"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// State is a state that an Aggregate keeps, by whose rows further streams can begin: Updates and Closed.
type State[K comparable] struct {
	p        *Pipeline
	name     string
	exchange *plan.Exchange // nil after a failure
	key      *value.Codec[K]
	sources  []*sourceDef
	trail    *trail
	rows     *node[stateRow] // what the stage behind the state takes; nil as long as nobody asks
}

// Span is a window's time: from Start to less than End, both UTC. It is zero where a state has no windows.
type Span struct{ Start, End time.Time }

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
	final bool
}

// Updates sends on the new value of each key that a batch changed: once per batch and key, in the order of shards and keys. In
// Trident's words it is the stream of new values of a persistentAggregate. R is the aggregate's value (int64 for a count), or the
// struct of accumulators given to agg.Fields. Where the state has windows, a result's event time is the last nanosecond of its
// window.
func Updates[R any, K comparable](s *State[K]) Stream[Result[K, R]] {
	return results[R](s, "updates of", plan.EmitUpdates)
}

// Closed sends on the rows of each window when it closes: once the watermark has passed its end, by which the batch begins that
// sends them even if there are no records. A result's event time is the last nanosecond of its window, and it is never late: windows
// over windows lose nothing. A window that a batch writes to after it has closed, as a source that joined holds the watermark
// back, closes again, and its rows are sent again.
func Closed[R any, K comparable](s *State[K]) Stream[Result[K, R]] {
	if s.exchange != nil && s.exchange.State.Schema.Window == nil {
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
	st := s.exchange.State
	out.at = []*int{&s.exchange.Parallel}
	out.timed = st.Schema.Window != nil
	if _, err := decoderOf[R](st.Schema.Values); err != nil {
		p.errorf("%s: %w", step, err)
		return out
	}
	st.Emit |= kind
	st.Mergeable = false
	if s.rows == nil {
		if p.hasStage(s.name) {
			p.errorf("%s: a batch aggregate is named %q, too", step, s.name)
		}
		s.rows = &node[stateRow]{}
		s.exchange.Next = func() plan.StageTask {
			return &resultTask{chains: chains[stateRow]{n: s.rows}, name: s.name, window: st.Schema.Window}
		}
	}
	s.rows.outs = append(s.rows.outs, func(b *builder) push[stateRow] {
		next := out.n.build(b)
		dec, err := decoderOf[R](st.Schema.Values)
		if err != nil {
			panic(err) // it was tried above
		}
		return func(rc *rec, row stateRow) {
			if row.final != (kind == plan.EmitCloses) {
				return
			}
			r := Result[K, R]{Window: row.span}
			if r.Key, err = s.key.Decode(row.key); err == nil {
				err = dec(row.cells, &r.Value)
			}
			if err != nil {
				rc.fail(batch.NewError(batch.Permanent, batch.CodeInternal, step, fmt.Errorf("key %s: %w", value.KeyText(rc.key), err), ""))
				return
			}
			next(rc, r)
		}
	})
	p.describe("  %s", step)
	return out
}

// resultTask pushes the rows of one shard of a state on.
type resultTask struct {
	chains[stateRow]
	name   string
	window *state.Window
	tc     *plan.TaskContext
	row    int64
}

func (t *resultTask) Begin(tc *plan.TaskContext) error {
	tc.Careful = true // a panic can't be blamed on a record here, but on its step and key
	tc.Partition = batch.Partition{Source: t.name, Number: int32(tc.Shard)}
	t.tc, t.row = tc, 0
	return t.start(tc)
}

func (t *resultTask) Row(key, cells []byte) error {
	row := stateRow{key: key, cells: cells, final: t.tc.Final}
	t.rc.key, t.rc.offset, t.rc.time = key, t.row, txstate.NoTime
	if t.window != nil {
		start, rest, err := value.DecodeKey(key)
		if err != nil {
			return batch.NewError(batch.Permanent, batch.CodeInternal, t.name, fmt.Errorf("key %x: %w", key, err), "")
		}
		end := t.window.End(start.Nanos())
		row.key, row.span = rest, Span{Start: time.Unix(0, start.Nanos()).UTC(), End: time.Unix(0, end).UTC()}
		t.rc.time = end - 1
	}
	t.row++
	t.cur.push(&t.rc, row)
	return t.rc.err
}

func (t *resultTask) End() error { return t.finish() }
