package agg_test

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
)

// pair is a value and the one that decides about it, or its weight.
type pair struct{ x, by value.Value }

// fed are the aggregates that are fed values, each with a naive twin that is given all of them in their order.
var fed = []struct {
	name              string
	fn, typ, param    string
	weighted, inOrder bool // inOrder: it depends on the order of the values
	x, by             *rapid.Generator[value.Value]
	want              func(all []pair) string
}{
	{name: "first_n", fn: "first_n", param: "3", inOrder: true, x: nullable(rapid.OneOf(ints, texts)), want: func(all []pair) string {
		vs := without(all)
		return listText(vs[:min(3, len(vs))])
	}},
	{name: "last_n", fn: "last_n", param: "3", inOrder: true, x: nullable(rapid.OneOf(ints, texts)), want: func(all []pair) string {
		vs := without(all)
		return listText(vs[max(0, len(vs)-3):])
	}},
	{name: "top", fn: "top", param: "3", x: nullable(rapid.OneOf(few, texts)), want: func(all []pair) string {
		vs := without(all)
		slices.SortStableFunc(vs, func(a, b value.Value) int { return value.Compare(b, a) })
		vs = slices.CompactFunc(vs, func(a, b value.Value) bool { return value.Compare(a, b) == 0 })
		return listText(vs[:min(3, len(vs))])
	}},
	{name: "top of floats", fn: "top", param: "2", x: nullable(floats), want: func(all []pair) string {
		vs := without(all)
		for i, v := range vs {
			if v.Float() == 0 {
				vs[i] = value.FloatOf(0)
			}
		}
		slices.SortStableFunc(vs, func(a, b value.Value) int { return value.Compare(b, a) })
		vs = slices.CompactFunc(vs, func(a, b value.Value) bool { return value.Compare(a, b) == 0 })
		return listText(vs[:min(2, len(vs))])
	}},
	{name: "top by weight", fn: "top", param: "3", weighted: true, x: nullable(few), by: nullable(few), want: func(all []pair) string {
		best := map[int64]int64{}
		for _, p := range all {
			if !p.x.IsNull() && !p.by.IsNull() {
				w, ok := best[p.x.Int()]
				if !ok || p.by.Int() > w {
					best[p.x.Int()] = p.by.Int()
				}
			}
		}
		var vs []value.Value
		for w := int64(3); w >= -3; w-- {
			for x := int64(-3); x <= 3; x++ {
				if b, ok := best[x]; ok && b == w {
					vs = append(vs, value.ListOf([]value.Value{value.IntOf(x), value.IntOf(w)}))
				}
			}
		}
		return listText(vs[:min(3, len(vs))])
	}},
	{name: "min_by", fn: "min_by", inOrder: true, x: nullable(texts), by: nullable(few), want: func(all []pair) string { return byText(all, -1) }},
	{name: "max_by", fn: "max_by", inOrder: true, x: nullable(texts), by: nullable(few), want: func(all []pair) string { return byText(all, 1) }},
	{name: "distinct", fn: "distinct", x: nullable(rapid.OneOf(few, texts)), want: func(all []pair) string {
		seen := map[string]bool{}
		for _, v := range without(all) {
			seen[string(value.AppendKey(nil, v))] = true
		}
		return fmt.Sprint(len(seen))
	}},
	{name: "median", fn: "quantile", param: "0.5", x: nullable(few), want: quantileText("0.5")},
	{name: "least", fn: "quantile", param: "0.001", x: nullable(few), want: quantileText("0.001")},
	{name: "greatest", fn: "quantile", param: "1", x: nullable(few), want: quantileText("1")},
	{name: "variance of ints", fn: "variance", typ: "int", x: nullable(ints), want: varianceText},
	{name: "variance of decimals", fn: "variance", typ: "decimal", x: nullable(decimals), want: func(all []pair) string {
		v, n := variance(all)
		if n < 2 {
			return "null"
		}
		d, err := decimal.Parse(v.FloatString(60))
		if err == nil {
			d, err = d.Round(16)
		}
		if err != nil {
			panic(err)
		}
		return d.String()
	}},
	{name: "stddev of ints", fn: "stddev", typ: "int", x: nullable(ints), want: func(all []pair) string {
		v, n := variance(all)
		if n < 2 {
			return "null"
		}
		f, _ := v.Float64()
		return value.FloatOf(math.Sqrt(f)).String()
	}},
	{name: "stddev of decimals", fn: "stddev", typ: "decimal", x: nullable(decimals), want: func(all []pair) string {
		v, n := variance(all)
		if n < 2 {
			return "null"
		}
		d, err := decimal.Parse(new(big.Float).SetPrec(400).Sqrt(new(big.Float).SetPrec(400).SetRat(v)).Text('f', 60))
		if err == nil {
			d, err = d.Round(16)
		}
		if err != nil {
			panic(err)
		}
		return d.String()
	}},
}

var few = rapid.Map(rapid.Int64Range(-3, 3), value.IntOf)

func without(all []pair) []value.Value {
	var vs []value.Value
	for _, p := range all {
		if !p.x.IsNull() {
			vs = append(vs, p.x)
		}
	}
	return vs
}

func listText(vs []value.Value) string { return value.ListOf(vs).String() }

func byText(all []pair, sign int) string {
	best, x := value.NullValue(), value.NullValue()
	for _, p := range all {
		if !p.by.IsNull() && (best.IsNull() || sign*value.Compare(p.by, best) > 0) {
			best, x = p.by, p.x
		}
	}
	return x.String()
}

func quantileText(p string) func(all []pair) string {
	return func(all []pair) string {
		vs := without(all)
		if len(vs) == 0 {
			return "null"
		}
		slices.SortFunc(vs, value.Compare)
		share, _ := new(big.Rat).SetString(p)
		i := 0
		for new(big.Rat).SetInt64(int64(i+1)).Cmp(new(big.Rat).Mul(share, new(big.Rat).SetInt64(int64(len(vs))))) < 0 {
			i++
		}
		return fmt.Sprint(vs[i])
	}
}

func variance(all []pair) (*big.Rat, int64) {
	vs := without(all)
	var ps []value.Value
	ps = append(ps, vs...)
	sum, n := total(ps)
	if n < 2 {
		return nil, n
	}
	mean := sum.Quo(sum, new(big.Rat).SetInt64(n))
	m2 := new(big.Rat)
	for _, v := range vs {
		x, _ := total([]value.Value{v})
		x.Sub(x, mean)
		m2.Add(m2, x.Mul(x, x))
	}
	return m2.Quo(m2, new(big.Rat).SetInt64(n-1)), n
}

func varianceText(all []pair) string {
	v, n := variance(all)
	if n < 2 {
		return "null"
	}
	f, _ := v.Float64()
	return value.FloatOf(f).String()
}

// near tells whether a quantile is as near as it is said to be.
func near(t *rapid.T, got, want string) bool {
	if got == want || got == "null" || want == "null" {
		return got == want
	}
	var g, w float64
	if _, err := fmt.Sscan(got+" "+want, &g, &w); err != nil {
		t.Fatal(err)
	}
	return math.Abs(g-w) <= 0.008*math.Abs(w)
}

// TestFeeds: whatever the values, their grouping merges to the bytes of all at once, and they come to what a naive
// twin says; where their order doesn't matter, another order gives the same bytes.
func TestFeeds(t *testing.T) {
	for _, k := range fed {
		t.Run(k.name, func(t *testing.T) {
			make := func(t *rapid.T, ps []pair) []byte {
				f, err := agg.NewFeed(k.fn, k.typ, k.param, k.weighted)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range ps {
					if err := f.Add(p.x, p.by); err != nil {
						t.Fatal(err)
					}
				}
				return f.Append(nil)
			}
			rapid.Check(t, func(t *rapid.T) {
				var all []pair
				var deltas [][]byte
				for range rapid.IntRange(1, 6).Draw(t, "deltas") {
					var ps []pair
					for range rapid.IntRange(0, 5).Draw(t, "values") {
						p := pair{x: k.x.Draw(t, "x")}
						if k.by != nil {
							p.by = k.by.Draw(t, "by")
						}
						ps = append(ps, p)
					}
					all = append(all, ps...)
					deltas = append(deltas, make(t, ps))
				}
				whole := make(t, all)
				if got := group(t, deltas); !bytes.Equal(got, whole) {
					t.Fatalf("merged to %x, at once %x", got, whole)
				}
				if agg.Exact(whole) == k.inOrder {
					t.Fatalf("exact: %v", agg.Exact(whole))
				}
				if !k.inOrder {
					if got := make(t, rapid.Permutation(all).Draw(t, "order")); !bytes.Equal(got, whole) {
						t.Fatalf("in another order %x, not %x", got, whole)
					}
				}
				vs, err := agg.Results(nil, whole)
				if err != nil || len(vs) != 1 {
					t.Fatalf("%v, %v", vs, err)
				}
				got, want := vs[0].String(), k.want(all)
				if got != want && !(k.fn == "quantile" && near(t, got, want)) {
					t.Fatalf("%v come to %s, want %s", all, got, want)
				}
			})
		})
	}
}

// TestDistinctIsNear counts up to a million values and holds the estimate against the bound that is promised, and the
// bytes of any split against those of all at once, in both forms.
func TestDistinctIsNear(t *testing.T) {
	feed := func() agg.Feed {
		f, err := agg.NewFeed("distinct", "int", "", false)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	whole := feed()
	var parts [3]agg.Feed
	for i := range parts {
		parts[i] = feed()
	}
	checks := []int{1, 100, 127, 128, 129, 500, 1023, 1024, 1025, 1100, 4000, 7000, 10_000, 50_000, 200_000, 1_000_000}
	for i := range 1_000_000 {
		v := value.IntOf(int64(i) * 7919)
		for _, f := range []agg.Feed{whole, parts[i%3]} {
			if err := f.Add(v, value.NullValue()); err != nil {
				t.Fatal(err)
			}
		}
		if i%5 == 0 { // once more, in another part
			if err := parts[(i+1)%3].Add(v, value.NullValue()); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Contains(checks, i+1) {
			continue
		}
		cell := whole.Append(nil)
		merged, err := agg.Merge(nil, parts[0].Append(nil), parts[1].Append(nil))
		if err == nil {
			merged, err = agg.Merge(nil, merged, parts[2].Append(nil))
		}
		if err != nil || !bytes.Equal(merged, cell) {
			t.Fatalf("%d values in three parts don't merge to the bytes of all: %v", i+1, err)
		}
		vs, err := agg.Results(nil, cell)
		if err != nil {
			t.Fatal(err)
		}
		if off := math.Abs(float64(vs[0].Int())/float64(i+1) - 1); off > 0.025 || i < 128 && off != 0 {
			t.Errorf("%d values are estimated as %v", i+1, vs[0])
		}
		if len(cell) > 12<<10+3 {
			t.Errorf("%d values take %d bytes", i+1, len(cell))
		}
	}
}

// TestQuantileIsNear: every quantile of random numbers of all sizes is within the bound that is promised.
func TestQuantileIsNear(t *testing.T) {
	numbers := rapid.OneOf(rapid.Float64Range(-1e3, 1e3), rapid.Float64Min(2.3e-308), rapid.Map(rapid.Float64Min(2.3e-308), func(f float64) float64 { return -f }))
	rapid.Check(t, func(t *rapid.T) {
		fs := rapid.SliceOfN(numbers, 1, 50).Draw(t, "numbers")
		p := rapid.SampledFrom([]string{"0.01", "0.1", "0.25", "0.5", "0.75", "0.9", "0.99", "1"}).Draw(t, "p")
		f, err := agg.NewFeed("quantile", "float", p, false)
		if err != nil {
			t.Fatal(err)
		}
		var all []pair
		for _, x := range fs {
			v := value.FloatOf(x)
			all = append(all, pair{x: v})
			if err := f.Add(v, value.NullValue()); err != nil {
				t.Fatal(err)
			}
		}
		vs, err := agg.Results(nil, f.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if want := quantileText(p)(all); !near(t, vs[0].String(), want) && math.Abs(vs[0].Float()) > 2.3e-308 {
			t.Fatalf("quantile %s of %v is %v, want %s", p, fs, vs[0], want)
		}
	})
}

// TestFeedEdges pins what is said of the values at the edges, and the bytes of each cell.
func TestFeedEdges(t *testing.T) {
	f, i, s, null := value.FloatOf, value.IntOf, value.StringOf, value.NullValue()
	dec := func(text string) value.Value {
		d, err := decimal.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return value.DecimalOf(d)
	}
	for _, c := range []struct {
		fn, typ, param string
		weighted       bool
		add            []pair
		want, bytes    string
	}{
		{"first_n", "", "2", false, []pair{{i(7), null}, {null, null}, {s("a"), null}, {i(8), null}}, `[7,"a"]`, "110202030e070161"},
		{"last_n", "", "2", false, []pair{{i(7), null}, {s("a"), null}, {null, null}, {i(8), null}}, `["a",8]`, ""},
		{"first_n", "", "2", false, nil, `[]`, "110200"},
		{"top", "", "2", false, []pair{{i(1), null}, {f(math.NaN()), null}, {i(3), null}, {i(3), null}, {null, null}}, `["NaN",3]`, ""},
		{"top", "", "2", true, []pair{{s("b"), i(5)}, {s("a"), i(5)}, {s("c"), i(4)}, {s("a"), i(1)}, {null, i(9)}, {s("d"), null}}, `[["a",5],["b",5]]`, ""},
		{"top", "", "1", true, nil, `[]`, "140100"},
		{"min_by", "", "", false, []pair{{s("late"), i(2)}, {s("first"), i(1)}, {s("tie"), i(1)}, {s("none"), null}}, `"first"`, ""},
		{"max_by", "", "", false, []pair{{null, i(2)}, {s("less"), i(1)}}, `null`, ""},
		{"max_by", "", "", false, nil, `null`, "160000"},
		{"distinct", "", "", false, nil, `0`, "170000"},
		{"distinct", "", "", false, []pair{{i(2), null}, {f(2), null}, {f(0), null}, {f(math.Copysign(0, -1)), null}}, `3`, ""},
		{"quantile", "float", "0.5", false, nil, `null`, "18000000000000e03f0000"},
		{"quantile", "float", "0.5", false, []pair{{i(100), null}, {i(100), null}}, `100`, ""},
		{"quantile", "float", "0.1", false, []pair{{f(math.Inf(-1)), null}, {f(1), null}}, `"-Inf"`, ""},
		{"quantile", "float", "1", false, []pair{{f(1), null}, {f(math.NaN()), null}}, `"NaN"`, ""},
		{"quantile", "float", "0.5", false, []pair{{f(1), null}, {f(math.NaN()), null}}, `1`, ""},
		{"quantile", "any", "0.5", false, []pair{{dec("1.5"), null}, {i(-1), null}, {f(5e-324), null}}, `0`, ""},
		{"variance", "int", "", false, []pair{{i(1), null}}, `null`, ""},
		{"variance", "int", "", false, []pair{{i(math.MinInt64), null}, {i(math.MaxInt64), null}}, `1.7014118346046923e+38`, ""},
		{"variance", "any", "", false, []pair{{dec("1"), null}, {i(3), null}}, `"2"`, ""},
		{"stddev", "any", "", false, []pair{{dec("1"), null}, {i(3), null}}, `"1.414213562373095"`, ""},
		{"stddev", "any", "", false, []pair{{f(1), null}, {i(3), null}}, `1.4142135623730951`, ""},
		{"variance", "float", "", false, []pair{{f(1e9), null}, {f(1e9 + 1), null}, {f(1e9 + 2), null}}, `1`, ""},
		{"variance", "int", "", false, []pair{{i(2), null}, {i(-1), null}}, `4.5`, "190102020 5"},
	} {
		feed, err := agg.NewFeed(c.fn, c.typ, c.param, c.weighted)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range c.add {
			if err := feed.Add(p.x, p.by); err != nil {
				t.Fatal(err)
			}
		}
		cell := feed.Append(nil)
		wantResults(t, cell, c.want)
		if c.bytes != "" && fmt.Sprintf("%x", cell) != strings.ReplaceAll(c.bytes, " ", "") {
			t.Errorf("%s of %v: %x, want %s", c.fn, c.add, cell, c.bytes)
		}
	}
	for _, c := range []struct{ fn, param string }{{"first_n", "0"}, {"last_n", "1001"}, {"top", "-1"}, {"top", ""}, {"quantile", "0"}, {"quantile", "1.1"}, {"quantile", "x"}} {
		if _, err := agg.NewFeed(c.fn, "int", c.param, false); err == nil {
			t.Errorf("%s with %q is taken", c.fn, c.param)
		}
	}
	for _, fn := range []string{"quantile", "variance", "stddev"} {
		feed, err := agg.NewFeed(fn, "any", "0.5", false)
		if err != nil {
			t.Fatal(err)
		}
		if feed.Add(s("1"), null) == nil {
			t.Errorf("%s takes a string", fn)
		}
	}
	// Cells made for other parameters don't fit together.
	a, b := mustFeed(t, "top", "2"), mustFeed(t, "top", "3")
	if _, err := agg.Merge(nil, a.Append(nil), b.Append(nil)); err == nil || !strings.Contains(err.Error(), "made for 2, the other for 3") {
		t.Error(err)
	}
}

func mustFeed(t *testing.T, fn, param string) agg.Feed {
	f, err := agg.NewFeed(fn, "any", param, false)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestDamagedFeeds: cells that are cut off or changed are an error, or come to something; they never panic.
func TestDamagedFeeds(t *testing.T) {
	for _, k := range fed {
		rapid.Check(t, func(t *rapid.T) {
			f, err := agg.NewFeed(k.fn, k.typ, k.param, k.weighted)
			if err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(0, 4).Draw(t, "values") {
				p := pair{x: k.x.Draw(t, "x")}
				if k.by != nil {
					p.by = k.by.Draw(t, "by")
				}
				if err := f.Add(p.x, p.by); err != nil {
					t.Fatal(err)
				}
			}
			cell := f.Append(nil)
			whole := bytes.Clone(cell)
			cut := rapid.IntRange(0, len(cell)-1).Draw(t, "cut")
			if cut > 0 {
				if _, err := agg.Results(nil, cell[:cut]); err == nil {
					t.Fatalf("%s: %x can be read, cut off from %x", k.name, cell[:cut], cell)
				}
			}
			cell[cut] = byte(rapid.IntRange(0, 255).Draw(t, "byte"))
			_, _ = agg.Results(nil, cell)
			_, _ = agg.Merge(nil, cell, whole)
			_, _ = agg.Merge(nil, whole, cell)
		})
	}
}
