package exec_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/coordinator"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

var errAway = batch.NewError(batch.Transient, batch.CodeUnavailable, "read", errors.New("no leader"), "")

// dice are thrown by many goroutines.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *dice) one(in int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(in) == 0
}

// Calls fail now and then, before or after they have done their work; reads break off; commits are of unknown outcome,
// written or not. In the end everything is as if nothing had happened.
func TestFailingCalls(t *testing.T) {
	w := newWorld(t)
	w.fill(70)
	want := w.once(vfs.NewMem())
	seeds := 6
	if *long {
		seeds = 200
	}
	var written, lost atomic.Int64
	for seed := range seeds {
		d := &dice{rng: rand.New(rand.NewPCG(uint64(seed), 2))}
		w.hook = func(call string, _ *batch.Batch, after bool) error {
			switch {
			case call == "commit" && d.one(5):
				if after {
					written.Add(1)
				} else {
					lost.Add(1)
				}
				return fmt.Errorf("sync: %w", pebblestate.ErrUnknownOutcome)
			case call != "commit" && d.one(12):
				return errAway
			}
			return nil
		}
		w.events.read = func(context.Context, batch.Range) error {
			if d.one(12) {
				return errAway
			}
			return nil
		}
		w.failed = nil
		fs := vfs.NewMem()
		got := w.once(fs)
		w.hook, w.events.read = nil, nil
		w.same(want, got, fmt.Sprintf("seed %d", seed))
		if len(w.failed) < 5 {
			t.Errorf("seed %d: only %d failures", seed, len(w.failed))
		}
	}
	if written.Load() < 2 || lost.Load() < 2 {
		t.Errorf("of the commits of unknown outcome %d were written and %d not", written.Load(), lost.Load())
	}
}

// A sync of the store's log fails, once: each commit in turn. The handle is given up, the store is opened again, and
// nothing is lost or doubled, whether what was written is found or not.
func TestFailedSync(t *testing.T) {
	w := newBrokenWorld(t)
	w.fill(30)
	want := w.once(vfs.NewMem())
	met := 0
	for at := int64(1); ; at++ {
		var syncs atomic.Int64
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if !strings.HasSuffix(op.Path, ".log") || op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData {
				return nil
			}
			if syncs.Add(1) == at+6 { // the first are those of the opening
				return errors.New("input/output error")
			}
			return nil
		}))
		p, err := w.start(fs)
		if err != nil {
			t.Fatal(err)
		}
		w.failed = nil
		if err := p.finish(); err != nil {
			t.Fatalf("sync %d: %v", at, err)
		}
		w.same(want, w.outcomeOf(fs), fmt.Sprintf("sync %d fails", at))
		if unknown(w.failed) > 0 {
			met++
		}
		if syncs.Load() < at+5 {
			break
		}
	}
	if met < 3 {
		t.Errorf("only %d commits failed", met)
	}
}

// unknown counts the writes of unknown outcome among failures.
func unknown(failures []error) (n int) {
	for _, err := range failures {
		if errors.Is(err, pebblestate.ErrUnknownOutcome) {
			n++
		}
	}
	return n
}

// A partition appears, and the write of its start fails: the store's handle is done for, and no commit is under way that
// would notice. The store is opened again and the partition read from its beginning.
func TestFailedSyncOfAnAdmission(t *testing.T) {
	w := newBrokenWorld(t)
	w.fill(10)
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".log") && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) && broken.CompareAndSwap(true, false) {
			return errors.New("input/output error")
		}
		return nil
	}))
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	appeared := false
	p.done = func(*txstate.Entry) bool {
		ends, err := p.Ends(t.Context())
		if err != nil {
			t.Error(err)
		}
		if !p.Reached(ends) {
			return false
		}
		if !appeared {
			appeared = true
			broken.Store(true)
			w.events.add(7, record("eve", 1, 0), record("eve", 2, 0))
			return false
		}
		return true
	}
	w.failed = nil
	if err := p.finish(); err != nil {
		t.Fatal(err)
	}
	if len(w.failed) != 1 || unknown(w.failed) != 1 {
		t.Errorf("failures %v", w.failed)
	}
	got := w.outcomeOf(fs)
	if err := got.check(w); err != nil {
		t.Error(err)
	}
	last := got.entries[len(got.entries)-1]
	if len(last.Joined) != 1 || last.Joined[0].Number != 7 || last.Ranges[0].End != 2 {
		t.Errorf("the last batch: %+v", last)
	}
}

// An admission that fails before anything is written is done again by the next planning: the source tells a new
// partition once only.
func TestAdmissionIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.fill(10)
	fs := vfs.NewMem()
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	defer p.finishNow(t)
	w.events.add(7, record("eve", 1, 0))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	b := &batch.Batch{Txid: 1, Attempt: batch.Attempt{Epoch: p.Epoch(), N: 1}, Time: clock0}
	if _, err := p.Executor.Plan(gone, b, false); err == nil {
		t.Fatal("planned, though the start of a partition couldn't be written")
	}
	if ok, err := p.Executor.Plan(t.Context(), b, false); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if len(b.Joined) != 4 || len(b.Ranges) != 4 {
		t.Errorf("joined %v, ranges %v", b.Joined, b.Ranges)
	}
	p.Executor.Abort([]*batch.Batch{b})
}

// finishNow closes a process without running it.
func (p *process) finishNow(t *testing.T) {
	t.Helper()
	if err := errors.Join(p.Close(context.Background()), p.db.Close()); err != nil {
		t.Error(err)
	}
}

// Another process has taken the store over between a commit of unknown outcome and the reopening: this one ends.
func TestReopenFindsAnotherEpoch(t *testing.T) {
	w := newWorld(t)
	w.batch.MaxPending = 1
	w.fill(20)
	fs := vfs.NewMem()
	unknown := 0
	w.hook = func(call string, b *batch.Batch, after bool) error {
		if call == "commit" && b.Txid == 2 && !after && unknown == 0 {
			unknown++
			return fmt.Errorf("sync: %w", pebblestate.ErrUnknownOutcome)
		}
		return nil
	}
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	p.w.takeover = func(db *pebblestate.DB) error { return db.Store().Claim(context.Background(), p.Epoch()+1) }
	err = p.finish()
	if batch.CodeOf(err) != batch.CodeStoreInUse || batch.KindOf(err) != batch.Permanent {
		t.Errorf("error %v", err)
	}
	if o := w.outcomeOf(fs); o.snap.Txid != 1 {
		t.Errorf("txid %d has committed", o.snap.Txid)
	}
	w.hook, w.takeover = nil, nil
	w.once(fs)
}

// Reads that hang, with every slot for them taken, don't keep the batch before from its commit. A stop ends all the same.
func TestReadHangs(t *testing.T) {
	w := newWorld(t)
	w.procs = 2
	w.fill(30)
	release, hangs, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once, stop sync.Once
	w.event = func(ev coordinator.Event) {
		if _, ok := ev.(coordinator.Stop); ok {
			stop.Do(func() { close(stopped) })
		}
	}
	deaf := func(_ context.Context, r batch.Range) error { // to its context
		if r.Start > 0 {
			once.Do(func() { close(hangs) })
			<-release
		}
		return nil
	}
	w.events.read, w.lines.read = deaf, deaf
	w.total = func(txid batch.Txid, _ string) error {
		if txid == 1 {
			<-hangs // the next batch is ahead, and more states of this one are to come
		}
		return nil
	}
	fs := vfs.NewMem()
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan struct{}, 10)
	p.done = func(*txstate.Entry) bool {
		first <- struct{}{}
		return true
	}
	ended := make(chan error, 1)
	go func() { ended <- p.finish() }()
	select {
	case <-first:
	case <-time.After(time.Minute):
		t.Error("the first batch doesn't commit")
	}
	p.run.Stop()
	select {
	case <-stopped: // until then what was read could commit
	case <-time.After(time.Minute):
		t.Error("the stop isn't taken")
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if o := w.outcomeOf(fs); o.snap.Txid != 1 {
		t.Errorf("txid %d has committed, want 1", o.snap.Txid)
	}
	w.events.read, w.lines.read, w.total, w.event = nil, nil, nil, nil
	if err := w.once(fs).check(w); err != nil {
		t.Error(err)
	}
}

// The store fails while a batch is computed: its commit surely writes nothing, and yet is one of unknown outcome, as
// this is what leads to the store being opened again.
func TestCommitFindsADeadStore(t *testing.T) {
	w := newBrokenWorld(t)
	w.fill(10)
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".log") && broken.Load() {
			return errors.New("input/output error")
		}
		return nil
	}))
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	b := &batch.Batch{Txid: 1, Attempt: batch.Attempt{Epoch: p.Epoch(), N: 1}, Time: clock0}
	if ok, err := p.Executor.Plan(t.Context(), b, false); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := p.Executor.Process(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	other := batch.Position{Partition: batch.Partition{Source: "other", Topic: "other"}}
	if err := p.db.Store().Admit(t.Context(), []batch.Position{other}); !errors.Is(err, pebblestate.ErrUnknownOutcome) {
		t.Fatalf("error %v", err)
	}
	broken.Store(false)
	if err := p.Executor.Commit(t.Context(), []*batch.Batch{b}); !errors.Is(err, pebblestate.ErrUnknownOutcome) {
		t.Errorf("error %v", err)
	}
	if txid, err := p.Reopen(t.Context()); err != nil || txid != 0 {
		t.Errorf("reopened at %d, error %v", txid, err)
	}
	p.Executor.Abort([]*batch.Batch{b})
	if err := p.finish(); err != nil {
		t.Fatal(err)
	}
	o := w.outcomeOf(fs)
	if err := o.check(w); err != nil {
		t.Error(err)
	}
}

// An outage that lasts longer than times may lie ahead of the batch's clock: what was made meanwhile is not too far ahead.
func TestOutageLongerThanTheFutureBound(t *testing.T) {
	w := newWorld(t)
	var offset atomic.Int64
	tick := ticking()
	w.now = func() time.Time { return tick().Add(time.Duration(offset.Load())) }
	w.batch.MaxPending = 1
	w.events.add(0, record("ann", 1, 0))
	failed := false
	w.hook = func(call string, b *batch.Batch, after bool) error {
		if call == "process" && after && !failed {
			failed = true
			offset.Store(int64(3 * time.Hour))
			w.events.add(0, record("ann", 2, 3*time.Hour), record("ann", 3, 3*time.Hour))
			return errAway
		}
		return nil
	}
	o := w.once(vfs.NewMem())
	if err := o.check(w); err != nil {
		t.Error(err)
	}
	first := o.entries[0]
	if !failed || len(o.entries) != 1 || first.Ranges[0].Records != 3 || first.Counts.Future != 0 || !first.Time.Equal(clock0.Add(3*time.Hour)) {
		t.Errorf("entries %+v", o.entries)
	}
}

// stopped runs a new process over the world's sources and returns the bad record that it stops at.
func (w *world) stopped(t *testing.T) *batch.Error {
	t.Helper()
	fs := vfs.NewMem()
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	p.done = func(*txstate.Entry) bool { return false }
	err = p.finish()
	var e *batch.Error
	if !errors.As(err, &e) || e.Code != batch.CodeBadRecord {
		t.Fatalf("error %v", err)
	}
	if o := w.outcomeOf(fs); o.snap.Txid != e.Txid-1 {
		t.Errorf("stopped at txid %d, txid %d has committed", e.Txid, o.snap.Txid)
	}
	return e
}

// Of the bad records of a batch the first is told, in the order of partitions and offsets, even if another is met before
// it. Reads of partitions behind it are cut off.
func TestFirstBadRecordIsTold(t *testing.T) {
	w := newWorld(t)
	w.policy = 0
	w.events.add(0, record("ann", 1, 0), "first", "second")
	w.events.add(1, "third")
	w.events.add(2, record("ann", 1, 0))
	w.lines.add(0, "a line")
	cut, begun := make(chan struct{}), make(chan struct{})
	w.events.read = func(ctx context.Context, r batch.Range) error {
		switch r.Number {
		case 0:
			select {
			case <-cut: // partition 1 has failed
			case <-ctx.Done():
				return ctx.Err()
			}
		case 1:
			<-begun
		case 2:
			close(begun)
			<-ctx.Done()
			close(cut)
			return ctx.Err()
		}
		return nil
	}
	if e := w.stopped(t); e.Partition.Number != 0 || e.Offset != 1 || e.Txid != 1 {
		t.Errorf("told is %v", e)
	}
}

// A read that fails for the moment doesn't let a bad record behind it be told in place of one before it: the batch is begun
// again, and meets the first.
func TestFirstBadRecordIsToldAfterAFailure(t *testing.T) {
	w := newWorld(t)
	w.policy = 0
	w.events.add(0, "first")
	w.events.add(1, "second")
	w.events.add(2, record("ann", 1, 0))
	cut, begun := make(chan struct{}), make(chan struct{})
	var away atomic.Bool
	w.events.read = func(ctx context.Context, r batch.Range) error {
		switch {
		case away.Load():
		case r.Number == 0:
			<-cut // partition 1 has failed
			away.Store(true)
			return errAway
		case r.Number == 1:
			<-begun
		case r.Number == 2:
			close(begun)
			<-ctx.Done()
			close(cut)
			return ctx.Err()
		}
		return nil
	}
	if e := w.stopped(t); e.Partition.Number != 0 || e.Offset != 0 {
		t.Errorf("told is %v", e)
	}
	if len(w.failed) != 2 || batch.CodeOf(w.failed[0]) != batch.CodeUnavailable {
		t.Errorf("failures %v", w.failed)
	}
}

// A partition that can't be read for as long as it likes doesn't keep a bad record of another from being told.
func TestBadRecordBesideALastingFailure(t *testing.T) {
	w := newWorld(t)
	w.policy = 0
	w.events.add(0, record("ann", 1, 0))
	w.events.add(1, record("ann", 1, 0), "bad")
	w.events.add(2, "bad too")
	w.events.read = func(_ context.Context, r batch.Range) error {
		if r.Number == 0 {
			return errAway
		}
		return nil
	}
	if e := w.stopped(t); e.Partition.Number != 1 || e.Offset != 1 {
		t.Errorf("told is %v", e)
	}
	if n := len(w.failed); n > 5 {
		t.Errorf("it took %d attempts", n)
	}
}

// Of the bad rows of a later stage the first is told, in the order of shards and keys.
func TestFirstBadRowIsTold(t *testing.T) {
	w := newWorld(t)
	w.policy = 0
	w.batch.MaxRecords = 0
	first, lowest := "", w.shards
	for i := range 40 {
		user := fmt.Sprintf("user %d", i)
		w.events.add(0, record(user, 1, 0))
		shard := state.ShardOf(value.AppendKey(nil, value.StringOf(user)), w.shards)
		if shard < lowest || shard == lowest && user < first {
			first, lowest = user, shard
		}
	}
	other := make(chan struct{})
	var once sync.Once
	w.total = func(_ batch.Txid, key string) error {
		if key == first {
			<-other // another shard's row is about to fail: an order by time would show
			time.Sleep(time.Millisecond)
		} else {
			once.Do(func() { close(other) })
		}
		return errors.New("no")
	}
	want := fmt.Sprintf("key %s: no", first)
	if e := w.stopped(t); int(e.Partition.Number) != lowest || e.Partition.Source != "per_batch" || e.Err.Error() != want {
		t.Errorf("told is %v, want %s of shard %d", e, want, lowest)
	}
}
