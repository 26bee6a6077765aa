package testenv

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// PostgresVar holds the URL of a PostgreSQL server that all tests of the run share, with a user who may make databases.
const PostgresVar = "TRIDENTD_TEST_POSTGRES"

const postgresScript = "postgres.sh"

// PostgresServer is a PostgreSQL server.
type PostgresServer struct {
	process
	// URL of the server's database postgres, with user and password.
	URL string
}

// Postgres returns the server that the tests of this run share, or one of the test's own where there is none. Tests keep apart by
// their databases: see Database.
func Postgres(tb testing.TB) *PostgresServer {
	tb.Helper()
	if at := os.Getenv(PostgresVar); at != "" {
		return &PostgresServer{URL: at, process: process{script: postgresScript}}
	}
	return OwnPostgres(tb)
}

// OwnPostgres starts a server for this test alone.
func OwnPostgres(tb testing.TB, opts ...Option) *PostgresServer {
	tb.Helper()
	p, addr := ownServer(tb, postgresScript, "tridentd-postgres-", opts)
	return &PostgresServer{URL: addr, process: p}
}

// Addr is host:port of the server, for a Proxy.
func (p *PostgresServer) Addr(tb testing.TB) string {
	tb.Helper()
	u, err := url.Parse(p.URL)
	if err != nil {
		tb.Fatalf("testenv: %s isn't a URL", PostgresVar)
	}
	return u.Host
}

// Database makes a database with a name of its own and returns its URL. It is removed with the test.
func (p *PostgresServer) Database(tb testing.TB) string {
	tb.Helper()
	name := strings.ReplaceAll(Unique("test"), "-", "_")
	p.Exec(tb, "CREATE DATABASE "+name)
	if p.dir == "" {
		tb.Cleanup(func() {
			if err := execPostgres(context.Background(), p.URL, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
				tb.Errorf("testenv: removing database %s: %v", name, err)
			}
		})
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		tb.Fatalf("testenv: %s isn't a URL", PostgresVar)
	}
	u.Path = "/" + name
	return u.String()
}

// Exec runs a statement in the database postgres.
func (p *PostgresServer) Exec(tb testing.TB, statement string) {
	tb.Helper()
	if err := execPostgres(tb.Context(), p.URL, statement); err != nil {
		tb.Fatalf("testenv: %s: %v", statement, err)
	}
}

func execPostgres(ctx context.Context, at, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := pgx.Connect(ctx, at)
	if err != nil {
		return err
	}
	defer c.Close(ctx) //nolint:errcheck // the statement has told
	_, err = c.Exec(ctx, statement)
	return err
}

// Through returns at, a URL of one of the server's databases, as clients reach it through proxy.
func Through(tb testing.TB, at string, proxy *Proxy) string {
	tb.Helper()
	u, err := url.Parse(at)
	if err != nil {
		tb.Fatalf("testenv: %q isn't a URL", at)
	}
	u.Host = proxy.Addr
	return u.String()
}
