// Package value defines dynamic values and their encodings: equal values have equal bytes, keys sort as their
// values do, and every encoding can be read without knowing what it holds. No decoder panics on garbage.
//
// Three encodings: keys (AppendKey: order preserving, self-delimiting), binary (AppendBinary: compact) and text
// (AppendJSON, AppendText: for people and other programs). The bytes are described in docs/internals/values.md;
// they are stored in databases, so a change of them is a change of the storage format. Codec and Row apply the
// first two to Go types.
//
// The package is used per record: nothing in it allocates for scalars, apart from the growth of the caller's
// buffer.
package value

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"unsafe"

	"github.com/tridentd/tridentd/decimal"
)

// Kind is the type of a value. The order of the kinds is the order of their values, numbers aside.
type Kind uint8

const (
	Null Kind = iota
	Bool
	Int
	Float
	Decimal
	String
	Bytes
	Time
	List
)

var kindNames = [...]string{"null", "bool", "int", "float", "decimal", "string", "bytes", "timestamp", "list"}

// String returns the name that users write: "int", "timestamp", ….
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Value is a value of any kind. The zero Value is null. Strings, bytes and lists are shared, not copied: whoever
// makes a Value of them mustn't change them as long as it is in use. Compare values with Compare.
//
// The layout keeps a Value at three words. By kind: num holds the bool, int, float bits, nanoseconds, a small
// decimal's coefficient or a length; ptr points to the bytes, the first element, or a wide *decimal.Decimal.
type Value struct {
	_    [0]func() // == would compare addresses
	ptr  unsafe.Pointer
	num  uint64
	exp  int32
	kind Kind
	raw  bool // the JSON form is the text itself, without quotes: an integer beyond int64, or JSON text
}

// NullValue returns null.
func NullValue() Value { return Value{} }

// BoolOf returns a bool.
func BoolOf(b bool) Value {
	v := Value{kind: Bool}
	if b {
		v.num = 1
	}
	return v
}

// IntOf returns an int.
func IntOf(i int64) Value { return Value{kind: Int, num: uint64(i)} }

// UintOf returns the integer u: an Int if it fits, otherwise as WideIntOf.
func UintOf(u uint64) Value { return WideIntOf(0, u) }

// WideIntOf returns the 128-bit two's complement integer hi<<64 | lo. It is an Int if it fits an int64.
// Otherwise it is a Decimal that prints as a number, digits without quotes, wherever an int would.
func WideIntOf(hi int64, lo uint64) Value {
	if hi == int64(lo)>>63 {
		return IntOf(int64(lo))
	}
	b := new(big.Int).Lsh(big.NewInt(hi), 64)
	d, err := decimal.FromBig(b.Or(b, new(big.Int).SetUint64(lo)), 0)
	if err != nil {
		panic("value: an integer of 128 bits is out of range: " + err.Error())
	}
	v := DecimalOf(d)
	v.raw = true
	return v
}

// FloatOf returns a float.
func FloatOf(f float64) Value { return Value{kind: Float, num: math.Float64bits(f)} }

// DecimalOf returns a decimal.
func DecimalOf(d decimal.Decimal) Value {
	if coef, exp, ok := d.Small(); ok {
		return Value{kind: Decimal, num: uint64(coef), exp: exp}
	}
	return wideDecimal(d)
}

func wideDecimal(d decimal.Decimal) Value { return Value{kind: Decimal, ptr: unsafe.Pointer(&d)} }

// StringOf returns a string.
func StringOf(s string) Value {
	return Value{kind: String, ptr: unsafe.Pointer(unsafe.StringData(s)), num: uint64(len(s))}
}

// JSONOf returns a string that holds JSON text and prints as such, without quotes.
func JSONOf(text string) Value {
	v := StringOf(text)
	v.raw = true
	return v
}

// BytesOf returns bytes. A nil slice is empty, not null.
func BytesOf(b []byte) Value {
	return Value{kind: Bytes, ptr: unsafe.Pointer(unsafe.SliceData(b)), num: uint64(len(b))}
}

// TimeOf returns a timestamp of so many nanoseconds since 1970-01-01T00:00:00Z.
func TimeOf(nanos int64) Value { return Value{kind: Time, num: uint64(nanos)} }

// ListOf returns a list.
func ListOf(vs []Value) Value {
	return Value{kind: List, ptr: unsafe.Pointer(unsafe.SliceData(vs)), num: uint64(len(vs))}
}

// Kind returns the kind of v.
func (v Value) Kind() Kind { return v.kind }

// IsNull tells whether v is null.
func (v Value) IsNull() bool { return v.kind == Null }

// IsInteger tells whether v was made as an integer: an Int, or a Decimal of WideIntOf.
func (v Value) IsInteger() bool { return v.kind == Int || v.kind == Decimal && v.raw }

// IsJSON tells whether v was made by JSONOf.
func (v Value) IsJSON() bool { return v.kind == String && v.raw }

// want panics if v isn't of kind k: asking a value for what it isn't is a mistake of the caller.
func (v Value) want(k Kind) {
	if v.kind != k {
		v.wrong(k)
	}
}

func (v Value) wrong(k Kind) { panic(fmt.Sprintf("value: %s taken for %s", v.kind, k)) }

// Bool returns the bool. Like the other accessors it panics if v is of another kind.
func (v Value) Bool() bool { v.want(Bool); return v.num != 0 }

// Int returns the int.
func (v Value) Int() int64 { v.want(Int); return int64(v.num) }

// Float returns the float.
func (v Value) Float() float64 { v.want(Float); return math.Float64frombits(v.num) }

// Decimal returns the decimal.
func (v Value) Decimal() decimal.Decimal {
	v.want(Decimal)
	if v.ptr != nil {
		return *(*decimal.Decimal)(v.ptr)
	}
	d, err := decimal.New(int64(v.num), v.exp)
	if err != nil {
		panic("value: a decimal became invalid: " + err.Error())
	}
	return d
}

// Str returns the string.
func (v Value) Str() string { v.want(String); return v.text() }

func (v Value) text() string { return unsafe.String((*byte)(v.ptr), int(v.num)) }

// Bytes returns the bytes. They mustn't be changed.
func (v Value) Bytes() []byte { v.want(Bytes); return v.data() }

// data returns the bytes of a String or Bytes, with no capacity beyond them.
func (v Value) data() []byte { return unsafe.Slice((*byte)(v.ptr), int(v.num)) }

// Nanos returns the timestamp in nanoseconds since 1970.
func (v Value) Nanos() int64 { v.want(Time); return int64(v.num) }

// List returns the elements. They mustn't be changed.
func (v Value) List() []Value { v.want(List); return unsafe.Slice((*Value)(v.ptr), int(v.num)) }

// String returns v as AppendText writes it, and "null" for null.
func (v Value) String() string {
	if v.kind == Null {
		return "null"
	}
	return string(AppendText(nil, v))
}

// Clone returns v with memory of its own: a view of a column or of encoded bytes is gone when these are.
func (v Value) Clone() Value {
	switch v.kind {
	case String, Bytes:
		b := append([]byte(nil), v.data()...)
		v.ptr = unsafe.Pointer(unsafe.SliceData(b))
	case List:
		vs := make([]Value, len(v.List()))
		for i, e := range v.List() {
			vs[i] = e.Clone()
		}
		v.ptr = unsafe.Pointer(unsafe.SliceData(vs))
	}
	return v
}

// Compare orders all values: -1, 0 or 1. Null comes first, then by kind. Numbers of all kinds compare by what they
// are, exactly: 2 equals 2.0 and -0 equals 0; NaN equals itself and comes after all other numbers. Strings
// and bytes compare byte by byte, lists element by element.
func Compare(a, b Value) int {
	if a.kind != b.kind {
		if a.number() && b.number() {
			return compareNumbers(a, b)
		}
		return order(a.kind, b.kind)
	}
	switch a.kind {
	case Null:
		return 0
	case Bool:
		return order(a.num, b.num)
	case Int, Time:
		return order(int64(a.num), int64(b.num))
	case Float:
		return compareFloats(a.Float(), b.Float())
	case Decimal:
		return a.Decimal().Cmp(b.Decimal())
	case String, Bytes:
		return strings.Compare(a.text(), b.text())
	case List:
		x, y := a.List(), b.List()
		for i := range min(len(x), len(y)) {
			if c := Compare(x[i], y[i]); c != 0 {
				return c
			}
		}
		return order(len(x), len(y))
	default:
		panic("value: unknown " + a.kind.String())
	}
}

func (v Value) number() bool { return v.kind == Int || v.kind == Float || v.kind == Decimal }

func order[T ~int | ~int64 | ~uint64 | ~uint8](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// compareFloats orders floats with -0 equal to 0 and NaN last.
func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b:
		return 0
	}
	switch nanA, nanB := math.IsNaN(a), math.IsNaN(b); {
	case nanA && nanB:
		return 0
	case nanA:
		return 1
	}
	return -1
}

// compareNumbers compares numbers of different kinds.
func compareNumbers(a, b Value) int {
	switch {
	case a.kind > b.kind:
		return -compareNumbers(b, a)
	case a.kind == Int && b.kind == Float:
		return compareIntFloat(a.Int(), b.Float())
	case a.kind == Int:
		return decimal.FromInt(a.Int()).Cmp(b.Decimal())
	}
	f, d := a.Float(), b.Decimal()
	switch {
	case math.IsNaN(f), math.IsInf(f, 1):
		return 1
	case math.IsInf(f, -1):
		return -1
	}
	// Rounding keeps the order, so only a decimal that rounds to f itself needs an exact look.
	if c := compareFloats(f, d.Float64()); c != 0 {
		return c
	}
	return new(big.Rat).SetFloat64(f).Cmp(d.Rat())
}

func compareIntFloat(i int64, f float64) int {
	switch {
	case math.IsNaN(f), f >= 1<<63:
		return -1
	case f < -1<<63:
		return 1
	}
	whole := math.Trunc(f)
	if c := order(i, int64(whole)); c != 0 {
		return c
	}
	return compareFloats(whole, f)
}
