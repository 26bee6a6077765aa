//go:build realsql

package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/testenv"
)

// TestTotals runs the pipeline as it is declared in YAML and as it is written in Go, twice each, and compares the table with answers that
// were computed from the data alone.
func TestTotals(t *testing.T) {
	want, err := os.ReadFile("testdata/totals.txt")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := os.ReadFile("schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"yaml", "go"} {
		t.Run(name, func(t *testing.T) {
			url := testenv.Postgres(t).Database(t)
			t.Setenv("DATABASE_URL", url)
			db, err := sql.Open("pgx", url)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close() //nolint:errcheck // the database goes
			if _, err := db.ExecContext(t.Context(), string(schema)); err != nil {
				t.Fatal(err)
			}
			var target []string
			var pipelines []*engine.Pipeline
			if name == "yaml" {
				target = []string{"totals.yaml"}
			} else {
				pipelines = []*engine.Pipeline{Totals(url)}
			}
			data := t.TempDir()
			tridentd := func(command string, args ...string) string {
				t.Helper()
				var out, errs bytes.Buffer
				if code := daemon.Execute(t.Context(), append(append([]string{command}, target...), args...), &out, &errs, pipelines...); code != 0 {
					t.Fatalf("tridentd %s: exit code %d\n%s%s", command, code, &out, &errs)
				}
				return out.String()
			}
			tridentd("doctor", "--data", data)
			for range 2 {
				tridentd("run", "--data", data, "--until", "caught-up", "--listen", "off")
			}
			if got := table(t, db, "SELECT concat_ws(' ', customer, orders, total) FROM totals ORDER BY customer"); got != string(want) {
				t.Errorf("totals:\n%swant\n%s", got, want)
			}
			progress := strings.TrimSpace(table(t, db, "SELECT txid FROM tridentd_sinks WHERE pipeline = 'totals' AND sink = 'totals'"))
			findings := tridentd("doctor", "--data", data)
			for _, want := range []string{
				"opens, at rest, committed txid " + progress + "\n", "holds the output up to txid " + progress + ", of epoch 2",
				"takes customer text, orders bigint, total numeric(12,2); rows are told apart by customer",
			} {
				if !strings.Contains(findings, want) {
					t.Errorf("doctor:\n%swithout: %s", findings, want)
				}
			}
		})
	}
}

// table returns the lines that a query gives.
func table(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close() //nolint:errcheck // Err tells
	var b strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
