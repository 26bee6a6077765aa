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

// TestFlights runs the pipeline as it is declared in YAML and as it is written in Go, twice each, and compares their
// states with answers that were computed from the data alone.
func TestFlights(t *testing.T) {
	for name, c := range map[string]struct {
		target    []string
		pipelines []*engine.Pipeline
	}{
		"yaml": {target: []string{"flights.yaml"}},
		"go":   {pipelines: []*engine.Pipeline{Flights()}},
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
			for _, state := range []string{"by_carrier", "daily", "routes"} {
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
	g, w := rows(t, got), rows(t, want)
	if len(g) != len(w) {
		t.Fatalf("%s: %d rows, want %d", state, len(g), len(w))
	}
	for i := range w {
		if !reflect.DeepEqual(g[i], w[i]) {
			t.Errorf("%s: row %d is %v, want %v", state, i, g[i], w[i])
		}
	}
}

// rows decodes an array of objects, numbers by their value.
func rows(t *testing.T, b []byte) []map[string]any {
	t.Helper()
	var all []map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return all
}

// TestDeclared runs the tests in flights_test.yaml.
func TestDeclared(t *testing.T) { spectest.Run(t, "flights.yaml") }
