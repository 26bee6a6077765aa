package expr

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// fixtureField is a field of four rows: an ordinary one, one of nulls, and two of extremes.
type fixtureField struct {
	name string
	typ  Type
	rows [4]value.Value
}

var fixture = []fixtureField{
	{"i", Int, [4]value.Value{value.IntOf(7), {}, value.IntOf(math.MaxInt64), value.IntOf(-3)}},
	{"j", Int, [4]value.Value{value.IntOf(2), {}, value.IntOf(1), value.IntOf(0)}},
	{"f", Float, [4]value.Value{value.FloatOf(1.5), {}, value.FloatOf(math.NaN()), value.FloatOf(math.Copysign(0, -1))}},
	{"g", Float, [4]value.Value{value.FloatOf(0.25), {}, value.FloatOf(math.Inf(1)), value.FloatOf(-2.5)}},
	{"d", Decimal, [4]value.Value{dec("19.90"), {}, dec("123456789012345678901234567890"), dec("-0.05")}},
	{"e", Decimal, [4]value.Value{dec("2"), {}, dec("0.1"), dec("0")}},
	{"s", String, [4]value.Value{value.StringOf("Hello World"), {}, value.StringOf("Grüße, ÄÖ"), value.StringOf("")}},
	{"w", String, [4]value.Value{value.StringOf("o"), {}, value.StringOf("ß"), value.StringOf("")}},
	{"n", String, [4]value.Value{value.StringOf("42"), {}, value.StringOf("9223372036854775808"), value.StringOf(" 1")}},
	{"b", Bool, [4]value.Value{value.BoolOf(true), {}, value.BoolOf(false), value.BoolOf(true)}},
	{"c", Bool, [4]value.Value{value.BoolOf(false), value.BoolOf(false), {}, {}}},
	{"t", Time, [4]value.Value{at("2013-01-31T23:59:59.5Z"), {}, at("1969-12-31T23:59:59Z"), at("1677-09-21T00:12:44Z")}},
	{"raw", Bytes, [4]value.Value{value.BytesOf([]byte("ab")), {}, value.BytesOf([]byte{0xff}), value.BytesOf(nil)}},
	{"a", Any, [4]value.Value{value.IntOf(5), {}, value.StringOf("text"), value.FloatOf(2.5)}},
	{"al.name", String, [4]value.Value{value.StringOf("United"), {}, {}, value.StringOf("Delta")}},
	{"l", Type{vec.ListOf(vec.String), true}, [4]value.Value{
		value.ListOf([]value.Value{value.StringOf("x"), value.StringOf("y")}),
		{},
		value.ListOf(nil),
		value.ListOf([]value.Value{value.StringOf(""), {}}),
	}},
	{"al.seats", Int, [4]value.Value{value.IntOf(180), {}, {}, value.IntOf(0)}},
	{"odd-name", Int, [4]value.Value{value.IntOf(1), {}, value.IntOf(3), value.IntOf(4)}},
}

func dec(s string) value.Value {
	d, err := decimal.Parse(s)
	if err != nil {
		panic(err)
	}
	return value.DecimalOf(d)
}

func at(s string) value.Value {
	ns, err := ParseTime([]byte(s))
	if err != nil {
		panic(err)
	}
	return value.TimeOf(ns)
}

// fixtureRows returns the fixture, each field of it as Any if dynamic.
func fixtureRows(dynamic bool) (*Scope, *vec.Rows) {
	s, in := NewScope(), &vec.Rows{N: 4}
	for _, f := range fixture {
		t := f.typ
		if dynamic {
			t = Any
		}
		c := new(vec.Column)
		c.Reset(t.Type, 0)
		for _, v := range f.rows {
			if err := c.AppendValue(v); err != nil {
				panic(err)
			}
		}
		s.Set(f.name, Field{t, len(in.Cols)})
		in.Cols = append(in.Cols, c)
	}
	return s, in
}

func fixtureContext() *Context {
	p := batch.Partition{Source: "flights", Topic: "flights.csv"}
	return &Context{
		Batch:     &batch.Batch{Txid: 1, Time: time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC), Seed: 42},
		Partition: p, Step: "set", Offsets: []int64{100, 101, 102, 103},
	}
}

// results evaluates p at all rows and writes them as text: a value, or "!" and the row's failure.
func results(p *Program, in *vec.Rows) []string {
	ctx := fixtureContext()
	var out vec.Column
	p.Eval(ctx, in, nil, &out)
	texts := make([]string, in.N)
	for r := range texts {
		texts[r] = literal(out.Value(r))
	}
	for _, e := range ctx.Errs {
		if !out.IsNull(int(e.Row)) {
			panic(fmt.Sprintf("row %d failed and has a value", e.Row))
		}
		texts[e.Row] = "!" + e.Msg
	}
	return texts
}

func literal(v value.Value) string {
	switch v.Kind() {
	case value.Null:
		return "nil"
	case value.String:
		return fmt.Sprintf("%q", v.Str())
	case value.Bytes:
		return fmt.Sprintf("b%q", v.Bytes())
	case value.List:
		var parts []string
		for _, e := range v.List() {
			parts = append(parts, literal(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return string(value.AppendText(nil, v))
}

func mustCompile(t testing.TB, src string, s *Scope) *Program {
	t.Helper()
	e, err := Parse(src)
	if err != nil {
		t.Fatalf("%s: %v", src, err)
	}
	p, err := Compile(e, s)
	if err != nil {
		t.Fatalf("%s: %v", src, err)
	}
	return p
}
