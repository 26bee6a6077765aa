package spec

import (
	"fmt"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// stage runs the rows of a batch aggregate in one shard through all streams that begin there: a block at a time, as a
// task runs records. No result depends on where blocks end.
type stage struct {
	t      *task
	values []value.Value  // of the block's rows, one row after the other
	recs   []batch.Record // the key of each row, and its number
	next   int64          // the number of the next row in the batch and shard
	keys   []byte
}

func newStage(s *source) *stage { return &stage{t: newTask(s)} }

func (s *stage) Begin(tc *plan.TaskContext) error {
	tc.Partition = batch.Partition{Source: s.t.src.out.name, Number: int32(tc.Shard)}
	s.next = 0
	s.clear()
	return s.t.Begin(tc)
}

func (s *stage) clear() {
	clear(s.values)
	s.values, s.recs, s.keys = s.values[:0], s.recs[:0], s.keys[:0]
}

func (s *stage) Row(key, cells []byte) error {
	out := s.t.src.out
	was := len(s.values)
	var err error
	for rest := key; len(rest) > 0 && err == nil; {
		var v value.Value
		if v, rest, err = value.DecodeKey(rest); err == nil {
			s.values = append(s.values, v)
		}
	}
	if n := len(s.values) - was; err == nil && n != len(out.keys) {
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
	at := len(s.keys)
	s.keys = append(s.keys, key...)
	s.recs = append(s.recs, batch.Record{Offset: s.next, Key: s.keys[at:]})
	s.next++
	if len(s.recs) == blockRows {
		return s.flush()
	}
	return nil
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
	for k, c := range t.src.root.cols[:width] {
		if !c.used {
			continue
		}
		r.rows.Cols[k].Reset(c.typ.Type, n)
		for i := range n {
			v := s.values[i*width+k]
			// Only what integers add up to can leave its column.
			if err := r.rows.Cols[k].SetValue(i, v); err != nil && !bad[i] {
				bad[i] = true
				t.reject(int32(i), plan.RejectBad, t.src.out.name, fmt.Sprintf("%s is %s, which is beyond int64", c.name, v))
			}
		}
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
