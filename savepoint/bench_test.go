package savepoint_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/savepoint"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate/txstatetest"
)

var keys = flag.Int("bench.keys", 100_000, "keys of the store that savepoints are made of")

const (
	perBatch = 5_000
	// pace is the time from the beginning of one commit to that of the next, if the disk allows.
	pace = 50 * time.Millisecond
)

// BenchmarkCreate makes savepoints of a store while batches of 5,000 random keys commit. pause-ms is the longest that commits were
// held back, the others are how long commits took, without a savepoint and with one: beside the pause they share the machine with
// the reading of the copy.
func BenchmarkCreate(b *testing.B) {
	dir := filepath.Join(b.TempDir(), pipeline)
	var pauses pauses
	log := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Debug})
	log.RegisterSink(&pauses)
	db, err := pebblestate.Open(b.Context(), pebblestate.Options{Dir: dir, Pipeline: pipeline, CreateIfMissing: true, Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // it isn't used any more
	l := &load{db: db, rng: rand.New(rand.NewPCG(1, 1))}
	for first := 0; first < *keys; first += 100_000 {
		l.commit(b, func(yield func(int) bool) {
			for k := first; k < min(first+100_000, *keys); k++ {
				if !yield(k) {
					return
				}
			}
		})
	}

	p := savepoint.At(b.TempDir(), pipeline)
	var without, with []time.Duration
	var info savepoint.Info
	for b.Loop() {
		began := time.Now()
		with = append(with, l.during(b, func() {
			info, err = p.Create(b.Context(), "", dir, time.Now(), func(ctx context.Context, to string) error {
				_, err := db.Checkpoint(ctx, to)
				return err
			})
			if err != nil {
				b.Error(err)
			}
		})...)
		took := time.Since(began)
		b.StopTimer()
		if err := p.Remove(b.Context(), info.Name); err != nil {
			b.Fatal(err)
		}
		without = append(without, l.during(b, func() { time.Sleep(took) })...)
		b.StartTimer()
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(float64(info.Bytes)/(1<<20), "MiB")
	b.ReportMetric(ms(slices.Max(pauses.all)), "pause-ms")
	b.ReportMetric(ms(share(without, 0.5)), "without-median-ms")
	b.ReportMetric(ms(share(without, 1)), "without-max-ms")
	b.ReportMetric(ms(share(with, 0.5)), "with-median-ms")
	b.ReportMetric(ms(share(with, 1)), "with-max-ms")
}

// pauses are what a store says of how long commits waited for its checkpoints.
type pauses struct{ all []time.Duration }

// Accept implements hclog.SinkAdapter.
func (p *pauses) Accept(_ string, _ hclog.Level, _ string, args ...any) {
	if i := slices.Index(args, any("commits_waited")); i >= 0 {
		p.all = append(p.all, args[i+1].(time.Duration))
	}
}

// share is the value that a share of the others don't exceed.
func share(all []time.Duration, of float64) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[int(of*float64(len(all)-1))]
}

// load commits batches.
type load struct {
	db   *pebblestate.DB
	rng  *rand.Rand
	txid batch.Txid
}

// during commits batches of random keys while f is at work, and at least once, and returns how long each took.
func (l *load) during(b *testing.B, f func()) (all []time.Duration) {
	var wg sync.WaitGroup
	end := make(chan struct{})
	wg.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for {
			all = append(all, l.commit(b, func(yield func(int) bool) {
				for range perBatch {
					if !yield(l.rng.IntN(*keys)) {
						return
					}
				}
			}))
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	})
	f()
	close(end)
	wg.Wait()
	return all
}

// commit writes keys and returns how long the store took for that.
func (l *load) commit(b *testing.B, keys func(yield func(int) bool)) time.Duration {
	l.txid++
	s := &state.WriteSet{State: "s", Shards: make([][]state.Write, l.db.Shards())}
	for k := range keys {
		key := fmt.Appendf(nil, "user-%012d", k)
		i := state.ShardOf(key, l.db.Shards())
		s.Shards[i] = append(s.Shards[i], state.Write{Op: state.Set, Key: key, Value: binary.BigEndian.AppendUint64(nil, l.rng.Uint64())})
	}
	for i, ws := range s.Shards {
		slices.SortFunc(ws, func(a, b state.Write) int { return slices.Compare(a.Key, b.Key) })
		s.Shards[i] = slices.CompactFunc(ws, func(a, b state.Write) bool { return slices.Equal(a.Key, b.Key) })
		s.Writes += int64(len(s.Shards[i]))
	}
	e, positions := txstatetest.Simple(l.txid, 1)
	began := time.Now()
	if err := l.db.Commit(b.Context(), []pebblestate.Commit{{Entry: e, Positions: positions, Sets: []*state.WriteSet{s}}}); err != nil {
		b.Error(err)
	}
	return time.Since(began)
}
