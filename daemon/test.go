package daemon

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/spec"
	"github.com/tridentd/tridentd/spec/spectest"
	"github.com/tridentd/tridentd/state"
)

// testFlags are the settings of test.
type testFlags struct {
	run           string
	format        string
	deterministic bool
}

func (a *app) testCommand() *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Run the tests of pipelines",
		Long: "test runs the tests in a pipeline's file and in NAME_test.yaml beside it, or only those of the latter if that is named. It needs no\n" +
			"server and writes no file: the batches of each test run on a store in memory. It exits with 1 if a test fails.",
		Example: "  tridentd test flights.yaml\n  tridentd test *_test.yaml --run late --deterministic",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(f.format); err != nil {
				return err
			}
			if len(args) == 0 {
				return usagef("name the file of a pipeline, or of its tests")
			}
			return a.test(cmd.Context(), args, &f)
		},
	}
	formatFlag(cmd, &f.format)
	cmd.Flags().StringVar(&f.run, "run", "", "run the tests whose names match this regular expression")
	cmd.Flags().BoolVar(&f.deterministic, "deterministic", false, "also run each test on other numbers of cores, with other numbers of batches in flight, and after a crash at every point: the same bytes must come of it")
	return cmd
}

// testSuite is a file with its tests.
type testSuite struct {
	file     string
	pipeline *spec.Pipeline
	tests    []*spec.Test
}

func (a *app) test(ctx context.Context, files []string, f *testFlags) error {
	pattern, err := regexp.Compile(f.run)
	if err != nil {
		return usagef("--run: %w", err)
	}
	// All files are read before anything runs: what is wrong in one is told at once.
	var suites []testSuite
	var wrong []error
	for _, file := range files {
		p, tests, err := spec.LoadTests(file, a.specOptions())
		if err == nil && len(tests) == 0 {
			err = fmt.Errorf("%s has no tests: write some under tests, or in a file beside it", file)
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		suites = append(suites, testSuite{file, p, tests})
	}
	if len(wrong) > 0 {
		return usage(errors.Join(wrong...))
	}
	report := newTestReport(a, f.format)
	for _, s := range suites {
		for _, test := range s.tests {
			if !pattern.MatchString(test.Name) {
				continue
			}
			out, err := spectest.RunTest(ctx, s.pipeline, test, spectest.Options{Deterministic: f.deterministic})
			if p, ok := errors.AsType[spec.Problem](err); ok {
				return usage(p)
			}
			if err != nil {
				return err
			}
			if err := report.add(out); err != nil {
				return err
			}
		}
	}
	return report.end(pattern)
}

// testReport tells what came of tests, in the order in which they run.
type testReport struct {
	a             *app
	rows          rowPrinter // nil for people
	tests, failed int
	took          time.Duration
}

var testColumns = []state.Column{
	{Name: "test", Type: "string"},
	{Name: "place", Type: "string"},
	{Name: "passed", Type: "bool"},
	{Name: "batches", Type: "int"},
	{Name: "records", Type: "int"},
	{Name: "seconds", Type: "float"},
	{Name: "failures", Type: "list"},
}

func newTestReport(a *app, format string) *testReport {
	r := &testReport{a: a}
	if format != formatTable {
		r.rows = newPrinter(format, a.out)
	}
	return r
}

func (r *testReport) add(out *spectest.Outcome) error {
	first := r.tests == 0
	r.tests++
	r.took += out.Took
	if len(out.Failures) > 0 {
		r.failed++
	}
	if r.rows == nil {
		return r.print(out)
	}
	if first {
		if err := r.rows.Begin(0, testColumns); err != nil {
			return err
		}
	}
	var failures []value.Value
	for _, f := range out.Failures {
		failures = append(failures, value.StringOf(f))
	}
	return r.rows.Row([]value.Value{
		value.StringOf(out.Test.Name), value.StringOf(out.Test.Place), value.BoolOf(len(out.Failures) == 0),
		value.IntOf(int64(out.Batches)), value.IntOf(out.Records), value.FloatOf(out.Took.Seconds()), value.ListOf(failures),
	})
}

func (r *testReport) print(out *spectest.Outcome) error {
	if len(out.Failures) == 0 {
		_, err := fmt.Fprintf(r.a.out, "ok    %s: %s, %s\n", out.Test.Name, counted(int64(out.Batches), "batch", "batches"), counted(out.Records, "record", "records"))
		return err
	}
	_, err := fmt.Fprintf(r.a.out, "FAIL  %s\n", out.Test.Name)
	for _, f := range out.Failures {
		if err == nil {
			_, err = fmt.Fprintf(r.a.out, "      %s\n", strings.ReplaceAll(f, "\n", "\n      "))
		}
	}
	return err
}

func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}

// end tells the sum of it all.
func (r *testReport) end(pattern *regexp.Regexp) error {
	if r.tests == 0 {
		return usagef("--run %s: no test has such a name", pattern)
	}
	if r.rows != nil {
		if err := r.rows.end(); err != nil {
			return err
		}
	}
	if r.failed > 0 {
		return &exitError{exitFailed, fmt.Errorf("%d of %s failed", r.failed, counted(int64(r.tests), "test", "tests"))}
	}
	fmt.Fprintf(r.a.err, "%s passed\n", counted(int64(r.tests), "test", "tests"))
	return nil
}
