package replay_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/replay"
	"github.com/tridentd/tridentd/txstate"
)

// reset sets positions of the store at rest.
func (w *world) reset(data string, moves ...engine.Move) txstate.Entry {
	w.t.Helper()
	db := w.open(data, false)
	e, err := engine.Reset(w.t.Context(), w.pipeline(), db, moves)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		w.t.Fatal(err)
	}
	return e
}

func (w *world) load(data string) (snap txstate.Snapshot, entries []txstate.Entry) {
	w.t.Helper()
	db := w.open(data, true)
	defer db.Close() //nolint:errcheck // nothing was written
	snap, err := db.Store().Load(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for e, err := range db.Store().Entries(w.t.Context(), 1, 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return snap, entries
}

// TestReset sets one file back and one ahead, and adds one that the store doesn't know. What was set is an entry of its own,
// the next run goes on from there, and a replay of all of it comes out equal.
func TestReset(t *testing.T) {
	w := newWorld(t)
	w.run("data")
	before, ledger := w.load("data")
	last := ledger[len(ledger)-1]
	part := func(i int) batch.Partition { return before.Positions[i+1].Partition } // the first only says that the source has been opened
	w.write("in-0.txt", strings.Repeat("W1 W2\n", lineCount+10))
	w.write("in-1.txt", strings.Repeat("W1 W2\n", lineCount+10))
	w.write("in-9.txt", strings.Repeat("W9\n", 20))
	fresh := batch.Partition{Source: "lines", Topic: strings.Replace(part(0).Topic, "in-0", "in-9", 1)}
	at := func(p batch.Partition, next int64) engine.Move {
		return engine.Move{Position: batch.Position{Partition: p, Next: next, LeaderEpoch: batch.NoEpoch}}
	}
	e := w.reset("data", at(fresh, 15), at(part(0), 0), at(part(1), lineCount+5))

	snap, entries := w.load("data")
	if len(entries) != len(ledger)+1 || !entries[len(ledger)].Reset || entries[len(ledger)].Chain != e.Chain {
		t.Fatalf("the ledger's last entry is %+v, want %+v", entries[len(entries)-1], e)
	}
	if snap.Txid != before.Txid+1 || snap.Epoch != before.Epoch+1 || snap.Chain != e.Chain || e.Chain == before.Chain || e.Time.Before(before.Time) {
		t.Errorf("the store is at %+v, was at %+v", snap, before)
	}
	if len(last.Watermarks) != 1 || !slices.Equal(e.Watermarks, last.Watermarks) {
		t.Errorf("watermarks %v, were %v", e.Watermarks, last.Watermarks)
	}
	var got []string
	for _, r := range e.Ranges {
		got = append(got, r.Range.String())
	}
	if want := []string{
		batch.Range{Partition: part(0), Start: lineCount}.String(), batch.Range{Partition: part(1), Start: lineCount, End: lineCount + 5}.String(),
		batch.Range{Partition: fresh, End: 15}.String(),
	}; !slices.Equal(got, want) {
		t.Errorf("ranges %q, want %q", got, want)
	}
	for _, p := range snap.Positions {
		want := map[batch.Partition]int64{part(0): 0, part(1): lineCount + 5, part(2): lineCount, fresh: 15}[p.Partition]
		if p.Topic != "" && p.Next != want {
			t.Errorf("%s is at %d, want %d", p.Partition, p.Next, want)
		}
		if moved := p.Topic != "" && p.Partition != part(2); moved != (p.Txid == e.Txid) {
			t.Errorf("%s was moved last by txid %d", p.Partition, p.Txid)
		}
	}

	w.run("data")
	snap, entries = w.load("data")
	var read int64
	for _, e := range entries {
		read += e.Counts.Read
	}
	if want := int64(fileCount*lineCount + lineCount + 10 + 5 + 5); read != want {
		t.Errorf("%d records were read, want %d", read, want)
	}
	if snap.Epoch != before.Epoch+2 {
		t.Errorf("epoch %d, want %d", snap.Epoch, before.Epoch+2)
	}
	// What was read first is no more: only the part behind the reset can be compared. A world that is never changed tells of the whole.
	if _, err := w.verify("data", replay.Options{}); batch.CodeOf(err) != batch.CodeUnreplayable && batch.CodeOf(err) != batch.CodeFileChanged {
		t.Errorf("a replay of files that were changed: %v", err)
	}
}

// TestResetReplayed: resets between batches replay to the same bytes, whatever runs at once.
func TestResetReplayed(t *testing.T) {
	w := newWorld(t)
	w.run("data")
	before, _ := w.load("data")
	for i, next := range []int64{10, lineCount, 500} {
		p := before.Positions[i+1].Partition
		w.reset("data", engine.Move{Position: batch.Position{Partition: p, Next: next, LeaderEpoch: batch.NoEpoch}})
		if i == 1 {
			w.run("data")
		}
	}
	for _, o := range []replay.Options{{}, {Procs: 1, Pending: 1}, {Procs: 16, Pending: 16}, {From: before.Txid + 1}} {
		rep, err := w.verify("data", o)
		if err != nil || !rep.States {
			t.Errorf("%+v: %+v, %v", o, rep, err)
		}
	}
	w.run("data")
	if _, err := w.verify("data", replay.Options{}); err != nil {
		t.Error(err)
	}
	snap, entries := w.load("data")
	var read int64
	for _, e := range entries {
		read += e.Counts.Read
	}
	if want := int64(fileCount*lineCount + lineCount - 10 + lineCount - 500); read != want || snap.Txid != batch.Txid(len(entries)) {
		t.Errorf("%d records in %d entries up to txid %d, want %d", read, len(entries), snap.Txid, want)
	}
}
