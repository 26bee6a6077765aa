package value_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
)

func TestSize(t *testing.T) {
	if got := unsafe.Sizeof(value.Value{}); got != 24 {
		t.Errorf("a Value has %d bytes", got)
	}
}

// TestOrder goes through a list in ascending order: Compare and the bytes of keys agree with it. Entries of one
// inner list are equal.
func TestOrder(t *testing.T) {
	groups := [][]value.Value{
		{value.NullValue(), {}},
		{value.BoolOf(false)},
		{value.BoolOf(true)},
		{value.IntOf(math.MinInt64)},
		{value.IntOf(-1)},
		{value.IntOf(0), value.UintOf(0)},
		{value.IntOf(1)},
		{value.IntOf(math.MaxInt64), value.UintOf(math.MaxInt64), value.WideIntOf(0, math.MaxInt64)},
		{value.UintOf(math.MaxInt64 + 1), value.WideIntOf(0, 1<<63)},
		{value.UintOf(math.MaxUint64)},
		{value.WideIntOf(1, 0)},
		{value.WideIntOf(math.MaxInt64, math.MaxUint64)},
	}
	ascending(t, groups)
	ascending(t, [][]value.Value{
		{value.NullValue()},
		{value.WideIntOf(math.MinInt64, 0)},
		{value.WideIntOf(-1, 1<<63-1)},
		{value.IntOf(math.MinInt64)},
	})
	nan := math.Float64frombits(0xfff8000000000001)
	ascending(t, [][]value.Value{
		{value.NullValue()},
		{value.FloatOf(math.Inf(-1))},
		{value.FloatOf(-math.MaxFloat64)},
		{value.FloatOf(-1.5)},
		{value.FloatOf(-math.SmallestNonzeroFloat64)},
		{value.FloatOf(0), value.FloatOf(math.Copysign(0, -1))},
		{value.FloatOf(math.SmallestNonzeroFloat64)},
		{value.FloatOf(1)},
		{value.FloatOf(math.Inf(1))},
		{value.FloatOf(math.NaN()), value.FloatOf(nan)},
	})
	ascending(t, [][]value.Value{
		dec("-1e400"), dec("-12345678901234567890.5"), dec("-100"), dec("-99.9"), dec("-10.01"), dec("-10"), dec("-1"), dec("-0.5"), dec("-1e-900"),
		append(dec("0"), dec("0.000")...), dec("1e-900"), dec("0.05"), append(dec("0.5"), dec("0.500")...), dec("1"), dec("1.01"), dec("1.011"), dec("1.1"),
		append(dec("1.5"), dec("1.50")...), dec("9.99"), dec("10"), append(dec("100"), dec("1e2")...), dec("12345678901234567890.4"), dec("12345678901234567890.5"), dec("1e400"),
	})
	ascending(t, [][]value.Value{
		{value.StringOf("")},
		{value.StringOf("\x00")},
		{value.StringOf("\x00\x00")},
		{value.StringOf("\x00\x01")},
		{value.StringOf("\x00a")},
		{value.StringOf("\x01")},
		{value.StringOf("a")},
		{value.StringOf("a\x00")},
		{value.StringOf("a\x00b")},
		{value.StringOf("a\x01")},
		{value.StringOf("aa")},
		{value.StringOf("b")},
		{value.StringOf("é")},
		{value.StringOf("\xff")},
		{value.StringOf("\xff\xff")},
		{value.BytesOf(nil), value.BytesOf([]byte{})},
		{value.BytesOf([]byte{0})},
		{value.BytesOf([]byte{0, 1})},
		{value.BytesOf([]byte{0xff})},
		{value.TimeOf(math.MinInt64)},
		{value.TimeOf(-1)},
		{value.TimeOf(0)},
		{value.TimeOf(math.MaxInt64)},
		{value.ListOf(nil)},
		{list(value.NullValue())},
		{list(value.NullValue(), value.NullValue())},
		{list(value.StringOf("a"))},
		{list(value.StringOf("a"), value.NullValue())},
		{list(value.StringOf("a"), value.StringOf("a"))},
		{list(value.StringOf("ab"))},
		{list(list())},
	})
}

func ascending(t *testing.T, groups [][]value.Value) {
	t.Helper()
	for i, g := range groups {
		for j, h := range groups {
			for _, a := range g {
				for _, b := range h {
					want := 0
					if i < j {
						want = -1
					} else if i > j {
						want = 1
					}
					ka, kb := value.AppendKey(nil, a), value.AppendKey(nil, b)
					if got := bytes.Compare(ka, kb); got != want {
						t.Errorf("keys of %v and %v: %d, want %d (%x, %x)", a, b, got, want, ka, kb)
					}
					if got := value.Compare(a, b); got != want {
						t.Errorf("%v and %v: %d, want %d", a, b, got, want)
					}
					if want != 0 && bytes.HasPrefix(kb, ka) {
						t.Errorf("the key of %v begins that of %v", a, b)
					}
				}
			}
		}
	}
}

func TestCompareNumbersOfDifferentKinds(t *testing.T) {
	f, i := value.FloatOf, value.IntOf
	d := func(s string) value.Value { return dec(s)[0] }
	for _, c := range []struct {
		a, b value.Value
		want int
	}{
		{i(2), f(2), 0},
		{i(2), f(2.5), -1},
		{i(-2), f(-2.5), 1},
		{i(1<<53 + 1), f(1 << 53), 1}, // rounding the int would make them equal
		{i(math.MaxInt64), f(1 << 63), -1},
		{i(math.MinInt64), f(-1 << 63), 0},
		{i(math.MinInt64), f(math.Inf(-1)), 1},
		{i(math.MaxInt64), f(math.NaN()), -1},
		{d("0.1"), f(0.1), -1}, // the float is a little above
		{d("0.5"), f(0.5), 0},
		{d("1e999"), f(math.MaxFloat64), 1},
		{d("1e999"), f(math.Inf(1)), -1},
		{d("-1e999"), f(math.Inf(-1)), 1},
		{d("0"), f(math.SmallestNonzeroFloat64), -1},
		{d("1e999"), f(math.NaN()), -1},
		{d("2.00"), i(2), 0},
		{d("9223372036854775807.1"), i(math.MaxInt64), 1},
		{value.UintOf(1 << 63), i(math.MaxInt64), 1},
		{value.UintOf(1 << 63), f(1 << 63), 0},
	} {
		if got := value.Compare(c.a, c.b); got != c.want {
			t.Errorf("%v with %v: %d, want %d", c.a, c.b, got, c.want)
		}
		if got := value.Compare(c.b, c.a); got != -c.want {
			t.Errorf("%v with %v: %d, want %d", c.b, c.a, got, -c.want)
		}
	}
}

// TestCompareIsExact: numbers of all kinds compare as the fractions that they are.
func TestCompareIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, okx := rat(a)
		y, oky := rat(b)
		if !okx || !oky {
			return
		}
		if got, want := value.Compare(a, b), x.Cmp(y); got != want {
			t.Fatalf("%v with %v: %d, want %d", a, b, got, want)
		}
	})
}

func rat(v value.Value) (*big.Rat, bool) {
	switch v.Kind() {
	case value.Int:
		return new(big.Rat).SetInt64(v.Int()), true
	case value.Decimal:
		return v.Decimal().Rat(), true
	}
	r := new(big.Rat).SetFloat64(v.Float())
	return r, r != nil
}

// TestKeysKeepTheOrder: keys of one or two columns of equal kinds sort as their values do, and come back.
func TestKeysKeepTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfN(rapid.SampledFrom([]value.Kind{value.Bool, value.Int, value.Float, value.Decimal, value.String, value.Bytes, value.Time, value.List}), 1, 2).Draw(t, "kinds")
		var a, b []value.Value
		for _, k := range kinds {
			a = append(a, nullable(k).Draw(t, "a"))
			b = append(b, nullable(k).Draw(t, "b"))
		}
		want := 0
		for i := range a {
			if want = value.Compare(a[i], b[i]); want != 0 {
				break
			}
		}
		var ka, kb []byte
		for i := range a {
			ka, kb = value.AppendKey(ka, a[i]), value.AppendKey(kb, b[i])
		}
		if got := bytes.Compare(ka, kb); got != want {
			t.Fatalf("%v, %v: keys compare as %d, values as %d (%x, %x)", a, b, got, want, ka, kb)
		}
		rest := ka
		for i := range a {
			var v value.Value
			var err error
			if v, rest, err = value.DecodeKey(rest); err != nil {
				t.Fatal(err)
			}
			if v.Kind() != a[i].Kind() || value.Compare(v, a[i]) != 0 {
				t.Fatalf("%v came back as %v", a[i], v)
			}
		}
		if len(rest) != 0 {
			t.Fatalf("%x left over", rest)
		}
	})
}

func TestBinaryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyValue.Draw(t, "v")
		tail := rapid.SliceOf(rapid.Byte()).Draw(t, "tail")
		b := value.AppendBinary(nil, v)
		got, rest, err := value.DecodeBinary(append(bytes.Clone(b), tail...))
		if err != nil || !bytes.Equal(rest, tail) {
			t.Fatalf("%v: %v, rest %x", v, err, rest)
		}
		if got.Kind() != v.Kind() || value.Compare(got, v) != 0 || !bytes.Equal(value.AppendBinary(nil, got), b) {
			t.Fatalf("%v came back as %v", v, got)
		}
		if x, y := value.AppendJSON(nil, v), value.AppendJSON(nil, got); !bytes.Equal(x, y) {
			t.Fatalf("%s came back as %s", x, y)
		}
	})
}

func TestTypedAppendersAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		same := func(what string, got []byte, v value.Value) {
			if want := value.AppendKey(nil, v); !bytes.Equal(got, want) {
				t.Fatalf("%s: %x, want %x", what, got, want)
			}
		}
		s := rapid.String().Draw(t, "s")
		same("string", value.AppendKeyString(nil, s), value.StringOf(s))
		same("string from bytes", value.AppendKeyString(nil, []byte(s)), value.StringOf(s))
		same("bytes", value.AppendKeyBytes(nil, []byte(s)), value.BytesOf([]byte(s)))
		i := rapid.Int64().Draw(t, "i")
		same("int", value.AppendKeyInt(nil, i), value.IntOf(i))
		same("uint", value.AppendKeyUint(nil, uint64(i)), value.UintOf(uint64(i)))
		same("time", value.AppendKeyTime(nil, i), value.TimeOf(i))
		f := rapid.Float64().Draw(t, "f")
		same("float", value.AppendKeyFloat(nil, f), value.FloatOf(f))
		d := decimals.Draw(t, "d")
		same("decimal", value.AppendKeyDecimal(nil, d), value.DecimalOf(d))
		same("null", value.AppendKeyNull(nil), value.NullValue())
		same("bool", value.AppendKeyBool(nil, i > 0), value.BoolOf(i > 0))
	})
}

// TestBytes pins the encodings: they are stored, so a change of them is a change of the storage format.
func TestBytes(t *testing.T) {
	for _, c := range []struct {
		v           value.Value
		key, binary string
	}{
		{value.NullValue(), "02", "00"},
		{value.BoolOf(true), "05", "02"},
		{value.IntOf(1), "098000000000000001", "0302"},
		{value.IntOf(-1), "097fffffffffffffff", "0301"},
		{value.UintOf(1 << 63), "0a80000000000000008000000000000000", "0c060000088000000000000000"},
		{value.FloatOf(1), "10bff0000000000000", "04000000000000f03f"},
		{value.FloatOf(math.NaN()), "10fff8000000000000", "04000000000000f87f"},
		{dec("0")[0], "1880", "050000"},
		{dec("1.50")[0], "18c080011000", "0501" + "1e"},
		{dec("-1.50")[0], "18407ffeefff", "0501" + "1d"},
		{value.StringOf("a\x00"), "206100ff0001", "07026100"},
		{value.JSONOf("[]"), "215b5d0001", "0b025b5d"},
		{value.BytesOf([]byte{1}), "28010001", "080101"},
		{value.TimeOf(0), "308000000000000000", "0900"},
		{list(value.NullValue()), "380200", "0a0100"},
	} {
		if got := hex.EncodeToString(value.AppendKey(nil, c.v)); got != c.key {
			t.Errorf("key of %v: %s, want %s", c.v, got, c.key)
		}
		if got := hex.EncodeToString(value.AppendBinary(nil, c.v)); got != c.binary {
			t.Errorf("%v: %s, want %s", c.v, got, c.binary)
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		v          value.Value
		json, text string
	}{
		{value.NullValue(), `null`, ``},
		{value.BoolOf(true), `true`, `true`},
		{value.IntOf(math.MinInt64), `-9223372036854775808`, `-9223372036854775808`},
		{value.UintOf(1 << 63), `9223372036854775808`, `9223372036854775808`},
		{value.FloatOf(2), `2`, `2`},
		{value.FloatOf(0.1), `0.1`, `0.1`},
		{value.FloatOf(16.882510013351133), `16.882510013351133`, `16.882510013351133`},
		{value.FloatOf(1 << 62), `4611686018427387904`, `4611686018427387904`},
		{value.FloatOf(1e21), `1e+21`, `1e+21`},
		{value.FloatOf(1e-7), `1e-07`, `1e-07`},
		{value.FloatOf(math.NaN()), `"NaN"`, `NaN`},
		{value.FloatOf(math.Inf(1)), `"+Inf"`, `+Inf`},
		{value.FloatOf(math.Inf(-1)), `"-Inf"`, `-Inf`},
		{dec("1.50")[0], `"1.5"`, `1.5`},
		{value.StringOf("a\"\\\n\x01é\xff"), `"a\"\\\n\u0001é` + "\ufffd" + `"`, "a\"\\\n\x01é\xff"},
		{value.JSONOf(`{"a":1}`), `{"a":1}`, `{"a":1}`},
		{value.BytesOf([]byte{0xff, 0}), `"/wA="`, `/wA=`},
		{value.TimeOf(1_500_000_000), `"1970-01-01T00:00:01.5Z"`, `1970-01-01T00:00:01.5Z`},
		{value.TimeOf(-1_000_000_000), `"1969-12-31T23:59:59Z"`, `1969-12-31T23:59:59Z`},
		{list(value.IntOf(1), value.NullValue(), value.StringOf("a")), `[1,null,"a"]`, `[1,null,"a"]`},
	} {
		if got := string(value.AppendJSON(nil, c.v)); got != c.json {
			t.Errorf("JSON of %v: %s, want %s", c.v, got, c.json)
		}
		if got := string(value.AppendText(nil, c.v)); got != c.text {
			t.Errorf("text of %v: %s, want %s", c.v, got, c.text)
		}
	}
}

// TestJSONIsRead: what AppendJSON writes is what encoding/json reads.
func TestJSONIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyValue.Draw(t, "v")
		b := value.AppendJSON(nil, v)
		if !json.Valid(b) || !utf8.Valid(b) {
			t.Fatalf("%v gives %q", v, b)
		}
		switch v.Kind() {
		case value.Float:
			if f := v.Float(); !math.IsNaN(f) && !math.IsInf(f, 0) {
				if got, err := strconv.ParseFloat(string(b), 64); err != nil || got != f {
					t.Fatalf("%v gives %s: %v, %v", f, b, got, err)
				}
			}
		case value.String:
			var s string
			if err := json.Unmarshal(b, &s); err != nil || s != strings.ToValidUTF8(v.Str(), "\ufffd") && utf8.ValidString(v.Str()) {
				t.Fatalf("%q gives %s: %q, %v", v.Str(), b, s, err)
			}
		}
	})
}

func TestAccessorsInsistOnTheKind(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "string taken for int") {
			t.Errorf("recovered %v", r)
		}
	}()
	value.StringOf("1").Int()
}

func TestDecodersRefuse(t *testing.T) {
	for name, in := range map[string]string{
		"nothing": "", "unknown tag": "7f", "short int": "0900", "short wide int": "0a00", "no end": "2061", "bad escape": "20610002",
		"no sign": "18", "bad sign": "1801", "decimal without digits": "18c0800100", "pair above 99": "18c08001fe00", "decimal without end": "18c0800110", "open list": "3802",
	} {
		b, _ := hex.DecodeString(in)
		if v, _, err := value.DecodeKey(b); err == nil {
			t.Errorf("key %s gives %v", name, v)
		}
	}
	for name, in := range map[string]string{
		"nothing": "", "unknown tag": "7f", "cut int": "0380", "short float": "0400", "cut string": "070561", "huge list": "0affffffffffffffff7f", "cut list": "0a0200",
		"huge exponent": "05ffffff0f02", "no sign": "0600", "integer with fraction": "0c050102",
	} {
		b, _ := hex.DecodeString(in)
		if v, _, err := value.DecodeBinary(b); err == nil {
			t.Errorf("%s gives %v", name, v)
		}
	}
	if _, _, err := value.DecodeKey(bytes.Repeat([]byte{0x38}, 1<<20)); err == nil {
		t.Error("a bottomless key is taken")
	}
	if _, _, err := value.DecodeBinary(bytes.Repeat([]byte{0x0a, 0x01}, 1<<20)); err == nil {
		t.Error("a bottomless list is taken")
	}
}

// FuzzDecode: decoders don't panic, and what they take they write again as an equal value.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"02", "098000000000000001", "18c080011000", "206100ff0001", "380200", "0501", "0a0100", "0c060000088000000000000000"} {
		b, _ := hex.DecodeString(s)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, rest, err := value.DecodeKey(b); err == nil {
			again, _, err := value.DecodeKey(value.AppendKey(nil, v))
			if err != nil || value.Compare(again, v) != 0 || len(rest) > len(b) {
				t.Errorf("key %x: %v, %v, %v", b, v, again, err)
			}
		}
		if v, _, err := value.DecodeBinary(b); err == nil {
			again, _, err := value.DecodeBinary(value.AppendBinary(nil, v))
			if err != nil || value.Compare(again, v) != 0 {
				t.Errorf("%x: %v, %v, %v", b, v, again, err)
			}
		}
	})
}

func dec(s string) []value.Value {
	d, err := decimal.Parse(s)
	if err != nil {
		panic(err)
	}
	return []value.Value{value.DecimalOf(d)}
}

func list(vs ...value.Value) value.Value { return value.ListOf(vs) }

// Generators that dwell on what lies close together.
var (
	ints = rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, 1 << 53, 1<<53 + 1}))

	floats = rapid.OneOf(rapid.Float64(), rapid.Map(rapid.Uint64(), math.Float64frombits), rapid.Map(ints, func(i int64) float64 { return float64(i) }),
		rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 0.1, 0.5, 1 << 63}))

	decimals = rapid.Custom(func(t *rapid.T) decimal.Decimal {
		c := new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, rapid.SampledFrom([]int{1, 2, 8, 12}).Draw(t, "size")).Draw(t, "coef"))
		if rapid.Bool().Draw(t, "negative") {
			c.Neg(c)
		}
		d, err := decimal.FromBig(c, rapid.Int32Range(-6, 6).Draw(t, "exp"))
		if err != nil {
			t.Fatal(err)
		}
		return d
	})

	texts = rapid.OneOf(rapid.String(), rapid.StringMatching(`[\x00\x01a]{0,4}`), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 6), func(b []byte) string { return string(b) }))

	number = rapid.OneOf(of(value.Int), of(value.Float), of(value.Decimal))

	anyValue = rapid.OneOf(rapid.Just(value.NullValue()), of(value.Bool), number, of(value.String), of(value.Bytes), of(value.Time), of(value.List),
		rapid.Map(rapid.Uint64(), value.UintOf), rapid.Custom(func(t *rapid.T) value.Value {
			return value.WideIntOf(rapid.Int64().Draw(t, "hi"), rapid.Uint64().Draw(t, "lo"))
		}))
)

func of(k value.Kind) *rapid.Generator[value.Value] {
	switch k {
	case value.Bool:
		return rapid.Map(rapid.Bool(), value.BoolOf)
	case value.Int:
		return rapid.Map(ints, value.IntOf)
	case value.Float:
		return rapid.Map(floats, value.FloatOf)
	case value.Decimal:
		return rapid.Map(decimals, value.DecimalOf)
	case value.String:
		return rapid.Map(texts, value.StringOf)
	case value.Bytes:
		return rapid.Map(texts, func(s string) value.Value { return value.BytesOf([]byte(s)) })
	case value.Time:
		return rapid.Map(ints, value.TimeOf)
	}
	// Elements of one kind: across kinds the order of keys and values differ on purpose.
	return rapid.Map(rapid.SliceOfN(nullable(value.String), 0, 3), value.ListOf)
}

func nullable(k value.Kind) *rapid.Generator[value.Value] {
	return rapid.Custom(func(t *rapid.T) value.Value {
		if rapid.IntRange(0, 9).Draw(t, "null") == 0 {
			return value.NullValue()
		}
		return of(k).Draw(t, "v")
	})
}
