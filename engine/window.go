package engine

import (
	"fmt"
	"time"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/window"
)

// windows are the windows of a group.
type windows[T any] struct {
	shape     window.Windows
	time      *state.Window // of tumbling and sliding windows; nil: the borders lie where a key's values put them
	retention time.Duration
	late      lateValues[T]
}

// lateValues are where values go that come too late for their windows.
type lateValues[T any] struct {
	n    *node[T] // nil: to the state _rejected
	wire *value.Wire[T]
	from *stateRows // the first aggregate of the group, which sends them: the others would send them once more
}

// byTime tells of tumbling and sliding windows.
func (w *windows[T]) byTime() bool { return w != nil && w.time != nil }

// byEvents tells of windows that event time closes.
func (w *windows[T]) byEvents() bool {
	return w != nil && !w.shape.BatchTime() && w.shape.Kind() != window.OfCount
}

// mark is the watermark by which values are late in the batch of tc.
func (w *windows[T]) mark(tc *plan.TaskContext, timeSources []int) int64 {
	mark := int64(txstate.NoTime)
	if !w.byEvents() {
		return mark
	}
	for i, at := range timeSources {
		if m := tc.Watermarks[at]; i == 0 || m < mark {
			mark = m
		}
	}
	return mark
}

// WindowOption is a setting of a windowed group.
type WindowOption func(*windowSettings)

type windowSettings struct{ retention time.Duration }

// DefaultRetention is for how long a window's rows are kept after it has closed.
const DefaultRetention = plan.DefaultRetention

// Retention sets for how long a window's rows are kept after it has closed: of batch time, for sessions of event time.
func Retention(d time.Duration) WindowOption { return func(w *windowSettings) { w.retention = d } }

// GroupByWindow brings values together by window and by key. Tumbling and sliding windows and sessions go by event time, unless
// their shape says ByBatchTime; windows of so many values need no time. The rows of the state behind it are led by
// window_start, and by window_end unless windows tumble; in windows of values these are the numbers of values of the key.
func GroupByWindow[K comparable, T any](s Stream[T], w window.Windows, key func(T) K, name string, opts ...WindowOption) Grouped[K, T] {
	var names []string
	if name != "" {
		names = []string{name}
	}
	g := GroupBy(s, key, names...)
	set := windowSettings{retention: DefaultRetention}
	for _, o := range opts {
		o(&set)
	}
	g.windows = &windows[T]{shape: w, retention: set.retention}
	if !s.timed && g.windows.byEvents() {
		s.p.errorf("GroupByWindow: the stream has no event time; give each of its sources one with EventTime, and group before a BatchAggregate")
	}
	if set.retention < 0 {
		s.p.errorf("GroupByWindow: negative retention")
	}
	if err := w.Validate(); err != nil {
		s.p.errorf("GroupByWindow: %w", err)
		g.codec = nil
		return g
	}
	if w.Kind() == window.OfTime {
		g.windows.time = &state.Window{
			Size: w.Size(), Offset: w.OffsetNanos(), Retention: int64(set.retention),
			Slide: w.Slide(), Zone: w.ZoneName(), ByBatch: w.BatchTime(),
		}
	}
	if w.Kind() == window.OfTime && w.Slide() == 0 && w.ZoneName() == "" && !w.BatchTime() {
		s.p.describe("  window of %s, offset %s, kept %s", time.Duration(w.Size()), time.Duration(w.OffsetNanos()), set.retention)
	} else {
		s.p.describe("  window %s, kept %s", w, set.retention)
	}
	return g
}

// LateOf is the stream of the values that come too late for the windows of g; without it they go to the state _rejected. A value is late
// if all windows that it lies in have closed: if the watermark that the batch before left has reached their ends; a session, if
// that has reached the end of the one that the value would make alone, and no open one takes it in. It stands behind the
// aggregate of g, the first if there are several. Late values keep their event times. Those of sessions go from task to task:
// their type must be of exported fields throughout.
func LateOf[K comparable, T any](g Grouped[K, T]) Stream[T] {
	p := g.s.p
	out := derive[T](g.s)
	w := g.windows
	switch {
	case w == nil || !w.byEvents():
		p.errorf("LateOf: nothing is late where no windows of event time are")
		return out
	case w.late.n != nil:
		p.errorf("LateOf: it is asked for twice; merge, or attach several operators to the one stream")
		return out
	case w.late.from == nil:
		if g.codec != nil {
			p.errorf("LateOf: it belongs behind the Aggregate of the group")
		}
		return out
	}
	w.late.n = out.n
	out.n.step = "late for " + w.late.from.name
	p.describe("  late for %s: sent on", w.late.from.name)
	if w.byTime() {
		return out
	}
	wire, err := value.WireOf[T]()
	if err != nil {
		p.errorf("LateOf: %w", err)
		return out
	}
	w.late.wire = wire
	w.late.from.lateRows(func(b *builder) push[stateRow] {
		next := out.n.build(b)
		return func(rc *rec, row stateRow) {
			var v T
			if _, err := wire.DecodeInto(row.cells, &v); err != nil {
				rc.fail(internalError(out.n.step, row.key, err))
				return
			}
			rc.time, rc.mayBeLate = row.from, true
			next(rc, v)
			rc.mayBeLate = false
		}
	})
	return out
}

// tooLate turns a value away that no window takes in, or hands it on.
func (c *combine[K, T]) tooLate(rc *rec, v T, start int64) {
	if c.late != nil {
		c.late(rc, v)
		return
	}
	rc.reject(plan.RejectLate, c.name, fmt.Sprintf("the window that began at %s had closed: event time %s, watermark %s",
		nanoText(start), nanoText(rc.time), nanoText(c.mark)))
}

// addSpread adds a value to each of its windows that is open.
func (c *combine[K, T]) addSpread(rc *rec, v T) {
	w := c.g.windows.time
	at := rc.time
	if w.ByBatch {
		at = rc.tc.Batch.Time.UnixNano()
	}
	c.starts = c.layout.Starts(c.starts[:0], at)
	late := true
	for _, start := range c.starts {
		if c.layout.End(start) <= c.mark && (rc.r != nil || rc.mayBeLate) {
			continue
		}
		late = false
		if !c.put(rc, start, v) {
			return
		}
	}
	if late {
		c.tooLate(rc, v, c.starts[len(c.starts)-1])
	}
}
