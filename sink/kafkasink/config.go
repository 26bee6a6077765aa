package kafkasink

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
)

// Defaults of Config.
const (
	DefaultTransactionTimeout = time.Minute
	DefaultTimeout            = 30 * time.Second
	DefaultMaxRecordBytes     = 1_000_012 // what brokers take by default (message.max.bytes), less a batch's header
)

// refreshEvery is the time between two writes of an unchanged progress: offsets of groups without members expire.
const refreshEvery = time.Hour

// Config says where to write. Zero fields keep their defaults; Pipeline, Sink and Topic have none.
type Config struct {
	Pipeline, Sink string
	// Topic is that of records that name none. The progress is kept as an offset of its partition 0.
	Topic string
	// Client are the options of the connection.
	Client []kgo.Opt
	// Compression of the records sent: none, gzip, snappy, lz4, zstd; empty: none.
	Compression string
	// TransactionTimeout is after what the brokers give up a transaction whose producer is gone. It must be within their
	// transaction.max.timeout.ms, and above what sending a batch takes.
	TransactionTimeout time.Duration
	// MaxRecordBytes bounds a record, with its key and headers.
	MaxRecordBytes int32
	// Head returns what stands in front of each record's value that isn't null: the id of its schema. It is asked at each claim. It is no part of
	// what the digests are over. nil: nothing does.
	Head func(ctx context.Context) ([]byte, error)
	// Timeout bounds each step that needs the brokers' answer.
	Timeout time.Duration
	Logger  hclog.Logger
}

// TransactionalID is that of a pipeline's sink.
func TransactionalID(pipeline, name string) string { return "tridentd.sink." + pipeline + "." + name }

// Group is the consumer group that holds a sink's progress. No name of a pipeline or a sink has a dot.
func Group(pipeline, name string) string { return "tridentd.sink." + pipeline + "." + name }

func configError(field, remedy, format string, args ...any) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "kafka sink", fmt.Errorf("%s: "+format, append([]any{field}, args...)...), remedy)
}

var codecs = map[string]kgo.CompressionCodec{
	"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (c *Config) validate() error {
	if c.Topic == "" {
		return configError("topic", "name the topic to write to", "none is given")
	}
	if _, ok := codecs[c.Compression]; !ok {
		return configError("compression", "write none, gzip, snappy, lz4 or zstd", "%q is unknown", c.Compression)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"transaction_timeout", int64(c.TransactionTimeout)}, {"timeout", int64(c.Timeout)}, {"max_record_bytes", int64(c.MaxRecordBytes)},
	} {
		if f.value < 0 {
			return configError(f.name, "give a positive value, or leave it out", "%d is negative", f.value)
		}
	}
	if c.TransactionTimeout == 0 {
		c.TransactionTimeout = DefaultTransactionTimeout
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxRecordBytes == 0 {
		c.MaxRecordBytes = DefaultMaxRecordBytes
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return nil
}
