//go:build realkafka

package kafkasink

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/sinktest"
)

// topic is a topic of a real broker, with a sink's progress.
type topic struct {
	t    *testing.T
	addr string
	name string
	cfg  Config
}

func newTopic(t *testing.T, k *testenv.KafkaServer, partitions int32) *topic {
	t.Helper()
	name := k.Topic(t, "sink", partitions, nil)
	return &topic{t: t, addr: k.Addr, name: name, cfg: Config{
		Pipeline: "p-" + name, Sink: "out", Topic: name, Client: []kgo.Opt{kgo.SeedBrokers(k.Addr)}, Timeout: 20 * time.Second,
	}}
}

func (p *topic) Open() (sink.Sink, error) {
	s, err := New(p.cfg)
	if err != nil {
		return nil, err
	}
	p.t.Cleanup(s.drop)
	return s, nil
}

// Records reads the topic to its end, as read_committed does.
func (p *topic) Records(ctx context.Context) ([]sink.Record, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(p.addr), kgo.ConsumeTopics(p.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	// What a commit or an abort has decided shows once its markers are written, a moment later.
	for id := TransactionalID(p.cfg.Pipeline, p.cfg.Sink); ; {
		txns, err := kadm.NewClient(client).DescribeTransactions(ctx, id)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(txns[id].State, "Prepare") {
			break
		}
		time.Sleep(settling)
	}
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, p.name)
	if err != nil {
		return nil, err
	}
	stable, err := kadm.NewClient(client).ListCommittedOffsets(ctx, p.name)
	if err != nil {
		return nil, err
	}
	var all []sink.Record
	left := map[int32]int64{}
	stable.Each(func(o kadm.ListedOffset) {
		if e, ok := ends.Lookup(o.Topic, o.Partition); ok && e.Offset != o.Offset {
			p.t.Logf("partition %d: an open transaction at %d, end %d", o.Partition, o.Offset, e.Offset)
		}
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		fs := client.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return nil, err
		}
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if r.Attrs.IsControl() {
				return
			}
			rec := sink.Record{Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				rec.Headers = append(rec.Headers, batch.Header{Key: h.Key, Value: h.Value})
			}
			all = append(all, rec)
		})
	}
	return all, nil
}

func TestConformance(t *testing.T) {
	k := testenv.Kafka(t)
	sinktest.Run(t, func(t *testing.T) sinktest.Target { return newTopic(t, k, 3) })
}
