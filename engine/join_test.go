package engine_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
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

// words is a source of lines; a line's key is its first letter.
func words(p *engine.Pipeline, id string) engine.Stream[string] {
	return engine.From(p, id, nowhere{}, codec.String())
}

func initial(s string) string { return s[:1] }

// collect keeps what a stream sends, by key and in order, in a state.
func collect(s engine.Stream[string], state string, key func(string) string) {
	engine.Aggregate(engine.GroupBy(s, key, "key"), state, agg.CollectOf("rows", func(v string) string { return v }))
}

func all(string) string { return "all" }

func wantRows(t *testing.T, r *enginetest.Result, state string, rows map[string][]string) {
	t.Helper()
	if got := enginetest.State[string, []string](r, state); !maps.EqualFunc(got, rows, slices.Equal[[]string]) {
		t.Errorf("%s: %v, want %v", state, got, rows)
	}
}

func deref(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func pair(a, b *string) string { return deref(a) + deref(b) }

// joins makes each kind of join of the sources a and b; swapped writes b first.
func joins(swapped bool) *engine.Pipeline {
	p := engine.New("test")
	a, b := words(p, "a"), words(p, "b")
	if swapped {
		collect(engine.BatchJoin(b, a, initial, initial, func(y, x string) string { return x + y }), "inner", initial)
		collect(engine.BatchRightJoin(b, a, initial, initial, func(y *string, x string) string { return pair(&x, y) }), "left", initial)
		collect(engine.BatchLeftJoin(b, a, initial, initial, func(y string, x *string) string { return pair(x, &y) }), "right", all)
		collect(engine.BatchFullJoin(b, a, initial, initial, func(y, x *string) string { return pair(x, y) }), "full", all)
	} else {
		collect(engine.BatchJoin(a, b, initial, initial, func(x, y string) string { return x + y }), "inner", initial)
		collect(engine.BatchLeftJoin(a, b, initial, initial, func(x string, y *string) string { return pair(&x, y) }), "left", initial)
		collect(engine.BatchRightJoin(a, b, initial, initial, func(x *string, y string) string { return pair(x, &y) }), "right", all)
		collect(engine.BatchFullJoin(a, b, initial, initial, pair), "full", all)
	}
	collect(engine.BatchAntiJoin(a, b, initial, initial), "anti", initial)
	return p
}

var joinInput = []enginetest.Input{
	{"a": {"k1", "k2", "l1"}, "a/1": {"k3"}, "b": {"k4", "m1"}, "b/1": {"k5"}},
	{"b": {"l2"}},       // l1 was in the batch before
	{"a": {"m2", "n1"}}, // so was m1
	{"a": {"o1"}, "b": {"o2", "o3"}},
}

func TestBatchJoins(t *testing.T) {
	r := enginetest.Run(t, joins(false), joinInput...)
	wantRows(t, r, "inner", map[string][]string{
		"k": {"k1k4", "k2k4", "k3k4", "k1k5", "k2k5", "k3k5"},
		"o": {"o1o2", "o1o3"},
	})
	wantRows(t, r, "left", map[string][]string{
		"k": {"k1k4", "k2k4", "k3k4", "k1k5", "k2k5", "k3k5"},
		"l": {"l1-"}, "m": {"m2-"}, "n": {"n1-"}, "o": {"o1o2", "o1o3"},
	})
	wantRows(t, r, "anti", map[string][]string{"l": {"l1"}, "m": {"m2"}, "n": {"n1"}})
	outer := func(state string, want ...string) {
		t.Helper()
		got := enginetest.State[string, []string](r, state)["all"]
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", state, got, want)
		}
	}
	matched := []string{"k1k4", "k2k4", "k3k4", "k1k5", "k2k5", "k3k5", "o1o2", "o1o3"}
	outer("right", append([]string{"-m1", "-l2"}, matched...)...)
	outer("full", append([]string{"-m1", "-l2", "l1-", "m2-", "n1-"}, matched...)...)
}

// G12: whichever side is written first, the same rows come in the same order; on any number of cores; after any crash.
func TestBatchJoinSidesSwapped(t *testing.T) {
	chains := func(r *enginetest.Result) (all []string) {
		for _, e := range r.Entries {
			for _, s := range e.States {
				all = append(all, fmt.Sprintf("%d %s %d %016x", e.Txid, s.State, s.Writes, s.Digest))
			}
		}
		return all
	}
	one, other := enginetest.Run(t, joins(false), joinInput...), enginetest.Run(t, joins(true), joinInput...)
	if a, b := chains(one), chains(other); !slices.Equal(a, b) {
		t.Errorf("the changes differ:\n%s\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	for _, swapped := range []bool{false, true} {
		enginetest.Deterministic(t, func() *engine.Pipeline { return joins(swapped) }, joinInput...)
	}
}

// A join of three streams against the plainest way to say what it is.
func TestMultiJoinAgainstModel(t *testing.T) {
	type value struct {
		side, at int // at: its place among all of its key
		text     string
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		outer := [3]bool{rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(2) == 0}
		ids := []string{"a", "b", "c"}
		in := enginetest.Input{}
		byKey := map[string][]value{}
		for s, id := range ids {
			for part := range 2 {
				for i := range rng.IntN(4) {
					text := fmt.Sprintf("%c%s%d%d", 'k'+rune(rng.IntN(2)), id, part, i)
					in[fmt.Sprintf("%s/%d", id, part)] = append(in[fmt.Sprintf("%s/%d", id, part)], text)
					k := text[:1]
					byKey[k] = append(byKey[k], value{s, len(byKey[k]), text})
				}
			}
		}
		if len(in) == 0 {
			continue
		}
		expected := map[string][]string{}
		for k, values := range byKey {
			var sides [3][]value
			for _, v := range values {
				sides[v.side] = append(sides[v.side], v)
			}
			var rows [][]value
			complete := true
			for s := range sides {
				if len(sides[s]) == 0 {
					complete = complete && outer[s]
					sides[s] = []value{{s, -1, "-"}}
				}
			}
			if !complete {
				continue
			}
			for _, a := range sides[0] {
				for _, b := range sides[1] {
					for _, c := range sides[2] {
						rows = append(rows, []value{a, b, c})
					}
				}
			}
			places := func(row []value) []int { // the latest first
				at := []int{row[0].at, row[1].at, row[2].at}
				slices.Sort(at)
				slices.Reverse(at)
				return at
			}
			slices.SortFunc(rows, func(x, y []value) int { return slices.Compare(places(x), places(y)) })
			for _, row := range rows {
				expected[k] = append(expected[k], k+row[0].text+row[1].text+row[2].text)
			}
		}

		p := engine.New("test")
		kind := func(s int) *engine.Side[string, string] {
			g := engine.GroupBy(words(p, ids[s]), initial)
			if outer[s] {
				return engine.Outer(g)
			}
			return engine.Inner(g)
		}
		sides := [3]*engine.Side[string, string]{}
		for _, s := range rng.Perm(3) { // no matter how it is written
			sides[s] = kind(s)
		}
		order := rng.Perm(3)
		joined := engine.MultiJoin(func(j *engine.Joined[string]) string {
			return j.Key + deref(sides[0].Row(j)) + deref(sides[1].Row(j)) + deref(sides[2].Row(j))
		}, sides[order[0]], sides[order[1]], sides[order[2]])
		collect(joined, "joined", initial)
		r := enginetest.Run(t, p, in)
		if got := enginetest.State[string, []string](r, "joined"); !maps.EqualFunc(got, expected, slices.Equal[[]string]) {
			t.Fatalf("round %d: outer %v, input %v:\n got %v\nwant %v", round, outer, in, got, expected)
		}
	}
}

func TestMultiReduce(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test", engine.OnBadRecord(engine.Skip))
		a, b := engine.Outer(engine.GroupBy(words(p, "a"), initial)), engine.Outer(engine.GroupBy(words(p, "b"), initial))
		reduced := engine.MultiReduce(func(b2 *engine.Batch, g *engine.Group[string], emit func(string)) error {
			as, bs := a.Rows(g), b.Rows(g)
			emit(fmt.Sprintf("%s %d %v %v", g.Key, b2.Txid(), as, bs))
			switch g.Key {
			case "x":
				return fmt.Errorf("%d and %d of it", len(as), len(bs))
			case "y":
				panic("y")
			}
			emit("and " + g.Key)
			return nil
		}, a, b).Name("pairs")
		collect(reduced, "rows", all)
		return p
	}
	in := []enginetest.Input{
		{"a": {"k1", "x1"}, "b": {"k2", "l1", "x2", "y1"}, "a/1": {"k3"}},
		{"a": {"l2"}},
	}
	r := enginetest.Run(t, build(), in...)
	got := enginetest.State[string, []string](r, "rows")["all"]
	slices.Sort(got)
	want := []string{"and k", "and l", "and l", "k 1 [k1 k3] [k2]", "l 1 [] [l1]", "l 2 [l2] []"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	var rejected []string
	for _, rej := range r.Rejected() {
		rejected = append(rejected, fmt.Sprintf("%s %s %s %s %d", rej.Source, rej.Step, rej.Key, rej.Cause, rej.Txid))
	}
	slices.Sort(rejected)
	if want := []string{"pairs pairs x 1 and 1 of it 1", "pairs pairs y panic: y 1"}; !slices.Equal(rejected, want) {
		t.Errorf("turned away: %q, want %q", rejected, want)
	}
	enginetest.Deterministic(t, build, in...)
}

// G27: a source without records joined with what another's aggregate has come to.
func TestJoinWithEmptySource(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		counts := engine.Updates[int64](engine.Aggregate(engine.GroupBy(words(p, "a"), initial, "key"), "counts", agg.Count[string]("n")))
		joined := engine.BatchJoin(counts, words(p, "b"), func(r result) string { return r.Key }, initial,
			func(r result, s string) string { return fmt.Sprintf("%s %d", s, r.Value) })
		collect(joined, "joined", all)
		return p
	}
	in := []enginetest.Input{{"a": slices.Repeat([]string{"k"}, 10)}, {"b": {"k1"}}, {"a": {"k"}, "b": {"k2"}}}
	r := enginetest.Run(t, build(), in...)
	want(t, r, "counts", map[string]int64{"k": 11})
	wantRows(t, r, "joined", map[string][]string{"all": {"k2 11"}})
	enginetest.Deterministic(t, build, in...)
}

// A join of a stream with itself, and of one with what is derived of it.
func TestSelfJoin(t *testing.T) {
	p := engine.New("test")
	a := words(p, "a")
	collect(engine.BatchJoin(a, a, initial, initial, func(x, y string) string { return x + y }), "self", initial)
	upper := engine.Map(a, strings.ToUpper)
	collect(engine.BatchJoin(upper, a, func(s string) string { return strings.ToLower(s[:1]) }, initial, func(x, y string) string { return y + x }), "derived", initial)
	r := enginetest.Run(t, p, enginetest.Input{"a": {"k1", "k2"}})
	wantRows(t, r, "self", map[string][]string{"k": {"k1k1", "k2k1", "k1k2", "k2k2"}})
	wantRows(t, r, "derived", map[string][]string{"k": {"k1K1", "k1K2", "k2K1", "k2K2"}})
}

// A joined row's event time is the later of its values'; it is late if that is.
func TestJoinKeepsEventTimes(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		at := func(c click) time.Time { return c.At }
		other := engine.From(p, "others", nowhere{}, codec.JSON[click]()).EventTime(at, 0)
		joined := engine.BatchJoin(clicks(p).EventTime(at, 0), other, userOf, userOf, func(a, b click) click { return click{User: a.User, N: a.N + b.N} })
		engine.Aggregate(engine.GroupByWindow(joined, window.Tumbling(10*time.Second), userOf, "user"), "sums", agg.SumOf("n", func(c click) int64 { return c.N }))
		return p
	}
	in := []enginetest.Input{
		{"clicks": {json("ann", 1, second(5))}, "others": {json("ann", 2, second(12))}},
		{"clicks": {json("bob", 1, second(40))}, "others": {json("bob", 5, second(41))}},
		{"clicks": {json("ann", 7, second(13))}, "others": {json("ann", 7, second(14))}}, // late
		{"clicks": {json("ann", 3, second(13))}, "others": {json("ann", 4, second(45))}}, // the later counts
	}
	r := enginetest.Run(t, build(), in...)
	type key = engine.Windowed[string]
	start := func(n int64) time.Time { return time.Unix(n, 0).UTC() }
	want(t, r, "sums", map[key]int64{{start(10), "ann"}: 3, {start(40), "bob"}: 6, {start(40), "ann"}: 7})
	if rej := r.Rejected(); len(rej) != 1 || rej[0].Kind != "late" || rej[0].Txid != 3 {
		t.Errorf("turned away: %+v", rej)
	}
	enginetest.Deterministic(t, build, in...)
}

func TestJoinRefusals(t *testing.T) {
	refused := func(p *engine.Pipeline, words string) {
		t.Helper()
		if _, err := p.Plan(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	p, q := engine.New("one"), engine.New("other")
	engine.BatchAntiJoin(words(p, "a"), words(q, "b"), initial, initial)
	refused(p, "anti_join: streams of two pipelines, one and other")

	p = engine.New("test")
	a := words(p, "a")
	hidden := engine.Map(a, func(s string) struct{ s string } { return struct{ s string }{s} })
	engine.BatchAntiJoin(hidden, a, func(v struct{ s string }) string { return v.s }, initial)
	refused(p, "anti_join: field s of struct { s string } is unexported")

	p = engine.New("test")
	timed := clicks(p).EventTime(func(c click) time.Time { return c.At }, 0)
	side := engine.Inner(engine.GroupByWindow(timed, window.Tumbling(time.Hour), userOf, "user"))
	engine.MultiJoin(func(*engine.Joined[string]) string { return "" }, side)
	refused(p, "can't be windowed")

	p = engine.New("test")
	twice := engine.Inner(engine.GroupBy(words(p, "a"), initial))
	engine.MultiJoin(func(*engine.Joined[string]) string { return "" }, twice, twice)
	refused(p, "a Side is used twice")
}

// Asking a side for rows of a join that it is no part of is a mistake that mustn't go unnoticed.
func TestSideOfAnotherJoin(t *testing.T) {
	p := engine.New("test")
	a, b := engine.Inner(engine.GroupBy(words(p, "a"), initial)), engine.Inner(engine.GroupBy(words(p, "b"), initial))
	collect(engine.MultiJoin(func(*engine.Joined[string]) string { return "" }, b), "empty", all)
	collect(engine.MultiJoin(func(j *engine.Joined[string]) string { return *b.Row(j) }, a), "rows", all)
	if _, err := enginetest.Try(t, p, enginetest.Input{"a": {"k1"}}); err == nil || !strings.Contains(err.Error(), "wasn't given to") {
		t.Errorf("got %v", err)
	}
}
