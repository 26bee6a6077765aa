package kafkagroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// The last versions of the transaction's requests in which a producer keeps its epoch from one transaction to the next, and adds
// the group by a request of its own.
const (
	maxTxnOffsetCommit = 4
	maxEndTxn          = 4
)

const (
	// txnTimeout is after what a broker gives a transaction up whose producer is gone. A round is shorter.
	txnTimeout = 30 * time.Second
	// settling is the time between two looks at a transaction that the brokers are still settling.
	settling = 20 * time.Millisecond
)

// TransactionalID is that under which a source's offsets are written under a lease.
func TransactionalID(pipeline, source string) string {
	return "tridentd.mirror." + pipeline + "." + source
}

// fence writes a group's offsets in transactions of a producer of its own, one for each round. Whoever claims the producer
// after us has the brokers refuse what we still send, however late it arrives.
//
// The first claim is unconditional, and made under the lease. Every later one (after a failure, to settle what
// hung) is conditional on the producer's epoch as we know it: it doesn't take the producer back from a successor. A predecessor's
// first claim, however, may land after ours, long after its lease was lost. Whoever is fenced therefore has the lease confirmed
// afresh: who still holds it has no successor, and claims without condition again; who doesn't is deposed for good.
type fence struct {
	lease    txstate.Lease
	id       string // transactional
	producer int64  // -1 before the first claim
	epoch    int16
	settled  bool  // claimed, and no failure came since
	deposed  error // somebody else has claimed the producer: nothing is written any more
}

var _ txstate.Leased = (*Mirror)(nil)

// Under implements txstate.Leased: offsets are written in transactions, which the brokers refuse to a master that was
// deposed.
func (m *Mirror) Under(lease txstate.Lease) {
	m.fence = &fence{lease: lease, id: TransactionalID(m.cfg.Pipeline, m.cfg.Source), producer: -1}
}

func limitTransactions(v *kversion.Versions) {
	v.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), maxTxnOffsetCommit)
	v.SetMaxKeyVersion(int16(kmsg.EndTxn), maxEndTxn)
}

// claim makes the producer ours and settles what hung. It must have succeeded before the group is read: what a predecessor
// left in the air would still land otherwise.
func (f *fence) claim(ctx context.Context, client *kgo.Client) error {
	if f.deposed != nil {
		return f.deposed
	}
	if err := f.pass(ctx); err != nil || f.settled {
		return err
	}
	err := f.unsettled(ctx, func() error { return f.init(ctx, client) })
	if f.producer < 0 || !isFenced(err) {
		return err
	}
	switch cerr := f.confirm(ctx); {
	case batch.CodeOf(cerr) == batch.CodeLockLost:
		f.deposed = fmt.Errorf("%w (transactional id %s): %w", errDeposed, f.id, err)
		return f.deposed
	case cerr != nil:
		return cerr
	}
	f.producer = -1
	return f.unsettled(ctx, func() error { return f.init(ctx, client) })
}

// init asks for the producer once: on condition of its epoch, or without one if none is known.
func (f *fence) init(ctx context.Context, client *kgo.Client) error {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = &f.id
	req.TransactionTimeoutMillis = int32(txnTimeout.Milliseconds())
	req.ProducerID, req.ProducerEpoch = f.producer, f.epoch
	if f.producer < 0 {
		req.ProducerEpoch = -1
	}
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		if errors.Is(err, kerr.InvalidProducerIDMapping) {
			f.producer = -1 // the brokers have forgotten the id
		}
		return err
	}
	f.producer, f.epoch, f.settled = resp.ProducerID, resp.ProducerEpoch, true
	return nil
}

// pass waits until the lease lets something be written.
func (f *fence) pass(ctx context.Context) error { return unconfirmed(f.lease.Pass(ctx)) }

// confirm is pass, and doesn't rely on what was confirmed before.
func (f *fence) confirm(ctx context.Context) error {
	if l, ok := f.lease.(txstate.Confirming); ok {
		return unconfirmed(l.Confirm(ctx))
	}
	return f.pass(ctx)
}

// unconfirmed names a lease's answer that is none.
func unconfirmed(err error) error {
	if _, ok := errors.AsType[*batch.Error](err); err == nil || ok {
		return err
	}
	return batch.NewError(batch.Transient, batch.CodeZKNoAnswer, "mirror", fmt.Errorf("the lock isn't confirmed, and nothing is written without it: %w", err),
		"see to ZooKeeper; batches wait as well")
}

// errDeposed says that another process has taken the producer over.
var errDeposed = errors.New("another process of this pipeline has taken over writing the group's offsets")

func isFenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
}

// unsettled calls send again for as long as the brokers are settling the transaction before.
func (*fence) unsettled(ctx context.Context, send func() error) error {
	for {
		err := send()
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			return err
		}
		t := time.NewTimer(settling)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}

// transaction has write commit offsets, all or none, to a group without members. After a failure the producer must be claimed again.
func (f *fence) transaction(ctx context.Context, client *kgo.Client, group string, write func() error) (err error) {
	defer func() {
		if err != nil {
			f.settled = false
		}
	}()
	if err := f.pass(ctx); err != nil {
		return err
	}
	if err := unshared(ctx, client, group); err != nil {
		return err
	}
	err = f.unsettled(ctx, func() error {
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = f.id, f.producer, f.epoch, group
		resp, err := add.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
	if err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	if err := f.pass(ctx); err != nil {
		return err
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = f.id, f.producer, f.epoch, true
	resp, err := end.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// request turns a commit of offsets into one that belongs to the transaction.
func (f *fence) request(ctx context.Context, client *kgo.Client, plain *kmsg.OffsetCommitRequest, answered func(topic string, partition int32, code int16)) error {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = f.id, f.producer, f.epoch, plain.Group
	for _, pt := range plain.Topics {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic = pt.Topic
		for _, pp := range pt.Partitions {
			p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = pp.Partition, pp.Offset, pp.LeaderEpoch, pp.Metadata
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			answered(t.Topic, p.Partition, p.ErrorCode)
		}
	}
	return nil
}

// lost is the failure of a mirror whose master may write no more.
func lost(group string, err error) *batch.Error {
	return batch.NewError(batch.Transient, batch.CodeLockLost, "mirror", fmt.Errorf("consumer group %s: nothing is written any more: %w", group, err),
		"make sure that one process runs the pipeline under one lock; what this one has committed is shown by whoever runs it next")
}
