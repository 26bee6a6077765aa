package codec_test

import (
	"encoding/json"
	"io"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
)

func record(value string) *batch.Record { return &batch.Record{Value: []byte(value)} }

func decode[T any](t *testing.T, d codec.Decoder[T], columns []string, value string) (T, error) {
	t.Helper()
	var into T
	if err := d.Err(); err != nil {
		t.Fatal(err)
	}
	dec := d.New()
	if err := dec.Begin(columns); err != nil {
		t.Fatal(err)
	}
	r := record(value)
	err := dec.Decode(r, &into)
	for i := range r.Value { // what was decoded shares no memory with the record
		r.Value[i] = '#'
	}
	return into, err
}

type Base struct{ ID uint32 }

type Item struct {
	SKU   string
	Count int8
}

type All struct {
	Base
	Name     string
	OK       bool
	N        int64
	Ratio    float64
	Small    float32
	At       time.Time
	Took     time.Duration
	Raw      []byte
	Big      big.Int
	Maybe    codec.Null[int64]
	MaybeAt  codec.Null[time.Time]
	Item     Item
	Items    []Item
	Pair     [2]int
	Labels   map[string]string
	Anything any
	Given    string `trident:"given_name"`
	Hidden   string `trident:"-"`
	private  int
}

const allJSON = `{"id":7,"name":"a\u00e9\"b","ok":true,"n":9007199254740993,"ratio":0.1,"small":1.5,"at":"2026-12-01T10:00:00+02:00","took":"1m30s",
"raw":"aGk=","big":123456789012345678901234567890,"maybe":null,"item":{"sku":"x","count":-3,"extra":[1]},"items":[{"sku":"y","count":1},{"sku":"\n","count":2}],
"pair":[1,2],"labels":{"k":"v","é":"\t"},"anything":{"x":[9007199254740993]},"given_name":"G","hidden":"no","private":1}`

func TestJSONStruct(t *testing.T) {
	got, err := decode(t, codec.JSON[All](), nil, allJSON)
	if err != nil {
		t.Fatal(err)
	}
	want := All{
		Base: Base{7}, Name: `aé"b`, OK: true, N: 9007199254740993, Ratio: 0.1, Small: 1.5, At: time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC),
		Took: 90 * time.Second, Raw: []byte("hi"), Item: Item{"x", -3}, Items: []Item{{"y", 1}, {"\n", 2}}, Pair: [2]int{1, 2},
		Labels: map[string]string{"k": "v", "é": "\t"}, Anything: map[string]any{"x": []any{json.Number("9007199254740993")}}, Given: "G",
	}
	want.Big.SetString("123456789012345678901234567890", 10)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	if got.At.Location() != time.UTC {
		t.Errorf("time in %s", got.At.Location())
	}
}

func TestJSONDescribes(t *testing.T) {
	got := codec.JSON[struct {
		ID    string
		At    time.Time
		Delay codec.Null[int64]
		Items []Item
		ByID  map[string]Item
	}]().Describe()
	want := "json {id string, at time.Time, delay null int64, items []{sku string, count int8}, by_id map[string]{sku string, count int8}}"
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if got, want := codec.CSV[Item]("NA", "", "NA").Describe(), `csv {sku string, count int8} nulls ["" "NA"]`; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestJSONRefuses(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{`{"sku":"x"}`, "field count: missing"},
		{`{"sku":null,"count":1}`, "field sku: null, which only a codec.Null takes"},
		{`{"sku":1,"count":1}`, "field sku: an integer where a string is due"},
		{`{"sku":"x","count":"1"}`, "field count: a string where an integer is due"},
		{`{"sku":"x","count":1.0}`, `field count: "1.0" is written with a fraction or an exponent, int8 takes integers only`},
		{`{"sku":"x","count":128}`, `field count: "128" is beyond the range of int8`},
		{`{"sku":"x","count":99999999999999999999}`, `field count: "99999999999999999999" is beyond the range of int8`},
		{`{"sku":"\ud800","count":1}`, "field sku: offset 0: an escape for half of a surrogate pair stands for no character"},
		{`{"sku":"x","count":1,"sku":"y"}`, "offset 27: field sku occurs twice"},
		{`{"sku":"x","count":1,"other":tru}`, "offset 32: invalid character '}' in a word: only true, false and null are words"},
		{`[1]`, "offset 0: invalid character '[' where an object must begin"},
	} {
		_, err := decode(t, codec.JSON[Item](), nil, c.doc)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s\n got %v\nwant %s", c.doc, err, c.want)
		}
	}
	type all struct {
		B []byte
		A [2]int
		L []Item
		M map[string]int
		T time.Time
		D time.Duration
		F float32
		U uint
	}
	good := map[string]string{"b": `""`, "a": `[1,2]`, "l": `[]`, "m": `{}`, "t": `"2026-01-01T00:00:00Z"`, "d": `"1s"`, "f": `1`, "u": `-0`}
	doc := func(field, value string) string {
		var parts []string
		for k, v := range good {
			if k == field {
				v = value
			}
			parts = append(parts, `"`+k+`":`+v)
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	if v, err := decode(t, codec.JSON[all](), nil, doc("", "")); err != nil || v.B == nil || v.L == nil || v.M == nil {
		t.Fatalf("%+v, %v", v, err)
	}
	for _, c := range []struct{ field, value, want string }{
		{"b", `"*"`, `field b: "*" is not base64`},
		{"b", `1`, "field b: an integer where a string in base64 is due"},
		{"a", `[1]`, "field a: 1 elements where 2 are due"},
		{"a", `[1,2,3]`, "field a: more than 2 elements"},
		{"l", `[{"sku":"x"}]`, "field l: element 0: field count: missing"},
		{"l", `{}`, "field l: an object where an array is due"},
		{"l", `null`, "field l: null, which only a codec.Null takes"},
		{"m", `{"x":1,"\u0078":2}`, "field m: key x occurs twice"},
		{"m", `{"x":null}`, "field m: key x: null, which only a codec.Null takes"},
		{"t", `"2026-01-01"`, `field t: "2026-01-01" is not a time as RFC 3339 writes it (2006-01-02T15:04:05Z)`},
		{"d", `1`, "field d: an integer where a string is due"},
		{"f", `1e39`, `field f: "1e39" is beyond the range of float32`},
		{"u", `-1`, `field u: "-1" is beyond the range of uint`},
	} {
		_, err := decode(t, codec.JSON[all](), nil, doc(c.field, c.value))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %s\n got %v\nwant %s", c.field, c.value, err, c.want)
		}
	}
}

func TestJSONRecursive(t *testing.T) {
	type tree struct {
		N    int
		Kids []tree
	}
	got, err := decode(t, codec.JSON[tree](), nil, `{"n":1,"kids":[{"n":2,"kids":[{"n":3,"kids":[]}]},{"kids":[],"n":4}]}`)
	want := tree{1, []tree{{2, []tree{{3, []tree{}}}}, {4, []tree{}}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestJSONReusesNothingOfTheValueBefore(t *testing.T) {
	type v struct {
		L   []int
		M   map[string]int
		Raw json.RawMessage
		Opt codec.Null[string]
	}
	d := codec.JSON[v]().New()
	var into v
	if err := d.Decode(record(`{"l":[1,2],"m":{"a":1},"raw":[1],"opt":"x"}`), &into); err != nil {
		t.Fatal(err)
	}
	first := into
	if err := d.Decode(record(`{"l":[3],"m":{"b":2},"raw":[2]}`), &into); err != nil {
		t.Fatal(err)
	}
	if want := (v{[]int{1, 2}, map[string]int{"a": 1}, json.RawMessage("[1]"), codec.Of("x")}); !reflect.DeepEqual(first, want) {
		t.Errorf("the first value became %+v", first)
	}
	if want := (v{[]int{3}, map[string]int{"b": 2}, json.RawMessage("[2]"), codec.Null[string]{}}); !reflect.DeepEqual(into, want) {
		t.Errorf("the second is %+v", into)
	}
}

func TestJSONMapAndAny(t *testing.T) {
	m, err := decode(t, codec.JSON[map[string]codec.Null[int]](), nil, ` {"a":1,"b":null} `)
	if want := map[string]codec.Null[int]{"a": codec.Of(1), "b": {}}; err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("%v, %v", m, err)
	}
	a, err := decode(t, codec.JSON[any](), nil, `{"a":9007199254740993}`)
	if want := any(map[string]any{"a": json.Number("9007199254740993")}); err != nil || !reflect.DeepEqual(a, want) {
		t.Errorf("%v, %v", a, err)
	}
	if _, err := decode(t, codec.JSON[any](), nil, `{"a":1}x`); err == nil {
		t.Error("text behind the object was taken")
	}
}

func TestRefusedTypes(t *testing.T) {
	for want, err := range map[string]error{
		"codec_test.T1.P: a pointer (*int) isn't supported; use codec.Null[int]":                         codec.JSON[T1]().Err(),
		"codec_test.T2.C: values of type chan int can't be read from records":                            codec.JSON[T2]().Err(),
		"codec_test.T3.B: field 1 has the name a already; set another by a tag":                          codec.CSV[T3]().Err(),
		"codec_test.T4.L: a CSV field can't become a []int":                                              codec.CSV[T4]().Err(),
		"codec_test.T5: codec_test.T5 has no exported field":                                             codec.CSV[T5]().Err(),
		"codec_test.T6.M: a map's keys must be strings, those of map[int]string aren't":                  codec.JSON[T6]().Err(),
		"codec_test.T7.R: the interface io.Reader doesn't say which type to make; use a concrete type":   codec.JSON[T7]().Err(),
		"codec_test.T8.a: the tag is on an unexported field":                                             codec.JSON[T8]().Err(),
		"int: a record is a JSON object, which becomes a struct, a map with string keys, or any":         codec.JSON[int]().Err(),
		"string: a CSV record becomes a struct":                                                          codec.CSV[string]().Err(),
		"codec_test.T9.L[].P: a pointer (*codec_test.T9) isn't supported; use codec.Null[codec_test.T9]": codec.JSON[T9]().Err(),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("\n got %v\nwant %s", err, want)
		}
	}
}

type (
	T1 struct{ P *int }
	T2 struct{ C chan int }
	T3 struct {
		A int
		B int `trident:"a"`
	}
	T4 struct{ L []int }
	T5 struct{ a int }
	T6 struct{ M map[int]string }
	T7 struct{ R io.Reader }
	T8 struct {
		a int `trident:"a"`
	}
	T9 struct{ L []struct{ P *T9 } }
)

type flight struct {
	Carrier  string
	DepDelay codec.Null[int64]
	Distance int64
	TimeHour time.Time
	Factor   codec.Null[float64]
	Late     bool
}

var flightColumns = []string{"time_hour", "carrier", "x", "dep_delay", "distance", "factor", "late"}

func TestCSV(t *testing.T) {
	d := codec.CSV[flight]("NA", "")
	got, err := decode(t, d, flightColumns, `2013-01-01T05:00:00Z,"U""A",ignored,NA,1400,NaN,TRUE`)
	if err != nil || !math.IsNaN(got.Factor.V) {
		t.Fatalf("%+v, %v", got, err)
	}
	got.Factor = codec.Null[float64]{}
	want := flight{Carrier: `U"A`, Distance: 1400, TimeHour: time.Date(2013, 1, 1, 5, 0, 0, 0, time.UTC), Late: true}
	if got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	dec := d.New()
	if err := dec.Begin(flightColumns); err != nil {
		t.Fatal(err)
	}
	var into flight
	for _, c := range []struct{ raw, want string }{
		{"2013-01-01T05:00:00Z,UA,,5,1400,1", "6 fields where the header line has 7"},
		{"2013-01-01T05:00:00Z,UA,,5,NA,1,true", "field distance: null, which only a codec.Null takes"},
		{"2013-01-01T05:00:00Z,NA,,5,1,1,true", "field carrier: null, which only a codec.Null takes"},
		{"2013-01-01T05:00:00Z,UA,,5.0,1,1,true", `field dep_delay: "5.0" is not an integer`},
		{"2013-01-01T05:00:00Z,UA,,9223372036854775808,1,1,true", `field dep_delay: "9223372036854775808" is beyond the range of int64`},
		{"2013-01-01T05:00:00Z,UA,,1,1,0x1p2,true", `field factor: "0x1p2" is not a number`},
		{"2013-01-01T05:00:00Z,UA,,1,1,1e999,true", `field factor: "1e999" is beyond the range of float64`},
		{"2013-01-01T05:00:00Z,UA,,1,1,1,yes", `field late: "yes" is neither true nor false`},
		{`2013-01-01T05:00:00Z,U"A,,1,1,1,true`, "offset 22: a quote inside a field that doesn't begin with one"},
	} {
		if err := dec.Decode(record(c.raw), &into); err == nil || err.Error() != c.want {
			t.Errorf("%s\n got %v\nwant %s", c.raw, err, c.want)
		}
	}
	// A null after a value: nothing of the value stays.
	for _, raw := range []string{"2013-01-01T05:00:00Z,UA,,5,1,2,true", "2013-01-01T05:00:00Z,UA,,NA,1,,true"} {
		if err := dec.Decode(record(raw), &into); err != nil {
			t.Fatal(err)
		}
	}
	if into.DepDelay != (codec.Null[int64]{}) || into.Factor != (codec.Null[float64]{}) {
		t.Errorf("%+v", into)
	}
}

func TestCSVWithoutNulls(t *testing.T) {
	type v struct{ S codec.Null[string] }
	if got, err := decode(t, codec.CSV[v](), []string{"s"}, ""); err != nil || got.S != codec.Of("") {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := decode(t, codec.CSV[v](""), []string{"s"}, `""`); err != nil || got.S.Valid {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCSVHeader(t *testing.T) {
	for _, c := range []struct {
		columns []string
		want    string
	}{
		{nil, "decode: the source has no columns (use a source with a header line for CSV, or another decoder)"},
		{[]string{"skv", "count"}, "decode: the header line has no column sku: skv,count (did you mean skv? Set it by a trident tag)"},
		{[]string{"count"}, "decode: the header line has no column sku: count (add the column, or give the field another name by a trident tag)"},
		{[]string{"sku", "count", "sku"}, "decode: the header line has the column sku twice (name each column once)"},
	} {
		err := codec.CSV[Item]().New().Begin(c.columns)
		if err == nil || err.Error() != c.want {
			t.Errorf("%q\n got %v\nwant %s", c.columns, err, c.want)
		}
		if batch.KindOf(err) != batch.Permanent || batch.CodeOf(err) != batch.CodeConfiguration {
			t.Errorf("%q: %v %v", c.columns, batch.KindOf(err), batch.CodeOf(err))
		}
	}
}

func TestNullValues(t *testing.T) {
	null := &batch.Record{}
	var s string
	if err := codec.String().New().Decode(null, &s); err == nil || err.Error() != "value is null" {
		t.Errorf("string: %v", err)
	}
	var item Item
	if err := codec.JSON[Item]().New().Decode(null, &item); err == nil || err.Error() != "value is null" {
		t.Errorf("json: %v", err)
	}
	ns := codec.Of("before")
	if err := codec.NullString().New().Decode(null, &ns); err != nil || ns.Valid || ns.V != "" {
		t.Errorf("null string: %+v, %v", ns, err)
	}
	if err := codec.NullString().New().Decode(record(""), &ns); err != nil || ns != codec.Of("") {
		t.Errorf("empty string: %+v, %v", ns, err)
	}
	b := []byte("before")
	if err := codec.Bytes().New().Decode(null, &b); err != nil || b != nil {
		t.Errorf("bytes: %v, %v", b, err)
	}
	if err := codec.Bytes().New().Decode(record(""), &b); err != nil || b == nil || len(b) != 0 {
		t.Errorf("empty bytes: %v, %v", b, err)
	}
	if got := (codec.Null[int]{}).Or(3) + codec.Of(4).Or(5); got != 7 {
		t.Errorf("Or: %d", got)
	}
}

func TestRecord(t *testing.T) {
	r := batch.Record{Offset: 3, Timestamp: 4, Key: []byte("k"), Value: []byte("v"), Headers: []batch.Header{{Key: "h", Value: []byte("x")}}}
	var got batch.Record
	if err := codec.Record().New().Decode(&r, &got); err != nil {
		t.Fatal(err)
	}
	r.Key[0], r.Value[0], r.Headers[0].Value[0] = '#', '#', '#'
	if got.Offset != 3 || got.Timestamp != 4 || string(got.Key)+string(got.Value)+string(got.Headers[0].Value) != "kvx" {
		t.Errorf("%+v", got)
	}
}

// TestJSONAgainstEncodingJSON decodes what encoding/json wrote.
func TestJSONAgainstEncodingJSON(t *testing.T) {
	type inner struct {
		S string `json:"s"`
		F float64
	}
	type v struct {
		A int64             `json:"a"`
		B uint16            `json:"b"`
		C string            `json:"c"`
		D []inner           `json:"d"`
		E map[string]string `json:"e"`
		G []byte            `json:"g"`
	}
	type tagged struct {
		A int64
		B uint16
		C string
		D []struct {
			S string
			F float64 `trident:"F"`
		}
		E map[string]string
		G []byte
	}
	dec := codec.JSON[tagged]().New()
	rapid.Check(t, func(t *rapid.T) {
		in := v{A: rapid.Int64().Draw(t, "a"), B: rapid.Uint16().Draw(t, "b"), C: rapid.String().Draw(t, "c"), D: []inner{}, E: map[string]string{}, G: rapid.SliceOf(rapid.Byte()).Draw(t, "g")}
		for range rapid.IntRange(0, 3).Draw(t, "d") {
			in.D = append(in.D, inner{rapid.String().Draw(t, "s"), rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64).Draw(t, "f")})
		}
		for range rapid.IntRange(0, 3).Draw(t, "e") {
			in.E[rapid.String().Draw(t, "key")] = rapid.String().Draw(t, "value")
		}
		doc, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var got tagged
		if err := dec.Decode(&batch.Record{Value: doc}, &got); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		if got.A != in.A || got.B != in.B || got.C != in.C || !reflect.DeepEqual(got.E, in.E) || string(got.G) != string(in.G) || len(got.D) != len(in.D) {
			t.Fatalf("%s: %+v", doc, got)
		}
		for i, d := range got.D {
			if d.S != in.D[i].S || math.Float64bits(d.F) != math.Float64bits(in.D[i].F) {
				t.Fatalf("%s: %+v", doc, got)
			}
		}
	})
}

func BenchmarkJSON(b *testing.B) {
	type visit struct {
		User, Page string
		MS         int64 `trident:"ms"`
		N          int64
	}
	d := codec.JSON[visit]().New()
	r := record(`{"user":"u0012345","page":"/products/771","ms":1764633600123,"n":17}`)
	var v visit
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(r, &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCSV(b *testing.B) {
	type flight struct {
		Carrier, Origin, Dest string
		DepDelay, DepTime     codec.Null[int64]
		Distance              int64
		TimeHour              time.Time
	}
	d := codec.CSV[flight]("NA", "").New()
	if err := d.Begin(strings.Split("year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour", ",")); err != nil {
		b.Fatal(err)
	}
	r := record("2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z")
	var v flight
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(r, &v); err != nil {
			b.Fatal(err)
		}
	}
	if v.Distance != 1400 || strconv.FormatInt(v.DepDelay.V, 10) != "2" {
		b.Fatal(v)
	}
}

func TestKeyValue(t *testing.T) {
	type customer struct{ Country string }
	d := codec.KeyValue(codec.String(), codec.JSON[customer]())
	if got, want := d.Describe(), "key string, value "+codec.JSON[customer]().Describe(); got != want {
		t.Errorf("described as %q, want %q", got, want)
	}
	dec := d.New()
	for _, c := range []struct {
		key, value []byte
		want       codec.Entry[string, customer]
		err        string
	}{
		{key: []byte("a"), value: []byte(`{"country":"de"}`), want: codec.Entry[string, customer]{Key: "a", Value: codec.Of(customer{"de"})}},
		{key: []byte("a"), want: codec.Entry[string, customer]{Key: "a"}},
		{key: []byte(""), want: codec.Entry[string, customer]{}},
		{value: []byte(`{"country":"de"}`), err: "key: value is null"},
		{key: []byte("a"), value: []byte(`{`), err: "the text ends too early"},
	} {
		var got codec.Entry[string, customer]
		got.Value = codec.Of(customer{"left over"})
		err := dec.Decode(&batch.Record{Key: c.key, Value: c.value}, &got)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q %q: error %v, want %q", c.key, c.value, err, c.err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%q %q: %+v, %v, want %+v", c.key, c.value, got, err, c.want)
		}
	}
	if err := codec.KeyValue(codec.String(), codec.CSV[customer]()).Err(); err == nil {
		t.Error("values of CSV are taken")
	}
}
