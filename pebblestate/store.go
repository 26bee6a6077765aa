package pebblestate

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/enc"
	"github.com/tridentd/tridentd/txstate"
)

// record is what writes build on, kept in memory; it never differs from what has been synced.
type record struct {
	epoch     batch.Epoch
	committed committed
	trimmed   batch.Txid      // entries up to here have been trimmed
	recorded  []txstate.Entry // txids committed+1, …
	budget    budget          // of the caches
}

func (r *record) recordedUpTo() batch.Txid { return r.committed.txid + batch.Txid(len(r.recorded)) }

// forget drops the recorded batches that have committed.
func (r *record) forget(upTo batch.Txid) {
	for len(r.recorded) > 0 && r.recorded[0].Txid <= upTo {
		r.recorded = r.recorded[1:]
	}
}

// Store returns the ledger and the positions.
func (db *DB) Store() txstate.Store { return store{db} }

type store struct{ db *DB }

func (s store) Load(ctx context.Context) (snap txstate.Snapshot, err error) {
	db := s.db
	db.writing.Lock() // so that all is of one point
	defer db.writing.Unlock()
	v, err := db.acquire()
	if err != nil {
		return snap, err
	}
	defer db.release(v)
	c := db.rec.committed
	snap = txstate.Snapshot{Txid: c.txid, Epoch: db.rec.epoch, Chain: c.chain, Time: c.time}
	for i := range db.rec.recorded {
		snap.Recorded = append(snap.Recorded, db.rec.recorded[i].Clone())
	}
	it, err := v.snap.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: []byte{kindPosition}, UpperBound: []byte{kindPosition + 1}})
	if err != nil {
		return snap, db.failedRead(err)
	}
	for it.First(); it.Valid() && err == nil; it.Next() {
		var p txstate.SavedPosition
		if p, err = decodePosition(it.Key(), it.Value()); err != nil {
			err = db.garbled(fmt.Sprintf("the position with key %x", it.Key()), err)
		}
		snap.Positions = append(snap.Positions, p)
	}
	return snap, db.closed(it, err)
}

func (s store) Claim(ctx context.Context, epoch batch.Epoch) error {
	return s.write(ctx, func(w *writer) (func(), error) {
		if err := txstate.CheckClaim(s.db.rec.epoch, epoch); err != nil {
			return nil, err
		}
		return func() { s.db.rec.epoch = epoch }, w.set(keyEpoch, enc.AppendUvarint(nil, uint64(epoch)))
	})
}

func (s store) Admit(ctx context.Context, positions []batch.Position) error {
	if len(positions) == 0 {
		return nil
	}
	return s.write(ctx, func(w *writer) (func(), error) {
		for _, p := range positions {
			key := positionKey(p.Partition)
			value, closer, err := s.db.pebble.Get(key)
			if err == nil {
				was, err := decodePosition(key, value)
				if cerr := closer.Close(); err == nil {
					err = cerr
				}
				if err != nil {
					return nil, s.db.garbled(fmt.Sprintf("the position with key %x", key), err)
				}
				return nil, txstate.AlreadyAdmitted(was)
			}
			if err != pebble.ErrNotFound { //nolint:errorlint // Get returns it bare
				return nil, s.db.failedRead(err)
			}
			at := txstate.AdmittedAt(p)
			if err := w.set(key, appendPosition(nil, &at)); err != nil {
				return nil, err
			}
		}
		return func() {}, nil
	})
}

func (s store) Record(ctx context.Context, e txstate.Entry) error {
	return s.write(ctx, func(w *writer) (func(), error) {
		rec := &s.db.rec
		w.txid = e.Txid
		if err := txstate.CheckRecord(rec.epoch, rec.committed.txid, rec.recorded, &e); err != nil {
			return nil, err
		}
		return func() {
			if i := int(e.Txid - rec.committed.txid - 1); i < len(rec.recorded) {
				rec.recorded[i] = e.Clone()
			} else {
				rec.recorded = append(rec.recorded, e.Clone())
			}
		}, w.set(txidKey(kindRecorded, e.Txid), appendEntry(nil, &e))
	})
}

// write syncs what build puts into the writer, then calls what build returned.
func (s store) write(ctx context.Context, build func(w *writer) (done func(), err error)) error {
	db := s.db
	db.writing.Lock()
	defer db.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if db.current.Load() == nil {
		return ErrClosed
	}
	w := db.newWriter(0)
	done, err := build(w)
	if err != nil {
		return err
	}
	if err := db.sync(w.b); err != nil {
		return err
	}
	done()
	return db.publish(db.rec.committed.txid, db.current.Load().states)
}

func (s store) Entries(ctx context.Context, from, to batch.Txid) iter.Seq2[txstate.Entry, error] {
	return func(yield func(txstate.Entry, error) bool) {
		v, err := s.db.acquire()
		if err != nil {
			yield(txstate.Entry{}, err)
			return
		}
		defer s.db.release(v)
		upper := []byte{kindLedger + 1}
		if to != 0 && to+1 != 0 {
			upper = txidKey(kindLedger, to+1)
		}
		lower := txidKey(kindLedger, from)
		if string(lower) >= string(upper) {
			return
		}
		it, err := v.snap.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			yield(txstate.Entry{}, s.db.failedRead(err))
			return
		}
		for it.First(); it.Valid(); it.Next() {
			e, err := decodeEntry(it.Value())
			if err == nil && !bytes.Equal(it.Key(), txidKey(kindLedger, e.Txid)) {
				err = fmt.Errorf("it is that of txid %d", e.Txid)
			}
			if err != nil {
				err = s.db.garbled(fmt.Sprintf("the ledger entry with key %x", it.Key()), err)
			} else {
				err = ctx.Err()
			}
			if !yield(e, err) || err != nil {
				_ = it.Close() // the caller has ended it, or has been given the error
				return
			}
		}
		if err := s.db.closed(it, nil); err != nil {
			yield(txstate.Entry{}, err)
		}
	}
}
