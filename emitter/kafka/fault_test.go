package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/testenv"
)

// network stands between the client and kfake's brokers.
type network struct {
	mu        sync.Mutex
	listeners []*listener
}

// listener is one broker's. Down, it drops connections at once; hanging, it takes requests and never answers.
type listener struct {
	net.Listener
	mu      sync.Mutex
	down    bool
	hanging chan struct{} // closed when it ends; nil if it doesn't hang
	conns   map[net.Conn]bool
}

func (n *network) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	wrapped := &listener{Listener: l, conns: map[net.Conn]bool{}}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners = append(n.listeners, wrapped)
	return wrapped, nil
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		down := l.down
		l.conns[c] = true
		l.mu.Unlock()
		if down {
			_ = c.Close()
			continue
		}
		return &conn{Conn: c, l: l}, nil
	}
}

func (l *listener) setDown(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	if down {
		for c := range l.conns {
			_ = c.Close()
		}
		clear(l.conns)
	}
}

// hang holds all traffic until the returned function is called.
func (l *listener) hang() (resume func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := make(chan struct{})
	l.hanging = ch
	return sync.OnceFunc(func() {
		l.mu.Lock()
		l.hanging = nil
		l.mu.Unlock()
		close(ch)
	})
}

type conn struct {
	net.Conn
	l *listener
}

func (c *conn) Write(b []byte) (int, error) {
	c.l.mu.Lock()
	ch := c.l.hanging
	c.l.mu.Unlock()
	if ch != nil {
		<-ch
	}
	return c.Conn.Write(b)
}

// node returns the listener of the broker that leads a partition.
func (n *network) leader(c *cluster, topic string, partition int32) *listener {
	node := c.fake.LeaderFor(topic, partition)
	want := ""
	for i, addr := range c.fake.ListenAddrs() {
		if int32(i) == node {
			want = addr
		}
	}
	_, port, _ := net.SplitHostPort(want)
	for _, l := range n.listeners {
		if _, p, _ := net.SplitHostPort(l.Addr().String()); p == port {
			return l
		}
	}
	panic("no listener of node " + fmt.Sprint(node))
}

// three returns a cluster of three brokers with a topic of three partitions, one led by each.
func three(t *testing.T, topic string) (*cluster, *network) {
	t.Helper()
	n := &network{}
	c := fakeCluster(t, kfake.NumBrokers(3), kfake.ListenFn(n.listen), kfake.SeedTopics(3, topic))
	for i := range int32(3) {
		if err := c.fake.MoveTopicPartition(topic, i, i); err != nil {
			t.Fatal(err)
		}
	}
	return c, n
}

// TestBrokerAway is case G05: a partition whose broker is away at a restart keeps its position, and joins when the
// broker is back.
func TestBrokerAway(t *testing.T) {
	t.Parallel()
	c, n := three(t, "t")
	cfg := c.config("t")
	cfg.Timeout = 2 * time.Second
	for i := range int32(3) {
		c.produce("t", i, numbered("v", 10)...)
	}
	s := open(t, cfg)
	var saved []batch.Position
	for i := range int32(3) {
		_, pos := s.read(part("t", i), 0, 10)
		saved = append(saved, pos)
	}
	s.close()
	c.produce("t", 0, numbered("w", 5)...)
	c.produce("t", 2, numbered("w", 5)...)
	away := n.leader(c, "t", 1)
	away.setDown(true)
	for _, a := range c.addrs { // the brokers that live are asked first, or nothing would be known of the cluster
		if a != away.Addr().String() {
			cfg.Brokers = append([]string{a}, cfg.Brokers...)
		}
	}

	s = open(t, cfg, saved...)
	if got := len(s.Partitions()); got != 3 || len(s.starts) != 0 {
		t.Fatalf("%d partitions, starts %v", got, s.starts)
	}
	for _, i := range []int32{0, 2} {
		s.read(part("t", i), 10, 5)
	}
	s.eventually("error of partition 1", func() bool {
		st := s.status(part("t", 1))
		return st.Err != nil && !st.AtEnd
	})
	st := s.status(part("t", 1))
	var e *batch.Error
	if !errors.As(st.Err, &e) || e.Kind != batch.Transient || e.Partition != part("t", 1) || e.Offset != 10 || !strings.Contains(e.Error(), "since") {
		t.Fatalf("status of partition 1: %v", st.Err)
	}
	if _, err := s.Ends(t.Context()); err == nil || batch.KindOf(err) != batch.Transient {
		t.Fatalf("Ends with a broker away: %v", err)
	}
	if err := s.Err(); err != nil {
		t.Fatalf("Err: %v", err)
	}

	away.setDown(false)
	c.produce("t", 1, numbered("w", 5)...)
	values, _ := s.read(part("t", 1), 10, 5)
	equalValues(t, "partition 1", values, numbered("w", 5))
	s.eventually("health", func() bool { return s.status(part("t", 1)).Err == nil })
}

// TestNoLeader: a partition without a leader has no start yet; it gets one when it is led.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	c, _ := three(t, "t")
	fault := c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1})
	cfg := c.config("t")
	cfg.Timeout = 500 * time.Millisecond
	s := open(t, cfg)
	if len(s.starts) != 2 || s.starts[0].Number != 0 || s.starts[1].Number != 2 {
		t.Fatalf("starts %v", s.starts)
	}
	if _, err := s.Ends(t.Context()); err == nil {
		t.Fatal("Ends passed over the partition without a leader")
	}
	fault.Remove()
	var joined []batch.Position
	s.eventually("start of partition 1", func() bool { joined = append(joined, s.Discovered()...); return len(joined) == 1 })
	if joined[0].Partition != part("t", 1) || joined[0].Next != 0 {
		t.Fatalf("joined %v", joined)
	}
	s.Admit(joined)
	c.produce("t", 1, "x")
	s.read(part("t", 1), 0, 1)
}

// TestBrokerHangs: a broker that takes requests and never answers holds up neither the others nor Close, and shows.
func TestBrokerHangs(t *testing.T) {
	t.Parallel()
	c, n := three(t, "t")
	cfg := c.config("t")
	cfg.Timeout = 30 * time.Second
	s := open(t, cfg)
	l := n.leader(c, "t", 1)
	s.eventually("first answers", func() bool { return s.status(part("t", 1)).AtEnd })
	c.produce("t", 0, "before") // the producer knows its way now
	resume := l.hang()
	defer resume()
	c.produce("t", 0, "after")
	s.read(part("t", 0), 0, 2)
	s.eventually("silence", func() bool {
		st := s.status(part("t", 1))
		return st.Err != nil && !st.AtEnd && batch.CodeOf(st.Err) == batch.CodeTimeout
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	s.closed = true
	began := time.Now()
	if err := s.Close(ctx); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("Close took %v with a broker that hangs", took)
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	l := testenv.Listen(t)
	addr := l.Addr().String()
	_ = l.Close()
	_, err := tryOpen(t, Config{Brokers: []string{addr}, Topics: []string{"t"}, Timeout: 300 * time.Millisecond})
	var e *batch.Error
	if !errors.As(err, &e) || e.Kind != batch.Transient || e.Remedy == "" || !strings.Contains(err.Error(), addr) {
		t.Fatalf("Open: %v, want a transient error that names %s", err, addr)
	}
}

// TestLogCutBack is case G08.
func TestLogCutBack(t *testing.T) {
	c := fakeCluster(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "t"))
	if err := c.fake.MoveTopicPartition("t", 0, 0); err != nil { // epoch 1
		t.Fatal(err)
	}
	c.produce("t", 0, numbered("v", 11)...)
	p := part("t", 0)
	s := open(t, c.config("t"))
	_, pos := s.read(p, 0, 11)
	s.close()
	if pos.LeaderEpoch != 1 {
		t.Fatalf("leader epoch %d of the position, want 1", pos.LeaderEpoch)
	}
	pos.Next = 13 // two records that the unclean election will have lost

	t.Run("shorter", func(t *testing.T) {
		_, err := tryOpen(t, c.config("t"), pos)
		permanent(t, err, batch.CodeLogTruncated, p, "log of topic t partition 0 was cut back", "had 13", "leader epoch 1", "ends at 11")
	})
	if err := c.fake.MoveTopicPartition("t", 0, 1); err != nil { // epoch 2
		t.Fatal(err)
	}
	c.produce("t", 0, numbered("w", 4)...)
	t.Run("rewritten", func(t *testing.T) {
		_, err := tryOpen(t, c.config("t"), pos)
		permanent(t, err, batch.CodeLogTruncated, p, "was cut back", "had 13", "leader epoch 1", "below 11")
	})
	t.Run("foreign", func(t *testing.T) {
		strange := pos
		strange.Next, strange.LeaderEpoch = 9, 7
		_, err := tryOpen(t, c.config("t"), strange)
		permanent(t, err, batch.CodeLogTruncated, p, "leader epoch 7", "leader epoch 2")
	})
	t.Run("unharmed", func(t *testing.T) {
		good := pos
		good.Next = 11
		s := open(t, c.config("t"), good)
		values, _ := s.read(p, 11, 4)
		equalValues(t, "after another leader was elected", values, numbered("w", 4))
	})
}

// TestLogCutBackWhileRunning: the leader changes, and the new one's log ends below what was read.
func TestLogCutBackWhileRunning(t *testing.T) {
	t.Parallel()
	c := fakeCluster(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "t"))
	if err := c.fake.MoveTopicPartition("t", 0, 0); err != nil {
		t.Fatal(err)
	}
	c.produce("t", 0, numbered("v", 13)...)
	p := part("t", 0)
	s := open(t, c.config("t"))
	s.read(p, 0, 13)
	c.fake.ControlKey(kmsg.OffsetForLeaderEpoch.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		req := kreq.(*kmsg.OffsetForLeaderEpochRequest)
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = "t"
		rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		rp.LeaderEpoch, rp.EndOffset = req.Topics[0].Partitions[0].LeaderEpoch, 11
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	if err := c.fake.MoveTopicPartition("t", 0, 1); err != nil {
		t.Fatal(err)
	}
	c.produce("t", 0, numbered("w", 4)...)
	s.eventually("failure", func() bool {
		if r, ok := s.Plan(p, 13, emitter.Limit{}); ok {
			t.Fatalf("planned %v from the new leader before the position was verified", r)
		}
		return s.Err() != nil
	})
	permanent(t, s.Err(), batch.CodeLogTruncated, p, "was cut back", "had 13", "below 11")
}

// TestLeaderMoves: reading goes on at the new leader.
func TestLeaderMoves(t *testing.T) {
	t.Parallel()
	c, _ := three(t, "t")
	s := open(t, c.config("t"))
	p := part("t", 0)
	from := int64(0)
	for i := range 6 {
		c.produce("t", 0, fmt.Sprint(i))
		values, pos := s.read(p, from, 1)
		equalValues(t, "record", values, []string{fmt.Sprint(i)})
		from = pos.Next
		if err := c.fake.MoveTopicPartition("t", 0, int32(i+1)%3); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestErrorsInBetween: errors of every kind that a broker may answer with for a while pass by.
func TestErrorsInBetween(t *testing.T) {
	t.Parallel()
	for _, kerror := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.UnknownServerError, kerr.LeaderNotAvailable, kerr.UnknownTopicOrPartition, kerr.OffsetNotAvailable,
		kerr.RequestTimedOut, kerr.KafkaStorageError, kerr.UnknownLeaderEpoch, kerr.FencedLeaderEpoch, kerr.OffsetOutOfRange, kerr.TopicAuthorizationFailed,
	} {
		t.Run(kerror.Message, func(t *testing.T) {
			t.Parallel()
			c := fakeCluster(t, kfake.SeedTopics(1, "t"))
			c.produce("t", 0, numbered("v", 3)...)
			h := c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets}, Topic: "t", Err: kerror, Count: 2})
			s := &source{Emitter: newEmitter(t, c.config("t")), t: t}
			defer s.close()
			starts, err := s.Open(t.Context(), nil, true)
			if err != nil {
				t.Fatal(err)
			}
			s.eventually("start", func() bool { starts = append(starts, s.Discovered()...); return len(starts) == 1 })
			s.Admit(starts)
			values, pos := s.read(part("t", 0), 0, 3)
			equalValues(t, "values", values, numbered("v", 3))
			s.Ack(1, []batch.Range{{Partition: pos.Partition, End: pos.Next}})
			c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Err: kerror, Count: 2})
			again := s.values(batch.Range{Partition: pos.Partition, Start: 0, End: 3, Identity: pos.Identity})
			equalValues(t, "read again", again, numbered("v", 3))
			if h.Hits() < 2 {
				t.Errorf("%d of 2 errors were met", h.Hits())
			}
		})
	}
}
