package spec_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
	"github.com/tridentd/tridentd/spec"
)

const clicksHead = `
pipeline: p
on_bad_record: skip
sources:
  clicks:
    kafka: {brokers: ["127.0.0.1:1"], topics: [clicks]}
    decode: json
    types: {user: string, n: int, at: timestamp}
    time: {field: at, lateness: %s}
streams:
`

func pipeline(t *testing.T, lateness, streams string) func() *engine.Pipeline {
	t.Helper()
	return parsed(t, fmt.Sprintf(clicksHead, lateness)+streams)
}

func click(user string, n, at int) string {
	return fmt.Sprintf(`{"user":%q,"n":%d,"at":%q}`, user, n, time.Unix(int64(at), 0).UTC().Format(time.RFC3339))
}

type spanned = engine.Spanned[string]

// texts writes the rows of a state whose rows show windows.
func texts[V any](rows map[spanned]V) map[string]string {
	all := map[string]string{}
	for k, v := range rows { // order: each by itself
		from, to := k.Window.Start.Unix(), k.Window.End.Unix()
		if k.Window.Start.IsZero() {
			from, to = k.Window.First, k.Window.Limit
		}
		all[fmt.Sprintf("%s %d-%d", k.Key, from, to)] = fmt.Sprint(v)
	}
	return all
}

func want(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// sent is the state of a stream that counts what another sends, by window, user and n.
const sent = `
  sent:
    from: %s
    steps:
      - set: {from: unix_ms(window_start), to: unix_ms(window_end)}
      - group_by: [user, from, to, n]
      - aggregate: {times: count()}
`

type sentKey struct {
	User        string
	From, To, N int64
}

func wasSent(r *enginetest.Result) map[string]string {
	all := map[string]string{}
	for k, v := range enginetest.State[sentKey, int64](r, "sent") { // order: each by itself
		all[fmt.Sprintf("%s %d-%d", k.User, k.From/1000, k.To/1000)] += fmt.Sprintf("%d ", k.N)
		if v != 1 {
			all["sent often"] += fmt.Sprint(k)
		}
	}
	return all
}

func TestSlidingWindows(t *testing.T) {
	build := pipeline(t, "0s", `
  counts:
    from: clicks
    steps:
      - window: {sliding: 10s, every: 4s, late: behind}
      - group_by: [user]
      - aggregate: {n: count()}
  late:
    from: behind
    steps:
      - group_by: [user]
      - aggregate: {values: collect(n)}
`+fmt.Sprintf(sent, "counts"))
	in := []enginetest.Input{
		{"clicks": {click("ann", 1, 5), click("ann", 2, 9), click("bob", 3, -1)}},
		{"clicks": {click("ann", 4, 11)}},
		{"clicks": {click("ann", 5, 5), click("ann", 6, 1), click("ann", 7, 30)}},
		{},
	}
	r := enginetest.Run(t, build(), in...)
	want(t, "counts", texts(enginetest.State[spanned, int64](r, "counts")), map[string]string{
		"ann -4-6": "1", "ann 0-10": "2", "ann 4-14": "4", "ann 8-18": "2", "ann 24-34": "1", "ann 28-38": "1", "bob -8-2": "1", "bob -4-6": "1",
	})
	want(t, "sent", wasSent(r), map[string]string{
		"ann -4-6": "1 ", "ann 0-10": "2 ", "ann 4-14": "4 ", "ann 8-18": "2 ", "bob -8-2": "1 ", "bob -4-6": "1 ",
	})
	if got := enginetest.State[string, []int64](r, "late"); len(got) != 1 || !slices.Equal(got["ann"], []int64{6}) {
		t.Errorf("late: %v", got)
	}
	if got := r.Rejected(); len(got) > 0 {
		t.Errorf("turned away: %+v", got)
	}
	enginetest.Deterministic(t, build, in...)
}

func TestSessions(t *testing.T) {
	build := pipeline(t, "20s", `
  sessions:
    from: clicks
    steps:
      - window: {session: 10s}
      - group_by: [user]
      - aggregate: {n: count()}
`+fmt.Sprintf(sent, "sessions"))
	in := []enginetest.Input{
		{"clicks": {click("ann", 1, 0), click("ann", 1, 15), click("bob", 1, 3)}},
		{"clicks": {click("ann", 1, 8)}},
		{"clicks": {click("ann", 1, 25)}},
		{"clicks": {click("cem", 1, 60)}},
		{"clicks": {click("ann", 1, 34), click("ann", 1, 12), click("bob", 9, 21)}},
		{"clicks": {click("cem", 1, 200)}},
		{},
	}
	r := enginetest.Run(t, build(), in...)
	want(t, "sessions", texts(enginetest.State[spanned, int64](r, "sessions")), map[string]string{
		"ann 0-25": "4", "ann 25-44": "2", "bob 3-13": "1", "cem 60-70": "1", "cem 200-210": "1",
	})
	want(t, "sent", wasSent(r), map[string]string{"ann 0-25": "4 ", "ann 25-44": "2 ", "bob 3-13": "1 ", "cem 60-70": "1 "})
	if got := r.Rejected(); len(got) != 1 || got[0].Kind != "late" || got[0].Step != "sessions step 1 (window)" || got[0].Value != click("bob", 9, 21) ||
		!strings.HasPrefix(got[0].Cause, "row of clicks/clicks-0 at offset 8: ") {
		t.Errorf("turned away: %+v", got)
	}
	enginetest.Deterministic(t, build, in...)
}

// Two ways lead to the same windows of rows: they are counted off in the order of the records.
func TestWindowsOfRows(t *testing.T) {
	build := pipeline(t, "0s", `
  even:
    from: clicks
    steps:
      - filter: n % 2 == 0
  odd:
    from: clicks
    steps:
      - filter: n % 2 == 1
  fives:
    from: [odd, even]
    steps:
      - window: {count: 5}
      - group_by: [user]
      - aggregate: {values: collect(n)}
  threes:
    from: clicks
    steps:
      - window: {count: 3, every: 2}
      - group_by: [user]
      - aggregate: {values: collect(n)}
  full:
    from: threes
    steps:
      - group_by: [user]
      - aggregate: {windows: count(), last: max(window_end)}
`)
	var all []string
	for n := range 12 {
		all = append(all, click("ann", n, 0))
	}
	for _, size := range []int{1, 4, 12} {
		var in []enginetest.Input
		for part := range slices.Chunk(all, size) {
			in = append(in, enginetest.Input{"clicks": part})
		}
		r := enginetest.Run(t, build(), in...)
		want(t, "fives", texts(enginetest.State[spanned, []int64](r, "fives")), map[string]string{
			"ann 0-5": "[0 1 2 3 4]", "ann 5-10": "[5 6 7 8 9]", "ann 10-15": "[10 11]",
		})
		want(t, "threes", texts(enginetest.State[spanned, []int64](r, "threes")), map[string]string{
			"ann 0-3": "[0 1 2]", "ann 2-5": "[2 3 4]", "ann 4-7": "[4 5 6]", "ann 6-9": "[6 7 8]", "ann 8-11": "[8 9 10]", "ann 10-13": "[10 11]",
		})
		type full struct{ Windows, Last int64 }
		if got := enginetest.State[string, full](r, "full")["ann"]; got != (full{5, 11}) {
			t.Errorf("full: %+v", got)
		}
		if size == 4 {
			enginetest.Deterministic(t, build, in...)
		}
	}
}

// Windows over windows lose nothing, and updates go on as they come.
func TestStreamsOfAggregates(t *testing.T) {
	build := pipeline(t, "0s", `
  fives:
    from: clicks
    steps:
      - window: {tumbling: 5s}
      - group_by: [user]
      - aggregate: {n: count()}
  tens:
    from: fives
    steps:
      - window: {tumbling: 10s}
      - group_by: [user]
      - aggregate: {n: sum(n), first: min(window_start), last: max(window_end)}
  total:
    from: clicks
    steps:
      - group_by: [user]
      - aggregate: {n: count()}
        state: totals
  growth:
    from: total
    steps:
      - filter: n % 10 == 0
      - group_by: [user, n]
      - aggregate: {times: count()}
`+fmt.Sprintf(sent, "tens"))
	var all []string
	for i := range 30 {
		all = append(all, click("ann", 1, i))
	}
	all = append(all, click("ann", 1, 100))
	for _, size := range []int{1, 4, 31} {
		var in []enginetest.Input
		for part := range slices.Chunk(all, size) {
			in = append(in, enginetest.Input{"clicks": part})
		}
		in = append(in, enginetest.Input{})
		r := enginetest.Run(t, build(), in...)
		want(t, "sent", wasSent(r), map[string]string{"ann 0-10": "10 ", "ann 10-20": "10 ", "ann 20-30": "10 "})
		if got := r.Rejected(); len(got) > 0 {
			t.Errorf("turned away: %+v", got)
		}
		type key struct {
			User string
			N    int64
		}
		if got := enginetest.State[key, int64](r, "growth"); size == 1 && len(got) != 3 {
			t.Errorf("growth: %v", got)
		}
		if size == 4 {
			enginetest.Deterministic(t, build, in...)
		}
	}
}

// Windows of batch time, and days by the clocks of a zone.
func TestOtherClocks(t *testing.T) {
	build := pipeline(t, "0s", `
  taken:
    from: clicks
    steps:
      - window: {tumbling: 1h, by: batch}
      - group_by: [user]
      - aggregate: {n: count()}
        emit: updates
  last:
    from: taken
    steps:
      - group_by: [user]
      - aggregate: {n: max(n), starts: min(window_start)}
  days:
    from: clicks
    steps:
      - window: {tumbling: 1d, zone: Europe/Berlin}
      - group_by: [user]
      - aggregate: {n: count()}
`+fmt.Sprintf(sent, "days"))
	at := func(text string) int {
		v, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return int(v.Unix())
	}
	from, to := at("2025-03-29T23:00:00Z"), at("2025-03-30T22:00:00Z")
	in := []enginetest.Input{{"clicks": {click("ann", 1, from), click("ann", 1, to-1)}}, {"clicks": {click("ann", 1, to)}}, {}}
	r := enginetest.Run(t, build(), in...)
	want(t, "sent", wasSent(r), map[string]string{fmt.Sprintf("ann %d-%d", from, to): "2 "})
	type last struct {
		N      int64
		Starts time.Time
	}
	if got := enginetest.State[string, last](r, "last")["ann"]; got.N != 3 || !got.Starts.Equal(enginetest.Clock.Truncate(time.Hour)) {
		t.Errorf("last: %+v", got)
	}
	enginetest.Deterministic(t, build, in...)
}

func TestWindowsThatCannotBe(t *testing.T) {
	stream := func(window, rest string) string {
		return "  s:\n    from: clicks\n    steps:\n      - window: " + window + "\n      - group_by: [user]\n" + rest
	}
	const count = "      - aggregate: {n: count()}\n"
	for streams, want := range map[string]string{
		stream("{session: 10s, zone: Europe/Berlin}", count):                                          "p.yaml:14:32: zone is for tumbling and sliding windows",
		stream("{count: 10, late: l}", count):                                                         "late is for tumbling and sliding windows",
		stream("{sliding: 10s, every: 11s}", count):                                                   "p.yaml:14:39: every must be a duration above 0 of at most 10s, the windows' length",
		stream("{count: 3, every: 4}", count):                                                         "every must be a number of rows from 1 to 3, those of a window",
		stream("{tumbling: 10s, every: 5s}", count):                                                   "tumbling windows follow each other",
		stream("{tumbling: 1d, zone: Europe/Berln}", count):                                           `time zone "Europe/Berln"`,
		stream("{tumbling: 7h, zone: Europe/Berlin}", count):                                          "windows of a time zone are whole days or divide a day",
		stream("{tumbling: 1h, late: l}", count):                                                      "no stream begins at l",
		stream("{tumbling: 1h, late: clicks}", count):                                                 "the stream of late rows has the name of source clicks",
		stream("{sliding: 1h, every: 1m, offset: 2m}", count):                                         "the offset 2m must be less than every, 1m",
		stream("{tumbling: 1h, session: 1h}", count):                                                  "exclude each other",
		stream("{session: 1h}", "      - aggregate: {window_end: count()}\n"):                         "window_end is the name of the window's own column",
		stream("{session: 1h}", count+"        emit: closed\n"):                                       "no stream begins at s",
		"  s:\n    from: clicks\n    steps:\n      - aggregate: {n: count()}\n        emit: closed\n": "emit: closed needs a window",
		stream("{tumbling: 1h, by: batch}", count) +
			"  x:\n    from: s\n    steps:\n      - window: {session: 1h}\n      - aggregate: {n: count()}\n": "the rows of s have none",
	} { // order: each by itself
		_, err := spec.Parse("p.yaml", []byte(fmt.Sprintf(clicksHead, "0s")+streams), spec.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror %v, want %q", streams, err, want)
		}
	}
}
