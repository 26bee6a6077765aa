package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/replay"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/window"
)

const (
	lineCount   = 1000
	perBatch    = 64
	fileCount   = 3
	testTimeout = time.Minute
)

// world is a directory with input files and the data of a pipeline that has run over them.
type world struct {
	t    *testing.T
	dir  string
	bend func(word string) string // a step of the pipeline
	keep bool                     // the changes of each batch
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), bend: strings.ToLower}
	for f := range fileCount {
		var b strings.Builder
		for i := range lineCount {
			fmt.Fprintf(&b, "W%d W%d\n", (i*7+f)%50, i%11)
		}
		w.write(fmt.Sprintf("in-%d.txt", f), b.String())
	}
	return w
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pipeline() *engine.Pipeline {
	p := engine.New("words", engine.WithBatching(engine.Batching{MaxRecords: perBatch}), engine.WithLedger(engine.Ledger{KeepChanges: w.keep}))
	lines := engine.From(p, "lines", file.Paths(filepath.Join(w.dir, "in-*.txt")), codec.String())
	words := engine.FlatMap(lines, strings.Fields)
	bent := engine.Map(words, func(s string) string { return w.bend(s) })
	engine.Aggregate(engine.GroupBy(bent, func(s string) string { return s }, "word"), "counts", agg.Count[string]("n"))
	timed := lines.EventTime(func(s string) time.Time { return time.Unix(int64(len(s)), 0) }, time.Hour)
	daily := engine.GroupByWindow(timed, window.Tumbling(time.Second), func(s string) string { return s }, "line")
	engine.Aggregate(daily, "lines_by_length", agg.Count[string]("n"))
	return p
}

func (w *world) run(data string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testTimeout)
	defer cancel()
	if err := engine.Run(ctx, w.pipeline(), engine.Options{DataDir: filepath.Join(w.dir, data), UntilCaughtUp: true}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) open(data string, readOnly bool) *pebblestate.DB {
	w.t.Helper()
	db, err := pebblestate.Open(w.t.Context(), pebblestate.Options{Dir: filepath.Join(w.dir, data, "words"), Pipeline: "words", ReadOnly: readOnly})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { db.Close() }) //nolint:errcheck // closed by most tests before
	return db
}

func (w *world) verify(data string, o replay.Options) (replay.Report, error) {
	w.t.Helper()
	db := w.open(data, true)
	defer db.Close() //nolint:errcheck // nothing was written
	o.Store = db
	return replay.Verify(w.t.Context(), w.pipeline(), o)
}

func digestOf(t *testing.T, db *pebblestate.DB) uint64 {
	t.Helper()
	d, err := db.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestEqual(t *testing.T) {
	w := newWorld(t)
	w.run("data")
	for _, o := range []replay.Options{{}, {Procs: 1, Pending: 1}, {Procs: 2, Pending: 4}, {Procs: 16, Pending: 16}, {From: 5}, {From: 2, To: 4}} {
		var seen batch.Txid
		o.Committed = func(e *txstate.Entry) {
			if e.Txid != seen+1 {
				t.Errorf("txid %d was reported after %d", e.Txid, seen)
			}
			seen = e.Txid
		}
		rep, err := w.verify("data", o)
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		if rep.Batches != int64(rep.To-rep.From+1) || rep.From != max(o.From, 1) || rep.States != (o.To == 0) || seen != rep.To {
			t.Errorf("%+v: %+v, the last batch seen is %d", o, rep, seen)
		}
		if o.From == 0 && o.To == 0 && rep.Records != fileCount*lineCount {
			t.Errorf("%d records, want %d", rep.Records, fileCount*lineCount)
		}
	}
}

// TestInto builds a directory as of an older txid and runs on from there: the end is the same.
func TestInto(t *testing.T) {
	w := newWorld(t)
	w.run("data")
	const at = 3
	rep, err := w.verify("data", replay.Options{To: at, Dir: filepath.Join(w.dir, "other", "words")})
	if err != nil || rep.To != at || rep.States {
		t.Fatalf("%+v, %v", rep, err)
	}
	db := w.open("other", true)
	snap, err := db.Store().Load(t.Context())
	if err != nil || snap.Txid != at {
		t.Fatalf("the new store is at txid %d, %v", snap.Txid, err)
	}
	db.Close() //nolint:errcheck // nothing was written
	if _, err := w.verify("data", replay.Options{To: at, Dir: filepath.Join(w.dir, "other", "words")}); batch.CodeOf(err) != batch.CodeConfiguration {
		t.Errorf("into a store that is there already: %v", err)
	}
	w.run("other")
	if _, err := w.verify("other", replay.Options{}); err != nil {
		t.Error(err)
	}
	// Batch borders aren't the same, so what is kept by batch isn't compared.
	counts := func(data string) (all []pebblestate.StateDigest) {
		db := w.open(data, true)
		defer db.Close() //nolint:errcheck // nothing was written
		digests, err := db.StateDigests(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range digests {
			if d.State == "counts" || d.State == "lines_by_length" {
				all = append(all, d)
			}
		}
		return all
	}
	if was, is := counts("data"), counts("other"); len(was) != 2 || fmt.Sprint(was) != fmt.Sprint(is) {
		t.Errorf("states %v, want %v", is, was)
	}
}

func TestImpureStep(t *testing.T) {
	w := newWorld(t)
	var calls atomic.Int64
	w.bend = func(s string) string {
		if n := calls.Add(1); s == "Late" {
			return fmt.Sprintf("%s-%t", s, n <= 2*fileCount*lineCount)
		}
		return s
	}
	w.write("in-2.txt", strings.Repeat("a b\n", lineCount-1)+"a Late\n")
	w.run("data")
	rep, err := w.verify("data", replay.Options{})
	var d *replay.Different
	if !errors.As(err, &d) {
		t.Fatalf("%v, want a difference", err)
	}
	if d.Txid < 2 || d.Txid > rep.To || d.What != "state counts" || len(d.Keys) == 0 || d.Keys[0].State != "counts" || d.Keys[0].Key != "word=Late-false" || d.Keys[0].Want != "" || d.Keys[0].Got == "" {
		t.Errorf("%+v", d)
	}
	if len(d.Causes) != 1 || !strings.Contains(d.Causes[0], "pure") {
		t.Errorf("causes %q", d.Causes)
	}
}

func TestChangedDefinition(t *testing.T) {
	w := newWorld(t)
	w.run("data")
	db := w.open("data", true)
	p := engine.New("words")
	lines := engine.From(p, "lines", file.Paths(filepath.Join(w.dir, "in-*.txt")), codec.String())
	engine.Aggregate(engine.GroupBy(lines, func(s string) string { return s }, "line"), "other", agg.Count[string]("n"))
	_, err := replay.Verify(t.Context(), p, replay.Options{Store: db})
	if batch.CodeOf(err) != batch.CodePlanChanged || !strings.Contains(err.Error(), "state counts: removed") {
		t.Errorf("%v", err)
	}
}

// TestChangedByHand writes a batch that no input made.
func TestChangedByHand(t *testing.T) {
	w := newWorld(t)
	w.run("data")
	db := w.open("data", false)
	snap, err := db.Store().Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set := &state.WriteSet{State: "counts", Shards: make([][]state.Write, db.Shards()), Writes: 1, Digest: 1}
	was, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for row, err := range was.Scan(t.Context(), "counts", nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		i := state.ShardOf(row.Key, db.Shards())
		set.Shards[i] = []state.Write{{Key: row.Key, Op: state.Delete}}
		break
	}
	was.Close() //nolint:errcheck // nothing was written
	e := txstate.Entry{
		Txid: snap.Txid + 1, Attempt: batch.Attempt{Epoch: snap.Epoch, N: 1}, Attempts: 1, Time: snap.Time, Chain: 1,
		States: []txstate.StateDigest{{State: "counts", Writes: 1, Digest: 1}},
	}
	if err := db.Commit(t.Context(), []pebblestate.Commit{{Entry: e, Sets: []*state.WriteSet{set}}}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = w.verify("data", replay.Options{})
	var d *replay.Different
	if !errors.As(err, &d) || d.Txid != e.Txid || d.What != "state counts" || len(d.Keys) != 1 || d.Keys[0].Want != "" || d.Keys[0].Got == "" {
		t.Errorf("%v", err)
	}
}

func TestInputIsNotWhatItWas(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world)
		code   batch.Code
	}{
		"changed": {func(w *world) { w.write("in-1.txt", strings.Repeat("W1 W2\n", lineCount)) }, batch.CodeUnreplayable},
		"gone":    {func(w *world) { os.Remove(filepath.Join(w.dir, "in-1.txt")) }, batch.CodeUnreplayable}, //nolint:errcheck // the verification would tell
		"trimmed": {func(w *world) {
			db := w.open("data", false)
			if err := errors.Join(db.TrimLedger(w.t.Context(), 2), db.Close()); err != nil {
				w.t.Fatal(err)
			}
		}, batch.CodeUnreplayable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.run("data")
			db := w.open("data", true)
			before := digestOf(t, db)
			db.Close() //nolint:errcheck // nothing was written
			tc.change(w)
			_, err := w.verify("data", replay.Options{})
			if batch.CodeOf(err) != tc.code || batch.KindOf(err) != batch.Permanent {
				t.Errorf("%v, want code %s", err, tc.code)
			}
			if e, ok := errors.AsType[*batch.Error](err); ok && name != "trimmed" && !strings.HasSuffix(e.Partition.Topic, "in-1.txt") {
				t.Errorf("%v names partition %s", err, e.Partition)
			}
			if after := digestOf(t, w.open("data", true)); after != before {
				t.Errorf("the store has changed: digest %016x, was %016x", after, before)
			}
		})
	}
}

// TestInputHasChangedLaterOn: batches whose input is as it was can be replayed, and the first of the others is named with its range.
func TestInputHasChangedLaterOn(t *testing.T) {
	w := newWorld(t)
	w.run("data")
	file := filepath.Join(w.dir, "in-1.txt")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndexByte(b[:len(b)-1], '\n') + 1 // the last line
	b[at] = 'X'
	w.write("in-1.txt", string(b))
	_, err = w.verify("data", replay.Options{})
	e, ok := errors.AsType[*batch.Error](err)
	if !ok || e.Code != batch.CodeUnreplayable || e.Partition.Topic != file || e.Txid < 3 || !strings.Contains(err.Error(), fmt.Sprintf(",%d) cannot be read again", lineCount)) {
		t.Fatalf("%v", err)
	}
	if rep, err := w.verify("data", replay.Options{To: e.Txid - 1}); err != nil || rep.To != e.Txid-1 {
		t.Errorf("up to the batch before it: %+v, %v", rep, err)
	}
}

func TestNothingToRun(t *testing.T) {
	w := newWorld(t)
	w.run("data")
	for _, o := range []replay.Options{{To: 10_000}, {From: 10_000}, {From: 5, To: 4}} {
		if _, err := w.verify("data", o); batch.CodeOf(err) != batch.CodeConfiguration {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
