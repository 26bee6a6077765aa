package expr

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tridentd/tridentd/internal/vec"
)

// TestScripts runs the files in testdata. Each line of a command's input is an expression of its own.
//
//	eval       type, then the values at the fixture's four rows; a failure begins with !
//	check      type and fields, or all mistakes
//	aggregate  the same for an aggregate
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s, in := fixtureRows(false)
			anyScope, anyIn := fixtureRows(true)
			var b strings.Builder
			for src := range strings.Lines(d.Input) {
				src = strings.TrimSuffix(src, "\n")
				switch d.Cmd {
				case "eval":
					e, err := Parse(src)
					if err != nil {
						t.Errorf("%s: %v", src, err)
						continue
					}
					p, err := Compile(e, s)
					if err != nil {
						t.Errorf("%s: %v", src, err)
						continue
					}
					nullable := ""
					if p.Type().Nullable {
						nullable = "?"
					}
					rows := results(p, in)
					fmt.Fprintf(&b, "%s\n    %s%s: %s\n", src, p.Type().Type, nullable, strings.Join(rows, " | "))
					sameDynamic(t, src, rows, results(mustCompile(t, src, anyScope), anyIn))
				case "check":
					fmt.Fprintf(&b, "%s\n", src)
					e, err := Parse(src)
					if err != nil {
						writeErrors(&b, src, err.(Errors))
						break
					}
					typ, errs := e.Check(s)
					if len(errs) > 0 {
						writeErrors(&b, src, errs)
						break
					}
					fmt.Fprintf(&b, "    %s of %s\n", typ.Type, strings.Join(e.Fields(), ", "))
				case "aggregate":
					fmt.Fprintf(&b, "%s\n", src)
					a, err := ParseAggregate(src)
					if err != nil {
						writeErrors(&b, src, err.(Errors))
						break
					}
					typ, errs := a.Check(s)
					if len(errs) > 0 {
						writeErrors(&b, src, errs)
						break
					}
					fmt.Fprintf(&b, "    %s, %s", a.Name(), typ.Type)
					for _, x := range a.Args {
						fmt.Fprintf(&b, " of %s at %d", strings.Join(x.Fields(), ", "), x.Offset())
					}
					b.WriteByte('\n')
				default:
					t.Fatalf("unknown command %s", d.Cmd)
				}
			}
			return b.String()
		})
	})
}

// sameDynamic compares the results of an expression with those over fields whose types show at run time only.
func sameDynamic(t *testing.T, src string, typed, dynamic []string) {
	for r := range typed {
		failed := typed[r][0] == '!' && dynamic[r][0] == '!'
		// That a float literal stands for a decimal is seen by the declared type of the other side.
		literal := strings.Contains(dynamic[r], "decimal")
		// That an int beside a float is widened, even where it is the result, is seen by the declared types.
		widened := typed[r] == strings.ReplaceAll(dynamic[r], "9223372036854775807", "9223372036854775808")
		if typed[r] != dynamic[r] && !failed && !literal && !widened {
			t.Errorf("%s at row %d: %s, with dynamic fields %s", src, r, typed[r], dynamic[r])
		}
	}
}

// writeErrors points at each mistake, as validate does.
func writeErrors(b *strings.Builder, src string, errs Errors) {
	for _, e := range errs {
		column := len([]rune(src[:e.Offset]))
		fmt.Fprintf(b, "%s^ %s", strings.Repeat(" ", column), e.Msg)
		if e.Hint != "" {
			fmt.Fprintf(b, " (%s)", e.Hint)
		}
		b.WriteByte('\n')
	}
}

// TestFilter covers what Filter has loops of its own for, against the values that Eval gives.
func TestFilter(t *testing.T) {
	s, in := fixtureRows(false)
	for _, src := range []string{
		`i > 1`, `i >= 7`, `i < 7`, `i <= 7`, `i == 7`, `i != 7`, `7 > i`, `f > 1`, `f != 1.5`, `f <= 1.5`, `g >= 0.25`,
		`s == "Hello World"`, `s != "Hello World"`, `s >= "H"`, `i == j`, `i != j`, `t < timestamp("2000-01-01T00:00:00Z")`,
		`i == nil`, `i != nil`, `j != nil && i / j > 1`, `b && i > 0`, `i > 0 && b`, `b || i > 0`, `!b`, `b`, `c`, `c || b`,
		`d > 1`, `d == 19.9`, `a > 3`, `a == "text"`, `s in ["", "Hello World"]`, `int(n) > 1`, `i > 0 && int(n) > 1`, `nil`,
		`bool(s) && i > 1`, `c && int(n) > 1`, `c || int(n) > 1`, `raw == b"ab"`, `true`, `false`, `i + 1 > 0 && s != ""`,
	} {
		e, err := Parse(src)
		if err != nil {
			t.Fatal(err)
		}
		p, err := CompileFilter(e, s)
		if err != nil {
			t.Fatalf("%s: %v", src, err)
		}
		for _, sel := range [][]int32{nil, {0, 1, 2, 3}, {1, 3}, {2}, {}} {
			evalCtx, filterCtx := fixtureContext(), fixtureContext()
			var out vec.Column
			p.Eval(evalCtx, in, sel, &out)
			var want []int32
			for r := range int32(4) {
				if (sel == nil || slices.Contains(sel, r)) && !out.IsNull(int(r)) && out.Bool[r] {
					want = append(want, r)
				}
			}
			prefix := []int32{9}
			got := p.Filter(filterCtx, in, sel, prefix)
			if !slices.Equal(got[1:], want) || got[0] != 9 {
				t.Errorf("%s at %v: rows %v, want %v", src, sel, got, want)
			}
			if !slices.Equal(evalCtx.Errs, filterCtx.Errs) {
				t.Errorf("%s at %v: filter reports %v, eval %v", src, sel, filterCtx.Errs, evalCtx.Errs)
			}
			inPlace := slices.Clone(sel)
			if sel != nil {
				if got := p.Filter(fixtureContext(), in, inPlace, inPlace[:0]); !slices.Equal(got, want) {
					t.Errorf("%s at %v in place: rows %v, want %v", src, sel, got, want)
				}
			}
		}
	}
}

func TestCompileAs(t *testing.T) {
	s, in := fixtureRows(false)
	for _, tc := range []struct {
		src, what string
		typ       vec.Type
		want      string // the rows, or the mistake
	}{
		{"i", "sum()", vec.Type{Kind: vec.Float}, "7 | nil | 9223372036854775808 | -3"},
		{"j", "sum()", vec.Type{Kind: vec.Decimal}, "2 | nil | 1 | 0"},
		{"1.50", "sum()", vec.Type{Kind: vec.Decimal}, "1.5 | 1.5 | 1.5 | 1.5"},
		{"a", "sum()", vec.Type{Kind: vec.Float}, "5 | nil | !sum() needs a float, a is a string (\"text\") | 2.5"},
		{"nil", "key", vec.Type{Kind: vec.String}, "nil | nil | nil | nil"},
		{"s", "sum()", vec.Type{Kind: vec.Float}, "offset 0: sum() needs a float, s is a string"},
		{"f", "sum()", vec.Type{Kind: vec.Decimal}, "offset 0: sum() needs a decimal, f is a float"},
		{"[a]", "flat_map", vec.ListOf(vec.String), `!flat_map needs a list<string>, [a] is a list of other values | [nil] | ["text"] | !flat_map needs a list<string>, [a] is a list of other values`},
		{"[]", "flat_map", vec.ListOf(vec.String), "[] | [] | [] | []"},
		{"i", "filter", vec.Type{Kind: vec.Bool}, "offset 0: filter needs a bool, i is an int"},
		{"i", "set", vec.Type{Kind: vec.Any}, "7 | nil | 9223372036854775807 | -3"},
	} {
		e, err := Parse(tc.src)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if p, err := CompileAs(e, s, tc.what, tc.typ); err != nil {
			got = err.Error()
		} else {
			got = strings.Join(results(p, in), " | ")
			if p.Type().Type != tc.typ {
				t.Errorf("%s as %s: type %s", tc.src, tc.typ, p.Type().Type)
			}
		}
		if got != tc.want {
			t.Errorf("%s for %s as %s:\n got %s\nwant %s", tc.src, tc.what, tc.typ, got, tc.want)
		}
	}
}

func TestScope(t *testing.T) {
	s := NewScope()
	s.Set("x", Field{Int, 0})
	s.Set("al.name", Field{String, 1})
	asked := []string{}
	s.Unknown = func(name string) (Field, bool) {
		asked = append(asked, name)
		return Field{Any, 7}, !strings.HasPrefix(name, "_")
	}
	for _, tc := range []struct {
		name  string
		ok    bool
		index int
	}{
		{"x", true, 0},
		{"al.name", true, 1},
		{"al.nam", false, 0},
		{"al", false, 0},
		{"x.y", false, 0},
		{"y", true, 7},
		{"user.name", true, 7},
		{"_y", false, 0},
	} {
		f, ok := s.Lookup(tc.name)
		if ok != tc.ok || f.Index != tc.index {
			t.Errorf("%s: %v, %v", tc.name, f, ok)
		}
	}
	if want := []string{"y", "user.name", "_y"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %v, want %v", asked, want)
	}
	c := s.Clone()
	c.Set("al", Field{Int, 3})
	if _, ok := c.Lookup("al.name"); ok || c.IsRecord("al") {
		t.Error("a field took the place of a record, and its fields are still there")
	}
	if !s.IsRecord("al") {
		t.Error("a clone changed its origin")
	}
	s.Delete("al")
	if got := s.Names(); !slices.Equal(got, []string{"x"}) {
		t.Errorf("names %v", got)
	}
}

// TestImpure pins now(), rand() and uuid(): what a batch recorded gives these values for ever.
func TestImpure(t *testing.T) {
	s, in := fixtureRows(false)
	for src, want := range map[string]string{
		"now()":                 "2026-12-01T10:00:00Z | 2026-12-01T10:00:00Z | 2026-12-01T10:00:00Z | 2026-12-01T10:00:00Z",
		"rand() == rand()":      "false | false | false | false",
		"0 <= rand() < 1":       "true | true | true | true",
		"rand()":                "",
		"b ? rand() : rand()":   "",
		"int(rand() * 1000000)": "",
		"uuid()":                "",
		"uuid() == uuid()":      "false | false | false | false",
		"len(uuid())":           "36 | 36 | 36 | 36",
	} {
		p := mustCompile(t, src, s)
		got := strings.Join(results(p, in), " | ")
		if want == "" {
			want = strings.Join(results(mustCompile(t, src, s), in), " | ")
		}
		if got != want {
			t.Errorf("%s: %s, want %s", src, got, want)
		}
	}
	p := mustCompile(t, "rand()", s)
	all := results(p, in)
	for r, text := range all {
		want := fmt.Sprint(fixtureContext().Batch.Rand("set", fixtureContext().Partition, int64(100+r)).Float64())
		if text != want {
			t.Errorf("rand() at row %d: %s, want %s", r, text, want)
		}
	}
	seen := map[string]bool{}
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for r, text := range results(mustCompile(t, "uuid()", s), in) {
		id := strings.Trim(text, `"`)
		if !form.MatchString(id) || seen[id] {
			t.Errorf("uuid() at row %d: %s", r, text)
		}
		seen[id] = true
		if want := "1d38172e-b5ff-4e28-bd80-7949831b931a"; r == 0 && id != want {
			t.Errorf("uuid() at row 0: %s, want %s", id, want)
		}
	}
}

// TestArgumentsAreKept makes sure that what an evaluation returns isn't changed by the next program's.
func TestArgumentsAreKept(t *testing.T) {
	s, in := fixtureRows(false)
	p, q := mustCompile(t, `upper(s) + "!"`, s), mustCompile(t, `lower(s) + "?"`, s)
	var a, b vec.Column
	p.Eval(fixtureContext(), in, nil, &a)
	q.Eval(fixtureContext(), in, nil, &b)
	if got := string(a.Str[0]) + string(b.Str[0]); got != "HELLO WORLD!hello world?" {
		t.Error(got)
	}
}
