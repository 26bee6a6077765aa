// Package pebblestate keeps a pipeline's states, its ledger and its positions in one Pebble database.
//
// It guarantees that a commit is whole or not there at all: the writes of all states, the ledger entry, the
// positions and the txid are one synced write of Pebble. What a reader or a query sees has been synced before. A
// database that lost something (a file, a part of one) is refused with the file's name; it is never taken for an
// empty or an older one, and nothing in it is changed.
//
// One process at a time works on a database; the lock is the operating system's and ends with the process. Within
// it, DB's methods may be called by many goroutines at once; writes are serialised. After an error that wraps
// ErrUnknownOutcome the handle is done for: close it, open the database again and read the txid.
//
// The byte layout is described in docs/internals/format.md.
package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/state"
)

// DB is an open database.
type DB struct {
	opts   Options
	format format
	fence  *fence
	lock   io.Closer
	pebble *pebble.DB
	floor  *floor // nil if read-only

	// current is what readers see. It is replaced only by what has been synced; nil once the database is closed.
	current  atomic.Pointer[version]
	versions sync.WaitGroup // versions that aren't released yet

	// failure is the first error after which nothing may be written; failed is closed with it.
	failure atomic.Pointer[error]
	failed  chan struct{}

	// writing is held from the first look at what a write builds on until it is published. It guards rec.
	writing sync.Mutex
	rec     record

	// manifested tells that Pebble has begun a MANIFEST since it was opened. It hasn't while it has flushed nothing, which is
	// so after a kill between the flush of old logs and the making of a new one: a checkpoint of Pebble's would then hold
	// an empty one.
	manifested atomic.Bool

	// basing is held while bases are made or removed; taken before writing.
	basing sync.Mutex

	closing  sync.Once
	closeErr error
}

// version is a point that has been synced. It lives until the last reference is released.
type version struct {
	snap   *pebble.Snapshot
	txid   batch.Txid
	states map[string]*table // immutable
	refs   atomic.Int64
}

// table is one state.
type table struct {
	id     uint64
	prefix []byte
	schema state.Schema
	cache  *cache
}

// Pipeline returns the name of the pipeline that the database belongs to.
func (db *DB) Pipeline() string { return db.format.Pipeline }

// Shards returns the number of slices of the key space.
func (db *DB) Shards() int { return db.format.Shards }

// Created tells when the database was made.
func (db *DB) Created() time.Time { return db.format.Created }

// Err returns the failure after which the database can't be written any more, or nil.
func (db *DB) Err() error {
	if err := db.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// fail notes the first failure.
func (db *DB) fail(err error) {
	err = db.failedWrite(err)
	if db.failure.CompareAndSwap(nil, &err) {
		close(db.failed)
	}
}

// writeError is a failure of Pebble's that isn't put down to any cause in particular.
type writeError struct {
	dir string
	err error
}

func (e *writeError) Error() string { return fmt.Sprintf("writing %s: %s", e.dir, e.err) }

func (e *writeError) Unwrap() error { return e.err }

// failedWrite makes an error of one that Pebble met while writing. What it has made before stays as it is.
func (db *DB) failedWrite(err error) error {
	var e *batch.Error
	var w *writeError
	path := db.fence.full.Load()
	switch {
	case errors.As(err, &e):
		return err
	case path != nil:
		return batch.NewError(batch.Permanent, batch.CodeStoreFull, "commit", fmt.Errorf("no space left on the device for %s: %w", *path, err), remedyFull)
	case isFull(err):
		return batch.NewError(batch.Permanent, batch.CodeStoreFull, "commit", err, remedyFull)
	case pebble.IsCorruptionError(err):
		return db.damagedBy("", err)
	case errors.As(err, &w):
		return err
	}
	return &writeError{dir: db.pebbleDir(), err: err}
}

// acquire returns the current version; the caller releases it.
func (db *DB) acquire() (*version, error) {
	for {
		v := db.current.Load()
		if v == nil {
			return nil, ErrClosed
		}
		// A version without references is being closed, and another is current by now.
		if n := v.refs.Load(); n > 0 && v.refs.CompareAndSwap(n, n+1) {
			return v, nil
		}
	}
}

func (db *DB) release(v *version) {
	if v.refs.Add(-1) > 0 {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer db.versions.Done()
		if err := v.snap.Close(); err != nil {
			db.opts.Logger.Warn("closing a snapshot", "error", err)
		}
	}()
	select {
	case <-ended:
	case <-db.failed: // a failure can leave Pebble's locks taken
	}
}

// publish makes what has been synced visible. It fails only if the database has failed.
func (db *DB) publish(txid batch.Txid, states map[string]*table) error {
	taken := make(chan *pebble.Snapshot, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil && db.Err() == nil {
				panic(r)
			}
		}()
		taken <- db.pebble.NewSnapshot() // panics if the failed database is closed meanwhile
	}()
	v := &version{txid: txid, states: states}
	select {
	case v.snap = <-taken:
	case <-db.failed: // a failure can leave Pebble's locks taken
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, db.Err())
	}
	v.refs.Store(1)
	db.versions.Add(1)
	if old := db.current.Swap(v); old != nil {
		db.release(old)
	}
	return nil
}

// Limits of Close.
const (
	drainLimit = 10 * time.Second // for snapshots that are still read
	closeLimit = 5 * time.Second  // for Pebble, after a failure
)

// Close ends the work on the database and gives up its lock. It waits up to ten seconds for open snapshots.
func (db *DB) Close() error {
	db.closing.Do(func() { db.closeErr = db.close() })
	return db.closeErr
}

func (db *DB) close() error {
	db.writing.Lock() // a write under way ends soon even if the database has failed
	defer db.writing.Unlock()
	if db.Err() != nil {
		return db.giveUp()
	}
	if old := db.current.Swap(nil); old != nil {
		db.release(old)
	}
	drained := make(chan struct{})
	go func() {
		db.versions.Wait()
		close(drained)
	}()
	timer := time.NewTimer(drainLimit)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
		err := errors.New("closing the database: a snapshot is still open")
		db.fail(err)
		return also(err, db.giveUp())
	}
	closed := make(chan error, 1)
	go func() { closed <- db.pebble.Close() }()
	select {
	case err := <-closed:
		if db.floor != nil {
			err = errors.Join(err, db.floor.close(err == nil && db.Err() == nil))
		}
		return errors.Join(err, db.unlock())
	case <-db.fence.parked:
		return also(db.Err(), db.giveUp())
	}
}

// giveUp leaves Pebble to itself after a failure: some of its locks may be held for ever, and its memory with them.
// The fence sees to it that it changes nothing any more. REQUIRES: db.writing is held.
func (db *DB) giveUp() error {
	if old := db.current.Swap(nil); old != nil {
		db.release(old)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		defer func() {
			if r := recover(); r != nil {
				db.opts.Logger.Warn("closing the database after a failure", "panic", fmt.Sprint(r))
			}
		}()
		if err := db.pebble.Close(); err != nil {
			db.opts.Logger.Debug("closing the database after a failure", "error", err)
		}
	}()
	timer := time.NewTimer(closeLimit)
	defer timer.Stop()
	select {
	case <-closed:
	case <-db.fence.parked: // Pebble waits for that goroutine
	case <-timer.C:
	}
	db.fence.close()
	var err error
	if db.floor != nil {
		err = db.floor.close(false)
	}
	return errors.Join(err, db.unlock())
}

func (db *DB) unlock() error {
	var err error
	if !db.opts.ReadOnly {
		err = db.disown()
	}
	return errors.Join(err, db.lock.Close())
}

// State returns a reader of a state's committed values, through the cache. The reader may be used by many
// goroutines at once, and what it returns isn't changed any more. A state that no batch has written yet is empty.
func (db *DB) State(name string) (state.Reader, error) {
	if db.current.Load() == nil {
		return nil, ErrClosed
	}
	return &reader{db: db, name: name}, nil
}

type reader struct {
	db   *DB
	name string
}

func (r *reader) Get(_ context.Context, key []byte) ([]byte, bool, error) {
	v, err := r.db.acquire()
	if err != nil {
		return nil, false, err
	}
	defer r.db.release(v)
	t := v.states[r.name]
	if t == nil {
		return nil, false, nil
	}
	shard := state.ShardOf(key, r.db.format.Shards)
	value, found, at := t.cache.get(shard, key)
	if found {
		return value, value != nil, nil
	}
	// The version may be older than what the cache has seen since; it must not be older than at.
	now, err := r.db.acquire()
	if err != nil {
		return nil, false, err
	}
	defer r.db.release(now)
	value, ok, err := r.db.get(now, t, shard, key)
	if err != nil {
		return nil, false, err
	}
	t.cache.fill(shard, key, value, at, func() bool { return r.db.current.Load() == now })
	return value, ok, nil
}

// get reads a key of a state; a value that exists is never nil, and is the caller's own.
func (db *DB) get(v *version, t *table, shard int, key []byte) (value []byte, ok bool, err error) {
	var buf [128]byte
	k := append(appendShard(append(buf[:0], t.prefix...), shard), key...)
	b, closer, err := v.snap.Get(k)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, db.failedRead(err)
	}
	value = append(make([]byte, 0, len(b)), b...)
	return value, true, closer.Close()
}
