package kafkagroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

const (
	topic    = "lines"
	group    = "tridentd-words"
	nParts   = 3
	pipeline = "words"
	source   = "lines"
)

// world is a cluster on a virtual network, in a bubble whose clock moves when nothing else does.
type world struct {
	t    testing.TB
	net  *kfake.VirtualNetwork
	fake *kfake.Cluster
	adm  *kadm.Client
	log  *logs

	mu      sync.Mutex
	commits []*kmsg.OffsetCommitRequest // this package's, in the order in which they came
	at      []time.Time
	fail    *kerr.Error // the answer to every commit; nil: the broker's own
	partial map[int32]*kerr.Error
	delay   time.Duration // before each commit is looked at
	busy    bool
	inner   bool // a commit comes from within the answer to another
}

// inWorld runs f with a cluster of its own, in a bubble: all that it starts must have ended when it returns.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(newWorld(t))
	})
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, net: &kfake.VirtualNetwork{}, log: &logs{}}
	fake, err := kfake.NewCluster(kfake.Ports(9092, 9093), kfake.SeedTopics(nParts, topic, "other"), kfake.ListenFn(w.net.Listen))
	if err != nil {
		t.Fatal(err)
	}
	w.fake = fake
	t.Cleanup(fake.Close)
	fake.ControlKey(int16(kmsg.OffsetCommit), w.commit)
	w.adm = kadm.NewClient(w.client())
	return w
}

func (w *world) opts() []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(w.fake.ListenAddrs()...), kgo.Dialer(w.net.DialContext), kgo.DisableClientMetrics()}
}

func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(append(w.opts(), opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(cl.Close)
	return cl
}

// commit is called for every commit of offsets.
func (w *world) commit(req kmsg.Request) (kmsg.Response, error, bool) {
	w.fake.KeepControl()
	r := req.(*kmsg.OffsetCommitRequest)
	if r.Group != group || len(r.Topics) == 0 || r.Topics[0].Partitions[0].Metadata == nil || parseStamp(*r.Topics[0].Partitions[0].Metadata) == nil {
		return nil, nil, false // a test's own
	}
	w.mu.Lock()
	if w.inner {
		w.mu.Unlock()
		return nil, nil, false
	}
	if w.busy {
		w.t.Error("two commits are in flight at once")
	}
	w.busy = true
	w.commits, w.at = append(w.commits, r), append(w.at, time.Now())
	delay, partial := w.delay, w.partial
	w.mu.Unlock()
	if partial != nil {
		w.fake.SleepControl(func() { w.accept(r, partial) })
	}
	if delay > 0 {
		w.fake.SleepControl(func() { time.Sleep(delay) })
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	if w.fail == nil && w.partial == nil {
		return nil, nil, false
	}
	resp := r.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, t := range r.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition = p.Partition
			if w.fail != nil {
				rp.ErrorCode = w.fail.Code
			} else if e := w.partial[p.Partition]; e != nil {
				rp.ErrorCode = e.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil, true
}

// accept writes the partitions of a commit that aren't refused.
func (w *world) accept(r *kmsg.OffsetCommitRequest, refused map[int32]*kerr.Error) {
	var os kadm.Offsets
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if refused[p.Partition] == nil {
				os.Add(kadm.Offset{Topic: t.Topic, Partition: p.Partition, At: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: *p.Metadata})
			}
		}
	}
	set := func(inner bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.inner = inner
	}
	set(true)
	defer set(false)
	if err := w.adm.CommitAllOffsets(context.Background(), r.Group, os); err != nil {
		w.t.Error(err)
	}
}

func (w *world) answer(e *kerr.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = e
}

func (w *world) written() int { return len(w.requests()) }

func (w *world) requests() []*kmsg.OffsetCommitRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.commits)
}

func (w *world) times() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.at)
}

func (w *world) config() Config {
	return Config{
		Group: group, Pipeline: pipeline, Source: source, Reads: func(t string) bool { return t == topic },
		Client: w.opts(), Logger: w.log.logger(),
	}
}

func (w *world) mirror(change ...func(*Config)) *Mirror {
	w.t.Helper()
	cfg := w.config()
	for _, f := range change {
		f(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		m.Close(ctx) //nolint:errcheck // the test has said what it thinks of it
	})
	return m
}

func (w *world) closed(m *Mirror) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := m.Close(ctx); err != nil {
		w.t.Errorf("Close: %v", err)
	}
}

// show is what the group holds, as "0:20@12" (partition, offset, txid) with "-" for metadata of no tridentd.
func (w *world) show() string {
	w.t.Helper()
	offsets, err := w.adm.FetchOffsets(context.Background(), group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		w.t.Fatal(err)
	}
	var all []string
	for _, o := range offsets.Sorted() {
		if o.Topic != topic {
			continue
		}
		txid := "-"
		if s := parseStamp(o.Metadata); s != nil {
			txid = s.Txid.String()
		}
		all = append(all, fmt.Sprintf("%d:%d@%s", o.Partition, o.At, txid))
	}
	return strings.Join(all, " ")
}

func (w *world) want(want string) {
	w.t.Helper()
	if got := w.show(); got != want {
		w.t.Errorf("the group holds %q, want %q", got, want)
	}
}

// put commits offsets to the group as anybody could.
func (w *world) put(metadata string, nexts ...int64) {
	w.t.Helper()
	var os kadm.Offsets
	for i, n := range nexts {
		os.Add(kadm.Offset{Topic: topic, Partition: int32(i), At: n, LeaderEpoch: -1, Metadata: metadata})
	}
	if err := w.adm.CommitAllOffsets(context.Background(), group, os); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deleteGroup() {
	w.t.Helper()
	resp, err := w.adm.DeleteGroups(context.Background(), group)
	if err == nil {
		err = resp[group].Err
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		w.t.Fatal(err)
	}
}

// at makes positions, all of them moved by txid.
func at(txid batch.Txid, nexts ...int64) []txstate.SavedPosition {
	all := []txstate.SavedPosition{{Position: batch.Position{Partition: batch.Partition{Source: "a-file", Topic: "x.csv"}, Next: 7}}}
	for i, n := range nexts {
		all = append(all, txstate.SavedPosition{
			Position: batch.Position{Partition: batch.Partition{Source: source, Topic: topic, Number: int32(i)}, Next: n, LeaderEpoch: 4}, Txid: txid,
		})
	}
	return all
}

// logs keeps what was logged.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) logger() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: l, DisableTime: true})
}

var _ io.Writer = (*logs)(nil)

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(b))
	return len(b), nil
}

// count tells how many lines contain all of texts.
func (l *logs) count(texts ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if !slices.ContainsFunc(texts, func(t string) bool { return !strings.Contains(line, t) }) {
			n++
		}
	}
	return n
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "")
}
