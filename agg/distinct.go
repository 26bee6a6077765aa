package agg

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/internal/value"
)

// Registers of hyperLogLog.
const (
	hllBits      = 14
	hllRegisters = 1 << hllBits
	hllMaxRank   = 64 - hllBits + 1
	hllRankBits  = 6
	// hllDense is the size of all registers, packed.
	hllDense = hllRegisters * hllRankBits / 8
	// hllExact is up to how many values are counted exactly.
	hllExact = 128
	// hllFew is up to how many registers are kept in a sorted list while values are added.
	hllFew = 1024
)

// hyperLogLog counts distinct values by their hashes: exactly up to hllExact, beyond that it estimates. Each hash then
// chooses a register, which keeps the greatest number of leading zeros seen behind the choosing bits. So what is kept
// depends on the set of the values only, and so do the bytes, as the form of the payload depends on what is kept only.
//
// The payload of tagDistinct begins with a byte. 0: uvarint: the number of hashes; the hashes, sorted, 8 bytes each, BE. 1: uvarint:
// the number of registers that aren't 0; uvarints: of each, the distance from the one before (of the first, its number) << 6 |
// its value. 2: all registers, 6 bits each, the lower bits of a byte first. 0 is taken for up to hllExact values, then
// the shorter of the others, 2 if they are of one length. The hash is xxHash64 of the value as a key.
type hyperLogLog struct {
	fault
	hashes  []uint64 // sorted; as long as there are no more than hllExact
	many    bool     // there were more, and the registers are in use
	list    []uint32 // number << 6 | value, sorted; while dense is nil
	dense   []uint8  // by number
	scratch []byte
}

// Add takes x into account, unless it is null.
func (h *hyperLogLog) Add(x, _ value.Value) error {
	if x.IsNull() {
		return nil
	}
	h.scratch = value.AppendKey(h.scratch[:0], x)
	h.add(xxhash.Sum64(h.scratch))
	return nil
}

func (h *hyperLogLog) add(hash uint64) {
	if !h.many {
		i, found := slices.BinarySearch(h.hashes, hash)
		if found {
			return
		}
		if len(h.hashes) < hllExact {
			h.hashes = slices.Insert(h.hashes, i, hash)
			return
		}
		h.spill()
	}
	h.raise(uint32(hash>>(64-hllBits)), uint8(bits.LeadingZeros64(hash<<hllBits|1<<(hllBits-1))+1))
}

// spill goes over to registers.
func (h *hyperLogLog) spill() {
	if h.many {
		return
	}
	hashes := h.hashes
	h.many, h.hashes = true, nil
	for _, hash := range hashes {
		h.add(hash)
	}
}

// raise raises a register to a rank.
func (h *hyperLogLog) raise(number uint32, rank uint8) {
	if h.dense != nil {
		h.dense[number] = max(h.dense[number], rank)
		return
	}
	i, _ := slices.BinarySearch(h.list, number<<hllRankBits)
	switch e := number<<hllRankBits | uint32(rank); {
	case i < len(h.list) && h.list[i]>>hllRankBits == number:
		h.list[i] = max(h.list[i], e)
	case len(h.list) < hllFew:
		h.list = slices.Insert(h.list, i, e)
	default:
		h.spread()
		h.raise(number, rank)
	}
}

// spread goes over to all registers.
func (h *hyperLogLog) spread() {
	if h.dense == nil {
		h.dense = make([]uint8, hllRegisters)
		for _, e := range h.list {
			h.dense[e>>hllRankBits] = uint8(e & (1<<hllRankBits - 1))
		}
		h.list = nil
	}
}

// each calls f with the registers that aren't 0, in order.
func (h *hyperLogLog) each(f func(number uint32, rank uint8)) {
	for _, e := range h.list {
		f(e>>hllRankBits, uint8(e&(1<<hllRankBits-1)))
	}
	for i, r := range h.dense {
		if r != 0 {
			f(uint32(i), r)
		}
	}
}

// Append appends the cell.
func (h *hyperLogLog) Append(dst []byte) []byte { return h.append(append(dst, byte(tagDistinct))) }

func (h *hyperLogLog) append(dst []byte) []byte {
	if !h.many {
		dst = binary.AppendUvarint(append(dst, 0), uint64(len(h.hashes)))
		for _, hash := range h.hashes {
			dst = binary.BigEndian.AppendUint64(dst, hash)
		}
		return dst
	}
	n := uint64(0)
	h.each(func(uint32, uint8) { n++ })
	start := len(dst)
	dst = binary.AppendUvarint(append(dst, 1), n)
	last := uint32(0)
	h.each(func(number uint32, rank uint8) {
		if len(dst)-start <= hllDense {
			dst = binary.AppendUvarint(dst, uint64(number-last)<<hllRankBits|uint64(rank))
			last = number
		}
	})
	if len(dst)-start <= hllDense {
		return dst
	}
	dst = append(dst[:start], 2)
	at := len(dst)
	dst = append(dst, make([]byte, hllDense)...)
	packed := dst[at:]
	h.each(func(number uint32, rank uint8) {
		bit := number * hllRankBits
		packed[bit/8] |= rank << (bit % 8)
		if over := 8 - bit%8; over < hllRankBits {
			packed[bit/8+1] |= rank >> over
		}
	})
	return dst
}

// read takes what a payload holds, besides what h holds already.
func (h *hyperLogLog) read(b []byte) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, errCut
	}
	form, b := b[0], b[1:]
	switch form {
	case 0:
		n, w := binary.Uvarint(b)
		if w <= 0 || n > hllExact || uint64(len(b)-w) < 8*n {
			return nil, errCut
		}
		b = b[w:]
		for range n {
			h.add(binary.BigEndian.Uint64(b))
			b = b[8:]
		}
		return b, nil
	case 1:
		h.spill()
		n, w := binary.Uvarint(b)
		if w <= 0 || n > hllRegisters {
			return nil, errCut
		}
		b = b[w:]
		if n > hllFew {
			h.spread()
		}
		number := uint64(0)
		for i := range n {
			e, w := binary.Uvarint(b)
			if w <= 0 {
				return nil, errCut
			}
			b = b[w:]
			step, rank := e>>hllRankBits, e&(1<<hllRankBits-1)
			number += step
			if step >= hllRegisters || number >= hllRegisters || i > 0 && step == 0 || rank == 0 || rank > hllMaxRank {
				return nil, errRegister
			}
			h.raise(uint32(number), uint8(rank))
		}
		return b, nil
	case 2:
		if len(b) < hllDense {
			return nil, errCut
		}
		h.spill()
		h.spread()
		for i := range h.dense {
			bit := i * hllRankBits
			r := b[bit/8] >> (bit % 8)
			if over := 8 - bit%8; over < hllRankBits {
				r |= b[bit/8+1] << over
			}
			r &= 1<<hllRankBits - 1
			if r > hllMaxRank {
				return nil, errRegister
			}
			h.dense[i] = max(h.dense[i], r)
		}
		return b[hllDense:], nil
	}
	return nil, errRegister
}

var errRegister = fmt.Errorf("a register is out of range")

func mergeDistinct(dst, a, b []byte) (merged, restA, restB []byte, err error) {
	var h hyperLogLog
	if restA, err = h.read(a); err != nil {
		return dst, nil, nil, err
	}
	if restB, err = h.read(b); err != nil {
		return dst, nil, nil, err
	}
	return h.append(dst), restA, restB, nil
}

// estimate returns the number of distinct values, of many by Ertl's improved estimator, which needs no tables of
// corrections and holds up to 2^64. Each operation is rounded by itself, so that all processors give the same.
func (h *hyperLogLog) estimate() int64 {
	if !h.many {
		return int64(len(h.hashes))
	}
	var ranks [hllMaxRank + 1]int
	ranks[0] = hllRegisters
	h.each(func(_ uint32, rank uint8) {
		ranks[rank]++
		ranks[0]--
	})
	const m = float64(hllRegisters)
	z := m * hllTau(1-float64(ranks[hllMaxRank])/m)
	for k := hllMaxRank - 1; k >= 1; k-- {
		z = 0.5 * float64(z+float64(ranks[k]))
	}
	z += float64(m * hllSigma(float64(ranks[0])/m))
	return int64(math.Round(float64(m*m) / (2 * math.Ln2) / z))
}

// hllSigma corrects for registers that are 0.
func hllSigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	y, z := 1.0, x
	for {
		x *= x
		was := z
		z += float64(x * y)
		y += y
		if z == was {
			return z
		}
	}
}

// hllTau corrects for registers that are full.
func hllTau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for {
		x = math.Sqrt(x)
		was := z
		y *= 0.5
		d := 1 - x
		z -= float64(float64(d*d) * y)
		if z == was {
			return z / 3
		}
	}
}

func (h *hyperLogLog) result() value.Value { return value.IntOf(h.estimate()) }

func (h *hyperLogLog) detach() {
	h.hashes, h.list, h.dense, h.scratch = slices.Clone(h.hashes), slices.Clone(h.list), slices.Clone(h.dense), nil
}

// Distinct counts distinct values that aren't null: up to 128 exactly, more of them with a standard error of 0.81 %, so
// that 19 of 20 estimates are less than 1.6 % off.
type Distinct[V any] struct {
	h    hyperLogLog
	row  *value.Row[V]
	cell []byte
}

// Add takes v into account.
func (d *Distinct[V]) Add(v V) {
	var err error
	if d.row == nil {
		if d.row, err = codecOf[V](); err != nil {
			d.h.fail(err)
			return
		}
	}
	if d.cell, err = d.row.Encode(d.cell[:0], v); err != nil {
		d.h.fail(err)
		return
	}
	x, _, err := value.ViewBinary(d.cell)
	if err != nil {
		panic("agg: an encoded value can't be read: " + err.Error())
	}
	d.h.keep(d.h.Add(x, value.NullValue()))
}

// Value returns the estimate.
func (d Distinct[V]) Value() int64 { return d.h.estimate() }

// String returns the estimate.
func (d Distinct[V]) String() string { return d.h.result().String() }

func (d *Distinct[V]) describe() (fn, typ string, err error) {
	_, _, err = describeCell[V]("distinct")
	return "distinct", "int", err
}
func (d *Distinct[V]) at(p unsafe.Pointer) accumulator { return (*Distinct[V])(p) }
func (d *Distinct[V]) append(dst []byte) []byte        { return d.h.Append(dst) }
func (d *Distinct[V]) status() uintptr {
	return unsafe.Offsetof(d.h) + unsafe.Offsetof(d.h.fault) + unsafe.Offsetof(d.h.fault.bad)
}
func (d *Distinct[V]) failure() error { return d.h.failure() }
func (d *Distinct[V]) detach() {
	d.h.detach()
	d.cell = nil
}

func (d *Distinct[V]) load(cells []byte) ([]byte, error) {
	b, err := open(cells, tagDistinct)
	if err != nil {
		return nil, err
	}
	return d.h.read(b)
}
