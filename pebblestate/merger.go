package pebblestate

import (
	"io"

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
			return &valueMerger{merge: f, acc: append([]byte(nil), value...)}, nil
		},
	}
}

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

func (m *valueMerger) Finish(bool) ([]byte, io.Closer, error) { return m.acc, nil, nil }
