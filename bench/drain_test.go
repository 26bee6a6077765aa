//go:build realkafka

// Package bench measures the engine on a real Kafka: bench/README.md has the figures and how they were taken.
package bench

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/spec"
)

var records = flag.Int("bench.records", 400_000, "records to drain")

const (
	partitions = 4
	users      = 100_000
)

var (
	load  sync.Once
	topic string
	total int64 // sum of n over all records
)

// loaded produces the records once: JSON of 64 to 80 bytes, users by Zipf's law.
func loaded(b *testing.B) *testenv.KafkaServer {
	b.Helper()
	k := testenv.Kafka(b)
	load.Do(func() {
		topic = testenv.Unique("bench")
		k.Tool(b, "topics", "--create", "--topic", topic, "--partitions", strconv.Itoa(partitions))
		cl, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(200_000), kgo.ProducerLinger(20*time.Millisecond))
		if err != nil {
			b.Fatal(err)
		}
		defer cl.Close()
		rng := rand.New(rand.NewPCG(1, 2))
		zipf := rand.NewZipf(rng, 1.1, 1, users-1)
		var failed error
		for i := range *records {
			n := int64(i % 10)
			total += n
			v := fmt.Appendf(nil, `{"user":"u%06d","page":"/p/%04d","ms":%d,"n":%d}`, zipf.Uint64(), rng.IntN(10_000), 1_700_000_000_000+i, n)
			cl.Produce(context.Background(), &kgo.Record{Value: v, Partition: int32(i % partitions)}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed = err
				}
			})
		}
		if err := cl.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}
		if failed != nil {
			b.Fatal(failed)
		}
	})
	return k
}

func pipeline(b *testing.B, k *testenv.KafkaServer, dir string) *plan.Plan {
	b.Helper()
	file := filepath.Join(dir, "views.yaml")
	text := fmt.Sprintf(`pipeline: views
sources:
  views:
    kafka: {brokers: ["%s"], topics: [%s]}
    decode: json
    types: {user: string, n: int}
streams:
  by_user:
    from: views
    steps:
      - group_by: [user]
      - aggregate: {views: count(), total: sum(n)}
`, strings.Join(k.Brokers(), `", "`), topic)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	p, err := spec.Load(file, spec.Options{})
	if err != nil {
		b.Fatal(err)
	}
	pl, err := p.Plan()
	if err != nil {
		b.Fatal(err)
	}
	return pl
}

// BenchmarkDrain runs the declared job over everything that waits, with synced commits.
func BenchmarkDrain(b *testing.B) {
	k := loaded(b)
	for i := 0; b.Loop(); i++ {
		dir := filepath.Join(b.TempDir(), strconv.Itoa(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		p := engine.Wrap(pipeline(b, k, dir))
		before := measure()
		h, err := engine.Start(b.Context(), p, engine.Options{DataDir: dir, UntilCaughtUp: true, Fresh: true})
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Wait(); err != nil {
			b.Fatal(err)
		}
		report(b, before)
		check(b, p, dir)
	}
}

// check runs the pipeline once more, with nothing to do, and compares the totals.
func check(b *testing.B, p *engine.Pipeline, dir string) {
	b.Helper()
	b.StopTimer()
	defer b.StartTimer()
	h, err := engine.Start(b.Context(), p, engine.Options{DataDir: dir})
	if err != nil {
		b.Fatal(err)
	}
	type row struct {
		Views int64
		Total int64
	}
	rows, _, err := engine.ReadState[string, row](b.Context(), h, "by_user")
	if err != nil {
		b.Fatal(err)
	}
	var got row
	for _, r := range rows { // a sum: the order doesn't matter
		got.Views += r.Views
		got.Total += r.Total
	}
	if got.Views != int64(*records) || got.Total != total {
		b.Fatalf("counted %d records with a total of %d, want %d and %d", got.Views, got.Total, *records, total)
	}
	h.Drain()
	if err := h.Wait(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRead reads the same records through the emitter alone: what there is to reach.
func BenchmarkRead(b *testing.B) {
	k := loaded(b)
	for b.Loop() {
		pl := pipeline(b, k, b.TempDir())
		before := measure()
		readAll(b, pl)
		report(b, before)
	}
}

func readAll(b *testing.B, pl *plan.Plan) {
	b.Helper()
	em, err := pl.Sources[0].Open(emitter.Env{Logger: hclog.NewNullLogger()})
	if err != nil {
		b.Fatal(err)
	}
	defer em.Close(context.Background()) //nolint:errcheck // it only reads
	starts, err := em.Open(b.Context(), nil, true)
	if err != nil {
		b.Fatal(err)
	}
	em.Admit(starts)
	next := map[int32]int64{}
	var seen int64
	for txid := uint64(1); seen < int64(*records); {
		moved := false
		for _, p := range em.Partitions() {
			r, ok := em.Plan(p, next[p.Number], emitter.Limit{Records: plan.DefaultMaxRecords, Bytes: 4 << 20})
			if !ok {
				continue
			}
			moved = true
			err := em.Read(b.Context(), r, func(c *batch.Chunk) error { seen += int64(len(c.Records)); return nil })
			if err != nil {
				b.Fatal(err)
			}
			next[p.Number] = r.End
			em.Ack(batch.Txid(txid), []batch.Range{r})
			txid++
		}
		if !moved {
			<-em.Ready()
		}
	}
}

// figures are what the process had used at some point.
type figures struct {
	at      time.Time
	mallocs uint64
}

func measure() figures {
	runtime.GC()
	resetPeak()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return figures{time.Now(), m.Mallocs}
}

func report(b *testing.B, before figures) {
	took := time.Since(before.at).Seconds()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	n := float64(*records)
	b.ReportMetric(n/took/1e6, "Mrecords/s")
	b.ReportMetric(float64(m.Mallocs-before.mallocs)/n, "allocs/record")
	b.ReportMetric(peakMB(), "peak-MB")
}

// resetPeak begins a new measurement of the resident set's peak, where the system can.
func resetPeak() {
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}

// peakMB is the resident set's peak since then; NaN if unknown.
func peakMB() float64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return math.NaN()
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			if err == nil {
				return kb / 1024
			}
		}
	}
	return math.NaN()
}
