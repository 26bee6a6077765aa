package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tridentd/tridentd/batch"
)

// Checkpoint makes a database of its own in dir, which must not exist, that holds what this one does as of its last
// committed txid: states, ledger and positions. Files that don't change any more are hard links where dir lies on the
// same device, so it takes milliseconds whatever the size; commits wait for it.
//
// After an error dir may hold a part, which isn't taken for a database, or all of it.
func (db *DB) Checkpoint(ctx context.Context, dir string) (batch.Txid, error) {
	o := &db.opts
	if err := ctx.Err(); err != nil {
		return 0, context.Cause(ctx)
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

func (db *DB) checkpoint(dir string) (batch.Txid, error) {
	db.writing.Lock()
	defer db.writing.Unlock()
	if err := db.Err(); err != nil {
		return 0, err
	}
	v, err := db.acquire()
	if err != nil {
		return 0, err
	}
	defer db.release(v)
	return v.txid, db.orFailed(func() error {
		if !db.manifested.Load() {
			if err := db.pebble.Flush(); err != nil {
				return err
			}
		}
		return copyPebble(db.pebble, dir)
	})
}

// copyPebble makes a checkpoint of Pebble's.
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
	return p.Checkpoint(dir, pebble.WithFlushedWAL())
}
