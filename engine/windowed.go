package engine

import (
	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/windowop"
	"github.com/tridentd/tridentd/window"
)

// aggregateKeyed is Aggregate in windows whose borders lie where the values of a key put them: an operator keeps what is open.
func aggregateKeyed[K comparable, T any](g Grouped[K, T], s *State[K], a agg.Aggregation[T]) {
	p, name, shape := g.s.p, s.name, &g.windows.shape
	s.keyed = shape
	does := windowop.Aggregate{Merge: a.Merge, Update: a.Update}
	kept := &plan.State{}
	out := &plan.State{Zero: func() []byte { return zero(a) }}
	e := &plan.Exchange{Name: name, State: kept, Output: out, FormatKey: value.KeyText}
	retention := int64(g.windows.retention)
	if shape.Kind() == window.OfSession {
		kept.Schema, out.Schema = windowop.SessionSchemas(name, g.codec.Columns(), a.Columns())
		p.timed[kept] = g.s.sources
		e.Operator = func() plan.Operator {
			return &windowop.Session{Aggregate: does, Step: name, Gap: shape.Size(), Retention: retention, Emit: s.emit, SendLate: s.sendLate}
		}
	} else {
		kept.Schema, out.Schema = windowop.CountSchemas(name, g.codec.Columns(), a.Columns())
		kept.Clock = plan.ClockBatch
		n, every := shape.Values()
		e.Operator = func() plan.Operator {
			return &windowop.Count{Aggregate: does, N: n, Every: every, Retention: retention, Emit: s.emit}
		}
	}
	s.exchange = e
	index := len(p.exchanges)
	p.exchanges = append(p.exchanges, e)
	g.s.to(func(b *builder) push[T] {
		v := &valueSender[K, T]{g: g, name: name, e: e, index: index, table: a.NewTable(), careful: b.careful}
		b.begin = append(b.begin, v.reset)
		return v.send
	})
	for _, st := range []string{name, kept.Schema.Name} {
		p.define(g.s.trail, st, "group", "window "+shape.String(), "aggregate")
	}
	p.describe("  state %s: %s by %s", name, aggregateNames(a.Columns()), columnNames(out.Schema.Key))
}

// valueSender sends the values of one task to an operator of windows, each with what it comes to alone: it is for the operator to
// say which belong together.
type valueSender[K comparable, T any] struct {
	g       Grouped[K, T]
	name    string
	e       *plan.Exchange
	index   int
	careful bool

	table agg.Table[T]
	mark  int64
	delta windowop.Delta
	key   []byte
	cells []byte
	wire  []byte
	buf   []byte
}

func (s *valueSender[K, T]) reset(rc *rec) {
	s.mark = s.g.windows.mark(rc.tc, s.e.State.TimeSources)
}

func (s *valueSender[K, T]) send(rc *rec, v T) {
	var k K
	if !s.careful {
		k = s.g.key(v)
	} else if !rc.guard("group by", func() { k = s.g.key(v) }) {
		return
	}
	var err error
	if s.key, err = s.g.codec.Encode(s.key[:0], k); err != nil {
		rc.bad("group by", err)
		return
	}
	if !s.lift(rc, v) {
		return
	}
	s.cells = s.table.Append(s.cells[:0], 0)
	out := s.cells
	if s.g.windows.shape.Kind() == window.OfSession {
		if !s.session(rc, &v) {
			return
		}
		out = s.buf
	}
	if err := rc.tc.Out[s.index].Add(s.key, out); err != nil {
		rc.fail(batch.NewError(batch.Permanent, batch.CodeBatchTooLarge, "aggregate", err, "lower the batch's MaxRecords"))
	}
}

// lift puts what v comes to alone into the table's only slot.
func (s *valueSender[K, T]) lift(rc *rec, v T) bool {
	s.table.Reset()
	slot := s.table.New()
	step := "aggregate " + s.name
	var err error
	if s.careful {
		var ok bool
		if ok, err = addCarefully(rc, s.table, slot, step, v); !ok && err == nil {
			return false
		}
	} else if err = s.table.Add(slot, v); isBadRecord(err) {
		rc.bad(step, err)
		return false
	}
	if err != nil {
		rc.fail(aggregateError(step, err).At(rc.tc.Partition, rc.offset))
		return false
	}
	return true
}

// session makes s.buf what a session takes of v.
func (s *valueSender[K, T]) session(rc *rec, v *T) bool {
	s.delta = windowop.Delta{Time: rc.time, Cells: s.cells}
	if alone := rc.time + int64(s.g.windows.shape.Size()); (rc.r != nil || rc.mayBeLate) && alone >= rc.time && alone <= s.mark {
		s.delta.Origin = originOf(rc)
		if wire := s.g.windows.late.wire; wire != nil {
			var err error
			if s.wire, err = wire.Append(s.wire[:0], v); err != nil {
				rc.bad("late for "+s.name, err)
				return false
			}
			s.delta.Wire = s.wire
		}
	}
	s.buf = windowop.AppendDelta(s.buf[:0], &s.delta)
	return true
}

// originOf is where the record, or the row, that is on its way comes from.
func originOf(rc *rec) *windowop.Origin {
	o := &windowop.Origin{Partition: rc.tc.Partition, Offset: rc.offset}
	switch {
	case rc.r != nil:
		o.Timestamp, o.Key, o.Value = rc.r.Timestamp, rc.r.Key, rc.r.Value
	case rc.from != nil:
		o.Partition, o.Offset = rc.from.part, rc.from.offset
	}
	if rc.key != nil {
		o.Key = []byte(value.KeyText(rc.key))
	}
	if rc.wire != nil {
		if v, _, err := value.DecodeBinary(rc.wire); err == nil {
			o.Value = value.AppendJSON(nil, v)
		}
	}
	return o
}
