// Package txstate defines the master's durable record: which batch is current, what its ranges are, how far each
// partition has come, and which epoch runs the pipeline.
//
// The truth lives where the states' writes live, so that offsets and results move in one atomic write: the local
// store of package pebblestate is a Store. Mirrors are told afterwards and may lag behind; they never lead.
package txstate

import (
	"context"
	"iter"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// RangeEntry is one partition's part in a ledger entry.
type RangeEntry struct {
	batch.Range
	batch.Input
	// EventTime is the largest event time seen in this partition up to the range's end, in nanoseconds since
	// 1970; NoTime if none was.
	EventTime int64
}

// NoTime stands for "no event time seen".
const NoTime int64 = -1 << 63

// StateDigest is what one batch did to one state.
type StateDigest struct {
	State  string
	Writes int64
	Digest uint64 // over the logical change: (key, combined delta) in shard and key order
}

// SinkDigest is what one batch had for one sink.
type SinkDigest struct {
	Sink    string
	Records int64
	// Chain is the digest of the records and of all that the sink was given before: what its target holds once it has committed
	// the batch.
	Chain uint64
}

// StaticVersion records that a batch began to use a (new) content of a static table.
type StaticVersion struct {
	Name   string
	Rows   int64
	Digest uint64
}

// Counts says what became of a batch's records.
type Counts struct {
	Read     int64
	Filtered int64 // rows that a filter dropped; Uncounted in entries of builds that didn't count them
	Rejected int64 // bad records turned away by policy skip or dead_letter
	Late     int64 // rows behind the watermark
	Future   int64 // rows with a time too far ahead
	Dead     int64 // of Rejected, Late and Future: those that became dead letters
}

// Uncounted stands for a count that isn't known.
const Uncounted int64 = -1

// Watermark is how far event time has come in one source, in nanoseconds since 1970.
type Watermark struct {
	Source string
	Time   int64
}

// Durations of a batch's phases on the machine that committed it. They inform; no result depends on them.
type Durations struct {
	Plan, Read, Process, Commit time.Duration
}

// Entry is the ledger's record of one batch. With outside participants it is recorded before anything of the
// batch is applied; it is committed in the same atomic write as the batch's results.
type Entry struct {
	Txid    batch.Txid
	Attempt batch.Attempt
	// Attempts counts the beginnings of this txid within the epoch that committed it.
	Attempts uint32
	Time     time.Time // the batch's clock
	Seed     uint64
	// Ranges holds the partitions that moved, in batch.Partition order.
	Ranges []RangeEntry
	Idle   []batch.Partition
	// Joined are the partitions admitted since the batch before, with their starts, in batch.Partition order:
	// from this batch on they count for the watermark.
	Joined []batch.Position
	// Watermarks holds, by source name, what this batch left for the next; sources without one are left out.
	Watermarks []Watermark
	// Reset marks an entry made by hand (offsets reset): its ranges were skipped or are read again, not processed.
	Reset bool
	// Imported says where an entry's positions, and States if it has any, were brought from (offsets import); empty for
	// all others. Such an entry is a Reset.
	Imported string
	// Migrated lists, in the grammar of the command migrate, what a change of the pipeline did to the store; empty for all
	// other entries. Such an entry is a Reset without ranges: nothing before it tells what the states hold after it.
	Migrated []string
	Counts   Counts
	States   []StateDigest // by name; states without a write are left out
	Statics  []StaticVersion
	Sinks    []SinkDigest // by name; those that the batch had nothing for are left out
	// Chain is the digest of this batch's digests and the chain of the batch before.
	Chain     uint64
	Build     string // build id, GOARCH and its level: "… amd64 v1"
	Plan      uint64 // hash of the plan that ran
	Committed time.Time
	Took      Durations
}

// Snapshot is the state of the record at a start.
type Snapshot struct {
	Txid  batch.Txid // the last committed; 0 if none
	Epoch batch.Epoch
	Chain uint64
	Time  time.Time // of the last committed batch
	// Positions holds every partition that was ever admitted, listed or not.
	Positions []SavedPosition
	// Recorded are batches recorded and not yet committed, in txid order.
	Recorded []Entry
}

// SavedPosition is a position and what goes with it.
type SavedPosition struct {
	batch.Position
	EventTime int64      // as RangeEntry.EventTime
	MovedAt   time.Time  // Time of the batch that last moved it, or else of the one it joined with; zero before that
	Txid      batch.Txid // the batch that last moved it, or else the one it joined with; 0 before that
	Joined    batch.Txid // the batch whose entry lists it as joined; 0 if none has committed yet
}

// Store is the durable record. All writing methods return after their write has been synced.
type Store interface {
	// Load returns the record as it stands.
	Load(ctx context.Context) (Snapshot, error)
	// Claim makes epoch the record's epoch. It fails if the record holds an equal or higher one.
	Claim(ctx context.Context, epoch batch.Epoch) error
	// Admit writes the resolved starts of new partitions. No txid is spent on it.
	Admit(ctx context.Context, positions []batch.Position) error
	// Record makes a batch's entry durable before anything of it is applied outside.
	Record(ctx context.Context, e Entry) error
	// Entries iterates over committed entries with from <= txid <= to, in order; to = 0 means to the last.
	Entries(ctx context.Context, from, to batch.Txid) iter.Seq2[Entry, error]
}

// Mirror is told what has committed: a Kafka group, ZooKeeper. What it holds is a record of the truth, never the
// truth: it may lag behind, it never leads, and losing it loses no data.
type Mirror interface {
	// Name says what and where, for logs and metrics.
	Name() string
	// Carried asks the mirror's server what it holds of this pipeline: only what the pipeline wrote itself, in
	// batch.Partition order.
	Carried(ctx context.Context) ([]Carried, error)
	// Rewind lets the mirror go back behind what it holds: the pipeline starts over on purpose. It is called before
	// the first Committed, if at all.
	Rewind()
	// Committed hands over the positions after txid: at the start those that the store holds, then those of each
	// batch. It doesn't block; the latest wins. The mirror may keep positions and must not change them.
	Committed(txid batch.Txid, epoch batch.Epoch, positions []SavedPosition)
	// Status tells how the mirror fares, without asking anybody. It may be called from any goroutine.
	Status() MirrorStatus
	// Close writes what is outstanding, within ctx.
	Close(ctx context.Context) error
}

// Carried is one position that a mirror holds.
type Carried struct {
	batch.Partition
	Next  int64
	Txid  batch.Txid // the batch that had moved it
	Epoch batch.Epoch
}

// MirrorStatus is how a mirror fares.
type MirrorStatus struct {
	Txid    batch.Txid // everything up to it has been written
	Pending bool       // something later waits to be written
	Written time.Time  // when the last write succeeded; zero before the first
	// Err is what keeps the mirror from being right, and Since when that began; nil if it is well.
	Err      error
	Since    time.Time
	Failures map[batch.Code]int64 // since the start, by cause
}
