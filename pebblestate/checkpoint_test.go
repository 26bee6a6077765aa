package pebblestate

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tridentd/tridentd/batch"
)

// TestCheckpoint takes copies while batches commit. Each must hold just what the database held at its txid, and go on
// from there, whatever becomes of the original.
func TestCheckpoint(t *testing.T) {
	const batches, copies = 120, 4
	root := t.TempDir()
	o := testOptions(vfs.Default)
	o.Dir = filepath.Join(root, "words")
	db := mustOpen(t, o)
	digests := make([]uint64, batches+1)
	var wg sync.WaitGroup
	wg.Go(func() {
		for txid := batch.Txid(1); txid <= batches; txid++ {
			key := fmt.Sprintf("k%03d", txid%97)
			if err := db.Commit(t.Context(), []Commit{commitOf(txid, setOf("s", o.Shards, add(key, uint64(txid)), set("last", strings.Repeat("x", int(txid)))))}); err != nil {
				t.Error(err)
				return
			}
			d, err := db.Digest(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			digests[txid] = d
		}
	})
	var at []batch.Txid
	for i := range copies {
		txid, err := db.Checkpoint(t.Context(), filepath.Join(root, "copies", fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, txid)
	}
	wg.Wait()
	mustClose(t, db)
	for i, txid := range at {
		c := o
		c.Dir = filepath.Join(root, "copies", fmt.Sprint(i))
		c.CreateIfMissing = false
		db := mustOpen(t, c)
		if got := txidOf(t, db); got != txid {
			t.Errorf("copy %d is at txid %d, want %d", i, got, txid)
		}
		if got, err := db.Digest(t.Context()); err != nil || txid > 0 && got != digests[txid] {
			t.Errorf("copy %d, txid %d: digest %016x, %v, want %016x", i, txid, got, err, digests[txid])
		}
		mustCommit(t, db, commitOf(txid+1, setOf("s", o.Shards, set("more", "y"))))
		mustClose(t, db)
	}
	db = mustOpen(t, o)
	defer mustClose(t, db)
	if got, err := db.Digest(t.Context()); err != nil || got != digests[batches] {
		t.Errorf("the original has digest %016x, %v, want %016x", got, err, digests[batches])
	}
}

// TestCheckpointBeforeTheFirstFlush takes a copy of a database that had no log to replay when it was opened, as after a kill
// between the flush of the logs of the run before and the making of a new one.
func TestCheckpointBeforeTheFirstFlush(t *testing.T) {
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	mustCommit(t, db, commitOf(1, setOf("s", o.Shards, set("k", "v"))))
	want, err := db.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	flushed := logsOf(t, o.FS, db.pebbleDir())
	if len(flushed) != 1 {
		t.Fatalf("logs: %q", flushed)
	}
	if err := o.FS.Link(flushed[0], flushed[0]+".kept"); err != nil {
		t.Fatal(err)
	}
	if err := db.pebble.Flush(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	for _, log := range logsOf(t, o.FS, db.pebbleDir()) {
		if err := o.FS.Remove(log); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.FS.Rename(flushed[0]+".kept", flushed[0]); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, o)
	if db.manifested.Load() {
		t.Fatal("there was something to flush")
	}
	c := o
	c.Dir, c.CreateIfMissing = o.FS.PathJoin(testDir, "copy"), false
	if _, err := db.Checkpoint(t.Context(), c.Dir); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	db = mustOpen(t, c)
	defer mustClose(t, db)
	if got, err := db.Digest(t.Context()); err != nil || got != want || txidOf(t, db) != 1 {
		t.Errorf("the copy is at txid %d with digest %016x, %v, want %016x", txidOf(t, db), got, err, want)
	}
}

// logsOf lists the write-ahead logs in dir.
func logsOf(t *testing.T, fsys vfs.FS, dir string) (logs []string) {
	t.Helper()
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			logs = append(logs, fsys.PathJoin(dir, name))
		}
	}
	return logs
}

func TestCheckpointWhereSomethingIs(t *testing.T) {
	fs := vfs.NewMem()
	db := mustOpen(t, testOptions(fs))
	defer mustClose(t, db)
	if err := fs.MkdirAll("/there", 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := db.Checkpoint(t.Context(), "/there")
	wantCode(t, err, batch.CodeConfiguration, "/there exists")
}

// TestCheckpointFails: where the copy goes there is no space. The database isn't touched by that, and the part that
// was copied isn't taken for a database.
func TestCheckpointFails(t *testing.T) {
	for n := range 40 {
		left := n
		full := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if !strings.HasPrefix(op.Path, "/copy") || op.Kind.ReadOrWrite() == errorfs.OpIsRead {
				return nil
			}
			if left--; left >= 0 {
				return nil
			}
			return syscall.ENOSPC
		})
		mem := vfs.NewMem()
		db := mustOpen(t, testOptions(errorfs.Wrap(mem, full)))
		mustCommit(t, db, commitOf(1, setOf("s", 4, set("a", "b"))))
		_, err := db.Checkpoint(t.Context(), "/copy")
		if err == nil {
			if n < 10 {
				t.Fatalf("a copy with %d writes", n)
			}
			mustClose(t, db)
			return
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%d writes: %v", n, err)
		}
		o := testOptions(mem)
		o.Dir, o.CreateIfMissing = "/copy", false
		switch c, err := Open(t.Context(), o); {
		case err == nil: // all of it was there
			if txidOf(t, c) != 1 {
				t.Errorf("%d writes: the copy is at txid %d", n, txidOf(t, c))
			}
			mustClose(t, c)
		case !errors.Is(err, ErrNotExist):
			t.Errorf("%d writes: opening the part: %v", n, err)
		}
		mustCommit(t, db, commitOf(2, setOf("s", 4, set("a", "c"))))
		mustClose(t, db)
	}
	t.Error("no copy succeeded")
}

// TestCheckpointDurable: once a checkpoint has been made nothing of it is lost with the machine, although it isn't synced while
// commits wait.
func TestCheckpointDurable(t *testing.T) {
	for _, linked := range []bool{true, false} {
		mem := vfs.NewCrashableMem()
		var fsys vfs.FS = mem
		if !linked { // as on another device
			fsys = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpLink {
					return syscall.EXDEV
				}
				return nil
			}))
		}
		o := testOptions(fsys)
		db := mustOpen(t, o)
		for txid := batch.Txid(1); txid <= 20; txid++ {
			mustCommit(t, db, commitOf(txid, setOf("s", o.Shards, set(fmt.Sprint(txid), strings.Repeat("v", 100)))))
		}
		want, err := db.Digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o.Dir, o.CreateIfMissing = "/copy", false
		if _, err := db.Checkpoint(t.Context(), o.Dir); err != nil {
			t.Fatal(err)
		}
		o.FS = mem.CrashClone(vfs.CrashCloneCfg{})
		mustClose(t, db)
		db = mustOpen(t, o)
		if got, err := db.Digest(t.Context()); err != nil || got != want || txidOf(t, db) != 20 {
			t.Errorf("linked %t: the copy is at txid %d with digest %016x, %v, want %016x", linked, txidOf(t, db), got, err, want)
		}
		mustClose(t, db)
	}
}
