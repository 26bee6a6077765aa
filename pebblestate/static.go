package pebblestate

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/enc"
)

// StaticTable is one content of a static table, as it was read when a pipeline started.
type StaticTable struct {
	Name    string
	Version uint64 // 1, 2, …: rises with each change of the content
	Digest  uint64
	Parts   []StaticPart
}

// StaticPart is the content of one partition of the table's source.
type StaticPart struct {
	Partition batch.Partition
	Fields    []string // column names of a delimited source; nil elsewhere
	Records   []batch.Record
}

// staticChunk bounds the encoded records under one key, in bytes; a larger record has a chunk of its own.
const staticChunk = 256 << 10

func (w *writer) putStatic(t *StaticTable) error {
	if err := w.set(staticKey(t.Name, t.Version), appendStatic(nil, t)); err != nil {
		return err
	}
	var buf []byte
	for i := range t.Parts {
		recs := t.Parts[i].Records
		chunk := 0
		for j := range recs {
			buf = appendRecord(buf, &recs[j])
			if len(buf) < staticChunk && j < len(recs)-1 {
				continue
			}
			if err := w.set(staticRowKey(t.Name, t.Version, i, chunk), buf); err != nil {
				return err
			}
			chunk++
			buf = buf[:0]
		}
	}
	return nil
}

// Static returns the content of a static table that the last committed batch used; ok is false if no batch has
// committed one.
func (db *DB) Static(ctx context.Context, name string) (t StaticTable, ok bool, err error) {
	return db.findStatic(ctx, name, func(*StaticTable) bool { return true })
}

// StaticWith returns the newest content of a static table that has the digest: a ledger entry names contents so.
func (db *DB) StaticWith(ctx context.Context, name string, digest uint64) (t StaticTable, ok bool, err error) {
	return db.findStatic(ctx, name, func(t *StaticTable) bool { return t.Digest == digest })
}

// Static returns the content of a static table that the snapshot's last batch used. Its rows are left out if it has the digest
// that is known already, be it nil for none.
func (s *Snapshot) Static(ctx context.Context, name string, known *uint64) (t StaticTable, ok bool, err error) {
	return s.db.findStaticIn(ctx, s.v, name, func(*StaticTable) bool { return true }, known)
}

func (db *DB) findStatic(ctx context.Context, name string, want func(*StaticTable) bool) (t StaticTable, ok bool, err error) {
	v, err := db.acquire()
	if err != nil {
		return t, false, err
	}
	defer db.release(v)
	return db.findStaticIn(ctx, v, name, want, nil)
}

func (db *DB) findStaticIn(ctx context.Context, v *version, name string, want func(*StaticTable) bool, known *uint64) (t StaticTable, ok bool, err error) {
	prefix := staticPrefix(kindStatic, name)
	it, err := v.snap.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: prefix, UpperBound: enc.PrefixEnd(prefix)})
	if err != nil {
		return t, false, db.failedRead(err)
	}
	defer func() { err = db.closed(it, err) }()
	for it.Last(); it.Valid(); it.Prev() {
		t, counts, err := decodeStatic(it.Value())
		if err != nil {
			return t, false, db.garbled("static table "+name, err)
		}
		if !want(&t) {
			continue
		}
		r := enc.NewReader(it.Key()[len(prefix):])
		t.Name, t.Version = name, r.Uint64()
		if err := r.Done(); err != nil {
			return t, false, db.garbled("static table "+name, err)
		}
		if known != nil && *known == t.Digest {
			return t, true, nil
		}
		return t, true, db.readStaticRows(ctx, v, &t, counts)
	}
	return t, false, nil
}

func (db *DB) readStaticRows(ctx context.Context, v *version, t *StaticTable, counts []int) (err error) {
	for i := range t.Parts {
		lower := staticRowKey(t.Name, t.Version, i, 0)
		upper := staticRowKey(t.Name, t.Version, i+1, 0)
		it, err := v.snap.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			return db.failedRead(err)
		}
		recs := []batch.Record(nil)
		for it.First(); it.Valid() && err == nil; it.Next() {
			r := enc.NewReader(append([]byte(nil), it.Value()...)) // the records refer to it
			for len(r.Rest()) > 0 {
				recs = append(recs, readRecord(r))
			}
			err = r.Done()
		}
		if err != nil {
			err = db.garbled("static table "+t.Name, err)
		}
		if err = db.closed(it, err); err != nil {
			return err
		}
		if len(recs) != counts[i] {
			return db.garbled("static table "+t.Name, fmt.Errorf("part %d has %d records of %d", i, len(recs), counts[i]))
		}
		t.Parts[i].Records = recs
	}
	return nil
}
