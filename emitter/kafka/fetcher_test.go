package kafka

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// fill writes n records of about size bytes to a partition, a thousand a batch.
func (c *cluster) fill(topic string, partition int32, n, size int) {
	c.t.Helper()
	value := []byte(strings.Repeat("x", size))
	for n > 0 {
		recs := make([]*kgo.Record, min(n, 1000))
		for i := range recs {
			recs[i] = &kgo.Record{Topic: topic, Partition: partition, Value: value}
		}
		c.send(c.cl, recs...)
		n -= len(recs)
	}
}

// TestSmallPartitionsComeFirst is the second part of case G38: what is small is in the first batch, beside what is big.
func TestSmallPartitionsComeFirst(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(3, "t"))
	c.fill("t", 0, 20_000, 20)
	c.fill("t", 1, 10, 20)
	c.fill("t", 2, 1, 20)
	s := open(t, c.config("t"))
	<-s.Ready()
	for i, want := range []int64{1000, 10, 1} {
		r, ok := s.Plan(part("t", int32(i)), 0, emitter.Limit{Records: 1000})
		if !ok || r.End != want {
			t.Errorf("partition %d: planned %v, want [0,%d)", i, r, want)
		}
	}
}

// TestIdlePartitionsCostNothing is the first part of case G38, in requests: a hundred partitions of which one has
// data are read with about as many as one partition.
func TestIdlePartitionsCostNothing(t *testing.T) {
	requests := func(partitions int32) int {
		c := fakeCluster(t, kfake.SeedTopics(partitions, "t"))
		c.fill("t", partitions-1, 20_000, 100)
		h := c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Observe: true, Count: -1})
		s := open(t, c.config("t"))
		p := part("t", partitions-1)
		for from := int64(0); from < 20_000; {
			r, ok := s.Plan(p, from, emitter.Limit{})
			if !ok {
				<-s.Ready()
				continue
			}
			from = r.End
			s.Ack(1, []batch.Range{r})
		}
		return h.Hits()
	}
	one, hundred := requests(1), requests(100)
	if hundred > 2*one {
		t.Errorf("%d requests for 100 partitions, %d for one with the same data", hundred, one)
	}
}

// TestBuffersAreBounded: without planning, fetching stops at the bound; without Ack it goes on, slowly, as nothing
// else would ever free memory; Ack frees all.
func TestBuffersAreBounded(t *testing.T) {
	const parts, records = 4, 10_000
	c := fakeCluster(t, kfake.SeedTopics(parts, "t"))
	for i := range int32(parts) {
		c.fill("t", i, records, 100)
	}
	cfg := c.config("t")
	cfg.FetchMaxBytes, cfg.MaxBuffer = 128<<10, 512<<10
	s := open(t, cfg)
	last := int64(-1)
	s.eventually("standstill", func() bool {
		now := s.buffered.Load()
		still := now == last && now > 0
		last = now
		time.Sleep(50 * time.Millisecond)
		return still
	})
	slack := int64(parts * 256 << 10) // a record batch holds about 128 KiB here, and one more than asked for may come
	if last > cfg.MaxBuffer+slack {
		t.Fatalf("%d bytes are buffered, the bound is %d", last, cfg.MaxBuffer)
	}
	var ends []batch.Range
	for i := range int32(parts) {
		p := part("t", i)
		from := int64(0)
		s.eventually("end", func() bool {
			r, ok := s.Plan(p, from, emitter.Limit{})
			if ok {
				from = r.End
			}
			return from == records
		})
		ends = append(ends, batch.Range{Partition: p, End: from})
	}
	if got := s.buffered.Load(); got < parts*records*100 {
		t.Fatalf("%d bytes are buffered, nothing was acknowledged", got)
	}
	s.Ack(1, ends)
	if got := s.buffered.Load(); got != 0 {
		t.Fatalf("%d bytes are buffered after everything was acknowledged", got)
	}
	// All of it can be read again.
	n := 0
	if err := s.Read(t.Context(), batch.Range{Partition: part("t", 2), End: records}, func(c *batch.Chunk) error {
		n += len(c.Records)
		return nil
	}); err != nil || n != records {
		t.Fatalf("read %d records again, %v", n, err)
	}
}

// TestReplayInOrder: ranges read again one after the other cost one request for what one response holds.
func TestReplayInOrder(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "t"))
	c.fill("t", 0, 2000, 50)
	s := open(t, c.config("t"))
	p := part("t", 0)
	_, pos := s.read(p, 0, 2000)
	s.Ack(1, []batch.Range{{Partition: p, End: pos.Next}})
	h := c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Observe: true, Count: -1, When: func(r kmsg.Request) bool {
		return r.(*kmsg.FetchRequest).MaxWaitMillis == int32(minWait.Milliseconds())
	}})
	for at := int64(0); at < 2000; at += 10 {
		if got := s.values(batch.Range{Partition: p, Start: at, End: at + 10, Identity: pos.Identity}); len(got) != 10 {
			t.Fatalf("[%d,%d): %d records", at, at+10, len(got))
		}
	}
	if h.Hits() > 4 {
		t.Errorf("%d requests for 200 ranges within one response", h.Hits())
	}
}

// TestReplayAtOnce: several ranges in flight, each acknowledged when it has been read, cost hardly more than one after the other,
// and every record comes once, in the right range.
func TestReplayAtOnce(t *testing.T) {
	const records, size, pending = 2000, 10, 4
	c := fakeCluster(t, kfake.SeedTopics(1, "t"))
	c.fill("t", 0, records, 50)
	s := open(t, c.config("t"))
	p := part("t", 0)
	_, pos := s.read(p, 0, records)
	s.Ack(1, []batch.Range{{Partition: p, End: pos.Next}})
	h := c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Observe: true, Count: -1, When: func(r kmsg.Request) bool {
		return r.(*kmsg.FetchRequest).MaxWaitMillis == int32(minWait.Milliseconds())
	}})
	slots := make(chan struct{}, pending)
	var wg sync.WaitGroup
	for at := int64(0); at < records; at += size {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			r := batch.Range{Partition: p, Start: at, End: at + size, Identity: pos.Identity}
			next := r.Start
			err := s.Read(t.Context(), r, func(c *batch.Chunk) error {
				for i := range c.Records {
					if c.Records[i].Offset != next {
						t.Errorf("[%d,%d): offset %d where %d is due", r.Start, r.End, c.Records[i].Offset, next)
					}
					next++
				}
				return nil
			})
			if err != nil || next != r.End {
				t.Errorf("[%d,%d): %v at %d", r.Start, r.End, err, next)
			}
			s.Ack(2, []batch.Range{r})
		})
	}
	wg.Wait()
	// Readers that overtake each other fetch for themselves; most don't.
	if h.Hits() > records/size/4 {
		t.Errorf("%d requests for %d ranges within one response", h.Hits(), records/size)
	}
}

func benchmarkRead(b *testing.B, partitions int32, busy ...int32) {
	const records, size = 400_000, 80
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "t"))
	if err != nil {
		b.Fatal(err)
	}
	defer fake.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	value := []byte(strings.Repeat("x", size))
	for i := range records {
		cl.Produce(b.Context(), &kgo.Record{Topic: "t", Partition: busy[i%len(busy)], Value: value}, nil)
	}
	if err := cl.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var total int64
	for range b.N {
		e, err := New("src", Config{Brokers: fake.ListenAddrs(), Topics: []string{"t"}}, emitter.Env{Logger: hclog.NewNullLogger()})
		if err != nil {
			b.Fatal(err)
		}
		starts, err := e.Open(b.Context(), nil, true)
		if err != nil {
			b.Fatal(err)
		}
		e.Admit(starts)
		parts := e.Partitions()
		next := make([]int64, len(parts))
		var bytes int64
		for n := 0; n < records; {
			before := n
			var ranges []batch.Range
			for i, p := range parts {
				r, ok := e.Plan(p, next[i], emitter.Limit{Records: 50_000})
				if !ok {
					continue
				}
				next[i] = r.End
				ranges = append(ranges, r)
				if err := e.Read(b.Context(), r, func(c *batch.Chunk) error {
					n += len(c.Records)
					for j := range c.Records {
						bytes += int64(len(c.Records[j].Value))
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			e.Ack(1, ranges)
			if n == before {
				<-e.Ready()
			}
		}
		if bytes != records*size {
			b.Fatalf("%d bytes", bytes)
		}
		total += records
		if err := e.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkRead(b *testing.B) { benchmarkRead(b, 4, 0, 1, 2, 3) }

// BenchmarkReadOne and BenchmarkReadOneOfHundred are case G38: the second takes less than twice as long.
func BenchmarkReadOne(b *testing.B)          { benchmarkRead(b, 1, 0) }
func BenchmarkReadOneOfHundred(b *testing.B) { benchmarkRead(b, 100, 99) }
