package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tridentd/tridentd/batch"
)

// refused lists the errors by which a broker denies access.
var refused = []*kerr.Error{
	kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
	kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
}

func isRefused(err error) bool {
	return slices.ContainsFunc(refused, func(k *kerr.Error) bool { return errors.Is(err, k) })
}

// transient makes a *batch.Error of a failed request: tried again by itself.
func transient(op string, err error) *batch.Error {
	if e, ok := errors.AsType[*batch.Error](err); ok {
		return e
	}
	switch {
	case isRefused(err):
		return batch.NewError(batch.Transient, batch.CodeUnauthorized, op, err, "grant this user the right to read and describe the topic")
	case errors.Is(err, context.DeadlineExceeded):
		return batch.NewError(batch.Transient, batch.CodeTimeout, op, err, "")
	default:
		return batch.NewError(batch.Transient, batch.CodeUnavailable, op, err, "")
	}
}

// unreachable is the failure of Open to learn anything from the cluster. Wrong credentials don't mend by trying again.
func (e *Emitter) unreachable(err error) *batch.Error {
	brokers := strings.Join(e.cfg.Brokers, ", ")
	if isRefused(err) {
		return batch.NewError(batch.Permanent, batch.CodeUnauthorized, "open", fmt.Errorf("brokers %s: %w", brokers, err),
			"check the user, the password and the rights on the topics")
	}
	if k, ok := errors.AsType[*batch.Error](err); ok && k.Op == opKerberos {
		return batch.NewError(k.Kind, k.Code, "open", fmt.Errorf("brokers %s: %w", brokers, k.Err), k.Remedy)
	}
	code := batch.CodeUnavailable
	if errors.Is(err, context.DeadlineExceeded) {
		code = batch.CodeTimeout
	}
	remedy := "check that the brokers run and can be reached from here"
	if errors.Is(err, io.EOF) {
		remedy = "check that the brokers' listener is meant for this way of connecting (TLS or not, SASL or not), and the user and the password"
	}
	return batch.NewError(batch.Transient, code, "open", fmt.Errorf("brokers %s: %w", brokers, err), remedy)
}

func outOfRange(p batch.Partition, next, start, end int64) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeOutOfRange, "read",
		fmt.Errorf("topic %s partition %d: wanted %d, available [%d,%d), %d lost", p.Topic, p.Number, next, start, end, start-next),
		"reset the position to the earliest available offset to go on without them, or restore the topic").At(p, next)
}

// truncated reports a log that was cut back below next. epoch is that of the last record read.
func truncated(p batch.Partition, next, end int64, epoch, nowEpoch int32) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeLogTruncated, "read",
		fmt.Errorf("the log of topic %s partition %d was cut back: had %d (leader epoch %s), now ends at %d (leader epoch %s)",
			p.Topic, p.Number, next, epochText(epoch), end, epochText(nowEpoch)),
		"records that were counted are gone from the topic, after an unclean leader election for example: reset the position, or start over from a savepoint").At(p, next)
}

// diverged reports a log whose records below next were replaced by others.
func diverged(p batch.Partition, next, common int64, epoch, nowEpoch int32) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeLogTruncated, "read",
		fmt.Errorf("the log of topic %s partition %d was cut back: had %d (leader epoch %s), only offsets below %d are still the same (leader epoch %s)",
			p.Topic, p.Number, next, epochText(epoch), common, epochText(nowEpoch)),
		"records that were counted were replaced by others, after an unclean leader election for example: reset the position, or start over from a savepoint").At(p, next)
}

func epochText(e int32) string {
	if e == batch.NoEpoch {
		return "unknown"
	}
	return fmt.Sprint(e)
}

func topicChanged(p batch.Partition, next int64, had, has string) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeTopicChanged, "read",
		fmt.Errorf("topic %s was deleted and made again: its id was %s, now it is %s; position %d of partition %d belongs to the old one", p.Topic, had, has, next, p.Number),
		"start over with an empty data directory, or reset the position to an offset of the new topic").At(p, next)
}

func (e *Emitter) topicMissing(topic, near string) *batch.Error {
	remedy := "create the topic, or correct its name; topics are never created by reading them"
	text := fmt.Errorf("topic %q does not exist at %s", topic, strings.Join(e.cfg.Brokers, ", "))
	if near != "" {
		text = fmt.Errorf("%w: did you mean %s?", text, near)
	}
	return batch.NewError(batch.Permanent, batch.CodeTopicMissing, "open", text, remedy).
		At(batch.Partition{Source: e.id, Topic: topic}, batch.NoOffset)
}

func topicGone(p batch.Partition, next int64) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeTopicMissing, "read", fmt.Errorf("topic %s was deleted", p.Topic),
		"take it off the list, or make it again and start over").At(p, next)
}

func unreplayable(r batch.Range, at int64, format string, args ...any) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "read",
		fmt.Errorf("topic %s partition %d [%d,%d) cannot be re-read: "+format, append([]any{r.Topic, r.Number, r.Start, r.End}, args...)...),
		"restore the topic's records, or start over from what is there").At(r.Partition, at)
}

func badBatch(p batch.Partition, offset int64, err error) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeBadRecord, "decode", err,
		"the broker holds a record batch that can't be read: check the topic with Kafka's own tools").At(p, offset)
}
