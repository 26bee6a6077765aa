package windowop

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// Expiring is the operator of a state whose rows are forgotten some time after their last change: by the batches' clock, or by event time, where
// a row is kept until the watermark is TTL past the latest of its values.
//
// A batch first forgets what has expired by its clock, the watermark that the batch before left or its own time, and then takes what
// it brings. So what it brings for a key that has expired begins a new row. A value that is older than the clock and begins a row counts as of the
// clock: no row expires in the batch that has changed it, and nothing is turned away.
type Expiring struct {
	TTL int64 // nanoseconds, above 0
	// Timed says that a delta begins with the latest event time of its values (AppendTimed), and that the clock is the watermark.
	Timed bool
	// Update is that of the state; see plan.State.
	Update func(dst, old, delta []byte) (value []byte, keep bool, err error)
	Emit   plan.Emit

	val       []byte
	cur, next []byte
}

// Expire has the rows of an exchange's state forgotten ttl after their last change. It returns the state that keeps when; by event time its
// TimeSources are the caller's to set.
func Expire(e *plan.Exchange, ttl time.Duration, clock plan.Clock) *plan.State {
	rows := e.State
	rows.Mergeable, rows.TimeSources = false, nil
	kept := &plan.State{Schema: ExpiringSchema(rows.Schema), Clock: clock}
	e.State, e.Output, e.Merge = kept, rows, nil
	e.Operator = func() plan.Operator {
		return &Expiring{TTL: int64(ttl), Timed: clock == plan.ClockEvent, Update: rows.Update, Emit: rows.Emit}
	}
	return kept
}

// TTLText says in a plan when rows expire.
func TTLText(ttl time.Duration, clock plan.Clock) string {
	if clock == plan.ClockBatch {
		return "ttl " + ttl.String() + " of batch time"
	}
	return "ttl " + ttl.String() + " of event time"
}

// LatestTimes holds the latest event time of each group of a task, by the groups' numbers.
type LatestTimes []int64

// Note takes the time of a value of group n.
func (l *LatestTimes) Note(n int, at int64) {
	for len(*l) <= n {
		*l = append(*l, txstate.NoTime)
	}
	(*l)[n] = max((*l)[n], at)
}

// AppendTimed appends what comes before a delta for an Expiring that is Timed.
func AppendTimed(dst []byte, time int64) []byte { return binary.AppendVarint(dst, time) }

// TTLName is the name of the state in which an Expiring keeps when the rows of another expire.
func TTLName(rows string) string { return rows + ".ttl" }

// ExpiringSchema is the state that an Expiring keeps beside one of rows.
func ExpiringSchema(rows state.Schema) state.Schema {
	return state.Schema{Name: TTLName(rows.Name), Kind: "opaque", Key: rows.Key}
}

// Key is part of plan.Operator. A row without a time, which was there before its state's rows began to expire, has one from its next
// change on.
func (o *Expiring) Key(c *plan.KeyContext, key, old []byte, deltas [][]byte) ([]byte, bool, error) {
	until := int64(math.MaxInt64)
	if old != nil {
		r := reader{b: old}
		until = r.varint()
		if r.err == nil && len(r.b) > 0 {
			r.err = fmt.Errorf("%d bytes follow it", len(r.b))
		}
		if r.err != nil {
			return nil, false, fmt.Errorf("what is kept of it: %w", r.err)
		}
	}
	if len(deltas) == 0 {
		if until > c.Now {
			return old, true, nil
		}
		c.Delete(key)
		return nil, false, nil
	}
	row, there, err := c.Row(key)
	if err != nil {
		return nil, false, err
	}
	has := there && until > c.Now
	if old == nil {
		until = math.MinInt64
	}
	for _, d := range deltas {
		at := c.Now
		if o.Timed {
			r := reader{b: d}
			at = r.varint()
			if d = r.b; r.err != nil {
				return nil, false, r.err
			}
		}
		switch {
		case !has:
			at = max(at, c.Now)
			row, until = nil, at
		case until == math.MinInt64:
			at = max(at, c.Now)
		}
		v, keep, err := o.Update(o.next[:0], row, d)
		if err != nil {
			return nil, false, err
		}
		if has = keep; has {
			o.next, o.cur, row = o.cur, v, v
		}
		until = max(until, plus(at, o.TTL))
	}
	if !has {
		if there {
			c.Delete(key)
		}
		return nil, false, nil
	}
	c.Put(key, row)
	if o.Emit&plan.EmitUpdates != 0 {
		if err := c.Emit(row); err != nil {
			return nil, false, err
		}
	}
	o.val = binary.AppendVarint(o.val[:0], until)
	return o.val, true, nil
}

// Wake is part of plan.Operator.
func (o *Expiring) Wake(val []byte) int64 {
	r := reader{b: val}
	if until := r.varint(); until != math.MaxInt64 {
		return until
	}
	return plan.NoWake
}

// Keeps is part of plan.Keeping.
func (o *Expiring) Keeps() (waiting, output string) {
	of := "batch time after its last change"
	if o.Timed {
		of = "event time after the latest of its values"
	}
	kept := plan.Duration(time.Duration(o.TTL)) + " of " + of
	return kept, kept
}
