package value_test

import (
	"bytes"
	"errors"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

type null[T any] struct {
	V     T
	Valid bool
}

type base struct{ Region string }

type flat struct {
	base
	ID      uint64
	Small   int8
	Ratio   float64
	Half    float32
	OK      bool
	When    time.Time
	Took    time.Duration
	Raw     []byte
	Hash    [4]byte
	Amount  decimal.Decimal
	Delay   null[int64]
	Note    *string
	Renamed string `trident:"other"`
	Skipped func() `trident:"-"`
}

type nested struct {
	Name string
	Tags []string
	Of   map[string]int64
	Deep struct{ A, B *int }
	Addr netip.Addr
}

func TestColumns(t *testing.T) {
	c, err := value.KeyOf[flat]()
	if err != nil {
		t.Fatal(err)
	}
	want := []state.Column{
		{Name: "region", Type: "string"},
		{Name: "id", Type: "int"},
		{Name: "small", Type: "int"},
		{Name: "ratio", Type: "float"},
		{Name: "half", Type: "float"},
		{Name: "ok", Type: "bool"},
		{Name: "when", Type: "timestamp"},
		{Name: "took", Type: "int"},
		{Name: "raw", Type: "bytes"},
		{Name: "hash", Type: "bytes"},
		{Name: "amount", Type: "decimal"},
		{Name: "delay", Type: "int"},
		{Name: "note", Type: "string"},
		{Name: "other", Type: "string"},
	}
	if got := c.Columns(); !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	r, err := value.RowOf[nested]()
	if err != nil {
		t.Fatal(err)
	}
	want = []state.Column{{Name: "name", Type: "string"}, {Name: "tags", Type: "any"}, {Name: "of", Type: "any"}, {Name: "deep", Type: "any"}, {Name: "addr", Type: "any"}}
	if got := r.Columns(); !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	s, err := value.KeyOf[string]()
	if err != nil || s.Columns()[0].Name != "key" {
		t.Errorf("%v, %v", s, err)
	}
	p, err := value.KeyOf[struct{ A, B int }]("x", "y")
	if err != nil || p.Columns()[1].Name != "y" {
		t.Errorf("%v, %v", p, err)
	}
	cell, err := value.CellOf[struct{ A, B int }]("pair")
	if err != nil || !slices.Equal(cell.Columns(), []state.Column{{Name: "pair", Type: "any"}}) {
		t.Errorf("%v, %v", cell, err)
	}
}

func TestUnsupportedTypes(t *testing.T) {
	key := func(_ any, err error) error { return err }
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"map key":          {key(value.KeyOf[map[string]int]()), "can't be (part of) a key"},
		"nested key":       {key(value.KeyOf[nested]()), "field Tags of value_test.nested"},
		"channel":          {key(value.RowOf[struct{ C chan int }]()), "field C of struct"},
		"interface":        {key(value.RowOf[any]()), "can't be kept"},
		"deep interface":   {key(value.RowOf[struct{ M map[string]any }]()), "can't be kept"},
		"unexported":       {key(value.RowOf[struct{ A, b int }]()), "field b"},
		"deep unexported":  {key(value.RowOf[struct{ M []struct{ a int } }]()), "can't be kept"},
		"nothing":          {key(value.KeyOf[struct{}]()), "no exported fields"},
		"same name":        {key(value.KeyOf[struct{ AB, Ab int }]("x", "x")), "two columns named x"},
		"too many names":   {key(value.KeyOf[string]("a", "b")), "2 names are given"},
		"number of names":  {key(value.KeyOf[struct{ A, B int }]("a")), "2 fields; 1 names"},
		"bool keys of map": {key(value.RowOf[map[bool]int]()), "can't be kept"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, c.err, c.want)
		}
	}
}

func TestFlatRoundTrip(t *testing.T) {
	keys, err := value.KeyOf[flat]()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := value.RowOf[flat]()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		x := drawFlat(t)
		k, err := keys.Encode(nil, x)
		if err != nil {
			t.Fatal(err)
		}
		got, err := keys.Decode(k)
		if err != nil || !reflect.DeepEqual(got, x) {
			t.Fatalf("key of %+v came back as %+v, %v", x, got, err)
		}
		b, err := rows.Encode(nil, x)
		if err != nil {
			t.Fatal(err)
		}
		got, err = rows.Decode(b)
		if err != nil || !reflect.DeepEqual(got, x) {
			t.Fatalf("row of %+v came back as %+v, %v", x, got, err)
		}
		if _, err := rows.Decode(append(b, 0)); !errors.Is(err, value.ErrCorrupt) {
			t.Fatalf("a byte too many: %v", err)
		}
		if _, err := rows.Decode(b[:len(b)-1]); err == nil {
			t.Fatal("a byte too few is taken")
		}
	})
}

func drawFlat(t *rapid.T) flat {
	x := flat{
		base: base{texts.Draw(t, "region")}, ID: rapid.Uint64().Draw(t, "id"), Small: rapid.Int8().Draw(t, "small"),
		Ratio: rapid.Float64().Draw(t, "ratio") + 0, Half: rapid.Float32().Draw(t, "half") + 0, OK: rapid.Bool().Draw(t, "ok"),
		Took: time.Duration(rapid.Int64().Draw(t, "took")), Raw: []byte(texts.Draw(t, "raw")), Amount: decimals.Draw(t, "amount"),
		Hash: [4]byte{1, byte(rapid.Byte().Draw(t, "hash")), 0, 255}, Renamed: texts.Draw(t, "renamed"),
	}
	if len(x.Raw) == 0 {
		x.Raw = nil
	}
	if rapid.Bool().Draw(t, "has time") {
		x.When = time.Unix(0, rapid.Int64().Draw(t, "when")/2).UTC()
	}
	if rapid.Bool().Draw(t, "has delay") {
		x.Delay = null[int64]{rapid.Int64().Draw(t, "delay"), true}
	}
	if rapid.Bool().Draw(t, "has note") {
		s := texts.Draw(t, "note")
		x.Note = &s
	}
	return x
}

func TestNestedRoundTrip(t *testing.T) {
	rows, err := value.RowOf[nested]()
	if err != nil {
		t.Fatal(err)
	}
	seven := 7
	for _, x := range []nested{
		{},
		{Name: "n", Tags: []string{"<a>", "\ufffd", `\ufffd`}, Of: map[string]int64{"b": math.MaxInt64, "a": math.MinInt64}, Addr: netip.MustParseAddr("10.0.0.1")},
		{Tags: []string{}, Of: map[string]int64{}},
		func() (x nested) { x.Deep.A = &seven; return x }(),
	} {
		b, err := rows.Encode(nil, x)
		if err != nil {
			t.Fatal(err)
		}
		got, err := rows.Decode(b)
		if err != nil || !reflect.DeepEqual(got, x) {
			t.Errorf("%+v came back as %+v, %v", x, got, err)
		}
		for range 20 { // map order
			if again, err := rows.Encode(nil, x); err != nil || !bytes.Equal(again, b) {
				t.Fatalf("%q, before %q, %v", again, b, err)
			}
		}
	}
	if _, err := rows.Encode(nil, nested{Tags: []string{"\xff"}}); err == nil {
		t.Error("a string that isn't UTF-8 is taken within JSON")
	}
	whole, err := value.CellOf[nested]()
	if err != nil {
		t.Fatal(err)
	}
	x := nested{Name: "n", Tags: []string{"a"}, Addr: netip.MustParseAddr("10.0.0.1")}
	b, err := whole.Encode(nil, x)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := whole.Decode(b); err != nil || !reflect.DeepEqual(got, x) {
		t.Errorf("%+v, %v", got, err)
	}
	floats, err := value.RowOf[[]float64]()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := floats.Encode(nil, []float64{math.NaN()}); err == nil {
		t.Error("NaN is taken within JSON")
	}
}

func TestTimesOutOfRange(t *testing.T) {
	keys, err := value.KeyOf[time.Time]()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"1677-01-01T00:00:00Z", "2262-12-01T00:00:00Z", "9999-12-31T00:00:00Z"} {
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := keys.Encode(nil, at); err == nil {
			t.Errorf("%s gives %x", s, b)
		}
	}
	b, err := keys.Encode(nil, time.Time{})
	if err != nil || !bytes.Equal(b, value.AppendKeyNull(nil)) {
		t.Errorf("the zero time gives %x, %v", b, err)
	}
	if at, err := keys.Decode(b); err != nil || !at.IsZero() {
		t.Errorf("null gives %v, %v", at, err)
	}
	func() {
		defer func() {
			var e *batch.Error
			if err, ok := recover().(error); !ok || !errors.As(err, &e) || e.Code != batch.CodeBadRecord {
				t.Errorf("Append panics with %v", err)
			}
		}()
		keys.Append(nil, time.Unix(1<<40, 0))
	}()
	valid, err := value.KeyOf[null[time.Time]]()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := valid.Encode(nil, null[time.Time]{Valid: true}); err == nil {
		t.Errorf("a zero time that isn't null gives %x", b)
	}
}

func TestDecodeChecksTheType(t *testing.T) {
	small, err := value.RowOf[int8]()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []value.Value{value.IntOf(128), value.FloatOf(1), value.NullValue(), value.StringOf("1"), value.UintOf(1 << 63)} {
		if got, err := small.Decode(value.AppendBinary(nil, v)); err == nil {
			t.Errorf("%v (%s) gives %d", v, v.Kind(), got)
		}
	}
	wide, err := value.RowOf[uint64]()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wide.Decode(value.AppendBinary(nil, value.UintOf(math.MaxUint64))); err != nil || got != math.MaxUint64 {
		t.Errorf("%d, %v", got, err)
	}
	for _, v := range []value.Value{value.IntOf(-1), value.WideIntOf(1, 0)} {
		if got, err := wide.Decode(value.AppendBinary(nil, v)); err == nil {
			t.Errorf("%v gives %d", v, got)
		}
	}
}

func TestKeysOfNamedTypesKeepTheOrder(t *testing.T) {
	type id uint64
	keys, err := value.KeyOf[id]()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := id(rapid.Uint64().Draw(t, "a")), id(rapid.Uint64().Draw(t, "b"))
		ka, _ := keys.Encode(nil, a)
		kb, _ := keys.Encode(nil, b)
		if got := bytes.Compare(ka, kb); got < 0 != (a < b) || got == 0 != (a == b) {
			t.Fatalf("%d, %d: %d", a, b, got)
		}
	})
}

func TestAppendDoesNotAllocate(t *testing.T) {
	text := "some text"
	x := flat{base: base{"eu"}, ID: 1, When: time.Unix(1, 0), Raw: []byte("raw"), Note: &text, Amount: decimal.FromInt(12)}
	keys, err := value.KeyOf[flat]()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := value.RowOf[flat]()
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() { buf, _ = keys.Encode(buf[:0], x) }); n != 0 {
		t.Errorf("%v allocations for a key", n)
	}
	if n := testing.AllocsPerRun(100, func() { buf = rows.Append(buf[:0], x) }); n != 0 {
		t.Errorf("%v allocations for a row", n)
	}
}

func BenchmarkKeyOfString(b *testing.B) {
	keys, err := value.KeyOf[string]()
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = keys.Encode(buf[:0], "user-000123")
	}
}

func BenchmarkKeyOfStruct(b *testing.B) {
	type route struct{ Airline, Dest string }
	keys, err := value.KeyOf[route]()
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 0, 64)
	r := route{"United Air Lines Inc.", "SFO"}
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = keys.Encode(buf[:0], r)
	}
}
