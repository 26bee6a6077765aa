package codec_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/decimal"
)

type inner struct {
	Tags []string
}

type written struct {
	Name    string
	N       int64
	Amount  decimal.Decimal
	At      time.Time
	Maybe   codec.Null[int64]
	Is      bool
	F       float64
	Raw     []byte
	In      inner
	Renamed string `trident:"other"`
}

// TestEncodeJSONIsReadBack: what EncodeJSON writes, JSON reads as the same value.
func TestEncodeJSONIsReadBack(t *testing.T) {
	amount, err := decimal.Parse("12345678901234567890.05")
	if err != nil {
		t.Fatal(err)
	}
	enc, err := codec.EncodeJSON[written]()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []written{
		{Amount: amount, At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), In: inner{Tags: []string{}}, Raw: []byte{}},
		{
			Name: "é\"\n", N: math.MinInt64, Amount: amount, At: time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC), Maybe: codec.Of(int64(7)), Is: true, F: 0.1,
			Raw: []byte{0, 255}, In: inner{Tags: []string{"a", "b"}}, Renamed: "r",
		},
	} {
		b, err := enc([]byte("before "), v)
		if err != nil {
			t.Fatal(err)
		}
		text, ok := string(b[:7]), string(b[7:])
		if text != "before " {
			t.Fatalf("%q", b)
		}
		d := codec.JSON[written]().New()
		if err := d.Begin(nil); err != nil {
			t.Fatal(err)
		}
		var got written
		if err := d.Decode(&batch.Record{Value: []byte(ok)}, &got); err != nil {
			t.Fatalf("%s: %v", ok, err)
		}
		if !reflect.DeepEqual(got, v) {
			t.Errorf("%s is read as %+v, want %+v", ok, got, v)
		}
	}
}

func TestEncodeText(t *testing.T) {
	text := func(b []byte, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			return "nil"
		}
		return string(b)
	}
	s, err := codec.EncodeText[string]()
	if err != nil {
		t.Fatal(err)
	}
	n, err := codec.EncodeText[int64]()
	if err != nil {
		t.Fatal(err)
	}
	b, err := codec.EncodeText[[]byte]()
	if err != nil {
		t.Fatal(err)
	}
	null, err := codec.EncodeText[codec.Null[int64]]()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ got, want string }{
		{text(s(nil, "a b")), "a b"},
		{text(n(nil, -7)), "-7"},
		{text(b([]byte("x"), []byte{1})), "x\x01"},
		{text(b(nil, nil)), "nil"},
		{text(null(nil, codec.Null[int64]{})), "nil"},
		{text(null(nil, codec.Of(int64(3)))), "3"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	if _, err := codec.EncodeText[inner](); err == nil {
		t.Error("a struct is taken for one value")
	}
}

func TestFields(t *testing.T) {
	type base struct{ ID int64 }
	type row struct {
		base
		At   time.Time
		Name codec.Null[string] `trident:"label"`
		Skip string             `trident:"-"`
	}
	fields, err := codec.Fields[row]()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range fields {
		got = append(got, f.Name+" "+f.Type.String())
	}
	if want := []string{"id int64", "at time.Time", "label string"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, err := range []error{second(codec.Fields[string]()), second(codec.Fields[time.Time]()), second(codec.Fields[codec.Null[row]]())} {
		if err == nil || !strings.Contains(err.Error(), "is no struct with fields") {
			t.Errorf("%v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
