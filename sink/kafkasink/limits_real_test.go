//go:build realkafka

package kafkasink

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/sink"
)

func value(s string) sink.Record {
	return sink.Record{Offset: 5, Timestamp: sink.NoTimestamp, Key: []byte("k"), Value: []byte(s)}
}

func output(txid batch.Txid, epoch batch.Epoch, recs ...sink.Record) *sink.Output {
	return &sink.Output{
		Txid: txid, Epoch: epoch, Chain: uint64(txid), Time: time.UnixMilli(1_700_000_000_000), Count: int64(len(recs)),
		Parts: []sink.Part{{Partition: batch.Partition{Source: "in", Topic: "lines", Number: 3}, Records: recs}},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// claimed returns a sink under the epoch.
func (p *topic) claimed(epoch batch.Epoch) sink.Sink {
	p.t.Helper()
	s, err := p.Open()
	must(p.t, err)
	_, err = s.Claim(p.t.Context(), epoch)
	must(p.t, err)
	return s
}

// deliver does what the engine does: after a failure it claims again, and passes a batch over that is there.
func (p *topic) deliver(s sink.Sink, out *sink.Output) (failures int) {
	p.t.Helper()
	for ; ; failures++ {
		if failures > 20 {
			p.t.Fatal("it fails again and again")
		}
		if failures > 0 {
			at, err := s.Claim(p.t.Context(), out.Epoch)
			if err != nil {
				p.t.Logf("claim: %v", err)
				continue
			}
			if at.Txid == out.Txid {
				return failures
			}
		}
		err := s.Prepare(p.t.Context(), out)
		if err == nil {
			err = s.Commit(p.t.Context())
		}
		if err == nil {
			return failures
		}
		p.t.Logf("txid %d: %v", out.Txid, err)
		if batch.KindOf(err) == batch.Permanent {
			p.t.Fatal("that was permanent")
		}
	}
}

func (p *topic) holds(values ...string) {
	p.t.Helper()
	recs, err := p.Records(p.t.Context())
	must(p.t, err)
	var got []string
	for i := range recs {
		got = append(got, string(recs[i].Value))
	}
	if strings.Join(got, " ") != strings.Join(values, " ") {
		p.t.Fatalf("the topic holds %q, want %q", got, values)
	}
}

// cutter cuts the connection at one request of a kind: before it reaches the broker, or before its answer reaches the client.
type cutter struct {
	mu    sync.Mutex
	key   kmsg.Key
	left  int // how many still to cut
	after bool
}

func (c *cutter) dial(ctx context.Context, network, host string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, c: c}, nil
}

type cutConn struct {
	net.Conn
	c *cutter
}

func (c *cutConn) Write(b []byte) (int, error) {
	cut := false
	if len(b) >= 6 {
		c.c.mu.Lock()
		if c.c.left > 0 && kmsg.Key(binary.BigEndian.Uint16(b[4:])) == c.c.key {
			c.c.left--
			cut = true
		}
		c.c.mu.Unlock()
	}
	if !cut {
		return c.Conn.Write(b)
	}
	if c.c.after {
		if n, err := c.Conn.Write(b); err != nil {
			return n, err
		}
		var answer [4]byte // its length: the broker has done it
		if _, err := c.Conn.Read(answer[:]); err != nil {
			return 0, err
		}
	}
	if err := c.Conn.Close(); err != nil {
		return 0, err
	}
	return 0, errors.New("cut")
}

// TestCuts cuts the connection at every kind of request of the protocol, before it and behind it.
func TestCuts(t *testing.T) {
	k := testenv.Kafka(t)
	for _, key := range []kmsg.Key{kmsg.InitProducerID, kmsg.OffsetFetch, kmsg.AddPartitionsToTxn, kmsg.Produce, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.EndTxn} {
		for _, after := range []bool{false, true} {
			name := key.Name() + " before"
			if after {
				name = key.Name() + " after"
			}
			t.Run(name, func(t *testing.T) {
				p := newTopic(t, k, 1)
				c := &cutter{key: key, after: after}
				p.cfg.Client = append(p.cfg.Client, kgo.Dialer(c.dial))
				s := p.claimed(1)
				p.deliver(s, output(1, 1, value("a")))
				for _, left := range []int{1, 3} {
					c.mu.Lock()
					c.left = left
					c.mu.Unlock()
					if _, err := s.Claim(t.Context(), 1); err != nil {
						t.Logf("claim: %v", err)
					}
					txid := batch.Txid(2 + left)
					p.deliver(s, output(txid, 1, value("b"+string('0'+rune(left)))))
				}
				p.deliver(s, output(9, 1, value("c")))
				p.holds("a", "b1", "b3", "c")
				if c.left != 0 {
					t.Errorf("%d cuts didn't come about", c.left)
				}
			})
		}
	}
}

// TestRecordTooLarge: G09, what can't be written isn't dropped.
func TestRecordTooLarge(t *testing.T) {
	k := testenv.Kafka(t)
	p := newTopic(t, k, 1)
	s := p.claimed(1)
	p.deliver(s, output(1, 1, value("a")))
	err := s.Prepare(t.Context(), output(4, 1, value("b"), value(strings.Repeat("x", 2<<20))))
	e, ok := errors.AsType[*batch.Error](err)
	if !ok || e.Kind != batch.Permanent || e.Code != batch.CodeBatchTooLarge || e.Partition.Topic != "lines" || e.Partition.Number != 3 || e.Offset != 5 {
		t.Fatalf("a record of 2 MB: %v", err)
	}
	at, err := s.Claim(t.Context(), 1)
	must(t, err)
	if at.Txid != 1 {
		t.Errorf("progress %+v", at)
	}
	p.holds("a")
}

// TestTransactionTimeout: G10 (a), a time limit above the brokers'.
func TestTransactionTimeout(t *testing.T) {
	k := testenv.Kafka(t)
	p := newTopic(t, k, 1)
	p.cfg.TransactionTimeout = 20 * time.Minute
	s, err := p.Open()
	must(t, err)
	_, err = s.Claim(t.Context(), 1)
	if batch.CodeOf(err) != batch.CodeConfiguration || batch.KindOf(err) != batch.Permanent {
		t.Fatalf("20 minutes, the broker allows 15: %v", err)
	}
	for _, part := range []string{"20m0s", "15m0s", "transaction_timeout", "transaction.max.timeout.ms"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error doesn't say %q: %v", part, err)
		}
	}
}

// TestTransactionsThatExpire: G10 (b) and (d), ids that the broker forgets, and batches that take longer than it allows.
func TestTransactionsThatExpire(t *testing.T) {
	k := testenv.OwnKafka(t,
		testenv.Set("transactional.id.expiration.ms", "3000"), testenv.Set("transaction.remove.expired.transaction.cleanup.interval.ms", "1000"),
		testenv.Set("producer.id.expiration.ms", "3000"), testenv.Set("producer.id.expiration.check.interval.ms", "1000"),
		testenv.Set("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500"))
	t.Run("id", func(t *testing.T) {
		p := newTopic(t, k, 1)
		s := p.claimed(1)
		p.deliver(s, output(1, 1, value("a")))
		time.Sleep(8 * time.Second) // that is what the broker's settings are about
		p.deliver(s, output(2, 1, value("b")))
		p.deliver(s, output(3, 1, value("c")))
		p.holds("a", "b", "c")
	})
	t.Run("batch", func(t *testing.T) {
		p := newTopic(t, k, 1)
		p.cfg.TransactionTimeout = time.Second
		s := p.claimed(1)
		must(t, s.Prepare(t.Context(), output(1, 1, value("a"))))
		time.Sleep(4 * time.Second)
		if err := s.Commit(t.Context()); err == nil || batch.KindOf(err) != batch.Transient {
			t.Fatalf("a commit of what the broker has given up: %v", err)
		}
		at, err := s.Claim(t.Context(), 1)
		must(t, err)
		if at.Txid != 0 {
			t.Fatalf("progress %+v", at)
		}
		p.deliver(s, output(1, 1, value("a")))
		p.holds("a")
	})
}

// TestTwoPipelinesOfOneTopic: G10 (c), neither fences the other.
func TestTwoPipelinesOfOneTopic(t *testing.T) {
	k := testenv.Kafka(t)
	p := newTopic(t, k, 1)
	q := *p
	q.cfg.Pipeline += "-other"
	a, b := p.claimed(1), q.claimed(7)
	for txid := batch.Txid(1); txid <= 5; txid++ {
		must(t, a.Prepare(t.Context(), output(txid, 1, value("a"))))
		must(t, b.Prepare(t.Context(), output(txid, 7, value("b"))))
		must(t, a.Commit(t.Context()))
		must(t, b.Commit(t.Context()))
	}
	recs, err := p.Records(t.Context())
	must(t, err)
	if len(recs) != 10 {
		t.Errorf("%d records, want 10", len(recs))
	}
}

func TestTopicMissing(t *testing.T) {
	k := testenv.Kafka(t)
	p := newTopic(t, k, 1)
	p.cfg.Topic += "-not-there"
	s, err := p.Open()
	must(t, err)
	_, err = s.Claim(t.Context(), 1)
	if err == nil {
		err = s.Prepare(t.Context(), output(1, 1, value("a")))
	}
	if batch.CodeOf(err) != batch.CodeTopicMissing || batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), "create the topic") {
		t.Errorf("a topic that doesn't exist: %v", err)
	}
}

// TestForeignProgress: somebody else commits offsets to the sink's group.
func TestForeignProgress(t *testing.T) {
	k := testenv.Kafka(t)
	p := newTopic(t, k, 1)
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Addr))
	must(t, err)
	defer cl.Close()
	meta := "mine"
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = Group(p.cfg.Pipeline, p.cfg.Sink)
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Offset, part.Metadata = 17, &meta
	tp := kmsg.NewOffsetCommitRequestTopic()
	tp.Topic, tp.Partitions = p.name, []kmsg.OffsetCommitRequestTopicPartition{part}
	req.Topics = []kmsg.OffsetCommitRequestTopic{tp}
	req.Generation = -1
	v := versions()
	v.SetMaxKeyVersion(int16(kmsg.OffsetCommit), 9) // topics by name
	plain, err := kgo.NewClient(kgo.SeedBrokers(k.Addr), kgo.MaxVersions(v))
	must(t, err)
	defer plain.Close()
	resp, err := req.RequestWith(t.Context(), plain)
	must(t, err)
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("error code %d", code)
	}
	s, err := p.Open()
	must(t, err)
	_, err = s.Progress(t.Context())
	if batch.CodeOf(err) != batch.CodeGroupForeign || batch.KindOf(err) != batch.Permanent {
		t.Errorf("an offset that isn't ours: %v", err)
	}
}

func TestCheck(t *testing.T) {
	k := testenv.Kafka(t)
	p := newTopic(t, k, 2)
	text := func(cfg Config) string {
		t.Helper()
		var all []string
		for _, f := range Check(t.Context(), cfg) {
			all = append(all, f.Level.String()+" "+f.Subject+": "+f.Text)
		}
		return strings.Join(all, "\n")
	}
	if got, want := text(p.cfg), "ok kafka topic "+p.name+": 2 partitions, to be written to\nok kafka sink out: has been given nothing yet"; got != want {
		t.Errorf("before the first run:\n%s\nwant\n%s", got, want)
	}
	p.deliver(p.claimed(4), output(3, 4, value("a")))
	if got := text(p.cfg); !strings.Contains(got, "ok kafka sink out: holds the output up to txid 3, of epoch 4") {
		t.Errorf("after a batch:\n%s", got)
	}
	long := p.cfg
	long.TransactionTimeout, long.MaxRecordBytes = time.Hour, 5<<20
	got := text(long)
	for _, want := range []string{"error kafka sink out: its transaction_timeout of 1h0m0s is above the brokers' transaction.max.timeout.ms of 15m0s", "warn kafka topic " + p.name + ": takes records of 1 MiB, the sink's max_record_bytes is 5 MiB"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	gone := p.cfg
	gone.Topic = "not-there"
	if got := text(gone); !strings.HasPrefix(got, "error kafka topic not-there: ") {
		t.Errorf("a topic that doesn't exist:\n%s", got)
	}
}

// TestHead: what stands in front of values is asked for at a claim, and isn't in front of a null; a claim fails where it can't be had.
func TestHead(t *testing.T) {
	k := testenv.Kafka(t)
	p := newTopic(t, k, 1)
	head, fails := "\x00\x00\x00\x00\x01", error(nil)
	p.cfg.Head = func(context.Context) ([]byte, error) { return []byte(head), fails }
	s := p.claimed(1)
	long := strings.Repeat("x", 100_000)
	p.deliver(s, output(1, 1, value("a"), value(""), sink.Record{Key: []byte("k"), Timestamp: sink.NoTimestamp}, value(long)))
	head = "\x00\x00\x00\x00\x02"
	if _, err := s.Claim(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	p.deliver(s, output(2, 1, value("b")))
	p.holds("\x00\x00\x00\x00\x01a", "\x00\x00\x00\x00\x01", "", "\x00\x00\x00\x00\x01"+long, "\x00\x00\x00\x00\x02b")
	recs, err := p.Records(t.Context())
	must(t, err)
	if recs[2].Value != nil {
		t.Errorf("a null has become %q", recs[2].Value)
	}
	fails = batch.NewError(batch.Transient, batch.CodeUnavailable, "schema registry", errors.New("it is away"), "start it")
	if _, err := s.Claim(t.Context(), 1); batch.CodeOf(err) != batch.CodeUnavailable || batch.KindOf(err) != batch.Transient {
		t.Errorf("a registry that is away: %v", err)
	}
}
