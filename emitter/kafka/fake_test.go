package kafka

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/emittertest"
)

// patience bounds every wait of the tests.
const patience = time.Minute

// cluster is a cluster under test, kfake's or a real one.
type cluster struct {
	t     *testing.T
	addrs []string
	fake  *kfake.Cluster // nil for a real one
	cl    *kgo.Client
}

func fakeCluster(t *testing.T, opts ...kfake.Opt) *cluster {
	t.Helper()
	opts = append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)
	fake, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	c := &cluster{t: t, addrs: fake.ListenAddrs(), fake: fake}
	c.connect()
	return c
}

func (c *cluster) connect() {
	c.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		c.t.Fatal(err)
	}
	c.cl = cl
	c.t.Cleanup(cl.Close)
}

func (c *cluster) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c.t.Cleanup(cancel)
	return ctx
}

func (c *cluster) create(topic string, partitions int32, configs map[string]string) {
	c.t.Helper()
	conf := map[string]*string{}
	for k, v := range configs {
		conf[k] = new(v)
	}
	resp, err := kadm.NewClient(c.cl).CreateTopics(c.ctx(), partitions, 1, conf, topic)
	if err == nil {
		err = resp[topic].Err
	}
	if err != nil {
		c.t.Fatalf("create topic %s: %v", topic, err)
	}
}

func (c *cluster) remove(topic string) {
	c.t.Helper()
	resp, err := kadm.NewClient(c.cl).DeleteTopics(c.ctx(), topic)
	if err == nil {
		err = resp[topic].Err
	}
	if err != nil {
		c.t.Fatalf("delete topic %s: %v", topic, err)
	}
	c.cl.PurgeTopicsFromClient(topic)
}

func (c *cluster) grow(topic string, partitions int) {
	c.t.Helper()
	resp, err := kadm.NewClient(c.cl).UpdatePartitions(c.ctx(), partitions, topic)
	if err == nil {
		err = resp[topic].Err
	}
	if err != nil {
		c.t.Fatalf("grow topic %s: %v", topic, err)
	}
	c.cl.ForceMetadataRefresh()
}

func (c *cluster) deleteBelow(topic string, partition int32, offset int64) {
	c.t.Helper()
	var os kadm.Offsets
	os.AddOffset(topic, partition, offset, -1)
	resp, err := kadm.NewClient(c.cl).DeleteRecords(c.ctx(), os)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		c.t.Fatalf("delete records: %v", err)
	}
}

// produce writes one record for each value, all in one record batch where the client makes it so.
func (c *cluster) produce(topic string, partition int32, values ...string) {
	c.t.Helper()
	var recs []*kgo.Record
	for i, v := range values {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i))}
		if i%3 == 1 {
			r.Key = []byte(fmt.Sprintf("k%d", i))
			r.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte{byte(i)}}, {Key: "null"}}
		}
		recs = append(recs, r)
	}
	c.send(c.cl, recs...)
}

func (c *cluster) send(cl *kgo.Client, recs ...*kgo.Record) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := cl.ProduceSync(c.ctx(), recs...).FirstErr()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("produce: %v", err)
		}
		time.Sleep(50 * time.Millisecond) // a topic that was just made or grown
		cl.ForceMetadataRefresh()
	}
}

// put writes one record with a key, in a batch of its own.
func (c *cluster) put(topic, key, value string) {
	c.t.Helper()
	c.send(c.cl, &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)})
}

// createSoon creates a topic that was just deleted.
func (c *cluster) createSoon(topic string) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		resp, err := kadm.NewClient(c.cl).CreateTopics(c.ctx(), 1, 1, nil, topic)
		if err == nil {
			err = resp[topic].Err
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("create topic %s again: %v", topic, err)
		}
	}
}

// compact waits until the broker has compacted a topic of which n records were written. The last batch is never
// compacted, so another record is written behind.
func (c *cluster) compact(topic string, n int64) {
	c.t.Helper()
	if c.fake != nil {
		c.put(topic, "last", "last")
		c.fake.Compact()
		return
	}
	cfg := c.config(topic)
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(time.Second) {
		c.put(topic, "last", "last") // rolls the segment
		s := open(c.t, cfg)
		left := s.values(batch.Range{Partition: part(topic, 0), End: n, Identity: s.starts[0].Identity})
		s.close()
		if int64(len(left)) < n {
			return
		}
	}
	c.t.Fatal("the broker did not compact the topic")
}

// txn is a producer with a transaction open.
type txn struct {
	c  *cluster
	cl *kgo.Client
}

func (c *cluster) begin(id string) *txn {
	c.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	if err := cl.BeginTransaction(); err != nil {
		c.t.Fatal(err)
	}
	return &txn{c: c, cl: cl}
}

func (x *txn) produce(topic string, partition int32, values ...string) {
	x.c.t.Helper()
	var recs []*kgo.Record
	for _, v := range values {
		recs = append(recs, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)})
	}
	x.c.send(x.cl, recs...)
}

func (x *txn) end(commit bool) {
	x.c.t.Helper()
	how := kgo.TryAbort
	if commit {
		how = kgo.TryCommit
	}
	if err := x.cl.EndTransaction(x.c.ctx(), how); err != nil {
		x.c.t.Fatalf("end transaction: %v", err)
	}
}

// config reads the topics with short waits.
func (c *cluster) config(topics ...string) Config {
	return Config{Brokers: c.addrs, Topics: topics, DiscoverEvery: 50 * time.Millisecond, Timeout: 5 * time.Second}
}

// source is an opened emitter under test.
type source struct {
	*Emitter
	t      *testing.T
	starts []batch.Position
	closed bool
}

func newEmitter(t *testing.T, cfg Config) *Emitter {
	t.Helper()
	log := hclog.NewNullLogger()
	if testing.Verbose() {
		log = hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: testWriter{t}})
	}
	e, err := New("src", cfg, emitter.Env{Logger: log})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return e
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	fmt.Print(string(b))
	return len(b), nil
}

// open opens and admits everything that Open gave. Saved positions make it a restart.
func open(t *testing.T, cfg Config, saved ...batch.Position) *source {
	t.Helper()
	s, err := tryOpen(t, cfg, saved...)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

func tryOpen(t *testing.T, cfg Config, saved ...batch.Position) (*source, error) {
	t.Helper()
	s := &source{Emitter: newEmitter(t, cfg), t: t}
	t.Cleanup(s.close)
	var err error
	if s.starts, err = s.Open(t.Context(), saved, len(saved) == 0); err != nil {
		return s, err
	}
	s.Admit(s.starts)
	return s, nil
}

func (s *source) close() {
	if s.closed {
		return
	}
	s.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		s.t.Errorf("Close: %v", err)
	}
}

func part(topic string, n int32) batch.Partition {
	return batch.Partition{Source: "src", Topic: topic, Number: n}
}

// eventually polls until ok says so.
func (s *source) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("no %s; status %+v, error %v", what, s.Status(), s.Err())
		}
	}
}

// read plans and reads until n records have come, and returns their values and the position behind them.
func (s *source) read(p batch.Partition, from int64, n int) ([]string, batch.Position) {
	s.t.Helper()
	var values []string
	pos := batch.Position{Partition: p, Next: from, LeaderEpoch: batch.NoEpoch}
	s.eventually(fmt.Sprintf("%d records of %v from %d", n, p, from), func() bool {
		if err := s.Err(); err != nil {
			s.t.Fatalf("Err: %v", err)
		}
		for len(values) < n {
			r, ok := s.Plan(p, pos.Next, emitter.Limit{})
			if !ok {
				return false
			}
			values = append(values, s.values(r)...)
			pos = r.Position()
		}
		return true
	})
	if len(values) != n {
		s.t.Fatalf("%d records of %v from %d, want %d: %q", len(values), p, from, n, values)
	}
	return values, pos
}

func (s *source) values(r batch.Range) []string {
	s.t.Helper()
	values, err := s.tryValues(r)
	if err != nil {
		s.t.Fatalf("Read(%v): %v", r, err)
	}
	return values
}

func (s *source) tryValues(r batch.Range) ([]string, error) {
	var values []string
	err := s.Read(s.t.Context(), r, func(c *batch.Chunk) error {
		for _, rec := range c.Records {
			values = append(values, string(rec.Value))
		}
		return nil
	})
	return values, err
}

// atEnd plans until the emitter says that nothing is left, and returns the position there.
func (s *source) atEnd(p batch.Partition, from int64) batch.Position {
	s.t.Helper()
	pos := batch.Position{Partition: p, Next: from, LeaderEpoch: batch.NoEpoch}
	s.eventually("end", func() bool {
		if r, ok := s.Plan(p, pos.Next, emitter.Limit{}); ok {
			pos = r.Position()
		}
		st := s.status(p)
		return st.AtEnd || st.End >= 0 && st.End == pos.Next
	})
	return pos
}

func (s *source) status(p batch.Partition) emitter.Status {
	for _, st := range s.Status() {
		if st.Partition == p {
			return st
		}
	}
	s.t.Fatalf("no status of %v", p)
	return emitter.Status{}
}

func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

func equalValues(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %q, want %q", what, got, want)
	}
}

func TestConformance(t *testing.T) {
	emittertest.Run(t, func(t *testing.T) *emittertest.Source {
		c := fakeCluster(t, kfake.SeedTopics(3, "t"))
		return &emittertest.Source{
			Open:       func(t *testing.T) emitter.Emitter { return newEmitter(t, c.config("t")) },
			Partitions: 3,
			Append: func(t *testing.T, p int, values []string) {
				// Several batches, so that cuts fall between and inside them.
				for chunk := range slices.Chunk(values, 11) {
					c.produce("t", int32(p), chunk...)
				}
			},
			AddPartition: func(*testing.T) { c.grow("t", 4) },
			Ignore: []goleak.Option{
				goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read.func1"),
				goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read"),
				goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).write"),
			},
		}
	})
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	for name, run := range scenarios {
		t.Run(name, func(t *testing.T) { t.Parallel(); run(t, fakeCluster(t)) })
	}
}
