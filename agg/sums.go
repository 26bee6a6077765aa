package agg

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
)

// meanPlaces is the least number of digits behind the point of a mean of decimals.
const meanPlaces = 16

// intSum is the payload of sums and means of integers. n counts the values; with none the sum is 0.
type intSum struct {
	n   int64
	sum Int128
}

func (s *intSum) merge(o intSum) error {
	n, ok := addCount(s.n, o.n)
	if !ok {
		return errTooMany
	}
	if !s.sum.AddWide(o.sum) {
		return errWide
	}
	s.n = n
	return nil
}

func (s intSum) append(dst []byte) []byte {
	return appendInt128(binary.AppendUvarint(dst, uint64(s.n)), s.sum)
}

func (s intSum) result(mean bool) value.Value {
	switch {
	case s.n == 0:
		return value.NullValue()
	case mean:
		return value.FloatOf(s.sum.divide(s.n))
	}
	return value.WideIntOf(s.sum.Hi, s.sum.Lo)
}

func readIntSum(b []byte) (s intSum, rest []byte, err error) {
	if s.n, b, err = readCount(b); err != nil {
		return s, nil, err
	}
	var w int
	if s.sum, w = readInt128(b); w <= 0 {
		return s, nil, errCut
	}
	return s, b[w:], nil
}

func readCount(b []byte) (n int64, rest []byte, err error) {
	u, w := binary.Uvarint(b)
	if w <= 0 || u > math.MaxInt64 {
		return 0, nil, errCut
	}
	return int64(u), b[w:], nil
}

// floatSum is the payload of sums and means of floats.
type floatSum struct {
	n   int64
	sum float64
}

func (s *floatSum) merge(o floatSum) error {
	n, ok := addCount(s.n, o.n)
	if !ok {
		return errTooMany
	}
	switch {
	case s.n == 0: // nothing plus -0 is -0
		s.sum = o.sum
	case o.n != 0:
		s.sum += o.sum
	}
	s.n = n
	return nil
}

func (s floatSum) append(dst []byte) []byte {
	return appendFloat(binary.AppendUvarint(dst, uint64(s.n)), s.sum)
}

func appendFloat(dst []byte, f float64) []byte {
	if f != f {
		f = math.NaN()
	}
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
}

func (s floatSum) result(mean bool) value.Value {
	switch {
	case s.n == 0:
		return value.NullValue()
	case mean:
		return value.FloatOf(s.sum / float64(s.n))
	}
	return value.FloatOf(s.sum)
}

func readFloatSum(b []byte) (s floatSum, rest []byte, err error) {
	if s.n, b, err = readCount(b); err != nil {
		return s, nil, err
	}
	if len(b) < 8 {
		return s, nil, errCut
	}
	s.sum = math.Float64frombits(binary.LittleEndian.Uint64(b))
	return s, b[8:], nil
}

// maxSumDigits bounds the digits before the decimal point of what a partition's values of one batch add up to. Fewer
// than 10^20 such sums stay within decimal.MaxDigits, so that a store that merges them later can't fail.
const maxSumDigits = decimal.MaxDigits - 20

var errSumDigits = fmt.Errorf("the sum has more than %d digits before the decimal point", maxSumDigits)

// AddDecimal adds d to what a combiner has added up of a partition's values, for AppendSumDecimal and
// AppendAvgDecimal. It fails before the sum is too large for states to go on with.
func AddDecimal(sum, d decimal.Decimal) (decimal.Decimal, error) {
	sum, err := sum.Add(d)
	if err != nil {
		return sum, err
	}
	if _, exp, small := sum.Small(); small && exp <= maxSumDigits-20 {
		return sum, nil // no int64 has 20 digits
	}
	if sum.IntDigits() > maxSumDigits {
		return sum, errSumDigits
	}
	return sum, nil
}

// decimalSum is the payload of sums and means of decimals.
type decimalSum struct {
	n   int64
	sum decimal.Decimal
}

func (s *decimalSum) merge(o decimalSum) error {
	n, ok := addCount(s.n, o.n)
	if !ok {
		return errTooMany
	}
	sum, err := s.sum.Add(o.sum)
	if err != nil {
		return err
	}
	s.n, s.sum = n, sum
	return nil
}

func (s decimalSum) append(dst []byte) []byte {
	return value.AppendBinary(binary.AppendUvarint(dst, uint64(s.n)), value.DecimalOf(s.sum))
}

func (s decimalSum) result(mean bool) (value.Value, error) {
	switch {
	case s.n == 0:
		return value.NullValue(), nil
	case mean:
		q, err := s.sum.Quo(decimal.FromInt(s.n), max(meanPlaces, -s.sum.Exponent()))
		return value.DecimalOf(q), err
	}
	return value.DecimalOf(s.sum), nil
}

func readDecimalSum(b []byte) (s decimalSum, rest []byte, err error) {
	if s.n, b, err = readCount(b); err != nil {
		return s, nil, err
	}
	s.sum, rest, err = readDecimal(b)
	return s, rest, err
}

func readDecimal(b []byte) (d decimal.Decimal, rest []byte, err error) {
	v, rest, err := value.ViewBinary(b)
	switch {
	case err != nil:
		return d, nil, err
	case v.Kind() != value.Decimal:
		return d, nil, fmt.Errorf("it holds a %s, not a decimal", v.Kind())
	}
	return v.Decimal(), rest, nil
}

// NumberSum sums numbers whose kinds are only known when they come: the fields of JSON records without a declared
// type. Integers and decimals are kept exactly and apart from floats, so that as long as no float is among the
// numbers the sum is exact. The zero value is empty.
type NumberSum struct {
	ints     intSum
	floats   floatSum
	decimals decimalSum
}

// AddInt adds an integer.
func (s *NumberSum) AddInt(i int64) error {
	return s.ints.merge(intSum{n: 1, sum: Int128{Hi: i >> 63, Lo: uint64(i)}})
}

// AddFloat adds a float.
func (s *NumberSum) AddFloat(f float64) error { return s.floats.merge(floatSum{n: 1, sum: f}) }

// AddDecimal adds a decimal.
func (s *NumberSum) AddDecimal(d decimal.Decimal) error {
	sum, err := AddDecimal(s.decimals.sum, d)
	if err != nil {
		return err
	}
	s.decimals.n++
	s.decimals.sum = sum
	return nil
}

// Add adds a number of any kind and passes over null. Anything else is an error.
func (s *NumberSum) Add(v value.Value) error {
	switch v.Kind() {
	case value.Null:
		return nil
	case value.Int:
		return s.AddInt(v.Int())
	case value.Float:
		return s.AddFloat(v.Float())
	case value.Decimal:
		return s.AddDecimal(v.Decimal())
	}
	return fmt.Errorf("a %s can't be added up", v.Kind())
}

// Merge adds what o has summed after s.
func (s *NumberSum) Merge(o *NumberSum) error {
	if err := s.ints.merge(o.ints); err != nil {
		return err
	}
	if err := s.floats.merge(o.floats); err != nil {
		return err
	}
	return s.decimals.merge(o.decimals)
}

// Which parts of a NumberSum follow in its payload; parts without values are left out.
const (
	hasInts byte = 1 << iota
	hasFloats
	hasDecimals
)

func (s *NumberSum) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, 0)
	if s.ints.n != 0 {
		dst[at] |= hasInts
		dst = s.ints.append(dst)
	}
	if s.floats.n != 0 {
		dst[at] |= hasFloats
		dst = s.floats.append(dst)
	}
	if s.decimals.n != 0 {
		dst[at] |= hasDecimals
		dst = s.decimals.append(dst)
	}
	return dst
}

func readNumberSum(b []byte) (s NumberSum, rest []byte, err error) {
	if len(b) == 0 || b[0] > hasInts|hasFloats|hasDecimals {
		return s, nil, errCut
	}
	parts, b := b[0], b[1:]
	if parts&hasInts != 0 {
		if s.ints, b, err = readIntSum(b); err != nil {
			return s, nil, err
		}
	}
	if parts&hasFloats != 0 {
		if s.floats, b, err = readFloatSum(b); err != nil {
			return s, nil, err
		}
	}
	if parts&hasDecimals != 0 {
		if s.decimals, b, err = readDecimalSum(b); err != nil {
			return s, nil, err
		}
	}
	return s, b, nil
}

// result is of the widest kind that was added: an integer, a decimal or, as soon as one float is among the numbers,
// a float. Whatever the order of the numbers was, integers, decimals and floats are added up apart first.
func (s *NumberSum) result(mean bool) (value.Value, error) {
	switch {
	case s.floats.n != 0:
		sum, err := s.exact()
		if err != nil {
			return value.NullValue(), err
		}
		f := floatSum{n: s.ints.n + s.decimals.n, sum: sum.Float64()}
		if err := f.merge(s.floats); err != nil {
			return value.NullValue(), err
		}
		return f.result(mean), nil
	case s.decimals.n != 0:
		sum, err := s.exact()
		if err != nil {
			return value.NullValue(), err
		}
		return decimalSum{n: s.ints.n + s.decimals.n, sum: sum}.result(mean)
	}
	return s.ints.result(mean), nil
}

// exact is the sum of the integers and decimals.
func (s *NumberSum) exact() (decimal.Decimal, error) {
	i, err := decimal.FromBig(s.ints.sum.Big(), 0)
	if err != nil {
		return i, err
	}
	return i.Add(s.decimals.sum)
}
