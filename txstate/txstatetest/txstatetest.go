// Package txstatetest is the conformance suite of txstate.Store: a store that passes keeps the promises that the
// coordinator and the executor rely on.
package txstatetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// Store is a store under test. Committing isn't part of txstate.Store, as states are committed with it.
type Store interface {
	txstate.Store
	// Commit commits e, the next in txid order, and its positions in one atomic write.
	Commit(ctx context.Context, e txstate.Entry, positions []txstate.SavedPosition) error
	// Reopen returns the store as a new process would find it; the receiver isn't used any more.
	Reopen(t *testing.T) Store
}

// Run runs the suite. open returns a new, empty store.
func Run(t *testing.T, open func(t *testing.T) Store) {
	t.Run("empty", func(t *testing.T) { testEmpty(t, open(t)) })
	t.Run("claim", func(t *testing.T) { testClaim(t, open(t)) })
	t.Run("admit", func(t *testing.T) { testAdmit(t, open(t)) })
	t.Run("commit", func(t *testing.T) { testCommit(t, open(t)) })
	t.Run("commit out of order", func(t *testing.T) { testOutOfOrder(t, open(t)) })
	t.Run("record", func(t *testing.T) { testRecord(t, open(t)) })
	t.Run("record refused", func(t *testing.T) { testRecordRefused(t, open(t)) })
	t.Run("entries", func(t *testing.T) { testEntries(t, open(t)) })
	t.Run("every field", func(t *testing.T) { testEveryField(t, open(t)) })
	t.Run("no shared memory", func(t *testing.T) { testAliasing(t, open(t)) })
}

// Part returns a partition for tests.
func Part(n int32) batch.Partition {
	return batch.Partition{Source: "orders", Topic: "orders-v1", Number: n}
}

// Simple returns the entry of a batch that moved partition 0 by ten offsets, and the position after it.
func Simple(txid batch.Txid, epoch batch.Epoch) (txstate.Entry, []txstate.SavedPosition) {
	end := int64(txid) * 10
	r := batch.Range{Partition: Part(0), Start: end - 10, End: end, LeaderEpoch: batch.NoEpoch}
	at := time.UnixMilli(1_700_000_000_000 + int64(txid)).UTC()
	e := txstate.Entry{
		Txid: txid, Attempt: batch.Attempt{Epoch: epoch, N: 1}, Attempts: 1, Time: at, Seed: uint64(txid) * 7,
		Ranges: []txstate.RangeEntry{{Range: r, Input: batch.Input{Records: 10, Bytes: 100, Digest: uint64(txid)}, EventTime: txstate.NoTime}},
		Chain:  uint64(txid) * 13, Committed: at.Add(time.Second),
	}
	return e, []txstate.SavedPosition{{Position: r.Position(), EventTime: txstate.NoTime, MovedAt: at, Txid: txid, Joined: 1}}
}

// EntryGen draws entries with every field in use.
func EntryGen(txid batch.Txid, epoch batch.Epoch) *rapid.Generator[txstate.Entry] {
	return rapid.Custom(func(t *rapid.T) txstate.Entry {
		e := txstate.Entry{
			Txid:       txid,
			Attempt:    batch.Attempt{Epoch: epoch, N: rapid.Uint32().Draw(t, "n")},
			Attempts:   rapid.Uint32().Draw(t, "attempts"),
			Time:       timeGen().Draw(t, "time"),
			Seed:       rapid.Uint64().Draw(t, "seed"),
			Ranges:     rapid.SliceOfN(rapid.Custom(drawRange), 1, 4).Draw(t, "ranges"),
			Idle:       rapid.SliceOfN(rapid.Custom(drawPartition), 1, 3).Draw(t, "idle"),
			Joined:     rapid.SliceOfN(rapid.Custom(drawPosition), 1, 3).Draw(t, "joined"),
			Watermarks: rapid.SliceOfN(rapid.Custom(drawWatermark), 1, 3).Draw(t, "watermarks"),
			Reset:      rapid.Bool().Draw(t, "reset"),
			Imported:   rapid.SampledFrom([]string{"", "file positions.json"}).Draw(t, "imported"),
			Counts: txstate.Counts{
				Read: rapid.Int64().Draw(t, "read"), Filtered: rapid.Int64Min(txstate.Uncounted).Draw(t, "filtered"), Rejected: rapid.Int64().Draw(t, "rejected"),
				Late: rapid.Int64().Draw(t, "late"), Future: rapid.Int64().Draw(t, "future"),
			},
			States:    rapid.SliceOfN(rapid.Custom(drawStateDigest), 1, 3).Draw(t, "states"),
			Statics:   rapid.SliceOfN(rapid.Custom(drawStatic), 1, 3).Draw(t, "statics"),
			Sinks:     rapid.SliceOfN(rapid.Custom(drawSink), 1, 3).Draw(t, "sinks"),
			Chain:     rapid.Uint64().Draw(t, "chain"),
			Build:     rapid.String().Draw(t, "build"),
			Plan:      rapid.Uint64().Draw(t, "plan"),
			Committed: timeGen().Draw(t, "committed"),
			Took: txstate.Durations{
				Plan: durationGen().Draw(t, "plan took"), Read: durationGen().Draw(t, "read took"),
				Process: durationGen().Draw(t, "process took"), Commit: durationGen().Draw(t, "commit took"),
			},
		}
		if e.Imported == "" {
			e.Migrated = rapid.SampledFrom([][]string{nil, {"accept"}, {"rename a=b", "drop c"}}).Draw(t, "migrated")
		}
		return e
	})
}

// PositionGen draws saved positions with every field in use.
func PositionGen() *rapid.Generator[txstate.SavedPosition] {
	return rapid.Custom(func(t *rapid.T) txstate.SavedPosition {
		return txstate.SavedPosition{
			Position:  drawPosition(t),
			EventTime: rapid.Int64().Draw(t, "event time"),
			MovedAt:   timeGen().Draw(t, "moved at"),
			Txid:      batch.Txid(rapid.Uint64().Draw(t, "txid")),
			Joined:    batch.Txid(rapid.Uint64().Draw(t, "joined")),
		}
	})
}

func timeGen() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return time.UnixMilli(rapid.Int64Range(-1<<42, 1<<42).Draw(t, "ms")).UTC()
	})
}

func durationGen() *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) })
}

func drawPartition(t *rapid.T) batch.Partition {
	return batch.Partition{Source: rapid.String().Draw(t, "source"), Topic: rapid.String().Draw(t, "topic"), Number: rapid.Int32().Draw(t, "number")}
}

func drawPosition(t *rapid.T) batch.Position {
	return batch.Position{
		Partition: drawPartition(t), Next: rapid.Int64().Draw(t, "next"),
		Identity: rapid.String().Draw(t, "identity"), LeaderEpoch: rapid.Int32().Draw(t, "leader epoch"),
	}
}

func drawRange(t *rapid.T) txstate.RangeEntry {
	return txstate.RangeEntry{
		Range: batch.Range{
			Partition: drawPartition(t), Start: rapid.Int64().Draw(t, "start"), End: rapid.Int64().Draw(t, "end"),
			Identity: rapid.String().Draw(t, "identity"), LeaderEpoch: rapid.Int32().Draw(t, "leader epoch"),
		},
		Input:     batch.Input{Records: rapid.Int64().Draw(t, "records"), Bytes: rapid.Int64().Draw(t, "bytes"), Digest: rapid.Uint64().Draw(t, "digest")},
		EventTime: rapid.Int64().Draw(t, "event time"),
	}
}

func drawWatermark(t *rapid.T) txstate.Watermark {
	return txstate.Watermark{Source: rapid.String().Draw(t, "source"), Time: rapid.Int64().Draw(t, "time")}
}

func drawStateDigest(t *rapid.T) txstate.StateDigest {
	return txstate.StateDigest{State: rapid.String().Draw(t, "state"), Writes: rapid.Int64().Draw(t, "writes"), Digest: rapid.Uint64().Draw(t, "digest")}
}

func drawStatic(t *rapid.T) txstate.StaticVersion {
	return txstate.StaticVersion{Name: rapid.String().Draw(t, "name"), Rows: rapid.Int64().Draw(t, "rows"), Digest: rapid.Uint64().Draw(t, "digest")}
}

func drawSink(t *rapid.T) txstate.SinkDigest {
	return txstate.SinkDigest{Sink: rapid.String().Draw(t, "sink"), Records: rapid.Int64().Draw(t, "records"), Chain: rapid.Uint64().Draw(t, "given")}
}

func load(t *testing.T, s Store) txstate.Snapshot {
	t.Helper()
	snap, err := s.Load(t.Context())
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return snap
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error, code batch.Code, what string) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: no error", what)
	}
	if batch.KindOf(err) != batch.Permanent || batch.CodeOf(err) != code {
		t.Fatalf("%s: got %s %s (%v), want permanent %s", what, batch.KindOf(err), batch.CodeOf(err), err, code)
	}
}

func commit(t *testing.T, s Store, from, to batch.Txid, epoch batch.Epoch) {
	t.Helper()
	for txid := from; txid <= to; txid++ {
		e, pos := Simple(txid, epoch)
		if err := s.Commit(t.Context(), e, pos); err != nil {
			t.Fatalf("Commit of txid %d: %v", txid, err)
		}
	}
}

func entries(t *testing.T, s Store, from, to batch.Txid) []txstate.Entry {
	t.Helper()
	var es []txstate.Entry
	for e, err := range s.Entries(t.Context(), from, to) {
		if err != nil {
			t.Fatalf("Entries(%d, %d): %v", from, to, err)
		}
		es = append(es, e)
	}
	return es
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// twice runs check on the store as it is and as a new process finds it, and returns the latter.
func twice(t *testing.T, s Store, check func(s Store)) Store {
	t.Helper()
	check(s)
	s = s.Reopen(t)
	check(s)
	return s
}

func testEmpty(t *testing.T, s Store) {
	twice(t, s, func(s Store) {
		snap := load(t, s)
		if snap.Txid != 0 || snap.Epoch != 0 || snap.Chain != 0 || !snap.Time.IsZero() || len(snap.Positions)+len(snap.Recorded) != 0 {
			t.Fatalf("an empty store loads as %+v", snap)
		}
		if es := entries(t, s, 0, 0); len(es) != 0 {
			t.Fatalf("an empty store has entries %+v", es)
		}
	})
}

func testClaim(t *testing.T, s Store) {
	ctx := t.Context()
	must(t, s.Claim(ctx, 3))
	s = twice(t, s, func(s Store) {
		equal(t, "epoch", load(t, s).Epoch, batch.Epoch(3))
		refused(t, s.Claim(ctx, 3), batch.CodeStoreInUse, "claim of the held epoch")
		refused(t, s.Claim(ctx, 2), batch.CodeStoreInUse, "claim of a lower epoch")
		equal(t, "epoch after refusals", load(t, s).Epoch, batch.Epoch(3))
	})
	must(t, s.Claim(ctx, 9))
	equal(t, "epoch", load(t, s).Epoch, batch.Epoch(9))
	commit(t, s, 1, 1, 9)
	equal(t, "epoch after a commit", load(t, s).Epoch, batch.Epoch(9))
}

func testAdmit(t *testing.T, s Store) {
	ctx := t.Context()
	at := func(n int32, next int64) batch.Position {
		return batch.Position{Partition: Part(n), Next: next, Identity: "t1", LeaderEpoch: 4}
	}
	must(t, s.Admit(ctx, []batch.Position{at(2, 20), at(-1, 5)}))
	must(t, s.Admit(ctx, []batch.Position{at(1, 10), at(10, 100)}))
	want := []txstate.SavedPosition{
		txstate.AdmittedAt(at(-1, 5)), txstate.AdmittedAt(at(1, 10)), txstate.AdmittedAt(at(2, 20)), txstate.AdmittedAt(at(10, 100)),
	}
	s = twice(t, s, func(s Store) {
		snap := load(t, s)
		equal(t, "positions, in partition order", snap.Positions, want)
		equal(t, "txid: admitting spends none", snap.Txid, batch.Txid(0))
	})
	refused(t, s.Admit(ctx, []batch.Position{at(3, 0), at(2, 7)}), batch.CodeInternal, "admitting a partition twice")
	equal(t, "positions after a refusal", load(t, s).Positions, want)
	must(t, s.Admit(ctx, nil))
}

func testCommit(t *testing.T, s Store) {
	must(t, s.Claim(t.Context(), 1))
	must(t, s.Admit(t.Context(), []batch.Position{{Partition: Part(0), LeaderEpoch: batch.NoEpoch}, {Partition: Part(1), Next: 77, LeaderEpoch: batch.NoEpoch}}))
	commit(t, s, 1, 3, 1)
	e, pos := Simple(3, 1)
	s = twice(t, s, func(s Store) {
		snap := load(t, s)
		equal(t, "txid", snap.Txid, batch.Txid(3))
		equal(t, "chain", snap.Chain, e.Chain)
		equal(t, "time", snap.Time, e.Time)
		equal(t, "positions", snap.Positions, []txstate.SavedPosition{
			pos[0], txstate.AdmittedAt(batch.Position{Partition: Part(1), Next: 77, LeaderEpoch: batch.NoEpoch}),
		})
	})
	commit(t, s, 4, 4, 1)
	equal(t, "txid after the reopened store went on", load(t, s).Txid, batch.Txid(4))
}

func testOutOfOrder(t *testing.T, s Store) {
	commit(t, s, 1, 2, 1)
	for _, txid := range []batch.Txid{1, 2, 4} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("commit of txid %d after 2 did not panic", txid)
				}
			}()
			e, pos := Simple(txid, 1)
			_ = s.Commit(t.Context(), e, pos)
		}()
	}
	commit(t, s, 3, 3, 1)
	equal(t, "txid", load(t, s).Txid, batch.Txid(3))
}

func testRecord(t *testing.T, s Store) {
	ctx := t.Context()
	must(t, s.Claim(ctx, 2))
	commit(t, s, 1, 1, 2)
	e2, pos2 := Simple(2, 2)
	e3, _ := Simple(3, 2)
	must(t, s.Record(ctx, e2))
	must(t, s.Record(ctx, e3))
	s = twice(t, s, func(s Store) {
		snap := load(t, s)
		equal(t, "recorded", snap.Recorded, []txstate.Entry{e2, e3})
		equal(t, "txid: a recorded batch isn't committed", snap.Txid, batch.Txid(1))
		equal(t, "entries: a recorded batch isn't committed", len(entries(t, s, 0, 0)), 1)
	})
	e2.Attempt.N = 2
	must(t, s.Record(ctx, e2))
	equal(t, "recorded, with a later attempt of txid 2", load(t, s).Recorded, []txstate.Entry{e2, e3})
	must(t, s.Commit(ctx, e2, pos2))
	s = twice(t, s, func(s Store) {
		snap := load(t, s)
		equal(t, "recorded after txid 2 has committed", snap.Recorded, []txstate.Entry{e3})
		equal(t, "txid", snap.Txid, batch.Txid(2))
		equal(t, "entry", entries(t, s, 2, 0), []txstate.Entry{e2})
	})
	commit(t, s, 3, 4, 2) // 4 was never recorded: every participant was local
	equal(t, "recorded after all have committed", len(load(t, s).Recorded), 0)
}

func testRecordRefused(t *testing.T, s Store) {
	ctx := t.Context()
	must(t, s.Claim(ctx, 5))
	commit(t, s, 1, 2, 5)
	rec := func(txid batch.Txid, epoch batch.Epoch, n uint32) error {
		e, _ := Simple(txid, epoch)
		e.Attempt.N = n
		return s.Record(ctx, e)
	}
	refused(t, rec(2, 5, 1), batch.CodeInternal, "a committed txid")
	refused(t, rec(4, 5, 1), batch.CodeInternal, "a gap")
	refused(t, rec(3, 4, 9), batch.CodeStoreInUse, "a deposed master")
	must(t, rec(3, 5, 4))
	refused(t, rec(3, 5, 3), batch.CodeInternal, "an older attempt")
	equal(t, "recorded", load(t, s).Recorded[0].Attempt, batch.Attempt{Epoch: 5, N: 4})
	must(t, rec(3, 5, 4))
	must(t, s.Claim(ctx, 6))
	refused(t, rec(3, 5, 5), batch.CodeStoreInUse, "a master deposed meanwhile")
	must(t, rec(3, 6, 1))
}

func testEntries(t *testing.T, s Store) {
	commit(t, s, 1, 300, 1)
	s = twice(t, s, func(s Store) {
		for _, c := range []struct{ from, to, first, last batch.Txid }{
			{0, 0, 1, 300}, {1, 0, 1, 300}, {5, 9, 5, 9}, {255, 257, 255, 257}, {300, 0, 300, 300}, {300, 999, 300, 300}, {301, 0, 1, 0}, {9, 5, 1, 0},
		} {
			es := entries(t, s, c.from, c.to)
			if want := int(c.last) - int(c.first) + 1; len(es) != want {
				t.Fatalf("Entries(%d, %d): %d entries, want %d", c.from, c.to, len(es), want)
			}
			for i := range es {
				want, _ := Simple(c.first+batch.Txid(i), 1)
				equal(t, fmt.Sprintf("Entries(%d, %d)[%d]", c.from, c.to, i), es[i], want)
			}
		}
		n := 0
		for _, err := range s.Entries(t.Context(), 1, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 3 {
				break
			}
		}
		equal(t, "entries up to a break", n, 3)
	})
	ctx, cancel := context.WithCancel(t.Context())
	var got error
	for e, err := range s.Entries(ctx, 1, 0) {
		if got = err; e.Txid == 2 {
			cancel()
		}
	}
	cancel()
	if !errors.Is(got, context.Canceled) {
		t.Fatalf("Entries of a cancelled context: %v", got)
	}
}

func testEveryField(t *testing.T, s Store) {
	var want []txstate.Entry
	rapid.Check(t, func(rt *rapid.T) {
		e := EntryGen(batch.Txid(len(want)+1), 1).Draw(rt, "entry")
		if err := s.Commit(t.Context(), e, []txstate.SavedPosition{PositionGen().Draw(rt, "position")}); err != nil {
			rt.Fatal(err)
		}
		want = append(want, e)
	})
	odd, _ := Simple(batch.Txid(len(want)+1), 1)
	p := txstate.SavedPosition{
		Position:  batch.Position{Partition: batch.Partition{Source: "\x00\xff", Number: math.MinInt32}, Next: math.MaxInt64, LeaderEpoch: math.MinInt32},
		EventTime: txstate.NoTime, Txid: math.MaxUint64, Joined: odd.Txid,
	}
	must(t, s.Commit(t.Context(), odd, []txstate.SavedPosition{p}))
	want = append(want, odd)
	twice(t, s, func(s Store) {
		got := entries(t, s, 0, 0)
		equal(t, "number of entries", len(got), len(want))
		for i := range want {
			equal(t, "entry", got[i], want[i])
		}
		found := false
		ps := load(t, s).Positions
		for i, q := range ps {
			found = found || q == p
			if i > 0 && ps[i-1].Partition.Compare(q.Partition) >= 0 {
				t.Fatalf("positions out of order: %v before %v", ps[i-1], q)
			}
		}
		if !found {
			t.Fatalf("position %+v is missing", p)
		}
	})
}

func testAliasing(t *testing.T, s Store) {
	ctx := t.Context()
	must(t, s.Claim(ctx, 1))
	e, pos := Simple(1, 1)
	must(t, s.Record(ctx, e))
	e.Ranges[0].End = 999
	if got := load(t, s).Recorded[0].Ranges[0].End; got != 10 {
		t.Fatalf("a recorded entry changed to %d with the caller's copy", got)
	}
	e.Ranges[0].End = 10
	must(t, s.Commit(ctx, e, pos))
	pos[0].Next = 999
	e.Ranges[0].End = 999
	snap := load(t, s)
	snap.Positions[0].Next = 999
	got := entries(t, s, 1, 1)[0]
	if got.Ranges[0].End != 10 {
		t.Fatalf("a committed entry changed to %d with the caller's copy", got.Ranges[0].End)
	}
	got.Ranges[0].End = 999
	equal(t, "entry", entries(t, s, 1, 1)[0].Ranges[0].End, int64(10))
	equal(t, "position", load(t, s).Positions[0].Next, int64(10))
}
