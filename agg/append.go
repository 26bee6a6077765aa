package agg

import (
	"encoding/binary"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
)

// The functions of this file append one cell each. They are for combiners that keep their sums in columns of their
// own: n is always the number of values that weren't null, and 0 where there was none; sums are 0 then.

// AppendCount appends a count of records.
func AppendCount(dst []byte, n int64) []byte {
	return binary.AppendVarint(append(dst, byte(tagCount)), n)
}

// AppendSumInt appends the sum hi<<64 | lo (an Int128's fields) of n integers.
func AppendSumInt(dst []byte, hi int64, lo uint64, n int64) []byte {
	return intSum{n, Int128{hi, lo}}.append(append(dst, byte(tagSumInt)))
}

// AppendSumFloat appends the sum of n floats, added up one after the other.
func AppendSumFloat(dst []byte, sum float64, n int64) []byte {
	return floatSum{n, sum}.append(append(dst, byte(tagSumFloat)))
}

// AppendSumDecimal appends the sum of n decimals.
func AppendSumDecimal(dst []byte, sum decimal.Decimal, n int64) []byte {
	return decimalSum{n, sum}.append(append(dst, byte(tagSumDecimal)))
}

// AppendSumNumber appends a sum of numbers of mixed kinds.
func AppendSumNumber(dst []byte, s *NumberSum) []byte {
	return s.append(append(dst, byte(tagSumNumber)))
}

// AppendAvgInt appends what the mean of n integers is made of, as AppendSumInt; the following likewise.
func AppendAvgInt(dst []byte, hi int64, lo uint64, n int64) []byte {
	return intSum{n, Int128{hi, lo}}.append(append(dst, byte(tagAvgInt)))
}

// AppendAvgFloat is for the mean of floats.
func AppendAvgFloat(dst []byte, sum float64, n int64) []byte {
	return floatSum{n, sum}.append(append(dst, byte(tagAvgFloat)))
}

// AppendAvgDecimal is for the mean of decimals.
func AppendAvgDecimal(dst []byte, sum decimal.Decimal, n int64) []byte {
	return decimalSum{n, sum}.append(append(dst, byte(tagAvgDecimal)))
}

// AppendAvgNumber is for the mean of numbers of mixed kinds.
func AppendAvgNumber(dst []byte, s *NumberSum) []byte {
	return s.append(append(dst, byte(tagAvgNumber)))
}

// AppendMinMax appends a minimum or a maximum, null if there was no value. Better tells which of two values to keep.
func AppendMinMax(dst []byte, max bool, v value.Value) []byte {
	t := tagMin
	if max {
		t = tagMax
	}
	if v.Kind() == value.Float {
		v = value.FloatOf(canonical(v.Float()))
	}
	return value.AppendBinary(append(dst, byte(t)), v)
}

// Better tells whether v takes the place of the minimum or maximum best, which came before it: nulls never do, and
// equals don't. The order is value.Compare's: NaN is above all numbers, so that it is a maximum and never a
// minimum as long as there is a number.
func Better(max bool, best, v value.Value) bool {
	if max {
		return takesLater(tagMax, best, v)
	}
	return takesLater(tagMin, best, v)
}

// AppendFirst appends a first value that wasn't null, or null.
func AppendFirst(dst []byte, v value.Value) []byte {
	return value.AppendBinary(append(dst, byte(tagFirst)), v)
}

// AppendLast appends a last value that wasn't null, or null.
func AppendLast(dst []byte, v value.Value) []byte {
	return value.AppendBinary(append(dst, byte(tagLast)), v)
}

// AppendCollect appends the values that weren't null, in their order.
func AppendCollect(dst []byte, vs []value.Value) []byte {
	dst = binary.AppendUvarint(append(dst, byte(tagCollect)), uint64(len(vs)))
	for _, v := range vs {
		dst = value.AppendBinary(dst, v)
	}
	return dst
}
