package codec

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tridentd/tridentd/internal/jsonscan"
	"github.com/tridentd/tridentd/internal/names"
)

// node says how one Go type is read. It is compiled once, when the pipeline is built, and shared by goroutines.
type node struct {
	name string // in descriptions and errors
	// null tells that the type takes null and a missing field; json then gets Kind Null or Missing too.
	null bool
	json func(d *jsonState, v reflect.Value, f jsonscan.Field) error
	text setter     // nil: no form in CSV
	str  *structure // of a struct
}

// structure is a struct's fields.
type structure struct {
	fields []structField
	names  []string
	id     int // index of its scanner in a jsonState
}

type structField struct {
	path []int
	node *node
}

func (f *structField) in(v reflect.Value) reflect.Value {
	for _, i := range f.path {
		v = v.Field(i)
	}
	return v
}

var (
	timeType            = reflect.TypeFor[time.Time]()
	durationType        = reflect.TypeFor[time.Duration]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonUnmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// compiler compiles the types that are reachable from one.
type compiler struct {
	nodes      map[reflect.Type]*node // types may contain themselves
	structures []*structure
}

func newCompiler() *compiler { return &compiler{nodes: map[reflect.Type]*node{}} }

// compile returns the node of t. path names the place in errors.
func (c *compiler) compile(t reflect.Type, path string) (*node, error) {
	if n, ok := c.nodes[t]; ok {
		return n, nil
	}
	n := &node{name: t.String()}
	c.nodes[t] = n
	var err error
	switch {
	case t.Kind() == reflect.Pointer:
		return nil, fmt.Errorf("%s: a pointer (%s) isn't supported; use codec.Null[%s]", path, t, t.Elem())
	case t == timeType:
		n.fromText(setTime)
	case t == durationType:
		n.fromText(setDuration)
	case isNull(t):
		err = c.compileNull(n, t, path)
	case reflect.PointerTo(t).Implements(textUnmarshalerType):
		n.text = setUnmarshaler
		n.json = func(d *jsonState, v reflect.Value, f jsonscan.Field) error {
			switch f.Kind {
			case jsonscan.Number, jsonscan.Float:
				return setUnmarshaler(&d.texts, v, f.Raw)
			case jsonscan.String:
				return d.withText(f, v, setUnmarshaler)
			}
			return unexpected(f, "a string or a number")
		}
	case reflect.PointerTo(t).Implements(jsonUnmarshalerType):
		n.json = func(_ *jsonState, v reflect.Value, f jsonscan.Field) error {
			v.SetZero() // an unmarshaler may reuse the memory of the value before, which somebody may hold
			return v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(document(f))
		}
	default:
		err = c.compileKind(n, t, path)
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

func (c *compiler) compileKind(n *node, t reflect.Type, path string) error {
	switch t.Kind() {
	case reflect.String:
		n.fromText(setString)
	case reflect.Bool:
		n.text, n.json = setBool, jsonBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n.fromNumber(setInt, false)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n.fromNumber(setUint, false)
	case reflect.Float32, reflect.Float64:
		n.fromNumber(setFloat, true)
		n.text = setFloatText
	case reflect.Struct:
		return c.compileStruct(n, t, path)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			n.text, n.json = setBytes, jsonBase64
			return nil
		}
		return c.compileList(n, t, path)
	case reflect.Array:
		return c.compileList(n, t, path)
	case reflect.Map:
		return c.compileMap(n, t, path)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("%s: the interface %s doesn't say which type to make; use a concrete type", path, t)
		}
		n.null, n.json = true, jsonAny
	default:
		return fmt.Errorf("%s: values of type %s can't be read from records", path, t)
	}
	return nil
}

// isNull tells whether t is a Null, or has its shape as sql.Null does.
func isNull(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.NumField() == 2 && t.Field(0).Name == "V" &&
		t.Field(1).Name == "Valid" && t.Field(1).Type.Kind() == reflect.Bool
}

func (c *compiler) compileNull(n *node, t reflect.Type, path string) error {
	of, err := c.compile(t.Field(0).Type, path)
	if err != nil {
		return err
	}
	n.null, n.name = true, "null "+of.name
	n.json = func(d *jsonState, v reflect.Value, f jsonscan.Field) error {
		if f.Kind == jsonscan.Null || f.Kind == jsonscan.Missing {
			v.SetZero()
			return nil
		}
		v.Field(1).SetBool(true)
		return of.json(d, v.Field(0), f)
	}
	if of.text != nil {
		n.text = func(t *texts, v reflect.Value, text []byte) error {
			v.Field(1).SetBool(true)
			return of.text(t, v.Field(0), text)
		}
	}
	return nil
}

func (c *compiler) compileStruct(n *node, t reflect.Type, path string) error {
	s := &structure{id: len(c.structures)}
	c.structures = append(c.structures, s)
	n.str = s
	if err := c.collect(s, t, nil, path); err != nil {
		return err
	}
	if len(s.fields) == 0 {
		return fmt.Errorf("%s: %s has no exported field", path, t)
	}
	n.name = describe(s)
	n.json = func(d *jsonState, v reflect.Value, f jsonscan.Field) error {
		if f.Kind != jsonscan.Object {
			return unexpected(f, "an object")
		}
		return d.object(s, v, f.Raw)
	}
	return nil
}

// collect adds the fields of t, which lies at index path at within the struct.
func (c *compiler) collect(s *structure, t reflect.Type, at []int, path string) error {
	for i := range t.NumField() {
		sf := t.Field(i)
		tag, tagged := sf.Tag.Lookup("trident")
		if tag == "-" {
			continue
		}
		in := append(slices.Clip(at), i)
		if sf.Anonymous && !tagged && sf.Type.Kind() == reflect.Struct && !isNull(sf.Type) && sf.Type != timeType &&
			!reflect.PointerTo(sf.Type).Implements(textUnmarshalerType) {
			if err := c.collect(s, sf.Type, in, path); err != nil {
				return err
			}
			continue
		}
		if !sf.IsExported() {
			if tagged {
				return fmt.Errorf("%s.%s: the tag is on an unexported field", path, sf.Name)
			}
			continue
		}
		name := names.Snake(sf.Name)
		if tagged {
			if name = tag; name == "" {
				return fmt.Errorf("%s.%s: the tag holds no name", path, sf.Name)
			}
		}
		for j, other := range s.names {
			if other == name {
				return fmt.Errorf("%s.%s: field %d has the name %s already; set another by a tag", path, sf.Name, j+1, name)
			}
		}
		of, err := c.compile(sf.Type, path+"."+sf.Name)
		if err != nil {
			return err
		}
		s.names = append(s.names, name)
		s.fields = append(s.fields, structField{path: in, node: of})
	}
	return nil
}

func describe(s *structure) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, f := range s.fields {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(s.names[i] + " " + f.node.name)
	}
	b.WriteByte('}')
	return b.String()
}

func (c *compiler) compileList(n *node, t reflect.Type, path string) error {
	of, err := c.compile(t.Elem(), path+"[]")
	if err != nil {
		return err
	}
	fixed := t.Kind() == reflect.Array
	n.name = "[]" + of.name
	if fixed {
		n.name = fmt.Sprintf("[%d]%s", t.Len(), of.name)
	}
	n.json = func(d *jsonState, v reflect.Value, f jsonscan.Field) error {
		if f.Kind != jsonscan.Array {
			return unexpected(f, "an array")
		}
		if !fixed {
			v.Set(reflect.MakeSlice(t, 0, 0))
		}
		i := 0
		var err error
		jsonscan.Elements(f.Raw, func(e jsonscan.Field) bool {
			switch {
			case !fixed:
				v.Grow(1)
				v.SetLen(i + 1)
				v.Index(i).SetZero()
			case i == t.Len():
				err = fmt.Errorf("more than %d elements", t.Len())
				return false
			}
			if err = d.set(of, v.Index(i), e); err != nil {
				err = fmt.Errorf("element %d: %w", i, err)
				return false
			}
			i++
			return true
		})
		if err == nil && fixed && i < t.Len() {
			err = fmt.Errorf("%d elements where %d are due", i, t.Len())
		}
		return err
	}
	return nil
}

func (c *compiler) compileMap(n *node, t reflect.Type, path string) error {
	if t.Key().Kind() != reflect.String {
		return fmt.Errorf("%s: a map's keys must be strings, those of %s aren't", path, t)
	}
	of, err := c.compile(t.Elem(), path+"[]")
	if err != nil {
		return err
	}
	n.name = "map[string]" + of.name
	n.json = func(d *jsonState, v reflect.Value, f jsonscan.Field) error {
		if f.Kind != jsonscan.Object {
			return unexpected(f, "an object")
		}
		v.Set(reflect.MakeMap(t))
		var err error
		jsonscan.Members(f.Raw, func(name, e jsonscan.Field) bool {
			key := reflect.New(t.Key()).Elem()
			if err = d.withText(name, key, setString); err != nil {
				return false
			}
			if v.MapIndex(key).IsValid() {
				err = fmt.Errorf("key %s occurs twice", key)
				return false
			}
			elem := reflect.New(t.Elem()).Elem()
			if err = d.set(of, elem, e); err != nil {
				err = fmt.Errorf("key %s: %w", key, err)
				return false
			}
			v.SetMapIndex(key, elem)
			return true
		})
		return err
	}
	return nil
}
