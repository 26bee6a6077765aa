package csvscan

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// records cuts all of data.
func records(data string) []string {
	var out []string
	rest := []byte(data)
	for len(rest) > 0 {
		rec, size := Cut(rest)
		if size == 0 {
			rec, size = Rest(rest), len(rest)
		}
		out = append(out, string(rec))
		rest = rest[size:]
	}
	return out
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		data string
		want []string
	}{
		{"a,b\nc,d\n", []string{"a,b", "c,d"}},
		{"a,b\r\nc,d", []string{"a,b", "c,d"}},
		{"a\r", []string{"a"}},
		{"\n\na\n", []string{"", "", "a"}},
		{"\"a\nb\",c\nd\n", []string{"\"a\nb\",c", "d"}},
		{"x,\"a\r\nb\"\r\ny\n", []string{"x,\"a\r\nb\"", "y"}},
		{"\"a\"\"\nb\"\nc\n", []string{"\"a\"\"\nb\"", "c"}},
		{"a\"b\nc\n", []string{"a\"b", "c"}},             // faulty, and still one line
		{"\"a\"b\",c\nd\n", []string{"\"a\"b\",c", "d"}}, // faulty behind the closing quote
		{"\"open\nfor ever\n", []string{"\"open\nfor ever\n"}},
		{"\"\"\n\"\"", []string{"\"\"", "\"\""}},
	} {
		if got := records(c.data); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.data, got, c.want)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want []string
		err  string
	}{
		{raw: "", want: []string{""}},
		{raw: "a", want: []string{"a"}},
		{raw: "a,,b,", want: []string{"a", "", "b", ""}},
		{raw: `"",""`, want: []string{"", ""}},
		{raw: `"a,b","c""d","""",e`, want: []string{"a,b", `c"d`, `"`, "e"}},
		{raw: "\"a\nb\r\nc\"", want: []string{"a\nb\r\nc"}},
		{raw: " a , b", want: []string{" a ", " b"}},
		{raw: `a"b`, err: "offset 1: a quote inside a field that doesn't begin with one"},
		{raw: `x, "b"`, err: "offset 3: a quote inside a field that doesn't begin with one"},
		{raw: `x,"b`, err: "offset 2: this quote is never closed"},
		{raw: `x,"b""`, err: "offset 2: this quote is never closed"},
		{raw: `"a"b,c`, err: "offset 3: text between a closing quote and the comma"},
		{raw: "a\nb", err: "offset 1: a line feed outside quotes"},
	} {
		fields, _, err := Split([]byte(c.raw), nil, nil)
		if c.err != "" {
			var e *Error
			if !errors.As(err, &e) || err.Error() != c.err {
				t.Errorf("%q: %v, want %s", c.raw, err, c.err)
			}
			continue
		}
		if err != nil || !slices.Equal(texts(fields), c.want) {
			t.Errorf("%q: %q, %v; want %q", c.raw, fields, err, c.want)
		}
	}
}

func texts(fields [][]byte) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = string(f)
	}
	return out
}

func TestCount(t *testing.T) {
	if err := Count(make([][]byte, 2), 2); err != nil {
		t.Error(err)
	}
	if err := Count(make([][]byte, 3), 2); err == nil || err.Error() != "3 fields where the header line has 2" {
		t.Error(err)
	}
}

// split reads all of data as readers of files do: empty lines are no records.
func split(data string) ([][]string, error) {
	var out [][]string
	var fields [][]byte
	var scratch []byte
	for _, rec := range records(data) {
		if rec == "" {
			continue
		}
		var err error
		if fields, scratch, err = Split([]byte(rec), fields[:0], scratch[:0]); err != nil {
			return out, err
		}
		out = append(out, texts(fields))
	}
	return out, nil
}

// TestAgainstEncodingCSV checks any text against the standard library: the same records, or both refuse.
func TestAgainstEncodingCSV(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.StringOfN(rapid.SampledFrom([]rune("ab,,\"\"\n\n\rü")), 0, 40, -1).Draw(t, "data")
		r := csv.NewReader(strings.NewReader(data))
		r.FieldsPerRecord = -1
		var want [][]string
		var wantErr error
		for {
			rec, err := r.Read()
			if err == io.EOF {
				break
			}
			if err != nil {
				wantErr = err
				break
			}
			want = append(want, rec)
		}
		got, err := split(data)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, encoding/csv %v", data, err, wantErr)
		}
		// encoding/csv drops a carriage return before a line feed within quotes, which changes the data.
		for _, rec := range got {
			for i := range rec {
				rec[i] = strings.ReplaceAll(rec[i], "\r\n", "\n")
			}
		}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("%q\n got %q\nwant %q", data, got, want)
		}
	})
}

// TestRoundTrip checks that what encoding/csv writes comes back, in whatever pieces it arrives.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.StringOf(rapid.SampledFrom([]rune("ab ,\"\n;ü")))
		want := rapid.SliceOfN(rapid.SliceOfN(field, 2, 4), 1, 5).Draw(t, "records")
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		if err := w.WriteAll(want); err != nil {
			t.Fatal(err)
		}
		got, err := split(b.String())
		if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
		// A piece that ends early never yields another first record.
		n := rapid.IntRange(0, b.Len()).Draw(t, "piece")
		whole, _ := Cut(b.Bytes())
		if part, size := Cut(b.Bytes()[:n]); size > 0 && !bytes.Equal(part, whole) {
			t.Fatalf("%q of %d bytes, %q of all", part, n, whole)
		}
	})
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte("a,\"b\"\"c\",d"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		fields, _, err := Split(raw, nil, nil)
		if err == nil && len(fields) == 0 {
			t.Fatalf("%q: no field and no error", raw)
		}
	})
}

func BenchmarkSplit(b *testing.B) {
	raw := []byte("2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z")
	var fields [][]byte
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if fields, _, err = Split(raw, fields[:0], nil); err != nil {
			b.Fatal(err)
		}
	}
}
