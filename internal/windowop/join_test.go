package windowop

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
)

// joinWorld runs a Join on one key.
type joinWorld struct {
	t    *rapid.T
	op   Join
	kept []byte
	sent []string
}

func (w *joinWorld) run(now int64, deltas ...[]byte) {
	op := w.op // what it knows lies in the state
	if len(deltas) == 0 && (w.kept == nil || op.Wake(w.kept) > now) {
		return
	}
	c := &plan.KeyContext{Batch: &batch.Batch{}, Now: now, Emit: func(b []byte) error {
		j, err := ReadJoined(b)
		if err != nil {
			return err
		}
		w.sent = append(w.sent, fmt.Sprintf("%q %q at %d", j.Rows[0], j.Rows[1], j.Time))
		return nil
	}}
	val, keep, err := op.Key(c, []byte("k"), w.kept, deltas)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	if w.kept = nil; !keep {
		return
	}
	w.kept = slices.Clone(val)
	if wake := op.Wake(val); wake <= now {
		w.t.Fatalf("at %d it wants to be woken at %d", now, wake)
	}
}

// However rows that aren't late are cut into batches, those meet that lie near each other, and the others are told of once none can come
// any more, not before.
func TestJoinAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &joinWorld{t: t, op: Join{
			Within: rapid.Int64Range(0, 6).Draw(t, "within"), Pairs: rapid.Bool().Draw(t, "pairs"),
			Alone: [2]bool{rapid.Bool().Draw(t, "alone 0"), rapid.Bool().Draw(t, "alone 1")},
		}}
		type row struct {
			side int
			time int64
			text string
		}
		var rows []row
		now := int64(math.MinInt64)
		alone := func(before int64) (all []string) {
			for _, r := range rows {
				if !w.op.Alone[r.side] || r.time+w.op.Within >= before {
					continue
				}
				if slices.ContainsFunc(rows, func(s row) bool { return s.side != r.side && max(s.time-r.time, r.time-s.time) <= w.op.Within }) {
					continue
				}
				texts := [2]string{}
				texts[r.side] = r.text
				all = append(all, fmt.Sprintf("%q %q at %d", texts[0], texts[1], r.time+w.op.Within))
			}
			return all
		}
		for n := range rapid.IntRange(1, 6).Draw(t, "batches") {
			var deltas [][]byte
			for i := range rapid.IntRange(0, 5).Draw(t, "rows") {
				r := row{side: rapid.IntRange(0, 1).Draw(t, "side"), text: fmt.Sprintf("%d.%d", n, i)}
				r.time = rapid.Int64Range(max(now, 0), max(now, 0)+10).Draw(t, "time")
				rows = append(rows, r)
				deltas = append(deltas, AppendJoinDelta(nil, r.side, r.time, []byte(r.text)))
			}
			w.run(now, deltas...)
			var got []string
			for _, s := range w.sent {
				if strings.Contains(s, `""`) {
					got = append(got, s)
				}
			}
			want := alone(now)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("alone by %d: %q, want %q", now, got, want)
			}
			now = max(now, 0) + rapid.Int64Range(0, 5).Draw(t, "step")
		}
		w.run(1000)
		if w.kept != nil {
			t.Fatalf("rows still wait: %x", w.kept)
		}
		want := alone(1000)
		for _, r := range rows {
			for _, s := range rows {
				if w.op.Pairs && r.side == 0 && s.side == 1 && max(s.time-r.time, r.time-s.time) <= w.op.Within {
					want = append(want, fmt.Sprintf("%q %q at %d", r.text, s.text, max(r.time, s.time)))
				}
			}
		}
		slices.Sort(w.sent)
		slices.Sort(want)
		if !slices.Equal(w.sent, want) {
			t.Fatalf("sent %q, want %q", w.sent, want)
		}
	})
}

// A join without pairs keeps no row that has met another, and one of those of a time that can only be met.
func TestJoinForgetsWhatItDoesNotNeed(t *testing.T) {
	op := Join{Within: 5, Alone: [2]bool{true, false}}
	c := &plan.KeyContext{Batch: &batch.Batch{}, Now: 0, Emit: func([]byte) error { return nil }}
	val, keep, err := op.Key(c, nil, nil, [][]byte{
		AppendJoinDelta(nil, 0, 10, []byte("met")), AppendJoinDelta(nil, 1, 12, nil), AppendJoinDelta(nil, 1, 12, nil), AppendJoinDelta(nil, 0, 30, []byte("waits")),
	})
	if err != nil || !keep {
		t.Fatal(keep, err)
	}
	if err := op.load(val); err != nil {
		t.Fatal(err)
	}
	if len(op.kept) != 2 || op.kept[0].side != 1 || string(op.kept[1].wire) != "waits" {
		t.Errorf("kept: %+v", op.kept)
	}
}

// What lies in a store may be damaged: it is an error, and no panic.
func TestJoinOfDamagedRows(t *testing.T) {
	op := Join{Within: 5, Pairs: true}
	c := &plan.KeyContext{Batch: &batch.Batch{}, Emit: func([]byte) error { return nil }}
	val, _, err := op.Key(c, nil, nil, [][]byte{AppendJoinDelta(nil, 0, 10, []byte("row"))})
	if err != nil {
		t.Fatal(err)
	}
	val = slices.Clone(val)
	for n := 1; n < len(val); n++ {
		if _, _, err := op.Key(c, nil, val[:n], nil); err == nil {
			t.Errorf("%d of %d bytes were taken", n, len(val))
		}
		op.Wake(val[:n])
	}
	for _, b := range [][]byte{{}, {0}, {2, 0}, {9}} {
		if _, _, err := op.Key(c, nil, nil, [][]byte{b}); err == nil {
			t.Errorf("delta %x was taken", b)
		}
	}
	for _, b := range [][]byte{{}, {3}, {3, 0}, {3, 0, 9}} {
		if _, err := ReadJoined(b); err == nil {
			t.Errorf("row %x was taken", b)
		}
	}
}
