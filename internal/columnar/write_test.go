package columnar

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// row is one row of columns of any kind, as a writer takes it.
type row struct {
	fields []Field
	cols   []*vec.Column
}

func (r *row) add(name string, v value.Value) *row {
	c := new(vec.Column)
	c.Reset(vec.Type{Kind: vec.Any}, 0)
	c.AppendAny(v)
	r.fields, r.cols = append(r.fields, Field{name, c.Type}), append(r.cols, c)
	return r
}

// typed gives a field the type of its value.
func (r *row) typed(name string, v value.Value) *row {
	c := new(vec.Column)
	c.Reset(vec.Type{Kind: vec.KindOf(v)}, 0)
	if err := c.AppendValue(v); err != nil {
		panic(err)
	}
	r.fields, r.cols = append(r.fields, Field{name, c.Type}), append(r.cols, c)
	return r
}

type writer interface {
	Write(dst []byte, i int) ([]byte, error)
}

func avroWriter(t testing.TB, s *AvroSchema, r *row) writer {
	t.Helper()
	w, err := NewAvroWriter(s, r.fields, r.cols)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func protoWriter(t testing.TB, m *ProtoMessage, r *row) writer {
	t.Helper()
	w, err := NewProtoWriter(m, r.fields, r.cols)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustWrite(t testing.TB, w writer) []byte {
	t.Helper()
	b, err := w.Write([]byte("before"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(b), "before") {
		t.Fatalf("what stood before is gone: %q", b)
	}
	return b[len("before"):]
}

// rowOf reads names of a record into a row.
func rowOf(t testing.TB, read func(ts []Target) reader, b []byte, names ...string) *row {
	t.Helper()
	ts := columns(names...)
	if err := read(ts).Read(b, 0); err != nil {
		t.Fatal(err)
	}
	r := &row{}
	for _, tg := range ts {
		r.add(tg.Name, tg.Col.Value(0).Clone())
	}
	return r
}

func avroReader(t testing.TB, s *AvroSchema) func(ts []Target) reader {
	return func(ts []Target) reader {
		r, err := NewAvroReader(s, nil, ts, new(vec.Arena), noText)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// TestAvroWritesWhatItReads writes every field of what Avro's own library wrote: the bytes are the same.
func TestAvroWritesWhatItReads(t *testing.T) {
	s := mustAvro(t, orderSchema)
	names := []string{"id", "paid", "amount", "weight", "ratio", "day", "ms", "us", "state", "note", "raw", "tags", "labels.env", "customer.name", "customer.referrer.name", "customer.referrer.referrer.name"}
	for name, change := range map[string]func(o map[string]any){
		"as it is":       func(map[string]any) {},
		"a note":         func(o map[string]any) { o["note"] = "ü" },
		"no customer":    func(o map[string]any) { o["customer"] = nil },
		"empty":          func(o map[string]any) { o["tags"], o["labels"], o["raw"] = []string{}, map[string]string{}, []byte{} },
		"a long decimal": func(o map[string]any) { o["amount"] = big.NewRat(-1<<62, 100) },
		"a wide decimal": func(o map[string]any) {
			n, _ := new(big.Int).SetString("-123456789012345678901234567890", 10)
			o["amount"] = new(big.Rat).SetFrac(n, big.NewInt(100))
		},
		"zero":  func(o map[string]any) { o["amount"], o["id"] = new(big.Rat), int64(0) },
		"128":   func(o map[string]any) { o["amount"] = big.NewRat(128, 100) },
		"-128":  func(o map[string]any) { o["amount"] = big.NewRat(-128, 100) },
		"-129":  func(o map[string]any) { o["amount"] = big.NewRat(-129, 100) },
		"-2^63": func(o map[string]any) { o["id"], o["amount"] = int64(-1<<63), big.NewRat(-1<<63, 100) },
		"2^63": func(o map[string]any) {
			o["amount"] = new(big.Rat).SetFrac(new(big.Int).Lsh(big.NewInt(1), 63), big.NewInt(100))
		},
		"-2^71": func(o map[string]any) {
			o["amount"] = new(big.Rat).SetFrac(new(big.Int).Lsh(big.NewInt(-1), 71), big.NewInt(100))
		},
		"old days": func(o map[string]any) { o["day"] = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		o := order()
		o["labels"] = map[string]string{"env": "prod"} // one entry: those of two have no order
		change(o)
		b := mustEncode(t, s, o)
		r := rowOf(t, avroReader(t, s), b, names...)
		if got := mustWrite(t, avroWriter(t, s, r)); string(got) != string(b) {
			t.Errorf("%s: wrote %x, read %x", name, got, b)
		}
	}
}

// TestAvroDefaults: what rows don't have is what the schema says, at any depth.
func TestAvroDefaults(t *testing.T) {
	s := mustAvro(t, `{"type":"record","name":"R","fields":[{"name":"id","type":"long"},
 {"name":"n","type":"int","default":7},{"name":"f","type":"float","default":0.5},{"name":"s","type":["string","null"],"default":"x"},{"name":"z","type":["int","null"]},
 {"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]},"default":"B"},{"name":"l","type":{"type":"array","items":"long"},"default":[1,2]},
 {"name":"m","type":{"type":"map","values":"string"},"default":{"b":"2","a":"1"}},{"name":"raw","type":"bytes","default":"\u00ff"},
 {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"},"default":1000},
 {"name":"in","type":{"type":"record","name":"In","fields":[{"name":"a","type":"string"},{"name":"b","type":"boolean","default":true}]},"default":{"a":"da"}},
 {"name":"w","type":"double","default":1.5}]}`)
	b := mustWrite(t, avroWriter(t, s, new(row).typed("id", value.IntOf(5))))
	var got map[string]any
	if _, err := s.parsed.Decode(b, &got); err != nil {
		t.Fatal(err)
	}
	ts := columns("id", "n", "f", "s", "z", "e", "l", "m.a", "m.b", "raw", "at", "in.a", "in.b", "w")
	want := `id=5 n=7 f=0.5 s="x" z=null e="B" l=[1,2] m.a="1" m.b="2" raw="/w==" at="1970-01-01T00:00:01Z" in.a="da" in.b=true w=1.5`
	if got := rowText(t, avroReader(t, s)(ts), b, ts); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestAvroOptions: of a union the first option that is just of the value's kind counts, then the first that can hold it.
func TestAvroOptions(t *testing.T) {
	s := mustAvro(t, `{"type":"record","name":"R","fields":[{"name":"v","type":["double","null","string",{"type":"enum","name":"E","symbols":["A"]},"int","long",{"type":"bytes","logicalType":"decimal","precision":4,"scale":1},{"type":"array","items":["null","int"]}]}]}`)
	dec := func(s string) value.Value {
		d, err := decimal.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return value.DecimalOf(d)
	}
	for _, c := range []struct {
		v    value.Value
		want byte // the option
	}{
		{value.NullValue(), 1},
		{value.FloatOf(0.5), 0},
		{value.IntOf(1), 4},
		{value.IntOf(1 << 40), 5},
		{value.StringOf("A"), 2},
		{dec("1.5"), 6},
		{dec("12345.5"), 2}, // too long for the decimal, and a text can hold it
		{value.TimeOf(0), 2},
		{value.ListOf([]value.Value{value.IntOf(1), value.NullValue()}), 7},
	} {
		if b := mustWrite(t, avroWriter(t, s, new(row).add("v", c.v))); b[0] != 2*c.want {
			t.Errorf("%s is written as option %d, want %d", c.v, b[0]/2, c.want)
		}
	}
	if _, err := avroWriter(t, s, new(row).add("v", value.BoolOf(true))).Write(nil, 0); err == nil || !strings.Contains(err.Error(), "field v: a bool where double or null or string or enum E or int or long or decimal(4, 1) or an array of null or int is due") {
		t.Errorf("a bool: %v", err)
	}
}

func TestAvroRowErrors(t *testing.T) {
	s := mustAvro(t, `{"type":"record","name":"R","fields":[{"name":"i","type":["null","int"],"default":null},{"name":"f","type":["null","float"],"default":null},{"name":"d","type":["null","double"],"default":null},
 {"name":"x","type":["null",{"type":"fixed","name":"F","size":2}],"default":null},{"name":"e","type":["null",{"type":"enum","name":"E","symbols":["A","B"]}],"default":null},
 {"name":"dec","type":["null",{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}],"default":null},{"name":"fd","type":["null",{"type":"fixed","name":"FD","size":1,"logicalType":"decimal","precision":2,"scale":0}],"default":null},
 {"name":"day","type":["null",{"type":"int","logicalType":"date"}],"default":null},{"name":"ms","type":["null",{"type":"long","logicalType":"timestamp-millis"}],"default":null},
 {"name":"u","type":["null",{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}],"default":null},{"name":"l","type":["null",{"type":"array","items":"int"}],"default":null},
 {"name":"s","type":"string","default":""},{"name":"in","type":["null",{"type":"record","name":"In","fields":[{"name":"a","type":"int"},{"name":"b","type":["null","int"]}]}],"default":null}]}`)
	d := func(coef int64, exp int32) value.Value {
		x, err := decimal.New(coef, exp)
		if err != nil {
			t.Fatal(err)
		}
		return value.DecimalOf(x)
	}
	for _, c := range []struct {
		name string
		v    value.Value
		want string
	}{
		{"i", value.IntOf(1 << 31), "field i: 2147483648 is beyond the range of Avro's int"},
		{"i", value.StringOf("1"), "field i: a string where null or int is due"},
		{"f", value.FloatOf(0.1), "field f: 0.1 has more digits than a float of 32 bits holds; a double has them"},
		{"d", value.IntOf(1<<53 + 1), "field d: 9007199254740993 has more digits than a float holds"},
		{"x", value.BytesOf([]byte("abc")), "field x: 3 bytes where fixed F has 2"},
		{"e", value.StringOf("C"), `field e: enum E has no symbol "C"; it has A, B`},
		{"dec", d(1234567, -3), "field dec: 1234.567 has more than the 2 digits behind the point that decimal(4, 2) holds"},
		{"dec", d(123, 0), "field dec: 123 has more digits than decimal(4, 2) holds"},
		{"fd", value.IntOf(129), "field fd: 129 has more digits than decimal(2, 0) holds"},
		{"day", value.TimeOf(1), "field day: 1970-01-01T00:00:00.000000001Z has a time of day that date doesn't hold"},
		{"ms", value.TimeOf(1), "a part of a unit that timestamp-millis doesn't hold"},
		{"u", value.StringOf("123e4567-e89b-12d3-a456-42661417400g"), "field u: it is no UUID"},
		{"l", value.ListOf([]value.Value{value.IntOf(1), value.NullValue()}), "field l: element 1: null where int is due"},
		{"s", value.NullValue(), "field s: null where string is due"},
		{"s", value.StringOf("\xff"), `field s: "\xff" is not UTF-8`},
		{"in.b", value.IntOf(1), "field in.a: null where int is due"},
	} {
		r := new(row)
		if c.name == "in.b" {
			r.add("in.a", value.NullValue())
		}
		b, err := avroWriter(t, s, r.add(c.name, c.v)).Write([]byte("x"), 0)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if b[0] != 'x' {
			t.Errorf("%s: what stood before is gone", c.name)
		}
	}
	ok := new(row).add("u", value.StringOf("123e4567-e89b-12d3-a456-426614174000")).add("fd", value.IntOf(-9)).add("x", value.BytesOf([]byte("ab"))).add("dec", d(5, -2))
	b := mustWrite(t, avroWriter(t, s, ok))
	ts := columns("u", "fd", "x", "dec", "in.a")
	if got, want := rowText(t, avroReader(t, s)(ts), b, ts), `u="123e4567-e89b-12d3-a456-426614174000" fd="-9" x="YWI=" dec="0.05" in.a=null`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestMisfits(t *testing.T) {
	a, p := mustAvro(t, orderSchema), protoOrder(t)
	rows := []Field{
		{"id", vec.Type{Kind: vec.String}},
		{"paid", vec.Type{Kind: vec.Null}},
		{"amounts", vec.Type{Kind: vec.Decimal}},
		{"tags", vec.ListOf(vec.Int)},
		{"labels", vec.Type{Kind: vec.Any}},
		{"customer.name", vec.Type{Kind: vec.Int}},
		{"customer.nick", vec.Type{Kind: vec.String}},
		{"ratio.x", vec.Type{Kind: vec.Int}},
		{"state", vec.Type{Kind: vec.Int}},
		{"at", vec.Type{Kind: vec.Int}},
		{"labels2.7", vec.Type{Kind: vec.Int}},
	}
	for format, c := range map[string]struct {
		err  func() error
		want []string
	}{
		"avro": {func() error { _, err := NewAvroWriter(a, rows, nil); return err }, []string{
			"field id: a string where long is due", "field paid: nothing but null where boolean is due", "field amount: the rows don't have it, and record shop.Order has no default for it",
			"field weight: the rows don't have it", "field ratio: the rows have fields of it where double is due", "field tags: a list<int> where an array of string is due", "field labels: one value where map is due",
			"field customer.name: an int where string is due", "field customer.nick: record shop.Customer has no such field", "field amounts: record shop.Order has no such field; did it mean amount?", "field state: an int where enum shop.State is due",
		}},
		"protobuf": {func() error { _, err := NewProtoWriter(p, rows, nil); return err }, []string{
			"field id: a string where int64 is due", "field paid: nothing but null where bool is due", "field amounts: message shop.Order has no such field", "field tags: a list<int> where a list of string is due",
			"field labels: one value where a map is due", "field customer.name: an int where string is due", "field customer.nick: message shop.Customer has no such field", "field ratio: the rows have fields of it where double is due",
			"field state: an int where enum shop.Order.State is due", "field at: an int where message google.protobuf.Timestamp is due",
		}},
	} {
		err := c.err()
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok {
			t.Fatalf("%s: %v", format, err)
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: no %q in\n%v", format, w, err)
			}
		}
		for _, e := range joined.Unwrap() {
			if !strings.HasPrefix(e.Error(), "field ") {
				t.Errorf("%s: %v names no field", format, e)
			}
		}
	}
	both := []Field{{"customer", vec.Type{Kind: vec.String}}, {"customer.name", vec.Type{Kind: vec.String}}}
	if _, err := NewAvroWriter(a, both, nil); err == nil || !strings.Contains(err.Error(), "a field is a value or has fields") {
		t.Errorf("a field that is both: %v", err)
	}
	both[0], both[1] = both[1], both[0]
	if _, err := NewProtoWriter(p, both, nil); err == nil || !strings.Contains(err.Error(), "field customer: it is a value, and has fields") {
		t.Errorf("the other way round: %v", err)
	}
}

// TestProtoWritesWhatItReads writes every field of what Protobuf's own library wrote: the library finds the same message, and none of it in
// another form than it gives it.
func TestProtoWritesWhatItReads(t *testing.T) {
	m := protoOrder(t)
	names := []string{"place.city", "id", "delta", "big", "code", "ratio", "paid", "state", "note", "raw", "counts", "tags", "labels.x", "labels.y", "customer.name", "customer.age", "customer.referrer.age", "customer.referrer.name", "at", "took", "wrapped", "card", "cash", "account.name", "account.age"}
	read := func(ts []Target) reader { return NewProtoReader(m, ts, noText) }
	long := strings.Repeat("long ", 200)
	for _, json := range []string{
		orderJSON, `{}`, `{"note":"","card":"","wrapped":""}`, `{"account":{"name":"a"},"at":"1969-12-31T23:59:59.5Z","took":"3s"}`,
		`{"customer":{"name":"` + long + `","referrer":{"name":"` + long + `"}},"tags":["` + long + `",""],"state":"NEW","cash":"0","wrapped":"` + long + `","labels":{"x":"0","y":"-1"}}`,
		`{"ratio":"-0","id":"-9223372036854775808","delta":2147483647,"at":"1970-01-01T00:00:00Z","took":"0s"}`,
	} {
		b := encodeProto(t, m, json)
		got := mustWrite(t, protoWriter(t, m, rowOf(t, read, b, names...)))
		d := dynamicpb.NewMessage(m.desc)
		if err := proto.Unmarshal(got, d); err != nil {
			t.Fatal(err)
		}
		// The order of fields is up to whoever writes them.
		if again, err := (proto.MarshalOptions{Deterministic: true}).Marshal(d); err != nil || string(again) != string(b) || len(got) != len(b) {
			t.Errorf("%.60s: wrote %x, read %x: %v %s", json, got, b, err, protojson.Format(d))
		}
	}
	// What rows don't have isn't written.
	if b := mustWrite(t, protoWriter(t, m, new(row).typed("id", value.IntOf(3)))); string(b) != "\x08\x03" {
		t.Errorf("a row of id alone is %x", b)
	}
}

func TestProtoRowErrors(t *testing.T) {
	f, err := ParseProtoText("x.proto", map[string]string{"x.proto": `syntax = "proto2"; package x;
message R { optional int32 i = 1; optional uint64 u = 2; optional fixed32 x = 3; optional float f = 4; optional E e = 5; repeated int32 l = 6; optional int32 def = 7 [default = 3]; oneof o { string a = 8; In in = 9; }
  map<int32, string> m = 10; optional In more = 11; optional sint32 z = 12; }
message Strict { required int32 must = 1; optional int32 may = 2; }
message In { required int32 must = 1; optional string s = 2; }
enum E { A = 0; B = 1; }`})
	if err != nil {
		t.Fatal(err)
	}
	m, err := f.Message("R")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		r    *row
		want string // empty: none
	}{
		{new(row).add("i", value.IntOf(1<<31)), "field i: 2147483648 is beyond the range of int32"},
		{new(row).add("z", value.IntOf(-1<<31-1)), "field z: -2147483649 is beyond the range of sint32"},
		{new(row).add("u", value.IntOf(-1)), "field u: -1 is beyond the range of uint64"},
		{new(row).add("u", value.UintOf(1<<64-1)), ""},
		{new(row).add("x", value.IntOf(-1)), "field x: -1 is beyond the range of fixed32"},
		{new(row).add("f", value.FloatOf(0.1)), "field f: 0.1 has more digits"},
		{new(row).add("e", value.StringOf("C")), `field e: enum x.E has no value "C"`},
		{new(row).add("i", value.StringOf("C")), `field i: a string where int32 is due`},
		{new(row).add("l", value.IntOf(1)), `field l: an int where a list of int32 is due`},
		{new(row).add("l", value.ListOf([]value.Value{value.NullValue()})), `field l: element 0: null where int32 is due`},
		{new(row).add("l", value.NullValue()), "field l: null, which would be read as an empty list"},
		{new(row).add("def", value.NullValue()), "field def: null, which would be read as 3: the schema doesn't say optional"},
		{new(row).add("a", value.StringOf("")).add("in.must", value.IntOf(1)), "fields a and in both have a value; one of o is all that a record holds"},
		{new(row).add("a", value.NullValue()).add("in.must", value.IntOf(1)), ""},
		{new(row).add("more.must", value.NullValue()).add("more.s", value.StringOf("s")), "field more.must: null, and the schema requires a value"},
		{new(row).add("m.7", value.StringOf("")), ""},
	} {
		b, err := protoWriter(t, m, c.r).Write([]byte("x"), 0)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.r.fields[0].Name, err, c.want)
		}
		if b[0] != 'x' {
			t.Errorf("%s: what stood before is gone", c.r.fields[0].Name)
		}
	}
	strict, err := f.Message("Strict")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewProtoWriter(strict, []Field{{"may", vec.Type{Kind: vec.Int}}}, nil); err == nil || !strings.Contains(err.Error(), "field must: the rows don't have it, and x.Strict requires it") {
		t.Errorf("a required field that isn't there: %v", err)
	}
	if _, err := NewProtoWriter(m, []Field{{"m.x", vec.Type{Kind: vec.String}}}, nil); err == nil || !strings.Contains(err.Error(), "field m.x: it is no key of the map") {
		t.Errorf("a key that isn't one: %v", err)
	}
	p3 := protoOrder(t)
	if _, err := protoWriter(t, p3, new(row).add("state", value.NullValue())).Write(nil, 0); err == nil || !strings.Contains(err.Error(), `field state: null, which would be read as "NEW"`) {
		t.Errorf("a null of proto3: %v", err)
	}
}

// FuzzWriters: what a record was read as is written, and reads as the same.
func FuzzWriters(f *testing.F) {
	s, m := mustAvro(f, orderSchema), protoOrder(f)
	f.Add(mustEncode(f, s, order()), encodeProto(f, m, orderJSON))
	f.Add([]byte{}, []byte{})
	an := []string{"id", "paid", "amount", "weight", "ratio", "day", "ms", "us", "state", "note", "raw", "tags", "labels.zone", "customer.name", "customer.referrer.name", "customer.referrer.referrer.name"}
	pn := []string{"id", "delta", "big", "code", "ratio", "paid", "state", "note", "raw", "counts", "tags", "labels.x", "customer.name", "customer.age", "customer.referrer.age", "at", "took", "wrapped", "card", "cash", "account.age", "place.city"}
	text := func(ts []Target) string {
		var b []byte
		for _, tg := range ts {
			b = append(value.AppendJSON(b, tg.Col.Value(0)), ' ')
		}
		return string(b)
	}
	f.Fuzz(func(t *testing.T, ab, pb []byte) {
		for _, c := range []struct {
			b     []byte
			names []string
			read  func(ts []Target) reader
			write func(r *row) writer
			may   []string // what rows may say that no record of the schema does
		}{
			{ab, an, avroReader(t, s), func(r *row) writer { return avroWriter(t, s, r) }, []string{"more digits than decimal", "customer.referrer"}},
			{pb, pn, func(ts []Target) reader { return NewProtoReader(m, ts, noText) }, func(r *row) writer { return protoWriter(t, m, r) }, nil},
		} {
			ts := columns(c.names...)
			if c.read(ts).Read(c.b, 0) != nil {
				continue
			}
			r := &row{}
			for _, tg := range ts {
				r.add(tg.Name, tg.Col.Value(0))
			}
			b, err := c.write(r).Write(nil, 0)
			if err != nil {
				known := false
				for _, m := range c.may {
					known = known || strings.Contains(err.Error(), m)
				}
				if !known {
					t.Fatalf("%s can't be written: %v", text(ts), err)
				}
				continue
			}
			again := columns(c.names...)
			if err := c.read(again).Read(b, 0); err != nil {
				t.Fatalf("%x can't be read: %v", b, err)
			}
			if text(again) != text(ts) {
				t.Fatalf("read  %s\nagain %s", text(ts), text(again))
			}
		}
	})
}

func BenchmarkAvroWriter(b *testing.B) {
	s := mustAvro(b, orderSchema)
	rec := mustEncode(b, s, order())
	r := rowOf(b, avroReader(b, s), rec, "id", "paid", "amount", "weight", "ratio", "day", "ms", "us", "state", "note", "raw", "tags", "labels.env", "customer.name", "customer.referrer.name", "customer.referrer.referrer.name")
	benchmarkWriter(b, avroWriter(b, s, r), len(rec))
}

func BenchmarkProtoWriter(b *testing.B) {
	m := protoOrder(b)
	rec := encodeProto(b, m, orderJSON)
	read := func(ts []Target) reader { return NewProtoReader(m, ts, noText) }
	r := rowOf(b, read, rec, "id", "delta", "big", "code", "ratio", "paid", "state", "note", "raw", "counts", "tags", "labels.x", "labels.y", "customer.name", "customer.referrer.age", "at", "took", "wrapped", "cash", "place.city")
	benchmarkWriter(b, protoWriter(b, m, r), len(rec))
}

func benchmarkWriter(b *testing.B, w writer, size int) {
	b.Helper()
	var dst []byte
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for b.Loop() {
		var err error
		if dst, err = w.Write(dst[:0], 0); err != nil {
			b.Fatal(err)
		}
	}
}
