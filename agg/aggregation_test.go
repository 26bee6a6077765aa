package agg_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/state"
)

type sale struct {
	Shop   string
	Units  int64
	Price  float64
	Amount decimal.Decimal
	At     time.Time
	Note   *string
}

type cents int32

type totals struct {
	Sales, Large agg.Counter
	Units        agg.Sum[int64]
	Cents        agg.Sum[cents]
	Bytes        agg.Sum[uint64]
	Revenue      agg.Sum[decimal.Decimal]
	Turnover     agg.Sum[float64]
	Least        agg.Min[int64]
	Greatest     agg.Max[float64]
	FirstShop    agg.Min[string]
	Latest       agg.Max[time.Time]
	MeanUnits    agg.Mean[int64]
	MeanAmount   agg.Mean[decimal.Decimal]
	Opened       agg.First[time.Time]
	Note         agg.Last[*string] `trident:"last_note"`
	Shops        agg.Collect[string]
}

func addSale(t *totals, s sale) {
	t.Sales.Inc()
	t.Large.If(s.Units > 10)
	t.Units.Add(s.Units)
	t.Cents.Add(cents(s.Units))
	t.Bytes.Add(uint64(s.Units))
	t.Revenue.Add(s.Amount)
	t.Turnover.Add(s.Price)
	t.Least.Add(s.Units)
	t.Greatest.Add(s.Price)
	t.FirstShop.Add(s.Shop)
	t.Latest.Add(s.At)
	t.MeanUnits.Add(s.Units)
	t.MeanAmount.Add(s.Amount)
	t.Opened.Add(s.At)
	t.Note.Add(s.Note)
	t.Shops.Add(s.Shop)
}

func TestFieldsColumns(t *testing.T) {
	a := agg.Fields(addSale)
	if err := a.Err(); err != nil {
		t.Fatal(err)
	}
	want := []state.Column{
		{Name: "sales", Type: "int", Agg: "count"},
		{Name: "large", Type: "int", Agg: "count"},
		{Name: "units", Type: "int", Agg: "sum"},
		{Name: "cents", Type: "int", Agg: "sum"},
		{Name: "bytes", Type: "int", Agg: "sum"},
		{Name: "revenue", Type: "decimal", Agg: "sum"},
		{Name: "turnover", Type: "float", Agg: "sum"},
		{Name: "least", Type: "int", Agg: "min"},
		{Name: "greatest", Type: "float", Agg: "max"},
		{Name: "first_shop", Type: "string", Agg: "min"},
		{Name: "latest", Type: "timestamp", Agg: "max"},
		{Name: "mean_units", Type: "float", Agg: "avg"},
		{Name: "mean_amount", Type: "decimal", Agg: "avg"},
		{Name: "opened", Type: "timestamp", Agg: "first"},
		{Name: "last_note", Type: "string", Agg: "last"},
		{Name: "shops", Type: "list", Agg: "collect"},
	}
	if got := a.Columns(); !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	if a.Exact() {
		t.Error("float sums are exact")
	}
	exact := agg.Fields(func(a *struct {
		N    agg.Counter
		Sum  agg.Sum[int8]
		Max  agg.Max[float64]
		Mean agg.Mean[decimal.Decimal]
	}, _ int) {
	})
	if err := exact.Err(); err != nil || !exact.Exact() {
		t.Errorf("counts, integers and extremes aren't exact: %v", err)
	}
}

var start = time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)

func sales(notes ...string) []sale {
	var out []sale
	for i, n := range notes {
		d, err := decimal.New(int64(100+i), -2)
		if err != nil {
			panic(err)
		}
		s := sale{Shop: fmt.Sprintf("shop %c", 'c'-rune(i)), Units: int64(9 + i), Price: 0.5 + float64(i), Amount: d, At: start.Add(time.Duration(i) * time.Hour)}
		if n != "" {
			s.Note = &n
		}
		out = append(out, s)
	}
	return out
}

// TestFields takes values through tables, a merge of two partitions and an update of a state.
func TestFields(t *testing.T) {
	a := agg.Fields(addSale)
	all := sales("", "x", "")
	value := state2(t, a, all[:1], all[1:])
	var got totals
	if err := agg.DecodeInto(value, &got); err != nil {
		t.Fatal(err)
	}
	if got.Sales.Value() != 3 || got.Large.Value() != 1 {
		t.Errorf("%d sales, %d large", got.Sales.Value(), got.Large.Value())
	}
	is[int64](t, "units", 30)(got.Units.Value())
	is[cents](t, "cents", 30)(got.Cents.Value())
	is[uint64](t, "bytes", 30)(got.Bytes.Value())
	is[float64](t, "turnover", 4.5)(got.Turnover.Value())
	is[int64](t, "least", 9)(got.Least.Value())
	is[float64](t, "greatest", 2.5)(got.Greatest.Value())
	is[string](t, "first shop", "shop a")(got.FirstShop.Value())
	is[time.Time](t, "latest", start.Add(2*time.Hour))(got.Latest.Value())
	is[float64](t, "mean", 10)(got.MeanUnits.Value())
	is[float64](t, "mean amount", 1.01)(got.MeanAmount.Value())
	is[time.Time](t, "opened", start)(got.Opened.Value())
	if sum, ok := got.Revenue.Value(); !ok || sum.String() != "3.03" {
		t.Errorf("revenue %s, %v", sum, ok)
	}
	if note, ok := got.Note.Value(); !ok || *note != "x" {
		t.Errorf("note %v, %v", note, ok)
	}
	if shops := got.Shops.Values(); !slices.Equal(shops, []string{"shop c", "shop b", "shop a"}) {
		t.Errorf("shops %q", shops)
	}
	want := `{3 1 30 30 30 3.03 4.5 9 2.5 shop a 2026-03-29T02:00:00Z 10 1.01 2026-03-29T00:00:00Z x ["shop c","shop b","shop a"]}`
	if s := fmt.Sprint(got); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
	wantResults(t, value, `3`, `1`, `30`, `30`, `30`, `"3.03"`, `4.5`, `9`, `2.5`, `"shop a"`, `"2026-03-29T02:00:00Z"`, `10`, `"1.01"`,
		`"2026-03-29T00:00:00Z"`, `"x"`, `["shop c","shop b","shop a"]`)
}

// is compares a value with ok = true.
func is[V comparable](t *testing.T, what string, want V) func(V, bool) {
	return func(got V, ok bool) {
		t.Helper()
		if !ok || got != want {
			t.Errorf("%s: %v, %v, want %v", what, got, ok, want)
		}
	}
}

// delta combines values in one slot of a table.
func delta[T any](t fataler, a agg.Aggregation[T], vs []T) []byte {
	table := a.NewTable()
	slot := table.New()
	for _, v := range vs {
		if err := table.Add(slot, v); err != nil {
			t.Fatalf("%v", err)
		}
	}
	return table.Append(nil, slot)
}

// state2 is a state after a batch with the first values and one whose two partitions hold halves of the others.
func state2[T any](t fataler, a agg.Aggregation[T], first, others []T) []byte {
	value, err := a.Update(nil, nil, delta(t, a, first))
	if err != nil {
		t.Fatalf("%v", err)
	}
	half := len(others) / 2
	d, err := a.Merge(nil, delta(t, a, others[:half]), delta(t, a, others[half:]))
	if err == nil {
		value, err = a.Update(nil, value, d)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	return value
}

type fataler interface {
	Fatalf(format string, args ...any)
}

func TestAccumulatorsWithoutValues(t *testing.T) {
	value := delta(t, agg.Fields(addSale), nil)
	wantResults(t, value, `0`, `0`, `null`, `null`, `null`, `null`, `null`, `null`, `null`, `null`, `null`, `null`, `null`, `null`, `null`, `[]`)
	var got totals
	if err := agg.DecodeInto(value, &got); err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprint(got); s != `{0 0 null null null null null null null null null null null null null []}` {
		t.Error(s)
	}
	if _, ok := got.Units.Value(); ok {
		t.Error("a sum of nothing has a value")
	}
	if _, ok := got.MeanAmount.Value(); ok {
		t.Error("a mean of nothing has a value")
	}
	if _, ok := got.Latest.Value(); ok {
		t.Error("a maximum of nothing has a value")
	}
	if v := got.Shops.Values(); len(v) != 0 {
		t.Errorf("collected %q", v)
	}
}

func TestFieldsErrors(t *testing.T) {
	for name, c := range map[string]struct {
		a    interface{ Err() error }
		want string
	}{
		"no struct":   {agg.Fields(func(*int, int) {}), "int is no struct of accumulators"},
		"accumulator": {agg.Fields(func(*agg.Counter, int) {}), "no struct of accumulators"},
		"nothing":     {agg.Fields(func(*struct{}, int) {}), "has no accumulators"},
		"plain field": {agg.Fields(func(*struct{ N int }, int) {}), "field N of struct { N int } is a int and no accumulator"},
		"unexported":  {agg.Fields(func(*struct{ n agg.Counter }, int) {}), "field n of struct { n agg.Counter } is unexported"},
		"same name": {agg.Fields(func(*struct {
			AB, Ab agg.Counter `trident:"x"`
		}, int) {
		}), "two aggregates named x"},
		"first":         {agg.Fields(func(*struct{ F agg.First[chan int] }, int) {}), "field F of struct"},
		"collect of":    {agg.CollectOf("c", func(int) func() { return nil }), "can't be kept"},
		"combine":       {agg.Combine("c", func(int) any { return nil }, func(a, _ any) any { return a }), "can't be kept"},
		"fold":          {agg.Fold("c", func() int { return 0 }, func(a int, _ chan int) int { return a }), "can't be kept"},
		"reduce":        {agg.Reduce("c", func(a, _ struct{ a int }) struct{ a int } { return a }), "unexported"},
		"nested fields": {agg.Fields(func(*struct{ In struct{ N agg.Counter } }, int) {}), "no accumulator"},
	} {
		if err := c.a.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	type counts struct{ N agg.Counter }
	embedded := agg.Fields(func(a *struct {
		counts
		Skipped int `trident:"-"`
		M       agg.Counter
	}, _ int,
	) {
		a.N.Inc()
		a.M.Add(2)
	})
	if err := embedded.Err(); err != nil {
		t.Fatal(err)
	}
	wantResults(t, delta(t, embedded, []int{1}), `1`, `2`)
}

func TestOverflowIsAnErrorThatNamesTheAggregate(t *testing.T) {
	counter := agg.Fields(func(a *struct{ Hits agg.Counter }, n int64) { a.Hits.Add(n) })
	table := counter.NewTable()
	slot := table.New()
	if err := table.Add(slot, math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	wantError(t, table.Add(slot, 1), batch.CodeOverflow, "aggregate hits")
	table.Reset()
	slot = table.New()
	wantError(t, errors.Join(table.Add(slot, math.MinInt64), table.Add(slot, -1)), batch.CodeOverflow, "aggregate hits")
	wide := state2(t, counter, []int64{math.MaxInt64}, []int64{1})
	wantResults(t, wide, `9223372036854775808`)
	var got struct{ Hits agg.Counter }
	if err := agg.DecodeInto(wide, &got); err == nil {
		t.Errorf("it fits a Counter: %v", got)
	}

	huge, err := decimal.Parse(strings.Repeat("9", 980))
	if err != nil {
		t.Fatal(err)
	}
	sum := agg.SumOf("revenue", func(d decimal.Decimal) decimal.Decimal { return d })
	table2 := sum.NewTable()
	slot = table2.New()
	if err := table2.Add(slot, huge); err != nil {
		t.Fatal(err)
	}
	wantError(t, table2.Add(slot, huge), batch.CodeOverflow, "aggregate revenue")

	last := agg.LastOf("seen", func(at time.Time) time.Time { return at })
	table3 := last.NewTable()
	wantError(t, table3.Add(table3.New(), time.Unix(1<<40, 0)), batch.CodeBadRecord, "aggregate seen")
	latest := agg.MaxOf("latest", func(at time.Time) time.Time { return at })
	table4 := latest.NewTable()
	wantError(t, table4.Add(table4.New(), time.Unix(1<<40, 0)), batch.CodeBadRecord, "aggregate latest")
}

func wantError(t *testing.T, err error, code batch.Code, text string) {
	t.Helper()
	var e *batch.Error
	if !errors.As(err, &e) || e.Code != code || e.Kind != batch.Permanent || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %s, %q", err, code, text)
	}
}

// TestSumsBeyondTheirType: wider than what is added up, exact, and never silently cut to it.
func TestSumsBeyondTheirType(t *testing.T) {
	a := agg.SumOf("sum", func(n int64) int64 { return n })
	value := state2(t, a, []int64{math.MaxInt64}, []int64{1})
	wantResults(t, value, `9223372036854775808`)
	if n, err := agg.Scalar[int64](value); err == nil {
		t.Errorf("it fits an int64: %d", n)
	}
	if n, err := agg.Scalar[uint64](value); err != nil || n != 1<<63 {
		t.Errorf("%d, %v", n, err)
	}
	var got struct{ Sum agg.Sum[int64] }
	if err := agg.DecodeInto(value, &got); err != nil || got.Sum.String() != "9223372036854775808" {
		t.Errorf("%s, %v", got.Sum, err)
	}
	if n, ok := got.Sum.Value(); ok {
		t.Errorf("it fits an int64: %d", n)
	}
	back := state2(t, a, []int64{math.MaxInt64, 1}, []int64{-2})
	if n, err := agg.Scalar[int64](back); err != nil || n != math.MaxInt64-1 {
		t.Errorf("%d, %v", n, err)
	}
}

func TestSingles(t *testing.T) {
	id := func(n int64) int64 { return n }
	in := []int64{3, 1, 2}
	for name, c := range map[string]struct {
		a    agg.Aggregation[int64]
		fn   string
		want string
	}{
		"count":    {agg.Count[int64]("x"), "count", `3`},
		"count if": {agg.CountIf("x", func(n int64) bool { return n > 1 }), "count", `2`},
		"sum":      {agg.SumOf("x", id), "sum", `6`},
		"mean":     {agg.MeanOf("x", id), "avg", `2`},
		"min":      {agg.MinOf("x", id), "min", `1`},
		"max":      {agg.MaxOf("x", id), "max", `3`},
		"first":    {agg.FirstOf("x", id), "first", `3`},
		"last":     {agg.LastOf("x", id), "last", `2`},
		"collect":  {agg.CollectOf("x", id), "collect", `[3,1,2]`},
		"combine":  {agg.Combine("x", id, func(a, b int64) int64 { return 10*a + b }), "combine", `312`},
		"reduce":   {agg.Reduce("x", func(a, b int64) int64 { return 10*a + b }), "reduce", `312`},
		"fold":     {agg.Fold("x", func() string { return ">" }, func(a string, n int64) string { return a + fmt.Sprint(n) }), "fold", `">312"`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.a.Err(); err != nil {
				t.Fatal(err)
			}
			if cols := c.a.Columns(); len(cols) != 1 || cols[0].Name != "x" || cols[0].Agg != c.fn {
				t.Errorf("%v", cols)
			}
			if name != "combine" { // this one isn't associative
				wantResults(t, state2(t, c.a, in[:1], in[1:]), c.want)
			}
			value, err := c.a.Update(nil, nil, delta(t, c.a, in))
			if err != nil {
				t.Fatal(err)
			}
			wantResults(t, value, c.want)
		})
	}
}

type span struct {
	From, To int64
	Words    []string
}

func TestCombineOfStructs(t *testing.T) {
	a := agg.Combine("unused", func(n int64) span { return span{n, n, []string{fmt.Sprint(n)}} }, func(a, b span) span {
		return span{min(a.From, b.From), max(a.To, b.To), slices.Concat(a.Words, b.Words)}
	})
	cols := []state.Column{{Name: "from", Type: "int", Agg: "combine"}, {Name: "to", Type: "int", Agg: "combine"}, {Name: "words", Type: "any", Agg: "combine"}}
	if got := a.Columns(); !slices.Equal(got, cols) || a.Err() != nil {
		t.Fatalf("%v, %v", got, a.Err())
	}
	value := state2(t, a, []int64{5}, []int64{9, 2})
	wantResults(t, value, `2`, `9`, `["5","9","2"]`)
	decode, err := agg.Decoder[span](cols)
	if err != nil {
		t.Fatal(err)
	}
	var got span
	if err := decode(value, &got); err != nil || !reflect.DeepEqual(got, span{2, 9, []string{"5", "9", "2"}}) {
		t.Errorf("%+v, %v", got, err)
	}
	if agg.Exact(value) || a.Exact() {
		t.Error("a user's aggregate is exact")
	}
	if _, err := agg.Merge(nil, value, value); err == nil {
		t.Error("a store merges a user's aggregate")
	}
	long := agg.Combine("text", func(s string) string { return s }, func(a, b string) string { return a + b })
	for _, n := range []int{0, 124, 125, 126, 127, 128, 129, 1000, 40000} {
		text := strings.Repeat("x", n)
		if got, err := agg.Scalar[string](delta(t, long, []string{text})); err != nil || got != text {
			t.Errorf("%d characters: %d, %v", n, len(got), err)
		}
	}
}

func TestPanicsOfUsersFunctions(t *testing.T) {
	boom := func(a, _ int64) int64 { panic("boom") }
	combine := agg.Combine("c", func(n int64) int64 { return n }, boom)
	one := delta(t, combine, []int64{1})
	_, err := combine.Merge(nil, one, one)
	wantError(t, err, batch.CodeUserError, "aggregate c: its function panicked: boom")
	reduce := agg.Reduce("r", boom)
	_, err = reduce.Update(nil, nil, delta(t, reduce, []int64{1, 2}))
	wantError(t, err, batch.CodeUserError, "aggregate r: its function panicked: boom")
	_, err = combine.Merge(nil, []byte{0x0f, 9}, one)
	wantError(t, err, batch.CodeStoreDamaged, "aggregate c")
	_, err = reduce.Update(nil, []byte{0x01, 2}, one)
	wantError(t, err, batch.CodeStoreDamaged, "it is a count, not a user's aggregate")
	_, err = reduce.Update(nil, nil, one)
	wantError(t, err, batch.CodeStoreDamaged, "aggregate r")
}

// TestRestoreUndoes: a function that fails half-way leaves no trace once the slot is restored.
func TestRestoreUndoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := agg.Fields(func(a *totals, s sale) {
			addSale(a, s)
			a.Note.Add(s.Note) // twice: buffers change places
			if s.Units < 0 {
				panic("negative")
			}
		})
		undone, kept := a.NewTable(), a.NewTable()
		undone.New()
		kept.New()
		for i, good := range rapid.SliceOfN(rapid.Bool(), 1, 10).Draw(t, "good") {
			s := sales(fmt.Sprint("note ", i), fmt.Sprint("longer note ", i))[i%2]
			if !good {
				s.Units = -1
			} else if err := kept.Add(0, s); err != nil {
				t.Fatal(err)
			}
			func() {
				undone.Save(0)
				defer func() {
					if recover() != nil {
						undone.Restore(0)
					}
				}()
				if err := undone.Add(0, s); err != nil {
					t.Fatal(err)
				}
			}()
		}
		if x, y := undone.Append(nil, 0), kept.Append(nil, 0); !bytes.Equal(x, y) {
			t.Fatalf("%x, want %x", x, y)
		}
	})
	for name, a := range map[string]agg.Aggregation[int64]{
		"combine": agg.Combine("x", func(n int64) int64 { return n }, func(a, b int64) int64 { return a + b }),
		"fold":    agg.Fold("x", func() int64 { return 0 }, func(a, b int64) int64 { return a + b }),
	} {
		table := a.NewTable()
		slot := table.New()
		for _, n := range []int64{1, 2, 3} {
			table.Save(slot)
			if err := table.Add(slot, n); err != nil {
				t.Fatal(err)
			}
			if n == 2 {
				table.Restore(slot)
			}
		}
		value, err := a.Update(nil, nil, table.Append(nil, slot))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { wantResults(t, value, `4`) })
	}
}

// TestTablesForget: after Reset nothing of the batch before shows.
func TestTablesForget(t *testing.T) {
	for name, a := range map[string]agg.Aggregation[sale]{
		"fields":  agg.Fields(addSale),
		"combine": agg.Combine("x", func(s sale) int64 { return s.Units }, func(a, b int64) int64 { return a + b }),
		"fold":    agg.Fold("x", func() int64 { return 0 }, func(a int64, s sale) int64 { return a + s.Units }),
	} {
		table := a.NewTable()
		for batch := range 3 {
			table.Reset()
			for slot := range 3 {
				if got := table.New(); got != slot {
					t.Fatalf("%s: slot %d, want %d", name, got, slot)
				}
				part := sales("a", "", "c")[slot:]
				for _, s := range part {
					if err := table.Add(slot, s); err != nil {
						t.Fatal(err)
					}
				}
				if got, want := table.Append(nil, slot), delta(t, a, part); !bytes.Equal(got, want) {
					t.Errorf("%s, batch %d, slot %d: %x, want %x", name, batch, slot, got, want)
				}
			}
		}
	}
}

func TestDecoders(t *testing.T) {
	type counts struct {
		Clicks agg.Counter
		Mean   agg.Mean[int64]
		Note   agg.Last[string]
	}
	a := agg.Fields(func(a *counts, n int64) { a.Clicks.Inc(); a.Mean.Add(n); a.Note.Add(fmt.Sprint(n)) })
	cells := delta(t, a, []int64{1, 4})
	empty := delta(t, a, nil)

	decode, err := agg.Decoder[counts](a.Columns())
	if err != nil {
		t.Fatal(err)
	}
	var got counts
	for range 2 { // the second time over the first
		if err := decode(cells, &got); err != nil || fmt.Sprint(got) != "{2 2.5 4}" {
			t.Errorf("%v, %v", got, err)
		}
	}
	type plain struct {
		Note   *string
		Mean   float64
		Clicks int64
	}
	decodePlain, err := agg.Decoder[plain](a.Columns())
	if err != nil {
		t.Fatal(err)
	}
	var row plain
	if err := decodePlain(cells, &row); err != nil || row.Clicks != 2 || row.Mean != 2.5 || *row.Note != "4" {
		t.Errorf("%+v, %v", row, err)
	}
	if err := decodePlain(empty, &row); err == nil || !strings.Contains(err.Error(), "column mean: ") {
		t.Errorf("null as a float: %v", err)
	}
	if err := decode(append(cells, 1), &got); err == nil {
		t.Error("a byte too many is taken")
	}
	for name, err := range map[string]error{
		"other kind": second(agg.Decoder[struct{ Clicks, Mean, Note agg.Counter }](a.Columns())),
		"other name": second(agg.Decoder[struct {
			Hits int64
			Mean float64
			Note string
		}](a.Columns())),
		"other type": second(agg.Decoder[struct {
			Clicks string
			Mean   float64
			Note   string
		}](a.Columns())),
		"fewer":       second(agg.Decoder[struct{ Clicks agg.Counter }](a.Columns())),
		"fewer plain": second(agg.Decoder[int64](a.Columns())),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}

	one := agg.Count[int64]("n")
	n := delta(t, one, []int64{7, 7})
	scalar, err := agg.Decoder[int64](one.Columns())
	if err != nil {
		t.Fatal(err)
	}
	var count int64
	if err := scalar(n, &count); err != nil || count != 2 {
		t.Errorf("%d, %v", count, err)
	}
	asCounter, err := agg.Decoder[agg.Counter]([]state.Column{{Name: "late", Type: "int", Agg: "count_if"}})
	if err != nil {
		t.Fatal(err)
	}
	var c agg.Counter
	if err := asCounter(n, &c); err != nil || c.Value() != 2 {
		t.Errorf("%v, %v", c, err)
	}
	list := agg.CollectOf("all", func(n int64) decimal.Decimal { return decimal.FromInt(n) })
	all, err := agg.Decoder[[]decimal.Decimal](list.Columns())
	if err != nil {
		t.Fatal(err)
	}
	var ds []decimal.Decimal
	if err := all(delta(t, list, []int64{1, 2}), &ds); err != nil || fmt.Sprint(ds) != "[1 2]" {
		t.Errorf("%v, %v", ds, err)
	}
	if _, err := agg.Scalar[int64](cells); err == nil {
		t.Error("three results are one")
	}
	if v, err := agg.Scalar[*float64](delta(t, agg.MeanOf("m", func(n int64) int64 { return n }), nil)); err != nil || v != nil {
		t.Errorf("%v, %v", v, err)
	}
}

func second[A any](_ A, err error) error { return err }

func TestFunctions(t *testing.T) {
	if got := strings.Join(agg.Names(), " "); got != "avg collect count count_if distinct first first_n last last_n max max_by min min_by quantile stddev sum top variance" {
		t.Error(got)
	}
	for _, c := range []struct {
		fn, arg, result, err string
		exact                bool
	}{
		{"count", "", "int", "", true},
		{"count_if", "bool", "int", "", true},
		{"count_if", "int", "", "count_if() needs a condition, not an int", false},
		{"sum", "int", "int", "", true},
		{"sum", "float", "float", "", false},
		{"sum", "decimal", "decimal", "", true},
		{"sum", "any", "any", "", false},
		{"sum", "string", "", "sum() needs a number, not a string", false},
		{"avg", "int", "float", "", true},
		{"avg", "decimal", "decimal", "", true},
		{"avg", "float", "float", "", false},
		{"min", "string", "string", "", true},
		{"max", "float", "float", "", true},
		{"max", "list", "", "max() needs a value that has an order, not a list", false},
		{"first", "list", "list", "", false},
		{"last", "timestamp", "timestamp", "", false},
		{"collect", "int", "list", "", false},
	} {
		f, ok := agg.Lookup(c.fn)
		if !ok {
			t.Errorf("no %s", c.fn)
			continue
		}
		got, err := f.Result(c.arg)
		if err != nil && err.Error() != c.err || err == nil && c.err != "" || got != c.result || f.Exact(c.arg) != c.exact {
			t.Errorf("%s of %s: %s, %v, exact %v", c.fn, c.arg, got, err, f.Exact(c.arg))
		}
	}
	if _, ok := agg.Lookup("median"); ok {
		t.Error("median is there")
	}
}

func TestAddDoesNotAllocate(t *testing.T) {
	type row struct {
		N, Late agg.Counter
		Sum     agg.Sum[int64]
		Amount  agg.Sum[decimal.Decimal]
		Max     agg.Max[int64]
		MaxF    agg.Max[float64]
		Mean    agg.Mean[float64]
		Last    agg.Last[string]
	}
	a := agg.Fields(func(a *row, s sale) {
		a.N.Inc()
		a.Late.If(s.Units > 15)
		a.Sum.Add(s.Units)
		a.Amount.Add(s.Amount)
		a.Max.Add(s.Units)
		a.MaxF.Add(s.Price)
		a.Mean.Add(s.Price)
		a.Last.Add(s.Shop)
	})
	table := a.NewTable()
	slot := table.New()
	s := sales("")[0]
	for range 3 { // buffers grow
		if err := table.Add(slot, s); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = table.Add(slot, s) }); n != 0 {
		t.Errorf("%v allocations per value", n)
	}
	buf := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() { buf = table.Append(buf[:0], slot) }); n != 0 {
		t.Errorf("%v allocations per delta", n)
	}
}

type carrier struct {
	Flights, Late agg.Counter
	Distance      agg.Sum[int64]
	Worst         agg.Max[int64]
	MeanDelay     agg.Mean[int64]
}

func carriers() agg.Aggregation[sale] {
	return agg.Fields(func(a *carrier, s sale) {
		a.Flights.Inc()
		a.Late.If(s.Units > 15)
		a.Distance.Add(s.Units)
		a.Worst.Add(s.Units)
		a.MeanDelay.Add(s.Units)
	})
}

func BenchmarkFieldsAdd(b *testing.B) {
	table := carriers().NewTable()
	slot := table.New()
	s := sales("")[0]
	b.ReportAllocs()
	for b.Loop() {
		if err := table.Add(slot, s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCountAdd(b *testing.B) {
	table := agg.Count[string]("n").NewTable()
	slot := table.New()
	b.ReportAllocs()
	for b.Loop() {
		if err := table.Add(slot, "word"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFieldsAppend(b *testing.B) {
	table := carriers().NewTable()
	slot := table.New()
	if err := table.Add(slot, sales("")[0]); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 0, 128)
	b.ReportAllocs()
	for b.Loop() {
		buf = table.Append(buf[:0], slot)
	}
}

func BenchmarkMerge(b *testing.B) {
	a := delta(b, carriers(), sales("", "", ""))
	buf := make([]byte, 0, 128)
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = agg.Merge(buf[:0], a, a); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleFields() {
	type visits struct {
		Views agg.Counter
		Spent agg.Mean[int64]
	}
	type view struct{ Millis int64 }
	a := agg.Fields(func(v *visits, in view) {
		v.Views.Inc()
		v.Spent.Add(in.Millis)
	})
	table := a.NewTable()
	slot := table.New()
	for _, ms := range []int64{200, 400, 900} {
		if err := table.Add(slot, view{ms}); err != nil {
			fmt.Println(err)
		}
	}
	var got visits
	if err := agg.DecodeInto(table.Append(nil, slot), &got); err != nil {
		fmt.Println(err)
	}
	fmt.Println(got.Views, got.Spent)
	// Output: 3 500
}
