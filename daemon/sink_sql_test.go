//go:build realsql

package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tridentd/tridentd/internal/sqldb"
	"github.com/tridentd/tridentd/internal/testenv"
)

// tables are two tables that a pipeline writes: one that rows are added to, one with a row for each key.
type tables struct {
	db       *sqldb.DB
	settings string // of a sink, in YAML: where they are
	serial   string // the type of a column that counts rows
}

// tablesOf are the databases to test with: PostgreSQL, and a file of SQLite.
var tablesOf = map[string]func(t *testing.T) tables{
	"postgres": func(t *testing.T) tables {
		at := testenv.Postgres(t).Database(t)
		db, err := sqldb.OpenPostgres(at, "")
		if err != nil {
			t.Fatal(err)
		}
		return tables{db, `postgres: {url: "` + at + `", `, "bigserial"}
	},
	"sqlite": func(t *testing.T) tables {
		at := filepath.Join(t.TempDir(), "out.db")
		db, err := sqldb.OpenSQLite(at)
		if err != nil {
			t.Fatal(err)
		}
		return tables{db, `sqlite: {path: "` + at + `", `, "integer"}
	},
}

// newTables makes empty tables in a database of the kind.
func newTables(t *testing.T, kind string) tables {
	t.Helper()
	w := tablesOf[kind](t)
	t.Cleanup(func() { w.db.Close() }) //nolint:errcheck // the database goes
	for _, s := range []string{
		"CREATE TABLE odd (pos " + w.serial + " PRIMARY KEY, file text, n bigint)",
		"CREATE TABLE totals (k text NOT NULL PRIMARY KEY, rows bigint, total numeric)",
	} {
		if _, err := w.db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// inputs is how many files there are when a pipeline of these tests begins.
const inputs = 2

// input writes the file of a number into dir, with so many records.
func input(t *testing.T, dir string, number, records int) {
	t.Helper()
	var b bytes.Buffer
	for i := range records {
		fmt.Fprintf(&b, `{"file":"f%d","n":%d}`+"\n", number, i)
	}
	write(t, filepath.Join(dir, fmt.Sprintf("in-%d.jsonl", number)), b.String())
}

// pipeline writes a pipeline and its input into dir.
func (w tables) pipeline(t *testing.T, dir string, perFile int) (file string) {
	t.Helper()
	for f := range inputs {
		input(t, dir, f, perFile)
	}
	file = filepath.Join(dir, "p.yaml")
	write(t, file, `pipeline: tables
batch: {max_records: 100}
sources:
  in:
    file: {paths: [in-*.jsonl]}
    decode: json
    types: {file: string, n: int}
streams:
  odd: {from: in, steps: [{filter: n % 2 == 1}]}
  totals:
    from: in
    steps:
      - set: {k: string(n % 10)}
      - group_by: k
      - aggregate: {rows: count(), total: sum(n)}
sinks:
  odd: {from: odd, `+w.settings+`table: odd, columns: [file, n]}}
  totals: {from: totals, `+w.settings+`table: totals, columns: [k, rows, total], key: k}}
`)
	return file
}

// row scans the only row of a query.
func (w tables) row(t *testing.T, query string, into ...any) {
	t.Helper()
	if err := w.db.QueryRowContext(t.Context(), query).Scan(into...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// holds compares the tables with what so many files come to.
func (w tables) holds(t *testing.T, files, perFile int) {
	t.Helper()
	rows, err := w.db.QueryContext(t.Context(), "SELECT file, n FROM odd ORDER BY pos")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close() //nolint:errcheck // Err tells
	next := map[string]int{}
	for rows.Next() {
		var f string
		var n int
		if err := rows.Scan(&f, &n); err != nil {
			t.Fatal(err)
		}
		if want := 2*next[f] + 1; n != want {
			t.Fatalf("odd: of %s %d comes where %d should: missing, twice or out of order", f, n, want)
		}
		next[f]++
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for f := range files {
		if got := next[fmt.Sprintf("f%d", f)]; got != perFile/2 {
			t.Errorf("odd: %d rows of f%d, want %d", got, f, perFile/2)
		}
	}
	var keys int
	w.row(t, "SELECT count(*) FROM totals", &keys)
	if keys != 10 {
		t.Errorf("totals: %d rows, want 10", keys)
	}
	for k := range 10 {
		var got, total, want, sum int64
		w.row(t, fmt.Sprintf("SELECT rows, total FROM totals WHERE k = '%d'", k), &got, &total)
		for n := k; n < perFile; n += 10 {
			want, sum = want+int64(files), sum+int64(files)*int64(n)
		}
		if got != want || total != sum {
			t.Errorf("totals: %d: %d rows that come to %d, want %d and %d", k, got, total, want, sum)
		}
	}
}

// TestKillWithTables writes to tables in a process that is killed by SIGKILL again and again: they hold each record once.
func TestKillWithTables(t *testing.T) {
	perFile, kills := 50_000, 20 // far more than the runs get to, on a quick machine too
	if testenv.Full() {
		perFile, kills = 500_000, 200
	}
	bin := build(t, t.TempDir())
	for _, kind := range []string{"postgres", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			w, dir := newTables(t, kind), t.TempDir()
			file, data := w.pipeline(t, dir, perFile), filepath.Join(dir, "data")
			store := filepath.Join(data, "tables")
			running := runKilled(t, bin, file, data, store, kills, 20261203)
			w.holds(t, inputs, perFile)
			t.Logf("%d records, %d kills, %d of them after a commit: %s", inputs*perFile, kills, running, verified(t, bin, file, data))
		})
	}
}

// TestFrozenWithTables stops a process by SIGSTOP, has another take over with a copy of what the first had stored, and wakes the first: it
// writes nothing more, and ends.
func TestFrozenWithTables(t *testing.T) {
	perFile, rounds := 5_000, 3
	if testenv.Full() {
		rounds = 20
	}
	bin := build(t, t.TempDir())
	for _, kind := range []string{"postgres", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(20261203, 8))
			within := 0
			for range rounds {
				w, dir := newTables(t, kind), t.TempDir()
				file, data := w.pipeline(t, dir, perFile), filepath.Join(dir, "data")
				store := filepath.Join(data, "tables")
				cmd := start(t, bin, file, data)
				awaitCommit(t, store, 0)
				time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
				within += w.freeze(t, cmd, rng)
				other := filepath.Join(dir, "other")
				copyFiles(t, store, filepath.Join(other, "tables"))
				before, _ := progressOf(t, filepath.Join(other, "tables"))
				input(t, dir, inputs, perFile) // so that there is something to do, however far the first has come
				toTheEnd(t, bin, file, other)
				if after, _ := progressOf(t, filepath.Join(other, "tables")); after < before+10 {
					t.Fatalf("stopped at txid %d, of %d: the second had too little to do", before, after)
				}
				w.holds(t, inputs+1, perFile)
				if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				select {
				case err := <-ended:
					e, ok := errors.AsType[*exec.ExitError](err)
					if out := cmd.Stderr.(*bytes.Buffer).String(); !ok || e.ExitCode() != 4 || !strings.Contains(out, "was claimed by a run with epoch") {
						t.Errorf("the first process, awake: %v\n%s", err, out)
					}
				case <-time.After(2 * time.Minute):
					t.Fatal("the first process, awake, goes on")
				}
				w.holds(t, inputs+1, perFile)
			}
			t.Logf("%d rounds, %d of them stopped within a transaction", rounds, within)
		})
	}
}

// copyFiles copies a folder's files, and not the sockets among them.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch at := filepath.Join(to, rel); {
		case d.IsDir():
			return os.MkdirAll(at, 0o755)
		case d.Type().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(at, b, 0o644)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// freeze stops a process: with PostgreSQL at any moment, with SQLite where it doesn't hold the database's lock, which nobody could take from
// it. It returns 1 if the process had a transaction open.
func (w tables) freeze(t *testing.T, cmd *exec.Cmd, rng *rand.Rand) int {
	t.Helper()
	probe, err := w.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close() //nolint:errcheck // the database goes
	if w.serial == "integer" {
		if _, err := probe.ExecContext(t.Context(), "PRAGMA busy_timeout = 0"); err != nil {
			t.Fatal(err)
		}
		defer probe.ExecContext(context.Background(), "PRAGMA busy_timeout = 5000") //nolint:errcheck // as it was, for whoever gets the connection next
	}
	for {
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		// The signal has been sent, and the process may run on for a while: its lock might be looked at too early.
		var status syscall.WaitStatus
		_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		for errors.Is(err, syscall.EINTR) {
			_, err = syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		}
		if err != nil || !status.Stopped() {
			t.Fatalf("waiting for the stop: %v, status %x", err, status)
		}
		if w.serial == "bigserial" {
			var open int
			w.row(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'", &open)
			return min(open, 1)
		}
		_, err = probe.ExecContext(t.Context(), "BEGIN IMMEDIATE")
		if err == nil {
			_, err = probe.ExecContext(t.Context(), "ROLLBACK")
		}
		if err == nil {
			return 0
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(1+rng.IntN(20)) * time.Millisecond)
	}
}
