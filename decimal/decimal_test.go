package decimal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/decimal"
)

func TestParseAndString(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "0.000": "0", "0e999999": "0", ".5": "0.5", "5.": "5", "+1.50": "1.5", "-1.50": "-1.5",
		"100": "100", "1e2": "100", "1E+2": "100", "12e-1": "1.2", "-0.001": "-0.001", "1e-3": "0.001",
		"9223372036854775807":                         "9223372036854775807",
		"-9223372036854775808":                        "-9223372036854775808",
		"9223372036854775808":                         "9223372036854775808",
		"922337203685477580.80":                       "922337203685477580.8",
		"92233720368547758070.0":                      "92233720368547758070",
		"0.00000000000000000000000000000000000001234": "0.00000000000000000000000000000000000001234",
		"1" + strings.Repeat("0", 999):                "1" + strings.Repeat("0", 999),
		"1e-1000":                                     "0." + strings.Repeat("0", 999) + "1",
	} {
		d, err := decimal.Parse(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if d.String() != want {
			t.Errorf("%s: %s, want %s", in, d, want)
		}
		if b, err := decimal.ParseBytes([]byte(in)); err != nil || b.Cmp(d) != 0 {
			t.Errorf("%s: ParseBytes gives %s, %v", in, b, err)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for in, want := range map[string]error{
		"": decimal.ErrSyntax, ".": decimal.ErrSyntax, "-": decimal.ErrSyntax, "1e": decimal.ErrSyntax, "1e+": decimal.ErrSyntax,
		"1.2.3": decimal.ErrSyntax, " 1": decimal.ErrSyntax, "1 ": decimal.ErrSyntax, "1_000": decimal.ErrSyntax,
		"NaN": decimal.ErrSyntax, "Inf": decimal.ErrSyntax, "0x10": decimal.ErrSyntax, "--1": decimal.ErrSyntax, "1e2.5": decimal.ErrSyntax,
		"1e1000000000": decimal.ErrRange, "1e-1000000000": decimal.ErrRange, "1e99999999999999999999": decimal.ErrRange,
		"1e1000": decimal.ErrRange, "1e-1001": decimal.ErrRange, strings.Repeat("9", 1001): decimal.ErrRange,
		strings.Repeat("9", 5000): decimal.ErrRange, "0." + strings.Repeat("9", 1001): decimal.ErrRange,
	} {
		if d, err := decimal.Parse(in); !errors.Is(err, want) {
			t.Errorf("%.20q: %s, error %v, want %v", in, d, err, want)
		}
	}
}

func TestLimitsOfArithmetic(t *testing.T) {
	top := parse(t, strings.Repeat("9", 1000))
	if _, err := top.Add(parse(t, "1")); !errors.Is(err, decimal.ErrRange) {
		t.Errorf("beyond the largest number: %v", err)
	}
	if s, err := top.Sub(parse(t, "1e-1000")); err != nil || len(s.String()) != 2001 {
		t.Errorf("the widest number: %v", err)
	}
	if _, err := top.Mul(parse(t, "10")); !errors.Is(err, decimal.ErrRange) {
		t.Errorf("product beyond the largest number: %v", err)
	}
	if _, err := parse(t, "1e-600").Mul(parse(t, "1e-600")); !errors.Is(err, decimal.ErrRange) {
		t.Errorf("product with too many places: %v", err)
	}
	if _, err := parse(t, "1").Quo(decimal.Decimal{}, 2); !errors.Is(err, decimal.ErrDivisionByZero) {
		t.Errorf("1/0: %v", err)
	}
	for _, scale := range []int32{-1, decimal.MaxDigits + 1} {
		if _, err := parse(t, "1").Round(scale); err == nil {
			t.Errorf("scale %d is taken", scale)
		}
	}
}

func TestRounding(t *testing.T) {
	for _, c := range []struct {
		in          string
		scale       int32
		round       string
		floor, ceil string
	}{
		{"2.5", 0, "2", "2", "3"},
		{"3.5", 0, "4", "3", "4"},
		{"-2.5", 0, "-2", "-3", "-2"},
		{"-3.5", 0, "-4", "-4", "-3"},
		{"2.51", 0, "3", "2", "3"},
		{"2.449", 1, "2.4", "2", "3"},
		{"-0.05", 1, "0", "-1", "0"},
		{"12345678901234567890.125", 2, "12345678901234567890.12", "12345678901234567890", "12345678901234567891"},
		{"1200", 2, "1200", "1200", "1200"},
		{"0", 3, "0", "0", "0"},
	} {
		d := parse(t, c.in)
		check(t, c.in+" rounded", c.round)(d.Round(c.scale))
		check(t, c.in+" floor", c.floor)(d.Floor())
		check(t, c.in+" ceil", c.ceil)(d.Ceil())
	}
	check(t, "1/3", "0.3333")(parse(t, "1").Quo(parse(t, "3"), 4))
	check(t, "-2/3", "-0.6667")(parse(t, "-2").Quo(parse(t, "3"), 4))
	check(t, "2/-3", "-0.6667")(parse(t, "2").Quo(parse(t, "-3"), 4))
	check(t, "1e500/1e-500", "1"+strings.Repeat("0", 999))(parse(t, "1e500").Quo(parse(t, "1e-499"), 0))
}

func TestConversions(t *testing.T) {
	for in, want := range map[string]int64{"100": 100, "-9223372036854775808": math.MinInt64, "9223372036854775807": math.MaxInt64} {
		if i, ok := parse(t, in).Int64(); !ok || i != want {
			t.Errorf("%s: %d, %v", in, i, ok)
		}
	}
	for _, in := range []string{"0.5", "9223372036854775808", "1e19", "1e400"} {
		if i, ok := parse(t, in).Int64(); ok {
			t.Errorf("%s as int64: %d", in, i)
		}
	}
	check(t, "0.1 of a float", "0.1")(decimal.FromFloat(0.1))
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if d, err := decimal.FromFloat(f); err == nil {
			t.Errorf("%v gives %s", f, d)
		}
	}
	if f := parse(t, "1e999").Float64(); !math.IsInf(f, 1) {
		t.Errorf("1e999 as a float: %v", f)
	}
}

func TestIntDigits(t *testing.T) {
	for in, want := range map[string]int{
		"0": 0, "0.5": 0, "-0.001": 0, "9.99": 1, "-10": 2, "1e999": 1000, "12345678901234567890.5": 20, "9223372036854775807": 19,
		"9223372036854775808": 19, "1e-1000": 0, "99999999999999999999": 20, "100000000000000000001": 21,
	} {
		if got := parse(t, in).IntDigits(); got != want {
			t.Errorf("%s: %d digits, want %d", in, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	var v struct{ A, B decimal.Decimal }
	if err := json.Unmarshal([]byte(`{"A": 12345678901234567890.10, "B": "-0.50"}`), &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil || string(b) != `{"A":"12345678901234567890.1","B":"-0.5"}` {
		t.Errorf("%s, %v", b, err)
	}
	if err := json.Unmarshal([]byte(`{"A": null}`), &v); err == nil {
		t.Error("null is taken for a number")
	}
}

// TestAgainstRationals compares all arithmetic to math/big.
func TestAgainstRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		x, y := rat(t, a.String()), rat(t, b.String())
		exact := func(op string, d decimal.Decimal, err error, want *big.Rat) {
			if err != nil {
				t.Fatalf("%s %s %s: %v", a, op, b, err)
			}
			if d.Rat().Cmp(want) != 0 {
				t.Fatalf("%s %s %s = %s, want %s", a, op, b, d, want)
			}
			normal(t, d)
		}
		s, err := a.Add(b)
		exact("+", s, err, new(big.Rat).Add(x, y))
		s, err = a.Sub(b)
		exact("-", s, err, new(big.Rat).Sub(x, y))
		s, err = a.Mul(b)
		exact("*", s, err, new(big.Rat).Mul(x, y))
		if got, want := a.Cmp(b), x.Cmp(y); got != want {
			t.Fatalf("%s cmp %s = %d, want %d", a, b, got, want)
		}
		if got, want := a.Equal(b), x.Cmp(y) == 0; got != want {
			t.Fatalf("%s equal %s = %v", a, b, got)
		}
		if got, want := a.Sign(), x.Sign(); got != want {
			t.Fatalf("sign of %s = %d", a, got)
		}
		if f, _ := x.Float64(); f != a.Float64() {
			t.Fatalf("%s as a float: %v, want %v", a, a.Float64(), f)
		}
		if !b.IsZero() {
			scale := rapid.Int32Range(0, 30).Draw(t, "scale")
			q, err := a.Quo(b, scale)
			if err != nil {
				t.Fatal(err)
			}
			normal(t, q)
			// |q - a/b| <= half a unit of the last place.
			diff := new(big.Rat).Sub(q.Rat(), new(big.Rat).Quo(x, y))
			half := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Mul(big.NewInt(2), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
			if diff.Abs(diff).Cmp(half) > 0 {
				t.Fatalf("%s / %s to %d places = %s", a, b, scale, q)
			}
		}
		if p := parse(t, a.String()); p.Cmp(a) != 0 || p.String() != a.String() {
			t.Fatalf("%s parsed again: %s", a, p)
		}
	})
}

// TestOneRepresentation: equal numbers have the same parts, however they came about.
func TestOneRepresentation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		s, err := a.Add(b)
		if err != nil {
			t.Fatal(err)
		}
		back, err := s.Sub(b)
		if err != nil {
			t.Fatal(err)
		}
		if back.Exponent() != a.Exponent() || back.Coefficient().Cmp(a.Coefficient()) != 0 {
			t.Fatalf("%s + %s - %s = %s", a, b, b, back)
		}
		ca, ea, oka := a.Small()
		cb, eb, okb := back.Small()
		if ca != cb || ea != eb || oka != okb {
			t.Fatalf("%s has two forms", a)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"0", "-1.50", "1e10", "1e1000000000", ".", "99999999999999999999.000001", "1e-1000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := decimal.Parse(s)
		if err != nil {
			return
		}
		normal(t, d)
		if again, err := decimal.Parse(d.String()); err != nil || again.Cmp(d) != 0 {
			t.Fatalf("%q: %s, again %s, %v", s, d, again, err)
		}
	})
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func parse(t fataler, s string) decimal.Decimal {
	t.Helper()
	d, err := decimal.Parse(s)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return d
}

func rat(t fataler, s string) *big.Rat {
	t.Helper()
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		t.Fatalf("%s is no fraction", s)
	}
	return r
}

func check(t *testing.T, what, want string) func(decimal.Decimal, error) {
	return func(d decimal.Decimal, err error) {
		t.Helper()
		if err != nil || d.String() != want {
			t.Errorf("%s: %s, %v, want %s", what, d, err, want)
		}
	}
}

func normal(t fataler, d decimal.Decimal) {
	t.Helper()
	c := d.Coefficient()
	if c.Sign() == 0 && d.Exponent() != 0 {
		t.Fatalf("zero with exponent %d", d.Exponent())
	}
	if c.Sign() != 0 && new(big.Int).Rem(c, big.NewInt(10)).Sign() == 0 {
		t.Fatalf("%s keeps a zero at its end", d)
	}
	if _, _, small := d.Small(); small != c.IsInt64() {
		t.Fatalf("%s is in the wrong form", d)
	}
}

// gen makes numbers around the border between the two forms, and long ones.
var gen = rapid.Custom(func(t *rapid.T) decimal.Decimal {
	exp := rapid.Int32Range(-40, 40).Draw(t, "exp")
	switch rapid.IntRange(0, 3).Draw(t, "form") {
	case 0:
		d, err := decimal.New(rapid.Int64().Draw(t, "coef"), exp)
		if err != nil {
			t.Fatal(err)
		}
		return d
	case 1:
		d, err := decimal.New(rapid.Int64Range(-1000, 1000).Draw(t, "coef"), exp/4)
		if err != nil {
			t.Fatal(err)
		}
		return d
	case 2:
		edge := rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64, math.MaxInt64 / 10, math.MinInt64/10 - 1}).Draw(t, "edge")
		d, err := decimal.New(edge, rapid.Int32Range(-2, 2).Draw(t, "shift"))
		if err != nil {
			t.Fatal(err)
		}
		return d
	default:
		return parse(t, fmt.Sprintf("%s%se%d", rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign"),
			rapid.StringMatching(`[0-9]{1,80}0{0,20}`).Draw(t, "digits"), exp))
	}
})

func BenchmarkAdd(b *testing.B) {
	x, y := parseB(b, "12345.67"), parseB(b, "1.5")
	b.ReportAllocs()
	for b.Loop() {
		s, err := x.Add(y)
		if err != nil || s.IsZero() {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	text := []byte("12345.67")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decimal.ParseBytes(text); err != nil {
			b.Fatal(err)
		}
	}
}

func parseB(b *testing.B, s string) decimal.Decimal {
	d, err := decimal.Parse(s)
	if err != nil {
		b.Fatal(err)
	}
	return d
}

func ExampleDecimal() {
	price, _ := decimal.Parse("19.90")
	total, _ := price.Mul(decimal.FromInt(3))
	third, _ := total.Quo(decimal.FromInt(7), 2)
	fmt.Println(price, total, third)
	// Output: 19.9 59.7 8.53
}
