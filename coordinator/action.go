package coordinator

import (
	"time"

	"github.com/tridentd/tridentd/batch"
)

// Action is something to be done by the caller.
//
//sumtype:decl
type Action interface{ action() }

// Begin asks to plan a batch: its ranges, idle and joined partitions, from where the batch before ends. One Begin
// is outstanding at a time.
type Begin struct {
	Batch batch.Batch
	// Recorded says that Batch holds the ranges already, and that exactly these are to be served.
	Recorded bool
	// Plan numbers the plannings of this run. A planning that finds nothing gives its attempt back, so the
	// answer is told apart by this number.
	Plan uint64
}

// Process asks to compute what a planned batch changes. Nothing may leave the process.
type Process struct{ ID }

// Record asks to make a processed batch's ranges durable. It is asked for in txid order, one at a time.
type Record struct{ ID }

// Commit asks to make consecutive batches durable, each whole or not at all. One Commit is outstanding at a time.
type Commit struct{ Batches []ID }

// Abort asks to cancel all calls for the batches, to wait for their return and then to drop what they hold. The
// newest comes first. Aborts are performed in the order they are asked for.
type Abort struct {
	Abort   uint64 // to be told in Aborted
	Batches []ID
}

// Success tells that a batch has committed. It has no answer.
type Success struct{ ID }

// Reopen asks to open the store afresh and to read which batches it holds.
type Reopen struct{ Reopen uint64 }

// SetTimer asks for a Tick at a time; the zero time means that none is needed.
type SetTimer struct{ At time.Time }

// Stopped is the last action. Err is nil after Drain and Stop.
type Stopped struct{ Err error }

func (Begin) action()    {}
func (Process) action()  {}
func (Record) action()   {}
func (Commit) action()   {}
func (Abort) action()    {}
func (Success) action()  {}
func (Reopen) action()   {}
func (SetTimer) action() {}
func (Stopped) action()  {}
