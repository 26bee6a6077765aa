package engine_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
)

// Values of these examples are such as "a1@7": the key is a, the event time second 7.

func ExampleJoin() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		a, b := timedWords(p, "a", 0), timedWords(p, "b", 0)
		return engine.Join(a, b, 5*time.Second, initial, initial, sum)
	}, feed{"a": {"a1@1"}}, feed{"b": {"a2@6", "a3@7"}})
	// Output:
	// 2: a1@1 a2@6
}

func ExampleLeftJoin() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		a, b := timedWords(p, "a", 0), timedWords(p, "b", 0)
		return engine.LeftJoin(a, b, 5*time.Second, initial, initial, func(x string, y *string) string { return eachOf(&x, y) })
	}, feed{"a": {"a1@1", "b1@1"}, "b": {"a2@6"}}, enginetest.AdvanceTo(time.Unix(7, 0)))
	// Output:
	// 1: a1@1 a2@6
	// 2: b1@1 -
}

func ExampleRightJoin() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		a, b := timedWords(p, "a", 0), timedWords(p, "b", 0)
		return engine.RightJoin(a, b, 5*time.Second, initial, initial, func(x *string, y string) string { return eachOf(x, &y) })
	}, feed{"a": {"a1@1"}, "b": {"a2@7"}}, enginetest.AdvanceTo(time.Unix(13, 0)))
	// Output:
	// 2: - a2@7
}

func ExampleFullJoin() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		a, b := timedWords(p, "a", 0), timedWords(p, "b", 0)
		return engine.FullJoin(a, b, 5*time.Second, initial, initial, eachOf)
	}, feed{"a": {"a1@1"}, "b": {"a2@7"}}, enginetest.AdvanceTo(time.Unix(13, 0)))
	// Output:
	// 2: a1@1 -
	// 2: - a2@7
}

func ExampleAntiJoin() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		a, b := timedWords(p, "a", 0), timedWords(p, "b", 0)
		return engine.AntiJoin(a, b, 5*time.Second, initial, initial)
	}, feed{"a": {"a1@1", "b1@1"}, "b": {"a2@6"}}, enginetest.AdvanceTo(time.Unix(7, 0)))
	// Output:
	// 2: b1@1
}

var twoSides = feed{"a": {"a1", "b1"}, "b": {"a2", "c2"}}

func ExampleBatchJoin() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.BatchJoin(source(p, "a"), source(p, "b"), initial, initial, sum)
	}, twoSides, feed{"b": {"b2"}})
	// Output:
	// 1: a1 a2
}

func ExampleBatchLeftJoin() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.BatchLeftJoin(source(p, "a"), source(p, "b"), initial, initial, func(x string, y *string) string { return eachOf(&x, y) })
	}, twoSides)
	// Unordered output:
	// 1: a1 a2
	// 1: b1 -
}

func ExampleBatchRightJoin() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.BatchRightJoin(source(p, "a"), source(p, "b"), initial, initial, func(x *string, y string) string { return eachOf(x, &y) })
	}, twoSides)
	// Unordered output:
	// 1: a1 a2
	// 1: - c2
}

func ExampleBatchFullJoin() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.BatchFullJoin(source(p, "a"), source(p, "b"), initial, initial, eachOf)
	}, twoSides)
	// Unordered output:
	// 1: a1 a2
	// 1: b1 -
	// 1: - c2
}

func ExampleBatchAntiJoin() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.BatchAntiJoin(source(p, "a"), source(p, "b"), initial, initial)
	}, twoSides)
	// Output:
	// 1: b1
}

func ExampleMultiJoin() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		a := engine.Inner(engine.GroupBy(source(p, "a"), initial))
		b := engine.Inner(engine.GroupBy(source(p, "b"), initial))
		c := engine.Outer(engine.GroupBy(source(p, "c"), initial))
		return engine.MultiJoin(func(j *engine.Joined[string]) string {
			return strings.Join([]string{j.Key, *a.Row(j), *b.Row(j), deref(c.Row(j))}, " ")
		}, a, b, c)
	}, twoSides)
	// Output:
	// 1: a a1 a2 -
}

func ExampleMultiReduce() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		a := engine.Outer(engine.GroupBy(source(p, "a"), initial))
		b := engine.Outer(engine.GroupBy(source(p, "b"), initial))
		return engine.MultiReduce(func(_ *engine.Batch, g *engine.Group[string], emit func(string)) error {
			emit(fmt.Sprintf("%s: %d and %d", g.Key, len(a.Rows(g)), len(b.Rows(g))))
			return nil
		}, a, b)
	}, twoSides)
	// Unordered output:
	// 1: a: 1 and 1
	// 1: b: 1 and 0
	// 1: c: 0 and 1
}
