// Command ours runs tridentd on a topic of the benchmark, as a user's program would, and says what it did.
//
// It drains what waits, or with -live goes on until it is told to stop. On standard output come, one a line:
//
//	READY                       batches can begin
//	FIRST ms                    the first new batch has been committed, synced
//	AT ms n                     so many records are committed; about every 100 ms, with -live
//	RESULT {…}                  -n records are committed (package workload)
//
// Times are milliseconds since 1970.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/metrics"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/spec"
)

type flags struct {
	brokers, topic, dir, totals, commits, job, group, zookeeper, table, changes, profile string
	n                                                                                    int64
	live, metrics                                                                        bool
}

func main() {
	var f flags
	flag.StringVar(&f.brokers, "brokers", "127.0.0.1:9092", "a broker")
	flag.StringVar(&f.topic, "topic", "", "the topic")
	flag.StringVar(&f.dir, "dir", "", "the data directory")
	flag.StringVar(&f.totals, "totals", "", "file for the totals")
	flag.StringVar(&f.commits, "commits", "", "file for when which offsets were committed: lines 'partition end nanoseconds'")
	flag.StringVar(&f.job, "job", "yaml", strings.Join(jobNames(), ", "))
	flag.StringVar(&f.group, "group", "", "the group that offsets are shown in; off: none")
	flag.StringVar(&f.zookeeper, "zookeeper", "", "HOST:PORT/PATH: keeps a record there, too")
	flag.StringVar(&f.table, "table", "", "job lookup: the static table, CSV")
	flag.StringVar(&f.changes, "changes", "digests", "what the ledger keeps of a batch's changes")
	flag.StringVar(&f.profile, "cpuprofile", "", "file for a profile of the processor's time")
	flag.Int64Var(&f.n, "n", 0, "records after which the result is told")
	flag.BoolVar(&f.live, "live", false, "go on until told to stop")
	flag.BoolVar(&f.metrics, "metrics", false, "keep metrics")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := f.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "ours: %v\n", err)
		os.Exit(1) //nolint:gocritic // nothing is deferred that matters
	}
}

func (f *flags) run(ctx context.Context) (err error) {
	if f.profile != "" {
		out, err := os.Create(f.profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(out); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	w := &watch{began: time.Now(), before: allocs(), want: f.n, live: f.live}
	if f.commits != "" {
		if err := w.logInto(f.commits); err != nil {
			return err
		}
		defer func() {
			if e := w.closeLog(); err == nil {
				err = e
			}
		}()
	}
	p, err := f.pipeline()
	if err != nil {
		return err
	}
	o := engine.Options{DataDir: f.dir, UntilCaughtUp: !f.live, Fresh: true, Observer: w, Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr})}
	if f.metrics {
		o.Registerer = prometheus.NewRegistry()
	}
	h, err := engine.Start(context.WithoutCancel(ctx), p, o)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		h.Drain()
	case <-h.Done():
	}
	if err := h.Wait(); err != nil || f.totals == "" {
		return err
	}
	return f.dump(context.WithoutCancel(ctx), p)
}

// pipeline is the job as it is declared in YAML, or written in Go.
func (f *flags) pipeline() (*engine.Pipeline, error) {
	if f.job == "go" {
		src := kafka.New(strings.Split(f.brokers, ",")...).Topics(f.topic)
		switch f.group {
		case "":
		case "off":
			src = src.NoMirror()
		default:
			src = src.Group(f.group)
		}
		return views(src), nil
	}
	text, err := f.yaml()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(f.dir, f.job+".yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	s, err := spec.Load(file, spec.Options{})
	if err != nil {
		return nil, err
	}
	pl, err := s.Plan()
	if err != nil {
		return nil, err
	}
	return engine.Wrap(pl), nil
}

func allocs() int64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() + s[1].Value.Uint64())
}
