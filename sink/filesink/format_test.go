package filesink

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/sinktest"
)

// wrapping brings the suite's values, which are any bytes, into the column v, and back.
type wrapping struct {
	sink.Sink
}

func (w wrapping) Prepare(ctx context.Context, out *sink.Output) error {
	o := *out
	o.Parts = slices.Clone(out.Parts)
	for i, p := range o.Parts {
		recs := slices.Clone(p.Records)
		for j := range recs {
			v, err := json.Marshal(map[string]any{"v": string(recs[j].Value), "n": nil})
			if err != nil {
				return err
			}
			recs[j].Value = v
		}
		o.Parts[i].Records = recs
	}
	return w.Sink.Prepare(ctx, &o)
}

// formatted is a folder of files of a format with the columns v and n.
type formatted struct {
	t      *testing.T
	dir    string
	format Format
}

func (f formatted) Open() (sink.Sink, error) {
	s, err := New(Config{Pipeline: "p", Sink: "out", Dir: f.dir, Format: f.format})
	if err != nil {
		return nil, err
	}
	return wrapping{s}, nil
}

func (f formatted) Records(context.Context) ([]sink.Record, error) {
	var all []sink.Record
	for _, name := range names(f.t, f.dir) {
		b := read(f.t, filepath.Join(f.dir, name))
		if f.format.Form == FormParquet {
			for _, row := range parquetRowsOf(f.t, b) {
				all = append(all, sink.Record{Value: row[0].ByteArray()})
			}
			continue
		}
		r := csv.NewReader(bytes.NewReader(b))
		lines, err := r.ReadAll()
		if err != nil {
			return nil, err
		}
		for _, l := range lines[1:] {
			all = append(all, sink.Record{Value: []byte(l[0])})
		}
	}
	return all, nil
}

// names lists the files that readers see, by name.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.Name() == ".tridentd":
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		all = append(all, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// read reads a file as what it was before it was packed.
func read(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(name)
	must(t, err)
	defer f.Close() //nolint:errcheck // it was read
	var r io.Reader = f
	switch filepath.Ext(name) {
	case ".gz":
		r, err = gzip.NewReader(f)
	case ".zst":
		r, err = zstd.NewReader(f)
	}
	must(t, err)
	b, err := io.ReadAll(r)
	must(t, err)
	return b
}

func parquetRowsOf(t *testing.T, b []byte) (rows []parquet.Row) {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
	must(t, err)
	for _, g := range f.RowGroups() {
		r := g.Rows()
		buf := make([]parquet.Row, 100)
		for {
			n, err := r.ReadRows(buf)
			for _, row := range buf[:n] {
				rows = append(rows, row.Clone())
			}
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
		}
		must(t, r.Close())
	}
	return rows
}

func TestConformanceOfFormats(t *testing.T) {
	columns := []Column{{Name: "v", Type: TypeString}, {Name: "n", Type: TypeInt}}
	for _, f := range []Format{
		{Form: FormCSV, Columns: columns},
		{Form: FormCSV, Columns: columns, Compression: "zstd"},
		{Form: FormParquet, Columns: columns},
		{Form: FormParquet, Columns: columns, Compression: "gzip"},
	} {
		t.Run(f.Text(), func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Target { return formatted{t, t.TempDir(), f} }, sinktest.ValuesOnly())
		})
	}
}

// Reading has a field of each type.
type Reading struct {
	At      time.Time
	Sensor  string
	Value   codec.Null[float64]
	Count   int64
	Big     uint64
	Price   decimal.Decimal
	OK      bool
	Raw     []byte
	Tags    []string
	Scores  []float64
	Nested  map[string]int
	Elapsed time.Duration
}

func reading(hour int) Reading {
	price, err := decimal.Parse("-12.345")
	if err != nil {
		panic(err)
	}
	return Reading{
		At: time.Date(2026, 1, 31, hour, 30, 0, 123456789, time.UTC), Sensor: `a,"b"` + "\n", Value: codec.Of(0.1), Count: math.MinInt64, Big: math.MaxUint64, Price: price,
		OK: true, Raw: []byte{0, 255}, Tags: []string{"x", ""}, Nested: map[string]int{"b": 1, "a": 2}, Elapsed: time.Minute,
	}
}

// write writes values as one batch and returns the folder.
func write(t *testing.T, target Target[Reading], dir string, values ...Reading) {
	t.Helper()
	k, err := target.Open("p", "out", emitter.Env{Dir: dir})
	must(t, err)
	_, err = k.Claim(t.Context(), 1)
	must(t, err)
	must(t, k.Prepare(t.Context(), output(t, target, values...)))
	must(t, k.Commit(t.Context()))
	must(t, k.Close(t.Context()))
}

func output(t *testing.T, target Target[Reading], values ...Reading) *sink.Output {
	t.Helper()
	var buf sink.Buffer
	for _, v := range values {
		r := sink.Record{Timestamp: sink.NoTimestamp}
		must(t, target.Encode(v, &r))
		buf.Add(r)
	}
	return &sink.Output{Txid: 7, Epoch: 1, Chain: 7, Count: int64(len(values)), Parts: []sink.Part{{Partition: batch.Partition{Source: "in"}, Records: buf.Records}}}
}

func TestParquetTypes(t *testing.T) {
	dir := t.TempDir()
	null := reading(1)
	null.Value, null.Tags, null.Scores, null.Nested = codec.Null[float64]{}, nil, []float64{1, -2.5}, nil
	write(t, Parquet[Reading]("out"), dir, reading(0), null)
	b := read(t, filepath.Join(dir, "out", "out-00000000000000000007.parquet"))
	f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
	must(t, err)
	want := `message row {
	optional int64 at (TIMESTAMP(isAdjustedToUTC=true,unit=NANOS));
	optional binary sensor (STRING);
	optional double value;
	optional int64 count (INT(64,true));
	optional int64 big (INT(64,false));
	optional fixed_len_byte_array(16) price (DECIMAL(38,9));
	optional boolean ok;
	optional binary raw;
	optional group tags (LIST) {
		repeated group list {
			optional binary element (STRING);
		}
	}
	optional group scores (LIST) {
		repeated group list {
			optional double element;
		}
	}
	optional binary nested (JSON);
	optional binary elapsed (STRING);
}`
	if got := f.Schema().String(); got != want {
		t.Errorf("the schema is\n%s", got)
	}
	rows := parquetRowsOf(t, b)
	if len(rows) != 2 {
		t.Fatalf("%d rows", len(rows))
	}
	columns := func(row parquet.Row) (all [][]parquet.Value) {
		row.Range(func(_ int, values []parquet.Value) bool {
			all = append(all, slices.Clone(values))
			return true
		})
		return all
	}
	first, second := columns(rows[0]), columns(rows[1])
	if got := first[0][0].Int64(); got != reading(0).At.UnixNano() {
		t.Errorf("at: %d", got)
	}
	if got := string(first[1][0].ByteArray()); got != "a,\"b\"\n" {
		t.Errorf("sensor: %q", got)
	}
	if first[2][0].Double() != 0.1 || !second[2][0].IsNull() {
		t.Errorf("value: %v, %v", first[2], second[2])
	}
	if first[3][0].Int64() != math.MinInt64 || first[4][0].Uint64() != math.MaxUint64 {
		t.Errorf("count, big: %v, %v", first[3], first[4])
	}
	price := new(big.Int).SetBytes(first[5][0].ByteArray())
	price.Sub(price, new(big.Int).Lsh(big.NewInt(1), 128)) // it is negative
	if price.String() != "-12345000000" {
		t.Errorf("price: %s", price)
	}
	if !first[6][0].Boolean() || !bytes.Equal(first[7][0].ByteArray(), []byte{0, 255}) {
		t.Errorf("ok, raw: %v, %v", first[6], first[7])
	}
	if len(first[8]) != 2 || string(first[8][0].ByteArray()) != "x" || string(first[8][1].ByteArray()) != "" || first[8][1].IsNull() || len(second[8]) != 1 || second[8][0].DefinitionLevel() != 1 {
		t.Errorf("tags: %v, %v", first[8], second[8])
	}
	if len(second[9]) != 2 || second[9][1].Double() != -2.5 {
		t.Errorf("scores: %v", second[9])
	}
	if string(first[10][0].ByteArray()) != `{"a":2,"b":1}` || string(first[11][0].ByteArray()) != "1m0s" {
		t.Errorf("nested, elapsed: %s, %s", first[10][0], first[11][0])
	}
}

// TestParquetAsAStruct reads what was written as somebody else's program does.
func TestParquetAsAStruct(t *testing.T) {
	dir := t.TempDir()
	write(t, Parquet[Reading]("out").Compression("zstd"), dir, reading(0), reading(1))
	type row struct {
		At     time.Time `parquet:"at,timestamp(nanosecond)"`
		Sensor string    `parquet:"sensor"`
		Count  int64     `parquet:"count"`
		Tags   []string  `parquet:"tags,list"`
	}
	rows, err := parquet.ReadFile[row](filepath.Join(dir, "out", "out-00000000000000000007.parquet"))
	must(t, err)
	if len(rows) != 2 || !rows[1].At.Equal(reading(1).At) || rows[1].Sensor != reading(1).Sensor || rows[1].Count != math.MinInt64 || !slices.Equal(rows[1].Tags, []string{"x", ""}) {
		t.Errorf("%+v", rows)
	}
}

func TestCSV(t *testing.T) {
	dir := t.TempDir()
	empty := Reading{At: time.Unix(0, 0)}
	write(t, CSV[Reading]("out").Compression("gzip"), dir, reading(0), empty)
	got := string(read(t, filepath.Join(dir, "out", "out-00000000000000000007.csv.gz")))
	want := `at,sensor,value,count,big,price,ok,raw,tags,scores,nested,elapsed
2026-01-31T00:30:00.123456789Z,"a,""b""
",0.1,-9223372036854775808,18446744073709551615,-12.345,true,AP8=,"[""x"",""""]",[],"{""a"":2,""b"":1}",1m0s
1970-01-01T00:00:00Z,"",,0,0,0,false,"",[],[],{},0s
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestCSVOfOneColumn: readers pass over empty lines, so that there must be none.
func TestCSVOfOneColumn(t *testing.T) {
	k, err := New(Config{Pipeline: "p", Sink: "out", Dir: t.TempDir(), Format: Format{Form: FormCSV, Columns: []Column{{Name: "v"}}}})
	must(t, err)
	_, err = k.Claim(t.Context(), 1)
	must(t, err)
	must(t, k.Prepare(t.Context(), out(1, 1, `{"v":null}`, `{"v":1}`, `{"v":"a"}`)))
	must(t, k.Commit(t.Context()))
	if got := string(read(t, filepath.Join(k.cfg.Dir, "out-00000000000000000001.csv"))); got != "v\n\"\"\n1\na\n" {
		t.Errorf("%q", got)
	}
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	at := func(r Reading) time.Time { return r.At }
	never := reading(0)
	never.At = time.Time{}
	for _, c := range []struct {
		target Target[Reading]
		want   []string
	}{
		{JSON[Reading]("hours").By(Hour, at), []string{
			"day=2026-01-31/hour=01/out-00000000000000000007.jsonl", "day=2026-01-31/hour=13/out-00000000000000000007.jsonl",
			"day=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__/out-00000000000000000007.jsonl",
		}},
		{CSV[Reading]("days").By(Day, at).Compression("zstd"), []string{
			"day=2026-01-31/out-00000000000000000007.csv.zst", "day=__HIVE_DEFAULT_PARTITION__/out-00000000000000000007.csv.zst",
		}},
	} {
		write(t, c.target, dir, reading(13), reading(1), never, reading(13))
		if got := names(t, filepath.Join(dir, c.target.dir)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", c.target.dir, got)
		}
	}
	if got := bytes.Count(read(t, filepath.Join(dir, "hours", "day=2026-01-31", "hour=13", "out-00000000000000000007.jsonl")), []byte("\n")); got != 2 {
		t.Errorf("%d rows in the folder of two", got)
	}
}

// TestNamingOfFoldersCutOff stops while the files of a batch get their names: the claim that follows goes on with it.
func TestNamingOfFoldersCutOff(t *testing.T) {
	dir := t.TempDir()
	target := JSON[Reading]("out").By(Hour, func(r Reading) time.Time { return r.At })
	k, err := target.Open("p", "out", emitter.Env{Dir: dir})
	must(t, err)
	_, err = k.Claim(t.Context(), 1)
	must(t, err)
	must(t, k.Prepare(t.Context(), output(t, target, reading(1), reading(2), reading(3))))
	s := k.(*Sink)
	must(t, s.journal.take(s.at, s.part))
	first := *s.part
	first.Files = first.Files[:1]
	must(t, s.publish(&first, true))
	if got := names(t, s.cfg.Dir); len(got) != 1 {
		t.Fatalf("%q", got)
	}
	// Whoever goes on may write in another form meanwhile.
	next, err := Parquet[Reading]("out").Open("p", "out", emitter.Env{Dir: dir})
	must(t, err)
	p, err := next.Claim(t.Context(), 2)
	must(t, err)
	if got := names(t, s.cfg.Dir); p.Txid != 7 || len(got) != 3 || got[2] != "day=2026-01-31/hour=03/out-00000000000000000007.jsonl" {
		t.Errorf("%+v: %q", p, got)
	}
}

// TestSameBytes writes a batch twice.
func TestSameBytes(t *testing.T) {
	var values []Reading
	for i := range 5000 {
		r := reading(i % 24)
		r.Count, r.Sensor = int64(i), fmt.Sprintf("sensor %d", i%100)
		values = append(values, r)
	}
	for _, target := range []Target[Reading]{
		JSON[Reading]("").Compression("gzip"), JSON[Reading]("").Compression("zstd"), CSV[Reading]("").Compression("zstd"),
		Parquet[Reading](""), Parquet[Reading]("").Compression("zstd"), Parquet[Reading]("").Compression("gzip"),
	} {
		var files [2][]byte
		for i := range files {
			target.dir = t.TempDir()
			write(t, target, "", values...)
			all := names(t, target.dir)
			if len(all) != 1 {
				t.Fatalf("%q", all)
			}
			var err error
			files[i], err = os.ReadFile(filepath.Join(target.dir, all[0]))
			must(t, err)
		}
		if !bytes.Equal(files[0], files[1]) {
			t.Errorf("%s: the files of the same batch differ", target.format.Text())
		}
	}
}

// TestWhatParquetCantHold: such a value is a bad record where it is encoded, before anything is delivered.
func TestWhatParquetCantHold(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Reading)
		want   string
	}{
		"digits behind": {func(r *Reading) { r.Price, _ = decimal.Parse("0.001") }, "field price: 0.001 has more than 2 digits behind the point"},
		"digits before": {func(r *Reading) { r.Price, _ = decimal.Parse("1" + strings.Repeat("0", 36)) }, "has more than 36 digits before the point"},
		"time":          {func(r *Reading) { r.At = time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC) }, "field at: time 3000-01-01T00:00:00Z is outside the years 1678 to 2261"},
	} {
		v := reading(0)
		v.Price, _ = decimal.Parse("-" + strings.Repeat("9", 36) + ".99")
		target := Parquet[Reading]("").Scale(2)
		var r sink.Record
		must(t, target.Encode(v, &r))
		c.change(&v)
		if err := target.Encode(v, &r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWrongFormats(t *testing.T) {
	one := []Column{{Name: "a"}}
	for want, f := range map[string]Format{
		`encode: "xml" is not one of json, csv, parquet`:       {Form: "xml"},
		`compression: "rar" is not one of none, gzip, zstd`:    {Compression: "rar"},
		`compression: "snappy" is not one of none, gzip, zstd`: {Form: FormCSV, Columns: one, Compression: "snappy"},
		`the rows have no fields`:                              {Form: FormCSV},
		`two fields are named a`:                               {Form: FormParquet, Columns: []Column{{Name: "a"}, {Name: "a"}}},
		`scale: 39 is not within 0 and 38`:                     {Form: FormParquet, Columns: []Column{{Name: "a", Scale: 39}}},
	} {
		if err := f.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := CSV[string]("x").Open("p", "s", emitter.Env{}); err == nil || batch.CodeOf(err) != batch.CodeConfiguration || !strings.Contains(err.Error(), "string is no struct with fields") {
		t.Errorf("a string as CSV: %v", err)
	}
	if _, err := JSON[Reading]("x").By("week", func(r Reading) time.Time { return r.At }).Open("p", "s", emitter.Env{}); err == nil || !strings.Contains(err.Error(), `by: "week" is neither day nor hour`) {
		t.Errorf("by week: %v", err)
	}
}

// TestFolderOutside: a record's topic can't lead out of the folder, nor into the sink's own.
func TestFolderOutside(t *testing.T) {
	for _, name := range []string{"../x", "/x", "a/../../x", ".tridentd", "a/.b", "a//b"} {
		k, err := New(Config{Pipeline: "p", Sink: "out", Dir: t.TempDir()})
		must(t, err)
		_, err = k.Claim(t.Context(), 1)
		must(t, err)
		o := out(1, 1, "a")
		o.Parts[0].Records[0].Topic = name
		if err := k.Prepare(t.Context(), o); batch.CodeOf(err) != batch.CodeBadRecord {
			t.Errorf("%s: %v", name, err)
		}
	}
}
