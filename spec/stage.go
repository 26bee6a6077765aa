package spec

import (
	"fmt"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
	"github.com/tridentd/tridentd/internal/windowop"
	"github.com/tridentd/tridentd/window"
)

// stage runs the rows of an aggregate in one shard through all streams that begin there: a block at a time, as a
// task runs records. No result depends on where blocks end.
type stage struct {
	t      *task
	values []value.Value  // of the block's rows, one row after the other
	times  []int64        // event times; of rows that have some
	recs   []batch.Record // the key of each row, and its number
	next   int64          // the number of the next row in the batch and shard
	keys   []byte
	join   *joinReader // of the rows of a join
}

func newStage(s *source) *stage {
	g := &stage{t: newTask(s)}
	if s.out.join != nil {
		g.join = newJoinReader(s.out)
	}
	return g
}

func (s *stage) Begin(tc *plan.TaskContext) error {
	tc.Partition = batch.Partition{Source: s.t.src.out.name, Number: int32(tc.Shard)}
	s.next = 0
	if s.join != nil {
		s.join.filtered = &tc.Filtered
	}
	if s.join != nil && s.join.lookup != nil {
		s.join.lookup.state = tc.State(s.join.lookup.l.of.stream.state)
	}
	s.clear()
	return s.t.Begin(tc)
}

func (s *stage) clear() {
	clear(s.values)
	s.values, s.times, s.recs, s.keys = s.values[:0], s.times[:0], s.recs[:0], s.keys[:0]
}

func (s *stage) Row(key, cells []byte) error {
	out := s.t.src.out
	if s.join != nil {
		return s.joined(key, cells)
	}
	was := len(s.values)
	rest, cells, err := s.window(key, cells)
	for len(rest) > 0 && err == nil {
		var v value.Value
		if v, rest, err = value.DecodeKey(rest); err == nil {
			s.values = append(s.values, v)
		}
	}
	if n := len(s.values) - was - out.leads(); err == nil && n != len(out.keys) {
		err = fmt.Errorf("%d columns in a key of %d", n, len(out.keys))
	}
	if err == nil {
		s.values, err = agg.Results(s.values, cells)
	}
	if n := len(s.values) - was; err == nil && n != out.width() {
		err = fmt.Errorf("%d values in a row of %d", n, out.width())
	}
	if err != nil {
		return batch.NewError(batch.Permanent, batch.CodeInternal, out.name, fmt.Errorf("key %s: %w", value.KeyText(key), err), "")
	}
	return s.add(key)
}

// joined takes what has come to a join for a key.
func (s *stage) joined(key, b []byte) error {
	var failed error
	err := s.join.read(key, b, func(vals []value.Value, at int64) error {
		s.values = append(s.values, vals...)
		if s.t.src.time >= 0 {
			s.times = append(s.times, at)
		}
		failed = s.add(key)
		return failed
	})
	if err != nil && failed == nil && !ofBatch(err) {
		name := s.t.src.out.name
		err = batch.NewError(batch.Permanent, batch.CodeInternal, name, fmt.Errorf("key %s: %w", value.KeyText(key), err), "")
	}
	return err
}

// add makes the values that were appended a row.
func (s *stage) add(key []byte) error {
	at := len(s.keys)
	s.keys = append(s.keys, key...)
	s.recs = append(s.recs, batch.Record{Offset: s.next, Key: s.keys[at:]})
	s.next++
	if len(s.recs) == blockRows {
		return s.flush()
	}
	return nil
}

// window takes the columns of a row's window, and returns what is left of its key and its value.
func (s *stage) window(key, cells []byte) (rest, val []byte, err error) {
	w := s.t.src.out.window
	if w == nil {
		return key, cells, nil
	}
	var start, end int64
	if w.keyed() {
		row, err := windowop.ReadRow(cells)
		if err != nil {
			return nil, nil, err
		}
		start, end, rest, val = row.Start, row.End, key, row.Cells
	} else {
		v, behind, err := value.DecodeKey(key)
		if err == nil && w.time.Slide != 0 {
			_, behind, err = value.DecodeKey(behind)
		}
		if err != nil {
			return nil, nil, err
		}
		start, end, rest, val = v.Nanos(), w.time.End(v.Nanos()), behind, cells
	}
	of := value.TimeOf
	if w.shape.Kind() == window.OfCount {
		of = value.IntOf
	}
	s.values = append(s.values, of(start), of(end))
	if s.t.src.time >= 0 {
		s.times = append(s.times, end-1)
	}
	return rest, val, nil
}

// flush runs the block.
func (s *stage) flush() error {
	t, n := s.t, len(s.recs)
	if n == 0 {
		return nil
	}
	t.recs, t.bad = s.recs, t.bad[:0]
	r := t.root
	r.rows.N = n
	r.records, r.offsets = vec.Iota(r.records, n), r.offsets[:0]
	for i := range s.recs {
		r.offsets = append(r.offsets, s.recs[i].Offset)
	}
	bad := make([]bool, n)
	width := t.src.out.width()
	for k := range width {
		col := t.src.out.column(k)
		c := t.src.root.cols[col]
		if !c.used {
			continue
		}
		r.rows.Cols[col].Reset(c.typ.Type, n)
		for i := range n {
			v := s.values[i*width+k]
			// Only what integers add up to can leave its column.
			if err := r.rows.Cols[col].SetValue(i, v); err != nil && !bad[i] {
				bad[i] = true
				t.reject(int32(i), plan.RejectBad, t.src.out.name, fmt.Sprintf("%s is %s, which is beyond int64", c.name, v))
			}
		}
	}
	if k := t.src.time; k >= 0 && t.src.root.cols[k].used {
		c := r.rows.Cols[k]
		c.Reset(t.src.root.cols[k].typ.Type, n)
		copy(c.Int, s.times)
	}
	sel := t.sel[:0]
	for i := range n {
		if !bad[i] {
			sel = append(sel, int32(i))
		}
	}
	t.sel = sel
	if err := t.rows(sel); err != nil {
		return err
	}
	s.clear()
	return nil
}

func (s *stage) End() error {
	if err := s.flush(); err != nil {
		return err
	}
	return s.t.End()
}
