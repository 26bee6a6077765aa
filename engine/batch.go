package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// Batch is what a function may know of the batch that it runs in: all of it is recorded, and the same whenever
// the batch is run again. It may be used until the function returns.
type Batch struct {
	rc   *rec
	b    *batch.Batch // where there is no record: in PartitionPersist
	part batch.Partition
	step string
}

func (b *Batch) values() *batch.Batch {
	if b.rc != nil {
		return b.rc.tc.Batch
	}
	return b.b
}

// Txid is the batch's transaction id.
func (b *Batch) Txid() batch.Txid { return b.values().Txid }

// Time is the batch's clock, UTC, in whole milliseconds. It never falls from one txid to the next.
func (b *Batch) Time() time.Time { return b.values().Time }

// Partition is the source partition that is worked on; behind a BatchAggregate, its name and the shard.
func (b *Batch) Partition() batch.Partition {
	if b.rc != nil {
		return b.rc.tc.Partition
	}
	return b.part
}

// Offset is the record's offset in its partition; behind a BatchAggregate, the row's number in its shard; -1 in
// PartitionPersist.
func (b *Batch) Offset() int64 {
	if b.rc != nil {
		return b.rc.offset
	}
	return batch.NoOffset
}

// Rand is a source of random numbers for this step at this record. Each call begins the same sequence again.
func (b *Batch) Rand() *batch.Rand {
	return b.values().Rand(b.step, b.Partition(), b.Offset())
}

// transient is an error that its author holds to be worth another attempt.
type transient struct{ err error }

func (t *transient) Error() string { return t.err.Error() }
func (t *transient) Unwrap() error { return t.err }

// Transient marks an error of a function as passing: the whole batch is begun again after a back-off, instead
// of the record being bad. Transient(nil) is nil.
func Transient(err error) error {
	if err == nil {
		return nil
	}
	return &transient{err}
}

// IsTransient tells whether an error was marked by Transient.
func IsTransient(err error) bool {
	_, ok := errors.AsType[*transient](err)
	return ok
}

// asTransient turns an error marked by Transient into the engine's own.
func asTransient(err error, step string) *batch.Error {
	if !IsTransient(err) {
		return nil
	}
	return batch.NewError(batch.Transient, batch.CodeUserError, step, err, "")
}

// panicError is the cause of a bad record whose function panicked.
func panicError(v any) error {
	if err, ok := v.(error); ok {
		return fmt.Errorf("panic: %w", err)
	}
	return fmt.Errorf("panic: %v", v)
}
