package agg_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// kinds of cells for the property tests: each makes a delta of given values (nil for null) and says what the values
// come to altogether. Values are exact numbers, or texts for the others.
var kinds = map[string]struct {
	draw  *rapid.Generator[value.Value]
	delta func(vs []value.Value) []byte
	want  func(vs []value.Value) value.Value
}{
	"count": {
		ints, func(vs []value.Value) []byte { return agg.AppendCount(nil, int64(len(vs))) },
		func(vs []value.Value) value.Value { return value.IntOf(int64(len(vs))) },
	},
	"sum of ints":     {ints, intDelta(agg.AppendSumInt), sumOf},
	"mean of ints":    {ints, intDelta(agg.AppendAvgInt), meanOfInts},
	"sum of decimals": {decimals, decimalDelta(agg.AppendSumDecimal), sumOf},
	"mean of decimals": {decimals, decimalDelta(agg.AppendAvgDecimal), func(vs []value.Value) value.Value {
		sum, n := total(vs)
		if n == 0 {
			return value.NullValue()
		}
		d, err := decimal.Parse(sum.Quo(sum, new(big.Rat).SetInt64(n)).FloatString(40))
		if err == nil {
			d, err = d.Round(16)
		}
		if err != nil {
			panic(err)
		}
		return value.DecimalOf(d)
	}},
	"min of ints":     extremeKind(ints, false),
	"max of ints":     extremeKind(ints, true),
	"min of floats":   extremeKind(floats, false),
	"max of floats":   extremeKind(floats, true),
	"max of decimals": extremeKind(decimals, true),
	"min of strings":  extremeKind(texts, false),
	"max of mixed":    extremeKind(rapid.OneOf(ints, floats, decimals, texts), true),
}

type kind = struct {
	draw  *rapid.Generator[value.Value]
	delta func(vs []value.Value) []byte
	want  func(vs []value.Value) value.Value
}

func intDelta(appendTo func([]byte, int64, uint64, int64) []byte) func([]value.Value) []byte {
	return func(vs []value.Value) []byte {
		var s agg.Int128
		var n int64
		for _, v := range vs {
			if !v.IsNull() {
				s.Add(v.Int())
				n++
			}
		}
		return appendTo(nil, s.Hi, s.Lo, n)
	}
}

func decimalDelta(appendTo func([]byte, decimal.Decimal, int64) []byte) func([]value.Value) []byte {
	return func(vs []value.Value) []byte {
		var s decimal.Decimal
		var n int64
		for _, v := range vs {
			if !v.IsNull() {
				var err error
				if s, err = s.Add(v.Decimal()); err != nil {
					panic(err)
				}
				n++
			}
		}
		return appendTo(nil, s, n)
	}
}

func extremeKind(draw *rapid.Generator[value.Value], max bool) kind {
	pick := func(vs []value.Value) value.Value {
		var best value.Value
		for _, v := range vs {
			if agg.Better(max, best, v) {
				best = v
			}
		}
		return best
	}
	return kind{draw, func(vs []value.Value) []byte { return agg.AppendMinMax(nil, max, pick(vs)) }, func(vs []value.Value) value.Value {
		// Another way to the same: no value that isn't null is beyond the result.
		best := pick(vs)
		for _, v := range vs {
			if c := value.Compare(v, best); !v.IsNull() && (max && c > 0 || !max && c < 0) {
				panic(fmt.Sprintf("%v is beyond %v", v, best))
			}
		}
		return best
	}}
}

// total adds up exactly.
func total(vs []value.Value) (*big.Rat, int64) {
	sum, n := new(big.Rat), int64(0)
	for _, v := range vs {
		switch v.Kind() {
		case value.Int:
			sum.Add(sum, new(big.Rat).SetInt64(v.Int()))
		case value.Decimal:
			sum.Add(sum, v.Decimal().Rat())
		default:
			continue
		}
		n++
	}
	return sum, n
}

func sumOf(vs []value.Value) value.Value {
	sum, n := total(vs)
	if n == 0 {
		return value.NullValue()
	}
	d, err := decimal.Parse(sum.FloatString(30))
	if err != nil {
		panic(err)
	}
	return value.DecimalOf(d)
}

func meanOfInts(vs []value.Value) value.Value {
	sum, n := total(vs)
	if n == 0 {
		return value.NullValue()
	}
	f, _ := sum.Quo(sum, new(big.Rat).SetInt64(n)).Float64()
	return value.FloatOf(f)
}

// TestAnyGroupingGivesTheSameBytes: for exact cells, deltas merge to the same bytes however they are grouped, and to
// what all values together come to.
func TestAnyGroupingGivesTheSameBytes(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				n := rapid.IntRange(1, 8).Draw(t, "deltas")
				var all []value.Value
				deltas := make([][]byte, n)
				for i := range deltas {
					vs := rapid.SliceOfN(nullable(k.draw), 0, 4).Draw(t, "values")
					all = append(all, vs...)
					deltas[i] = k.delta(vs)
				}
				whole := k.delta(all)
				if !agg.Exact(whole) {
					t.Fatalf("%x isn't exact", whole)
				}
				if got := group(t, deltas); !bytes.Equal(got, whole) {
					t.Fatalf("merged to %x, at once %x", got, whole)
				}
				results, err := agg.Results(nil, whole)
				if err != nil || len(results) != 1 {
					t.Fatalf("%v, %v", results, err)
				}
				if want := k.want(all); value.Compare(results[0], want) != 0 {
					t.Fatalf("%v come to %v, want %v", all, results[0], want)
				}
			})
		})
	}
}

// group merges neighbours in an order that rapid chooses.
func group(t *rapid.T, deltas [][]byte) []byte {
	deltas = append([][]byte(nil), deltas...)
	for len(deltas) > 1 {
		i := rapid.IntRange(0, len(deltas)-2).Draw(t, "at")
		m, err := agg.Merge(nil, deltas[i], deltas[i+1])
		if err != nil {
			t.Fatal(err)
		}
		deltas = append(append(deltas[:i:i], m), deltas[i+2:]...)
	}
	return deltas[0]
}

// TestRowsMergeCellByCell: rows of several cells, first, last and collect among them, in order.
func TestRowsMergeCellByCell(t *testing.T) {
	row := func(vs ...string) []byte {
		var list []value.Value
		for _, v := range vs {
			list = append(list, value.StringOf(v))
		}
		first, last := value.NullValue(), value.NullValue()
		if len(vs) > 0 {
			first, last = list[0], list[len(list)-1]
		}
		b := agg.AppendCount(nil, int64(len(vs)))
		b = agg.AppendFirst(b, first)
		b = agg.AppendLast(b, last)
		b = agg.AppendCollect(b, list)
		return agg.AppendSumFloat(b, float64(len(vs)), int64(len(vs)))
	}
	merged := row()
	for _, d := range [][]byte{row("b", "c"), row(), row("a")} {
		var err error
		if merged, err = agg.Merge(nil, merged, d); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(merged, row("b", "c", "a")) {
		t.Errorf("%x", merged)
	}
	if agg.Exact(merged) {
		t.Error("first, last, collect and float sums are said to be exact")
	}
	wantResults(t, merged, `3`, `"b"`, `"a"`, `["b","c","a"]`, `3`)
	wantResults(t, row(), `0`, `null`, `null`, `[]`, `null`)
}

func TestResults(t *testing.T) {
	d := func(s string) decimal.Decimal {
		p, err := decimal.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	var mixed, exact, none agg.NumberSum
	for _, v := range []value.Value{value.IntOf(1), value.NullValue(), value.DecimalOf(d("0.25")), value.FloatOf(0.5)} {
		if err := mixed.Add(v); err != nil {
			t.Fatal(err)
		}
		if v.Kind() != value.Float {
			if err := exact.Add(v); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := mixed.Add(value.StringOf("1")); err == nil {
		t.Error("a string is added up")
	}
	for _, c := range []struct {
		name, want string
		cells      []byte
	}{
		{"sum beyond int64", `9223372036854775808`, agg.AppendSumInt(nil, 0, 1<<63, 2)},
		{"sum below int64", `-9223372036854775809`, agg.AppendSumInt(nil, -1, 1<<63-1, 2)},
		{"sum of none", `null`, agg.AppendSumInt(nil, 0, 0, 0)},
		{"mean of three times 2^62", `4611686018427387904`, agg.AppendAvgInt(nil, 0, 3<<62, 3)},
		{"mean of a sum that no float holds", `3002399751580331`, agg.AppendAvgInt(nil, 0, 9007199254740993, 3)},
		{"negative mean", `-0.5`, agg.AppendAvgInt(nil, -1, math.MaxUint64, 2)},
		{"mean of none", `null`, agg.AppendAvgInt(nil, 0, 0, 0)},
		{"NaN", `"NaN"`, agg.AppendSumFloat(nil, math.NaN(), 1)},
		{"mean of floats", `0.75`, agg.AppendAvgFloat(nil, 1.5, 2)},
		{"sum of decimals", `"1.25"`, agg.AppendSumDecimal(nil, d("1.25"), 2)},
		{"mean of decimals", `"0.3333333333333333"`, agg.AppendAvgDecimal(nil, d("1"), 3)},
		{"mean of long decimals", `"0.00000000000000000004"`, agg.AppendAvgDecimal(nil, d("0.00000000000000000012"), 3)},
		{"sum of mixed numbers", `1.75`, agg.AppendSumNumber(nil, &mixed)},
		{"mean of mixed numbers", `0.5833333333333334`, agg.AppendAvgNumber(nil, &mixed)},
		{"sum of ints and decimals", `"1.25"`, agg.AppendSumNumber(nil, &exact)},
		{"mean of ints and decimals", `"0.625"`, agg.AppendAvgNumber(nil, &exact)},
		{"sum of no numbers", `null`, agg.AppendSumNumber(nil, &none)},
		{"greatest of none", `null`, agg.AppendMinMax(nil, true, value.NullValue())},
		{"least", `"a"`, agg.AppendMinMax(nil, false, value.StringOf("a"))},
	} {
		t.Run(c.name, func(t *testing.T) { wantResults(t, c.cells, c.want) })
	}
}

// TestMixedNumbersMerge: integers and decimals stay exact next to floats.
func TestMixedNumbersMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vs := rapid.SliceOfN(nullable(rapid.OneOf(ints, decimals)), 1, 8).Draw(t, "values")
		var whole agg.NumberSum
		var deltas [][]byte
		for _, v := range vs {
			var one agg.NumberSum
			if err := errors.Join(one.Add(v), whole.Add(v)); err != nil {
				t.Fatal(err)
			}
			deltas = append(deltas, agg.AppendSumNumber(nil, &one))
		}
		got := group(t, deltas)
		if !bytes.Equal(got, agg.AppendSumNumber(nil, &whole)) {
			t.Fatalf("%x", got)
		}
		results, err := agg.Results(nil, got)
		if err != nil || value.Compare(results[0], sumOf(vs)) != 0 {
			t.Fatalf("%v come to %v, %v", vs, results, err)
		}
	})
}

// TestStoresCanAlwaysMerge: what is written as merge operands can't overflow afterwards, when it is too late.
func TestStoresCanAlwaysMerge(t *testing.T) {
	count, err := agg.Merge(nil, agg.AppendCount(nil, math.MaxInt64), agg.AppendCount(nil, math.MaxInt64))
	if err != nil {
		t.Fatal(err)
	}
	wantResults(t, count, `18446744073709551614`)

	// The largest sum of decimals that a batch may bring, 10^6 times.
	largest, err := decimal.Parse(strings.Repeat("9", 980) + "." + strings.Repeat("9", 1000))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agg.AddDecimal(decimal.Decimal{}, largest); err != nil {
		t.Fatal(err)
	}
	million, err := largest.Mul(decimal.FromInt(1_000_000))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agg.Merge(nil, agg.AppendSumDecimal(nil, million, 1_000_000), agg.AppendSumDecimal(nil, largest, 1)); err != nil {
		t.Error(err)
	}
	for _, over := range []string{"1e980", "-1e980", "1e999", strings.Repeat("9", 981)} {
		d, err := decimal.Parse(over)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := agg.AddDecimal(decimal.Decimal{}, d); err == nil {
			t.Errorf("%.20s is taken", over)
		}
		var s agg.NumberSum
		if s.AddDecimal(d) == nil {
			t.Errorf("%.20s is taken", over)
		}
	}
	if _, err := agg.AddDecimal(largest, largest); err == nil {
		t.Error("a sum of 981 digits is taken")
	}
}

func TestMergerNamesTheColumns(t *testing.T) {
	merge := agg.Merger([]state.Column{{Name: "n"}, {Name: "total"}})
	row := func(n int64) []byte {
		return agg.AppendSumInt(agg.AppendCount(nil, 1), math.MaxInt64, math.MaxUint64, n)
	}
	_, err := merge(nil, row(1), row(1))
	if err == nil || !strings.Contains(err.Error(), "aggregate total: a sum of integers: it is beyond 128 bits") {
		t.Error(err)
	}
}

func TestNaNAndZero(t *testing.T) {
	f := value.FloatOf
	nan, negZero := f(math.NaN()), f(math.Copysign(0, -1))
	for _, c := range []struct {
		max  bool
		a, b value.Value
		want string
	}{
		{true, f(1), nan, `"NaN"`},
		{true, nan, f(1), `"NaN"`},
		{false, f(1), nan, `1`},
		{false, nan, f(1), `1`},
		{false, nan, nan, `"NaN"`},
		{true, negZero, f(0), `0`},
		{false, f(0), negZero, `0`},
		{true, negZero, negZero, `0`},
		{true, value.NullValue(), f(-1), `-1`},
		{false, f(-1), value.NullValue(), `-1`},
		{true, value.IntOf(math.MaxInt64), f(1 << 63), `9223372036854775808`}, // compared exactly
		// Of equals the earlier stays, whatever its kind.
		{true, value.IntOf(2), value.DecimalOf(decimal.FromInt(2)), `2`},
		{true, value.DecimalOf(decimal.FromInt(2)), value.IntOf(2), `"2"`},
		{false, value.IntOf(2), value.DecimalOf(decimal.FromInt(2)), `2`},
		{false, value.DecimalOf(decimal.FromInt(2)), value.IntOf(2), `"2"`},
	} {
		m, err := agg.Merge(nil, agg.AppendMinMax(nil, c.max, c.a), agg.AppendMinMax(nil, c.max, c.b))
		if err != nil {
			t.Fatal(err)
		}
		wantResults(t, m, c.want)
	}
	// A sum of nothing is no zero: -0 comes through.
	m, err := agg.Merge(nil, agg.AppendSumFloat(nil, 0, 0), agg.AppendSumFloat(nil, math.Copysign(0, -1), 1))
	if err != nil {
		t.Fatal(err)
	}
	wantResults(t, m, `-0`)
}

func TestMergeErrors(t *testing.T) {
	huge, err := decimal.Parse(strings.Repeat("9", decimal.MaxDigits))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		a, b []byte
		code batch.Code
		want string
	}{
		{"other tags", agg.AppendCount(nil, 1), agg.AppendSumInt(nil, 0, 1, 1), batch.CodeStoreDamaged, "aggregate 1: a count and a sum of integers can't be combined"},
		{"lengths", agg.AppendCount(nil, 1), nil, batch.CodeStoreDamaged, "differ in length"},
		{"second cell", agg.AppendCount(agg.AppendCount(nil, 1), 1), agg.AppendCount(agg.AppendCount(nil, 1), 1)[:3], batch.CodeStoreDamaged, "aggregate 2"},
		{"sum", agg.AppendSumInt(nil, math.MaxInt64, math.MaxUint64, 1), agg.AppendSumInt(nil, 0, 1, 1), batch.CodeOverflow, "beyond 128 bits"},
		{"negative sum", agg.AppendSumInt(nil, math.MinInt64, 0, 1), agg.AppendSumInt(nil, -1, math.MaxUint64, 1), batch.CodeOverflow, "beyond 128 bits"},
		{"number of values", agg.AppendAvgInt(nil, 0, 0, math.MaxInt64), agg.AppendAvgInt(nil, 0, 1, 1), batch.CodeOverflow, "more values"},
		{"decimals", agg.AppendSumDecimal(nil, huge, 1), agg.AppendSumDecimal(nil, decimal.FromInt(1), 1), batch.CodeOverflow, "more than 1000 digits"},
		{"unknown", []byte{0x7f}, []byte{0x7f}, batch.CodeStoreDamaged, "tag 127"},
		{"user's", []byte{0x0f, 0}, []byte{0x0f, 0}, batch.CodeInternal, "only its pipeline"},
	} {
		_, err := agg.Merge(nil, c.a, c.b)
		var e *batch.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Kind != batch.Permanent || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s, %q", c.name, err, c.code, c.want)
		}
	}
	for _, b := range []string{"7f", "01", "0201", "0300", "0c", "0e05", "0f05", "1000", "0508"} {
		cells, _ := hex.DecodeString(b)
		if r, err := agg.Results(nil, cells); err == nil {
			t.Errorf("%s gives %v", b, r)
		}
		if agg.Exact(cells) {
			t.Errorf("%s is exact", b)
		}
	}
}

// TestBytes pins the cells: they are stored, so a change of them is a change of the storage format.
func TestBytes(t *testing.T) {
	var numbers agg.NumberSum
	for _, v := range []value.Value{value.IntOf(1), value.FloatOf(1)} {
		if err := numbers.Add(v); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		cells []byte
		want  string
	}{
		{agg.AppendCount(nil, 3), "0106"},
		{agg.AppendSumInt(nil, 0, 5, 2), "02020a"},
		{agg.AppendSumInt(nil, -1, math.MaxUint64, 1), "020101"},
		{agg.AppendSumInt(nil, 0, 1<<63, 2), "020280808080808080808002"},
		{agg.AppendSumInt(nil, math.MinInt64, 0, 1), "0201ffffffffffffffffffffffffffffffffffff03"},
		{agg.AppendSumFloat(nil, 1, 1), "0301000000000000f03f"},
		{agg.AppendSumFloat(nil, math.Float64frombits(0xfff8000000000123), 1), "0301010000000000f87f"},
		{agg.AppendSumDecimal(nil, decimal.FromInt(12), 1), "0401050018"},
		{agg.AppendSumNumber(nil, &numbers), "0503010201000000000000f03f"},
		{agg.AppendMinMax(nil, false, value.IntOf(1)), "060302"},
		{agg.AppendMinMax(nil, true, value.NullValue()), "0700"},
		{agg.AppendAvgInt(nil, 0, 5, 2), "08020a"},
		{agg.AppendAvgFloat(nil, 1, 1), "0901000000000000f03f"},
		{agg.AppendAvgDecimal(nil, decimal.FromInt(12), 1), "0a01050018"},
		{agg.AppendAvgNumber(nil, &numbers), "0b03010201000000000000f03f"},
		{agg.AppendFirst(nil, value.StringOf("a")), "0c070161"},
		{agg.AppendLast(nil, value.StringOf("a")), "0d070161"},
		{agg.AppendCollect(nil, []value.Value{value.IntOf(1), value.BoolOf(true)}), "0e02030202"},
	} {
		if got := hex.EncodeToString(c.cells); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestInt128(t *testing.T) {
	limit := new(big.Int).Lsh(big.NewInt(1), 127)
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, -1, math.MaxInt64, math.MinInt64}))
		a := agg.Int128{Hi: word.Draw(t, "hi"), Lo: uint64(word.Draw(t, "lo"))}
		b := agg.Int128{Hi: word.Draw(t, "hi"), Lo: uint64(word.Draw(t, "lo"))}
		want := new(big.Int).Add(a.Big(), b.Big())
		fits := want.Cmp(limit) < 0 && want.Cmp(new(big.Int).Neg(limit)) >= 0
		sum := a
		if ok := sum.AddWide(b); ok != fits || ok && sum.Big().Cmp(want) != 0 || !ok && sum != a {
			t.Fatalf("%s + %s = %s, %v, want %s", a.Big(), b.Big(), sum.Big(), ok, want)
		}
		if f, _ := new(big.Float).SetInt(a.Big()).Float64(); f != a.Float64() {
			t.Fatalf("%s as a float: %v, want %v", a.Big(), a.Float64(), f)
		}
		// Through a cell and back.
		results, err := agg.Results(nil, agg.AppendSumInt(nil, a.Hi, a.Lo, 1))
		if err != nil || results[0].String() != a.Big().String() {
			t.Fatalf("%s came back as %v, %v", a.Big(), results, err)
		}
	})
}

// FuzzCells: no bytes make Merge, Results or Exact panic, and a result of Merge can be read.
func FuzzCells(f *testing.F) {
	f.Add(agg.AppendCount(nil, 1), agg.AppendCount(nil, 2))
	f.Add(agg.AppendSumInt(nil, 0, 1<<63, 2), agg.AppendSumInt(nil, -1, 1, 1))
	f.Add(agg.AppendAvgDecimal(nil, decimal.FromInt(12), 1), agg.AppendAvgDecimal(nil, decimal.FromInt(1), 0))
	f.Add(agg.AppendCollect(nil, []value.Value{value.IntOf(1)}), agg.AppendCollect(nil, nil))
	f.Add(agg.AppendMinMax(nil, true, value.StringOf("a")), agg.AppendMinMax(nil, true, value.FloatOf(1)))
	f.Add([]byte{0x10, 1, 1, 0}, []byte{0x10, 0})
	f.Add([]byte{0x0b, 7, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 5, 0, 2}, []byte{0x0b, 0})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		agg.Exact(a)
		_, errA := agg.Results(nil, a)
		_, errB := agg.Results(nil, b)
		m, err := agg.Merge(nil, a, b)
		if err != nil {
			return
		}
		if _, err := agg.Results(nil, m); err != nil && errA == nil && errB == nil {
			t.Errorf("%x and %x merge to %x: %v", a, b, m, err)
		}
	})
}

func wantResults(t *testing.T, cells []byte, want ...string) {
	t.Helper()
	results, err := agg.Results(nil, cells)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		got = append(got, string(value.AppendJSON(nil, r)))
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%s, want %s", got, want)
	}
}

var (
	ints   = rapid.Map(rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64})), value.IntOf)
	floats = rapid.Map(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1)})), value.FloatOf)
	texts  = rapid.Map(rapid.String(), value.StringOf)

	decimals = rapid.Custom(func(t *rapid.T) value.Value {
		d, err := decimal.New(rapid.Int64().Draw(t, "coef"), rapid.Int32Range(-12, 12).Draw(t, "exp"))
		if err != nil {
			t.Fatal(err)
		}
		return value.DecimalOf(d)
	})
)

func nullable(g *rapid.Generator[value.Value]) *rapid.Generator[value.Value] {
	return rapid.Custom(func(t *rapid.T) value.Value {
		if rapid.IntRange(0, 4).Draw(t, "null") == 0 {
			return value.NullValue()
		}
		return g.Draw(t, "v")
	})
}
