package kafka

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/kafka"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/kafkasink"
)

// Target writes a stream's values to a topic, those of each batch in one transaction: an engine.Target. Readers with
// isolation.level=read_committed find each batch whole and once. Its methods return changed copies.
//
// Values with a key go to the partition that Kafka's own clients would choose; of those without, a batch's go to one partition.
type Target[T any] struct {
	cluster *Cluster
	cfg     kafkasink.Config
	form    string
	err     error
	encode  func(v T, r *sink.Record) error
	topic   func(T) string
	headers func(T) []batch.Header
}

// JSON writes values as JSON objects with the fields that codec.JSON reads: snake_case names, or those that tags say. A value that is
// no struct is an array, a string or whatever it is in JSON. The record's key is text: a string or []byte as it is, what marshals
// itself to text, numbers and booleans in digits and words. key nil leaves records without one. A sink creates no topics.
func JSON[T, K any](c *Cluster, topic string, key func(T) K) Target[T] {
	t := newTarget[T](c, topic, "json")
	enc, err := codec.EncodeJSON[T]()
	if err != nil {
		t.err = batch.NewError(batch.Permanent, batch.CodeConfiguration, "kafka", fmt.Errorf("topic %s: value: %w", topic, err), "give the type fields that JSON can hold")
	}
	keyed, err := codec.EncodeText[K]()
	if key != nil && err != nil {
		t.err = batch.NewError(batch.Permanent, batch.CodeConfiguration, "kafka", fmt.Errorf("topic %s: key: %w", topic, err), "make the key a string")
	}
	if t.err != nil {
		return t
	}
	t.encode = func(v T, r *sink.Record) (err error) {
		if key != nil {
			if r.Key, err = keyed(nil, key(v)); err != nil {
				return fmt.Errorf("key: %w", err)
			}
		}
		r.Value, err = enc(nil, v)
		return err
	}
	return t
}

// Records writes the records that encode makes of values. Key and Value are null unless it sets them.
func Records[T any](c *Cluster, topic string, encode func(v T, r *sink.Record) error) Target[T] {
	t := newTarget[T](c, topic, "records")
	t.encode = encode
	return t
}

func newTarget[T any](c *Cluster, topic, form string) Target[T] {
	return Target[T]{cluster: c, cfg: kafkasink.Config{Topic: topic}, form: form, err: c.err}
}

// TopicBy writes each value to the topic that f names; the target's own where that is "". The sink's progress stays with the target's
// own topic, which must exist.
func (t Target[T]) TopicBy(f func(T) string) Target[T] { t.topic = f; return t }

// Headers adds headers to each record.
func (t Target[T]) Headers(f func(T) []batch.Header) Target[T] { t.headers = f; return t }

// Compression of the records: none (the default), gzip, snappy, lz4, zstd.
func (t Target[T]) Compression(name string) Target[T] { t.cfg.Compression = name; return t }

// TransactionTimeout is after what the brokers give up a batch's transaction whose producer is gone, and within which a batch must be
// sent; the default is a minute.
func (t Target[T]) TransactionTimeout(d time.Duration) Target[T] {
	t.cfg.TransactionTimeout = d
	return t
}

// MaxRecordBytes bounds a record. The default is what brokers take by default, about a million.
func (t Target[T]) MaxRecordBytes(n int32) Target[T] { t.cfg.MaxRecordBytes = n; return t }

// Describe names the topic and the form of the records.
func (t Target[T]) Describe() string {
	what := []string{"kafka topic " + t.cfg.Topic, t.form}
	if t.topic != nil {
		what[0] = "kafka topics by value, else " + t.cfg.Topic
	}
	return strings.Join(what, ", ")
}

// Encode makes a record of a value.
func (t Target[T]) Encode(v T, r *sink.Record) error {
	if t.err != nil {
		return t.err
	}
	if err := t.encode(v, r); err != nil {
		return err
	}
	if t.topic != nil {
		r.Topic = t.topic(v)
	}
	if t.headers != nil {
		r.Headers = append(r.Headers, t.headers(v)...)
	}
	return nil
}

// Open returns the sink of one run. It contacts nobody.
func (t Target[T]) Open(pipeline, name string, env emitter.Env) (sink.Sink, error) {
	if t.err != nil {
		return nil, t.err
	}
	return NewSink(t.cluster.cfg, t.cfg, pipeline, name, env)
}

// Check implements doctor.Checker.
func (t Target[T]) Check(ctx context.Context, env doctor.Env) []doctor.Finding {
	if t.err != nil {
		return []doctor.Finding{doctor.Of("kafka", t.err)}
	}
	return CheckSink(ctx, t.cluster.cfg, t.cfg, env.Pipeline, env.Sink)
}

// Transactions returns those that the cluster holds for the pipeline's sinks. It contacts nobody.
func (t Target[T]) Transactions(pipeline, name string) (sink.Transactions, error) {
	if t.err != nil {
		return nil, t.err
	}
	return SinkTransactions(t.cluster.cfg, t.cfg, pipeline, name)
}

// SinkTransactions are those of the cluster of a pipeline's sink.
func SinkTransactions(cluster kafka.Config, cfg kafkasink.Config, pipeline, name string) (sink.Transactions, error) {
	cfg, err := sinkConfig(cluster, cfg, pipeline, name, hclog.NewNullLogger())
	if err != nil {
		return nil, err
	}
	return kafkasink.Transactions(cfg)
}

// sinkConfig completes a sink's settings by those of its cluster.
func sinkConfig(cluster kafka.Config, cfg kafkasink.Config, pipeline, name string, log hclog.Logger) (kafkasink.Config, error) {
	if len(cluster.Brokers) == 0 {
		return cfg, batch.NewError(batch.Permanent, batch.CodeConfiguration, "kafka sink", fmt.Errorf("brokers: none are given"), "name the cluster's brokers as host:port")
	}
	opts, err := cluster.ClientOptions(log)
	if err != nil {
		return cfg, err
	}
	cfg.Pipeline, cfg.Sink, cfg.Client, cfg.Logger = pipeline, name, opts, log
	if cfg.Timeout == 0 {
		cfg.Timeout = cluster.Timeout
	}
	return cfg, nil
}

// CheckSink asks the cluster of a sink whether the sink can be written.
func CheckSink(ctx context.Context, cluster kafka.Config, cfg kafkasink.Config, pipeline, name string) []doctor.Finding {
	cfg, err := sinkConfig(cluster, cfg, pipeline, name, hclog.NewNullLogger())
	if err != nil {
		return []doctor.Finding{doctor.Of("kafka sink "+name, err)}
	}
	return kafkasink.Check(ctx, cfg)
}

// NewSink makes the sink name of a pipeline, which writes to a cluster.
func NewSink(cluster kafka.Config, cfg kafkasink.Config, pipeline, name string, env emitter.Env) (sink.Sink, error) {
	cfg, err := sinkConfig(cluster, cfg, pipeline, name, env.Logger)
	if err != nil {
		return nil, err
	}
	s, err := kafkasink.New(cfg)
	if err != nil {
		return nil, err
	}
	return s, nil
}
