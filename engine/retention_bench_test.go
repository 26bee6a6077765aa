package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/tridentd/tridentd/internal/plan"
)

// BenchmarkLedgerCommit is a synced commit of one small batch, in a new store and in one whose ledger has been trimmed
// over and over.
func BenchmarkLedgerCommit(b *testing.B) {
	for _, before := range []int{0, 100_000} {
		b.Run(fmt.Sprint("behind ", before), func(b *testing.B) {
			w := newLedgerWorld(b, plan.Ledger{MaxAge: -1, MaxBytes: 2 << 20})
			w.r.every = 0
			for done := 0; done < before; done += 500 {
				w.commit(500, 100*time.Millisecond)
				w.pass()
			}
			var longest time.Duration
			n := 0
			for b.Loop() {
				began := time.Now()
				w.commit(1, 100*time.Millisecond)
				longest = max(longest, time.Since(began))
				if n++; n%500 == 0 {
					w.pass()
				}
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		})
	}
}
