//go:build realkafka && realzk

package bench

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tridentd/tridentd/connect/zookeeper"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/testenv"
)

// BenchmarkDrainWithZooKeeper drains what waits by turns without and with a record in ZooKeeper, and tells how much longer it
// takes with it: the median over the pairs of the ratios of their times, and of the processor's time that they took, which other work on the machine
// disturbs less.
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
			drain := func(name string, k *testenv.KafkaServer, kept bool) (took, busy time.Duration) {
				dir := filepath.Join(b.TempDir(), name)
				if err := os.MkdirAll(dir, 0o755); err != nil {
					b.Fatal(err)
				}
				pl := pipeline(b, k, dir)
				if kept {
					pl.Keeper = engine.PlanKeeper(pl.Name, tc.change(zookeeper.New(z.Addr).Chroot(z.Chroot(b, "bench"))))
				}
				p := engine.Wrap(pl)
				began, before := time.Now(), processorTime(b)
				h, err := engine.Start(b.Context(), p, engine.Options{DataDir: dir, UntilCaughtUp: true, Fresh: true})
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Wait(); err != nil {
					b.Fatal(err)
				}
				took, busy = time.Since(began), processorTime(b)-before
				for _, m := range h.Status().Mirrors {
					if m.Err != nil || m.Pending {
						b.Fatalf("%s: %+v", m.Name, m)
					}
				}
				return took, busy
			}
			var ratios, busy []float64
			for i := 0; b.Loop(); i++ {
				var took, cpu [2]time.Duration // without, with
				for j := range took {
					at := (i + j) % 2 // either goes first by turns
					took[at], cpu[at] = drain(strconv.Itoa(2*i+j), k, at == 1)
				}
				ratios = append(ratios, took[1].Seconds()/took[0].Seconds())
				busy = append(busy, cpu[1].Seconds()/cpu[0].Seconds())
			}
			slices.Sort(ratios)
			slices.Sort(busy)
			b.ReportMetric(ratios[len(ratios)/2], "time-with/without")
			b.ReportMetric(busy[len(busy)/2], "cpu-with/without")
		})
	}
}

// processorTime is what this process has used so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
