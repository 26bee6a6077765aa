package agg

import (
	"bytes"
	"unsafe"

	"github.com/tridentd/tridentd/internal/value"
)

// by keeps the value that came with the least or the greatest of another, the earliest of several.
//
// The payload of tagMinBy and tagMaxBy is two binary values: that other value, null if there was none, and the value.
type by struct {
	fault
	max  bool
	best value.Value
	cell []byte // the value, encoded
}

func (y *by) tag() tag {
	if y.max {
		return tagMaxBy
	}
	return tagMinBy
}

// Add takes x into account, which came with v; not if v is null.
func (y *by) Add(x, v value.Value) error {
	if y.takes(v) {
		y.best = plainFloat(v).Clone()
		y.cell = value.AppendBinary(y.cell[:0], x)
	}
	return nil
}

func (y *by) takes(v value.Value) bool { return Better(y.max, y.best, v) }

// Append appends the cell.
func (y *by) Append(dst []byte) []byte {
	dst = value.AppendBinary(append(dst, byte(y.tag())), y.best)
	if y.best.IsNull() {
		return value.AppendBinary(dst, value.NullValue())
	}
	return append(dst, y.cell...)
}

// readBy splits a payload into the value that decides, the encoded value and the rest.
func readBy(b []byte) (best value.Value, cell, rest []byte, err error) {
	best, b, err = value.ViewBinary(b)
	if err != nil {
		return best, nil, nil, err
	}
	_, rest, err = value.ViewBinary(b)
	if err != nil {
		return best, nil, nil, err
	}
	return best, b[:len(b)-len(rest)], rest, nil
}

func mergeBy(dst []byte, max bool, a, b []byte) (merged, restA, restB []byte, err error) {
	x, _, restA, err := readBy(a)
	if err != nil {
		return dst, nil, nil, err
	}
	y, _, restB, err := readBy(b)
	if err != nil {
		return dst, nil, nil, err
	}
	if Better(max, x, y) {
		return append(dst, b[:len(b)-len(restB)]...), restA, restB, nil
	}
	return append(dst, a[:len(a)-len(restA)]...), restA, restB, nil
}

// byOf is by with values of one type.
type byOf[V any, W Ordered] struct {
	y   by
	row *value.Row[V]
}

func (o *byOf[V, W]) add(v V, w W) {
	x, err := kindOf[W]().value(unsafe.Pointer(&w))
	switch {
	case err != nil:
		o.y.fail(err)
		return
	case !o.y.takes(x):
		return
	case o.row == nil:
		if o.row, err = codecOf[V](); err != nil {
			o.y.fail(err)
			return
		}
	}
	cell, err := o.row.Encode(o.y.cell[:0], v)
	if err != nil {
		o.y.fail(err)
		return
	}
	o.y.best, o.y.cell = plainFloat(x).Clone(), cell
}

func (o *byOf[V, W]) value() (v V, ok bool) {
	if o.y.best.IsNull() || null(o.y.cell) {
		return v, false
	}
	v, err := o.row.Decode(o.y.cell)
	return v, err == nil
}

func (o *byOf[V, W]) text() string {
	if o.y.best.IsNull() {
		return "null"
	}
	v, _, err := value.ViewBinary(o.y.cell)
	if err != nil {
		panic("agg: an encoded value can't be read: " + err.Error())
	}
	return v.String()
}

func (o *byOf[V, W]) load(cells []byte, max bool) (rest []byte, err error) {
	o.y.max = max
	b, err := open(cells, o.y.tag())
	if err != nil {
		return nil, err
	}
	best, cell, rest, err := readBy(b)
	if err != nil || best.IsNull() {
		return rest, err
	}
	if o.row, err = codecOf[V](); err != nil {
		return nil, err
	}
	o.y.best, o.y.cell = best.Clone(), bytes.Clone(cell)
	if !null(cell) {
		_, err = o.row.Decode(o.y.cell)
	}
	return rest, err
}

func describeBy[V any, W Ordered](fn string) (string, string, error) {
	if _, _, err := describeCell[W](fn); err != nil {
		return "", "", err
	}
	return describeCell[V](fn)
}

// MinBy keeps the value that came with the least W; of several the first.
type MinBy[V any, W Ordered] struct{ o byOf[V, W] }

// Add takes v into account, which comes with by.
func (m *MinBy[V, W]) Add(v V, by W) { m.o.add(v, by) }

// Value returns the value; ok = false if there was none, or it is null.
func (m MinBy[V, W]) Value() (v V, ok bool) { return m.o.value() }

// String returns the value, "null" if there was none.
func (m MinBy[V, W]) String() string { return m.o.text() }

func (m *MinBy[V, W]) describe() (fn, typ string, err error) { return describeBy[V, W]("min_by") }
func (m *MinBy[V, W]) at(p unsafe.Pointer) accumulator       { return (*MinBy[V, W])(p) }
func (m *MinBy[V, W]) append(dst []byte) []byte              { return m.o.y.Append(dst) }
func (m *MinBy[V, W]) status() uintptr {
	return unsafe.Offsetof(m.o) + unsafe.Offsetof(m.o.y) + unsafe.Offsetof(m.o.y.fault) + unsafe.Offsetof(m.o.y.fault.bad)
}
func (m *MinBy[V, W]) failure() error                    { return m.o.y.failure() }
func (m *MinBy[V, W]) detach()                           { m.o.y.cell = bytes.Clone(m.o.y.cell) }
func (m *MinBy[V, W]) load(cells []byte) ([]byte, error) { return m.o.load(cells, false) }

// MaxBy keeps the value that came with the greatest W; of several the first.
type MaxBy[V any, W Ordered] struct{ o byOf[V, W] }

// Add takes v into account, which comes with by.
func (m *MaxBy[V, W]) Add(v V, by W) {
	m.o.y.max = true
	m.o.add(v, by)
}

// Value returns the value; ok = false if there was none, or it is null.
func (m MaxBy[V, W]) Value() (v V, ok bool) { return m.o.value() }

// String returns the value, "null" if there was none.
func (m MaxBy[V, W]) String() string { return m.o.text() }

func (m *MaxBy[V, W]) describe() (fn, typ string, err error) { return describeBy[V, W]("max_by") }
func (m *MaxBy[V, W]) at(p unsafe.Pointer) accumulator       { return (*MaxBy[V, W])(p) }
func (m *MaxBy[V, W]) append(dst []byte) []byte {
	m.o.y.max = true
	return m.o.y.Append(dst)
}

func (m *MaxBy[V, W]) status() uintptr {
	return unsafe.Offsetof(m.o) + unsafe.Offsetof(m.o.y) + unsafe.Offsetof(m.o.y.fault) + unsafe.Offsetof(m.o.y.fault.bad)
}
func (m *MaxBy[V, W]) failure() error                    { return m.o.y.failure() }
func (m *MaxBy[V, W]) detach()                           { m.o.y.cell = bytes.Clone(m.o.y.cell) }
func (m *MaxBy[V, W]) load(cells []byte) ([]byte, error) { return m.o.load(cells, true) }
