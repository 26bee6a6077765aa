package coordinator

import (
	"time"

	"github.com/tridentd/tridentd/batch"
)

// Failure is what keeps a batch from committing.
type Failure struct {
	ID
	Phase    Phase // in which it failed
	Err      error
	Kind     batch.Kind
	Code     batch.Code
	Failures uint32    // of this batch so far
	Since    time.Time // when the first of them came
	At       time.Time // when this one came
}

// Flight is a batch in flight.
type Flight struct {
	ID
	Phase    Phase
	Time     time.Time // its clock
	Recorded bool      // its record is durable
}

// Stats tells where the machine stands.
type Stats struct {
	Mode      string // "created", "running", "draining", "stopping" or "stopped"
	Epoch     batch.Epoch
	Committed batch.Txid
	Time      time.Time // clock of the last committed batch
	InFlight  []Flight  // in txid order
	Waiting   int       // batches that wait to be begun again
	Aborting  int       // Aborts not yet answered
	Reopening bool      // a commit's outcome is unknown
	Attempts  uint64    // attempts planned since Start, of all batches
	// Failing is the latest failure whose batch has not committed since; nil if all is well.
	Failing *Failure
	// BackoffUntil is when the next batch, or the store, is tried again; zero if nothing waits for that.
	BackoffUntil time.Time
	// Cause is what ends the run for good; nil if nothing does.
	Cause error
}

// Stats returns a copy of everything of interest.
func (m *Machine) Stats() Stats {
	st := Stats{
		Mode: m.mode.String(), Epoch: m.epoch, Committed: m.committed, Time: m.time,
		InFlight: make([]Flight, 0, m.inFlight), Waiting: len(m.slots) - m.inFlight,
		Aborting: len(m.aborting), Reopening: m.reopening, Attempts: m.attempts,
		Cause: m.cause,
	}
	for _, s := range m.slots[:m.inFlight] {
		st.InFlight = append(st.InFlight, Flight{ID: s.id(), Phase: s.phase, Time: s.batch.Time, Recorded: s.recorded})
	}
	if m.failing != nil {
		f := *m.failing
		st.Failing = &f
	}
	if m.mode == running {
		var until time.Time
		switch {
		case m.reopening && !m.reopenSent:
			until = m.reopenAt
		case m.inFlight < len(m.slots):
			until = m.slots[m.inFlight].notBefore
		}
		if until.After(m.now) {
			st.BackoffUntil = until
		}
	}
	return st
}
