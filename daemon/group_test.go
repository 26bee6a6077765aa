package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/server"
)

// groupWorld is a pipeline over a topic, and the group that shows its offsets.
type groupWorld struct {
	t        *testing.T
	brokers  []string
	cl       *kgo.Client
	adm      *kadm.Client
	topic    string
	pipeline string
	group    string
	dir      string
	file     string
	data     string
}

func newGroupWorld(t *testing.T, brokers []string, partitions int32, settings string) *groupWorld {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	w := &groupWorld{t: t, brokers: brokers, cl: cl, adm: kadm.NewClient(cl), topic: testenv.Unique("lines"), pipeline: testenv.Unique("words"), dir: t.TempDir()}
	w.group = "tridentd-" + w.pipeline
	w.file, w.data = filepath.Join(w.dir, "words.yaml"), filepath.Join(w.dir, "data")
	for topic, n := range map[string]int32{w.topic: partitions, w.topic + "-other": 1} {
		if _, err := w.adm.CreateTopic(t.Context(), n, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { w.adm.DeleteTopics(context.Background(), w.topic, w.topic+"-other") }) //nolint:errcheck // a shared broker is only kept tidy
	text := fmt.Sprintf(`pipeline: %s
sources:
  lines:
    kafka: {brokers: ["%s"], topics: [%s]%s}
    decode: string
streams:
  counts:
    from: lines
    steps:
      - group_by: [value]
      - aggregate: {n: count()}
`, w.pipeline, strings.Join(brokers, `", "`), w.topic, settings)
	if err := os.WriteFile(w.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// produce writes n lines to each partition.
func (w *groupWorld) produce(n int, partitions ...int32) {
	w.t.Helper()
	var recs []*kgo.Record
	for _, p := range partitions {
		for range n {
			recs = append(recs, &kgo.Record{Topic: w.topic, Partition: p, Value: []byte("a")})
		}
	}
	if err := w.cl.ProduceSync(w.t.Context(), recs...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// command runs one command of tridentd, and returns its exit code and what it printed.
func (w *groupWorld) command(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = daemon.Execute(w.t.Context(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// run runs the pipeline until it has caught up.
func (w *groupWorld) run(want int, flags ...string) (errs string) {
	w.t.Helper()
	code, _, errs := w.command(append([]string{"run", w.file, "--data", w.data, "--listen", "off", "--until", "caught-up"}, flags...)...)
	if code != want {
		w.t.Fatalf("run %v: exit %d, want %d\n%s", flags, code, want, errs)
	}
	return errs
}

func (w *groupWorld) counted(want int) {
	w.t.Helper()
	code, out, errs := w.command("query", w.file, "counts", "--data", w.data, "--format", "csv")
	if code != 0 || strings.TrimSpace(out) != fmt.Sprintf("value,n\na,%d", want) {
		w.t.Errorf("query: exit %d\n%s%swant %d", code, out, errs, want)
	}
}

// offsets is what the group holds, by partition.
func (w *groupWorld) offsets() string {
	w.t.Helper()
	all, err := w.adm.FetchOffsets(w.t.Context(), w.group)
	if err != nil {
		return err.Error()
	}
	var text []string
	for _, o := range all.Sorted() {
		if o.Topic == w.topic {
			text = append(text, fmt.Sprint(o.At))
		}
	}
	return strings.Join(text, ",")
}

func (w *groupWorld) shows(want string) {
	w.t.Helper()
	if got := w.offsets(); got != want {
		w.t.Errorf("the group holds %q, want %q", got, want)
	}
}

func (w *groupWorld) deleteGroup() {
	w.t.Helper()
	resp, err := w.adm.DeleteGroups(w.t.Context(), w.group)
	if err == nil {
		err = resp[w.group].Err
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// start runs the pipeline until stop is called, which returns its exit code.
func (w *groupWorld) start() (stop func() (int, string)) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	var errs lockedBuffer
	done := make(chan int, 1)
	go func() {
		done <- daemon.Execute(ctx, []string{"run", w.file, "--data", w.data, "--listen", "off"}, &errs, &errs)
	}()
	stop = sync.OnceValues(func() (int, string) {
		cancel()
		return <-done, errs.String()
	})
	w.t.Cleanup(func() { stop() })
	return stop
}

func (w *groupWorld) status() server.Status {
	client, err := server.Dial(filepath.Join(w.data, w.pipeline))
	if err != nil {
		return server.Status{}
	}
	defer client.Close()
	st, err := client.Status(w.t.Context())
	if err != nil {
		return server.Status{}
	}
	return st
}

func (w *groupWorld) await(what string, limit time.Duration, ok func(st server.Status) bool) {
	w.t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		st := w.status()
		if ok(st) {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %s: %s; status %+v", limit, what, st)
		}
	}
}

// lockedBuffer may be written to by many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func committed(st server.Status) int64 {
	n := int64(0)
	for _, p := range st.Partitions {
		n += max(p.Committed, 0)
	}
	return n
}

// groupLost: the group is deleted, and the next run has nothing new, then two more records.
func groupLost(t *testing.T, brokers []string) {
	w := newGroupWorld(t, brokers, 1, "")
	w.produce(10, 0)
	w.run(0)
	w.shows("10")
	w.deleteGroup()
	w.run(0)
	w.shows("10")
	w.produce(2, 0)
	w.run(0)
	w.shows("12")
	w.counted(12)
}

// groupMembers: a consumer joins the group, first on another topic, then on ours, in both ways.
func groupMembers(t *testing.T, brokers []string) {
	w := newGroupWorld(t, brokers, 1, "")
	w.produce(10, 0)
	stop := w.start()
	w.await("the first ten", 30*time.Second, func(st server.Status) bool { return committed(st) == 10 && w.offsets() == "10" })
	had := 10
	for _, how := range [][]kgo.Opt{
		{kgo.ConsumeTopics(w.topic + "-other")},
		{kgo.ConsumeTopics(w.topic)},
		{kgo.ConsumeTopics(w.topic), kgo.ServerSideBalancer()}, // a member by the newer protocol (KIP-848)
	} {
		consumer, err := kgo.NewClient(append(how, kgo.SeedBrokers(brokers...), kgo.ConsumerGroup(w.group), kgo.DisableAutoCommit())...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(consumer.Close)
		w.await("the consumer is a member", 60*time.Second, func(server.Status) bool {
			_, generation := consumer.GroupMetadata()
			return generation > 0
		})
		w.produce(10, 0)
		w.await("batches go on", patience, func(st server.Status) bool { return committed(st) == int64(had+10) })
		w.await("the refusal shows", 20*time.Second, func(st server.Status) bool {
			return len(st.Mirrors) == 1 && st.Mirrors[0].Error != nil && st.Mirrors[0].Error.Code == batch.CodeGroupMembers &&
				st.Mirrors[0].Failures[batch.CodeGroupMembers] > 0 && st.Ready
		})
		w.shows(fmt.Sprint(had))
		consumer.Close()
		had += 10
		w.await("the mirror catches up", 60*time.Second, func(st server.Status) bool {
			return w.offsets() == fmt.Sprint(had) && st.Mirrors[0].Error == nil && st.Mirrors[0].Txid == st.Committed
		})
	}
	code, log := stop()
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, log)
	}
	if n := strings.Count(log, "code=group_members"); n != 3 { // once for each consumer
		t.Errorf("%d warnings\n%s", n, log)
	}
	w.counted(40)
}

// emptyDirectory: a lost data directory isn't a reason to count everything again.
func emptyDirectory(t *testing.T, brokers []string) {
	w := newGroupWorld(t, brokers, 2, "")
	w.produce(10, 0, 1)
	w.run(0)
	w.shows("10,10")
	if err := os.RemoveAll(w.data); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the refused start leaves nothing behind that lets the next one pass
		errs := w.run(4)
		for _, want := range []string{
			filepath.Join(w.data, w.pipeline) + " is empty (txid 0, no positions)", "kafka group " + w.group,
			"has come to txid 1", w.topic + "-0 at 10", w.topic + "-1 at 10", "--data", "--fresh",
		} {
			if !strings.Contains(errs, want) {
				t.Errorf("the refusal lacks %q:\n%s", want, errs)
			}
		}
		w.shows("10,10")
	}
	w.produce(1, 0)
	w.run(0, "--fresh")
	w.counted(21)
	w.shows("11,10")
	if errs := w.run(0, "--fresh"); !strings.Contains(errs, "the data directory is not empty") {
		t.Errorf("--fresh with data says nothing:\n%s", errs)
	}
	w.run(0)
	w.counted(21)
}

// takenOver: an ordinary consumer's offsets refuse no start, and are where the pipeline begins.
func takenOver(t *testing.T, brokers []string) {
	w := newGroupWorld(t, brokers, 2, `, start: "committed:earliest"`)
	w.produce(10, 0, 1)
	var os kadm.Offsets
	os.AddOffset(w.topic, 0, 7, -1)
	if err := w.adm.CommitAllOffsets(t.Context(), w.group, os); err != nil {
		t.Fatal(err)
	}
	w.run(0)
	w.counted(13)
	w.shows("10,10")
}

func groupOff(t *testing.T, brokers []string) {
	w := newGroupWorld(t, brokers, 1, ", group: off")
	w.produce(10, 0)
	w.run(0)
	if got := w.offsets(); strings.Contains(got, "10") {
		t.Errorf("the group holds %q", got)
	}
	if err := os.RemoveAll(w.data); err != nil {
		t.Fatal(err)
	}
	w.run(0)
	w.counted(10)
}

var groupScenarios = map[string]func(*testing.T, []string){
	"lost": groupLost, "members": groupMembers, "empty directory": emptyDirectory, "taken over": takenOver, "off": groupOff,
}

func TestGroup(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ListenFn(func(network, _ string) (net.Listener, error) { return net.Listen(network, "127.0.0.1:0") }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	for name, run := range groupScenarios {
		t.Run(name, func(t *testing.T) { t.Parallel(); run(t, fake.ListenAddrs()) })
	}
}
