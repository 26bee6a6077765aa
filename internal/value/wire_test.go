package value_test

import (
	"bytes"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
)

func over[T any](t *testing.T, v T) T {
	t.Helper()
	w, err := value.WireOf[T]()
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.Append([]byte("x"), &v)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := w.Append([]byte("x"), &v); err != nil || !bytes.Equal(again, b) {
		t.Errorf("encoded twice: %x, %x, %v", b, again, err)
	}
	if _, rest, err := value.DecodeBinary(b[1:]); err != nil || len(rest) > 0 {
		t.Errorf("%T isn't in the form of a value: %v, %d bytes left", v, err, len(rest))
	}
	var got T
	rest, err := w.DecodeInto(append(b[1:], "rest"...), &got)
	if err != nil || string(rest) != "rest" {
		t.Fatalf("%T: %v, behind it %q", v, err, rest)
	}
	return got
}

func same[T any](t *testing.T, vs ...T) {
	t.Helper()
	for _, v := range vs {
		if got := over(t, v); !reflect.DeepEqual(got, v) {
			t.Errorf("%T: got %+v, want %+v", v, got, v)
		}
	}
}

type tree struct {
	Name     string
	Children []*tree
	Attrs    map[string][]int
}

type numbered struct{ ID int64 }

type dated struct {
	time.Time
	Note string
}

func TestWireRoundTrip(t *testing.T) {
	dec, err := decimal.Parse("-1.50")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(1969, 7, 20, 20, 17, 40, 123456789, time.UTC)
	same(t, "", "a\x00b", "\xff")
	same(t, true, false)
	same(t, int64(math.MinInt64), -1, 0, math.MaxInt64)
	same(t, uint64(math.MaxUint64), 0)
	same(t, int8(-128))
	same(t, uint8(255))
	same(t, 1.5, math.Inf(-1))
	same(t, float32(0.1))
	same(t, time.Time{}, at)
	same(t, &at, nil)
	same(t, dec, decimal.Decimal{})
	same(t, []byte(nil), []byte{}, []byte{0})
	same(t, []string(nil), []string{}, []string{"a", ""})
	same(t, [2]string{"a", "b"})
	same(t, [16]byte{1, 2})
	same(t, map[string]int(nil), map[string]int{}, map[string]int{"b": 1, "a": 2})
	same(t, map[numbered]bool{{1}: true, {2}: false})
	same(t, struct{}{})
	same(t, codec.Of(3.5), codec.Null[float64]{})
	same(t, codec.Of([]string{"x"}))
	zero, empty := time.Time{}, []int(nil)
	one := &empty
	same(t, &zero, nil)
	same(t, &one, nil)
	same(t, tree{Name: "a", Children: []*tree{{Name: "b"}, nil}, Attrs: map[string][]int{"x": nil, "y": {1}}})
	same(t, struct {
		numbered
		Inner struct{ A, B []*int }
	}{numbered: numbered{7}})
	same(t, dated{at, "landed"}) // not as time.Time would marshal it
	same(t, netip.MustParseAddr("::1"))
	same(t, *big.NewInt(-12345678901234567), *big.NewInt(0))
	same(t, math.Copysign(0, -1))
	if got := over(t, math.Copysign(0, -1)); !math.Signbit(got) {
		t.Error("-0 came out as 0")
	}
	if got := over(t, math.NaN()); got == got {
		t.Errorf("NaN came out as %v", got)
	}
	local := at.In(time.FixedZone("x", 3600))
	if got := over(t, local); !got.Equal(local) || got.Location() != time.UTC {
		t.Errorf("got %v for %v", got, local)
	}
	type partly struct {
		A int
		F func() `trident:"-"`
	}
	if got := over(t, partly{A: 1, F: func() {}}); got.A != 1 || got.F != nil {
		t.Errorf("got %v", got)
	}
}

func TestWireRefuses(t *testing.T) {
	refused := func(err error, words string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	_, err := value.WireOf[any]()
	refused(err, "a interface {} can't be handed")
	_, err = value.WireOf[struct{ A []map[string]chan int }]()
	refused(err, "a chan int (at A[]{}) can't be handed")
	_, err = value.WireOf[struct{ a int }]()
	refused(err, "field a of struct { a int } is unexported")
	_, err = value.WireOf[struct{ Next *struct{ F func() } }]()
	refused(err, "a func() (at Next.F)")
}

func TestWireValuesThatCantBeHeld(t *testing.T) {
	w, err := value.WireOf[time.Time]()
	if err != nil {
		t.Fatal(err)
	}
	far := time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := w.Append(nil, &far); err == nil || !strings.Contains(err.Error(), "outside the years 1678 to 2261") {
		t.Errorf("year 3000: %v", err)
	}
	c, err := value.WireOf[*tree]()
	if err != nil {
		t.Fatal(err)
	}
	ring := &tree{}
	ring.Children = []*tree{ring}
	if _, err := c.Append(nil, &ring); err == nil || !strings.Contains(err.Error(), "in a circle") {
		t.Errorf("a circle: %v", err)
	}
}

func TestWireCutOff(t *testing.T) {
	type row struct {
		A string
		B []int64
		C map[string]*float64
		D netip.Addr
	}
	w, err := value.WireOf[row]()
	if err != nil {
		t.Fatal(err)
	}
	f := 2.5
	b, err := w.Append(nil, &row{A: "abc", B: []int64{1, 300}, C: map[string]*float64{"x": &f, "y": nil}, D: netip.MustParseAddr("10.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		var r row
		if _, err := w.DecodeInto(b[:i], &r); err == nil {
			t.Errorf("%d of %d bytes decode to %+v", i, len(b), r)
		}
	}
}
