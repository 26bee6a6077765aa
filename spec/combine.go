package spec

import (
	"fmt"
	"math"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/windowop"
	"github.com/tridentd/tridentd/txstate"
)

// combiner is the map-side combine of one aggregate in one task: it adds rows up by key. Rows are added in the order
// of their records, also where several ways through the streams lead to the aggregate; rows of one record are then
// taken way by way.
type combiner struct {
	t      *task
	out    *output
	leaves []*leafRun
	groups groupTable
	list   *valueList // instead of groups, where an operator sorts the rows into windows
	accums []accumulator
	deltas *plan.Deltas
	mark   int64 // the watermark by which rows are late
	cells  []byte
	latest windowop.LatestTimes // by group, where rows expire by their event times
	next   []int                // by leaf: the row to be taken next
	failed *batch.Error
}

// combiner returns the task's combiner of an aggregate.
func (t *task) combiner(o *output) *combiner {
	for _, c := range t.combiners {
		if c.out == o {
			return c
		}
	}
	c := &combiner{t: t, out: o}
	if o.window.keyed() {
		c.list = &valueList{shape: o.window.shape}
	}
	for i := range o.values {
		c.accums = append(c.accums, newAccumulator(&o.values[i]))
	}
	t.combiners = append(t.combiners, c)
	return c
}

func (c *combiner) begin(tc *plan.TaskContext) {
	c.groups.reset()
	c.latest = c.latest[:0]
	c.failed = nil
	for _, a := range c.accums {
		a.reset()
	}
	c.deltas = tc.Out[c.out.index]
	if c.list != nil {
		c.list.reset()
	}
	c.mark = txstate.NoTime
	if w := c.out.window; w == nil || !w.events() || !c.t.src.canBeLate() {
		return // results of windows are never late
	}
	c.mark = math.MaxInt64
	for _, s := range c.out.timeSources {
		c.mark = min(c.mark, tc.Watermarks[s])
	}
}

// startBlock forgets the rows of the block before.
func (c *combiner) startBlock() {
	for _, l := range c.leaves {
		l.sel = nil
	}
}

// endBlock adds the block's rows.
func (c *combiner) endBlock() {
	n := c.groups.len()
	if c.list != nil {
		n = len(c.list.rows)
	}
	for _, a := range c.accums {
		a.grow(n)
	}
	if len(c.leaves) == 1 {
		l := c.leaves[0]
		c.add(l, 0, len(l.sel))
		return
	}
	if len(c.next) == 0 {
		c.next = make([]int, len(c.leaves))
	}
	clear(c.next)
	for {
		first, other := c.earliest()
		if first < 0 {
			return
		}
		// Rows are taken up to the first that another way has an earlier record for.
		l, from := c.leaves[first], c.next[first]
		to := from + 1
		for to < len(l.sel) {
			rec := l.record(to)
			if other >= 0 {
				if o := c.leaves[other].record(c.next[other]); rec > o || rec == o && other < first {
					break
				}
			}
			to++
		}
		c.add(l, from, to)
		c.next[first] = to
	}
}

// earliest returns the leaf with the earliest record among the rows that are left, and the leaf that comes next
// after it; -1 where there is none.
func (c *combiner) earliest() (first, second int) {
	first, second = -1, -1
	before := func(i, j int) bool {
		return j < 0 || c.leaves[i].record(c.next[i]) < c.leaves[j].record(c.next[j])
	}
	for i, l := range c.leaves {
		switch {
		case c.next[i] == len(l.sel):
		case before(i, first):
			first, second = i, first
		case before(i, second):
			second = i
		}
	}
	return first, second
}

// record is the record, by its number in the block, that a row came from.
func (r *leafRun) record(k int) int32 { return r.f.records[r.sel[k]] }

// add adds some rows of a leaf.
func (c *combiner) add(l *leafRun, from, to int) {
	sel, groups := l.sel[from:to], l.numbers[from:to]
	for i, a := range c.accums {
		if bad, err := a.add(l.args[i].col, l.bys[i].col, sel, groups); err != nil && c.failed == nil {
			c.failed = batch.NewError(batch.Permanent, batch.CodeOverflow, l.leaf.label,
				fmt.Errorf("stream %s, aggregate %s, key %s: %w", c.out.stream.name, c.out.values[i].name, value.KeyText(c.key(int(bad))), err),
				"the state is as it was before this batch").At(c.t.tc.Partition, batch.NoOffset)
		}
	}
}

func (c *combiner) key(n int) []byte {
	if c.list != nil {
		return c.list.key(n)
	}
	return c.groups.key(n)
}

// end hands over the groups, in the order in which they first came.
func (c *combiner) end() error {
	if c.failed != nil {
		return c.failed
	}
	if c.list != nil {
		return c.endList()
	}
	for n := range c.groups.len() {
		cells := c.cells[:0]
		if c.out.ttl.events() {
			cells = windowop.AppendTimed(cells, c.latest[n])
		}
		for _, a := range c.accums {
			cells = a.append(cells, n)
		}
		c.cells = cells
		if err := c.deltas.Add(c.groups.key(n), cells); err != nil {
			return batch.NewError(batch.Permanent, batch.CodeBatchTooLarge, "aggregate of stream "+c.out.stream.name, err, "lower batch.max_records")
		}
	}
	return nil
}
