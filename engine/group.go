package engine

import (
	"strings"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// Grouped is a stream whose values are brought together by key.
type Grouped[K comparable, T any] struct {
	s       Stream[T]
	key     func(T) K
	codec   *value.Codec[K]
	windows *windows[T] // nil: none
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

func columnNames(cols []state.Column) string {
	names := make([]string, len(cols))
	for i, c := range cols {
		names[i] = c.Name
	}
	return "[" + strings.Join(names, ", ") + "]"
}
