package agg

import (
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"math/bits"
	"unsafe"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
)

// square192 is an unsigned integer of 192 bits, the lowest first: room for 2^63 squares of 64-bit integers.
type square192 [3]uint64

// add adds hi<<64 | lo.
func (s *square192) add(hi, lo uint64) {
	var c uint64
	s[0], c = bits.Add64(s[0], lo, 0)
	s[1], c = bits.Add64(s[1], hi, c)
	s[2] += c
}

func (s *square192) addWide(o square192) bool {
	var c uint64
	s[0], c = bits.Add64(s[0], o[0], 0)
	s[1], c = bits.Add64(s[1], o[1], c)
	s[2], c = bits.Add64(s[2], o[2], c)
	return c == 0
}

func (s square192) big() *big.Int {
	var b [24]byte
	for i, w := range s {
		binary.BigEndian.PutUint64(b[16-8*i:], w)
	}
	return new(big.Int).SetBytes(b[:])
}

// append appends s in groups of seven bits, as a uvarint.
func (s square192) append(dst []byte) []byte {
	for s[1] != 0 || s[2] != 0 || s[0] >= 0x80 {
		dst = append(dst, byte(s[0])|0x80)
		s[0], s[1], s[2] = s[0]>>7|s[1]<<57, s[1]>>7|s[2]<<57, s[2]>>7
	}
	return append(dst, byte(s[0]))
}

func readSquare(b []byte) (s square192, rest []byte, err error) {
	for i, c := range b {
		at, group := 7*i, uint64(c&0x7f)
		if i > 27 || i == 27 && c > 7 { // 192 bits are 27 groups of seven and three
			break
		}
		s[at/64] |= group << (at % 64)
		if at%64 > 57 && at/64 < 2 {
			s[at/64+1] |= group >> (64 - at%64)
		}
		if c < 0x80 {
			return s, b[i+1:], nil
		}
	}
	return s, nil, errCut
}

// intMoments are what the variance of integers is made of, exactly.
type intMoments struct {
	n       int64
	sum     Int128
	squares square192
}

func (m *intMoments) add(i int64) {
	m.n++
	m.sum.Add(i)
	u := uint64(i)
	if i < 0 {
		u = -u
	}
	m.squares.add(bits.Mul64(u, u))
}

func (m *intMoments) addUint(u uint64) {
	m.n++
	m.sum.AddUint(u)
	m.squares.add(bits.Mul64(u, u))
}

func (m *intMoments) merge(o *intMoments) error {
	n, ok := addCount(m.n, o.n)
	if !ok {
		return errTooMany
	}
	if !m.sum.AddWide(o.sum) || !m.squares.addWide(o.squares) {
		return errWide
	}
	m.n = n
	return nil
}

// floatMoments are those of floats: the mean and the sum of the squared distances from it, brought together as Chan,
// Golub and LeVeque do, which doesn't cancel as sums of squares would. Each operation is rounded by itself, so that all
// processors give the same.
type floatMoments struct {
	n        int64
	mean, m2 float64
}

func (m *floatMoments) add(f float64) {
	m.n++
	d := f - m.mean
	m.mean += d / float64(m.n)
	m.m2 += float64(d * (f - m.mean))
}

func (m *floatMoments) merge(o floatMoments) error {
	n, ok := addCount(m.n, o.n)
	switch {
	case !ok:
		return errTooMany
	case o.n == 0:
		return nil
	case m.n == 0:
		*m = o
		return nil
	}
	d, total := o.mean-m.mean, float64(n)
	share := float64(o.n) / total
	m.m2 = float64(m.m2+o.m2) + float64(float64(d*d)*float64(float64(m.n)*share))
	m.mean += float64(d * share)
	m.n = n
	return nil
}

// decimalMoments are those of decimals, exactly.
type decimalMoments struct {
	n            int64
	sum, squares decimal.Decimal
}

func (m *decimalMoments) add(d decimal.Decimal) error {
	square, err := d.Mul(d)
	if err != nil {
		return err
	}
	sum, err := AddDecimal(m.sum, d)
	if err != nil {
		return err
	}
	if square, err = AddDecimal(m.squares, square); err != nil {
		return err
	}
	m.n, m.sum, m.squares = m.n+1, sum, square
	return nil
}

func (m *decimalMoments) merge(o *decimalMoments) error {
	n, ok := addCount(m.n, o.n)
	if !ok {
		return errTooMany
	}
	sum, err := m.sum.Add(o.sum)
	if err != nil {
		return err
	}
	squares, err := m.squares.Add(o.squares)
	if err != nil {
		return err
	}
	m.n, m.sum, m.squares = n, sum, squares
	return nil
}

// moments are what variances and standard deviations are made of, of numbers of any kinds.
//
// The payload is a byte of bits, which parts follow: 1 integers (n, int128, uvarint of up to 192 bits: the sum of the
// squares), 2 floats (n, mean and sum of the squared distances, 8 bytes each, LE), 4 decimals (n, and two values: the sum, the
// sum of the squares).
type moments struct {
	fault
	t        tag
	ints     intMoments
	floats   floatMoments
	decimals decimalMoments
}

// momentsTag is the tag for numbers of a type of column.
func momentsTag(typ string, root bool) tag {
	t := tagVarNumber
	switch typ {
	case "int":
		t = tagVarInt
	case "float":
		t = tagVarFloat
	case "decimal":
		t = tagVarDecimal
	}
	if root {
		t += tagStdInt - tagVarInt
	}
	return t
}

func (m *moments) root() bool { return m.t >= tagStdInt }

// Add takes a number into account, unless it is null.
func (m *moments) Add(x, _ value.Value) error {
	switch x.Kind() {
	case value.Null:
	case value.Int:
		m.ints.add(x.Int())
	case value.Float:
		m.floats.add(x.Float())
	case value.Decimal:
		if i, ok := wideInt(x); ok && i.Hi == 0 { // an unsigned integer
			m.ints.addUint(i.Lo)
			return nil
		}
		return m.decimals.add(x.Decimal())
	default:
		return errNoNumber
	}
	return nil
}

// Append appends the cell.
func (m *moments) Append(dst []byte) []byte { return m.append(append(dst, byte(m.t))) }

func (m *moments) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, 0)
	if m.ints.n != 0 {
		dst[at] |= hasInts
		dst = m.ints.squares.append(appendInt128(binary.AppendUvarint(dst, uint64(m.ints.n)), m.ints.sum))
	}
	if m.floats.n != 0 {
		dst[at] |= hasFloats
		dst = appendFloat(appendFloat(binary.AppendUvarint(dst, uint64(m.floats.n)), m.floats.mean), m.floats.m2)
	}
	if m.decimals.n != 0 {
		dst[at] |= hasDecimals
		dst = value.AppendBinary(binary.AppendUvarint(dst, uint64(m.decimals.n)), value.DecimalOf(m.decimals.sum))
		dst = value.AppendBinary(dst, value.DecimalOf(m.decimals.squares))
	}
	return dst
}

func (m *moments) read(b []byte) (rest []byte, err error) {
	if len(b) == 0 || b[0] > hasInts|hasFloats|hasDecimals {
		return nil, errCut
	}
	parts, b := b[0], b[1:]
	if parts&hasInts != 0 {
		var s intSum
		if s, b, err = readIntSum(b); err != nil {
			return nil, err
		}
		m.ints.n, m.ints.sum = s.n, s.sum
		if m.ints.squares, b, err = readSquare(b); err != nil {
			return nil, err
		}
	}
	if parts&hasFloats != 0 {
		if m.floats.n, b, err = readCount(b); err != nil {
			return nil, err
		}
		if m.floats.mean, b, err = readFloat(b); err != nil {
			return nil, err
		}
		if m.floats.m2, b, err = readFloat(b); err != nil {
			return nil, err
		}
	}
	if parts&hasDecimals != 0 {
		if m.decimals.n, b, err = readCount(b); err != nil {
			return nil, err
		}
		if m.decimals.sum, b, err = readDecimal(b); err != nil {
			return nil, err
		}
		if m.decimals.squares, b, err = readDecimal(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func mergeMoments(dst []byte, a, b []byte) (merged, restA, restB []byte, err error) {
	var x, y moments
	if restA, err = x.read(a); err != nil {
		return dst, nil, nil, err
	}
	if restB, err = y.read(b); err != nil {
		return dst, nil, nil, err
	}
	if err := errors.Join(x.ints.merge(&y.ints), x.floats.merge(y.floats), x.decimals.merge(&y.decimals)); err != nil {
		return dst, nil, nil, err
	}
	return x.append(dst), restA, restB, nil
}

// exact returns the integers' and the decimals' number, sum and sum of squares.
func (m *moments) exact() (n int64, sum, squares *big.Rat, err error) {
	n, ok := addCount(m.ints.n, m.decimals.n)
	if !ok {
		return 0, nil, nil, errTooMany
	}
	sum, squares = new(big.Rat).SetInt(m.ints.sum.Big()), new(big.Rat).SetInt(m.ints.squares.big())
	if m.decimals.n > 0 {
		sum.Add(sum, m.decimals.sum.Rat())
		squares.Add(squares, m.decimals.squares.Rat())
	}
	// result finds out about two numbers and more; what fewer can't have come to would show only once they are merged.
	if n == 0 && (sum.Sign() != 0 || squares.Sign() != 0) || n == 1 && squares.Cmp(new(big.Rat).Mul(sum, sum)) < 0 {
		return 0, nil, nil, errors.New("it is negative")
	}
	return n, sum, squares, nil
}

// result is the variance of a sample, or its root: null of less than two numbers. Without floats the variance is exact
// and rounded once: to the nearest float, of which the root is taken, or, if decimals are among the numbers, to meanPlaces.
func (m *moments) result() (value.Value, error) {
	n, sum, squares, err := m.exact()
	if err != nil {
		return value.NullValue(), err
	}
	if m.floats.n > 0 {
		return m.floatResult(n, sum, squares)
	}
	if n < 2 {
		return value.NullValue(), nil
	}
	// (squares − sum²/n) / (n−1)
	v := new(big.Rat).Sub(squares, new(big.Rat).Mul(sum, new(big.Rat).Quo(sum, new(big.Rat).SetInt64(n))))
	if v.Sign() < 0 {
		return value.NullValue(), errors.New("it is negative")
	}
	v.Quo(v, new(big.Rat).SetInt64(n-1))
	if m.decimals.n > 0 {
		return decimalResult(v, m.root())
	}
	f, _ := v.Float64()
	if m.root() {
		f = math.Sqrt(f)
	}
	return value.FloatOf(f), nil
}

// floatResult brings the exact part to the floats.
func (m *moments) floatResult(n int64, sum, squares *big.Rat) (value.Value, error) {
	all := m.floats
	if n > 0 {
		part := floatMoments{n: n}
		mean := new(big.Rat).Quo(sum, new(big.Rat).SetInt64(n))
		part.mean, _ = mean.Float64()
		part.m2, _ = new(big.Rat).Sub(squares, mean.Mul(mean, sum)).Float64()
		if err := part.merge(all); err != nil {
			return value.NullValue(), err
		}
		all = part
	}
	if all.n < 2 {
		return value.NullValue(), nil
	}
	f := all.m2 / float64(all.n-1)
	if m.root() {
		f = math.Sqrt(f)
	}
	return value.FloatOf(canonical(f)), nil
}

// decimalResult rounds v or its root to meanPlaces, half to even.
func decimalResult(v *big.Rat, root bool) (value.Value, error) {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(meanPlaces), nil)
	num, den := new(big.Int).Mul(v.Num(), scale), new(big.Int).Set(v.Denom())
	var q, r, half *big.Int
	if root {
		// The root of num·scale/den is q and a fraction, which is a half or more if (2q+1)² ≤ 4·num·scale/den.
		num.Mul(num, scale)
		q = new(big.Int).Sqrt(new(big.Int).Quo(num, den))
		odd := new(big.Int).Add(new(big.Int).Lsh(q, 1), big.NewInt(1))
		half, r = new(big.Int).Mul(odd.Mul(odd, odd), den), num.Lsh(num, 2)
	} else {
		q, r = new(big.Int).QuoRem(num, den, new(big.Int))
		half, r = den, r.Lsh(r, 1)
	}
	if c := r.Cmp(half); c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(1))
	}
	d, err := decimal.FromBig(q, -meanPlaces)
	return value.DecimalOf(d), err
}

// momentsOf is moments of numbers of one type.
type momentsOf[N Number] struct{ m moments }

func (o *momentsOf[N]) add(x N) {
	v, err := kindOf[N]().value(unsafe.Pointer(&x))
	if err != nil {
		o.m.fail(err)
		return
	}
	o.m.keep(o.m.Add(v, value.NullValue()))
}

func (o *momentsOf[N]) number(root bool) (x float64, ok bool) {
	o.m.t = momentsTag("", root)
	switch v, err := o.m.result(); {
	case err != nil || v.IsNull():
		return 0, false
	case v.Kind() == value.Decimal:
		return v.Decimal().Float64(), true
	default:
		return v.Float(), true
	}
}

func (o *momentsOf[N]) text(root bool) string {
	o.m.t = momentsTag("", root)
	v, err := o.m.result()
	if err != nil {
		return err.Error()
	}
	return v.String()
}

func (o *momentsOf[N]) append(dst []byte, root bool) []byte {
	o.m.t = momentsTag(numberType(kindOf[N]()), root)
	return o.m.Append(dst)
}

func (o *momentsOf[N]) load(cells []byte, root bool) ([]byte, error) {
	b, err := open(cells, momentsTag(numberType(kindOf[N]()), root))
	if err != nil {
		return nil, err
	}
	return o.m.read(b)
}

func (o *momentsOf[N]) describe(fn string) (string, string, error) {
	typ, err := funcs[fn].Result(numberType(kindOf[N]()))
	return fn, typ, err
}

// Variance is the variance of a sample: the sum of the squared distances from the mean, divided by the number of values
// less one. That of integers and decimals is exact, and rounded once.
type Variance[N Number] struct{ o momentsOf[N] }

// Add takes x into account.
func (v *Variance[N]) Add(x N) { v.o.add(x) }

// Value returns the variance; ok = false if there were less than two numbers. That of decimals has more digits, which
// String shows.
func (v Variance[N]) Value() (variance float64, ok bool) { return v.o.number(false) }

// String returns the variance, "null" if there were less than two numbers.
func (v Variance[N]) String() string { return v.o.text(false) }

func (v *Variance[N]) describe() (fn, typ string, err error) { return v.o.describe("variance") }
func (v *Variance[N]) at(p unsafe.Pointer) accumulator       { return (*Variance[N])(p) }
func (v *Variance[N]) append(dst []byte) []byte              { return v.o.append(dst, false) }
func (v *Variance[N]) status() uintptr {
	return unsafe.Offsetof(v.o) + unsafe.Offsetof(v.o.m) + unsafe.Offsetof(v.o.m.fault) + unsafe.Offsetof(v.o.m.fault.bad)
}
func (v *Variance[N]) failure() error                    { return v.o.m.failure() }
func (v *Variance[N]) detach()                           {}
func (v *Variance[N]) load(cells []byte) ([]byte, error) { return v.o.load(cells, false) }

// StdDev is the standard deviation of a sample: the root of what Variance gives.
type StdDev[N Number] struct{ o momentsOf[N] }

// Add takes x into account.
func (s *StdDev[N]) Add(x N) { s.o.add(x) }

// Value returns the standard deviation; ok = false if there were less than two numbers.
func (s StdDev[N]) Value() (deviation float64, ok bool) { return s.o.number(true) }

// String returns the standard deviation, "null" if there were less than two numbers.
func (s StdDev[N]) String() string { return s.o.text(true) }

func (s *StdDev[N]) describe() (fn, typ string, err error) { return s.o.describe("stddev") }
func (s *StdDev[N]) at(p unsafe.Pointer) accumulator       { return (*StdDev[N])(p) }
func (s *StdDev[N]) append(dst []byte) []byte              { return s.o.append(dst, true) }
func (s *StdDev[N]) status() uintptr {
	return unsafe.Offsetof(s.o) + unsafe.Offsetof(s.o.m) + unsafe.Offsetof(s.o.m.fault) + unsafe.Offsetof(s.o.m.fault.bad)
}
func (s *StdDev[N]) failure() error                    { return s.o.m.failure() }
func (s *StdDev[N]) detach()                           {}
func (s *StdDev[N]) load(cells []byte) ([]byte, error) { return s.o.load(cells, true) }
