package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
	"github.com/tridentd/tridentd/window"
)

// nowhere is a source for pipelines whose records the test kit brings.
type nowhere struct{}

func (nowhere) Describe() string { return "nowhere" }
func (nowhere) Open(string, emitter.Framing, emitter.Env) (emitter.Emitter, error) {
	return nil, errors.New("the test kit brings the records")
}

type click struct {
	User string
	N    int64
	At   time.Time
}

func clicks(p *engine.Pipeline) engine.Stream[click] {
	return engine.From(p, "clicks", nowhere{}, codec.JSON[click]())
}

func json(user string, n int64, at string) string {
	return fmt.Sprintf(`{"user":%q,"n":%d,"at":%q}`, user, n, at)
}

func userOf(c click) string { return c.User }

type totals struct {
	Clicks agg.Counter
	Sum    agg.Sum[int64]
	Most   agg.Max[int64]
	Mean   agg.Mean[int64]
	Last   agg.Last[int64]
}

func addTotals(t *totals, c click) {
	t.Clicks.Inc()
	t.Sum.Add(c.N)
	t.Most.Add(c.N)
	t.Mean.Add(c.N)
	t.Last.Add(c.N)
}

const noon = "2026-01-01T12:00:00Z"

// lines is a pipeline over lines of text, built by f.
func lines(f func(s engine.Stream[string]), opts ...engine.PipelineOption) func() *engine.Pipeline {
	return func() *engine.Pipeline {
		p := engine.New("test", opts...)
		f(engine.From(p, "lines", nowhere{}, codec.String()))
		return p
	}
}

func word(w string) string { return w }

func countWords(s engine.Stream[string], state string) {
	engine.Aggregate(engine.GroupBy(s, word, "word"), state, agg.Count[string]("n"))
}

func want[K comparable, V comparable](t *testing.T, r *enginetest.Result, state string, rows map[K]V) {
	t.Helper()
	if got := enginetest.State[K, V](r, state); !maps.Equal(got, rows) {
		t.Errorf("%s: %v, want %v", state, got, rows)
	}
}

func TestFields(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		engine.Aggregate(engine.GroupBy(clicks(p), userOf, "user"), "by_user", agg.Fields(addTotals))
		return p
	}
	in := []enginetest.Input{
		{"clicks": {json("ann", 1, noon), json("bob", 7, noon)}, "clicks/1": {json("ann", 5, noon)}},
		{"clicks": {json("ann", 3, noon)}},
	}
	r := enginetest.Run(t, build(), in...)
	got := enginetest.State[string, totals](r, "by_user")
	if len(got) != 2 {
		t.Fatalf("%d users, want 2", len(got))
	}
	ann := got["ann"]
	if n := ann.Clicks.Value(); n != 3 {
		t.Errorf("ann's clicks: %d, want 3", n)
	}
	if n, ok := ann.Most.Value(); !ok || n != 5 {
		t.Errorf("ann's most: %d, want 5", n)
	}
	if m, ok := ann.Mean.Value(); !ok || m != 3 {
		t.Errorf("ann's mean: %v, want 3", m)
	}
	if n, ok := ann.Last.Value(); !ok || n != 3 {
		t.Errorf("ann's last: %d, want 3", n)
	}
	enginetest.Deterministic(t, build, in...)
}

func TestOperators(t *testing.T) {
	build := lines(func(s engine.Stream[string]) {
		words := engine.FlatMap(s, strings.Fields)
		long := words.Filter(func(w string) bool { return len(w) > 1 })
		lengths := engine.Map(long, func(w string) int { return len(w) })
		engine.Aggregate(engine.GroupBy(lengths, func(n int) int { return n }, "length"), "lengths", agg.Count[int]("n"))
		twice := engine.Each(words, func(_ *engine.Batch, w string, emit func(string)) { emit(w); emit(w) })
		countWords(twice, "twice")
		both := engine.Merge(words, long)
		countWords(both, "both")
	})
	in := []enginetest.Input{{"lines": {"a bb ccc"}}, {"lines": {"bb"}}}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "lengths", map[int]int64{2: 2, 3: 1})
	want(t, r, "twice", map[string]int64{"a": 2, "bb": 4, "ccc": 2})
	want(t, r, "both", map[string]int64{"a": 1, "bb": 4, "ccc": 2})
	enginetest.Deterministic(t, build, in...)
}

func TestMergeOfSources(t *testing.T) {
	p := engine.New("test")
	a := engine.From(p, "a", nowhere{}, codec.String())
	b := engine.From(p, "b", nowhere{}, codec.String())
	countWords(engine.Merge(a, b), "counts")
	r := enginetest.Run(t, p, enginetest.Input{"a": {"x", "y"}, "b": {"x"}}, enginetest.Input{"b": {"y"}})
	want(t, r, "counts", map[string]int64{"x": 2, "y": 2})
}

func TestBatchAggregateChained(t *testing.T) {
	// How many words came up how many times in a batch.
	build := lines(func(s engine.Stream[string]) {
		perBatch := engine.BatchAggregate[int64](engine.GroupBy(s, word, "word"), "per_batch", agg.Count[string]("n"))
		times := engine.Map(perBatch, func(t engine.Total[string, int64]) int64 { return t.Value })
		engine.Aggregate(engine.GroupBy(times, func(n int64) int64 { return n }, "times"), "histogram", agg.Count[int64]("words"))
	})
	in := []enginetest.Input{{"lines": {"a", "b", "a"}, "lines/1": {"c", "a"}}, {"lines": {"a", "a", "a"}}}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "histogram", map[int64]int64{1: 2, 3: 2})
	enginetest.Deterministic(t, build, in...)
}

func TestBatchAggregateOfAFold(t *testing.T) {
	build := lines(func(s engine.Stream[string]) {
		all := engine.GroupBy(s, func(string) string { return "all" }, "key")
		texts := engine.BatchAggregate[string](all, "per_batch", agg.Fold("text", func() string { return ">" }, func(acc, v string) string { return acc + v }))
		engine.Aggregate(engine.GroupBy(texts, func(t engine.Total[string, string]) string { return t.Value }, "text"), "texts", agg.Count[engine.Total[string, string]]("n"))
	})
	in := []enginetest.Input{{"lines": {"a", "b"}, "lines/1": {"c"}}, {"lines": {"d"}}}
	want(t, enginetest.Run(t, build(), in...), "texts", map[string]int64{">abc": 1, ">d": 1})
}

func TestPartitionPersist(t *testing.T) {
	type seen struct {
		First int64
		Times int64
	}
	build := func() *engine.Pipeline {
		p := engine.New("test")
		s := engine.From(p, "lines", nowhere{}, codec.String())
		engine.PartitionPersist(s, "seen", func(b *engine.Batch, words []string, st *engine.KV[string, seen]) error {
			for _, w := range words {
				v, ok, err := st.Get(w)
				if err != nil {
					return err
				}
				if !ok {
					v.First = int64(b.Txid())
				}
				v.Times++
				if w == "gone" && v.Times > 1 {
					if err := st.Delete(w); err != nil {
						return err
					}
					continue
				}
				if err := st.Set(w, v); err != nil {
					return err
				}
			}
			return nil
		}, "word")
		return p
	}
	in := []enginetest.Input{{"lines": {"a", "gone"}}, {"lines": {"b"}, "lines/1": {"a", "gone"}}, {"lines": {"a"}}}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "seen", map[string]seen{"a": {1, 3}, "b": {2, 1}})
	enginetest.Deterministic(t, build, in...)
}

func TestReduceAndFold(t *testing.T) {
	build := lines(func(s engine.Stream[string]) {
		one := engine.GroupBy(s, func(string) string { return "all" })
		engine.Aggregate(one, "joined", agg.Reduce("text", func(acc, v string) string { return acc + v }))
		engine.Aggregate(one, "folded", agg.Fold("text", func() string { return ">" }, func(acc, v string) string { return acc + v }))
	})
	in := []enginetest.Input{{"lines": {"a", "b"}, "lines/1": {"c"}}, {"lines": {"d"}}}
	r := enginetest.Run(t, build(), in...)
	// Partition order, then offset order, then txid order.
	want(t, r, "joined", map[string]string{"all": "abcd"})
	want(t, r, "folded", map[string]string{"all": ">abcd"})
	enginetest.Deterministic(t, build, in...)
}

func TestBadRecordStops(t *testing.T) {
	build := lines(func(s engine.Stream[string]) {
		n := engine.TryMap(s, func(_ *engine.Batch, v string) (int64, error) { return strconv.ParseInt(v, 10, 64) })
		engine.Aggregate(engine.GroupBy(n, func(int64) string { return "all" }), "sum", agg.SumOf("sum", func(n int64) int64 { return n }))
	})
	r, err := enginetest.Try(t, build(), enginetest.Input{"lines": {"1", "2"}}, enginetest.Input{"lines": {"3", "x"}})
	var e *batch.Error
	if !errors.As(err, &e) || e.Code != batch.CodeBadRecord || e.Kind != batch.Permanent {
		t.Fatalf("error %v, want a permanent bad record", err)
	}
	if e.Txid != 2 || e.Offset != 3 || e.Partition.Source != "lines" || e.Pipeline != "test" {
		t.Errorf("error is placed at txid %d, %s offset %d, pipeline %q", e.Txid, e.Partition, e.Offset, e.Pipeline)
	}
	want(t, r, "sum", map[string]int64{"all": 3}) // batch 1 only: batch 2 was dropped whole
}

func TestBadRecordSkipped(t *testing.T) {
	build := lines(func(s engine.Stream[string]) {
		n := engine.TryMap(s, func(_ *engine.Batch, v string) (int64, error) { return strconv.ParseInt(v, 10, 64) })
		engine.Aggregate(engine.GroupBy(n, func(int64) string { return "all" }), "sum", agg.SumOf("sum", func(n int64) int64 { return n }))
	}, engine.OnBadRecord(engine.Skip))
	in := []enginetest.Input{{"lines": {"1", "x", "2"}}, {"lines": {"y"}}}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "sum", map[string]int64{"all": 3})
	rejected := r.Rejected()
	if len(rejected) != 2 {
		t.Fatalf("rejected: %+v, want two", rejected)
	}
	if x := rejected[0]; x.Offset != 1 || x.Value != "x" || x.Txid != 1 || x.Kind != "bad" || !strings.Contains(x.Cause, "invalid syntax") {
		t.Errorf("rejected: %+v", x)
	}
	if y := rejected[1]; y.Offset != 3 || y.Value != "y" || y.Txid != 2 {
		t.Errorf("rejected: %+v", y)
	}
	enginetest.Deterministic(t, build, in...)
}

// A row that a step behind a BatchAggregate fails on is bad like a record: the policy holds for it, it is counted, and
// no two of them are kept as one.
func TestBadRowBehindABatchAggregate(t *testing.T) {
	build := func(opts ...engine.PipelineOption) func() *engine.Pipeline {
		return lines(func(s engine.Stream[string]) {
			totals := engine.BatchAggregate[int64](engine.GroupBy(s, func(v string) string { return v }, "word"), "per_batch", agg.Count[string]("n"))
			good := engine.TryMap(totals, func(_ *engine.Batch, r engine.Total[string, int64]) (string, error) {
				switch r.Key {
				case "bad":
					return "", errors.New("no such word")
				case "worse":
					panic("no word at all")
				}
				return r.Key, nil
			})
			countWords(good, "batches")
		}, opts...)
	}
	in := []enginetest.Input{
		{"lines": {"good", "bad", "good", "bad"}}, {"lines": {"bad", "worse", "fine"}}, {"lines": {"bad"}},
	}
	skip := build(engine.OnBadRecord(engine.Skip))
	r := enginetest.Run(t, skip(), in...)
	want(t, r, "batches", map[string]int64{"good": 1, "fine": 1})
	var got []string
	for _, x := range r.Rejected() {
		if x.Source != "per_batch" || x.Offset != int64(x.Txid) || x.Kind != "bad" || x.Step != "map 1" || x.Value != "" {
			t.Errorf("rejected: %+v", x)
		}
		got = append(got, fmt.Sprintf("%d %s %s", x.Txid, x.Key, x.Cause))
	}
	slices.Sort(got)
	if all := []string{"1 bad no such word", "2 bad no such word", "2 worse panic: no word at all", "3 bad no such word"}; !slices.Equal(got, all) {
		t.Errorf("rejected: %q, want %q", got, all)
	}
	enginetest.Deterministic(t, skip, in...)

	_, err := enginetest.Try(t, build()(), in...)
	var e *batch.Error
	if !errors.As(err, &e) || e.Code != batch.CodeBadRecord || e.Kind != batch.Permanent || e.Txid != 1 || e.Op != "map 1" ||
		e.Partition.Source != "per_batch" || !strings.Contains(err.Error(), "key bad") {
		t.Errorf("error %v", err)
	}
}

func TestBatchAggregatesAreNamedApart(t *testing.T) {
	p := lines(func(s engine.Stream[string]) {
		for range 2 {
			g := engine.GroupBy(s, func(v string) string { return v }, "word")
			totals := engine.BatchAggregate[int64](g, "per_batch", agg.Count[string]("n"))
			countWords(engine.Map(totals, func(r engine.Total[string, int64]) string { return r.Key }), "counts")
		}
	})()
	if _, err := p.Plan(); err == nil || !strings.Contains(err.Error(), `two batch aggregates are named "per_batch"`) {
		t.Errorf("error %v", err)
	}
}

func TestPanicIsABadRecordOfItsStep(t *testing.T) {
	build := func(opts ...engine.PipelineOption) *engine.Pipeline {
		return lines(func(s engine.Stream[string]) {
			countWords(engine.Map(s, func(v string) string { return v[1:] }), "counts")
		}, opts...)()
	}
	in := enginetest.Input{"lines": {"ab", "", "cd"}}
	_, err := enginetest.Try(t, build(), in)
	var e *batch.Error
	if !errors.As(err, &e) || e.Code != batch.CodeBadRecord || e.Offset != 1 || !strings.Contains(e.Op, "map") {
		t.Errorf("error %v, want a bad record at offset 1 in the map", err)
	}
	r := enginetest.Run(t, build(engine.OnBadRecord(engine.Skip)), in)
	want(t, r, "counts", map[string]int64{"b": 1, "d": 1})
	if rej := r.Rejected(); len(rej) != 1 || rej[0].Offset != 1 || !strings.Contains(rej[0].Cause, "out of range") {
		t.Errorf("rejected: %+v", rej)
	}
}

func TestProcessDropsWhatItEmittedBeforeItFailed(t *testing.T) {
	p := lines(func(s engine.Stream[string]) {
		countWords(engine.Process(s, func(_ *engine.Batch, v string, emit func(string)) error {
			emit(v)
			if v == "bad" {
				return errors.New("no")
			}
			return nil
		}), "counts")
	}, engine.OnBadRecord(engine.Skip))()
	r := enginetest.Run(t, p, enginetest.Input{"lines": {"good", "bad"}})
	want(t, r, "counts", map[string]int64{"good": 1})
}

func TestTransientError(t *testing.T) {
	p := lines(func(s engine.Stream[string]) {
		countWords(engine.Process(s, func(*engine.Batch, string, func(string)) error {
			return engine.Transient(errors.New("try later"))
		}), "counts")
	}, engine.OnBadRecord(engine.Skip))()
	_, err := enginetest.Try(t, p, enginetest.Input{"lines": {"x"}})
	if err == nil || batch.KindOf(err) != batch.Transient || !strings.Contains(err.Error(), "try later") {
		t.Errorf("error %v, want a transient one", err)
	}
}

func TestOverflowNamesStateAndKey(t *testing.T) {
	build := lines(func(s engine.Stream[string]) {
		n := engine.Map(s, func(v string) int8 { return int8(v[0]) })
		engine.Aggregate(engine.GroupBy(n, func(int8) string { return "k" }, "key"), "combined",
			agg.Combine("n", func(n int8) int8 { return n }, func(a, b int8) int8 {
				if s := a + b; s > 0 {
					return s
				}
				panic("too large")
			}))
	})
	_, err := enginetest.Try(t, build(), enginetest.Input{"lines": {"z", "z"}})
	if err == nil || batch.KindOf(err) != batch.Permanent {
		t.Errorf("error %v, want a permanent one", err)
	}

	// Sums are wider than their numbers: exact, never wrapped.
	p := engine.New("test")
	engine.Aggregate(engine.GroupBy(clicks(p), userOf, "user"), "by_user", agg.SumOf("sum", func(c click) int64 { return c.N }))
	r := enginetest.Run(t, p,
		enginetest.Input{"clicks": {json("a", math.MaxInt64, noon)}}, enginetest.Input{"clicks": {json("a", 1, noon), json("a", -2, noon)}})
	want(t, r, "by_user", map[string]int64{"a": math.MaxInt64 - 1})
}

func TestWindows(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		timed := clicks(p).EventTime(func(c click) time.Time { return c.At }, 10*time.Second)
		g := engine.GroupByWindow(timed, window.Tumbling(time.Minute), userOf, "user")
		engine.Aggregate(g, "per_minute", agg.Count[click]("n"))
		return p
	}
	in := []enginetest.Input{
		{"clicks": {json("a", 1, "2025-12-31T10:00:05Z"), json("a", 1, "2025-12-31T10:01:30Z")}},
		{"clicks": {json("a", 1, "2025-12-31T10:00:59Z")}},                                       // late: the watermark stands at 10:01:20
		{"clicks": {json("b", 1, "2025-12-31T10:01:00Z"), json("b", 1, "2026-01-01T02:00:00Z")}}, // the second lies 2 h ahead of the clock
	}
	r := enginetest.Run(t, build(), in...)
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	want(t, r, "per_minute", map[engine.Windowed[string]]int64{
		{Start: at("2025-12-31T10:00:00Z"), Key: "a"}: 1,
		{Start: at("2025-12-31T10:01:00Z"), Key: "a"}: 1,
		{Start: at("2025-12-31T10:01:00Z"), Key: "b"}: 1,
	})
	rej := r.Rejected()
	if len(rej) != 2 || rej[0].Kind != "late" || rej[0].Offset != 2 || rej[1].Kind != "future" || rej[1].Offset != 4 {
		t.Errorf("rejected: %+v, want offset 2 late and offset 4 in the future", rej)
	}
	enginetest.Deterministic(t, build, in...)
}

func TestWindowsAreDroppedAfterTheirRetention(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		timed := clicks(p).EventTime(func(c click) time.Time { return c.At }, 0)
		g := engine.GroupByWindow(timed, window.Tumbling(time.Minute), userOf, "user", engine.Retention(2*time.Second))
		engine.Aggregate(g, "per_minute", agg.Count[click]("n"))
		return p
	}
	// The clock moves on by a second from batch to batch.
	in := []enginetest.Input{
		{"clicks": {json("a", 1, "2025-12-31T10:00:05Z"), json("a", 1, "2025-12-31T10:05:00Z")}},
		{"clicks": {json("b", 1, "2025-12-31T10:05:01Z")}}, // closes 10:00
		{"clicks": {json("b", 1, "2025-12-31T10:05:02Z")}},
		{"clicks": {json("b", 1, "2025-12-31T10:05:03Z")}}, // drops it
	}
	r := enginetest.Run(t, build(), in[:3]...)
	if got := enginetest.State[engine.Windowed[string], int64](r, "per_minute"); len(got) != 3 {
		t.Errorf("after three batches: %v, want three rows", got)
	}
	r = enginetest.Run(t, build(), in...)
	if got := enginetest.State[engine.Windowed[string], int64](r, "per_minute"); len(got) != 2 {
		t.Errorf("after four batches: %v, want two rows", got)
	}
	enginetest.Deterministic(t, build, in...)
}

func TestBatchInReach(t *testing.T) {
	build := lines(func(s engine.Stream[string]) {
		drawn := engine.TryMap(s, func(b *engine.Batch, v string) (string, error) {
			return fmt.Sprintf("%d %s %d %s", b.Txid(), b.Time().Format(time.RFC3339), b.Rand().IntN(1000), v), nil
		})
		countWords(drawn, "drawn")
	})
	in := []enginetest.Input{{"lines": {"a", "b"}}, {"lines": {"a"}}}
	r := enginetest.Run(t, build(), in...)
	got := enginetest.State[string, int64](r, "drawn")
	if len(got) != 3 {
		t.Errorf("drawn: %v, want three rows: equal lines differ by txid", got)
	}
	for k := range got {
		if strings.HasPrefix(k, "2 ") && !strings.HasPrefix(k, "2 2026-01-01T00:00:01Z ") {
			t.Errorf("%q: batch 2 began a second after batch 1", k)
		}
	}
	enginetest.Deterministic(t, build, in...)
}

func TestMistakesAreReportedTogether(t *testing.T) {
	p := engine.New("bad name")
	s := engine.From(p, "lines", nowhere{}, codec.String())
	engine.From(p, "lines", nowhere{}, codec.String())
	countWords(s, "counts")
	countWords(s, "counts")
	engine.GroupByWindow(s, window.Tumbling(time.Minute), word, "word")
	_, err := p.Plan()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{`"bad name"`, `two sources are named "lines"`, `two states are named "counts"`, "no event time"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in: %v", part, err)
		}
	}
}

func TestFunctionWithStateOfItsOwnIsFound(t *testing.T) {
	var n atomic.Int64
	build := lines(func(s engine.Stream[string]) {
		countWords(engine.Map(s, func(v string) string { return fmt.Sprint(v, n.Add(1)) }), "counts")
	})
	ft := &recordingTB{TB: t}
	enginetest.Deterministic(ft, build, enginetest.Input{"lines": {"a", "b"}}, enginetest.Input{"lines": {"c"}})
	if !ft.failed {
		t.Error("a function that counts its calls passed as deterministic")
	}
}

// recordingTB notes failures instead of failing.
type recordingTB struct {
	testing.TB
	failed bool
}

func (r *recordingTB) Errorf(string, ...any) { r.failed = true }
