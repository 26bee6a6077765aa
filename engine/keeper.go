package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// Keeper is a server outside that is told what the master does, and may say who is the master: ZooKeeper. One that can be checked
// implements doctor.Checker.
type Keeper interface {
	// Describe says in one line what is kept where, without secrets.
	Describe(pipeline string) string
	// NewRecord makes the mirror that keeps the record. It contacts nobody. If what it returns is a txstate.Gate, no batch
	// commits while that doesn't let it pass.
	NewRecord(pipeline string, env emitter.Env) (txstate.Mirror, error)
	// Locks tells whether there is a lock; NewLock makes it, and contacts nobody.
	Locks() bool
	NewLock(pipeline string, env emitter.Env) (txstate.Lock, error)
}

// KeptBy shows the master's record elsewhere, too, or has the pipeline run under a lock.
func KeptBy(k Keeper) PipelineOption {
	return func(p *Pipeline) {
		if p.keeper != nil {
			p.errorf("KeptBy is given twice")
		}
		p.keeper = k
	}
}

// PlanKeeper is a keeper as a plan of the given pipeline holds it.
func PlanKeeper(pipeline string, k Keeper) *plan.Keeper {
	pk := &plan.Keeper{
		Describe: k.Describe(pipeline),
		Record:   func(env plan.Env) (txstate.Mirror, error) { return k.NewRecord(pipeline, env) },
	}
	if k.Locks() {
		pk.Lock = func(env plan.Env) (txstate.Lock, error) { return k.NewLock(pipeline, env) }
	}
	if ch, ok := k.(doctor.Checker); ok {
		pk.Check = ch.Check
	}
	return pk
}

// gateGrace is for how long a run that ends waits for a gate that holds a batch back, so that what only takes a moment ends
// in order.
const gateGrace = time.Second

// gates are what batches pass before they commit, and how long one is held back there.
type gates struct {
	all []txstate.Gate
	// cut ends the waiting: its context is that of Pass.
	ctx context.Context
	cut context.CancelCauseFunc
}

// errCut ends the waiting at a gate.
var errCut = errors.New("the run ends")

func (h *Handle) openGates(ctx context.Context, lease txstate.Lease) *gates {
	g := &gates{}
	g.ctx, g.cut = context.WithCancelCause(ctx)
	if lease != nil {
		g.all = append(g.all, lease)
	}
	for _, m := range h.mirrors {
		if gate, ok := m.(txstate.Gate); ok {
			g.all = append(g.all, gate)
		}
	}
	return g
}

// cutAfter ends the waiting shortly after a drain, or when the term is abandoned: what is held back by then is dropped, and
// done again by the next run.
func (g *gates) cutAfter(drain, quit, finished <-chan struct{}) {
	select {
	case <-drain:
	case <-quit:
	case <-finished:
		return
	}
	t := time.NewTimer(gateGrace)
	defer t.Stop()
	select {
	case <-t.C:
		g.cut(errCut)
	case <-finished:
	}
}

// pass waits until every gate lets batches commit.
func (h *Handle) pass(g *gates, txid batch.Txid) error {
	for _, gate := range g.all {
		if err := h.passGate(g.ctx, gate); err != nil {
			return h.turnedBack(gate, "commit", txid, err)
		}
	}
	return nil
}

// mayPlan waits until the lease lets a batch begin. A run that ends doesn't wait long for that either.
func (h *Handle) mayPlan(ctx context.Context, g *gates, lease txstate.Lease, txid batch.Txid) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(g.ctx, func() { cancel(context.Cause(g.ctx)) })()
	if err := h.passGate(ctx, lease); err != nil {
		return h.turnedBack(lease, "plan", txid, err)
	}
	return nil
}

// turnedBack is why a gate didn't let a batch pass.
func (h *Handle) turnedBack(gate txstate.Gate, op string, txid batch.Txid, err error) error {
	if errors.Is(err, errCut) {
		err = batch.NewError(batch.Transient, batch.CodeUnavailable, op, fmt.Errorf("%s; the run ends before that", h.heldBack(gate)), "start again: the batch is done again then")
	}
	if e, ok := errors.AsType[*batch.Error](err); ok {
		c := *e
		c.Txid = txid
		return &c
	}
	return err
}

// passGate waits at one gate, and shows that.
func (h *Handle) passGate(ctx context.Context, gate txstate.Gate) error {
	// What takes a moment isn't worth telling.
	b := &heldBatch{gate: gate}
	t := time.AfterFunc(gateNotice, func() { h.holdBack(b) })
	err := gate.Pass(ctx)
	t.Stop()
	h.letPass(b)
	return err
}

// gateNotice is how long a batch is held back before that shows.
const gateNotice = 200 * time.Millisecond

// heldBatch is one batch at one gate. Several may be held back at once: one that is to be planned, one that is to be committed.
type heldBatch struct {
	gate   txstate.Gate
	passed bool // it isn't held back any more; guarded by Handle.mu
}

func (h *Handle) holdBack(b *heldBatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !b.passed {
		h.holding = append(h.holding, b)
	}
}

// letPass ends what holdBack has begun, or will only now begin, for this batch and no other.
func (h *Handle) letPass(b *heldBatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b.passed = true
	h.holding = slices.DeleteFunc(h.holding, func(o *heldBatch) bool { return o == b })
}

// heldBack says why a gate keeps batches from committing.
func (h *Handle) heldBack(g txstate.Gate) string {
	if r, ok := g.(interface{ Holding() error }); ok {
		if err := r.Holding(); err != nil {
			return "commits wait for ZooKeeper: " + err.Error()
		}
	}
	return "commits wait for ZooKeeper"
}

// watchRecorders ends the term when one of its recorders says so.
func (h *Handle) watchRecorders(quit chan struct{}, finished <-chan struct{}) {
	for _, m := range h.mirrors {
		r, ok := m.(txstate.Recorder)
		if !ok {
			continue
		}
		go func() {
			select {
			case <-r.Broken():
				h.abandon(quit, r.Err())
			case <-finished:
			}
		}()
	}
}

// beginTerm returns what is closed when the term that begins is abandoned.
func (h *Handle) beginTerm() chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.quit, h.fatal = make(chan struct{}), nil
	return h.quit
}

// endTerm returns what the term was abandoned for, if it was. Nothing abandons it from now on.
func (h *Handle) endTerm() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.quit = nil
	return h.fatal
}

func (h *Handle) quitting() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.quit
}

// abandon ends the given term with a permanent failure that concerns no batch: those in flight are dropped, but for a commit
// under way. The first one counts. It is no drain: where the lock turns out to be lost, a standby waits for it again.
func (h *Handle) abandon(quit chan struct{}, err error) {
	h.mu.Lock()
	if h.quit != quit || h.fatal != nil { // the term has ended, or ends already
		h.mu.Unlock()
		return
	}
	h.fatal, h.failed = err, time.Now()
	close(quit)
	r := h.run
	h.mu.Unlock()
	h.o.Observer.Failed(err)
	if r != nil {
		r.Stop()
	}
}

func (h *Handle) abandoned() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fatal
}

// standing tells a recorder what store it is held against.
func (h *Handle) standing(ctx context.Context, db *pebblestate.DB, snap *txstate.Snapshot) (txstate.Standing, error) {
	id, err := db.Identity(ctx)
	if err != nil {
		return txstate.Standing{}, err
	}
	return txstate.Standing{
		Store: id, Empty: emptyStore(snap), Txid: snap.Txid, Chain: snap.Chain, Epoch: snap.Epoch, Positions: snap.Positions,
		ChainAt: func(ctx context.Context, txid batch.Txid) (uint64, bool, error) {
			for e, err := range h.Entries(ctx, txid, txid) {
				return e.Chain, err == nil, err
			}
			return 0, false, nil
		},
	}, nil
}

func emptyStore(snap *txstate.Snapshot) bool {
	return snap.Txid == 0 && len(snap.Positions) == 0 && len(snap.Recorded) == 0
}

// reconcile holds what the recorders keep against the store.
func (h *Handle) reconcile(ctx context.Context, db *pebblestate.DB, snap *txstate.Snapshot) error {
	for _, m := range h.mirrors {
		r, ok := m.(txstate.Recorder)
		if !ok {
			continue
		}
		s, err := h.standing(ctx, db, snap)
		if err != nil {
			return err
		}
		if err := r.Reconcile(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// begun tells the mirrors that show it which batch is at work.
func (h *Handle) begun(txid batch.Txid, attempt batch.Attempt) {
	for _, m := range h.mirrors {
		if o, ok := m.(txstate.Observing); ok {
			o.Begun(txid, attempt)
		}
	}
}

// resumed tells the mirrors what the store holds, so that they are repaired before the first batch.
func (h *Handle) resumed(x *exec.Executor) {
	at := x.Point()
	for _, m := range h.mirrors {
		exec.Tell(m, at)
	}
}

// ExportRecord writes where the store of a pipeline at rest stands to what keeps its record, over whatever is there, also
// backwards. Where there is a lock it is held meanwhile; while another process holds it nothing is written: that one keeps the
// record itself, and would take this for its successor. It returns the name of what was written, and the point.
func ExportRecord(ctx context.Context, p *Pipeline, db *pebblestate.DB, env emitter.Env) (name string, at txstate.Point, err error) {
	pl, err := p.Plan()
	if err != nil {
		return "", txstate.Point{}, err
	}
	if pl.Keeper == nil || pl.Keeper.Record == nil {
		return "", txstate.Point{}, batch.NewError(batch.Permanent, batch.CodeConfiguration, "export", fmt.Errorf("pipeline %s names no ZooKeeper", pl.Name), "add zookeeper to the pipeline")
	}
	snap, err := db.Store().Load(ctx)
	if err != nil {
		return "", txstate.Point{}, err
	}
	id, err := db.Identity(ctx)
	if err != nil {
		return "", txstate.Point{}, err
	}
	at = txstate.Point{Txid: snap.Txid, Epoch: snap.Epoch, Time: snap.Time, Chain: snap.Chain, Positions: snap.Positions}
	var lease txstate.Lease
	if pl.Keeper.Lock != nil {
		var release func() error
		if lease, release, err = exportLease(ctx, pl, env); err != nil {
			return "", at, err
		}
		defer func() { err = errors.Join(err, release()) }()
	}
	m, err := pl.Keeper.Record(env)
	if err != nil {
		return "", at, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		err = errors.Join(err, m.Close(closing))
	}()
	r, ok := m.(txstate.Recorder)
	if !ok {
		return "", at, fmt.Errorf("%s can't be written on purpose", m.Name())
	}
	if l, ok := m.(txstate.Leased); ok && lease != nil {
		l.Under(lease)
	}
	return m.Name(), at, r.ExportPoint(ctx, id, at)
}

// exportLease takes the pipeline's lock for an export, and returns what gives it up.
func exportLease(ctx context.Context, pl *plan.Plan, env emitter.Env) (txstate.Lease, func() error, error) {
	lock, err := pl.Keeper.Lock(env)
	if err != nil {
		return nil, nil, err
	}
	finally := func(f func(context.Context) error) error {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		return f(closing)
	}
	lease, err := lock.Acquire(ctx, false)
	if err != nil {
		if e, ok := errors.AsType[*batch.Error](err); ok && e.Code == batch.CodeLockHeld {
			c := *e
			c.Op, c.Pipeline, c.Remedy = "export", pl.Name, "stop the process that holds the lock, which keeps the record itself, then export"
			err = &c
		}
		return nil, nil, errors.Join(err, finally(lock.Close))
	}
	return lease, func() error { return errors.Join(finally(lease.Release), finally(lock.Close)) }, nil
}
