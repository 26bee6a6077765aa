package engine_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// memoryLock is a lock that the handles of one test compete for.
type memoryLock struct {
	turn chan struct{} // holds one value while the lock is free

	mu      sync.Mutex
	refused []error // what Acquire answers first
	epoch   batch.Epoch
	claimed []batch.Epoch
	leases  []*memoryLease
	closed  int
}

func newMemoryLock() *memoryLock {
	l := &memoryLock{turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

func (l *memoryLock) Name() string   { return "memory lock" }
func (l *memoryLock) Holder() string { return "a test" }

func (l *memoryLock) Acquire(ctx context.Context, wait bool) (txstate.Lease, error) {
	l.mu.Lock()
	if len(l.refused) > 0 {
		err := l.refused[0]
		l.refused = l.refused[1:]
		l.mu.Unlock()
		return nil, err
	}
	l.mu.Unlock()
	if !wait {
		select {
		case <-l.turn:
		default:
			return nil, batch.NewError(batch.Permanent, batch.CodeLockHeld, "lock", errors.New("a test holds it"), "wait")
		}
	} else {
		select {
		case <-l.turn:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &memoryLease{lock: l, lost: make(chan struct{}), waiting: make(chan struct{}, 100)}
	l.leases = append(l.leases, e)
	return e, nil
}

func (l *memoryLock) Close(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed++
	return nil
}

// lease waits for the nth lease, from 1.
func (l *memoryLock) lease(t *testing.T, n int) *memoryLease {
	t.Helper()
	var e *memoryLease
	eventually(t, fmt.Sprintf("lease %d", n), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.leases) >= n {
			e = l.leases[n-1]
		}
		return e != nil
	})
	return e
}

type memoryLease struct {
	lock    *memoryLock
	lost    chan struct{}
	waiting chan struct{} // receives a value when somebody is held back

	mu       sync.Mutex
	doubt    chan struct{} // closed: it is over; nil: there is none
	err      error
	released bool
	stale    bool // it is lost, which it notices when it is asked
	late     bool // a confirmation waits until it is lost
}

func (e *memoryLease) Pass(ctx context.Context) error {
	e.mu.Lock()
	doubt, stale := e.doubt, e.stale
	e.mu.Unlock()
	if stale {
		e.lose()
	}
	if err := e.Err(); err != nil || doubt == nil {
		return err
	}
	select {
	case e.waiting <- struct{}{}:
	default:
	}
	select {
	case <-doubt:
		return e.Err()
	case <-e.lost:
		return e.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Confirm implements txstate.Confirming.
func (e *memoryLease) Confirm(ctx context.Context) error {
	e.mu.Lock()
	late := e.late
	e.mu.Unlock()
	if !late {
		return e.Pass(ctx)
	}
	select {
	case <-e.lost:
		return e.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *memoryLease) Holding() error { return errors.New("its session is in doubt") }

func (e *memoryLease) Epoch() batch.Epoch {
	e.lock.mu.Lock()
	defer e.lock.mu.Unlock()
	return e.lock.epoch
}

func (e *memoryLease) Claim(_ context.Context, epoch batch.Epoch) error {
	e.lock.mu.Lock()
	defer e.lock.mu.Unlock()
	e.lock.epoch = epoch
	e.lock.claimed = append(e.lock.claimed, epoch)
	return nil
}

func (e *memoryLease) Lost() <-chan struct{} { return e.lost }

func (e *memoryLease) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

func (e *memoryLease) lose() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = batch.NewError(batch.Permanent, batch.CodeLockLost, "lock", errors.New("a test has taken it"), "start again")
		close(e.lost)
	}
}

func (e *memoryLease) Release(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.released {
		e.released = true
		e.lock.turn <- struct{}{}
	}
	return nil
}

// lockedKeeper keeps a lock and a record in memory.
type lockedKeeper struct {
	l *memoryLock
	r func() *leasedRecorder
}

func (lockedKeeper) Describe(string) string                                  { return "locked in memory" }
func (k lockedKeeper) NewRecord(string, emitter.Env) (txstate.Mirror, error) { return k.r(), nil }
func (lockedKeeper) Locks() bool                                             { return true }
func (k lockedKeeper) NewLock(string, emitter.Env) (txstate.Lock, error)     { return k.l, nil }

// leasedRecorder notes how it is closed.
type leasedRecorder struct {
	*recorder
	mu     sync.Mutex
	lease  txstate.Lease
	closed []error // of the contexts
}

func (r *leasedRecorder) Under(l txstate.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lease = l
}

// Status tells of one failure in each term.
func (r *leasedRecorder) Status() txstate.MirrorStatus {
	return txstate.MirrorStatus{Failures: map[batch.Code]int64{batch.CodeZKCut: 1}}
}

func (r *leasedRecorder) Close(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = append(r.closed, ctx.Err())
	return nil
}

// lockRun runs a pipeline of one file under a lock.
type lockRun struct {
	*mirrorRun
	l       *memoryLock
	records []*leasedRecorder // of each term; under l.mu
}

func newLockRun(t *testing.T) *lockRun {
	return &lockRun{mirrorRun: newMirrorRun(t), l: newMemoryLock()}
}

func (r *lockRun) pipeline() *engine.Pipeline {
	k := lockedKeeper{r.l, func() *leasedRecorder {
		r.l.mu.Lock()
		defer r.l.mu.Unlock()
		rec := &leasedRecorder{recorder: newRecorder()}
		r.records = append(r.records, rec)
		return rec
	}}
	p := engine.New("test", engine.KeptBy(k), engine.WithBatching(engine.Batching{MaxRecords: 2}))
	lines := engine.From(p, "lines", file.Paths(r.file), codec.String())
	engine.Aggregate(engine.GroupBy(lines, func(s string) string { return s }, "line"), "counts", agg.Count[string]("n"))
	return p
}

func (r *lockRun) start(change ...func(*engine.Options)) *engine.Handle {
	r.t.Helper()
	o := engine.Options{DataDir: filepath.Join(r.dir, "data")}
	for _, f := range change {
		f(&o)
	}
	h, err := engine.Start(r.t.Context(), r.pipeline(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { h.Drain(); <-h.Done() })
	return h
}

func (r *lockRun) counted(h *engine.Handle, want int64) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d lines counted", want), func() bool {
		rows, _, err := engine.ReadState[string, int64](r.t.Context(), h, "counts")
		var n int64
		for _, v := range rows { // order: a sum
			n += v
		}
		return err == nil && n == want
	})
}

func standby(o *engine.Options) { o.Standby = true }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// The epoch is above the highest of store and lock, and claimed in both.
func TestLockEpoch(t *testing.T) {
	r := newLockRun(t)
	r.l.epoch = 41
	caughtUp := func(o *engine.Options) { o.UntilCaughtUp = true }
	for i, want := range []batch.Epoch{42, 43, 44} {
		if i == 1 {
			r.l.epoch = 7 // the store knows better
		}
		h := r.start(caughtUp)
		if err := h.Wait(); err != nil {
			t.Fatal(err)
		}
		if st := h.Status(); st.Epoch != want || r.l.claimed[i] != want {
			t.Errorf("run %d has epoch %d, claimed %v, want %d", i+1, st.Epoch, r.l.claimed, want)
		}
		if rec := r.records[i]; rec.lease == nil || len(rec.closed) != 1 || rec.closed[0] != nil || r.l.closed != i+1 || !r.l.leases[i].released {
			t.Errorf("run %d: the record's lease is %v, it was closed with %v; the lock was closed %d times", i+1, rec.lease, rec.closed, r.l.closed)
		}
	}
}

// A lease that is lost ends the run at once: with that cause, and without anything being written outside at the end.
func TestLockLost(t *testing.T) {
	r := newLockRun(t)
	h := r.start()
	r.counted(h, 5)
	if st := h.Status(); st.Role != engine.Leader {
		t.Errorf("the role is %q", st.Role)
	}
	r.l.lease(t, 1).lose()
	err := h.Wait()
	if batch.CodeOf(err) != batch.CodeLockLost || batch.KindOf(err) != batch.Permanent {
		t.Errorf("the run ended with %v", err)
	}
	if rec := r.records[0]; len(rec.closed) != 1 || rec.closed[0] == nil {
		t.Errorf("the record was closed with contexts that had ended with %v", rec.closed)
	}
	if !r.l.leases[0].released || r.l.closed != 1 {
		t.Error("the lock wasn't given up")
	}
	r.append("d\n")
	again := r.start()
	r.counted(again, 6)
}

// A lease that is lost while batches are in flight: they are dropped, the next run does them.
func TestLockLostInFlight(t *testing.T) {
	r := newLockRun(t)
	h := r.start()
	r.counted(h, 5)
	e := r.l.lease(t, 1)
	e.mu.Lock()
	e.doubt = make(chan struct{})
	e.mu.Unlock()
	r.append("d\ne\n")
	<-e.waiting
	e.lose()
	if err := h.Wait(); batch.CodeOf(err) != batch.CodeLockLost {
		t.Errorf("the run ended with %v", err)
	}
	if st := h.Status(); st.Txid != 3 {
		t.Errorf("txid %d has committed, 3 had before the doubt", st.Txid)
	}
	r.counted(r.start(), 7)
}

// While the lease is in doubt nothing is planned or committed, which the status tells; then it goes on as if nothing had been.
func TestLockInDoubt(t *testing.T) {
	r := newLockRun(t)
	h := r.start()
	r.counted(h, 5)
	e := r.l.lease(t, 1)
	doubt := make(chan struct{})
	e.mu.Lock()
	e.doubt = doubt
	e.mu.Unlock()
	r.append("d\ne\n")
	<-e.waiting
	eventually(t, "the reason", func() bool {
		return strings.Contains(strings.Join(h.Status().Reasons, "\n"), "wait for ZooKeeper: its session is in doubt")
	})
	if st := h.Status(); st.Txid != 3 || len(st.InFlight) > 1 {
		t.Errorf("in doubt the status is %+v", st)
	}
	e.mu.Lock()
	e.doubt = nil
	e.mu.Unlock()
	close(doubt)
	r.counted(h, 7)
	eventually(t, "readiness", func() bool { return len(h.Status().Reasons) == 0 })
	epoch := h.Status().Epoch
	if len(r.l.claimed) != 1 || r.l.claimed[0] != epoch {
		t.Errorf("the epoch is %d, claimed were %v", epoch, r.l.claimed)
	}
}

// A batch that is held back keeps the pipeline from being ready, whatever others pass meanwhile.
func TestGateIsShownForEachBatch(t *testing.T) {
	r := newLockRun(t)
	h := r.start()
	r.counted(h, 5)
	r.l.mu.Lock()
	rec := r.records[0]
	r.l.mu.Unlock()
	gate := make(chan struct{})
	rec.recorder.mu.Lock()
	rec.gate = gate
	rec.recorder.mu.Unlock()
	away := func() bool { return strings.Contains(strings.Join(h.Status().Reasons, "\n"), "it is away") }
	r.append("d\n")
	eventually(t, "the reason", away)
	e := r.l.lease(t, 1)
	doubt := make(chan struct{})
	e.mu.Lock()
	e.doubt = doubt
	e.mu.Unlock()
	r.append("e\n")
	<-e.waiting
	eventually(t, "both reasons", func() bool {
		return away() && strings.Contains(strings.Join(h.Status().Reasons, "\n"), "its session is in doubt")
	})
	e.mu.Lock()
	e.doubt = nil
	e.mu.Unlock()
	close(doubt)
	eventually(t, "the next batch is planned, and one reason left", func() bool { return len(h.Status().Reasons) == 1 })
	st, begun := h.Status(), 0
	for _, f := range st.InFlight {
		if f.Phase != "planning" { // that one may find nothing
			begun++
		}
	}
	if !away() || begun != 2 {
		t.Errorf("batch %d is held back, and the status is %+v", st.Txid+1, st)
	}
	close(gate)
	r.counted(h, 7)
	eventually(t, "readiness", func() bool { return len(h.Status().Reasons) == 0 })
}

// A stop doesn't wait for a lease that is in doubt.
func TestLockDrainInDoubt(t *testing.T) {
	r := newLockRun(t)
	h := r.start(func(o *engine.Options) { o.Grace = time.Hour })
	r.counted(h, 5)
	e := r.l.lease(t, 1)
	e.mu.Lock()
	e.doubt = make(chan struct{})
	e.mu.Unlock()
	r.append("d\n")
	<-e.waiting
	h.Drain()
	if err := ended(t, h); err != nil {
		t.Errorf("the run ended with %v", err)
	}
}

// A standby waits, says so, leads when the other has ended, waits again when it has lost the lock, and leads again.
func TestStandby(t *testing.T) {
	r := newLockRun(t)
	first := r.start()
	r.counted(first, 5)
	var opened, closed int
	var mu sync.Mutex
	reg := prometheus.NewRegistry()
	second := r.start(standby, func(o *engine.Options) {
		o.AfterOpen = func() { mu.Lock(); defer mu.Unlock(); opened++ }
		o.BeforeClose = func() { mu.Lock(); defer mu.Unlock(); closed++ }
		o.Registerer = reg
	})
	st := second.Status()
	if st.Role != engine.Standby || len(st.Reasons) != 1 || !strings.HasPrefix(st.Reasons[0], "standby: ") {
		t.Errorf("the standby's status is %+v", st)
	}
	if _, err := second.Snapshot(); batch.KindOf(err) != batch.Transient || !strings.Contains(err.Error(), "standby") {
		t.Errorf("asked for its data, a standby says %v", err)
	}
	first.Drain()
	if err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	r.append("d\n")
	r.counted(second, 6)
	if st := second.Status(); st.Role != engine.Leader {
		t.Errorf("the new leader is %q", st.Role)
	}

	// Somebody else has the lock for a time.
	r.l.lease(t, 2).lose()
	<-r.l.turn
	eventually(t, "it waits again", func() bool { return second.Status().Role == engine.Standby })
	wantLines(t, exposition(t, reg), `tridentd_mirror_failures_total{code="zk_cut",mirror="`+r.records[1].Name()+`",pipeline="test"} 1`)
	if _, err := second.Snapshot(); batch.KindOf(err) != batch.Transient {
		t.Errorf("asked for its data, a standby says %v", err)
	}
	r.append("e\n")
	r.l.turn <- struct{}{}
	r.counted(second, 7)
	wantLines(t, exposition(t, reg), `tridentd_mirror_failures_total{code="zk_cut",mirror="`+r.records[1].Name()+`",pipeline="test"} 2`)
	second.Drain()
	if err := second.Wait(); err != nil {
		t.Errorf("the standby ended with %v", err)
	}
	if opened != 2 || closed != 2 {
		t.Errorf("the store was opened %d times and closed %d times", opened, closed)
	}
	if !slices.IsSorted(r.l.claimed) || len(r.l.claimed) != 3 {
		t.Errorf("epochs %v", r.l.claimed)
	}
}

// A master that is deposed may learn that from its record first: that is no end of a standby, which waits again. Where the lock still
// stands, it is.
func TestStandbyWhoseRecordIsTakenOver(t *testing.T) {
	told := func(t *testing.T, h *engine.Handle) {
		t.Helper()
		eventually(t, "the reason", func() bool { return strings.Contains(strings.Join(h.Status().Reasons, "\n"), "a later run") })
	}
	for name, take := range map[string]func(t *testing.T, h *engine.Handle, e *memoryLease, broken func()){
		"the lease notices when it is asked": func(_ *testing.T, _ *engine.Handle, e *memoryLease, broken func()) {
			e.mu.Lock()
			e.stale = true
			e.mu.Unlock()
			broken()
		},
		"the lease notices later": func(t *testing.T, h *engine.Handle, e *memoryLease, broken func()) {
			e.mu.Lock()
			e.late = true
			e.mu.Unlock()
			broken()
			told(t, h)
			e.lose()
		},
		"the lease notices before": func(_ *testing.T, _ *engine.Handle, e *memoryLease, broken func()) {
			e.lose()
			broken()
		},
		"the lease doesn't notice": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newLockRun(t)
			h := r.start(standby)
			r.counted(h, 5)
			foreign := batch.NewError(batch.Permanent, batch.CodeRecordForeign, "record", errors.New("a later run"), "")
			broken := func() {
				r.l.mu.Lock()
				rec := r.records[0]
				r.l.mu.Unlock()
				rec.breakWith(foreign)
			}
			if take == nil {
				broken()
				told(t, h)
				if err := h.Wait(); !errors.Is(err, foreign) {
					t.Errorf("the run ended with %v", err)
				}
				return
			}
			take(t, h, r.l.lease(t, 1), broken)
			<-r.l.turn // somebody else has it for a time
			eventually(t, "it waits again", func() bool { st := h.Status(); return st.Role == engine.Standby && !st.Draining })
			r.append("d\n")
			r.l.turn <- struct{}{}
			r.counted(h, 6)
			if st := h.Status(); len(st.Reasons) != 0 {
				t.Errorf("it leads again, and isn't ready: %q", st.Reasons)
			}
		})
	}
}

// An export writes under the lock, and not at all while another process holds that.
func TestExportUnderLock(t *testing.T) {
	r := newLockRun(t)
	if err := r.start(func(o *engine.Options) { o.UntilCaughtUp = true }).Wait(); err != nil {
		t.Fatal(err)
	}
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: filepath.Join(r.dir, "data", "test"), Pipeline: "test", Shards: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // it only reads
	<-r.l.turn
	_, _, err = engine.ExportRecord(t.Context(), r.pipeline(), db, emitter.Env{})
	if e, ok := errors.AsType[*batch.Error](err); !ok || e.Code != batch.CodeLockHeld || e.Pipeline != "test" || !strings.HasPrefix(e.Remedy, "stop the process") {
		t.Errorf("while another process holds the lock: %v", err)
	}
	for _, rec := range r.records[1:] {
		if rec.exported != nil {
			t.Error("written without the lock")
		}
	}
	if r.l.closed != 2 {
		t.Errorf("the lock was closed %d times", r.l.closed)
	}
	r.l.turn <- struct{}{}
	if _, _, err := engine.ExportRecord(t.Context(), r.pipeline(), db, emitter.Env{}); err != nil {
		t.Fatal(err)
	}
	rec, e := r.records[len(r.records)-1], r.l.leases[len(r.l.leases)-1]
	if rec.exported == nil || rec.exported.Txid != 3 || rec.lease != txstate.Lease(e) || len(rec.closed) != 1 || rec.closed[0] != nil {
		t.Errorf("exported %+v under %v, closed with %v", rec.exported, rec.lease, rec.closed)
	}
	if !e.released || r.l.closed != 3 {
		t.Errorf("the lock was closed %d times, released %v", r.l.closed, e.released)
	}
}

// The lock is there before the directory is.
func TestStandbyWaitsForTheDirectory(t *testing.T) {
	r := newLockRun(t)
	other := newLockRun(t)
	other.mirrorRun = r.mirrorRun
	holder := other.start()
	r.counted(holder, 5)
	h := r.start(standby)
	eventually(t, "it waits for the directory", func() bool {
		st := h.Status()
		return st.Role == engine.Standby && strings.Contains(strings.Join(st.Reasons, "\n"), "in use")
	})
	holder.Drain()
	<-holder.Done()
	r.append("d\n")
	r.counted(h, 6)
}

// What keeps the lock from being taken: a failure is tried again, another holder ends a run that isn't a standby, and so does a mistake; a
// drain ends the waiting. In each case the directory is free afterwards.
func TestLockNotTaken(t *testing.T) {
	t.Run("for a moment", func(t *testing.T) {
		r := newLockRun(t)
		r.l.refused = []error{batch.NewError(batch.Transient, batch.CodeZKRefused, "lock", errors.New("it is away"), "start it")}
		r.counted(r.start(), 5)
	})
	t.Run("held", func(t *testing.T) {
		r := newLockRun(t)
		<-r.l.turn
		h := r.start()
		if err := h.Wait(); batch.CodeOf(err) != batch.CodeLockHeld {
			t.Errorf("the run ended with %v", err)
		}
		r.l.turn <- struct{}{}
		r.counted(r.start(), 5)
	})
	t.Run("drained", func(t *testing.T) {
		r := newLockRun(t)
		<-r.l.turn
		h := r.start(standby)
		h.Drain()
		if err := h.Wait(); err != nil {
			t.Errorf("the run ended with %v", err)
		}
		r.l.turn <- struct{}{}
		r.counted(r.start(), 5)
	})
	t.Run("there is none", func(t *testing.T) {
		r := newMirrorRun(t)
		_, err := engine.Start(t.Context(), r.keptPipeline(keeper{newRecorder()}), engine.Options{DataDir: t.TempDir(), Standby: true})
		if batch.CodeOf(err) != batch.CodeConfiguration {
			t.Errorf("a standby without a lock: %v", err)
		}
	})
}
