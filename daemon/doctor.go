package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// defaultDoctorTimeout bounds the command doctor as a whole.
const defaultDoctorTimeout = 15 * time.Second

func (a *app) doctorCommand() *cobra.Command {
	var data, format string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "doctor FILE",
		Short: "Check every server that a pipeline needs, and say what to do",
		Long: "doctor asks every server that the pipeline names, and looks at the data directory and the files: each fault is a line with\n" +
			"what to do about it. Nothing is changed, but for a probe node in ZooKeeper that it removes again. It works beside a running\n" +
			"pipeline. The exit code is 1 if something must be mended (error); what only threatens (warn) doesn't count.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			if timeout <= 0 {
				return usagef("--timeout %s: it must be positive", timeout)
			}
			t, rest, err := a.resolve(args, data)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usagef("unexpected argument %q", rest[0])
			}
			pl, err := t.pipeline.Plan()
			if err != nil {
				return usage(err)
			}
			findings := examine(cmd.Context(), t, pl, timeout)
			if err := printFindings(a.out, format, findings); err != nil {
				return err
			}
			return verdict(findings)
		},
	}
	dataFlag(cmd, &data)
	formatFlag(cmd, &format)
	cmd.Flags().DurationVar(&timeout, "timeout", defaultDoctorTimeout, "for all checks together; what hasn't answered by then is named")
	return cmd
}

// verdict is an error if something must be mended.
func verdict(findings []doctor.Finding) error {
	n := 0
	for _, f := range findings {
		if f.Level == doctor.Error {
			n++
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return &exitError{exitFailed, errors.New("1 fault must be mended")}
	}
	return &exitError{exitFailed, fmt.Errorf("%d faults must be mended", n)}
}

// examine makes all checks at once and returns their findings in an order that doesn't depend on who answers first.
func examine(ctx context.Context, t *target, pl *plan.Plan, timeout time.Duration) []doctor.Finding {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// The store comes first: the sources are asked about the positions that it holds. A disk that hangs must leave time to
	// ask them.
	opening, stop := context.WithTimeout(ctx, timeout/3)
	defer stop()
	opened := make(chan store, 1)
	findings := begin(opening, "data "+t.dir, func(ctx context.Context) []doctor.Finding {
		s := checkStore(ctx, t)
		opened <- s
		return s.findings
	}).wait(opening)
	var s store
	select {
	case s = <-opened:
	default: // it hangs
	}
	env := doctor.Env{Pipeline: pl.Name, Logger: hclog.NewNullLogger(), Running: s.running, Locked: pl.Keeper != nil && pl.Keeper.Lock != nil}

	checks := []*check{
		begin(ctx, "disk", func(context.Context) []doctor.Finding { return checkSpace(t.dir) }),
		begin(ctx, "memory", func(context.Context) []doctor.Finding { return checkMemory(pl.Memory, pl.Batch) }),
	}
	for _, src := range pl.Sources {
		if src.Check == nil {
			continue
		}
		env := env
		env.Source = src.ID
		env.Positions = positionsOf(s.positions, src.ID)
		checks = append(checks, begin(ctx, "source "+src.ID, func(ctx context.Context) []doctor.Finding { return src.Check(ctx, env) }))
	}
	for _, table := range pl.Statics {
		if table.Check != nil {
			checks = append(checks, begin(ctx, "table "+table.Name, func(ctx context.Context) []doctor.Finding { return table.Check(ctx, env) }))
		}
	}
	for _, out := range pl.Sinks {
		env := env
		env.Sink = out.Name
		checks = append(checks, begin(ctx, "sink "+out.Name, func(ctx context.Context) []doctor.Finding { return checkSink(ctx, out, env) }))
	}
	if k := pl.Keeper; k != nil && k.Check != nil {
		env := env
		env.Positions = s.positions
		checks = append(checks, begin(ctx, k.Describe, func(ctx context.Context) []doctor.Finding {
			found := k.Check(ctx, env)
			if !slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.Level == doctor.OK }) {
				return found // nobody serves
			}
			return append(found, checkRecord(ctx, k, s.standing)...)
		}))
	}
	for _, c := range checks {
		findings = append(findings, c.wait(ctx)...)
	}
	return distinct(findings)
}

// positionsOf are those of one source; nil only if there is no store.
func positionsOf(all []batch.Position, source string) []batch.Position {
	if all == nil {
		return nil
	}
	of := []batch.Position{}
	for _, p := range all {
		if p.Source == source {
			of = append(of, p)
		}
	}
	return of
}

// check is a check under way. One that doesn't heed its context is left behind when the time is up.
type check struct {
	subject string
	done    chan []doctor.Finding
}

// checkReserve is the part of the time that checks leave for saying what they have found out.
const checkReserve = 20

func begin(ctx context.Context, subject string, f func(context.Context) []doctor.Finding) *check {
	c := &check{subject: subject, done: make(chan []doctor.Finding, 1)}
	cancel := func() {}
	if d, ok := ctx.Deadline(); ok {
		ctx, cancel = context.WithDeadline(ctx, d.Add(-time.Until(d)/checkReserve))
	}
	go func() {
		defer cancel()
		c.done <- f(ctx)
	}()
	return c
}

func (c *check) wait(ctx context.Context) []doctor.Finding {
	select {
	case found := <-c.done:
		return found
	case <-ctx.Done():
	}
	select { // both may have been ready
	case found := <-c.done:
		return found
	default:
	}
	return []doctor.Finding{{
		Level: doctor.Error, Subject: c.subject, Code: doctor.CodeNotChecked, Text: "had not been checked to the end when the time was up",
		Remedy: "see what hangs, or give it more time (--timeout)",
	}}
}

// distinct drops what has been said before: two sources of one cluster find the same of its brokers.
func distinct(findings []doctor.Finding) []doctor.Finding {
	var all []doctor.Finding
	for _, f := range findings {
		if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	return all
}

var findingColumns = []state.Column{
	{Name: "level", Type: "string"},
	{Name: "subject", Type: "string"},
	{Name: "code", Type: "string"},
	{Name: "text", Type: "string"},
	{Name: "remedy", Type: "string"},
}

func printFindings(w io.Writer, format string, findings []doctor.Finding) error {
	if format == formatTable {
		return findingsTable(w, findings)
	}
	p := newPrinter(format, w)
	if err := p.Begin(0, findingColumns); err != nil {
		return err
	}
	for _, f := range findings {
		row := make([]value.Value, 0, len(findingColumns))
		for _, cell := range []string{f.Level.String(), f.Subject, string(f.Code), f.Text, f.Remedy} {
			row = append(row, value.StringOf(cell))
		}
		if err := p.Row(row); err != nil {
			return err
		}
	}
	return p.end()
}

// findingsTable prints a line for each finding: level, subject, what is so, and behind an arrow what to do.
func findingsTable(w io.Writer, findings []doctor.Finding) error {
	width := 0
	for _, f := range findings {
		width = max(width, utf8.RuneCountInString(printable(f.Subject)))
	}
	b := bufio.NewWriter(w)
	for _, f := range findings {
		subject := printable(f.Subject)
		pad := strings.Repeat(" ", width-utf8.RuneCountInString(subject))
		fmt.Fprintf(b, "%-5s  %s%s  %s", f.Level, subject, pad, printable(f.Text))
		if f.Remedy != "" {
			fmt.Fprintf(b, "   → %s", printable(f.Remedy))
		}
		b.WriteByte('\n') //nolint:errcheck // Flush reports it
	}
	return b.Flush()
}
