package windowop

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/tridentd/tridentd/internal/plan"
)

// Join is the operator of joins of two sides in event time: two rows of a key meet if their times lie no more than Within apart. A row
// waits until the watermark has passed its time by more than Within: whatever comes then for the other side is either late, and
// nobody sends it here, or lies too far away. So which rows meet doesn't depend on the batches that they come in.
//
// Pairs are handed on in the batch that brings the later of their rows, by that row; rows without a partner when they have
// waited. Rows are in the order of time, then of what they are made of: it doesn't show which side is which, nor how rows arrived.
type Join struct {
	Within int64 // nanoseconds
	// Pairs hands on each two rows that meet; without it only Alone does.
	Pairs bool
	// Alone hands on the rows of a side that have met none.
	Alone [2]bool

	kept  []joinRow // that waited before the batch
	fresh []joinRow // of the batch
	val   []byte
	row   []byte
}

// joinRow is a row of one side.
type joinRow struct {
	time int64
	wire []byte
	side int
	met  bool // it has met a partner; noted for sides of which the others are handed on
}

func (r *joinRow) compare(s *joinRow) int {
	return cmp.Or(cmp.Compare(r.time, s.time), bytes.Compare(r.wire, s.wire), cmp.Compare(r.side, s.side))
}

// AppendJoinDelta appends a row of a side, 0 or 1, as Join takes it.
func AppendJoinDelta(dst []byte, side int, time int64, wire []byte) []byte {
	dst = binary.AppendVarint(append(dst, byte(side)), time)
	return append(dst, wire...)
}

// Joined is what a Join hands on: a row of each side, or of one that is alone. Time is the later one of a pair's; of a row that is alone,
// the latest at which it could have met another.
type Joined struct {
	Has  [2]bool
	Rows [2][]byte
	Time int64
}

func (j *Joined) append(dst []byte) []byte {
	var flags byte
	for side, has := range j.Has {
		if has {
			flags |= 1 << side
		}
	}
	dst = binary.AppendVarint(append(dst, flags), j.Time)
	dst = appendSized(dst, j.Rows[0])
	return append(dst, j.Rows[1]...)
}

// ReadJoined reads what a Join has handed on.
func ReadJoined(b []byte) (j Joined, err error) {
	r := reader{b: b}
	flags := r.byte()
	j.Time = r.varint()
	j.Rows[0] = r.sized()
	j.Rows[1] = r.b
	for side := range j.Has {
		j.Has[side] = flags&(1<<side) != 0
	}
	return j, r.err
}

// Key is part of plan.Operator.
func (o *Join) Key(c *plan.KeyContext, _, old []byte, deltas [][]byte) ([]byte, bool, error) {
	if err := o.load(old); err != nil {
		return nil, false, fmt.Errorf("what is kept of it: %w", err)
	}
	o.fresh = o.fresh[:0]
	for _, b := range deltas {
		r := reader{b: b}
		f := joinRow{side: int(r.byte()), time: r.varint()}
		if f.wire = r.b; r.err != nil || f.side > 1 {
			return nil, false, errCutOff
		}
		o.fresh = append(o.fresh, f)
	}
	slices.SortFunc(o.fresh, func(a, b joinRow) int { return a.compare(&b) })
	for i := range o.fresh {
		if err := o.meet(c, i); err != nil {
			return nil, false, err
		}
	}
	o.merge()
	n := 0
	for ; n < len(o.kept) && plus(o.kept[n].time, o.Within) < c.Now; n++ {
		r := &o.kept[n]
		if !o.Alone[r.side] || r.met {
			continue
		}
		j := Joined{Time: plus(r.time, o.Within)}
		j.Has[r.side], j.Rows[r.side] = true, r.wire
		if err := o.send(c, &j); err != nil {
			return nil, false, err
		}
	}
	if n == len(o.kept) {
		return nil, false, nil
	}
	o.val = o.store(o.val[:0], o.kept[n:])
	return o.val, true, nil
}

// meet brings a fresh row together with all that are there before it.
func (o *Join) meet(c *plan.KeyContext, at int) error {
	r := &o.fresh[at]
	from := func(rows []joinRow) int {
		i, _ := slices.BinarySearchFunc(rows, r.time, func(s joinRow, t int64) int {
			if plus(s.time, o.Within) < t {
				return -1
			}
			return 1
		})
		return i
	}
	last := plus(r.time, o.Within)
	kept, fresh := o.kept[from(o.kept):], o.fresh[:at]
	fresh = fresh[from(fresh):]
	for {
		var s *joinRow
		switch {
		case len(kept) > 0 && (len(fresh) == 0 || kept[0].compare(&fresh[0]) <= 0):
			s, kept = &kept[0], kept[1:]
		case len(fresh) > 0:
			s, fresh = &fresh[0], fresh[1:]
		}
		if s == nil || s.time > last {
			return nil
		}
		if s.side == r.side {
			continue
		}
		r.met, s.met = r.met || o.Alone[r.side], s.met || o.Alone[s.side]
		if !o.Pairs {
			continue
		}
		j := Joined{Has: [2]bool{true, true}, Time: max(r.time, s.time)}
		j.Rows[r.side], j.Rows[s.side] = r.wire, s.wire
		if err := o.send(c, &j); err != nil {
			return err
		}
	}
}

func (o *Join) send(c *plan.KeyContext, j *Joined) error {
	o.row = j.append(o.row[:0])
	return c.Emit(o.row)
}

// merge makes the fresh rows kept ones. Without pairs two kinds aren't needed any more: rows that have met another, unless rows of the
// other side may be handed on, too; and all but one of those of one time that can only be met.
func (o *Join) merge() {
	o.kept = append(o.kept, o.fresh...)
	slices.SortStableFunc(o.kept, func(a, b joinRow) int { return a.compare(&b) })
	if o.Pairs {
		return
	}
	n := 0
	for i, r := range o.kept {
		if r.met && !o.Alone[1-r.side] {
			continue
		}
		if !o.Alone[r.side] && i > 0 && o.kept[i-1].side == r.side && o.kept[i-1].time == r.time {
			continue
		}
		o.kept[n] = r
		n++
	}
	o.kept = o.kept[:n]
}

// Wake is part of plan.Operator.
func (o *Join) Wake(val []byte) int64 {
	r := reader{b: val}
	r.byte()
	end := plus(plus(r.varint(), o.Within), 1) // of the row that has waited longest
	if r.err != nil || end == math.MaxInt64 {
		return plan.NoWake
	}
	return end
}

// A key's value is its rows, in order: the side, and joinMet if it has met another, as a byte; the time (varint); the rest with its length.
const joinMet = 2

func (o *Join) store(dst []byte, rows []joinRow) []byte {
	for i := range rows {
		r := &rows[i]
		flags := byte(r.side)
		if r.met {
			flags |= joinMet
		}
		dst = appendSized(binary.AppendVarint(append(dst, flags), r.time), r.wire)
	}
	return dst
}

func (o *Join) load(b []byte) error {
	o.kept = o.kept[:0]
	r := reader{b: b}
	for len(r.b) > 0 {
		flags := r.byte()
		o.kept = append(o.kept, joinRow{side: int(flags & 1), met: flags&joinMet != 0, time: r.varint(), wire: r.sized()})
	}
	return r.err
}
