package agg

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// Combine is an aggregate of the user's own: lift makes an A of each value and combine brings two of them together,
// the earlier first. combine must be associative and, like lift, depend on its arguments only: values are combined
// within a partition first, then across partitions, then with what the state holds. A struct A has a column per
// field, named as value types are in general; name is the column of any other A.
func Combine[T, A any](name string, lift func(T) A, combine func(A, A) A) Aggregation[T] {
	c := &combiner[T, A]{name: name, lift: lift, combine: combine}
	c.row, c.err = value.RowOf[A](scalarName[A](name)...)
	return c
}

// scalarName returns name for types that are one column, and nothing for structs, which name their own.
func scalarName[A any](name string) []string {
	row, err := value.RowOf[A]()
	if err != nil || len(row.Columns()) != 1 || row.Columns()[0].Name != "value" {
		return nil
	}
	return []string{name}
}

func columnsOf[A any](row *value.Row[A], fn string) []state.Column {
	if row == nil {
		return nil
	}
	cols := row.Columns()
	for i := range cols {
		cols[i].Agg = fn
	}
	return cols
}

type combiner[T, A any] struct {
	name    string
	row     *value.Row[A]
	err     error
	lift    func(T) A
	combine func(A, A) A
}

func (c *combiner[T, A]) Columns() []state.Column { return columnsOf(c.row, "combine") }
func (c *combiner[T, A]) Err() error              { return c.err }
func (c *combiner[T, A]) Exact() bool             { return false }
func (c *combiner[T, A]) NewTable() Table[T]      { return &combineTable[T, A]{c: c} }

func (c *combiner[T, A]) Merge(dst, a, b []byte) ([]byte, error) {
	x, err := readCustom(c.name, c.row, a)
	if err != nil {
		return dst, err
	}
	y, err := readCustom(c.name, c.row, b)
	if err != nil {
		return dst, err
	}
	if err := guard(c.name, func() { x = c.combine(x, y) }); err != nil {
		return dst, err
	}
	return appendCustom(dst, c.name, c.row, x)
}

func (c *combiner[T, A]) Update(dst, old, delta []byte) ([]byte, error) {
	if old == nil {
		return append(dst, delta...), nil
	}
	return c.Merge(dst, old, delta)
}

// guard calls a user's function and makes an error of its panic.
func guard(name string, f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			cause, ok := r.(error)
			if !ok {
				cause = fmt.Errorf("%v", r)
			}
			err = batch.NewError(batch.Permanent, batch.CodeUserError, "aggregate "+name, fmt.Errorf("its function panicked: %w", cause), "mend the function, then start again: the state is as it was before this batch")
		}
	}()
	f()
	return nil
}

func readCustom[A any](name string, row *value.Row[A], cells []byte) (a A, err error) {
	b, err := open(cells, tagCustom)
	if err == nil {
		var rest []byte
		if b, rest, err = readSized(b); err == nil && len(rest) > 0 {
			err = errors.New("other aggregates follow it")
		}
	}
	if err == nil {
		a, err = row.Decode(b)
	}
	if err != nil {
		return a, damaged([]string{name}, 0, err)
	}
	return a, nil
}

func appendCustom[A any](dst []byte, name string, row *value.Row[A], a A) ([]byte, error) {
	dst, err := appendSizedRow(append(dst, byte(tagCustom)), row, a)
	if err != nil {
		return dst, batch.NewError(batch.Permanent, batch.CodeUserError, "aggregate "+name, err, "have the function return what can be stored")
	}
	return dst, nil
}

// appendSizedRow appends a row led by its length.
func appendSizedRow[A any](dst []byte, row *value.Row[A], a A) ([]byte, error) {
	// Room for the length of short rows is left in front; longer ones are moved.
	start := len(dst)
	dst, err := row.Encode(append(dst, 0), a)
	if err != nil {
		return dst[:start], err
	}
	n := len(dst) - start - 1
	if n < 0x80 {
		dst[start] = byte(n)
		return dst, nil
	}
	var size [binary.MaxVarintLen64]byte
	w := binary.PutUvarint(size[:], uint64(n))
	dst = append(dst, size[:w-1]...)
	copy(dst[start+w:], dst[start+1:start+1+n])
	copy(dst[start:], size[:w])
	return dst, nil
}

type combineTable[T, A any] struct {
	c     *combiner[T, A]
	slots []combined[A]
	saved combined[A]
}

type combined[A any] struct {
	a   A
	has bool
}

func (t *combineTable[T, A]) Reset() {
	clear(t.slots)
	t.slots = t.slots[:0]
}

func (t *combineTable[T, A]) New() int {
	t.slots = append(t.slots, combined[A]{})
	return len(t.slots) - 1
}

func (t *combineTable[T, A]) Add(slot int, v T) error {
	s := &t.slots[slot]
	a := t.c.lift(v)
	if s.has {
		a = t.c.combine(s.a, a)
	}
	s.a, s.has = a, true
	return nil
}

func (t *combineTable[T, A]) Save(slot int)    { t.saved = t.slots[slot] }
func (t *combineTable[T, A]) Restore(slot int) { t.slots[slot] = t.saved }

func (t *combineTable[T, A]) Append(dst []byte, slot int) []byte {
	dst, err := appendCustom(dst, t.c.name, t.c.row, t.slots[slot].a)
	if err != nil {
		panic(err)
	}
	return dst
}

// Reduce is an aggregate of the user's own that takes values one by one, in the order of batches, source partitions
// and offsets: the first is what a key begins with, f makes the next of it and each further value. f needs not
// be associative, and so nothing is combined beforehand: all values of a batch go to the state.
func Reduce[T any](name string, f func(acc, v T) T) Aggregation[T] {
	return newFolder(name, "reduce", func(acc *T, has bool, v T) {
		if !has {
			*acc = v
			return
		}
		*acc = f(*acc, v)
	})
}

// Fold is Reduce with an accumulator of another type, which init makes for a new key.
func Fold[T, A any](name string, init func() A, f func(A, T) A) Aggregation[T] {
	return newFolder(name, "fold", func(acc *A, has bool, v T) {
		if !has {
			*acc = init()
		}
		*acc = f(*acc, v)
	})
}

func newFolder[T, A any](name, fn string, step func(acc *A, has bool, v T)) Aggregation[T] {
	f := &folder[T, A]{name: name, fn: fn, step: step}
	var err error
	f.row, f.err = value.RowOf[A](scalarName[A](name)...)
	if f.items, err = value.RowOf[T](); f.err == nil {
		f.err = err
	}
	return f
}

type folder[T, A any] struct {
	name, fn string
	row      *value.Row[A]
	items    *value.Row[T]
	err      error
	step     func(acc *A, has bool, v T) // has: acc holds the outcome of earlier values
}

func (f *folder[T, A]) Columns() []state.Column { return columnsOf(f.row, f.fn) }
func (f *folder[T, A]) Err() error              { return f.err }
func (f *folder[T, A]) Exact() bool             { return false }
func (f *folder[T, A]) NewTable() Table[T]      { return &foldTable[T, A]{f: f} }

// Merge puts the values of two deltas one after the other.
func (f *folder[T, A]) Merge(dst, a, b []byte) ([]byte, error) {
	return mergeNamed(dst, a, b, []string{f.name})
}

// Update takes the values of a delta one by one. The outcome is the value of a state; delta is not.
func (f *folder[T, A]) Update(dst, old, delta []byte) ([]byte, error) {
	var acc A
	var err error
	if old != nil {
		if acc, err = readCustom(f.name, f.row, old); err != nil {
			return dst, err
		}
	}
	items, err := open(delta, tagList)
	if err == nil {
		var rest []byte
		if _, items, rest, err = readList(tagList, items); err == nil && len(rest) > 0 {
			err = errors.New("other aggregates follow it")
		}
	}
	for has := old != nil; err == nil && len(items) > 0; has = true {
		var b []byte
		if b, items, err = readSized(items); err != nil {
			break
		}
		var v T
		if v, err = f.items.Decode(b); err != nil {
			break
		}
		if err := guard(f.name, func() { f.step(&acc, has, v) }); err != nil {
			return dst, err
		}
	}
	if err != nil {
		return dst, damaged([]string{f.name}, 0, err)
	}
	return appendCustom(dst, f.name, f.row, acc)
}

// foldTable keeps the encoded values of each slot.
type foldTable[T, A any] struct {
	f     *folder[T, A]
	slots []folded
	saved folded
}

type folded struct {
	n     uint64
	items []byte
}

func (t *foldTable[T, A]) Reset() { t.slots = t.slots[:0] }

func (t *foldTable[T, A]) New() int {
	if len(t.slots) < cap(t.slots) {
		t.slots = t.slots[:len(t.slots)+1]
		s := &t.slots[len(t.slots)-1]
		s.n, s.items = 0, s.items[:0]
	} else {
		t.slots = append(t.slots, folded{})
	}
	return len(t.slots) - 1
}

func (t *foldTable[T, A]) Add(slot int, v T) (err error) {
	s := &t.slots[slot]
	if s.items, err = appendSizedRow(s.items, t.f.items, v); err != nil {
		return batch.NewError(batch.Permanent, batch.CodeBadRecord, "aggregate "+t.f.name, err, "filter such values out before they are aggregated")
	}
	s.n++
	return nil
}

// Save and Restore keep the length only: items grow behind it.
func (t *foldTable[T, A]) Save(slot int)    { t.saved = t.slots[slot] }
func (t *foldTable[T, A]) Restore(slot int) { t.slots[slot] = t.saved }

func (t *foldTable[T, A]) Append(dst []byte, slot int) []byte {
	s := &t.slots[slot]
	return append(binary.AppendUvarint(append(dst, byte(tagList)), s.n), s.items...)
}
