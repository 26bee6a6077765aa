package value

import (
	"encoding/binary"
	"math"
	"math/big"

	"github.com/tridentd/tridentd/decimal"
)

// Tags that begin a value in the binary encoding.
const (
	binNull byte = iota
	binFalse
	binTrue
	binInt         // zigzag varint
	binFloat       // 8 bytes, little endian
	binDecimal     // exponent and coefficient, zigzag varints
	binDecimalWide // exponent as zigzag varint, 0 or 1 for negative, length, coefficient's bytes, big endian
	binString      // length, bytes
	binBytes       // length, bytes
	binTime        // zigzag varint, nanoseconds since 1970
	binList        // number, values
	binJSON        // length, bytes
	binInteger     // a decimal follows, made as an integer beyond int64
)

// AppendBinary appends v in a compact form that DecodeBinary reads. Equal values of a kind have equal bytes, apart
// from -0, which stays what it is; NaN is always the same.
func AppendBinary(dst []byte, v Value) []byte {
	switch v.kind {
	case Null:
		return append(dst, binNull)
	case Bool:
		return append(dst, binFalse+byte(v.num))
	case Int:
		return binary.AppendVarint(append(dst, binInt), int64(v.num))
	case Float:
		bits := v.num
		if f := math.Float64frombits(bits); f != f {
			bits = nanBits
		}
		return binary.LittleEndian.AppendUint64(append(dst, binFloat), bits)
	case Decimal:
		if v.raw {
			dst = append(dst, binInteger)
		}
		if v.ptr == nil {
			dst = binary.AppendVarint(append(dst, binDecimal), int64(v.exp))
			return binary.AppendVarint(dst, int64(v.num))
		}
		return appendWideDecimal(dst, v.Decimal())
	case String:
		tag := binString
		if v.raw {
			tag = binJSON
		}
		return append(binary.AppendUvarint(append(dst, tag), v.num), v.data()...)
	case Bytes:
		return append(binary.AppendUvarint(append(dst, binBytes), v.num), v.data()...)
	case Time:
		return binary.AppendVarint(append(dst, binTime), int64(v.num))
	case List:
		dst = binary.AppendUvarint(append(dst, binList), v.num)
		for _, e := range v.List() {
			dst = AppendBinary(dst, e)
		}
		return dst
	default:
		panic("value: unknown " + v.kind.String())
	}
}

func appendWideDecimal(dst []byte, d decimal.Decimal) []byte {
	dst = binary.AppendVarint(append(dst, binDecimalWide), int64(d.Exponent()))
	var negative byte
	if d.Sign() < 0 {
		negative = 1
	}
	coef := d.Coefficient().Bytes()
	dst = binary.AppendUvarint(append(dst, negative), uint64(len(coef)))
	return append(dst, coef...)
}

// DecodeBinary reads one value and returns what follows it. Strings and bytes are copied.
func DecodeBinary(b []byte) (v Value, rest []byte, err error) { return decodeBinary(b, 0, false) }

// ViewBinary is DecodeBinary without copies: strings and bytes of v lie in b, which mustn't change as long as v is
// in use.
func ViewBinary(b []byte) (v Value, rest []byte, err error) { return decodeBinary(b, 0, true) }

func decodeBinary(b []byte, depth int, shared bool) (v Value, rest []byte, err error) {
	if len(b) == 0 {
		return Value{}, nil, corrupt("nothing where a value is due")
	}
	tag, b := b[0], b[1:]
	switch tag {
	case binNull:
		return Value{}, b, nil
	case binFalse, binTrue:
		return BoolOf(tag == binTrue), b, nil
	case binInt, binTime:
		i, b, err := readVarint(b)
		if err != nil {
			return Value{}, nil, err
		}
		if tag == binInt {
			return IntOf(i), b, nil
		}
		return TimeOf(i), b, nil
	case binFloat:
		if len(b) < 8 {
			return Value{}, nil, corrupt("a float has %d of 8 bytes", len(b))
		}
		return FloatOf(math.Float64frombits(binary.LittleEndian.Uint64(b))), b[8:], nil
	case binDecimal, binDecimalWide:
		d, b, err := readDecimal(tag, b)
		if err != nil {
			return Value{}, nil, err
		}
		return DecimalOf(d), b, nil
	case binInteger:
		return readInteger(b)
	case binString, binJSON, binBytes:
		s, b, err := readBytes(b)
		if err != nil {
			return Value{}, nil, err
		}
		if !shared {
			s = append([]byte(nil), s...)
		}
		v = BytesOf(s)
		if tag != binBytes {
			v.kind, v.raw = String, tag == binJSON
		}
		return v, b, nil
	case binList:
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return Value{}, nil, corrupt("a list is cut off")
		}
		if depth == maxDepth {
			return Value{}, nil, corrupt("lists nested deeper than %d", maxDepth)
		}
		b = b[w:]
		// What the count promises is believed only as far as it costs little.
		vs := make([]Value, 0, min(n, 64))
		for range n {
			if v, b, err = decodeBinary(b, depth+1, shared); err != nil {
				return Value{}, nil, err
			}
			vs = append(vs, v)
		}
		return ListOf(vs), b, nil
	}
	return Value{}, nil, corrupt("tag %d", tag)
}

func readVarint(b []byte) (int64, []byte, error) {
	i, w := binary.Varint(b)
	if w <= 0 {
		return 0, nil, corrupt("a number is cut off")
	}
	return i, b[w:], nil
}

func readBytes(b []byte) (s, rest []byte, err error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, corrupt("a string is cut off")
	}
	end := w + int(n)
	return b[w:end], b[end:], nil
}

func readDecimal(tag byte, b []byte) (d decimal.Decimal, rest []byte, err error) {
	exp, b, err := readVarint(b)
	if err != nil {
		return d, nil, err
	}
	if exp < -decimal.MaxDigits || exp > decimal.MaxDigits {
		return d, nil, corrupt("a decimal has the exponent %d", exp)
	}
	if tag == binDecimal {
		coef, b, err := readVarint(b)
		if err != nil {
			return d, nil, err
		}
		if d, err = decimal.New(coef, int32(exp)); err != nil {
			return d, nil, corrupt("a decimal: %v", err)
		}
		return d, b, nil
	}
	if len(b) == 0 || b[0] > 1 {
		return d, nil, corrupt("a decimal has no sign")
	}
	negative := b[0] == 1
	s, rest, err := readBytes(b[1:])
	if err != nil {
		return d, nil, err
	}
	if len(s) > decimal.MaxDigits { // 2,000 digits need 831 bytes
		return d, nil, corrupt("a decimal of %d bytes", len(s))
	}
	coef := new(big.Int).SetBytes(s)
	if negative {
		coef.Neg(coef)
	}
	if d, err = decimal.FromBig(coef, int32(exp)); err != nil {
		return d, nil, corrupt("a decimal: %v", err)
	}
	return d, rest, nil
}

func readInteger(b []byte) (v Value, rest []byte, err error) {
	if len(b) == 0 || b[0] != binDecimal && b[0] != binDecimalWide {
		return Value{}, nil, corrupt("an integer without digits")
	}
	d, rest, err := readDecimal(b[0], b[1:])
	if err != nil {
		return Value{}, nil, err
	}
	if _, ok := biased128(d); !ok {
		return Value{}, nil, corrupt("%s as an integer", d)
	}
	if i, ok := d.Int64(); ok {
		return IntOf(i), rest, nil
	}
	v = DecimalOf(d)
	v.raw = true
	return v, rest, nil
}
