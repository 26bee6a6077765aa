package coordtest

import (
	"container/heap"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/coordinator"
	"github.com/tridentd/tridentd/coordinator/runner"
	"github.com/tridentd/tridentd/txstate"
)

// Setup is what a seed decides about a simulation.
type Setup struct {
	World   WorldConfig
	Machine coordinator.Config
	Records int64         // in all
	Trouble time.Duration // how long faults go on
}

// SetupOf derives a setup from a seed.
func SetupOf(seed uint64) Setup {
	b := batch.Batch{Seed: seed}
	r := b.Rand("setup", batch.Partition{}, 0)
	var s Setup
	s.Machine.Seed = r.Uint64()
	s.Machine.MaxPending = 1 + r.IntN(6)
	s.Machine.MaxCommit = r.IntN(4)
	s.Machine.Outside = r.IntN(2) == 0
	if r.IntN(3) == 0 {
		s.Machine.Interval = time.Duration(1+r.IntN(50)) * time.Millisecond
	}
	if r.IntN(2) == 0 {
		s.Machine.Timeout = 2 * time.Second
	}
	s.World = WorldConfig{
		Partitions: 1 + r.IntN(3), MaxRecords: int64(1 + r.IntN(10)),
		Outside: s.Machine.Outside, MaxPending: s.Machine.MaxPending, Hangs: s.Machine.Timeout > 0,
	}
	s.Records = int64(100 + r.IntN(200))
	s.Trouble = time.Duration(5+r.IntN(20)) * time.Second
	return s
}

// bounds of a simulation: whoever reaches them doesn't converge.
const (
	calmLimit = 10 * time.Minute
	stepLimit = 200_000
)

// Sim runs one Machine after another against a World on a virtual clock, in one goroutine. Calls take a random
// time, their answers come late, twice and out of order, also after a restart; the process crashes at random
// actions and between the steps of calls. Everything is a function of the seed.
type Sim struct {
	setup Setup
	w     *World
	r     *batch.Rand
	m     *coordinator.Machine
	now   time.Time

	queue queue
	seq   uint64
	run   int // counts machines; what is scheduled for an earlier one is void
	timer uint64
	calm  bool
	steps int

	batches map[batch.Txid]*batch.Batch // as the machine's caller holds them
	calls   map[coordinator.ID][]*call
	aborts  []func() bool // asked for and not done, in order; each tells whether it could be done
	dead    bool          // between a crash or a stop and the next start
	tracing bool
	trace   []string
}

// call is an op under way.
type call struct {
	op     *op
	gone   bool
	answer func(error) coordinator.Event
}

// Result tells how a simulation went.
type Result struct {
	Stats WorldStats
	Steps int
	Took  time.Duration // on the virtual clock
	Txid  batch.Txid
}

// Simulate runs the simulation of a seed. The error names the first violation, or what has not converged, and
// ends with the last steps.
func Simulate(seed uint64) (Result, error) {
	s := newSim(seed)
	err := s.simulate()
	if err != nil { // once more, to tell the way there
		s = newSim(seed)
		s.tracing = true
		err = fmt.Errorf("%w\n%+v\n%s", s.simulate(), s.setup, strings.Join(s.trace, "\n"))
	}
	return Result{Stats: s.w.Stats(), Steps: s.steps, Took: s.now.Sub(Base), Txid: batch.Txid(len(s.w.Ledger()))}, err
}

func newSim(seed uint64) *Sim {
	b := batch.Batch{Seed: seed}
	setup := SetupOf(seed)
	return &Sim{
		setup: setup, w: NewWorld(setup.World, seed), now: Base,
		r: b.Rand("simulation", batch.Partition{}, 0),
	}
}

func (s *Sim) simulate() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	s.start()
	s.schedule(0, false, s.produce)
	s.schedule(s.setup.Trouble, false, func() {
		s.calm = true
		s.w.Calm()
		s.log("calm")
	})
	for s.queue.Len() > 0 {
		it := heap.Pop(&s.queue).(*item)
		s.now = it.at
		if it.run != 0 && it.run != s.run {
			continue
		}
		s.steps++
		it.fn()
		if err := s.w.Err(); err != nil {
			return err
		}
		if s.calm && s.setup.Records == 0 && s.w.Done() {
			return s.w.Verify()
		}
		if s.steps > stepLimit || s.now.Sub(Base) > s.setup.Trouble+calmLimit {
			break
		}
	}
	return fmt.Errorf("not converged after %d steps and %s: %+v", s.steps, s.now.Sub(Base), s.m.Stats())
}

// schedule runs fn after d; if bound, only while the present machine lives.
func (s *Sim) schedule(d time.Duration, bound bool, fn func()) {
	s.seq++
	it := &item{at: s.now.Add(d), seq: s.seq, fn: fn}
	if bound {
		it.run = s.run
	}
	heap.Push(&s.queue, it)
}

func (s *Sim) chance(permille int) bool { return !s.calm && s.r.IntN(1000) < permille }

func (s *Sim) log(format string, args ...any) {
	if !s.tracing {
		return
	}
	if len(s.trace) == 200 {
		s.trace = append(s.trace[:0], s.trace[100:]...)
	}
	s.trace = append(s.trace, fmt.Sprintf("%-12s ", since(s.now))+fmt.Sprintf(format, args...))
}

// delay is how long something takes: mostly little, sometimes long.
func (s *Sim) delay() time.Duration {
	if s.chance(50) {
		return time.Duration(s.r.IntN(500)) * time.Millisecond
	}
	return time.Duration(s.r.IntN(5000)) * time.Microsecond
}

// produce adds records until all are there.
func (s *Sim) produce() {
	n := min(s.setup.Records, int64(1+s.r.IntN(12)))
	s.setup.Records -= n
	s.w.Produce(s.r.IntN(s.setup.World.Partitions), n)
	s.schedule(s.delay(), false, s.fetch)
	if s.chance(100) && !s.dead {
		s.step(coordinator.Due{At: s.now.Add(s.delay())})
	}
	if s.setup.Records > 0 {
		s.schedule(time.Duration(s.r.IntN(int(2*s.setup.Trouble/40))), false, s.produce)
	}
}

func (s *Sim) fetch() {
	s.w.Fetch()
	if !s.dead {
		s.step(coordinator.DataReady{})
	}
}

func (s *Sim) start() {
	s.run++
	s.dead = false
	s.batches = map[batch.Txid]*batch.Batch{}
	s.calls = map[coordinator.ID][]*call{}
	s.aborts = nil
	m, err := coordinator.New(s.setup.Machine)
	if err != nil {
		panic(err)
	}
	s.m = m
	snap := s.w.Start()
	s.log("start txid=%d epoch=%d recorded=%d", snap.Txid, snap.Epoch, len(snap.Recorded))
	s.step(startOf(snap))
	s.schedule(s.delay(), true, s.fetch)
}

func startOf(snap txstate.Snapshot) coordinator.Start {
	ev := coordinator.Start{Txid: snap.Txid, Time: snap.Time, Epoch: snap.Epoch}
	for _, e := range snap.Recorded {
		b := batch.Batch{Txid: e.Txid, Attempt: e.Attempt, Time: e.Time, Seed: e.Seed}
		for _, r := range e.Ranges {
			b.Ranges = append(b.Ranges, r.Range)
		}
		ev.Recorded = append(ev.Recorded, b)
	}
	return ev
}

// step gives the machine an event and performs what follows, if the process lives that long.
func (s *Sim) step(ev coordinator.Event) {
	s.log("  %T %+v", ev, ev)
	actions := append([]coordinator.Action(nil), s.m.Step(s.now, ev)...)
	for _, a := range actions {
		if s.chance(4) {
			s.crash()
			return
		}
		if s.tracing {
			s.log("%s", FormatAction(a))
		}
		s.perform(a)
	}
	if s.chance(1) {
		s.schedule(s.delay(), true, func() { s.step(coordinator.Drain{}) })
	}
	if s.chance(1) {
		s.schedule(s.delay(), true, func() { s.step(coordinator.Stop{}) })
	}
}

func (s *Sim) crash() {
	s.log("crash")
	s.w.Crash()
	s.restart()
}

func (s *Sim) restart() {
	s.dead = true
	s.run++
	s.schedule(s.delay()+time.Millisecond, false, s.start)
}

// report brings an answer to the machine: late, perhaps twice. Answers that name an attempt may even reach the
// machine of a later start.
func (s *Sim) report(ev coordinator.Event) {
	stray := false
	switch ev.(type) {
	case coordinator.Planned, coordinator.Processed, coordinator.Recorded, coordinator.Committed, coordinator.CommitUnknown, coordinator.Failed:
		stray = s.chance(50)
	}
	s.schedule(s.delay(), true, func() { s.step(ev) })
	if s.chance(50) {
		s.schedule(s.delay(), true, func() { s.step(ev) })
	}
	if stray {
		s.schedule(s.delay()*20, false, func() {
			if !s.dead {
				s.step(ev)
			}
		})
	}
}

func (s *Sim) perform(a coordinator.Action) {
	switch a := a.(type) {
	case coordinator.Begin:
		b := a.Batch
		id := coordinator.ID{Txid: b.Txid, Attempt: b.Attempt}
		s.w.check(a.Recorded || !b.Time.Before(s.now.UTC().Truncate(time.Millisecond)), "%s is planned at %s with the clock %s", id, since(s.now), since(b.Time))
		s.batches[b.Txid] = &b
		var ok bool
		s.call([]coordinator.ID{id}, s.w.plan(&b, a.Recorded, &ok), func(err error) coordinator.Event {
			if err != nil {
				return coordinator.Failed{ID: id, Err: err}
			}
			return coordinator.Planned{ID: id, Plan: a.Plan, OK: ok, Ranges: b.Ranges}
		})
	case coordinator.Process:
		s.call([]coordinator.ID{a.ID}, s.w.process(s.batches[a.Txid]), answer(a.ID, coordinator.Processed{ID: a.ID}))
	case coordinator.Record:
		s.call([]coordinator.ID{a.ID}, s.w.record(s.batches[a.Txid]), answer(a.ID, coordinator.Recorded{ID: a.ID}))
	case coordinator.Commit:
		bs := make([]*batch.Batch, len(a.Batches))
		for i, id := range a.Batches {
			bs[i] = s.batches[id.Txid]
		}
		last := a.Batches[len(a.Batches)-1]
		s.call(a.Batches, s.w.commit(bs), answer(last, coordinator.Committed{ID: last}))
	case coordinator.Abort:
		s.abort(a)
	case coordinator.Success:
		s.w.success(a.ID)
	case coordinator.Reopen:
		var txid batch.Txid
		s.call(nil, s.w.reopen(a.Reopen, &txid), func(err error) coordinator.Event {
			if err != nil {
				return coordinator.ReopenFailed{Reopen: a.Reopen, Err: err}
			}
			return coordinator.Reopened{Reopen: a.Reopen, Txid: txid}
		})
	case coordinator.SetTimer:
		s.setTimer(a.At)
	case coordinator.Stopped:
		s.restart() // whatever the cause was, it is mended
	}
}

// setTimer replaces the timer. It fires once, now and then a little early.
func (s *Sim) setTimer(at time.Time) {
	s.timer++
	if at.IsZero() {
		return
	}
	if s.chance(50) {
		at = at.Add(-time.Millisecond)
	}
	t := s.timer
	s.schedule(max(at.Sub(s.now), 0), true, func() {
		if t == s.timer {
			s.step(coordinator.Tick{})
		}
	})
}

// call runs an op step by step.
func (s *Sim) call(ids []coordinator.ID, o *op, answer func(error) coordinator.Event) {
	c := &call{op: o, answer: answer}
	for _, id := range ids {
		s.calls[id] = append(s.calls[id], c)
	}
	if !o.hangs {
		s.next(c)
	}
}

func (s *Sim) next(c *call) {
	s.schedule(s.delay(), true, func() {
		if c.gone {
			return
		}
		if s.chance(2) {
			s.crash()
			return
		}
		done, err := c.op.step()
		if !done {
			s.next(c)
			return
		}
		c.gone = true
		s.report(c.answer(err))
	})
}

// abort cancels the calls of the batches: some end at once, some run on for a while. Then the batches are dropped.
func (s *Sim) abort(a coordinator.Abort) {
	var running []*call
	for _, id := range a.Batches {
		for _, c := range s.calls[id] {
			if !c.gone {
				running = append(running, c)
			}
		}
		delete(s.calls, id)
	}
	for _, c := range running {
		if c.op.hangs || s.r.IntN(2) == 0 {
			c.gone = true
			c.op.cancel()
			if s.chance(500) {
				s.report(c.answer(errCancelled))
			}
		}
	}
	s.aborts = append(s.aborts, func() bool {
		for _, c := range running {
			if !c.gone {
				return false
			}
		}
		if s.w.drop(a.Batches) {
			s.schedule(s.delay(), true, s.fetch)
		}
		s.report(coordinator.Aborted{Abort: a.Abort})
		return true
	})
	if len(s.aborts) == 1 {
		s.drop()
	}
}

// drop performs the aborts that can be, in order, and looks again later for the others.
func (s *Sim) drop() {
	for len(s.aborts) > 0 && s.aborts[0]() {
		s.aborts = s.aborts[1:]
	}
	if len(s.aborts) > 0 {
		s.schedule(time.Millisecond, true, s.drop)
	}
}

// item is something that happens at a time; of the same time, in the order in which it was scheduled.
type item struct {
	at  time.Time
	seq uint64
	run int // 0: whatever machine lives
	fn  func()
}

type queue []*item

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(*item)) }
func (q *queue) Pop() any {
	old := *q
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return it
}

// answer is a call's answer: ev, or a failure of id.
func answer(id coordinator.ID, ev coordinator.Event) func(error) coordinator.Event {
	return func(err error) coordinator.Event {
		switch {
		case err == nil:
			return ev
		case errors.Is(err, runner.ErrUnknown):
			return coordinator.CommitUnknown{ID: id, Err: err}
		default:
			return coordinator.Failed{ID: id, Err: err}
		}
	}
}
