// Command load fills a topic with the records of a workload, and writes down what must come out of them. A topic that
// holds them already is left as it is. With -rate it makes a topic of its own and goes on at that pace.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/bench/workload"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "load: %v\n", err)
		os.Exit(1) //nolint:gocritic // nothing is deferred that matters
	}
}

func run(ctx context.Context) error {
	var s workload.Spec
	brokers := flag.String("brokers", "127.0.0.1:9092", "a broker")
	kind := flag.String("kind", string(workload.Views), "views or lines")
	flag.Int64Var(&s.Records, "n", 4_000_000, "records")
	partitions := flag.Int("partitions", 4, "partitions")
	flag.Int64Var(&s.Users, "users", 0, "users; 0: the default")
	flag.BoolVar(&s.Uniform, "uniform", false, "users in equal shares")
	topic := flag.String("topic", "", "the topic; default: a name made from the workload")
	expect := flag.String("expect", "", "file for what must come out")
	rate := flag.Int("rate", 0, "records a second, made in batches that are prepared beforehand; 0: as fast as it goes, each once")
	more := flag.Bool("more", false, "append to a topic that has records")
	flag.Parse()
	s.Kind, s.Partitions = workload.Kind(*kind), int32(*partitions)
	if *topic == "" {
		*topic = s.Topic()
	}
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(*brokers, ",")...), kgo.DefaultProduceTopic(*topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(400_000), kgo.ProducerLinger(20*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	have, err := create(ctx, cl, *topic, s.Partitions)
	if err != nil {
		return err
	}
	if *rate > 0 {
		return pace(ctx, cl, s, *topic, *rate)
	}
	if have == s.Records && !*more && *expect != "" {
		if _, err := workload.ReadExpected(*expect); err == nil {
			fmt.Printf("topic %s holds its %d records already\n", *topic, have)
			return nil
		}
	}
	if have > 0 && have != s.Records && !*more {
		return fmt.Errorf("topic %s holds %d records, not %d: delete it, or give another name by -topic", *topic, have, s.Records)
	}
	began := time.Now()
	e, err := fill(ctx, cl, s, have == 0 || *more)
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	fmt.Printf("loaded %d records into %s in %.1f s (%.0f records/s)\n", s.Records, *topic, took, float64(s.Records)/took)
	if *expect == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(*expect), 0o755); err != nil {
		return err
	}
	return e.Save(*expect)
}

// create makes the topic, and returns how many records it holds if it was there.
func create(ctx context.Context, cl *kgo.Client, topic string, partitions int32) (int64, error) {
	adm := kadm.NewClient(cl)
	_, err := adm.CreateTopic(ctx, partitions, 1, nil, topic)
	if err == nil {
		return 0, nil
	}
	if !errors.Is(err, kerr.TopicAlreadyExists) {
		return 0, err
	}
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	if err := ends.Error(); err != nil {
		return 0, err
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, nil
}

// fill makes all records, and sends them if told so.
func fill(ctx context.Context, cl *kgo.Client, s workload.Spec, send bool) (workload.Expected, error) {
	g := workload.NewGenerator(s)
	failed := make(chan error, 1)
	for range s.Records {
		v, part := g.Next(make([]byte, 0, 80))
		if !send {
			continue
		}
		cl.Produce(ctx, &kgo.Record{Value: v, Partition: part}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return workload.Expected{}, err
	}
	select {
	case err := <-failed:
		return workload.Expected{}, err
	default:
		return g.Expected(), nil
	}
}
