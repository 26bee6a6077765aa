package exec_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/window"
)

// after ends a process once txid has committed.
func after(txid batch.Txid) func(*txstate.Entry) bool {
	return func(e *txstate.Entry) bool { return e != nil && e.Txid >= txid }
}

// part runs a process on fs, one batch after the other, until txid has committed and the one that has begun by then.
func (w *world) part(fs vfs.FS, txid batch.Txid) {
	w.t.Helper()
	defer func(n int) { w.batch.MaxPending = n }(w.batch.MaxPending)
	w.batch.MaxPending = 1
	p, err := w.start(fs)
	if err != nil {
		w.t.Fatal(err)
	}
	p.done = after(txid)
	if err := p.finish(); err != nil {
		w.t.Fatal(err)
	}
}

// record plans and processes n batches on fs and records them, then ends without a commit, as a crash would. It
// returns the batches.
func (w *world) record(fs vfs.FS, n int) []*batch.Batch {
	w.t.Helper()
	p, err := w.start(fs)
	if err != nil {
		w.t.Fatal(err)
	}
	defer p.finishNow(w.t)
	txid, _ := p.Committed()
	var bs []*batch.Batch
	for i := range n {
		b := &batch.Batch{
			Txid: txid + batch.Txid(i) + 1, Attempt: batch.Attempt{Epoch: p.Epoch(), N: 1},
			Time: clock0.Add(time.Duration(int(txid)+i) * time.Second), Seed: uint64(1000 + i),
		}
		if ok, err := p.Executor.Plan(w.t.Context(), b, false); err != nil || !ok {
			w.t.Fatal(ok, err)
		}
		if err := p.Executor.Process(w.t.Context(), b); err != nil {
			w.t.Fatal(err)
		}
		if err := p.Record(w.t.Context(), b); err != nil {
			w.t.Fatal(err)
		}
		bs = append(bs, b)
	}
	return bs
}

// A batch that was recorded is run with its recorded ranges, clock and seed, though more data waits by then.
func TestRecordedBatches(t *testing.T) {
	w := newWorld(t)
	w.fill(25)
	w.batch.MaxRecords = 3
	fs := vfs.NewMem()
	w.part(fs, 1)
	before := w.outcomeOf(fs)
	bs := w.record(fs, 2)
	w.fill(40)
	w.batch.MaxRecords = 9 // what is planned anew would take more
	got := w.once(fs)
	if err := got.check(w); err != nil {
		t.Fatal(err)
	}
	for i, b := range bs {
		e := got.entries[len(before.entries)+i]
		var ranges []batch.Range
		for _, r := range e.Ranges {
			ranges = append(ranges, r.Range)
		}
		if e.Txid != b.Txid || !e.Time.Equal(b.Time) || e.Seed != b.Seed || !slices.Equal(ranges, b.Ranges) || e.Attempt.Epoch <= b.Attempt.Epoch {
			t.Errorf("recorded was %+v, committed has %+v", b, e)
		}
	}
	if next := got.entries[len(before.entries)+2]; next.Ranges[0].Records <= 3 || next.Time.Before(bs[1].Time) {
		t.Errorf("behind the recorded ones comes %+v", next)
	}
	if len(got.snap.Recorded) != 0 {
		t.Errorf("still recorded: %+v", got.snap.Recorded)
	}
}

// If what was recorded can't be read again as it was, nothing of it is applied, and the error has the figures.
func TestRecordedBatchChanged(t *testing.T) {
	for name, change := range map[string]func(w *world, r batch.Range){
		"a value": func(w *world, r batch.Range) { w.lines.set(r.Number, r.End-1, "changed") },
		"a record less": func(w *world, r batch.Range) {
			w.lines.parts[r.Number] = slices.Delete(w.lines.parts[r.Number], int(r.Start), int(r.Start+1))
		},
	} {
		w := newWorld(t)
		w.fill(30)
		fs := vfs.NewMem()
		w.part(fs, 1)
		before := w.outcomeOf(fs)
		b := w.record(fs, 1)[0]
		r := b.Ranges[len(b.Ranges)-1] // of the lines
		was := w.snapshotRecorded(fs)[0].Ranges[len(b.Ranges)-1]
		change(w, r)
		p, err := w.start(fs)
		if err != nil {
			t.Fatal(err)
		}
		err = p.finish()
		var e *batch.Error
		if !errors.As(err, &e) || e.Kind != batch.Permanent || e.Code != batch.CodeUnreplayable || e.Txid != b.Txid ||
			e.Partition != r.Partition || e.Offset != r.Start || e.Pipeline != "test" || e.Remedy == "" {
			t.Fatalf("%s: error %v", name, err)
		}
		if figures := fmt.Sprintf("[%d,%d) held %d records with digest %016x, now ", r.Start, r.End, was.Records, was.Digest); !strings.Contains(err.Error(), figures) {
			t.Errorf("%s: %q is missing in: %v", name, figures, err)
		}
		if err := before.diff(w.outcomeOf(fs)); err != nil {
			t.Errorf("%s: something was applied: %v", name, err)
		}
	}
}

func (w *world) snapshotRecorded(fs vfs.FS) []txstate.Entry {
	w.t.Helper()
	return w.outcomeOf(fs).snap.Recorded
}

// The source of a recorded range has left the pipeline: the batch can't be run.
func TestRecordedBatchOfNoSource(t *testing.T) {
	w := newWorld(t)
	w.fill(12)
	fs := vfs.NewMem()
	gone := batch.Position{Partition: batch.Partition{Source: "gone", Topic: "gone"}, LeaderEpoch: batch.NoEpoch}
	db, err := w.open(fs)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Store().Admit(t.Context(), []batch.Position{gone}), db.Close()); err != nil {
		t.Fatal(err)
	}
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	defer p.finishNow(t)
	b := &batch.Batch{Txid: 1, Attempt: batch.Attempt{Epoch: p.Epoch(), N: 1}, Time: clock0, Ranges: []batch.Range{
		{Partition: gone.Partition, Start: 0, End: 3},
	}}
	_, err = p.Executor.Plan(t.Context(), b, true)
	var e *batch.Error
	if !errors.As(err, &e) || e.Code != batch.CodeUnreplayable || e.Partition != b.Ranges[0].Partition || e.Txid != 1 {
		t.Errorf("error %v", err)
	}
	if p.InFlight() != 0 {
		t.Error("the batch is in flight")
	}
}

// A recorded batch is settled by the plan, and the build, that recorded it, before another starts.
func TestRule4RecordedBatchOfAnotherPlan(t *testing.T) {
	w := newWorld(t)
	w.fill(12)
	fs := vfs.NewMem()
	w.record(fs, 1)
	w.policy = 0 // stop at bad records: they would come out differently
	_, err := w.start(fs)
	if batch.CodeOf(err) != batch.CodeStoreForeign || batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), "txid 1") {
		t.Fatalf("error %v", err)
	}
	w.policy = 1
	w.buildID = "another"
	_, err = w.start(fs)
	if batch.CodeOf(err) != batch.CodeStoreForeign || batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), `build "test"`) {
		t.Fatalf("error %v", err)
	}
	w.buildID = "test"
	w.once(fs)
	w.buildID = "another" // nothing is unsettled any more
	w.once(fs)
}

// Where event time stands is the same after every restart as the ledger says.
func TestWatermarkAtRestart(t *testing.T) {
	w := newWorld(t)
	w.fill(80)
	want := w.once(vfs.NewMem())
	w.batch.MaxPending = 1 // so that a process ends where it is told to
	fs := vfs.NewMem()
	rose := 0
	for {
		p, err := w.start(fs)
		if err != nil {
			t.Fatal(err)
		}
		at, _ := p.Committed()
		mark := txstate.NoTime
		if at > 0 {
			if ws := want.entries[at-1].Watermarks; len(ws) > 0 {
				mark = ws[0].Time
				rose++
			}
		}
		if got := p.Watermark("events"); got != mark {
			t.Fatalf("after txid %d the watermark is %d, in the ledger %d", at, got, mark)
		}
		if p.ends(nil) {
			p.finishNow(t)
			break
		}
		p.done = func(*txstate.Entry) bool { return true }
		if err := p.finish(); err != nil {
			t.Fatal(err)
		}
	}
	if rose < 5 {
		t.Errorf("only %d restarts had a watermark", rose)
	}
	w.same(want, w.once(fs), "with restarts")
}

// A partition that is behind holds event time back after a restart too, though nothing of it comes.
func TestWatermarkIsHeldAfterARestart(t *testing.T) {
	w := newWorld(t)
	w.events.add(0, record("ann", 1, 0))
	w.events.add(1, record("ann", 1, 0))
	fs := vfs.NewMem()
	w.once(fs)
	w.events.add(0, record("ann", 2, 30*time.Minute))
	o := w.once(fs)
	last := o.entries[len(o.entries)-1]
	if want := clock0.Add(-5 * time.Second).UnixNano(); len(last.Watermarks) != 1 || last.Watermarks[0].Time != want {
		t.Errorf("watermarks %+v, want %d", last.Watermarks, want)
	}
}

// A partition with a saved position that is read no more doesn't hold event time back for ever.
func TestUnlistedPartitionDoesNotHoldTheWatermark(t *testing.T) {
	w := newWorld(t)
	w.events.add(0, record("ann", 1, 0))
	w.events.add(1, record("ann", 1, 0))
	fs := vfs.NewMem()
	w.once(fs)
	w.events.hidden[1] = true
	w.events.add(0, record("ann", 2, 30*time.Minute))
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	p.done = func(e *txstate.Entry) bool { return e != nil }
	if err := p.finish(); err != nil {
		t.Fatal(err)
	}
	o := w.outcomeOf(fs)
	last := o.entries[len(o.entries)-1]
	if want := clock0.Add(30*time.Minute - 5*time.Second).UnixNano(); len(last.Watermarks) != 1 || last.Watermarks[0].Time != want {
		t.Errorf("watermarks %+v, want %d", last.Watermarks, want)
	}
	if hidden := (batch.Partition{Source: "events", Topic: "events", Number: 1}); !slices.Contains(last.Idle, hidden) {
		t.Errorf("idle %v", last.Idle)
	}
}

// A source that is taken out for a while goes on from its watermark once it is back: what was late stays late.
func TestWatermarkOfASourceThatWasAway(t *testing.T) {
	w := newWorld(t)
	sources := []string{"a", "b"}
	w.build = func() *engine.Pipeline {
		p := engine.New("test", engine.WithBatching(w.batch))
		for _, id := range sources {
			topic := map[string]*topic{"a": w.events, "b": w.lines}[id]
			events := engine.From(p, id, topic, codec.JSON[event]()).EventTime(func(e event) time.Time { return e.At }, 0)
			g := engine.GroupByWindow(events, window.Tumbling(time.Minute), func(e event) string { return e.User }, "user")
			engine.Aggregate(g, "counts_"+id, agg.Count[event]("n"))
		}
		return p
	}
	fs, replayed := vfs.NewMem(), vfs.NewMem()
	done := 0
	// run runs a process and replays what it did.
	run := func(names ...string) []txstate.Entry {
		t.Helper()
		sources = names
		o := w.once(fs)
		added := o.entries[done:]
		if err := w.drive(replayed, added, 2, nil); err != nil {
			t.Fatal(err)
		}
		if err := o.diff(w.outcomeOf(replayed)); err != nil {
			t.Errorf("replayed: %v", err)
		}
		for i, e := range w.outcomeOf(replayed).entries[done:] {
			if !slices.Equal(e.Watermarks, added[i].Watermarks) {
				t.Errorf("txid %d left the watermarks %v, replayed %v", e.Txid, added[i].Watermarks, e.Watermarks)
			}
		}
		done = len(o.entries)
		return added
	}
	at := func(d time.Duration) int64 { return clock0.Add(d).UnixNano() }

	w.events.add(0, record("ann", 1, time.Minute))
	w.lines.add(0, record("ann", 1, 10*time.Minute))
	run("a", "b")
	w.events.add(0, record("ann", 2, 2*time.Minute))
	for _, e := range run("a") {
		want := []txstate.Watermark{{Source: "a", Time: at(2 * time.Minute)}, {Source: "b", Time: at(10 * time.Minute)}}
		if !slices.Equal(e.Watermarks, want) {
			t.Errorf("txid %d, without b, leaves %v, want %v", e.Txid, e.Watermarks, want)
		}
	}
	run("a") // a process that commits nothing
	w.lines.add(0, record("ann", 2, time.Minute))
	sources = []string{"a", "b"}
	w.accept(fs)
	w.accept(replayed)
	back := run("a", "b")
	if len(back) != 1 || back[0].Counts.Late != 1 {
		t.Errorf("a row from before the watermark that b had left: %+v", back)
	}
}

// Windows are dropped once their retention is over, and may be written to again, as a source that was added holds the
// watermark back.
func TestDroppedWindowIsWrittenAgain(t *testing.T) {
	// The first batch with the second source brings a row of it at the time bob.
	run := func(pending int, bob time.Duration) (*world, *outcome) {
		w := newWorld(t)
		both := false
		w.build = func() *engine.Pipeline {
			p := engine.New("test", engine.WithBatching(w.batch))
			at := func(e event) time.Time { return e.At }
			events := engine.From(p, "a", w.events, codec.JSON[event]()).EventTime(at, 0)
			if both {
				events = engine.Merge(events, engine.From(p, "b", w.lines, codec.JSON[event]()).EventTime(at, 0))
			}
			g := engine.GroupByWindow(events, window.Tumbling(time.Minute), func(e event) string { return e.User }, "user", engine.Retention(time.Minute))
			engine.Aggregate(g, "means", agg.MeanOf("mean", func(e event) float64 { return float64(e.N) }))
			return p
		}
		fs := vfs.NewMem()
		entry := func(txid batch.Txid, now time.Duration, ranges ...batch.Range) txstate.Entry {
			e := txstate.Entry{Txid: txid, Attempt: batch.Attempt{Epoch: 1, N: 1}, Time: clock0.Add(now), Seed: uint64(txid)}
			for _, r := range ranges {
				e.Ranges = append(e.Ranges, txstate.RangeEntry{Range: r})
				if r.Start == 0 {
					e.Joined = append(e.Joined, r.Position())
					e.Joined[len(e.Joined)-1].Next = 0
				}
			}
			return e
		}
		part := func(source, topic string, start, end int64) batch.Range {
			return batch.Range{Partition: batch.Partition{Source: source, Topic: topic}, Start: start, End: end, LeaderEpoch: batch.NoEpoch}
		}
		// The first window gets a row, is closed by the second batch, and noted as such by the third.
		w.events.add(0, record("ann", 1, 0), record("ann", 2, 2*time.Minute), record("ann", 3, 3*time.Minute))
		drive := func(entries ...txstate.Entry) {
			t.Helper()
			if err := w.drive(fs, entries, pending, nil); err != nil {
				t.Fatal(err)
			}
		}
		drive(entry(1, 0, part("a", "a", 0, 1)), entry(2, 0, part("a", "a", 1, 2)), entry(3, 0, part("a", "a", 2, 3)))
		// With b the fourth may drop it, and the fifth has a row for it.
		both = true
		w.accept(fs)
		w.lines.add(0, record("bob", 1, bob))
		w.events.add(0, record("ann", 7, 4*time.Minute), record("ann", 5, time.Second))
		drive(entry(4, 2*time.Minute, part("a", "a", 3, 4), part("b", "b", 0, 1)), entry(5, 2*time.Minute, part("a", "a", 4, 5)))
		return w, w.outcomeOf(fs)
	}
	// The batch behind the one that drops the window finds no row, whether that has committed by then or not.
	w, want := run(1, -time.Minute)
	if late := want.entries[4].Counts.Late; late != 0 {
		t.Fatalf("the row is late: %+v", want.entries[4])
	}
	if got := w.mean(want.fs, "ann"); got != 5 {
		t.Errorf("the mean of the window is %v, of its one row 5", got)
	}
	for range 10 {
		_, got := run(4, -time.Minute)
		if err := want.diff(got); err != nil {
			t.Fatalf("with several batches in flight: %v", err)
		}
	}
	// A batch doesn't drop what it writes to: the rows would be left behind without their window.
	w, o := run(1, 0)
	if got := w.mean(o.fs, "ann"); got != 3 {
		t.Errorf("the mean of the window is %v, of its rows 1 and 5 it is 3", got)
	}
}

// mean is a user's mean in the first window, by the state "means".
func (w *world) mean(fs vfs.FS, user string) float64 {
	w.t.Helper()
	db, err := w.open(fs)
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	reader, err := db.State("means")
	if err != nil {
		w.t.Fatal(err)
	}
	cells, ok, err := reader.Get(w.t.Context(), value.AppendKey(value.AppendKeyTime(nil, clock0.UnixNano()), value.StringOf(user)))
	if err != nil || !ok {
		w.t.Fatal(ok, err)
	}
	vs, err := agg.Results(nil, cells)
	if err != nil {
		w.t.Fatal(err)
	}
	return vs[0].Float()
}

// A static table that changes between two runs is a new version from the first batch of the second run on, in the ledger
// and in the store; a replay uses for each batch what it used.
func TestRule8StaticTableChanges(t *testing.T) {
	w := newWorld(t)
	w.fill(60)
	fs := vfs.NewMem()
	w.part(fs, 3)
	first := w.outcomeOf(fs)

	w.teams.add(0, "dan,green")
	w.teams.set(0, 0, "ann,blue")
	// The first batch of the new version is begun again and again, and so are those behind it.
	failures := 0
	w.hook = func(call string, b *batch.Batch, after bool) error {
		if b.Txid == first.snap.Txid+1 && (call == "process" || call == "commit") && failures < 4 {
			failures++
			return errAway
		}
		return nil
	}
	w.part(fs, first.snap.Txid+2)
	w.hook = nil
	o := w.once(fs) // unchanged: no third version
	if err := o.check(w); err != nil {
		t.Fatal(err)
	}
	var versions []txstate.StaticVersion
	for _, e := range o.entries {
		for _, v := range e.Statics {
			versions = append(versions, v)
			if e.Txid != 1 && e.Txid != first.snap.Txid+1 {
				t.Errorf("a new version at txid %d", e.Txid)
			}
		}
	}
	if len(versions) != 2 || versions[0].Rows != 3 || versions[1].Rows != 4 || versions[0].Digest == versions[1].Digest {
		t.Fatalf("versions %+v", versions)
	}

	// The table has changed once more by the time of the replay.
	w.teams.set(0, 1, "bob,white")
	find := w.tablesOf(t, o)
	replayed := vfs.NewMem()
	if err := w.drive(replayed, o.entries, 3, func(c *exec.Config) { c.Tables = find }); err != nil {
		t.Fatal(err)
	}
	w.same(o, w.outcomeOf(replayed), "replayed")

	// Without the store it can't be done, and that is said.
	err := w.drive(vfs.NewMem(), o.entries, 3, nil)
	if batch.CodeOf(err) != batch.CodeUnreplayable || !strings.Contains(err.Error(), "static table teams") {
		t.Errorf("error %v", err)
	}
}

// A recorded batch uses the static tables as they were when it was recorded.
func TestRule8RecordedBatchUsesItsTables(t *testing.T) {
	w := newWorld(t)
	w.fill(40)
	fs := vfs.NewMem()
	bs := w.record(fs, 2)
	was := w.snapshotRecorded(fs)

	w.teams.set(0, 0, "ann,blue")
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	err = p.finish()
	if batch.CodeOf(err) != batch.CodeUnreplayable || batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), "static table teams") {
		t.Fatalf("the content that was used isn't there any more; error %v", err)
	}
	w.teams.set(0, 0, "ann,red") // back as it was
	w.part(fs, bs[0].Txid)
	if got := w.outcomeOf(fs); got.snap.Txid < 1 || got.entries[0].Statics[0] != was[0].Statics[0] {
		t.Errorf("txid 1 has %+v, recorded was %+v", got.entries[0].Statics, was[0].Statics)
	}

	// From now on the content is in the store. One that is recorded goes on with it, the first one planned anew takes
	// the new one.
	at := w.outcomeOf(fs).snap.Txid
	w.record(fs, 1)
	w.teams.set(0, 0, "ann,blue")
	o := w.once(fs)
	for _, e := range o.entries[at:] {
		if want := e.Txid == at+2; want != (len(e.Statics) == 1) {
			t.Errorf("txid %d has the tables %+v; %d was recorded before the change", e.Txid, e.Statics, at+1)
		}
	}
	if err := o.check(w); err != nil {
		t.Error(err)
	}
}

// The place of a failure is told: pipeline, txid, partition, offset.
func TestFailuresAreLocated(t *testing.T) {
	w := newWorld(t)
	w.policy = 0
	w.batch.MaxRecords = 2
	for i := range 9 {
		w.events.add(4, record("ann", int64(i), 0))
	}
	w.events.add(4, "{")
	fs := vfs.NewMem()
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	err = p.finish()
	var e *batch.Error
	if !errors.As(err, &e) || e.Kind != batch.Permanent || e.Code != batch.CodeBadRecord || e.Pipeline != "test" || e.Txid != 5 ||
		e.Partition != (batch.Partition{Source: "events", Topic: "events", Number: 4}) || e.Offset != 9 || e.Remedy == "" {
		t.Errorf("error %+v", err)
	}
	if o := w.outcomeOf(fs); o.snap.Txid != 4 || o.entries[3].Ranges[0].End != 8 {
		t.Errorf("the batches before it have committed up to txid %d", o.snap.Txid)
	}
}
