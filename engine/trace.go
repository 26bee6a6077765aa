package engine

import (
	"fmt"
	"reflect"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/internal/plan"
)

// tracer wraps the functions of a chain that is being built so that what each step hands on is noted.
type tracer struct {
	out *plan.Trace
	ids map[any]int // by node
	in  []int       // the steps that are being built, the outermost first
}

// enter begins a node, or notes another way that leads to one that has been built.
func (t *tracer) enter(n any, step string) {
	id, built := t.ids[n]
	if !built {
		id = len(t.out.Steps)
		t.ids[n] = id
		t.out.Steps = append(t.out.Steps, plan.TraceStep{Name: step})
	}
	if len(t.in) > 0 {
		t.out.Steps[id].From = append(t.out.Steps[id].From, t.in[len(t.in)-1])
	}
	if !built {
		t.in = append(t.in, id)
	}
}

// traced ends a node that enter began, and returns f with each of its calls noted.
func traced[T any](t *tracer, f push[T]) push[T] {
	id := t.in[len(t.in)-1]
	t.in = t.in[:len(t.in)-1]
	return func(rc *rec, v T) {
		if s := &t.out.Steps[id]; len(s.Values) < plan.TraceLimit {
			digest, text := describe(&v)
			s.Values = append(s.Values, plan.TraceValue{Offset: rc.offset, Digest: digest, Text: text})
		}
		f(rc, v)
	}
}

// describe returns a digest of what *v holds, pointers followed, and a text for people. Two values that are equal in all that a
// function may look at have one digest; addresses have no part in it.
func describe(v any) (digest uint64, text string) {
	d := describer{h: xxhash.New()}
	d.walk(reflect.ValueOf(v).Elem(), 0)
	if len(d.text) > textLimit {
		d.text = append(d.text[:textLimit], "…"...)
	}
	return d.h.Sum64(), string(d.text)
}

const (
	textLimit = 80
	deepest   = 16 // levels of a value that count: beyond lies a cycle, or what nobody reads
)

type describer struct {
	h    *xxhash.Digest
	text []byte
}

func (d *describer) put(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	d.h.WriteString(s)
	if len(d.text) <= textLimit {
		d.text = append(d.text, s...)
	}
}

func (d *describer) walk(v reflect.Value, depth int) {
	if depth > deepest {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		d.put("%t", v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.put("%d", v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		d.put("%d", v.Uint())
	case reflect.Float32, reflect.Float64:
		d.put("%v", v.Float())
	case reflect.Complex64, reflect.Complex128:
		d.put("%v", v.Complex())
	case reflect.String:
		d.put("%q", v.String())
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			d.put("nil")
			return
		}
		d.walk(v.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		d.list(v, depth)
	case reflect.Map:
		d.pairs(v, depth)
	case reflect.Struct:
		d.put("{")
		for i := range v.NumField() {
			if i > 0 {
				d.put(" ")
			}
			d.put("%s:", v.Type().Field(i).Name)
			d.walk(v.Field(i), depth+1)
		}
		d.put("}")
	default: // functions, channels: nothing that could be compared
		d.put("%s", v.Type())
	}
}

func (d *describer) list(v reflect.Value, depth int) {
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
		d.put("%q", v.Bytes())
		return
	}
	d.put("[")
	for i := range v.Len() {
		if i > 0 {
			d.put(" ")
		}
		d.walk(v.Index(i), depth+1)
	}
	d.put("]")
}

// pairs adds a map without regard to its order.
func (d *describer) pairs(v reflect.Value, depth int) {
	var sum uint64
	for it := v.MapRange(); it.Next(); { // order: a sum
		e := describer{h: xxhash.New()}
		e.walk(it.Key(), depth+1)
		e.put(":")
		e.walk(it.Value(), depth+1)
		sum += e.h.Sum64()
	}
	d.put("map of %d (%016x)", v.Len(), sum)
}
