//go:build realsql

package sqlsink

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/sinktest"
)

func postgres(t *testing.T) place { return place{url: testenv.Postgres(t).Database(t)} }

func TestConformancePostgres(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Target { return newTable(t, postgres(t)) })
}

func TestUpsertPostgres(t *testing.T)        { upserts(t, postgres(t)) }
func TestRefusedRecordPostgres(t *testing.T) { refusals(t, postgres(t)) }
func TestTableMismatchPostgres(t *testing.T) { mismatches(t, postgres(t)) }

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
	p := postgres(t)
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
	p := postgres(t)
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
