package pebblestate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/enc"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// Open opens the database in o.Dir, or creates it where there is none and o.CreateIfMissing says so.
//
// A database in use by another process is refused with batch.CodeStoreInUse, one of another pipeline with
// batch.CodeStoreForeign, a damaged one with batch.CodeStoreDamaged; no database at all is ErrNotExist. Where it is
// refused, nothing but the lock's file has been touched.
func Open(ctx context.Context, o Options) (*DB, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	db, err := open(ctx, o)
	if err != nil {
		var e *batch.Error
		if errors.As(err, &e) && errors.Is(error(e), err) && e.Pipeline == "" {
			e.Pipeline = o.Pipeline
		}
		return nil, err
	}
	return db, nil
}

func notExist(o *Options) error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "open", fmt.Errorf("%w in %s", ErrNotExist, o.Dir),
		"run the pipeline first, or name its data directory")
}

func open(ctx context.Context, o Options) (_ *DB, err error) {
	if _, err := o.FS.Stat(o.Dir); errors.Is(err, fs.ErrNotExist) {
		if o.ReadOnly || !o.CreateIfMissing {
			return nil, notExist(&o)
		}
		if err := makeDir(o.FS, o.Dir); err != nil {
			return nil, createError(&o, err)
		}
	} else if err != nil {
		return nil, openError(o.Dir, o.FS, err)
	}
	lock, err := lockDir(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = also(err, lock.Close())
		}
	}()
	exists, err := find(&o)
	if err != nil {
		return nil, err
	}
	if !exists {
		if o.ReadOnly || !o.CreateIfMissing {
			return nil, notExist(&o)
		}
		if err := create(&o); err != nil {
			return nil, createError(&o, err)
		}
	}
	db := &DB{opts: o, lock: lock, failed: make(chan struct{})}
	if err := db.open(ctx); err != nil {
		return nil, err
	}
	return db, nil
}

const (
	lockPatience = 3 * time.Second // for readers, which are soon done
	lockEvery    = 20 * time.Millisecond
)

// lockDir takes the lock that one process at a time holds. A reader, which leaves no owner's file, is waited for.
func lockDir(ctx context.Context, o *Options) (io.Closer, error) {
	if o.Lock != nil {
		return noLock{}, nil
	}
	for deadline := time.Now().Add(cmp.Or(o.patience, lockPatience)); ; {
		lock, err := o.FS.Lock(o.FS.PathJoin(o.Dir, lockName))
		switch {
		case err == nil:
			return lock, nil
		case o.ReadOnly && (errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)):
			return noLock{}, nil // nobody can work there, or it is for others to do so
		case !errors.Is(err, syscall.EAGAIN) && !strings.Contains(err.Error(), "held by current process"):
			return nil, openError(o.Dir, o.FS, err)
		}
		who, owned := "another process, which reads it", false
		var h owner
		if b, rerr := readFile(o.FS, o.FS.PathJoin(o.Dir, ownerName)); rerr == nil && json.Unmarshal(b, &h) == nil {
			who, owned = fmt.Sprintf("process %d on %s, since %s", h.PID, h.Host, h.Started.Format(time.RFC3339)), true
		}
		if owned || !time.Now().Before(deadline) {
			return nil, batch.NewError(batch.Permanent, batch.CodeStoreInUse, "open", fmt.Errorf("%s is in use by %s", o.Dir, who),
				"stop that process first, or ask it")
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockEvery):
		}
	}
}

func writeOwner(o *Options) error {
	b, err := json.Marshal(self())
	if err != nil {
		panic(err) // a number, a string and a time within the calendar
	}
	f, err := o.FS.Create(o.FS.PathJoin(o.Dir, ownerName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Close())
}

// find tells whether there is a database. One that was created whole but misses FORMAT is damaged; what an
// interrupted creation left isn't one.
func find(o *Options) (bool, error) {
	names, err := listDir(o.FS, o.Dir)
	if err != nil {
		return false, openError(o.Dir, o.FS, err)
	}
	if slices.Contains(names, formatName) {
		return true, nil
	}
	if slices.Contains(names, creatingName) {
		return false, nil
	}
	for _, name := range []string{dbName, floorName} {
		if slices.Contains(names, name) {
			return false, damaged(o.FS.PathJoin(o.Dir, formatName), fmt.Errorf("it is missing, although %s is there", name))
		}
	}
	return false, nil
}

// create makes an empty database. CREATING stands until FORMAT is durable, so that a crash in between is told apart
// from a database that lost its FORMAT.
func create(o *Options) error {
	f := format{Format: FormatVersion, Pipeline: o.Pipeline, Shards: o.Shards, Created: time.Now().UTC().Truncate(time.Second)}
	if err := writeFile(o.FS, o.Dir, creatingName, nil); err != nil {
		return err
	}
	dir := o.FS.PathJoin(o.Dir, dbName)
	if err := o.FS.RemoveAll(dir); err != nil {
		return err
	}
	if err := o.FS.RemoveAll(o.FS.PathJoin(o.Dir, floorName)); err != nil {
		return err
	}
	if err := o.FS.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := syncDir(o.FS, o.Dir); err != nil {
		return err
	}
	fence := newFence(o.FS, dir, func(error) {})
	po := o.pebbleOptions(fence, logger{o.Logger, o.Fatal}, nil)
	po.ErrorIfNotExists = false
	p, err := openPebble(dir, po)
	if err != nil {
		return err
	}
	if err := errors.Join(p.Set(keyFormat, f.encode(), pebble.Sync), p.Close()); err != nil {
		return err
	}
	if err := writeFile(o.FS, o.Dir, formatName, f.encode()); err != nil {
		return err
	}
	return o.FS.Remove(o.FS.PathJoin(o.Dir, creatingName))
}

func createError(o *Options, err error) error {
	if isFull(err) || errors.Is(err, fs.ErrPermission) {
		return openError(o.Dir, o.FS, err)
	}
	return fmt.Errorf("creating the database in %s: %w", o.Dir, err)
}

// openPebble opens Pebble's part; a panic over what it found there is an error.
func openPebble(dir string, o *pebble.Options) (p *pebble.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, fmt.Errorf("Pebble panicked: %v", r)
		}
	}()
	return pebble.Open(dir, o)
}

func (db *DB) open(ctx context.Context) error {
	o := &db.opts
	path := o.FS.PathJoin(o.Dir, formatName)
	b, err := readFile(o.FS, path)
	if err != nil {
		return openError(path, o.FS, err)
	}
	if db.format, err = decodeFormat(b); err != nil {
		return damaged(path, err)
	}
	if db.format.Format > FormatVersion {
		return batch.NewError(batch.Permanent, batch.CodeStoreForeign, "open",
			fmt.Errorf("%s has format version %d, this build knows up to %d", o.Dir, db.format.Format, FormatVersion),
			"use the newer build that wrote it, or a savepoint of the older format")
	}
	if o.Pipeline != "" && db.format.Pipeline != o.Pipeline {
		return batch.NewError(batch.Permanent, batch.CodeStoreForeign, "open",
			fmt.Errorf("%s belongs to pipeline %s, not to %s", o.Dir, db.format.Pipeline, o.Pipeline),
			"name the right data directory, or another one for this pipeline")
	}
	mark, err := readFloor(o.FS, o.Dir)
	if err != nil {
		return openError(o.Dir, o.FS, err)
	}
	files, err := checkFiles(o.FS, db.pebbleDir(), mark)
	if err != nil {
		return err
	}
	// Opened for reading first: were something lost, opening for writing would remove what may still be of use.
	if err := db.openAs(ctx, true, mark, files); err != nil || o.ReadOnly {
		return err
	}
	if err := db.pebble.Close(); err != nil {
		return openError(db.pebbleDir(), o.FS, err)
	}
	if err := writeOwner(o); err != nil {
		return openError(o.Dir, o.FS, err)
	}
	if db.floor, err = openFloor(o.FS, o.Dir, o.Logger, db.rec.committed.txid); err != nil {
		return also(openError(o.Dir, o.FS, err), db.disown())
	}
	if err := db.openAs(ctx, false, mark, files); err != nil {
		return also(also(err, db.floor.close(false)), db.disown())
	}
	err = o.FS.RemoveAll(o.FS.PathJoin(o.Dir, creatingName))
	if err == nil {
		err = db.floor.enter(working, db.rec.committed.txid)
	}
	if err != nil {
		db.release(db.current.Swap(nil))
		return also(also(also(openError(o.Dir, o.FS, err), db.pebble.Close()), db.floor.close(false)), db.disown())
	}
	return nil
}

// openAs opens Pebble, loads what writes build on and checks that nothing is missing.
func (db *DB) openAs(ctx context.Context, readOnly bool, mark floorMark, files manifest) error {
	db.fence = newFence(db.opts.FS, db.pebbleDir(), db.fail)
	po := db.opts.pebbleOptions(db.fence, logger{db.opts.Logger, db.fatal}, db.listener())
	po.ReadOnly = readOnly
	db.manifested.Store(false)
	p, err := db.openOrFail(po)
	if err != nil {
		if files.torn {
			err = fmt.Errorf("%s ends with a broken record: %w", files.path, err)
		}
		return openError(db.pebbleDir(), db.opts.FS, err)
	}
	db.pebble = p
	states, err := db.load()
	if err == nil {
		err = db.check(ctx, mark, files)
	}
	if err != nil {
		return also(err, p.Close())
	}
	if !readOnly || db.opts.ReadOnly {
		db.fence.armed.Store(true)
		return db.publish(db.rec.committed.txid, states)
	}
	return nil
}

// openOrFail opens Pebble. Where its background work fails meanwhile, Pebble would try again for ever; it is left
// to that behind the closed fence.
func (db *DB) openOrFail(po *pebble.Options) (*pebble.DB, error) {
	type result struct {
		p   *pebble.DB
		err error
	}
	done := make(chan result, 1)
	go func() {
		p, err := openPebble(db.pebbleDir(), po)
		done <- result{p, err}
	}()
	select {
	case r := <-done:
		if r.err == nil && db.Err() != nil {
			db.pebble = r.p
			return nil, also(db.Err(), r.p.Close())
		}
		return r.p, r.err
	case <-db.failed:
		db.fence.close()
		return nil, db.Err()
	}
}

func (db *DB) disown() error { return db.opts.FS.Remove(db.opts.FS.PathJoin(db.opts.Dir, ownerName)) }

// fatal is where Pebble's Fatalf ends.
func (db *DB) fatal(err error) {
	if db.fence.down.Load() {
		return // this handle has been given up, and its troubles with it
	}
	db.fail(err)
	db.opts.Fatal(db.failedWrite(err))
}

// load reads the states and the record.
func (db *DB) load() (map[string]*table, error) {
	b, err := db.value(keyFormat)
	if err != nil {
		return nil, err
	}
	if f, err := decodeFormat(b); err != nil || f != db.format {
		return nil, damaged(db.opts.FS.PathJoin(db.opts.Dir, formatName), fmt.Errorf("it holds %+v, the database %q", db.format, b))
	}
	db.rec = record{}
	db.rec.budget.limit = db.opts.CacheBytes
	if b, err = db.value(keyEpoch); err == nil && b != nil {
		r := enc.NewReader(b)
		db.rec.epoch = batch.Epoch(r.Uvarint())
		err = r.Done()
	}
	if err != nil {
		return nil, db.garbled("the epoch", err)
	}
	if b, err = db.value(keyTrimmed); err == nil && b != nil {
		r := enc.NewReader(b)
		db.rec.trimmed = batch.Txid(r.Uvarint())
		err = r.Done()
	}
	if err != nil {
		return nil, db.garbled("the mark of the trimmed ledger", err)
	}
	if b, err = db.value(keyCommitted); err == nil && b != nil {
		db.rec.committed, err = decodeCommitted(b)
	}
	if err != nil {
		return nil, db.garbled("the last txid", err)
	}
	err = db.each(kindRecorded, func(_, value []byte) error {
		e, err := decodeEntry(value)
		if err == nil && e.Txid != db.rec.recordedUpTo()+1 {
			err = fmt.Errorf("txid %d is recorded, %d would be the next", e.Txid, db.rec.recordedUpTo()+1)
		}
		db.rec.recorded = append(db.rec.recorded, e)
		return err
	})
	if err != nil {
		return nil, db.garbled("a recorded batch", err)
	}
	states := map[string]*table{}
	err = db.each(kindState, func(key, value []byte) error {
		id, schema, err := decodeState(value)
		states[string(key[1:])] = &table{
			id: id, prefix: rowPrefix(id), schema: schema, cache: newCache(&db.rec.budget, db.format.Shards),
		}
		return err
	})
	if err != nil {
		return nil, db.garbled("a schema", err)
	}
	return states, nil
}

// value returns a copy of the value of a key; nil if it is absent.
func (db *DB) value(key []byte) ([]byte, error) {
	b, closer, err := db.pebble.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, db.failedRead(err)
	}
	return slices.Clone(b), closer.Close()
}

// each calls f for every key of a kind, in order.
func (db *DB) each(kind byte, f func(key, value []byte) error) error {
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: []byte{kind}, UpperBound: []byte{kind + 1}})
	if err != nil {
		return db.failedRead(err)
	}
	for it.First(); it.Valid() && err == nil; it.Next() {
		err = f(it.Key(), it.Value())
	}
	return db.closed(it, err)
}

// checkedEntries is how far back the ledger is checked for gaps: more entries than the memtables can hold whose
// log could be missing.
const checkedEntries = 1 << 19

// check finds what was lost without Pebble noticing: commits at the end by the floor, commits in between by gaps in
// the ledger.
func (db *DB) check(ctx context.Context, mark floorMark, files manifest) error {
	path := db.opts.FS.PathJoin(db.pebbleDir(), "*.log")
	if files.torn {
		path = files.path
	}
	last := db.rec.committed.txid
	if last < mark.txid {
		return damaged(path, fmt.Errorf("the database ends at txid %d, but txid %d had been committed", last, mark.txid))
	}
	first := max(db.rec.trimmed+1, 1)
	if last >= checkedEntries {
		first = max(first, last-checkedEntries+1)
	}
	it, err := db.pebble.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: txidKey(kindLedger, first), UpperBound: []byte{kindLedger + 1}})
	if err != nil {
		return db.failedRead(err)
	}
	next := first
	for it.First(); it.Valid(); it.Next() {
		txid, err := decodeTxidKey(it.Key())
		if err != nil || txid != next {
			break
		}
		next++
	}
	if err := db.closed(it, nil); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if next != last+1 {
		return damaged(path, fmt.Errorf("the ledger has no entry of txid %d, although %d has committed", next, last))
	}
	if last == 0 {
		return nil
	}
	if b, err := db.value(txidKey(kindLedger, last)); err != nil {
		return err
	} else if e, err := decodeEntry(b); err != nil {
		return db.garbled(fmt.Sprintf("the ledger entry of txid %d", last), err)
	} else if c := db.rec.committed; e.Chain != c.chain || !e.Time.Equal(c.time) {
		return db.garbled("the head of the chain", fmt.Errorf("it is %016x at %s, that of txid %d is %016x at %s", c.chain, c.time, last, e.Chain, e.Time))
	}
	return nil
}

var _ state.Reader = (*reader)(nil)

var _ txstate.Store = store{}
