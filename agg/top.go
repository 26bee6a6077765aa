package agg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/tridentd/tridentd/internal/value"
)

// top keeps the greatest distinct values, or those with the greatest weights: of equal weights the lesser values. Of
// values that are equal, the one with the greatest weight stays, and of these the earliest; so that what is kept depends
// neither on how the values are grouped nor, but for numbers of different kinds that are equal, on their order.
//
// The payload of tagTop is uvarint: how many are kept; uvarint: how many there are; binary values, the greatest first.
// In that of tagTopBy each value is followed by its weight.
type top struct {
	fault
	limit    int
	weighted bool
	entries  []ranked
}

type ranked struct{ x, weight value.Value }

func (t *top) tag() tag {
	if t.weighted {
		return tagTopBy
	}
	return tagTop
}

// compare orders entries: the first comes first in the list.
func (r ranked) compare(o ranked) int {
	if c := value.Compare(o.weight, r.weight); c != 0 {
		return c
	}
	return value.Compare(r.x, o.x)
}

// Add takes x with its weight into account, unless one of them is null. Without weights a value is its own.
func (t *top) Add(x, weight value.Value) error {
	if !t.weighted {
		weight = x
	}
	if x.IsNull() || weight.IsNull() {
		return nil
	}
	e := ranked{plainFloat(x), plainFloat(weight)}
	if n := len(t.entries); n == t.limit && e.compare(t.entries[n-1]) >= 0 {
		return nil
	}
	for i, o := range t.entries {
		if value.Compare(o.x, e.x) == 0 {
			if value.Compare(e.weight, o.weight) <= 0 {
				return nil
			}
			t.entries = slices.Delete(t.entries, i, i+1)
			break
		}
	}
	e.x = e.x.Clone()
	if e.weight = e.weight.Clone(); !t.weighted {
		e.weight = e.x
	}
	i, _ := slices.BinarySearchFunc(t.entries, e, ranked.compare)
	if len(t.entries) == t.limit {
		t.entries = t.entries[:t.limit-1]
	}
	t.entries = slices.Insert(t.entries, i, e)
	return nil
}

// plainFloat returns the one zero and the one NaN for a float.
func plainFloat(v value.Value) value.Value {
	if v.Kind() == value.Float {
		return value.FloatOf(canonical(v.Float()))
	}
	return v
}

// Append appends the cell.
func (t *top) Append(dst []byte) []byte { return t.append(append(dst, byte(t.tag()))) }

func (t *top) append(dst []byte) []byte {
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(t.limit)), uint64(len(t.entries)))
	for _, e := range t.entries {
		dst = value.AppendBinary(dst, e.x)
		if t.weighted {
			dst = value.AppendBinary(dst, e.weight)
		}
	}
	return dst
}

// read takes what a payload holds; decode is value.ViewBinary or value.DecodeBinary.
func (t *top) read(b []byte, decode func([]byte) (value.Value, []byte, error)) (rest []byte, err error) {
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
	t.limit, t.entries = int(limit), make([]ranked, n)
	for i := range t.entries {
		e := &t.entries[i]
		if e.x, b, err = decode(b); err != nil {
			return nil, err
		}
		e.weight = e.x
		if t.weighted {
			if e.weight, b, err = decode(b); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

func mergeTop(dst []byte, weighted bool, a, b []byte) (merged, restA, restB []byte, err error) {
	x, y := top{weighted: weighted}, top{weighted: weighted}
	if restA, err = x.read(a, value.ViewBinary); err != nil {
		return dst, nil, nil, err
	}
	if restB, err = y.read(b, value.ViewBinary); err != nil {
		return dst, nil, nil, err
	}
	if x.limit != y.limit {
		return dst, nil, nil, parameters(x.limit, y.limit)
	}
	for _, e := range y.entries {
		if err := x.Add(e.x, e.weight); err != nil {
			return dst, nil, nil, err
		}
	}
	return x.append(dst), restA, restB, nil
}

// result is the list of the values, or of lists of a value and its weight.
func (t *top) result() value.Value {
	vs := make([]value.Value, len(t.entries))
	for i, e := range t.entries {
		vs[i] = e.x
		if t.weighted {
			vs[i] = value.ListOf([]value.Value{e.x, e.weight})
		}
	}
	return value.ListOf(vs)
}

func (t *top) detach() { t.entries = slices.Clone(t.entries) }

func (t *top) load(cells []byte) (rest []byte, err error) {
	b, err := open(cells, t.tag())
	if err != nil {
		return nil, err
	}
	return t.read(b, value.DecodeBinary)
}

func (t *top) configure(p string) (err error) {
	t.limit, err = keptOf(p)
	return err
}

func (t *top) addOrdered(x, weight value.Value, errX, errWeight error) {
	switch {
	case errX != nil:
		t.fail(errX)
	case errWeight != nil:
		t.fail(errWeight)
	default:
		t.keep(t.Add(x, weight))
	}
}

// Top keeps the greatest distinct values. How many, a tag of the field says: `trident:",k=10"`. -0 equals 0, and NaN is
// above all numbers.
type Top[V Ordered] struct{ t top }

// Add takes v into account.
func (t *Top[V]) Add(v V) {
	x, err := kindOf[V]().value(unsafe.Pointer(&v))
	t.t.addOrdered(x, value.NullValue(), err, nil)
}

// Values returns the values, the greatest first.
func (t Top[V]) Values() []V {
	vs := make([]V, len(t.t.entries))
	for i, e := range t.t.entries {
		vs[i] = mustConvert[V](e.x)
	}
	return vs
}

// String returns the values as a JSON list.
func (t Top[V]) String() string { return t.t.result().String() }

func (t *Top[V]) describe() (fn, typ string, err error) { return describeList[V]("top", t.t.limit) }
func (t *Top[V]) at(p unsafe.Pointer) accumulator       { return (*Top[V])(p) }
func (t *Top[V]) append(dst []byte) []byte              { return t.t.Append(dst) }
func (t *Top[V]) status() uintptr {
	return unsafe.Offsetof(t.t) + unsafe.Offsetof(t.t.fault) + unsafe.Offsetof(t.t.fault.bad)
}
func (t *Top[V]) failure() error { return t.t.failure() }
func (t *Top[V]) detach()        { t.t.detach() }
func (t *Top[V]) load(cells []byte) ([]byte, error) {
	rest, err := t.t.load(cells)
	for _, e := range t.t.entries {
		if err == nil {
			err = fits[V](e.x)
		}
	}
	return rest, err
}
func (t *Top[V]) configure(p string) error { return t.t.configure(p) }
func (t *Top[V]) parameter() string        { return "k" }

// TopBy keeps the distinct values with the greatest weights; of equal weights the lesser values. How many, a tag of the
// field says: `trident:",k=10"`. A value that comes with several weights counts with the greatest.
type TopBy[V, W Ordered] struct{ t top }

// Ranked is a value with its weight.
type Ranked[V, W any] struct {
	Value  V
	Weight W
}

// Add takes v with its weight into account.
func (t *TopBy[V, W]) Add(v V, weight W) {
	t.t.weighted = true
	x, errX := kindOf[V]().value(unsafe.Pointer(&v))
	w, errW := kindOf[W]().value(unsafe.Pointer(&weight))
	t.t.addOrdered(x, w, errX, errW)
}

// Values returns the values, that with the greatest weight first.
func (t TopBy[V, W]) Values() []Ranked[V, W] {
	vs := make([]Ranked[V, W], len(t.t.entries))
	for i, e := range t.t.entries {
		vs[i] = Ranked[V, W]{mustConvert[V](e.x), mustConvert[W](e.weight)}
	}
	return vs
}

// String returns a JSON list of pairs.
func (t TopBy[V, W]) String() string {
	t.t.weighted = true
	return t.t.result().String()
}

func (t *TopBy[V, W]) describe() (fn, typ string, err error) {
	if _, _, err := describeCell[W]("top"); err != nil {
		return "", "", err
	}
	return describeList[V]("top", t.t.limit)
}
func (t *TopBy[V, W]) at(p unsafe.Pointer) accumulator { return (*TopBy[V, W])(p) }
func (t *TopBy[V, W]) append(dst []byte) []byte {
	t.t.weighted = true
	return t.t.Append(dst)
}

func (t *TopBy[V, W]) status() uintptr {
	return unsafe.Offsetof(t.t) + unsafe.Offsetof(t.t.fault) + unsafe.Offsetof(t.t.fault.bad)
}
func (t *TopBy[V, W]) failure() error { return t.t.failure() }
func (t *TopBy[V, W]) detach()        { t.t.detach() }
func (t *TopBy[V, W]) load(cells []byte) ([]byte, error) {
	t.t.weighted = true
	rest, err := t.t.load(cells)
	for _, e := range t.t.entries {
		if err == nil {
			err = errors.Join(fits[V](e.x), fits[W](e.weight))
		}
	}
	return rest, err
}
func (t *TopBy[V, W]) configure(p string) error { return t.t.configure(p) }
func (t *TopBy[V, W]) parameter() string        { return "k" }

func fits[V any](v value.Value) error {
	if _, ok := convert[V](v); !ok {
		return fmt.Errorf("%s is a %s and doesn't fit %s", v, v.Kind(), reflect.TypeFor[V]())
	}
	return nil
}

// mustConvert converts a value that was a V.
func mustConvert[V any](v value.Value) V {
	x, ok := convert[V](v)
	if !ok {
		panic("agg: a kept value doesn't fit its type: " + v.String())
	}
	return x
}
