package agg

import (
	"bytes"
	"encoding/binary"
	"unsafe"

	"github.com/tridentd/tridentd/internal/value"
)

// held is one encoded value, for First and Last.
type held[V any] struct {
	row  *value.Row[V]
	cell []byte // empty as long as there is no value
	err  error
	bad  status
}

// set replaces the value, unless v is null.
func (h *held[V]) set(v V) {
	if h.row == nil {
		row, err := codecOf[V]()
		if err != nil {
			h.fail(err)
			return
		}
		h.row = row
	}
	old := len(h.cell)
	b, err := h.row.Encode(h.cell, v)
	switch {
	case err != nil:
		h.fail(err)
	case !null(b[old:]):
		h.cell = b[:copy(b, b[old:])]
	}
}

// null tells whether an encoded value is null.
func null(cell []byte) bool {
	v, _, err := value.ViewBinary(cell)
	return err == nil && v.IsNull()
}

func (h *held[V]) fail(err error) {
	if h.bad == 0 {
		h.err, h.bad = err, cannotHold
	}
}

func (h *held[V]) append(dst []byte, t tag) []byte {
	dst = append(dst, byte(t))
	if len(h.cell) == 0 {
		return value.AppendBinary(dst, value.NullValue())
	}
	return append(dst, h.cell...)
}

func (h *held[V]) load(cells []byte, t tag) (rest []byte, err error) {
	b, err := open(cells, t)
	if err != nil {
		return nil, err
	}
	v, rest, err := value.ViewBinary(b)
	if err != nil || v.IsNull() {
		return rest, err
	}
	h.cell = bytes.Clone(b[:len(b)-len(rest)])
	if h.row, err = codecOf[V](); err != nil {
		return nil, err
	}
	_, err = h.row.Decode(h.cell)
	return rest, err
}

func (h *held[V]) value() (v V, ok bool) {
	if len(h.cell) == 0 {
		return v, false
	}
	v, err := h.row.Decode(h.cell)
	return v, err == nil
}

func (h *held[V]) text() string {
	if len(h.cell) == 0 {
		return "null"
	}
	v, _, err := value.ViewBinary(h.cell)
	if err != nil {
		panic("agg: an encoded value can't be read: " + err.Error())
	}
	return v.String()
}

// First keeps the first value that isn't null, in the order of batches, source partitions and offsets.
type First[V any] struct{ h held[V] }

// Add takes v if there is no value yet.
func (f *First[V]) Add(v V) {
	if len(f.h.cell) == 0 {
		f.h.set(v)
	}
}

// Value returns the first value; ok = false if there was none.
func (f First[V]) Value() (v V, ok bool) { return f.h.value() }

// String returns the first value, "null" if there was none.
func (f First[V]) String() string { return f.h.text() }

func (f *First[V]) describe() (fn, typ string, err error) { return describeCell[V]("first") }
func (f *First[V]) at(p unsafe.Pointer) accumulator       { return (*First[V])(p) }
func (f *First[V]) append(dst []byte) []byte              { return f.h.append(dst, tagFirst) }
func (f *First[V]) status() uintptr                       { return unsafe.Offsetof(f.h) + unsafe.Offsetof(f.h.bad) }
func (f *First[V]) failure() error                        { return f.h.err }
func (f *First[V]) detach()                               { f.h.cell = bytes.Clone(f.h.cell) }
func (f *First[V]) load(cells []byte) ([]byte, error)     { return f.h.load(cells, tagFirst) }

// Last keeps the last value that isn't null, in the order of batches, source partitions and offsets.
type Last[V any] struct{ h held[V] }

// Add takes v.
func (l *Last[V]) Add(v V) { l.h.set(v) }

// Value returns the last value; ok = false if there was none.
func (l Last[V]) Value() (v V, ok bool) { return l.h.value() }

// String returns the last value, "null" if there was none.
func (l Last[V]) String() string { return l.h.text() }

func (l *Last[V]) describe() (fn, typ string, err error) { return describeCell[V]("last") }
func (l *Last[V]) at(p unsafe.Pointer) accumulator       { return (*Last[V])(p) }
func (l *Last[V]) append(dst []byte) []byte              { return l.h.append(dst, tagLast) }
func (l *Last[V]) status() uintptr                       { return unsafe.Offsetof(l.h) + unsafe.Offsetof(l.h.bad) }
func (l *Last[V]) failure() error                        { return l.h.err }
func (l *Last[V]) detach()                               { l.h.cell = bytes.Clone(l.h.cell) }
func (l *Last[V]) load(cells []byte) ([]byte, error)     { return l.h.load(cells, tagLast) }

// Collect keeps all values that aren't null, in the order of batches, source partitions and offsets. Nothing bounds
// it: a key with a million values costs as much with each batch that adds one. Use it where keys end, as in windows.
type Collect[V any] struct {
	row   *value.Row[V]
	n     int
	cells []byte
	err   error
	bad   status
}

// Add appends v.
func (c *Collect[V]) Add(v V) {
	if c.row == nil {
		row, err := codecOf[V]()
		if err != nil {
			c.fail(err)
			return
		}
		c.row = row
	}
	old := len(c.cells)
	b, err := c.row.Encode(c.cells, v)
	switch {
	case err != nil:
		c.fail(err)
	case !null(b[old:]):
		c.cells = b
		c.n++
	}
}

func (c *Collect[V]) fail(err error) {
	if c.bad == 0 {
		c.err, c.bad = err, cannotHold
	}
}

// Values returns the values.
func (c Collect[V]) Values() []V {
	vs := make([]V, c.n)
	rest := c.cells
	for i := range vs {
		_, after, err := value.ViewBinary(rest)
		if err == nil {
			vs[i], err = c.row.Decode(rest[:len(rest)-len(after)])
		}
		if err != nil {
			panic("agg: an encoded value can't be read: " + err.Error())
		}
		rest = after
	}
	return vs
}

// String returns the values as a JSON list.
func (c Collect[V]) String() string {
	v, _, err := result(nil, tagCollect, c.append(nil)[1:])
	if err != nil {
		panic("agg: encoded values can't be read: " + err.Error())
	}
	return v[0].String()
}

func (c *Collect[V]) describe() (fn, typ string, err error) {
	_, _, err = describeCell[V]("collect")
	return "collect", "list", err
}
func (c *Collect[V]) at(p unsafe.Pointer) accumulator { return (*Collect[V])(p) }
func (c *Collect[V]) append(dst []byte) []byte {
	return append(binary.AppendUvarint(append(dst, byte(tagCollect)), uint64(c.n)), c.cells...)
}
func (c *Collect[V]) status() uintptr { return unsafe.Offsetof(c.bad) }
func (c *Collect[V]) failure() error  { return c.err }

// detach has nothing to do: cells only grow, behind the length that the copy has.
func (c *Collect[V]) detach() {}

func (c *Collect[V]) load(cells []byte) (rest []byte, err error) {
	b, err := open(cells, tagCollect)
	if err != nil {
		return nil, err
	}
	n, items, rest, err := readList(tagCollect, b)
	if err != nil {
		return nil, err
	}
	if c.row, err = codecOf[V](); err != nil {
		return nil, err
	}
	for left := items; len(left) > 0; {
		_, after, err := value.ViewBinary(left)
		if err != nil {
			return nil, err
		}
		if _, err := c.row.Decode(left[:len(left)-len(after)]); err != nil {
			return nil, err
		}
		left = after
	}
	c.n, c.cells = n, bytes.Clone(items)
	return rest, nil
}
