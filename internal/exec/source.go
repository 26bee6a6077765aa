package exec

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/txstate"
)

// partResult is what the task of one partition made of its range.
type partResult struct {
	input     batch.Input
	eventTime int64
	out       []*plan.Deltas
	persist   []any
	sinks     []*sink.Buffer
	rejected  []plan.Rejected
	filtered  int64
	peeked    []plan.Peeked
	trace     *plan.Trace // set if the task is to note its steps
}

// taskPool keeps the tasks of one source, with their buffers.
type taskPool struct {
	make  func() plan.Task
	slots chan struct{} // held while one of them works, before taskSlots; nil: any number may
	mu    sync.Mutex
	free  []plan.Task
}

func (p *taskPool) get() plan.Task {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		t := p.free[n-1]
		p.free = p.free[:n-1]
		return t
	}
	return p.make()
}

func (p *taskPool) put(t plan.Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, t)
}

// outPool keeps sets of Deltas, one per exchange.
type outPool struct {
	n    int
	mu   sync.Mutex
	free [][]*plan.Deltas
}

func (p *outPool) get(shards int) []*plan.Deltas {
	p.mu.Lock()
	var out []*plan.Deltas
	if n := len(p.free); n > 0 {
		out = p.free[n-1]
		p.free = p.free[:n-1]
	}
	p.mu.Unlock()
	if out == nil {
		out = make([]*plan.Deltas, p.n)
		for i := range out {
			out[i] = new(plan.Deltas)
		}
	}
	for _, d := range out {
		d.Reset(shards)
	}
	return out
}

func (p *outPool) put(out []*plan.Deltas) {
	if out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, out)
}

// acquire waits for a slot to work in.
func acquire(ctx context.Context, slots chan<- struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Process computes what batch b changes. It may be called for several batches at once: each waits for what it
// needs of the one before.
func (x *Executor) Process(ctx context.Context, b *batch.Batch) error {
	x.mu.Lock()
	f, before := x.flights[b.Txid], x.flights[b.Txid-1]
	times, windows := x.times, x.windows // what it leaves, unless it is in flight
	x.mu.Unlock()
	if f == nil || f.b != b {
		panic(fmt.Sprintf("exec: txid %d attempt %s was not planned", b.Txid, b.Attempt))
	}
	err := x.sourceStage(ctx, f, before, times)
	x.tellPeeked(f)
	if err != nil {
		return x.located(err, b.Txid)
	}
	close(f.read)
	if before != nil {
		if err := wait(ctx, before.done); err != nil {
			return err
		}
		windows = before.windows
	}
	earlier := x.before(f)
	err = x.stateStage(ctx, f, earlier, windows)
	x.tellPeeked(f)
	if err != nil {
		return x.located(err, b.Txid)
	}
	close(f.done)
	if x.checks(b) {
		if err := x.check(ctx, f, earlier, windows); err != nil {
			return x.located(err, b.Txid)
		}
	}
	return nil
}

func wait(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sourceStage reads every range and runs its task.
func (x *Executor) sourceStage(ctx context.Context, f, before *flight, committed *times) error {
	began := x.cfg.Now()
	left := committed
	if x.timed && before != nil {
		// A row is late by the watermark that the batch before left.
		if err := wait(ctx, before.read); err != nil {
			return err
		}
		left = before.times
	}
	f.left = left
	if err := x.runRanges(ctx, f); err != nil {
		return err
	}
	seen := make([]int64, len(f.results))
	for i, r := range f.results {
		seen[i] = r.eventTime
		f.counts.Read += r.input.Records
		f.counts.Filtered += r.filtered
		f.countRejected(r.rejected, x.sourcePolicy(&f.b.Ranges[i]))
	}
	f.times = left.next(x.plan, f.b, seen)
	f.took.Read = x.cfg.Now().Sub(began)
	return nil
}

// runRanges runs the tasks of all ranges. If several fail, the failure of the first in partition order is told: a
// permanent one cuts off those behind it only.
func (x *Executor) runRanges(ctx context.Context, f *flight) error {
	n := len(f.b.Ranges)
	var turns []int
	if x.turns != nil {
		turns = x.turns(n)
	}
	f.results = make([]*partResult, n)
	peeked := make([][]plan.Peeked, n)
	failed := firstFailureOf(f.b)
	ctxs, cancels := make([]context.Context, n), make([]context.CancelFunc, n)
	for i := range n {
		ctxs[i], cancels[i] = context.WithCancel(ctx)
	}
	run := func(i int) error {
		if slots := x.tasks[x.sourceAt[f.b.Ranges[i].Source]].slots; slots != nil {
			if err := acquire(ctxs[i], slots); err != nil {
				return err
			}
			defer func() { <-slots }()
		}
		if err := acquire(ctxs[i], x.taskSlots); err != nil {
			return err
		}
		defer func() { <-x.taskSlots }()
		r, err := x.runRange(ctxs[i], f, i, &peeked[i])
		if err == nil {
			f.results[i] = r
		}
		return err
	}
	work := func(i int) {
		defer cancels[i]()
		if err := run(i); err != nil {
			for j := failed.note(i, err); j < n; j++ {
				cancels[j]()
			}
		}
	}
	var wg sync.WaitGroup
	for k := range n {
		i := k
		if turns != nil {
			i = turns[k]
		}
		if x.alone {
			work(i)
			continue
		}
		wg.Go(func() { work(i) })
	}
	wg.Wait()
	for _, rows := range peeked {
		f.peeked = append(f.peeked, rows...)
	}
	return failed.first()
}

// countRejected adds rows that were turned away under a policy to the batch's figures.
func (f *flight) countRejected(rows []plan.Rejected, policy plan.OnBad) {
	if policy == plan.DeadLetter {
		f.counts.Dead += int64(len(rows))
	}
	for i := range rows {
		switch rows[i].Kind {
		case plan.RejectLate:
			f.counts.Late++
		case plan.RejectFuture:
			f.counts.Future++
		default:
			f.counts.Rejected++
		}
	}
}

// runRange runs the task of one range. A panic of a user's function makes it run again with each function guarded,
// so that the record and the step can be told. peeked receives the rows that it shows, whether it fails or not.
func (x *Executor) runRange(ctx context.Context, f *flight, i int, peeked *[]plan.Peeked) (*partResult, error) {
	r := f.b.Ranges[i]
	si := x.sourceAt[r.Source]
	pool := &x.tasks[si]
	for careful := false; ; careful = true {
		task := pool.get()
		res := &partResult{out: x.outs.get(x.cfg.Shards), persist: make([]any, len(x.plan.Persists))}
		err := x.runTask(ctx, task, f, r, si, careful, res)
		*peeked = res.peeked
		var p *panicked
		switch {
		case err == nil:
			pool.put(task)
			return res, x.compareInput(f, i, res.input)
		case errors.As(err, &p):
			x.outs.put(res.out) // the task is in an unknown state: not kept
			if careful {
				return nil, batch.NewError(batch.Permanent, batch.CodeUserError, "process", p, "mend the function; nothing of this batch was applied").At(r.Partition, batch.NoOffset)
			}
		default:
			pool.put(task)
			x.outs.put(res.out)
			return nil, err
		}
	}
}

// panicked is a panic of a task.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

func (x *Executor) runTask(ctx context.Context, task plan.Task, f *flight, r batch.Range, si int, careful bool, res *partResult) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{value: v, stack: debug.Stack()}
		}
	}()
	src := x.plan.Sources[si]
	tc := &plan.TaskContext{
		Batch: f.b, Partition: r.Partition, OnBad: src.OnBad, Careful: careful,
		Watermarks: f.left.marks, Statics: f.tables,
		EventTime: txstate.NoTime, Out: res.out, Persist: res.persist, Sinks: make([]*sink.Buffer, len(x.plan.Sinks)), Trace: res.trace,
	}
	if src.Time != nil {
		if tc.Future = src.Time.Future; tc.Future == 0 {
			tc.Future = plan.DefaultFuture
		}
		if et, ok := f.left.parts[r.Partition]; ok {
			tc.EventTime = et
		}
	}
	defer func() { res.peeked = tc.Peeked }()
	if err := task.Begin(tc); err != nil {
		return err
	}
	in := newInput()
	err = x.emitters[si].Read(ctx, r, func(c *batch.Chunk) error {
		in.add(c.Records)
		return task.Process(c)
	})
	if err != nil {
		return err
	}
	if err := task.End(); err != nil {
		return err
	}
	for _, d := range tc.Out {
		d.Finish()
	}
	res.input, res.eventTime, res.rejected, res.filtered, res.sinks = in.result(), tc.EventTime, tc.Rejected, tc.Filtered, tc.Sinks
	return nil
}

// compareInput holds what was read of a recorded range against the record.
func (x *Executor) compareInput(f *flight, i int, got batch.Input) error {
	r := f.b.Ranges[i]
	for j := range f.expect {
		if e := &f.expect[j]; e.Partition == r.Partition && e.Input != got {
			return changedInput(f.b.Txid, e, got)
		}
	}
	return nil
}

func changedInput(txid batch.Txid, e *txstate.RangeEntry, got batch.Input) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "read",
		fmt.Errorf("txid %d cannot be re-read: [%d,%d) held %d records with digest %016x, now %d records with digest %016x",
			txid, e.Start, e.End, e.Records, e.Digest, got.Records, got.Digest),
		"the source changed below the recorded offsets (compaction, retention, an edited file); restore it, or start over from what is there").At(e.Partition, e.Start)
}

// Reread passes the records of a recorded range of a committed batch to yield, and fails in the end if they aren't those that the
// batch read.
func Reread(ctx context.Context, em emitter.Emitter, txid batch.Txid, e *txstate.RangeEntry, yield func(*batch.Chunk) error) error {
	in := newInput()
	err := em.Read(ctx, e.Range, func(c *batch.Chunk) error {
		in.add(c.Records)
		return yield(c)
	})
	if got := in.result(); err == nil && got != e.Input {
		return changedInput(txid, e, got)
	}
	return err
}
