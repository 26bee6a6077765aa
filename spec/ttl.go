package spec

import (
	"time"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/windowop"
)

// ttlFields are the settings of what keeps rows that expire: a step's, of the operator of, or an object's, of none.
func ttlFields(of string) []*field {
	return []*field{
		{name: "ttl", kind: kindDuration, of: of, min: 1, def: "none", example: "ttl: 30d", doc: "Forgets a row once so much time has passed since its last change: see [tables.md](tables.md#rows-that-expire). Rows of windows have a `retention` instead."},
		{name: "ttl_by", kind: kindEnum, of: of, enum: []string{"event", "batch"}, def: "event", doc: "The time that `ttl` goes by: `event`, a row is kept until the watermark is so much past the latest event time of what has changed it; `batch`, the clock of batches."},
	}
}

// expiry says when the rows of a state expire.
type expiry struct {
	ttl     time.Duration
	byBatch bool
}

// events tells whether rows expire by their event times.
func (x *expiry) events() bool { return x != nil && !x.byBatch }

func (x *expiry) clock() plan.Clock {
	if x.byBatch {
		return plan.ClockBatch
	}
	return plan.ClockEvent
}

func (x *expiry) text() string { return windowop.TTLText(x.ttl, x.clock()) }

// expiry is what a step says of when its rows expire; nil if they don't.
func (st *stepDecl) expiry() *expiry {
	if st.ttl == nil {
		return nil
	}
	return &expiry{ttl: st.ttl.dur, byBatch: st.ttlBy.str() == "batch"}
}

// expires checks the time to live of a state's rows on one way to it.
func (c *checker) expires(o *output, st *stepDecl, e *env) {
	x := st.expiry()
	switch {
	case x == nil && st.ttlBy != nil:
		c.add(st.ttlBy.keyAt, "", "ttl_by says what ttl goes by, and there is no ttl")
	case x == nil:
	case o.window != nil:
		c.add(st.ttl.keyAt, "set the window's retention", "the rows of windows have no ttl")
	default:
		if x.events() {
			c.needsTime("ttl (without ttl_by: batch)", st, e)
		}
		o.ttl = x
	}
}

// expire makes an exchange's operator forget rows of its state.
func (o *output) expire(e *plan.Exchange) {
	windowop.Expire(e, o.ttl.ttl, o.ttl.clock()).TimeSources = o.timeSources
}
