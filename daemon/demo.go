package daemon

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/gen"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/spec"
)

//go:embed demo.yaml
var demoFile []byte

const (
	demoTopic      = "views"
	demoPartitions = 4
	demoBrokersVar = "TRIDENTD_DEMO_BROKERS"
)

func (a *app) demoCommand() *cobra.Command {
	var f runFlags
	var dir string
	var rate int
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "A complete pipeline on an embedded Kafka; nothing to install",
		Long: "demo starts an embedded Kafka and a producer of page views, and counts them by user and by page, exactly once. Ctrl-C ends\n" +
			"it, kill -9 crashes it; start it again and it goes on. While it runs, or afterwards, ask it from another terminal.",
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rate < 1 {
				return usagef("--rate %d: at least one record a second", rate)
			}
			ctx := cmd.Context()
			if length > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, length)
				defer cancel()
			}
			s, end := newStopper(ctx, f.logger(a.err))
			defer end()
			return a.demo(ctx, dir, rate, &f, s)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "tridentd-demo", "directory for the embedded Kafka, the pipeline's file and its data")
	cmd.Flags().IntVar(&rate, "rate", 1000, "page views a second")
	cmd.Flags().DurationVar(&length, "for", 0, "how long to run (default: until Ctrl-C)")
	runFlagsOf(cmd, &f)
	cmd.Flags().Lookup("log-level").DefValue = "warn"
	f.logLevel = "warn"
	return cmd
}

func (a *app) demo(ctx context.Context, dir string, rate int, f *runFlags, s *stopper) error {
	if err := f.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unlock, err := lockDemo(dir)
	if err != nil {
		return err
	}
	defer unlock()
	file := filepath.Join(dir, "demo.yaml")
	if err := os.WriteFile(file, demoFile, 0o644); err != nil {
		return err
	}
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.DataDir(filepath.Join(dir, "kafka")), kfake.SyncWrites(),
		kfake.SeedTopics(demoPartitions, demoTopic),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) { return net.Listen(network, "127.0.0.1:0") }))
	if err != nil {
		return fmt.Errorf("the embedded Kafka: %w", err)
	}
	defer cluster.Close()
	brokers := cluster.ListenAddrs()[0]

	sp, err := spec.Load(file, spec.Options{Env: func(name string) (string, bool) {
		if name == demoBrokersVar {
			return brokers, true
		}
		return os.LookupEnv(name)
	}})
	if err != nil {
		return err
	}
	pl, err := sp.Plan()
	if err != nil {
		return err
	}
	root := filepath.Join(dir, "tridentd-data")
	t := &target{pipeline: engine.Wrap(pl), root: root, dir: filepath.Join(root, pl.Name)}

	fmt.Fprintf(a.err, "An embedded Kafka on %s takes %s page views a second; their pipeline is %s.\n", brokers, grouped(int64(rate)), file)
	fmt.Fprintf(a.err, "In another terminal:\n\n    tridentd query %s by_page\n    tridentd status %s\n    tridentd ledger %s\n\nCtrl-C ends it; started again, it goes on.\n\n", file, file, file)

	producing, stopProducing := context.WithCancel(ctx)
	defer stopProducing()
	failed := make(chan error, 1)
	go func() {
		err := produceViews(producing, brokers, rate)
		if err != nil && producing.Err() == nil {
			s.ask()
		} else {
			err = nil
		}
		failed <- err
	}()
	err = a.run(ctx, t, f, s)
	stopProducing()
	if perr := <-failed; perr != nil {
		err = errors.Join(err, fmt.Errorf("producing page views: %w", perr))
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.err, "\nIts results stay:\n\n    tridentd query %s by_page\n", file)
	return nil
}

// lockDemo keeps a second demo out of the directory: the embedded Kafka has no lock of its own.
func lockDemo(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close() //nolint:errcheck // nothing was written
		return nil, fmt.Errorf("%s is in use by another demo; end it, or choose another --dir", dir)
	}
	return func() { f.Close() }, nil //nolint:errcheck // nothing was written
}

// produceViews produces made-up page views at a rate, going on where the topic ends: the view at an offset is always
// the same.
func produceViews(ctx context.Context, brokers string, rate int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.DefaultProduceTopic(demoTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, demoTopic)
	if err != nil {
		return err
	}
	if err := ends.Error(); err != nil {
		return err
	}
	kind, ok := gen.Named("users")
	if !ok {
		panic("daemon: no kind users of generated records")
	}
	kind.Partitions = demoPartitions
	views, err := gen.New(kind).Open(demoTopic, emitter.Lines, emitter.Env{})
	if err != nil {
		return err
	}
	defer views.Close(context.Background()) //nolint:errcheck // it holds nothing
	starts, err := views.Open(ctx, nil, true)
	if err != nil {
		return err
	}
	var next [demoPartitions]int64
	ends.Each(func(o kadm.ListedOffset) {
		if o.Partition < demoPartitions {
			next[o.Partition] = o.Offset
		}
	})
	var failure atomic.Pointer[error]
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for sent := int64(0); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		due := int64(time.Since(began).Seconds()*float64(rate)) - sent
		for i := range next {
			n := due / demoPartitions
			if i < int(due%demoPartitions) {
				n++
			}
			if n == 0 {
				continue
			}
			r := batch.Range{Partition: starts[i].Partition, Identity: starts[i].Identity, Start: next[i], End: next[i] + n}
			err := views.Read(ctx, r, func(c *batch.Chunk) error {
				for j := range c.Records {
					rec := &kgo.Record{Partition: int32(i), Value: append([]byte(nil), c.Records[j].Value...)}
					cl.Produce(ctx, rec, func(_ *kgo.Record, err error) {
						if err != nil {
							failure.Store(&err)
						}
					})
				}
				return nil
			})
			if err != nil {
				return err
			}
			next[i] += n
		}
		sent += due
		if err := failure.Load(); err != nil {
			return *err
		}
	}
}
