package coordinator

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
)

// However the settings are, a back-off lies between Min and Max, never shrinks by more than its jitter (and a
// rounding to milliseconds) as failures go on, comes near Max, and is always the same for the same failure.
func TestBackoffProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := func(name string, lo int) time.Duration {
			return time.Duration(rapid.IntRange(lo, 100_000).Draw(t, name)) * time.Millisecond
		}
		r := Retry{Min: ms("min", 1)}
		r.Max = r.Min + ms("more", 0)
		seed, txid := rapid.Uint64().Draw(t, "seed"), batch.Txid(rapid.Uint64().Draw(t, "txid"))
		var last time.Duration
		for n := uint32(1); n <= 40; n++ {
			d := r.backoff(seed, txid, n)
			if d < r.Min || d > r.Max {
				t.Fatalf("failure %d waits %s, outside [%s, %s]", n, d, r.Min, r.Max)
			}
			if d+time.Millisecond < last*3/4 {
				t.Fatalf("failure %d waits %s, the one before %s", n, d, last)
			}
			if again := r.backoff(seed, txid, n); again != d {
				t.Fatalf("failure %d waits %s, then %s", n, d, again)
			}
			last = d
		}
		if last+time.Millisecond < r.Max*3/4 {
			t.Fatalf("after 40 failures the wait is %s of %s", last, r.Max)
		}
	})
}

func TestBackoffIsJittered(t *testing.T) {
	r := Config{}.withDefaults().Retry
	for n := uint32(1); n <= 12; n++ {
		seen := map[time.Duration]bool{}
		for txid := range batch.Txid(100) {
			seen[r.backoff(seedOf(1, txid), txid, n)] = true
		}
		if len(seen) < 10 {
			t.Errorf("failure %d of 100 batches has %d different waits", n, len(seen))
		}
	}
}

// The attempts that a back-off stands for must not stop growing at an overflow.
func TestBackoffOfManyFailures(t *testing.T) {
	r := Config{}.withDefaults().Retry
	if d := r.backoff(1, 1, 1<<31); d < r.Max*3/4 || d > r.Max {
		t.Errorf("wait %s", d)
	}
}

func TestSeedsDiffer(t *testing.T) {
	seen := map[uint64]batch.Txid{}
	for base := range uint64(3) {
		for txid := batch.Txid(1); txid <= 10_000; txid++ {
			s := seedOf(base, txid)
			if other, ok := seen[s]; ok {
				t.Fatalf("txids %d and %d have the same seed", other, txid)
			}
			seen[s] = txid
		}
	}
	if again := seedOf(7, 1); again != seedOf(7, 1) {
		t.Error("a seed is not repeated")
	}
}
