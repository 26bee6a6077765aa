package exec

import (
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/txstate"
)

func TestWatermark(t *testing.T) {
	p := &plan.Plan{Sources: []*plan.Source{
		{ID: "a", Time: &plan.EventTime{Lateness: 10}},
		{ID: "b"},
	}}
	part := func(n int32) batch.Partition { return batch.Partition{Source: "a", Topic: "t", Number: n} }
	joined := func(ns ...int32) (all []batch.Position) {
		for _, n := range ns {
			all = append(all, batch.Position{Partition: part(n)})
		}
		return all
	}
	moved := func(ns ...int32) (all []batch.Range) {
		for _, n := range ns {
			all = append(all, batch.Range{Partition: part(n)})
		}
		return all
	}
	// Each step is a batch: what it carries, and the watermark that it leaves.
	steps := []struct {
		name string
		b    batch.Batch
		seen []int64
		want int64
	}{
		{"a partition that has shown no time holds it", batch.Batch{Joined: joined(0, 1), Ranges: moved(0)}, []int64{100}, txstate.NoTime},
		{"the least of both, less lateness", batch.Batch{Ranges: moved(1)}, []int64{50}, 40},
		{"it never falls", batch.Batch{Ranges: moved(1)}, []int64{30}, 40},
		{"it follows the slower one", batch.Batch{Ranges: moved(0, 1)}, []int64{300, 70}, 60},
		{"an idle partition doesn't hold it", batch.Batch{Ranges: moved(0), Idle: []batch.Partition{part(1)}}, []int64{400}, 390},
		{"one that wakes up behind it holds it where it is", batch.Batch{Ranges: moved(0, 1)}, []int64{500, 80}, 390},
		{"one that joins holds it", batch.Batch{Joined: joined(2), Ranges: moved(1)}, []int64{450}, 390},
		{"until it shows a time", batch.Batch{Ranges: moved(2)}, []int64{460}, 440},
		{"all idle: the largest of all", batch.Batch{Idle: []batch.Partition{part(0), part(1), part(2)}}, nil, 490},
	}
	ts := newTimes(p)
	for _, s := range steps {
		before := *ts
		next := ts.next(p, &s.b, s.seen)
		if got := next.marks[0]; got != s.want {
			t.Errorf("%s: watermark %d, want %d", s.name, got, s.want)
		}
		if next.marks[1] != txstate.NoTime {
			t.Errorf("%s: a source without event time has a watermark", s.name)
		}
		if ts.marks[0] != before.marks[0] {
			t.Errorf("%s: the batch before was changed", s.name)
		}
		ts = next
	}
	if got := ts.least([]int{0}); got != 490 {
		t.Errorf("least of a: %d", got)
	}
	if got := ts.least([]int{0, 1}); got != txstate.NoTime {
		t.Errorf("least of a and b: %d", got)
	}
	if got := ts.least(nil); got != txstate.NoTime {
		t.Errorf("least of nothing: %d", got)
	}
}

// The digests are part of the ledger's format.
func TestDigestGolden(t *testing.T) {
	in := newInput()
	in.add([]batch.Record{
		{Offset: 7, Timestamp: 1700000000000, Key: []byte("k"), Value: []byte("v"), Headers: []batch.Header{{Key: "h", Value: []byte("x")}, {Key: "n"}}},
		{Offset: 9, Value: []byte{}},
	})
	got := in.result()
	if want := (batch.Input{Records: 2, Bytes: 3, Digest: 0xdbae6f3035c83bc3}); got != want {
		t.Errorf("input %+v, want %+v (digest %#x)", got, want, got.Digest)
	}
	e := &txstate.Entry{
		Txid: 3, Time: time.UnixMilli(1700000000000), Seed: 5,
		Ranges:  []txstate.RangeEntry{{Range: batch.Range{Partition: batch.Partition{Source: "s", Topic: "t", Number: 1}, Start: 7, End: 10}, Input: got}},
		States:  []txstate.StateDigest{{State: "a", Writes: 2, Digest: 11}},
		Statics: []txstate.StaticVersion{{Name: "tab", Digest: 12}},
	}
	if got, want := chainOf(1, e), uint64(0x9498cb3ade676ad4); got != want {
		t.Errorf("chain %#x, want %#x", got, want)
	}
}

func TestDigestTellsNullFromEmptyAndOrder(t *testing.T) {
	of := func(recs ...batch.Record) uint64 {
		in := newInput()
		in.add(recs)
		return in.result().Digest
	}
	null, empty := of(batch.Record{}), of(batch.Record{Value: []byte{}})
	if null == empty {
		t.Error("a null value and an empty one have one digest")
	}
	a, b := batch.Record{Offset: 1, Value: []byte("a")}, batch.Record{Offset: 2, Value: []byte("b")}
	if of(a, b) == of(b, a) {
		t.Error("the order of records doesn't show")
	}
	if of(a) == of(a, a) {
		t.Error("a record read twice doesn't show")
	}
}
