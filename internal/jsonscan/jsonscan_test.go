package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/buger/jsonparser"
	"pgregory.net/rapid"
)

func TestScan(t *testing.T) {
	s := New([]string{"user", "n", "x"})
	for _, c := range []struct {
		doc  string
		want string // kind:raw of each field
	}{
		{`{}`, "missing: missing: missing:"},
		{` { } `, "missing: missing: missing:"},
		{`{"user":"ann","n":12}`, "a string:ann an integer:12 missing:"},
		{`{ "n" : -0 , "user" : null }`, "null:null an integer:-0 missing:"},
		{`{"a":{"user":1,"b":[{},[]]},"user":true,"x":[1, 2]}`, "true:true missing: an array:[1, 2]"},
		{`{"x":{"user":"in"},"n":1.50e3}`, `missing: a number with a fraction or an exponent:1.50e3 an object:{"user":"in"}`},
		{`{"us\u0065r":"\"q\"","n":false}`, `a string:\"q\" false:false missing:`},
		{`{"\ud800":1,"user":""}`, "a string: missing: missing:"},
		{`{"user":"grüße 𝄞 and more than eight"}`, "a string:grüße 𝄞 and more than eight missing: missing:"},
		{`{"a":1,"a":2,"n":9223372036854775808}`, "missing: an integer:9223372036854775808 missing:"},
	} {
		out := make([]Field, 3)
		for range 2 { // the second time with the shape known
			if err := s.Scan([]byte(c.doc), out); err != nil {
				t.Fatalf("%s: %v", c.doc, err)
			}
			var got []string
			for _, f := range out {
				got = append(got, fmt.Sprintf("%v:%s", f.Kind, f.Raw))
			}
			if g := strings.Join(got, " "); g != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.doc, g, c.want)
			}
		}
	}
}

func TestScanRefuses(t *testing.T) {
	deep := func(n int) string { return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}` }
	for _, c := range []struct{ doc, want string }{
		{``, "offset 0: the text ends too early"},
		{`  `, "offset 2: the text ends too early"},
		{`[1]`, "offset 0: invalid character '[' where an object must begin"},
		{`"x"`, `offset 0: invalid character '"' where an object must begin`},
		{`{`, "offset 1: the text ends too early"},
		{`{"a"`, "offset 4: the text ends too early"},
		{`{"a" 1}`, "offset 5: invalid character '1' after a name, where a colon is due"},
		{`{a:1}`, "offset 1: invalid character 'a' where a name in quotes is due"},
		{`{"a":}`, "offset 5: invalid character '}' where a value is due"},
		{`{"a":1,}`, "offset 7: invalid character '}' where a name in quotes is due"},
		{`{"a":1 "b":2}`, `offset 7: invalid character '"' after an object's member`},
		{`{"a":1}x`, "offset 7: invalid character 'x' after the object"},
		{`{"a":1}{"a":1}`, "offset 7: invalid character '{' after the object"},
		{`{"a":01}`, "offset 6: invalid character '1' after an object's member"},
		{`{"a":+1}`, "offset 5: invalid character '+' where a value is due"},
		{`{"a":1.}`, "offset 7: invalid character '}' in a number"},
		{`{"a":1e}`, "offset 7: invalid character '}' in a number"},
		{`{"a":-}`, "offset 6: invalid character '}' in a number"},
		{`{"a":-`, "offset 6: the text ends too early"},
		{`{"a":NaN}`, "offset 5: invalid character 'N' where a value is due"},
		{`{"a":nul}`, "offset 8: invalid character '}' in a word: only true, false and null are words"},
		{`{"a":tru`, "offset 8: the text ends too early"},
		{`{"a":[1 2]}`, "offset 8: invalid character '2' after an array's element"},
		{`{"a":[1,]}`, "offset 8: invalid character ']' where a value is due"},
		{`{"a":"\x"}`, "offset 7: invalid character 'x' in an escape"},
		{`{"a":"\u12g4"}`, "offset 10: invalid character 'g' in an escape"},
		{"{\"a\":\"b\tc\"}", `offset 7: invalid character '\t' in a string: it must be escaped`},
		{"{\"a\":\"b\xffc\"}", "offset 7: byte 0xff is not UTF-8"},
		{"{\"a\":\"\xed\xa0\x80\"}", "offset 6: byte 0xed is not UTF-8"},
		{"{\"a\xc3\":1}", "offset 3: byte 0xc3 is not UTF-8"},
		{"\ufeff{}", `offset 0: invalid character '\ufeff' where an object must begin`},
		{"{\"a\":\xff}", "offset 5: invalid byte 0xff where a value is due"},
		{`{"user":1,"user":1}`, "offset 17: field user occurs twice"},
		{`{"user":1,"\u0075ser":null}`, "offset 22: field user occurs twice"},
		{deep(MaxDepth), "offset 516: more than 512 levels of objects and arrays"},
	} {
		err := New([]string{"user"}).Scan([]byte(c.doc), make([]Field, 1))
		if err == nil || err.Error() != c.want {
			t.Errorf("%.40s\n got %v\nwant %s", c.doc, err, c.want)
		}
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("%.40s: %T is no *Error", c.doc, err)
		}
	}
	if err := New(nil).Scan([]byte(deep(MaxDepth-1)), nil); err != nil {
		t.Errorf("%d levels: %v", MaxDepth, err)
	}
}

func TestNewPanicsOnRepeatedField(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a repeated field was taken")
		}
	}()
	New([]string{"a", "b", "a"})
}

// valid tells what Scan must accept.
func valid(doc []byte) bool {
	return json.Valid(doc) && utf8.Valid(doc) && bytes.HasPrefix(bytes.TrimLeft(doc, " \t\r\n"), []byte("{"))
}

func FuzzScan(f *testing.F) {
	for _, s := range []string{
		`{"user":"ann","page":"/p/1","ms":12,"n":3}`, `{"a":[1,-2.5e+3,{"b":null}],"c":"\u00e9\n"}`, `{}`, `{"a":tru}`, "{\"a\":\"\xff\"}",
		`{"user": "abcdefgh\\\"", "n":[[[]]] } `, `{"a":1}}`, `{"n":0.0e-0}`,
	} {
		f.Add([]byte(s))
	}
	warm := New([]string{"user", "n"})
	f.Fuzz(func(t *testing.T, doc []byte) {
		out := make([]Field, 2)
		err := warm.Scan(doc, out)
		cold := make([]Field, 2)
		if err2 := New([]string{"user", "n"}).Scan(doc, cold); fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("%q: %v after other documents, %v at first", doc, err, err2)
		}
		var e *Error
		if errors.As(err, &e) && (strings.Contains(e.Msg, "twice") || strings.Contains(e.Msg, "levels")) {
			return
		}
		if (err == nil) != valid(doc) {
			t.Fatalf("%q: %v, encoding/json says %v", doc, err, valid(doc))
		}
		if err != nil {
			if e.Offset < 0 || e.Offset > len(doc) {
				t.Fatalf("%q: offset %d", doc, e.Offset)
			}
			return
		}
		checkAgainstJSON(t, doc, []string{"user", "n"}, out)
		checkAgainstJSON(t, doc, []string{"user", "n"}, cold)
	})
}

type fataler interface {
	Fatalf(format string, args ...any)
}

func checkAgainstJSON(t fataler, doc []byte, fields []string, out []Field) {
	var want map[string]json.RawMessage
	if err := json.Unmarshal(doc, &want); err != nil {
		t.Fatalf("%q: %v", doc, err)
	}
	for i, name := range fields {
		raw, found := want[name]
		f := out[i]
		if !found {
			if f.Kind != Missing {
				t.Fatalf("%q: %s is %v", doc, name, f.Kind)
			}
			continue
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		switch v := v.(type) {
		case string:
			got, err := Unescape(nil, f.Raw)
			if f.Kind != String || f.Escaped != bytes.ContainsRune(f.Raw, '\\') {
				t.Fatalf("%q: %s is %v %q, want the string %q", doc, name, f.Kind, f.Raw, v)
			}
			if err != nil && !strings.ContainsRune(v, utf8.RuneError) || err == nil && string(got) != v {
				t.Fatalf("%q: %s is %q, %v; want %q", doc, name, got, err, v)
			}
		case json.Number:
			if string(f.Raw) != v.String() || (f.Kind == Number) == strings.ContainsAny(v.String(), ".eE") {
				t.Fatalf("%q: %s is %v %q, want %s", doc, name, f.Kind, f.Raw, v)
			}
			n, err := v.Int64()
			if got, ok := ParseInt(f.Raw); ok != (err == nil) || got != n && ok {
				t.Fatalf("%q: integer %d %v, want %d %v", doc, got, ok, n, err)
			}
			x, err := v.Float64()
			if got, ok := ParseFloat(f.Raw); ok != (err == nil) || ok && math.Float64bits(got) != math.Float64bits(x) {
				t.Fatalf("%q: float %v %v, want %v %v", doc, got, ok, x, err)
			}
		default:
			if kind := map[string]Kind{"null": Null, "true": True, "false": False}[string(raw)]; kind != Missing && kind != f.Kind {
				t.Fatalf("%q: %s is %v, want %v", doc, name, f.Kind, kind)
			}
			if !bytes.Equal(f.Raw, raw) || (f.Kind == Array) != (raw[0] == '[') || (f.Kind == Object) != (raw[0] == '{') {
				t.Fatalf("%q: %s is %v %q, want %s", doc, name, f.Kind, f.Raw, raw)
			}
		}
	}
}

// text draws JSON values with white space, escapes and nesting.
func text(t *rapid.T, depth int) string {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r"})
	pad := func(s string) string { return space.Draw(t, "before") + s + space.Draw(t, "after") }
	n := 6
	if depth == 0 {
		n = 4
	}
	switch rapid.IntRange(0, n).Draw(t, "kind") {
	case 0:
		return pad(rapid.SampledFrom([]string{"null", "true", "false", "0", "-0", "1e999", "9223372036854775807", "-9223372036854775809"}).Draw(t, "word"))
	case 1:
		return pad(strconv.FormatInt(rapid.Int64().Draw(t, "int"), 10))
	case 2:
		return pad(strconv.FormatFloat(rapid.Float64Range(-1e300, 1e300).Draw(t, "float"), 'e', -1, 64))
	case 3, 4:
		b, _ := json.Marshal(rapid.String().Draw(t, "string"))
		return pad(string(b))
	case 5:
		var parts []string
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			parts = append(parts, text(t, depth-1))
		}
		if len(parts) == 0 {
			return "[]"
		}
		return pad("[" + strings.Join(parts, ",") + "]")
	default:
		return pad(objectText(t, depth-1))
	}
}

func objectText(t *rapid.T, depth int) string {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"user", "n", "x", "ü", "", "a long name of a field", `us\u0065r2`, "y", "z"}), 0, 6, rapid.ID).Draw(t, "names")
	var parts []string
	for _, n := range names {
		parts = append(parts, `"`+n+`"`+rapid.SampledFrom([]string{":", " :", ": "}).Draw(t, "colon")+text(t, depth))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestScanAgainstEncodingJSON(t *testing.T) {
	fields := []string{"n", "user", "user2", "ü", ""}
	many := []string{"n", "user", "user2", "ü", "", "p", "q", "r"} // beyond the linear search
	warm, warmMany := New(fields), New(many)
	rapid.Check(t, func(t *rapid.T) {
		doc := []byte(objectText(t, 3))
		out, outMany := make([]Field, len(fields)), make([]Field, len(many))
		if err := warm.Scan(doc, out); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		checkAgainstJSON(t, doc, fields, out)
		if err := warmMany.Scan(doc, outMany); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		checkAgainstJSON(t, doc, many, outMany)
		// One changed byte: the verdict is still encoding/json's.
		i := rapid.IntRange(0, len(doc)-1).Draw(t, "at")
		doc[i] = rapid.SampledFrom([]byte("\"\\{}[],:0123456789eE+-. \x00\x1f\x80\xc3ntfu")).Draw(t, "byte")
		err := warm.Scan(doc, out)
		if err != nil && strings.Contains(err.Error(), "twice") {
			return
		}
		if (err == nil) != valid(doc) {
			t.Fatalf("%q: %v, encoding/json says %v", doc, err, valid(doc))
		}
	})
}

func TestUnescape(t *testing.T) {
	for raw, want := range map[string]string{
		`plain`: "plain", `a\"b\\c\/d\b\f\n\r\t`: "a\"b\\c/d\b\f\n\r\t", `\u00e9\u20AC`: "é€", `\ud834\uDD1E!`: "𝄞!", ``: "",
	} {
		if got, err := Unescape([]byte(">"), []byte(raw)); err != nil || string(got) != ">"+want {
			t.Errorf("%s: %q, %v", raw, got, err)
		}
	}
	for _, raw := range []string{`\ud834`, `\ud834x`, `\ud834\n`, `\ud834\u0041`, `\udd1e`, `\ud834\ud834`} {
		if got, err := Unescape(nil, []byte(raw)); !errors.Is(err, errSurrogate) {
			t.Errorf("%s: %q, %v", raw, got, err)
		}
	}
	for _, raw := range []string{`\`, `\q`, `\u12`, `\u12g4`} {
		if got, err := Unescape(nil, []byte(raw)); err == nil {
			t.Errorf("%s: %q", raw, got)
		}
	}
}

func TestParseInt(t *testing.T) {
	for raw, want := range map[string]int64{
		"0": 0, "-0": 0, "7": 7, "-12": -12, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64, "9007199254740993": 9007199254740993,
	} {
		if got, ok := ParseInt([]byte(raw)); !ok || got != want {
			t.Errorf("%s: %d, %v", raw, got, ok)
		}
	}
	for _, raw := range []string{"", "-", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "99999999999999999999", "1.0", "1e3", "+1", "x", "1 "} {
		if got, ok := ParseInt([]byte(raw)); ok {
			t.Errorf("%q: %d", raw, got)
		}
	}
}

var benchDoc = []byte(`{"user":"u0012345","page":"/products/771","ms":1764633600123,"n":17}`)

func TestScanAllocatesNothing(t *testing.T) {
	s, out := New([]string{"user", "n"}), make([]Field, 2)
	docs := [][]byte{benchDoc, []byte(`{"n": 1, "x": {"y": [1, "z"]}, "us\u0065r": "\n"}`)}
	i := 0
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Scan(docs[i%2], out); err != nil {
			t.Fatal(err)
		}
		i++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkScan(b *testing.B) {
	s, out := New([]string{"user", "n"}), make([]Field, 2)
	b.SetBytes(int64(len(benchDoc)))
	b.ReportAllocs()
	var sum int64
	for b.Loop() {
		if err := s.Scan(benchDoc, out); err != nil {
			b.Fatal(err)
		}
		n, _ := ParseInt(out[1].Raw)
		sum += n
	}
}

func BenchmarkScanShapesVary(b *testing.B) {
	s, out := New([]string{"user", "n"}), make([]Field, 2)
	docs := [][]byte{benchDoc, []byte(`{"n":17,"ms":1764633600123,"page":"/products/771","user":"u0012345"}`)}
	b.SetBytes(int64(len(benchDoc)))
	i := 0
	for b.Loop() {
		if err := s.Scan(docs[i&1], out); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkJSONParser(b *testing.B) {
	b.SetBytes(int64(len(benchDoc)))
	b.ReportAllocs()
	paths := [][]string{{"user"}, {"n"}}
	var sum int64
	for b.Loop() {
		jsonparser.EachKey(benchDoc, func(i int, v []byte, _ jsonparser.ValueType, err error) {
			if i == 1 {
				n, _ := jsonparser.ParseInt(v)
				sum += n
			}
		}, paths...)
	}
}

func BenchmarkEncodingJSON(b *testing.B) {
	b.SetBytes(int64(len(benchDoc)))
	b.ReportAllocs()
	var sum int64
	for b.Loop() {
		var v struct {
			User string `json:"user"`
			N    int64  `json:"n"`
		}
		if err := json.Unmarshal(benchDoc, &v); err != nil {
			b.Fatal(err)
		}
		sum += v.N
	}
}

func TestElementsAndMembers(t *testing.T) {
	doc := []byte(` { "a" : [ 1, "x\n" ,[] , {"b":2}], "a":null , "e":{} } `)
	var got []string
	Members(doc, func(name, v Field) bool {
		got = append(got, fmt.Sprintf("%s=%v", name.Raw, v.Kind))
		switch v.Kind {
		case Array:
			Elements(v.Raw, func(f Field) bool {
				got = append(got, fmt.Sprintf("[%s %v]", f.Raw, f.Escaped))
				return f.Kind != Array
			})
		case Object:
			Members(v.Raw, func(Field, Field) bool { t.Error("a member of {}"); return true })
		}
		return true
	})
	want := `a=an array [1 false] [x\n true] [[] false] a=null e=an object`
	if g := strings.Join(got, " "); g != want {
		t.Errorf("got  %s\nwant %s", g, want)
	}
}
