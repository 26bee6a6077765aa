package agg

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/state"
)

// Aggregation is what an aggregate does with values of type T. It is made by the functions of this package and may
// be used by many goroutines at once; the tables that it makes may not.
type Aggregation[T any] interface {
	// Columns describes the aggregates, in the order of their results.
	Columns() []state.Column
	// Err says what is wrong with the way it was made: reported when the pipeline is built.
	Err() error
	// Exact tells whether all cells are exactly associative, as the function Exact.
	Exact() bool
	// NewTable returns an empty table for combining values before they leave their partition.
	NewTable() Table[T]
	// Merge appends to dst the combination of two deltas, a before b.
	Merge(dst, a, b []byte) ([]byte, error)
	// Update appends to dst the value of a state whose value was old (nil: absent), after delta.
	Update(dst, old, delta []byte) ([]byte, error)
}

// Table combines values by slot. Which slot belongs to which key is the caller's business.
type Table[T any] interface {
	// Reset empties the table and keeps its memory.
	Reset()
	// New returns the next slot, without values: 0, 1, 2, ….
	New() int
	// Add takes v into account. After an error the table holds nothing of use until it is reset.
	Add(slot int, v T) error
	// Save keeps a copy of a slot, of one at a time, and Restore brings it back: what a function did that failed
	// half-way is undone.
	Save(slot int)
	Restore(slot int)
	// Append appends the cells of a slot: a delta. It panics with a *batch.Error if a user's accumulator can't be
	// encoded.
	Append(dst []byte, slot int) []byte
}

// Fields makes an aggregate of each field of A, a struct of accumulators: Counter, Sum, Min, Max, Mean, First, Last,
// Collect, FirstN, LastN, Top, TopBy, MinBy, MaxBy, Distinct, Quantile, Variance, StdDev. Their columns are named after the
// fields, in snake_case or as a `trident:"name"` tag says; a tag of "-" leaves a field out. What an accumulator must know
// follows the name: `trident:"name,n=10"`, `trident:",p=0.99"`. add is called once per value with the accumulators of the value's key; it must depend on its
// arguments only.
func Fields[T, A any](add func(a *A, v T)) Aggregation[T] {
	f := &fields[T, A]{add: add}
	f.cells, f.err = accumulatorsOf(reflect.TypeFor[A]())
	f.prepare()
	return f
}

// single is Fields with one accumulator that is A itself.
func single[T, A any](name string, add func(a *A, v T)) Aggregation[T] {
	return with(name, "", add)
}

// with is single for an accumulator that must know param.
func with[T, A any](name, param string, add func(a *A, v T)) Aggregation[T] {
	f := &fields[T, A]{add: add}
	acc, ok := any(new(A)).(accumulator)
	if !ok {
		panic(fmt.Sprintf("agg: %s is no accumulator", reflect.TypeFor[A]()))
	}
	if c, ok := acc.(configured); ok {
		if err := c.configure(param); err != nil {
			f.err = fmt.Errorf("aggregate %s: %s: %w", name, c.parameter(), err)
			return f
		}
	}
	if f.cells, f.err = describe(nil, name, 0, acc); f.err == nil {
		f.cells[0].param = param
	}
	f.prepare()
	return f
}

// Count counts values.
func Count[T any](name string) Aggregation[T] {
	return single(name, func(c *Counter, _ T) { c.Inc() })
}

// CountIf counts the values for which f holds.
func CountIf[T any](name string, f func(T) bool) Aggregation[T] {
	return single(name, func(c *Counter, v T) { c.If(f(v)) })
}

// SumOf adds up what f returns.
func SumOf[T any, N Number](name string, f func(T) N) Aggregation[T] {
	return single(name, func(s *Sum[N], v T) { s.Add(f(v)) })
}

// MeanOf is the mean of what f returns.
func MeanOf[T any, N Number](name string, f func(T) N) Aggregation[T] {
	return single(name, func(m *Mean[N], v T) { m.Add(f(v)) })
}

// MinOf is the least of what f returns.
func MinOf[T any, N Ordered](name string, f func(T) N) Aggregation[T] {
	return single(name, func(m *Min[N], v T) { m.Add(f(v)) })
}

// MaxOf is the greatest of what f returns.
func MaxOf[T any, N Ordered](name string, f func(T) N) Aggregation[T] {
	return single(name, func(m *Max[N], v T) { m.Add(f(v)) })
}

// FirstOf keeps the first of what f returns that isn't null.
func FirstOf[T, V any](name string, f func(T) V) Aggregation[T] {
	return single(name, func(a *First[V], v T) { a.Add(f(v)) })
}

// LastOf keeps the last of what f returns that isn't null.
func LastOf[T, V any](name string, f func(T) V) Aggregation[T] {
	return single(name, func(a *Last[V], v T) { a.Add(f(v)) })
}

// CollectOf keeps all of what f returns that isn't null; see Collect for what that costs.
func CollectOf[T, V any](name string, f func(T) V) Aggregation[T] {
	return single(name, func(a *Collect[V], v T) { a.Add(f(v)) })
}

// FirstNOf keeps the first n of what f returns that isn't null.
func FirstNOf[T, V any](name string, n int, f func(T) V) Aggregation[T] {
	return with(name, strconv.Itoa(n), func(a *FirstN[V], v T) { a.Add(f(v)) })
}

// LastNOf keeps the last n of what f returns that isn't null.
func LastNOf[T, V any](name string, n int, f func(T) V) Aggregation[T] {
	return with(name, strconv.Itoa(n), func(a *LastN[V], v T) { a.Add(f(v)) })
}

// TopOf keeps the k greatest distinct values of what f returns.
func TopOf[T any, V Ordered](name string, k int, f func(T) V) Aggregation[T] {
	return with(name, strconv.Itoa(k), func(a *Top[V], v T) { a.Add(f(v)) })
}

// TopByOf keeps the k distinct values of what f returns with the greatest weights; of equal weights the lesser values.
func TopByOf[T any, V, W Ordered](name string, k int, f func(T) V, weight func(T) W) Aggregation[T] {
	return with(name, strconv.Itoa(k), func(a *TopBy[V, W], v T) { a.Add(f(v), weight(v)) })
}

// MinByOf is what f returns for the value with the least by; for the first of several.
func MinByOf[T, V any, W Ordered](name string, f func(T) V, by func(T) W) Aggregation[T] {
	return single(name, func(a *MinBy[V, W], v T) { a.Add(f(v), by(v)) })
}

// MaxByOf is what f returns for the value with the greatest by; for the first of several.
func MaxByOf[T, V any, W Ordered](name string, f func(T) V, by func(T) W) Aggregation[T] {
	return single(name, func(a *MaxBy[V, W], v T) { a.Add(f(v), by(v)) })
}

// DistinctOf estimates how many distinct values f returns; see Distinct for how well.
func DistinctOf[T, V any](name string, f func(T) V) Aggregation[T] {
	return single(name, func(a *Distinct[V], v T) { a.Add(f(v)) })
}

// QuantileOf estimates a quantile of what f returns: p = 0.5 is the median. See Quantile for how well.
func QuantileOf[T any, N Number](name string, p float64, f func(T) N) Aggregation[T] {
	return with(name, strconv.FormatFloat(p, 'g', -1, 64), func(a *Quantile[N], v T) { a.Add(f(v)) })
}

// VarianceOf is the variance of what f returns.
func VarianceOf[T any, N Number](name string, f func(T) N) Aggregation[T] {
	return single(name, func(a *Variance[N], v T) { a.Add(f(v)) })
}

// StdDevOf is the standard deviation of what f returns.
func StdDevOf[T any, N Number](name string, f func(T) N) Aggregation[T] {
	return single(name, func(a *StdDev[N], v T) { a.Add(f(v)) })
}

// configured is an accumulator that must know something before its first value.
type configured interface {
	// parameter is the name of it, as a field's tag gives it.
	parameter() string
	configure(param string) error
}

// cellAt is an accumulator within a struct.
type cellAt struct {
	column state.Column
	param  string // what the accumulator must know; empty for most
	offset uintptr
	status uintptr // where its status lies, within the struct
	proto  accumulator
	exact  bool
}

func (c *cellAt) in(base unsafe.Pointer) accumulator { return c.proto.at(unsafe.Add(base, c.offset)) }

var accumulatorType = reflect.TypeFor[accumulator]()

// accumulatorsOf lists the accumulators of a struct type.
func accumulatorsOf(t reflect.Type) ([]cellAt, error) {
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(accumulatorType) {
		return nil, fmt.Errorf("%s is no struct of accumulators such as agg.Counter", t)
	}
	cells, err := addAccumulators(nil, t, t, 0)
	if err != nil {
		return nil, err
	}
	if len(cells) == 0 {
		return nil, fmt.Errorf("%s has no accumulators; give it fields such as agg.Counter", t)
	}
	seen := map[string]bool{}
	for _, c := range cells {
		if seen[c.column.Name] {
			return nil, fmt.Errorf(`%s has two aggregates named %s; rename one by a trident:"name" tag`, t, c.column.Name)
		}
		seen[c.column.Name] = true
	}
	return cells, nil
}

func addAccumulators(cells []cellAt, top, t reflect.Type, base uintptr) ([]cellAt, error) {
	for sf := range t.Fields() {
		tag, options, _ := strings.Cut(sf.Tag.Get("trident"), ",")
		acc, ok := reflect.TypeAssert[accumulator](reflect.New(sf.Type))
		var err error
		switch {
		case tag == "-" || sf.Name == "_":
			continue
		case !ok && sf.Anonymous && sf.Type.Kind() == reflect.Struct:
			cells, err = addAccumulators(cells, top, sf.Type, base+sf.Offset)
		case !ok:
			err = fmt.Errorf(`field %s of %s is a %s and no accumulator; use one of package agg's, such as agg.Counter or agg.Sum, or leave it out by a trident:"-" tag`, sf.Name, top, sf.Type)
		case !sf.IsExported():
			err = fmt.Errorf(`field %s of %s is unexported; export it, or leave it out by a trident:"-" tag`, sf.Name, top)
		default:
			if tag == "" {
				tag = names.Snake(sf.Name)
			}
			var param string
			if param, err = configure(acc, options); err == nil {
				if cells, err = describe(cells, tag, base+sf.Offset, acc); err == nil {
					cells[len(cells)-1].param = param
				}
			}
			if err != nil {
				err = fmt.Errorf("field %s of %s: %w", sf.Name, top, err)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return cells, nil
}

// configure gives an accumulator what the options of a field's tag say.
func configure(acc accumulator, options string) (param string, err error) {
	c, ok := acc.(configured)
	if !ok {
		if options != "" {
			return "", fmt.Errorf("%q: it has no options", options)
		}
		return "", nil
	}
	name, param, _ := strings.Cut(options, "=")
	if name != c.parameter() {
		return "", fmt.Errorf(`say its %s by a tag: trident:",%[1]s=…"`, c.parameter())
	}
	if err := c.configure(param); err != nil {
		return "", fmt.Errorf("%s: %w", options, err)
	}
	return param, nil
}

func describe(cells []cellAt, name string, offset uintptr, acc accumulator) ([]cellAt, error) {
	fn, typ, err := acc.describe()
	if err != nil {
		return nil, err
	}
	return append(cells, cellAt{
		column: state.Column{Name: name, Type: typ, Agg: fn}, offset: offset, status: offset + acc.status(), proto: acc,
		exact: Exact(acc.append(nil)),
	}), nil
}

// fields is an Aggregation whose state is a struct of accumulators.
type fields[T, A any] struct {
	add   func(*A, T)
	cells []cellAt
	// By cell, apart from the rest because they are looked at for each value: where the status lies.
	status []uintptr
	names  []string
	exact  bool
	err    error
	empty  A // without values, but knowing what it must
}

func (f *fields[T, A]) prepare() {
	f.exact = true
	for i := range f.cells {
		c := &f.cells[i]
		if acc, ok := c.in(unsafe.Pointer(&f.empty)).(configured); ok && f.err == nil {
			if err := acc.configure(c.param); err != nil {
				panic("agg: " + err.Error()) // it was tried before
			}
		}
		f.status = append(f.status, c.status)
		f.names = append(f.names, c.column.Name)
		f.exact = f.exact && c.exact
	}
}

func (f *fields[T, A]) Columns() []state.Column {
	cols := make([]state.Column, len(f.cells))
	for i, c := range f.cells {
		cols[i] = c.column
	}
	return cols
}

func (f *fields[T, A]) Err() error         { return f.err }
func (f *fields[T, A]) Exact() bool        { return f.exact }
func (f *fields[T, A]) NewTable() Table[T] { return &table[T, A]{f: f} }

func (f *fields[T, A]) Merge(dst, a, b []byte) ([]byte, error) { return mergeNamed(dst, a, b, f.names) }

func (f *fields[T, A]) Update(dst, old, delta []byte) ([]byte, error) {
	if old == nil {
		return append(dst, delta...), nil
	}
	return f.Merge(dst, old, delta)
}

// table holds the accumulators of a partition's keys in one slice. Accumulators are reached by their offsets, which
// are right for A since they come from its type; no pointer to a slot is kept, as the slice may move.
type table[T, A any] struct {
	f     *fields[T, A]
	slots []A
	saved A
}

func (t *table[T, A]) Reset() {
	clear(t.slots)
	t.slots = t.slots[:0]
}

func (t *table[T, A]) New() int {
	t.slots = append(t.slots, t.f.empty)
	return len(t.slots) - 1
}

func (t *table[T, A]) Add(slot int, v T) error {
	a := &t.slots[slot]
	t.f.add(a, v)
	for i, at := range t.f.status {
		if *(*status)(unsafe.Add(unsafe.Pointer(a), at)) != 0 {
			return t.failure(i, unsafe.Pointer(a))
		}
	}
	return nil
}

func (t *table[T, A]) failure(i int, base unsafe.Pointer) error {
	c := &t.f.cells[i]
	err := c.in(base).failure()
	if *(*status)(unsafe.Add(base, c.status)) == cannotHold {
		return batch.NewError(batch.Permanent, batch.CodeBadRecord, cellName(t.f.names, i), err, "filter such values out before they are aggregated")
	}
	return overflow(cellName(t.f.names, i), err)
}

func (t *table[T, A]) Save(slot int) {
	t.saved = t.slots[slot]
	for i := range t.f.cells {
		t.f.cells[i].in(unsafe.Pointer(&t.saved)).detach()
	}
}

func (t *table[T, A]) Restore(slot int) { t.slots[slot] = t.saved }

func (t *table[T, A]) Append(dst []byte, slot int) []byte {
	base := unsafe.Pointer(&t.slots[slot])
	for i := range t.f.cells {
		dst = t.f.cells[i].in(base).append(dst)
	}
	return dst
}
