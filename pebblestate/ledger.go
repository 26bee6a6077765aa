package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/enc"
)

// ledgerKinds are the kinds whose keys begin with a txid, and that are trimmed together.
var ledgerKinds = [...]byte{kindLedger, kindChanges}

// Ledger tells which entries the ledger holds: first to last, both 0 if no batch has committed.
func (db *DB) Ledger() (first, last batch.Txid) {
	db.writing.Lock()
	defer db.writing.Unlock()
	if last = db.rec.committed.txid; last == 0 {
		return 0, 0
	}
	return db.rec.trimmed + 1, last
}

// LedgerBytes is how much the entries from a txid on, and the changes kept beside them, take on the disk. What lies in
// memory and log only isn't counted.
func (db *DB) LedgerBytes(from batch.Txid) (total int64, err error) {
	err = db.background(func() error {
		for _, kind := range ledgerKinds {
			n, err := db.pebble.EstimateDiskUsage(txidKey(kind, from), []byte{kind + 1})
			if err != nil {
				return err
			}
			total += int64(n)
		}
		return nil
	})
	return total, err
}

// TrimLedger removes the ledger entries below keepFrom, which may be at most the last committed txid, and the changes kept
// beside them. What is removed can't be replayed or verified any more. The room on the disk comes back later, or by
// CompactLedger.
func (db *DB) TrimLedger(ctx context.Context, keepFrom batch.Txid) error {
	return store{db}.write(ctx, func(w *writer) (func(), error) {
		rec := &db.rec
		if keepFrom > rec.committed.txid {
			return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "trim the ledger",
				fmt.Errorf("txid %d isn't committed, the last one is %d", keepFrom, rec.committed.txid), "")
		}
		if keepFrom <= rec.trimmed+1 {
			return func() {}, nil
		}
		trimmed := keepFrom - 1
		for _, kind := range ledgerKinds {
			if err := w.b.DeleteRange([]byte{kind}, txidKey(kind, keepFrom), nil); err != nil {
				return nil, err
			}
		}
		return func() { rec.trimmed = trimmed }, w.set(keyTrimmed, enc.AppendUvarint(nil, uint64(trimmed)))
	})
}

// CompactLedger gives the room of what has been trimmed back to the file system, but for what a base or a copy still has
// links to. Commits go on meanwhile.
func (db *DB) CompactLedger(ctx context.Context) error {
	db.writing.Lock()
	keepFrom := db.rec.trimmed + 1
	db.writing.Unlock()
	return db.background(func() error {
		for _, kind := range ledgerKinds {
			if err := db.pebble.Compact(ctx, []byte{kind}, txidKey(kind, keepFrom), false); err != nil {
				return err
			}
		}
		return nil
	})
}

// background does something with Pebble that no commit waits for. Pebble panics if it is closed meanwhile, which after a
// failed write happens at any time.
func (db *DB) background(f func() error) error {
	if err := db.Err(); err != nil {
		return err
	}
	if db.current.Load() == nil {
		return ErrClosed
	}
	return db.orFailed(func() (err error) {
		defer func() {
			if r := recover(); r != nil {
				failed, ok := r.(error)
				if !ok || !errors.Is(failed, pebble.ErrClosed) {
					panic(r)
				}
				err = ErrClosed
			}
		}()
		return f()
	})
}

// orFailed calls f, which may wait for ever for what Pebble does in the background: it is left to itself once the database
// has failed.
func (db *DB) orFailed(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-db.failed:
	}
	timer := time.NewTimer(failureGrace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-db.fence.parked:
	case <-timer.C:
	}
	return db.Err()
}
