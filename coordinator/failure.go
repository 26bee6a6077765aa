package coordinator

import (
	"fmt"
	"time"

	"github.com/tridentd/tridentd/batch"
)

func (m *Machine) failed(now time.Time, ev Failed) {
	for _, p := range [...]Phase{PhasePlanning, PhaseProcessing, PhaseRecording, PhaseCommitting} {
		s, i := m.at(ev.ID, p)
		if s == nil {
			continue
		}
		if p == PhaseCommitting {
			if i != m.commit-1 {
				return
			}
			i = 0 // nothing of the commit was written
		}
		m.fail(now, i, ev.Err)
		return
	}
}

// fail charges a failure to the batch at index i and drops it with all later ones.
func (m *Machine) fail(now time.Time, i int, err error) {
	s := m.slots[i]
	m.charge(now, s, err)
	err = m.bound(now, s, err)
	m.drop(i)
	if batch.KindOf(err) == batch.Permanent {
		m.halt(s.batch.Txid, err)
		return
	}
	s.notBefore = now.Add(m.cfg.Retry.backoff(s.batch.Seed, s.batch.Txid, s.failures))
}

// charge counts a failure of s.
func (m *Machine) charge(now time.Time, s *slot, err error) {
	s.failures++
	if s.failures == 1 {
		s.since = now
	}
	m.failing = &Failure{
		ID: s.id(), Phase: s.phase, Err: err, Kind: batch.KindOf(err), Code: batch.CodeOf(err),
		Failures: s.failures, Since: s.since, At: now,
	}
}

// bound turns a transient failure of s into a permanent one if the settings allow no further attempt.
func (m *Machine) bound(now time.Time, s *slot, err error) error {
	r := m.cfg.Retry
	took := now.Sub(s.since)
	if batch.KindOf(err) == batch.Permanent || !(r.Attempts > 0 && s.failures >= r.Attempts || r.For > 0 && took >= r.For) {
		return err
	}
	times := "attempts"
	if s.failures == 1 {
		times = "attempt"
	}
	e := batch.NewError(batch.Permanent, batch.CodeOf(err), "retry",
		fmt.Errorf("gave up after %d failed %s in %s; the last one: %w", s.failures, times, took.Round(time.Millisecond), err),
		"remove the cause and start again, or allow more retries")
	e.Txid = s.batch.Txid
	return e
}

// halt ends the run for good because of the batch txid, which is no longer in flight; those before it go their way.
// Of several causes the one of the earliest batch counts: a new run would meet it first.
func (m *Machine) halt(txid batch.Txid, err error) {
	if m.cause == nil || txid < m.causeTxid {
		m.cause, m.causeTxid = err, txid
	}
	m.mode = max(m.mode, draining)
}

// expire fails the oldest batch whose attempt has taken too long; the later ones are dropped with it.
func (m *Machine) expire(now time.Time) {
	for i, s := range m.slots[:m.inFlight] {
		if s.deadline.IsZero() || now.Before(s.deadline) {
			continue
		}
		e := batch.NewError(batch.Transient, batch.CodeTimeout, s.phase.String(),
			fmt.Errorf("timed out after %s", m.cfg.Timeout), "find out what hangs, or raise batch.timeout")
		e.Txid = s.batch.Txid
		m.fail(now, i, e)
		return
	}
}

// commitUnknown handles a commit that may have been written. Only the store can tell, and it has to be opened
// afresh: after a failed sync its handle may show what isn't durable. Until then nothing begins.
func (m *Machine) commitUnknown(now time.Time, err error) {
	if m.mode != running {
		// The next start finds out.
		m.charge(now, m.slots[0], err)
		txid := m.slots[0].batch.Txid
		m.drop(0)
		m.halt(txid, err)
		return
	}
	m.drop(m.commit)
	for _, s := range m.slots[:m.commit] {
		s.phase = PhaseUnknown
	}
	m.reopening, m.unknown, m.reopenAt = true, err, now
}

// sendReopen asks for Reopen once nothing uses the old handle.
func (m *Machine) sendReopen(now time.Time, wake *time.Time) {
	if !m.reopening || m.reopenSent || len(m.aborting) > 0 {
		return
	}
	if now.Before(m.reopenAt) {
		earliest(wake, m.reopenAt)
		return
	}
	m.reopen++
	m.reopenSent = true
	m.emit(Reopen{m.reopen})
}

func (m *Machine) reopened(now time.Time, txid batch.Txid) {
	m.reopening, m.reopenSent = false, false
	last := m.committed + batch.Txid(m.commit)
	if txid < m.committed || txid > last {
		e := batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "reopen",
			fmt.Errorf("the store holds txid %d; it must be %d to %d: %d has committed, up to %d was being written when its outcome became unknown", txid, m.committed, last, m.committed, last),
			"restore a savepoint, or rebuild by replay")
		if txid > last {
			e.Code, e.Remedy = batch.CodeStoreInUse, "find the other process that writes to this store and end one of the two"
		}
		m.drop(0)
		m.halt(m.committed+1, e)
		return
	}
	n := int(txid - m.committed)
	whole := n == m.commit
	m.succeed(n)
	if whole {
		return
	}
	m.fail(now, 0, m.unknown)
}

func (m *Machine) reopenFailed(now time.Time, err error) {
	s := m.slots[0]
	m.reopenSent = false
	m.charge(now, s, err)
	err = m.bound(now, s, err)
	if m.mode != running || batch.KindOf(err) == batch.Permanent {
		m.reopening = false
		m.drop(0)
		m.halt(s.batch.Txid, fmt.Errorf("%w; the store was opened again as the outcome of a commit was unknown: %w", err, m.unknown))
		return
	}
	m.reopenAt = now.Add(m.cfg.Retry.backoff(s.batch.Seed, s.batch.Txid, s.failures))
}

func (m *Machine) stop() {
	m.mode = stopping
	if m.reopening && !m.reopenSent {
		// The outcome stays unknown until the next start.
		m.reopening = false
		m.halt(m.slots[0].batch.Txid, m.unknown)
		m.drop(0)
		return
	}
	m.drop(m.commit)
}
