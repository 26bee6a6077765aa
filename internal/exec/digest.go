package exec

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/batch"
)

// The primes of xxHash64; digests here are its rounds over 64-bit words, with fixed seeds. They are part of the
// ledger's format (docs/internals/format.md): a change needs a new format version.
const (
	prime1 = 0x9E3779B185EBCA87
	prime2 = 0xC2B2AE3D27D4EB4F
	prime3 = 0x165667B19E3779F9

	seedInput  = 0x7472_6964_656e_7401
	seedChange = 0x7472_6964_656e_7402
	seedChain  = 0x7472_6964_656e_7403
	seedReset  = 0x7472_6964_656e_7404
	seedOutput = 0x7472_6964_656e_7405
)

// digest folds 64-bit words, in order. Two sequences of different length or order differ.
type digest uint64

func (d digest) word(v uint64) digest {
	return digest(bits.RotateLeft64(uint64(d)^v*prime2, 31) * prime1)
}

func (d digest) bytes(b []byte) digest {
	return d.word(xxhash.Sum64(b)).word(uint64(len(b)))
}

func (d digest) text(s string) digest {
	return d.word(xxhash.Sum64String(s)).word(uint64(len(s)))
}

func (d digest) sum() uint64 {
	h := uint64(d)
	h ^= h >> 33
	h *= prime2
	h ^= h >> 29
	h *= prime3
	return h ^ h>>32
}

// null stands for a nil key or value, which is not the empty one.
const null = ^uint64(0)

func (d digest) nullable(b []byte) digest {
	if b == nil {
		return d.word(null)
	}
	return d.word(xxhash.Sum64(b)).word(uint64(len(b)))
}

// input accumulates what was read of one range: offset, timestamp, key, value and headers of each record.
type input struct {
	d digest
	n batch.Input
}

func newInput() input { return input{d: seedInput} }

func (in *input) add(recs []batch.Record) {
	d, n := in.d, in.n.Bytes
	for i := range recs {
		r := &recs[i]
		d = d.word(uint64(r.Offset)).word(uint64(r.Timestamp)).nullable(r.Key).nullable(r.Value)
		n += int64(len(r.Key) + len(r.Value))
		if len(r.Headers) > 0 {
			d = d.word(uint64(len(r.Headers)))
			for _, h := range r.Headers {
				d = d.text(h.Key).nullable(h.Value)
				n += int64(len(h.Value))
			}
		}
	}
	in.d, in.n.Bytes = d, n
	in.n.Records += int64(len(recs))
}

func (in *input) result() batch.Input {
	r := in.n
	r.Digest = in.d.sum()
	return r
}
