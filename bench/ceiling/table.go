package main

import (
	"bytes"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// table adds up counts and sums by user. Keys lie one behind the other in an arena; slots hold places in entries.
// After reset everything that it has allocated is used again.
type table struct {
	slots   []uint32 // 1 + index into entries; 0: free
	entries []entry
	arena   []byte
	records int64
	// positions are where the partitions stand behind these records.
	positions map[int32]int64
}

type entry struct {
	hash       uint64
	at, length uint32 // of the key, in the arena
	count, sum int64
}

func newTable() *table { return &table{slots: make([]uint32, 1<<14)} }

func (t *table) add(key []byte, n int64) {
	h := xxhash.Sum64(key)
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := t.slots[i]
		if s == 0 {
			t.slots[i] = uint32(len(t.entries)) + 1
			t.entries = append(t.entries, entry{hash: h, at: uint32(len(t.arena)), length: uint32(len(key)), count: 1, sum: n})
			t.arena = append(t.arena, key...)
			if 2*len(t.entries) > len(t.slots) {
				t.grow()
			}
			return
		}
		if e := &t.entries[s-1]; e.hash == h && bytes.Equal(t.key(e), key) {
			e.count++
			e.sum += n
			return
		}
	}
}

func (t *table) key(e *entry) []byte { return t.arena[e.at : e.at+e.length] }

func (t *table) grow() {
	t.slots = make([]uint32, 2*len(t.slots))
	mask := uint64(len(t.slots) - 1)
	for n := range t.entries {
		i := t.entries[n].hash & mask
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = uint32(n) + 1
	}
}

// sort puts the entries in the order of their keys. Nothing may be added behind it before reset.
func (t *table) sort() {
	slices.SortFunc(t.entries, func(a, b entry) int { return bytes.Compare(t.key(&a), t.key(&b)) })
}

func (t *table) reset() {
	clear(t.slots)
	t.entries, t.arena, t.records, t.positions = t.entries[:0], t.arena[:0], 0, nil
}
