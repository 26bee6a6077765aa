package bench

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/spec"
)

// BenchmarkG38 drains the same records from the only partition of a topic, and from the last of a hundred of which
// the others are empty. The metric ratio of the second must stay below 2: partitions without data cost nothing.
func BenchmarkG38(b *testing.B) {
	var alone time.Duration
	for _, partitions := range []int32{1, 100} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			p := idlePipeline(b, partitions)
			var took time.Duration
			for b.Loop() {
				began := time.Now()
				h, err := engine.Start(b.Context(), p, engine.Options{DataDir: b.TempDir(), UntilCaughtUp: true})
				if err == nil {
					err = h.Wait()
				}
				if err != nil {
					b.Fatal(err)
				}
				took += time.Since(began)
				if n := h.Status().Last.Counts.Read; n == 0 {
					b.Fatal("the last batch read nothing")
				}
			}
			took /= time.Duration(b.N)
			b.ReportMetric(idleRecords/took.Seconds()/1e6, "Mrecords/s")
			if partitions == 1 {
				alone = took
			} else if alone > 0 {
				b.ReportMetric(float64(took)/float64(alone), "ratio")
			}
		})
	}
}

const idleRecords = 200_000

// idlePipeline counts a topic of an embedded Kafka whose records are all in the last partition.
func idlePipeline(b *testing.B, partitions int32) *engine.Pipeline {
	b.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "t"),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) { return net.Listen(network, "127.0.0.1:0") }))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(fake.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(idleRecords))
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	recs := make([]*kgo.Record, idleRecords)
	for i := range recs {
		recs[i] = &kgo.Record{Topic: "t", Partition: partitions - 1, Value: fmt.Appendf(nil, "user-%05d", i%10_000)}
	}
	if err := cl.ProduceSync(b.Context(), recs...).FirstErr(); err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.TempDir(), "users.yaml")
	text := fmt.Sprintf(`pipeline: users
sources:
  users:
    kafka: {brokers: ["%s"], topics: [t], group: off}
    decode: string
streams:
  counts:
    from: users
    steps:
      - group_by: [value]
      - aggregate: {n: count()}
`, strings.Join(fake.ListenAddrs(), `", "`))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	sp, err := spec.Load(file, spec.Options{})
	if err != nil {
		b.Fatal(err)
	}
	pl, err := sp.Plan()
	if err != nil {
		b.Fatal(err)
	}
	return engine.Wrap(pl)
}
