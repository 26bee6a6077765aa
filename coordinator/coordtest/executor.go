package coordtest

import (
	"context"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/coordinator"
	"github.com/tridentd/tridentd/coordinator/runner"
)

// Executor runs a World behind a real runner.Runner: each call takes a random time of the clock, which a test gives
// a synctest bubble for. One is made for each start.
type Executor struct {
	w       *World
	ready   chan struct{}
	reopens uint64
	// Crashed is closed at the crash that the world decided on; the runner has to be left to its end then.
	Crashed chan struct{}
}

var _ runner.Executor = (*Executor)(nil)

// NewExecutor returns the executor of a new start of w.
func NewExecutor(w *World) *Executor {
	return &Executor{w: w, ready: make(chan struct{}, 1), Crashed: make(chan struct{})}
}

// Signal tells that there may be something to plan.
func (x *Executor) Signal() {
	select {
	case x.ready <- struct{}{}:
	default:
	}
}

// Ready implements runner.Executor.
func (x *Executor) Ready() <-chan struct{} { return x.ready }

// run takes an op through its steps. What is cancelled may end there, or go on.
func (x *Executor) run(ctx context.Context, o *op) error {
	if o.hangs {
		<-ctx.Done()
		o.cancel()
		return context.Cause(ctx)
	}
	for {
		d := time.Duration(o.rand.IntN(5_000_000))
		if o.rand.IntN(20) == 0 {
			d *= 100
		}
		if o.rand.IntN(2) == 0 {
			time.Sleep(d)
		} else if wait(ctx, d) != nil {
			o.cancel()
			return context.Cause(ctx)
		}
		if o.crashes() {
			x.w.Crash()
			close(x.Crashed)
			return errCancelled
		}
		if done, err := o.step(); done {
			return err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// crashes decides whether the process dies before the op's next step.
func (o *op) crashes() bool {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	return o.run == o.w.run && o.w.trouble && o.rand.IntN(250) == 0
}

// Plan implements runner.Executor.
func (x *Executor) Plan(ctx context.Context, b *batch.Batch, recorded bool) (ok bool, err error) {
	err = x.run(ctx, x.w.plan(b, recorded, &ok))
	return ok, err
}

// Process implements runner.Executor.
func (x *Executor) Process(ctx context.Context, b *batch.Batch) error {
	return x.run(ctx, x.w.process(b))
}

// Record implements runner.Executor.
func (x *Executor) Record(ctx context.Context, b *batch.Batch) error {
	return x.run(ctx, x.w.record(b))
}

// Commit implements runner.Executor.
func (x *Executor) Commit(ctx context.Context, bs []*batch.Batch) error {
	return x.run(ctx, x.w.commit(bs))
}

// Abort implements runner.Executor.
func (x *Executor) Abort(bs []*batch.Batch) {
	ids := make([]coordinator.ID, len(bs))
	for i, b := range bs {
		ids[i] = coordinator.ID{Txid: b.Txid, Attempt: b.Attempt}
	}
	if x.w.drop(ids) {
		x.w.Fetch()
		x.Signal()
	}
}

// Reopen implements runner.Executor.
func (x *Executor) Reopen(ctx context.Context) (txid batch.Txid, err error) {
	x.reopens++
	err = x.run(ctx, x.w.reopen(x.reopens, &txid))
	return txid, err
}

// Success implements runner.Executor.
func (x *Executor) Success(b *batch.Batch) {
	x.w.success(coordinator.ID{Txid: b.Txid, Attempt: b.Attempt})
}
