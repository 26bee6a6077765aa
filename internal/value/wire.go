package value

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// Wire encodes a Go type so that a value can be handed from one task to another, in the form of AppendBinary: structs,
// slices and arrays are lists, a map is a list of keys and values by encoded key, nil is null. Decode(Append(x)) is x, apart from
// what no value of the type can be told apart by: times are UTC and without a monotonic part, all NaN are one. Equal values
// have equal bytes, as far as the types' own marshalers give equal bytes. It is safe for use by many goroutines at once.
type Wire[T any] struct{ w *wire }

// WireOf returns the codec of T: scalars as in KeyOf, structs of exported fields (a `trident:"-"` tag leaves a field out, which
// then is zero on the other side), pointers, slices, arrays and maps of these, and types that marshal and unmarshal themselves as
// binary, text or JSON. Interfaces, functions, channels and unexported fields are an error.
func WireOf[T any]() (*Wire[T], error) {
	c := wireCompiler{types: map[reflect.Type]*wire{}}
	w, err := c.compile(reflect.TypeFor[T](), "")
	if err != nil {
		return nil, err
	}
	return &Wire[T]{w}, nil
}

// Append appends the encoded *t. Only a value that can't be held is an error: a time outside the years 1678 to 2261, pointers in a
// circle, one that its own marshaler refuses.
func (c *Wire[T]) Append(dst []byte, t *T) ([]byte, error) {
	return c.w.enc(dst, reflect.ValueOf(t).Elem(), 0)
}

// DecodeInto reads a value into *t, which must be zero, and returns what follows it. Nothing of b is kept.
func (c *Wire[T]) DecodeInto(b []byte, t *T) (rest []byte, err error) {
	return c.w.dec(b, reflect.ValueOf(t).Elem())
}

// wire is a compiled type. Values that it is given are addressable.
type wire struct {
	enc func(dst []byte, v reflect.Value, depth int) ([]byte, error)
	dec func(b []byte, v reflect.Value) ([]byte, error)
	// nullable: null stands for one of the type's values.
	nullable bool
}

type wireCompiler struct {
	types map[reflect.Type]*wire // those under construction included
}

// compile compiles t, which lies at path within the outermost type.
func (c *wireCompiler) compile(t reflect.Type, path string) (*wire, error) {
	if w := c.types[t]; w != nil {
		return w, nil
	}
	w := &wire{}
	c.types[t] = w
	err := c.fill(w, t, path)
	if err != nil && !marshaled(w, t) {
		delete(c.types, t)
		return nil, err
	}
	return w, nil
}

func (c *wireCompiler) fill(w *wire, t reflect.Type, path string) error {
	byteSlice := t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
	if o, size, ok := scalarOp(t); ok && !byteSlice {
		w.scalar(&field{name: path, op: o, size: size, typ: t})
		return nil
	}
	switch t.Kind() {
	case reflect.Slice:
		if byteSlice {
			w.bytes()
			return nil
		}
		elem, err := c.compile(t.Elem(), path+"[]")
		if err != nil {
			return err
		}
		w.slice(elem)
		return nil
	case reflect.Array:
		elem, err := c.compile(t.Elem(), path+"[]")
		if err != nil {
			return err
		}
		w.array(elem, t.Len())
		return nil
	case reflect.Map:
		key, err := c.compile(t.Key(), path+"{key}")
		if err != nil {
			return err
		}
		elem, err := c.compile(t.Elem(), path+"{}")
		if err != nil {
			return err
		}
		w.pairs(t, key, elem)
		return nil
	case reflect.Pointer:
		elem, err := c.compile(t.Elem(), path)
		if err != nil {
			return err
		}
		w.pointer(t, elem)
		return nil
	case reflect.Struct:
		return c.structure(w, t, path)
	}
	return cantCross(t, path)
}

func cantCross(t reflect.Type, path string) error {
	where := ""
	if path != "" {
		where = " (at " + strings.TrimPrefix(path, ".") + ")"
	}
	return fmt.Errorf("a %s%s can't be handed from task to task; map it to strings, numbers, bools, decimals, times, and structs, slices, maps and pointers of these", t, where)
}

func (w *wire) scalar(f *field) {
	w.nullable = f.op == opTime
	w.enc = func(dst []byte, v reflect.Value, _ int) ([]byte, error) {
		dst, err := f.appendCell(dst, v.Addr().UnsafePointer())
		if err != nil {
			return dst, fmt.Errorf("%s: %w", f.typ, err)
		}
		return dst, nil
	}
	w.dec = func(b []byte, v reflect.Value) ([]byte, error) {
		s, rest, err := DecodeBinary(b)
		if err != nil {
			return nil, err
		}
		return rest, f.store(v.Addr().UnsafePointer(), s)
	}
}

// bytes tells nil and empty apart, which a column doesn't.
func (w *wire) bytes() {
	w.nullable = true
	w.enc = func(dst []byte, v reflect.Value, _ int) ([]byte, error) {
		if v.IsNil() {
			return append(dst, binNull), nil
		}
		return AppendBinary(dst, BytesOf(v.Bytes())), nil
	}
	w.dec = func(b []byte, v reflect.Value) ([]byte, error) {
		s, rest, err := ViewBinary(b)
		switch {
		case err != nil:
			return nil, err
		case s.kind == Null:
		case s.kind != Bytes:
			return nil, corrupt("%s where bytes are due", s.kind)
		default:
			v.SetBytes(append([]byte{}, s.Bytes()...)) // never nil
		}
		return rest, nil
	}
}

// listOf reads the beginning of a list; null is a list that isn't there.
func listOf(b []byte) (n int, null bool, rest []byte, err error) {
	switch {
	case len(b) > 0 && b[0] == binNull:
		return 0, true, b[1:], nil
	case len(b) == 0 || b[0] != binList:
		return 0, false, nil, corrupt("no list where one is due")
	}
	u, w := binary.Uvarint(b[1:])
	if w <= 0 || u > uint64(len(b)) {
		return 0, false, nil, corrupt("a list is cut off")
	}
	return int(u), false, b[1+w:], nil
}

func appendList(dst []byte, n int) []byte {
	return binary.AppendUvarint(append(dst, binList), uint64(n))
}

func (w *wire) slice(elem *wire) {
	w.nullable = true
	w.enc = func(dst []byte, v reflect.Value, depth int) ([]byte, error) {
		if v.IsNil() {
			return append(dst, binNull), nil
		}
		return appendElems(dst, v, elem, depth)
	}
	w.dec = func(b []byte, v reflect.Value) ([]byte, error) {
		n, null, b, err := listOf(b)
		if err != nil || null {
			return b, err
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		return decodeElems(b, v, elem)
	}
}

func (w *wire) array(elem *wire, size int) {
	w.enc = func(dst []byte, v reflect.Value, depth int) ([]byte, error) { return appendElems(dst, v, elem, depth) }
	w.dec = func(b []byte, v reflect.Value) ([]byte, error) {
		n, _, b, err := listOf(b)
		if err == nil && n != size {
			err = corrupt("%d elements where %d are due", n, size)
		}
		if err != nil {
			return nil, err
		}
		return decodeElems(b, v, elem)
	}
}

func appendElems(dst []byte, v reflect.Value, elem *wire, depth int) (_ []byte, err error) {
	dst = appendList(dst, v.Len())
	for i := range v.Len() {
		if dst, err = elem.enc(dst, v.Index(i), depth+1); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func decodeElems(b []byte, v reflect.Value, elem *wire) (_ []byte, err error) {
	for i := range v.Len() {
		if b, err = elem.dec(b, v.Index(i)); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (w *wire) pairs(t reflect.Type, key, elem *wire) {
	w.nullable = true
	w.enc = func(dst []byte, v reflect.Value, depth int) (_ []byte, err error) {
		if v.IsNil() {
			return append(dst, binNull), nil
		}
		type pair struct{ key, both []byte }
		all := make([]pair, 0, v.Len())
		k, e := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		for it := v.MapRange(); it.Next(); { // order: sorted below
			var p pair
			k.Set(it.Key())
			e.Set(it.Value())
			if p.key, err = key.enc(nil, k, depth+1); err != nil {
				return dst, err
			}
			if p.both, err = elem.enc(p.key, e, depth+1); err != nil {
				return dst, err
			}
			all = append(all, p)
		}
		slices.SortFunc(all, func(a, b pair) int {
			if c := bytes.Compare(a.key, b.key); c != 0 {
				return c
			}
			return bytes.Compare(a.both, b.both) // keys that are NaN
		})
		dst = appendList(dst, 2*len(all))
		for _, p := range all {
			dst = append(dst, p.both...)
		}
		return dst, nil
	}
	w.dec = func(b []byte, v reflect.Value) ([]byte, error) {
		n, null, b, err := listOf(b)
		if err != nil || null {
			return b, err
		}
		m := reflect.MakeMapWithSize(t, n/2)
		for range n / 2 {
			k, e := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
			if b, err = key.dec(b, k); err != nil {
				return nil, err
			}
			if b, err = elem.dec(b, e); err != nil {
				return nil, err
			}
			m.SetMapIndex(k, e)
		}
		v.Set(m)
		return b, nil
	}
}

// pointer writes what it points to, in a list of its own if that may be null.
func (w *wire) pointer(t reflect.Type, elem *wire) {
	w.nullable = true
	w.enc = func(dst []byte, v reflect.Value, depth int) ([]byte, error) {
		if v.IsNil() {
			return append(dst, binNull), nil
		}
		if depth >= maxDepth {
			return dst, fmt.Errorf("a %s leads deeper than %d levels, or in a circle", t, maxDepth)
		}
		if elem.nullable {
			dst = appendList(dst, 1)
		}
		return elem.enc(dst, v.Elem(), depth+1)
	}
	w.dec = func(b []byte, v reflect.Value) ([]byte, error) {
		if len(b) > 0 && b[0] == binNull {
			return b[1:], nil
		}
		if elem.nullable {
			var err error
			if _, _, b, err = listOf(b); err != nil {
				return nil, err
			}
		}
		p := reflect.New(t.Elem())
		v.Set(p)
		return elem.dec(b, p.Elem())
	}
}

func (c *wireCompiler) structure(w *wire, t reflect.Type, path string) error {
	type member struct {
		index int
		w     *wire
	}
	var members []member
	for i := range t.NumField() {
		sf := t.Field(i)
		if sf.Tag.Get("trident") == "-" || sf.Name == "_" {
			continue
		}
		at := path + "." + sf.Name
		if !sf.IsExported() && (!sf.Anonymous || sf.Type.Kind() != reflect.Struct) {
			return fmt.Errorf(`field %s of %s is unexported and would be lost on the way to another task; export it, or leave it out by a trident:"-" tag`, sf.Name, t)
		}
		m, err := c.compile(sf.Type, at)
		if err != nil {
			return err
		}
		members = append(members, member{i, m})
	}
	w.enc = func(dst []byte, v reflect.Value, depth int) (_ []byte, err error) {
		dst = appendList(dst, len(members))
		for _, m := range members {
			if dst, err = m.w.enc(dst, v.Field(m.index), depth+1); err != nil {
				return dst, err
			}
		}
		return dst, nil
	}
	w.dec = func(b []byte, v reflect.Value) ([]byte, error) {
		n, _, b, err := listOf(b)
		if err == nil && n != len(members) {
			err = corrupt("%d fields of %s, which has %d", n, t, len(members))
		}
		for _, m := range members {
			if err != nil {
				return nil, err
			}
			b, err = m.w.dec(b, v.Field(m.index))
		}
		return b, err
	}
	return nil
}

// marshaled makes w use what t brings to marshal itself; false if that is nothing. It comes last: a struct that embeds a
// time.Time has its methods, and they know nothing of its other fields.
func marshaled(w *wire, t reflect.Type) bool {
	if t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer {
		return false
	}
	p := reflect.PointerTo(t)
	var marshal func(v any) (Value, error)
	var unmarshal func(s Value, v any) error
	switch {
	case both[encoding.BinaryMarshaler, encoding.BinaryUnmarshaler](p):
		marshal = func(v any) (Value, error) {
			b, err := v.(encoding.BinaryMarshaler).MarshalBinary()
			return BytesOf(b), err
		}
		unmarshal = func(s Value, v any) error { return v.(encoding.BinaryUnmarshaler).UnmarshalBinary(s.data()) }
	case both[encoding.TextMarshaler, encoding.TextUnmarshaler](p):
		marshal = func(v any) (Value, error) {
			b, err := v.(encoding.TextMarshaler).MarshalText()
			return StringOf(unsafe.String(unsafe.SliceData(b), len(b))), err
		}
		unmarshal = func(s Value, v any) error { return v.(encoding.TextUnmarshaler).UnmarshalText(s.data()) }
	case both[json.Marshaler, json.Unmarshaler](p):
		marshal = func(v any) (Value, error) {
			b, err := json.Marshal(v)
			return JSONOf(unsafe.String(unsafe.SliceData(b), len(b))), err
		}
		unmarshal = func(s Value, v any) error { return json.Unmarshal(s.data(), v) }
	default:
		return false
	}
	w.enc = func(dst []byte, v reflect.Value, _ int) ([]byte, error) {
		s, err := marshal(v.Addr().Interface())
		if err != nil {
			return dst, fmt.Errorf("%s: %w", t, err)
		}
		return AppendBinary(dst, s), nil
	}
	w.dec = func(b []byte, v reflect.Value) ([]byte, error) {
		s, rest, err := DecodeBinary(b)
		if err != nil {
			return nil, err
		}
		if s.kind != Bytes && s.kind != String {
			return nil, corrupt("%s where a %s is due", s.kind, t)
		}
		if err := unmarshal(s, v.Addr().Interface()); err != nil {
			return nil, fmt.Errorf("%s: %w", t, err)
		}
		return rest, nil
	}
	return true
}

func both[M, U any](p reflect.Type) bool {
	return p.Implements(reflect.TypeFor[M]()) && p.Implements(reflect.TypeFor[U]())
}
