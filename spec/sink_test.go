package spec

import (
	"compress/gzip"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/txstate"
)

// TestSinks runs a pipeline with files on both ends.
func TestSinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in.csv"), []byte("id,n\na,1\nb,x\nc,3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Parse("p.yaml", []byte(`
pipeline: p
sources:
  s: {file: {paths: [in.csv]}, decode: csv}
streams:
  numbers:
    from: s
    steps:
      - filter: n != "x"
      - set:
          twice: int(n) * 2
          none: nil
  counts:
    from: s
    steps:
      - batch_aggregate: {rows: count()}
sinks:
  all: {from: numbers, file: {dir: out}}
  some: {from: [numbers, s], fields: [n, id], file: {dir: out}}
  totals: {from: counts, file: {dir: out}}
`), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Run(t.Context(), engine.Wrap(pl), engine.Options{DataDir: filepath.Join(dir, "data"), UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"all":    `{"id":"a","n":"1","none":null,"twice":2}|{"id":"c","n":"3","none":null,"twice":6}`,
		"some":   `{"n":"1","id":"a"}|{"n":"1","id":"a"}|{"n":"x","id":"b"}|{"n":"3","id":"c"}|{"n":"3","id":"c"}`,
		"totals": `{"rows":3}`,
	} {
		b, err := os.ReadFile(filepath.Join(dir, "out", name+"-00000000000000000001.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(strings.TrimSuffix(string(b), "\n"), "\n", "|"); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestTableSinks keeps what an aggregate comes to in a table by key, and adds rows to another.
func TestTableSinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in.csv"), []byte("id,customer,amount\n1,a,1.10\n2,b,2.20\n3,a,0.90\n4,,7\n5,b,0.01\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // the file goes
	for _, s := range []string{"CREATE TABLE totals (customer text NOT NULL PRIMARY KEY, orders integer, total text)", "CREATE TABLE orders (n integer PRIMARY KEY, id integer, customer text)"} {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Parse("p.yaml", []byte(`
pipeline: p
batch: {max_records: 2}
sources:
  s: {file: {paths: [in.csv]}, decode: csv, types: {id: int, amount: decimal}}
streams:
  known: {from: s, steps: [{filter: customer != ""}]}
  totals:
    from: known
    steps:
      - group_by: customer
      - aggregate: {orders: count(), total: sum(amount)}
sinks:
  totals: {from: totals, sqlite: {path: shop.db, table: totals, columns: [customer, total, orders], key: customer}}
  orders: {from: known, sqlite: {path: shop.db, table: orders, columns: [id, customer]}}
`), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Run(t.Context(), engine.Wrap(pl), engine.Options{DataDir: filepath.Join(dir, "data"), UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"SELECT group_concat(customer || ' ' || orders || ' ' || total, ', ' ORDER BY customer) FROM totals":  "a 2 2, b 2 2.21",
		"SELECT group_concat(id || customer, ', ' ORDER BY n) FROM orders":                                    "1a, 2b, 3a, 5b",
		"SELECT group_concat(pipeline || '.' || sink || ' ' || txid, ', ' ORDER BY sink) FROM tridentd_sinks": "p.orders 3, p.totals 3",
	} {
		var got string
		if err := db.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", query, got, err, want)
		}
	}
	findings := pl.Sinks[1].Check(t.Context(), doctor.Env{Pipeline: "p", Sink: "totals"})
	if len(findings) != 3 || findings[0].Subject != "sqlite "+filepath.Join(dir, "shop.db") || findings[2].Text != "holds the output up to txid 3, of epoch 1" {
		t.Errorf("%+v", findings)
	}
}

// TestSinkOutputWhateverTheChunks holds the output of several ways to one sink against that of other cuts into chunks.
func TestSinkOutputWhateverTheChunks(t *testing.T) {
	p, err := Parse("p.yaml", []byte(`
pipeline: p
sources:
  s:
    generate: {kind: users, seed: 1}
    types: {user: string, n: int, at: timestamp}
    time: {field: at}
    on_bad_record: skip
streams:
  ones: {from: s, steps: [{filter: n % 2 == 1}]}
  many:
    from: s
    steps:
      - flat_map:
          part: split(user, "")
sinks:
  out:
    from: [many, ones, s]
    fields: [user, n]
    kafka:
      brokers: ["b:9092"]
      topic: t
      key: user
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var recs []batch.Record
	for i := range 3 * blockRows {
		recs = append(recs, batch.Record{Offset: int64(i), Value: fmt.Appendf(nil, `{"user":"u%d","n":%d,"at":"2026-01-01T00:00:%02dZ"}`, i%7, i, i%60)})
	}
	run := func(chunk int) []sink.Record {
		task := pl.Sources[0].NewTask()
		tc := &plan.TaskContext{
			Batch: &batch.Batch{Txid: 1, Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, Partition: batch.Partition{Source: "s"}, EventTime: txstate.NoTime,
			Future: time.Hour, Watermarks: []int64{txstate.NoTime}, Sinks: make([]*sink.Buffer, 1),
		}
		if err := task.Begin(tc); err != nil {
			t.Fatal(err)
		}
		for c := range slices.Chunk(recs, chunk) {
			if err := task.Process(&batch.Chunk{Records: c}); err != nil {
				t.Fatal(err)
			}
		}
		if err := task.End(); err != nil {
			t.Fatal(err)
		}
		return tc.Sinks[0].Records
	}
	want := run(len(recs))
	first := want[0]
	if len(want) != 3*blockRows*2+3*blockRows+3*blockRows/2 || string(first.Key) != "u0" || string(first.Value) != `{"user":"u0","n":0}` || first.Timestamp != time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() {
		t.Fatalf("%d records, the first is %s: %s at %d", len(want), first.Key, first.Value, first.Timestamp)
	}
	for _, chunk := range []int{1, 7, blockRows + 1} {
		if got := run(chunk); !reflect.DeepEqual(got, want) {
			t.Errorf("in chunks of %d the output is another", chunk)
		}
	}
}

const formsOfFiles = `
pipeline: p
sources:
  s:
    file: {paths: [in.jsonl]}
    decode: json
    types: {id: string, at: timestamp, amount: decimal, n: int}
    on_bad_record: skip
streams:
  tagged:
    from: s
    steps:
      - set:
          words: split(id, " ")
sinks:
  hours:
    from: tagged
    fields: [id, amount, at, n, words]
    encode: parquet
    file: {dir: out, by: {field: at, unit: hour}, scale: 2}
  text:
    from: s
    fields: [id, amount, n]
    encode: csv
    file: {dir: out, compression: gzip}
`

// TestFormsOfFiles runs a pipeline into files of each form, in folders by hour, and reads them.
func TestFormsOfFiles(t *testing.T) {
	dir := t.TempDir()
	rows := `{"id":"a","at":"2026-01-31T07:59:59.999999999Z","amount":"12.50","n":1,"tags":["x","y"]}
{"id":"b, c","at":"2026-01-31T08:00:00Z","amount":1e2,"n":null}
{"id":"thousandths","at":"2026-01-31T08:00:00Z","amount":0.001,"n":3}
{"id":"","at":"2026-01-31T07:00:00Z","amount":null,"n":-4,"tags":[]}
{"id":"never","at":null,"n":5}
`
	if err := os.WriteFile(filepath.Join(dir, "in.jsonl"), []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Parse("p.yaml", []byte(formsOfFiles), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	opts := engine.Options{DataDir: filepath.Join(dir, "data"), UntilCaughtUp: true}
	if err := engine.Run(t.Context(), engine.Wrap(pl), opts); err != nil {
		t.Fatal(err)
	}
	type row struct {
		ID     string   `parquet:"id"`
		Amount [16]byte `parquet:"amount"`
		At     int64    `parquet:"at"`
		N      *int64   `parquet:"n,optional"`
		Words  []string `parquet:"words,list"`
	}
	var got []string
	for _, folder := range []string{"day=2026-01-31/hour=07", "day=2026-01-31/hour=08", "day=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"} {
		rows, err := parquet.ReadFile[row](filepath.Join(dir, "out", filepath.FromSlash(folder), "hours-00000000000000000001.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			n := "null"
			if r.N != nil {
				n = fmt.Sprint(*r.N)
			}
			got = append(got, fmt.Sprintf("%s|%d|%d|%s|%q", r.ID, new(big.Int).SetBytes(r.Amount[:]), r.At, n, r.Words))
		}
	}
	want := []string{
		`a|1250|1769846399999999999|1|["a"]`, `|0|1769842800000000000|-4|[""]`, `b, c|10000|1769846400000000000|null|["b," "c"]`, `never|0|0|5|["never"]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("Parquet: %q", got)
	}

	f, err := os.Open(filepath.Join(dir, "out", "text-00000000000000000001.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was read
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if want := "id,amount,n\na,12.5,1\n\"b, c\",100,\nthousandths,0.001,3\n\"\",,-4\nnever,,5\n"; string(b) != want {
		t.Errorf("CSV: %s", b)
	}

	// What a column can't hold stops a pipeline that isn't told to skip it.
	strict := strings.NewReplacer("skip", "stop", "dir: out", "dir: other").Replace(formsOfFiles)
	p, err = Parse("p.yaml", []byte(strict), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if pl, err = p.Plan(); err != nil {
		t.Fatal(err)
	}
	opts.DataDir = filepath.Join(dir, "data2")
	err = engine.Run(t.Context(), engine.Wrap(pl), opts)
	if e, ok := errors.AsType[*batch.Error](err); !ok || e.Code != batch.CodeBadRecord || e.Op != "sink hours" || e.Offset != 2 || !strings.Contains(err.Error(), "field amount: 0.001 has more than 2 digits behind the point") {
		t.Errorf("an amount of three digits: %v", err)
	}
}
