// Command ceiling does the benchmark's job by hand: what a loop can reach with the same libraries, on the same disk, from
// the same broker, once everything that isn't this one job has been left out. Its state is as durable and as exact as the
// engine's: a batch's totals and the offsets they come from are one synced Pebble write.
//
// Each worker has some of the partitions. It fetches the next records while it counts the ones before; counts go into a
// table by user that has no object per record or per user; a full table is sorted and handed to the writer, and the worker
// goes on with another. It knows nothing else: no other data, no failure, no replay, no other broker.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/tridentd/tridentd/bench/workload"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "ceiling: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	brokers := flag.String("brokers", "127.0.0.1:9092", "a broker")
	topic := flag.String("topic", "", "the topic")
	dir := flag.String("dir", "", "where the state goes; must not exist")
	totals := flag.String("totals", "", "file for the totals")
	perBatch := flag.Int64("batch", 200_000, "records of one worker in one batch")
	flag.Parse()

	began, before := time.Now(), allocs()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(*brokers, ",")...))
	if err != nil {
		return err
	}
	defer cl.Close()
	src, err := open(ctx, cl, *topic)
	if err != nil {
		return err
	}
	db, err := pebble.Open(*dir, &pebble.Options{
		Merger: sums, MemTableSize: 64 << 20, Logger: quiet{}, FormatMajorVersion: pebble.FormatNewest,
	})
	if err != nil {
		return err
	}
	workers := min(runtime.GOMAXPROCS(0), len(src.ends))
	w := &writer{db: db}
	g, ctx := errgroup.WithContext(ctx)
	for i := range workers {
		g.Go(func() error {
			wk := &worker{src: src, out: w, perBatch: *perBatch}
			for p := i; p < len(src.ends); p += workers {
				wk.parts = append(wk.parts, int32(p))
			}
			return wk.run(ctx)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := (workload.Result{
		Records: w.records.Load(), First: began.UnixMilli(), Commit: time.Now().UnixMilli(), Batches: w.batches.Load(), Allocs: allocs() - before,
	}).Print(os.Stdout); err != nil {
		return err
	}
	if *totals != "" {
		if err := dump(db, *totals); err != nil {
			return err
		}
	}
	return db.Close()
}

// quiet keeps Pebble from writing what it does to the terminal.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...)) // Pebble can't go on
}

func allocs() int64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() + s[1].Value.Uint64())
}

// dump writes the totals of all users.
func dump(db *pebble.DB, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{keyPrefix}, UpperBound: []byte{keyPrefix + 1}})
	if err != nil {
		return err
	}
	var buf []byte
	for it.First(); it.Valid(); it.Next() {
		v := it.Value()
		buf = workload.AppendLine(buf, string(it.Key()[1:]), workload.Total{
			Count: int64(binary.BigEndian.Uint64(v)), Sum: int64(binary.BigEndian.Uint64(v[8:])),
		})
		if len(buf) > 1<<20 {
			if _, err := f.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	if err := it.Close(); err != nil {
		return err
	}
	if _, err := f.Write(buf); err != nil {
		return err
	}
	return f.Close()
}
