package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
	"github.com/tridentd/tridentd/window"
)

type customer struct {
	ID      string
	Country string
}

// customers is a table of entries "id=country"; "id=" removes the row.
func customers(p *engine.Pipeline) engine.Table[string, customer] {
	entries := engine.Map(words(p, "customers"), func(s string) codec.Entry[string, customer] {
		id, country, _ := strings.Cut(s, "=")
		e := codec.Entry[string, customer]{Key: id}
		if country != "" {
			e.Value = codec.Of(customer{id, country})
		}
		return e
	})
	return engine.LatestEntries(entries, "by_customer", "id")
}

func countryOf(o string, c *customer) string {
	if c == nil {
		return o + " -"
	}
	return o + " " + c.Country
}

// count counts the values of a stream by themselves.
func count(s engine.Stream[string], name string) {
	engine.Aggregate(engine.GroupBy(s, func(v string) string { return v }, "value"), name, agg.Count[string]("n"))
}

// An order finds the customer as this batch's records have left the table, whichever was written first; a null removes the row.
func TestLookupInMovingTable(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		orders := words(p, "orders")
		count(engine.Lookup(orders, customers(p), initial, countryOf), "orders_by_country")
		return p
	}
	in := []enginetest.Input{
		{"orders": {"a1", "b1", "a2"}, "customers": {"a=de", "a=fr"}},
		{"orders": {"a3", "b2"}, "customers/1": {"b=it"}},
		{"orders": {"a4", "b3"}, "customers": {"a=", "c=no", "c="}},
		{"customers": {"a=", "zz=es"}},
		{"orders": {"a5", "zz"}},
	}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "orders_by_country", map[string]int64{
		"a1 fr": 1, "b1 -": 1, "a2 fr": 1, "a3 fr": 1, "b2 it": 1, "a4 -": 1, "b3 it": 1, "a5 -": 1, "zz -": 1,
	})
	want(t, r, "by_customer", map[string]customer{"b": {"b", "it"}, "zz": {"zz", "es"}})
	enginetest.Deterministic(t, build, in...)
}

// Of the values of a key in one batch the one counts that comes last: by partition, then by offset.
func TestLatestOrder(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		engine.Latest(words(p, "in"), "last", initial, "initial")
		return p
	}
	in := []enginetest.Input{
		{"in/1": {"a3", "a4", "b2"}, "in": {"a1", "a2", "c1"}},
		{"in": {"a5"}},
	}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "last", map[string]string{"a": "a5", "b": "b2", "c": "c1"})
	enginetest.Deterministic(t, build, in...)
}

// What is looked up keeps its event time: it falls into the window of its own record, and can be late.
func TestLookupKeepsEventTime(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		table := customers(p)
		timed := clicks(p).EventTime(func(c click) time.Time { return c.At }, 0)
		named := engine.Lookup(timed, table, userOf, func(c click, row *customer) string { return countryOf(c.User, row) })
		engine.Aggregate(engine.GroupByWindow(named, window.Tumbling(10*time.Second), func(s string) string { return s }, "who"), "n", agg.Count[string]("n"))
		return p
	}
	in := []enginetest.Input{
		{"customers": {"ann=de"}, "clicks": {json("ann", 1, second(1)), json("ann", 1, second(12)), json("bob", 1, second(3))}},
		{"clicks": {json("ann", 1, second(4)), json("ann", 1, second(15))}},
	}
	r := enginetest.Run(t, build(), in...)
	at := func(n int) time.Time { return time.Unix(int64(n), 0).UTC() }
	want(t, r, "n", map[engine.Windowed[string]]int64{
		engine.At(at(0), "ann de"): 1, engine.At(at(0), "bob -"): 1, engine.At(at(10), "ann de"): 2,
	})
	if late := r.Rejected(); len(late) != 1 || late[0].Kind != "late" {
		t.Errorf("turned away: %+v", late)
	}
	enginetest.Deterministic(t, build, in...)
}

// A query of an aggregate sees what the batch's own records have added.
func TestStateQuery(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		counts := engine.Aggregate(engine.GroupBy(clicks(p), userOf, "user"), "counts", agg.Fields(addTotals))
		seen := engine.StateQuery(words(p, "asks"), counts, func(s string) string { return s }, func(s string, row *totals) string {
			if row == nil {
				return s + ": none"
			}
			most, _ := row.Most.Value()
			return fmt.Sprintf("%s: %d, %d", s, row.Clicks.Value(), most)
		})
		count(seen, "seen")
		return p
	}
	in := []enginetest.Input{
		{"asks": {"ann", "bob"}},
		{"asks": {"ann", "bob"}, "clicks": {json("ann", 1, second(0)), json("ann", 7, second(0))}},
		{"clicks": {json("bob", 3, second(0)), json("ann", 5, second(0))}},
		{"asks": {"ann", "bob", "bob"}},
	}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "seen", map[string]int64{"ann: none": 1, "bob: none": 2, "ann: 2, 7": 1, "ann: 3, 7": 1, "bob: 1, 3": 2})
	enginetest.Deterministic(t, build, in...)
}

func TestWindowQuery(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0).UTC() }
	build := func() *engine.Pipeline {
		p := engine.New("test")
		timed := clicks(p).EventTime(func(c click) time.Time { return c.At }, time.Hour)
		counts := engine.Aggregate(engine.GroupByWindow(timed, window.Tumbling(10*time.Second), userOf, "user"), "counts", agg.Count[click]("n"))
		seen := engine.WindowQuery(words(p, "asks"), counts, func(s string) engine.Windowed[string] { return engine.At(at(10), s) },
			func(s string, row *int64) string {
				if row == nil {
					return s + ": none"
				}
				return fmt.Sprintf("%s: %d", s, *row)
			})
		count(seen, "seen")
		return p
	}
	in := []enginetest.Input{
		{"clicks": {json("ann", 1, second(1)), json("ann", 1, second(12)), json("ann", 1, second(13)), json("bob", 1, second(3))}},
		{"asks": {"ann", "bob"}},
	}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "seen", map[string]int64{"ann: 2": 1, "bob: none": 1})
	enginetest.Deterministic(t, build, in...)
}

// A window that slides, or one of a zone's days, is found by its start as one that tumbles is.
func TestWindowQueryOfOtherWindows(t *testing.T) {
	for name, c := range map[string]struct {
		w    window.Windows
		from time.Time
	}{
		"sliding": {window.Sliding(10*time.Second, 4*time.Second), time.Unix(-8, 0)},
		"days":    {window.Tumbling(24 * time.Hour).Zone("Europe/Berlin"), time.Unix(-3600, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			p := engine.New("test")
			timed := clicks(p).EventTime(func(c click) time.Time { return c.At }, time.Hour)
			counts := engine.Aggregate(engine.GroupByWindow(timed, c.w, userOf, "user"), "counts", agg.Count[click]("n"))
			seen := engine.WindowQuery(words(p, "asks"), counts, func(s string) engine.Windowed[string] { return engine.At(c.from, s) },
				func(s string, row *int64) string {
					if row == nil {
						return s + ": none"
					}
					return fmt.Sprintf("%s: %d", s, *row)
				})
			count(seen, "seen")
			r := enginetest.Run(t, p,
				enginetest.Input{"clicks": {json("ann", 1, second(0)), json("ann", 1, second(1)), json("ann", 1, "1971-01-01T00:00:00Z")}},
				enginetest.Input{"asks": {"ann", "bob"}})
			want(t, r, "seen", map[string]int64{"ann: 2": 1, "bob: none": 1})
		})
	}
}

// The rows of a PartitionPersist can be looked up as its batch has left them.
func TestLookupInPersist(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		engine.PartitionPersist(words(p, "in"), "longest", func(_ *engine.Batch, values []string, st *engine.KV[string, string]) error {
			for _, v := range values {
				old, _, err := st.Get(initial(v))
				if err != nil {
					return err
				}
				if len(v) > len(old) {
					if err := st.Set(initial(v), v); err != nil {
						return err
					}
				}
			}
			return nil
		}, "initial")
		found := engine.Lookup(words(p, "asks"), engine.RowsOf[string, string](p, "longest"), initial, func(s string, row *string) string {
			return s + " " + deref(row)
		})
		count(found, "found")
		return p
	}
	in := []enginetest.Input{
		{"in": {"a", "abc", "ab"}, "asks": {"a?", "b?"}},
		{"in": {"b"}, "asks": {"b?"}},
	}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "found", map[string]int64{"a? abc": 1, "b? -": 1, "b? b": 1})
	enginetest.Deterministic(t, build, in...)
}

// A function that panics is a bad record, told by the place that it came from.
func TestLookupBadRecord(t *testing.T) {
	p := engine.New("test", engine.OnBadRecord(engine.Skip))
	found := engine.Lookup(words(p, "orders"), customers(p), initial, func(o string, c *customer) string {
		return o + c.Country // there is none
	})
	count(found, "found")
	r := enginetest.Run(t, p, enginetest.Input{"orders": {"a1", "b1"}, "customers": {"a=de"}})
	want(t, r, "found", map[string]int64{"a1de": 1})
	bad := r.Rejected()
	if len(bad) != 1 || !strings.Contains(bad[0].Cause, "row of orders/orders-0 at offset 1") || bad[0].Value != `"b1"` {
		t.Errorf("turned away: %+v", bad)
	}
}

func TestTableErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(p *engine.Pipeline)
		want  string
	}{
		{"no persist", func(p *engine.Pipeline) { engine.RowsOf[string, string](p, "rows") }, `RowsOf: no PartitionPersist has declared a state "rows"`},
		{"other columns", func(p *engine.Pipeline) {
			engine.PartitionPersist(words(p, "in"), "rows", func(*engine.Batch, []string, *engine.KV[string, string]) error { return nil })
			engine.RowsOf[string, int64](p, "rows")
		}, "RowsOf rows: it has values [value string], not [value int]"},
		{"another pipeline's", func(p *engine.Pipeline) {
			engine.Lookup(words(p, "in"), customers(engine.New("other")), initial, countryOf)
		}, "the state belongs to another pipeline, other"},
		{"windows", func(p *engine.Pipeline) {
			timed := clicks(p).EventTime(func(c click) time.Time { return c.At }, 0)
			n := engine.Aggregate(engine.GroupByWindow(timed, window.Tumbling(time.Hour), userOf, "user"), "n", agg.Count[click]("n"))
			engine.StateQuery(words(p, "in"), n, initial, func(s string, _ *int64) string { return s })
		}, "StateQuery: state n has windows; use WindowQuery"},
		{"sessions", func(p *engine.Pipeline) {
			timed := clicks(p).EventTime(func(c click) time.Time { return c.At }, 0)
			n := engine.Aggregate(engine.GroupByWindow(timed, window.Session(time.Hour), userOf, "user"), "n", agg.Count[click]("n"))
			engine.WindowQuery(words(p, "in"), n, func(s string) engine.Windowed[string] { return engine.At(time.Time{}, s) }, func(s string, _ *int64) string { return s })
		}, "where its windows (session 1h0m0s) begin and end is up to the values in them"},
		{"a type", func(p *engine.Pipeline) {
			n := engine.Aggregate(engine.GroupBy(words(p, "in"), initial), "n", agg.Count[string]("n"))
			engine.StateQuery(words(p, "asks"), n, initial, func(s string, _ *time.Time) string { return s })
		}, "query of state n: "},
		{"a value", func(p *engine.Pipeline) {
			engine.Latest(engine.Map(words(p, "in"), func(string) chan int { return nil }), "t", func(chan int) string { return "" })
		}, "state t: value: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := engine.New("test")
			c.build(p)
			if _, err := p.Plan(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// How a table has come about is part of the plan's definition.
func TestLatestDefinition(t *testing.T) {
	p := engine.New("test")
	count(engine.Lookup(words(p, "orders"), customers(p), initial, countryOf), "n")
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range pl.Definition.States {
		for _, w := range s.Ways {
			got = append(got, fmt.Sprint(s.Schema.Name, " ", w.Source, " ", w.Steps))
		}
	}
	if want := []string{"by_customer customers [map latest]", "n orders [lookup in by_customer group aggregate]"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
