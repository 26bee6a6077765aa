package pebblestate

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tridentd/tridentd/batch"
)

var baseTime = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// basesOf lists the txids of the bases.
func basesOf(t testing.TB, db *DB) []batch.Txid {
	t.Helper()
	all, err := db.Bases()
	if err != nil {
		t.Fatal(err)
	}
	txids := []batch.Txid{}
	for _, b := range all {
		txids = append(txids, b.Txid)
	}
	return txids
}

// mustOpenBase opens a copy of a base.
func mustOpenBase(t testing.TB, db *DB, txid batch.Txid, dir string) *DB {
	t.Helper()
	if _, err := db.RestoreBase(t.Context(), txid, dir); err != nil {
		t.Fatalf("base of txid %d: %v", txid, err)
	}
	o := db.opts
	o.Dir, o.CreateIfMissing, o.ReadOnly = dir, false, false
	return mustOpen(t, o)
}

// TestBase: a base holds what the database held then, whatever is committed, trimmed and compacted afterwards, and what
// begins at it doesn't change it.
func TestBase(t *testing.T) {
	for _, real := range []bool{false, true} {
		t.Run(fmt.Sprint("on disk: ", real), func(t *testing.T) {
			o := testOptions(vfs.NewMem())
			scratch := "/scratch"
			if real {
				root := t.TempDir()
				o.FS, o.Dir, scratch = vfs.Default, filepath.Join(root, "words"), filepath.Join(root, "scratch")
			}
			o.MemTableBytes = 64 << 10
			db := mustOpen(t, o)
			models := []model{{"s": {}}}
			commit := func(upTo batch.Txid) {
				for txid := batch.Txid(len(models)); txid <= upTo; txid++ {
					m := models[txid-1].clone()
					s := setOf("s", o.Shards, set(fmt.Sprintf("k%03d", txid%53), strings.Repeat(fmt.Sprint(txid), 50)), add("total", uint64(txid)))
					m.apply(s)
					models = append(models, m)
					mustCommit(t, db, commitOf(txid, s))
				}
			}
			commit(300)
			made, err := db.MakeBase(t.Context(), baseTime)
			if err != nil || made.Txid != 300 || made.Bytes == 0 || !made.Created.Equal(baseTime) {
				t.Fatalf("%+v, %v", made, err)
			}
			if again, err := db.MakeBase(t.Context(), baseTime.Add(time.Hour)); err != nil || again != made {
				t.Fatalf("made again: %+v, %v, want %+v", again, err, made)
			}
			commit(900)
			if err := errors.Join(db.TrimLedger(t.Context(), 300), db.CompactLedger(t.Context())); err != nil {
				t.Fatal(err)
			}
			if first, last := db.Ledger(); first != 300 || last != 900 {
				t.Errorf("the ledger holds %d to %d", first, last)
			}
			for round := range 2 {
				c := mustOpenBase(t, db, 300, fmt.Sprint(scratch, round))
				if got := txidOf(t, c); got != 300 {
					t.Fatalf("the base is at txid %d", got)
				}
				mustHold(t, c, models[300])
				mustCommit(t, c, commitOf(301, setOf("s", o.Shards, set("k001", fmt.Sprint("other", round)))))
				if err := c.pebble.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
					t.Fatal(err)
				}
				mustClose(t, c)
			}
			mustHold(t, db, models[900])
			if _, err := db.MakeBase(t.Context(), baseTime); err != nil {
				t.Fatal(err)
			}
			if got := basesOf(t, db); fmt.Sprint(got) != "[300 900]" {
				t.Errorf("bases %v", got)
			}
			if err := db.RemoveBases(301); err != nil {
				t.Fatal(err)
			}
			mustClose(t, db)
			o.ReadOnly = true
			db = mustOpen(t, o)
			defer mustClose(t, db)
			if got := basesOf(t, db); fmt.Sprint(got) != "[900]" {
				t.Errorf("bases %v", got)
			}
			mustHold(t, db, models[900])
		})
	}
}

// TestBaseCrash crashes at many points while bases are made and replaced and the ledger is trimmed up to them. What is
// left must open at what had been promised, and its ledger must begin at txid 1 or have a whole base at an entry of its.
func TestBaseCrash(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			mem := vfs.NewCrashableMem()
			points := &crashPoints{fs: mem, rnd: rand.New(rand.NewPCG(seed, 11)), every: 8}
			o := testOptions(errorfs.Wrap(mem, points))
			o.MemTableBytes = 64 << 10
			db := mustOpen(t, o)
			points.created.Store(true)
			points.images = nil
			models := []model{{"s": {}}}
			for round := range 6 {
				for range 20 {
					txid := batch.Txid(len(models))
					m := models[txid-1].clone()
					s := setOf("s", o.Shards, set(fmt.Sprintf("k%03d", txid%31), strings.Repeat(fmt.Sprint(txid), 200)), add("total", uint64(txid)))
					m.apply(s)
					models = append(models, m)
					points.begun.Store(uint64(txid))
					mustCommit(t, db, commitOf(txid, s))
					points.promised.Store(uint64(txid))
				}
				b, err := db.MakeBase(t.Context(), baseTime)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(db.TrimLedger(t.Context(), b.Txid), db.RemoveBases(b.Txid), db.CompactLedger(t.Context())); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
			mustClose(t, db)
			trimmed := 0
			for _, im := range points.images {
				o := testOptions(im.fs)
				o.MemTableBytes = 64 << 10
				db, err := Open(t.Context(), o)
				if err != nil {
					t.Fatalf("%s: %v", im.op, err)
				}
				got := txidOf(t, db)
				if got < im.promised || got > im.begun {
					t.Fatalf("%s: opened at txid %d, %d had committed, %d had begun", im.op, got, im.promised, im.begun)
				}
				mustHold(t, db, models[got])
				first, last := db.Ledger()
				bases := basesOf(t, db)
				for i, b := range bases {
					c := mustOpenBase(t, db, b, fmt.Sprint("/scratch/", i))
					if at := txidOf(t, c); at != b {
						t.Fatalf("%s: the base of txid %d is at txid %d", im.op, b, at)
					}
					mustHold(t, c, models[b])
					mustClose(t, c)
				}
				if first > 1 {
					trimmed++
					if len(bases) == 0 || bases[len(bases)-1] < first || bases[len(bases)-1] > last {
						t.Fatalf("%s: the ledger holds %d to %d, with bases %v", im.op, first, last, bases)
					}
				}
				// It must be of use: what was interrupted is done again.
				if _, err := db.MakeBase(t.Context(), baseTime); err != nil {
					t.Fatalf("%s: %v", im.op, err)
				}
				if err := db.RemoveBases(got); err != nil {
					t.Fatalf("%s: %v", im.op, err)
				}
				names, err := listDir(im.fs, testDir+"/base")
				if err != nil || len(names) != 1 || names[0] != baseName(got) {
					t.Fatalf("%s: base/ holds %q, %v", im.op, names, err)
				}
				mustClose(t, db)
			}
			if len(points.images) < 30 || trimmed < 10 {
				t.Errorf("%d crash points, %d of them with a trimmed ledger", len(points.images), trimmed)
			}
		})
	}
}

// TestBaseDamaged changes, cuts and removes each file of a base: it is refused with the file's name, or isn't listed.
func TestBaseDamaged(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, testOptions(mem))
	defer mustClose(t, db)
	mustCommit(t, db, commitOf(1, setOf("s", 4, set("a", "b"))))
	if _, err := db.MakeBase(t.Context(), baseTime); err != nil {
		t.Fatal(err)
	}
	dir := db.baseDir(baseName(1))
	info, err := db.readBase(1)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	try := func(path string, change func(b []byte) []byte) {
		t.Helper()
		was, err := readFile(mem, path)
		if err != nil {
			t.Fatal(err)
		}
		write := func(b []byte) {
			if err := writeFile(mem, filepath.Dir(path), filepath.Base(path), b); err != nil {
				t.Fatal(err)
			}
		}
		if b := change(append([]byte(nil), was...)); b != nil {
			write(b)
		} else if err := mem.Remove(path); err != nil {
			t.Fatal(err)
		}
		n++
		_, err = db.RestoreBase(t.Context(), 1, fmt.Sprint("/scratch/", n))
		listed := len(basesOf(t, db)) == 1
		if err == nil || !errors.Is(err, fs.ErrNotExist) && batch.CodeOf(err) != batch.CodeStoreDamaged || !strings.Contains(err.Error(), filepath.Base(path)) {
			t.Errorf("%s: %v", path, err)
		}
		if wantListed := filepath.Base(path) != baseInfoName; listed != wantListed {
			t.Errorf("%s: the base is listed: %v", path, listed)
		}
		if _, err := Open(t.Context(), Options{Dir: fmt.Sprint("/scratch/", n), FS: mem, ReadOnly: true}); err == nil {
			t.Errorf("%s: what was restored can be opened", path)
		}
		write(was)
	}
	paths := []string{dir + "/" + baseInfoName}
	for _, f := range info.Files {
		paths = append(paths, dir+"/"+f.Path)
	}
	for _, path := range paths {
		try(path, func([]byte) []byte { return nil })
		if st, err := mem.Stat(path); err != nil || st.Size() == 0 {
			continue
		}
		try(path, func(b []byte) []byte { return b[:len(b)-1] })
		if !isTable(path) {
			try(path, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		}
	}
	if len(paths) < 5 {
		t.Errorf("only the files %q", paths)
	}
	if _, err := db.RestoreBase(t.Context(), 1, "/scratch/whole"); err != nil {
		t.Error(err)
	}
}

func FuzzBaseInfo(f *testing.F) {
	sum := uint32(7)
	whole := baseInfo{Format: 1, Pipeline: "words", Txid: 9, Chain: "00000000000000ff", Created: baseTime, Files: []baseFile{{"FORMAT", 3, &sum}, {"db/000004.sst", 5, nil}}}
	f.Add(whole.encode())
	f.Add([]byte("{}\n00000000\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := decodeBaseInfo(b)
		if err != nil {
			return
		}
		for _, file := range info.Files {
			if !filepath.IsLocal(file.Path) {
				t.Fatalf("a file lies elsewhere: %q", file.Path)
			}
		}
		if again, err := decodeBaseInfo(info.encode()); err != nil || again.Txid != info.Txid || len(again.Files) != len(info.Files) {
			t.Fatalf("%+v, %v", again, err)
		}
	})
}

// TestBaseOfFailedStore fails the syncs of the log while a base is made: that ends, with the cause, and so does Close.
func TestBaseOfFailedStore(t *testing.T) {
	mem := vfs.NewMem()
	var broken atomic.Bool
	o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && (strings.HasSuffix(op.Path, ".log") || strings.HasSuffix(op.Path, ".sst")) && !strings.Contains(op.Path, "/base/") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.EIO
		}
		return nil
	})))
	db := mustOpen(t, o)
	mustCommit(t, db, commitOf(1, setOf("s", 4, set("k", "one"))))
	broken.Store(true)
	_, err := db.MakeBase(t.Context(), baseTime)
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
	if _, err := db.Checkpoint(t.Context(), "/copy"); err == nil {
		t.Error("a copy of a failed store")
	}
	_ = db.Close() // it ends
	broken.Store(false)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	if b, err := db.MakeBase(t.Context(), baseTime); err != nil || b.Txid != 1 {
		t.Errorf("%+v, %v", b, err)
	}
}
