package codec

import (
	"fmt"
	"reflect"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/jsonscan"
)

// JSON reads records that are one JSON object each into T: a struct, a map with string keys, or any.
func JSON[T any]() Decoder[T] {
	c := newCompiler()
	t := reflect.TypeFor[T]()
	d := &jsonDecoder[T]{}
	if d.node, d.err = c.compile(t, t.String()); d.err == nil && d.node.str == nil && t.Kind() != reflect.Map && t.Kind() != reflect.Interface {
		d.err = fmt.Errorf("%s: a record is a JSON object, which becomes a struct, a map with string keys, or any", t)
	}
	d.structures = c.structures
	return d
}

type jsonDecoder[T any] struct {
	node       *node
	structures []*structure
	err        error
}

func (d *jsonDecoder[T]) CSV() bool  { return false }
func (d *jsonDecoder[T]) Err() error { return d.err }

func (d *jsonDecoder[T]) Describe() string {
	if d.err != nil {
		return "json"
	}
	return "json " + d.node.name
}

func (d *jsonDecoder[T]) New() Decode[T] {
	if d.err != nil {
		panic("codec: New of a decoder that can't be: " + d.err.Error())
	}
	s := &jsonDecode[T]{node: d.node}
	if d.node.str == nil {
		s.check = jsonscan.New(nil)
	}
	for _, str := range d.structures {
		s.state.scanners = append(s.state.scanners, jsonscan.New(str.names))
	}
	return s
}

type jsonDecode[T any] struct {
	node  *node
	check *jsonscan.Scanner // for a T without fields
	state jsonState
}

func (d *jsonDecode[T]) Begin([]string) error { return nil }

func (d *jsonDecode[T]) Decode(r *batch.Record, into *T) error {
	if r.Value == nil {
		return errNull
	}
	v := reflect.ValueOf(into).Elem()
	if d.node.str != nil {
		return d.state.object(d.node.str, v, r.Value)
	}
	if err := d.check.Scan(r.Value, nil); err != nil {
		return err
	}
	return d.node.json(&d.state, v, jsonscan.Field{Raw: r.Value, Kind: jsonscan.Object})
}

// jsonState is what decoding needs of its goroutine's own.
type jsonState struct {
	scanners []*jsonscan.Scanner // by structure.id
	fields   []jsonscan.Field    // a stack: structs within structs, of the same type too
	text     []byte
	texts    texts
}

// object fills a struct from an object's text.
func (d *jsonState) object(s *structure, v reflect.Value, doc []byte) error {
	base := len(d.fields)
	for range s.fields {
		d.fields = append(d.fields, jsonscan.Field{})
	}
	out := d.fields[base:]
	defer func() { d.fields = d.fields[:base] }()
	if err := d.scanners[s.id].Scan(doc, out); err != nil {
		return err
	}
	for i := range s.fields {
		f := &s.fields[i]
		if err := d.set(f.node, f.in(v), out[i]); err != nil {
			return fmt.Errorf("field %s: %w", s.names[i], err)
		}
	}
	return nil
}

// set holds back nulls from types that don't take them.
func (d *jsonState) set(n *node, v reflect.Value, f jsonscan.Field) error {
	if !n.null {
		switch f.Kind {
		case jsonscan.Missing:
			return errMissing
		case jsonscan.Null:
			return errNullField
		}
	}
	return n.json(d, v, f)
}

// withText calls set with what a string stands for.
func (d *jsonState) withText(f jsonscan.Field, v reflect.Value, set setter) error {
	if !f.Escaped {
		return set(&d.texts, v, f.Raw)
	}
	var err error
	if d.text, err = jsonscan.Unescape(d.text[:0], f.Raw); err != nil {
		return err
	}
	return set(&d.texts, v, d.text)
}
