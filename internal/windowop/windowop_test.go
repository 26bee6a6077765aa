package windowop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
)

// Cells of these tests are lists of bytes, one for each value.
var lists = Aggregate{
	Merge:  func(dst, a, b []byte) ([]byte, error) { return append(append(dst, a...), b...), nil },
	Update: func(dst, old, delta []byte) ([]byte, error) { return append(append(dst, old...), delta...), nil },
}

// world holds what an operator keeps of one key, and what it has made.
type world struct {
	t     interface{ Fatalf(string, ...any) }
	op    func() plan.Operator
	kept  []byte
	rows  map[string]string
	sent  []string
	late  []string
	batch int
}

func (w *world) run(now int64, deltas ...[]byte) {
	op := w.op() // what it knows lies in the state
	if len(deltas) == 0 && (w.kept == nil || op.Wake(w.kept) > now || op.Wake(w.kept) == plan.NoWake) {
		return
	}
	w.batch++
	c := &plan.KeyContext{
		Batch: &batch.Batch{}, Now: now,
		Put:    func(key, val []byte) { w.rows[windowOf(key)] = string(val) },
		Delete: func(key []byte) { delete(w.rows, windowOf(key)) },
		Reject: func(r plan.Rejected) { w.late = append(w.late, string(r.Value)) },
		Emit: func(b []byte) error {
			r, err := ReadRow(b)
			if err != nil {
				return err
			}
			if r.Kind == Final {
				w.sent = append(w.sent, fmt.Sprintf("%d-%d %q", r.Start, r.End, r.Cells))
			}
			return nil
		},
	}
	val, keep, err := op.Key(c, []byte("k"), w.kept, deltas)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	if w.kept = nil; keep {
		if wake := op.Wake(val); wake != plan.NoWake && wake <= now {
			w.t.Fatalf("at %d it wants to be woken at %d", now, wake)
		}
		w.kept = bytes.Clone(val)
	}
}

func windowOf(key []byte) string {
	start, rest, err := value.DecodeKey(key)
	if err != nil {
		panic(err)
	}
	end, rest, err := value.DecodeKey(rest)
	if err != nil || string(rest) != "k" {
		panic(fmt.Sprintf("%q %v", rest, err))
	}
	if start.Kind() == value.Int {
		return fmt.Sprintf("%d-%d", start.Int(), end.Int())
	}
	return fmt.Sprintf("%d-%d", start.Nanos(), end.Nanos())
}

// naive is what a session is: values, of which each but the first comes less than a gap after one of the others.
type naive struct {
	times map[int64]int // how many values there are of a time
	text  []byte
}

func (n *naive) span(gap int64) (start, end int64) {
	all := slices.Sorted(maps.Keys(n.times))
	return all[0], all[len(all)-1] + gap
}

// TestSessionIsAsSaid compares with what the documentation says, value by value.
func TestSessionIsAsSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gap := rapid.Int64Range(1, 6).Draw(t, "gap")
		w := &world{t: t, rows: map[string]string{}, op: func() plan.Operator {
			return &Session{Aggregate: lists, Gap: gap, Retention: math.MaxInt64, Emit: plan.EmitCloses}
		}}
		var open []*naive
		rows := map[string]string{}
		var sent, late []string
		now := int64(plan.NoWake)
		id := byte('a')
		take := func(at int64, name byte) {
			joined := &naive{times: map[int64]int{}}
			var rest []*naive
			for _, s := range open {
				if start, end := s.span(gap); at < end && start < at+gap {
					for k, v := range s.times { // order: sums
						joined.times[k] += v
					}
					joined.text = append(joined.text, s.text...)
					delete(rows, fmt.Sprintf("%d-%d", start, end))
				} else {
					rest = append(rest, s)
				}
			}
			joined.times[at]++
			joined.text = append(joined.text, name)
			open = append(rest, joined)
			slices.SortFunc(open, func(a, b *naive) int { x, _ := a.span(gap); y, _ := b.span(gap); return int(x - y) })
			start, end := joined.span(gap)
			rows[fmt.Sprintf("%d-%d", start, end)] = string(joined.text)
		}
		for range rapid.IntRange(1, 8).Draw(t, "batches") {
			var deltas [][]byte
			type one struct {
				at   int64
				name byte
			}
			var mayBeLate []one
			for range rapid.IntRange(0, 5).Draw(t, "values") {
				v := one{rapid.Int64Range(-20, 20).Draw(t, "at"), id}
				id++
				d := Delta{Time: v.at, Cells: []byte{v.name}}
				if v.at+gap <= now {
					d.Origin = &Origin{Value: []byte{v.name}}
					mayBeLate = append(mayBeLate, v)
				} else {
					take(v.at, v.name)
				}
				deltas = append(deltas, AppendDelta(nil, &d))
			}
			for _, v := range mayBeLate {
				if slices.ContainsFunc(open, func(s *naive) bool { start, end := s.span(gap); return v.at < end && start < v.at+gap }) {
					take(v.at, v.name)
				} else {
					late = append(late, string(v.name))
				}
			}
			var still []*naive
			for _, s := range open {
				if start, end := s.span(gap); end <= now {
					sent = append(sent, fmt.Sprintf("%d-%d %q", start, end, s.text))
				} else {
					still = append(still, s)
				}
			}
			open = still
			w.run(now, deltas...)
			if !maps.Equal(w.rows, rows) || !slices.Equal(w.sent, sent) || !slices.Equal(w.late, late) {
				t.Fatalf("watermark %d, gap %d: rows %v, sent %q, late %q; want %v, %q, %q", now, gap, w.rows, w.sent, w.late, rows, sent, late)
			}
			if next := rapid.Int64Range(-25, 25).Draw(t, "watermark"); next > now {
				now = next
			}
		}
	})
}

// Values that come when nothing has closed make the same sessions in any order.
func TestSessionsDoNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.Int64Range(-50, 50), 1, 20).Draw(t, "times")
		run := func(order []int64, size int) map[string]int {
			w := &world{t: t, rows: map[string]string{}, op: func() plan.Operator { return &Session{Aggregate: lists, Gap: 5} }}
			for part := range slices.Chunk(order, size) {
				var deltas [][]byte
				for _, at := range part {
					deltas = append(deltas, AppendDelta(nil, &Delta{Time: at, Cells: []byte{'x'}}))
				}
				w.run(plan.NoWake, deltas...)
			}
			counts := map[string]int{}
			for k, v := range w.rows { // order: each by itself
				counts[k] = len(v)
			}
			return counts
		}
		want := run(times, len(times))
		other := rapid.Permutation(times).Draw(t, "order")
		if got := run(other, rapid.IntRange(1, len(times)).Draw(t, "size")); !maps.Equal(got, want) {
			t.Fatalf("%v, in the other order %v", want, got)
		}
	})
}

// TestCountIsAsSaid counts off a list.
func TestCountIsAsSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 6).Draw(t, "n")
		every := rapid.Int64Range(1, n).Draw(t, "every")
		w := &world{t: t, rows: map[string]string{}, op: func() plan.Operator {
			return &Count{Aggregate: lists, N: n, Every: every, Retention: math.MaxInt64, Emit: plan.EmitCloses}
		}}
		all := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 1, 40, -1).Draw(t, "values")
		for rest := all; rest != ""; {
			size := rapid.IntRange(1, len(rest)).Draw(t, "size")
			var deltas [][]byte
			for _, c := range []byte(rest[:size]) {
				deltas = append(deltas, []byte{c})
			}
			w.run(0, deltas...)
			rest = rest[size:]
		}
		rows := map[string]string{}
		var sent []string
		for start := int64(0); start < int64(len(all)); start += every {
			part := all[start:min(start+n, int64(len(all)))]
			rows[fmt.Sprintf("%d-%d", start, start+n)] = part
			if int64(len(part)) == n {
				sent = append(sent, fmt.Sprintf("%d-%d %q", start, start+n, part))
			}
		}
		if !maps.Equal(w.rows, rows) || !slices.Equal(w.sent, sent) {
			t.Fatalf("rows %v, sent %q; want %v, %q", w.rows, w.sent, rows, sent)
		}
	})
}

// The rows of closed windows of values go after their retention, up to a grain of it later; the numbers go on.
func TestRetentionOfCount(t *testing.T) {
	const retention = 32_000
	w := &world{t: t, rows: map[string]string{}, op: func() plan.Operator {
		return &Count{Aggregate: lists, N: 2, Every: 2, Retention: retention}
	}}
	step := func(now int64, values string, want ...string) {
		t.Helper()
		var deltas [][]byte
		for _, c := range []byte(values) {
			deltas = append(deltas, []byte{c})
		}
		w.run(now, deltas...)
		var got []string
		for k, v := range w.rows { // order: sorted below
			got = append(got, k+" "+v)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("at %d: %q, want %q", now, got, want)
		}
	}
	step(100, "abcde", "0-2 ab", "2-4 cd", "4-6 e")
	step(900, "f", "0-2 ab", "2-4 cd", "4-6 ef")
	step(1500, "gh", "0-2 ab", "2-4 cd", "4-6 ef", "6-8 gh")
	if got := len(w.kept); got > 32 {
		t.Errorf("%d bytes are kept of four closed windows", got)
	}
	step(100+retention, "", "0-2 ab", "2-4 cd", "4-6 ef", "6-8 gh")
	step(1000+retention, "", "6-8 gh")
	step(2000+retention, "")
	step(2000+retention, "i", "8-10 i")
}

func TestGarbledValuesAreRefused(t *testing.T) {
	session := &Session{Aggregate: lists, Gap: 1}
	if err := session.load(binary.AppendUvarint(nil, 1<<40)); err == nil {
		t.Error("a session's value that is cut off is taken")
	}
	if err := session.load([]byte{0, 0, 7}); err == nil || !strings.Contains(err.Error(), "follow") {
		t.Errorf("a session's value with something behind it: %v", err)
	}
	count := &Count{Aggregate: lists, N: 1, Every: 1}
	if err := count.load([]byte{2, 9}); err == nil {
		t.Error("a count's value that is cut off is taken")
	}
	if _, err := readDelta([]byte{1, 2}); err == nil {
		t.Error("a delta that is cut off is taken")
	}
	if _, err := ReadRow(nil); err == nil {
		t.Error("a row that is cut off is taken")
	}
	rapid.Check(t, func(t *rapid.T) { // nothing panics
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		session.Wake(b)
		count.Wake(b)
		_ = session.load(b)
		_ = count.load(b)
		_, _ = readDelta(b)
		_, _ = ReadRow(b)
	})
}
