package coordinator

import (
	"fmt"

	"github.com/tridentd/tridentd/batch"
)

// check panics if cond does not hold: a broken invariant of this package or of its caller.
func check(cond bool, format string, args ...any) {
	if !cond {
		panic("coordinator: " + fmt.Sprintf(format, args...))
	}
}

// verify checks what must hold between two steps. The number of slots is bounded by MaxPending and the recorded
// batches of a start, so it costs next to nothing.
func (m *Machine) verify() {
	check(0 <= m.commit && m.commit <= m.inFlight && m.inFlight <= len(m.slots), "%d to commit, %d in flight, %d known", m.commit, m.inFlight, len(m.slots))
	check(m.inFlight <= m.cfg.MaxPending, "%d in flight, at most %d allowed", m.inFlight, m.cfg.MaxPending)
	last, recorded, fixed := m.time, true, true
	for i, s := range m.slots {
		txid := s.batch.Txid
		check(txid == m.committed+batch.Txid(i)+1, "txid %d at place %d after %d", txid, i, m.committed)
		check((s.phase != PhaseWaiting) == (i < m.inFlight), "txid %d is %s with %d in flight", txid, s.phase, m.inFlight)
		check((s.phase == PhaseCommitting || s.phase == PhaseUnknown) == (i < m.commit), "txid %d is %s with %d to commit", txid, s.phase, m.commit)
		check(s.phase != PhasePlanning || i == m.inFlight-1, "txid %d is planned, a later one has been", txid)
		check(!s.recorded || recorded && s.fixed, "txid %d is recorded, the one before is not", txid)
		check(!s.fixed || fixed, "txid %d has settled ranges, the one before has not", txid)
		check(!s.timed() || !s.batch.Time.Before(last), "the clock of txid %d falls behind the batch before", txid)
		if s.timed() {
			last = s.batch.Time
		}
		recorded, fixed = s.recorded, s.fixed
	}
}
