package engine

import (
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// Status is where a run stands, from memory: no server is asked.
type Status struct {
	Pipeline string
	Dir      string
	Began    time.Time
	Epoch    batch.Epoch
	Txid     batch.Txid // the last committed
	Last     *txstate.Entry
	Draining bool
	Role     Role
	// Reasons tell what keeps batches from being processed; none: the pipeline is ready.
	Reasons    []string
	InFlight   []InFlight
	Partitions []PartitionStatus // in batch.Partition order
	Mirrors    []MirrorStatus    // in the order of their sources
	Sinks      []SinkStatus      // by name
	// Left tells what went wrong with the mirrors that a process has left behind each time that it lost the lock, by name. Mirrors
	// begin to count anew.
	Left []MirrorFailures
	// Savepoints tells of those made by schedule; nil if the pipeline names no place for them.
	Savepoints *SavepointStatus
	// Ledger is nil until a run has looked at it.
	Ledger *LedgerStatus
	// Failure is the last failure of this run; nil if there was none. Failing says that it stands: its batch has not
	// committed since.
	Failure      error
	FailureSince time.Time
	Failing      bool
}

// InFlight is a batch between its beginning and its commit.
type InFlight struct {
	Txid    batch.Txid
	Attempt batch.Attempt
	Phase   string
}

// PartitionStatus is where one partition stands. Offsets not known yet are -1.
type PartitionStatus struct {
	batch.Partition
	Committed int64 // the next offset to be processed
	End       int64 // the offset after the last that can be read
	LogEnd    int64 // above End while an open transaction holds the partition back
	Oldest    time.Time
	Err       error
}

// SinkStatus is what one sink was given up to the last committed batch: what its target holds.
type SinkStatus struct {
	Name     string
	Describe string     // the target, in one line
	Txid     batch.Txid // the last that had something for it; 0: none had
	Records  int64      // of all batches so far
}

// Lag is how many offsets lie between the committed position and the end; -1 if that isn't known. It is never negative otherwise: an
// end that was learnt before the commit isn't behind it, only old.
func (p *PartitionStatus) Lag() int64 {
	if p.Committed < 0 || p.End < 0 {
		return -1
	}
	return max(0, p.End-p.Committed)
}

// Status may be called at any time from any goroutine.
func (h *Handle) Status() Status {
	h.mu.Lock()
	st := Status{
		Pipeline: h.plan.Name, Dir: h.dir, Began: h.began, Last: h.last, Draining: h.drained, Epoch: h.epoch, Txid: h.txid,
	}
	st.Role = h.role
	locking := h.lock != nil && h.role == Sole
	opening, since, x, r, closed := h.opening, h.since, h.exec, h.run, h.closed
	mirrors, holding := h.mirrors, slices.Clone(h.holding)
	fatal, failed := h.fatal, h.failed
	if h.cause != nil {
		fatal, failed = h.cause, h.caused
	}
	st.Left = h.left
	h.mu.Unlock()
	st.Mirrors = mirrorStatus(mirrors)
	st.Ledger = h.ledger.Load()
	if h.saver != nil {
		saves := h.saver.status()
		st.Savepoints = &saves
	}
	select {
	case <-h.done:
		st.Reasons = append(st.Reasons, "the pipeline has ended")
		if h.err != nil {
			st.Failure, st.FailureSince, st.Failing, st.Reasons = h.err, h.ended, true, []string{h.err.Error()}
		}
		return st
	default:
	}
	if x == nil || r == nil {
		switch {
		case fatal != nil:
			st.Failure, st.FailureSince, st.Failing = fatal, failed, true
			st.Reasons = append(st.Reasons, fatal.Error())
		case st.Role == Standby && !st.Draining:
			st.Reasons = append(st.Reasons, h.waits(opening))
		case opening != nil:
			st.Failure, st.FailureSince, st.Failing = opening, since, true
			st.Reasons = append(st.Reasons, opening.Error())
		case st.Draining || closed:
			st.Reasons = append(st.Reasons, "stopping")
		case locking:
			st.Reasons = append(st.Reasons, "the lock is being taken")
		default:
			st.Reasons = append(st.Reasons, "the sources are being opened")
		}
		return st
	}
	rs := r.Stats()
	st.Epoch, st.Txid = rs.Epoch, rs.Committed
	for _, f := range rs.InFlight {
		st.InFlight = append(st.InFlight, InFlight{Txid: f.Txid, Attempt: f.Attempt, Phase: f.Phase.String()})
	}
	if f := rs.LastFailure; f != nil {
		st.Failure, st.FailureSince = f.Err, f.Since
		if st.Failing = rs.Failing != nil; st.Failing {
			st.Reasons = append(st.Reasons, f.Err.Error())
		}
	}
	if rs.Cause != nil {
		st.Failure, st.Failing = rs.Cause, true
		st.Reasons = []string{rs.Cause.Error()}
	}
	if fatal != nil {
		st.Failure, st.FailureSince, st.Failing, st.Reasons = fatal, failed, true, []string{fatal.Error()}
	}
	for _, b := range holding {
		if why := h.heldBack(b.gate); !slices.Contains(st.Reasons, why) {
			st.Reasons = append(st.Reasons, why)
		}
	}
	if opening != nil { // the ends that a bounded run runs to can't be asked for
		st.Reasons = append(st.Reasons, opening.Error())
	}
	if st.Draining {
		st.Reasons = append(st.Reasons, "stopping")
	}
	committed := map[batch.Partition]int64{}
	_, positions := x.Committed()
	for _, p := range positions {
		committed[p.Partition] = p.Next
	}
	for _, em := range x.Emitters() {
		for _, s := range em.Status() {
			ps := PartitionStatus{Partition: s.Partition, Committed: -1, End: s.End, LogEnd: s.LogEnd, Err: s.Err}
			if next, ok := committed[s.Partition]; ok {
				ps.Committed = next
			}
			if s.Oldest != 0 {
				ps.Oldest = time.UnixMilli(s.Oldest).UTC()
			}
			if s.Err != nil {
				st.Reasons = append(st.Reasons, s.Partition.String()+": "+s.Err.Error())
			}
			st.Partitions = append(st.Partitions, ps)
		}
	}
	slices.SortFunc(st.Partitions, func(a, b PartitionStatus) int { return a.Compare(b.Partition) })
	for i, g := range x.Given() {
		st.Sinks = append(st.Sinks, SinkStatus{Name: g.Sink, Describe: h.plan.Sinks[i].Describe, Txid: g.Txid, Records: g.Records})
	}
	return st
}
