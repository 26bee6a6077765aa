package vec

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
)

var allTypes = []Type{
	{Kind: Null},
	{Kind: Any},
	{Kind: Bool},
	{Kind: Int},
	{Kind: Float},
	{Kind: Decimal},
	{Kind: String},
	{Kind: Bytes},
	{Kind: Time},
	ListOf(Int), ListOf(String), ListOf(Any), ListOf(Null),
}

// drawValue draws a value that a column of type t holds.
func drawValue(t *rapid.T, typ Type) value.Value {
	if typ.Kind == Null || rapid.IntRange(0, 3).Draw(t, "null") == 0 {
		return value.NullValue()
	}
	switch typ.Kind {
	case Any:
		kinds := []Kind{Bool, Int, Float, Decimal, String, Bytes, Time}
		return drawValue(t, Type{Kind: rapid.SampledFrom(kinds).Draw(t, "kind")})
	case Bool:
		return value.BoolOf(rapid.Bool().Draw(t, "bool"))
	case Int:
		return value.IntOf(rapid.Int64().Draw(t, "int"))
	case Float:
		return value.FloatOf(rapid.Float64().Draw(t, "float"))
	case Decimal:
		return value.DecimalOf(decimal.FromInt(rapid.Int64().Draw(t, "decimal")))
	case String:
		return value.StringOf(rapid.String().Draw(t, "string"))
	case Bytes:
		return value.BytesOf(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
	case Time:
		return value.TimeOf(rapid.Int64().Draw(t, "time"))
	}
	vs := make([]value.Value, rapid.IntRange(0, 3).Draw(t, "length"))
	for i := range vs {
		vs[i] = drawValue(t, Type{Kind: typ.Elem})
	}
	return value.ListOf(vs)
}

func equal(a, b value.Value) bool {
	return bytes.Equal(value.AppendBinary(nil, a), value.AppendBinary(nil, b))
}

func check(t *rapid.T, what string, c *Column, want []value.Value) {
	t.Helper()
	if c.Len() != len(want) {
		t.Fatalf("%s: %d rows, want %d", what, c.Len(), len(want))
	}
	for i, w := range want {
		if got := c.Value(i); !equal(got, w) || c.IsNull(i) != w.IsNull() {
			t.Fatalf("%s of type %s, row %d: %v (null: %v), want %v", what, c.Type, i, got, c.IsNull(i), w)
		}
	}
}

// TestColumn compares columns with slices of values, through chunks of changing types and sizes in the same memory.
func TestColumn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var src, gathered, copied, appended Column
		for range 3 {
			typ := rapid.SampledFrom(allTypes).Draw(t, "type")
			rows := make([]value.Value, rapid.IntRange(0, 6).Draw(t, "rows"))
			src.Reset(typ, 0)
			for i := range rows {
				rows[i] = drawValue(t, typ)
				if err := src.AppendValue(rows[i]); err != nil {
					t.Fatal(err)
				}
			}
			check(t, "appended", &src, rows)

			src.Reset(typ, len(rows))
			for i, v := range rows {
				if err := src.SetValue(i, v); err != nil {
					t.Fatal(err)
				}
			}
			check(t, "set", &src, rows)

			picks := []int32{-1}
			if len(rows) > 0 {
				picks = rapid.SliceOf(rapid.Int32Range(-1, int32(len(rows)-1))).Draw(t, "picks")
			}
			want := make([]value.Value, len(picks))
			for i, r := range picks {
				if r >= 0 {
					want[i] = rows[r]
				}
			}
			gathered.Gather(&src, picks)
			check(t, "gathered", &gathered, want)

			appended.Reset(typ, 0)
			for i := range rows {
				appended.AppendFrom(&src, i)
			}
			check(t, "appended from a column", &appended, rows)

			// Each row comes from one of two columns.
			other := slices.Clone(rows)
			slices.Reverse(other)
			var second Column
			second.Reset(typ, 0)
			for _, v := range other {
				if err := second.AppendValue(v); err != nil {
					t.Fatal(err)
				}
			}
			var a, b []int32
			mixed := make([]value.Value, len(rows))
			for i := range rows {
				if rapid.Bool().Draw(t, "first") {
					a, mixed[i] = append(a, int32(i)), rows[i]
				} else {
					b, mixed[i] = append(b, int32(i)), other[i]
				}
			}
			copied.Reset(typ, len(rows))
			copied.CopyRows(&src, a)
			copied.CopyRows(&second, b)
			check(t, "copied", &copied, mixed)
		}
	})
}

func TestSetValueRefusesOtherKinds(t *testing.T) {
	for _, tc := range []struct {
		t Type
		v value.Value
	}{
		{Type{Kind: Int}, value.FloatOf(1)},
		{Type{Kind: String}, value.BytesOf([]byte("x"))},
		{Type{Kind: Null}, value.IntOf(1)},
		{ListOf(Int), value.IntOf(1)},
		{ListOf(Int), value.ListOf([]value.Value{value.IntOf(1), value.StringOf("x")})},
	} {
		var c Column
		c.Reset(tc.t, 1)
		if err := c.SetValue(0, tc.v); err == nil || !c.IsNull(0) {
			t.Errorf("%v in a column of type %s: %v, null: %v", tc.v, tc.t, err, c.IsNull(0))
		}
	}
}

func TestAppended(t *testing.T) {
	var c Column
	c.Reset(Type{Kind: Int}, 0)
	c.AppendNull()
	c.Int = append(c.Int, 7, 8)
	c.Appended(2)
	if got := fmt.Sprint(c.Len(), c.Null, c.Int[1:]); got != "3 [true false false] [7 8]" {
		t.Error(got)
	}
}

func TestArena(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a Arena
		for range 2 {
			a.Reset()
			var parts [][]byte
			var want []string
			for i := range rapid.IntRange(1, 40).Draw(t, "parts") {
				n := rapid.SampledFrom([]int{0, 1, 7, 100, 40_000, 70_000}).Draw(t, "size")
				text := bytes.Repeat([]byte{byte(i)}, n)
				switch rapid.IntRange(0, 2).Draw(t, "how") {
				case 0:
					b := a.Alloc(n)
					copy(b, text)
					parts = append(parts, b)
				case 1:
					parts = append(parts, a.Copy(text))
				case 2:
					parts = append(parts, a.Take(append(a.Tail(rapid.IntRange(0, n).Draw(t, "expected")), text...)))
				}
				want = append(want, string(text))
			}
			for i, p := range parts {
				if string(p) != want[i] {
					t.Fatalf("part %d of %d bytes was overwritten", i, len(want[i]))
				}
				if cap(p) != len(p) {
					t.Fatalf("part %d: capacity %d beyond its %d bytes", i, cap(p), len(p))
				}
			}
		}
	})
}

// TestReuse makes sure that chunks of the same size need no memory once the first one had it.
func TestReuse(t *testing.T) {
	var c, g Column
	var a Arena
	picks := Iota(nil, 1000)
	fill := func() {
		a.Reset()
		c.Reset(ListOf(String), 0)
		for range 1000 {
			start := c.Elems.Len()
			c.Elems.AppendStr(a.Copy([]byte("word")))
			c.Elems.AppendNull()
			c.AppendSpan(start)
		}
		g.Gather(&c, picks)
		picks = Iota(picks, 1000)
	}
	fill()
	if n := testing.AllocsPerRun(10, fill); n > 0 {
		t.Errorf("%v allocations in a chunk", n)
	}
}

func BenchmarkGather(b *testing.B) {
	const n = 4096
	var ints, strings, out Column
	ints.Reset(Type{Kind: Int}, n)
	strings.Reset(Type{Kind: String}, n)
	for i := range n {
		ints.Int[i], strings.Str[i] = int64(i), []byte("carrier")
	}
	rows := Iota(nil, n)
	for name, c := range map[string]*Column{"int": &ints, "string": &strings} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				out.Gather(c, rows)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/row")
		})
	}
}
