package columnar

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

const orderProto = `syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "common.proto";
message Other { string x = 1; }
message Order {
  enum State { NEW = 0; DONE = 1; }
  int64 id = 1;
  sint32 delta = 2;
  uint64 big = 3;
  fixed32 code = 4;
  double ratio = 5;
  bool paid = 6;
  State state = 7;
  optional string note = 8;
  bytes raw = 9;
  repeated int32 counts = 10;
  repeated string tags = 11;
  map<string, int64> labels = 12;
  Customer customer = 13;
  google.protobuf.Timestamp at = 14;
  google.protobuf.Duration took = 15;
  google.protobuf.StringValue wrapped = 16;
  oneof pay { string card = 17; int64 cash = 18; Customer account = 19; }
  common.Place place = 20;
}
message Customer { string name = 1; int32 age = 2; Customer referrer = 3; }
`

func protoOrder(t testing.TB) *ProtoMessage {
	t.Helper()
	f, err := ParseProtoText("order.proto", map[string]string{"order.proto": orderProto, "common.proto": `syntax = "proto3"; package common; message Place { string city = 1; }`})
	if err != nil {
		t.Fatal(err)
	}
	m, err := f.Message("Order")
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Index(); len(got) != 1 || got[0] != 1 {
		t.Errorf("Order lies at %v", got)
	}
	if at, err := f.At(m.Index()); err != nil || at.Name() != "shop.Order" {
		t.Errorf("at its own place lies %v, %v", at, err)
	}
	return m
}

func encodeProto(t testing.TB, m *ProtoMessage, json string) []byte {
	t.Helper()
	d := dynamicpb.NewMessage(m.desc)
	if err := protojson.Unmarshal([]byte(json), d); err != nil {
		t.Fatal(err)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const orderJSON = `{"id":"1152921504606846976","delta":-3,"big":"18446744073709551615","code":7,"ratio":0.1,"paid":true,"state":"DONE","note":"","raw":"/wA=",
 "counts":[1,-2,3],"tags":["a","b"],"labels":{"x":"5","y":"6"},"customer":{"name":"Ada","referrer":{"age":4}},"at":"2024-02-29T01:02:03.000000004Z","took":"-1.5s","wrapped":"w","cash":"9","place":{"city":"Rome"}}`

func TestProtoValues(t *testing.T) {
	m := protoOrder(t)
	names := []string{"id", "delta", "big", "code", "ratio", "paid", "state", "note", "raw", "counts", "tags", "labels.x", "labels.z", "customer.name", "customer.age", "customer.referrer.age", "customer.referrer.referrer.age", "at", "took", "wrapped", "card", "cash", "account.name", "place.city", "nowhere"}
	for json, want := range map[string]string{
		orderJSON: `id=1152921504606846976 delta=-3 big=18446744073709551615 code=7 ratio=0.1 paid=true state="DONE" note="" raw="/wA=" counts=[1,-2,3] tags=["a","b"] labels.x=5 labels.z=null customer.name="Ada" customer.age=0 ` +
			`customer.referrer.age=4 customer.referrer.referrer.age=null at="2024-02-29T01:02:03.000000004Z" took=-1500000000 wrapped="w" card=null cash=9 account.name=null place.city="Rome" nowhere=null`,
		`{}`: `id=0 delta=0 big=0 code=0 ratio=0 paid=false state="NEW" note=null raw="" counts=[] tags=[] labels.x=null labels.z=null customer.name=null customer.age=null ` +
			`customer.referrer.age=null customer.referrer.referrer.age=null at=null took=null wrapped=null card=null cash=null account.name=null place.city=null nowhere=null`,
	} {
		ts := columns(names...)
		r := NewProtoReader(m, ts, noText)
		// The second time, what the first has left must not show.
		b := encodeProto(t, m, json)
		if err := r.Read(encodeProto(t, m, orderJSON), 0); err != nil {
			t.Fatal(err)
		}
		if got := rowText(t, r, b, ts); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestProtoWire holds what a schema's library never writes, and Protobuf asks readers to take.
func TestProtoWire(t *testing.T) {
	m := protoOrder(t)
	str := func(b []byte, num protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
	}
	num := func(b []byte, num protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
	}
	for name, c := range map[string]struct {
		b    []byte
		want string // of the row, or of the error
	}{
		"the last of a oneof counts":      {num(str(nil, 17, "card"), 18, 5), "card=null cash=5 customer.name=null customer.age=null counts=[] id=0"},
		"and the other way round":         {str(num(nil, 18, 5), 17, "c"), `card="c" cash=null customer.name=null customer.age=null counts=[] id=0`},
		"a message goes on":               {str(str(nil, 13, string(str(nil, 1, "A"))), 13, string(num(nil, 2, 3))), `card=null cash=null customer.name="A" customer.age=3 counts=[] id=0`},
		"the last of a number counts":     {num(num(nil, 1, 1), 1, 2), "card=null cash=null customer.name=null customer.age=null counts=[] id=2"},
		"a list packed and not":           {str(num(nil, 10, 1), 10, "\x02\x03"), "card=null cash=null customer.name=null customer.age=null counts=[1,2,3] id=0"},
		"unknown fields":                  {str(num(nil, 1, 4), 99, "x"), "card=null cash=null customer.name=null customer.age=null counts=[] id=4"},
		"another wire type":               {str(nil, 1, "x"), "written by another schema"},
		"a cut record":                    {[]byte{0x08}, "unexpected EOF"},
		"a length beyond the record":      {[]byte{0x6a, 0x7f}, "unexpected EOF"},
		"a string that isn't UTF-8":       {str(nil, 17, "\xff"), "is not UTF-8"},
		"field number 0":                  {[]byte{0x00, 0x00}, "invalid field number"},
		"a message that is a list's text": {str(nil, 13, "\xff"), "unexpected EOF"},
	} {
		ts := columns("card", "cash", "customer.name", "customer.age", "counts", "id")
		r := NewProtoReader(m, ts, noText)
		if err := r.Read(c.b, 0); err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
			continue
		}
		if got := rowText(t, r, c.b, ts); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	ts := columns("state")
	if err := NewProtoReader(m, ts, noText).Read(num(nil, 7, 9), 0); err == nil || !strings.Contains(err.Error(), "no value of number 9") {
		t.Errorf("an unknown enum: %v", err)
	}
	for _, seconds := range []int64{1 << 40, -1 << 40} {
		ts := columns("at")
		b := str(nil, 14, string(num(nil, 1, uint64(seconds))))
		if err := NewProtoReader(m, ts, noText).Read(b, 0); err == nil {
			t.Errorf("a time of %d s is taken", seconds)
		}
	}
}

// TestProtoTextOfNoValue: a text that stands for a decimal is read where it occurs; where it doesn't, the schema's "" is none.
func TestProtoTextOfNoValue(t *testing.T) {
	m := protoOrder(t)
	ts := columns("customer.name")
	ts[0].Col.Reset(vec.Type{Kind: vec.Decimal}, 1)
	text := func(c *vec.Column, i int, text []byte) error {
		d, err := decimal.ParseBytes(text)
		c.Dec[i] = d
		return err
	}
	r := NewProtoReader(m, ts, text)
	for _, c := range []struct{ json, want string }{
		{`{"customer":{"name":"1.5"}}`, `"1.5"`}, {`{"customer":{"age":1}}`, "field name: not a decimal number"}, {`{"customer":{"name":"2"}}`, `"2"`}, {`{}`, "null"},
	} {
		err := r.Read(encodeProto(t, m, c.json), 0)
		got := string(value.AppendJSON(nil, ts[0].Col.Value(0)))
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.json, got, c.want)
		}
	}
}

func TestProtoFields(t *testing.T) {
	m := protoOrder(t)
	var all []string
	for _, f := range m.Fields() {
		all = append(all, f.Name+" "+f.Type.String())
	}
	want := "id int, delta int, big any, code int, ratio float, paid bool, state string, note string, raw bytes, counts any, tags any, customer.name string, customer.age int, at timestamp, took int, wrapped string, card string, cash int, account.name string, account.age int, place.city string"
	if got := strings.Join(all, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for path, want := range map[string]bool{"id": true, "labels.any": true, "customer.referrer.referrer.name": true, "customer.x": false, "at.seconds": false, "tags.x": false} {
		if m.Has(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
	_, err := ParseProtoText("a.proto", map[string]string{"a.proto": `syntax = "proto3"; import "b.proto";`})
	if err == nil || !strings.Contains(fmt.Sprint(err), "b.proto") {
		t.Errorf("an import that isn't there: %v", err)
	}
}

func FuzzProto(f *testing.F) {
	m := protoOrder(f)
	f.Add(encodeProto(f, m, orderJSON))
	f.Add([]byte{})
	ts := columns("id", "counts", "tags", "labels.x", "customer.name", "customer.referrer.age", "at", "took", "wrapped", "card", "cash", "state")
	r := NewProtoReader(m, ts, noText)
	f.Fuzz(func(t *testing.T, b []byte) {
		if r.Read(b, 0) != nil {
			return
		}
		for _, tg := range ts {
			value.AppendJSON(nil, tg.Col.Value(0))
		}
	})
}

func BenchmarkProto(b *testing.B) {
	m := protoOrder(b)
	rec := encodeProto(b, m, orderJSON)
	ts := columns("id", "at", "customer.name", "ratio")
	kinds := []vec.Kind{vec.Int, vec.Time, vec.String, vec.Float}
	for i := range ts {
		ts[i].Col.Reset(vec.Type{Kind: kinds[i]}, 1)
	}
	r := NewProtoReader(m, ts, noText)
	b.ReportAllocs()
	b.SetBytes(int64(len(rec)))
	for b.Loop() {
		if err := r.Read(rec, 0); err != nil {
			b.Fatal(err)
		}
	}
}
