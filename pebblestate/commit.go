package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/enc"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// Commit is all that one batch writes.
type Commit struct {
	Entry     txstate.Entry
	Positions []txstate.SavedPosition // of the partitions that moved or joined
	Sets      []*state.WriteSet       // a state's set at most once
	Schemas   []state.Schema          // of states that are new, or whose schema changes
	Statics   []StaticTable           // contents that this batch is the first to use
	// Keep has the sets kept beside the ledger entry as well, for DB.Changes.
	Keep bool
}

// Commit makes consecutive batches durable. What it returns nil for has been synced and is visible; after an error
// that wraps ErrUnknownOutcome the batches, or the first of them, may be found when the database is opened again;
// after any other error nothing has been written.
//
// The batches go into one write, or, where that would exceed Options.MaxBatchBytes, into as few as possible. Commit
// panics if their txids don't follow the last committed one.
func (db *DB) Commit(ctx context.Context, commits []Commit) error {
	db.writing.Lock()
	defer db.writing.Unlock()
	for i := range commits {
		if want := db.rec.committed.txid + batch.Txid(i) + 1; commits[i].Entry.Txid != want {
			panic(fmt.Sprintf("pebblestate: commit of txid %d where %d is due", commits[i].Entry.Txid, want))
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	current := db.current.Load()
	if current == nil {
		return ErrClosed
	}
	var writes []*write
	states := current.states
	for i := range commits {
		w, err := db.buildCommit(&commits[i], states)
		if err != nil {
			return err
		}
		states = w.states
		writes = append(writes, w)
	}
	first := 0 // of the batches that the write at hand holds
	for i := 1; i <= len(writes); i++ {
		if i < len(writes) && int64(writes[first].b.Len()+writes[i].b.Len()) <= db.opts.MaxBatchBytes {
			if err := writes[first].b.Apply(writes[i].b, nil); err != nil {
				return err
			}
			continue
		}
		w := writes[first]
		w.committed, w.states = writes[i-1].committed, writes[i-1].states
		if err := db.commit(w, commits[first:i]); err != nil {
			if first > 0 && !errors.Is(err, ErrUnknownOutcome) {
				err = fmt.Errorf("txids up to %d of this commit have been written: %w: %w", commits[first-1].Entry.Txid, ErrUnknownOutcome, err)
			}
			return err
		}
		first = i
	}
	return nil
}

// write is one write of Pebble in the making, and what the database is after it.
type write struct {
	b         *pebble.Batch
	committed committed
	states    map[string]*table
}

// buildCommit encodes a commit. Nothing of the database changes by it.
func (db *DB) buildCommit(c *Commit, states map[string]*table) (*write, error) {
	e := &c.Entry
	w := db.newWriter(e.Txid)
	states, err := w.putSchemas(c, states)
	if err != nil {
		return nil, err
	}
	last := committed{txid: e.Txid, chain: e.Chain, time: e.Time}
	if err := w.set(keyCommitted, last.append(nil)); err != nil {
		return nil, err
	}
	for i := range c.Positions {
		p := &c.Positions[i]
		if err := w.set(positionKey(p.Partition), appendPosition(nil, p)); err != nil {
			return nil, err
		}
	}
	if err := w.set(txidKey(kindLedger, e.Txid), appendEntry(nil, e)); err != nil {
		return nil, err
	}
	if db.rec.recordedUpTo() >= e.Txid {
		if err := w.delete(txidKey(kindRecorded, e.Txid)); err != nil {
			return nil, err
		}
	}
	for i := range c.Statics {
		if err := w.putStatic(&c.Statics[i]); err != nil {
			return nil, err
		}
	}
	for _, s := range c.Sets {
		if err := w.putSet(states[s.State], s); err != nil {
			return nil, err
		}
	}
	if c.Keep {
		if err := w.putChanges(c.Sets); err != nil {
			return nil, err
		}
	}
	return &write{b: w.b, committed: last, states: states}, nil
}

// writer fills a batch of Pebble up to a limit.
type writer struct {
	b      *pebble.Batch
	txid   batch.Txid
	limit  int64
	shards int
	db     *DB
	key    []byte
}

func (db *DB) newWriter(txid batch.Txid) *writer {
	return &writer{b: db.pebble.NewBatch(), txid: txid, limit: db.opts.MaxBatchBytes, shards: db.format.Shards, db: db}
}

// opBytes is at least what an operation costs in a batch beyond key and value: kind and two lengths.
const opBytes = 11

// room fails if the batch can't take n more bytes.
func (w *writer) room(n int) error {
	if int64(w.b.Len())+int64(n)+opBytes <= w.limit {
		return nil
	}
	err := batch.NewError(batch.Permanent, batch.CodeBatchTooLarge, "commit",
		fmt.Errorf("the batch changes more than the %d bytes that one write of the store may have (MaxBatchBytes)", w.limit),
		"lower batch.max_records or batch.max_bytes, so that a batch changes less")
	err.Txid = w.txid
	err.Pipeline = w.db.format.Pipeline
	return err
}

func (w *writer) set(key, value []byte) error {
	if err := w.room(len(key) + len(value)); err != nil {
		return err
	}
	return w.b.Set(key, value, nil)
}

func (w *writer) delete(key []byte) error {
	if err := w.room(len(key)); err != nil {
		return err
	}
	return w.b.Delete(key, nil)
}

// putSchemas writes new and changed schemas and returns the states with them. A state that is written without a
// schema is kept as opaque.
func (w *writer) putSchemas(c *Commit, states map[string]*table) (map[string]*table, error) {
	copied := false
	put := func(s state.Schema) error {
		if !copied {
			if states = maps.Clone(states); states == nil {
				states = map[string]*table{}
			}
			copied = true
		}
		t := &table{schema: s}
		if old := states[s.Name]; old != nil {
			t.id, t.prefix, t.cache = old.id, old.prefix, old.cache
		} else {
			var err error
			if t.id, err = w.nextStateID(states); err != nil {
				return err
			}
			t.prefix = rowPrefix(t.id)
			t.cache = newCache(&w.db.rec.budget, w.shards)
		}
		states[s.Name] = t
		return w.set(stateKey(s.Name), appendState(nil, t.id, &s))
	}
	for _, s := range c.Schemas {
		if err := put(s); err != nil {
			return nil, err
		}
	}
	for _, s := range c.Sets {
		if states[s.State] == nil {
			if err := put(state.Schema{Name: s.State, Kind: "opaque"}); err != nil {
				return nil, err
			}
		}
	}
	return states, nil
}

// putSet writes what a batch does to one state: dropped windows first, then each shard's writes in key order.
func (w *writer) putSet(t *table, s *state.WriteSet) error {
	if len(s.Shards) != w.shards {
		panic(fmt.Sprintf("pebblestate: a write set of state %s has %d shards, the database %d", s.State, len(s.Shards), w.shards))
	}
	for _, window := range s.DropWindows {
		if len(window) == 0 {
			panic("pebblestate: state " + s.State + ": a window without a start")
		}
		for shard := range w.shards {
			w.key = append(appendShard(append(w.key[:0], t.prefix...), shard), window...)
			end := enc.PrefixEnd(w.key)
			if err := w.room(len(w.key) + len(end)); err != nil {
				return err
			}
			if err := w.b.DeleteRange(w.key, end, nil); err != nil {
				return err
			}
		}
	}
	for shard, writes := range s.Shards {
		if len(writes) == 0 {
			continue
		}
		w.key = appendShard(append(w.key[:0], t.prefix...), shard)
		lead := len(w.key)
		for i := range writes {
			wr := &writes[i]
			n := lead + len(wr.Key)
			if err := w.room(n + len(wr.Value)); err != nil {
				return err
			}
			var op *pebble.DeferredBatchOp
			switch wr.Op {
			case state.Set:
				op = w.b.SetDeferred(n, len(wr.Value))
			case state.Merge:
				op = w.b.MergeDeferred(n, len(wr.Value))
			case state.Delete:
				op = w.b.DeleteDeferred(n)
			default:
				panic(fmt.Sprintf("pebblestate: state %s: operation %d", s.State, wr.Op))
			}
			copy(op.Key, w.key)
			copy(op.Key[lead:], wr.Key)
			copy(op.Value, wr.Value)
			if err := op.Finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

// commit syncs one write that holds commits, then makes it visible. REQUIRES: db.writing is held.
func (db *DB) commit(w *write, commits []Commit) error {
	if err := db.sync(w.b); err != nil {
		return err
	}
	if err := db.floor.write(floorMark{txid: w.committed.txid}); err != nil {
		db.opts.Logger.Warn("writing the floor file", "error", err)
	}
	// The order of these two is what keeps stale values out of the cache.
	if err := db.publish(w.committed.txid, w.states); err != nil {
		return err
	}
	db.rec.committed = w.committed
	db.rec.forget(w.committed.txid)
	db.updateCaches(w.states, commits)
	return nil
}

// updateCaches takes over what commits have written, in txid order.
func (db *DB) updateCaches(states map[string]*table, commits []Commit) {
	for i := range commits {
		for _, set := range commits[i].Sets {
			c := states[set.State].cache
			for shard, writes := range set.Shards {
				if len(writes) == 0 && len(set.DropWindows) == 0 {
					continue
				}
				c.commit(shard, func(s *cacheShard) {
					if len(set.DropWindows) > 0 {
						c.dropPrefixes(s, set.DropWindows)
					}
					for i := range writes {
						switch wr := &writes[i]; wr.Op {
						case state.Set:
							c.put(s, wr.Key, append(make([]byte, 0, len(wr.Value)), wr.Value...))
						case state.Merge:
							c.drop(s, wr.Key)
						case state.Delete:
							c.put(s, wr.Key, nil)
						}
					}
				})
			}
		}
	}
}

// failureGrace is how long a write under way may still end after the database has failed in the background.
const failureGrace = 2 * time.Second

// sync applies a batch of Pebble and returns when it has been synced. It fails before anything is written, or with
// ErrUnknownOutcome. REQUIRES: db.writing is held.
func (db *DB) sync(b *pebble.Batch) error {
	if db.opts.ReadOnly {
		return batch.NewError(batch.Permanent, batch.CodeInternal, "commit", errors.New("the database was opened for reading"), "")
	}
	if db.current.Load() == nil {
		return ErrClosed
	}
	if err := db.Err(); err != nil {
		return err
	}
	if err := db.checkFree(int64(b.Len())); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := errors.New("Pebble ended the write") // stands if Goexit ends it
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("Pebble panicked: %v", r)
			}
			done <- err
		}()
		// Apply would report a failed sync by Fatalf. Visible before it is synced, the write is hidden from
		// readers by the version that they read.
		if err = db.pebble.ApplyNoSyncWait(b, pebble.Sync); err == nil {
			err = b.SyncWait()
		}
	}()
	var err error
	select {
	case err = <-done:
	case <-db.failed:
		// A failed flush can make Pebble wait for memory that never becomes free.
		timer := time.NewTimer(failureGrace)
		defer timer.Stop()
		select {
		case err = <-done:
		case <-db.fence.parked:
			err = db.Err()
		case <-timer.C:
			db.opts.Logger.Warn("a write didn't end after the database had failed")
			err = db.Err()
		}
	}
	if err != nil {
		db.fail(err)
		return unknown(db.failedWrite(err))
	}
	if err := b.Close(); err != nil {
		db.opts.Logger.Warn("closing a batch", "error", err)
	}
	return nil
}

// unknown marks an error: what was to be written may or may not be there.
func unknown(err error) error {
	var e *batch.Error
	if errors.As(err, &e) && errors.Is(error(e), err) {
		c := *e
		c.Err = fmt.Errorf("%w: %w", ErrUnknownOutcome, e.Err)
		return &c
	}
	return batch.NewError(batch.Transient, batch.CodeUnavailable, "commit", fmt.Errorf("%w: %w", ErrUnknownOutcome, err), "")
}

// checkFree fails if a write of n bytes would leave too little room on the device.
func (db *DB) checkFree(n int64) error {
	if db.opts.MinFreeBytes < 0 {
		return nil
	}
	u, err := db.opts.FS.GetDiskUsage(db.opts.Dir)
	if err != nil {
		return nil // not every file system can tell; the write itself will
	}
	if need := uint64(n + db.opts.MinFreeBytes); u.AvailBytes < need {
		return batch.NewError(batch.Permanent, batch.CodeStoreFull, "commit",
			fmt.Errorf("%d bytes are free on the device of %s, a commit needs %d", u.AvailBytes, db.opts.Dir, need), remedyFull)
	}
	return nil
}
