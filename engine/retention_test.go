package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// ledgerWorld is a store that batches are committed to without a pipeline, on a clock of its own.
type ledgerWorld struct {
	t    testing.TB
	dir  string
	db   *pebblestate.DB
	r    *retention
	now  time.Time
	txid batch.Txid
	rows int      // per batch
	held holdings // looks into no place unless a test names one
}

func newLedgerWorld(t testing.TB, l plan.Ledger) *ledgerWorld {
	w := &ledgerWorld{t: t, dir: filepath.Join(t.TempDir(), "words"), now: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), rows: 3}
	w.open()
	w.r = &retention{limits: ledgerBounds(l), log: hclog.NewNullLogger(), now: func() time.Time { return w.now }, every: baseEvery}
	w.held = holdings{pipeline: "words", dir: w.dir, log: w.r.log}
	w.r.held = w.held.needing
	t.Cleanup(func() { w.db.Close() }) //nolint:errcheck // closed by the test, if that matters
	return w
}

func (w *ledgerWorld) open() {
	w.t.Helper()
	db, err := pebblestate.Open(w.t.Context(), pebblestate.Options{Dir: w.dir, Pipeline: "words", Shards: 4, CreateIfMissing: true, MemTableBytes: 1 << 20})
	if err != nil {
		w.t.Fatal(err)
	}
	w.db = db
}

// commit commits n batches, which take so long each, in writes of many: what is synced at once doesn't matter here.
func (w *ledgerWorld) commit(n int, each time.Duration) {
	w.t.Helper()
	for n > 0 {
		var commits []pebblestate.Commit
		for range min(n, 100) {
			w.txid++
			w.now = w.now.Add(each)
			set := &state.WriteSet{State: "counts", Shards: make([][]state.Write, 4)}
			for i := range w.rows {
				key := fmt.Appendf(nil, "key-%05d", (uint64(w.txid)*7919+uint64(i)*104729)%10_000)
				shard := state.ShardOf(key, 4)
				set.Shards[shard] = append(set.Shards[shard], state.Write{Op: state.Set, Key: key, Value: fmt.Appendf(nil, "%032x", uint64(w.txid)*0x9E3779B97F4A7C15)})
				set.Writes++
			}
			e := txstate.Entry{
				Txid: w.txid, Attempt: batch.Attempt{Epoch: 1, N: 1}, Attempts: 1, Time: w.now, Committed: w.now, Seed: uint64(w.txid) * 0x9E3779B97F4A7C15,
				Chain: uint64(w.txid) * 0xC2B2AE3D27D4EB4F, Build: "test", States: []txstate.StateDigest{{State: "counts", Writes: set.Writes, Digest: uint64(w.txid) * 0x165667B19E3779F9}},
			}
			for p := range int32(4) {
				e.Ranges = append(e.Ranges, txstate.RangeEntry{
					Range: batch.Range{Partition: batch.Partition{Source: "orders", Topic: "orders", Number: p}, Start: int64(w.txid) * 100, End: int64(w.txid)*100 + 100, Identity: "HkRdLDu1RMq2gXjNqTLhBw"},
					Input: batch.Input{Records: 100, Bytes: 20_000, Digest: e.Seed ^ uint64(p)}, EventTime: w.now.UnixNano(),
				})
			}
			shown := *set
			for i := range shown.Shards { // in key order
				sortWrites(shown.Shards[i])
			}
			commits = append(commits, pebblestate.Commit{Entry: e, Sets: []*state.WriteSet{&shown}, Keep: w.r.limits.Changes})
		}
		if err := w.db.Commit(w.t.Context(), commits); err != nil {
			w.t.Fatal(err)
		}
		n -= len(commits)
	}
}

func sortWrites(ws []state.Write) {
	for i := range ws {
		for j := i; j > 0 && string(ws[j].Key) < string(ws[j-1].Key); j-- {
			ws[j], ws[j-1] = ws[j-1], ws[j]
		}
	}
}

func (w *ledgerWorld) pass() {
	w.t.Helper()
	if err := w.r.pass(w.t.Context(), w.db); err != nil {
		w.t.Fatal(err)
	}
	seen := LedgerStatus{HeldFor: w.r.seen.HeldFor}
	seen.First, _ = w.db.Ledger()
	bases, err := w.db.Bases()
	if err == nil && len(bases) > 0 && seen.First > 1 {
		seen.Base = bases[0].Txid
	}
	if seen.Bytes = w.r.seen.Bytes; err != nil || w.r.seen != seen || seen.Bytes < 0 {
		w.t.Errorf("the status is %+v, %v; the store's %+v", w.r.seen, err, seen)
	}
}

// check looks at what is left: the ledger without a gap, and a base in it if it doesn't begin at txid 1.
func (w *ledgerWorld) check() (first, base, last batch.Txid) {
	w.t.Helper()
	first, last = w.db.Ledger()
	next := first
	for e, err := range w.db.Store().Entries(w.t.Context(), 1, 0) {
		if err != nil || e.Txid != next {
			w.t.Fatalf("entry of txid %d where %d is due: %v", e.Txid, next, err)
		}
		next++
	}
	bases, err := w.db.Bases()
	if err != nil || next != last+1 || last != w.txid {
		w.t.Fatalf("the ledger holds %d to %d of %d, %v", first, next-1, w.txid, err)
	}
	if len(bases) > 2 {
		w.t.Errorf("%d bases: %+v", len(bases), bases)
	}
	for _, b := range bases {
		if b.Txid < first || b.Txid > last || b.Chain != uint64(b.Txid)*0xC2B2AE3D27D4EB4F {
			w.t.Errorf("the ledger holds %d to %d, a base is %+v", first, last, b)
		}
	}
	switch {
	case len(bases) > 0:
		base = bases[0].Txid
	case first > 1:
		w.t.Fatalf("the ledger holds %d to %d, and no base", first, last)
	}
	return first, base, last
}

// diskUse is what a directory takes on the disk: each file once, however many names it has.
func diskUse(t testing.TB, dir string) (total int64) {
	t.Helper()
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() { // the store removes files meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if st := info.Sys().(*syscall.Stat_t); !seen[st.Ino] {
			seen[st.Ino] = true
			total += st.Blocks * 512
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

func TestLedgerByCount(t *testing.T) {
	w := newLedgerWorld(t, plan.Ledger{MaxBatches: 1000, MaxAge: -1, MaxBytes: -1})
	w.commit(400, time.Second)
	w.pass()
	if first, base, _ := w.check(); first != 1 || base != 0 {
		t.Errorf("within half of the bounds: the ledger begins at %d, base %d", first, base)
	}
	for range 24 {
		w.commit(200, time.Second)
		w.pass()
		first, base, last := w.check()
		if n := last - first + 1; n > 1000 || last > 2000 && n < 900 {
			t.Fatalf("%d entries: %d to %d", n, first, last)
		}
		if last > 1000 && last-base < 500-200 {
			t.Fatalf("a replay can begin behind %d of %d to %d", base, first, last)
		}
	}
}

func TestLedgerByAge(t *testing.T) {
	w := newLedgerWorld(t, plan.Ledger{MaxAge: time.Hour, MaxBytes: -1})
	for range 36 {
		w.commit(100, 3*time.Second) // five minutes
		w.pass()
		first, base, last := w.check()
		if held := time.Duration(last-first) * 3 * time.Second; held > 62*time.Minute || last > 2000 && held < 58*time.Minute {
			t.Fatalf("%s are held: %d to %d", held, first, last)
		}
		if behind := time.Duration(last-base) * 3 * time.Second; last > 2000 && behind < 25*time.Minute {
			t.Fatalf("a replay can begin %s ago", behind)
		}
	}
	// Nothing comes any more: the last entry stays, and a replay of nothing has a beginning.
	w.now = w.now.Add(24 * time.Hour)
	w.pass()
	if first, base, last := w.check(); first != last || base != last {
		t.Errorf("a day later: %d to %d, base %d", first, last, base)
	}
}

// TestLedgerBySize: the room really comes back, bases and kept changes included.
func TestLedgerBySize(t *testing.T) {
	sizedLedger(t, plan.Ledger{MaxAge: -1, MaxBytes: 1 << 20, Changes: true}, 15_000)
}

// sizedLedger commits so many batches, 100 ms apart, and compares what the store takes on the disk with its bound.
func sizedLedger(t *testing.T, l plan.Ledger, batches int) {
	w := newLedgerWorld(t, l)
	w.r.every = 0
	var most int64
	began, pace := time.Now(), []time.Duration{}
	for done := 0; done < batches; done += 500 {
		w.commit(500, 100*time.Millisecond)
		w.pass()
		most = max(most, diskUse(t, w.dir))
		if done/500%(batches/5000) == 0 { // ten times
			w.check()
			pace = append(pace, time.Since(began))
		}
	}
	first, _, last := w.check()
	n, err := w.db.LedgerBytes(first)
	// A memtable more: what it holds only counts once it is a table.
	if err != nil || n > l.MaxBytes+1<<20 || n < l.MaxBytes/3 {
		t.Errorf("the ledger takes %d bytes of %d, %v", n, l.MaxBytes, err)
	}
	// The ledger, what up to two bases pin of earlier ones, and the state, memtables and logs.
	if limit := 3*l.MaxBytes + 16<<20; most > limit {
		t.Errorf("%d bytes on the disk, want at most %d", most, limit)
	}
	if first < last/2 {
		t.Errorf("%d to %d are held", first, last)
	}
	t.Logf("%d batches, %d held in %d bytes, at most %d on the disk; after each tenth %v", last, last-first+1, n, most, pace)
}

// TestLedgerWithoutBase: a store that was restored from a savepoint has a trimmed ledger and no base; one that is lost is
// made again.
func TestLedgerWithoutBase(t *testing.T) {
	w := newLedgerWorld(t, plan.Ledger{MaxBatches: 1000})
	w.commit(600, time.Second)
	if err := w.db.TrimLedger(t.Context(), 500); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if first, base, _ := w.check(); first != 500 || base != 600 {
		t.Errorf("the ledger begins at %d, base %d", first, base)
	}
	if err := w.db.RemoveBases(700); err != nil {
		t.Fatal(err)
	}
	w.commit(10, time.Second)
	w.pass() // whatever the time since the last one
	if _, base, _ := w.check(); base != 610 {
		t.Errorf("base %d", base)
	}
}

// TestRule9NothingIsTrimmedWithoutABase: before trimming a base is made, so that a replay always has a beginning. Where none can be
// made the ledger stays as it is, beyond its bounds.
func TestRule9NothingIsTrimmedWithoutABase(t *testing.T) {
	t.Parallel()
	w := newLedgerWorld(t, plan.Ledger{MaxBatches: 100})
	inTheWay := filepath.Join(w.dir, "base")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.commit(200, time.Minute)
		if err := w.r.pass(t.Context(), w.db); err == nil {
			t.Fatal("a base was made where a file lies in the way")
		}
		if first, last := w.db.Ledger(); first != 1 || last != w.txid {
			t.Fatalf("the ledger holds %d to %d, and no base", first, last)
		}
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if first, base, last := w.check(); last-first >= 100 || base != last {
		t.Errorf("the ledger holds %d to %d, base %d", first, last, base)
	}
}

// TestLedgerOutrunsBounds: bases are made at most every minute; meanwhile the ledger grows.
func TestLedgerOutrunsBounds(t *testing.T) {
	w := newLedgerWorld(t, plan.Ledger{MaxBatches: 10})
	w.commit(100, time.Millisecond)
	w.pass()
	if first, base, _ := w.check(); first != 91 || base != 100 {
		t.Errorf("the ledger begins at %d, base %d", first, base)
	}
	w.commit(100, time.Millisecond)
	w.pass()
	if first, base, last := w.check(); first != 100 || base != 100 || last != 200 {
		t.Errorf("the ledger holds %d to %d, base %d", first, last, base)
	}
	w.now = w.now.Add(baseEvery)
	w.pass()
	if first, base, _ := w.check(); first != 191 || base != 200 {
		t.Errorf("the ledger begins at %d, base %d", first, base)
	}
}

// TestLedgerUnbounded keeps everything.
func TestLedgerUnbounded(t *testing.T) {
	w := newLedgerWorld(t, plan.Ledger{MaxAge: -1, MaxBytes: -1})
	w.commit(500, 24*time.Hour)
	w.pass()
	if first, base, _ := w.check(); first != 1 || base != 0 {
		t.Errorf("the ledger begins at %d, base %d", first, base)
	}
}
