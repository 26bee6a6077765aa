// Package runner drives a coordinator.Machine in real time: it gives it the clock, performs its actions through an
// Executor, and reports how they ended.
//
// It guarantees that the machine's actions are performed in their order, that Abort is called only after every
// call for its batches has returned, and that Run returns: on Drain when what is in flight has ended, on Stop
// within Config.StopTimeout, whatever hangs.
//
// One goroutine, that of Run, owns the order of events; each call of the Executor that can take time runs in its
// own.
package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/coordinator"
	"github.com/tridentd/tridentd/txstate"
)

// ErrUnknown says, wrapped in an error of Executor.Commit, that the write may have happened or not.
var ErrUnknown = errors.New("outcome of the commit is unknown")

// DefaultStopTimeout is how long a stop waits for calls that don't return.
const DefaultStopTimeout = 20 * time.Second

// Executor does the work of batches. Methods that take a context return soon after it is cancelled.
type Executor interface {
	// Plan fills b with its ranges, or, if recorded, takes over those it holds. ok is false if there is nothing to
	// do. It is called for one batch at a time, in txid order.
	Plan(ctx context.Context, b *batch.Batch, recorded bool) (ok bool, err error)
	// Record makes the ranges of a processed batch durable. It is called for one batch at a time, in txid order.
	Record(ctx context.Context, b *batch.Batch) error
	// Process computes what a planned batch changes. It is called for several batches at once.
	Process(ctx context.Context, b *batch.Batch) error
	// Commit makes consecutive batches durable. If its error doesn't wrap ErrUnknown, nothing has been written. Its
	// context is never cancelled.
	Commit(ctx context.Context, bs []*batch.Batch) error
	// Abort drops what the batches hold, the newest first. No other call for them is running.
	Abort(bs []*batch.Batch)
	// Reopen opens the store again after an unknown outcome and tells the last txid that it holds. Of the batches in
	// the commit, those up to it are then told to Success, the others to Abort.
	Reopen(ctx context.Context) (batch.Txid, error)
	// Success tells that b has committed. It is called in txid order and must not block.
	Success(b *batch.Batch)
	// Ready receives a value when Plan may have something new.
	Ready() <-chan struct{}
}

// Timer is implemented by an Executor whose pipeline wants batches at certain times even without data.
type Timer interface {
	// Due is the next such time, zero if there is none. It is asked at the start, after every commit and after a planning that
	// found nothing, and must not block. A time at which Plan found nothing must not be told again.
	Due() time.Time
}

// Config is what a Runner is made from.
type Config struct {
	Coordinator coordinator.Config
	// Snapshot is where the store stands; its Epoch is the one that this run has claimed.
	Snapshot txstate.Snapshot
	Executor Executor
	Logger   hclog.Logger // nil: nothing is logged
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// StopTimeout is how long a stop, or the end after a permanent failure, waits for calls that don't return.
	// 0 means DefaultStopTimeout.
	StopTimeout time.Duration
	// Observe is told every event with the actions that follow from it, in order, before they are performed. It must
	// neither block nor keep the slice. May be nil.
	Observe func(now time.Time, ev coordinator.Event, actions []coordinator.Action)
}

// Runner runs the batches of one pipeline.
type Runner struct {
	cfg    Config
	exec   Executor
	timer  Timer // nil if the executor isn't one
	log    hclog.Logger
	events chan coordinator.Event
	drain  chan struct{}
	stop   chan struct{}
	ended  chan struct{} // closed when Run returns: late reports are dropped

	mu      sync.Mutex
	machine *coordinator.Machine // guarded by mu
	last    *coordinator.Failure // guarded by mu
	calls   []*Call              // guarded by mu; those running, in the order they began

	// The rest belongs to Run's goroutine.
	flights map[batch.Txid]*flight
	aborted chan struct{} // closed when the latest Abort is done; nil before the first
	tick    *time.Timer
	limit   *time.Timer // of the end, once bounded
	bounded bool
	warned  *coordinator.Failure
	err     error
	done    bool
}

// flight is one attempt of a batch from its beginning to its commit or abort.
type flight struct {
	b      *batch.Batch
	ctx    context.Context
	cancel context.CancelFunc
	calls  sync.WaitGroup
}

// New returns a runner; Run starts it. It fails if the configuration is not valid.
func New(cfg Config) (*Runner, error) {
	m, err := coordinator.New(cfg.Coordinator)
	if err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.StopTimeout <= 0 {
		cfg.StopTimeout = DefaultStopTimeout
	}
	r := &Runner{
		cfg: cfg, exec: cfg.Executor, log: cfg.Logger, machine: m,
		events:  make(chan coordinator.Event, 64),
		drain:   make(chan struct{}, 1),
		stop:    make(chan struct{}, 1),
		ended:   make(chan struct{}),
		flights: map[batch.Txid]*flight{},
	}
	r.timer, _ = cfg.Executor.(Timer)
	return r, nil
}

// Drain asks Run to finish what is in flight and to return. It doesn't wait.
func (r *Runner) Drain() { signal(r.drain) }

// Stop asks Run to drop what has not reached its commit and to return. It doesn't wait.
func (r *Runner) Stop() { signal(r.stop) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run processes batches until Drain, Stop, the end of ctx (which means Stop) or a permanent failure, which it
// returns. It may be called once.
func (r *Runner) Run(ctx context.Context) error {
	defer close(r.ended)
	r.tick, r.limit = newTimer(), newTimer()
	defer r.tick.Stop()
	defer r.limit.Stop()
	defer func() {
		for _, f := range r.flights { // all are released alike: the order doesn't matter
			f.cancel()
		}
	}()
	ended := ctx.Done()
	s := r.cfg.Snapshot
	start := coordinator.Start{Txid: s.Txid, Time: s.Time, Epoch: s.Epoch}
	for _, e := range s.Recorded {
		start.Recorded = append(start.Recorded, batchOf(e))
	}
	r.step(start)
	r.askDue()
	for stopping := false; !r.done; {
		select {
		case ev := <-r.events:
			r.step(ev)
			if asks(ev) {
				r.askDue()
			}
		case <-r.exec.Ready():
			r.step(coordinator.DataReady{})
		case <-r.tick.C:
			r.step(coordinator.Tick{})
		case <-r.drain:
			r.step(coordinator.Drain{})
		case <-r.stop:
			r.step(coordinator.Stop{})
			if !stopping {
				stopping, r.bounded = true, true
				r.limit.Reset(r.cfg.StopTimeout)
			}
		case <-ended:
			ended = nil
			r.Stop()
		case <-r.limit.C:
			if stopping {
				return r.hangs()
			}
			r.Stop() // the end after a permanent failure takes too long
		}
	}
	return r.err
}

// newTimer returns a timer that is not running.
func newTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

func batchOf(e txstate.Entry) batch.Batch {
	b := batch.Batch{Txid: e.Txid, Attempt: e.Attempt, Time: e.Time, Seed: e.Seed, Idle: e.Idle, Joined: e.Joined}
	for _, re := range e.Ranges {
		b.Ranges = append(b.Ranges, re.Range)
	}
	return b
}

// asks tells whether the next time at which a batch is wanted may be another now: batches may have committed, or the planning
// for that time found nothing.
func asks(ev coordinator.Event) bool {
	switch ev := ev.(type) {
	case coordinator.Committed, coordinator.Reopened:
		return true
	case coordinator.Planned:
		return !ev.OK
	default:
		return false
	}
}

func (r *Runner) askDue() {
	if r.timer == nil || r.done {
		return
	}
	r.step(coordinator.Due{At: r.timer.Due()})
}

// step gives the machine an event and performs what follows.
func (r *Runner) step(ev coordinator.Event) {
	now := r.cfg.Now()
	r.mu.Lock()
	actions := r.machine.Step(now, ev)
	stats := r.machine.Stats()
	if stats.Failing != nil {
		r.last = stats.Failing
	}
	r.mu.Unlock()
	if r.cfg.Observe != nil {
		r.cfg.Observe(now, ev, actions)
	}
	r.report(ev, stats)
	if stats.Cause != nil && !r.bounded {
		r.bounded = true
		r.limit.Reset(r.cfg.StopTimeout)
	}
	for _, a := range actions {
		r.perform(now, a)
	}
}

// report logs failures and what came of them.
func (r *Runner) report(ev coordinator.Event, st coordinator.Stats) {
	f := st.Failing
	switch {
	case f == nil && r.warned != nil:
		if st.Committed >= r.warned.Txid {
			r.log.Info("recovered", "txid", uint64(r.warned.Txid), "failures", r.warned.Failures)
		}
		r.warned = nil
	case f != nil && (r.warned == nil || f.ID != r.warned.ID || f.Failures != r.warned.Failures):
		r.warned = f
		args := []any{
			"txid", uint64(f.Txid), "attempt", f.Attempt.String(), "phase", f.Phase.String(), "kind", f.Kind.String(), "code", string(f.Code),
			"failures", f.Failures, "error", f.Err,
		}
		if st.Mode == "running" {
			if !st.BackoffUntil.IsZero() {
				args = append(args, "retry_in", st.BackoffUntil.Sub(f.At).String())
			}
			r.log.Warn("batch failed and will be tried again", args...)
		} else {
			r.log.Error("batch failed", args...)
		}
	}
	if e, ok := ev.(coordinator.CommitUnknown); ok {
		r.log.Error("the outcome of a commit is unknown", "txid", uint64(e.Txid), "error", e.Err)
	}
}

func (r *Runner) perform(now time.Time, a coordinator.Action) {
	switch a := a.(type) {
	case coordinator.Begin:
		r.begin(a)
	case coordinator.Process:
		f := r.flight(a.ID)
		r.call("process", f, func() coordinator.Event {
			if err := r.exec.Process(f.ctx, f.b); err != nil {
				return coordinator.Failed{ID: a.ID, Err: err}
			}
			return coordinator.Processed{ID: a.ID}
		})
	case coordinator.Record:
		f := r.flight(a.ID)
		r.call("record", f, func() coordinator.Event {
			if err := r.exec.Record(f.ctx, f.b); err != nil {
				return coordinator.Failed{ID: a.ID, Err: err}
			}
			return coordinator.Recorded{ID: a.ID}
		})
	case coordinator.Commit:
		r.commit(a)
	case coordinator.Abort:
		r.abort(a)
	case coordinator.Success:
		f := r.flight(a.ID)
		delete(r.flights, a.Txid)
		f.cancel()
		r.exec.Success(f.b)
		r.log.Debug("batch committed", "txid", uint64(a.Txid), "attempt", a.Attempt.String())
	case coordinator.Reopen:
		r.reopen(a)
	case coordinator.SetTimer:
		if a.At.IsZero() {
			r.tick.Stop()
		} else {
			r.tick.Reset(a.At.Sub(now))
		}
	case coordinator.Stopped:
		r.done, r.err = true, a.Err
	}
}

func (r *Runner) flight(id coordinator.ID) *flight {
	f := r.flights[id.Txid]
	if f == nil || f.b.Attempt != id.Attempt {
		panic(fmt.Sprintf("runner: %s is not in flight", id))
	}
	return f
}

func (r *Runner) begin(a coordinator.Begin) {
	b := a.Batch
	if empty := r.flights[b.Txid]; empty != nil { // its planning found nothing
		empty.cancel()
	}
	f := &flight{b: &b}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	r.flights[b.Txid] = f
	id := coordinator.ID{Txid: b.Txid, Attempt: b.Attempt}
	r.call("plan", f, func() coordinator.Event {
		ok, err := r.exec.Plan(f.ctx, f.b, a.Recorded)
		if err != nil {
			return coordinator.Failed{ID: id, Err: err}
		}
		return coordinator.Planned{ID: id, Plan: a.Plan, OK: ok, Ranges: b.Ranges, Idle: b.Idle, Joined: b.Joined}
	})
}

func (r *Runner) commit(a coordinator.Commit) {
	fs := make([]*flight, len(a.Batches))
	bs := make([]*batch.Batch, len(a.Batches))
	for i, id := range a.Batches {
		fs[i] = r.flight(id)
		bs[i] = fs[i].b
	}
	last := a.Batches[len(a.Batches)-1]
	r.spawn("commit", fs, func() coordinator.Event {
		err := r.exec.Commit(context.Background(), bs)
		switch {
		case err == nil:
			return coordinator.Committed{ID: last}
		case errors.Is(err, ErrUnknown):
			return coordinator.CommitUnknown{ID: last, Err: err}
		default:
			return coordinator.Failed{ID: last, Err: err}
		}
	})
}

// abort cancels at once, then drops when all calls have returned and the abort before is done.
func (r *Runner) abort(a coordinator.Abort) {
	fs := make([]*flight, len(a.Batches))
	bs := make([]*batch.Batch, len(a.Batches))
	for i, id := range a.Batches {
		fs[i] = r.flight(id)
		bs[i] = fs[i].b
		fs[i].cancel()
		delete(r.flights, id.Txid)
	}
	before := r.aborted
	done := make(chan struct{})
	r.aborted = done
	go func() {
		defer close(done)
		for _, f := range fs {
			f.calls.Wait()
		}
		if before != nil {
			<-before
		}
		select {
		case <-r.ended: // the stop ran out of time: the executor is no longer ours
			return
		default:
		}
		r.exec.Abort(bs)
		r.send(coordinator.Aborted{Abort: a.Abort})
	}()
}

func (r *Runner) reopen(a coordinator.Reopen) {
	r.spawn("reopen", nil, func() coordinator.Event {
		txid, err := r.exec.Reopen(context.Background())
		if err != nil {
			return coordinator.ReopenFailed{Reopen: a.Reopen, Err: err}
		}
		return coordinator.Reopened{Reopen: a.Reopen, Txid: txid}
	})
}

func (r *Runner) call(op string, f *flight, fn func() coordinator.Event) {
	r.spawn(op, []*flight{f}, fn)
}

// spawn runs fn in a goroutine of its own, as a call for the flights, and sends the event that it returns.
func (r *Runner) spawn(op string, fs []*flight, fn func() coordinator.Event) {
	c := &Call{Op: op, Since: r.cfg.Now()}
	var ids []string
	for _, f := range fs {
		f.calls.Add(1)
		ids = append(ids, fmt.Sprintf("txid %d attempt %s", f.b.Txid, f.b.Attempt))
	}
	c.Batch = strings.Join(ids, ", ")
	r.mu.Lock()
	r.calls = append(r.calls, c)
	r.mu.Unlock()
	go func() {
		ev := fn()
		r.mu.Lock()
		r.calls = slices.DeleteFunc(r.calls, func(d *Call) bool { return d == c })
		r.mu.Unlock()
		for _, f := range fs {
			f.calls.Done()
		}
		r.send(ev)
	}()
}

func (r *Runner) send(ev coordinator.Event) {
	select {
	case r.events <- ev:
	case <-r.ended:
	}
}

// hangs is the error of a stop that ran out of time.
func (r *Runner) hangs() error {
	now := r.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var calls []string
	for _, c := range r.calls {
		calls = append(calls, strings.TrimSpace(fmt.Sprintf("%s %s (for %s)", c.Op, c.Batch, now.Sub(c.Since).Round(time.Millisecond))))
	}
	what := strings.Join(calls, "; ")
	if what == "" {
		what = "the abort of batches"
	}
	err := batch.NewError(batch.Transient, batch.CodeTimeout, "stop",
		fmt.Errorf("after %s still running: %s", r.cfg.StopTimeout, what),
		"what was not committed is begun again at the next start; find out what hangs")
	if cause := r.machine.Stats().Cause; cause != nil {
		return errors.Join(cause, err)
	}
	return err
}
