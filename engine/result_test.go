package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
	"github.com/tridentd/tridentd/window"
)

func second(n int) string { return time.Unix(int64(n), 0).UTC().Format(time.RFC3339) }

type result = engine.Result[string, int64]

// Each batch sends the new value of each key that it changed, once: 2 for ann in the first, 3 in the second.
func TestUpdates(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		counts := engine.Aggregate(engine.GroupBy(clicks(p), userOf, "user"), "counts", agg.Count[click]("n"))
		news := engine.Updates[int64](counts)
		engine.Aggregate(engine.GroupBy(news, func(r result) string { return fmt.Sprintf("%s %d", r.Key, r.Value) }, "news"), "news", agg.Count[result]("n"))
		// A second look at the same state.
		large := engine.Updates[int64](counts).Filter(func(r result) bool { return r.Value > 2 })
		engine.Aggregate(engine.GroupBy(large, func(r result) string { return r.Key }, "user"), "large", agg.MaxOf("n", func(r result) int64 { return r.Value }))
		return p
	}
	in := []enginetest.Input{
		{"clicks": {json("ann", 1, second(0)), json("bob", 1, second(0)), json("ann", 1, second(0))}},
		{"clicks": {json("ann", 1, second(0))}},
		{"clicks": {json("bob", 1, second(0))}},
	}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "counts", map[string]int64{"ann": 3, "bob": 2})
	want(t, r, "news", map[string]int64{"ann 2": 1, "bob 1": 1, "ann 3": 1, "bob 2": 1})
	want(t, r, "large", map[string]int64{"ann": 3})
	enginetest.Deterministic(t, build, in...)
}

// windows counts in windows of 5 s and adds the counts up in windows of 10 s.
func windows(p *engine.Pipeline) {
	s := clicks(p).EventTime(func(c click) time.Time { return c.At }, 0)
	fives := engine.Aggregate(engine.GroupByWindow(s, window.Tumbling(5*time.Second), userOf, "user"), "fives", agg.Count[click]("n"))
	tens := engine.Aggregate(engine.GroupByWindow(engine.Closed[int64](fives), window.Tumbling(10*time.Second), func(r result) string { return r.Key }, "user"),
		"tens", agg.SumOf("n", func(r result) int64 { return r.Value }))
	closed := engine.Map(engine.Closed[int64](tens), func(r result) string {
		return fmt.Sprintf("%s %d-%d %d", r.Key, r.Window.Start.Unix(), r.Window.End.Unix(), r.Value)
	})
	engine.Aggregate(engine.GroupBy(closed, func(s string) string { return s }, "row"), "closed", agg.Count[string]("n"))
}

// Windows over windows lose nothing, whatever the batches are; each is sent once.
func TestWindowsOverWindows(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		windows(p)
		return p
	}
	var all []string
	for i := range 30 {
		all = append(all, json("ann", 1, second(i)))
	}
	all = append(all, json("ann", 1, second(100)))
	for _, size := range []int{1, 4, 31} {
		var in []enginetest.Input
		for part := range slices.Chunk(all, size) {
			in = append(in, enginetest.Input{"clicks": part})
		}
		in = append(in, enginetest.Input{}) // a batch closes what the watermark of the batch before has passed
		r := enginetest.Run(t, build(), in...)
		want(t, r, "closed", map[string]int64{"ann 0-10 10": 1, "ann 10-20 10": 1, "ann 20-30 10": 1})
		if rejected := r.Rejected(); len(rejected) > 0 {
			t.Errorf("batches of %d: turned away: %+v", size, rejected)
		}
		if size == 4 {
			enginetest.Deterministic(t, build, in...)
		}
	}
}

// A row that a step behind a window fails on is told by the state, the shard and the txid.
func TestBadRowBehindAWindow(t *testing.T) {
	p := engine.New("test", engine.OnBadRecord(engine.Skip))
	s := clicks(p).EventTime(func(c click) time.Time { return c.At }, 0)
	counts := engine.Aggregate(engine.GroupByWindow(s, window.Tumbling(5*time.Second), userOf, "user"), "counts", agg.Count[click]("n"))
	good := engine.TryMap(engine.Closed[int64](counts), func(_ *engine.Batch, r result) (string, error) {
		if r.Key == "bob" {
			return "", fmt.Errorf("no %s", r.Key)
		}
		return r.Key, nil
	})
	countWords(good, "good")
	r := enginetest.Run(t, p, enginetest.Input{"clicks": {json("ann", 1, second(0)), json("bob", 1, second(1)), json("cem", 1, second(9))}}, enginetest.Input{})
	want(t, r, "good", map[string]int64{"ann": 1})
	rejected := r.Rejected()
	if len(rejected) != 1 || rejected[0].Source != "counts" || rejected[0].Txid != 2 || rejected[0].Kind != "bad" || rejected[0].Cause != "no bob" {
		t.Errorf("turned away: %+v", rejected)
	}
}

// What a persist emits goes on in the order of the partitions, and its state is there for who comes after.
func TestPartitionPersistEmit(t *testing.T) {
	build := func() *engine.Pipeline {
		return lines(func(s engine.Stream[string]) {
			type state = struct{ N int64 }
			seen := engine.PartitionPersistEmit(s, "seen", func(_ *engine.Batch, words []string, st *engine.KV[string, state], emit func(string)) error {
				for _, w := range words {
					v, _, err := st.Get(w)
					if err != nil {
						return err
					}
					v.N++
					emit(fmt.Sprintf("%s %d", w, v.N))
					if err := st.Set(w, v); err != nil {
						return err
					}
				}
				return nil
			})
			countWords(seen, "counts")
			engine.Aggregate(engine.GroupBy(seen, func(string) string { return "all" }, "all"), "order", agg.CollectOf("values", func(s string) string { return s }))
			engine.PartitionPersist(seen, "kept", func(_ *engine.Batch, rows []string, st *engine.KV[string, state]) error {
				for _, r := range rows {
					if err := st.Set(r, state{1}); err != nil {
						return err
					}
				}
				return nil
			})
		})()
	}
	in := []enginetest.Input{
		{"lines": {"b", "a"}, "lines/1": {"a"}},
		{"lines/1": {"b"}, "lines": {"a"}},
	}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "counts", map[string]int64{"b 1": 1, "a 1": 1, "a 2": 1, "a 3": 1, "b 2": 1})
	if got := enginetest.State[string, []string](r, "order")["all"]; !slices.Equal(got, []string{"b 1", "a 1", "a 2", "a 3", "b 2"}) {
		t.Errorf("order %q", got)
	}
	if n := len(enginetest.State[string, struct{ N int64 }](r, "kept")); n != 5 {
		t.Errorf("%d rows in the second persist's state, want 5", n)
	}
	enginetest.Deterministic(t, build, in...)
}

func TestResultsThatCannotBe(t *testing.T) {
	for want, build := range map[string]func(s engine.Stream[click]){
		"state counts has no windows; use Updates": func(s engine.Stream[click]) {
			engine.Closed[int64](engine.Aggregate(engine.GroupBy(s, userOf, "user"), "counts", agg.Count[click]("n")))
		},
		"updates of counts: ": func(s engine.Stream[click]) {
			engine.Updates[string](engine.Aggregate(engine.GroupBy(s, userOf, "user"), "counts", agg.Count[click]("n")))
		},
		`a batch aggregate is named "counts", too`: func(s engine.Stream[click]) {
			g := engine.GroupBy(s, userOf, "user")
			engine.BatchAggregate[int64](g, "counts", agg.Count[click]("n"))
			engine.Updates[int64](engine.Aggregate(g, "counts", agg.Count[click]("n")))
		},
	} {
		p := engine.New("test")
		build(clicks(p))
		if _, err := p.Plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
