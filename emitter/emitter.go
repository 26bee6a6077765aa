// Package emitter defines where batches come from.
//
// An emitter owns the partitions of one source. It plans offset ranges from what it has already fetched, and
// reads any recorded range again exactly: the same records in the same order, or an error with
// batch.CodeUnreplayable that names partition and range. It never skips, and never goes on from another offset
// than the one it is given.
//
// The engine calls Open once, then Plan for one batch at a time, and meanwhile Read from as many goroutines as it
// likes: several ranges of one partition may be read at once, and while a later one is planned. Clients live in the folders below; emittertest is the conformance suite that each of them passes.
package emitter

import (
	"context"

	"github.com/tridentd/tridentd/batch"
)

// Limit bounds one partition's range in one batch. Zero means no bound.
type Limit struct {
	Records int64
	Bytes   int64 // raw bytes of keys, values and headers; a single larger record still makes a range
}

// Status is what an emitter knows about one partition without asking anybody.
type Status struct {
	Partition batch.Partition
	// End is the offset after the last record that can be read (Kafka: the last stable offset); -1 if not
	// known yet.
	End int64
	// LogEnd is the offset after the last record, readable or not. It is above End while an open transaction
	// holds the partition back; -1 if not known yet.
	LogEnd int64
	// Start is the lowest offset that the source still holds; -1 if not known yet.
	Start int64
	// AtEnd says that the source answered, and that nothing lay beyond the emitter's read position then.
	AtEnd bool
	// Oldest is the timestamp, in milliseconds since 1970, of the oldest record fetched and not yet planned; 0
	// if there is none.
	Oldest int64
	// Err is what keeps the partition from being read at the moment; nil if it is well.
	Err error
}

// Emitter is one source of a pipeline.
type Emitter interface {
	// ID is the source's name in the pipeline.
	ID() string

	// Open begins reading. saved holds the committed position of every partition of this source that the store
	// knows; Open checks them (a topic made again under its name, a log that was cut back or whose start moved
	// beyond the position, a changed file) and fails with a permanent *batch.Error that has the figures.
	// Partitions that are saved but not wanted any more (a topic taken off the list) are left alone.
	//
	// It returns the positions of partitions that have none yet, resolved by the start policy. They take part in
	// planning only after Admit. first tells that the source has never been opened before: a partition that is
	// added later begins at its beginning whatever the policy.
	Open(ctx context.Context, saved []batch.Position, first bool) ([]batch.Position, error)

	// Discovered returns positions of partitions that appeared since the last call, or nil. It doesn't block.
	Discovered() []batch.Position

	// Admit lets partitions take part in planning. The caller has made their positions durable.
	Admit([]batch.Position)

	// Ready receives a value after Plan, Discovered or Err may have something new. The channel has room for one;
	// it is never closed.
	Ready() <-chan struct{}

	// Partitions lists the admitted partitions in batch.Partition order.
	Partitions() []batch.Partition

	// Plan returns a range that starts at from and is not empty, from what has been fetched. It neither blocks
	// nor asks a server. ok is false if nothing is there. A range may advance over offsets without records.
	// Planning again from an earlier offset, after a batch was dropped, is allowed: the emitter goes back.
	Plan(p batch.Partition, from int64, limit Limit) (r batch.Range, ok bool)

	// Read passes the records of r to yield, in offset order and complete, or fails. It may be called again for the same
	// range, and for any range in the past. An error of yield is returned as it is.
	Read(ctx context.Context, r batch.Range, yield func(*batch.Chunk) error) error

	// Ack tells that txid has committed: what lies below the ranges' ends won't be planned again.
	Ack(txid batch.Txid, ranges []batch.Range)

	// Status lists the admitted partitions, in batch.Partition order, without asking anybody.
	Status() []Status

	// Ends asks the source, now, for the end of every admitted partition: what "caught up" is measured against.
	// A partition that can't answer makes it an error.
	Ends(ctx context.Context) (map[batch.Partition]int64, error)

	// Err returns a failure that was noticed in the background and can't mend itself, or nil.
	Err() error

	// Close ends all background work and returns when it has ended, or when ctx is done.
	Close(ctx context.Context) error
}
