package engine

import (
	"cmp"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
)

// BatchMin keeps the least value of each batch, by compare, which is as in slices.SortFunc: of equals the first, by source id, topic,
// partition and offset. A batch without values has none. The type must be of exported fields throughout.
func (s Stream[T]) BatchMin(compare func(a, b T) int) Stream[T] {
	return extreme(s, "batch_min", func(a, b T) bool { return compare(b, a) < 0 })
}

// BatchMax keeps the greatest value of each batch, by compare: of equals the first.
func (s Stream[T]) BatchMax(compare func(a, b T) int) Stream[T] {
	return extreme(s, "batch_max", func(a, b T) bool { return compare(b, a) > 0 })
}

// BatchMinBy keeps the value of each batch for which by is the least: of equals the first. NaN is less than any number.
func BatchMinBy[N cmp.Ordered, T any](s Stream[T], by func(T) N) Stream[T] {
	return s.BatchMin(func(a, b T) int { return cmp.Compare(by(a), by(b)) })
}

// BatchMaxBy keeps the value of each batch for which by is the greatest: of equals the first.
func BatchMaxBy[N cmp.Ordered, T any](s Stream[T], by func(T) N) Stream[T] {
	return s.BatchMax(func(a, b T) int { return cmp.Compare(by(a), by(b)) })
}

// extreme keeps one value per batch: each task sends the one that it is left with, and the stage behind chooses among these. better
// tells whether b is to replace a, which comes before it.
func extreme[T any](s Stream[T], kind string, better func(a, b T) bool) Stream[T] {
	p := s.p
	out, e, index := rowsStage[T](p, kind, "")
	after(&out, s)
	wire, err := value.WireOf[T]()
	if err != nil {
		p.errorf("%s: %w", kind, err)
		return out
	}
	s.to(func(b *builder) push[T] {
		step, key := e.Name, partKeys(1)[0]
		o := outboxOf(b, e, index, 1)
		var best, cur T
		var has bool
		var held []byte
		b.begin = append(b.begin, func(*rec) {
			var zero T
			best, cur, has = zero, zero, false
		})
		return func(rc *rec, v T) {
			if has {
				replaces := false
				if !b.careful {
					replaces = better(best, v)
				} else if !rc.guard(step, func() { replaces = better(best, v) }) {
					return
				}
				if !replaces {
					return
				}
			}
			cur = v
			var err error
			if held, err = wire.Append(held[:0], &cur); err != nil {
				rc.bad(step, err)
				return
			}
			best, has = v, true
			o.clear()
			slot, row := o.begin(rc, key, 0)
			o.end(slot, append(row, held...))
		}
	})
	e.Next = func() plan.StageTask {
		vals := &sideOf[T]{wire: wire}
		t := &rowsTask[T]{chains: chains[T]{n: out.n}, stage: e, sides: []side{vals}}
		t.take = func(t *rowsTask[T], _ []byte, rows []row) error {
			t.rc.key = nil
			best := 0
			for i := range rows {
				replaces := false
				if !t.rc.guard(e.Name, func() { replaces = better(vals.vals[best], vals.vals[i]) }) {
					return nil
				}
				if replaces {
					best = i
				}
			}
			t.pass(vals.vals[best], &rows[best])
			return nil
		}
		return t
	}
	return out
}
