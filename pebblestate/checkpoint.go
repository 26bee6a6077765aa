package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
)

// Checkpoint makes a database of its own in dir, which must not exist, that holds what this one does as of its last
// committed txid: states, ledger and positions. Files that don't change any more are hard links where dir lies on the
// same device, so that commits wait for milliseconds, whatever the size; they go on while what memory holds is written out
// before that.
//
// After an error dir may hold a part, which isn't taken for a database, or all of it.
func (db *DB) Checkpoint(ctx context.Context, dir string) (batch.Txid, error) {
	o := &db.opts
	if err := ctx.Err(); err != nil {
		return 0, context.Cause(ctx)
	}
	if _, err := db.Identity(ctx); err != nil { // which the copy is to carry
		return 0, err
	}
	switch _, err := o.FS.Stat(dir); {
	case err == nil:
		return 0, batch.NewError(batch.Permanent, batch.CodeConfiguration, "checkpoint", fmt.Errorf("%s exists", dir), "name a directory that doesn't")
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	if err := makeDir(o.FS, dir); err != nil {
		return 0, err
	}
	if err := writeFile(o.FS, dir, creatingName, nil); err != nil {
		return 0, err
	}
	// The logs are copied while commits wait: of what is in tables there are none.
	if err := db.background(func() error { return db.pebble.Flush() }); err != nil {
		return 0, err
	}
	txid, err := db.checkpoint(o.FS.PathJoin(dir, dbName))
	if err != nil {
		return 0, err
	}
	mark := floorMark{txid: txid, phase: working} // the logs are copies that end where the original was written
	if err := writeFile(o.FS, dir, floorName, mark.encode()); err != nil {
		return 0, err
	}
	if err := writeFile(o.FS, dir, formatName, db.format.encode()); err != nil {
		return 0, err
	}
	if err := o.FS.Remove(o.FS.PathJoin(dir, creatingName)); err != nil {
		return 0, err
	}
	return txid, syncDir(o.FS, dir)
}

// checkpoint has commits wait only while files are linked and the little that is left in the logs is copied: what was copied is
// synced behind that, before the copy is marked as a database.
func (db *DB) checkpoint(dir string) (batch.Txid, error) {
	txid, held, err := db.copyLocked(dir)
	if err != nil {
		return 0, err
	}
	db.opts.Logger.Debug("checkpoint", "txid", uint64(txid), "commits_waited", held)
	return txid, db.orFailed(func() error { return syncCopy(db.opts.FS, dir) })
}

// copyLocked makes the copy while commits wait, and returns for how long.
func (db *DB) copyLocked(dir string) (txid batch.Txid, held time.Duration, err error) {
	db.writing.Lock()
	defer db.writing.Unlock()
	began := time.Now()
	if err := db.Err(); err != nil {
		return 0, 0, err
	}
	v, err := db.acquire()
	if err != nil {
		return 0, 0, err
	}
	defer db.release(v)
	fence := db.fence
	err = db.orFailed(func() error {
		if !db.manifested.Load() {
			if err := db.pebble.Flush(); err != nil {
				return err
			}
		}
		fence.copying.Store(&dir)
		defer fence.copying.Store(nil)
		return copyPebble(db.pebble, dir)
	})
	return v.txid, time.Since(began), err
}

// syncCopy makes a copy durable: its files, then the names of them and its own.
func syncCopy(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		f, err := fsys.Open(fsys.PathJoin(dir, name))
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return errors.Join(syncDir(fsys, dir), syncDir(fsys, fsys.PathDir(dir)))
}

// copyPebble makes a checkpoint of Pebble's. All that has been published is in the log files already, so that they needn't be
// synced for it.
func copyPebble(p *pebble.DB, dir string) (err error) {
	// Pebble panics if it can't write the copy's markers; it holds nothing then that a deferred call doesn't give back.
	defer func() {
		if r := recover(); r != nil {
			failed, ok := r.(error)
			if !ok || !errors.Is(failed, syscall.ENOSPC) && !errors.Is(failed, syscall.EDQUOT) && !errors.Is(failed, syscall.EIO) && !errors.Is(failed, fs.ErrPermission) {
				panic(r)
			}
			err = failed
		}
	}()
	return p.Checkpoint(dir)
}
