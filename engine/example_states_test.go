package engine_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/window"
)

// firstWord is the key of lines such as "ann 3".
func firstWord(s string) string { return strings.Fields(s)[0] }

func ExampleAggregate() {
	keep[string, int64]("counts", func(p *engine.Pipeline) {
		engine.Aggregate(engine.GroupBy(source(p, "lines"), firstWord, "name"), "counts", agg.Count[string]("n"))
	}, feed{"lines": {"ann 3", "bob 1"}}, feed{"lines": {"ann 4"}})
	// Output:
	// map[ann:2 bob:1]
}

func ExampleUpdates() {
	show(func(p *engine.Pipeline) engine.Stream[engine.Result[string, int64]] {
		counts := engine.Aggregate(engine.GroupBy(source(p, "lines"), firstWord, "name"), "counts", agg.Count[string]("n"))
		return engine.Updates[int64](counts)
	}, feed{"lines": {"ann 3", "ann 1"}}, feed{"lines": {"ann 4"}})
	// Output:
	// 1: {Window:{Start:0001-01-01 00:00:00 +0000 UTC End:0001-01-01 00:00:00 +0000 UTC First:0 Limit:0} Key:ann Value:2}
	// 2: {Window:{Start:0001-01-01 00:00:00 +0000 UTC End:0001-01-01 00:00:00 +0000 UTC First:0 Limit:0} Key:ann Value:3}
}

// of writes the rows of windows of time for an example.
func of(s engine.Stream[engine.Result[string, int64]]) engine.Stream[string] {
	return engine.Map(s, func(r engine.Result[string, int64]) string {
		return fmt.Sprintf("%s in [%d, %d): %d", r.Key, r.Window.Start.Unix(), r.Window.End.Unix(), r.Value)
	})
}

func ExampleClosed() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		byName := engine.GroupByWindow(timedWords(p, "lines", 0), window.Tumbling(10*time.Second), initial, "name")
		return of(engine.Closed[int64](engine.Aggregate(byName, "counts", agg.Count[string]("n"))))
	}, feed{"lines": {"a@1", "a@9", "a@12"}}, feed{"lines": {"a@25"}}, feed{"lines": {"a@26"}})
	// Output:
	// 2: a in [0, 10): 2
	// 3: a in [10, 20): 1
}

func ExampleGroupByWindow_sliding() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		byName := engine.GroupByWindow(timedWords(p, "lines", 0), window.Sliding(10*time.Second, 5*time.Second), initial, "name")
		return of(engine.Closed[int64](engine.Aggregate(byName, "counts", agg.Count[string]("n"))))
	}, feed{"lines": {"a@1", "a@7", "a@20"}}, feed{"lines": {"a@21"}})
	// Unordered output:
	// 2: a in [-5, 5): 1
	// 2: a in [0, 10): 2
	// 2: a in [5, 15): 1
}

func ExampleGroupByWindow_session() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		byName := engine.GroupByWindow(timedWords(p, "lines", 0), window.Session(5*time.Second), initial, "name")
		return of(engine.Closed[int64](engine.Aggregate(byName, "counts", agg.Count[string]("n"))))
	}, feed{"lines": {"a@1", "a@5", "a@8", "a@20"}}, feed{"lines": {"a@21"}})
	// Output:
	// 2: a in [1, 13): 3
}

func ExampleGroupByWindow_count() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		byName := engine.GroupByWindow(source(p, "lines"), window.Count(2), firstWord, "name")
		pairs := engine.Aggregate(byName, "pairs", agg.CollectOf("rows", func(s string) string { return s }))
		return engine.Map(engine.Closed[[]string](pairs), func(r engine.Result[string, []string]) string { return fmt.Sprintf("%q", r.Value) })
	}, feed{"lines": {"ann 1", "ann 2", "ann 3"}}, feed{"lines": {"ann 4"}})
	// Output:
	// 1: ["ann 1" "ann 2"]
	// 2: ["ann 3" "ann 4"]
}

func ExampleLateOf() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		byName := engine.GroupByWindow(timedWords(p, "lines", 0), window.Tumbling(10*time.Second), initial, "name")
		engine.Aggregate(byName, "counts", agg.Count[string]("n"))
		return engine.LateOf(byName)
	}, feed{"lines": {"a@12"}}, feed{"lines": {"a@7", "a@13"}})
	// Output:
	// 2: a@7
}

func ExampleState_TTL() {
	keep[string, int64]("n", func(p *engine.Pipeline) {
		byName := engine.GroupBy(timedWords(p, "lines", 0), initial, "name")
		engine.Aggregate(byName, "n", agg.Count[string]("n")).TTL(10 * time.Second)
	}, feed{"lines": {"a@1", "b@5"}}, feed{"lines": {"b@12"}}, feed{"lines": {"b@14"}}) // the third batch finds the watermark at 12
	// Output:
	// map[b:3]
}

func ExamplePartitionPersist() {
	keep[string, string]("seen", func(p *engine.Pipeline) {
		engine.PartitionPersist(source(p, "lines"), "seen", func(b *engine.Batch, values []string, st *engine.KV[string, string]) error {
			for _, v := range values {
				if err := st.Set(firstWord(v), v); err != nil {
					return err
				}
			}
			return nil
		}, "name")
	}, feed{"lines": {"ann 3", "bob 1"}}, feed{"lines": {"ann 4"}})
	// Output:
	// map[ann:ann 4 bob:bob 1]
}

func ExamplePartitionPersistEmit() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.PartitionPersistEmit(source(p, "lines"), "seen", func(b *engine.Batch, values []string, st *engine.KV[string, string], emit func(string)) error {
			for _, v := range values {
				_, ok, err := st.Get(firstWord(v))
				if err == nil && !ok {
					emit("new: " + firstWord(v))
					err = st.Set(firstWord(v), v)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}, "name")
	}, feed{"lines": {"ann 3", "bob 1"}}, feed{"lines": {"ann 4"}})
	// Output:
	// 1: new: ann
	// 1: new: bob
}

func ExampleLatest() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		names := engine.Latest(source(p, "names"), "names", firstWord)
		return engine.Lookup(source(p, "orders"), names, firstWord, func(order string, row *string) string {
			return order + ": " + deref(row)
		})
	}, feed{"names": {"7 Ann"}, "orders": {"7 pen", "8 ink"}}, feed{"names": {"7 Anna"}}, feed{"orders": {"7 cap"}})
	// Output:
	// 1: 7 pen: 7 Ann
	// 1: 8 ink: -
	// 3: 7 cap: 7 Anna
}

func ExampleStateQuery() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		counts := engine.Aggregate(engine.GroupBy(source(p, "lines"), firstWord, "name"), "counts", agg.Count[string]("n"))
		return engine.StateQuery(source(p, "questions"), counts, firstWord, func(q string, n *int64) string {
			if n == nil {
				return q + ": none"
			}
			return fmt.Sprintf("%s: %d", q, *n)
		})
	}, feed{"lines": {"ann 3", "ann 1"}, "questions": {"ann", "bob"}})
	// Unordered output:
	// 1: ann: 2
	// 1: bob: none
}
