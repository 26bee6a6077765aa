package agg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/tridentd/tridentd/internal/value"
)

// MaxKept bounds how many values first_n, last_n and top keep of a key.
const MaxKept = 1000

// fault is what first went wrong with an accumulator.
type fault struct {
	err error
	bad status
}

func (f *fault) failure() error {
	if f.err == nil {
		return f.bad.err()
	}
	return f.err
}

// fail notes a value that can't be stored, and keep an error that says which bound was left.
func (f *fault) fail(err error) {
	if f.bad == 0 {
		f.err, f.bad = err, cannotHold
	}
}

func (f *fault) keep(err error) {
	if f.bad == 0 && err != nil {
		f.err, f.bad = err, sumOverflow
	}
}

// few keeps the first or the last values that aren't null, encoded one behind the other.
//
// The payload of tagFirstN and tagLastN is uvarint: how many are kept; uvarint: how many there are; binary values.
type few struct {
	fault
	limit int
	last  bool
	cells []byte
	// starts are where the values begin. Of last values there may be more than limit until they are written.
	starts []int
}

func (f *few) tag() tag {
	if f.last {
		return tagLastN
	}
	return tagFirstN
}

// full tells that no further value has a place.
func (f *few) full() bool { return !f.last && len(f.starts) >= f.limit }

// Add takes x into account, unless it is null.
func (f *few) Add(x, _ value.Value) error {
	if !x.IsNull() && !f.full() {
		f.grown(value.AppendBinary(f.cells, x))
	}
	return nil
}

// grown takes cells with one value more at the end.
func (f *few) grown(cells []byte) {
	f.starts = append(f.starts, len(f.cells))
	f.cells = cells
	if f.last && len(f.starts) >= 2*f.limit+8 {
		f.compact()
	}
}

// compact drops the last values that others have followed.
func (f *few) compact() {
	drop := len(f.starts) - f.limit
	if drop <= 0 {
		return
	}
	at := f.starts[drop]
	f.cells = append(f.cells[:0], f.cells[at:]...)
	f.starts = append(f.starts[:0], f.starts[drop:]...)
	for i := range f.starts {
		f.starts[i] -= at
	}
}

// Append appends the cell.
func (f *few) Append(dst []byte) []byte {
	n, at := len(f.starts), 0
	if n > f.limit {
		at, n = f.starts[n-f.limit], f.limit
	}
	dst = binary.AppendUvarint(append(dst, byte(f.tag())), uint64(f.limit))
	return append(binary.AppendUvarint(dst, uint64(n)), f.cells[at:]...)
}

// read takes what a payload holds, as a view of it.
func (f *few) read(b []byte) (rest []byte, err error) {
	limit, w := binary.Uvarint(b)
	if w <= 0 || limit == 0 || limit > MaxKept {
		return nil, errCut
	}
	b = b[w:]
	n, w := binary.Uvarint(b)
	if w <= 0 || n > limit {
		return nil, errCut
	}
	b = b[w:]
	rest = b
	f.limit, f.starts = int(limit), make([]int, n)
	for i := range f.starts {
		f.starts[i] = len(b) - len(rest)
		if _, rest, err = value.ViewBinary(rest); err != nil {
			return nil, err
		}
	}
	f.cells = b[:len(b)-len(rest)]
	f.cells = slices.Clip(f.cells)
	return rest, nil
}

func mergeFew(dst []byte, last bool, a, b []byte) (merged, restA, restB []byte, err error) {
	x, y := few{last: last}, few{last: last}
	if restA, err = x.read(a); err != nil {
		return dst, nil, nil, err
	}
	if restB, err = y.read(b); err != nil {
		return dst, nil, nil, err
	}
	if x.limit != y.limit {
		return dst, nil, nil, parameters(x.limit, y.limit)
	}
	fromA, fromB := 0, 0 // where what is kept begins
	endA, endB := len(x.cells), len(y.cells)
	n := len(x.starts) + len(y.starts)
	if over := n - x.limit; over > 0 {
		n = x.limit
		switch {
		case !last:
			endB = y.starts[len(y.starts)-over]
		case over < len(x.starts):
			fromA = x.starts[over]
		case over == len(x.starts):
			fromA = endA
		default: // never, as y alone has no more than limit
			panic("agg: more last values than are kept")
		}
	}
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(x.limit)), uint64(n))
	return append(append(dst, x.cells[fromA:endA]...), y.cells[fromB:endB]...), restA, restB, nil
}

// parameters tells that two cells of one aggregate were made with different ones.
func parameters(a, b any) error { return fmt.Errorf("one was made for %v, the other for %v", a, b) }

func (f *few) result() value.Value {
	vs := make([]value.Value, 0, len(f.starts))
	for rest := f.cells; len(rest) > 0; {
		v, after, err := value.DecodeBinary(rest)
		if err != nil {
			panic("agg: an encoded value can't be read: " + err.Error())
		}
		vs, rest = append(vs, v), after
	}
	return value.ListOf(vs)
}

func (f *few) detach() {
	f.cells = bytes.Clone(f.cells)
	f.starts = append([]int(nil), f.starts...)
}

// fewOf is few with values of one type.
type fewOf[V any] struct {
	f   few
	row *value.Row[V]
}

func (f *fewOf[V]) add(v V) {
	if f.f.full() {
		return
	}
	if f.row == nil {
		row, err := codecOf[V]()
		if err != nil {
			f.f.fail(err)
			return
		}
		f.row = row
	}
	old := len(f.f.cells)
	b, err := f.row.Encode(f.f.cells, v)
	switch {
	case err != nil:
		f.f.fail(err)
	case !null(b[old:]):
		f.f.grown(b)
	}
}

func (f *fewOf[V]) values() []V {
	f.f.compact()
	vs := make([]V, len(f.f.starts))
	for i, at := range f.f.starts {
		end := len(f.f.cells)
		if i+1 < len(f.f.starts) {
			end = f.f.starts[i+1]
		}
		var err error
		if vs[i], err = f.row.Decode(f.f.cells[at:end]); err != nil {
			panic("agg: an encoded value can't be read: " + err.Error())
		}
	}
	return vs
}

func (f *fewOf[V]) text() string {
	f.f.compact()
	return f.f.result().String()
}

func (f *fewOf[V]) configure(p string) (err error) {
	f.f.limit, err = keptOf(p)
	return err
}

func (f *fewOf[V]) load(cells []byte, last bool) (rest []byte, err error) {
	f.f.last = last
	b, err := open(cells, f.f.tag())
	if err != nil {
		return nil, err
	}
	if f.row, err = codecOf[V](); err != nil {
		return nil, err
	}
	if rest, err = f.f.read(b); err != nil {
		return nil, err
	}
	f.f.cells = bytes.Clone(f.f.cells)
	for i, at := range f.f.starts {
		end := len(f.f.cells)
		if i+1 < len(f.f.starts) {
			end = f.f.starts[i+1]
		}
		if _, err := f.row.Decode(f.f.cells[at:end]); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

func describeList[V any](fn string, limit int) (string, string, error) {
	_, _, err := describeCell[V](fn)
	return withParam(fn, limit), "list", err
}

// withParam is a function's name in a column, with what it was made for.
func withParam(fn string, limit int) string {
	if limit == 0 {
		return fn
	}
	return fmt.Sprintf("%s(%d)", fn, limit)
}

// FirstN keeps the first values that aren't null, in the order of batches, source partitions and offsets. How many, a
// tag of the field says: `trident:",n=10"`.
type FirstN[V any] struct{ f fewOf[V] }

// Add takes v if there is room yet.
func (f *FirstN[V]) Add(v V) { f.f.add(v) }

// Values returns the values, the first one first.
func (f FirstN[V]) Values() []V { return f.f.values() }

// String returns the values as a JSON list.
func (f FirstN[V]) String() string { return f.f.text() }

func (f *FirstN[V]) describe() (fn, typ string, err error) {
	return describeList[V]("first_n", f.f.f.limit)
}
func (f *FirstN[V]) at(p unsafe.Pointer) accumulator { return (*FirstN[V])(p) }
func (f *FirstN[V]) append(dst []byte) []byte        { return f.f.f.Append(dst) }
func (f *FirstN[V]) status() uintptr {
	return unsafe.Offsetof(f.f) + unsafe.Offsetof(f.f.f) + unsafe.Offsetof(f.f.f.fault) + unsafe.Offsetof(f.f.f.fault.bad)
}
func (f *FirstN[V]) failure() error                    { return f.f.f.failure() }
func (f *FirstN[V]) detach()                           { f.f.f.detach() }
func (f *FirstN[V]) load(cells []byte) ([]byte, error) { return f.f.load(cells, false) }
func (f *FirstN[V]) configure(p string) error          { return f.f.configure(p) }
func (f *FirstN[V]) parameter() string                 { return "n" }

// LastN keeps the last values that aren't null, in the order of batches, source partitions and offsets. How many, a tag
// of the field says: `trident:",n=10"`.
type LastN[V any] struct{ f fewOf[V] }

// Add takes v.
func (l *LastN[V]) Add(v V) {
	l.f.f.last = true
	l.f.add(v)
}

// Values returns the values, the last one last.
func (l LastN[V]) Values() []V {
	l.f.f.detach()
	return l.f.values()
}

// String returns the values as a JSON list.
func (l LastN[V]) String() string {
	l.f.f.detach()
	return l.f.text()
}

func (l *LastN[V]) describe() (fn, typ string, err error) {
	return describeList[V]("last_n", l.f.f.limit)
}
func (l *LastN[V]) at(p unsafe.Pointer) accumulator { return (*LastN[V])(p) }
func (l *LastN[V]) append(dst []byte) []byte {
	l.f.f.last = true
	return l.f.f.Append(dst)
}

func (l *LastN[V]) status() uintptr {
	return unsafe.Offsetof(l.f) + unsafe.Offsetof(l.f.f) + unsafe.Offsetof(l.f.f.fault) + unsafe.Offsetof(l.f.f.fault.bad)
}
func (l *LastN[V]) failure() error                    { return l.f.f.failure() }
func (l *LastN[V]) detach()                           { l.f.f.detach() }
func (l *LastN[V]) load(cells []byte) ([]byte, error) { return l.f.load(cells, true) }
func (l *LastN[V]) configure(p string) error          { return l.f.configure(p) }
func (l *LastN[V]) parameter() string                 { return "n" }

var errKept = fmt.Errorf("a number from 1 to %d is due", MaxKept)

// keptOf reads how many values are kept.
func keptOf(p string) (int, error) {
	n := 0
	for _, c := range []byte(p) {
		if c < '0' || c > '9' || n > MaxKept {
			return 0, errKept
		}
		n = 10*n + int(c-'0')
	}
	if n < 1 || n > MaxKept {
		return 0, errKept
	}
	return n, nil
}

var errNoNumber = errors.New("only numbers can be taken")
