package replay_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/replay"
)

// trimmed runs over some input, makes a base, runs over more, and trims the ledger up to the base.
func (w *world) trimmed(data string) (base, last batch.Txid) {
	w.t.Helper()
	w.run(data)
	db := w.open(data, false)
	b, err := db.MakeBase(w.t.Context(), time.Now())
	if err := errors.Join(err, db.Close()); err != nil {
		w.t.Fatal(err)
	}
	w.write("in-7.txt", strings.Repeat("W1 later\n", lineCount))
	w.run(data)
	db = w.open(data, false)
	_, last = db.Ledger()
	if err := errors.Join(db.TrimLedger(w.t.Context(), b.Txid), db.CompactLedger(w.t.Context()), db.Close()); err != nil {
		w.t.Fatal(err)
	}
	if last < b.Txid+5 {
		w.t.Fatalf("a base of txid %d, the last is %d", b.Txid, last)
	}
	return b.Txid, last
}

// TestBeginsAtBase: once the ledger has been trimmed, everything that would begin at the first batch begins at the base.
func TestBeginsAtBase(t *testing.T) {
	w := newWorld(t)
	base, last := w.trimmed("data")
	for _, o := range []replay.Options{{}, {Procs: 1, Pending: 1}, {Procs: 16, Pending: 16}, {From: base + 3}} {
		rep, err := w.verify("data", o)
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		if from := max(o.From, base+1); rep.From != from || rep.To != last || rep.Batches != int64(last-from+1) || !rep.States {
			t.Errorf("%+v: %+v", o, rep)
		}
	}
	dir := filepath.Join(w.dir, "into", "words")
	if _, err := w.verify("data", replay.Options{Dir: dir, To: base + 2}); err != nil {
		t.Fatal(err)
	}
	into := w.open("into", true)
	if snap, err := into.Store().Load(t.Context()); err != nil || snap.Txid != base+2 {
		t.Errorf("built at txid %d, %v", snap.Txid, err)
	}
	into.Close() //nolint:errcheck // nothing was written

	for _, o := range []replay.Options{{From: 2}, {From: base}, {To: base - 1}, {To: 1}} {
		_, err := w.verify("data", o)
		if batch.CodeOf(err) != batch.CodeUnreplayable || !strings.Contains(err.Error(), "trimmed") || !strings.Contains(err.Error(), "base to begin at is of txid "+base.String()) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	// The difference is named although the batches before aren't run.
	w.bend = func(s string) string { return strings.TrimSuffix(strings.ToLower(s), "r") }
	_, err := w.verify("data", replay.Options{})
	if d, ok := errors.AsType[*replay.Different](err); !ok || d.Txid <= base || d.What != "state counts" {
		t.Errorf("%v", err)
	}
}

// TestWritesFromBase: of a batch whose predecessors have been trimmed, old and new values are told.
func TestWritesFromBase(t *testing.T) {
	w := newWorld(t)
	base, _ := w.trimmed("data")
	writes := func(txid batch.Txid) (all []replay.Write, err error) {
		db := w.open("data", true)
		defer db.Close() //nolint:errcheck // nothing was written
		_, err = replay.Writes(t.Context(), w.pipeline(), replay.Options{Store: db, To: txid}, func(wr replay.Write) error {
			all = append(all, wr)
			return nil
		})
		return all, err
	}
	for _, txid := range []batch.Txid{base + 1, base + 2} {
		all, err := writes(txid)
		if err != nil || len(all) == 0 {
			t.Errorf("txid %d: %d writes, %v", txid, len(all), err)
		}
		if !slices.ContainsFunc(all, func(w replay.Write) bool {
			return w.Schema.Name == "counts" && w.KnownOld && w.Old != nil && w.KnownNew
		}) {
			t.Errorf("txid %d: no value before it is told: %+v", txid, all)
		}
	}
	if _, err := writes(base); batch.CodeOf(err) != batch.CodeUnreplayable {
		t.Errorf("the base's own batch: %v", err)
	}
}

// TestCopyWithBases: a checkpoint takes the bases along by links, and replays begin at them.
func TestCopyWithBases(t *testing.T) {
	w := newWorld(t)
	base, last := w.trimmed("data")
	db := w.open("data", false)
	dir := filepath.Join(w.dir, "copy", "words")
	if _, err := db.Checkpoint(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if err := pebblestate.LinkBases(t.Context(), filepath.Join(w.dir, "data", "words"), dir); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.RemoveBases(base+1), db.Close()); err != nil {
		t.Fatal(err)
	}
	if rep, err := w.verify("copy", replay.Options{}); err != nil || rep.From != base+1 || rep.To != last {
		t.Errorf("%+v, %v", rep, err)
	}
	if _, err := w.verify("data", replay.Options{}); batch.CodeOf(err) != batch.CodeUnreplayable || !strings.Contains(err.Error(), "there is no base") {
		t.Errorf("without one: %v", err)
	}
}

// TestDamagedBase: a base that isn't as it was made isn't begun at, whatever else will do is, and nobody is told that the store is
// damaged.
func TestDamagedBase(t *testing.T) {
	w := newWorld(t)
	first, last := w.trimmed("data")
	w.write("in-8.txt", strings.Repeat("W1 W2\n", 3*perBatch))
	w.run("data")
	db := w.open("data", false)
	second, err := db.MakeBase(t.Context(), time.Now())
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	w.write("in-9.txt", strings.Repeat("W1 W2\n", 3*perBatch))
	w.run("data")
	spoil := func(base batch.Txid, pattern string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(w.dir, "data", "words", pebblestate.BasePath(base), "db", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%v, %v", files, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(b)-64; i += 100 {
				b[i] ^= 0x10
			}
			if err := errors.Join(os.Remove(f), os.WriteFile(f, b, 0o600)); err != nil { // the store keeps its link
				t.Fatal(err)
			}
		}
	}
	spoil(first, "MANIFEST-*")
	if rep, err := w.verify("data", replay.Options{}); err != nil || rep.From != second.Txid+1 || second.Txid <= last {
		t.Errorf("it begins at txid %d, %v; the second base is of %d", rep.From, err, second.Txid)
	}
	whole := func(err error, says string) {
		t.Helper()
		e, ok := errors.AsType[*batch.Error](err)
		if !ok || e.Code != batch.CodeStoreDamaged || !strings.Contains(err.Error(), says) || !strings.Contains(e.Remedy, "the store itself is whole") || strings.Contains(err.Error(), "restore a savepoint") {
			t.Errorf("%v", err)
		}
	}
	spoil(second.Txid, "*.sst")
	_, err = w.verify("data", replay.Options{})
	whole(err, "the base of txid "+second.Txid.String())
	spoil(second.Txid, "MANIFEST-*")
	_, err = w.verify("data", replay.Options{})
	whole(err, pebblestate.BasePath(first))
	if db := w.open("data", true); db.Close() != nil {
		t.Error("the store doesn't open")
	}
}
