package spec

import (
	"fmt"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/txstate"
)

// usersPipeline is the job of count and sum per user.
func usersPipeline(types string) string {
	return `
pipeline: users
sources:
  s: {kafka: {brokers: ["localhost:9092"], topics: [t]}, decode: json` + types + `}
streams:
  totals:
    from: s
    steps:
      - group_by: [user]
      - aggregate: {n: count(), total: sum(n)}
`
}

func userRecords(n int) []batch.Record {
	recs := make([]batch.Record, n)
	for i := range recs {
		user := uint32(i) * 2654435761 % 100_000
		recs[i] = batch.Record{Offset: int64(i), Value: fmt.Appendf(nil, `{"user":"user-%06d","page":"/p/%04d","ms":%d,"n":%d}`, user, i%1000, 1_700_000_000_000+i, i%100)}
	}
	return recs
}

// BenchmarkTask measures a task without its source and without the state: decoding, steps, combining.
func BenchmarkTask(b *testing.B) {
	words := make([]batch.Record, 20_000)
	for i := range words {
		words[i] = batch.Record{Offset: int64(i), Value: fmt.Appendf(nil, "the quick brown fox jumps over lazy dog number %d", i%5000)}
	}
	for _, c := range []struct {
		name, file string
		recs       []batch.Record
	}{
		{"users/declared", usersPipeline(", types: {user: string, n: int}"), userRecords(50_000)},
		{"users/undeclared", usersPipeline(""), userRecords(50_000)},
		{"users/filter", usersPipeline(", types: {user: string, n: int}") + `
  some:
    from: s
    steps:
      - filter: n > 10 && user != "user-000001" && n < 95
      - set:
          big: n * 10
      - group_by: [user]
      - aggregate: {worst: max(big), mean: avg(n)}
`, userRecords(50_000)},
		{"words", `
pipeline: words
sources:
  s: {kafka: {brokers: ["localhost:9092"], topics: [t]}, decode: string}
streams:
  counts:
    from: s
    steps:
      - flat_map:
          word: split(lower(value), " ")
      - filter: word != ""
      - group_by: [word]
      - aggregate: {n: count()}
`, words},
	} {
		b.Run(c.name, func(b *testing.B) {
			p, err := Parse("p.yaml", []byte(c.file), Options{})
			if err != nil {
				b.Fatal(err)
			}
			pl, err := p.Plan()
			if err != nil {
				b.Fatal(err)
			}
			task := pl.Sources[0].NewTask()
			tc := &plan.TaskContext{
				Batch: &batch.Batch{Txid: 1, Time: time.Unix(1_700_000_000, 0)}, EventTime: txstate.NoTime, Watermarks: []int64{txstate.NoTime},
			}
			for range pl.Exchanges {
				tc.Out = append(tc.Out, new(plan.Deltas))
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, d := range tc.Out {
					d.Reset(plan.DefaultShards)
				}
				if err := task.Begin(tc); err != nil {
					b.Fatal(err)
				}
				for recs := c.recs; len(recs) > 0; recs = recs[min(len(recs), 5000):] {
					if err := task.Process(&batch.Chunk{Records: recs[:min(len(recs), 5000)]}); err != nil {
						b.Fatal(err)
					}
				}
				if err := task.End(); err != nil {
					b.Fatal(err)
				}
			}
			perRecord := float64(b.Elapsed().Nanoseconds()) / float64(b.N*len(c.recs))
			b.ReportMetric(perRecord, "ns/record")
			b.ReportMetric(1e3/perRecord, "M-records/s")
		})
	}
}
