package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
	"github.com/tridentd/tridentd/window"
)

// A row is forgotten once the watermark is the TTL past the latest of its values, not before, at the beginning of a batch; what comes then
// begins a new row, a late value as of the watermark that it finds. To a row that is there, a late value adds what it has, and no time.
func TestTTLByEventTime(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		in := timedWords(p, "in", 0)
		s := engine.Aggregate(engine.GroupBy(in, initial), "n", agg.Count[string]("n")).TTL(10 * time.Second)
		count(engine.Map(engine.Updates[int64](s), func(r engine.Result[string, int64]) string { return r.Key + strings.Repeat("+", int(r.Value)) }), "changes")
		count(engine.StateQuery(in, s, initial, func(v string, n *int64) string { return v + strings.Repeat("+", int(*n)) }), "seen")
		return p
	}
	in := []enginetest.Input{
		{"in": {"a@100", "b@103", "a@98"}},
		{"in": {"c@110"}},          // watermark 103: nothing has expired
		{"in": {"b@104"}},          // watermark 110: a has, 10 s after 100; b lives till 114
		{"in": {"a@101"}},          // watermark 110: a late value begins a new row, which lives till 120
		{"in": {"c@119", "b@105"}}, // still 110
		{"in": {"b@119"}},          // watermark 119: b has expired at 115 and begins anew; nobody else has, as c lives till 129
		{"in": {"d@121"}},          // still 119
		enginetest.AdvanceTo(time.Unix(129, 0)),
	}
	r := enginetest.Run(t, build(), in...)
	for txid, rows := range []map[string]int64{
		1: {"a": 2, "b": 1},
		2: {"a": 2, "b": 1, "c": 1},
		3: {"b": 2, "c": 1},
		4: {"a": 1, "b": 2, "c": 1},
		5: {"a": 1, "b": 3, "c": 2},
		6: {"a": 1, "b": 1, "c": 2},
		7: {"a": 1, "b": 1, "c": 2, "d": 1},
		8: {"d": 1},
	} {
		if txid > 0 {
			want(t, r.At(batch.Txid(txid)), "n", rows)
		}
	}
	want(t, r, "changes", map[string]int64{"a+": 1, "a++": 1, "b+": 2, "b++": 1, "b+++": 1, "c+": 1, "c++": 1, "d+": 1})
	want(t, r, "seen", map[string]int64{
		"a@100++": 1, "a@98++": 1, "b@103+": 1, "c@110+": 1, "b@104++": 1, "a@101+": 1, "c@119++": 1, "b@105+++": 1, "b@119+": 1, "d@121+": 1,
	})
	if bad := r.Rejected(); len(bad) > 0 {
		t.Errorf("turned away: %+v", bad)
	}
	enginetest.Deterministic(t, build, in...)
}

// By the batches' clock a row lives for the TTL after the batch that last changed it.
func TestTTLByBatch(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		in := words(p, "in")
		engine.Aggregate(engine.GroupBy(in, initial), "n", agg.Count[string]("n")).TTLByBatch(time.Minute)
		engine.Latest(in, "last", initial).TTLByBatch(time.Minute)
		return p
	}
	at := func(s int) time.Time { return enginetest.Clock.Add(time.Duration(s) * time.Second) }
	in := []enginetest.Input{
		enginetest.Input{"in": {"a1", "b1"}}.At(at(0)),
		enginetest.Input{"in": {"b2"}}.At(at(30)),
		enginetest.Input{"in": {"c1"}}.At(at(59)),
		enginetest.Input{"in": {"c2"}}.At(at(60)), // a has expired
		enginetest.Input{"in": {"b3"}}.At(at(90)), // b has, and begins anew
		enginetest.Input{"in": {"d1"}}.At(at(120)),
	}
	r := enginetest.Run(t, build(), in...)
	for txid, rows := range []map[string]int64{
		3: {"a": 1, "b": 2, "c": 1},
		4: {"b": 2, "c": 2},
		5: {"b": 1, "c": 2},
		6: {"b": 1, "d": 1},
	} {
		if txid > 2 {
			want(t, r.At(batch.Txid(txid)), "n", rows)
		}
	}
	want(t, r.At(3), "last", map[string]string{"a": "a1", "b": "b2", "c": "c1"})
	want(t, r, "last", map[string]string{"b": "b3", "d": "d1"})
	enginetest.Deterministic(t, build, in...)
}

// A table's rows expire, too: a lookup doesn't find them, and a removed row leaves nothing that would wake.
func TestTTLOfTable(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		in := timedWords(p, "in", 0)
		table := engine.Latest(in, "last", initial).TTL(10 * time.Second)
		count(engine.Lookup(words(p, "asks"), table, initial, func(v string, row *string) string { return v + " " + deref(row) }), "found")
		customers(p).TTLByBatch(time.Hour)
		return p
	}
	in := []enginetest.Input{
		{"in": {"a@100", "a@90"}, "asks": {"a1"}},
		{"in": {"b@109"}, "asks": {"a2"}, "customers": {"x=de", "x="}},
		{"in": {"b@110"}, "asks": {"a3"}}, // watermark 109
		{"asks": {"a4", "b4"}},            // watermark 110
	}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "found", map[string]int64{"a1 a@90": 1, "a2 a@90": 1, "a3 a@90": 1, "a4 -": 1, "b4 b@110": 1})
	want(t, r, "last", map[string]string{"b": "b@110"})
	want(t, r, "by_customer", map[string]customer{})
	enginetest.Deterministic(t, build, in...)
}

func TestTTLThatCannotBe(t *testing.T) {
	byInitial := func(s engine.Stream[string]) engine.Grouped[string, string] { return engine.GroupBy(s, initial) }
	for _, c := range []struct {
		want  string
		build func(p *engine.Pipeline)
	}{
		{"TTL: state n: its stream has no event time", func(p *engine.Pipeline) {
			engine.Aggregate(byInitial(words(p, "in")), "n", agg.Count[string]("n")).TTL(time.Hour)
		}},
		{"TTL: state n: 0s isn't above 0", func(p *engine.Pipeline) {
			engine.Aggregate(byInitial(words(p, "in")), "n", agg.Count[string]("n")).TTLByBatch(0)
		}},
		{"TTL: state n has windows", func(p *engine.Pipeline) {
			engine.Aggregate(engine.GroupByWindow(timedWords(p, "in", 0), window.Tumbling(time.Hour), initial, "k"), "n", agg.Count[string]("n")).TTL(time.Hour)
		}},
		{"TTL: state n has windows", func(p *engine.Pipeline) {
			engine.Aggregate(engine.GroupByWindow(timedWords(p, "in", 0), window.Session(time.Hour), initial, "k"), "n", agg.Count[string]("n")).TTL(time.Hour)
		}},
		{"TTL: state n has one already", func(p *engine.Pipeline) {
			engine.Aggregate(byInitial(words(p, "in")), "n", agg.Count[string]("n")).TTLByBatch(time.Hour).TTLByBatch(time.Hour)
		}},
		{"TTL: table kept isn't one that Latest keeps", func(p *engine.Pipeline) {
			engine.PartitionPersist(words(p, "in"), "kept", func(*engine.Batch, []string, *engine.KV[string, string]) error { return nil })
			engine.RowsOf[string, string](p, "kept").TTLByBatch(time.Hour)
		}},
	} {
		p := engine.New("test")
		c.build(p)
		if _, err := p.Plan(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
