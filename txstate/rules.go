package txstate

import (
	"fmt"
	"slices"

	"github.com/tridentd/tridentd/batch"
)

// The rules that every Store applies to what it is asked to write.

// CheckClaim tells whether epoch may follow held.
func CheckClaim(held, epoch batch.Epoch) error {
	if epoch > held {
		return nil
	}
	return batch.NewError(batch.Permanent, batch.CodeStoreInUse, "claim",
		fmt.Errorf("epoch %d is claimed, but the store is held by epoch %d", epoch, held),
		"make sure that one process runs the pipeline, and start again")
}

// CheckRecord tells whether e may be recorded over what has been committed and recorded: its master must not be
// deposed, its txid not be committed and leave no gap, and its attempt not be older than a recorded one of the
// same txid.
func CheckRecord(held batch.Epoch, committed batch.Txid, recorded []Entry, e *Entry) error {
	last := committed + batch.Txid(len(recorded))
	fail := func(code batch.Code, format string, args ...any) error {
		err := batch.NewError(batch.Permanent, code, "record", fmt.Errorf(format, args...), "")
		err.Txid = e.Txid
		return err
	}
	switch {
	case e.Attempt.Epoch < held:
		return fail(batch.CodeStoreInUse, "its attempt is of epoch %d, the store is held by epoch %d", e.Attempt.Epoch, held)
	case e.Txid <= committed:
		return fail(batch.CodeInternal, "txid %d has been committed already", committed)
	case e.Txid > last+1:
		return fail(batch.CodeInternal, "txid %d would be the next to record", last+1)
	case e.Txid <= last:
		if was := recorded[e.Txid-committed-1].Attempt; e.Attempt.Compare(was) < 0 {
			return fail(batch.CodeInternal, "attempt %s is older than the recorded %s", e.Attempt, was)
		}
	}
	return nil
}

// AdmittedAt is the saved position of a partition that has just been admitted.
func AdmittedAt(p batch.Position) SavedPosition { return SavedPosition{Position: p, EventTime: NoTime} }

// AlreadyAdmitted is the error of admitting a partition twice.
func AlreadyAdmitted(p SavedPosition) error {
	return batch.NewError(batch.Permanent, batch.CodeInternal, "admit", fmt.Errorf("the partition has been admitted already, at offset %d", p.Next), "").
		At(p.Partition, batch.NoOffset)
}

// Clone returns a copy that shares no memory with e.
func (e *Entry) Clone() Entry {
	c := *e
	c.Ranges = slices.Clone(e.Ranges)
	c.Idle = slices.Clone(e.Idle)
	c.Joined = slices.Clone(e.Joined)
	c.Watermarks = slices.Clone(e.Watermarks)
	c.States = slices.Clone(e.States)
	c.Statics = slices.Clone(e.Statics)
	c.Sinks = slices.Clone(e.Sinks)
	c.Migrated = slices.Clone(e.Migrated)
	return c
}
