package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
)

// BatchSort brings the values of each batch into the order of compare, which is as in slices.SortFunc: equal ones stay as they came, by source id,
// topic, partition and offset. One task takes all of them; they keep their event times. If compare panics, none of the batch's values are
// handed on, and they count as one bad row. The type must be of exported fields throughout.
func (s Stream[T]) BatchSort(compare func(a, b T) int) Stream[T] {
	return arrange(s, "batch_sort", 0, func(t *rowsTask[T], vals []T, rows []row) []row {
		sorted := slices.Clone(rows)
		if !t.rc.guard(t.stage.Name, func() {
			slices.SortStableFunc(sorted, func(a, b row) int { return compare(vals[a.at], vals[b.at]) })
		}) {
			return nil
		}
		return sorted
	})
}

// BatchSortBy brings the values of each batch into the order of by, the least first: of equals the first stays first. NaN is less than any
// number.
func BatchSortBy[N cmp.Ordered, T any](s Stream[T], by func(T) N) Stream[T] {
	return s.BatchSort(func(a, b T) int { return cmp.Compare(by(a), by(b)) })
}

// BatchLimit hands on the first n values of each batch and drops the others. Behind a BatchSort these are the least n, else the first by
// source id, topic, partition and offset. The type must be of exported fields throughout.
func (s Stream[T]) BatchLimit(n int) Stream[T] {
	kind := fmt.Sprintf("batch_limit of %d", n)
	if n < 1 {
		s.p.errorf("%s: one value at least must pass", kind)
		return s
	}
	return arrange(s, kind, n, func(t *rowsTask[T], _ []T, rows []row) []row { return first(t, rows, n) })
}

// BatchLimitBy hands on the first n values of each group of each batch and drops the others. Groups come in the order of shards and keys.
func BatchLimitBy[K comparable, T any](g Grouped[K, T], n int) Stream[T] {
	p := g.s.p
	out, e, index := rowsStage[T](p, fmt.Sprintf("batch_limit of %d", n), " by key")
	after(&out, g.s)
	wire, err := value.WireOf[T]()
	switch {
	case n < 1:
		p.errorf("batch_limit of %d: one value at least must pass", n)
		return out
	case g.windows != nil:
		p.errorf("batch_limit of %d: it counts within a batch, and its stream can't be windowed", n)
		return out
	case g.codec == nil:
		return out // GroupBy has said why
	case err != nil:
		p.errorf("batch_limit of %d: %w", n, err)
		return out
	}
	sendRows(g.s, e, index, 0, 0, wire, func(b *builder) placer[T] {
		return limited(b, n, byKey(g)(b))
	})
	e.Next = func() plan.StageTask {
		vals := &sideOf[T]{wire: wire}
		t := &rowsTask[T]{chains: chains[T]{n: out.n}, stage: e, sides: []side{vals}}
		t.take = func(t *rowsTask[T], _ []byte, rows []row) error {
			return passAll(t, vals.vals, first(t, rows, n))
		}
		return t
	}
	return out
}

// arrange hands all values of a batch to one task, which hands on what order returns of them. With a limit, which isn't 0, a task sends no more than can pass.
func arrange[T any](s Stream[T], kind string, limit int, order func(t *rowsTask[T], vals []T, rows []row) []row) Stream[T] {
	p := s.p
	out, e, index := rowsStage[T](p, kind, "")
	after(&out, s)
	wire, err := value.WireOf[T]()
	if err != nil {
		p.errorf("%s: %w", kind, err)
		return out
	}
	sendRows(s, e, index, 0, 1, wire, func(b *builder) placer[T] {
		key := partKeys(1)[0]
		all := func(_ *rec, _ T, put func([]byte) bool) { put(key) }
		if limit == 0 {
			return all
		}
		return limited(b, limit, all)
	})
	e.Next = func() plan.StageTask {
		vals := &sideOf[T]{wire: wire}
		t := &rowsTask[T]{chains: chains[T]{n: out.n}, stage: e, sides: []side{vals}}
		t.take = func(t *rowsTask[T], _ []byte, rows []row) error {
			t.rc.key = nil // a row turned away is told by its own place
			return passAll(t, vals.vals, order(t, vals.vals, rows))
		}
		return t
	}
	return out
}

// limited places, of each key, only so many values of a task: more can't pass the stage behind. One that can't be sent doesn't count.
func limited[T any](b *builder, n int, place placer[T]) placer[T] {
	l := &plan.Limiter{Rows: int64(n)}
	b.begin = append(b.begin, func(*rec) { l.Reset() })
	var of *rec
	var put func(key []byte) bool
	limit := func(key []byte) bool {
		if l.Full(key) {
			of.tc.Filtered++
			return true
		}
		if !put(key) {
			return false
		}
		l.Note(key)
		return true
	}
	return func(rc *rec, v T, send func(key []byte) bool) {
		of, put = rc, send
		place(rc, v, limit)
	}
}

// first returns the first n rows, and counts the others as dropped.
func first[T any](t *rowsTask[T], rows []row, n int) []row {
	if len(rows) > n {
		t.rc.tc.Filtered += int64(len(rows) - n)
		rows = rows[:n]
	}
	return rows
}

// passAll hands rows on as they are.
func passAll[T any](t *rowsTask[T], vals []T, rows []row) error {
	for i := range rows {
		if t.pass(vals[rows[i].at], &rows[i]); t.rc.err != nil {
			break
		}
	}
	return nil
}
