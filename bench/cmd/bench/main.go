// Command bench measures tridentd beside a loop written by hand, and beside other engines, on a real Kafka that it starts
// itself. Every program does the same work in a process of its own, by turns, several times, and what it has counted
// is held against what it should have. bench/README.md says how figures are taken and what they mean.
//
//	go run ./bench/cmd/bench                 drain: ours in YAML, ours in Go, the hand-written loop
//	go run ./bench/cmd/bench drain peers     with other engines
//	go run ./bench/cmd/bench all             everything
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tridentd/tridentd/bench/workload"
)

// bench is one call of the command.
type bench struct {
	root, dir        string
	records          int64
	rounds, seconds  int
	rate             int
	keys             int64
	quiet            time.Duration
	keepRuns         bool
	heap, profiles   string
	kafka, zookeeper *server
	loaded           map[string]workload.Expected
	runs             int
	report           Report
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func usageText(w *flag.FlagSet) {
	fmt.Fprintf(w.Output(), "usage: bench [flags] [SCENARIO]…\n\nscenarios (default: drain):\n")
	for _, s := range scenarios {
		fmt.Fprintf(w.Output(), "  %-11s %s\n", s.name, s.about)
	}
	fmt.Fprintf(w.Output(), "  %-11s %s\n\nflags:\n", "all", "all of these")
	w.PrintDefaults()
}

func run(ctx context.Context) (err error) {
	b := &bench{loaded: map[string]workload.Expected{}, report: newReport()}
	fs := flag.CommandLine
	fs.Usage = func() { usageText(fs) }
	fs.Int64Var(&b.records, "n", 4_000_000, "records to drain")
	fs.IntVar(&b.rounds, "rounds", 5, "how often each program runs")
	fs.IntVar(&b.seconds, "seconds", 30, "how long latency and live go on")
	fs.IntVar(&b.rate, "rate", 1_000_000, "live: records a second")
	fs.Int64Var(&b.keys, "keys", 10_000_000, "keys, restart: how many distinct keys there are; as many records are drained")
	fs.DurationVar(&b.quiet, "quiet", 0, "how long to wait, before each run, for a machine that nobody else uses")
	fs.StringVar(&b.heap, "heap", "4g", "peers: the most memory of a JVM's heap")
	fs.BoolVar(&b.keepRuns, "keep-runs", false, "leave what each run wrote in -dir")
	fs.StringVar(&b.profiles, "cpuprofiles", "", "folder for profiles of our runs")
	dir := fs.String("dir", "", "where servers and runs write; it stays, and is used again. Default: a temporary folder that is removed in the end")
	root := fs.String("root", ".", "the repository")
	jsonFile := fs.String("json", "", "file for all figures, as JSON")
	fs.Parse(os.Args[1:]) //nolint:errcheck // it ends the process instead
	if b.records < 1 || b.rounds < 1 || b.seconds < 1 || b.rate < 1 || b.keys < 1 {
		return errors.New("-n, -rounds, -seconds, -rate and -keys must be at least 1")
	}
	todo, err := chosen(fs.Args())
	if err != nil {
		return err
	}
	if b.root, err = filepath.Abs(*root); err != nil {
		return err
	}
	if b.profiles != "" {
		if b.profiles, err = filepath.Abs(b.profiles); err != nil {
			return err
		}
		if err := os.MkdirAll(b.profiles, 0o755); err != nil {
			return err
		}
	}
	keep := *dir != ""
	if keep {
		b.dir, err = filepath.Abs(*dir)
		err = errors.Join(err, os.MkdirAll(b.dir, 0o755))
	} else {
		b.dir, err = os.MkdirTemp("", "tridentd-bench")
		defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	}
	if err != nil {
		return err
	}
	if err := b.build(ctx); err != nil {
		return err
	}
	if b.kafka, err = startServer(ctx, b.root, "kafka.sh", filepath.Join(b.dir, "kafka"), "node-1/kafka.pid"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.kafka.end(keep)) }()
	b.say("Kafka is at %s", b.kafka.address)
	for _, s := range todo {
		if e := s.run(ctx, b); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", s.name, e))
		}
		if ctx.Err() != nil {
			break
		}
	}
	b.report.print(os.Stdout)
	if *jsonFile != "" {
		err = errors.Join(err, b.report.save(*jsonFile))
	}
	return err
}

// chosen are the scenarios asked for, in the order of the list.
func chosen(names []string) ([]scenario, error) {
	if len(names) == 0 {
		names = []string{"drain"}
	}
	want := map[string]bool{}
	for _, n := range names {
		want[n] = true
	}
	var out []scenario
	for _, s := range scenarios {
		if want[s.name] || want["all"] {
			out = append(out, s)
		}
		delete(want, s.name)
	}
	delete(want, "all")
	for n := range want { // order: any one will do
		return nil, fmt.Errorf("no scenario %s; bench -h lists them", n)
	}
	return out, nil
}

// build makes the programs.
func (b *bench) build(ctx context.Context) error {
	b.say("building")
	for _, name := range []string{"load", "ours", "ceiling"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", b.bin(name), "./bench/"+name)
		cmd.Dir = b.root
		cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -buildvcs=false"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
	}
	return nil
}

func (b *bench) bin(name string) string { return filepath.Join(b.dir, "bin", name) }

// say reports progress on standard error.
func (b *bench) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
