package engine_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
	"github.com/tridentd/tridentd/window"
)

// parts keeps which partition each value has come to, in order.
func parts(s engine.Stream[string], state string) {
	type placed struct {
		Part  int64
		Value string
	}
	at := engine.Each(s, func(b *engine.Batch, v string, emit func(placed)) { emit(placed{int64(b.Partition().Number), v}) })
	engine.Aggregate(engine.GroupBy(at, func(p placed) int64 { return p.Part }, "part"), state,
		agg.CollectOf("rows", func(p placed) string { return p.Value }))
}

func numbered(n int, prefix string) (vs []string) {
	for i := range n {
		vs = append(vs, fmt.Sprintf("%s%d", prefix, i))
	}
	return vs
}

func wantParts(t *testing.T, r *enginetest.Result, state string, rows map[int64][]string) {
	t.Helper()
	if got := enginetest.State[int64, []string](r, state); !maps.EqualFunc(got, rows, slices.Equal[[]string]) {
		t.Errorf("%s: %v, want %v", state, got, rows)
	}
}

func TestRepartitionings(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		in := words(p, "in")
		parts(in.Partition(3, func(s string) int { return len(s) - 2 }), "partition")
		parts(in.Broadcast(2), "broadcast")
		parts(in.Global(), "global")
		parts(in.BatchGlobal(2), "batch_global")
		parts(in.IdentityPartition(), "identity")
		parts(engine.PartitionBy(in, initial, 4), "partition_by")
		parts(in.Shuffle(4), "shuffle")
		return p
	}
	in := []enginetest.Input{
		{"in": {"a1", "b22", "a333"}, "in/1": {"b4"}},
		{"in": {"c5"}, "in/1": {"a66"}},
	}
	r := enginetest.Run(t, build(), in...)
	wantParts(t, r, "partition", map[int64][]string{0: {"a1", "b4", "c5"}, 1: {"b22", "a66"}, 2: {"a333"}})
	every := []string{"a1", "b22", "a333", "b4", "c5", "a66"}
	wantParts(t, r, "broadcast", map[int64][]string{0: every, 1: every})
	wantParts(t, r, "global", map[int64][]string{0: every})
	wantParts(t, r, "batch_global", map[int64][]string{1: {"a1", "b22", "a333", "b4"}, 0: {"c5", "a66"}})
	wantParts(t, r, "identity", map[int64][]string{0: {"a1", "b22", "a333", "c5"}, 1: {"b4", "a66"}})
	home := map[string]int64{}
	for part, values := range enginetest.State[int64, []string](r, "partition_by") {
		for _, v := range values {
			if at, ok := home[initial(v)]; ok && at != part {
				t.Errorf("PartitionBy: %s lies in partitions %d and %d", initial(v), at, part)
			}
			home[initial(v)] = part
		}
	}
	if len(home) != 3 {
		t.Errorf("PartitionBy: keys %v", home)
	}
	enginetest.Deterministic(t, build, in...)
}

// G12: every record once, and in the same partition however the batches are cut.
func TestShuffle(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		in := engine.FlatMap(words(p, "in"), func(s string) []string { return []string{s, s + "'"} })
		parts(in.Shuffle(4), "parts")
		return p
	}
	values := numbered(1000, "v")
	whole := enginetest.State[int64, []string](enginetest.Run(t, build(), enginetest.Input{"in": values, "in/1": values[:3]}), "parts")
	var cut []enginetest.Input
	for i, chunk := range slices.Collect(slices.Chunk(values, 7)) {
		in := enginetest.Input{"in": chunk}
		if i < 3 {
			in["in/1"] = values[i : i+1]
		}
		cut = append(cut, in)
	}
	pieces := enginetest.State[int64, []string](enginetest.Run(t, build(), cut...), "parts")
	seen := map[string]int{}
	for part := range int64(4) {
		a, b := slices.Sorted(slices.Values(whole[part])), slices.Sorted(slices.Values(pieces[part]))
		if !slices.Equal(a, b) {
			t.Errorf("partition %d depends on where the batches are cut", part)
		}
		if len(a) < 400 || len(a) > 600 {
			t.Errorf("partition %d has %d of 2,006 values", part, len(a))
		}
		for _, v := range a {
			seen[v]++
		}
	}
	for i, v := range values {
		want := 1
		if i < 3 {
			want = 2
		}
		if seen[v] != want || seen[v+"'"] != want {
			t.Fatalf("%s came %d and %d times, want %d", v, seen[v], seen[v+"'"], want)
		}
	}
	enginetest.Deterministic(t, build, enginetest.Input{"in": values[:20]}, enginetest.Input{"in": values[20:30], "in/1": values[:5]})
}

// What counts by partition sees the new ones: partition aggregates, partitionPersist, a chain of repartitionings.
func TestBehindRepartitioning(t *testing.T) {
	type count struct{ Part, N int64 }
	counts := func(s engine.Stream[string]) engine.Stream[count] {
		return engine.Each(engine.PartitionAggregate[int64](s, agg.Count[string]("n")), func(b *engine.Batch, n int64, emit func(count)) {
			emit(count{int64(b.Partition().Number), n})
		})
	}
	byPart := func(s engine.Stream[count], state string) {
		engine.Aggregate(engine.GroupBy(s, func(c count) int64 { return c.Part }, "part"), state, agg.CollectOf("n", func(c count) int64 { return c.N }))
	}
	build := func() *engine.Pipeline {
		p := engine.New("test")
		in := words(p, "in")
		byPart(counts(in), "sources")
		two := in.Partition(2, func(s string) int { return int(s[1]-'0') % 2 })
		byPart(counts(two), "two")
		byPart(counts(two.Partition(3, func(s string) int { return int(s[1]-'0') % 3 })), "three")
		engine.PartitionPersist(two, "persisted", func(b *engine.Batch, vs []string, st *engine.KV[int64, string]) error {
			k := int64(b.Partition().Number)
			old, _, err := st.Get(k)
			if err != nil {
				return err
			}
			return st.Set(k, old+" "+strings.Join(vs, ","))
		})
		return p
	}
	in := []enginetest.Input{
		{"in": {"v0", "v1", "v2", "v3"}, "in/3": {"v4", "v6"}},
		{"in/3": {"v7"}},
	}
	r := enginetest.Run(t, build(), in...)
	equal := func(state string, rows map[int64][]int64) {
		t.Helper()
		if got := enginetest.State[int64, []int64](r, state); !maps.EqualFunc(got, rows, slices.Equal[[]int64]) {
			t.Errorf("%s: %v, want %v", state, got, rows)
		}
	}
	equal("sources", map[int64][]int64{0: {4}, 3: {2, 1}})
	equal("two", map[int64][]int64{0: {4}, 1: {2, 1}})
	equal("three", map[int64][]int64{0: {3}, 1: {2, 1}, 2: {1}})
	want(t, r, "persisted", map[int64]string{0: " v0,v2,v4,v6", 1: " v1,v3 v7"})
	enginetest.Deterministic(t, build, in...)
}

// G27: ten records, persisted as they come and, through two operators that are merged and partitioned by key, once more.
func TestBranchMergePartition(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		in := words(p, "in")
		count := func(b *engine.Batch, vs []string, st *engine.KV[string, int64]) error {
			n, _, err := st.Get("n")
			if err != nil {
				return err
			}
			return st.Set("n", n+int64(len(vs)))
		}
		engine.PartitionPersist(in, "once", count)
		one := engine.Map(in, strings.ToUpper)
		other := in.Filter(func(string) bool { return true })
		engine.PartitionPersist(engine.PartitionBy(engine.Merge(one, other), initial, 8), "twice", count)
		return p
	}
	in := []enginetest.Input{{"in": numbered(6, "a"), "in/1": numbered(2, "b")}, {"in": numbered(2, "c")}}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "once", map[string]int64{"n": 10})
	want(t, r, "twice", map[string]int64{"n": 20})
	enginetest.Deterministic(t, build, in...)
}

// Event times go along, and rows can be late behind a repartitioning as they can be before it.
func TestRepartitioningKeepsEventTimes(t *testing.T) {
	build := func(spread func(engine.Stream[click]) engine.Stream[click]) *engine.Pipeline {
		p := engine.New("test")
		timed := clicks(p).EventTime(func(c click) time.Time { return c.At }, 0)
		fives := engine.Aggregate(engine.GroupByWindow(spread(timed), window.Tumbling(5*time.Second), userOf, "user"), "fives", agg.Count[click]("n"))
		closed := engine.Closed[int64](fives).Shuffle(3) // results of windows stay what is never late
		engine.Aggregate(engine.GroupByWindow(closed, window.Tumbling(10*time.Second), func(r result) string { return r.Key }, "user"),
			"tens", agg.SumOf("n", func(r result) int64 { return r.Value }))
		return p
	}
	in := []enginetest.Input{
		{"clicks": {json("ann", 1, second(1)), json("ann", 1, second(7))}},
		{"clicks": {json("bob", 1, second(31))}},
		{"clicks": {json("ann", 1, second(8))}}, // late
	}
	straight := enginetest.Run(t, build(func(s engine.Stream[click]) engine.Stream[click] { return s }), in...)
	spread := enginetest.Run(t, build(func(s engine.Stream[click]) engine.Stream[click] { return s.Shuffle(5) }), in...)
	type key = engine.Windowed[string]
	for _, state := range []string{"fives", "tens"} {
		a, b := enginetest.State[key, int64](straight, state), enginetest.State[key, int64](spread, state)
		if len(a) == 0 || !maps.Equal(a, b) {
			t.Errorf("%s: %v, and shuffled %v", state, a, b)
		}
	}
	if rej := spread.Rejected(); len(rej) != 1 || rej[0].Kind != "late" || rej[0].Txid != 3 || !strings.Contains(rej[0].Value, `"ann"`) {
		t.Errorf("turned away: %+v", rej)
	}
}

// A bad row behind a repartitioning is told by the record that it comes from.
func TestBadRowBehindRepartitioning(t *testing.T) {
	build := func(policy engine.Policy) *engine.Pipeline {
		p := engine.New("test", engine.OnBadRecord(policy))
		in := words(p, "in").Partition(2, func(s string) int { return len(s) - 1 }).Name("spread")
		checked := engine.TryMap(in, func(_ *engine.Batch, s string) (string, error) {
			if s == "b" {
				return "", fmt.Errorf("no %s", s)
			}
			return s, nil
		}).Name("check")
		collect(checked, "rows", all)
		return p
	}
	in := []enginetest.Input{{"in": {"a"}}, {"in/2": {"x"}}, {"in/2": {"a", "abc", "b"}}}
	r := enginetest.Run(t, build(engine.Skip), in...)
	wantRows(t, r, "rows", map[string][]string{"all": {"a", "x", "a"}})
	var rejected []string
	for _, rej := range r.Rejected() {
		rejected = append(rejected, fmt.Sprintf("%s|%s|%s|%s", rej.Source, rej.Step, rej.Cause, rej.Value))
	}
	if want := []string{"in|spread|partition 2 of 2|abc", `spread|check|row of in/in-2 at offset 3: no b|"b"`}; !slices.Equal(rejected, want) {
		t.Errorf("turned away: %q, want %q", rejected, want)
	}
	_, err := enginetest.Try(t, build(engine.Stop), in[0], in[1], enginetest.Input{"in/2": {"b"}})
	e, ok := errors.AsType[*batch.Error](err)
	if !ok || e.Code != batch.CodeBadRecord || e.Txid != 3 || e.Partition != (batch.Partition{Source: "in", Topic: "in", Number: 2}) || e.Offset != 1 || !strings.Contains(err.Error(), "check: no b") {
		t.Errorf("stopped by %v", err)
	}
}

func TestPartitionAggregate(t *testing.T) {
	type sums struct {
		N   agg.Counter
		Sum agg.Sum[int64]
	}
	type plain struct{ N, Sum int64 }
	build := func() *engine.Pipeline {
		p := engine.New("test", engine.OnBadRecord(engine.Skip))
		each := engine.PartitionAggregate[plain](clicks(p), agg.Fields(func(s *sums, c click) {
			if c.N < 0 {
				panic("less than nothing")
			}
			s.N.Inc()
			s.Sum.Add(c.N)
		})).Name("sums")
		// Each of the two partitions is a value for what adds them up.
		text := engine.Map(each, func(s plain) string { return fmt.Sprintf("%d:%d", s.N, s.Sum) })
		collect(text, "rows", all)
		total := engine.BatchAggregateAll[int64](each, "total", agg.SumOf("sum", func(s plain) int64 { return s.Sum }))
		engine.Aggregate(engine.GroupBy(total, func(int64) string { return "all" }, "key"), "totals", agg.CollectOf("sum", func(n int64) int64 { return n }))
		return p
	}
	in := []enginetest.Input{
		{"clicks": {json("a", 1, second(0)), json("a", -1, second(0)), json("a", 2, second(0))}, "clicks/1": {json("b", 10, second(0))}},
		{"clicks/1": {json("b", -5, second(0))}}, // nothing is left of it
		{"clicks/1": {json("b", 5, second(0))}},
	}
	r := enginetest.Run(t, build(), in...)
	wantRows(t, r, "rows", map[string][]string{"all": {"2:3", "1:10", "1:5"}})
	if got := enginetest.State[string, []int64](r, "totals")["all"]; !slices.Equal(got, []int64{13, 5}) {
		t.Errorf("totals %v", got)
	}
	var at []string
	for _, rej := range r.Rejected() {
		at = append(at, fmt.Sprintf("%s %d %s", rej.Step, rej.Offset, rej.Cause))
	}
	if want := []string{"sums 1 panic: less than nothing", "sums 1 panic: less than nothing"}; !slices.Equal(at, want) {
		t.Errorf("turned away: %q, want %q", at, want)
	}
	enginetest.Deterministic(t, build, in...)
}

// What is turned away behind a partition aggregate doesn't displace what was turned away of the same record.
func TestTurnedAwayAtTheEnd(t *testing.T) {
	p := engine.New("test", engine.OnBadRecord(engine.Skip))
	in := words(p, "in")
	refuse := func(cause string) func(*engine.Batch, string) (string, error) {
		return func(_ *engine.Batch, s string) (string, error) { return s, fmt.Errorf("%s %s", cause, s) }
	}
	collect(engine.TryMap(in, refuse("first")), "one", all)
	last := engine.PartitionAggregate[string](in.Filter(func(s string) bool { return s != "b" }), agg.LastOf("v", func(s string) string { return s }))
	collect(engine.TryMap(last, refuse("last")), "other", all)
	r := enginetest.Run(t, p, enginetest.Input{"in": {"a", "b"}})
	var causes []string
	for _, rej := range r.Rejected() {
		causes = append(causes, fmt.Sprintf("%d %s", rej.Offset, rej.Cause))
	}
	if want := []string{"0 first a", "1 first b", "1 last a"}; !slices.Equal(causes, want) {
		t.Errorf("turned away: %q, want %q", causes, want)
	}
}

// Aggregates over what batches come to: counts per word, then words per count, then the greatest of these.
func TestChainedBatchAggregates(t *testing.T) {
	type total = engine.Total[string, int64]
	type sizes = engine.Total[int64, int64]
	build := func() *engine.Pipeline {
		p := engine.New("test")
		counts := engine.BatchAggregate[int64](engine.GroupBy(words(p, "in"), initial, "word"), "per_word", agg.Count[string]("n"))
		bySize := engine.BatchAggregate[int64](engine.GroupBy(counts, func(c total) int64 { return c.Value }, "n"), "per_count", agg.Count[total]("words"))
		most := engine.BatchMaxBy(bySize, func(s sizes) int64 { return s.Value })
		collect(engine.Map(most, func(s sizes) string { return fmt.Sprintf("%d words came %d times", s.Value, s.Key) }), "rows", all)
		return p
	}
	in := []enginetest.Input{
		{"in": {"a", "b", "c", "c"}, "in/1": {"d", "d", "e", "e"}}, // two words once, three twice
		{"in/1": {"a"}},
	}
	r := enginetest.Run(t, build(), in...)
	wantRows(t, r, "rows", map[string][]string{"all": {"3 words came 2 times", "1 words came 1 times"}})
	enginetest.Deterministic(t, build, in...)
}

func TestBatchMinMax(t *testing.T) {
	byLength := func(a, b string) int { return cmp.Compare(len(a), len(b)) }
	build := func() *engine.Pipeline {
		p := engine.New("test")
		in := words(p, "in")
		collect(in.BatchMin(byLength), "min", all)
		collect(in.BatchMax(byLength), "max", all)
		collect(engine.BatchMinBy(in, func(s string) string { return s }), "min_by", all)
		collect(engine.BatchMaxBy(in, initial), "max_by", all)
		collect(in.Filter(func(string) bool { return false }).BatchMin(byLength), "none", all)
		return p
	}
	in := []enginetest.Input{
		{"in": {"bb", "a1", "c333"}, "in/1": {"c2", "a444", "a0"}}, // of equals the first
		{"in/1": {"x"}},
	}
	r := enginetest.Run(t, build(), in...)
	for state, rows := range map[string][]string{
		"min": {"bb", "x"}, "max": {"c333", "x"}, "min_by": {"a0", "x"}, "max_by": {"c333", "x"},
	} {
		wantRows(t, r, state, map[string][]string{"all": rows})
	}
	if got := enginetest.State[string, []string](r, "none"); len(got) > 0 {
		t.Errorf("the least of nothing: %v", got)
	}
	enginetest.Deterministic(t, build, in...)
}

// TestBatchSortAndLimit: of several partitions and batches, with values that can't pass, and a limit within a task as well as over all.
func TestBatchSortAndLimit(t *testing.T) {
	byLength := func(a, b string) int { return cmp.Compare(len(a), len(b)) }
	build := func() *engine.Pipeline {
		p := engine.New("test")
		in := words(p, "in")
		collect(in.BatchSort(byLength), "sorted", all)
		collect(in.BatchSort(byLength).BatchLimit(2), "least", all)
		collect(in.BatchLimit(4), "first", all)
		collect(engine.BatchLimitBy(engine.GroupBy(in, initial, "initial"), 2), "each", initial)
		return p
	}
	in := []enginetest.Input{
		{"in": {"bb", "a1", "c333", "bbb", "b"}, "in/1": {"c2", "a444", "a0", "c0"}},
		{"in/1": {"x"}},
	}
	r := enginetest.Run(t, build(), in...)
	for state, rows := range map[string][]string{ // order: each by itself
		"sorted": {"b", "bb", "a1", "c2", "a0", "c0", "bbb", "c333", "a444", "x"},
		"least":  {"b", "bb", "x"},
		"first":  {"bb", "a1", "c333", "bbb", "x"},
	} {
		wantRows(t, r, state, map[string][]string{"all": rows})
	}
	wantRows(t, r, "each", map[string][]string{"a": {"a1", "a444"}, "b": {"bb", "bbb"}, "c": {"c333", "c2"}, "x": {"x"}})
	enginetest.Deterministic(t, build, in...)
}

func TestNameAndParallelism(t *testing.T) {
	build := func(name string, n int) *engine.Pipeline {
		p := engine.New("test")
		s := engine.Map(words(p, "in"), strings.ToUpper)
		if name != "" {
			s = s.Name(name)
		}
		if n > 0 {
			s = s.Parallelism(n)
		}
		s = s.Shuffle(8)
		if n > 0 {
			s = s.Parallelism(n)
		}
		collect(s, "rows", initial)
		return p
	}
	pl, err := build("upper", 1).Plan()
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(pl.Lines, "\n"); !strings.Contains(text, "\n  map upper\n  shuffle into 8 2\n") {
		t.Errorf("the plan:\n%s", text)
	}
	if pl.Sources[0].Parallel != 1 || pl.Exchanges[0].Parallel != 1 {
		t.Errorf("bounds: %d, %d", pl.Sources[0].Parallel, pl.Exchanges[0].Parallel)
	}
	free, err := build("upper", 0).Plan()
	if err != nil {
		t.Fatal(err)
	}
	if free.Text != pl.Text {
		t.Error("a bound on tasks is part of what decides results")
	}
	in := []enginetest.Input{{"in": numbered(20, "a"), "in/1": numbered(20, "b")}, {"in/1": numbered(9, "c")}}
	one, many := enginetest.Run(t, build("upper", 1), in...), enginetest.Run(t, build("upper", 0), in...)
	for i := range one.Entries {
		if one.Entries[i].Chain != many.Entries[i].Chain {
			t.Errorf("txid %d comes out otherwise with one task at a time", i+1)
		}
	}
	refused := func(build func(engine.Stream[string])) *engine.Pipeline {
		p := engine.New("test")
		build(words(p, "in"))
		return p
	}
	for words, p := range map[string]*engine.Pipeline{
		"has no name of its own":      refused(func(s engine.Stream[string]) { s.Name("x") }),
		`two operators are named "x"`: refused(func(s engine.Stream[string]) { s.Shuffle(2).Name("x").Shuffle(2).Name("x") }),
		"at least one task":           refused(func(s engine.Stream[string]) { s.Parallelism(0) }),
		"1 to 256 are possible":       refused(func(s engine.Stream[string]) { s.Shuffle(257) }),
		"shuffle: 0 partitions":       refused(func(s engine.Stream[string]) { s.Shuffle(0) }),
		"a interface {} can't be":     refused(func(s engine.Stream[string]) { engine.Map(s, func(string) any { return 1 }).Global() }),
	} {
		if _, err := p.Plan(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	asked := engine.New("test")
	engine.Query(asked, "q", func(args engine.Stream[sentence]) engine.Stream[sentence] { return args.Parallelism(1) })
	if _, err := asked.Plan(); err == nil || !strings.Contains(err.Error(), "it can't bound how many calls of a query") {
		t.Error(err)
	}
	behind := engine.New("test")
	emitted := engine.PartitionPersistEmit(words(behind, "in"), "kept", func(*engine.Batch, []string, *engine.KV[string, int64], func(string)) error { return nil }, "word")
	collect(emitted.Parallelism(1), "rows", initial)
	if _, err := behind.Plan(); err != nil {
		t.Error(err)
	}
}

// A bound holds in the source stage and behind a repartitioning.
func TestParallelismBounds(t *testing.T) {
	var working, most [2]atomic.Int64
	work := func(stage int) func(string) string {
		return func(s string) string {
			n := working[stage].Add(1)
			for m := most[stage].Load(); n > m && !most[stage].CompareAndSwap(m, n); m = most[stage].Load() {
			}
			for range 100 {
				runtime.Gosched()
			}
			working[stage].Add(-1)
			return s
		}
	}
	p := engine.New("test")
	s := engine.Map(words(p, "in"), work(0)).Parallelism(1)
	collect(engine.Map(s.Shuffle(16).Parallelism(1), work(1)), "rows", initial)
	in := enginetest.Input{}
	for i := range 8 {
		in[fmt.Sprintf("in/%d", i)] = numbered(50, "a")
	}
	enginetest.Run(t, p, in)
	for stage := range most {
		if n := most[stage].Load(); n != 1 {
			t.Errorf("%d tasks of stage %d worked at once", n, stage)
		}
	}
}

func TestApply(t *testing.T) {
	p := engine.New("test")
	longer := func(s engine.Stream[string]) engine.Stream[string] {
		return s.Filter(func(s string) bool { return len(s) > 1 })
	}
	lengths := func(s engine.Stream[string]) engine.Stream[int64] {
		return engine.Map(s, func(s string) int64 { return int64(len(s)) })
	}
	n := engine.Apply(words(p, "in").Apply(longer), lengths)
	engine.Aggregate(engine.GroupBy(n, func(n int64) int64 { return n }, "n"), "lengths", agg.Count[int64]("words"))
	r := enginetest.Run(t, p, enginetest.Input{"in": {"a", "bb", "cc", "ddd"}})
	want(t, r, "lengths", map[int64]int64{2: 2, 3: 1})
}
