package agg_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/state"
)

// sketches has each accumulator that keeps more than a number.
type sketches struct {
	First    agg.FirstN[string]       `trident:",n=2"`
	Last     agg.LastN[*string]       `trident:"last_notes,n=3"`
	Units    agg.Top[int64]           `trident:",k=3"`
	Shops    agg.TopBy[string, int64] `trident:",k=2"`
	Cheapest agg.MinBy[string, decimal.Decimal]
	Dearest  agg.MaxBy[*string, decimal.Decimal]
	Distinct agg.Distinct[string]
	Median   agg.Quantile[cents] `trident:",p=0.5"`
	Spread   agg.Variance[uint64]
	Devs     agg.StdDev[float64]
}

func addSketches(s *sketches, v sale) {
	s.First.Add(v.Shop)
	s.Last.Add(v.Note)
	s.Units.Add(v.Units)
	s.Shops.Add(v.Shop, v.Units)
	s.Cheapest.Add(v.Shop, v.Amount)
	s.Dearest.Add(v.Note, v.Amount)
	s.Distinct.Add(v.Shop)
	s.Median.Add(cents(v.Units))
	s.Spread.Add(uint64(v.Units))
	s.Devs.Add(v.Price)
}

func salesForSketches() []sale {
	note := func(s string) *string { return &s }
	return []sale{
		{Shop: "b", Units: 5, Price: 1, Amount: decimal.FromInt(7), Note: note("x")},
		{Shop: "a", Units: 9, Price: 2, Amount: decimal.FromInt(3)},
		{Shop: "c", Units: 9, Price: 4, Amount: decimal.FromInt(3), Note: note("y")},
		{Shop: "b", Units: 7, Price: 8, Amount: decimal.FromInt(8), Note: note("z")},
	}
}

func TestSketchesInAStruct(t *testing.T) {
	a := agg.Fields(addSketches)
	if err := a.Err(); err != nil {
		t.Fatal(err)
	}
	want := []state.Column{
		{Name: "first", Type: "list", Agg: "first_n(2)"},
		{Name: "last_notes", Type: "list", Agg: "last_n(3)"},
		{Name: "units", Type: "list", Agg: "top(3)"},
		{Name: "shops", Type: "list", Agg: "top(2)"},
		{Name: "cheapest", Type: "string", Agg: "min_by"},
		{Name: "dearest", Type: "string", Agg: "max_by"},
		{Name: "distinct", Type: "int", Agg: "distinct"},
		{Name: "median", Type: "float", Agg: "quantile(0.5)"},
		{Name: "spread", Type: "float", Agg: "variance"},
		{Name: "devs", Type: "float", Agg: "stddev"},
	}
	if got := a.Columns(); !slices.Equal(got, want) {
		t.Fatalf("%v\nwant %v", got, want)
	}
	cells := delta(t, a, salesForSketches())
	wantResults(t, cells, `["b","a"]`, `["x","y","z"]`, `[9,7,5]`, `[["a",9],["c",9]]`, `"a"`, `"z"`, `3`, `7`, `3.6666666666666665`, `3.095695936834452`)
	wantResults(t, delta(t, a, nil), `[]`, `[]`, `[]`, `[]`, `null`, `null`, `0`, `null`, `null`, `null`)

	decode, err := agg.Decoder[sketches](a.Columns())
	if err != nil {
		t.Fatal(err)
	}
	var s sketches
	if err := decode(cells, &s); err != nil {
		t.Fatal(err)
	}
	cheapest, _ := s.Cheapest.Value()
	dearest, _ := s.Dearest.Value()
	median, _ := s.Median.Value()
	got := strings.TrimSpace(fmt.Sprintln(s.First.Values(), len(s.Last.Values()), *s.Last.Values()[2], s.Units.Values(), s.Shops.Values(), cheapest, *dearest, s.Distinct.Value(), median, s.Spread, s.Devs))
	if want := "[b a] 3 z [9 7 5] [{a 9} {c 9}] a z 3 7 3.6666666666666665 3.095695936834452"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var plain struct {
		First, LastNotes []string
		Units            []int64
		Shops            []json.RawMessage
		Cheapest         string
		Dearest          *string
		Distinct         int64
		Median           float64
		Spread, Devs     *float64
	}
	into, err := agg.Decoder[struct {
		First, LastNotes []string
		Units            []int64
		Shops            []json.RawMessage
		Cheapest         string
		Dearest          *string
		Distinct         int64
		Median           float64
		Spread, Devs     *float64
	}](a.Columns())
	if err != nil {
		t.Fatal(err)
	}
	if err := into(cells, &plain); err != nil || fmt.Sprint(plain.First, plain.LastNotes, plain.Units, plain.Distinct, plain.Median) != "[b a] [x y z] [9 7 5] 3 7" {
		t.Errorf("%+v, %v", plain, err)
	}
}

// TestSketchesAreUndone: what a function did to a slot that it failed on half-way leaves no trace.
func TestSketchesAreUndone(t *testing.T) {
	a := agg.Fields(addSketches)
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.Custom(func(t *rapid.T) sale {
			s := sale{
				Shop: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "shop"), Units: rapid.Int64Range(0, 9).Draw(t, "units"),
				Price: rapid.Float64Range(0, 9).Draw(t, "price"), Amount: decimal.FromInt(rapid.Int64Range(0, 9).Draw(t, "amount")),
			}
			if rapid.Bool().Draw(t, "has a note") {
				s.Note = &s.Shop
			}
			return s
		})
		with, without := a.NewTable(), a.NewTable()
		with.New()
		without.New()
		for range rapid.IntRange(0, 30).Draw(t, "sales") {
			s := draw.Draw(t, "sale")
			with.Save(0)
			if err := with.Add(0, s); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "undone") {
				with.Restore(0)
				continue
			}
			if err := without.Add(0, s); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := with.Append(nil, 0), without.Append(nil, 0); string(got) != string(want) {
			t.Fatalf("%x, want %x", got, want)
		}
	})
}

func TestSketchConstructors(t *testing.T) {
	shop := func(s sale) string { return s.Shop }
	units := func(s sale) int64 { return s.Units }
	amount := func(s sale) decimal.Decimal { return s.Amount }
	for _, c := range []struct {
		a    agg.Aggregation[sale]
		want string
	}{
		{agg.FirstNOf("x", 3, shop), `["b","a","c"]`},
		{agg.LastNOf("x", 1, shop), `["b"]`},
		{agg.TopOf("x", 2, amount), `["8","7"]`},
		{agg.TopByOf("x", 1, shop, units), `[["a",9]]`},
		{agg.MinByOf("x", shop, units), `"b"`},
		{agg.MaxByOf("x", shop, units), `"a"`},
		{agg.DistinctOf("x", shop), `3`},
		{agg.QuantileOf("x", 0.75, units), `9`},
		{agg.VarianceOf("x", amount), `"6.9166666666666667"`},
		{agg.StdDevOf("x", units), `1.9148542155126762`},
	} {
		if err := c.a.Err(); err != nil {
			t.Error(err)
			continue
		}
		wantResults(t, delta(t, c.a, salesForSketches()), c.want)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{agg.FirstNOf("x", 0, shop).Err(), "aggregate x: n: a number from 1 to 1000 is due"},
		{agg.TopOf("x", 1001, shop).Err(), "aggregate x: k: a number from 1 to 1000 is due"},
		{agg.QuantileOf("x", 0, units).Err(), "aggregate x: p: a number above 0 and up to 1 is due"},
		{agg.DistinctOf("x", func(s sale) chan int { return nil }).Err(), "chan int"},
		{agg.Fields(func(*struct{ X agg.FirstN[string] }, int) {}).Err(), `say its n by a tag: trident:",n=…"`},
		{agg.Fields(func(*struct {
			X agg.FirstN[string] `trident:",k=2"`
		}, int) {
		}).Err(), `say its n by a tag`},
		{agg.Fields(func(*struct {
			X agg.Quantile[int] `trident:",p=2"`
		}, int) {
		}).Err(), "p=2: a number above 0"},
		{agg.Fields(func(*struct {
			X agg.Counter `trident:",n=2"`
		}, int) {
		}).Err(), `"n=2": it has no options`},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%v, want %s", c.err, c.want)
		}
	}
	// A plain accumulator reads what any parameter made.
	a := agg.LastNOf("x", 2, shop)
	decode, err := agg.Decoder[agg.LastN[string]](a.Columns())
	if err != nil {
		t.Fatal(err)
	}
	var l agg.LastN[string]
	if err := decode(delta(t, a, salesForSketches()), &l); err != nil || fmt.Sprint(l.Values(), l) != `[c b] ["c","b"]` {
		t.Errorf("%v, %v", l, err)
	}
}
