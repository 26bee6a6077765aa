package exec_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/window"
)

// stages is a pipeline whose stages stand behind one another: windows over windows, new values, operators with timers of both
// clocks, their outputs, a persist with a stage behind it, and tasks that read what the exchanges before theirs have left.
func (w *world) stages() *engine.Pipeline {
	p := engine.New("test", engine.OnBadRecord(w.policy), engine.WithBatching(w.batch))
	events := engine.From(p, "events", w.events, codec.JSON[event]()).
		EventTime(func(e event) time.Time { return e.At }, 5*time.Second, engine.IdleAfter(time.Hour))
	lines := engine.From(p, "lines", w.lines, codec.String())
	byUser := engine.GroupBy(events, func(e event) string { return e.User }, "user")
	windows := engine.GroupByWindow(events, window.Tumbling(10*time.Second), func(e event) string { return e.User }, "user", engine.Retention(2*time.Second))

	lasts := engine.Aggregate(byUser, "lasts", agg.LastOf("last", func(e event) int64 { return e.N }))
	type last = engine.Result[string, int64]
	engine.Aggregate(engine.GroupBy(engine.Updates[int64](lasts), func(r last) int64 { return r.Value % 7 }, "mod"), "changes", agg.Count[last]("n"))

	inner := engine.Aggregate(windows, "inner", agg.Count[event]("n"))
	sums := engine.Aggregate(
		engine.GroupByWindow(engine.Closed[int64](inner), window.Tumbling(20*time.Second), func(last) string { return "all" }, "all"),
		"outer", agg.SumOf("n", func(r last) int64 { return r.Value }))
	engine.Aggregate(engine.GroupBy(engine.Closed[int64](sums), func(last) string { return "all" }, "all"), "total", agg.SumOf("n", func(r last) int64 { return r.Value }))

	engine.Aggregate(windows, "gaps", agg.Count[event]("n"))
	engine.Aggregate(engine.GroupBy(lines, func(s string) string { return s[:1] }, "line"), "quiet", agg.Count[string]("n"))
	pl, err := p.Plan()
	if err != nil {
		w.t.Fatal(err)
	}
	exchange := func(name string) *plan.Exchange {
		return pl.Exchanges[slices.IndexFunc(pl.Exchanges, func(e *plan.Exchange) bool { return e.Name == name })]
	}
	opaque := func(name string) state.Schema {
		return state.Schema{Name: name, Kind: "opaque", Key: []state.Column{{Name: "key", Type: "bytes"}}}
	}
	folded := func(name string, emit plan.Emit, next func() plan.StageTask) *plan.Exchange {
		e := &plan.Exchange{Name: name, Merge: fold, Next: next, State: &plan.State{
			Schema: opaque(name), Emit: emit,
			Update: func(dst, old, delta []byte) ([]byte, bool, error) {
				v, err := fold(dst, old, delta)
				return v, true, err
			},
		}}
		pl.Exchanges = append(pl.Exchanges, e)
		return e
	}

	gaps := exchange("gaps")
	gaps.Merge, gaps.Operator = nil, func() plan.Operator { return &closing{delay: 7 * time.Second} }
	gaps.State = &plan.State{Schema: opaque("gaps"), TimeSources: gaps.State.TimeSources}
	gaps.Output = &plan.State{Schema: opaque("ended")}
	quiet := exchange("quiet")
	quiet.Merge, quiet.Operator = nil, func() plan.Operator { return &closing{delay: 2 * time.Second, batchTime: true} }
	quiet.State = &plan.State{Schema: opaque("quiet"), Clock: plan.ClockBatch}
	quiet.Output = &plan.State{Schema: opaque("expired")}

	n := len(pl.Exchanges)
	ends, looked := n, n+1
	gaps.Next = func() plan.StageTask {
		return &relay{to: ends, persist: 0, key: func(k, row []byte) []byte { return row[len(row)-1:] }}
	}
	folded("ends", plan.EmitUpdates, func() plan.StageTask { return &relay{to: looked, persist: -1, reads: "ended"} })
	notes := &plan.Persist{
		Name: "notes", Schema: opaque("notes"), Before: folded("looked", plan.EmitUpdates, func() plan.StageTask {
			return &relay{to: looked + 1, persist: -1, reads: "notes"}
		}),
		Apply: func(ctx context.Context, b *batch.Batch, p batch.Partition, rows any, st plan.ReadWriter) error {
			for _, row := range rows.([][]byte) {
				old, _, err := st.Get(ctx, row[:1])
				if err != nil {
					return err
				}
				v, err := fold(nil, old, row)
				if err != nil {
					return err
				}
				st.Set(row[:1], v)
				st.Emit(append(v, p.Source...))
			}
			return nil
		},
		Next: func() plan.RowTask {
			return anyRows{&relay{to: looked, persist: -1, key: func(_, row []byte) []byte { return row[:1] }}}
		},
	}
	pl.Persists = append([]*plan.Persist{notes}, pl.Persists...)
	folded("read", 0, nil)
	return engine.Wrap(pl)
}

// fold isn't commutative: another order gives another value. It is associative in that it only joins.
func fold(dst, a, b []byte) ([]byte, error) {
	if len(a)+len(b) > 64 {
		a = binary.BigEndian.AppendUint64(nil, xxhash.Sum64(a))
	}
	return append(append(dst, a...), b...), nil
}

// closing is an operator that keeps what comes for a key and, after a delay, hands it on and forgets it.
type closing struct {
	delay     time.Duration
	batchTime bool
}

func (o *closing) Key(c *plan.KeyContext, key, old []byte, deltas [][]byte) ([]byte, bool, error) {
	val := slices.Clone(old)
	if len(val) == 0 {
		val = make([]byte, 8)
	}
	for _, d := range deltas {
		val = binary.BigEndian.AppendUint64(append(val, byte(len(deltas))), xxhash.Sum64(d))
	}
	if len(deltas) > 0 {
		at := c.Batch.Time.UnixNano()
		if !o.batchTime {
			start, _, err := value.DecodeKey(key)
			if err != nil {
				return nil, false, err
			}
			at = start.Nanos() + int64(10*time.Second)
		}
		binary.BigEndian.PutUint64(val, uint64(at+int64(o.delay)))
	}
	if o.Wake(val) > c.Now {
		return val, true, nil
	}
	c.Put(key, val)
	c.Put(key[len(key)-3:], val) // several keys write to this one: the last counts
	if len(val)%4 == 0 {
		c.Reject(plan.Rejected{Kind: plan.RejectBad, Step: "closing", Cause: fmt.Sprint(len(val))})
	}
	if !o.batchTime {
		return nil, false, c.Emit(val)
	}
	return nil, false, nil
}

func (o *closing) Wake(val []byte) int64 { return int64(binary.BigEndian.Uint64(val)) }

// relay hands each row on to an exchange, or to a persist too, with what it reads for it in a state.
type relay struct {
	to, persist int
	reads       string
	key         func(key, row []byte) []byte // by which the row goes on; nil: as it came
	tc          *plan.TaskContext
	rows        [][]byte
}

func (r *relay) Begin(tc *plan.TaskContext) error {
	r.tc, r.rows = tc, nil
	return nil
}

func (r *relay) Row(key, row []byte) error {
	row = slices.Clone(row)
	if r.key != nil {
		key = r.key(key, row)
	}
	if r.reads != "" {
		v, ok, err := r.tc.State(r.reads).Get(context.Background(), key)
		if err != nil {
			return err
		}
		row = append(append(row, v...), fmt.Sprint(ok)...)
	}
	if r.persist >= 0 {
		r.rows = append(r.rows, row)
	}
	return r.tc.Out[r.to].Add(key, row)
}

func (r *relay) End() error {
	if len(r.rows) > 0 {
		r.tc.Persist[r.persist] = r.rows
	}
	return nil
}

// anyRows is a relay behind a persist.
type anyRows struct{ *relay }

func (r anyRows) Row(row any) error { return r.relay.Row(nil, row.([]byte)) }

var stageStates = []string{
	"lasts", "changes", "inner", "outer", "total", "gaps", "ended", "quiet", "expired", "ends", "looked", "notes", "read", "_windows", exec.TimersState, exec.RejectedState,
}

// The same batches give the same bytes in every state of later stages: on any number of cores, with any number of batches in
// flight, and computed twice.
func TestStagesSameBytes(t *testing.T) {
	w := newWorld(t)
	w.build = w.stages
	w.fill(110)
	entries := w.split(rand.New(rand.NewPCG(5, 6)))
	at := entries[len(entries)-1].Time
	for i := range 3 { // batches without data
		entries = append(entries, txstate.Entry{
			Txid: batch.Txid(len(entries) + 1), Attempt: batch.Attempt{Epoch: 1, N: 1}, Time: at.Add(time.Duration(i) * time.Second), Seed: 1,
		})
	}
	first := vfs.NewMem()
	if err := w.drive(first, entries, 1, func(c *exec.Config) { c.Procs = 1 }); err != nil {
		t.Fatal(err)
	}
	want := w.outcomeOf(first)
	written := map[string]int64{}
	for _, e := range want.entries {
		for _, s := range e.States {
			written[s.State] += s.Writes
		}
	}
	for _, s := range stageStates {
		if written[s] < 3 {
			t.Errorf("%d writes to state %s", written[s], s)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 2, 16} {
		runtime.GOMAXPROCS(procs)
		for _, pending := range []int{1, 2, 5} {
			for _, check := range []float64{0, 1} {
				fs := vfs.NewMem()
				when := fmt.Sprintf("%d procs, %d in flight, checked %g", procs, pending, check)
				if err := w.drive(fs, entries, pending, func(c *exec.Config) { c.Procs, c.Check = procs, check }); err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				if err := want.diff(w.outcomeOf(fs)); err != nil {
					t.Errorf("%s: %v", when, err)
				}
			}
		}
	}
	// A replay, with half of it done by another process.
	fs := vfs.NewMem()
	half := len(want.entries) / 2
	for _, part := range [][]txstate.Entry{want.entries[:half], want.entries[half:]} {
		if err := w.drive(fs, part, 4, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := want.diff(w.outcomeOf(fs)); err != nil {
		t.Errorf("replayed: %v", err)
	}
}

// Every window is sent on once, whole, and every timer of event time that has come is worked off, whatever the borders of the
// batches; timers have one row each.
func TestStagesLoseNothing(t *testing.T) {
	w := newWorld(t)
	w.build = w.stages
	for i := range 120 {
		w.events.add(int32(i%2), record([]string{"ann", "bob", "cem"}[i%3], int64(i), time.Duration(i)*time.Second))
	}
	w.events.add(0, record("ann", 1, 300*time.Second))
	w.events.add(1, record("ann", 1, 300*time.Second))
	for seed := range uint64(10) {
		fs := vfs.NewMem()
		entries := w.split(rand.New(rand.NewPCG(seed, 1)))
		for range 2 { // the last range raised the watermark: the next batch closes
			e := entries[len(entries)-1]
			entries = append(entries, txstate.Entry{Txid: e.Txid + 1, Attempt: e.Attempt, Time: e.Time, Seed: 1})
		}
		for i := range entries {
			entries[i].Idle = nil // an idle partition makes late what comes of it
		}
		if err := w.drive(fs, entries, 3, nil); err != nil {
			t.Fatal(err)
		}
		if n, rows := w.sum(fs, "total"), w.rows(fs, "gaps"); n != 120 || rows != 1 {
			t.Errorf("seed %d: the closed windows hold %d records, want 120; %d keys of the operator are left, want that of 300 s", seed, n, rows)
		}
		if timers, quiet := w.rows(fs, exec.TimersState), w.rows(fs, "quiet"); timers != 1+quiet {
			t.Errorf("seed %d: %d timers, want one for each key that the operators keep (1 and %d)", seed, timers, quiet)
		}
	}
}

func (w *world) rows(fs vfs.FS, name string) (n int) {
	w.scan(fs, name, func(_, _ []byte) { n++ })
	return n
}

// sum adds up the single aggregate of a state's rows.
func (w *world) sum(fs vfs.FS, name string) (n int64) {
	w.scan(fs, name, func(_, cells []byte) {
		row, err := agg.Results(nil, cells)
		if err != nil {
			w.t.Fatal(err)
		}
		n += row[0].Int()
	})
	return n
}

func (w *world) scan(fs vfs.FS, name string, f func(key, val []byte)) {
	w.t.Helper()
	db, err := w.open(fs)
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	snap, err := db.Snapshot()
	if err != nil {
		w.t.Fatal(err)
	}
	defer snap.Close()
	for row, err := range snap.Scan(w.t.Context(), name, nil, nil) {
		if err != nil {
			w.t.Fatal(err)
		}
		f(row.Key, row.Value)
	}
}

// A crash at any sync, and the next process goes on to the same end, timers and open windows included.
func TestStagesCrashAtEverySync(t *testing.T) {
	w := newWorld(t)
	w.build = w.stages
	n := 10
	if *long {
		n = 300
	}
	w.fill(n)
	for i := range n + 10 { // there are fewer lines, so that the end is up to the events
		w.events.add(int32(i%2), record("ann", int64(i), time.Duration(i)*10*time.Second))
	}
	want := w.once(vfs.NewMem())
	if err := want.check(w); err != nil {
		t.Fatal(err)
	}
	if len(want.entries[len(want.entries)-1].Ranges) != 0 {
		t.Error("the last batch has data: none began to close windows")
	}
	points := &syncPoints{mem: vfs.NewCrashableMem(), rng: rand.New(rand.NewPCG(1, 1)), keep: 50}
	w.hook = slowCommits
	w.same(want, w.once(points.fs()), "without a crash")
	w.hook = nil
	for i, fs := range points.clones {
		w.same(want, w.once(fs), fmt.Sprintf("after a crash at sync %d of %d", i+1, len(points.clones)))
	}
}

// A batch begins by itself when the watermark has passed the end of an open window, and when the clock has come to a timer; none
// begins without a reason.
func TestTimersBeginBatches(t *testing.T) {
	w := newWorld(t)
	w.build = w.stages
	w.lines.add(0, "a line")
	w.events.add(0, record("ann", 1, 0), record("ann", 2, 12*time.Second))
	start := time.Now()
	var moved atomic.Int64
	w.now = func() time.Time { return clock0.Add(time.Since(start) + time.Duration(moved.Load())) }
	fs := vfs.NewMem()
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	var plans atomic.Int64
	w.hook = func(call string, b *batch.Batch, after bool) error {
		if call == "plan" && after {
			plans.Add(1)
		}
		return nil
	}
	// Time stands until the batches that the data led to are through; then two seconds pass at once.
	p.done = func(e *txstate.Entry) bool {
		if len(e.Ranges) > 0 {
			moved.Store(int64(1999 * time.Millisecond))
		}
		return slices.ContainsFunc(e.States, func(s txstate.StateDigest) bool { return s.State == "expired" })
	}
	if err := p.finish(); err != nil {
		t.Fatal(err)
	}
	o := w.outcomeOf(fs)
	var got []string
	for _, e := range o.entries {
		var states []string
		for _, s := range e.States {
			if s.State == "inner" || s.State == "outer" || s.State == "expired" || s.State == "quiet" || s.State == exec.TimersState {
				states = append(states, s.State)
			}
		}
		got = append(got, fmt.Sprintf("%d ranges: %s", len(e.Ranges), strings.Join(states, " ")))
	}
	// The watermark is 7 s: the window that ends at 10 s stays open.
	want := []string{"2 ranges: _timers inner quiet", "0 ranges: _timers expired quiet"}
	if !slices.Equal(got, want) {
		t.Errorf("batches\n%q, want\n%q", got, want)
	}
	if at := o.entries[1].Time.Sub(o.entries[0].Time); at < 2*time.Second || at > time.Minute {
		t.Errorf("the timer came %s after its batch", at)
	}
	if n := plans.Load(); n > 12 {
		t.Errorf("%d plannings", n)
	}

	// Now it is passed: a process that is bounded to what is there closes what its watermark lets close, and ends.
	w.events.add(0, record("ann", 3, 40*time.Second))
	w.hook = nil
	last := w.once(fs)
	e := last.entries[len(last.entries)-1]
	if len(last.entries) != 4 || len(e.Ranges) != 0 || w.sum(fs, "total") != 2 {
		t.Errorf("%d batches, the last %+v; the closed windows hold %d records", len(last.entries), e, w.sum(fs, "total"))
	}
}

// closedCounts sums, by user, the records of windows of ten seconds that have closed.
func (w *world) closedCounts() *engine.Pipeline {
	p := engine.New("test", engine.WithBatching(w.batch))
	events := engine.From(p, "events", w.events, codec.JSON[event]()).
		EventTime(func(e event) time.Time { return e.At }, 5*time.Second, engine.IdleAfter(time.Hour))
	counts := engine.Aggregate(engine.GroupByWindow(events, window.Tumbling(10*time.Second), func(e event) string { return e.User }, "user"),
		"counts", agg.Count[event]("n"))
	closed := engine.Closed[int64](counts)
	engine.Aggregate(engine.GroupBy(closed, func(r engine.Result[string, int64]) string { return r.Key }, "user"), "closed",
		agg.SumOf("n", func(r engine.Result[string, int64]) int64 { return r.Value }))
	return p
}

// A batch begins when a partition that holds the watermark back has been idle for its limit, if that lets a window close; the
// next closes it.
func TestIdleLimitBeginsABatch(t *testing.T) {
	w := newWorld(t)
	w.build = w.closedCounts
	w.events.add(0, record("ann", 1, 0))
	w.events.add(1, record("bob", 1, 0))
	start := time.Now()
	var moved atomic.Int64
	w.now = func() time.Time { return clock0.Add(time.Since(start) + time.Duration(moved.Load())) }
	fs := vfs.NewMem()
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	halfway := clock0.Add(30 * time.Minute)
	p.done = func(e *txstate.Entry) bool {
		switch {
		case e.Time.Before(halfway): // half an hour later partition 0 moves once more; a batch being planned may take that at the old time
			moved.Store(int64(30 * time.Minute))
			w.events.add(0, record("ann", 1, 40*time.Second))
		case len(e.Ranges) > 0: // nothing comes any more, and an hour has almost passed since partition 1 moved
			moved.Store(int64(time.Hour - 5*time.Millisecond - time.Since(start)))
		}
		return slices.ContainsFunc(e.States, func(s txstate.StateDigest) bool { return s.State == "closed" })
	}
	if err := p.finish(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, e := range w.outcomeOf(fs).entries {
		if i > 0 && e.Time.Before(halfway) {
			continue
		}
		got = append(got, fmt.Sprintf("%d ranges, %d idle", len(e.Ranges), len(e.Idle)))
	}
	if want := []string{"2 ranges, 0 idle", "1 ranges, 0 idle", "0 ranges, 1 idle", "0 ranges, 1 idle"}; !slices.Equal(got, want) {
		t.Errorf("batches %q, want %q", got, want)
	}
	if n := w.sum(fs, "closed"); n != 2 {
		t.Errorf("the closed windows hold %d records, want 2", n)
	}
}

// Partitions that fall silent in one batch are idle at the same time: the largest time that one of them has shown counts then, as it
// would had the others been idle before it.
func TestAllIdleAtOnce(t *testing.T) {
	w := newWorld(t)
	w.build = w.closedCounts
	w.events.add(0, record("ann", 1, 0), record("cem", 1, 16*time.Second), record("ann", 1, 40*time.Second))
	w.events.add(1, record("bob", 1, 0))
	var moved atomic.Int64
	w.now = func() time.Time { return clock0.Add(time.Duration(moved.Load())) }
	fs := vfs.NewMem()
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	p.done = func(e *txstate.Entry) bool {
		for _, r := range e.Ranges {
			read += int(r.End - r.Start)
		}
		if read == 4 { // both have moved at the same time, and stand at their ends
			moved.Store(int64(time.Hour))
		}
		return slices.ContainsFunc(e.States, func(s txstate.StateDigest) bool { return s.State == "closed" })
	}
	if err := p.finish(); err != nil {
		t.Fatal(err)
	}
	entries := w.outcomeOf(fs).entries
	idle := entries[len(entries)-2]
	if len(idle.Ranges) != 0 || len(idle.Idle) != 2 || len(idle.Watermarks) != 1 || idle.Watermarks[0].Time != clock0.Add(35*time.Second).UnixNano() {
		t.Errorf("the batch in which both are idle: %+v, want the watermark at 35 s", idle)
	}
	if n := w.sum(fs, "closed"); n != 3 {
		t.Errorf("the closed windows hold %d records, want 3", n)
	}
}

// A window that had closed, and that a source which joined behind writes to, closes again: its rows are sent again, those of
// shards that weren't written to included.
func TestWindowClosesAgain(t *testing.T) {
	w := newWorld(t)
	type sent = engine.Result[string, int64]
	both := false
	w.build = func() *engine.Pipeline {
		p := engine.New("test", engine.WithBatching(w.batch))
		at := func(e event) time.Time { return e.At }
		events := engine.From(p, "a", w.events, codec.JSON[event]()).EventTime(at, 0)
		if both {
			events = engine.Merge(events, engine.From(p, "b", w.lines, codec.JSON[event]()).EventTime(at, 0))
		}
		counts := engine.Aggregate(engine.GroupByWindow(events, window.Tumbling(time.Minute), func(e event) string { return e.User }, "user"),
			"counts", agg.Count[event]("n"))
		engine.Aggregate(engine.GroupBy(engine.Closed[int64](counts), func(r sent) string { return r.Key }, "user"), "sent",
			agg.CollectOf("values", func(r sent) int64 { return r.Value }))
		return p
	}
	fs := vfs.NewMem()
	got := func() map[string]string {
		m := map[string]string{}
		w.scan(fs, "sent", func(key, cells []byte) {
			row, err := agg.Results(nil, cells)
			if err != nil {
				t.Fatal(err)
			}
			m[value.KeyText(key)] = string(value.AppendText(nil, row[0]))
		})
		return m
	}
	w.events.add(0, record("ann", 1, 0), record("cem", 1, time.Second), record("ann", 1, 2*time.Minute))
	w.once(fs)
	if m := got(); !maps.Equal(m, map[string]string{"ann": "[1]", "cem": "[1]"}) {
		t.Fatalf("sent %v", m)
	}
	both = true
	w.accept(fs)
	w.lines.add(0, record("ann", 1, 30*time.Second))
	w.once(fs)
	w.lines.add(0, record("bob", 1, 90*time.Second))
	w.once(fs)
	if m := got(); !maps.Equal(m, map[string]string{"ann": "[1,2]", "cem": "[1,1]"}) {
		t.Errorf("sent %v", m)
	}
}

// What a compiler must not ask for is refused at once.
func TestStagesThatCannotBe(t *testing.T) {
	next := func() plan.StageTask { return nil }
	op := func() plan.Operator { return nil }
	merge := func(dst, _, _ []byte) ([]byte, error) { return dst, nil }
	other := &plan.Exchange{Name: "other", Merge: merge}
	for want, p := range map[string]*plan.Plan{
		"nothing takes them": {Exchanges: []*plan.Exchange{{Name: "x", State: &plan.State{Emit: plan.EmitUpdates}}}},
		"other way round":    {Exchanges: []*plan.Exchange{{Name: "x", State: &plan.State{}, Next: next}}},
		"no windows":         {Exchanges: []*plan.Exchange{{Name: "x", State: &plan.State{Emit: plan.EmitCloses}, Next: next}}},
		"state of its own":   {Exchanges: []*plan.Exchange{{Name: "x", Operator: op}}},
		"no operator":        {Exchanges: []*plan.Exchange{{Name: "x", State: &plan.State{}, Output: &plan.State{}}}},
		"another plan":       {Persists: []*plan.Persist{{Name: "x", Before: other}}},
		"two stages":         {Exchanges: []*plan.Exchange{{Name: "x", Next: next}, other}, Persists: []*plan.Persist{{Name: "x", Before: other, Next: func() plan.RowTask { return nil }}}},
	} {
		func() {
			defer func() {
				if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), want) {
					t.Errorf("%s: %v", want, v)
				}
			}()
			exec.New(exec.Config{Plan: p})
		}()
	}
}

// A migration that renames an operator's state, or takes it out, does so to its timers.
func TestMigrationTakesTimersAlong(t *testing.T) {
	w := newWorld(t)
	w.build = w.stages
	w.fill(40)
	fs := vfs.NewMem()
	w.once(fs)
	count := func() map[string]int { // as a query sees them
		db, err := w.open(fs)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		snap, err := db.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		defer snap.Close()
		n := map[string]int{}
		err = query.Rows(t.Context(), snap, exec.TimersSchema(), nil, func(row []value.Value) error {
			n[row[0].Str()]++
			if wake := time.Unix(0, row[1].Nanos()); wake.Before(clock0.Add(-time.Hour)) || wake.After(clock0.Add(time.Hour)) {
				t.Errorf("a timer at %s", wake)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	if before["gaps"] == 0 || before["quiet"] == 0 {
		t.Fatalf("timers %v", before)
	}
	db, err := w.open(fs)
	if err != nil {
		t.Fatal(err)
	}
	_, err = exec.Migrate(t.Context(), db, exec.Migration{
		Plan: pebblestate.Plan{Definition: []byte("{}")}, Did: []string{"test"}, Rename: map[string]string{"gaps": "spans"}, Drop: []string{"quiet"}, Now: clock0,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if after := count(); len(after) != 1 || after["spans"] != before["gaps"] {
		t.Errorf("timers %v, before %v", after, before)
	}
}
