package agg

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// restated are cells of every kind that can be made of what they show, and a delta of each.
var restated = []struct {
	name string
	zero []byte
	cell func(t *rapid.T) []byte
}{
	{"count", AppendCount(nil, 0), func(t *rapid.T) []byte { return AppendCount(nil, rapid.Int64Range(0, 1<<40).Draw(t, "n")) }},
	{"sum int", AppendSumInt(nil, 0, 0, 0), func(t *rapid.T) []byte {
		n := rapid.Int64Range(0, 3).Draw(t, "n")
		if n == 0 {
			return AppendSumInt(nil, 0, 0, 0)
		}
		hi, lo := rapid.Int64Range(-1<<40, 1<<40).Draw(t, "hi"), rapid.Uint64().Draw(t, "lo")
		if rapid.Bool().Draw(t, "small") {
			hi = int64(lo) >> 63
		}
		return AppendSumInt(nil, hi, lo, n)
	}},
	{"sum float", AppendSumFloat(nil, 0, 0), func(t *rapid.T) []byte {
		if n := rapid.Int64Range(0, 3).Draw(t, "n"); n > 0 {
			return AppendSumFloat(nil, rapid.Float64().Draw(t, "sum"), n)
		}
		return AppendSumFloat(nil, 0, 0)
	}},
	{"sum decimal", AppendSumDecimal(nil, decimal.Decimal{}, 0), func(t *rapid.T) []byte {
		if n := rapid.Int64Range(0, 3).Draw(t, "n"); n > 0 {
			return AppendSumDecimal(nil, drawDecimal(t), n)
		}
		return AppendSumDecimal(nil, decimal.Decimal{}, 0)
	}},
	{"min", AppendMinMax(nil, false, value.NullValue()), func(t *rapid.T) []byte { return AppendMinMax(nil, false, drawAny(t)) }},
	{"max", AppendMinMax(nil, true, value.NullValue()), func(t *rapid.T) []byte { return AppendMinMax(nil, true, drawAny(t)) }},
	{"first", AppendFirst(nil, value.NullValue()), func(t *rapid.T) []byte { return AppendFirst(nil, drawAny(t)) }},
	{"last", AppendLast(nil, value.NullValue()), func(t *rapid.T) []byte { return AppendLast(nil, drawAny(t)) }},
	{"collect", AppendCollect(nil, nil), func(t *rapid.T) []byte {
		var vs []value.Value
		for range rapid.IntRange(0, 3).Draw(t, "n") {
			if v := drawAny(t); !v.IsNull() {
				vs = append(vs, v)
			}
		}
		return AppendCollect(nil, vs)
	}},
	{"first_n", (&few{limit: 2}).Append(nil), drawFed(func() Feed { return &few{limit: 2} })},
	{"last_n", (&few{limit: 2, last: true}).Append(nil), drawFed(func() Feed { return &few{limit: 2, last: true} })},
	{"top", (&top{limit: 2}).Append(nil), drawFed(func() Feed { return &top{limit: 2} })},
	{"top by weight", (&top{limit: 2, weighted: true}).Append(nil), drawFed(func() Feed { return &top{limit: 2, weighted: true} })},
}

func drawFed(feed func() Feed) func(t *rapid.T) []byte {
	return func(t *rapid.T) []byte {
		f := feed()
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			if err := f.Add(drawAny(t), drawAny(t)); err != nil {
				t.Fatal(err)
			}
		}
		return f.Append(nil)
	}
}

func drawDecimal(t *rapid.T) decimal.Decimal {
	d, err := decimal.Parse(fmt.Sprintf("%d.%03d", rapid.Int64().Draw(t, "int"), rapid.IntRange(0, 999).Draw(t, "fraction")))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func drawAny(t *rapid.T) value.Value {
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return value.NullValue()
	case 1:
		return value.IntOf(rapid.Int64().Draw(t, "int"))
	case 2:
		return value.FloatOf(rapid.SampledFrom([]float64{0, 1.5, math.Inf(1), math.NaN()}).Draw(t, "float"))
	case 3:
		return value.DecimalOf(drawDecimal(t))
	}
	return value.StringOf(rapid.StringN(0, 3, -1).Draw(t, "string"))
}

// TestRestate: cells made of what others show are shown the same, and go on the same with whatever comes later.
func TestRestate(t *testing.T) {
	for _, c := range restated {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				was, delta := c.cell(rt), c.cell(rt)
				cols := []state.Column{{Name: "x"}}
				shown := results(rt, was)
				is, err := Restate(nil, c.zero, cols, []Shown{{Value: shown}})
				if err != nil {
					rt.Fatal(err)
				}
				if got := results(rt, is); got.String() != shown.String() {
					rt.Fatalf("%s, want %s", got, shown)
				}
				if is[0] != was[0] {
					rt.Fatalf("it became %s", tag(is[0]))
				}
				a, errA := Merge(nil, was, delta)
				b, errB := Merge(nil, is, delta)
				if (errA == nil) != (errB == nil) {
					rt.Fatalf("merged: %v, %v", errA, errB)
				}
				if errA == nil && results(rt, a).String() != results(rt, b).String() {
					rt.Fatalf("merged: %s, want %s", results(rt, b), results(rt, a))
				}
			})
		})
	}
}

func results(t *rapid.T, cells []byte) value.Value {
	vs, err := Results(nil, cells)
	if err != nil || len(vs) != 1 {
		t.Fatalf("%v, %v", vs, err)
	}
	return vs[0]
}

func TestRestateMean(t *testing.T) {
	cols := []state.Column{{Name: "mean"}}
	for _, tc := range []struct {
		zero  []byte
		shown Shown
		want  string
	}{
		{AppendAvgInt(nil, 0, 0, 0), Shown{Parts: &Parts{Sum: value.IntOf(9), Count: 4}}, "2.25"},
		{AppendAvgFloat(nil, 0, 0), Shown{Parts: &Parts{Sum: value.IntOf(9), Count: 4}}, "2.25"},
		{AppendAvgFloat(nil, 0, 0), Shown{Parts: &Parts{Sum: value.FloatOf(1), Count: 2}}, "0.5"},
		{AppendAvgNumber(nil, &NumberSum{}), Shown{Parts: &Parts{Sum: value.FloatOf(1), Count: 2}}, "0.5"},
		{AppendAvgInt(nil, 0, 0, 0), Shown{}, "null"},
		{AppendAvgInt(nil, 0, 0, 0), Shown{Parts: &Parts{}}, "null"},
		{AppendAvgInt(nil, 0, 0, 0), Shown{Value: value.FloatOf(2.25)}, "a mean can't be gone on with"},
		{AppendAvgInt(nil, 0, 0, 0), Shown{Parts: &Parts{Sum: value.FloatOf(1.5), Count: 1}}, "is no sum of integers"},
		{AppendAvgInt(nil, 0, 0, 0), Shown{Parts: &Parts{Sum: value.IntOf(1)}}, "0 values can't add up to 1"},
		{AppendAvgInt(nil, 0, 0, 0), Shown{Parts: &Parts{Sum: value.IntOf(1), Count: -1}}, "-1 values"},
		{AppendSumInt(nil, 0, 0, 0), Shown{Parts: &Parts{Sum: value.IntOf(1), Count: 1}}, "it is no mean"},
		{AppendSumInt(nil, 0, 0, 0), Shown{Value: value.StringOf("1")}, "is no sum of numbers"},
		{AppendSumDecimal(nil, decimal.Decimal{}, 0), Shown{Value: value.FloatOf(1)}, "is no sum of decimals"},
		{AppendCount(nil, 0), Shown{Value: value.NullValue()}, "null is no count"},
		{AppendCollect(nil, nil), Shown{Value: value.IntOf(1)}, "1 is no list"},
		{AppendCollect(nil, nil), Shown{Value: value.ListOf([]value.Value{value.NullValue()})}, "its list holds a null"},
		{(&few{limit: 1}).Append(nil), Shown{Value: value.ListOf([]value.Value{value.IntOf(1), value.IntOf(2)})}, "2 values are more than the 1 that are kept"},
		{(&top{limit: 2}).Append(nil), Shown{Value: value.ListOf([]value.Value{value.IntOf(1), value.IntOf(1)})}, "2 values, of which only 1 are kept"},
		{(&top{limit: 2, weighted: true}).Append(nil), Shown{Value: value.ListOf([]value.Value{value.IntOf(1)})}, "1 is no pair of a value and its weight"},
		{(&hyperLogLog{}).Append(nil), Shown{Value: value.IntOf(1)}, "as it keeps more than that"},
		{(&moments{t: tagStdNumber}).Append(nil), Shown{Value: value.IntOf(1)}, "a standard deviation of numbers: it can't be gone on with"},
		{append([]byte{byte(tagCustom)}, 0), Shown{Value: value.IntOf(1)}, "a user's own aggregate"},
	} {
		got := ""
		cells, err := Restate(nil, tc.zero, cols, []Shown{tc.shown})
		if err != nil {
			got = err.Error()
		} else {
			vs, err := Results(nil, cells)
			got = fmt.Sprint(vs[0], err)
			tc.want += " <nil>"
			if cells[0] != tc.zero[0] {
				t.Errorf("it became %s", tag(cells[0]))
			}
		}
		if got != tc.want && (err == nil || !strings.Contains(got, tc.want)) {
			t.Errorf("%+v: %s, want %s", tc.shown, got, tc.want)
		}
	}
}
