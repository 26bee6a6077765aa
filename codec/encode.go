package codec

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tridentd/tridentd/internal/value"
)

// Encode appends a value's bytes to dst. Like the decoders it depends on the value alone. nil stands for null.
type Encode[T any] func(dst []byte, v T) ([]byte, error)

// EncodeJSON returns what writes a type as JSON, with the names that JSON reads: what JSON makes of the bytes is the value. The fields of
// a struct come in their order, the keys of a map sorted. A float that JSON has no number for is an error.
func EncodeJSON[T any]() (Encode[T], error) {
	e := &encoder{compiler: newCompiler(), made: map[reflect.Type]*appender{}}
	t := reflect.TypeFor[T]()
	a, err := e.of(t, t.String())
	if err != nil {
		return nil, err
	}
	return func(dst []byte, v T) ([]byte, error) { return a.f(dst, reflect.ValueOf(&v).Elem()) }, nil
}

// Field is a field of a struct as EncodeJSON writes it. Type is that of its values: X for a Null[X].
type Field struct {
	Name string
	Type reflect.Type
}

// Fields lists the fields that EncodeJSON writes of a struct, in their order. Any other type is an error.
func Fields[T any]() ([]Field, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Struct || t == timeType || isNull(t) || reflect.PointerTo(t).Implements(textMarshalerType) || reflect.PointerTo(t).Implements(jsonMarshalerType) {
		return nil, fmt.Errorf("%s is no struct with fields", t)
	}
	s := &structure{}
	if err := newCompiler().collect(s, t, nil, t.String()); err != nil {
		return nil, err
	}
	fields := make([]Field, len(s.fields))
	for i := range fields {
		of := t.FieldByIndex(s.fields[i].path).Type
		if isNull(of) {
			of = of.Field(0).Type
		}
		fields[i] = Field{s.names[i], of}
	}
	return fields, nil
}

// appender writes values of one Go type. It is shared by goroutines.
type appender struct {
	f func(dst []byte, v reflect.Value) ([]byte, error)
}

type encoder struct {
	compiler *compiler
	made     map[reflect.Type]*appender // types may contain themselves
}

var (
	textMarshalerType = reflect.TypeFor[encoding.TextMarshaler]()
	jsonMarshalerType = reflect.TypeFor[json.Marshaler]()
)

func appendText(dst []byte, s string) []byte { return value.AppendJSON(dst, value.StringOf(s)) }

func (e *encoder) of(t reflect.Type, path string) (*appender, error) {
	if a, ok := e.made[t]; ok {
		return a, nil
	}
	a := &appender{}
	e.made[t] = a
	var err error
	switch {
	case t == timeType:
		a.f = func(dst []byte, v reflect.Value) ([]byte, error) {
			return appendText(dst, v.Interface().(time.Time).UTC().Format(time.RFC3339Nano)), nil
		}
	case t == durationType:
		a.f = func(dst []byte, v reflect.Value) ([]byte, error) {
			return appendText(dst, time.Duration(v.Int()).String()), nil
		}
	case isNull(t):
		var of *appender
		if of, err = e.of(t.Field(0).Type, path); err == nil {
			a.f = func(dst []byte, v reflect.Value) ([]byte, error) {
				if !v.Field(1).Bool() {
					return append(dst, "null"...), nil
				}
				return of.f(dst, v.Field(0))
			}
		}
	case t.Implements(textMarshalerType) || reflect.PointerTo(t).Implements(textMarshalerType):
		a.f = func(dst []byte, v reflect.Value) ([]byte, error) {
			b, err := v.Addr().Interface().(encoding.TextMarshaler).MarshalText()
			return appendText(dst, string(b)), err
		}
	case t.Implements(jsonMarshalerType) || reflect.PointerTo(t).Implements(jsonMarshalerType):
		a.f = func(dst []byte, v reflect.Value) ([]byte, error) {
			b, err := json.Marshal(v.Addr().Interface())
			return append(dst, b...), err
		}
	default:
		err = e.ofKind(a, t, path)
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (e *encoder) ofKind(a *appender, t reflect.Type, path string) error {
	switch t.Kind() {
	case reflect.String:
		a.f = func(dst []byte, v reflect.Value) ([]byte, error) { return appendText(dst, v.String()), nil }
	case reflect.Bool:
		a.f = func(dst []byte, v reflect.Value) ([]byte, error) {
			return value.AppendJSON(dst, value.BoolOf(v.Bool())), nil
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		a.f = func(dst []byte, v reflect.Value) ([]byte, error) {
			return value.AppendJSON(dst, value.IntOf(v.Int())), nil
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		a.f = func(dst []byte, v reflect.Value) ([]byte, error) {
			return value.AppendJSON(dst, value.UintOf(v.Uint())), nil
		}
	case reflect.Float32, reflect.Float64:
		a.f = func(dst []byte, v reflect.Value) ([]byte, error) {
			b, err := json.Marshal(v.Interface())
			return append(dst, b...), err
		}
	case reflect.Struct:
		return e.ofStruct(a, t, path)
	case reflect.Slice, reflect.Array:
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
			a.f = func(dst []byte, v reflect.Value) ([]byte, error) {
				return append(base64.StdEncoding.AppendEncode(append(dst, '"'), v.Bytes()), '"'), nil
			}
			return nil
		}
		return e.ofList(a, t, path)
	case reflect.Map:
		return e.ofMap(a, t, path)
	case reflect.Interface:
		a.f = func(dst []byte, v reflect.Value) ([]byte, error) {
			b, err := json.Marshal(v.Interface()) // of maps it sorts the keys
			return append(dst, b...), err
		}
	default:
		return fmt.Errorf("%s: values of type %s can't be written as JSON", path, t)
	}
	return nil
}

func (e *encoder) ofStruct(a *appender, t reflect.Type, path string) error {
	s := &structure{}
	if err := e.compiler.collect(s, t, nil, path); err != nil {
		return err
	}
	if len(s.fields) == 0 {
		return fmt.Errorf("%s: %s has no exported field", path, t)
	}
	fields := make([]*appender, len(s.fields))
	names := make([]string, len(s.fields))
	for i := range s.fields {
		of, err := e.of(t.FieldByIndex(s.fields[i].path).Type, path+"."+s.names[i])
		if err != nil {
			return err
		}
		fields[i], names[i] = of, string(appendText(nil, s.names[i]))+":"
	}
	a.f = func(dst []byte, v reflect.Value) (_ []byte, err error) {
		for i := range s.fields {
			sep := byte(',')
			if i == 0 {
				sep = '{'
			}
			dst = append(append(dst, sep), names[i]...)
			if dst, err = fields[i].f(dst, s.fields[i].in(v)); err != nil {
				return dst, fmt.Errorf("field %s: %w", s.names[i], err)
			}
		}
		return append(dst, '}'), nil
	}
	return nil
}

func (e *encoder) ofList(a *appender, t reflect.Type, path string) error {
	of, err := e.of(t.Elem(), path+"[]")
	if err != nil {
		return err
	}
	a.f = func(dst []byte, v reflect.Value) (_ []byte, err error) {
		dst = append(dst, '[')
		for i := range v.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = of.f(dst, v.Index(i)); err != nil {
				return dst, fmt.Errorf("element %d: %w", i, err)
			}
		}
		return append(dst, ']'), nil
	}
	return nil
}

func (e *encoder) ofMap(a *appender, t reflect.Type, path string) error {
	if t.Key().Kind() != reflect.String {
		return fmt.Errorf("%s: the keys of %s are no strings", path, t)
	}
	of, err := e.of(t.Elem(), path+"[]")
	if err != nil {
		return err
	}
	a.f = func(dst []byte, v reflect.Value) (_ []byte, err error) {
		keys := v.MapKeys() // order: sorted next
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		dst = append(dst, '{')
		elem := reflect.New(t.Elem()).Elem() // one that has an address
		for i, k := range keys {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendText(dst, k.String()), ':')
			elem.Set(v.MapIndex(k))
			if dst, err = of.f(dst, elem); err != nil {
				return dst, fmt.Errorf("key %q: %w", k.String(), err)
			}
		}
		return append(dst, '}'), nil
	}
	return nil
}

// EncodeText returns what writes a type of one value as text: a string or bytes as they are, numbers and booleans in digits and words,
// times in RFC 3339, what marshals itself to text as that. A null, or a nil []byte, has no bytes: nil.
func EncodeText[T any]() (Encode[T], error) {
	t := reflect.TypeFor[T]()
	one := t
	if isNull(t) {
		one = t.Field(0).Type
	}
	text := one.Implements(textMarshalerType) || reflect.PointerTo(one).Implements(textMarshalerType)
	isBytes := one.Kind() == reflect.Slice && one.Elem().Kind() == reflect.Uint8 && !text
	switch one.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Array, reflect.Map, reflect.Interface, reflect.Pointer, reflect.Func, reflect.Chan, reflect.Complex64, reflect.Complex128:
		if one != timeType && !text && !isBytes {
			return nil, fmt.Errorf("%s is not one value", t)
		}
	}
	e := &encoder{compiler: newCompiler(), made: map[reflect.Type]*appender{}}
	a, err := e.of(one, t.String())
	if err != nil {
		return nil, err
	}
	return func(dst []byte, v T) ([]byte, error) {
		x := reflect.ValueOf(&v).Elem()
		if isNull(t) {
			if !x.Field(1).Bool() {
				return nil, nil
			}
			x = x.Field(0)
		}
		switch {
		case isBytes:
			if x.IsNil() {
				return nil, nil
			}
			return append(dst, x.Bytes()...), nil
		case one.Kind() == reflect.String && !text:
			return append(dst, x.String()...), nil
		}
		b, err := a.f(nil, x)
		if err != nil || b[0] != '"' {
			return append(dst, b...), err
		}
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return dst, err
		}
		return append(dst, s...), nil
	}, nil
}
