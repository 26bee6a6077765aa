package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/server"
)

// patience bounds the waits of the cases: far more than any of them takes.
const patience = time.Minute

// brokers is a Kafka cluster under test, kfake's or a real one.
type brokers struct {
	t     *testing.T
	addrs []string
	fake  *kfake.Cluster // nil for a real one
	cl    *kgo.Client
	adm   *kadm.Client
}

func fakeBrokers(t *testing.T, opts ...kfake.Opt) *brokers {
	t.Helper()
	local := kfake.ListenFn(func(network, _ string) (net.Listener, error) { return net.Listen(network, "127.0.0.1:0") })
	fake, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), local}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	b := connect(t, fake.ListenAddrs())
	b.fake = fake
	return b
}

func connect(t *testing.T, addrs []string) *brokers {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &brokers{t: t, addrs: addrs, cl: cl, adm: kadm.NewClient(cl)}
}

// topic makes a topic; settings are pairs of Kafka's names and values.
func (b *brokers) topic(name string, partitions int32, settings ...string) {
	b.t.Helper()
	configs := map[string]*string{}
	for i := 0; i < len(settings); i += 2 {
		configs[settings[i]] = new(settings[i+1])
	}
	if _, err := b.adm.CreateTopic(b.t.Context(), partitions, 1, configs, name); err != nil {
		b.t.Fatalf("topic %s: %v", name, err)
	}
}

// produce writes values to partition 0 of a topic.
func (b *brokers) produce(topic string, values ...string) {
	b.t.Helper()
	recs := make([]*kgo.Record, len(values))
	for i, v := range values {
		recs[i] = &kgo.Record{Topic: topic, Value: []byte(v)}
	}
	b.send(recs...)
}

func (b *brokers) send(recs ...*kgo.Record) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	if err := b.cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		b.t.Fatalf("produce: %v", err)
	}
}

// deleteBelow deletes the records of partition 0 below an offset.
func (b *brokers) deleteBelow(topic string, offset int64) {
	b.t.Helper()
	var at kadm.Offsets
	at.AddOffset(topic, 0, offset, -1)
	resp, err := b.adm.DeleteRecords(b.t.Context(), at)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		b.t.Fatalf("delete records below %d of %s: %v", offset, topic, err)
	}
}

// transaction is a producer with a transaction open.
type transaction struct {
	t  *testing.T
	cl *kgo.Client
}

func (b *brokers) begin(id string) *transaction {
	b.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.addrs...), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(cl.Close)
	if err := cl.BeginTransaction(); err != nil {
		b.t.Fatal(err)
	}
	return &transaction{b.t, cl}
}

func (x *transaction) produce(topic, value string) {
	x.t.Helper()
	if err := x.cl.ProduceSync(x.t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		x.t.Fatal(err)
	}
}

func (x *transaction) end(how kgo.TransactionEndTry) {
	x.t.Helper()
	if err := x.cl.EndTransaction(x.t.Context(), how); err != nil {
		x.t.Fatal(err)
	}
}

// times is n times the same value.
func times(n int, value string) []string { return slices.Repeat([]string{value}, n) }

// job is a pipeline, by its file or in Go, with a data directory of its own.
type job struct {
	t     *testing.T
	name  string
	dir   string // of the file
	file  string // the first argument of commands
	data  string
	goes  []*engine.Pipeline
	extra []string // further flags of run
}

// newJob writes a pipeline's file, in which BROKERS stands for the list of b's addresses; b may be nil.
func newJob(t *testing.T, b *brokers, text string) *job {
	t.Helper()
	dir := t.TempDir()
	j := &job{t: t, dir: dir, file: filepath.Join(dir, "pipeline.yaml"), data: filepath.Join(dir, "data")}
	j.rewrite(b, text)
	return j
}

// goJob is a job of a program that holds its own pipeline.
func goJob(t *testing.T, p *engine.Pipeline) *job {
	return &job{t: t, name: p.Name(), file: p.Name(), data: t.TempDir(), goes: []*engine.Pipeline{p}}
}

func (j *job) rewrite(b *brokers, text string) {
	j.t.Helper()
	if b != nil {
		text = strings.ReplaceAll(text, "BROKERS", `["`+strings.Join(b.addrs, `", "`)+`"]`)
	}
	first, _, _ := strings.Cut(text, "\n")
	j.name = strings.TrimPrefix(first, "pipeline: ")
	j.put("pipeline.yaml", text)
}

// put writes a file beside the pipeline's.
func (j *job) put(name, content string) {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.dir, name), []byte(content), 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// store is the pipeline's own data directory.
func (j *job) store() string { return filepath.Join(j.data, j.name) }

// command runs a command of tridentd on the job: args[0] is the command, the others go behind the file.
func (j *job) command(args ...string) (code int, out, errs string) {
	var stdout, stderr lockedBuffer
	code = daemon.Execute(j.t.Context(), j.args(args...), &stdout, &stderr, j.goes...)
	return code, stdout.String(), stderr.String()
}

func (j *job) args(args ...string) []string {
	all := []string{args[0], j.file}
	if args[0] != "validate" {
		all = append(all, "--data", j.data)
	}
	return append(all, args[1:]...)
}

func (j *job) runArgs(flags ...string) []string {
	return append(append([]string{"run", "--listen", "off"}, j.extra...), flags...)
}

// run runs the job until it has caught up, and returns what was logged.
func (j *job) run(want int, flags ...string) string {
	j.t.Helper()
	code, out, errs := j.command(j.runArgs(append([]string{"--until", "caught-up"}, flags...)...)...)
	if code != want {
		j.t.Fatalf("run: exit %d, want %d\n%s", code, want, errs)
	}
	if out != "" {
		j.t.Errorf("run printed to standard output: %q", out)
	}
	return errs
}

// refused runs the job, which must end with the code and name all of texts.
func (j *job) refused(code int, texts ...string) string {
	j.t.Helper()
	errs := j.run(code)
	j.tells(errs, texts...)
	return errs
}

// tells checks that a text holds all of texts, and no panic.
func (j *job) tells(got string, texts ...string) {
	j.t.Helper()
	for _, want := range texts {
		if !strings.Contains(got, want) {
			j.t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "panic:") || strings.Contains(got, "goroutine ") {
		j.t.Errorf("a panic:\n%s", got)
	}
}

// rows is what a state holds, as lines of CSV without the header.
func (j *job) rows(state string, keys ...string) []string {
	j.t.Helper()
	code, out, errs := j.command(append([]string{"query", state, "--format", "csv"}, keys...)...)
	if code != 0 {
		j.t.Fatalf("query %s: exit %d\n%s", state, code, errs)
	}
	return strings.Split(strings.TrimSuffix(out, "\n"), "\n")[1:]
}

func (j *job) holds(state string, want ...string) {
	j.t.Helper()
	if got := j.rows(state); !slices.Equal(got, want) {
		j.t.Errorf("state %s: %q, want %q", state, got, want)
	}
}

// table is what a state holds, by the names of its columns.
func (j *job) table(state string) []map[string]any {
	j.t.Helper()
	code, out, errs := j.command("query", state, "--format", "json")
	if code != 0 {
		j.t.Fatalf("query %s: exit %d\n%s", state, code, errs)
	}
	var rows []map[string]any
	dec := json.NewDecoder(strings.NewReader(out))
	dec.UseNumber()
	if err := dec.Decode(&rows); err != nil {
		j.t.Fatalf("query %s: %v\n%s", state, err, out)
	}
	return rows
}

// ledger is every committed batch.
func (j *job) ledger() []server.LedgerEntry {
	j.t.Helper()
	code, out, errs := j.command("ledger", "--format", "json")
	if code != 0 {
		j.t.Fatalf("ledger: exit %d\n%s", code, errs)
	}
	var entries []server.LedgerEntry
	if err := json.Unmarshal([]byte(out), &entries); err != nil {
		j.t.Fatalf("ledger: %v\n%s", err, out)
	}
	return entries
}

// ranges is the ledger as text: for each batch its txid and ranges.
func (j *job) ranges() []string {
	j.t.Helper()
	var all []string
	for _, e := range j.ledger() {
		s := e.Txid.String()
		for _, r := range e.Ranges {
			s += fmt.Sprintf(" %s/%d[%d,%d)", r.Topic, r.Partition, r.Start, r.End)
		}
		all = append(all, s)
	}
	return all
}

// start runs the job in this process until stop is called, which returns the exit code and what was logged.
func (j *job) start(flags ...string) (stop func() (int, string)) {
	j.t.Helper()
	ctx, cancel := context.WithCancel(j.t.Context())
	var errs lockedBuffer
	done := make(chan int, 1)
	go func() { done <- daemon.Execute(ctx, j.args(j.runArgs(flags...)...), &errs, &errs, j.goes...) }()
	stop = sync.OnceValues(func() (int, string) {
		cancel()
		return <-done, errs.String()
	})
	j.t.Cleanup(func() { stop() })
	return stop
}

// process is tridentd in a process of its own, for signals.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	errs lockedBuffer
	done chan struct{}
}

// spawn runs a command of tridentd in a process of its own.
func (j *job) spawn(args ...string) *process {
	j.t.Helper()
	p := &process{t: j.t, cmd: exec.Command("tridentd", j.args(args...)...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.errs, &p.errs
	if err := p.cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // exit tells what came of it
	}()
	j.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the end of the process and returns its exit code, -1 if a signal ended it.
func (p *process) exit(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("still running after %s\n%s", limit, p.errs.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// inOrder checks that the process has ended without running out of any of the times that a stop has.
func (p *process) inOrder() {
	p.t.Helper()
	for _, sign := range []string{"didn't finish in time", "the stop took too long", "still running", "didn't close in order", "panic:"} {
		if log := p.errs.String(); strings.Contains(log, sign) {
			p.t.Errorf("%q in the log of a stop that nothing holds up:\n%s", sign, log)
		}
	}
}

// status asks a running job; ok is false if it doesn't answer.
func (j *job) status() (st server.Status, ok bool) {
	client, err := server.Dial(j.store())
	if err != nil {
		return st, false
	}
	defer client.Close()
	st, err = client.Status(j.t.Context())
	return st, err == nil
}

// await waits until a running job's status is as wanted.
func (j *job) await(what string, ok func(st *server.Status) bool) {
	j.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		st, answered := j.status()
		if answered && ok(&st) {
			return
		}
		if time.Now().After(deadline) {
			j.t.Fatalf("not within %s: %s; status %+v", patience, what, st)
		}
	}
}

// awaitNext waits until all partitions together have committed n offsets.
func (j *job) awaitNext(n int64) {
	j.t.Helper()
	j.await(fmt.Sprintf("position %d", n), func(st *server.Status) bool { return committed(*st) == n })
}

// files is the content of every file below a directory, but of those that tell of running processes.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// differing names the files that differ.
func differing(a, b map[string]string) []string {
	names := map[string]bool{}
	for name, content := range a {
		if c, ok := b[name]; !ok || c != content {
			names[name] = true
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// lines joins lines of a file.
func lines(l ...string) string { return strings.Join(l, "\n") + "\n" }
