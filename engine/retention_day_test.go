//go:build crash

package engine

import (
	"os"
	"testing"

	"github.com/tridentd/tridentd/internal/plan"
)

// TestLedgerDay commits the batches of a day at ten a second, or a share of them.
func TestLedgerDay(t *testing.T) {
	batches := 60_000
	if os.Getenv("TRIDENTD_TEST_FULL") != "" {
		batches = 864_000
	}
	sizedLedger(t, plan.Ledger{MaxAge: -1, MaxBytes: 2 << 20}, batches)
}
