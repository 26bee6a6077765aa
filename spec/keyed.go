package spec

import (
	"cmp"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/windowop"
	"github.com/tridentd/tridentd/window"
)

// valueList holds the rows of one task for an operator that sorts them into windows: each is a group of its own.
type valueList struct {
	shape window.Windows
	rows  []listed
	keys  []byte
	heads []byte // what comes before the cells of each row
	order []int
}

// listed is a row. Rows go in the order of their records; those of one record way by way through the streams.
type listed struct {
	keyEnd, headEnd int
	offset          int64
	way             int
}

func (v *valueList) reset() {
	v.rows, v.keys, v.heads = v.rows[:0], v.keys[:0], v.heads[:0]
}

func (v *valueList) key(n int) []byte {
	start := 0
	if n > 0 {
		start = v.rows[n-1].keyEnd
	}
	return v.keys[start:v.rows[n].keyEnd]
}

func (v *valueList) head(n int) []byte {
	start := 0
	if n > 0 {
		start = v.rows[n-1].headEnd
	}
	return v.heads[start:v.rows[n].headEnd]
}

// list adds the rows of a leaf to the list of its combiner.
func (r *leafRun) list(sel []int32) {
	v := r.c.list
	way := slices.Index(r.c.leaves, r)
	for _, i := range sel {
		for _, c := range r.keys {
			v.keys = appendKey(v.keys, c, int(i))
		}
		rec := &r.t.recs[r.f.records[i]]
		if v.shape.Kind() == window.OfSession {
			d := windowop.Delta{Time: r.times.Int[r.f.records[i]]}
			if alone := d.Time + v.shape.Size(); alone >= d.Time && alone <= r.c.mark {
				d.Origin = &windowop.Origin{Partition: r.t.tc.Partition, Offset: rec.Offset, Timestamp: rec.Timestamp, Key: rec.Key, Value: rec.Value}
			}
			v.heads = windowop.AppendDelta(v.heads, &d)
		}
		r.numbers = append(r.numbers, int32(len(v.rows)))
		v.rows = append(v.rows, listed{keyEnd: len(v.keys), headEnd: len(v.heads), offset: rec.Offset, way: way})
	}
}

// endList hands over the rows one by one.
func (c *combiner) endList() error {
	v := c.list
	v.order = v.order[:0]
	for n := range v.rows {
		v.order = append(v.order, n)
	}
	if len(c.leaves) > 1 {
		slices.SortStableFunc(v.order, func(a, b int) int {
			return cmp.Or(cmp.Compare(v.rows[a].offset, v.rows[b].offset), cmp.Compare(v.rows[a].way, v.rows[b].way))
		})
	}
	for _, n := range v.order {
		cells := append(c.cells[:0], v.head(n)...)
		for _, a := range c.accums {
			cells = a.append(cells, n)
		}
		c.cells = cells
		if err := c.deltas.Add(v.key(n), cells); err != nil {
			return batch.NewError(batch.Permanent, batch.CodeBatchTooLarge, "aggregate of stream "+c.out.stream.name, err, "lower batch.max_records")
		}
	}
	return nil
}
