package kafkasink

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/sink"
)

// transactions are those of a pipeline's sinks in one cluster.
type transactions struct {
	s      *Sink
	client *kgo.Client
	adm    *kadm.Client
}

// Transactions asks the cluster of a sink for the transactions of the pipeline's sinks, those of sinks that it no longer has among them.
func Transactions(cfg Config) (sink.Transactions, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(slices.Clone(cfg.Client), kgo.MaxVersions(versions()))...)
	if err != nil {
		return nil, configError("kafka", "correct the client's options", "%w", err)
	}
	return &transactions{s: &Sink{cfg: cfg, log: hclog.NewNullLogger()}, client: client, adm: kadm.NewClient(client)}, nil
}

func (t *transactions) Close() { t.client.Close() }

// What the brokers call a transaction that holds readers up.
const (
	ongoing = "Ongoing"
	prepare = "Prepare" // how the names of states begin in which markers are being written
)

// List implements sink.Transactions.
func (t *transactions) List(ctx context.Context) ([]sink.Transaction, error) {
	ctx, cancel := context.WithTimeout(ctx, t.s.cfg.Timeout)
	defer cancel()
	listed, err := t.adm.ListTransactions(ctx, nil, nil)
	if err != nil {
		return nil, t.failure("listing transactions", err)
	}
	prefix := TransactionalID(t.s.cfg.Pipeline, "")
	ids := slices.DeleteFunc(listed.TransactionalIDs(), func(id string) bool { return !strings.HasPrefix(id, prefix) })
	if len(ids) == 0 {
		return nil, nil // and not all that there are
	}
	described, err := t.adm.DescribeTransactions(ctx, ids...)
	if err != nil {
		return nil, t.failure("describing transactions", err)
	}
	var all []sink.Transaction
	for _, d := range described.Sorted() {
		switch {
		case errors.Is(d.Err, kerr.TransactionalIDNotFound):
			continue // it has expired since
		case d.Err != nil:
			return nil, t.failure("describing the transactions of "+d.TxnID, d.Err)
		}
		all = append(all, transaction(prefix, &d))
	}
	return all, nil
}

func transaction(prefix string, d *kadm.DescribedTransaction) sink.Transaction {
	x := sink.Transaction{
		ID: d.TxnID, Sink: strings.TrimPrefix(d.TxnID, prefix), State: d.State, Open: d.State == ongoing || strings.HasPrefix(d.State, prepare),
		Producer: d.ProducerID, Epoch: d.ProducerEpoch, Timeout: time.Duration(d.TimeoutMillis) * time.Millisecond,
	}
	if x.Open && d.StartTimestamp >= 0 {
		x.Since = time.UnixMilli(d.StartTimestamp).UTC()
	}
	for _, topic := range d.Topics.Sorted() {
		for _, p := range topic.Partitions {
			x.Partitions = append(x.Partitions, batch.Partition{Topic: topic.Topic, Number: p})
		}
	}
	return x
}

// Settle implements sink.Transactions. Whoever asks for the producer id of a transactional id has its open transaction aborted; one that
// was being committed is committed to its end.
func (t *transactions) Settle(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, t.s.cfg.Timeout)
	defer cancel()
	client, err := kgo.NewClient(append(slices.Clone(t.s.cfg.Client), kgo.MaxVersions(versions()), kgo.TransactionalID(id),
		kgo.TransactionTimeout(t.s.cfg.TransactionTimeout))...)
	if err != nil {
		return configError("kafka", "correct the client's options", "%w", err)
	}
	defer client.Close()
	if _, _, err := client.ProducerID(ctx); err != nil {
		return t.failure("settling "+id, err)
	}
	return nil
}

func (t *transactions) failure(op string, err error) error {
	if se, ok := errors.AsType[*kadm.ShardErrors](err); ok && len(se.Errs) > 0 {
		err = se.Errs[0].Err
	}
	if errors.Is(err, kerr.UnsupportedVersion) {
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, op, err, "ask brokers of Kafka 3.0 or newer, or settle the transactions by a start of the pipeline")
	}
	return t.s.failure(op, err)
}
