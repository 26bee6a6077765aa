package spec

import (
	"bytes"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// groupTable numbers the distinct keys of a batch in the order in which they come: 0, 1, 2, …. It is a hash table
// with open addressing over one arena of key bytes; once grown, a batch of the same size allocates nothing.
type groupTable struct {
	// buckets hold the upper half of a key's hash and, below it, its number plus one; 0 is empty.
	buckets []uint64
	keys    []byte
	ends    []int // of each key in keys
}

// Low half of a bucket.
const numberBits = 32

func (t *groupTable) reset() {
	clear(t.buckets)
	t.keys, t.ends = t.keys[:0], t.ends[:0]
}

func (t *groupTable) len() int { return len(t.ends) }

func (t *groupTable) key(n int) []byte {
	start := 0
	if n > 0 {
		start = t.ends[n-1]
	}
	return t.keys[start:t.ends[n]]
}

// number returns the key's number, a new one if it hasn't come before.
func (t *groupTable) number(key []byte) int32 {
	if 2*len(t.ends) >= len(t.buckets) {
		t.grow()
	}
	h := xxhash.Sum64(key)
	mask := uint64(len(t.buckets) - 1)
	tag := h >> numberBits << numberBits
	for i := h & mask; ; i = (i + 1) & mask {
		b := t.buckets[i]
		if b == 0 {
			t.keys = append(t.keys, key...)
			t.ends = append(t.ends, len(t.keys))
			t.buckets[i] = tag | uint64(len(t.ends))
			return int32(len(t.ends) - 1)
		}
		if b>>numberBits<<numberBits == tag {
			if n := int(uint32(b)) - 1; bytes.Equal(t.key(n), key) {
				return int32(n)
			}
		}
	}
}

func (t *groupTable) grow() {
	t.buckets = make([]uint64, max(256, 1<<bits.Len(uint(4*len(t.ends)))))
	mask := uint64(len(t.buckets) - 1)
	for n := range t.ends {
		h := xxhash.Sum64(t.key(n))
		i := h & mask
		for t.buckets[i] != 0 {
			i = (i + 1) & mask
		}
		t.buckets[i] = h>>numberBits<<numberBits | uint64(n+1)
	}
}
