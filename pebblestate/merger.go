package pebblestate

import (
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// mergerName is stored with every table: a database opens only with the merger that it was written with. A change
// of what agg.Merge makes of its operands needs a new name and a new format version.
const mergerName = "tridentd.agg.v1"

// mergeFunc appends to dst the combination of an older and a newer value. It must be associative: Pebble merges
// operands in any grouping, though always in order.
type mergeFunc func(dst, older, newer []byte) ([]byte, error)

func newMerger(f mergeFunc) *pebble.Merger {
	return &pebble.Merger{
		Name: mergerName,
		Merge: func(_, value []byte) (pebble.ValueMerger, error) {
			m, ok := mergers.Get().(*valueMerger)
			if !ok {
				m = &valueMerger{}
			}
			m.merge, m.acc = f, append(m.acc[:0], value...)
			return m, nil
		},
	}
}

// mergers are used again: a compaction needs one for each key that has several operands.
var mergers sync.Pool

// maxKeptMerger bounds what a merger that waits to be used again holds, in bytes.
const maxKeptMerger = 64 << 10

// valueMerger folds operands as they come. acc and spare take turns, as a merge reads the one and writes the other.
type valueMerger struct {
	merge      mergeFunc
	acc, spare []byte
}

func (m *valueMerger) MergeNewer(value []byte) error { return m.fold(m.acc, value) }

func (m *valueMerger) MergeOlder(value []byte) error { return m.fold(value, m.acc) }

func (m *valueMerger) fold(older, newer []byte) error {
	out, err := m.merge(m.spare[:0], older, newer)
	if err != nil {
		return err
	}
	m.acc, m.spare = out, m.acc
	return nil
}

// Finish returns the value, which Pebble uses until it closes the merger.
func (m *valueMerger) Finish(bool) ([]byte, io.Closer, error) { return m.acc, m, nil }

// Close implements io.Closer.
func (m *valueMerger) Close() error {
	if m.merge == nil {
		return nil // closed already: it may belong to somebody else by now
	}
	m.merge = nil
	if cap(m.acc)+cap(m.spare) <= maxKeptMerger {
		mergers.Put(m)
	}
	return nil
}
