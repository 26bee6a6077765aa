package kafkasink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/sink"
)

// The last versions of the requests in which topics have names, a group is added to a transaction by a request of its own, and a
// producer keeps its epoch from one transaction to the next.
const (
	maxOffsetFetch     = 9
	maxTxnOffsetCommit = 4
	maxEndTxn          = 4
)

func versions() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.OffsetFetch), maxOffsetFetch)
	v.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), maxTxnOffsetCommit)
	v.SetMaxKeyVersion(int16(kmsg.EndTxn), maxEndTxn)
	return v
}

// stamp is the metadata of the progress.
type stamp struct {
	Version  int         `json:"tridentd"`
	Pipeline string      `json:"pipeline"`
	Sink     string      `json:"sink"`
	Epoch    batch.Epoch `json:"epoch"`
	Chain    string      `json:"chain"` // 16 hexadecimal digits
}

// stampVersion is the version of the metadata's form. Readers accept later ones, which only add fields.
const stampVersion = 1

func (c *Config) stamp(p sink.Progress) string {
	b, err := json.Marshal(stamp{Version: stampVersion, Pipeline: c.Pipeline, Sink: c.Sink, Epoch: p.Epoch, Chain: fmt.Sprintf("%016x", p.Chain)})
	if err != nil {
		panic("kafkasink: metadata of plain fields doesn't encode: " + err.Error())
	}
	return string(b)
}

// parse reads a progress from an offset and its metadata.
func (c *Config) parse(offset int64, metadata *string) (sink.Progress, error) {
	if offset < 0 {
		return sink.Progress{}, nil
	}
	foreign := func(format string, args ...any) error {
		return batch.NewError(batch.Permanent, batch.CodeGroupForeign, "progress",
			fmt.Errorf("consumer group %s, topic %s: the offset %d "+format, append([]any{Group(c.Pipeline, c.Sink), c.Topic, offset}, args...)...),
			"find out who commits offsets to this group, which is the sink's own; then name the sink otherwise, or start over")
	}
	if metadata == nil {
		return sink.Progress{}, foreign("is not the sink's progress: it has no metadata")
	}
	var s stamp
	if err := json.Unmarshal([]byte(*metadata), &s); err != nil || s.Version < 1 {
		return sink.Progress{}, foreign("is not the sink's progress: its metadata is %.100q", *metadata)
	}
	if s.Pipeline != c.Pipeline || s.Sink != c.Sink {
		return sink.Progress{}, foreign("is that of sink %s of pipeline %s", s.Sink, s.Pipeline)
	}
	chain, err := strconv.ParseUint(s.Chain, 16, 64)
	if err != nil {
		return sink.Progress{}, foreign("has a garbled digest %.100q", s.Chain)
	}
	return sink.Progress{Txid: batch.Txid(offset), Epoch: s.Epoch, Chain: chain}, nil
}

// settling is the time between two looks at something that the brokers are still settling.
const settling = 20 * time.Millisecond

// unsettled are answers that mean: ask again in a moment.
var unsettled = []error{
	kerr.ConcurrentTransactions, kerr.UnstableOffsetCommit, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator,
}

// settled calls send until the brokers have settled what came before, and have a coordinator.
func settled(ctx context.Context, send func() error) error {
	for {
		err := send()
		if !slices.ContainsFunc(unsettled, func(u error) bool { return errors.Is(err, u) }) {
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

// fetch reads the progress. With stable it waits for a transaction that has it in hand.
func (s *Sink) fetch(ctx context.Context, client *kgo.Client, stable bool) (p sink.Progress, err error) {
	group := Group(s.cfg.Pipeline, s.cfg.Sink)
	err = settled(ctx, func() error {
		topic := kmsg.NewOffsetFetchRequestGroupTopic()
		topic.Topic, topic.Partitions = s.cfg.Topic, []int32{0}
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.Topics = group, []kmsg.OffsetFetchRequestGroupTopic{topic}
		req := kmsg.NewPtrOffsetFetchRequest()
		req.RequireStable, req.Groups = stable, []kmsg.OffsetFetchRequestGroup{g}
		// Brokers before 3.0 know one group to a request.
		old := kmsg.NewOffsetFetchRequestTopic()
		old.Topic, old.Partitions = s.cfg.Topic, []int32{0}
		req.Group, req.Topics = group, []kmsg.OffsetFetchRequestTopic{old}
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		offset, metadata := int64(-1), (*string)(nil)
		code := resp.ErrorCode
		for _, t := range resp.Topics {
			for _, pt := range t.Partitions {
				offset, metadata, code = pt.Offset, pt.Metadata, max(code, pt.ErrorCode)
			}
		}
		for _, g := range resp.Groups {
			code = max(code, g.ErrorCode)
			for _, t := range g.Topics {
				for _, pt := range t.Partitions {
					offset, metadata, code = pt.Offset, pt.Metadata, max(code, pt.ErrorCode)
				}
			}
		}
		if err := kerr.ErrorForCode(code); err != nil {
			return err
		}
		p, err = s.cfg.parse(offset, metadata)
		return err
	})
	return p, err
}

// write puts a progress into the transaction that is open, or begins one with it.
func (s *Sink) write(ctx context.Context, p sink.Progress) error {
	id, epoch, err := s.client.ProducerID(ctx)
	if err != nil {
		return err
	}
	group, txn := Group(s.cfg.Pipeline, s.cfg.Sink), TransactionalID(s.cfg.Pipeline, s.cfg.Sink)
	err = settled(ctx, func() error {
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = txn, id, epoch, group
		resp, err := add.RequestWith(ctx, s.client)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
	if err != nil {
		return err
	}
	meta := s.cfg.stamp(p)
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset, part.Metadata = 0, int64(p.Txid), &meta
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = s.cfg.Topic, []kmsg.TxnOffsetCommitRequestTopicPartition{part}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = txn, id, epoch, group
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{topic}
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return err
	}
	answered := false
	for _, t := range resp.Topics {
		for _, pt := range t.Partitions {
			if err := kerr.ErrorForCode(pt.ErrorCode); err != nil {
				return err
			}
			answered = true
		}
	}
	if !answered {
		return errors.New("the broker's answer to the commit of the progress is empty")
	}
	return nil
}

// alone writes a progress in a transaction without output.
func (s *Sink) alone(ctx context.Context, p sink.Progress) error {
	if err := s.write(ctx, p); err != nil {
		return err
	}
	id, epoch, err := s.client.ProducerID(ctx)
	if err != nil {
		return err
	}
	return settled(ctx, func() error {
		end := kmsg.NewPtrEndTxnRequest()
		end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = TransactionalID(s.cfg.Pipeline, s.cfg.Sink), id, epoch, true
		resp, err := end.RequestWith(ctx, s.client)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
}
