// Package spectest runs the tests of pipelines that are declared in YAML: on given records, in given batches, with no server, no
// clock and no sleep. Everything runs through the engine's own code, on a store in memory, so that a test that passes is a
// statement about what a run over these batches commits.
//
//	func TestFlights(t *testing.T) { spectest.Run(t, "flights.yaml") }
//
// The command `tridentd test` does the same without Go. What a test is written like stands in docs/reference/testing.md.
package spectest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/spec"
)

// Options say what is done with a test besides running it.
type Options struct {
	// Deterministic also runs the batches in other circumstances, as enginetest.Deterministic does: on other numbers of procs, with
	// other numbers of batches in flight, and after a crash at every point. It sets GOMAXPROCS meanwhile.
	Deterministic bool
}

// Outcome is what came of a test.
type Outcome struct {
	Test *spec.Test
	// Failures are what wasn't as expected, each with its place, in the order of the batches; none: the test has passed.
	Failures []string
	Batches  int // that committed
	Records  int64
	Took     time.Duration
}

// Run runs the tests of a pipeline's file, each as a subtest. The options are those that the file is read with.
func Run(t *testing.T, path string, opts ...spec.Options) {
	t.Helper()
	var o spec.Options
	if len(opts) > 0 {
		o = opts[0]
	}
	p, tests, err := spec.LoadTests(path, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(tests) == 0 {
		t.Fatalf("%s has no tests", path)
	}
	for _, test := range tests {
		t.Run(test.Name, func(t *testing.T) {
			out, err := RunTest(t.Context(), p, test, Options{Deterministic: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range out.Failures {
				t.Error(f)
			}
		})
	}
}

// RunTest runs one test. The error is of type spec.Problem where the test itself is wrong: a source that the pipeline hasn't got, a
// row without its key.
func RunTest(ctx context.Context, p *spec.Pipeline, test *spec.Test, o Options) (*Outcome, error) {
	began := time.Now()
	r, err := newRun(p, test)
	if err != nil {
		return nil, err
	}
	out := &Outcome{Test: test}
	if err := r.run(ctx, out); err != nil {
		return nil, err
	}
	if o.Deterministic && len(out.Failures) == 0 && !r.fails {
		differences, err := r.verify(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", test.Place, err)
		}
		for _, d := range differences {
			out.Failures = append(out.Failures, "not deterministic: "+strings.TrimSpace(d))
		}
	}
	out.Took = time.Since(began)
	return out, nil
}
