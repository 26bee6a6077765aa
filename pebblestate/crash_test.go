package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// crashPoints takes a picture of a file system, as a crash would leave it, around each operation that makes
// something durable or visible in a directory.
type crashPoints struct {
	mu     sync.Mutex
	fs     *vfs.MemFS
	rnd    *rand.Rand
	every  int // one of so many operations
	ops    int
	images []image
	// promised is the last txid whose commit has returned, begun the last one whose commit has begun.
	promised, begun atomic.Uint64
	created         atomic.Bool // Open has returned
}

type image struct {
	fs              *vfs.MemFS
	op              string
	promised, begun batch.Txid
	created         bool
}

// MaybeError implements errorfs.Injector; it injects nothing.
func (c *crashPoints) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpRename, errorfs.OpRemove, errorfs.OpCreate, errorfs.OpReuseForWrite:
	default:
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ops++; c.rnd.IntN(c.every) != 0 {
		return nil
	}
	// What has been promised is read before the picture is taken, what has begun after it.
	im := image{op: fmt.Sprintf("operation %d: %d of %s", c.ops, op.Kind, op.Path), promised: batch.Txid(c.promised.Load()), created: c.created.Load()}
	im.fs = c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 30, 70, 100}[c.rnd.IntN(4)], RNG: c.rnd})
	im.begun = batch.Txid(c.begun.Load())
	c.images = append(c.images, im)
	return nil
}

func (c *crashPoints) String() string { return "crash points" }

// TestCrash crashes a run at many points, with part of what wasn't synced lost. Whatever is left must open, at the
// last txid whose commit had returned or at one in flight, and hold exactly what that txid had left.
func TestCrash(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			crashRun(t, seed)
		})
	}
}

func crashRun(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	mem := vfs.NewCrashableMem()
	points := &crashPoints{fs: mem, rnd: rand.New(rand.NewPCG(seed, 8)), every: 6}
	o := testOptions(errorfs.Wrap(mem, points))
	o.MemTableBytes = 64 << 10 // flushes and new logs all the time
	db := mustOpen(t, o)
	points.created.Store(true)

	models := []model{{"sums": {}, "texts": {}}}
	var positions [][]txstate.SavedPosition
	positions = append(positions, nil)
	txid := batch.Txid(0)
	for range 25 {
		var commits []Commit
		for range 1 + rnd.IntN(3) {
			txid++
			m := models[len(models)-1].clone()
			var sums, texts []state.Write
			for _, i := range rnd.Perm(200)[:50] {
				sums = append(sums, add(fmt.Sprintf("k%03d", i), rnd.Uint64N(100)))
				texts = append(texts, set(fmt.Sprintf("k%03d", i), strings.Repeat(fmt.Sprint(txid), 20)))
			}
			c := commitOf(txid, setOf("sums", o.Shards, sums...), setOf("texts", o.Shards, texts...))
			if rnd.IntN(5) == 0 {
				c.Sets[1].DropWindows = [][]byte{[]byte("k1")}
			}
			for _, s := range c.Sets {
				m.apply(s)
			}
			models = append(models, m)
			positions = append(positions, c.Positions)
			commits = append(commits, c)
		}
		points.begun.Store(uint64(txid))
		mustCommit(t, db, commits...)
		points.promised.Store(uint64(txid))
		if rnd.IntN(8) == 0 {
			mustClose(t, db)
			db = mustOpen(t, o)
		}
	}
	mustClose(t, db)

	if len(points.images) < 30 {
		t.Fatalf("only %d crash points", len(points.images))
	}
	for _, im := range points.images {
		o := testOptions(im.fs)
		o.MemTableBytes = 64 << 10
		// What was never created may be created now, what was must be there.
		o.CreateIfMissing = !im.created
		db, err := Open(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: Open: %v", im.op, err)
		}
		got := txidOf(t, db)
		if got < im.promised || got > im.begun {
			t.Fatalf("%s: opened at txid %d, %d had committed, %d had begun", im.op, got, im.promised, im.begun)
		}
		mustHold(t, db, models[got])
		if ps := positionsOf(t, db); got > 0 && (len(ps) != 1 || ps[0] != positions[got][0]) {
			t.Fatalf("%s: txid %d with positions %v", im.op, got, ps)
		}
		// It must be of use: go on, close, open.
		mustCommit(t, db, commitOf(got+1, setOf("sums", o.Shards, add("after", 1))))
		mustClose(t, db)
		o.ReadOnly = true
		db = mustOpen(t, o)
		if now := txidOf(t, db); now != got+1 {
			t.Fatalf("%s: opened again at txid %d, want %d", im.op, now, got+1)
		}
		mustClose(t, db)
	}
	t.Logf("%d crash points of %d operations", len(points.images), points.ops)
}

// TestCrashedCreation crashes the creation at every operation: the next Open creates the database, or finds it.
func TestCrashedCreation(t *testing.T) {
	for seed := range uint64(4) {
		mem := vfs.NewCrashableMem()
		points := &crashPoints{fs: mem, rnd: rand.New(rand.NewPCG(seed, 9)), every: 1}
		mustClose(t, mustOpen(t, testOptions(errorfs.Wrap(mem, points))))
		for _, im := range points.images {
			db, err := Open(t.Context(), testOptions(im.fs))
			if err != nil {
				t.Fatalf("seed %d, %s: %v", seed, im.op, err)
			}
			mustCommit(t, db, commitOf(1))
			mustClose(t, db)
		}
	}
}

// device is a file system that runs out of space.
type device struct {
	full atomic.Bool
	only string // if not empty: only for files whose path contains it
}

func (d *device) MaybeError(op errorfs.Op) error {
	if !d.full.Load() || d.only != "" && !strings.Contains(op.Path, d.only) {
		return nil
	}
	switch op.Kind {
	case errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpCreate, errorfs.OpReuseForWrite:
		return syscall.ENOSPC
	}
	return nil
}

func (d *device) String() string { return "device" }

// TestDiskFull fills the device under the log, under the tables, under everything. Commits must fail with the cause
// in bounded time; with space again, nothing is missing or there twice.
func TestDiskFull(t *testing.T) {
	for _, only := range []string{"", ".log", ".sst", "MANIFEST"} {
		t.Run("files "+only, func(t *testing.T) {
			t.Parallel()
			mem := vfs.NewMem()
			d := &device{only: only}
			o := testOptions(errorfs.Wrap(mem, d))
			o.MemTableBytes = 64 << 10
			fatal := make(chan error, 100)
			o.Fatal = func(err error) { fatal <- err }
			db := mustOpen(t, o)
			m := model{}
			sets := func(txid batch.Txid) *state.WriteSet {
				var ws []state.Write
				for i := range 100 {
					ws = append(ws, set(fmt.Sprintf("k%03d", i), strings.Repeat(fmt.Sprint(txid), 30)))
				}
				return setOf("s", o.Shards, append(ws, add("total", uint64(txid)))...)
			}
			models := []model{m}
			commit := func(txid batch.Txid) error {
				s := sets(txid)
				if int(txid) == len(models) {
					next := models[txid-1].clone()
					next.apply(s)
					models = append(models, next)
				}
				return db.Commit(t.Context(), []Commit{commitOf(txid, s)})
			}
			txid := batch.Txid(0)
			for range 20 {
				txid++
				if err := commit(txid); err != nil {
					t.Fatal(err)
				}
			}
			d.full.Store(true)
			var err error
			for err == nil && txid < 5000 {
				if err = commit(txid + 1); err == nil {
					txid++
				}
			}
			wantCode(t, err, batch.CodeStoreFull, "space")
			if batch.KindOf(err) != batch.Permanent {
				t.Errorf("%v is %s", err, batch.KindOf(err))
			}
			if db.Err() == nil {
				t.Error("the database doesn't tell that it has failed")
			}
			unknown := errors.Is(err, ErrUnknownOutcome)
			if err := commit(txid + 1); err == nil {
				t.Error("a commit after the failure")
			}
			if err := db.Close(); err != nil && !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("Close: %v", err)
			}
			select {
			case err := <-fatal:
				if !errors.Is(err, syscall.ENOSPC) && batch.CodeOf(err) != batch.CodeStoreFull {
					t.Errorf("the fatal error doesn't tell the cause: %v", err)
				}
			default:
			}
			d.full.Store(false)
			db = mustOpen(t, o)
			got := txidOf(t, db)
			if got != txid && !(unknown && got == txid+1) {
				t.Fatalf("reopened at txid %d, %d had committed (outcome unknown: %v)", got, txid, unknown)
			}
			mustHold(t, db, models[got])
			if err := commit(got + 1); err != nil {
				t.Fatal(err)
			}
			mustHold(t, db, models[got+1])
			mustClose(t, db)
		})
	}
}

// TestMinFree refuses a commit while there is still room to refuse it in order.
func TestMinFree(t *testing.T) {
	mem := &smallFS{FS: vfs.NewMem()}
	mem.free.Store(1 << 30)
	o := testOptions(mem)
	o.MinFreeBytes = 1 << 20
	db := mustOpen(t, o)
	defer mustClose(t, db)
	mustCommit(t, db, commitOf(1))
	mem.free.Store(1 << 20)
	err := db.Commit(t.Context(), []Commit{commitOf(2)})
	wantCode(t, err, batch.CodeStoreFull, "1048576 bytes are free", "free space")
	if errors.Is(err, ErrUnknownOutcome) || db.Err() != nil {
		t.Fatalf("nothing was written, but: %v, %v", err, db.Err())
	}
	mem.free.Store(1 << 30)
	mustCommit(t, db, commitOf(2))
}

type smallFS struct {
	vfs.FS
	free atomic.Uint64
}

func (f *smallFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: f.free.Load(), TotalBytes: 1 << 40}, nil
}

// TestFailedSync fails one sync of the log: the outcome is unknown, readers don't see the write, and the directory
// belongs to the next handle although the failed one may not have ended.
func TestFailedSync(t *testing.T) {
	mem := vfs.NewMem()
	var broken atomic.Bool
	o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && strings.HasSuffix(op.Path, ".log") && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			return syscall.EIO
		}
		return nil
	})))
	db := mustOpen(t, o)
	mustCommit(t, db, commitOf(1, setOf("s", 4, set("k", "one"))))
	broken.Store(true)
	err := db.Commit(t.Context(), []Commit{commitOf(2, setOf("s", 4, set("k", "two")))})
	if !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("a failed sync: %v", err)
	}
	for _, text := range []string{err.Error(), db.Err().Error()} {
		if strings.Count(text, "writing ") != 1 {
			t.Errorf("what failed isn't named once: %s", text)
		}
	}
	r, rerr := db.State("s")
	if rerr != nil {
		t.Fatal(rerr)
	}
	if v, _, err := r.Get(context.Background(), []byte("k")); err != nil || string(v) != "one" {
		t.Fatalf("a reader sees %q (%v) of a write that was never synced", v, err)
	}
	if got := txidOf(t, db); got != 1 {
		t.Fatalf("the record is at txid %d", got)
	}
	if err := db.Commit(t.Context(), []Commit{commitOf(2)}); err == nil {
		t.Fatal("a commit through a failed handle")
	}
	_ = db.Close()
	broken.Store(false)
	db = mustOpen(t, o)
	if got := txidOf(t, db); got != 1 && got != 2 {
		t.Fatalf("reopened at txid %d", got)
	}
	mustClose(t, db)
}
