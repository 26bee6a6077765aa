package exec_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/coordinator"
	"github.com/tridentd/tridentd/coordinator/runner"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/window"
)

var long = flag.Bool("exec.long", false, "run the tests on more records, seeds and crash points")

// clock0 is the batches' clock. It moves by a nanosecond whenever it is read, so that back-offs end and batches, whose
// clock has milliseconds, all have the same.
var clock0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func ticking() func() time.Time {
	var n atomic.Int64
	return func() time.Time { return clock0.Add(time.Duration(n.Add(1))) }
}

type event struct {
	User string    `json:"user"`
	N    int64     `json:"n"`
	At   time.Time `json:"at"`
}

func record(user string, n int64, at time.Duration) string {
	return fmt.Sprintf(`{"user":%q,"n":%d,"at":%q}`, user, n, clock0.Add(at).Format(time.RFC3339Nano))
}

type tag struct {
	User string
	Team string
}

type seen struct {
	Batches int64
	Last    int64
	Values  string
}

// world is a pipeline with its sources, and what becomes of it over processes.
type world struct {
	t      *testing.T
	events *topic // timed, JSON
	lines  *topic
	teams  *topic // a static table
	batch  engine.Batching
	policy engine.Policy
	shards int
	procs  int
	now    func() time.Time // of the coordinator

	buildID string
	// build, if not nil, makes another pipeline than that of everything.
	build func() *engine.Pipeline

	// hook, if not nil, is called before and after each call of the executor: what it returns is the call's error.
	hook func(call string, b *batch.Batch, after bool) error
	// takeover, if not nil, is done to the store before it is opened again.
	takeover func(db *pebblestate.DB) error
	commit   []int // how many batches each commit held
	// event, if not nil, is told each event that the runs' coordinators have taken.
	event func(coordinator.Event)
	// pressed, if not nil, tells whether memory is short.
	pressed func() bool
	// total, if not nil, is called for each row of the batch aggregate, in the state stage; its error makes the row bad.
	total func(txid batch.Txid, key string) error
	// failures that the runs' coordinators were told.
	mu     sync.Mutex
	failed []error
}

// newWorld returns a world whose processes must leave no goroutine behind.
func newWorld(t *testing.T) *world {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	return newBrokenWorld(t)
}

// newBrokenWorld returns a world for tests in which writes of the store fail. A handle that is given up leaves Pebble's
// goroutines parked for good, so that they can't touch the directory any more.
func newBrokenWorld(t *testing.T) *world {
	w := &world{
		t: t, events: newTopic(), lines: newTopic(), teams: newTopic(), policy: engine.Skip, shards: 8, procs: 3, now: ticking(), buildID: "test",
		batch: engine.Batching{MaxRecords: 4, MaxPending: 4, RetryMin: 1, RetryMax: 1},
	}
	w.teams.fields = []string{"user", "team"}
	w.teams.add(0, "ann,red", "bob,blue", "cem,red")
	return w
}

// fill gives the sources what a test of everything wants: two partitions of events that are out of order, late, bad
// and too far ahead, and a partition of lines.
func (w *world) fill(n int) {
	users := []string{"ann", "bob", "cem", "dan", ""}
	for i := range n {
		at := time.Duration(i)*time.Second - time.Minute
		switch i % 11 {
		case 3:
			at -= 40 * time.Second // often late
		case 5:
			w.events.add(int32(i%2), `{"user":`)
			continue
		case 7:
			at += 48 * time.Hour // ahead of the clock
		}
		w.events.add(int32(i%2), record(users[i%len(users)], int64(i), at))
		w.lines.add(0, fmt.Sprintf("%s w%d", users[(i*7)%len(users)], i%9))
	}
}

// pipeline is what the world's processes run. Unless build says otherwise it has a state of every kind: written as merge operands, read and written, windowed, kept by hand, fed by a
// batch aggregate, and the engine's own for rejected rows.
func (w *world) pipeline() *plan.Plan {
	p := w.build
	if p == nil {
		p = w.everything
	}
	pl, err := p().Plan()
	if err != nil {
		w.t.Fatal(err)
	}
	return pl
}

func (w *world) everything() *engine.Pipeline {
	p := engine.New("test", engine.OnBadRecord(w.policy), engine.WithBatching(w.batch))
	teams := engine.Static(p, "teams", w.teams, codec.CSV[tag](), func(t tag) string { return t.User })
	events := engine.From(p, "events", w.events, codec.JSON[event]()).
		EventTime(func(e event) time.Time { return e.At }, 5*time.Second, engine.IdleAfter(time.Hour))
	byUser := engine.GroupBy(events, func(e event) string { return e.User }, "user")
	engine.Aggregate(byUser, "sums", agg.SumOf("sum", func(e event) int64 { return e.N }))
	engine.Aggregate(byUser, "means", agg.MeanOf("mean", func(e event) float64 { return float64(e.N) / 3 }))
	engine.Aggregate(byUser, "lasts", agg.LastOf("last", func(e event) int64 { return e.N }))
	engine.Aggregate(engine.GroupByWindow(events, window.Tumbling(10*time.Second), func(e event) string { return e.User }, "user", engine.Retention(0)),
		"windowed", agg.Count[event]("n"))
	// A second state that turns the same rows away.
	engine.Aggregate(engine.GroupByWindow(events, window.Tumbling(20*time.Second), func(e event) int64 { return e.N % 3 }, "third"),
		"windowed_too", agg.Count[event]("n"))
	rolls := engine.TryMap(events, func(b *engine.Batch, _ event) (int64, error) { return int64(b.Rand().IntN(6)), nil })
	engine.Aggregate(engine.GroupBy(rolls, func(n int64) int64 { return n }, "roll"), "rolls", agg.Count[int64]("n"))
	inTeam := engine.Lookup(events, teams, func(e event) string { return e.User }, func(e event, row *tag) tag {
		if row == nil {
			return tag{User: e.User}
		}
		return *row
	})
	engine.Aggregate(engine.GroupBy(inTeam, func(t tag) string { return t.Team }, "team"), "team_events", agg.Count[tag]("n"))
	totals := engine.BatchAggregate[int64](byUser, "per_batch", agg.Count[event]("n"))
	totals = engine.TryMap(totals, func(b *engine.Batch, row engine.Total[string, int64]) (engine.Total[string, int64], error) {
		if w.total != nil {
			return row, w.total(b.Txid(), row.Key)
		}
		if row.Key == "dan" && b.Txid()%3 != 0 {
			return row, errors.New("dan isn't counted")
		}
		return row, nil
	})
	engine.Aggregate(engine.GroupBy(totals, func(t engine.Total[string, int64]) int64 { return t.Value }, "size"),
		"sizes", agg.Count[engine.Total[string, int64]]("n"))
	engine.PartitionPersist(totals, "history", func(b *engine.Batch, rows []engine.Total[string, int64], st *engine.KV[string, seen]) error {
		for _, r := range rows {
			v, _, err := st.Get(r.Key)
			if err != nil {
				return err
			}
			v.Batches++
			v.Last = int64(b.Txid())
			if err := st.Set(r.Key, v); err != nil {
				return err
			}
		}
		return nil
	}, "user")
	lines := engine.From(p, "lines", w.lines, codec.String())
	engine.PartitionPersist(lines, "kept", func(_ *engine.Batch, rows []string, st *engine.KV[string, seen]) error {
		for _, r := range rows {
			key, rest, _ := strings.Cut(r, " ")
			v, _, err := st.Get(key)
			if err != nil {
				return err
			}
			v.Batches++
			v.Values = rest + " " + v.Values[:min(len(v.Values), 20)]
			if v.Batches%13 == 0 {
				err = st.Delete(key)
			} else {
				err = st.Set(key, v)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, "key")
	words := engine.FlatMap(lines, strings.Fields)
	engine.Aggregate(engine.GroupBy(words, func(s string) string { return s }, "word"), "words", agg.Count[string]("n"))
	return p
}

func (w *world) open(fs vfs.FS) (*pebblestate.DB, error) {
	return pebblestate.Open(context.Background(), pebblestate.Options{
		Dir: "data", FS: fs, Pipeline: "test", Shards: w.shards, CreateIfMissing: true, CacheBytes: 1 << 20, MemTableBytes: 256 << 10,
	})
}

// accept tells a store that its states go on with the pipeline as it is now.
func (w *world) accept(fs vfs.FS) {
	w.t.Helper()
	db, err := w.open(fs)
	if err != nil {
		w.t.Fatal(err)
	}
	pl := w.pipeline()
	err = db.SetPlan(context.Background(), exec.PlanFor(xxhash.Sum64String(pl.Text), exec.DefinitionOf(pl)))
	if err := errors.Join(err, db.Close()); err != nil {
		w.t.Fatal(err)
	}
}

// process is one process: a store, an executor, and the runner that drives it.
type process struct {
	w  *world
	fs vfs.FS
	db *pebblestate.DB
	*exec.Executor
	run *runner.Runner
	// Ledger entries that this process has told as committed.
	told []txstate.Entry
	// done decides whether to end, after each commit. By default a process ends when everything has been read.
	done func(e *txstate.Entry) bool
}

var logger = func() hclog.Logger {
	if os.Getenv("EXEC_TEST_LOG") == "" {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Debug})
}()

// start opens a process on fs; its work begins with finish.
func (w *world) start(fs vfs.FS) (*process, error) {
	ctx := context.Background()
	db, err := w.open(fs)
	if err != nil {
		return nil, err
	}
	p := &process{w: w, fs: fs, db: db}
	pl := w.pipeline()
	p.Executor = exec.New(exec.Config{
		Plan: pl, DB: db, Shards: db.Shards(), Procs: w.procs, PlanSum: xxhash.Sum64String(pl.Text), Build: w.buildID, Logger: logger,
		Now:      func() time.Time { return clock0 },
		OnCommit: p.committed, Reopened: p.reopened, Pressed: w.pressed,
	})
	snap, err := p.Open(ctx)
	if err != nil {
		return nil, errors.Join(err, p.Close(ctx), db.Close())
	}
	p.run, err = runner.New(runner.Config{
		Coordinator: coordinator.Config{
			MaxPending: pl.Batch.MaxPending, Retry: coordinator.Retry{Min: pl.Batch.Retry.Min, Max: pl.Batch.Retry.Max}, Seed: 1,
		},
		Snapshot: snap, Executor: p, Now: w.now, Observe: w.observe, Logger: logger,
	})
	return p, err
}

func (w *world) observe(_ time.Time, ev coordinator.Event, _ []coordinator.Action) {
	if w.event != nil {
		w.event(ev)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := coordinator.FailureOf(ev); err != nil {
		w.failed = append(w.failed, err)
	}
}

func (p *process) committed(e *txstate.Entry) {
	p.told = append(p.told, *e)
	if p.ends(e) {
		p.run.Drain()
	}
}

func (p *process) ends(e *txstate.Entry) bool {
	if p.done != nil {
		return p.done(e)
	}
	ends, err := p.Ends(context.Background())
	if err != nil {
		panic(err)
	}
	return p.Reached(ends)
}

func (p *process) reopened(context.Context) (*pebblestate.DB, error) {
	if err := p.db.Close(); err != nil && p.db.Err() == nil {
		return nil, err
	}
	db, err := p.w.open(p.fs)
	if err != nil {
		return nil, err
	}
	p.db = db
	if p.w.takeover != nil {
		err = p.w.takeover(db)
	}
	return db, err
}

// finish runs the process to its end and closes it.
func (p *process) finish() error {
	ctx := context.Background()
	var err error
	if p.done != nil || !p.ends(nil) {
		err = p.run.Run(ctx)
	}
	if n := p.InFlight(); err == nil && n != 0 {
		err = fmt.Errorf("%d batches are left in flight", n)
	}
	err = errors.Join(err, p.Close(ctx))
	if cerr := p.db.Close(); err == nil && p.db.Err() == nil {
		err = cerr
	}
	return err
}

func (p *process) call(what string, bs []*batch.Batch, f func() error) error {
	hook := p.w.hook
	if hook == nil {
		return f()
	}
	if err := hook(what, bs[0], false); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return hook(what, bs[0], true)
}

func (p *process) Plan(ctx context.Context, b *batch.Batch, recorded bool) (ok bool, err error) {
	err = p.call("plan", []*batch.Batch{b}, func() (err error) {
		ok, err = p.Executor.Plan(ctx, b, recorded)
		return err
	})
	return ok, err
}

func (p *process) Process(ctx context.Context, b *batch.Batch) error {
	return p.call("process", []*batch.Batch{b}, func() error { return p.Executor.Process(ctx, b) })
}

func (p *process) Commit(ctx context.Context, bs []*batch.Batch) error {
	err := p.call("commit", bs, func() error {
		p.w.commit = append(p.w.commit, len(bs))
		return p.Executor.Commit(ctx, bs)
	})
	if errors.Is(err, pebblestate.ErrUnknownOutcome) {
		return fmt.Errorf("%w: %w", runner.ErrUnknown, err)
	}
	return err
}

// outcome is what a store holds in the end.
type outcome struct {
	entries []txstate.Entry
	digest  uint64
	states  []pebblestate.StateDigest
	snap    txstate.Snapshot
	fs      vfs.FS
}

// outcomeOf reads the store in fs, which no process uses.
func (w *world) outcomeOf(fs vfs.FS) *outcome {
	w.t.Helper()
	db, err := w.open(fs)
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	ctx := context.Background()
	o := &outcome{fs: fs}
	for e, err := range db.Store().Entries(ctx, 1, 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		o.entries = append(o.entries, e)
	}
	if o.digest, err = db.Digest(ctx); err != nil {
		w.t.Fatal(err)
	}
	if o.states, err = db.StateDigests(ctx); err != nil {
		w.t.Fatal(err)
	}
	if o.snap, err = db.Store().Load(ctx); err != nil {
		w.t.Fatal(err)
	}
	return o
}

// drive runs entries on fs, behind what the store holds, with so many batches in flight. set may change the
// executor's settings; nil leaves them.
func (w *world) drive(fs vfs.FS, entries []txstate.Entry, pending int, set func(c *exec.Config)) error {
	w.t.Helper()
	return w.driven(fs, set, func(ctx context.Context, x *exec.Executor) error { return x.Drive(ctx, entries, pending) })
}

// driven passes an open executor on fs to f.
func (w *world) driven(fs vfs.FS, set func(c *exec.Config), f func(ctx context.Context, x *exec.Executor) error) error {
	w.t.Helper()
	ctx := context.Background()
	db, err := w.open(fs)
	if err != nil {
		w.t.Fatal(err)
	}
	pl := w.pipeline()
	c := exec.Config{
		Plan: pl, DB: db, Shards: db.Shards(), Procs: w.procs, PlanSum: xxhash.Sum64String(pl.Text), Build: "test",
		Now: func() time.Time { return clock0 },
	}
	if set != nil {
		set(&c)
	}
	x := exec.New(c)
	if _, err = x.Open(ctx); err == nil {
		err = f(ctx, x)
	}
	if n := x.InFlight(); n != 0 {
		w.t.Errorf("%d batches are left in flight", n)
	}
	return errors.Join(err, x.Close(ctx), db.Close())
}

// split deals all records out to batches by chance, with clocks that move on.
func (w *world) split(rng *rand.Rand) []txstate.Entry {
	type part struct {
		batch.Partition
		at, end int64
	}
	var parts []*part
	for _, t := range []struct {
		id    string
		topic *topic
	}{{"events", w.events}, {"lines", w.lines}} {
		for n, recs := range t.topic.parts {
			parts = append(parts, &part{batch.Partition{Source: t.id, Topic: t.id, Number: n}, 0, int64(len(recs))})
		}
	}
	slices.SortFunc(parts, func(a, b *part) int { return a.Compare(b.Partition) })
	var entries []txstate.Entry
	now := clock0
	for left := true; left; {
		left = false
		e := txstate.Entry{Txid: batch.Txid(len(entries) + 1), Attempt: batch.Attempt{Epoch: 1, N: 1}, Time: now, Seed: rng.Uint64()}
		now = now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
		for _, p := range parts {
			if e.Txid == 1 {
				e.Joined = append(e.Joined, batch.Position{Partition: p.Partition, LeaderEpoch: batch.NoEpoch})
			}
			n := min(int64(rng.IntN(6)), p.end-p.at)
			left = left || p.at+n < p.end
			switch {
			case n > 0:
				e.Ranges = append(e.Ranges, txstate.RangeEntry{Range: batch.Range{Partition: p.Partition, Start: p.at, End: p.at + n, LeaderEpoch: batch.NoEpoch}})
				p.at += n
			case p.Source == "events" && rng.IntN(2) == 0:
				e.Idle = append(e.Idle, p.Partition)
			}
		}
		if len(e.Ranges) > 0 {
			entries = append(entries, e)
		}
	}
	return entries
}

// once runs a process on fs to its end and returns what the store holds then.
func (w *world) once(fs vfs.FS) *outcome {
	w.t.Helper()
	p, err := w.start(fs)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.finish(); err != nil {
		w.t.Fatal(err)
	}
	return w.outcomeOf(fs)
}

// check asserts what holds for every ledger: no txid is missing, ranges follow each other, and every record of every
// partition was read by one batch, once.
func (o *outcome) check(w *world) error {
	next := map[batch.Partition]int64{}
	var read int64
	for i := range o.entries {
		e := &o.entries[i]
		if want := batch.Txid(i + 1); e.Txid != want {
			return fmt.Errorf("txid %d in place of %d", e.Txid, want)
		}
		if i > 0 && e.Time.Before(o.entries[i-1].Time) {
			return fmt.Errorf("the clock of txid %d falls", e.Txid)
		}
		for _, r := range e.Ranges {
			if r.Start != next[r.Partition] || r.End <= r.Start || r.Records != r.End-r.Start {
				return fmt.Errorf("txid %d: %s with %d records; the batch before ended at %d", e.Txid, r.Range, r.Records, next[r.Partition])
			}
			next[r.Partition] = r.End
			read += r.Records
		}
	}
	if want := w.events.records() + w.lines.records(); read != want {
		return fmt.Errorf("%d records were read, of %d", read, want)
	}
	if want := batch.Txid(len(o.entries)); o.snap.Txid != want {
		return fmt.Errorf("the store stands at txid %d, the ledger at %d", o.snap.Txid, want)
	}
	for _, p := range o.snap.Positions {
		if p.Topic != "" && p.Next != next[p.Partition] {
			return fmt.Errorf("%s: the ledger ends at %d", p.Position, next[p.Partition])
		}
	}
	return nil
}

// diff says how got differs from o: in a batch of the ledger, or in a state.
func (o *outcome) diff(got *outcome) error {
	if len(o.entries) != len(got.entries) {
		return fmt.Errorf("%d batches, not %d", len(got.entries), len(o.entries))
	}
	for i := range o.entries {
		want, is := &o.entries[i], &got.entries[i]
		if want.Chain == is.Chain {
			continue
		}
		return fmt.Errorf("txid %d differs:\n%+v\n%+v", want.Txid, want, is)
	}
	for i := range o.states {
		if i >= len(got.states) || o.states[i] != got.states[i] {
			return fmt.Errorf("states differ:\n%+v\n%+v", o.states, got.states)
		}
	}
	if o.digest != got.digest {
		return fmt.Errorf("digest %016x, not %016x", got.digest, o.digest)
	}
	return nil
}

// same fails the test if the store in fs doesn't hold what want does, or its ledger isn't in order.
func (w *world) same(want, got *outcome, when string) {
	w.t.Helper()
	if err := got.check(w); err != nil {
		w.t.Errorf("%s: %v", when, err)
	}
	if err := want.diff(got); err != nil {
		w.t.Errorf("%s: %v", when, err)
	}
}
