package spec

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
	"github.com/tridentd/tridentd/internal/windowop"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// joinSender sends the rows of one task to a join: in the order of their records, also where several ways through the streams lead
// there; those of one record way by way.
type joinSender struct {
	t      *task
	out    *output
	runs   []*joinRun
	rows   valueList // the heads are the deltas
	mark   int64     // the watermark by which rows are late
	deltas *plan.Deltas
	limit  *plan.Limiter // nil: all rows are sent
	// Of a repartition: a row's hash, and which row of a record came last on which way.
	hash       []byte
	lastOffset int64
	lastWay    int
	nth        int64
}

// joinRun takes the rows that reach a side of a join on one way through the streams, in one task.
type joinRun struct {
	s     *joinSender
	f     *frameRun
	side  *joinSide
	way   int
	keys  []*vec.Column
	sorts []*vec.Column // that the rows are sorted by
	cols  []*vec.Column // of the fields that are sent on; nil: null
	times *vec.Column   // event times of the records; nil for a join within a batch
	wire  []byte
	// late take the rows that are late, behind.
	late   []*branchRun
	behind []int32
}

// sender returns the task's sender for a join.
func (t *task) sender(o *output) *joinSender {
	for _, s := range t.senders {
		if s.out == o {
			return s
		}
	}
	s := &joinSender{t: t, out: o}
	if r := o.join.relay; r != nil && r.rows > 0 {
		s.limit = &plan.Limiter{Rows: r.rows}
	}
	t.senders = append(t.senders, s)
	return s
}

func (t *task) newJoinRun(side *joinSide) *joinRun {
	f := t.frame(side.env.frame)
	r := &joinRun{s: t.sender(side.out), f: f, side: side}
	r.way = len(r.s.runs)
	r.s.runs = append(r.s.runs, r)
	for _, k := range side.keys {
		r.keys = append(r.keys, f.rows.Cols[k])
	}
	for _, k := range side.sorts {
		r.sorts = append(r.sorts, f.rows.Cols[k])
	}
	for _, i := range side.out.carries(side.side) {
		r.cols = append(r.cols, f.column(side.cols[i]))
	}
	if side.out.derived.time >= 0 {
		r.times = t.root.rows.Cols[t.src.time]
	}
	for _, b := range side.late {
		r.late = append(r.late, t.newBranch(b))
	}
	return r
}

func (s *joinSender) begin(tc *plan.TaskContext) {
	s.rows.reset()
	s.deltas = tc.Out[s.out.index]
	s.lastOffset = batch.NoOffset
	if s.limit != nil {
		s.limit.Reset()
	}
	s.mark = txstate.NoTime
	if !s.out.join.timed || !s.t.src.canBeLate() {
		return // what windows and joins have made is never late
	}
	s.mark = math.MaxInt64
	for _, i := range s.out.timeSources {
		s.mark = min(s.mark, tc.Watermarks[i])
	}
}

// run takes rows of the frame that the way ends in.
func (r *joinRun) run(sel []int32) {
	s, v := r.s, &r.s.rows
	for _, i := range sel {
		rec := r.f.records[i]
		var at int64
		if r.times != nil {
			if at = r.times.Int[rec]; at < s.mark {
				if len(r.late) > 0 {
					r.behind = append(r.behind, i)
					continue
				}
				s.t.reject(rec, plan.RejectLate, r.side.label, fmt.Sprintf("event time %s lies before the watermark %s", nanoText(at), nanoText(s.mark)))
				continue
			}
		}
		keyStart := len(v.keys)
		if j := s.out.join; j.relay != nil && j.relay.parts > 0 {
			v.keys = r.place(v.keys, int(i))
		} else {
			for n, c := range r.keys {
				v.keys = appendKey(v.keys, c, int(i))
				if w := r.side.window; w != nil && n == 0 {
					v.keys = appendWindowEnd(v.keys, w, c, int(i))
				}
			}
		}
		if s.limit != nil && len(s.runs) == 1 && !s.limit.Take(v.keys[keyStart:]) {
			v.keys = v.keys[:keyStart]
			s.t.tc.Filtered++
			continue
		}
		r.wire = appendRow(r.wire[:0], r.sorts, int(i))
		if r.times != nil && s.out.join.passes() {
			r.wire = binary.AppendVarint(r.wire, at)
		}
		r.wire = appendRow(r.wire, r.cols, int(i))
		if s.out.join.timed {
			v.heads = windowop.AppendJoinDelta(v.heads, r.side.side, at, r.wire)
		} else {
			v.heads = binary.AppendUvarint(append(v.heads, byte(r.side.side)), uint64(len(r.wire)))
			v.heads = append(v.heads, r.wire...)
		}
		v.rows = append(v.rows, listed{keyEnd: len(v.keys), headEnd: len(v.heads), offset: s.t.recs[rec].Offset, way: r.way})
	}
	if len(r.behind) > 0 {
		for _, b := range r.late {
			b.run(r.behind)
		}
		r.behind = r.behind[:0]
	}
}

// appendWindowEnd appends the end of the window that begins at the time in c; null, as which no window ends, if that is none.
func appendWindowEnd(dst []byte, w *state.Window, c *vec.Column, row int) []byte {
	if c.IsNull(row) {
		return value.AppendKeyNull(dst)
	}
	v := c.Value(row)
	if v.Kind() != value.Time {
		return value.AppendKeyNull(dst)
	}
	return value.AppendKeyTime(dst, w.End(v.Nanos()))
}

func (s *joinSender) end() error {
	v := &s.rows
	v.order = v.order[:0]
	for n := range v.rows {
		v.order = append(v.order, n)
	}
	if len(s.runs) > 1 {
		slices.SortStableFunc(v.order, func(a, b int) int {
			return cmp.Or(cmp.Compare(v.rows[a].offset, v.rows[b].offset), cmp.Compare(v.rows[a].way, v.rows[b].way))
		})
	}
	for _, n := range v.order {
		if s.limit != nil && len(s.runs) > 1 && !s.limit.Take(v.key(n)) {
			s.t.tc.Filtered++
			continue
		}
		if err := s.add(v.key(n), v.head(n)); err != nil {
			return batch.NewError(batch.Permanent, batch.CodeBatchTooLarge, s.out.join.step()+" of stream "+s.out.stream.name, err, "lower batch.max_records")
		}
	}
	return nil
}

var errGroupCutOff = errors.New("a group of rows is cut off")

// joinReader makes the rows of a join in one shard.
type joinReader struct {
	o       *output
	carried [2][]int
	rows    [2][][]byte
	vals    []value.Value // by field
	lookup  *lookupReader // of a lookup; nil for others
	relay   *relayReader  // of a relay; nil for others
	// filtered counts the rows that a limit drops.
	filtered *int64
}

func newJoinReader(o *output) *joinReader {
	r := &joinReader{o: o, carried: [2][]int{o.carries(0), o.carries(1)}, vals: make([]value.Value, len(o.join.fields))}
	if o.join.lookup != nil {
		r.lookup = newLookupReader(o, r.carried[1])
	}
	if o.join.relay != nil {
		r.relay = newRelayReader(o)
	}
	return r
}

// read calls row for each joined row of what has come for a key.
func (r *joinReader) read(key, b []byte, row func(vals []value.Value, at int64) error) error {
	switch {
	case r.lookup != nil:
		return r.look(key, b, row)
	case r.relay != nil:
		dropped, err := r.relayed(b, row)
		*r.filtered += dropped
		return err
	}
	if r.o.join.timed {
		j, err := windowop.ReadJoined(b)
		if err != nil {
			return err
		}
		return r.send(j, row)
	}
	r.rows[0], r.rows[1] = r.rows[0][:0], r.rows[1][:0]
	for rest := b; len(rest) > 0; {
		side := rest[0]
		n, w := binary.Uvarint(rest[1:])
		if side > 1 || w <= 0 || n > uint64(len(rest)-1-w) {
			return errGroupCutOff
		}
		wire := rest[1+w : 1+w+int(n)]
		rest = rest[1+w+int(n):]
		r.rows[side] = append(r.rows[side], wire)
		if !r.o.join.pairs {
			continue
		}
		for _, other := range r.rows[1-side] {
			j := windowop.Joined{Has: [2]bool{true, true}}
			j.Rows[side], j.Rows[1-side] = wire, other
			if err := r.send(j, row); err != nil {
				return err
			}
		}
	}
	for side, alone := range r.o.join.alone {
		if !alone || len(r.rows[1-side]) > 0 {
			continue
		}
		for _, wire := range r.rows[side] {
			j := windowop.Joined{}
			j.Has[side], j.Rows[side] = true, wire
			if err := r.send(j, row); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *joinReader) send(j windowop.Joined, row func(vals []value.Value, at int64) error) error {
	clear(r.vals)
	for side, b := range j.Rows {
		if !j.Has[side] {
			continue
		}
		if err := r.fill(side, b); err != nil {
			return err
		}
	}
	return row(r.vals, j.Time)
}

// fill reads the fields that a side's row carries.
func (r *joinReader) fill(side int, b []byte) (err error) {
	for _, i := range r.carried[side] {
		if r.vals[i], b, err = value.DecodeBinary(b); err != nil {
			return err
		}
	}
	return nil
}

// passed reads a row that a step hands on as it was: its fields and, if timed, its event time.
func (r *joinReader) passed(wire []byte, timed bool) (at int64, err error) {
	if timed {
		n := 0
		if at, n = binary.Varint(wire); n <= 0 {
			return 0, errGroupCutOff
		}
		wire = wire[n:]
	}
	clear(r.vals)
	return at, r.fill(0, wire)
}
