package engine_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
)

type feed = enginetest.Input

func ExampleMap() {
	show(func(p *engine.Pipeline) engine.Stream[int] {
		return engine.Map(source(p, "lines"), func(s string) int { return len(s) })
	}, feed{"lines": {"to", "be"}}, feed{"lines": {"or not"}})
	// Output:
	// 1: 2
	// 1: 2
	// 2: 6
}

// What can't be parsed is a bad record: it stops the pipeline, or is turned away.
func ExampleTryMap() {
	show(func(p *engine.Pipeline) engine.Stream[int] {
		return engine.TryMap(source(p, "lines"), func(_ *engine.Batch, s string) (int, error) { return strconv.Atoi(s) })
	}, feed{"lines": {"7", "11"}})
	// Output:
	// 1: 7
	// 1: 11
}

func ExampleFlatMap() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.FlatMap(source(p, "lines"), strings.Fields)
	}, feed{"lines": {"to be", "or"}})
	// Output:
	// 1: to
	// 1: be
	// 1: or
}

func ExampleEach() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.Each(source(p, "lines"), func(b *engine.Batch, s string, emit func(string)) {
			for i := range len(s) {
				emit(fmt.Sprintf("%c of txid %d, offset %d", s[i], b.Txid(), b.Offset()))
			}
		})
	}, feed{"lines": {"ab"}}, feed{"lines": {"c"}})
	// Output:
	// 1: a of txid 1, offset 0
	// 1: b of txid 1, offset 0
	// 2: c of txid 2, offset 1
}

func ExampleProcess() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.Process(source(p, "lines"), func(_ *engine.Batch, s string, emit func(string)) error {
			key, val, ok := strings.Cut(s, "=")
			if !ok {
				return errors.New("no = in it")
			}
			emit(key)
			emit(val)
			return nil
		})
	}, feed{"lines": {"a=1"}})
	// Output:
	// 1: a
	// 1: 1
}

func ExampleStream_Filter() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return source(p, "lines").Filter(func(s string) bool { return s != "" })
	}, feed{"lines": {"to", "", "be"}})
	// Output:
	// 1: to
	// 1: be
}

func ExampleStream_Peek() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return source(p, "lines").Peek(func(b *engine.Batch, s string) { fmt.Println("peek:", b.Txid(), s) })
	}, feed{"lines": {"to", "be"}})
	// Output:
	// peek: 1 to
	// peek: 1 be
	// 1: to
	// 1: be
}

func ExampleMerge() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.Merge(source(p, "b"), source(p, "a"))
	}, feed{"a": {"a1", "a2"}, "b": {"b1"}})
	// Output:
	// 1: a1
	// 1: a2
	// 1: b1
}

// A name stays what it is when operators are added before it: errors, figures and Batch.Rand go by it.
func ExampleStream_Name() {
	p := engine.New("example")
	lower := engine.Map(source(p, "lines"), strings.ToLower).Name("lower")
	engine.Aggregate(engine.GroupBy(lower, func(s string) string { return s }), "counts", agg.Count[string]("n"))
	plan, err := p.Plan()
	if err != nil {
		panic(err)
	}
	fmt.Println(plan.Lines[1])
	// Output:
	//   map lower
}

func ExampleStream_Apply() {
	clean := func(s engine.Stream[string]) engine.Stream[string] {
		return engine.Map(s, strings.TrimSpace).Filter(func(s string) bool { return s != "" })
	}
	show(func(p *engine.Pipeline) engine.Stream[string] { return source(p, "lines").Apply(clean) },
		feed{"lines": {" to ", "  ", "be"}})
	// Output:
	// 1: to
	// 1: be
}

// No result depends on it.
func ExampleStream_Parallelism() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.Map(source(p, "lines").Parallelism(1), strings.ToUpper)
	}, feed{"lines": {"a"}, "lines/1": {"b"}})
	// Output:
	// 1: A
	// 1: B
}

// perPartition prints how many values each partition of a stream has.
func perPartition(s engine.Stream[string]) engine.Stream[string] {
	return engine.Each(engine.PartitionAggregate[int64](s, agg.Count[string]("n")), func(b *engine.Batch, n int64, emit func(string)) {
		emit(fmt.Sprintf("partition %d: %d", b.Partition().Number, n))
	})
}

var eight = feed{"lines": {"a", "b", "c", "d"}, "lines/1": {"a", "b", "c", "d"}}

func ExamplePartitionAggregate() {
	show(func(p *engine.Pipeline) engine.Stream[int64] {
		return engine.PartitionAggregate[int64](source(p, "lines"), agg.Count[string]("n"))
	}, feed{"lines": {"a", "b"}, "lines/1": {"c"}})
	// Output:
	// 1: 2
	// 1: 1
}

func ExampleStream_Shuffle() {
	show(func(p *engine.Pipeline) engine.Stream[string] { return perPartition(source(p, "lines").Shuffle(3)) }, eight)
	// Output:
	// 1: partition 0: 1
	// 1: partition 1: 3
	// 1: partition 2: 4
}

func ExamplePartitionBy() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return perPartition(engine.PartitionBy(source(p, "lines"), func(s string) string { return s }, 3))
	}, eight)
	// Output:
	// 1: partition 0: 6
	// 1: partition 2: 2
}

func ExampleStream_Partition() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return perPartition(source(p, "lines").Partition(2, func(s string) int {
			if s == "a" {
				return 0
			}
			return 1
		}))
	}, eight)
	// Output:
	// 1: partition 0: 2
	// 1: partition 1: 6
}

func ExampleStream_Broadcast() {
	show(func(p *engine.Pipeline) engine.Stream[string] { return perPartition(source(p, "lines").Broadcast(2)) }, eight)
	// Output:
	// 1: partition 0: 8
	// 1: partition 1: 8
}

func ExampleStream_Global() {
	show(func(p *engine.Pipeline) engine.Stream[string] { return perPartition(source(p, "lines").Global()) }, eight)
	// Output:
	// 1: partition 0: 8
}

func ExampleStream_BatchGlobal() {
	show(func(p *engine.Pipeline) engine.Stream[string] { return perPartition(source(p, "lines").BatchGlobal(2)) }, eight, eight)
	// Output:
	// 1: partition 1: 8
	// 2: partition 0: 8
}

// It is there for those who look for Trident's identityPartition.
func ExampleStream_IdentityPartition() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return perPartition(source(p, "lines").IdentityPartition())
	}, eight)
	// Output:
	// 1: partition 0: 4
	// 1: partition 1: 4
}

func ExampleBatchAggregate() {
	show(func(p *engine.Pipeline) engine.Stream[engine.Total[string, int64]] {
		return engine.BatchAggregate[int64](engine.GroupBy(source(p, "lines"), func(s string) string { return s }), "totals", agg.Count[string]("n"))
	}, feed{"lines": {"a", "a"}}, feed{"lines": {"a"}})
	// Output:
	// 1: {Key:a Value:2}
	// 2: {Key:a Value:1}
}

func ExampleBatchAggregateAll() {
	show(func(p *engine.Pipeline) engine.Stream[int64] {
		return engine.BatchAggregateAll[int64](source(p, "lines"), "all", agg.Count[string]("n"))
	}, eight)
	// Output:
	// 1: 8
}

func ExampleBatchMaxBy() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.BatchMaxBy(source(p, "lines"), func(s string) int { return len(s) })
	}, feed{"lines": {"be", "not"}}, feed{"lines": {"to"}})
	// Output:
	// 1: not
	// 2: to
}

func ExampleStream_BatchMin() {
	show(func(p *engine.Pipeline) engine.Stream[string] { return source(p, "lines").BatchMin(strings.Compare) },
		feed{"lines": {"to", "be", "or"}})
	// Output:
	// 1: be
}

func ExampleStream_BatchSort() {
	show(func(p *engine.Pipeline) engine.Stream[string] { return source(p, "lines").BatchSort(strings.Compare) },
		feed{"lines": {"to", "be"}, "lines/1": {"or"}}, feed{"lines": {"not", "be"}})
	// Output:
	// 1: be
	// 1: or
	// 1: to
	// 2: be
	// 2: not
}

func ExampleBatchSortBy() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.BatchSortBy(source(p, "lines"), func(s string) int { return len(s) })
	}, feed{"lines": {"not", "to", "be"}})
	// Output:
	// 1: to
	// 1: be
	// 1: not
}

// The longest two of each batch.
func ExampleStream_BatchLimit() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.BatchSortBy(source(p, "lines"), func(s string) int { return -len(s) }).BatchLimit(2)
	}, feed{"lines": {"to", "be", "or"}, "lines/1": {"not"}}, feed{"lines": {"question"}})
	// Output:
	// 1: not
	// 1: to
	// 2: question
}

func ExampleBatchLimitBy() {
	show(func(p *engine.Pipeline) engine.Stream[string] {
		return engine.BatchLimitBy(engine.GroupBy(source(p, "lines"), func(s string) int { return len(s) }), 1)
	}, feed{"lines": {"to", "be", "not"}, "lines/1": {"or", "question"}})
	// Unordered output:
	// 1: to
	// 1: not
	// 1: question
}
