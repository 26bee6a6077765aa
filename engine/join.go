package engine

import (
	"slices"

	"github.com/tridentd/tridentd/txstate"
)

// Joins of this file are Trident's: rows meet that have equal keys and lie in one batch. Which rows these are is up to the borders of
// the batches, which are recorded, and so comes out the same in a replay. Null keys are equal to each other, as in GroupBy. The values
// go from task to task: their types must be of exported fields throughout.
//
// The rows of a key come in the order of the later of the values that they are made of, then of the earlier one; values are ordered by
// source id, topic, partition and offset. So a join gives the same rows in the same order whichever side is written first.

// BatchJoin joins the values of a and b that have equal keys and lie in one batch: an inner join.
func BatchJoin[K comparable, A, B, R any](a Stream[A], b Stream[B], keyA func(A) K, keyB func(B) K, f func(a A, b B) R) Stream[R] {
	l, r := Inner(GroupBy(a, keyA)), Inner(GroupBy(b, keyB))
	return join("join", []AnySide[K]{l, r}, func(j *Joined[K]) R { return f(*l.Row(j), *r.Row(j)) })
}

// BatchLeftJoin is BatchJoin with each value of a, also where b has none for it in the batch: f is given nil then.
func BatchLeftJoin[K comparable, A, B, R any](a Stream[A], b Stream[B], keyA func(A) K, keyB func(B) K, f func(a A, b *B) R) Stream[R] {
	l, r := Inner(GroupBy(a, keyA)), Outer(GroupBy(b, keyB))
	return join("left_join", []AnySide[K]{l, r}, func(j *Joined[K]) R { return f(*l.Row(j), r.Row(j)) })
}

// BatchRightJoin is BatchJoin with each value of b, also where a has none for it in the batch: f is given nil then.
func BatchRightJoin[K comparable, A, B, R any](a Stream[A], b Stream[B], keyA func(A) K, keyB func(B) K, f func(a *A, b B) R) Stream[R] {
	l, r := Outer(GroupBy(a, keyA)), Inner(GroupBy(b, keyB))
	return join("right_join", []AnySide[K]{l, r}, func(j *Joined[K]) R { return f(l.Row(j), *r.Row(j)) })
}

// BatchFullJoin is BatchJoin with each value of both streams: f is given nil where the other has none in the batch.
func BatchFullJoin[K comparable, A, B, R any](a Stream[A], b Stream[B], keyA func(A) K, keyB func(B) K, f func(a *A, b *B) R) Stream[R] {
	l, r := Outer(GroupBy(a, keyA)), Outer(GroupBy(b, keyB))
	return join("full_join", []AnySide[K]{l, r}, func(j *Joined[K]) R { return f(l.Row(j), r.Row(j)) })
}

// BatchAntiJoin keeps the values of a for which b has none with the same key in the batch.
func BatchAntiJoin[K comparable, A, B any](a Stream[A], b Stream[B], keyA func(A) K, keyB func(B) K) Stream[A] {
	l, r := Inner(GroupBy(a, keyA)), Outer(GroupBy(b, keyB))
	return reduce("anti_join", []AnySide[K]{l, r}, func(*reduction, string) taker[K, A] {
		return func(t *rowsTask[A], _ K, rows []row) {
			if t.sides[1].size() > 0 {
				return
			}
			for i := range rows {
				t.send(t.sides[0].(*sideOf[A]).vals[rows[i].at], rows[i].time, rows[i].mayBeLate)
			}
		}
	})
}

// MultiJoin joins any number of streams within each batch: Trident's join of several streams. Each combination of a key's values
// is one row; a key for which an Inner side has none is left out, an Outer side without values takes part as nil. f asks the sides
// for the row's values: side.Row(j). If all streams have event times, a row's is the latest of its values'.
func MultiJoin[K comparable, R any](f func(j *Joined[K]) R, first AnySide[K], others ...AnySide[K]) Stream[R] {
	return join("join", append([]AnySide[K]{first}, others...), f)
}

func join[K comparable, R any](kind string, sides []AnySide[K], f func(j *Joined[K]) R) Stream[R] {
	return reduce(kind, sides, func(r *reduction, step string) taker[K, R] {
		return func(t *rowsTask[R], key K, rows []row) {
			j := &Joined[K]{Key: key, of: r, sides: t.sides, at: slices.Repeat([]int{-1}, len(t.sides))}
			c := combiner{rows: rows, places: make([][]int, len(t.sides)), at: j.at}
			for i := range rows {
				c.places[rows[i].side] = append(c.places[rows[i].side], i)
			}
			for _, places := range c.places {
				if len(places) > 0 {
					c.missing++
				}
			}
			c.emit = func(time int64, mayBeLate bool) bool {
				var v R
				if t.rc.guard(step, func() { v = f(j) }) {
					t.send(v, time, mayBeLate)
				}
				return t.rc.err == nil
			}
			c.combine(len(rows), txstate.NoTime, true)
		}
	})
}

// combiner goes through the combinations of a group's rows, one of each side that has any, in the order of their latest row,
// then of the next.
type combiner struct {
	rows    []row
	places  [][]int // by side: where its rows are in rows
	missing int     // sides with rows of which none is chosen yet
	at      []int   // by side: the row chosen, by its number within the side; -1: none
	emit    func(time int64, mayBeLate bool) bool
}

// combine chooses rows before limit for the sides that are missing; false if it is to end.
func (c *combiner) combine(limit int, time int64, mayBeLate bool) bool {
	if c.missing == 0 {
		return c.emit(time, mayBeLate)
	}
	// The row chosen next is the last of those missing: each of the other sides must have one before it.
	from := 0
	var lists [][]int
	for s, places := range c.places {
		if c.at[s] < 0 && len(places) > 0 {
			from = max(from, places[0])
			lists = append(lists, places)
		}
	}
	for i, places := range lists {
		at, _ := slices.BinarySearch(places, from)
		lists[i] = places[at:]
	}
	for {
		next := -1 // the list with the next row
		for i, places := range lists {
			if len(places) > 0 && places[0] < limit && (next < 0 || places[0] < lists[next][0]) {
				next = i
			}
		}
		if next < 0 {
			return true
		}
		i := lists[next][0]
		lists[next] = lists[next][1:]
		r := &c.rows[i]
		c.at[r.side] = r.at
		c.missing--
		more := c.combine(i, max(time, r.time), mayBeLate && r.mayBeLate)
		c.at[r.side] = -1
		c.missing++
		if !more {
			return false
		}
	}
}
