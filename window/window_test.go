package window_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/window"
)

func TestStart(t *testing.T) {
	for _, c := range []struct {
		at           string
		size, offset time.Duration
		want         string
	}{
		{"2013-01-01T23:59:59.999999999Z", 24 * time.Hour, 0, "2013-01-01T00:00:00Z"},
		{"2013-01-02T00:00:00Z", 24 * time.Hour, 0, "2013-01-02T00:00:00Z"},
		{"1969-12-31T23:59:30Z", time.Minute, 0, "1969-12-31T23:59:00Z"},
		{"1969-12-31T23:59:00Z", time.Minute, 0, "1969-12-31T23:59:00Z"},
		{"1969-12-31T23:58:59.9Z", time.Minute, 0, "1969-12-31T23:58:00Z"},
		{"2026-03-29T04:59:59Z", 24 * time.Hour, 5 * time.Hour, "2026-03-28T05:00:00Z"},
		{"2026-03-29T05:00:00Z", 24 * time.Hour, 5 * time.Hour, "2026-03-29T05:00:00Z"},
		{"1969-12-31T23:59:50Z", time.Minute, 55 * time.Second, "1969-12-31T23:58:55Z"},
	} {
		at, err := time.Parse(time.RFC3339Nano, c.at)
		if err != nil {
			t.Fatal(err)
		}
		got := time.Unix(0, window.Tumbling(c.size).Offset(c.offset).Start(at.UnixNano())).UTC().Format(time.RFC3339Nano)
		if got != c.want {
			t.Errorf("%s in windows of %s + %s: %s, want %s", c.at, c.size, c.offset, got, c.want)
		}
	}
}

// TestStartIsTheFloor compares to integers of any size.
func TestStartIsTheFloor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nanos := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, -1, 0, math.MaxInt64})).Draw(t, "nanos")
		size := rapid.OneOf(rapid.Int64Range(1, math.MaxInt64), rapid.Int64Range(1, 100)).Draw(t, "size")
		offset := rapid.Int64Range(0, size-1).Draw(t, "offset")
		n, s, o := big.NewInt(nanos), big.NewInt(size), big.NewInt(offset)
		// Div of a positive divisor rounds towards minus infinity.
		want := new(big.Int).Sub(n, o)
		want.Div(want, s).Mul(want, s).Add(want, o)
		got := window.Start(nanos, size, offset)
		if !want.IsInt64() {
			if got != math.MinInt64 {
				t.Fatalf("start %d, want the least", got)
			}
			return
		}
		if got != want.Int64() {
			t.Fatalf("start %d, want %s", got, want)
		}
	})
}

func TestValidate(t *testing.T) {
	for _, w := range []window.Windows{
		{}, window.Tumbling(0), window.Tumbling(-time.Hour), window.Tumbling(time.Hour).Offset(time.Hour), window.Tumbling(time.Hour).Offset(-1),
	} {
		if w.Validate() == nil {
			t.Errorf("%v is taken", w)
		}
	}
	w := window.Tumbling(time.Hour).Offset(time.Minute)
	if err := w.Validate(); err != nil || w.Size() != int64(time.Hour) || w.OffsetNanos() != int64(time.Minute) {
		t.Errorf("%v: %v", w, err)
	}
}
