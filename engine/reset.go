package engine

import (
	"context"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// Move is one partition that is set by hand.
type Move = exec.Move

// Reset sets positions of a pipeline at rest, whose store is open for writing: offsets are skipped or processed again on
// purpose. It is a ledger entry of its own, which it returns, in one synced write with the positions; the next run goes on
// from there.
func Reset(ctx context.Context, p *Pipeline, db *pebblestate.DB, moves []Move) (txstate.Entry, error) {
	pl, err := p.Plan()
	if err != nil {
		return txstate.Entry{}, err
	}
	return exec.Reset(ctx, db, moves, exec.ResetOptions{Build: Build(), PlanSum: xxhash.Sum64String(pl.Text), Now: time.Now()})
}
