package sqlsink

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/sink"
)

type total struct {
	Customer string
	Total    float64
	Gone     bool
}

func TestTarget(t *testing.T) {
	dir := t.TempDir()
	p := place{path: filepath.Join(dir, "totals.db")}
	p.exec(t, "CREATE TABLE totals (customer text NOT NULL PRIMARY KEY, total double)")
	target := SQLite[total]("totals.db", "totals", "customer", "total").Key("customer").Remove(func(v total) bool { return v.Gone })
	if got, want := target.Describe(), "sqlite table totals (customer, total), key customer"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	k, err := target.Open("p", "totals", emitter.Env{Dir: dir})
	must(t, err)
	t.Cleanup(func() { k.Close(context.Background()) }) //nolint:errcheck // the database goes
	out := &sink.Output{Txid: 1, Epoch: 1, Chain: 1, Parts: []sink.Part{{}}}
	for _, v := range []total{{"a", 1, false}, {`b"é`, 2, false}, {"c", 3, false}, {`b"é`, 0, true}, {"c", 4, false}, {"a", 5, true}, {"a", 6, false}} {
		var r sink.Record
		must(t, target.Encode(v, &r))
		out.Parts[0].Records = append(out.Parts[0].Records, r)
	}
	_, err = k.Claim(t.Context(), 1)
	must(t, err)
	must(t, k.Prepare(t.Context(), out))
	must(t, k.Commit(t.Context()))
	if got := p.rows(t, "SELECT customer || total FROM totals ORDER BY 1"); got != "a6.0 c4.0" {
		t.Errorf("%s", got)
	}
}

func TestTargetMistakes(t *testing.T) {
	pg := Postgres[total]("postgres://u:hidden@h/d", "shop.totals", "customer", "total")
	if got, want := pg.Key("customer").Describe(), "postgres table shop.totals (customer, total), key customer"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if s, err := Postgres[map[string]any]("postgres://h/d", "t", "anything").Open("p", "s", emitter.Env{}); err != nil {
		t.Error(err)
	} else {
		must(t, s.Close(t.Context()))
	}
	for _, c := range []struct {
		target interface {
			Open(pipeline, name string, env emitter.Env) (sink.Sink, error)
		}
		want string
	}{
		{Postgres[total]("postgres://u:hidden@h/d", "totals", "customer", "sum"), "sqlsink.total has no field for the column sum"},
		{Postgres[chan int]("postgres://u:hidden@h/d", "totals", "customer"), "can't be written as JSON"},
		{pg.Key("id"), "key: id isn't one of the columns"},
		{pg.Remove(func(total) bool { return true }), "there is no key"},
		{pg.PasswordFile("f"), "the URL has a password"},
		{SQLite[total]("", "totals", "customer"), "no database"},
		{SQLite[total]("f", "totals"), "columns: none"},
	} {
		_, err := c.target.Open("p", "s", emitter.Env{})
		if batch.KindOf(err) != batch.Permanent || batch.CodeOf(err) != batch.CodeConfiguration || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
