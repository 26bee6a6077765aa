package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/sink"
)

// Sink writes to Kafka. See the package's documentation for what it guarantees.
type Sink struct {
	cfg Config
	log hclog.Logger

	mu       sync.Mutex
	client   *kgo.Client   // of the claim; nil before the first, and after a failure
	progress sink.Progress // as the group holds it; valid if there is a client
	open     *sink.Progress
	txid     batch.Txid // that records without a key are placed by
	head     []byte     // in front of each value
	closing  chan struct{}
	refresh  sync.WaitGroup
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink. It contacts nobody.
func New(cfg Config) (*Sink, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Sink{cfg: cfg, log: cfg.Logger, closing: make(chan struct{})}
	s.refresh.Go(s.keepAlive)
	return s, nil
}

// Progress implements sink.Sink.
func (s *Sink) Progress(ctx context.Context) (sink.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	client, err := kgo.NewClient(append(slices.Clone(s.cfg.Client), kgo.MaxVersions(versions()))...)
	if err != nil {
		return sink.Progress{}, configError("kafka", "correct the client's options", "%w", err)
	}
	defer client.Close()
	p, err := s.fetch(ctx, client, false)
	if err != nil {
		return sink.Progress{}, s.failure("reading the progress", err)
	}
	return p, nil
}

// Claim implements sink.Sink.
func (s *Sink) Claim(ctx context.Context, epoch batch.Epoch) (sink.Progress, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	// A predecessor's transaction is settled before the brokers hand the id over.
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	fail := func(op string, err error) (sink.Progress, error) {
		s.drop()
		return sink.Progress{}, s.failure(op, err)
	}
	client, err := kgo.NewClient(append(slices.Clone(s.cfg.Client),
		kgo.MaxVersions(versions()),
		kgo.TransactionalID(TransactionalID(s.cfg.Pipeline, s.cfg.Sink)),
		kgo.TransactionTimeout(s.cfg.TransactionTimeout),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(codecs[s.cfg.Compression]),
		kgo.ProducerBatchMaxBytes(s.cfg.MaxRecordBytes),
		kgo.RecordPartitioner(s.partitioner()),
	)...)
	if err != nil {
		return sink.Progress{}, configError("kafka", "correct the client's options", "%w", err)
	}
	s.client = client
	if s.cfg.Head != nil {
		if s.head, err = s.cfg.Head(ctx); err != nil {
			return fail("the records' schema", err)
		}
	}
	if _, _, err := client.ProducerID(ctx); err != nil {
		if errors.Is(err, kerr.InvalidTransactionTimeout) {
			err = s.tooLong(ctx, client, err)
		}
		return fail("claiming the transactional id", err)
	}
	p, err := s.fetch(ctx, client, true)
	if err != nil {
		return fail("reading the progress", err)
	}
	if p.Epoch > epoch {
		return fail("claim", sink.Deposed("topic "+s.cfg.Topic, p.Epoch, epoch))
	}
	if p.Epoch < epoch {
		p.Epoch = epoch
		if err := s.alone(ctx, p); err != nil {
			return fail("claiming the progress", err)
		}
	}
	s.progress = p
	return p, nil
}

// asking bounds a question whose answer makes an error clearer.
const asking = 5 * time.Second

// maxTransaction is the brokers' setting for the longest transaction_timeout.
const maxTransaction = "transaction.max.timeout.ms"

// tooLong says which limit of the brokers the transaction's time limit is above.
func (s *Sink) tooLong(ctx context.Context, client *kgo.Client, err error) error {
	limit := "the brokers' " + maxTransaction
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), asking)
	defer cancel()
	adm := kadm.NewClient(client)
	if brokers, berr := adm.ListBrokers(ctx); berr == nil {
		rs, derr := adm.DescribeBrokerConfigs(ctx, brokers.NodeIDs()...)
		if ms, ok := number(rs, maxTransaction); derr == nil && ok {
			limit += fmt.Sprintf(" of %s", time.Duration(ms)*time.Millisecond)
		}
	}
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "claim", fmt.Errorf("the sink's transaction_timeout of %s is above %s: %w", s.cfg.TransactionTimeout, limit, err),
		"lower the sink's transaction_timeout, or raise the brokers' limit")
}

// drop gives up the client, and with it what it has in hand.
func (s *Sink) drop() {
	if s.client != nil {
		s.client.Close()
	}
	s.client, s.open = nil, nil
}

var errUnclaimed = errors.New("the sink isn't claimed")

// Prepare implements sink.Sink.
func (s *Sink) Prepare(ctx context.Context, out *sink.Output) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return s.failure("prepare", errUnclaimed)
	}
	if err := s.prepare(ctx, out); err != nil {
		// The transaction stays behind; the next claim settles it.
		s.drop()
		return s.failure("sending the batch", err)
	}
	return nil
}

func (s *Sink) prepare(ctx context.Context, out *sink.Output) error {
	// What takes longer the brokers have given up. (The client's own limit would count from the records' timestamps.)
	ctx, stop := context.WithTimeout(ctx, s.cfg.TransactionTimeout)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := s.client.BeginTransaction(); err != nil {
		return err
	}
	s.txid = out.Txid
	var mu sync.Mutex
	var failed error // of the first record that failed
	note := func(p batch.Partition, r *sink.Record, err error) {
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			failed = s.failure("sending", err).At(p, r.Offset)
			cancel(failed) // the others fail with it
		}
	}
	clock := out.Time
	var headed arena
	for p, r := range out.All() {
		rec := &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Timestamp: clock}
		if r.Topic == "" {
			rec.Topic = s.cfg.Topic
		}
		if len(s.head) > 0 && r.Value != nil {
			rec.Value = headed.join(s.head, r.Value)
		}
		if r.Timestamp != sink.NoTimestamp {
			rec.Timestamp = time.UnixMilli(r.Timestamp)
		}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		s.client.Produce(ctx, rec, func(_ *kgo.Record, err error) {
			if err != nil {
				note(p, r, err)
			}
		})
		if ctx.Err() != nil {
			break
		}
	}
	ferr := s.client.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	if errors.Is(failed, context.DeadlineExceeded) || errors.Is(ferr, context.DeadlineExceeded) {
		return batch.NewError(batch.Transient, batch.CodeTimeout, "sending the batch",
			fmt.Errorf("%d records weren't sent within the transaction_timeout of %s", out.Count, s.cfg.TransactionTimeout),
			"see to the brokers; if they are well, raise the sink's transaction_timeout, or lower batch.max_records")
	}
	if failed != nil {
		return failed
	}
	if ferr != nil {
		return ferr
	}
	answering, done := context.WithTimeout(ctx, s.cfg.Timeout)
	defer done()
	p := sink.Progress{Txid: out.Txid, Epoch: out.Epoch, Chain: out.Chain}
	if err := s.write(answering, p); err != nil {
		return err
	}
	s.open = &p
	return nil
}

// arena is memory for values with a head.
type arena []byte

// arenaSize is the least size of a piece of an arena, in bytes.
const arenaSize = 64 << 10

// join returns a followed by b.
func (m *arena) join(a, b []byte) []byte {
	if n := len(a) + len(b); cap(*m)-len(*m) < n {
		*m = make([]byte, 0, max(n, arenaSize))
	}
	at := len(*m)
	*m = append(append(*m, a...), b...)
	return (*m)[at:len(*m):len(*m)]
}

// Commit implements sink.Sink.
func (s *Sink) Commit(ctx context.Context) error { return s.end(ctx, kgo.TryCommit) }

// Abort implements sink.Sink.
func (s *Sink) Abort(ctx context.Context) error { return s.end(ctx, kgo.TryAbort) }

func (s *Sink) end(ctx context.Context, how kgo.TransactionEndTry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil || s.open == nil {
		return s.failure("ending the transaction", errUnclaimed)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	p := *s.open
	s.open = nil
	if err := s.client.EndTransaction(ctx, how); err != nil {
		s.drop()
		return s.failure("ending the transaction", err)
	}
	if how == kgo.TryCommit {
		s.progress = p
	}
	return nil
}

// Forget implements sink.Sink.
func (s *Sink) Forget(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return s.failure("forget", errUnclaimed)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	p := sink.Progress{Epoch: s.progress.Epoch}
	if err := s.alone(ctx, p); err != nil {
		s.drop()
		return s.failure("forgetting the progress", err)
	}
	s.progress = p
	return nil
}

// Close implements sink.Sink. A transaction that is open is left to the brokers, or to the next claim.
func (s *Sink) Close(context.Context) error {
	close(s.closing)
	s.refresh.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	return nil
}

// keepAlive writes the progress again from time to time, so that it doesn't expire while nothing is sent.
func (s *Sink) keepAlive() {
	t := time.NewTicker(refreshEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.again()
		case <-s.closing:
			return
		}
	}
}

func (s *Sink) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil || s.open != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	if err := s.alone(ctx, s.progress); err != nil {
		s.log.Warn("the sink's progress couldn't be written again, which it needs now and then so as not to expire; the next batch claims the sink anew", "error", s.failure("refresh", err))
		s.drop()
	}
}

// partitioner places records with a key as Kafka's own clients do, and those without one by the batch: all of a batch in one partition, so
// that another attempt puts them where the first did.
func (s *Sink) partitioner() kgo.Partitioner {
	keyed := kgo.StickyKeyPartitioner(nil)
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		of := keyed.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			if r.Key == nil {
				return int(uint64(s.txid) % uint64(n))
			}
			return of.Partition(r, n)
		}
	})
}
