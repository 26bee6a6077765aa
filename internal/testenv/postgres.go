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
	// URL of the server's database postgres, with user and password.
	URL string

	dir string // empty: shared, and not ours to stop
}

// Postgres returns the server that the tests of this run share, or one of the test's own where there is none. Tests keep apart by
// their databases: see Database.
func Postgres(tb testing.TB) *PostgresServer {
	tb.Helper()
	if at := os.Getenv(PostgresVar); at != "" {
		return &PostgresServer{URL: at}
	}
	return OwnPostgres(tb)
}

// OwnPostgres starts a server for this test alone.
func OwnPostgres(tb testing.TB, opts ...Option) *PostgresServer {
	tb.Helper()
	dir, addr := ownServer(tb, postgresScript, "tridentd-postgres-", opts)
	return &PostgresServer{URL: addr, dir: dir}
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

// Start starts the server if it doesn't run.
func (p *PostgresServer) Start(tb testing.TB) { tb.Helper(); p.control(tb, "start") }

// Stop shuts the server down; clients are sent away, and the data stay.
func (p *PostgresServer) Stop(tb testing.TB) { tb.Helper(); p.control(tb, "stop") }

// Kill ends the server by SIGKILL: a crash.
func (p *PostgresServer) Kill(tb testing.TB) { tb.Helper(); p.control(tb, "kill") }

// Pause stops the server with SIGSTOP: connections stay open, and nothing answers.
func (p *PostgresServer) Pause(tb testing.TB) { tb.Helper(); p.control(tb, "pause") }

// Resume lets a paused server go on.
func (p *PostgresServer) Resume(tb testing.TB) { tb.Helper(); p.control(tb, "resume") }

func (p *PostgresServer) control(tb testing.TB, command string) {
	tb.Helper()
	if p.dir == "" {
		tb.Fatalf("testenv: %s on the shared server would break other tests; use OwnPostgres", command)
	}
	control(tb, postgresScript, p.dir, command, nil)
}

// ownServer starts a server of one process with a script, in a directory whose name begins with prefix, and returns the directory and
// the address. Both go with the test.
func ownServer(tb testing.TB, script, prefix string, opts []Option) (dir, addr string) {
	tb.Helper()
	dir, err := os.MkdirTemp("", prefix) //nolint:usetesting // scripts/test knows what to end by this name
	if err != nil {
		tb.Fatalf("testenv: no directory for %s: %v", script, err)
	}
	call := func(ctx context.Context, command string, args ...string) (string, error) {
		return run(ctx, startTimeout, script, append([]string{command, "--dir", dir}, args...)...)
	}
	tb.Cleanup(func() {
		// The test's own context has ended by now.
		if out, err := call(context.Background(), "clean"); err != nil {
			tb.Errorf("testenv: ending %s: %v\n%s", script, err, out)
		}
		os.RemoveAll(dir) //nolint:errcheck // what a failed start left; the script has removed the rest
	})
	args := []string{"--port", "auto"}
	for _, o := range opts {
		o(&args)
	}
	if out, err := call(tb.Context(), "start", args...); err != nil {
		tb.Fatalf("testenv: this test needs a real server, which didn't start: %s: %v\n%s", script, err, out)
	}
	out, err := call(tb.Context(), "address")
	if err != nil {
		tb.Fatalf("testenv: address of %s: %v\n%s", script, err, out)
	}
	return dir, strings.TrimSpace(out)
}
