//go:build realsql

package sqlsink

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/sinktest"
)

func server(t *testing.T) place { return place{url: testenv.Postgres(t).Database(t)} }

func TestConformancePostgres(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Target { return newTable(t, server(t)) })
}

func TestUpsertPostgres(t *testing.T)        { upserts(t, server(t)) }
func TestRefusedRecordPostgres(t *testing.T) { refusals(t, server(t)) }
func TestHiddenRecordPostgres(t *testing.T)  { hidden(t, server(t)) }
func TestTableMismatchPostgres(t *testing.T) { mismatches(t, server(t)) }

// TestTypesPostgres writes what JSON has no form of its own for.
func TestTypesPostgres(t *testing.T) {
	p := server(t)
	p.exec(t, "CREATE TYPE mood AS ENUM ('well', 'ill')")
	p.exec(t, `CREATE TABLE t (id bytea PRIMARY KEY, n numeric, big bigint, at timestamptz, tags text[], doc jsonb, mood mood, "odd ""name" text)`)
	s := p.sink(t, "t", []string{"id"}, "id", "n", "big", "at", "tags", "doc", "mood")
	_, err := s.Claim(t.Context(), 1)
	must(t, err)
	deliver(t, s, output(1,
		`{"id":"AP8=","n":"0.1"}`,
		`{"id":"AP8=","n":"123456789012345678901234567890.123456789","big":9223372036854775807,"at":"2026-01-02T03:04:05.123456Z","tags":["a","b"],"doc":{"k":[1,null]},"mood":"ill"}`,
		`{"id":"AQ=="}`, `delete {"id":"AQ=="}`))
	got := p.rows(t, "SELECT concat_ws(' ', id, n, big, at AT TIME ZONE 'UTC', tags, doc, mood) FROM t")
	if want := `\x00ff 123456789012345678901234567890.123456789 9223372036854775807 2026-01-02 03:04:05.123456 {a,b} {"k": [1, null]} ill`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, bad := range []string{`{"id":"AP8=","big":9223372036854775808}`, `{"id":"no base64!"}`, `{"id":"AP8=","mood":"so so"}`, `{"id":"AP8=","tags":"a"}`} {
		err := s.Prepare(t.Context(), output(2, `{"id":"AA=="}`, bad, `{"id":"Ag=="}`))
		if e, ok := errors.AsType[*batch.Error](err); !ok || e.Code != batch.CodeBadRecord || e.Offset != 11 {
			t.Errorf("%s: %v", bad, err)
		}
		_, err = s.Claim(t.Context(), 1)
		must(t, err)
	}
}

// TestPasswordFile changes the password between two connections.
func TestPasswordFile(t *testing.T) {
	p := server(t)
	u, err := url.Parse(p.url)
	must(t, err)
	password, _ := u.User.Password()
	u.User = url.User(u.User.Username())
	file := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(file, []byte("hidden\n"), 0o600))
	p.exec(t, "CREATE TABLE t (v integer)")
	cfg := Config{URL: u.String(), PasswordFile: file, Table: "t", Columns: []string{"v"}}
	text := checked(t, cfg)
	if !strings.HasPrefix(text, "error postgres "+u.Host+u.Path+": unauthorized ") || strings.Contains(text, "hidden") {
		t.Errorf("%s", text)
	}
	must(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
	if text := checked(t, cfg); strings.Count(text, "\n") != 2 || strings.Contains(text, "error") {
		t.Errorf("%s", text)
	}
}

// TestCheckPostgres takes and grants one right after the other.
func TestCheckPostgres(t *testing.T) {
	p := server(t)
	role := strings.ReplaceAll(testenv.Unique("role"), "-", "_")
	p.exec(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'hidden'")
	t.Cleanup(func() {
		db, _, err := (&Config{URL: p.url}).open()
		if err == nil {
			_, err = db.ExecContext(context.Background(), "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role)
		}
		if err != nil {
			t.Error(err)
		}
	})
	p.exec(t, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	p.exec(t, "CREATE TABLE totals (customer text PRIMARY KEY, total numeric(12,2), note text)")
	u, err := url.Parse(p.url)
	must(t, err)
	u.User = url.UserPassword(role, "hidden")
	cfg := Config{URL: u.String(), Table: "totals", Columns: []string{"customer", "total"}, Key: []string{"customer"}}
	for _, right := range []string{"INSERT ON totals", "SELECT ON totals", "UPDATE ON totals", "CREATE ON SCHEMA public"} {
		text := checked(t, cfg)
		if !strings.HasPrefix(text, "ok postgres "+u.Host+u.Path+":  PostgreSQL ") || !strings.Contains(text, "\nerror postgres table totals: unauthorized user "+role+" may not "+right+"\n") || strings.Contains(text, "hidden") {
			t.Errorf("%s, want %s", text, right)
		}
		p.exec(t, "GRANT "+right+" TO "+role)
	}
	want := "\nok postgres table totals:  takes customer text, total numeric(12,2); rows are told apart by customer\nok sink out:  "
	if text := checked(t, cfg); !strings.HasSuffix(text, want+"has been given nothing yet") {
		t.Errorf("%s", text)
	}
	// These rights are enough.
	s := place{url: cfg.URL}.sink(t, "totals", cfg.Key, cfg.Columns...)
	_, err = s.Claim(t.Context(), 1)
	must(t, err)
	deliver(t, s, output(1, `{"customer":"a","total":1}`))
	deliver(t, s, output(2, `{"customer":"a","total":2}`))
	if text := checked(t, cfg); !strings.HasSuffix(text, want+"holds the output up to txid 2, of epoch 1") {
		t.Errorf("%s", text)
	}
	if err := s.Prepare(t.Context(), output(3, `delete a`)); batch.CodeOf(err) != batch.CodeUnauthorized || !strings.Contains(err.Error(), "totals") {
		t.Errorf("a deletion without the right: %v", err)
	}
	if text := checked(t, Config{URL: "postgres://u:hidden@127.0.0.1:1/d", Table: "t", Columns: []string{"v"}}); !strings.HasPrefix(text, "error postgres 127.0.0.1:1/d: unavailable ") || strings.Contains(text, "hidden") {
		t.Errorf("%s", text)
	}
}

// TestCommitCutOff loses the connection before COMMIT reaches the server, and when its answer is on the way.
func TestCommitCutOff(t *testing.T) {
	server := testenv.Postgres(t)
	p := place{url: server.Database(t)}
	p.exec(t, "CREATE TABLE t (v integer)")
	for txid, before := range []bool{true, false} {
		proxy := testenv.NewProxy(t, server.Addr(t))
		s, err := New(Config{Pipeline: "p", Sink: "out", URL: testenv.Through(t, p.url, proxy), Table: "t", Columns: []string{"v"}, Timeout: 2 * time.Second})
		must(t, err)
		held, err := s.Claim(t.Context(), 1)
		must(t, err)
		must(t, s.Prepare(t.Context(), output(batch.Txid(txid+1), `{"v":1}`)))
		if before {
			proxy.Cut()
		} else {
			must(t, s.advance(t.Context(), s.tx, sink.Progress{Txid: 2, Epoch: 1, Chain: output(2).Chain}))
			proxy.SwallowReplies(true)
		}
		if before {
			err = s.Commit(t.Context())
		} else {
			err = s.failure("commit", s.tx.commit())
		}
		if err == nil || batch.KindOf(err) != batch.Transient {
			t.Fatalf("cut off before=%v: %v", before, err)
		}
		proxy.SwallowReplies(false)
		proxy.Cut()
		got, err := s.Claim(t.Context(), 1)
		must(t, err)
		if before {
			if got != held {
				t.Errorf("cut off before COMMIT: %+v, want %+v", got, held)
			}
			deliver(t, s, output(1, `{"v":1}`))
		} else if want := (sink.Progress{Txid: 2, Epoch: 1, Chain: output(2).Chain}); got != want {
			t.Errorf("cut off behind COMMIT: %+v, want %+v", got, want)
		}
		must(t, s.Close(t.Context()))
	}
	if got := p.rows(t, "SELECT count(*) FROM t"); got != "2" {
		t.Errorf("%s rows, want 2", got)
	}
}

// TestFrozen claims the sink while a former run stands still with rows of the same keys written and not committed.
func TestFrozen(t *testing.T) {
	p := server(t)
	p.exec(t, "CREATE TABLE t (k text PRIMARY KEY, v integer)")
	old, now := p.sink(t, "t", []string{"k"}, "k", "v"), p.sink(t, "t", []string{"k"}, "k", "v")
	_, err := old.Claim(t.Context(), 1)
	must(t, err)
	must(t, old.Prepare(t.Context(), output(1, `{"k":"a","v":1}`)))
	// Also that of the instruction before COMMIT.
	must(t, old.advance(t.Context(), old.tx, sink.Progress{Txid: 1, Epoch: 1, Chain: 5}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	held, err := now.Claim(ctx, 2)
	must(t, err)
	if held != (sink.Progress{Epoch: 2}) {
		t.Errorf("%+v", held)
	}
	out := output(1, `{"k":"a","v":2}`)
	out.Epoch = 2
	deliver(t, now, out)
	if err := old.tx.commit(); err == nil {
		t.Error("the former run committed")
	}
	if got := p.rows(t, "SELECT v FROM t"); got != "2" {
		t.Errorf("v=%s", got)
	}
	if _, err := old.Claim(t.Context(), 1); batch.CodeOf(err) != batch.CodeDeposed {
		t.Errorf("%v", err)
	}
}

// TestNothingLeftInSession looks for what a pooler of transactions would hand to somebody else.
func TestNothingLeftInSession(t *testing.T) {
	p := server(t)
	p.exec(t, "CREATE TABLE t (v integer)")
	s := p.sink(t, "t", nil, "v")
	s.db.SetMaxOpenConns(1)
	_, err := s.Claim(t.Context(), 1)
	must(t, err)
	deliver(t, s, output(1, `{"v":1}`))
	for query, want := range map[string]string{ // order: each is asked by itself
		"SELECT count(*)::text FROM pg_prepared_statements":                                          "0",
		"SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()": "0",
		"SELECT current_setting('lock_timeout')":                                                     "0",
	} {
		var got string
		must(t, s.db.QueryRowContext(t.Context(), query).Scan(&got))
		if got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func TestFailuresPostgres(t *testing.T) {
	server := testenv.Postgres(t)
	at := server.Database(t)
	place{url: at}.exec(t, "CREATE TABLE t (v integer)")
	for _, c := range []struct {
		name, url string
		kind      batch.Kind
		code      batch.Code
	}{
		{"no server", "postgres://u:hidden@127.0.0.1:1/d", batch.Transient, batch.CodeUnavailable},
		{"wrong password", strings.Replace(at, ":tridentd@", ":hidden@", 1), batch.Transient, batch.CodeUnauthorized},
		{"no database", at + "x", batch.Permanent, batch.CodeConfiguration},
	} {
		url := c.url
		if c.name == "no database" {
			url = strings.Replace(at, "?", "_none?", 1)
		}
		_, err := place{url: url}.sink(t, "t", nil, "v").Progress(t.Context())
		e, ok := errors.AsType[*batch.Error](err)
		if !ok || e.Kind != c.kind || e.Code != c.code || e.Remedy == "" || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
