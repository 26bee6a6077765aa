package value

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"
	"unsafe"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/state"
)

// Codec encodes a Go type as a key: a scalar as one column, a struct as its exported fields in order. Decode(Encode(x))
// is x (apart from -0, which is 0, and the bits of a NaN), and equal values have equal bytes. It is safe for use by many goroutines at once.
type Codec[T any] struct{ layout }

// Row encodes a Go type as a row of values: like Codec, and in addition nested structs, slices and maps, each as
// one column of type "any" that holds JSON text (maps by sorted key).
type Row[T any] struct{ layout }

// KeyOf returns the codec of keys of type T. Scalars are strings, integers, floats, bools, decimal.Decimal, time.Time,
// []byte and arrays of bytes; their column is named names[0], "key" by default. A struct's columns are its exported
// fields in snake_case or under the name of a `trident:"name"` tag ("-" leaves a field out), embedded structs
// included; names, if given, replace them. Pointers to scalars and structs of the form {V X; Valid bool} may be null.
// The zero time.Time is null; other times outside the years 1678 to 2261 are errors of Encode.
func KeyOf[T any](names ...string) (*Codec[T], error) {
	l, err := layoutOf(reflect.TypeFor[T](), "key", names, false)
	if err != nil {
		return nil, err
	}
	return &Codec[T]{l}, nil
}

// RowOf returns the codec of rows of type T, with the rules of KeyOf; a scalar's column is "value" by default.
func RowOf[T any](names ...string) (*Row[T], error) {
	l, err := layoutOf(reflect.TypeFor[T](), "value", names, true)
	if err != nil {
		return nil, err
	}
	return &Row[T]{l}, nil
}

// CellOf is RowOf with always exactly one column: a struct that isn't a scalar becomes JSON text as a whole.
func CellOf[T any](names ...string) (*Row[T], error) {
	l, err := cellLayout(reflect.TypeFor[T](), "value", names)
	if err != nil {
		return nil, err
	}
	return &Row[T]{l}, nil
}

// Columns describes the encoded columns.
func (l *layout) Columns() []state.Column {
	cols := make([]state.Column, len(l.fields))
	for i := range l.fields {
		cols[i] = state.Column{Name: l.fields[i].name, Type: l.fields[i].op.column()}
	}
	return cols
}

// Encode appends the key of t. Only a value that its column can't hold is an error (a time out of range).
func (c *Codec[T]) Encode(dst []byte, t T) ([]byte, error) {
	return c.appendKey(dst, unsafe.Pointer(&t))
}

// Append is Encode for callers that can't tell which record is to blame: it panics with a *batch.Error.
func (c *Codec[T]) Append(dst []byte, t T) []byte {
	dst, err := c.appendKey(dst, unsafe.Pointer(&t))
	if err != nil {
		panic(cannotHold(err))
	}
	return dst
}

// Decode reads a key that Encode wrote, and nothing behind it.
func (c *Codec[T]) Decode(b []byte) (T, error) {
	var t T
	err := c.decode(b, unsafe.Pointer(&t), DecodeKey)
	return t, err
}

// Encode appends the row of t. Only a value that its column can't hold is an error: a time out of range; within
// JSON a NaN or a string that isn't UTF-8.
func (r *Row[T]) Encode(dst []byte, t T) ([]byte, error) {
	if r.json {
		// Encoding JSON needs reflection, which moves its argument to the heap; other types stay off it.
		moved := t
		return r.appendJSONRow(dst, unsafe.Pointer(&moved))
	}
	return r.appendRow(dst, unsafe.Pointer(&t))
}

// Append is Encode for callers that can't tell which record is to blame: it panics with a *batch.Error.
func (r *Row[T]) Append(dst []byte, t T) []byte {
	dst, err := r.Encode(dst, t)
	if err != nil {
		panic(cannotHold(err))
	}
	return dst
}

func cannotHold(err error) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeBadRecord, "encode", err, "filter such values out before they are grouped or kept")
}

// Decode reads a row that Encode wrote, and nothing behind it.
func (r *Row[T]) Decode(b []byte) (T, error) {
	var t T
	err := r.decode(b, unsafe.Pointer(&t), DecodeBinary)
	return t, err
}

// DecodeInto is Decode into *t, which must be zero.
func (r *Row[T]) DecodeInto(b []byte, t *T) error {
	return r.decode(b, unsafe.Pointer(t), DecodeBinary)
}

// layout is a compiled type: where its fields lie and how each is encoded. Fields are reached by their offsets, which
// come from reflect and so are right for the type; the pointers never outlive the call.
type layout struct {
	typ    reflect.Type
	fields []field
	json   bool // some field is opJSON
}

type field struct {
	name   string
	op     op
	null   nullability
	offset uintptr
	inner  uintptr      // of V, within a struct of the form {V, Valid}
	valid  uintptr      // of Valid, likewise
	size   int          // of an array of bytes
	typ    reflect.Type // of the value itself: of X for *X and {V X; Valid bool}
}

// op says how one Go type is read and written.
type op uint8

const (
	opBool op = iota
	opInt
	opInt8
	opInt16
	opInt32
	opInt64
	opUint
	opUint8
	opUint16
	opUint32
	opUint64
	opUintptr
	opFloat32
	opFloat64
	opString
	opBytes
	opArray
	opTime
	opDecimal
	opJSON
)

// column returns the type of a column as state.Column names it.
func (o op) column() string {
	switch {
	case o == opBool:
		return "bool"
	case o <= opUintptr:
		return "int"
	case o <= opFloat64:
		return "float"
	case o == opString:
		return "string"
	case o == opBytes || o == opArray:
		return "bytes"
	case o == opTime:
		return "timestamp"
	case o == opDecimal:
		return "decimal"
	}
	return "any"
}

type nullability uint8

const (
	never   nullability = iota
	pointer             // *X
	pair                // struct{V X; Valid bool}
)

var (
	timeType    = reflect.TypeFor[time.Time]()
	decimalType = reflect.TypeFor[decimal.Decimal]()
)

// scalarOp returns the op of a type that has a column type of its own.
func scalarOp(t reflect.Type) (o op, size int, ok bool) {
	switch t {
	case timeType:
		return opTime, 0, true
	case decimalType:
		return opDecimal, 0, true
	}
	switch k := t.Kind(); k {
	case reflect.Bool:
		return opBool, 0, true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return opInt + op(k-reflect.Int), 0, true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return opUint + op(k-reflect.Uint), 0, true
	case reflect.Float32:
		return opFloat32, 0, true
	case reflect.Float64:
		return opFloat64, 0, true
	case reflect.String:
		return opString, 0, true
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return opBytes, 0, true
		}
	case reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return opArray, t.Len(), true
		}
	}
	return 0, 0, false
}

// fieldOf compiles a type that becomes one column.
func fieldOf(t reflect.Type, jsonToo bool) (field, bool) {
	if o, size, ok := scalarOp(t); ok {
		return field{op: o, size: size, typ: t}, true
	}
	if t.Kind() == reflect.Pointer {
		if o, size, ok := scalarOp(t.Elem()); ok {
			return field{op: o, size: size, typ: t.Elem(), null: pointer}, true
		}
	}
	if t.Kind() == reflect.Struct && t.NumField() == 2 {
		v, valid := t.Field(0), t.Field(1)
		if v.Name == "V" && valid.Name == "Valid" && valid.Type.Kind() == reflect.Bool {
			if o, size, ok := scalarOp(v.Type); ok {
				return field{op: o, size: size, typ: v.Type, null: pair, inner: v.Offset, valid: valid.Offset}, true
			}
		}
	}
	if !jsonToo || !encodable(t, map[reflect.Type]bool{}) {
		return field{}, false
	}
	return field{op: opJSON, typ: t}, true
}

// encodable tells whether encoding/json can bring a value of type t back as it was.
func encodable(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return true
	}
	seen[t] = true
	if implements[json.Marshaler, json.Unmarshaler](t) || implements[encoding.TextMarshaler, encoding.TextUnmarshaler](t) {
		return true
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer, reflect.Interface:
		return false
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return encodable(t.Elem(), seen)
	case reflect.Map:
		switch k := t.Key().Kind(); {
		case k == reflect.String, k >= reflect.Int && k <= reflect.Uintptr, implements[encoding.TextMarshaler, encoding.TextUnmarshaler](t.Key()):
			return encodable(t.Elem(), seen)
		}
		return false
	case reflect.Struct:
		for f := range t.Fields() {
			if f.Tag.Get("json") != "-" && (!f.IsExported() && !f.Anonymous || !encodable(f.Type, seen)) {
				return false
			}
		}
	}
	return true
}

func implements[M, U any](t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[M]()) && reflect.PointerTo(t).Implements(reflect.TypeFor[U]())
}

func cellLayout(t reflect.Type, name string, rename []string) (layout, error) {
	if len(rename) > 1 {
		return layout{}, fmt.Errorf("%s is one column; %d names are given", t, len(rename))
	}
	if len(rename) == 1 {
		name = rename[0]
	}
	f, ok := fieldOf(t, true)
	if !ok {
		return layout{}, unsupported(t, "", true)
	}
	f.name = name
	return layout{typ: t, fields: []field{f}, json: f.op == opJSON}, nil
}

func layoutOf(t reflect.Type, name string, rename []string, row bool) (layout, error) {
	_, single := fieldOf(t, false)
	if single || t.Kind() != reflect.Struct {
		if _, ok := fieldOf(t, row); !ok {
			return layout{}, unsupported(t, "", row)
		}
		return cellLayout(t, name, rename)
	}
	l := layout{typ: t}
	if err := l.addFields(t, 0, row); err != nil {
		return layout{}, err
	}
	if len(l.fields) == 0 {
		return layout{}, fmt.Errorf("%s has no exported fields, so nothing of it would be kept", t)
	}
	if len(rename) > 0 && len(rename) != len(l.fields) {
		return layout{}, fmt.Errorf("%s has %d fields; %d names are given", t, len(l.fields), len(rename))
	}
	seen := map[string]bool{}
	for i := range l.fields {
		f := &l.fields[i]
		if len(rename) > 0 {
			f.name = rename[i]
		}
		if seen[f.name] {
			return layout{}, fmt.Errorf(`%s has two columns named %s; rename one by a trident:"name" tag`, t, f.name)
		}
		seen[f.name] = true
		l.json = l.json || f.op == opJSON
	}
	return l, nil
}

func (l *layout) addFields(t reflect.Type, base uintptr, row bool) error {
	for sf := range t.Fields() {
		tag := sf.Tag.Get("trident")
		if tag == "-" || sf.Name == "_" {
			continue
		}
		f, ok := fieldOf(sf.Type, row)
		if sf.Anonymous && tag == "" && sf.Type.Kind() == reflect.Struct && (!ok || f.op == opJSON) {
			if err := l.addFields(sf.Type, base+sf.Offset, row); err != nil {
				return err
			}
			continue
		}
		if !sf.IsExported() {
			return fmt.Errorf(`field %s of %s is unexported and would be lost; export it, or leave it out by a trident:"-" tag`, sf.Name, l.typ)
		}
		if !ok {
			return unsupported(sf.Type, fmt.Sprintf("field %s of %s: ", sf.Name, l.typ), row)
		}
		f.name, f.offset = tag, base+sf.Offset
		if tag == "" {
			f.name = names.Snake(sf.Name)
		}
		l.fields = append(l.fields, f)
	}
	return nil
}

func unsupported(t reflect.Type, where string, row bool) error {
	if row {
		return fmt.Errorf("%stype %s can't be kept: it holds functions, channels, interfaces or unexported fields", where, t)
	}
	return fmt.Errorf("%stype %s can't be (part of) a key; use strings, numbers, bools, decimals, times, bytes, or a flat struct of these", where, t)
}

// locate returns where f's value lies, or nil for null.
func (f *field) locate(base unsafe.Pointer) unsafe.Pointer {
	p := unsafe.Add(base, f.offset)
	switch f.null {
	case pointer:
		return *(*unsafe.Pointer)(p)
	case pair:
		if !*(*bool)(unsafe.Add(p, f.valid)) {
			return nil
		}
		return unsafe.Add(p, f.inner)
	}
	return p
}

// integer reads an integer field; wide = true means that i holds the bits of a uint64 beyond int64.
func (f *field) integer(p unsafe.Pointer) (i int64, wide bool) {
	switch f.op {
	case opInt:
		return int64(*(*int)(p)), false
	case opInt8:
		return int64(*(*int8)(p)), false
	case opInt16:
		return int64(*(*int16)(p)), false
	case opInt32:
		return int64(*(*int32)(p)), false
	case opInt64:
		return *(*int64)(p), false
	case opUint8:
		return int64(*(*uint8)(p)), false
	case opUint16:
		return int64(*(*uint16)(p)), false
	case opUint32:
		return int64(*(*uint32)(p)), false
	case opUint:
		u := *(*uint)(p)
		return int64(u), uint64(u) > math.MaxInt64
	case opUint64:
		u := *(*uint64)(p)
		return int64(u), u > math.MaxInt64
	case opUintptr:
		u := *(*uintptr)(p)
		return int64(u), uint64(u) > math.MaxInt64
	}
	panic("value: not an integer field")
}

// nanos reads a time; null = true for the zero time of a field that has no null of its own.
func (f *field) nanos(p unsafe.Pointer) (n int64, null bool, err error) {
	t := *(*time.Time)(p)
	if f.null == never && t.IsZero() {
		return 0, true, nil
	}
	n, err = Nanos(t)
	if err != nil {
		return 0, false, fmt.Errorf("column %s: %w", f.name, err)
	}
	return n, false, nil
}

// Nanos returns t in nanoseconds since 1970, or an error if an int64 doesn't hold them.
func Nanos(t time.Time) (int64, error) {
	const limit = math.MaxInt64 / int64(time.Second)
	if s := t.Unix(); s < -limit || s >= limit {
		return 0, fmt.Errorf("time %s is outside the years 1678 to 2261", t.UTC().Format(time.RFC3339))
	}
	return t.UnixNano(), nil
}

func (l *layout) appendKey(dst []byte, base unsafe.Pointer) ([]byte, error) {
	for i := range l.fields {
		f := &l.fields[i]
		p := f.locate(base)
		if p == nil {
			dst = AppendKeyNull(dst)
			continue
		}
		switch f.op {
		case opString:
			dst = AppendKeyString(dst, *(*string)(p))
		case opBool:
			dst = AppendKeyBool(dst, *(*bool)(p))
		case opFloat32:
			dst = AppendKeyFloat(dst, float64(*(*float32)(p)))
		case opFloat64:
			dst = AppendKeyFloat(dst, *(*float64)(p))
		case opBytes:
			dst = AppendKeyBytes(dst, *(*[]byte)(p))
		case opArray:
			dst = AppendKeyBytes(dst, unsafe.Slice((*byte)(p), f.size))
		case opTime:
			n, null, err := f.nanos(p)
			if err != nil {
				return dst, err
			}
			if null {
				dst = AppendKeyNull(dst)
			} else {
				dst = AppendKeyTime(dst, n)
			}
		case opDecimal:
			dst = AppendKeyDecimal(dst, *(*decimal.Decimal)(p))
		case opJSON:
			panic("value: JSON in a key")
		default:
			if n, wide := f.integer(p); wide {
				dst = AppendKeyUint(dst, uint64(n))
			} else {
				dst = AppendKeyInt(dst, n)
			}
		}
	}
	return dst, nil
}

func (l *layout) appendRow(dst []byte, base unsafe.Pointer) ([]byte, error) {
	for i := range l.fields {
		var err error
		if dst, err = l.fields[i].appendCell(dst, base); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendJSONRow is appendRow for a base on the heap.
func (l *layout) appendJSONRow(dst []byte, base unsafe.Pointer) ([]byte, error) {
	for i := range l.fields {
		f := &l.fields[i]
		var err error
		if f.op == opJSON {
			dst, err = f.appendJSON(dst, reflect.NewAt(f.typ, unsafe.Add(base, f.offset)).Elem())
		} else {
			dst, err = f.appendCell(dst, base)
		}
		if err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (f *field) appendJSON(dst []byte, v reflect.Value) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v.Interface()); err != nil {
		return dst, fmt.Errorf("column %s: %w", f.name, err)
	}
	text := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if string(text) == "null" {
		return AppendBinary(dst, NullValue()), nil
	}
	if replaced(text) {
		return dst, fmt.Errorf("column %s: a string within it isn't UTF-8", f.name)
	}
	return AppendBinary(dst, JSONOf(unsafe.String(&text[0], len(text)))), nil
}

// replaced tells whether encoding/json put U+FFFD in place of bytes that aren't UTF-8: it writes that as an escape,
// and a U+FFFD that was there before as it is.
func replaced(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 || i+1 == len(text) {
			return false
		}
		if bytes.HasPrefix(text[i+1:], []byte("ufffd")) {
			return true
		}
		text = text[i+2:]
	}
}

func (f *field) appendCell(dst []byte, base unsafe.Pointer) ([]byte, error) {
	p := f.locate(base)
	if p == nil {
		return AppendBinary(dst, NullValue()), nil
	}
	switch f.op {
	case opString:
		return AppendBinary(dst, StringOf(*(*string)(p))), nil
	case opBool:
		return AppendBinary(dst, BoolOf(*(*bool)(p))), nil
	case opFloat32:
		return AppendBinary(dst, FloatOf(float64(*(*float32)(p)))), nil
	case opFloat64:
		return AppendBinary(dst, FloatOf(*(*float64)(p))), nil
	case opBytes:
		return AppendBinary(dst, BytesOf(*(*[]byte)(p))), nil
	case opArray:
		return AppendBinary(dst, BytesOf(unsafe.Slice((*byte)(p), f.size))), nil
	case opTime:
		n, null, err := f.nanos(p)
		if err != nil {
			return dst, err
		}
		if null {
			return AppendBinary(dst, NullValue()), nil
		}
		return AppendBinary(dst, TimeOf(n)), nil
	case opDecimal:
		return AppendBinary(dst, DecimalOf(*(*decimal.Decimal)(p))), nil
	case opJSON:
		panic("value: a JSON column without JSON")
	}
	n, wide := f.integer(p)
	if wide {
		return AppendBinary(dst, UintOf(uint64(n))), nil
	}
	return AppendBinary(dst, IntOf(n)), nil
}

func (l *layout) decode(b []byte, base unsafe.Pointer, next func([]byte) (Value, []byte, error)) error {
	for i := range l.fields {
		f := &l.fields[i]
		v, rest, err := next(b)
		if err != nil {
			return fmt.Errorf("column %s: %w", f.name, err)
		}
		if err := f.store(base, v); err != nil {
			return fmt.Errorf("column %s: %w", f.name, err)
		}
		b = rest
	}
	if len(b) > 0 {
		return corrupt("%d bytes after the last column of %s", len(b), l.typ)
	}
	return nil
}

var errKind = errors.New("another type is stored here")

// store sets the field to v. The value at base is zero before.
func (f *field) store(base unsafe.Pointer, v Value) error {
	p := unsafe.Add(base, f.offset)
	if v.IsNull() {
		if f.null != never || f.op == opTime || f.op == opJSON {
			return nil
		}
		return fmt.Errorf("%w: null, not %s", errKind, f.typ)
	}
	switch f.null {
	case pointer:
		target := reflect.New(f.typ).UnsafePointer()
		*(*unsafe.Pointer)(p) = target
		p = target
	case pair:
		*(*bool)(unsafe.Add(p, f.valid)) = true
		p = unsafe.Add(p, f.inner)
	}
	ok := false
	switch f.op {
	case opBool:
		if ok = v.kind == Bool; ok {
			*(*bool)(p) = v.Bool()
		}
	case opFloat32:
		if ok = v.kind == Float; ok {
			*(*float32)(p) = float32(v.Float())
		}
	case opFloat64:
		if ok = v.kind == Float; ok {
			*(*float64)(p) = v.Float()
		}
	case opString:
		if ok = v.kind == String && !v.raw; ok {
			*(*string)(p) = v.Str()
		}
	case opBytes:
		if ok = v.kind == Bytes; ok {
			*(*[]byte)(p) = v.Bytes()
		}
	case opArray:
		if ok = v.kind == Bytes && int(v.num) == f.size; ok {
			copy(unsafe.Slice((*byte)(p), f.size), v.Bytes())
		}
	case opTime:
		if ok = v.kind == Time; ok {
			*(*time.Time)(p) = time.Unix(0, v.Nanos()).UTC()
		}
	case opDecimal:
		if ok = v.kind == Decimal && !v.raw; ok {
			*(*decimal.Decimal)(p) = v.Decimal()
		}
	case opJSON:
		if ok = v.IsJSON(); ok {
			if err := json.Unmarshal(v.data(), reflect.NewAt(f.typ, p).Interface()); err != nil {
				return fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
		}
	default:
		ok = f.storeInteger(p, v)
	}
	switch {
	case ok:
		return nil
	case v.IsInteger() && f.op.column() == "int":
		return fmt.Errorf("%s doesn't fit %s", v, f.typ)
	}
	return fmt.Errorf("%w: %s, not %s", errKind, v.kind, f.typ)
}

// storeInteger sets an integer field; false if v is no integer or doesn't fit.
func (f *field) storeInteger(p unsafe.Pointer, v Value) bool {
	if !v.IsInteger() {
		return false
	}
	target := reflect.NewAt(f.typ, p).Elem()
	if f.op >= opUint {
		var u uint64
		if v.kind == Int {
			if v.Int() < 0 {
				return false
			}
			u = uint64(v.Int())
		} else {
			i, ok := v.Decimal().BigInt()
			if !ok || !i.IsUint64() {
				return false
			}
			u = i.Uint64()
		}
		if target.OverflowUint(u) {
			return false
		}
		target.SetUint(u)
		return true
	}
	if v.kind != Int || target.OverflowInt(v.Int()) {
		return false
	}
	target.SetInt(v.Int())
	return true
}
