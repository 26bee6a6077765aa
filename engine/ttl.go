package engine

import (
	"slices"
	"time"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/windowop"
)

// TTL makes the state forget a row once so much event time has passed since the latest of its values: once the watermark that the batch
// before left is ttl past that. TTLByBatch goes by the batches' clock instead. A row is forgotten at the beginning of a batch, before the batch's own
// values are taken, and a batch begins for it even if there are no records. What comes later for its key begins a new row; a value that is late
// and begins one counts as of the watermark that it finds, so that nothing is turned away. Updates doesn't tell of rows that are forgotten. The stream must
// have event times, and the state no windows, which have a retention instead.
//
// When each row expires is kept in a second state, called as the first with ".ttl" behind it.
func (s *State[K]) TTL(ttl time.Duration) *State[K] {
	s.expire(ttl, plan.ClockEvent)
	return s
}

// TTLByBatch is TTL by the batches' clock, since the batch that last changed the row.
func (s *State[K]) TTLByBatch(ttl time.Duration) *State[K] {
	s.expire(ttl, plan.ClockBatch)
	return s
}

func (s *State[K]) expire(ttl time.Duration, clock plan.Clock) {
	switch {
	case s.exchange == nil:
		return // Aggregate has said why
	case s.keyed != nil || s.exchange.State.Schema.Window != nil:
		s.p.errorf("TTL: state %s has windows, whose rows are kept for their retention", s.name)
		return
	}
	s.p.expire(s.exchange, ttl, clock, s.sources, s.timed)
}

// TTL is State.TTL for a table of latest rows.
func (t Table[K, V]) TTL(ttl time.Duration) Table[K, V] {
	t.expire(ttl, plan.ClockEvent)
	return t
}

// TTLByBatch is State.TTLByBatch for a table of latest rows.
func (t Table[K, V]) TTLByBatch(ttl time.Duration) Table[K, V] {
	t.expire(ttl, plan.ClockBatch)
	return t
}

func (t Table[K, V]) expire(ttl time.Duration, clock plan.Clock) {
	at := slices.IndexFunc(t.p.exchanges, func(e *plan.Exchange) bool { return t.moving != nil && (e.State == t.moving || e.Output == t.moving) })
	switch {
	case at >= 0:
		t.p.expire(t.p.exchanges[at], ttl, clock, t.of.sources, t.of.timed)
	case t.static || t.moving != nil:
		t.p.errorf("TTL: table %s isn't one that Latest keeps", t.name)
	}
}

// tableOf is what a table is kept of.
type tableOf struct {
	sources []*sourceDef
	timed   bool
}

// expire puts an operator before the state of an exchange, which makes its rows expire.
func (p *Pipeline) expire(e *plan.Exchange, ttl time.Duration, clock plan.Clock, sources []*sourceDef, timed bool) {
	rows := e.State
	name := rows.Schema.Name
	switch {
	case e.Operator != nil:
		p.errorf("TTL: state %s has one already", e.Output.Schema.Name)
		return
	case ttl <= 0:
		p.errorf("TTL: state %s: %s isn't above 0", name, ttl)
		return
	case clock == plan.ClockEvent && !timed:
		p.errorf("TTL: state %s: its stream has no event time; give each source EventTime, or use TTLByBatch", name)
		return
	}
	kept, text := windowop.Expire(e, ttl, clock), windowop.TTLText(ttl, clock)
	if clock == plan.ClockEvent {
		p.timed[kept] = sources
	}
	at := slices.IndexFunc(p.defined, func(d plan.StateDefinition) bool { return d.Schema.Name == name })
	d := &p.defined[at]
	for i := range d.Ways {
		d.Ways[i].Steps = append(slices.Clip(d.Ways[i].Steps), text)
	}
	of := *d
	of.Schema.Name = kept.Schema.Name
	p.defined = append(p.defined, of)
	p.describe("  rows of state %s expire: %s", name, text)
}

// timedDeltas tells whether the deltas of an exchange begin with the times of their values.
func timedDeltas(e *plan.Exchange) bool {
	return e.Operator != nil && e.Output != nil && e.State.Clock == plan.ClockEvent
}
