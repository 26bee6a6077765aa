package expr

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

type level string

var errOdd = errors.New("it is odd")

func customs(t *testing.T) *Functions {
	t.Helper()
	var all []*Custom
	for name, f := range map[string]any{
		"shout":  func(s string) string { return strings.ToUpper(s) + "!" },
		"reject": func(s string) (string, error) { return "", errOdd },
		"broken": func(string) string { return "\xff" },
		"yes":    func(s string) bool { return s == "yes" },
		"width":  func(s string) int64 { return int64(len(s)) },
		"twice":  func(i int64) int64 { return 2 * i },
		"half":   func(f float64) float64 { return f / 2 },
		"hypot":  func(a, b float64) float64 { return a*a + b*b },
		"glue":   func(a, b string) string { return a + b },
		"panics": func(i int64) int64 { panic("odd") },
		"later":  func(ts time.Time, n int) time.Time { return ts.Add(time.Duration(n) * time.Hour) },
		"far":    func(time.Time) time.Time { return time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"vat":    func(d decimal.Decimal) (decimal.Decimal, error) { return d.Mul(decimal.FromInt(2)) },
		"tag": func(p *string) string {
			if p == nil {
				return "none"
			}
			return "some " + *p
		},
		"pick": func(p *string, n int64) *string {
			if p == nil || n == 0 {
				return nil
			}
			return p
		},
		"many":  func(words ...string) int { return len(words) },
		"parts": func(s string) []string { return strings.Split(s, "-") },
		"total": func(list []float64) float64 {
			sum := 0.0
			for _, x := range list {
				sum += x
			}
			return sum
		},
		"named":   func(l level) level { return l + "?" },
		"bytes":   func(b []byte) []byte { b[0] = 'x'; return b },
		"several": func(s string, i int64, f float64, b bool) (string, error) { return fmt.Sprint(s, i, f, b), nil },
	} {
		c, err := NewCustom(name, f, Pure)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for name, f := range map[string]any{
		"clock": func(c *Call) time.Time { return c.Time() },
		"draw":  func(c *Call, below int64) int64 { return int64(c.Rand().Uint64() % uint64(below)) },
	} {
		c, err := NewCustom(name, f, OfBatch)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	fs, err := NewFunctions(all)
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// customScope has the columns s, null, i, f, d, at, raw and any.
func customScope() (*Scope, *vec.Rows) {
	s, in := NewScope(), &vec.Rows{N: 1}
	add := func(name string, t Type, v value.Value) {
		s.Set(name, Field{Type: t, Index: len(in.Cols)})
		c := new(vec.Column)
		c.Reset(t.Type, 1)
		if err := c.SetValue(0, v); err != nil {
			panic(err)
		}
		in.Cols = append(in.Cols, c)
	}
	add("s", String, value.StringOf("a-b"))
	add("null", String, value.NullValue())
	add("i", Int, value.IntOf(3))
	add("f", Float, value.FloatOf(2.5))
	d, _ := decimal.Parse("1.25")
	add("d", Decimal, value.DecimalOf(d))
	add("at", Time, value.TimeOf(0))
	add("raw", Bytes, value.BytesOf([]byte("abc")))
	add("any", Any, value.IntOf(7))
	return s, in
}

func TestCustom(t *testing.T) {
	fs := customs(t)
	for src, want := range map[string]string{
		`shout(s)`:                     `"A-B!"`,
		`shout("x") + s`:               `"X!a-b"`,
		`yes("yes") ? 1 : 2`:           `1`,
		`width(glue(s, "c"))`:          `4`,
		`twice(i)`:                     `6`,
		`twice(any)`:                   `14`,
		`half(i)`:                      `1.5`,
		`hypot(i, f)`:                  `15.25`,
		`later(at, i)`:                 `1970-01-01T03:00:00Z`,
		`vat(d)`:                       `2.5`,
		`vat(i)`:                       `6`,
		`tag(null)`:                    `"none"`,
		`tag(s)`:                       `"some a-b"`,
		`pick(s, 0)`:                   `nil`,
		`pick(s, 0) ?? "else"`:         `"else"`,
		`pick(s, 1)`:                   `"a-b"`,
		`many(s)`:                      `1`,
		`many(s, s, "c")`:              `3`,
		`parts(s)[1]`:                  `"b"`,
		`total([1, f])`:                `3.5`,
		`named(s)`:                     `"a-b?"`,
		`string(bytes(raw))`:           `"xbc"`,
		`several(s, i, i, true)`:       `"a-b3 3 true"`,
		`clock() == now()`:             `true`,
		`draw(10) == draw(10) || true`: `true`,
		// Failures, each of one row.
		`shout(null)`:        `shout() takes no nil, null is nil`,
		`pick(s, any)`:       `"a-b"`,
		`reject(s)`:          `reject(s): it is odd`,
		`broken(s)`:          `broken(s): its result is not valid UTF-8`,
		`panics(i)`:          `panics(i): panic: odd`,
		`far(at)`:            `far(at): timestamps reach from`,
		`twice(nil)`:         `twice() takes no nil`,
		`pick(s, nil)`:       `pick() takes no nil`,
		`width(string(any))`: `1`,
	} {
		e, err := fs.Parse(src)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		scope, in := customScope()
		p, err := Compile(e, scope)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		ctx := Context{Batch: &batch.Batch{Txid: 1, Seed: 7, Time: time.Unix(9, 0).UTC()}, Step: "s", Offsets: []int64{4}}
		var out vec.Column
		p.Eval(&ctx, in, nil, &out)
		got := literal(out.Value(0))
		if len(ctx.Errs) > 0 {
			if got = ctx.Errs[0].Msg; strings.HasPrefix(src, "reject") && !errors.Is(ctx.Errs[0].Err, errOdd) {
				t.Errorf("%s: the cause is lost: %v", src, ctx.Errs[0].Err)
			}
		}
		if got != want && !(len(ctx.Errs) > 0 && strings.HasPrefix(got, want)) {
			t.Errorf("%s is %s, want %s", src, got, want)
		}
	}
	if got := string(in0(t).Str[0]); got != "abc" {
		t.Errorf("a function has changed its argument: %s", got)
	}
}

func in0(t *testing.T) *vec.Column {
	t.Helper()
	e, err := customs(t).Parse("bytes(raw)")
	if err != nil {
		t.Fatal(err)
	}
	scope, in := customScope()
	p, err := Compile(e, scope)
	if err != nil {
		t.Fatal(err)
	}
	var out vec.Column
	p.Eval(&Context{}, in, nil, &out)
	return in.Cols[6]
}

// TestCustomMistakes: calls are held against the types that the function declares.
func TestCustomMistakes(t *testing.T) {
	fs := customs(t)
	for src, want := range map[string]string{
		`shout(i)`:        "shout() needs a string, i is an int",
		`shout()`:         "shout() takes one argument, not 0",
		`hypot(i)`:        "hypot() takes 2 arguments, not 1",
		`twice(f)`:        "twice() needs an int, f is a float",
		`shut(s)`:         "unknown function shut() (did you mean shout?)",
		`parts(s) + 1`:    "+",
		`draw(s)`:         "draw() needs an int, s is a string",
		`total(parts(s))`: "total() needs a list",
	} {
		e, err := fs.Parse(src)
		if err == nil {
			scope, _ := customScope()
			_, err = Compile(e, scope)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v lacks %q", src, err, want)
		}
	}
	// Without the functions nobody knows them.
	e, err := Parse("shout(s)")
	if err != nil {
		t.Fatal(err)
	}
	scope, _ := customScope()
	if _, err := Compile(e, scope); err == nil || !strings.Contains(err.Error(), "unknown function shout()") {
		t.Error(err)
	}
}

func TestNewCustom(t *testing.T) {
	for name, tc := range map[string]struct {
		f      any
		purity Purity
		want   string
	}{
		"lower":  {func(string) string { return "" }, Pure, "expressions mean something else"},
		"sum":    {func(string) string { return "" }, Pure, "expressions mean something else"},
		"in":     {func(string) string { return "" }, Pure, "expressions mean something else"},
		"a-b":    {func(string) string { return "" }, Pure, "a name is made of"},
		"value":  {3, Pure, "it is a int, not a function"},
		"null":   {(func(string) string)(nil), Pure, "not a function"},
		"chan":   {func(chan int) string { return "" }, Pure, "a parameter can't be of type chan int"},
		"any":    {func(any) string { return "" }, Pure, "a parameter can't be of type interface {}"},
		"length": {func(time.Duration) string { return "" }, Pure, "a parameter can't be of type time.Duration"},
		"void":   {func(string) {}, Pure, "must return a value"},
		"pair":   {func(string) (string, string) { return "", "" }, Pure, "must return a value"},
		"struct": {func(string) struct{} { return struct{}{} }, Pure, "its result can't be of type struct {}"},
		"call":   {func(*Call) string { return "" }, Pure, "OfBatch"},
		"nocall": {func() string { return "" }, OfBatch, "OfBatch"},
	} {
		if _, err := NewCustom(name, tc.f, tc.purity); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v lacks %q", name, err, tc.want)
		}
	}
	c, err := NewCustom("geo", func(*string, ...int) ([]string, error) { return nil, nil }, Outside)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.String(), "geo(string or null, int…) list<string>"; got != want || c.Purity().String() != "outside" {
		t.Errorf("%q, %s", got, c.Purity())
	}
	if _, err := NewFunctions([]*Custom{c, c}); err == nil {
		t.Error("two functions of one name were taken")
	}
}

func BenchmarkCustom(b *testing.B) {
	const rows = 1024
	for name, f := range map[string]any{
		"typed":     func(i int64) int64 { return i + 1 },
		"reflected": func(i int) int { return i + 1 },
	} {
		b.Run(name, func(b *testing.B) {
			c, err := NewCustom("f", f, Pure)
			if err != nil {
				b.Fatal(err)
			}
			fs, err := NewFunctions([]*Custom{c})
			if err != nil {
				b.Fatal(err)
			}
			e, err := fs.Parse("f(i)")
			if err != nil {
				b.Fatal(err)
			}
			s, in := NewScope(), &vec.Rows{N: rows, Cols: []*vec.Column{{}}}
			s.Set("i", Field{Type: Int, Index: 0})
			in.Cols[0].Reset(Int.Type, rows)
			p, err := Compile(e, s)
			if err != nil {
				b.Fatal(err)
			}
			var out vec.Column
			b.ReportAllocs()
			for b.Loop() {
				p.Eval(&Context{}, in, nil, &out)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
		})
	}
}
