//go:build realkafka && realzk

package bench

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tridentd/tridentd/connect/zookeeper"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/testenv"
)

// BenchmarkDrainWithZooKeeper drains what waits by turns without and with a record in ZooKeeper, and tells how much longer it
// takes with it: the median over the pairs of the ratio of their times.
func BenchmarkDrainWithZooKeeper(b *testing.B) {
	k, z := loaded(b), testenv.ZooKeeper(b)
	for _, tc := range []struct {
		name   string
		change func(*zookeeper.Keeper) *zookeeper.Keeper
	}{
		{"every 2s", func(k *zookeeper.Keeper) *zookeeper.Keeper { return k }},
		{"each batch", func(k *zookeeper.Keeper) *zookeeper.Keeper { return k.UpdateInterval(0) }},
		{"stall", func(k *zookeeper.Keeper) *zookeeper.Keeper { return k.Stall() }},
		{"stall, each batch", func(k *zookeeper.Keeper) *zookeeper.Keeper { return k.Stall().UpdateInterval(0) }},
	} {
		b.Run(tc.name, func(b *testing.B) {
			drain := func(name string, k *testenv.KafkaServer, kept bool) time.Duration {
				dir := filepath.Join(b.TempDir(), name)
				if err := os.MkdirAll(dir, 0o755); err != nil {
					b.Fatal(err)
				}
				pl := pipeline(b, k, dir)
				if kept {
					pl.Keeper = engine.PlanKeeper(pl.Name, tc.change(zookeeper.New(z.Addr).Chroot(z.Chroot(b, "bench"))))
				}
				p := engine.Wrap(pl)
				began := time.Now()
				h, err := engine.Start(b.Context(), p, engine.Options{DataDir: dir, UntilCaughtUp: true, Fresh: true})
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Wait(); err != nil {
					b.Fatal(err)
				}
				took := time.Since(began)
				for _, m := range h.Status().Mirrors {
					if m.Err != nil || m.Pending {
						b.Fatalf("%s: %+v", m.Name, m)
					}
				}
				return took
			}
			var ratios []float64
			for i := 0; b.Loop(); i++ {
				var took [2]time.Duration
				for j := range took {
					kept := (i+j)%2 == 1 // either goes first by turns
					d := drain(strconv.Itoa(2*i+j), k, kept)
					if kept {
						took[1] = d
					} else {
						took[0] = d
					}
				}
				ratios = append(ratios, took[1].Seconds()/took[0].Seconds())
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "with/without")
		})
	}
}
