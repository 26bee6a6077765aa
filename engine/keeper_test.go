package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// recorder is a keeper in memory: it notes what it is told, and does what a test asks of it.
type recorder struct {
	mirror
	answers []error // what Reconcile answers first

	mu        sync.Mutex
	standings []txstate.Standing
	points    []txstate.Point
	begun     []batch.Txid
	exported  *txstate.Point
	gate      chan struct{} // closed: batches pass; nil likewise
	waiting   chan struct{} // receives a value when a batch waits
	broken    chan struct{}
	err       error
}

var (
	_ txstate.Recorder = (*recorder)(nil)
	_ txstate.Gate     = (*recorder)(nil)
	_ engine.Keeper    = keeper{}
)

func newRecorder() *recorder {
	return &recorder{broken: make(chan struct{}), waiting: make(chan struct{}, 100)}
}

type keeper struct{ r *recorder }

func (keeper) Describe(pipeline string) string                         { return "kept in memory for " + pipeline }
func (k keeper) NewRecord(string, emitter.Env) (txstate.Mirror, error) { return k.r, k.r.open }
func (keeper) Locks() bool                                             { return false }
func (keeper) NewLock(string, emitter.Env) (txstate.Lock, error)       { panic("there is no lock") }
func (r *recorder) Close(context.Context) error                        { return nil }
func (r *recorder) Committed(batch.Txid, batch.Epoch, []txstate.SavedPosition) {
	panic("told by parts")
}
func (r *recorder) Holding() error          { return errors.New("it is away") }
func (r *recorder) Broken() <-chan struct{} { return r.broken }

func (r *recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *recorder) breakWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	close(r.broken)
}

func (r *recorder) Reconcile(_ context.Context, s txstate.Standing) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.standings = append(r.standings, s)
	if n := len(r.standings); n <= len(r.answers) {
		return r.answers[n-1]
	}
	return nil
}

func (r *recorder) Advance(p txstate.Point) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.points = append(r.points, p)
}

func (r *recorder) Begun(txid batch.Txid, _ batch.Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = append(r.begun, txid)
}

func (r *recorder) ExportPoint(_ context.Context, _ string, p txstate.Point) error {
	r.exported = &p
	return nil
}

func (r *recorder) Pass(ctx context.Context) error {
	r.mu.Lock()
	gate := r.gate
	r.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case r.waiting <- struct{}{}:
	default:
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// keptPipeline counts the lines of the run's file.
func (r *mirrorRun) keptPipeline(k engine.Keeper) *engine.Pipeline {
	p := engine.New("test", engine.KeptBy(k), engine.WithBatching(engine.Batching{MaxRecords: 2}))
	lines := engine.From(p, "lines", file.Paths(r.file), codec.String())
	engine.Aggregate(engine.GroupBy(lines, func(s string) string { return s }, "line"), "counts", agg.Count[string]("n"))
	return p
}

func (r *mirrorRun) kept(rec *recorder, change ...func(*engine.Options)) error {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	o := engine.Options{DataDir: r.dir, UntilCaughtUp: true}
	for _, c := range change {
		c(&o)
	}
	return engine.Run(ctx, r.keptPipeline(keeper{rec}), o)
}

// TestKeeper: a keeper is told the whole record, with the store's identity and the digests that the ledger has.
func TestKeeper(t *testing.T) {
	r := newMirrorRun(t)
	first := newRecorder()
	if err := r.kept(first); err != nil {
		t.Fatal(err)
	}
	if len(first.standings) != 1 || !first.standings[0].Empty || first.standings[0].Store == "" || first.asked != 1 {
		t.Errorf("an empty store is held against the record as %+v, asked %d times", first.standings, first.asked)
	}
	if n := len(first.points); n != 4 || first.points[0].Txid != 0 || first.points[3].Txid != 3 || first.points[3].Positions[0].Next != 5 {
		t.Errorf("told %+v", first.points)
	}
	if !slices.Equal(first.begun, []batch.Txid{1, 2, 3}) {
		t.Errorf("told the beginnings %v", first.begun)
	}
	r.append("d\n")
	second := newRecorder()
	if err := r.kept(second); err != nil {
		t.Fatal(err)
	}
	s, last := second.standings[0], first.points[3]
	if s.Empty || s.Store != first.standings[0].Store || s.Txid != 3 || s.Chain != last.Chain || last.Chain == 0 || second.asked != 0 {
		t.Errorf("the store is held against the record as %+v, after %+v", s, last)
	}
	if p := second.points[0]; p.Txid != 3 || p.Epoch <= last.Epoch || !p.Time.Equal(last.Time) || p.Chain != last.Chain {
		t.Errorf("resumed at %+v, after %+v", p, last)
	}
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: r.dir + "/test", Pipeline: "test", Shards: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // it only reads
	third := newRecorder()
	name, at, err := engine.ExportRecord(t.Context(), r.keptPipeline(keeper{third}), db, emitter.Env{})
	if err != nil || name != "mirror" || third.exported == nil || at.Txid != 4 || third.exported.Chain != second.points[1].Chain {
		t.Errorf("exported %q, %+v, %+v, %v", name, at, third.exported, err)
	}
}

// TestKeeperChains: a recorder finds the chain of any batch in the ledger, while the pipeline runs.
func TestKeeperChains(t *testing.T) {
	r := newMirrorRun(t)
	first := newRecorder()
	if err := r.kept(first); err != nil {
		t.Fatal(err)
	}
	r.append("d\n")
	second := newRecorder()
	second.gate = make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- r.kept(second) }()
	<-second.waiting
	second.mu.Lock()
	s := second.standings[0]
	second.mu.Unlock()
	for _, p := range first.points[1:] {
		if chain, ok, err := s.ChainAt(t.Context(), p.Txid); err != nil || !ok || chain != p.Chain {
			t.Errorf("chain of %d: %x, %v, %v, want %x", p.Txid, chain, ok, err, p.Chain)
		}
	}
	if _, ok, err := s.ChainAt(t.Context(), 99); ok || err != nil {
		t.Errorf("chain of a batch that isn't: %v, %v", ok, err)
	}
	close(second.gate)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestKeeperRefuses: what a recorder refuses ends the start, what it can't tell yet is asked again.
func TestKeeperRefuses(t *testing.T) {
	r := newMirrorRun(t)
	ahead := batch.NewError(batch.Permanent, batch.CodeRecordAhead, "record", errors.New("ahead"), "choose")
	rec := newRecorder()
	rec.answers = []error{batch.NewError(batch.Transient, batch.CodeZKRefused, "record", errors.New("away"), ""), ahead}
	err := r.kept(rec)
	if !errors.Is(err, ahead) || len(rec.standings) != 2 || len(rec.points) != 0 {
		t.Errorf("%v, after %d askings and %d points", err, len(rec.standings), len(rec.points))
	}
	// A record without a position tells that the pipeline has run, too.
	rec = newRecorder()
	rec.carried = []txstate.Carried{{Txid: 4, Epoch: 1}}
	if err := r.kept(rec); batch.CodeOf(err) != batch.CodeStoreMissing || !strings.Contains(err.Error(), "txid 4") {
		t.Errorf("an empty store beside a record: %v", err)
	}
	if err := r.kept(rec, func(o *engine.Options) { o.Fresh = true }); err != nil || !rec.rewind {
		t.Errorf("started over on purpose: %v, rewind %v", err, rec.rewind)
	}
}

// TestGate: no batch commits while a gate holds it, status says why, and the batch goes on afterwards.
func TestGate(t *testing.T) {
	r := newMirrorRun(t)
	rec := newRecorder()
	rec.gate = make(chan struct{})
	h, err := engine.Start(t.Context(), r.keptPipeline(keeper{rec}), engine.Options{DataDir: r.dir, UntilCaughtUp: true})
	if err != nil {
		t.Fatal(err)
	}
	<-rec.waiting
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		st := h.Status()
		if st.Txid != 0 {
			t.Fatalf("txid %d has committed", st.Txid)
		}
		if slices.ContainsFunc(st.Reasons, func(s string) bool { return s == "commits wait for ZooKeeper: it is away" }) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("status says %q", st.Reasons)
		}
	}
	close(rec.gate)
	if err := h.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := len(rec.points); rec.points[n-1].Txid != 3 {
		t.Errorf("ended at txid %d", rec.points[n-1].Txid)
	}
}

// TestGateAtStop: a stop doesn't wait for a gate; what was held back is done by the next run, once.
func TestGateAtStop(t *testing.T) {
	r := newMirrorRun(t)
	rec := newRecorder()
	rec.gate = make(chan struct{})
	h, err := engine.Start(t.Context(), r.keptPipeline(keeper{rec}), engine.Options{DataDir: r.dir, Grace: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	<-rec.waiting
	h.Drain()
	if err := ended(t, h); err != nil {
		t.Errorf("stopped with %v", err)
	}
	again := newRecorder()
	if err := r.kept(again); err != nil {
		t.Fatal(err)
	}
	if p := again.points; p[0].Txid != 0 || p[len(p)-1].Txid != 3 {
		t.Errorf("the next run went from txid %d to %d", p[0].Txid, p[len(p)-1].Txid)
	}
}

// TestFreshAgain: what was to start over and ended before its first batch committed starts over all the same; what ended later
// doesn't.
func TestFreshAgain(t *testing.T) {
	r := newMirrorRun(t)
	fresh := func(rec *recorder) *engine.Handle {
		h, err := engine.Start(t.Context(), r.keptPipeline(keeper{rec}), engine.Options{DataDir: r.dir, Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	for again := range 2 {
		rec := newRecorder()
		rec.gate = make(chan struct{})
		rec.carried = []txstate.Carried{{Txid: 4, Epoch: 1}}
		h := fresh(rec)
		<-rec.waiting // the store holds positions, and a batch at work
		h.Drain()
		if err := h.Wait(); err != nil || !rec.rewind {
			t.Errorf("started over, again %d: %v, rewind %v", again, err, rec.rewind)
		}
		if s := rec.standings[0]; s.Empty != (again == 0) || s.Txid != 0 {
			t.Errorf("again %d: the store is held against the record as %+v", again, s)
		}
	}
	if err := r.kept(newRecorder()); err != nil {
		t.Fatal(err)
	}
	rec := newRecorder()
	h := fresh(rec)
	h.Drain()
	if err := h.Wait(); err != nil || rec.rewind {
		t.Errorf("with batches that have committed: %v, rewind %v", err, rec.rewind)
	}
}

// TestBroken: a run that its recorder breaks ends with the recorder's error, though no batch is there to fail, or held back.
func TestBroken(t *testing.T) {
	for _, held := range []bool{false, true} {
		r := newMirrorRun(t)
		rec := newRecorder()
		if held {
			rec.gate = make(chan struct{})
		}
		h, err := engine.Start(t.Context(), r.keptPipeline(keeper{rec}), engine.Options{DataDir: r.dir})
		if err != nil {
			t.Fatal(err)
		}
		if held {
			<-rec.waiting
		} else if err := h.WaitFor(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		foreign := batch.NewError(batch.Permanent, batch.CodeRecordForeign, "record", errors.New("somebody else"), "")
		rec.breakWith(foreign)
		if err := h.Wait(); !errors.Is(err, foreign) || batch.KindOf(err) != batch.Permanent {
			t.Errorf("held back %v: ended with %v", held, err)
		}
	}
}
