package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/spec/spectest"
)

// TestOrders runs the pipeline as it is declared in YAML and as it is written in Go, twice each, and compares their
// states with answers that were computed from the data alone.
func TestOrders(t *testing.T) {
	for name, c := range map[string]struct {
		target    []string
		pipelines []*engine.Pipeline
	}{
		"yaml": {target: []string{"orders.yaml"}},
		"go":   {pipelines: []*engine.Pipeline{Orders()}},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			tridentd := func(args ...string) []byte {
				t.Helper()
				var out, errs bytes.Buffer
				if code := daemon.Execute(t.Context(), args, &out, &errs, c.pipelines...); code != 0 {
					t.Fatalf("tridentd %v: exit code %d\n%s", args, code, &errs)
				}
				return out.Bytes()
			}
			run := append(append([]string{"run"}, c.target...), "--data", data, "--until", "caught-up", "--listen", "off")
			for range 2 {
				tridentd(run...)
			}
			for _, state := range []string{"unpaid", "paid", "by_customer", "countries"} {
				query := append(append([]string{"query"}, c.target...), state, "--data", data, "--format", "json")
				compare(t, state, tridentd(query...))
			}
		})
	}
}

func compare(t *testing.T, state string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", state+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var g, w []map[string]any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatal(err)
	}
	for _, row := range g {
		delete(row, "all") // the one key that the pipeline in Go groups everything by
	}
	if len(g) != len(w) {
		t.Fatalf("%s: %d rows, want %d", state, len(g), len(w))
	}
	for i := range w {
		if !reflect.DeepEqual(g[i], w[i]) {
			t.Errorf("%s: row %d is %v, want %v", state, i, g[i], w[i])
		}
	}
}

// TestDeclared runs the tests in orders_test.yaml.
func TestDeclared(t *testing.T) { spectest.Run(t, "orders.yaml") }
