package columnar

import (
	"encoding/binary"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

var errText = errors.New("no text")

func noText(*vec.Column, int, []byte) error { return errText }

// row reads one record and gives its columns as text: name=value.
type reader interface{ Read(b []byte, i int) error }

func columns(names ...string) []Target {
	var ts []Target
	for _, n := range names {
		c := new(vec.Column)
		c.Reset(vec.Type{Kind: vec.Any}, 1)
		ts = append(ts, Target{n, c})
	}
	return ts
}

func rowText(t *testing.T, r reader, b []byte, ts []Target) string {
	t.Helper()
	if err := r.Read(b, 0); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, tg := range ts {
		all = append(all, tg.Name+"="+string(value.AppendJSON(nil, tg.Col.Value(0))))
	}
	return strings.Join(all, " ")
}

const orderSchema = `{"type":"record","name":"Order","namespace":"shop","fields":[
 {"name":"id","type":"long"},
 {"name":"paid","type":"boolean"},
 {"name":"amount","type":{"type":"bytes","logicalType":"decimal","precision":30,"scale":2}},
 {"name":"weight","type":"float"},
 {"name":"ratio","type":"double"},
 {"name":"day","type":{"type":"int","logicalType":"date"}},
 {"name":"ms","type":{"type":"long","logicalType":"timestamp-millis"}},
 {"name":"us","type":{"type":"long","logicalType":"timestamp-micros"}},
 {"name":"state","type":{"type":"enum","name":"State","symbols":["NEW","DONE"]}},
 {"name":"note","type":["null","string"],"default":null},
 {"name":"raw","type":"bytes"},
 {"name":"tags","type":{"type":"array","items":"string"}},
 {"name":"labels","type":{"type":"map","values":"string"}},
 {"name":"customer","type":["null",{"type":"record","name":"Customer","fields":[
   {"name":"name","type":"string"},{"name":"referrer","type":["null","Customer"]}]}]}
]}`

func order() map[string]any {
	return map[string]any{
		"id": int64(1) << 60, "paid": true, "amount": big.NewRat(-123456, 100), "weight": float32(0.5), "ratio": 0.1,
		"day": time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), "ms": time.Date(2024, 2, 29, 1, 2, 3, 4e6, time.UTC),
		"us": time.Date(1700, 1, 1, 0, 0, 0, 5000, time.UTC), "state": "DONE", "note": nil, "raw": []byte{0xff, 0},
		"tags": []string{"a", "b"}, "labels": map[string]string{"env": "prod", "zone": "x"},
		"customer": map[string]any{"name": "Ada", "referrer": map[string]any{"name": "Bob", "referrer": nil}},
	}
}

func mustAvro(t testing.TB, text string) *AvroSchema {
	t.Helper()
	s, err := ParseAvro(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustEncode(t testing.TB, s *AvroSchema, v any) []byte {
	t.Helper()
	b, err := s.parsed.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAvroWithinMaps reads fields of records that lie in maps, in unions, and in maps of those.
func TestAvroWithinMaps(t *testing.T) {
	s := mustAvro(t, `{"type":"record","name":"Stock","fields":[
 {"name":"shelves","type":{"type":"map","values":{"type":"map","values":["null",{"type":"record","name":"Item","fields":[
   {"name":"n","type":"long"},{"name":"of","type":["null",{"type":"map","values":"Item"}]}]}]}}}]}`)
	item := func(n int64, of any) map[string]any { return map[string]any{"n": n, "of": of} }
	b := mustEncode(t, s, map[string]any{"shelves": map[string]any{
		"a": map[string]any{"nut": item(1, map[string]any{"part": item(2, nil)}), "bolt": nil},
		"b": map[string]any{"nut": item(3, nil)},
	}})
	ts := columns("shelves.a.nut.n", "shelves.a.nut.of.part.n", "shelves.a.nut.of.none.n", "shelves.a.bolt.n", "shelves.b.nut.n", "shelves.b.nut.of.part.n", "shelves.c.nut.n")
	r, err := NewAvroReader(s, nil, ts, new(vec.Arena), noText)
	if err != nil {
		t.Fatal(err)
	}
	want := "shelves.a.nut.n=1 shelves.a.nut.of.part.n=2 shelves.a.nut.of.none.n=null shelves.a.bolt.n=null shelves.b.nut.n=3 shelves.b.nut.of.part.n=null shelves.c.nut.n=null"
	for range 2 { // what is kept between records must not show
		if got := rowText(t, r, b, ts); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestAvroValues(t *testing.T) {
	s := mustAvro(t, orderSchema)
	b := mustEncode(t, s, order())
	names := []string{"id", "paid", "amount", "weight", "ratio", "day", "ms", "us", "state", "note", "raw", "tags", "labels.zone", "labels.none", "customer.name", "customer.referrer.name", "customer.referrer.referrer.name", "nowhere"}
	ts := columns(names...)
	r, err := NewAvroReader(s, nil, ts, new(vec.Arena), noText)
	if err != nil {
		t.Fatal(err)
	}
	want := `id=1152921504606846976 paid=true amount="-1234.56" weight=0.5 ratio=0.1 day="2024-02-29T00:00:00Z" ms="2024-02-29T01:02:03.004Z" ` +
		`us="1700-01-01T00:00:00.000005Z" state="DONE" note=null raw="/wA=" tags=["a","b"] labels.zone="x" labels.none=null customer.name="Ada" customer.referrer.name="Bob" customer.referrer.referrer.name=null nowhere=null`
	if got := rowText(t, r, b, ts); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// Every prefix is cut, and so is what has something behind it.
	for n := range b {
		if r.Read(b[:n], 0) == nil {
			t.Errorf("the first %d of %d bytes are taken for a record", n, len(b))
		}
	}
	if err := r.Read(append(b, 0), 0); err == nil || !strings.Contains(err.Error(), "1 bytes follow") {
		t.Errorf("a byte behind the record: %v", err)
	}
}

func TestAvroEvolution(t *testing.T) {
	old := `{"type":"record","name":"E","fields":[{"name":"n","type":"int"},{"name":"gone","type":"string"},{"name":"was","type":"string"},{"name":"s","type":{"type":"enum","name":"S","symbols":["A","B"]}},{"name":"at","type":"long"}]}`
	reader := `{"type":"record","name":"E","fields":[{"name":"n","type":"double"},{"name":"now","aliases":["was"],"type":"string"},{"name":"added","type":"int","default":7},` +
		`{"name":"s","type":{"type":"enum","name":"S","symbols":["A","X"],"default":"X"}},{"name":"in","type":{"type":"record","name":"In","fields":[{"name":"x","type":"string"},{"name":"y","type":["null","int"],"default":null}]},"default":{"x":"dx"}},` +
		`{"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}},{"name":"l","type":{"type":"array","items":"int"},"default":[1,2]}]}`
	w, rd := mustAvro(t, old), mustAvro(t, reader)
	ts := columns("n", "now", "added", "s", "in.x", "in.y", "gone", "at", "l")
	r, err := NewAvroReader(w, rd, ts, new(vec.Arena), noText)
	if err != nil {
		t.Fatal(err)
	}
	b := mustEncode(t, w, map[string]any{"n": 3, "gone": "g", "was": "w", "s": "B", "at": int64(1_000_000)})
	want := `n=3 now="w" added=7 s="X" in.x="dx" in.y=null gone=null at="1970-01-01T00:00:01Z" l=[1,2]`
	if got := rowText(t, r, b, ts); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if ts[0].Col.Value(0).Kind() != value.Float {
		t.Errorf("an int that is read as a double is %s", ts[0].Col.Value(0).Kind())
	}
	if _, err := NewAvroReader(rd, w, ts, new(vec.Arena), noText); err == nil {
		t.Error("a schema whose reader lacks a default is compatible")
	}
}

func TestAvroTypedColumns(t *testing.T) {
	s := mustAvro(t, orderSchema)
	b := mustEncode(t, s, order())
	for name, c := range map[string]struct {
		kind vec.Kind
		want string // of the error; empty: none
	}{
		"id": {vec.String, "an int where a string is due"}, "ratio": {vec.Float, ""}, "amount": {vec.Float, "a decimal where a float is due"},
		"tags": {vec.String, "a list where a string is due"}, "raw": {vec.String, "bytes where a string is due"}, "state": {vec.String, ""},
		"customer": {vec.String, "has no value of its own"}, "labels": {vec.Any, "has no value of its own"}, "ms": {vec.Time, ""}, "note": {vec.Int, ""},
		"state.x": {vec.Any, "where a record is due"},
	} {
		ts := columns(name)
		ts[0].Col.Reset(vec.Type{Kind: c.kind}, 1)
		r, err := NewAvroReader(s, nil, ts, new(vec.Arena), noText)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Read(b, 0)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s as %s: %v, want %q", name, c.kind, err, c.want)
		}
	}
}

func TestAvroFields(t *testing.T) {
	var all []string
	for _, f := range mustAvro(t, orderSchema).Fields() {
		all = append(all, f.Name+" "+f.Type.String())
	}
	want := "id int, paid bool, amount decimal, weight float, ratio float, day timestamp, ms timestamp, us timestamp, state string, note string, raw bytes, tags any, customer.name string"
	if got := strings.Join(all, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s := mustAvro(t, orderSchema)
	for path, want := range map[string]bool{"id": true, "labels.any": true, "customer.referrer.referrer.name": true, "customer.age": false, "idd": false, "id.x": false} {
		if s.Has(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}

// TestAvroIsBounded feeds records that promise far more than they hold.
func TestAvroIsBounded(t *testing.T) {
	nulls := mustAvro(t, `{"type":"record","name":"N","fields":[{"name":"a","type":{"type":"array","items":"null"}},{"name":"b","type":"string"}]}`)
	ts := columns("a", "b")
	r, err := NewAvroReader(nulls, nil, ts, new(vec.Arena), noText)
	if err != nil {
		t.Fatal(err)
	}
	huge := binary.AppendVarint(nil, 1<<40)
	for name, b := range map[string][]byte{
		"elements without content": append(huge, 0, 0),
		"a long string":            append([]byte{0}, huge...),
		"a negative length":        {0, 1},
		"a block of -2^63":         binary.AppendVarint(nil, -1<<63),
		"a number of 11 bytes":     {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
	} {
		if r.Read(b, 0) == nil {
			t.Errorf("%s are taken", name)
		}
	}
	list := mustAvro(t, `{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}`)
	ts = columns("other")
	if r, err = NewAvroReader(list, nil, ts, new(vec.Arena), noText); err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat("\x02", 1000) + "\x00"
	if err := r.Read([]byte(deep), 0); !errors.Is(err, errDeep) {
		t.Errorf("a record a thousand deep: %v", err)
	}
}

func FuzzAvro(f *testing.F) {
	s := mustAvro(f, orderSchema)
	f.Add(mustEncode(f, s, order()))
	f.Add([]byte{})
	ts := columns("id", "amount", "ms", "us", "day", "state", "note", "tags", "labels.zone", "customer.name", "customer.referrer.name")
	r, err := NewAvroReader(s, s, ts, new(vec.Arena), noText)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r.Read(b, 0) != nil {
			return
		}
		for _, tg := range ts {
			value.AppendJSON(nil, tg.Col.Value(0))
		}
		// What we take, the library takes too.
		var v map[string]any
		if _, err := s.parsed.Decode(b, &v); err != nil && !strings.Contains(err.Error(), "utf-8") {
			t.Logf("the library refuses it: %v", err)
		}
	})
}

func BenchmarkAvro(b *testing.B) {
	s := mustAvro(b, orderSchema)
	rec := mustEncode(b, s, order())
	ts := columns("id", "amount", "ms", "customer.name")
	kinds := []vec.Kind{vec.Int, vec.Decimal, vec.Time, vec.String}
	for i := range ts {
		ts[i].Col.Reset(vec.Type{Kind: kinds[i]}, 1)
	}
	r, err := NewAvroReader(s, nil, ts, new(vec.Arena), noText)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(rec)))
	for b.Loop() {
		if err := r.Read(rec, 0); err != nil {
			b.Fatal(err)
		}
	}
}
