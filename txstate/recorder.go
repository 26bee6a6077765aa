package txstate

import (
	"context"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// Point is where a store stands after a batch.
type Point struct {
	Txid      batch.Txid
	Epoch     batch.Epoch // of the master that tells it
	Time      time.Time   // the clock of batch Txid; zero before the first
	Chain     uint64      // as Entry.Chain
	Positions []SavedPosition
}

// Standing is the store that a record is held against.
type Standing struct {
	// Store tells the store apart from any other, of the same pipeline too; copies of it have the same.
	Store string
	Empty bool // no batch has ever committed, and nothing is recorded or admitted
	Txid  batch.Txid
	Chain uint64
	Epoch batch.Epoch // the highest claimed
	// Positions holds every partition that was ever admitted, in batch.Partition order.
	Positions []SavedPosition
	// ChainAt returns the chain of a committed batch; ok is false if the ledger doesn't reach back to it.
	ChainAt func(ctx context.Context, txid batch.Txid) (chain uint64, ok bool, err error)
}

// Recorder is a Mirror that keeps the master's whole record: where the store stands and the batch at work. It is told
// Points in place of what Committed is told.
type Recorder interface {
	Observing
	// Reconcile holds what is kept against the store, before anything else is told. A permanent error means that the run
	// must not go on: what is kept is newer than the store, or somebody else's, and is left as it is. A transient one, that it
	// can't be told yet and the run must wait. nil: it may go on; if the server couldn't be asked, that is made up for later,
	// and Broken tells what is found then. It writes nothing.
	Reconcile(ctx context.Context, s Standing) error
	// Advance hands over where the store stands: at the start, then after each batch. It doesn't block; the latest
	// wins. The recorder may keep the positions and must not change them.
	Advance(p Point)
	// ExportPoint writes where the given store stands over whatever is held, also backwards and over what others wrote, and
	// returns once that has been acknowledged. It is called on a recorder that is told nothing else.
	ExportPoint(ctx context.Context, store string, p Point) error
	// Broken is closed once the run must end, as Err says.
	Broken() <-chan struct{}
	// Err is the permanent error that Broken was closed for; nil before that.
	Err() error
}
