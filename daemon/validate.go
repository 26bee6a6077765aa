package daemon

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

func (a *app) validateCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a pipeline and explain its plan; nothing is started",
		Long: "validate checks a pipeline and prints what it declares, in which stages it runs, and what is kept for how long.\n" +
			"Nothing is started and no server is asked: tridentd doctor does that.",
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			t, rest, err := a.resolve(args, "")
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
			if format == formatTable {
				return a.explain(pl)
			}
			return a.explainRows(pl, format)
		},
	}
	formatFlag(cmd, &format)
	return cmd
}

// explain prints a plan for people.
func (a *app) explain(pl *plan.Plan) error {
	var err error
	print := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(a.out, format+"\n", args...)
		}
	}
	print("pipeline %s", pl.Name)
	for _, l := range pl.Lines {
		print("%s", l)
	}
	x := pl.Explain(plan.DefaultShards)
	for _, part := range []struct {
		title   string
		remarks []plan.Remark
	}{{"how it runs", x.Stages}, {"what is kept", x.Kept}} {
		width := 0
		for _, r := range part.remarks {
			width = max(width, len(r.What))
		}
		print("\n%s", part.title)
		for _, r := range part.remarks {
			print("  %-*s  %s", width, r.What, r.Says)
		}
	}
	return err
}

var explainColumns = []state.Column{{Name: "part", Type: "string"}, {Name: "what", Type: "string"}, {Name: "says", Type: "string"}}

// explainRows prints a plan for programs: a row for each line.
func (a *app) explainRows(pl *plan.Plan, format string) error {
	p := newPrinter(format, a.out)
	if err := p.Begin(0, explainColumns); err != nil {
		return err
	}
	row := func(part, what, says string) error {
		return p.Row([]value.Value{value.StringOf(part), value.StringOf(what), value.StringOf(says)})
	}
	for _, l := range pl.Lines {
		if err := row("declared", "", l); err != nil {
			return err
		}
	}
	x := pl.Explain(plan.DefaultShards)
	for part, remarks := range [][]plan.Remark{x.Stages, x.Kept} {
		for _, r := range remarks {
			if err := row([]string{"stage", "kept"}[part], r.What, r.Says); err != nil {
				return err
			}
		}
	}
	return p.end()
}
