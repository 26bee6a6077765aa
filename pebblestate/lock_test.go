package pebblestate

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
)

// TestReadersShare: several readers of a store at rest don't turn each other away, nor do they the process that is to
// work on it; a process that works on it is named at once.
func TestReadersShare(t *testing.T) {
	o := testOptions(vfs.Default)
	o.Dir, o.patience = filepath.Join(t.TempDir(), "words"), time.Minute
	db := mustOpen(t, o)
	mustCommit(t, db, commitOf(1, setOf("s", o.Shards, set("a", "b"))))
	mustClose(t, db)
	read := o
	read.ReadOnly, read.CreateIfMissing = true, false
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			db, err := Open(t.Context(), read)
			if err != nil {
				t.Error(err)
				return
			}
			if txid := txidOf(t, db); txid != 1 {
				t.Errorf("a reader sees txid %d", txid)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()

	reader := mustOpen(t, read)
	opened := make(chan *DB)
	go func() {
		db, err := Open(t.Context(), o)
		if err != nil {
			t.Error(err)
		}
		opened <- db
	}()
	select {
	case <-opened:
		t.Fatal("opened for writing while somebody reads")
	case <-time.After(5 * lockEvery):
	}
	mustClose(t, reader)
	if db = <-opened; db == nil {
		return
	}
	defer mustClose(t, db)
	read.patience = time.Hour // it isn't waited for
	_, err := Open(t.Context(), read)
	wantCode(t, err, batch.CodeStoreInUse, "process ")
}

// TestReaderMayNotWrite: who may only read a directory can read the store, and who wants to work on it is told what is wrong.
func TestReaderMayNotWrite(t *testing.T) {
	for _, why := range []error{syscall.EACCES, syscall.EROFS} {
		fs := vfs.NewMem()
		o := testOptions(fs)
		mustClose(t, mustOpen(t, o))
		o.FS = deniedLock{fs, why}
		o.CreateIfMissing = false
		_, err := Open(t.Context(), o)
		wantCode(t, err, batch.CodeConfiguration, "give the process access to "+o.Dir)
		o.ReadOnly = true
		mustClose(t, mustOpen(t, o))
	}
}

// deniedLock is a file system on which LOCK can't be opened.
type deniedLock struct {
	vfs.FS
	why error
}

func (d deniedLock) Lock(name string) (io.Closer, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: d.why}
}
