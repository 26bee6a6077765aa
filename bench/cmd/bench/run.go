package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tridentd/tridentd/bench/workload"
)

// runLimit bounds one run: something that hangs must not hold up all that comes after it.
const runLimit = 20 * time.Minute

// Run is what one run of one program came to. Times and memory are those up to its result; reading its totals out
// afterwards doesn't count.
type Run struct {
	Scenario string `json:"scenario"`
	Program  string `json:"program"`
	Round    int    `json:"round"`
	Records  int64  `json:"records"`
	// Seconds go from the first fetch (ours and the ceiling: from the program's start) to the last commit.
	Seconds float64 `json:"seconds"`
	// Wall is the time from the process' start to its result, in seconds.
	Wall float64 `json:"wall_seconds"`
	Rate float64 `json:"records_per_second"`
	// CPU is the processor time of the program, Servers that of Kafka and ZooKeeper, in seconds.
	CPU     float64 `json:"cpu_seconds"`
	Servers float64 `json:"servers_cpu_seconds"`
	// Other is what everything else took of the machine, between 0 and 1.
	Other      float64 `json:"other_share"`
	PeakMemory int64   `json:"peak_memory_bytes"`
	Allocs     int64   `json:"allocations,omitempty"`
	Batches    int64   `json:"batches,omitempty"`
}

// quietShare is how much of the machine others may use before a run doesn't count as undisturbed.
const quietShare = 0.10

// program is something that does a job on a topic.
type program struct {
	name string
	spec workload.Spec
	// command is its command line, and what its environment has beside ours.
	command func(r *request) (args, env []string)
	// units is what a record counts for; 0: one. Lines count for ten words.
	units int64
	// zookeeper gives each run a ZooKeeper of its own.
	zookeeper bool
}

// request is what a program is told.
type request struct {
	topic  string
	dir    string // its own; empty
	totals string
	run    string // a name of this run
	n      int64
}

// measured runs a program once, and checks what it has counted.
func (b *bench) measured(ctx context.Context, scenario string, p *program, round int) (Run, error) {
	expected, topic, err := b.load(ctx, p.spec)
	if err != nil {
		return Run{}, err
	}
	b.runs++
	rq := &request{topic: topic, run: fmt.Sprintf("%d-%d", os.Getpid(), b.runs), n: p.spec.Records}
	rq.dir = filepath.Join(b.dir, "run-"+rq.run)
	rq.totals = filepath.Join(rq.dir, "totals.txt")
	if err := os.MkdirAll(rq.dir, 0o755); err != nil {
		return Run{}, err
	}
	defer func() {
		if !b.keepRuns {
			_ = os.RemoveAll(rq.dir) // only room on the disk is lost
		}
	}()
	if err := b.waitQuiet(ctx); err != nil {
		return Run{}, err
	}
	if p.zookeeper {
		if b.zookeeper, err = startServer(ctx, b.root, "zookeeper.sh", filepath.Join(rq.dir, "zookeeper"), "node-1/zookeeper.pid"); err != nil {
			return Run{}, err
		}
	}
	r, err := b.spawn(ctx, p, rq)
	if p.zookeeper {
		err = errors.Join(err, b.zookeeper.end(false))
		b.zookeeper = nil
	}
	if err != nil {
		return Run{}, fmt.Errorf("%s: %w", p.name, err)
	}
	if err := expected.CompareFile(rq.totals); err != nil {
		return Run{}, fmt.Errorf("%s counted wrong: %w", p.name, err)
	}
	r.Scenario, r.Program, r.Round = scenario, p.name, round
	units := max(p.units, 1)
	r.Records *= units
	r.Rate = float64(r.Records) / r.Seconds
	b.report.Runs = append(b.report.Runs, r)
	note := ""
	if r.Other > quietShare {
		note = fmt.Sprintf("  (not quiet: others took %.0f %%)", 100*r.Other)
	}
	b.say("%-28s round %d: %8s/s  %6.2f s  CPU %6.2f s  peak %4d MB  totals right%s", p.name, round, short(r.Rate), r.Seconds, r.CPU, r.PeakMemory>>20, note)
	return r, nil
}

// spawn starts the program, reads the machine's figures when it tells its result, and waits for its end.
func (b *bench) spawn(ctx context.Context, p *program, rq *request) (Run, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	args, env := p.command(rq)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	logFile, err := os.Create(filepath.Join(rq.dir, "stderr.log"))
	if err != nil {
		return Run{}, err
	}
	defer logFile.Close() //nolint:errcheck // it is read for error messages only
	cmd.Stderr = logFile
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Run{}, err
	}
	before, err := b.usage(0)
	if err != nil {
		return Run{}, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return Run{}, err
	}
	var r Run
	var found bool
	var failed error
	for sc := bufio.NewScanner(out); sc.Scan(); {
		res, ok, err := workload.ParseResult(sc.Text())
		if !ok || found {
			continue
		}
		found = true
		if err != nil {
			failed = err
			continue
		}
		r.Wall = time.Since(began).Seconds()
		after, err := b.usage(cmd.Process.Pid)
		if err != nil {
			failed = err
			continue
		}
		r.PeakMemory, failed = peakMemory(cmd.Process.Pid)
		r.CPU = after.own.Seconds()
		r.Servers = (after.servers - before.servers).Seconds()
		r.Other = others(before, after)
		r.Records, r.Batches, r.Allocs = res.Records, res.Batches, res.Allocs
		r.Seconds = float64(res.Commit-res.First) / 1000
	}
	err = cmd.Wait()
	if err == nil && failed == nil && !found {
		failed = errors.New("it ended without a result")
	}
	if err == nil && failed == nil && r.Records != rq.n {
		failed = fmt.Errorf("it says that it has counted %d records, want %d", r.Records, rq.n)
	}
	if err := errors.Join(err, failed); err != nil {
		return r, fmt.Errorf("%w\n%s", err, tail(logFile.Name()))
	}
	r.Seconds = max(r.Seconds, 0.001)
	return r, nil
}

// usage is what has been used so far.
type usage struct {
	machine      machine
	own, servers time.Duration
}

// usage reads what the machine, the servers, this process and the process pid have used; pid 0 is none.
func (b *bench) usage(pid int) (usage, error) {
	var u usage
	var err error
	if u.machine, err = readMachine(); err != nil {
		return u, err
	}
	for _, s := range []*server{b.kafka, b.zookeeper} {
		if s == nil {
			continue
		}
		t, err := processorTime(s.pid)
		if err != nil {
			return u, fmt.Errorf("%s: %w", s.script, err)
		}
		u.servers += t
	}
	if pid > 0 {
		u.own, err = processorTime(pid)
	}
	return u, err
}

// others is the share of the machine that everything but the servers and the program took.
func others(before, after usage) float64 {
	all := after.machine.all - before.machine.all
	if all <= 0 {
		return 0
	}
	busy := after.machine.busy - before.machine.busy - (after.own - before.own) - (after.servers - before.servers)
	return max(float64(busy)/float64(all), 0)
}

// waitQuiet waits, for as long as -quiet allows, until the machine has been idle for 3 seconds.
func (b *bench) waitQuiet(ctx context.Context) error {
	const span = 3 * time.Second
	for end := time.Now().Add(b.quiet); time.Now().Before(end); {
		before, err := readMachine()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(span):
		}
		after, err := readMachine()
		if err != nil {
			return err
		}
		if float64(after.busy-before.busy) <= quietShare*float64(after.all-before.all) {
			return nil
		}
	}
	return nil
}

// load fills the workload's topic, once, in a process of its own.
func (b *bench) load(ctx context.Context, s workload.Spec) (workload.Expected, string, error) {
	topic := s.Topic()
	if e, ok := b.loaded[topic]; ok {
		return e, topic, nil
	}
	expect := filepath.Join(b.dir, "expected", topic+".json")
	args := []string{
		"-brokers", b.kafka.address, "-kind", string(s.Kind), "-n", fmt.Sprint(s.Records), "-partitions", fmt.Sprint(s.Partitions),
		"-users", fmt.Sprint(s.Users), fmt.Sprintf("-uniform=%v", s.Uniform), "-expect", expect,
	}
	out, err := exec.CommandContext(ctx, b.bin("load"), args...).CombinedOutput()
	if err != nil {
		return workload.Expected{}, "", fmt.Errorf("loading %s: %w\n%s", topic, err, out)
	}
	b.say("%s", strings.TrimSpace(string(out)))
	e, err := workload.ReadExpected(expect)
	if err == nil {
		b.loaded[topic] = e
	}
	return e, topic, err
}

// tail is the end of a log.
func tail(name string) string {
	const most = 4000
	b, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(b[max(len(b)-most, 0):])
}
