package txstate

import (
	"context"

	"github.com/tridentd/tridentd/batch"
)

// Shown is what a mirror's server holds of one partition, whoever wrote it.
type Shown struct {
	batch.Partition
	Next  int64
	Txid  batch.Txid  // the batch that had moved it; 0 if that is unknown, or none had
	Epoch batch.Epoch // of the master that wrote it; 0 if that is unknown
	// By says who wrote it where that wasn't this source of this pipeline: "somebody else", "pipeline other". It is
	// empty for the pipeline's own.
	By string
	// Metadata is what else was written with it, as it stands there; empty where there is no such thing.
	Metadata string
}

// Showing is a Mirror whose server can be asked for everything that it holds, also what others wrote.
type Showing interface {
	Mirror
	// Shown lists what is held for the source's partitions, in batch.Partition order. It changes nothing.
	Shown(ctx context.Context) ([]Shown, error)
}

// Exporting is a Mirror that can be set on purpose to what the store holds.
type Exporting interface {
	Mirror
	// Export writes the positions after txid over whatever is held, also backwards and over what others wrote, and returns
	// once that has been acknowledged. It is called on a mirror that is told nothing else, while the pipeline is at rest.
	Export(ctx context.Context, txid batch.Txid, epoch batch.Epoch, positions []SavedPosition) error
}
