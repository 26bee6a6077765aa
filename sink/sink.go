// Package sink defines what a pipeline's results leave it through: targets outside the local store that take the output of each
// batch exactly once.
//
// A sink keeps its own progress (the last batch it holds, and a digest of all it was given) in the same atomic write as the output.
// The engine makes a batch's ranges durable before it hands anything over, so that a batch that a crash has cut off comes again with
// the same output; what the target already holds is then skipped, by its progress. So whatever happens between two instructions of
// either side, the target holds the output of a batch whole and once, or not at all yet.
//
// The engine is the only caller. It uses a sink from one goroutine at a time.
package sink

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// Progress is what a target says of a pipeline's sink. The zero value says that it has taken nothing.
type Progress struct {
	Txid  batch.Txid // the last batch whose output it holds
	Epoch batch.Epoch
	// Chain is the digest of that output and all before it. Two progresses of one txid that differ in it are of two histories.
	Chain uint64
}

// Text says what a target holds, for people.
func (p Progress) Text() string {
	if p.Txid == 0 {
		return "has been given nothing yet"
	}
	return fmt.Sprintf("holds the output up to txid %d, of epoch %d", p.Txid, p.Epoch)
}

// Sink is a target of one pipeline's sink.
//
// An error of any method is a *batch.Error that says whether another attempt may succeed; one that says nothing about itself is taken
// for transient. After an error the engine calls Claim before it prepares anything again.
type Sink interface {
	// Progress reads what the target holds. It changes nothing, and may be called before Claim only.
	Progress(ctx context.Context) (Progress, error)
	// Claim takes the target over for the epoch: from its return on, whoever works under a lower one is refused, and what he, or
	// this process before a failure, left unfinished has been settled. It returns what the target then holds. It fails
	// with Deposed if the target was claimed for a higher epoch.
	Claim(ctx context.Context, epoch batch.Epoch) (Progress, error)
	// Prepare sends a batch's output. Nothing of it is visible to readers when it returns, and all that can fail for a reason that
	// lasts (a record too large, a permission) has failed.
	Prepare(ctx context.Context, out *Output) error
	// Commit makes what was prepared visible, and the progress with it, in one atomic step. If it fails, the outcome is unknown until
	// Claim has told.
	Commit(ctx context.Context) error
	// Abort drops what was prepared.
	Abort(ctx context.Context) error
	// Forget makes the target forget the progress, not the output: a pipeline starts over on purpose. It follows a Claim.
	Forget(ctx context.Context) error
	// Close gives up what the sink holds. What was prepared and not committed never becomes visible.
	Close(ctx context.Context) error
}

// Transactions are those that the servers of a target hold for a pipeline's sinks.
type Transactions interface {
	// List returns them by their ids, those of sinks that the pipeline no longer has among them.
	List(ctx context.Context) ([]Transaction, error)
	// Settle ends an open one: what was prepared is dropped, what was being committed is committed to its end. A run that uses the id must
	// claim it again. It returns when the servers have settled it.
	Settle(ctx context.Context, id string) error
	Close()
}

// Transaction is the last one of an id.
type Transaction struct {
	ID, Sink string
	State    string // in the servers' words
	Open     bool   // readers wait for its end
	Since    time.Time
	Timeout  time.Duration // after what the servers abort it by themselves
	Producer int64
	Epoch    int16
	// Partitions have output of it, or no mark of its end yet.
	Partitions []batch.Partition
}

// Deposed is the error of a claim under an epoch, or of anything else, when the place was claimed under a higher one: "topic t".
func Deposed(place string, held, own batch.Epoch) error {
	return batch.NewError(batch.Permanent, batch.CodeDeposed, "claim",
		fmt.Errorf("the %s was claimed by a run with epoch %d, this one has epoch %d", place, held, own), "make sure that one process runs the pipeline; this one is no longer it")
}

// Output is what one batch has for one sink. It must not be changed, and may be used until Commit or Abort returns.
type Output struct {
	Txid  batch.Txid
	Epoch batch.Epoch
	Chain uint64 // the progress that the target holds with it
	Time  time.Time
	Parts []Part // by source partition, then by later stages and their shards
	Count int64
}

// Part is the output that one task of a batch has, in the order in which it was made.
type Part struct {
	// Partition is the source partition, or a stage's name and shard.
	Partition batch.Partition
	Records   []Record
}

// All iterates over the records with the partition that each is of.
func (o *Output) All() iter.Seq2[batch.Partition, *Record] {
	return func(yield func(batch.Partition, *Record) bool) {
		for i := range o.Parts {
			p := &o.Parts[i]
			for j := range p.Records {
				if !yield(p.Partition, &p.Records[j]) {
					return
				}
			}
		}
	}
}

// Record is one record of output.
type Record struct {
	Offset    int64  // of the source's record that it was made from, or the number of the row in its stage
	Topic     string // where the target has several places; empty: the sink's own
	Timestamp int64  // milliseconds since 1970; NoTimestamp: the batch's clock
	Key       []byte // nil: none
	Value     []byte // nil: null
	Headers   []batch.Header
}

// NoTimestamp stands for the batch's clock.
const NoTimestamp int64 = -1 << 63

// Buffer collects the output of one task.
type Buffer struct {
	Records []Record
	arena   []byte
}

// Add appends a copy of r.
func (b *Buffer) Add(r Record) {
	r.Key, r.Value = b.keep(r.Key), b.keep(r.Value)
	if len(r.Headers) > 0 {
		hs := make([]batch.Header, len(r.Headers))
		for i, h := range r.Headers {
			hs[i] = batch.Header{Key: h.Key, Value: b.keep(h.Value)}
		}
		r.Headers = hs
	}
	b.Records = append(b.Records, r)
}

// arenaSize is the least size of a piece of memory that values are copied to, in bytes.
const arenaSize = 4 << 10

func (b *Buffer) keep(v []byte) []byte {
	if v == nil {
		return nil
	}
	if cap(b.arena)-len(b.arena) < len(v) {
		b.arena = make([]byte, 0, max(len(v), 2*cap(b.arena), arenaSize))
	}
	n := len(b.arena)
	b.arena = append(b.arena, v...)
	return b.arena[n:len(b.arena):len(b.arena)]
}
