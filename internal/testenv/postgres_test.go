//go:build realsql

package testenv

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestSharedPostgres(t *testing.T) {
	p := Postgres(t)
	one, other := p.Database(t), p.Database(t)
	if err := execPostgres(t.Context(), one, "CREATE TABLE a (b int)"); err != nil {
		t.Fatal(err)
	}
	if err := execPostgres(t.Context(), other, "SELECT * FROM a"); err == nil {
		t.Error("a table of one database is seen in another")
	}
	if err := execPostgres(t.Context(), Through(t, one, NewProxy(t, p.Addr(t))), "SELECT * FROM a"); err != nil {
		t.Errorf("through a proxy: %v", err)
	}
}

// What was committed is there after a crash; a server that hangs doesn't answer.
func TestOwnPostgresFaults(t *testing.T) {
	p := OwnPostgres(t, Set("max_connections", "20"))
	at := p.Database(t)
	if err := execPostgres(t.Context(), at, "CREATE TABLE a AS SELECT current_setting('max_connections') AS b"); err != nil {
		t.Fatal(err)
	}
	p.Kill(t)
	if err := execPostgres(t.Context(), at, "SELECT 1"); err == nil {
		t.Error("a server that was killed answers")
	}
	p.Start(t)
	c, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background()) //nolint:errcheck // the server goes
	var b string
	if err := c.QueryRow(t.Context(), "SELECT b FROM a").Scan(&b); err != nil || b != "20" {
		t.Errorf("%q, %v", b, err)
	}
	p.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Exec(ctx, "SELECT 1"); err == nil {
		t.Error("a server that hangs answers")
	}
	p.Resume(t)
	if err := execPostgres(t.Context(), at, "SELECT * FROM a"); err != nil {
		t.Error(err)
	}
}
