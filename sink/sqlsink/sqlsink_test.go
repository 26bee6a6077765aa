package sqlsink

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/internal/sqldb"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/sinktest"
)

// place is a database to test with.
type place struct {
	url, path string
}

func sqliteFile(t *testing.T) place { return place{path: filepath.Join(t.TempDir(), "a b.db")} }

func (p place) db(t *testing.T) *sqldb.DB {
	t.Helper()
	c := Config{URL: p.url, Path: p.path}
	db, _, err := c.open()
	must(t, err)
	t.Cleanup(func() { db.Close() }) //nolint:errcheck // the database goes
	return db
}

func (p place) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := p.db(t).ExecContext(t.Context(), statement)
	must(t, err)
}

// rows reads the first column of a query, as text.
func (p place) rows(t *testing.T, query string) string {
	t.Helper()
	rows, err := p.db(t).QueryContext(t.Context(), query)
	must(t, err)
	defer rows.Close() //nolint:errcheck // Err tells
	var all []string
	for rows.Next() {
		var v sql.NullString
		must(t, rows.Scan(&v))
		all = append(all, v.String)
	}
	must(t, rows.Err())
	return strings.Join(all, " ")
}

func (p place) sink(t *testing.T, table string, key []string, columns ...string) *Sink {
	t.Helper()
	s, err := New(Config{Pipeline: "p", Sink: "out", URL: p.url, Path: p.path, Table: table, Key: key, Columns: columns})
	must(t, err)
	t.Cleanup(func() { s.Close(context.Background()) }) //nolint:errcheck // the database goes
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// document holds a whole record, which the suite wants back as it was.
type document struct {
	Timestamp int64
	Key       []byte
	Value     []byte
	Headers   []batch.Header
}

// wrapped brings the suite's records, whose values are no objects, into the form of a table's rows.
type wrapped struct{ sink.Sink }

func (w wrapped) Prepare(ctx context.Context, out *sink.Output) error {
	c := *out
	c.Parts = nil
	for _, p := range out.Parts {
		q := sink.Part{Partition: p.Partition}
		for _, r := range p.Records {
			if r.Timestamp == sink.NoTimestamp {
				r.Timestamp = out.Time.UnixMilli()
			}
			b, err := json.Marshal(map[string]any{"doc": document{r.Timestamp, r.Key, r.Value, r.Headers}})
			if err != nil {
				return err
			}
			q.Records = append(q.Records, sink.Record{Offset: r.Offset, Value: b})
		}
		c.Parts = append(c.Parts, q)
	}
	return w.Sink.Prepare(ctx, &c)
}

// table is a place as the suite sees it.
type table struct {
	place
	t *testing.T
}

func newTable(t *testing.T, p place) table {
	serial := "bigserial"
	if p.path != "" {
		serial = "integer"
	}
	p.exec(t, "CREATE TABLE docs (id "+serial+" PRIMARY KEY, doc text)")
	return table{p, t}
}

func (t table) Open() (sink.Sink, error) {
	return wrapped{t.sink(t.t, "docs", nil, "doc")}, nil
}

func (t table) Records(ctx context.Context) ([]sink.Record, error) {
	rows, err := t.db(t.t).QueryContext(ctx, "SELECT doc FROM docs ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells
	var all []sink.Record
	for rows.Next() {
		var text []byte
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		var d document
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, err
		}
		all = append(all, sink.Record{Timestamp: d.Timestamp, Key: d.Key, Value: d.Value, Headers: d.Headers})
	}
	return all, rows.Err()
}

func TestConformanceSQLite(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Target { return newTable(t, sqliteFile(t)) })
}

func output(txid batch.Txid, values ...string) *sink.Output {
	out := &sink.Output{Txid: txid, Epoch: 1, Chain: uint64(txid) | 1<<63, Time: time.Unix(1, 0), Count: int64(len(values))}
	var recs []sink.Record
	for i, v := range values {
		r := sink.Record{Offset: int64(10 + i), Value: []byte(v)}
		if key, ok := strings.CutPrefix(v, "delete "); ok {
			r.Key, r.Value = []byte(key), nil
		}
		recs = append(recs, r)
	}
	out.Parts = []sink.Part{{Partition: batch.Partition{Source: "in", Topic: "t", Number: 2}, Records: recs}}
	return out
}

func deliver(t *testing.T, s *Sink, out *sink.Output) {
	t.Helper()
	must(t, s.Prepare(t.Context(), out))
	must(t, s.Commit(t.Context()))
}

// upserts replaces, deletes and inserts, the same key several times in one batch among them.
func upserts(t *testing.T, p place) {
	p.exec(t, "CREATE TABLE totals (customer text NOT NULL, day integer NOT NULL, amount numeric(12,2), open boolean, note text DEFAULT 'n', PRIMARY KEY (customer, day))")
	s := p.sink(t, "totals", []string{"customer", "day"}, "customer", "day", "amount", "open")
	_, err := s.Claim(t.Context(), 1)
	must(t, err)
	deliver(t, s, output(1, `{"customer":"a","day":1,"amount":"10.50","open":true}`, `{"customer":"b","day":1,"amount":2}`, `{"customer":"a","day":1,"amount":"11.50","open":null}`))
	state := "SELECT customer || day || '=' || amount || coalesce(CASE WHEN open THEN 'o' ELSE 'c' END, '') || note FROM totals ORDER BY 1"
	two := "2"
	eleven := "11.5"
	if p.url != "" {
		two, eleven = "2.00", "11.50"
	}
	// A null is false in CASE.
	if got, want := p.rows(t, state), "a1="+eleven+"cn b1="+two+"cn"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	p.exec(t, "UPDATE totals SET note = 'kept'")
	deliver(t, s, output(2, `delete {"customer":"b","day":1}`, `{"customer":"c","day":2,"amount":1}`, `delete {"day":2,"customer":"c"}`, `delete {"customer":"a","day":1}`, `{"customer":"a","day":1,"amount":2,"open":true}`))
	got := p.rows(t, state)
	if want := "a1=" + two + "okept"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := p.rows(t, "SELECT txid || ' ' || epoch || ' ' || chain FROM tridentd_sinks"); got != "2 1 8000000000000002" {
		t.Errorf("progress %s", got)
	}
}

func TestUpsertSQLite(t *testing.T) { upserts(t, sqliteFile(t)) }

// refusals looks for the record that the database doesn't take.
func refusals(t *testing.T, p place) {
	p.exec(t, "CREATE TABLE n (id integer PRIMARY KEY, v text NOT NULL CHECK (length(v) < 5))")
	s := p.sink(t, "n", nil, "id", "v")
	for _, bad := range []string{`{"id":3000,"v":"too long","tridentd deleted":true}`, `{"id":3000,"id":3001,"v":"x"}`, `{"id":3000,"v":"too long"}`, `{"id":3000}`, `{"id":7,"v":"twice"}`, `[1]`, `{"id":1},{"id":2}`, `delete 7`} {
		_, err := s.Claim(t.Context(), 1)
		must(t, err)
		var values []string
		for i := range 2000 {
			values = append(values, fmt.Sprintf(`{"id":%d,"v":"x"}`, i))
		}
		values[1234] = bad
		err = s.Prepare(t.Context(), output(1, values...))
		e, ok := errors.AsType[*batch.Error](err)
		if !ok || e.Kind != batch.Permanent || e.Code != batch.CodeBadRecord || e.Offset != 10+1234 || e.Partition.Number != 2 || e.Remedy == "" {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if got := p.rows(t, "SELECT count(*) FROM n"); got != "0" {
		t.Errorf("%s rows are left", got)
	}
}

// hidden has records that the table wouldn't take, before later ones of their keys: it is the record at fault that is named, and none where
// none is left.
func hidden(t *testing.T, p place) {
	p.exec(t, "CREATE TABLE n (id integer NOT NULL PRIMARY KEY, v text NOT NULL CHECK (length(v) < 5))")
	p.exec(t, "CREATE TABLE child (id integer REFERENCES n (id))")
	p.exec(t, "INSERT INTO n VALUES (900, 'old')")
	s := p.sink(t, "n", []string{"id"}, "id", "v")
	values := func(bad map[int]string) []string {
		var all []string
		for i := range 1000 {
			v := fmt.Sprintf(`{"id":%d,"v":"x"}`, i%600)
			if b, ok := bad[i]; ok {
				v = b
			}
			all = append(all, v)
		}
		return all
	}
	for _, c := range []struct {
		name string
		bad  map[int]string
		at   int64 // of the record that is refused; -1: none is
	}{
		{"a rule, hidden", map[int]string{5: `{"id":5,"v":"too long"}`}, -1},
		{"a rule, with others hidden", map[int]string{5: `{"id":5,"v":"too long"}`, 300: `{"id":300,"v":"too long"}`, 550: `{"id":550,"v":"too long"}`, 560: `{"id":900,"v":"too long"}`, 990: `{"id":555,"v":"too long"}`}, 550},
		{"a null, hidden", map[int]string{7: `{"id":7}`}, -1},
		{"no key", map[int]string{700: `{"v":"x"}`}, 700},
		{"a null key", map[int]string{700: `{"id":null,"v":"x"}`, 800: `{"id":null,"v":"x"}`}, 700},
		{"a deletion of nothing in the key", map[int]string{700: `delete {"v":1}`}, 700},
	} {
		_, err := s.Claim(t.Context(), 1)
		must(t, err)
		err = s.Prepare(t.Context(), output(1, values(c.bad)...))
		if c.at < 0 {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			must(t, s.Abort(t.Context()))
			continue
		}
		e, ok := errors.AsType[*batch.Error](err)
		if !ok || e.Code != batch.CodeBadRecord || e.Offset != 10+c.at {
			t.Errorf("%s: %v, want offset %d", c.name, err, 10+c.at)
		}
	}
	if p.url == "" {
		return
	}
	// PostgreSQL reads all values before it knows which are hidden.
	_, err := s.Claim(t.Context(), 1)
	must(t, err)
	err = s.Prepare(t.Context(), output(1, values(map[int]string{5: `{"id":5,"v":"too long"}`, 9: `{"id":"nine","v":"x"}`, 559: `{"id":559,"v":"too long"}`, 900: `{"id":"ten","v":"x"}`})...))
	if e, ok := errors.AsType[*batch.Error](err); !ok || e.Code != batch.CodeBadRecord || e.Offset != 10+9 {
		t.Errorf("unreadable: %v", err)
	}
	p.exec(t, "INSERT INTO child VALUES (900)")
	_, err = s.Claim(t.Context(), 1)
	must(t, err)
	err = s.Prepare(t.Context(), output(1, values(map[int]string{3: `delete {"id":900}`, 800: `{"id":900,"v":"x"}`, 801: `delete {"id":900}`})...))
	if e, ok := errors.AsType[*batch.Error](err); !ok || e.Code != batch.CodeBadRecord || e.Offset != 10+801 {
		t.Errorf("a deletion of a row in use: %v", err)
	}
}

func TestHiddenRecordSQLite(t *testing.T) { hidden(t, sqliteFile(t)) }

func TestRefusedRecordSQLite(t *testing.T) { refusals(t, sqliteFile(t)) }

// mismatches have settings that don't go with the table.
func mismatches(t *testing.T, p place) {
	p.exec(t, "CREATE TABLE t (id integer PRIMARY KEY, need text NOT NULL, other text, loose text UNIQUE, made integer GENERATED ALWAYS AS (id + 1) STORED)")
	for _, c := range []struct {
		table   string
		key     []string
		columns []string
		want    string
	}{
		{"nowhere", nil, []string{"id"}, "no table nowhere"},
		{"t", nil, []string{"id", "need", "amount"}, "no column amount; it has id, need, other, loose, made"},
		{"t", nil, []string{"id"}, "column need"},
		{"t", nil, []string{"id", "need", "made"}, "made by the database"},
		{"t", []string{"other"}, []string{"id", "need", "other"}, "no unique index"},
		{"t", []string{"loose"}, []string{"id", "need", "loose"}, "column loose of table t is in the key, and may be null"},
	} {
		_, err := p.sink(t, c.table, c.key, c.columns...).Claim(t.Context(), 1)
		e, ok := errors.AsType[*batch.Error](err)
		if !ok || e.Kind != batch.Permanent || e.Code != batch.CodeConfiguration || !strings.Contains(err.Error(), c.want) || e.Remedy == "" {
			t.Errorf("%s %v: %v, want %s", c.table, c.columns, err, c.want)
		}
	}
}

func TestTableMismatchSQLite(t *testing.T) { mismatches(t, sqliteFile(t)) }

// TestNumbersSQLite writes numbers that SQLite would round: they are refused rather.
func TestNumbersSQLite(t *testing.T) {
	p := sqliteFile(t)
	p.exec(t, "CREATE TABLE n (i integer, r double, m numeric(20, 2), s text, b)")
	for _, c := range []struct{ value, want string }{ // want: empty where it is refused
		{`{"i":9223372036854775807}`, "9223372036854775807"},
		{`{"i":-9223372036854775808}`, "-9223372036854775808"},
		{`{"i":9223372036854775808}`, ""},
		{`{"i":"9223372036854775808"}`, ""},
		{`{"i":18446744073709551615}`, ""},
		{`{"r":9007199254740992}`, "9007199254740992.0"},
		{`{"r":9007199254740993}`, ""},
		{`{"r":0.30000000000000004}`, "0.30000000000000004"},
		{`{"r":1e300}`, "1.0e+300"},
		{`{"r":1e-7}`, "1.0e-07"},
		{`{"r":1e400}`, ""},
		{`{"r":"Infinity"}`, "Infinity"},
		{`{"m":"10.50"}`, "10.5"},
		{`{"m":"123456789012345678.90"}`, ""},
		{`{"m":123456789012345678.90}`, ""},
		{`{"m":"1234567890123456789"}`, "1234567890123456789"},
		{`{"s":"123456789012345678901.90"}`, "123456789012345678901.90"},
		{`{"s":123456789012345678901.90}`, ""},
		{`{"s":18446744073709551615}`, ""},
		{`{"s":0.30000000000000004}`, "0.30000000000000004"},
		{`{"s":{"n":18446744073709551615}}`, `{"n":18446744073709551615}`},
		{`{"b":"18446744073709551615"}`, "18446744073709551615"},
		{`{"b":18446744073709551615}`, ""},
		{`{"i":9223372036854775808,"other":1}`, ""},
		{`{"other":18446744073709551615}`, ""},
	} {
		column := c.value[2:3]
		columns := []string{"i", "r", "m", "s", "b"}
		s := p.sink(t, "n", nil, columns...)
		_, err := s.Claim(t.Context(), 1)
		must(t, err)
		err = s.Prepare(t.Context(), output(1, c.value))
		if column == "o" { // no column has it
			if err != nil {
				t.Errorf("%s: %v", c.value, err)
			}
			continue
		}
		if c.want == "" {
			e, ok := errors.AsType[*batch.Error](err)
			if !ok || e.Kind != batch.Permanent || e.Code != batch.CodeBadRecord || e.Offset != 10 || !strings.Contains(err.Error(), "column "+column) {
				t.Errorf("%s: %v, want it refused", c.value, err)
			}
			continue
		}
		must(t, err)
		must(t, s.Commit(t.Context()))
		if got := p.rows(t, "SELECT CAST("+column+" AS text) FROM n"); got != c.want {
			t.Errorf("%s: %s, want %s", c.value, got, c.want)
		}
		p.exec(t, "DELETE FROM n")
		p.exec(t, "DELETE FROM tridentd_sinks")
	}
}

// TestNoFileSQLite: a database is never made.
func TestNoFileSQLite(t *testing.T) {
	p := sqliteFile(t)
	s := p.sink(t, "t", nil, "v")
	_, claimed := s.Claim(t.Context(), 1)
	_, read := s.Progress(t.Context())
	for _, err := range []error{claimed, read} {
		if batch.KindOf(err) != batch.Permanent || batch.CodeOf(err) != batch.CodeConfiguration || !strings.Contains(err.Error(), p.path) {
			t.Errorf("%v", err)
		}
	}
	if f := Check(t.Context(), Config{Pipeline: "p", Sink: "out", Path: p.path, Table: "t", Columns: []string{"v"}}); len(f) != 1 || f[0].Level != doctor.Error {
		t.Errorf("%+v", f)
	}
	if _, err := os.Stat(p.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was made: %v", err)
	}
}

// checked returns what a check finds, a line each.
func checked(t *testing.T, cfg Config) string {
	t.Helper()
	cfg.Pipeline, cfg.Sink = "p", "out"
	var lines []string
	for _, f := range Check(t.Context(), cfg) {
		if (f.Level == doctor.OK) != (f.Remedy == "") {
			t.Errorf("%+v", f)
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s %s", f.Level, f.Subject, f.Code, f.Text))
	}
	return strings.Join(lines, "\n")
}

func TestCheckSQLite(t *testing.T) {
	p := sqliteFile(t)
	plain, err := sql.Open("sqlite", p.path)
	must(t, err)
	_, err = plain.ExecContext(t.Context(), "CREATE TABLE totals (customer text NOT NULL PRIMARY KEY, total numeric, any)")
	must(t, errors.Join(err, plain.Close()))
	cfg := Config{Path: p.path, Table: "totals", Columns: []string{"customer", "total", "any"}, Key: []string{"customer"}}
	want := "ok sqlite " + p.path + ":  SQLite "
	text := checked(t, cfg)
	if !strings.HasPrefix(text, want) || !strings.HasSuffix(text, "\nok sqlite table totals:  takes customer TEXT, total numeric, any; rows are told apart by customer\nok sink out:  has been given nothing yet") {
		t.Errorf("%s", text)
	}
	ask, err := sqldb.AskSQLite(p.path)
	must(t, err)
	defer ask.Close() //nolint:errcheck // it was asked only
	var mode string
	must(t, ask.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
	if mode != "delete" {
		t.Errorf("the check has changed the journal's mode to %s", mode)
	}
	s := p.sink(t, "totals", []string{"customer"}, "customer", "total")
	_, err = s.Claim(t.Context(), 3)
	must(t, err)
	out := output(7, `{"customer":"a","total":1}`)
	out.Epoch = 3
	deliver(t, s, out)
	if text := checked(t, cfg); !strings.HasSuffix(text, "\nok sink out:  holds the output up to txid 7, of epoch 3") {
		t.Errorf("%s", text)
	}
	cfg.Columns = append(cfg.Columns, "more")
	if text := checked(t, cfg); !strings.Contains(text, "\nerror sqlite table totals: configuration table totals has no column more; it has customer, total, any\n") {
		t.Errorf("%s", text)
	}
}

func TestConfig(t *testing.T) {
	good := Config{Pipeline: "p", Sink: "s", Path: "x", Table: "t", Columns: []string{"a", "b"}}
	for _, c := range []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.Path = "" }, "no database"},
		{func(c *Config) { c.URL = "postgres://u:secret@h/d" }, "or two"},
		{func(c *Config) { c.Path, c.URL = "", "postgres://u:secret@h:port/d" }, "url: it can't be read"},
		{func(c *Config) { c.PasswordFile = "f" }, "SQLite has no password"},
		{func(c *Config) { c.Path, c.URL, c.PasswordFile = "", "postgres://u:secret@h/d", "f" }, "password_file: the URL has a password"},
		{func(c *Config) { c.Path, c.URL, c.PasswordFile = "", "host=h password=secret", "f" }, "password_file: the URL has a password"},
		{func(c *Config) { c.Path, c.URL, c.PasswordFile = "", "postgres://u@h/d", "missing" }, "password_file"},
		{func(c *Config) { c.Table = "" }, "no name of a table"},
		{func(c *Config) { c.Table = "a.b" }, "no name of a table"},
		{func(c *Config) { c.Columns = nil }, "columns"},
		{func(c *Config) { c.Columns = []string{"a", "a"} }, "twice"},
		{func(c *Config) { c.Columns = []string{`a"b`} }, "can't be written"},
		{func(c *Config) { c.Key = []string{"z"} }, "key"},
		{func(c *Config) { c.Timeout = -1 }, "negative"},
	} {
		cfg := good
		c.change(&cfg)
		_, err := New(cfg)
		if batch.CodeOf(err) != batch.CodeConfiguration || batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
