package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/bench/workload"
)

// latencyRate is how many records are sent in a second.
const latencyRate = 1000

// sending is one record's way: when it was sent, and when the broker had it.
type sending struct {
	partition   int32
	offset      int64
	sent, acked int64 // nanoseconds since 1970
	failed      error
}

// latency sends records one by one at an even rate. When each was committed, and synced, is what our process noted.
func latency(ctx context.Context, b *bench) (err error) {
	b.say("\nlatency: %d records/s for %d s", latencyRate, b.seconds)
	const partitions = 4
	topic, remove, err := b.liveTopic(ctx, "latency", partitions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	dir := filepath.Join(b.dir, topic)
	defer os.RemoveAll(dir) //nolint:errcheck // only room on the disk is lost
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := b.waitQuiet(ctx); err != nil {
		return err
	}
	commits, data := filepath.Join(dir, "commits.txt"), filepath.Join(dir, "data")
	n := latencyRate * b.seconds
	before, err := b.usage(os.Getpid()) // which is the generator
	if err != nil {
		return err
	}
	us, err := b.start(ctx, filepath.Join(dir, "ours.log"), b.bin("ours"), "-brokers", b.kafka.address, "-topic", topic, "-dir", data, "-live", "-n", fmt.Sprint(n), "-commits", commits)
	if err != nil {
		return err
	}
	stopped := false
	defer func() {
		if !stopped {
			err = errors.Join(err, us.stop())
		}
	}()
	if _, err := us.until(ctx, startLimit, "READY"); err != nil {
		return err
	}
	all, err := b.produceEvenly(ctx, topic, n, partitions)
	if err != nil {
		return err
	}
	if _, err := us.until(ctx, extraLimit, "RESULT"); err != nil {
		return err
	}
	after, err := b.usage(us.cmd.Process.Pid)
	if err != nil {
		return err
	}
	stopped = true
	if err := us.stop(); err != nil {
		return err
	}
	done, err := readCommits(commits, partitions)
	if err != nil {
		return err
	}
	produced, committed, err := waits(all, done)
	if err != nil {
		return err
	}
	disk, err := size(data)
	if err != nil {
		return err
	}
	own, err := processorTime(os.Getpid())
	if err != nil {
		return err
	}
	after.own += own
	disturbed := others(before, after) > quietShare
	warm := latencyRate // the first second
	if len(produced) <= warm {
		warm = 0
	}
	p, c := produced[warm:], committed[warm:]
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
		name := fmt.Sprintf("p%g", 100*q)
		b.figure("latency", "produce to acknowledged, "+name, quantile(p, q), "ms")
		b.figure("latency", "produce to committed and synced, "+name, quantile(c, q), "ms")
	}
	if minute := 60 * latencyRate; len(c) >= 2*minute {
		b.figure("latency", "p99 in the first minute", quantile(c[:minute], 0.99), "ms")
		b.figure("latency", "p99 in the last minute", quantile(c[len(c)-minute:], 0.99), "ms")
	}
	b.figure("latency", "data directory in the end", float64(disk)/(1<<20), "MB")
	b.atMost("latency, p50", quantile(c, 0.5), 2, "ms", disturbed)
	b.atMost("latency, p99, of the broker's own", quantile(c, 0.99)/quantile(p, 0.99), 2, "times", disturbed)
	return nil
}

// produceEvenly sends n records, each by itself.
func (b *bench) produceEvenly(ctx context.Context, topic string, n int, partitions int32) ([]sending, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.kafka.address), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	g := workload.NewGenerator(workload.Spec{Kind: workload.Views, Records: int64(n), Partitions: partitions})
	all := make([]sending, n)
	began := time.Now()
	for i := range all {
		if wait := time.Until(began.Add(time.Duration(i) * time.Second / latencyRate)); wait > 0 {
			time.Sleep(wait)
		}
		v, part := g.Next(nil)
		s := &all[i]
		s.sent = time.Now().UnixNano()
		cl.Produce(ctx, &kgo.Record{Value: v, Partition: part}, func(r *kgo.Record, err error) {
			s.acked, s.partition, s.offset, s.failed = time.Now().UnixNano(), r.Partition, r.Offset, err
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].failed != nil {
			return nil, all[i].failed
		}
	}
	return all, nil
}

// commit is when a partition's records before end were committed.
type commit struct{ end, at int64 }

// readCommits reads what ours noted: by partition, in the order of offsets.
func readCommits(name string, partitions int) ([][]commit, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	out := make([][]commit, partitions)
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var part int
		var c commit
		if _, err := fmt.Sscan(sc.Text(), &part, &c.end, &c.at); err != nil || part < 0 || part >= partitions {
			return nil, fmt.Errorf("%s: %q", name, sc.Text())
		}
		out[part] = append(out[part], c)
	}
	return out, nil
}

// waits are the records' times until they were acknowledged and until they were committed, in milliseconds, in the order
// in which they were sent.
func waits(all []sending, done [][]commit) (produced, committed []float64, err error) {
	const milli = float64(time.Millisecond)
	for _, s := range all {
		cs := done[s.partition]
		i, _ := slices.BinarySearchFunc(cs, s.offset+1, func(c commit, offset int64) int { return int(c.end - offset) })
		if i == len(cs) {
			return nil, nil, fmt.Errorf("partition %d, offset %d: no commit was noted", s.partition, s.offset)
		}
		produced = append(produced, float64(s.acked-s.sent)/milli)
		committed = append(committed, float64(cs[i].at-s.sent)/milli)
	}
	return produced, committed, nil
}

// quantile of nothing is 0.
func quantile(vs []float64, q float64) float64 {
	if len(vs) == 0 {
		return 0
	}
	vs = slices.Sorted(slices.Values(vs))
	return vs[int(q*float64(len(vs)-1))]
}

// size is what the files below dir hold.
func size(dir string) (int64, error) {
	var n int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err == nil {
			n += fi.Size()
		}
		return err
	})
	return n, err
}
