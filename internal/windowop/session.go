package windowop

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tridentd/tridentd/internal/plan"
)

// Session is the operator of sessions. Values of a key that lie less than Gap apart are one session, from the time of its first
// value to Gap after that of its last. A session closes once the watermark has reached its end, after the batch's own values
// were taken in. A value is late if the session that it would make alone has ended by the watermark, and no open one takes it in.
// Values that can't be late come first, each in the order of its task, then those that may be.
//
// Sessions that come together are merged in the order of their times: only that can show in aggregates for which order counts.
type Session struct {
	Aggregate
	Step      string // of the rows that it turns away
	Gap       int64  // nanoseconds, above 0
	Retention int64  // nanoseconds of event time for which the rows of a closed session are kept
	Emit      plan.Emit
	SendLate  bool // late values are handed on, not turned away

	open   []session
	closed []span
	was    []session // the open ones before the batch
	late   []Delta
	val    []byte
	key    []byte
	cells  []byte
	row    []byte
}

// session is an open session.
type session struct {
	start, end int64
	delta      []byte // its values' deltas, merged
	changed    bool
}

type span struct{ start, end int64 }

// alone is where the session ends that a value at t makes alone.
func (o *Session) alone(t int64) int64 { return plus(t, o.Gap) }

func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Key is part of plan.Operator.
func (o *Session) Key(c *plan.KeyContext, key, old []byte, deltas [][]byte) ([]byte, bool, error) {
	if err := o.load(old); err != nil {
		return nil, false, fmt.Errorf("what is kept of it: %w", err)
	}
	o.was = append(o.was[:0], o.open...)
	o.late = o.late[:0]
	for _, b := range deltas {
		d, err := readDelta(b)
		if err != nil {
			return nil, false, err
		}
		if d.Origin != nil && o.alone(d.Time) <= c.Now {
			o.late = append(o.late, d)
			continue
		}
		if err := o.take(&d); err != nil {
			return nil, false, err
		}
	}
	for i := range o.late {
		d := &o.late[i]
		if from, to := o.touched(d.Time); from < to {
			if err := o.take(d); err != nil {
				return nil, false, err
			}
		} else if err := o.turnAway(c, d); err != nil {
			return nil, false, err
		}
	}
	if err := o.write(c, key); err != nil {
		return nil, false, err
	}
	if len(o.open) == 0 && len(o.closed) == 0 {
		return nil, false, nil
	}
	o.val = o.store(o.val[:0])
	return o.val, true, nil
}

// touched returns which open sessions a value at t would become part of.
func (o *Session) touched(t int64) (from, to int) {
	for from < len(o.open) && o.open[from].end <= t {
		from++
	}
	to = from
	for to < len(o.open) && o.open[to].start < o.alone(t) {
		to++
	}
	return from, to
}

// take makes a value part of a session.
func (o *Session) take(d *Delta) error {
	from, to := o.touched(d.Time)
	s := session{start: d.Time, end: o.alone(d.Time), delta: d.Cells, changed: true}
	if from < to {
		s.start, s.end = min(s.start, o.open[from].start), max(s.end, o.open[to-1].end)
		all := o.open[from].delta
		for i := from + 1; i < to; i++ {
			merged, err := o.Merge(nil, all, o.open[i].delta)
			if err != nil {
				return err
			}
			all = merged
		}
		merged, err := o.Merge(nil, all, d.Cells)
		if err != nil {
			return err
		}
		s.delta = merged
	}
	o.open = slices.Replace(o.open, from, to, s)
	return nil
}

func (o *Session) turnAway(c *plan.KeyContext, d *Delta) error {
	if o.SendLate {
		o.row = appendRow(o.row[:0], Row{Kind: Late, Start: d.Time, Cells: d.Wire})
		return c.Emit(o.row)
	}
	c.Reject(plan.Rejected{
		Kind: plan.RejectLate, Step: o.Step, Timestamp: d.Origin.Timestamp, Key: slices.Clone(d.Origin.Key), Value: slices.Clone(d.Origin.Value),
		Cause: fmt.Sprintf("row of %s at offset %d: the session that it would begin had ended at %s: event time %s, watermark %s",
			d.Origin.Partition, d.Origin.Offset, nanoText(o.alone(d.Time)), nanoText(d.Time), nanoText(c.Now)),
	})
	return nil
}

func nanoText(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

// write brings the output in line with the sessions, hands rows on, and closes and forgets sessions.
func (o *Session) write(c *plan.KeyContext, key []byte) error {
	for _, w := range o.was {
		if !slices.ContainsFunc(o.open, func(s session) bool { return s.start == w.start && s.end == w.end }) {
			o.key = sessionKey(o.key[:0], w.start, w.end, key)
			c.Delete(o.key)
		}
	}
	for i := range o.open {
		s := &o.open[i]
		if !s.changed {
			continue
		}
		if err := o.total(s); err != nil {
			return err
		}
		o.key = sessionKey(o.key[:0], s.start, s.end, key)
		c.Put(o.key, o.cells)
		if err := o.send(c, Update, plan.EmitUpdates, s); err != nil {
			return err
		}
	}
	open := o.open[:0]
	for i := range o.open {
		s := &o.open[i]
		if s.end > c.Now {
			open = append(open, *s)
			continue
		}
		if err := o.total(s); err != nil {
			return err
		}
		if err := o.send(c, Final, plan.EmitCloses, s); err != nil {
			return err
		}
		o.closed = append(o.closed, span{s.start, s.end})
	}
	o.open = open
	slices.SortFunc(o.closed, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.start, b.start))
	})
	n := 0
	for n < len(o.closed) && plus(o.closed[n].end, o.Retention) <= c.Now {
		o.key = sessionKey(o.key[:0], o.closed[n].start, o.closed[n].end, key)
		c.Delete(o.key)
		n++
	}
	o.closed = slices.Compact(o.closed[n:])
	return nil
}

// total puts the session's value into o.cells.
func (o *Session) total(s *session) (err error) {
	o.cells, err = o.Update(o.cells[:0], nil, s.delta)
	return err
}

func (o *Session) send(c *plan.KeyContext, kind RowKind, why plan.Emit, s *session) error {
	if o.Emit&why == 0 {
		return nil
	}
	o.row = appendRow(o.row[:0], Row{Kind: kind, Start: s.start, End: s.end, Cells: o.cells})
	return c.Emit(o.row)
}

// Wake is part of plan.Operator.
func (o *Session) Wake(val []byte) int64 {
	r := reader{b: val}
	first := int64(math.MaxInt64)
	for range r.count() {
		r.varint()
		first = min(first, r.varint())
		r.sized()
	}
	if r.count() > 0 { // the first to be forgotten comes first
		r.varint()
		first = min(first, plus(r.varint(), o.Retention))
	}
	if first == math.MaxInt64 {
		return plan.NoWake
	}
	return first
}

// A key's value: the number of open sessions, of each its start and end (varints) and its delta with its length; the
// number of closed ones, of each start and end, by end.

func (o *Session) store(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(o.open)))
	for i := range o.open {
		s := &o.open[i]
		dst = binary.AppendVarint(binary.AppendVarint(dst, s.start), s.end)
		dst = appendSized(dst, s.delta)
	}
	dst = binary.AppendUvarint(dst, uint64(len(o.closed)))
	for _, s := range o.closed {
		dst = binary.AppendVarint(binary.AppendVarint(dst, s.start), s.end)
	}
	return dst
}

func (o *Session) load(b []byte) error {
	o.open, o.closed = o.open[:0], o.closed[:0]
	if b == nil {
		return nil
	}
	r := reader{b: b}
	for range r.count() {
		o.open = append(o.open, session{start: r.varint(), end: r.varint(), delta: r.sized()})
	}
	for range r.count() {
		o.closed = append(o.closed, span{r.varint(), r.varint()})
	}
	if len(r.b) > 0 && r.err == nil {
		return fmt.Errorf("%d bytes follow it", len(r.b))
	}
	return r.err
}
