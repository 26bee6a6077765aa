package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/kafka"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/deadletter"
)

// DeadLetters writes dead letters to a topic, for engine.DeadLetters: each is the record as it was, with headers added. The topic must
// exist.
func (c *Cluster) DeadLetters(topic string) Target[*deadletter.Letter] {
	t := newTarget[*deadletter.Letter](c, topic, "dead letters")
	t.encode = EncodeLetter
	return t
}

// EncodeLetter makes r the record that a topic has of a letter.
func EncodeLetter(l *deadletter.Letter, r *sink.Record) error {
	l.Record(r)
	return nil
}

// ReadLetters passes on the dead letters that the target's topic holds of a pipeline.
func (t Target[T]) ReadLetters(ctx context.Context, env emitter.Env, pipeline string, yield func(*deadletter.Letter) error) error {
	if t.err != nil {
		return t.err
	}
	return ReadLetters(ctx, t.cluster.cfg, t.cfg.Topic, env, pipeline, yield)
}

// ReadLetters passes on the dead letters that a topic holds of a pipeline, partition by partition, up to the end that each has when it is
// called. Letters of transactions that are open or were aborted aren't there, nor are records that are no letters.
func ReadLetters(ctx context.Context, cluster kafka.Config, topic string, env emitter.Env, pipeline string, yield func(*deadletter.Letter) error) error {
	cl, err := client(cluster, env.Logger, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	var ends kadm.ListedOffsets
	if err == nil {
		ends, err = adm.ListCommittedOffsets(ctx, topic)
	}
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return lettersError(topic, err)
	}
	var parts []int32
	ends.Each(func(o kadm.ListedOffset) { parts = append(parts, o.Partition) })
	slices.Sort(parts)
	for _, p := range parts {
		from, _ := starts.Lookup(topic, p)
		to, _ := ends.Lookup(topic, p)
		if from.Offset >= to.Offset {
			continue
		}
		cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().At(from.Offset)}})
		if err := readLetters(ctx, cl, to.Offset, pipeline, yield); err != nil {
			return err
		}
		cl.RemoveConsumePartitions(map[string][]int32{topic: {p}})
	}
	return nil
}

// readLetters reads the partition that the client consumes to before an offset.
func readLetters(ctx context.Context, cl *kgo.Client, end int64, pipeline string, yield func(*deadletter.Letter) error) error {
	for {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return batch.NewError(batch.Transient, batch.CodeOf(err), "reading dead letters", err, "see to the cluster and try again")
		}
		for it := fs.RecordIter(); !it.Done(); {
			r := it.Next()
			if r.Offset < end && !r.Attrs.IsControl() {
				if err := letterOf(r, pipeline, yield); err != nil {
					return err
				}
			}
			if r.Offset+1 >= end {
				return nil
			}
		}
	}
}

func letterOf(r *kgo.Record, pipeline string, yield func(*deadletter.Letter) error) error {
	var headers []batch.Header
	for _, h := range r.Headers {
		headers = append(headers, batch.Header{Key: h.Key, Value: h.Value})
	}
	l, err := deadletter.Parse(r.Key, r.Value, headers)
	switch {
	case errors.Is(err, deadletter.ErrNoLetter):
		return nil // others may write there, too
	case err != nil:
		return batch.NewError(batch.Permanent, batch.CodeBadRecord, "reading dead letters", err, "find out who changes the records").At(batch.Partition{Topic: r.Topic, Number: r.Partition}, r.Offset)
	case l.Pipeline != pipeline:
		return nil
	}
	return yield(l)
}

func lettersError(topic string, err error) error {
	return batch.NewError(batch.Transient, batch.CodeOf(err), "reading dead letters", fmt.Errorf("topic %s: %w", topic, err), "make sure that the topic exists, that the cluster is up, and that this user may read it")
}

func client(cluster kafka.Config, logger hclog.Logger, opts ...kgo.Opt) (*kgo.Client, error) {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	all, err := cluster.ClientOptions(logger)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(slices.Clone(all), opts...)...)
	if err != nil {
		return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "kafka", err, "correct the client's options")
	}
	return cl, nil
}

var _ emitter.Resending = Source{}

// Resend implements emitter.Resending.
func (s Source) Resend(ctx context.Context, env emitter.Env, records []emitter.Resent) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	return Resend(ctx, s.cfg, env, records)
}

// Resend sends records to topics of a cluster, which must exist, in no transaction: see emitter.Resending.
func Resend(ctx context.Context, cluster kafka.Config, env emitter.Env, records []emitter.Resent) (int, error) {
	byKey := kgo.StickyKeyPartitioner(nil)
	cl, err := client(cluster, env.Logger, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		keyed := byKey.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			if r.Partition >= 0 && int(r.Partition) < n {
				return int(r.Partition)
			}
			return keyed.Partition(r, n)
		}
	})))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	sending := make([]*kgo.Record, len(records))
	for i := range records {
		r := &records[i]
		sending[i] = &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
		if r.Timestamp != 0 {
			sending[i].Timestamp = time.UnixMilli(r.Timestamp)
		}
		for _, h := range r.Headers {
			sending[i].Headers = append(sending[i].Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	sent := 0
	for _, res := range cl.ProduceSync(ctx, sending...) {
		if res.Err == nil {
			sent++
		} else if err == nil {
			err = res.Err
		}
	}
	if err != nil {
		err = batch.NewError(batch.Transient, batch.CodeOf(err), "sending", err, "see to the cluster, and to the rights on the topic")
	}
	return sent, err
}
