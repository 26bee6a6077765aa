package plan

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"

	"github.com/tridentd/tridentd/state"
)

// Deltas are the combined changes that one task has for one exchange, grouped by shard after Finish. A key may
// have several deltas; they count in the order in which they were added. Keys and values lie in one arena;
// whoever holds slices of it must not call Reset.
type Deltas struct {
	arena   []byte
	entries []Delta
	sorted  []Delta
	starts  []int32
}

// Delta refers to one key and its delta in the arena of its Deltas.
type Delta struct {
	Prefix   uint64 // the key's first eight bytes, big endian, zero padded: decides most comparisons
	key, val uint32
	keyLen   uint32
	valLen   uint32
	shard    uint32
}

// Reset empties d, for a pipeline with so many shards. The memory is kept.
func (d *Deltas) Reset(shards int) {
	d.arena = d.arena[:0]
	d.entries = d.entries[:0]
	d.sorted = d.sorted[:0]
	if cap(d.starts) < shards+1 {
		d.starts = make([]int32, shards+1)
	}
	d.starts = d.starts[:shards+1]
	clear(d.starts)
}

// Add appends a key with its delta. Both are copied.
func (d *Deltas) Add(key, value []byte) error {
	return d.AddAt(state.ShardOf(key, len(d.starts)-1), key, value)
}

// Shards is the number of shards.
func (d *Deltas) Shards() int { return len(d.starts) - 1 }

// AddAt is Add with the shard chosen by the caller: for exchanges without a state, whose keys no one looks up.
func (d *Deltas) AddAt(shard int, key, value []byte) error {
	off := len(d.arena)
	if off+len(key)+len(value) > math.MaxUint32 {
		return fmt.Errorf("more than 4 GiB of changes in one batch and partition; lower batch.max_records")
	}
	d.arena = append(append(d.arena, key...), value...)
	d.starts[shard+1]++
	d.entries = append(d.entries, Delta{
		Prefix: prefix(key), key: uint32(off), keyLen: uint32(len(key)),
		val: uint32(off + len(key)), valLen: uint32(len(value)), shard: uint32(shard),
	})
	return nil
}

// Finish groups the entries by shard. Nothing may be added afterwards.
func (d *Deltas) Finish() {
	for i := 1; i < len(d.starts); i++ {
		d.starts[i] += d.starts[i-1]
	}
	if cap(d.sorted) < len(d.entries) {
		d.sorted = make([]Delta, len(d.entries), cap(d.entries))
	}
	d.sorted = d.sorted[:len(d.entries)]
	next := make([]int32, len(d.starts)-1)
	copy(next, d.starts)
	for _, e := range d.entries {
		d.sorted[next[e.shard]] = e
		next[e.shard]++
	}
}

// InOrder returns all entries in the order in which they were added.
func (d *Deltas) InOrder() []Delta { return d.entries }

// Len is the number of keys.
func (d *Deltas) Len() int { return len(d.entries) }

// Keys iterates over the keys, shard by shard, in the order in which they were added. A key with several deltas comes several
// times.
func (d *Deltas) Keys() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := range d.sorted {
			if !yield(d.Key(&d.sorted[i])) {
				return
			}
		}
	}
}

// Shard returns the entries of one shard.
func (d *Deltas) Shard(i int) []Delta { return d.sorted[d.starts[i]:d.starts[i+1]] }

// Key returns the key of an entry of d.
func (d *Deltas) Key(e *Delta) []byte { return d.arena[e.key : e.key+e.keyLen : e.key+e.keyLen] }

// Value returns the delta of an entry of d.
func (d *Deltas) Value(e *Delta) []byte { return d.arena[e.val : e.val+e.valLen : e.val+e.valLen] }

// Before tells whether d was added earlier than e to the same Deltas.
func (d *Delta) Before(e *Delta) bool { return d.key < e.key }

func prefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}
