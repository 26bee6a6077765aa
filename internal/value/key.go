package value

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unsafe"

	"github.com/tridentd/tridentd/decimal"
)

// ErrCorrupt is what errors of the decoders wrap.
var ErrCorrupt = errors.New("damaged value")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Tags that begin a value within a key. Their order is the order of the kinds. 0 and 0xff are no tags: 0 ends a
// list, and a string's end relies on nothing beginning with 0xff.
const (
	keyEnd     byte = 0x00
	keyNull    byte = 0x02
	keyFalse   byte = 0x04
	keyTrue    byte = 0x05
	keyIntLow  byte = 0x08 // below the int64s: 16 bytes
	keyInt     byte = 0x09
	keyIntHigh byte = 0x0a // above the int64s: 16 bytes
	keyFloat   byte = 0x10
	keyDecimal byte = 0x18
	keyString  byte = 0x20
	keyJSON    byte = 0x21
	keyBytes   byte = 0x28
	keyTime    byte = 0x30
	keyList    byte = 0x38
)

// Within strings and bytes, 0x00 is written as 0x00 0xff; 0x00 0x01 ends them.
const (
	escape     byte = 0x00
	escapedNul byte = 0xff
	terminator byte = 0x01
)

// Parts of a decimal within a key.
const (
	decNegative byte = 0x40
	decZero     byte = 0x80
	decPositive byte = 0xc0
	decBias          = 0x8000
)

// nanBits stands for every NaN. It is the positive quiet NaN, so that it sorts above +Inf.
const nanBits uint64 = 0x7ff8000000000000

// maxDepth bounds the nesting of lists that decoders follow.
const maxDepth = 1000

// AppendKey appends v so that keys compare, byte by byte, as their values do: null first, then by kind (numbers
// too: an int is never equal to a float here, unlike in Compare), strings by their bytes, -0 equal to 0, NaN
// last among floats. Keys of several columns are written one after the other; no key is a prefix of a longer one
// of the same columns.
func AppendKey(dst []byte, v Value) []byte {
	switch v.kind {
	case Null:
		return append(dst, keyNull)
	case Bool:
		return AppendKeyBool(dst, v.num != 0)
	case Int:
		return AppendKeyInt(dst, int64(v.num))
	case Float:
		return AppendKeyFloat(dst, math.Float64frombits(v.num))
	case Decimal:
		if v.raw {
			return appendKeyWide(dst, v.Decimal())
		}
		return AppendKeyDecimal(dst, v.Decimal())
	case String:
		if v.raw {
			return appendEscaped(append(dst, keyJSON), v.data())
		}
		return appendEscaped(append(dst, keyString), v.data())
	case Bytes:
		return appendEscaped(append(dst, keyBytes), v.data())
	case Time:
		return AppendKeyTime(dst, int64(v.num))
	case List:
		dst = append(dst, keyList)
		for _, e := range v.List() {
			dst = AppendKey(dst, e)
		}
		return append(dst, keyEnd)
	default:
		panic("value: unknown " + v.kind.String())
	}
}

// AppendKeyNull appends null as AppendKey does; so do the following for their kinds.
func AppendKeyNull(dst []byte) []byte { return append(dst, keyNull) }

// AppendKeyBool appends a bool.
func AppendKeyBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, keyTrue)
	}
	return append(dst, keyFalse)
}

// AppendKeyInt appends an int.
func AppendKeyInt(dst []byte, i int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, keyInt), uint64(i)^1<<63)
}

// AppendKeyUint appends an integer that may be beyond int64.
func AppendKeyUint(dst []byte, u uint64) []byte {
	if u <= math.MaxInt64 {
		return AppendKeyInt(dst, int64(u))
	}
	dst = binary.BigEndian.AppendUint64(append(dst, keyIntHigh), 1<<63)
	return binary.BigEndian.AppendUint64(dst, u)
}

// AppendKeyTime appends a timestamp in nanoseconds since 1970.
func AppendKeyTime(dst []byte, nanos int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, keyTime), uint64(nanos)^1<<63)
}

// AppendKeyFloat appends a float. All NaNs are one.
func AppendKeyFloat(dst []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, keyFloat), sortableBits(f))
}

// sortableBits maps floats to integers of the same order.
func sortableBits(f float64) uint64 {
	bits := math.Float64bits(f)
	switch {
	case f == 0:
		bits = 0
	case f != f:
		bits = nanBits
	}
	if bits>>63 != 0 {
		return ^bits
	}
	return bits | 1<<63
}

func fromSortableBits(bits uint64) float64 {
	if bits>>63 != 0 {
		return math.Float64frombits(bits &^ (1 << 63))
	}
	return math.Float64frombits(^bits)
}

// AppendKeyString appends a string given as a string or as bytes.
func AppendKeyString[S ~string | ~[]byte](dst []byte, s S) []byte {
	return appendEscaped(append(dst, keyString), view(s))
}

// AppendKeyBytes appends bytes.
func AppendKeyBytes[S ~string | ~[]byte](dst []byte, s S) []byte {
	return appendEscaped(append(dst, keyBytes), view(s))
}

// view returns the bytes of s for reading, without a copy.
func view[S ~string | ~[]byte](s S) []byte {
	// Strings and slices both begin with a pointer to their bytes.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&s)), len(s))
}

func appendEscaped(dst, s []byte) []byte {
	for {
		i := bytes.IndexByte(s, 0)
		if i < 0 {
			dst = append(dst, s...)
			return append(dst, escape, terminator)
		}
		dst = append(append(dst, s[:i]...), escape, escapedNul)
		s = s[i+1:]
	}
}

// appendKeyWide appends an integer of 128 bits that is no int64.
func appendKeyWide(dst []byte, d decimal.Decimal) []byte {
	biased, ok := biased128(d)
	if !ok {
		panic("value: " + d.String() + " was made as an integer of 128 bits")
	}
	tag := keyIntHigh
	if d.Sign() < 0 {
		tag = keyIntLow
	}
	var b [16]byte
	return append(append(dst, tag), biased.FillBytes(b[:])...)
}

// biased128 returns d + 2^127, which makes the order of signed integers that of unsigned bytes; ok = false if d is
// no signed integer of 128 bits.
func biased128(d decimal.Decimal) (i *big.Int, ok bool) {
	if i, ok = d.BigInt(); !ok {
		return nil, false
	}
	i.Add(i, new(big.Int).Lsh(big.NewInt(1), 127))
	return i, i.Sign() >= 0 && i.BitLen() <= 128
}

// AppendKeyDecimal appends a decimal: its sign, the exponent of 0.ddd * 10^exponent, the digits in pairs, an end. All
// behind the sign is inverted for negative numbers.
func AppendKeyDecimal(dst []byte, d decimal.Decimal) []byte {
	dst = append(dst, keyDecimal)
	if d.IsZero() {
		return append(dst, decZero)
	}
	negative := d.Sign() < 0
	if negative {
		dst = append(dst, decNegative)
	} else {
		dst = append(dst, decPositive)
	}
	var buf [24]byte
	digits := buf[:0]
	if coef, _, ok := d.Small(); ok {
		u := uint64(coef)
		if negative {
			u = -u
		}
		digits = strconv.AppendUint(digits, u, 10)
	} else {
		digits = d.Abs().Coefficient().Append(digits, 10)
	}
	start := len(dst)
	dst = binary.BigEndian.AppendUint16(dst, uint16(decBias+int(d.Exponent())+len(digits)))
	for i := 0; i < len(digits); i += 2 {
		pair := 10 * (digits[i] - '0')
		if i+1 < len(digits) {
			pair += digits[i+1] - '0'
		}
		dst = append(dst, pair+1)
	}
	dst = append(dst, 0)
	if negative {
		for i := start; i < len(dst); i++ {
			dst[i] = ^dst[i]
		}
	}
	return dst
}

// DecodeKey reads the first value of a key and returns what follows it. Strings and bytes are copied.
func DecodeKey(b []byte) (v Value, rest []byte, err error) { return decodeKey(b, 0) }

func decodeKey(b []byte, depth int) (v Value, rest []byte, err error) {
	if len(b) == 0 {
		return Value{}, nil, corrupt("a key ends where a value is due")
	}
	tag, b := b[0], b[1:]
	switch tag {
	case keyNull:
		return Value{}, b, nil
	case keyFalse, keyTrue:
		return BoolOf(tag == keyTrue), b, nil
	case keyInt, keyTime, keyFloat:
		if len(b) < 8 {
			return Value{}, nil, corrupt("a key has %d of 8 bytes", len(b))
		}
		u := binary.BigEndian.Uint64(b)
		switch tag {
		case keyInt:
			return IntOf(int64(u ^ 1<<63)), b[8:], nil
		case keyTime:
			return TimeOf(int64(u ^ 1<<63)), b[8:], nil
		}
		return FloatOf(fromSortableBits(u)), b[8:], nil
	case keyIntLow, keyIntHigh:
		if len(b) < 16 {
			return Value{}, nil, corrupt("a key has %d of 16 bytes", len(b))
		}
		v := WideIntOf(int64(binary.BigEndian.Uint64(b)^1<<63), binary.BigEndian.Uint64(b[8:]))
		return v, b[16:], nil
	case keyDecimal:
		return decodeKeyDecimal(b)
	case keyString, keyJSON, keyBytes:
		s, rest, err := decodeEscaped(b)
		if err != nil {
			return Value{}, nil, err
		}
		v = BytesOf(s)
		if tag != keyBytes {
			v.kind, v.raw = String, tag == keyJSON
		}
		return v, rest, nil
	case keyList:
		if depth == maxDepth {
			return Value{}, nil, corrupt("lists nested deeper than %d", maxDepth)
		}
		var vs []Value
		for {
			if len(b) > 0 && b[0] == keyEnd {
				return ListOf(vs), b[1:], nil
			}
			if v, b, err = decodeKey(b, depth+1); err != nil {
				return Value{}, nil, err
			}
			vs = append(vs, v)
		}
	}
	return Value{}, nil, corrupt("a key holds tag 0x%02x", tag)
}

func decodeEscaped(b []byte) (s, rest []byte, err error) {
	for {
		i := bytes.IndexByte(b, escape)
		if i < 0 || i+1 == len(b) {
			return nil, nil, corrupt("a string in a key has no end")
		}
		s = append(s, b[:i]...)
		switch b[i+1] {
		case terminator:
			return s, b[i+2:], nil
		case escapedNul:
			s = append(s, 0)
		default:
			return nil, nil, corrupt("a string in a key holds the escape 0x%02x", b[i+1])
		}
		b = b[i+2:]
	}
}

func decodeKeyDecimal(b []byte) (v Value, rest []byte, err error) {
	if len(b) == 0 {
		return Value{}, nil, corrupt("a decimal in a key has no sign")
	}
	sign, b := b[0], b[1:]
	var flip byte
	switch sign {
	case decZero:
		return DecimalOf(decimal.Decimal{}), b, nil
	case decNegative:
		flip = 0xff
	case decPositive:
	default:
		return Value{}, nil, corrupt("a decimal in a key has the sign 0x%02x", sign)
	}
	if len(b) < 2 {
		return Value{}, nil, corrupt("a decimal in a key has no exponent")
	}
	exp := int32(b[0]^flip)<<8 + int32(b[1]^flip) - decBias
	end := bytes.IndexByte(b[2:], flip)
	if end < 1 || end > decimal.MaxDigits {
		return Value{}, nil, corrupt("a decimal in a key has no end")
	}
	pairs, rest := b[2:2+end], b[2+end+1:]
	text := make([]byte, 0, 40)
	if flip != 0 {
		text = append(text, '-')
	}
	for _, p := range pairs {
		p = (p ^ flip) - 1
		if p > 99 {
			return Value{}, nil, corrupt("a decimal in a key holds the pair %d", p)
		}
		text = append(text, '0'+p/10, '0'+p%10)
	}
	text = append(text, 'e')
	text = strconv.AppendInt(text, int64(exp)-2*int64(end), 10)
	d, err := decimal.ParseBytes(text)
	if err != nil {
		return Value{}, nil, corrupt("a decimal in a key: %v", err)
	}
	return DecimalOf(d), rest, nil
}
