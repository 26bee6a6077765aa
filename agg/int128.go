package agg

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
)

// Int128 is a signed integer of 128 bits, in two's complement: room for 2^64 int64s, so that a sum of records can't
// leave it. The zero value is 0.
type Int128 struct {
	Hi int64
	Lo uint64
}

// Add adds i; false, and no change, if the sum is out of range.
func (s *Int128) Add(i int64) bool { return s.AddWide(Int128{Hi: i >> 63, Lo: uint64(i)}) }

// AddUint is Add of an unsigned integer.
func (s *Int128) AddUint(u uint64) bool { return s.AddWide(Int128{Lo: u}) }

// AddWide is Add of a wide integer.
func (s *Int128) AddWide(o Int128) bool {
	lo, carry := bits.Add64(s.Lo, o.Lo, 0)
	hi := int64(uint64(s.Hi) + uint64(o.Hi) + carry)
	// Only two numbers of one sign can overflow, and then the sum has the other.
	if (s.Hi < 0) == (o.Hi < 0) && (hi < 0) != (s.Hi < 0) {
		return false
	}
	s.Hi, s.Lo = hi, lo
	return true
}

// Int64 returns s as an int64; ok = false if it is out of range.
func (s Int128) Int64() (i int64, ok bool) { return int64(s.Lo), s.Hi == int64(s.Lo)>>63 }

// Big returns s as a big.Int.
func (s Int128) Big() *big.Int {
	b := new(big.Int).Lsh(big.NewInt(s.Hi), 64)
	return b.Or(b, new(big.Int).SetUint64(s.Lo))
}

// Float64 returns the float nearest to s, half to even.
func (s Int128) Float64() float64 {
	if i, ok := s.Int64(); ok {
		return float64(i)
	}
	f, _ := new(big.Float).SetInt(s.Big()).Float64()
	return f
}

// maxExact is the greatest integer up to which floats hold every integer.
const maxExact = 1 << 53

// divide returns the float nearest to s/n, half to even, for n > 0.
func (s Int128) divide(n int64) float64 {
	if i, ok := s.Int64(); ok && i >= -maxExact && i <= maxExact && n <= maxExact {
		return float64(i) / float64(n)
	}
	f, _ := new(big.Rat).SetFrac(s.Big(), big.NewInt(n)).Float64()
	return f
}

// appendInt128 appends s as a zigzag varint of up to 19 bytes: the bytes of binary.AppendVarint where an int64 does.
func appendInt128(dst []byte, s Int128) []byte {
	if i, ok := s.Int64(); ok {
		return binary.AppendVarint(dst, i)
	}
	sign := uint64(s.Hi >> 63)
	hi, lo := (uint64(s.Hi)<<1|s.Lo>>63)^sign, s.Lo<<1^sign
	for hi != 0 || lo >= 0x80 {
		dst = append(dst, byte(lo)|0x80)
		lo = lo>>7 | hi<<57
		hi >>= 7
	}
	return append(dst, byte(lo))
}

// readInt128 reads what appendInt128 wrote; n <= 0 if b doesn't hold it.
func readInt128(b []byte) (s Int128, n int) {
	var hi, lo uint64
	for shift, c := range b {
		if shift == 18 && c > 3 { // 128 bits are 18 groups of seven and two
			return Int128{}, -1
		}
		group := uint64(c & 0x7f)
		switch at := uint(shift) * 7; {
		case at < 64:
			lo |= group << at
			if at > 57 {
				hi |= group >> (64 - at)
			}
		default:
			hi |= group << (at - 64)
		}
		if c < 0x80 {
			sign := -(lo & 1)
			return Int128{Hi: int64(hi>>1 ^ sign), Lo: (lo>>1 | hi<<63) ^ sign}, shift + 1
		}
	}
	return Int128{}, 0
}

// addCount adds two counts of values; false on overflow.
func addCount(a, b int64) (int64, bool) {
	if b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b {
		return 0, false
	}
	return a + b, true
}
