package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/windowop"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/window"
)

// Aggregate keeps, for each key, what its values come to, in a state called name: Trident's persistentAggregate. Its rows can be
// sent on: see Updates and Closed.
func Aggregate[K comparable, T any](g Grouped[K, T], name string, a agg.Aggregation[T]) *State[K] {
	p := g.s.p
	s := &State[K]{stateRows: stateRows{p: p, name: name, sources: g.s.sources, timed: g.s.timed, trail: g.s.trail}, key: g.codec}
	if g.windows != nil && g.windows.late.from == nil {
		g.windows.late.from = &s.stateRows
	}
	p.addState(name)
	if err := a.Err(); err != nil {
		p.errorf("state %s: %w", name, err)
	}
	if g.codec == nil {
		return s
	}
	if g.windows != nil && !g.windows.byTime() {
		aggregateKeyed(g, s, a)
		return s
	}
	var win *state.Window
	if g.windows != nil {
		win = g.windows.time
	}
	st := &plan.State{
		Schema:    state.Schema{Name: name, Kind: "aggregate", Window: win, Key: schemaColumns(g.codec.Columns(), win), Values: a.Columns()},
		Mergeable: a.Exact(),
		Zero:      func() []byte { return zero(a) },
		Update: func(dst, old, delta []byte) ([]byte, bool, error) {
			v, err := a.Update(dst, old, delta)
			return v, true, err
		},
	}
	switch {
	case g.windows.byEvents():
		p.timed[st] = g.s.sources
	case win != nil:
		st.Clock = plan.ClockBatch
	}
	s.exchange = &plan.Exchange{Name: name, Merge: a.Merge, State: st, FormatKey: value.KeyText}
	g.exchange(name, a, s.exchange)
	p.define(g.s.trail, name, "group", "aggregate")
	p.describe("  state %s: %s by %s", name, aggregateNames(a.Columns()), columnNames(st.Schema.Key))
	return s
}

// zero returns the cells of a value without records.
func zero[T any](a agg.Aggregation[T]) []byte {
	t := a.NewTable()
	return t.Append(nil, t.New())
}

func aggregateNames(cols []state.Column) string {
	var s strings.Builder
	for i, c := range cols {
		if i > 0 {
			s.WriteString(", ")
		}
		s.WriteString(fmt.Sprintf("%s %s(%s)", c.Name, c.Agg, c.Type))
	}
	return s.String()
}

// exchange adds e to the pipeline and attaches the map-side combine to the stream.
func (g Grouped[K, T]) exchange(name string, a agg.Aggregation[T], e *plan.Exchange) {
	p := g.s.p
	index := len(p.exchanges)
	p.exchanges = append(p.exchanges, e)
	g.s.to(func(b *builder) push[T] {
		c := &combine[K, T]{g: g, name: name, index: index, table: a.NewTable(), slots: map[groupKey[K]]int32{}, careful: b.careful, p: p, timed: timedDeltas(e)}
		if w := g.windows; w != nil && w.late.n != nil && w.late.from.exchange == e {
			c.late = w.late.n.build(b)
		}
		b.begin = append(b.begin, c.reset)
		b.end = append(b.end, c.flush)
		switch {
		case g.windows == nil:
			return c.add
		case c.spread():
			c.layout = g.windows.time.Layout()
			return c.addSpread
		}
		return c.addWindowed
	})
}

// groupKey is a key within a window; start stays 0 where there are no windows.
type groupKey[K comparable] struct {
	start int64
	key   K
}

// combine is the map-side combine of one task for one exchange.
type combine[K comparable, T any] struct {
	g       Grouped[K, T]
	name    string
	index   int
	p       *Pipeline
	careful bool

	table agg.Table[T]
	slots map[groupKey[K]]int32
	keys  []byte // encoded keys, one behind the other
	ends  []int  // by slot: where its key ends in keys
	live  []bool // by slot: a value has been added; false after a failure only
	cells []byte

	timed  bool                 // deltas begin with times
	latest windowop.LatestTimes // by slot, if they do

	// With windows.
	mark   int64   // the watermark by which rows are late
	late   push[T] // takes late rows; nil: they are turned away
	layout window.Layout
	starts []int64
}

// spread tells of windows that are more than so many nanoseconds of event time.
func (c *combine[K, T]) spread() bool {
	w := c.g.windows.time
	return w.Slide != 0 || w.Zone != "" || w.ByBatch
}

func (c *combine[K, T]) reset(rc *rec) {
	c.table.Reset()
	clear(c.slots)
	c.keys, c.ends, c.live, c.latest = c.keys[:0], c.ends[:0], c.live[:0], c.latest[:0]
	if c.g.windows != nil {
		c.mark = c.g.windows.mark(rc.tc, c.timeSources())
	}
}

func (c *combine[K, T]) addWindowed(rc *rec, v T) {
	w := c.g.windows.time
	start := window.Start(rc.time, w.Size, w.Offset)
	if end := w.End(start); end <= c.mark && (rc.r != nil || rc.mayBeLate) { // results of windows are never late
		c.tooLate(rc, v, start)
		return
	}
	c.put(rc, start, v)
}

func nanoText(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

func (c *combine[K, T]) add(rc *rec, v T) { c.put(rc, 0, v) }

// put adds a value to a window; false if that went wrong.
func (c *combine[K, T]) put(rc *rec, start int64, v T) bool {
	k := groupKey[K]{start: start}
	if !c.careful {
		k.key = c.g.key(v)
	} else if !rc.guard("group by", func() { k.key = c.g.key(v) }) {
		return false
	}
	slot, ok := c.slots[k]
	if !ok {
		keys, err := c.g.encode(c.keys, k)
		if err != nil {
			rc.bad("group by", err)
			return false
		}
		slot = int32(c.table.New())
		c.slots[k] = slot
		c.keys, c.ends, c.live = keys, append(c.ends, len(keys)), append(c.live, false)
	}
	if c.careful {
		ok := c.addCarefully(rc, k, slot, v)
		if ok && c.timed {
			c.latest.Note(int(slot), rc.time)
		}
		return ok
	}
	if err := c.table.Add(int(slot), v); err != nil {
		if isBadRecord(err) && rc.tc.OnBad != plan.Stop {
			panic(err) // to be run again, carefully: that can undo it
		}
		c.fail(rc, k, err)
		return false
	}
	c.live[slot] = true
	if c.timed {
		c.latest.Note(int(slot), rc.time)
	}
	return true
}

func (c *combine[K, T]) addCarefully(rc *rec, k groupKey[K], slot int32, v T) bool {
	ok, err := addCarefully(rc, c.table, int(slot), "aggregate "+c.name, v)
	switch {
	case err != nil:
		c.fail(rc, k, err)
	case ok:
		c.live[slot] = true
		return true
	}
	return false
}

// addCarefully adds v to a slot, and undoes what a function did before it failed: ok is false if the record was bad, and has been dealt
// with. Other errors are returned.
func addCarefully[T any](rc *rec, table agg.Table[T], slot int, step string, v T) (ok bool, err error) {
	table.Save(slot)
	if !rc.guard(step, func() { err = table.Add(slot, v) }) {
		table.Restore(slot)
		return false, nil
	}
	if isBadRecord(err) {
		table.Restore(slot)
		rc.bad(step, err)
		return false, nil
	}
	return err == nil, err
}

func isBadRecord(err error) bool {
	var e *batch.Error
	return errors.As(err, &e) && e.Code == batch.CodeBadRecord
}

func (c *combine[K, T]) fail(rc *rec, k groupKey[K], err error) {
	code := batch.CodeUserError
	if e, ok := errors.AsType[*batch.Error](err); ok {
		code = e.Code
	}
	rc.fail(batch.NewError(batch.Permanent, code, "aggregate", fmt.Errorf("state %s, key %v: %w", c.name, k.key, err),
		"the state is as it was before this batch; use a wider type").At(rc.tc.Partition, rc.offset))
}

func (g *Grouped[K, T]) encode(dst []byte, k groupKey[K]) ([]byte, error) {
	if g.windows != nil {
		dst = value.AppendKeyTime(dst, k.start)
		if w := g.windows.time; w.Slide != 0 {
			dst = value.AppendKeyTime(dst, w.End(k.start))
		}
	}
	return g.codec.Encode(dst, k.key)
}

func (c *combine[K, T]) flush(rc *rec) {
	out := rc.tc.Out[c.index]
	start := 0
	for slot, end := range c.ends {
		key := c.keys[start:end]
		start = end
		if !c.live[slot] {
			continue
		}
		cells := c.cells[:0]
		if c.timed {
			cells = windowop.AppendTimed(cells, c.latest[slot])
		}
		c.cells = c.table.Append(cells, slot)
		if err := out.Add(key, c.cells); err != nil {
			rc.fail(batch.NewError(batch.Permanent, batch.CodeBatchTooLarge, "aggregate", err, "lower the batch's MaxRecords"))
			return
		}
	}
}

// Total is what one key's values in one batch came to.
type Total[K comparable, R any] struct {
	Key   K
	Value R
}

// BatchAggregate sends on, for each batch, what each key's values in it came to: Trident's aggregate. R is the
// aggregate's value (int64 for a count), or the struct of accumulators given to agg.Fields. A row that a step behind it
// fails on is a bad record, and stands for all the records of its key in the batch.
func BatchAggregate[R any, K comparable, T any](g Grouped[K, T], name string, a agg.Aggregation[T]) Stream[Total[K, R]] {
	p := g.s.p
	p.checkName("batch aggregate", name)
	if p.hasStage(name) {
		p.errorf("two batch aggregates are named %q", name)
	}
	out := Stream[Total[K, R]]{p: p, n: &node[Total[K, R]]{}, sources: g.s.sources}
	step := ""
	out.trail = g.s.trail.behind(&step)
	if err := a.Err(); err != nil {
		p.errorf("batch aggregate %s: %w", name, err)
	}
	if g.windows != nil {
		p.errorf("batch aggregate %s: it can't be windowed", name)
	}
	if g.codec == nil {
		return out
	}
	if _, err := decoderOf[R](a.Columns()); err != nil {
		p.errorf("batch aggregate %s: %w", name, err)
		return out
	}
	e := &plan.Exchange{Name: name, Merge: a.Merge, FormatKey: value.KeyText}
	out.at = []*int{&e.Parallel}
	e.Next = func() plan.StageTask {
		dec, err := decoderOf[R](a.Columns())
		if err != nil {
			panic(err) // it was tried above
		}
		return &stageTask[K, R]{chains: chains[Total[K, R]]{n: out.n}, name: name, key: g.codec, total: a.Update, dec: dec}
	}
	g.exchange(name, a, e)
	step = "batch aggregate " + aggregateNames(a.Columns()) + " by " + columnNames(g.codec.Columns())
	p.describe("  batch aggregate %s: %s", name, aggregateNames(a.Columns()))
	return out
}

// stageTask pushes the totals of one shard on.
type stageTask[K comparable, R any] struct {
	chains[Total[K, R]]
	name  string
	key   *value.Codec[K]
	total func(dst, old, delta []byte) ([]byte, error) // of a merged delta
	cells []byte
	dec   func(cells []byte, dst *R) error
	row   int64
}

func (t *stageTask[K, R]) Begin(tc *plan.TaskContext) error {
	tc.Careful = true // a panic can't be blamed on a record here, but on its step and key
	tc.Partition = batch.Partition{Source: t.name, Number: int32(tc.Shard)}
	t.row = 0
	return t.start(tc)
}

func (t *stageTask[K, R]) Row(key, delta []byte) error {
	var v Total[K, R]
	var err error
	if t.cells, err = t.total(t.cells[:0], nil, delta); err != nil {
		return fmt.Errorf("%s, key %s: %w", t.name, value.KeyText(key), err)
	}
	if v.Key, err = t.key.Decode(key); err == nil {
		err = t.dec(t.cells, &v.Value)
	}
	if err != nil {
		return batch.NewError(batch.Permanent, batch.CodeInternal, t.name, fmt.Errorf("key %s: %w", value.KeyText(key), err), "")
	}
	t.rc.key, t.rc.offset, t.rc.time = key, t.row, txstate.NoTime
	t.row++
	t.cur.push(&t.rc, v)
	return t.rc.err
}

func (t *stageTask[K, R]) End() error { return t.finish() }

// decoderOf returns what turns a row of cells into an R.
func decoderOf[R any](cols []state.Column) (func(cells []byte, dst *R) error, error) {
	return agg.Decoder[R](slices.Clone(cols))
}

// timeSources are the sources by whose watermarks the windows close.
func (c *combine[K, T]) timeSources() []int { return c.p.exchanges[c.index].State.TimeSources }
