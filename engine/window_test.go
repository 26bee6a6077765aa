package engine_test

import (
	"fmt"
	"maps"
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

func timedClicks(p *engine.Pipeline, lateness time.Duration, opts ...engine.TimeOption) engine.Stream[click] {
	return clicks(p).EventTime(func(c click) time.Time { return c.At }, lateness, opts...)
}

type spanKey = engine.Spanned[string]

// spans writes the rows of a state with windows of time, with their seconds.
func spans(rows map[spanKey]int64) map[string]int64 {
	texts := map[string]int64{}
	for k, v := range rows { // order: each by itself
		texts[fmt.Sprintf("%s %d-%d", k.Key, k.Window.Start.Unix(), k.Window.End.Unix())] = v
	}
	return texts
}

func numbers(rows map[spanKey][]int64) map[string]string {
	texts := map[string]string{}
	for k, v := range rows { // order: each by itself
		texts[fmt.Sprintf("%s %d-%d", k.Key, k.Window.First, k.Window.Limit)] = fmt.Sprint(v)
	}
	return texts
}

// spanOf writes a result with its window.
func spanOf(r result) string {
	if r.Window.Start.IsZero() {
		return fmt.Sprintf("%s %d-%d: %d", r.Key, r.Window.First, r.Window.Limit, r.Value)
	}
	return fmt.Sprintf("%s %d-%d: %d", r.Key, r.Window.Start.Unix(), r.Window.End.Unix(), r.Value)
}

// noted counts how often each result comes, in a state.
func noted(s engine.Stream[result], name string) { countWords(engine.Map(s, spanOf), name) }

func equal[V comparable](t *testing.T, what string, got, want map[string]V) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// batches cuts values into batches of a size and ends with one without records.
func batches(size int, values ...string) []enginetest.Input {
	var in []enginetest.Input
	for part := range slices.Chunk(values, size) {
		in = append(in, enginetest.Input{"clicks": part})
	}
	return append(in, enginetest.Input{})
}

// A value counts in each window that it lies in; it is late once all of these have closed.
func TestSlidingWindows(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test", engine.OnBadRecord(engine.Skip))
		g := engine.GroupByWindow(timedClicks(p, 0), window.Sliding(10*time.Second, 4*time.Second), userOf, "user")
		counts := engine.Aggregate(g, "counts", agg.Count[click]("n"))
		noted(engine.Closed[int64](counts), "closed")
		noted(engine.Updates[int64](counts), "updates")
		return p
	}
	in := []enginetest.Input{
		{"clicks": {json("ann", 1, second(5)), json("ann", 1, second(9)), json("bob", 1, second(-1))}},
		{"clicks": {json("ann", 1, second(11))}},
		// The watermark is 11: the windows from -8, -4 and 0 have ended at 2, 6 and 10.
		{"clicks": {json("ann", 1, second(5)), json("ann", 1, second(1)), json("ann", 1, second(30))}},
		{},
	}
	r := enginetest.Run(t, build(), in...)
	equal(t, "counts", spans(enginetest.State[spanKey, int64](r, "counts")), map[string]int64{
		"ann -4-6": 1, "ann 0-10": 2, "ann 4-14": 4, "ann 8-18": 2,
		"ann 24-34": 1, "ann 28-38": 1, "bob -8-2": 1, "bob -4-6": 1,
	})
	want(t, r, "closed", map[string]int64{
		"bob -8-2: 1": 1, "bob -4-6: 1": 1, "ann -4-6: 1": 1, "ann 0-10: 2": 1, "ann 4-14: 4": 1, "ann 8-18: 2": 1,
	})
	rejected := r.Rejected()
	if len(rejected) != 1 || rejected[0].Kind != "late" || rejected[0].Offset != 5 || rejected[0].Cause !=
		"the window that began at 1970-01-01T00:00:00Z had closed: event time 1970-01-01T00:00:01Z, watermark 1970-01-01T00:00:11Z" {
		t.Errorf("turned away: %+v", rejected)
	}
	enginetest.Deterministic(t, build, in...)
}

// Case G24: slides that don't divide the length, and times before 1970.
func TestSlidingWindowBorders(t *testing.T) {
	p := engine.New("test")
	g := engine.GroupByWindow(timedClicks(p, 0), window.Sliding(1500*time.Millisecond, 400*time.Millisecond), userOf, "user")
	engine.Aggregate(g, "sliding", agg.Count[click]("n"))
	minutes := engine.GroupByWindow(timedClicksOf(p, "old"), window.Tumbling(time.Minute), userOf, "user")
	engine.Aggregate(minutes, "minutes", agg.Count[click]("n"))
	r := enginetest.Run(t, p, enginetest.Input{
		"clicks": {json("ann", 1, time.UnixMilli(1764590000123).UTC().Format(time.RFC3339Nano))},
		"old":    {json("ann", 1, "1969-12-31T23:59:30Z"), json("ann", 1, "1969-12-31T23:59:00Z")},
	})
	var starts []int64
	for k := range enginetest.State[spanKey, int64](r, "sliding") { // order: sorted below
		starts = append(starts, k.Window.Start.UnixMilli())
	}
	slices.Sort(starts)
	if want := []int64{1764589998800, 1764589999200, 1764589999600, 1764590000000}; !slices.Equal(starts, want) {
		t.Errorf("the windows begin at %v, want %v", starts, want)
	}
	type key = engine.Windowed[string]
	if got := enginetest.State[key, int64](r, "minutes"); len(got) != 1 || got[key{time.Unix(-60, 0).UTC(), "ann"}] != 2 {
		t.Errorf("minutes: %v", got)
	}
}

func timedClicksOf(p *engine.Pipeline, source string) engine.Stream[click] {
	return engine.From(p, source, nowhere{}, codec.JSON[click]()).EventTime(func(c click) time.Time { return c.At }, 0)
}

// Case G24: days by the clocks of a zone, of 23, 24 and 25 hours.
func TestWindowsInATimeZone(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		days := engine.GroupByWindow(timedClicks(p, 0), window.Tumbling(24*time.Hour).Zone("Europe/Berlin"), userOf, "user")
		noted(engine.Closed[int64](engine.Aggregate(days, "days", agg.Count[click]("n"))), "closed")
		return p
	}
	at := func(s string) int64 {
		t.Helper()
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v.Unix()
	}
	in := batches(2,
		json("ann", 1, "2025-03-29T22:59:59Z"), json("ann", 1, "2025-03-29T23:00:00Z"), json("ann", 1, "2025-03-30T21:59:59Z"),
		json("ann", 1, "2025-03-30T22:00:00Z"), json("ann", 1, "2025-10-25T22:00:00Z"), json("ann", 1, "2025-10-26T22:59:59Z"), json("ann", 1, "2025-10-27T23:00:00Z"))
	r := enginetest.Run(t, build(), in...)
	row := func(from, to string, n int) string { return fmt.Sprintf("ann %d-%d: %d", at(from), at(to), n) }
	want(t, r, "closed", map[string]int64{
		row("2025-03-28T23:00:00Z", "2025-03-29T23:00:00Z", 1): 1,
		row("2025-03-29T23:00:00Z", "2025-03-30T22:00:00Z", 2): 1, // 23 h
		row("2025-03-30T22:00:00Z", "2025-03-31T22:00:00Z", 1): 1,
		row("2025-10-25T22:00:00Z", "2025-10-26T23:00:00Z", 2): 1, // 25 h
	})
	enginetest.Deterministic(t, build, in...)
}

// Windows of batch time go by the batches' clocks, which are a second apart: nothing is late, and they close without event times.
func TestWindowsOfBatchTime(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		g := engine.GroupByWindow(clicks(p), window.Tumbling(2*time.Second).ByBatchTime(), userOf, "user")
		noted(engine.Closed[int64](engine.Aggregate(g, "counts", agg.Count[click]("n"))), "closed")
		return p
	}
	old := json("ann", 1, second(0))
	in := []enginetest.Input{{"clicks": {old}}, {"clicks": {old, old}}, {"clicks": {old}}, {}, {}}
	r := enginetest.Run(t, build(), in...)
	first := enginetest.Clock.Truncate(2 * time.Second).Unix()
	rows := map[string]int64{}
	if enginetest.Clock.Unix() == first {
		rows[fmt.Sprintf("ann %d-%d: 3", first, first+2)], rows[fmt.Sprintf("ann %d-%d: 1", first+2, first+4)] = 1, 1
	} else {
		rows[fmt.Sprintf("ann %d-%d: 1", first, first+2)], rows[fmt.Sprintf("ann %d-%d: 3", first+2, first+4)] = 1, 1
	}
	want(t, r, "closed", rows)
	enginetest.Deterministic(t, build, in...)
}

// Sessions grow, merge where a value comes between two, and close once the watermark has passed their ends.
func TestSessions(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test", engine.OnBadRecord(engine.Skip))
		g := engine.GroupByWindow(timedClicks(p, 20*time.Second), window.Session(10*time.Second), userOf, "user")
		counts := engine.Aggregate(g, "sessions", agg.Count[click]("n"))
		noted(engine.Closed[int64](counts), "closed")
		noted(engine.Updates[int64](counts), "updates")
		return p
	}
	in := []enginetest.Input{
		{"clicks": {json("ann", 1, second(0)), json("ann", 1, second(15)), json("bob", 1, second(3))}},
		{"clicks": {json("ann", 1, second(8))}},  // brings the two together
		{"clicks": {json("ann", 1, second(25))}}, // not less than 10 s behind the last: a session of its own
		{"clicks": {json("cem", 1, second(60))}}, // the watermark comes to 40
		{"clicks": {json("ann", 1, second(34)), json("ann", 1, second(12)), json("ann", 1, second(7)), json("bob", 1, second(31))}},
		{"clicks": {json("cem", 1, second(200))}},
		{},
	}
	r := enginetest.Run(t, build(), in...)
	equal(t, "sessions", spans(enginetest.State[spanKey, int64](r, "sessions")), map[string]int64{
		"ann 0-25": 5, "ann 25-44": 2, "bob 3-13": 1, "bob 31-41": 1, "cem 60-70": 1, "cem 200-210": 1,
	})
	want(t, r, "closed", map[string]int64{
		"ann 0-25: 5": 1, "ann 25-44: 2": 1, "bob 3-13: 1": 1, "bob 31-41: 1": 1, "cem 60-70: 1": 1,
	})
	want(t, r, "updates", map[string]int64{
		"ann 0-10: 1": 1, "ann 15-25: 1": 1, "bob 3-13: 1": 1, "ann 0-25: 3": 1, "ann 25-35: 1": 1, "cem 60-70: 1": 1,
		"ann 0-25: 5": 1, "ann 25-44: 2": 1, "bob 31-41: 1": 1, "cem 200-210: 1": 1,
	})
	// The value of second 12 was taken in by ann's first session, which hadn't closed yet though the watermark had passed its end; so was that
	// of second 7. Nothing is late.
	if rejected := r.Rejected(); len(rejected) > 0 {
		t.Errorf("turned away: %+v", rejected)
	}
	enginetest.Deterministic(t, build, in...)
}

// A value is late for a session if the one that it would make alone has ended, and none that is open takes it in.
func TestLateForASession(t *testing.T) {
	in := []enginetest.Input{
		{"clicks": {json("ann", 1, second(0)), json("bob", 1, second(100))}},
		{},
		{"clicks": {json("ann", 7, second(5)), json("bob", 2, second(95)), json("bob", 3, second(80)), json("ann", 1, second(91))}},
		{},
	}
	build := func(late bool) func() *engine.Pipeline {
		return func() *engine.Pipeline {
			p := engine.New("test", engine.OnBadRecord(engine.Skip))
			g := engine.GroupByWindow(timedClicks(p, 0), window.Session(10*time.Second), userOf, "user")
			engine.Aggregate(g, "sessions", agg.Count[click]("n"))
			engine.Aggregate(g, "again", agg.SumOf("n", func(c click) int64 { return c.N }))
			if late {
				engine.Aggregate(engine.GroupBy(engine.LateOf(g), userOf, "user"), "late", agg.CollectOf("n", func(c click) int64 { return c.N }))
			}
			return p
		}
	}
	sessions := map[string]int64{"ann 0-10": 1, "bob 95-110": 2, "ann 91-101": 1}
	r := enginetest.Run(t, build(false)(), in...)
	equal(t, "sessions", spans(enginetest.State[spanKey, int64](r, "sessions")), sessions)
	rejected := r.Rejected()
	var causes []string
	for _, j := range rejected {
		if j.Source == "sessions" {
			causes = append(causes, j.Kind+" "+j.Step+" "+j.Cause)
		}
	}
	slices.Sort(causes)
	if want := []string{
		"late sessions row of clicks/clicks-0 at offset 2: the session that it would begin had ended at 1970-01-01T00:00:15Z: event time 1970-01-01T00:00:05Z, watermark 1970-01-01T00:01:40Z",
		"late sessions row of clicks/clicks-0 at offset 4: the session that it would begin had ended at 1970-01-01T00:01:30Z: event time 1970-01-01T00:01:20Z, watermark 1970-01-01T00:01:40Z",
	}; !slices.Equal(causes, want) {
		t.Errorf("turned away: %q, want %q", causes, want)
	}
	r = enginetest.Run(t, build(true)(), in...)
	equal(t, "sessions", spans(enginetest.State[spanKey, int64](r, "sessions")), sessions)
	if got := enginetest.State[string, []int64](r, "late"); len(got) != 2 || !slices.Equal(got["ann"], []int64{7}) || !slices.Equal(got["bob"], []int64{3}) {
		t.Errorf("late: %v", got)
	}
	for _, j := range r.Rejected() {
		if j.Source != "again" {
			t.Errorf("turned away, though late values are sent on: %+v", j)
		}
	}
	enginetest.Deterministic(t, build(true), in...)
}

// The rows of a session go once it has been closed for its retention of event time.
func TestRetentionOfSessions(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		g := engine.GroupByWindow(timedClicks(p, 0), window.Session(10*time.Second), userOf, "user", engine.Retention(time.Minute))
		engine.Aggregate(g, "sessions", agg.Count[click]("n"))
		return p
	}
	in := batches(1, json("ann", 1, second(0)), json("ann", 1, second(30)), json("bob", 1, second(99)))
	r := enginetest.Run(t, build(), in...)
	equal(t, "sessions", spans(enginetest.State[spanKey, int64](r, "sessions")), map[string]int64{"ann 30-40": 1, "bob 99-109": 1})
	r = enginetest.Run(t, build(), append(in, enginetest.Input{"clicks": {json("bob", 1, second(100))}}, enginetest.Input{})...)
	equal(t, "sessions", spans(enginetest.State[spanKey, int64](r, "sessions")), map[string]int64{"bob 99-110": 2})
	enginetest.Deterministic(t, build, in...)
}

// Case G21: a window of five values goes on where it stood, over batches, partitions and crashes.
func TestCountWindows(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		g := engine.GroupByWindow(clicks(p), window.Count(5), userOf, "user")
		fives := engine.Aggregate(g, "fives", agg.CollectOf("values", func(c click) int64 { return c.N }))
		closed := engine.Map(engine.Closed[[]int64](fives), func(r engine.Result[string, []int64]) string {
			return fmt.Sprintf("%s %d-%d %v", r.Key, r.Window.First, r.Window.Limit, r.Value)
		})
		countWords(closed, "closed")
		return p
	}
	values := func(from, to int64) (all []string) {
		for n := from; n <= to; n++ {
			all = append(all, json("ann", n, second(0)))
		}
		return all
	}
	in := []enginetest.Input{{"clicks": values(1, 4)}, {"clicks": values(5, 8)}, {"clicks": values(9, 12)}}
	r := enginetest.Run(t, build(), in...)
	equal(t, "fives", numbers(enginetest.State[spanKey, []int64](r, "fives")), map[string]string{
		"ann 0-5": "[1 2 3 4 5]", "ann 5-10": "[6 7 8 9 10]", "ann 10-15": "[11 12]",
	})
	want(t, r, "closed", map[string]int64{"ann 0-5 [1 2 3 4 5]": 1, "ann 5-10 [6 7 8 9 10]": 1})
	in = append(in, enginetest.Input{"clicks": values(13, 15)})
	r = enginetest.Run(t, build(), in...)
	want(t, r, "closed", map[string]int64{"ann 0-5 [1 2 3 4 5]": 1, "ann 5-10 [6 7 8 9 10]": 1, "ann 10-15 [11 12 13 14 15]": 1})
	enginetest.Deterministic(t, build, in...)
}

// Windows of values don't depend on how records are cut into batches, and each value counts in each of its windows.
func TestSlidingCountWindows(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		g := engine.GroupByWindow(clicks(p), window.SlidingCount(4, 3), userOf, "user")
		state := engine.Aggregate(g, "values", agg.CollectOf("values", func(c click) int64 { return c.N }))
		engine.Aggregate(engine.GroupBy(engine.Closed[[]int64](state), func(r engine.Result[string, []int64]) string { return r.Key }, "user"),
			"closed", agg.Count[engine.Result[string, []int64]]("n"))
		return p
	}
	var all []string
	for n := range int64(11) {
		all = append(all, json("ann", n, second(0)), json("bob", 100+n, second(0)))
	}
	for _, size := range []int{1, 3, 22} {
		in := batches(size, all...)
		r := enginetest.Run(t, build(), in...)
		equal(t, "values", numbers(enginetest.State[spanKey, []int64](r, "values")), map[string]string{
			"ann 0-4": "[0 1 2 3]", "ann 3-7": "[3 4 5 6]", "ann 6-10": "[6 7 8 9]", "ann 9-13": "[9 10]",
			"bob 0-4": "[100 101 102 103]", "bob 3-7": "[103 104 105 106]", "bob 6-10": "[106 107 108 109]", "bob 9-13": "[109 110]",
		})
		want(t, r, "closed", map[string]int64{"ann": 3, "bob": 3})
		if size == 3 {
			enginetest.Deterministic(t, build, in...)
		}
	}
}

// Case G22, with sessions over windows: results are never late.
func TestSessionsOverWindows(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("test")
		fives := engine.Aggregate(engine.GroupByWindow(timedClicks(p, 0), window.Tumbling(5*time.Second), userOf, "user"), "fives", agg.Count[click]("n"))
		sessions := engine.Aggregate(
			engine.GroupByWindow(engine.Closed[int64](fives), window.Session(6*time.Second), func(r result) string { return r.Key }, "user"),
			"sessions", agg.SumOf("n", func(r result) int64 { return r.Value }))
		hours := engine.Aggregate(
			engine.GroupByWindow(engine.Closed[int64](sessions), window.Tumbling(time.Hour), func(r result) string { return r.Key }, "user"),
			"hours", agg.SumOf("n", func(r result) int64 { return r.Value }))
		noted(engine.Closed[int64](sessions), "closed")
		noted(engine.Closed[int64](hours), "hours_closed")
		return p
	}
	var all []string
	for _, at := range []int{0, 1, 7, 11, 14, 30, 31, 100, 5000} {
		all = append(all, json("ann", 1, second(at)))
	}
	for _, size := range []int{1, 2, 9} {
		in := append(batches(size, all...), enginetest.Input{})
		r := enginetest.Run(t, build(), in...)
		if rejected := r.Rejected(); len(rejected) > 0 {
			t.Errorf("turned away: %+v", rejected)
		}
		// A result's time is the last nanosecond of its window.
		want(t, r, "closed", map[string]int64{"ann 4-20: 5": 1, "ann 34-40: 2": 1, "ann 104-110: 1": 1})
		want(t, r, "hours_closed", map[string]int64{"ann 0-3600: 8": 1})
		if size == 2 {
			enginetest.Deterministic(t, build, in...)
		}
	}
}

// Case G23: one time far in the future closes nothing, and is listed with its place.
func TestATimeFarInTheFuture(t *testing.T) {
	run := func(opts ...engine.TimeOption) *enginetest.Result {
		p := engine.New("test", engine.OnBadRecord(engine.Skip))
		g := engine.GroupByWindow(timedClicks(p, 0, opts...), window.Tumbling(10*time.Second), userOf, "user")
		engine.Aggregate(g, "counts", agg.Count[click]("n"))
		var before, after []string
		start := enginetest.Clock.Add(-time.Hour).Truncate(time.Minute)
		for i := range 50 {
			before = append(before, json("ann", 1, start.Add(time.Duration(i)*time.Second).Format(time.RFC3339)))
		}
		before = append(before, json("ann", 1, "2099-01-01T00:00:00Z"))
		for i := range 10 {
			after = append(after, json("ann", 1, start.Add(time.Duration(50+i)*time.Second).Format(time.RFC3339)))
		}
		return enginetest.Run(t, p, enginetest.Input{"clicks": before}, enginetest.Input{"clicks": after})
	}
	type key = engine.Windowed[string]
	for bounded, want := range map[bool]struct {
		counted int64
		kinds   string
	}{
		true:  {60, "future 50"},
		false: {51, "late 51, late 52, late 53, late 54, late 55, late 56, late 57, late 58, late 59, late 60"},
	} { // order: each by itself
		var opts []engine.TimeOption
		if !bounded {
			opts = append(opts, engine.FutureBound(100*365*24*time.Hour))
		}
		r := run(opts...)
		var n int64
		for _, c := range enginetest.State[key, int64](r, "counts") { // order: a sum
			n += c
		}
		var kinds []string
		for _, j := range r.Rejected() {
			if j.Source != "clicks" {
				t.Errorf("turned away: %+v", j)
			}
			kinds = append(kinds, fmt.Sprintf("%s %d", j.Kind, j.Offset))
		}
		if got := strings.Join(kinds, ", "); n != want.counted || got != want.kinds {
			t.Errorf("bounded %t: %d counted, turned away: %s; want %d and %s", bounded, n, got, want.counted, want.kinds)
		}
	}
}

// Late values of tumbling and sliding windows go where they are asked to, once.
func TestLateOf(t *testing.T) {
	for name, shape := range map[string]window.Windows{"tumbling": window.Tumbling(10 * time.Second), "sliding": window.Sliding(10*time.Second, 5*time.Second)} {
		build := func() *engine.Pipeline {
			p := engine.New("test", engine.OnBadRecord(engine.Skip))
			g := engine.GroupByWindow(timedClicks(p, 0), shape, userOf, "user")
			engine.Aggregate(g, "counts", agg.Count[click]("n"))
			late := engine.LateOf(g)
			engine.Aggregate(engine.GroupBy(late, userOf, "user"), "late", agg.CollectOf("n", func(c click) int64 { return c.N }))
			engine.Aggregate(engine.GroupByWindow(late, window.Tumbling(24*time.Hour), userOf, "user"), "days", agg.Count[click]("n"))
			return p
		}
		in := []enginetest.Input{
			{"clicks": {json("ann", 1, second(50))}},
			{"clicks": {json("ann", 2, second(12)), json("ann", 3, second(55)), json("bob", 4, second(3))}},
		}
		r := enginetest.Run(t, build(), in...)
		if got := enginetest.State[string, []int64](r, "late"); len(got) != 2 || !slices.Equal(got["ann"], []int64{2}) || !slices.Equal(got["bob"], []int64{4}) {
			t.Errorf("%s: late: %v", name, got)
		}
		if rejected := r.Rejected(); len(rejected) > 0 {
			t.Errorf("%s: turned away, too: %+v", name, rejected)
		}
		enginetest.Deterministic(t, build, in...)
	} // order: each by itself
}

func TestWindowsThatCannotBe(t *testing.T) {
	grouped := func(p *engine.Pipeline, s engine.Stream[click], w window.Windows) engine.Grouped[string, click] {
		return engine.GroupByWindow(s, w, userOf, "user")
	}
	count := agg.Count[click]("n")
	for want, build := range map[string]func(p *engine.Pipeline){
		"the slide must be above 0": func(p *engine.Pipeline) {
			engine.Aggregate(grouped(p, timedClicks(p, 0), window.Sliding(time.Second, 0)), "counts", count)
		},
		`time zone "Europe/Berln"`: func(p *engine.Pipeline) {
			engine.Aggregate(grouped(p, timedClicks(p, 0), window.Tumbling(24*time.Hour).Zone("Europe/Berln")), "counts", count)
		},
		"the stream has no event time": func(p *engine.Pipeline) {
			engine.Aggregate(grouped(p, clicks(p), window.Session(time.Second)), "counts", count)
		},
		"nothing is late where no windows of event time are": func(p *engine.Pipeline) {
			g := grouped(p, clicks(p), window.Count(3))
			engine.Aggregate(g, "counts", count)
			engine.LateOf(g)
		},
		"it belongs behind the Aggregate of the group": func(p *engine.Pipeline) {
			engine.LateOf(grouped(p, timedClicks(p, 0), window.Session(time.Second)))
		},
		"it is asked for twice": func(p *engine.Pipeline) {
			g := grouped(p, timedClicks(p, 0), window.Session(time.Second))
			engine.Aggregate(g, "counts", count)
			engine.LateOf(g)
			engine.LateOf(g)
		},
		"it can't be windowed": func(p *engine.Pipeline) {
			engine.BatchAggregate[int64](grouped(p, timedClicks(p, 0), window.Session(time.Second)), "counts", count)
		},
	} { // order: each by itself
		p := engine.New("test")
		build(p)
		if _, err := p.Plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
