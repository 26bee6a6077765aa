package coordinator

import (
	"fmt"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// ID names one attempt of one batch.
type ID struct {
	Txid    batch.Txid
	Attempt batch.Attempt
}

func (id ID) String() string { return fmt.Sprintf("%d@%s", id.Txid, id.Attempt) }

// Event is something that has happened.
//
//sumtype:decl
type Event interface{ event() }

// Start is the first event: where the store stands.
type Start struct {
	Txid  batch.Txid // the last committed; 0 if none
	Time  time.Time  // its clock; zero if none
	Epoch batch.Epoch
	// Recorded are the batches recorded and not committed, in txid order. They are begun first, with the same
	// ranges, clock and seed.
	Recorded []batch.Batch
}

// Tick tells that the time asked for by SetTimer has come. More of them do no harm.
type Tick struct{}

// DataReady tells that a source may have something that was not there at the last planning.
type DataReady struct{}

// Due tells the time at which the pipeline itself wants a batch even without data (a window to be closed, a TTL).
// It replaces the one told before; the zero time means none. A batch begun for it, or found to be empty, uses it up.
type Due struct{ At time.Time }

// Planned answers Begin.
type Planned struct {
	ID
	Plan uint64 // as in Begin
	// OK is false if there was nothing to do. The txid and the attempt are then free again.
	OK bool
	// What was planned, unless the batch was begun with its recorded ranges.
	Ranges []batch.Range
	Idle   []batch.Partition
	Joined []batch.Position
}

// Processed answers Process.
type Processed struct{ ID }

// Recorded answers Record: the record is durable.
type Recorded struct{ ID }

// Committed answers Commit: everything is durable. ID is that of the last batch in the commit.
type Committed struct{ ID }

// CommitUnknown answers Commit: the write may have happened or not. ID is that of the last batch in the commit.
type CommitUnknown struct {
	ID
	Err error
}

// Failed answers Begin, Process, Record, or Commit (then with the ID of the last batch in it). Err's Kind says what
// follows; see batch.KindOf. After a failed commit the local store surely holds nothing of it; what a participant
// outside may hold, it skips when the batch comes again.
type Failed struct {
	ID
	Err error
}

// Aborted answers Abort: no call for its batches runs any more and what they held has been dropped.
type Aborted struct{ Abort uint64 }

// Reopened answers Reopen: the store is usable again and holds all batches up to Txid.
type Reopened struct {
	Reopen uint64
	Txid   batch.Txid
}

// ReopenFailed answers Reopen.
type ReopenFailed struct {
	Reopen uint64
	Err    error
}

// Drain asks to finish what is in flight and to begin nothing more. A batch that fails now isn't begun again.
type Drain struct{}

// Stop asks to drop everything that has not reached its commit. A running commit is waited for.
type Stop struct{}

func (Start) event()         {}
func (Tick) event()          {}
func (DataReady) event()     {}
func (Due) event()           {}
func (Planned) event()       {}
func (Processed) event()     {}
func (Recorded) event()      {}
func (Committed) event()     {}
func (CommitUnknown) event() {}
func (Failed) event()        {}
func (Aborted) event()       {}
func (Reopened) event()      {}
func (ReopenFailed) event()  {}
func (Drain) event()         {}
func (Stop) event()          {}

// FailureOf returns the error that an event reports, nil if it reports none.
func FailureOf(ev Event) error {
	switch ev := ev.(type) {
	case Failed:
		return ev.Err
	case CommitUnknown:
		return ev.Err
	case ReopenFailed:
		return ev.Err
	case Start, Tick, DataReady, Due, Planned, Processed, Recorded, Committed, Aborted, Reopened, Drain, Stop:
	}
	return nil
}
