package coordinator

import (
	"fmt"
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
)

type mode uint8

const (
	created  mode = iota // Start has not come yet
	running              //
	draining             // begins nothing; what is in flight goes its way
	stopping             // only a running commit is waited for
	stopped              //
)

var modeNames = [...]string{"created", "running", "draining", "stopping", "stopped"}

func (m mode) String() string { return modeNames[m] }

// Machine is the coordinator of one pipeline. It is not safe for concurrent use.
type Machine struct {
	cfg   Config
	mode  mode
	epoch batch.Epoch

	committed batch.Txid
	time      time.Time // clock of the last committed batch

	// slots holds txids committed+1, committed+2, … The first inFlight of them are in flight, of these the first
	// commit are covered by the outstanding Commit or by a commit of unknown outcome; the others wait.
	slots    []*slot
	inFlight int
	commit   int

	ready     bool      // a source may have something
	due       time.Time // the pipeline's own timer; zero if there is none
	lastBegin time.Time // of a txid's first beginning

	plan     uint64 // number of the latest Begin
	abort    uint64 // number of the latest Abort
	aborting []uint64

	reopen     uint64    // number of the latest Reopen
	reopening  bool      // a commit's outcome is unknown
	reopenSent bool      // Reopen is outstanding
	reopenAt   time.Time // not before
	unknown    error     // why the outcome is unknown

	cause     error // what stops the run for good
	causeTxid batch.Txid
	failing   *Failure
	attempts  uint64

	now   time.Time // of the latest Step
	timer time.Time // as last asked for; zero if none
	out   []Action
}

// New returns a machine that waits for Start. An error names the settings that are out of range.
func New(cfg Config) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Machine{cfg: cfg.withDefaults()}, nil
}

// Step takes one event and returns what is to be done, in this order. now must not run backwards by more than the
// caller's timers can bear. The slice is valid until the next Step.
func (m *Machine) Step(now time.Time, ev Event) []Action {
	clear(m.out)
	m.out = m.out[:0]
	m.now = now
	if m.mode == stopped {
		return nil
	}
	switch ev := ev.(type) {
	case Start:
		m.start(ev)
	case Tick:
		m.timer = time.Time{} // it has fired: if it came early it is asked for again
		m.expire(now)
	case DataReady:
		m.ready = true
	case Due:
		m.due = ev.At
	case Planned:
		m.planned(ev)
	case Processed:
		if s, _ := m.at(ev.ID, PhaseProcessing); s != nil {
			s.phase, s.deadline = PhaseProcessed, time.Time{}
		}
	case Recorded:
		if s, _ := m.at(ev.ID, PhaseRecording); s != nil {
			s.phase, s.recorded, s.deadline = PhaseProcessed, true, time.Time{}
		}
	case Committed:
		if m.isCommit(ev.ID, PhaseCommitting) {
			m.succeed(m.commit)
		}
	case CommitUnknown:
		if m.isCommit(ev.ID, PhaseCommitting) {
			m.commitUnknown(now, ev.Err)
		}
	case Failed:
		m.failed(now, ev)
	case Aborted:
		if i := slices.Index(m.aborting, ev.Abort); i >= 0 {
			m.aborting = slices.Delete(m.aborting, i, i+1)
		}
	case Reopened:
		if m.reopenSent && ev.Reopen == m.reopen {
			m.reopened(now, ev.Txid)
		}
	case ReopenFailed:
		if m.reopenSent && ev.Reopen == m.reopen {
			m.reopenFailed(now, ev.Err)
		}
	case Drain:
		if m.mode < draining {
			m.mode = draining
		}
	case Stop:
		m.stop()
	default:
		panic(fmt.Sprintf("coordinator: unknown event %T", ev))
	}
	m.advance(now)
	m.verify()
	return m.out
}

func (m *Machine) emit(a Action) { m.out = append(m.out, a) }

func (m *Machine) start(ev Start) {
	if m.mode != created { // stopped before it began
		check(m.mode != running, "a second Start")
		return
	}
	m.mode = running
	m.epoch, m.committed, m.time = ev.Epoch, ev.Txid, ev.Time.UTC().Truncate(time.Millisecond)
	last := m.time
	for i, b := range ev.Recorded {
		var err error
		switch want := ev.Txid + batch.Txid(i) + 1; {
		case b.Txid != want:
			err = fmt.Errorf("the recorded batches do not follow on txid %d: found %d in place of %d", ev.Txid, b.Txid, want)
		case b.Attempt.Epoch >= ev.Epoch:
			err = fmt.Errorf("recorded txid %d is of epoch %d, not below this run's epoch %d", b.Txid, b.Attempt.Epoch, ev.Epoch)
		case b.Time.Before(last):
			err = fmt.Errorf("recorded txid %d has a clock (%s) before that of the batch ahead (%s)", b.Txid, b.Time.Format(time.RFC3339Nano), last.Format(time.RFC3339Nano))
		}
		if err != nil {
			e := batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "start", err, "restore a savepoint, or rebuild by replay")
			e.Txid = b.Txid
			m.slots = nil
			m.halt(b.Txid, e)
			return
		}
		last = b.Time
		b.Attempt = batch.Attempt{Epoch: m.epoch}
		m.slots = append(m.slots, &slot{batch: b, fixed: true, recorded: true})
	}
}

// at returns the slot that id names, and its index, if it is in the given phase of just that attempt.
func (m *Machine) at(id ID, p Phase) (*slot, int) {
	if id.Txid <= m.committed {
		return nil, 0
	}
	i := id.Txid - m.committed - 1
	if i >= batch.Txid(m.inFlight) {
		return nil, 0
	}
	s := m.slots[i]
	if s.phase != p || s.id() != id {
		return nil, 0
	}
	return s, int(i)
}

// isCommit tells whether id names the last batch of the outstanding commit.
func (m *Machine) isCommit(id ID, p Phase) bool {
	s, i := m.at(id, p)
	return s != nil && i == m.commit-1
}

func (m *Machine) planned(ev Planned) {
	s, i := m.at(ev.ID, PhasePlanning)
	if s == nil || ev.Plan != m.plan {
		return
	}
	check(i == m.inFlight-1, "%s is being planned but is not the newest in flight", ev.ID)
	if !ev.OK {
		check(!s.fixed, "the recorded ranges of %s were answered with nothing", ev.ID)
		m.inFlight--
		s.phase, s.deadline = PhaseWaiting, time.Time{}
		if f := m.failing; f != nil && f.Txid == ev.Txid && f.Phase == PhasePlanning {
			m.failing, s.failures = nil, 0 // the sources answer again, there is just nothing to do
		}
		s.batch.Attempt.N--
		if s.batch.Attempt.N == 0 {
			check(i == len(m.slots)-1, "txid %d has never been begun, one above it has", ev.Txid)
			m.slots = m.slots[:i]
		}
		return
	}
	if s.batch.Attempt.N == 1 {
		m.lastBegin = s.began
	}
	m.attempts++
	if !s.fixed {
		s.batch.Ranges, s.batch.Idle, s.batch.Joined = ev.Ranges, ev.Idle, ev.Joined
	}
	s.phase = PhaseProcessing
	m.ready = true // more may be left than one batch holds
	m.emit(Process{s.id()})
}

// succeed takes the first n slots out as committed.
func (m *Machine) succeed(n int) {
	for _, s := range m.slots[:n] {
		m.committed, m.time = s.batch.Txid, s.batch.Time
		m.emit(Success{s.id()})
	}
	m.slots = slices.Delete(m.slots, 0, n)
	m.inFlight -= n
	m.commit = 0
	if m.failing != nil && m.failing.Txid <= m.committed {
		m.failing = nil
	}
}

// drop takes the batches in flight from index i on out of flight; they wait to be begun again.
func (m *Machine) drop(i int) {
	if i >= m.inFlight {
		return
	}
	check(i == 0 || i >= m.commit, "a part of a commit is dropped")
	ids := make([]ID, 0, m.inFlight-i)
	for _, s := range slices.Backward(m.slots[i:m.inFlight]) {
		s.phase, s.deadline = PhaseWaiting, time.Time{}
		ids = append(ids, s.id())
	}
	m.inFlight = i
	if i == 0 {
		m.commit = 0
	}
	m.ready = true // what they had planned is there
	m.abort++
	m.aborting = append(m.aborting, m.abort)
	m.emit(Abort{m.abort, ids})
}

// advance does whatever has become possible.
func (m *Machine) advance(now time.Time) {
	var wake time.Time
	if m.mode == running || m.mode == draining {
		m.record(now)
		m.beginCommit()
		m.sendReopen(now, &wake)
	}
	if m.mode == running {
		m.begin(now, &wake)
	}
	if m.mode >= draining && m.inFlight == 0 && len(m.aborting) == 0 && !m.reopening {
		m.mode = stopped
		if !m.timer.IsZero() {
			m.emit(SetTimer{})
		}
		m.emit(Stopped{m.cause})
		return
	}
	for _, s := range m.slots[:m.inFlight] {
		earliest(&wake, s.deadline)
	}
	if !wake.Equal(m.timer) {
		m.timer = wake
		m.emit(SetTimer{wake})
	}
}

// record asks for the next record. Records are written in txid order, so that the recorded batches always are a
// prefix of those not yet committed.
func (m *Machine) record(now time.Time) {
	if !m.cfg.Outside {
		return
	}
	for _, s := range m.slots[:m.inFlight] {
		if s.recorded {
			continue
		}
		if s.phase == PhaseProcessed {
			s.phase, s.fixed = PhaseRecording, true
			s.deadline = m.deadline(now)
			m.emit(Record{s.id()})
		}
		return
	}
}

func (m *Machine) beginCommit() {
	if m.commit > 0 {
		return
	}
	limit := m.cfg.MaxCommit
	if m.cfg.Outside {
		limit = 1
	}
	n := 0
	for n < min(limit, m.inFlight) && m.slots[n].ready(m.cfg.Outside) {
		n++
	}
	if n == 0 {
		return
	}
	ids := make([]ID, n)
	for i, s := range m.slots[:n] {
		s.phase = PhaseCommitting
		ids[i] = s.id()
	}
	m.commit = n
	m.emit(Commit{ids})
}

// begin asks for the next batch if there is room and reason. If only time is missing it notes when to wake.
func (m *Machine) begin(now time.Time, wake *time.Time) {
	if m.inFlight >= m.cfg.MaxPending || m.reopening || len(m.aborting) > 0 {
		return
	}
	if m.inFlight > 0 && m.slots[m.inFlight-1].phase == PhasePlanning {
		return
	}
	var s *slot // nil for a txid that has never been begun
	if m.inFlight < len(m.slots) {
		s = m.slots[m.inFlight]
	}
	var at time.Time
	if s != nil {
		at = s.notBefore
	}
	isDue := !m.due.IsZero() && !now.Before(m.due)
	if !m.ready && !isDue && (s == nil || !s.fixed) {
		if m.due.IsZero() {
			return
		}
		latest(&at, m.due)
	}
	if s == nil && m.cfg.Interval > 0 && !m.lastBegin.IsZero() {
		latest(&at, m.lastBegin.Add(m.cfg.Interval))
	}
	if now.Before(at) {
		earliest(wake, at)
		return
	}
	if s == nil {
		txid := m.committed + batch.Txid(len(m.slots)) + 1
		s = &slot{batch: batch.Batch{
			Txid:    txid,
			Attempt: batch.Attempt{Epoch: m.epoch},
			Seed:    seedOf(m.cfg.Seed, txid),
		}}
		m.slots = append(m.slots, s)
	}
	if !s.fixed {
		s.batch.Time = now.UTC().Truncate(time.Millisecond)
		before := m.time
		if m.inFlight > 0 {
			before = m.slots[m.inFlight-1].batch.Time
		}
		latest(&s.batch.Time, before)
	}
	m.ready = false
	if isDue {
		m.due = time.Time{}
	}
	s.batch.Attempt.N++
	s.phase = PhasePlanning
	s.began, s.deadline = now, m.deadline(now)
	m.inFlight++
	m.plan++
	b := s.batch
	if !s.fixed {
		b.Ranges, b.Idle, b.Joined = nil, nil, nil
	}
	m.emit(Begin{Batch: b, Recorded: s.fixed, Plan: m.plan})
}

func (m *Machine) deadline(now time.Time) time.Time {
	if m.cfg.Timeout == 0 {
		return time.Time{}
	}
	return now.Add(m.cfg.Timeout)
}

// earliest lowers t to u; a zero time stands for never.
func earliest(t *time.Time, u time.Time) {
	if !u.IsZero() && (t.IsZero() || u.Before(*t)) {
		*t = u
	}
}

// latest raises t to u.
func latest(t *time.Time, u time.Time) {
	if u.After(*t) {
		*t = u
	}
}
