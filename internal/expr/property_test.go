package expr

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"
	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// oracleFields are rows without nulls, of types that expr-lang has too.
var oracleFields = []fixtureField{
	{"i", Int, [4]value.Value{value.IntOf(7), value.IntOf(0), value.IntOf(-3), value.IntOf(1000)}},
	{"j", Int, [4]value.Value{value.IntOf(2), value.IntOf(-1), value.IntOf(3), value.IntOf(7)}},
	{"f", Float, [4]value.Value{value.FloatOf(1.5), value.FloatOf(0.1), value.FloatOf(-2.25), value.FloatOf(1e9)}},
	{"g", Float, [4]value.Value{value.FloatOf(0.2), value.FloatOf(7), value.FloatOf(3.5), value.FloatOf(-0.5)}},
	{"s", String, [4]value.Value{value.StringOf("Hello, World"), value.StringOf(""), value.StringOf("Grüße"), value.StringOf("o")}},
	{"w", String, [4]value.Value{value.StringOf("o"), value.StringOf("l"), value.StringOf("Grüße"), value.StringOf("World")}},
	{"b", Bool, [4]value.Value{value.BoolOf(true), value.BoolOf(false), value.BoolOf(true), value.BoolOf(false)}},
	{"c", Bool, [4]value.Value{value.BoolOf(true), value.BoolOf(true), value.BoolOf(false), value.BoolOf(false)}},
}

// generator writes well-typed expressions.
type generator struct {
	t      *rapid.T
	fields map[vec.Kind][]string
	oracle bool // only what means the same in expr-lang
}

func newGenerator(t *rapid.T, fields []fixtureField, oracle bool) *generator {
	g := &generator{t: t, fields: map[vec.Kind][]string{}, oracle: oracle}
	for _, f := range fields {
		if f.name != "odd-name" {
			g.fields[f.typ.Kind] = append(g.fields[f.typ.Kind], f.name)
		}
	}
	return g
}

func (g *generator) pick(label string, options ...string) string {
	return rapid.SampledFrom(options).Draw(g.t, label)
}

func (g *generator) field(k vec.Kind) string { return g.pick("field", g.fields[k]...) }

// expr writes an expression of kind k. Operands are in parentheses, since precedence is the parser's matter.
func (g *generator) expr(k vec.Kind, depth int) string {
	if depth == 0 || rapid.IntRange(0, 5).Draw(g.t, "leaf") == 0 {
		return g.leaf(k)
	}
	d := depth - 1
	two := func(format string, k vec.Kind) string {
		return fmt.Sprintf(format, g.expr(k, d), g.expr(k, d))
	}
	if rapid.IntRange(0, 7).Draw(g.t, "any kind") == 0 {
		return fmt.Sprintf("((%s) ? (%s) : (%s))", g.expr(vec.Bool, d), g.expr(k, d), g.expr(k, d))
	}
	if !g.oracle && rapid.IntRange(0, 7).Draw(g.t, "orElse") == 0 {
		return two("((%s) ?? (%s))", k)
	}
	number := func() vec.Kind { return rapid.SampledFrom([]vec.Kind{vec.Int, vec.Float}).Draw(g.t, "number") }
	switch k {
	case vec.Int:
		switch rapid.IntRange(0, 7).Draw(g.t, "int") {
		case 0:
			return two("((%s) + (%s))", k)
		case 1:
			return two("((%s) - (%s))", k)
		case 2:
			return two("((%s) * (%s))", k)
		case 3:
			return two("((%s) %% (%s))", k)
		case 4:
			return "(-(" + g.expr(k, d) + "))"
		case 5:
			return "len(" + g.expr(vec.String, d) + ")"
		case 6:
			return "abs(" + g.expr(k, d) + ")"
		}
		return two("min((%s), (%s))", k)
	case vec.Float:
		switch rapid.IntRange(0, 7).Draw(g.t, "float") {
		case 0:
			return fmt.Sprintf("((%s) + (%s))", g.expr(number(), d), g.expr(k, d))
		case 1:
			return fmt.Sprintf("((%s) - (%s))", g.expr(k, d), g.expr(number(), d))
		case 2:
			return fmt.Sprintf("((%s) * (%s))", g.expr(number(), d), g.expr(k, d))
		case 3:
			if g.oracle { // there, abs(-0.0) is -0.0, and 1/-0.0 shows it
				return fmt.Sprintf("((%s) / (%s))", g.expr(number(), d), g.leaf(number()))
			}
			return fmt.Sprintf("((%s) / (%s))", g.expr(number(), d), g.expr(number(), d))
		case 4:
			return "(-(" + g.expr(k, d) + "))"
		case 5:
			return g.pick("function", "abs", "floor", "ceil", "round") + "(" + g.expr(k, d) + ")"
		case 6:
			return "float(" + g.expr(number(), d) + ")"
		}
		if g.oracle { // there, whether NaN counts depends on the order
			d = 0
		}
		return two("max((%s), (%s))", k)
	case vec.String:
		switch rapid.IntRange(0, 5).Draw(g.t, "string") {
		case 0:
			return two("((%s) + (%s))", k)
		case 1:
			return g.pick("function", "lower", "upper", "trim") + "(" + g.expr(k, d) + ")"
		case 2:
			return two(g.pick("function", "trimPrefix", "trimSuffix")+"((%s), (%s))", k)
		case 3:
			return fmt.Sprintf("join(split((%s), (%s)), (%s))", g.expr(k, d), g.pick("separator", `","`, `"o"`, `"ll"`), g.expr(k, d))
		case 4:
			return fmt.Sprintf("replace((%s), %s, (%s))", g.expr(k, d), g.pick("old", `"l"`, `"World"`, "w"), g.expr(k, d))
		}
		return "string(" + g.expr(vec.Int, d) + ")"
	case vec.Bool:
		switch rapid.IntRange(0, 6).Draw(g.t, "bool") {
		case 0:
			return two("((%s) && (%s))", k)
		case 1:
			return two("((%s) || (%s))", k)
		case 2:
			return "!(" + g.expr(k, d) + ")"
		case 3:
			op := g.pick("operator", "==", "!=", "<", "<=", ">", ">=")
			return fmt.Sprintf("((%s) %s (%s))", g.expr(number(), d), op, g.expr(number(), d))
		case 4:
			return two("((%s) "+g.pick("operator", "==", "!=", "<", "<=", ">", ">=")+" (%s))", vec.String)
		case 5:
			return two("((%s) "+g.pick("operator", "contains", "startsWith", "endsWith", "not contains")+" (%s))", vec.String)
		}
		if rapid.Bool().Draw(g.t, "strings") {
			return fmt.Sprintf("((%s) in [%s, %s, %s])", g.expr(vec.String, d), g.leaf(vec.String), g.leaf(vec.String), g.leaf(vec.String))
		}
		return fmt.Sprintf("((%s) not in [%s, %s])", g.expr(vec.Int, d), g.leaf(vec.Int), g.leaf(vec.Int))
	}
	panic("no expressions of kind " + k.String())
}

func (g *generator) leaf(k vec.Kind) string {
	if rapid.Bool().Draw(g.t, "field") {
		return g.field(k)
	}
	switch k {
	case vec.Int:
		return g.pick("int", "0", "1", "2", "7", "1000")
	case vec.Float:
		if g.oracle { // which takes the constants 0.0 and -0.0 for one
			return g.pick("float", "0.1", "1.5", "2.0", "1000.25")
		}
		return g.pick("float", "0.0", "0.1", "1.5", "2.0", "1000.25")
	case vec.String:
		return g.pick("string", `""`, `"o"`, `"World"`, `"grüße"`, `"l"`)
	case vec.Bool:
		return g.pick("bool", "true", "false")
	}
	return g.field(k)
}

var generatedKinds = []vec.Kind{vec.Int, vec.Float, vec.String, vec.Bool}

func rowsOf(fields []fixtureField, dynamic bool) (*Scope, *vec.Rows) {
	saved := fixture
	fixture = fields
	defer func() { fixture = saved }()
	return fixtureRows(dynamic)
}

// TestAgainstExprLang compares with expr-lang's own machine on rows without nulls. Where this package reports a
// failure (an overflow, a division by zero), or is stricter at compile time, there is nothing to compare.
func TestAgainstExprLang(t *testing.T) {
	scope, in := rowsOf(oracleFields, false)
	env := make([]map[string]any, in.N)
	for r := range env {
		env[r] = map[string]any{}
		for _, f := range oracleFields {
			env[r][f.name] = native(f.rows[r])
		}
	}
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		g := newGenerator(t, oracleFields, true)
		src := g.expr(rapid.SampledFrom(generatedKinds).Draw(t, "kind"), rapid.IntRange(1, 4).Draw(t, "depth"))
		e, err := Parse(src)
		if err != nil {
			t.Fatalf("%s: %v", src, err)
		}
		p, err := Compile(e, scope)
		if err != nil { // the failure of a constant
			for _, m := range err.(Errors) {
				if !strings.Contains(m.Msg, "zero") && !strings.Contains(m.Msg, "range") {
					t.Fatalf("%s: %v", src, err)
				}
			}
			return
		}
		program, err := expr.Compile(src, expr.Env(env[0]))
		if err != nil {
			t.Fatalf("%s: expr-lang: %v", src, err)
		}
		ctx := fixtureContext()
		var out vec.Column
		p.Eval(ctx, in, nil, &out)
		for r := range in.N {
			if slices.ContainsFunc(ctx.Errs, func(e RowError) bool { return int(e.Row) == r }) {
				continue
			}
			want, err := vm.Run(program, env[r])
			if err != nil {
				t.Fatalf("%s at row %d: %s, expr-lang fails with %v", src, r, literal(out.Value(r)), err)
			}
			if got := native(out.Value(r)); !sameNative(got, want) {
				t.Fatalf("%s at row %d: %v (%T), expr-lang gives %v (%T)", src, r, got, got, want, want)
			}
			compared++
		}
	})
	if compared == 0 {
		t.Error("nothing was compared")
	}
}

func native(v value.Value) any {
	switch v.Kind() {
	case value.Bool:
		return v.Bool()
	case value.Int:
		return int(v.Int())
	case value.Float:
		return v.Float()
	case value.String:
		return v.Str()
	}
	return nil
}

// sameNative compares numbers by value: a conditional of an int and a float is always a float here.
func sameNative(a, b any) bool {
	x, xok := asFloat(a)
	y, yok := asFloat(b)
	if xok && yok {
		return x == y || math.IsNaN(x) && math.IsNaN(y)
	}
	return reflect.DeepEqual(a, b)
}

func asFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// TestTypedEqualsDynamic compares the loops over typed columns with the same expression over fields whose types show
// at run time only, nulls and failures included.
func TestTypedEqualsDynamic(t *testing.T) {
	scope, in := fixtureRows(false)
	anyScope, anyIn := fixtureRows(true)
	rapid.Check(t, func(t *rapid.T) {
		g := newGenerator(t, fixture, false)
		src := g.expr(rapid.SampledFrom(generatedKinds).Draw(t, "kind"), rapid.IntRange(1, 4).Draw(t, "depth"))
		e, err := Parse(src)
		if err != nil {
			t.Fatalf("%s: %v", src, err)
		}
		p, err := Compile(e, scope)
		if err != nil {
			return // a constant that fails does so in both
		}
		q, err := Compile(e, anyScope)
		if err != nil {
			t.Fatalf("%s: with dynamic fields: %v", src, err)
		}
		typed, dynamic := results(p, in), results(q, anyIn)
		for r := range typed {
			if typed[r] != dynamic[r] && (typed[r][0] != '!' || dynamic[r][0] != '!') {
				t.Fatalf("%s at row %d: %s, with dynamic fields %s", src, r, typed[r], dynamic[r])
			}
		}
	})
}

// TestSelections makes sure that a row's value depends on nothing but the row: not on the rows beside it, the
// selection, or what the program was used for before.
func TestSelections(t *testing.T) {
	scope, in := fixtureRows(false)
	rapid.Check(t, func(t *rapid.T) {
		g := newGenerator(t, fixture, false)
		src := g.expr(rapid.SampledFrom(generatedKinds).Draw(t, "kind"), rapid.IntRange(1, 4).Draw(t, "depth"))
		e, err := Parse(src)
		if err != nil {
			t.Fatalf("%s: %v", src, err)
		}
		p, err := Compile(e, scope)
		if err != nil {
			return
		}
		want := results(p, in)
		for range 3 {
			rows := rapid.SliceOfN(rapid.Int32Range(0, 3), 1, 9).Draw(t, "rows")
			chunk := &vec.Rows{N: len(rows)}
			for _, c := range in.Cols {
				gathered := new(vec.Column)
				gathered.Gather(c, rows)
				chunk.Cols = append(chunk.Cols, gathered)
			}
			var sel []int32
			for i := range rows {
				if rapid.Bool().Draw(t, "selected") {
					sel = append(sel, int32(i))
				}
			}
			ctx := fixtureContext()
			ctx.Offsets = make([]int64, len(rows))
			var out vec.Column
			if sel == nil {
				sel = []int32{}
			}
			p.Eval(ctx, chunk, sel, &out)
			failures := map[int32]string{}
			last := int32(-1)
			for _, e := range ctx.Errs {
				if e.Row <= last {
					t.Fatalf("%s: failures out of order: %v", src, ctx.Errs)
				}
				last = e.Row
				failures[e.Row] = "!" + e.Msg
			}
			for _, r := range sel {
				got, failed := failures[r]
				if !failed {
					got = literal(out.Value(int(r)))
				}
				if got != want[rows[r]] {
					t.Fatalf("%s at row %d of %v, selection %v: %s, want %s", src, r, rows, sel, got, want[rows[r]])
				}
			}
			if len(failures) > 0 && len(sel) == 0 {
				t.Fatalf("%s: failures %v of rows that weren't asked for", src, failures)
			}
		}
	})
}

func FuzzExpr(f *testing.F) {
	for _, src := range []string{
		`dep_delay > 15`, `lower(s) + "x"`, `i / j ?? 0`, `a in [1, "x", nil]`, `l[0] == $env["odd-name"]`, `b ? i : f`,
		`1 < i < 3`, `s | split(",") | join("")`, `"\u{1F600}" + s`, "`raw` == s", `0x1F + 0b1 + 0o7 + 1_000`, `not (b and !c)`,
		`truncate(t, "1h") == timestamp("2013-01-01T00:00:00Z")`, `i == nil + 1`, `f < nil * 2`, `count_if(i > 1)`, `top(s, 3, i)`, `quantile(f, 0.9)`, `((((((i))))))`, `-i ** 2`, `al?.name`, `é`,
	} {
		f.Add(src)
	}
	scope, in := fixtureRows(false)
	anyScope, anyIn := fixtureRows(true)
	f.Fuzz(func(t *testing.T, src string) {
		_, err := ParseAggregate(src)
		offsets(t, src, err)
		e, err := Parse(src)
		offsets(t, src, err)
		if err != nil {
			return
		}
		e.Fields()
		for _, x := range []struct {
			s  *Scope
			in *vec.Rows
		}{{scope, in}, {anyScope, anyIn}} {
			p, err := Compile(e, x.s)
			offsets(t, src, err)
			typ, errs := e.Check(x.s)
			if (len(errs) == 0) != (err == nil) {
				t.Fatalf("%q: Check reports %v, Compile %v", src, errs, err)
			}
			if err != nil {
				continue
			}
			if typ.Kind != vec.Null && typ.Type != p.Type().Type {
				t.Fatalf("%q: type %s, compiled %s", src, typ.Type, p.Type().Type)
			}
			want := results(p, x.in)
			f, err := CompileFilter(e, x.s)
			if err != nil {
				continue
			}
			passed := f.Filter(fixtureContext(), x.in, nil, nil)
			for r := range want {
				// What isn't a condition by its type alone may fail to be one at a row.
				if p.Type().Kind == vec.Bool && (want[r] == "true") != slices.Contains(passed, int32(r)) {
					t.Fatalf("%q: row %d is %s, the filter passes %v", src, r, want[r], passed)
				}
			}
		}
	})
}

// TestParseConcurrently is for the race detector: tasks are built side by side.
func TestParseConcurrently(t *testing.T) {
	var wg sync.WaitGroup
	scope, _ := fixtureRows(false)
	for range 8 {
		wg.Go(func() {
			for _, src := range []string{`lower(s) + "x"`, `count_if(i > 1)`, `top(s, 3, i)`, `quantile(f, 0.9)`, `$env["odd-name"] ?? sqrt(i)`, `s | split(",")`} {
				if e, err := Parse(src); err == nil {
					e.Check(scope)
				}
			}
		})
	}
	wg.Wait()
}

// TestWorkIsBounded parses what makes the syntax tree share nodes, or nest as deep as it can.
func TestWorkIsBounded(t *testing.T) {
	scope, in := fixtureRows(false)
	for name, src := range map[string]string{
		"elvis":        strings.Repeat("b ?: ", 1000) + "c",
		"chain":        strings.Repeat("1 < ", 1000) + "i",
		"nested chain": strings.Repeat("(1 < ", 500) + "i" + strings.Repeat(" < 2)", 500),
		"minus":        strings.Repeat("-", 5000) + "i",
		"parentheses":  strings.Repeat("(", 8000) + "i" + strings.Repeat(")", 8000),
		"open":         strings.Repeat("(", MaxSource),
		"lists":        strings.Repeat("[", 600) + strings.Repeat("]", 600),
		"sum":          strings.Repeat("i + ", 1000) + "i",
		"calls":        strings.Repeat("abs(", 3000) + "i" + strings.Repeat(")", 3000),
		"coalesce":     strings.Repeat("i ?? ", 2000) + "i",
		"methods":      strings.Repeat("i.abs().", 1000) + "x()",
		"long":         strings.Repeat(" ", MaxSource) + "i",
	} {
		e, err := Parse(src)
		offsets(t, src, err)
		if err != nil {
			continue
		}
		e.Fields()
		if p, err := Compile(e, scope); err == nil {
			results(p, in)
		} else if name != "nested chain" && name != "lists" && name != "chain" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// offsets makes sure that mistakes lie within the source, in order.
func offsets(t *testing.T, src string, err error) {
	if err == nil {
		return
	}
	errs := err.(Errors)
	if len(errs) == 0 {
		t.Fatalf("%q: an error without mistakes", src)
	}
	last := 0
	for _, e := range errs {
		if e.Offset < last || e.Offset > len(src) || e.Msg == "" {
			t.Fatalf("%q: mistake %+v", src, e)
		}
		last = e.Offset
	}
}
