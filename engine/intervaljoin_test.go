package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
	"github.com/tridentd/tridentd/window"
)

// timedWords is a source of lines such as "k1@12": what comes before @ is the value, 12 the second of its event time.
func timedWords(p *engine.Pipeline, id string, lateness time.Duration) engine.Stream[string] {
	return words(p, id).EventTime(func(s string) time.Time {
		n, err := strconv.Atoi(s[strings.IndexByte(s, '@')+1:])
		if err != nil {
			panic(err)
		}
		return time.Unix(int64(n), 0)
	}, lateness)
}

func sum(a, b string) string { return a + " " + b }

func eachOf(a, b *string) string { return deref(a) + " " + deref(b) }

// intervalJoins makes each kind of join of the sources a and b; swapped writes b first.
func intervalJoins(within, lateness time.Duration, swapped bool) *engine.Pipeline {
	p := engine.New("test")
	a, b := timedWords(p, "a", lateness), timedWords(p, "b", lateness)
	if swapped {
		collect(engine.Join(b, a, within, initial, initial, func(y, x string) string { return sum(x, y) }).Name("pairs"), "inner", all)
		collect(engine.RightJoin(b, a, within, initial, initial, func(y *string, x string) string { return eachOf(&x, y) }), "left", all)
		collect(engine.LeftJoin(b, a, within, initial, initial, func(y string, x *string) string { return eachOf(x, &y) }), "right", all)
		collect(engine.FullJoin(b, a, within, initial, initial, func(y, x *string) string { return eachOf(x, y) }), "full", all)
	} else {
		collect(engine.Join(a, b, within, initial, initial, sum).Name("pairs"), "inner", all)
		collect(engine.LeftJoin(a, b, within, initial, initial, func(x string, y *string) string { return eachOf(&x, y) }), "left", all)
		collect(engine.RightJoin(a, b, within, initial, initial, func(x *string, y string) string { return eachOf(x, &y) }), "right", all)
		collect(engine.FullJoin(a, b, within, initial, initial, eachOf), "full", all)
	}
	collect(engine.AntiJoin(a, b, within, initial, initial), "anti", all)
	return p
}

// joined are the rows of a state that collect keeps, sorted.
func joined(r *enginetest.Result, state string) []string {
	rows := slices.Clone(enginetest.State[string, []string](r, state)["all"])
	slices.Sort(rows)
	return rows
}

func wantJoined(t *testing.T, r *enginetest.Result, state string, rows ...string) {
	t.Helper()
	slices.Sort(rows)
	if got := joined(r, state); !slices.Equal(got, rows) {
		t.Errorf("%s at txid %d: %q, want %q", state, r.Txid(), got, rows)
	}
}

var intervalInput = []enginetest.Input{
	{"a": {"k1@100", "l1@100", "m1@100"}, "b": {"n1@100"}},
	{"b": {"k2@110", "l2@111"}}, // ten seconds apart, and eleven
	{"a": {"k3@105", "n2@90"}, "b": {"m2@108"}},
	{"b": {"k4@120"}, "a": {"k5@120"}},
	enginetest.AdvanceTo(time.Unix(110, 0)),
	enginetest.AdvanceTo(time.Unix(131, 0)),
}

func TestIntervalJoins(t *testing.T) {
	pairs := []string{"k1@100 k2@110", "k3@105 k2@110", "k5@120 k2@110", "k5@120 k4@120", "m1@100 m2@108", "n2@90 n1@100"}
	for _, swapped := range []bool{false, true} {
		build := func() *engine.Pipeline { return intervalJoins(10*time.Second, 30*time.Second, swapped) }
		r := enginetest.Run(t, build(), intervalInput...)
		wantJoined(t, r, "inner", pairs...)
		wantJoined(t, r, "left", append([]string{"l1@100 -"}, pairs...)...)
		wantJoined(t, r, "right", append([]string{"- l2@111"}, pairs...)...)
		wantJoined(t, r, "full", append([]string{"l1@100 -", "- l2@111"}, pairs...)...)
		wantJoined(t, r, "anti", "l1@100")
		// What is at 100 waits for what is at 110 as long as the watermark hasn't passed that.
		wantJoined(t, r.At(5), "anti")
		wantJoined(t, r.At(5), "left", pairs...)
		if late := r.Rejected(); len(late) > 0 {
			t.Errorf("turned away: %+v", late)
		}
		enginetest.Deterministic(t, build, intervalInput...)
	}
}

// Which rows a join gives is a matter of what its streams hold, whatever batches they come in and in which order within their
// lateness. Case G12: values of equal times, too.
func TestIntervalJoinsAgainstModel(t *testing.T) {
	const within, lateness = 5, 60
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 5))
		sides := map[string][]string{}
		at := map[string]int{}
		for i := range 40 {
			source := []string{"a", "b"}[rng.IntN(2)]
			text := fmt.Sprintf("%c%d", 'k'+rng.IntN(3), i)
			at[text] = 100 + rng.IntN(40)
			sides[source] = append(sides[source], fmt.Sprintf("%s@%d", text, at[text]))
		}
		time := func(s string) int { return at[s[:strings.IndexByte(s, '@')]] }
		meet := func(x, y string) bool {
			d := time(x) - time(y)
			return initial(x) == initial(y) && -within <= d && d <= within
		}
		var pairs, aloneA, aloneB, anti []string
		for _, x := range sides["a"] {
			if !slices.ContainsFunc(sides["b"], func(y string) bool { return meet(x, y) }) {
				aloneA, anti = append(aloneA, x+" -"), append(anti, x)
			}
			for _, y := range sides["b"] {
				if meet(x, y) {
					pairs = append(pairs, x+" "+y)
				}
			}
		}
		for _, y := range sides["b"] {
			if !slices.ContainsFunc(sides["a"], func(x string) bool { return meet(x, y) }) {
				aloneB = append(aloneB, "- "+y)
			}
		}
		for split := range 3 {
			in := []enginetest.Input{{}}
			left := map[string][]string{"a": sides["a"], "b": sides["b"]}
			for len(left["a"])+len(left["b"]) > 0 {
				source := []string{"a", "b"}[rng.IntN(2)]
				if len(left[source]) == 0 {
					continue
				}
				last := in[len(in)-1]
				to := []string{source, source + "/1"}[rng.IntN(2)]
				last[to] = append(last[to], left[source][0])
				left[source] = left[source][1:]
				if split > 0 && rng.IntN(4) == 0 {
					in = append(in, enginetest.Input{})
				}
			}
			if len(in[len(in)-1]) == 0 {
				in = in[:len(in)-1]
			}
			in = append(in, enginetest.AdvanceTo(enginetest.Clock.Add(-1)))
			r := enginetest.Run(t, intervalJoins(within*1e9, lateness*1e9, split == 2), in...)
			wantJoined(t, r, "inner", pairs...)
			wantJoined(t, r, "left", slices.Concat(pairs, aloneA)...)
			wantJoined(t, r, "right", slices.Concat(pairs, aloneB)...)
			wantJoined(t, r, "full", slices.Concat(pairs, aloneA, aloneB)...)
			wantJoined(t, r, "anti", anti...)
			if kept := enginetest.State[string, []byte](r, "pairs.join"); len(kept) > 0 {
				t.Errorf("%d keys still wait", len(kept))
			}
			if t.Failed() {
				t.Fatalf("seed %d, split %d: %v", seed, split, in)
			}
		}
	}
}

// What lies before the watermark is late, and told with its place; what lies on it isn't.
func TestIntervalJoinTurnsLateRowsAway(t *testing.T) {
	r := enginetest.Run(t, intervalJoins(10*time.Second, 0, false),
		enginetest.Input{"a": {"k1@100"}, "b": {"l1@105"}},
		enginetest.Input{"b": {"k2@99", "k3@100"}}) // the watermark is at 100
	wantJoined(t, r, "inner", "k1@100 k3@100")
	late := r.Rejected()
	if len(late) != 5 { // by each join
		t.Fatalf("turned away: %+v", late)
	}
	for _, l := range late {
		if l.Source != "b" || l.Offset != 1 || l.Kind != "late" || l.Value != "k2@99" || !strings.Contains(l.Cause, "1970-01-01T00:01:39Z lies before the watermark 1970-01-01T00:01:40Z") {
			t.Errorf("turned away: %+v", l)
		}
	}
}

// A stream can be joined with itself, and windows behind a join lose nothing: pairs have the later one's time, a value that stays alone the
// latest at which another could have come.
func TestWindowsBehindIntervalJoins(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		a := timedWords(p, "a", 0)
		twice := engine.Join(a, a, 2*time.Second, initial, initial, sum)
		engine.Aggregate(engine.GroupByWindow(twice, window.Tumbling(10*time.Second), all, "key"), "twice", agg.Count[string]("n"))
		alone := engine.LeftJoin(a, a.Filter(func(s string) bool { return s[0] != 'k' }), 5*time.Second, initial, initial, func(x string, y *string) string { return eachOf(&x, y) })
		closed := engine.Closed[int64](engine.Aggregate(engine.GroupByWindow(alone, window.Tumbling(10*time.Second), all, "key"), "left", agg.Count[string]("n")))
		texts := engine.Map(closed, func(r engine.Result[string, int64]) string {
			return fmt.Sprintf("%d: %d", r.Window.Start.Unix(), r.Value)
		})
		collect(texts, "closed", all)
		return p
	}
	in := []enginetest.Input{{"a": {"k1@8", "k2@10", "l1@13"}}, {"a": {"l2@15"}}, {"a": {"k3@28"}}, {"a": {"k4@40"}}, enginetest.AdvanceTo(time.Unix(60, 0))}
	r := enginetest.Run(t, build(), in...)
	type key = engine.Windowed[string]
	// k1 with itself at 8, the others at 10 and later.
	got := enginetest.State[key, int64](r, "twice")
	want := map[int64]int64{0: 1, 10: 7, 20: 1, 40: 1}
	for k, n := range got { // order: each by itself
		if want[k.Start.Unix()] != n {
			t.Errorf("twice in %s: %d", k.Start, n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("twice: %v, want %v", got, want)
	}
	// k1 alone counts at 13, k2 at 15, the four pairs of l at 13 and 15; k3 at 33, k4 at 45.
	wantJoined(t, r, "closed", "10: 6", "30: 1", "40: 1")
	if late := r.Rejected(); len(late) > 0 {
		t.Errorf("turned away: %+v", late)
	}
	enginetest.Deterministic(t, build, in...)
}

// Case G27: a stream without data neither stops batches nor loses rows.
func TestIntervalJoinWithAnEmptySource(t *testing.T) {
	build := func() *engine.Pipeline { return intervalJoins(10*time.Second, 0, false) }
	in := []enginetest.Input{
		{"a": {"k1@100", "l1@100"}},
		{"a": {"m1@111"}},
		{"b": {"k2@105"}},
		enginetest.AdvanceTo(time.Unix(122, 0)),
	}
	r := enginetest.Run(t, build(), in...)
	wantJoined(t, r.At(3), "anti")
	wantJoined(t, r, "inner", "k1@100 k2@105")
	wantJoined(t, r, "anti", "l1@100", "m1@111")
	enginetest.Deterministic(t, build, in...)
}

// A function that fails on a pair is a bad row of the join, told with its key; the other rows come.
func TestIntervalJoinFunctions(t *testing.T) {
	p := engine.New("test", engine.OnBadRecord(engine.Skip))
	a, b := timedWords(p, "a", 0), timedWords(p, "b", 0)
	collect(engine.Join(a, b, time.Second, initial, initial, func(x, y string) string {
		if x == "k1@1" {
			panic("not this one")
		}
		return sum(x, y)
	}).Name("pairs"), "inner", all)
	r := enginetest.Run(t, p, enginetest.Input{"a": {"k1@1", "k2@1", "l1@1"}, "b": {"k3@1", "l2@2"}})
	wantJoined(t, r, "inner", "k2@1 k3@1", "l1@1 l2@2")
	if bad := r.Rejected(); len(bad) != 1 || bad[0].Step != "pairs" || bad[0].Key != "k" || !strings.Contains(bad[0].Cause, "not this one") {
		t.Errorf("turned away: %+v", bad)
	}
}

func TestIntervalJoinsThatCannotBe(t *testing.T) {
	for want, build := range map[string]func(p *engine.Pipeline){
		"join: a stream has no event time": func(p *engine.Pipeline) {
			engine.Join(timedWords(p, "a", 0), words(p, "b"), time.Second, initial, initial, sum)
		},
		"anti_join: within -1s is negative": func(p *engine.Pipeline) {
			engine.AntiJoin(timedWords(p, "a", 0), timedWords(p, "b", 0), -time.Second, initial, initial)
		},
		"streams of two pipelines": func(p *engine.Pipeline) {
			engine.AntiJoin(timedWords(p, "a", 0), timedWords(engine.New("other"), "b", 0), time.Second, initial, initial)
		},
		"another join keeps a state join_1.join": func(p *engine.Pipeline) {
			a := timedWords(p, "a", 0)
			engine.Join(a, a, time.Second, initial, initial, sum)
			engine.Join(a, a, time.Second, initial, initial, sum).Name("join_1")
		},
		"can't be handed from task to task": func(p *engine.Pipeline) {
			a := timedWords(p, "a", 0)
			f := engine.Map(a, func(string) func() { return nil })
			engine.Join(f, a, time.Second, func(func()) string { return "" }, initial, func(func(), string) string { return "" })
		},
	} { // order: each by itself
		p := engine.New("test")
		build(p)
		if _, err := p.Plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
