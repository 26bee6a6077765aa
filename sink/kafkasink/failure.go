package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
)

// failure names a failed step as what it is.
func (s *Sink) failure(op string, err error) *batch.Error {
	if e, ok := errors.AsType[*batch.Error](err); ok {
		return e
	}
	kind, code, text, remedy := s.explain(err)
	cause := fmt.Errorf("%s: %w", op, err)
	if text != "" {
		cause = fmt.Errorf("%s: %s: %w", op, text, err)
	}
	return batch.NewError(kind, code, op, cause, remedy)
}

func (s *Sink) explain(err error) (kind batch.Kind, code batch.Code, text, remedy string) {
	const transient, permanent = batch.Transient, batch.Permanent
	var ke *kerr.Error
	if !errors.As(err, &ke) {
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrRecordTimeout):
			return transient, batch.CodeTimeout, "no answer in time", "check that the brokers run and can be reached from here"
		case errors.Is(err, io.EOF):
			return transient, batch.CodeUnavailable, "the connection was closed",
				"check that the brokers' listener is meant for this way of connecting (TLS or not, SASL or not), and the user and the password"
		}
		return transient, batch.CodeUnavailable, "", "check that the brokers run and can be reached from here"
	}
	id := TransactionalID(s.cfg.Pipeline, s.cfg.Sink)
	switch ke {
	case kerr.MessageTooLarge, kerr.RecordListTooLarge:
		return permanent, batch.CodeBatchTooLarge, "the record is larger than the topic takes", "raise the topic's max.message.bytes and the sink's max_record_bytes, or shorten the record"
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID:
		return permanent, batch.CodeTopicMissing, "the topic doesn't exist", "create the topic, or correct its name; a sink creates none"
	case kerr.InvalidTopicException:
		return permanent, batch.CodeConfiguration, "the brokers don't accept the topic's name", "name another topic"
	case kerr.TopicAuthorizationFailed:
		return transient, batch.CodeUnauthorized, "this user may not write to the topic", "grant the user Write and Describe on the topic " + s.cfg.Topic
	case kerr.GroupAuthorizationFailed:
		return transient, batch.CodeUnauthorized, "this user may not keep the sink's progress", "grant the user Read on group " + Group(s.cfg.Pipeline, s.cfg.Sink)
	case kerr.TransactionalIDAuthorizationFailed:
		return transient, batch.CodeUnauthorized, "this user may not use the sink's transactional id", "grant the user Write and Describe on transactional id " + id
	case kerr.ClusterAuthorizationFailed:
		return transient, batch.CodeUnauthorized, "this user may not write idempotently", "grant the user IdempotentWrite on the cluster"
	case kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState:
		return transient, batch.CodeUnauthorized, "the brokers refuse these credentials", "check the user and the password"
	case kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.FencedMemberEpoch:
		return transient, batch.CodeUnavailable, "the brokers have given the transaction up, or another process uses the transactional id " + id,
			fmt.Sprintf("if it comes again and again: make sure that one process runs the pipeline, and that a batch is sent within the transaction_timeout of %s (raise it, or lower batch.max_records)", s.cfg.TransactionTimeout)
	case kerr.InvalidProducerIDMapping, kerr.UnknownProducerID, kerr.InvalidTxnState, kerr.OutOfOrderSequenceNumber, kerr.TransactionAbortable:
		return transient, batch.CodeUnavailable, "the brokers no longer know the transaction", ""
	case kerr.OffsetMetadataTooLarge:
		return permanent, batch.CodeConfiguration, "the brokers' offset.metadata.max.bytes is too low", "raise it to 512 at least"
	case kerr.GroupIDNotFound, kerr.InconsistentGroupProtocol, kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.InvalidGroupID:
		return permanent, batch.CodeGroupForeign, "the group of the sink's progress is used by consumers, or of another kind",
			"have no consumer use group " + Group(s.cfg.Pipeline, s.cfg.Sink)
	case kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.ConcurrentTransactions, kerr.UnstableOffsetCommit:
		return transient, batch.CodeUnavailable, "the brokers are still settling a transaction, or have no coordinator for it", "if it lasts, see to the brokers that hold __transaction_state and __consumer_offsets"
	}
	return transient, batch.CodeUnavailable, "", ""
}
