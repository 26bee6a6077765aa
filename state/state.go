// Package state defines what a pipeline keeps: schemas that describe a state to anyone who reads it, and the
// write sets by which a batch changes it.
//
// A state is a map from encoded keys to encoded values. Its key space is cut into shards by a hash of the key;
// within a shard, writes are ordered by key. Both encodings are defined in internal/value (keys, order
// preserving) and package agg (values, self-describing).
package state

import (
	"context"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/window"
)

// Column is one field of a state's rows.
type Column struct {
	Name string `json:"name"`
	// Type is the name of a value kind: "string", "int", "float", "decimal", "bool", "timestamp", "bytes", "list", "any".
	Type string `json:"type"`
	// Agg names the aggregate that a value column holds ("count", "sum", …); empty for keys.
	Agg string `json:"agg,omitempty"`
}

// Window describes the windows of a windowed state; their start leads the key, as an order-preserving timestamp. Where windows
// overlap (Slide), their end comes next.
type Window struct {
	Size      int64 `json:"size"`            // nanoseconds
	Offset    int64 `json:"offset"`          // nanoseconds from the epoch
	Retention int64 `json:"retention"`       // nanoseconds of batch time after the window closed
	Slide     int64 `json:"slide,omitempty"` // nanoseconds from one start to the next; 0: Size
	// Zone is the time zone whose clocks show the windows' borders, as Europe/Berlin; empty for UTC.
	Zone string `json:"zone,omitempty"`
	// ByBatch tells of windows that go by the time of batches, not of events.
	ByBatch bool `json:"by_batch,omitempty"`
}

// Layout returns where the windows lie. The zone must be known.
func (w *Window) Layout() window.Layout {
	l := window.Layout{Size: w.Size, Slide: w.Slide, Offset: w.Offset}
	if w.Zone != "" {
		var err error
		if l.Zone, err = window.LoadZone(w.Zone); err != nil {
			panic("state: " + err.Error())
		}
	}
	return l
}

// End is where the window with the given start ends, both in nanoseconds since 1970; the greatest int64 where that is later than
// one can tell.
func (w *Window) End(start int64) int64 {
	if w.Zone != "" {
		l := w.Layout()
		return l.End(start)
	}
	if start > math.MaxInt64-w.Size {
		return math.MaxInt64
	}
	return start + w.Size
}

// Columns are those that lead the keys.
func (w *Window) Columns() []Column {
	cols := []Column{{Name: "window_start", Type: "timestamp"}}
	if w.Slide != 0 {
		cols = append(cols, Column{Name: "window_end", Type: "timestamp"})
	}
	return cols
}

// Schema describes one state. It is stored with the state, so that a query needs neither program nor file.
type Schema struct {
	Name string `json:"name"`
	// Kind is "aggregate" (values are agg cells), "rows" (values are encoded rows of Values' columns), or "opaque"
	// (an encoding of its owner's: Values, if there are any, say in which order what is in it).
	Kind   string   `json:"kind"`
	Key    []Column `json:"key"`
	Values []Column `json:"values"`
	Window *Window  `json:"window,omitempty"`
}

// Op is what a Write does.
type Op uint8

const (
	Set    Op = iota // the value is replaced
	Merge            // the value is a delta, merged by agg.Merge
	Delete           // the key is removed
)

// Write is one change. Key and Value are encoded.
type Write struct {
	Op    Op
	Key   []byte
	Value []byte
}

// WriteSet is what one batch does to one state: for each shard the writes in key order, each key at most once.
// It is immutable once it is handed over.
type WriteSet struct {
	State string
	// Shards[i] are the writes of shard i; its length is the pipeline's number of shards.
	Shards [][]Write
	// DropWindows removes all rows of windows (encoded starts), before Shards is applied.
	DropWindows [][]byte
	// Digest is over the logical change.
	Digest uint64
	Writes int64
}

// Reader reads a state at one point: committed, or with the writes of batches in flight on top.
type Reader interface {
	// Get returns the value of key, or ok = false. The value may be used until the next call.
	Get(ctx context.Context, key []byte) (value []byte, ok bool, err error)
}

// ShardOf tells which shard a key belongs to. It is part of the storage format: xxhash64 with seed 0, modulo the
// number of shards.
func ShardOf(key []byte, shards int) int {
	return int(xxhash.Sum64(key) % uint64(shards))
}
