package emitter

import (
	"context"

	"github.com/tridentd/tridentd/batch"
)

// Resent is a record that is to be sent to where a source reads.
type Resent struct {
	Topic string
	// Partition is where it goes; negative: where its key says.
	Partition int32
	// Record's Offset is of no concern; a Timestamp of 0 stands for now.
	batch.Record
}

// Resending is a Source to whose topics records can be sent.
type Resending interface {
	Source
	// Resend sends records, in their order for each partition, and returns how many the servers have taken. If that are not all, err says why;
	// of the others it isn't known.
	Resend(ctx context.Context, env Env, records []Resent) (sent int, err error)
}
