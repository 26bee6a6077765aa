package coordinator

import (
	"fmt"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// Phase is where a batch is on its way.
type Phase uint8

// The phases in their order. PhaseWaiting and PhaseProcessed have no call outstanding.
const (
	PhaseWaiting    Phase = iota // to be begun again; not in flight
	PhasePlanning                // Begin is outstanding
	PhaseProcessing              // Process is outstanding
	PhaseProcessed               // waits for the record, or for its turn to commit
	PhaseRecording               // Record is outstanding
	PhaseCommitting              // Commit is outstanding
	PhaseUnknown                 // its commit may have happened or not; Reopen tells
)

var phaseNames = [...]string{"waiting", "planning", "processing", "processed", "recording", "committing", "unknown"}

func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// slot is what the machine knows of one txid above the last committed.
type slot struct {
	batch batch.Batch // Attempt is that of the latest beginning
	phase Phase
	// fixed says that batch's ranges are settled: their record is durable, or may be.
	fixed bool
	// recorded says that the record is durable. It implies fixed.
	recorded bool

	began     time.Time // the latest beginning
	deadline  time.Time // of the present attempt's calls; zero if there is none
	notBefore time.Time // end of the back-off

	failures uint32 // of this batch itself, not of one before it
	since    time.Time
}

func (s *slot) id() ID { return ID{s.batch.Txid, s.batch.Attempt} }

// timed tells whether batch.Time counts: the present attempt has been planned with it, or the ranges are settled. A
// batch that waits to be planned anew has no clock.
func (s *slot) timed() bool { return s.fixed || s.phase > PhasePlanning }

// ready tells whether nothing but its turn keeps the batch from its commit.
func (s *slot) ready(outside bool) bool {
	return s.phase == PhaseProcessed && (s.recorded || !outside)
}
