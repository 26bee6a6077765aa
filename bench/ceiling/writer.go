package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// Keys of the database: a user's total behind keyPrefix, a partition's position behind positionPrefix.
const (
	keyPrefix      = 'k'
	positionPrefix = 'p'
)

const totalSize = 16 // count and sum

// sums adds totals up, so that nothing needs to be read before it is written.
var sums = &pebble.Merger{
	Name: "bench.sums",
	Merge: func(_, value []byte) (pebble.ValueMerger, error) {
		var s summing
		return &s, s.add(value)
	},
}

type summing struct{ count, sum uint64 }

func (s *summing) add(v []byte) error {
	if len(v) != totalSize {
		return fmt.Errorf("a total has %d bytes, want %d", len(v), totalSize)
	}
	s.count += binary.BigEndian.Uint64(v)
	s.sum += binary.BigEndian.Uint64(v[8:])
	return nil
}

func (s *summing) MergeNewer(v []byte) error { return s.add(v) }
func (s *summing) MergeOlder(v []byte) error { return s.add(v) }
func (s *summing) Finish(bool) ([]byte, io.Closer, error) {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(make([]byte, 0, totalSize), s.count), s.sum), nil, nil
}

// writer writes full tables, each in one synced write with the positions that it comes from.
type writer struct {
	db               *pebble.DB
	records, batches atomic.Int64
}

func (w *writer) writeAll(full <-chan *table, free chan<- *table) error {
	for t := range full {
		if err := w.write(t); err != nil {
			return err
		}
		t.reset()
		free <- t
	}
	return nil
}

func (w *writer) write(t *table) error {
	t.sort()
	b := w.db.NewBatchWithSize(len(t.entries) * 40)
	for i := range t.entries {
		e := &t.entries[i]
		op := b.MergeDeferred(1+int(e.length), totalSize)
		op.Key[0] = keyPrefix
		copy(op.Key[1:], t.key(e))
		binary.BigEndian.PutUint64(op.Value, uint64(e.count))
		binary.BigEndian.PutUint64(op.Value[8:], uint64(e.sum))
		if err := op.Finish(); err != nil {
			return err
		}
	}
	for p, next := range t.positions { // order: each has a key of its own
		key := binary.BigEndian.AppendUint32([]byte{positionPrefix}, uint32(p))
		if err := b.Set(key, binary.BigEndian.AppendUint64(nil, uint64(next)), nil); err != nil {
			return err
		}
	}
	if err := b.Commit(pebble.Sync); err != nil {
		return err
	}
	w.records.Add(t.records)
	w.batches.Add(1)
	return b.Close()
}
