package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
)

type sentence struct{ Words string }

type wordCount struct {
	Word  string
	Count int64
}

// counted is Trident's word count with its DRPC query, and what else a query may do.
type counted struct {
	p     *engine.Pipeline
	sum   *engine.QueryStream[sentence, int64]
	each  *engine.QueryStream[sentence, wordCount]
	first *engine.QueryStream[sentence, string]
}

func wordCounts() counted {
	c := counted{p: engine.New("test")}
	counts := engine.Aggregate(engine.GroupBy(words(c.p, "words"), func(s string) string { return s }, "word"), "counts", agg.Count[string]("n"))
	table := customers(c.p)
	split := func(s sentence) []string { return strings.Fields(s.Words) }
	count := func(w string, n *int64) wordCount {
		if n == nil {
			return wordCount{Word: w}
		}
		return wordCount{w, *n}
	}
	c.sum = engine.Query(c.p, "sum", func(q engine.Stream[sentence]) engine.Stream[int64] {
		found := engine.StateQuery(engine.FlatMap(q, split), counts, func(w string) string { return w }, count)
		return engine.BatchAggregateAll[int64](found, "total", agg.SumOf("n", func(w wordCount) int64 { return w.Count }))
	})
	c.each = engine.Query(c.p, "each", func(q engine.Stream[sentence]) engine.Stream[wordCount] {
		return engine.StateQuery(engine.FlatMap(q, split), counts, func(w string) string { return w }, count).Global()
	})
	c.first = engine.Query(c.p, "first", func(q engine.Stream[sentence]) engine.Stream[string] {
		return engine.TryMap(engine.Lookup(engine.FlatMap(q, split), table, initial, countryOf), func(b *engine.Batch, s string) (string, error) {
			if strings.HasPrefix(s, "!") {
				return "", errors.New("no such word")
			}
			return fmt.Sprintf("%d %s %s", b.Txid(), b.Time().Format(time.TimeOnly), s), nil
		})
	})
	return c
}

// Each batch's end is what a query sees, and nothing of the batches behind it.
func TestQuery(t *testing.T) {
	c := wordCounts()
	in := []enginetest.Input{
		{"words": {"a", "b", "a"}},
		{"words/1": {"a", "c"}, "customers": {"a=de"}},
	}
	r := enginetest.Run(t, c.p, in...)
	if got := enginetest.Ask(r, c.sum, sentence{"a c d a"}); !slices.Equal(got, []int64{7}) {
		t.Errorf("sum: %v", got)
	}
	if got := enginetest.Ask(r.At(1), c.sum, sentence{"a c d a"}); !slices.Equal(got, []int64{4}) {
		t.Errorf("sum at txid 1: %v", got)
	}
	if got := enginetest.Ask(r, c.sum, sentence{""}); len(got) != 0 {
		t.Errorf("sum of nothing: %v", got)
	}
	each := enginetest.Ask(r, c.each, sentence{"a c d b"})
	slices.SortFunc(each, func(a, b wordCount) int { return strings.Compare(a.Word, b.Word) })
	if want := []wordCount{{"a", 3}, {"b", 1}, {"c", 1}, {"d", 0}}; !slices.Equal(each, want) {
		t.Errorf("each: %v, want %v", each, want)
	}
	second := enginetest.Clock.Add(time.Second).Format(time.TimeOnly)
	if got, want := enginetest.Ask(r, c.first, sentence{"ax"}), []string{"2 " + second + " ax de"}; !slices.Equal(got, want) {
		t.Errorf("first: %q, want %q", got, want)
	}
	if got, want := enginetest.Ask(r.At(1), c.first, sentence{"ax"}), []string{"1 " + enginetest.Clock.Format(time.TimeOnly) + " ax -"}; !slices.Equal(got, want) {
		t.Errorf("first at txid 1: %q, want %q", got, want)
	}
	// A query is no part of what a replay must come to, nor of the plan's hash.
	without := engine.New("test")
	engine.Aggregate(engine.GroupBy(words(without, "words"), func(s string) string { return s }, "word"), "counts", agg.Count[string]("n"))
	customers(without)
	a, err := c.p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := without.Plan(); err != nil || a.Text != b.Text || !reflect.DeepEqual(a.Definition, b.Definition) {
		t.Errorf("%v: queries change the plan:\n%s\n%s", err, a.Text, b.Text)
	}
	enginetest.Deterministic(t, func() *engine.Pipeline { return wordCounts().p }, in...)
}

// Calls of one query at a time don't disturb each other.
func TestQueriesAtOnce(t *testing.T) {
	c := wordCounts()
	r := enginetest.Run(t, c.p, enginetest.Input{"words": numbered(50, "a")})
	errs := make(chan error)
	for i := range 8 {
		go func() {
			for n := range 50 {
				text := strings.Join(numbered(50, "a")[:(n+i)%50], " ")
				got, err := enginetest.TryAsk(r, c.each, sentence{text})
				if err != nil || len(got) != (n+i)%50 {
					errs <- fmt.Errorf("%d rows, %v", len(got), err)
					return
				}
			}
			errs <- nil
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// A function of a query that fails fails the call, whatever the policy for bad records is.
func TestQueryFails(t *testing.T) {
	c := wordCounts()
	r := enginetest.Run(t, c.p, enginetest.Input{"words": {"a"}})
	_, err := enginetest.TryAsk(r, c.first, sentence{"!"})
	if err == nil || batch.CodeOf(err) != batch.CodeBadRecord || !strings.Contains(err.Error(), "query first: ") || !strings.Contains(err.Error(), "no such word") {
		t.Errorf("%v", err)
	}
	p := engine.New("test")
	engine.Latest(words(p, "in"), "t", initial)
	q := engine.Query(p, "q", func(q engine.Stream[sentence]) engine.Stream[string] {
		return engine.Map(q, func(s sentence) string { return s.Words[10:] })
	})
	r = enginetest.Run(t, p, enginetest.Input{"in": {"a"}})
	if _, err := enginetest.TryAsk(r, q, sentence{"short"}); err == nil || !strings.Contains(err.Error(), "slice bounds out of range") {
		t.Errorf("%v", err)
	}
}

func TestQueryErrors(t *testing.T) {
	type args struct{ K string }
	same := func(q engine.Stream[args]) engine.Stream[args] { return q }
	for _, c := range []struct {
		name  string
		build func(p *engine.Pipeline)
		want  string
	}{
		{"twice", func(p *engine.Pipeline) {
			engine.Query(p, "q", same)
			engine.Query(p, "q", same)
		}, `two queries are named "q"`},
		{"a name", func(p *engine.Pipeline) { engine.Query(p, "a/b", same) }, `query name "a/b"`},
		{"keeps", func(p *engine.Pipeline) {
			engine.Query(p, "q", func(q engine.Stream[args]) engine.Stream[args] {
				engine.Latest(q, "mine", func(a args) string { return a.K })
				return q
			})
		}, "query q: it keeps a state, mine"},
		{"persists", func(p *engine.Pipeline) {
			engine.Query(p, "q", func(q engine.Stream[args]) engine.Stream[args] {
				engine.PartitionPersist(q, "mine", func(*engine.Batch, []args, *engine.KV[string, string]) error { return nil })
				return q
			})
		}, "query q: it keeps a state, mine"},
		{"elsewhere", func(p *engine.Pipeline) {
			engine.Query(p, "q", func(engine.Stream[args]) engine.Stream[string] { return words(p, "other") })
		}, "query q: its answers don't come of its arguments"},
		{"scalars", func(p *engine.Pipeline) {
			engine.Query(p, "q", func(q engine.Stream[chan int]) engine.Stream[string] {
				return engine.Map(q, func(chan int) string { return "" })
			})
		}, "query q: arguments: "},
		{"a join with a stream of the pipeline", func(p *engine.Pipeline) {
			other := words(p, "other")
			engine.Query(p, "q", func(q engine.Stream[args]) engine.Stream[string] {
				return engine.BatchJoin(engine.Map(q, func(a args) string { return a.K }), other, initial, initial, sum)
			})
		}, "query q: join: a query's stream and one of its pipeline"},
		{"a stream of the pipeline merged with it", func(p *engine.Pipeline) {
			other := words(p, "other")
			engine.Query(p, "q", func(q engine.Stream[args]) engine.Stream[string] {
				return engine.Merge(other, engine.Map(q, func(a args) string { return a.K }))
			})
		}, "Merge: a query's stream and one of its pipeline"},
		{"streams of two queries", func(p *engine.Pipeline) {
			var kept engine.Stream[args]
			engine.Query(p, "q", func(q engine.Stream[args]) engine.Stream[args] { kept = q; return q })
			engine.Query(p, "r", func(q engine.Stream[args]) engine.Stream[args] { return engine.Merge(q, kept) })
		}, "query r: Merge: streams of two queries"},
		{"event time", func(p *engine.Pipeline) {
			engine.Query(p, "q", func(q engine.Stream[args]) engine.Stream[args] {
				return q.EventTime(func(args) time.Time { return time.Time{} }, 0)
			})
		}, "query q: EventTime: it belongs directly behind From"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := engine.New("test")
			engine.Latest(words(p, "in"), "t", initial)
			c.build(p)
			if _, err := p.Plan(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A running pipeline answers with what has committed; a static table is looked up as the batch used it.
func TestAsk(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	p := engine.New("test")
	in := write("in.txt", "a\nb\na\n")
	names := engine.Static(p, "names", file.Paths(write("names.csv", "id,country\na,de\n")), codec.CSV[customer](), func(c customer) string { return c.ID })
	counts := engine.Aggregate(engine.GroupBy(engine.From(p, "lines", file.Paths(in), codec.String()), func(s string) string { return s }, "word"), "counts", agg.Count[string]("n"))
	type named struct {
		Name  string
		Count int64
	}
	q := engine.Query(p, "named", func(q engine.Stream[sentence]) engine.Stream[named] {
		found := engine.StateQuery(q, counts, func(s sentence) string { return s.Words }, func(s sentence, n *int64) named {
			return named{s.Words, *n}
		})
		return engine.Lookup(found, names, func(n named) string { return n.Name }, func(n named, c *customer) named {
			return named{countryOf(n.Name, c), n.Count}
		})
	})
	h, err := engine.Start(t.Context(), p, engine.Options{DataDir: filepath.Join(dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		h.Drain()
		if err := h.Wait(); err != nil {
			t.Error(err)
		}
	}()
	ask := func(args string, least batch.Txid) engine.Answer[named] {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		a, err := q.Ask(ctx, h, sentence{args}, engine.AtLeast(least))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := ask("a", 1); a.Txid != 1 || !slices.Equal(a.Rows, []named{{"a de", 2}}) {
		t.Errorf("%+v", a)
	}
	write("in.txt", "b\n")
	if a := ask("b", 2); a.Txid != 2 || !slices.Equal(a.Rows, []named{{"b -", 2}}) {
		t.Errorf("%+v", a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := q.Ask(ctx, h, sentence{"a"}, engine.AtLeast(99)); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "query named: waiting for txid 99") {
		t.Errorf("waiting for what doesn't come: %v", err)
	}
}
