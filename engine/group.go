package engine

import (
	"strings"
	"time"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/window"
)

// Grouped is a stream whose values are brought together by key.
type Grouped[K comparable, T any] struct {
	s      Stream[T]
	key    func(T) K
	codec  *value.Codec[K]
	window *state.Window
}

// GroupBy brings values with equal keys together. A key is a scalar (string, integer, float, bool, decimal,
// time.Time), whose column is called name (default "key"), or a struct, whose exported fields are the columns, in
// snake case unless tagged. All NaN keys are one group, -0 and 0 are one, a null is a group of its own.
func GroupBy[K comparable, T any](s Stream[T], key func(T) K, name ...string) Grouped[K, T] {
	g := Grouped[K, T]{s: s, key: key}
	var err error
	if g.codec, err = value.KeyOf[K](name...); err != nil {
		s.p.errorf("GroupBy: %w", err)
		return g
	}
	s.p.describe("  group by %s", columnNames(g.codec.Columns()))
	return g
}

// WindowOption is a setting of a windowed group.
type WindowOption func(*state.Window)

// DefaultRetention is for how long of batch time a window's rows are kept after it has closed.
const DefaultRetention = plan.DefaultRetention

// Retention sets for how long of batch time a window's rows are kept after it has closed.
func Retention(d time.Duration) WindowOption { return func(w *state.Window) { w.Retention = int64(d) } }

// GroupByWindow brings values together by the window that their event time falls into, and by key. The state's
// rows are led by window_start.
func GroupByWindow[K comparable, T any](s Stream[T], w window.Windows, key func(T) K, name string, opts ...WindowOption) Grouped[K, T] {
	var names []string
	if name != "" {
		names = []string{name}
	}
	g := GroupBy(s, key, names...)
	if !s.timed {
		s.p.errorf("GroupByWindow: the stream has no event time; give each of its sources one with EventTime, and group before a BatchAggregate")
	}
	if err := w.Validate(); err != nil {
		s.p.errorf("GroupByWindow: %w", err)
	}
	g.window = &state.Window{Size: w.Size(), Offset: w.OffsetNanos(), Retention: int64(DefaultRetention)}
	for _, o := range opts {
		o(g.window)
	}
	if g.window.Retention < 0 {
		s.p.errorf("GroupByWindow: negative retention")
	}
	s.p.describe("  window of %s, offset %s, kept %s", time.Duration(g.window.Size), time.Duration(g.window.Offset), time.Duration(g.window.Retention))
	return g
}

func columnNames(cols []state.Column) string {
	names := make([]string, len(cols))
	for i, c := range cols {
		names[i] = c.Name
	}
	return "[" + strings.Join(names, ", ") + "]"
}
