// Package daemon is the command line of tridentd, and of every program that holds pipelines of its own:
//
//	func main() { daemon.Main(Words()) }
//
// gives such a program all of tridentd's commands. Where tridentd's take a pipeline's file, the program's also take a
// pipeline's name, and nothing at all if it holds just one. A [Program] also has functions of Go that pipelines' files call:
//
//	func main() {
//		daemon.Program{Functions: []spec.Func{spec.Function("country", country, spec.Pure)}}.Main()
//	}
//
// Results go to standard output, progress and logs to standard error. Exit codes: 0 done; 1 failed while running;
// 2 usage or configuration; 3 a verification found a difference; 4 a stop of run that a restart won't mend.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/spec"
)

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	// A verification found a difference.
	exitDifferent = 3
	exitStop      = 4
)

// Main runs the command line of a program with these pipelines and ends the process.
func Main(pipelines ...*engine.Pipeline) { Program{Pipelines: pipelines}.Main() }

// Execute runs one command of a program with these pipelines and returns its exit code.
func Execute(ctx context.Context, args []string, stdout, stderr io.Writer, pipelines ...*engine.Pipeline) int {
	return Program{Pipelines: pipelines}.Execute(ctx, args, stdout, stderr)
}

// Program is what a program has besides tridentd's commands.
type Program struct {
	Pipelines []*engine.Pipeline
	// Functions are what expressions in pipelines' files may call, besides the built-in functions. Whoever runs, checks, tests or
	// replays such a file needs a program that has them.
	Functions []spec.Func
}

// Main runs the command line of the process and ends it.
func (p Program) Main() {
	os.Exit(p.Execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// Execute runs one command and returns its exit code.
func (p Program) Execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	a := &app{out: stdout, err: stderr, pipelines: p.Pipelines, functions: p.Functions}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletion(root)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(stderr, strings.TrimRight(err.Error(), "\n"))
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return exitFailed
}

// exitError is an error with the exit code it asks for.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// runError gives the failure of a run its exit code.
func runError(err error) error {
	if err == nil {
		return nil
	}
	if batch.KindOf(err) != batch.Permanent {
		return &exitError{exitFailed, err}
	}
	switch batch.CodeOf(err) {
	case batch.CodeConfiguration, batch.CodeTopicMissing:
		return &exitError{exitUsage, err}
	case batch.CodeStoreInUse, batch.CodeStoreFull, batch.CodeLockHeld, batch.CodeLockLost:
		return &exitError{exitFailed, err}
	}
	return &exitError{exitStop, err}
}

// app is one command line.
type app struct {
	out, err  io.Writer
	pipelines []*engine.Pipeline
	functions []spec.Func
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "tridentd",
		Short:         "Exactly-once micro-batch pipelines",
		Long:          "tridentd runs pipelines in batches with strictly ordered transaction ids: every record counts exactly once,\nwhatever fails, and every result can be recomputed from the offsets that made it.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; tridentd --help lists them", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(a.runCommand(), a.demoCommand(), a.validateCommand(), a.testCommand(), a.queryCommand(), a.ledgerCommand(), a.replayCommand(), a.diffCommand(), a.migrateCommand(), a.savepointCommand(), a.statusCommand(), a.doctorCommand(), a.offsetsCommand(), a.stateCommand(), a.lagCommand(), a.deadLettersCommand(), a.transactionsCommand(), a.versionCommand())
	return root
}

// addCompletion adds the completion command, which writes to what root writes to by now.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		var shells []string
		for _, s := range c.Commands() {
			shells = append(shells, s.Name())
			s.Args = atMost(0)
		}
		c.Args = func(*cobra.Command, []string) error {
			return usagef("name the shell: %s", strings.Join(shells, ", "))
		}
		c.RunE = func(*cobra.Command, []string) error { return nil } // never reached: no arguments will do
	}
}

// target is the pipeline that a command is about.
type target struct {
	pipeline *engine.Pipeline
	lines    []string // its plan, for people
	root     string   // the directory that holds the data directories of pipelines
	dir      string   // this pipeline's data directory
}

// resolve finds the pipeline named by the first of args, and returns the other arguments.
func (a *app) resolve(args []string, data string) (*target, []string, error) {
	p, beside, rest, err := a.find(args)
	if err != nil {
		return nil, nil, err
	}
	pl, err := p.Plan()
	if err != nil {
		return nil, nil, usage(err)
	}
	t := &target{pipeline: p, lines: pl.Lines, root: data}
	if t.root == "" {
		t.root = os.Getenv("TRIDENTD_DATA_DIR")
	}
	if t.root == "" {
		t.root = filepath.Join(beside, "tridentd-data")
	}
	t.dir = filepath.Join(t.root, p.Name())
	return t, rest, nil
}

func (a *app) find(args []string) (p *engine.Pipeline, beside string, rest []string, err error) {
	if len(args) > 0 {
		for _, p := range a.pipelines {
			if p.Name() == args[0] {
				return p, ".", args[1:], nil
			}
		}
		if isFile(args[0]) {
			sp, err := spec.Load(args[0], a.specOptions())
			if err != nil {
				return nil, "", nil, usage(err)
			}
			pl, err := sp.Plan()
			if err != nil {
				return nil, "", nil, usage(err)
			}
			return engine.Wrap(pl), filepath.Dir(args[0]), args[1:], nil
		}
	}
	if len(a.pipelines) == 1 {
		return a.pipelines[0], ".", args, nil
	}
	if len(args) > 0 {
		return nil, "", nil, usagef("%s: %w", args[0], errors.Join(errNoFile(args[0])))
	}
	if len(a.pipelines) > 1 {
		var names []string
		for _, p := range a.pipelines {
			names = append(names, p.Name())
		}
		return nil, "", nil, usagef("name a pipeline: %s", strings.Join(names, ", "))
	}
	return nil, "", nil, usagef("name the pipeline's file")
}

// specOptions are what pipelines' files are read with.
func (a *app) specOptions() spec.Options { return spec.Options{Functions: a.functions} }

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.IsDir()
}

func errNoFile(name string) error {
	info, err := os.Stat(name)
	switch {
	case err != nil && errors.Is(err, os.ErrNotExist):
		return errors.New("no such file")
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("is a directory, not a pipeline's file")
	}
	return nil
}

// atMost and exactly make wrong numbers of arguments a usage error.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return usage(cobra.MaximumNArgs(n)(cmd, args))
	}
}

func dataFlag(cmd *cobra.Command, data *string) {
	cmd.Flags().StringVar(data, "data", "", "directory that holds the data directories of pipelines (default: TRIDENTD_DATA_DIR, or tridentd-data beside the file)")
}
