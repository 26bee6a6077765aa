package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/coordinator"
	"github.com/tridentd/tridentd/coordinator/runner"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/savepoint"
	"github.com/tridentd/tridentd/txstate"
)

// Run runs a pipeline until ctx is cancelled (it then finishes the batches in flight and returns nil), until it
// has caught up if o asks for that, or until a permanent failure, which it returns.
func Run(ctx context.Context, p *Pipeline, o Options) error {
	h, err := Start(ctx, p, o)
	if err != nil {
		return err
	}
	return h.Wait()
}

// Handle is a pipeline that runs.
type Handle struct {
	o    Options
	plan *plan.Plan
	// memory is how the limit of what the run keeps in memory is shared out.
	memory budget
	dir    string
	log    hclog.Logger
	began  time.Time
	// checked counts a batch that was computed twice and came out equal; nil if nobody counts.
	checked func(batch.Txid)
	done    chan struct{}
	err     error // valid after done

	reopening sync.Mutex // held while the store is opened again; taken before mu

	saver  *saver // nil without a place for savepoints
	ledger atomic.Pointer[LedgerStatus]

	mu      sync.Mutex
	db      *pebblestate.DB // nil while it is opened again, and once it is closed
	closed  bool            // the store is closed for good
	exec    *exec.Executor  // nil until the sources have been opened
	run     *runner.Runner  // nil until then
	mirrors []txstate.Mirror
	left    []MirrorFailures // of the terms before
	drained bool
	drain   chan struct{} // closed by Drain
	opening error         // what keeps the sources from being opened
	since   time.Time     // of opening
	ended   time.Time     // zero until the run has ended
	last    *txstate.Entry
	epoch   batch.Epoch               // that the store holds
	txid    batch.Txid                // the last committed
	moved   chan struct{}             // closed, and made anew, when txid rises
	targets map[batch.Partition]int64 // of a bounded run
	holding []*heldBatch              // batches that a gate holds back
	role    Role
	lock    txstate.Lock  // nil without one
	quit    chan struct{} // of the term: closed by abandon; nil outside one
	fatal   error         // what abandon was told
	failed  time.Time     // of fatal
	cause   error         // what the term, or the run, ends with while it is being closed
	caused  time.Time     // of cause
}

// Start opens the store and begins to run in the background. Mistakes of the pipeline and of the store are returned
// at once; everything else is told by Wait.
func Start(ctx context.Context, p *Pipeline, o Options) (*Handle, error) {
	pl, err := p.Plan()
	if err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	h := &Handle{
		o: o, plan: pl, memory: newBudget(cmp.Or(pl.Memory, o.MemoryLimit), o.CacheBytes, pl.Batch.MaxBytes), dir: filepath.Join(o.DataDir, pl.Name),
		log:  o.Logger.With("pipeline", pl.Name),
		done: make(chan struct{}), drain: make(chan struct{}), moved: make(chan struct{}), began: time.Now(),
	}
	if h.saver, err = newSaver(h); err != nil {
		return nil, err
	}
	unregister := func() {}
	if o.Registerer != nil {
		m := NewMetrics(pl.Name, h.Status)
		m.ended = h.done
		if err := m.register(pl.Name, o.Registerer); err != nil {
			return nil, err
		}
		unregister = func() { o.Registerer.Unregister(m) }
		h.o.Observer = observers{m, o.Observer}
		h.checked = func(batch.Txid) { m.checked.Inc() }
	}
	locked := pl.Keeper != nil && pl.Keeper.Lock != nil
	switch {
	case o.Standby && !locked:
		err = errNoLock(pl.Name)
	case o.Standby: // it opens the store once it leads
		h.mu.Lock() // its metrics may be collected already
		h.role = Standby
		h.mu.Unlock()
	default:
		err = h.openStore(ctx)
	}
	if err != nil {
		unregister()
		return nil, err
	}
	go func() {
		defer close(h.done)
		h.err = h.serve(ctx, locked)
		h.mu.Lock()
		h.ended = time.Now()
		h.mu.Unlock()
	}()
	return h, nil
}

// openStore opens the store of a run that is about to begin.
func (h *Handle) openStore(ctx context.Context) error {
	db, err := h.open(ctx)
	if err != nil {
		return err
	}
	snap, err := db.Store().Load(ctx)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	h.mu.Lock()
	h.db, h.closed, h.epoch = db, false, snap.Epoch
	h.mu.Unlock()
	h.advance(snap.Txid)
	if h.o.AfterOpen != nil {
		h.o.AfterOpen()
	}
	return nil
}

func (h *Handle) open(ctx context.Context) (*pebblestate.DB, error) {
	if err := pebblestate.CheckAside(h.dir); err != nil {
		return nil, err
	}
	o := pebblestate.Options{
		Dir: h.dir, Pipeline: h.plan.Name, Shards: plan.DefaultShards, CreateIfMissing: true, Logger: h.log, CacheBytes: h.memory.cache, MemTableBytes: h.memory.memTable,
	}
	if h.o.store != nil {
		h.o.store(&o)
	}
	return pebblestate.Open(ctx, o)
}

// Wait returns when the run has ended: nil after a drain, otherwise what ended it.
func (h *Handle) Wait() error {
	<-h.done
	return h.err
}

// Done is closed when the run has ended.
func (h *Handle) Done() <-chan struct{} { return h.done }

// WaitFor returns once txid has committed, or with the reason why it won't: the end of the run, or ctx's error.
func (h *Handle) WaitFor(ctx context.Context, txid batch.Txid) error {
	for {
		h.mu.Lock()
		at, moved := h.txid, h.moved
		h.mu.Unlock()
		if at >= txid {
			return nil
		}
		select {
		case <-moved:
		case <-h.done:
			if h.err != nil {
				return h.err
			}
			return fmt.Errorf("the pipeline ended at txid %d: %w", at, errEnded)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// advance notes a committed txid and wakes those that wait for it.
func (h *Handle) advance(txid batch.Txid) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.txid = txid
	close(h.moved)
	h.moved = make(chan struct{})
}

// Drain finishes the batches in flight, begins no other, and ends the run. What isn't finished within Options.Grace is
// dropped: it is done again by the next run.
func (h *Handle) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.drained {
		h.drained = true
		close(h.drain)
	}
}

// Entries iterates over committed ledger entries with from <= txid <= to, in order; to = 0 means to the last.
func (h *Handle) Entries(ctx context.Context, from, to batch.Txid) iter.Seq2[txstate.Entry, error] {
	db, err := h.asked()
	if err != nil {
		return func(yield func(txstate.Entry, error) bool) { yield(txstate.Entry{}, err) }
	}
	return func(yield func(txstate.Entry, error) bool) {
		for e, err := range db.Store().Entries(ctx, from, to) {
			if !yield(e, h.meanwhile(err)) {
				return
			}
		}
	}
}

var (
	errEnded = errors.New("the pipeline has ended")
	errAgain = batch.NewError(batch.Transient, batch.CodeUnavailable, "ask", errors.New("the store is being opened again after a failed write"), "ask again in a moment")
)

// asked returns the store for somebody who asks something of it.
func (h *Handle) asked() (*pebblestate.DB, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.db != nil:
		return h.db, nil
	case h.closed:
		return nil, errEnded
	case h.role == Standby:
		return nil, errStandby
	}
	return nil, errAgain
}

// meanwhile returns an error of a store that was asked, or what has become of the store if it was closed before it could answer.
func (h *Handle) meanwhile(err error) error {
	if !errors.Is(err, pebblestate.ErrClosed) {
		return err
	}
	if _, err := h.asked(); err != nil {
		return err
	}
	return errAgain
}

// Dir is the pipeline's data directory.
func (h *Handle) Dir() string { return h.dir }

// serve runs the pipeline, under its lock if there is one.
func (h *Handle) serve(ctx context.Context, locked bool) error {
	// The run ends by Drain, which leaves time for what is in flight: ctx isn't passed on.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-ctx.Done():
			h.Drain()
		case <-finished:
		}
	}()
	if locked {
		return h.underLock(work)
	}
	return h.term(work, nil)
}

// term runs the pipeline, whose store is open, and closes everything behind it. lease is the lock that it runs under; nil if
// there is none. Once that is lost, work ends, and nothing is written any more.
func (h *Handle) term(ctx context.Context, lease txstate.Lease) (err error) {
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	finished := make(chan struct{})
	defer close(finished)
	quit := h.beginTerm()
	if lease != nil {
		go func() {
			select {
			case <-lease.Lost():
				h.log.Error("the lock is lost: what is in flight is dropped", "error", lease.Err())
				cancel(lease.Err())
			case <-finished:
			}
		}()
	}
	defer func() {
		h.mu.Lock()
		db := h.db
		h.db, h.exec, h.run, h.closed = nil, nil, nil, true
		h.mu.Unlock()
		h.endsWith(err)
		if h.o.BeforeClose != nil {
			h.o.BeforeClose()
		}
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	defer func() {
		if fatal := h.endTerm(); fatal != nil {
			err = errors.Join(fatal, err)
		}
		if lease == nil {
			return
		}
		if lost := h.lossOf(lease, err); lost != nil { // all else follows from that
			err = lost
		}
	}()
	if err := h.openMirrors(work, lease); err != nil {
		return err
	}
	h.watchRecorders(quit, finished)
	g := h.openGates(work, lease)
	defer g.cut(nil)
	go g.cutAfter(h.drain, quit, finished)
	var x *exec.Executor
	defer func() {
		writing, cancel := context.WithTimeout(work, closeGrace) // not at all once the lock is lost
		defer cancel()
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { h.closeMirrors(writing, h.mirrors) })
		if x == nil {
			return
		}
		closing, cancel := context.WithTimeout(ctx, closeGrace)
		defer cancel()
		h.closeSources(closing, x)
	}()
	defer func() { h.endsWith(err) }()
	var snap txstate.Snapshot
	x, snap, err = h.openSources(work, lease)
	if err != nil || x == nil {
		return err
	}
	h.resumed(x)
	r, err := runner.New(runner.Config{
		Coordinator: h.coordination(), Snapshot: snap, Executor: &committer{Executor: x, h: h, gates: g, lease: lease}, Logger: h.log, Observe: h.observer(g), StopTimeout: stopTimeout,
	})
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.exec, h.run, h.epoch = x, r, snap.Epoch
	h.mu.Unlock()
	h.o.Observer.Resumed(snap.Txid)
	h.advance(snap.Txid)
	h.log.Info("running", "txid", uint64(snap.Txid), "epoch", uint64(snap.Epoch), "data", h.dir)
	savepoint.SweepCopies(h.dir)
	defer h.keepLedger(work)() // before the store is closed
	defer h.saver.start(work)()
	go h.watchDrain(finished, r)
	if h.abandoned() != nil { // meanwhile
		r.Stop()
	}
	if h.o.UntilCaughtUp {
		// Batches don't wait for it: a partition that can't be asked holds up the end, and nothing else.
		aiming, stop := context.WithCancel(work)
		aimed := make(chan error, 1)
		go func() {
			err := h.aim(aiming, x)
			if err != nil {
				r.Stop()
			}
			aimed <- err
		}()
		defer func() {
			stop()
			if aerr := <-aimed; aerr != nil && !errors.Is(aerr, context.Canceled) {
				err = errors.Join(aerr, err)
			}
		}()
	}
	return r.Run(work)
}

// endsWith notes what the term, or the run, ends with. Closing takes its time, and whoever asks meanwhile wants to know why.
func (h *Handle) endsWith(err error) {
	if err == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		h.caused = time.Now()
	}
	h.cause = err
}

func (h *Handle) closeSources(ctx context.Context, x *exec.Executor) {
	if err := x.Close(ctx); err != nil {
		h.log.Warn("a source didn't close in order", "error", err)
	}
}

// watchDrain passes a drain on, and ends by force what hangs.
func (h *Handle) watchDrain(finished <-chan struct{}, r *runner.Runner) {
	select {
	case <-h.drain:
	case <-finished:
		return
	}
	r.Drain()
	t := time.NewTimer(h.o.Grace)
	defer t.Stop()
	select {
	case <-t.C:
		h.log.Warn("batches in flight didn't finish in time: they are dropped, and done again by the next run", "grace", h.o.Grace)
		r.Stop()
	case <-finished:
	}
}

// observer passes on what the coordinator learns and decides.
func (h *Handle) observer(g *gates) func(time.Time, coordinator.Event, []coordinator.Action) {
	return func(_ time.Time, ev coordinator.Event, actions []coordinator.Action) {
		if err := coordinator.FailureOf(ev); err != nil {
			h.o.Observer.Failed(err)
			if batch.KindOf(err) == batch.Permanent {
				g.cut(errCut) // the run ends: nothing waits for a gate any more
			}
		}
		for _, a := range actions {
			if p, ok := a.(coordinator.Process); ok { // a beginning that found nothing to plan is none
				h.o.Observer.Begun(p.Txid, p.Attempt)
				h.begun(p.Txid, p.Attempt)
			}
		}
	}
}

func (h *Handle) coordination() coordinator.Config {
	l := h.plan.Batch
	return coordinator.Config{
		MaxPending: l.MaxPending, Interval: l.Interval, Timeout: l.Timeout,
		Retry:   coordinator.Retry{Min: l.Retry.Min, Max: l.Retry.Max, Attempts: uint32(l.Retry.Attempts), For: l.Retry.For},
		Seed:    xxhash.Sum64String(h.plan.Name),
		Outside: len(h.plan.Sinks) > 0,
	}
}

// retry calls f until it succeeds, fails for good, or the run is drained or abandoned (ok is false then).
func (h *Handle) retry(ctx context.Context, what string, f func() error) (ok bool, err error) {
	return h.retryWithin(ctx, what, coordinator.DefaultRetryMax, f)
}

// retryWithin is retry with another largest back-off.
func (h *Handle) retryWithin(ctx context.Context, what string, largest time.Duration, f func() error) (ok bool, err error) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = coordinator.DefaultRetryMin, largest
	quit := h.quitting()
	for {
		err := f()
		if err == nil {
			h.setOpening(nil)
			return true, nil
		}
		permanent := batch.KindOf(err) == batch.Permanent
		if !permanent && errors.Is(context.Cause(ctx), errDrained) {
			return false, nil // f was cut off
		}
		h.o.Observer.Failed(err)
		if permanent {
			return false, err
		}
		h.setOpening(err)
		d := wait.NextBackOff()
		h.log.Error(what+" failed; trying again", "error", err, "kind", batch.KindOf(err).String(), "code", string(batch.CodeOf(err)), "backoff", d.Round(time.Millisecond))
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-h.drain:
			t.Stop()
			return false, nil
		case <-quit:
			t.Stop()
			return false, nil
		case <-ctx.Done():
			t.Stop()
			return false, context.Cause(ctx)
		}
	}
}

func (h *Handle) setOpening(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && h.opening == nil {
		h.since = time.Now()
	}
	h.opening = err
}

// openSources returns the executor with its sources open; nil if the run was drained or abandoned before they were.
func (h *Handle) openSources(ctx context.Context, lease txstate.Lease) (*exec.Executor, txstate.Snapshot, error) {
	ctx, cancel := h.untilDrained(ctx)
	defer cancel()
	var x *exec.Executor
	var snap txstate.Snapshot
	guarded := false
	ok, err := h.retry(ctx, "opening the sources", func() error {
		db, err := h.store(ctx)
		if err != nil {
			return err
		}
		if !guarded {
			if err := h.guard(ctx, db); err != nil {
				return err
			}
			guarded = true
		}
		cfg := exec.Config{
			Plan: h.plan, DB: db, Shards: db.Shards(), Logger: h.log, Procs: h.o.Procs,
			Build: Build(), PlanSum: xxhash.Sum64String(h.plan.Text), Now: time.Now,
			Mirrors: h.mirrors, OnCommit: h.committed, Reopened: h.reopen,
			Check: h.o.CheckDeterminism, OnChecked: h.checked,
			Deliver: true, Fresh: h.o.Fresh,
			MaxBytes: h.memory.inFlight, Fetched: h.memory.fetched,
		}
		if h.memory.limit > 0 {
			cfg.Pressed = h.memory.pressed
		}
		if lease != nil {
			cfg.Epoch, cfg.Claim = lease.Epoch(), lease.Claim
		}
		x = exec.New(cfg)
		if snap, err = x.Open(ctx); err != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
			defer cancel()
			h.closeSources(closing, x)
		}
		return err
	})
	if errors.Is(err, errDrained) {
		err = nil
	}
	if !ok {
		return nil, snap, err
	}
	return x, snap, nil
}

var errDrained = errors.New("the run was told to stop")

// untilDrained returns a context that a drain and the term's being abandoned end, too: for calls that may hang.
func (h *Handle) untilDrained(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	quit := h.quitting()
	go func() {
		select {
		case <-h.drain:
			cancel(errDrained)
		case <-quit:
			cancel(errDrained)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// aim asks the sources for their ends: what a bounded run runs to.
func (h *Handle) aim(ctx context.Context, x *exec.Executor) error {
	ctx, cancel := h.untilDrained(ctx)
	defer cancel()
	var targets map[batch.Partition]int64
	ok, err := h.retry(ctx, "asking the sources for their ends", func() (err error) {
		targets, err = x.Ends(ctx)
		return err
	})
	if errors.Is(err, errDrained) {
		err = nil
	}
	if err != nil || !ok {
		return err
	}
	h.mu.Lock()
	h.targets = targets
	h.mu.Unlock()
	h.reached(x)
	return nil
}

func (h *Handle) committed(e *txstate.Entry) {
	h.o.Observer.Committed(e)
	h.mu.Lock()
	h.last = e
	x := h.exec
	h.mu.Unlock()
	h.advance(e.Txid)
	h.log.Debug("committed", "txid", uint64(e.Txid), "attempt", e.Attempt.String(), "records", e.Counts.Read, "took", (e.Took.Read + e.Took.Process + e.Took.Commit).Round(time.Microsecond))
	h.reached(x)
}

// reached drains a bounded run that has got where it was to go.
func (h *Handle) reached(x *exec.Executor) {
	h.mu.Lock()
	targets := h.targets
	h.mu.Unlock()
	if targets != nil && x.Reached(targets) {
		h.Drain()
	}
}

// store returns the database, opened again if a write has failed since.
func (h *Handle) store(ctx context.Context) (*pebblestate.DB, error) {
	h.mu.Lock()
	db := h.db
	h.mu.Unlock()
	if db != nil && db.Err() == nil {
		return db, nil
	}
	return h.reopen(ctx)
}

// reopen opens the database again after a write of unknown outcome. Whoever asks about the run meanwhile isn't kept waiting.
func (h *Handle) reopen(ctx context.Context) (*pebblestate.DB, error) {
	h.reopening.Lock()
	defer h.reopening.Unlock()
	h.mu.Lock()
	old := h.db
	h.db = nil
	h.mu.Unlock()
	if old != nil {
		if err := old.Close(); err != nil {
			h.log.Warn("closing the store after a failed write", "error", err)
		}
	}
	db, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	closed := h.closed
	if !closed {
		h.db = db
	}
	h.mu.Unlock()
	if closed { // the run has given up waiting
		return nil, errors.Join(errEnded, db.Close())
	}
	return db, nil
}

// committer holds commits back while a gate is closed, and tells the runner which have an unknown outcome.
type committer struct {
	*exec.Executor
	h     *Handle
	gates *gates
	lease txstate.Lease // nil without a lock
}

// Plan begins nothing while it is in doubt who may.
func (c *committer) Plan(ctx context.Context, b *batch.Batch, recorded bool) (bool, error) {
	if c.lease != nil {
		if err := c.h.mayPlan(ctx, c.gates, c.lease, b.Txid); err != nil {
			return false, err
		}
	}
	return c.Executor.Plan(ctx, b, recorded)
}

func (c *committer) Commit(ctx context.Context, bs []*batch.Batch) error {
	if err := c.h.pass(c.gates, bs[0].Txid); err != nil {
		return err
	}
	err := c.Executor.Commit(ctx, bs)
	if errors.Is(err, pebblestate.ErrUnknownOutcome) {
		return fmt.Errorf("%w: %w", runner.ErrUnknown, err)
	}
	return err
}
