package kafkagroup

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tridentd/tridentd/batch"
)

// failure names a failed request as what it is. All of them are tried again: what is refused today may be granted
// tomorrow, and no batch waits for it.
func failure(group string, err error) *batch.Error {
	if errors.Is(err, errDeposed) || batch.CodeOf(err) == batch.CodeLockLost {
		return lost(group, err)
	}
	if e, ok := errors.AsType[*batch.Error](err); ok {
		return e
	}
	code, text, remedy := explain(group, err)
	cause := fmt.Errorf("consumer group %s: %w", group, err)
	if text != "" {
		cause = fmt.Errorf("consumer group %s: %s: %w", group, text, err)
	}
	return batch.NewError(batch.Transient, code, "mirror", cause, remedy)
}

func explain(group string, err error) (code batch.Code, text, remedy string) {
	var ke *kerr.Error
	if !errors.As(err, &ke) {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return batch.CodeTimeout, "no answer in time", "check that the brokers run and can be reached from here"
		}
		if errors.Is(err, io.EOF) {
			return batch.CodeUnavailable, "the connection was closed",
				"check that the brokers' listener is meant for this way of connecting (TLS or not, SASL or not), and the user and the password"
		}
		return batch.CodeUnavailable, "no connection", "check that the brokers run and can be reached from here"
	}
	switch ke {
	case kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.FencedInstanceID,
		kerr.FencedMemberEpoch, kerr.StaleMemberEpoch, kerr.UnreleasedInstanceID:
		return batch.CodeGroupMembers, "the group has members, and a broker takes offsets from members only",
			membersRemedy
	case kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed:
		return batch.CodeUnauthorized, "this user may not read or write the group's offsets",
			fmt.Sprintf("grant the user Read on group %s, or switch the mirror off (group: off)", group)
	case kerr.TopicAuthorizationFailed:
		return batch.CodeUnauthorized, "this user may not commit offsets of the topic", "grant the user Read on the topic"
	case kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState:
		return batch.CodeUnauthorized, "the brokers refuse these credentials", "check the user and the password"
	case kerr.TransactionalIDAuthorizationFailed:
		return batch.CodeUnauthorized, "this user may not use the transactional id under which offsets are written under a lock",
			"grant the user Write and Describe on the transactional ids that begin with tridentd.mirror."
	case kerr.ConcurrentTransactions, kerr.UnstableOffsetCommit:
		return batch.CodeGroupCoordinator, "the brokers are still settling the transaction before", "if it lasts, see to the brokers that hold the topic __transaction_state"
	case kerr.ProducerFenced, kerr.InvalidProducerEpoch:
		return batch.CodeGroupCoordinator, "the transaction was given up by the brokers, or another process has taken the producer over", ""
	case kerr.NotCoordinator:
		return batch.CodeGroupCoordinator, "its coordinator has moved to another broker", ""
	case kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress:
		return batch.CodeGroupCoordinator, "its coordinator isn't available",
			"if it lasts, see to the brokers that hold the topic __consumer_offsets"
	case kerr.GroupIDNotFound, kerr.InconsistentGroupProtocol:
		return batch.CodeGroupForeign, "a group of another kind, which holds no offsets, has this name", "name another group (group: NAME)"
	case kerr.InvalidGroupID:
		return batch.CodeConfiguration, "the brokers don't accept the name", "name another group (group: NAME)"
	case kerr.OffsetMetadataTooLarge:
		return batch.CodeConfiguration, "the brokers' offset.metadata.max.bytes is too low", "raise it to 512 at least"
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID:
		return batch.CodeTopicMissing, "a topic or partition isn't there", "create it again, or take it off the source's list"
	case kerr.RequestTimedOut:
		return batch.CodeTimeout, "the brokers couldn't write in time", "see to the brokers that hold the topic __consumer_offsets"
	}
	return batch.CodeUnavailable, "", ""
}

// ofPartition tells whether an error concerns one partition or topic only.
func ofPartition(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.TopicAuthorizationFailed)
}
