package agg

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
)

// Number is what can be added up.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64 | decimal.Decimal
}

// Ordered is what has a least and a greatest.
type Ordered interface {
	Number | ~string | time.Time
}

// accumulator is implemented by pointers to the accumulators. The zero accumulator is one without values.
type accumulator interface {
	// describe returns the aggregate's name and the type of its column, or what is wrong with the type parameter.
	describe() (fn, typ string, err error)
	// at returns the accumulator at p, which must be of the same type.
	at(p unsafe.Pointer) accumulator
	// append appends the cell.
	append(dst []byte) []byte
	// load sets a zero accumulator to what a cell holds and returns the cells behind it.
	load(cells []byte) (rest []byte, err error)
	// status is where the status lies within the accumulator.
	status() uintptr
	// failure says what happened to an accumulator whose status isn't ok.
	failure() error
	// detach makes a copy of an accumulator independent of what it was copied from.
	detach()
}

// status is 0 as long as all is well. It stays what it became first.
type status uint8

const (
	countOverflow status = 1 + iota
	sumOverflow
	cannotHold
)

func (s status) err() error {
	switch s {
	case countOverflow:
		return errCount
	case sumOverflow:
		return errSumDigits
	case cannotHold:
		return errors.New("a value that can't be stored")
	}
	return nil
}

// kind is how the bytes of a number or an ordered value are read. It holds a reflect.Kind, or one of two more for the
// structs among them; 0 stands for "not known yet".
type kind uint8

const (
	kindDecimal kind = 100 + iota
	kindTime

	kindInt64 = kind(reflect.Int64) // most common by far, and so looked for first
)

func kindOf[N any]() kind {
	switch t := reflect.TypeFor[N](); t {
	case reflect.TypeFor[decimal.Decimal]():
		return kindDecimal
	case reflect.TypeFor[time.Time]():
		return kindTime
	default:
		switch k := t.Kind(); {
		case k == reflect.Int && t.Size() == 8:
			return kindInt64
		case k == reflect.Uint && t.Size() == 8:
			return kind(reflect.Uint64)
		default:
			return kind(k)
		}
	}
}

func (k kind) float() bool { return k == kind(reflect.Float32) || k == kind(reflect.Float64) }

// signed reads an integer of up to 64 bits with a sign; ok = false if k is of another kind.
func (k kind) signed(p unsafe.Pointer) (i int64, ok bool) {
	switch reflect.Kind(k) {
	case reflect.Int64:
		return *(*int64)(p), true
	case reflect.Int:
		return int64(*(*int)(p)), true
	case reflect.Int32:
		return int64(*(*int32)(p)), true
	case reflect.Int16:
		return int64(*(*int16)(p)), true
	case reflect.Int8:
		return int64(*(*int8)(p)), true
	}
	return 0, false
}

func (k kind) unsigned(p unsafe.Pointer) uint64 {
	switch reflect.Kind(k) {
	case reflect.Uint64:
		return *(*uint64)(p)
	case reflect.Uint:
		return uint64(*(*uint)(p))
	case reflect.Uint32:
		return uint64(*(*uint32)(p))
	case reflect.Uint16:
		return uint64(*(*uint16)(p))
	case reflect.Uint8:
		return uint64(*(*uint8)(p))
	}
	panic(fmt.Sprintf("agg: %s is no number", reflect.Kind(k)))
}

func (k kind) real(p unsafe.Pointer) float64 {
	if k == kind(reflect.Float32) {
		return float64(*(*float32)(p))
	}
	return *(*float64)(p)
}

// value reads any kind. Only a time can be out of range.
func (k kind) value(p unsafe.Pointer) (value.Value, error) {
	if i, ok := k.signed(p); ok {
		return value.IntOf(i), nil
	}
	switch {
	case k.float():
		return value.FloatOf(k.real(p)), nil
	case k == kindDecimal:
		return value.DecimalOf(*(*decimal.Decimal)(p)), nil
	case k == kindTime:
		n, err := value.Nanos(*(*time.Time)(p))
		return value.TimeOf(n), err
	case k == kind(reflect.String):
		return value.StringOf(*(*string)(p)), nil
	}
	return value.UintOf(k.unsigned(p)), nil
}

// Counter counts records.
type Counter struct {
	n   int64
	bad status
}

// Inc counts one record.
func (c *Counter) Inc() {
	if c.n == math.MaxInt64 {
		c.bad = countOverflow
		return
	}
	c.n++
}

// If counts one record if the condition holds.
func (c *Counter) If(condition bool) {
	if condition {
		c.Inc()
	}
}

// Add counts n records.
func (c *Counter) Add(n int64) {
	sum := c.n + n
	if (sum > c.n) != (n > 0) && n != 0 {
		c.bad = countOverflow
		return
	}
	c.n = sum
}

// Value returns the count.
func (c Counter) Value() int64 { return c.n }

// String returns the count.
func (c Counter) String() string { return fmt.Sprint(c.n) }

func (c *Counter) describe() (fn, typ string, err error) { return "count", "int", nil }
func (c *Counter) at(p unsafe.Pointer) accumulator       { return (*Counter)(p) }
func (c *Counter) append(dst []byte) []byte              { return AppendCount(dst, c.n) }
func (c *Counter) status() uintptr                       { return unsafe.Offsetof(c.bad) }
func (c *Counter) failure() error                        { return c.bad.err() }
func (c *Counter) detach()                               {}
func (c *Counter) load(cells []byte) (rest []byte, err error) {
	b, err := open(cells, tagCount)
	if err != nil {
		return nil, err
	}
	n, w := readInt128(b)
	if w <= 0 {
		return nil, errCut
	}
	var ok bool
	if c.n, ok = n.Int64(); !ok {
		return nil, errCount
	}
	return b[w:], nil
}

// open checks the tag of the first cell and returns what follows it.
func open(cells []byte, want tag) ([]byte, error) {
	switch {
	case len(cells) == 0:
		return nil, fmt.Errorf("nothing where %s is due", want)
	case tag(cells[0]) != want:
		return nil, fmt.Errorf("it is %s, not %s", tag(cells[0]), want)
	}
	return cells[1:], nil
}

// numbers sums numbers of one kind, for Sum and Mean.
type numbers struct {
	n    int64
	num  Int128 // the sum of integers; Lo holds the bits of a sum of floats
	dec  decimal.Decimal
	kind kind
	bad  status
}

func (s *numbers) add(k kind, p unsafe.Pointer) {
	s.kind = k
	if k == kindInt64 {
		s.num.Add(*(*int64)(p)) // there aren't enough records in a batch to leave 128 bits
		s.n++
		return
	}
	switch i, ok := k.signed(p); {
	case ok:
		s.num.Add(i)
	case k.float():
		sum := k.real(p)
		if s.n > 0 {
			sum = math.Float64frombits(s.num.Lo) + sum
		}
		s.num.Lo = math.Float64bits(sum)
	case k == kindDecimal:
		d, err := AddDecimal(s.dec, *(*decimal.Decimal)(p))
		if err != nil {
			s.bad = sumOverflow
			return
		}
		s.dec = d
	default:
		s.num.AddUint(k.unsigned(p))
	}
	s.n++
}

// tags of the cell, by kind.
func (s *numbers) tag(k kind, mean bool) tag {
	t := tagSumInt
	switch {
	case k.float():
		t = tagSumFloat
	case k == kindDecimal:
		t = tagSumDecimal
	}
	if mean {
		t += tagAvgInt - tagSumInt
	}
	return t
}

func (s *numbers) append(dst []byte, k kind, mean bool) []byte {
	dst = append(dst, byte(s.tag(k, mean)))
	switch {
	case k.float():
		return floatSum{s.n, math.Float64frombits(s.num.Lo)}.append(dst)
	case k == kindDecimal:
		return decimalSum{s.n, s.dec}.append(dst)
	}
	return intSum{s.n, s.num}.append(dst)
}

func (s *numbers) load(cells []byte, k kind, mean bool) (rest []byte, err error) {
	b, err := open(cells, s.tag(k, mean))
	if err != nil {
		return nil, err
	}
	s.kind = k
	switch {
	case k.float():
		f, rest, err := readFloatSum(b)
		s.n, s.num.Lo = f.n, math.Float64bits(f.sum)
		return rest, err
	case k == kindDecimal:
		d, rest, err := readDecimalSum(b)
		s.n, s.dec = d.n, d.sum
		return rest, err
	}
	i, rest, err := readIntSum(b)
	s.n, s.num = i.n, i.sum
	return rest, err
}

// result is what queries show.
func (s *numbers) result(mean bool) value.Value {
	switch {
	case s.n == 0:
		return value.NullValue()
	case s.kind.float():
		return floatSum{s.n, math.Float64frombits(s.num.Lo)}.result(mean)
	case s.kind == kindDecimal:
		v, err := decimalSum{s.n, s.dec}.result(mean)
		if err != nil { // the mean of a number isn't longer than the number
			panic("agg: mean of decimals: " + err.Error())
		}
		return v
	}
	return intSum{s.n, s.num}.result(mean)
}

// numberType returns the column type of a kind.
func numberType(k kind) string {
	switch {
	case k.float():
		return "float"
	case k == kindDecimal:
		return "decimal"
	}
	return "int"
}

// Sum adds up numbers: integers in 128 bits and decimals exactly, floats one after the other in the order of the
// records.
type Sum[N Number] struct{ s numbers }

// Add adds x.
func (s *Sum[N]) Add(x N) {
	k := s.s.kind
	if k == 0 {
		k = kindOf[N]()
	}
	s.s.add(k, unsafe.Pointer(&x))
}

// Value returns the sum; ok = false if there was no number, or if the sum doesn't fit an N (String shows it).
func (s Sum[N]) Value() (sum N, ok bool) { return convert[N](s.s.result(false)) }

// String returns the sum with all its digits, "null" if there was no number.
func (s Sum[N]) String() string { return s.s.result(false).String() }

func (s *Sum[N]) describe() (fn, typ string, err error) { return "sum", numberType(kindOf[N]()), nil }
func (s *Sum[N]) at(p unsafe.Pointer) accumulator       { return (*Sum[N])(p) }
func (s *Sum[N]) append(dst []byte) []byte              { return s.s.append(dst, kindOf[N](), false) }

func (s *Sum[N]) status() uintptr                   { return unsafe.Offsetof(s.s) + unsafe.Offsetof(s.s.bad) }
func (s *Sum[N]) failure() error                    { return s.s.bad.err() }
func (s *Sum[N]) detach()                           {}
func (s *Sum[N]) load(cells []byte) ([]byte, error) { return s.s.load(cells, kindOf[N](), false) }

// Mean is the arithmetic mean of numbers: the sum, as of Sum, divided once by their number.
type Mean[N Number] struct{ s numbers }

// Add adds x.
func (m *Mean[N]) Add(x N) {
	k := m.s.kind
	if k == 0 {
		k = kindOf[N]()
	}
	m.s.add(k, unsafe.Pointer(&x))
}

// Value returns the mean; ok = false if there was no number. A mean of decimals has more digits, which String shows.
func (m Mean[N]) Value() (mean float64, ok bool) {
	switch v := m.s.result(true); v.Kind() {
	case value.Null:
		return 0, false
	case value.Decimal:
		return v.Decimal().Float64(), true
	default:
		return v.Float(), true
	}
}

// String returns the mean, "null" if there was no number.
func (m Mean[N]) String() string { return m.s.result(true).String() }

func (m *Mean[N]) describe() (fn, typ string, err error) {
	typ, err = funcs["avg"].Result(numberType(kindOf[N]()))
	return "avg", typ, err
}
func (m *Mean[N]) at(p unsafe.Pointer) accumulator   { return (*Mean[N])(p) }
func (m *Mean[N]) append(dst []byte) []byte          { return m.s.append(dst, kindOf[N](), true) }
func (m *Mean[N]) status() uintptr                   { return unsafe.Offsetof(m.s) + unsafe.Offsetof(m.s.bad) }
func (m *Mean[N]) failure() error                    { return m.s.bad.err() }
func (m *Mean[N]) detach()                           {}
func (m *Mean[N]) load(cells []byte) ([]byte, error) { return m.s.load(cells, kindOf[N](), true) }

// extreme keeps the least or the greatest value, for Min and Max.
type extreme[N Ordered] struct {
	v    N
	kind kind // 0 as long as there is no value
	bad  status
}

func (e *extreme[N]) add(x N, max bool) {
	if e.kind == 0 {
		k := kindOf[N]()
		if _, err := k.value(unsafe.Pointer(&x)); err != nil {
			e.bad = cannotHold
			return
		}
		e.v, e.kind = x, k
		return
	}
	if e.kind == kindInt64 {
		i, best := *(*int64)(unsafe.Pointer(&x)), *(*int64)(unsafe.Pointer(&e.v))
		if max && i > best || !max && i < best {
			e.v = x
		}
		return
	}
	v, err := e.kind.value(unsafe.Pointer(&x))
	if err != nil {
		e.bad = cannotHold
		return
	}
	best, err := e.kind.value(unsafe.Pointer(&e.v))
	if err != nil {
		panic("agg: a value went out of range while it was kept: " + err.Error())
	}
	if Better(max, best, v) {
		e.v = x
	}
}

func (e *extreme[N]) append(dst []byte, max bool) []byte {
	if e.kind == 0 {
		return AppendMinMax(dst, max, value.NullValue())
	}
	v, err := e.kind.value(unsafe.Pointer(&e.v))
	if err != nil {
		panic("agg: a value went out of range while it was kept: " + err.Error())
	}
	return AppendMinMax(dst, max, v)
}

func (e *extreme[N]) load(cells []byte, t tag) (rest []byte, err error) {
	b, err := open(cells, t)
	if err != nil {
		return nil, err
	}
	v, rest, err := value.DecodeBinary(b)
	if err != nil || v.IsNull() {
		return rest, err
	}
	x, ok := convert[N](v)
	if !ok {
		return nil, fmt.Errorf("%s is a %s and doesn't fit %s", v, v.Kind(), reflect.TypeFor[N]())
	}
	e.v, e.kind = x, kindOf[N]()
	return rest, nil
}

func (e *extreme[N]) text() string {
	if e.kind == 0 {
		return "null"
	}
	v, err := e.kind.value(unsafe.Pointer(&e.v))
	if err != nil {
		panic("agg: a value went out of range while it was kept: " + err.Error())
	}
	return v.String()
}

func describeCell[V any](fn string) (string, string, error) {
	row, err := codecOf[V]()
	if err != nil {
		return fn, "", err
	}
	return fn, row.Columns()[0].Type, nil
}

// Min keeps the least value. -0 equals 0, and NaN is above all numbers.
type Min[N Ordered] struct{ e extreme[N] }

// Add takes x into account.
func (m *Min[N]) Add(x N) { m.e.add(x, false) }

// Value returns the least value; ok = false if there was none.
func (m Min[N]) Value() (least N, ok bool) { return m.e.v, m.e.kind != 0 }

// String returns the least value, "null" if there was none.
func (m Min[N]) String() string { return m.e.text() }

func (m *Min[N]) describe() (fn, typ string, err error) { return describeCell[N]("min") }
func (m *Min[N]) at(p unsafe.Pointer) accumulator       { return (*Min[N])(p) }
func (m *Min[N]) append(dst []byte) []byte              { return m.e.append(dst, false) }
func (m *Min[N]) status() uintptr                       { return unsafe.Offsetof(m.e) + unsafe.Offsetof(m.e.bad) }
func (m *Min[N]) failure() error                        { return m.e.bad.err() }
func (m *Min[N]) detach()                               {}
func (m *Min[N]) load(cells []byte) ([]byte, error)     { return m.e.load(cells, tagMin) }

// Max keeps the greatest value. -0 equals 0, and NaN is above all numbers.
type Max[N Ordered] struct{ e extreme[N] }

// Add takes x into account.
func (m *Max[N]) Add(x N) { m.e.add(x, true) }

// Value returns the greatest value; ok = false if there was none.
func (m Max[N]) Value() (greatest N, ok bool) { return m.e.v, m.e.kind != 0 }

// String returns the greatest value, "null" if there was none.
func (m Max[N]) String() string { return m.e.text() }

func (m *Max[N]) describe() (fn, typ string, err error) { return describeCell[N]("max") }
func (m *Max[N]) at(p unsafe.Pointer) accumulator       { return (*Max[N])(p) }
func (m *Max[N]) append(dst []byte) []byte              { return m.e.append(dst, true) }
func (m *Max[N]) status() uintptr                       { return unsafe.Offsetof(m.e) + unsafe.Offsetof(m.e.bad) }
func (m *Max[N]) failure() error                        { return m.e.bad.err() }
func (m *Max[N]) detach()                               {}
func (m *Max[N]) load(cells []byte) ([]byte, error)     { return m.e.load(cells, tagMax) }

// codecs holds a *value.Row[V] per type V.
var codecs sync.Map

// codecOf returns the codec that makes one cell of a V.
func codecOf[V any]() (*value.Row[V], error) {
	t := reflect.TypeFor[V]()
	if c, ok := codecs.Load(t); ok {
		return c.(*value.Row[V]), nil
	}
	row, err := value.CellOf[V]()
	if err != nil {
		return nil, err
	}
	c, _ := codecs.LoadOrStore(t, row)
	return c.(*value.Row[V]), nil
}

// convert brings a value into a Go type; ok = false if it is null or doesn't fit.
func convert[V any](v value.Value) (x V, ok bool) {
	if v.IsNull() {
		return x, false
	}
	row, err := codecOf[V]()
	if err != nil {
		return x, false
	}
	x, err = row.Decode(value.AppendBinary(nil, v))
	return x, err == nil
}
