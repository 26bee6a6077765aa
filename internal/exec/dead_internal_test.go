package exec

import (
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/sink/deadletter"
)

// TestTally adds batches and looks at what counts, by their clocks alone.
func TestTally(t *testing.T) {
	limit := plan.DeadLimit{Within: time.Hour}
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var ta tally
	var sums [][2]int64
	for _, b := range []struct {
		at           time.Duration
		bad, records int64
	}{
		{0, 1, 100},
		{30 * time.Second, 2, 100}, // the same minute
		{time.Minute, 0, 50},
		{59*time.Minute + 59*time.Second, 4, 10},
		{time.Hour, 8, 10},       // the first minute is over
		{61 * time.Minute, 0, 0}, // without a record nothing is noted
		{5 * time.Hour, 16, 20},
	} {
		was := append(tally{}, ta...)
		after, sum := ta.add(limit, noon.Add(b.at), b.bad, b.records)
		for i := range was {
			if ta[i] != was[i] {
				t.Fatalf("the tally of the batch before has been changed: %v, was %v", ta, was)
			}
		}
		ta = after
		sums = append(sums, [2]int64{sum.bad, sum.records})
	}
	want := [][2]int64{{1, 100}, {3, 200}, {3, 250}, {7, 260}, {12, 70}, {12, 20}, {16, 20}}
	for i := range want {
		if sums[i] != want[i] {
			t.Errorf("batch %d: %v, want %v", i+1, sums[i], want[i])
		}
	}
	if len(ta) != 1 || ta[0] != (counted{noon.Add(5 * time.Hour).UnixNano(), 16, 20}) {
		t.Errorf("what is left: %v", ta)
	}
}

func TestOverLimit(t *testing.T) {
	last := &deadletter.Letter{Partition: batch.Partition{Source: "in", Topic: "orders", Number: 2}, Offset: 41, Step: "decode", Cause: "no JSON"}
	for _, c := range []struct {
		limit        plan.DeadLimit
		bad, records int64
		want         string // in the error; empty: none
	}{
		{plan.DeadLimit{}, 1000, 1_000_000, ""},
		{plan.DeadLimit{}, 1001, 1_000_000, "1001 of 1000000 records within 1h0m0s of batch time would be dead letters, the limit is 1000; the cause of the last: no JSON"},
		{plan.DeadLimit{}, 10, 10, ""},
		{plan.DeadLimit{}, 11, 1100, ""},
		{plan.DeadLimit{}, 11, 1099, "the limit is 1%"},
		{plan.DeadLimit{Share: 0.005, Within: time.Minute}, 1_000_000, 200_000_000, ""},
		{plan.DeadLimit{Share: 0.005, Within: time.Minute}, 1_000_001, 200_000_000, "1000001 of 200000000 records within 1m0s of batch time would be dead letters, the limit is 0.5%"},
		{plan.DeadLimit{Count: 3}, 3, 3, ""},
		{plan.DeadLimit{Count: 3}, 4, 1000, "the limit is 3;"},
	} {
		err := overLimit(c.limit.WithDefaults(), counted{0, c.bad, c.records}, last)
		switch {
		case err == nil && c.want == "":
		case err == nil || c.want == "":
			t.Errorf("%+v, %d of %d: %v, want %q", c.limit, c.bad, c.records, err, c.want)
		case !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "raise dead_letters.limit") || batch.KindOf(err) != batch.Permanent || batch.CodeOf(err) != batch.CodeDeadLetters:
			t.Errorf("%+v, %d of %d: %v", c.limit, c.bad, c.records, err)
		}
	}
}
