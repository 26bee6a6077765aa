package engine

import (
	"fmt"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/txstate"
)

// Side is one of the grouped streams that come together in a MultiReduce or a MultiJoin. It belongs to one of these.
type Side[K comparable, T any] struct {
	g     Grouped[K, T]
	outer bool
	of    *reduction
	index int
}

// AnySide is a Side of any type of values.
type AnySide[K comparable] interface {
	attach(r *reduction, index int)
	required() bool
	pipeline() *Pipeline
}

// Inner makes a side of g that must have values of a key: Trident's JoinType.INNER.
func Inner[K comparable, T any](g Grouped[K, T]) *Side[K, T] { return &Side[K, T]{g: g} }

// Outer makes a side of g that may be without values of a key: Trident's JoinType.OUTER.
func Outer[K comparable, T any](g Grouped[K, T]) *Side[K, T] { return &Side[K, T]{g: g, outer: true} }

// Group is what the sides have of one key in one batch. It may be used until the function that is given it returns.
type Group[K comparable] struct {
	Key   K
	of    *reduction
	sides []side
}

// Rows returns the side's values, in order: sources by id, topic, partition and offset. They may be kept.
func (s *Side[K, T]) Rows(g *Group[K]) []T { return rowsOf[T](s.of, s.index, g.of, g.sides) }

// Row returns the side's value in a row of a MultiJoin; nil where an outer side has none. It may be kept.
func (s *Side[K, T]) Row(j *Joined[K]) *T {
	vals := rowsOf[T](s.of, s.index, j.of, j.sides)
	if at := j.at[s.index]; at >= 0 {
		return &vals[at]
	}
	return nil
}

func rowsOf[T any](mine *reduction, index int, of *reduction, sides []side) []T {
	if mine == nil || mine != of {
		panic("engine: a Side is asked for rows of a MultiReduce or MultiJoin that it wasn't given to")
	}
	return sides[index].(*sideOf[T]).vals
}

// Joined is one row of a MultiJoin. It may be used until the function that is given it returns.
type Joined[K comparable] struct {
	Key   K
	of    *reduction
	sides []side
	at    []int // by side: the number of its row; -1: none
}

// reduction is an exchange that brings several grouped streams together.
type reduction struct {
	p        *Pipeline
	e        *plan.Exchange
	index    int
	what     string
	newSides []func() side
	after    func(trail *trail, sources []*sourceDef, timed bool)
}

func (s *Side[K, T]) required() bool      { return !s.outer }
func (s *Side[K, T]) pipeline() *Pipeline { return s.g.s.p }

func (s *Side[K, T]) attach(r *reduction, index int) {
	p := r.p
	if s.of != nil {
		p.errorf("%s: a Side is used twice; make one of its own by Inner or Outer", r.what)
		return
	}
	s.of, s.index = r, index
	r.after(s.g.s.trail, s.g.s.sources, s.g.s.timed)
	wire, err := value.WireOf[T]()
	switch {
	case s.g.s.p != p:
		p.strange(r.what, s.g.s.p)
		return
	case s.g.windows != nil:
		p.errorf("%s: its streams come together within a batch, and can't be windowed", r.what)
		return
	case s.g.codec == nil:
		return // GroupBy has said why
	case err != nil:
		p.errorf("%s: %w", r.what, err)
		return
	}
	r.newSides = append(r.newSides, func() side { return &sideOf[T]{wire: wire} })
	sendRows(s.g.s, r.e, r.index, index, 0, wire, byKey(s.g))
}

// taker does with a group what an operator is there for.
type taker[K comparable, R any] func(t *rowsTask[R], key K, rows []row)

// reduce brings sides together. begin makes what takes the groups in one task; groups that lack a required side are left out.
func reduce[K comparable, R any](kind string, sides []AnySide[K], begin func(r *reduction, step string) taker[K, R]) Stream[R] {
	p := sides[0].pipeline()
	suffix := ""
	if len(sides) > 2 {
		suffix = fmt.Sprintf(" of %d streams", len(sides))
	}
	out, e, index := rowsStage[R](p, kind, suffix)
	r := &reduction{p: p, e: e, index: index, what: kind}
	r.after = func(t *trail, sources []*sourceDef, timed bool) {
		after(&out, Stream[R]{trail: t, sources: sources, timed: timed})
	}
	for i, s := range sides {
		s.attach(r, i)
	}
	key, err := value.KeyOf[K]()
	if err != nil {
		return out // GroupBy has said so
	}
	e.Next = func() plan.StageTask {
		take := begin(r, e.Name)
		t := &rowsTask[R]{chains: chains[R]{n: out.n}, stage: e}
		for _, f := range r.newSides {
			t.sides = append(t.sides, f())
		}
		t.take = func(t *rowsTask[R], k []byte, rows []row) error {
			for i, s := range sides {
				if s.required() && t.sides[i].size() == 0 {
					return nil
				}
			}
			key, err := key.Decode(k)
			if err != nil {
				return batch.NewError(batch.Permanent, batch.CodeInternal, e.Name, fmt.Errorf("key %s: %w", value.KeyText(k), err), "")
			}
			take(t, key, rows)
			return nil
		}
		return t
	}
	return out
}

// MultiReduce brings grouped streams together by key, within each batch, and hands each key's values to f, which may emit any number
// of values: Trident's multiReduce. Keys come in the order of shards and keys. An error of f, or a panic, is a bad row of the key: what it
// emitted before is dropped. A key that an Inner side has no values of is left out. If all streams have event times, a result's is
// the latest of its key's. The values go from task to task: their types must be of exported fields throughout.
func MultiReduce[K comparable, R any](f func(b *Batch, g *Group[K], emit func(R)) error, first AnySide[K], others ...AnySide[K]) Stream[R] {
	return reduce("multi_reduce", append([]AnySide[K]{first}, others...), func(r *reduction, step string) taker[K, R] {
		view := &Batch{step: step}
		var held []R
		emit := func(v R) { held = append(held, v) }
		return func(t *rowsTask[R], key K, rows []row) {
			rc := &t.rc
			view.rc = rc
			clear(held)
			held = held[:0]
			var err error
			g := &Group[K]{Key: key, of: r, sides: t.sides}
			if !rc.guard(step, func() { err = f(view, g, emit) }) {
				return
			}
			if err != nil {
				rc.bad(step, err)
				return
			}
			time, mayBeLate := latest(rows)
			for _, v := range held {
				t.send(v, time, mayBeLate)
			}
		}
	})
}

// latest is the event time of a row made of rows: it can be late if all of theirs could be.
func latest(rows []row) (time int64, mayBeLate bool) {
	time, mayBeLate = txstate.NoTime, true
	for i := range rows {
		time = max(time, rows[i].time)
		mayBeLate = mayBeLate && rows[i].mayBeLate
	}
	return time, mayBeLate
}
