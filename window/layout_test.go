package window_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/window"
)

func nanos(t *testing.T, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixNano()
}

func text(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

func TestSlidingStarts(t *testing.T) {
	w := window.Sliding(1500*time.Millisecond, 400*time.Millisecond)
	for _, c := range []struct {
		at   int64
		want []int64
	}{
		{1764590000123, []int64{1764589998800, 1764589999200, 1764589999600, 1764590000000}},
		{0, []int64{-1200, -800, -400, 0}},
		{-1, []int64{-1200, -800, -400}},
		{299, []int64{-1200, -800, -400, 0}},
		{300, []int64{-800, -400, 0}},
		{-1500, []int64{-2800, -2400, -2000, -1600}},
	} {
		got := w.Starts(c.at * int64(time.Millisecond))
		for i := range got {
			got[i] /= int64(time.Millisecond)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d ms lies in windows that begin at %v, want %v", c.at, got, c.want)
		}
	}
}

// TestSlidingStartsAreAllThatHold goes through all starts near a time.
func TestSlidingStartsAreAllThatHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 60).Draw(t, "size")
		slide := rapid.Int64Range(1, size).Draw(t, "slide")
		offset := rapid.Int64Range(0, slide-1).Draw(t, "offset")
		at := rapid.Int64Range(-500, 500).Draw(t, "at")
		w := window.Sliding(time.Duration(size), time.Duration(slide)).Offset(time.Duration(offset))
		if err := w.Validate(); err != nil {
			t.Fatal(err)
		}
		var want []int64
		for k := int64(-600); k <= 600; k++ {
			if start := k*slide + offset; start <= at && at < start+size {
				want = append(want, start)
			}
		}
		slices.Sort(want)
		if got := w.Starts(at); !slices.Equal(got, want) {
			t.Fatalf("%d lies in %v, want %v", at, got, want)
		}
	})
}

func TestSlidingAtTheEndsOfTime(t *testing.T) {
	w := window.Sliding(time.Hour, time.Hour/4)
	if got := w.Starts(math.MinInt64 + 5); len(got) != 1 || got[0] != math.MinInt64 {
		t.Errorf("the earliest time lies in %v", got)
	}
	got := w.Starts(math.MaxInt64 - 5)
	if len(got) != 4 {
		t.Errorf("the latest time lies in %v", got)
	}
	for _, s := range got {
		if e := w.End(s); e != math.MaxInt64 && e-s != int64(time.Hour) {
			t.Errorf("the window that begins at %d ends at %d", s, e)
		}
	}
}

func TestZone(t *testing.T) {
	const hour = time.Hour
	for _, c := range []struct {
		w              window.Windows
		at, start, end string
	}{
		// Clocks go forward in the night to 2026-03-29, back in that to 2026-10-25.
		{window.Tumbling(24 * hour).Zone("Europe/Berlin"), "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{window.Tumbling(24 * hour).Zone("Europe/Berlin"), "2026-03-28T22:59:59Z", "2026-03-27T23:00:00Z", "2026-03-28T23:00:00Z"},
		{window.Tumbling(24 * hour).Zone("Europe/Berlin"), "2026-03-29T22:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"},
		{window.Tumbling(24 * hour).Zone("Europe/Berlin"), "2026-10-25T00:30:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{window.Tumbling(24 * hour), "2026-03-29T12:00:00Z", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"},
		// Days from 06:00.
		{window.Tumbling(24 * hour).Offset(6 * hour).Zone("Europe/Berlin"), "2026-03-29T01:30:00Z", "2026-03-28T05:00:00Z", "2026-03-29T04:00:00Z"},
		// The hour from 02:00 is left out, and comes twice.
		{window.Tumbling(hour).Zone("Europe/Berlin"), "2026-03-29T00:59:59Z", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"},
		{window.Tumbling(hour).Zone("Europe/Berlin"), "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"},
		{window.Tumbling(hour).Zone("Europe/Berlin"), "2026-10-25T01:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"},
		{window.Tumbling(hour / 2).Zone("Europe/Berlin"), "2026-10-25T01:10:00Z", "2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z"},
		// A day that begins at 01:00, one that Samoa left out, and one before 1970.
		{window.Tumbling(24 * hour).Zone("America/Sao_Paulo"), "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{window.Tumbling(24 * hour).Zone("Pacific/Apia"), "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{window.Tumbling(24 * hour).Zone("Pacific/Apia"), "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{window.Tumbling(24 * hour).Zone("America/New_York"), "1969-12-31T23:59:30Z", "1969-12-31T05:00:00Z", "1970-01-01T05:00:00Z"},
	} {
		at := nanos(t, c.at)
		start := c.w.Start(at)
		if got := c.w.Starts(at); len(got) != 1 || got[0] != start {
			t.Errorf("%v: %s lies in %v, and in the one that begins at %d", c.w, c.at, got, start)
		}
		if text(start) != c.start || text(c.w.End(start)) != c.end {
			t.Errorf("%v: %s lies in the window from %s to %s, want %s to %s", c.w, c.at, text(start), text(c.w.End(start)), c.start, c.end)
		}
	}
}

func TestSlidingDaysInAZone(t *testing.T) {
	w := window.Sliding(7*24*time.Hour, 24*time.Hour).Zone("Europe/Berlin")
	got := w.Starts(nanos(t, "2026-03-31T12:00:00Z"))
	if len(got) != 7 || text(got[0]) != "2026-03-24T23:00:00Z" || text(got[6]) != "2026-03-30T22:00:00Z" {
		t.Errorf("%d windows", len(got))
	}
	if end := w.End(got[0]); text(end) != "2026-03-31T22:00:00Z" {
		t.Errorf("it ends at %s", text(end))
	}
}

// TestZonedWindowsCoverAllTimes: each time lies in the windows that it is said to lie in, and tumbling windows follow each other
// without a gap, whatever zone, and whatever is asked before.
func TestZonedWindowsCoverAllTimes(t *testing.T) {
	zones := []string{"Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo", "Africa/Cairo", "America/Juneau", "UTC"}
	rapid.Check(t, func(t *rapid.T) {
		zone, err := window.LoadZone(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		const day = int64(24 * time.Hour)
		l := window.Layout{Zone: zone}
		l.Size = rapid.SampledFrom([]int64{day, 7 * day, day / 4, day / 24, day / 48}).Draw(t, "size")
		if rapid.Bool().Draw(t, "sliding") {
			l.Slide = l.Size
			if l.Size == 7*day {
				l.Slide = day
			}
		}
		fresh := l
		for range 20 {
			at := rapid.Int64Range(-day*365*60, day*365*60).Draw(t, "at")
			if rapid.Bool().Draw(t, "near a change") {
				if _, to := time.Unix(0, at).In(zone).ZoneBounds(); !to.IsZero() {
					at = to.UnixNano() + rapid.Int64Range(-int64(3*time.Hour), int64(3*time.Hour)).Draw(t, "off")
				}
			}
			starts := l.Starts(nil, at)
			plain := fresh
			if again := plain.Starts(nil, at); !slices.Equal(starts, again) {
				t.Fatalf("%s lies in %v, if nothing is asked before in %v", text(at), starts, again)
			}
			if len(starts) == 0 || !slices.IsSorted(starts) || starts[len(starts)-1] != l.Start(at) {
				t.Fatalf("%s lies in %v, and in %d", text(at), starts, l.Start(at))
			}
			for _, s := range starts {
				if end := l.End(s); s > at || end <= at {
					t.Fatalf("%s lies in the window from %s to %s", text(at), text(s), text(end))
				}
			}
			if l.Slide == 0 {
				end := l.End(starts[0])
				if next := l.Start(end); len(starts) != 1 || next != end || l.Start(end-1) != starts[0] {
					t.Fatalf("behind the window from %s to %s begins one at %s", text(starts[0]), text(end), text(next))
				}
			}
		}
	})
}

func TestShapesAreValidated(t *testing.T) {
	day := 24 * time.Hour
	for _, w := range []window.Windows{
		window.Sliding(time.Hour, 0), window.Sliding(time.Hour, -1), window.Sliding(time.Hour, 2*time.Hour), window.Sliding(time.Hour, time.Minute).Offset(time.Minute),
		window.Session(0), window.Session(time.Hour).Offset(1), window.Session(time.Hour).Zone("UTC"), window.Session(time.Hour).ByBatchTime(),
		window.Count(0), window.SlidingCount(5, 6), window.SlidingCount(5, 0), window.Count(5).Zone("UTC"), window.Count(5).ByBatchTime(),
		window.Tumbling(day).Zone("Berlin"), window.Tumbling(day).Zone("Local"), window.Tumbling(7 * time.Hour).Zone("Europe/Berlin"),
		window.Sliding(day, 5*time.Hour).Zone("Europe/Berlin"),
	} {
		if w.Validate() == nil {
			t.Errorf("%v is taken", w)
		}
	}
	for want, w := range map[string]window.Windows{
		"sliding 1h0m0s, every 7m0s, offset 1m0s": window.Sliding(time.Hour, 7*time.Minute).Offset(time.Minute),
		"session 30m0s":    window.Session(30 * time.Minute),
		"count 5":          window.Count(5),
		"count 5, every 2": window.SlidingCount(5, 2),
		"tumbling 24h0m0s, zone Europe/Berlin, by batch time": window.Tumbling(day).Zone("Europe/Berlin").ByBatchTime(),
	} { // order: each by itself
		if err := w.Validate(); err != nil || w.String() != want {
			t.Errorf("%v: %v, want %s", w, err, want)
		}
	}
}
