package txstate

import (
	"context"

	"github.com/tridentd/tridentd/batch"
)

// Observing is a Mirror that shows the batch at work, too.
type Observing interface {
	Mirror
	// Begun is told each beginning of a batch. It doesn't block.
	Begun(txid batch.Txid, attempt batch.Attempt)
}

// Gate keeps batches from committing for a time: a mirror that must not lag far behind, a lock whose session is in
// doubt.
type Gate interface {
	// Pass returns nil when batches may be planned and committed: at once if nothing is in the way, otherwise when it is
	// gone. It fails when ctx ends, or with a permanent *batch.Error if they never may again in this run.
	Pass(ctx context.Context) error
}

// Lock says which of several processes may run a pipeline.
//
// No check of a lock is atomic with a write elsewhere. What it promises: a master that was deposed changes nothing
// outside its private directory (what lies outside is conditional on the epoch that the lock gave out), and plans and
// commits nothing once it can know.
type Lock interface {
	// Name says what and where, for logs and metrics.
	Name() string
	// Acquire takes the lock. If another process holds it, it waits for as long as ctx lasts where wait is set, and
	// fails with CodeLockHeld otherwise, naming the holder.
	Acquire(ctx context.Context, wait bool) (Lease, error)
	// Holder says who holds the lock, as far as known, from memory; empty if nobody is known to.
	Holder() string
	// Close gives up what is held or waited for.
	Close(ctx context.Context) error
}

// Lease is a lock that is held.
type Lease interface {
	Gate
	// Epoch is the highest epoch that anybody has claimed under the lock. The run takes a higher one.
	Epoch() batch.Epoch
	// Claim writes the run's epoch under the lock, on condition that it is still held.
	Claim(ctx context.Context, epoch batch.Epoch) error
	// Lost is closed once the lock is known, or must be assumed, to be lost: at the latest when the session's time-out
	// has passed without an answer, by the local clock. It isn't closed by a short loss of the connection.
	Lost() <-chan struct{}
	// Err says why, once Lost is closed: CodeLockLost.
	Err() error
	// Release gives the lock up.
	Release(ctx context.Context) error
}

// Confirming is a Lease that can be asked afresh.
type Confirming interface {
	Lease
	// Confirm is Pass, except that it waits for an answer to a question asked after the call: it doesn't rely on the clock.
	Confirm(ctx context.Context) error
}

// Leased is a Mirror that can write under a lease.
type Leased interface {
	Mirror
	// Under is called before anything else, if at all. Each write then waits until the lease lets it pass, none follows once
	// the lease is lost, and the servers are asked to refuse what a master that doesn't know yet that it is deposed still sends.
	Under(lease Lease)
}
