package agg

import (
	"errors"
	"fmt"
	"math"
	"math/big"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// Parts are what a mean is made of.
type Parts struct {
	Sum   value.Value
	Count int64
}

// Shown is what one column of aggregates is known to come to.
type Shown struct {
	Value value.Value
	Parts *Parts // instead of Value, for a mean
}

// errMean and errCustom are why a cell can't be made of what it shows.
var (
	errMean   = errors.New("a mean can't be gone on with from the number that it shows; give what it is made of, {\"sum\": …, \"count\": …}")
	errCustom = errors.New("a user's own aggregate can't be gone on with from what it shows")
)

// Restatable tells whether cells can be made of what they show, given those of a value without records: the error names the
// first that can't be.
func Restatable(zero []byte, cols []state.Column) error {
	for i := 0; len(zero) > 0; i++ {
		t := tag(zero[0])
		if t == tagCustom || t == tagList {
			return fmt.Errorf("aggregate %s: %w", cols[i].Name, errCustom)
		}
		rest, err := skip(t, zero[1:])
		if err != nil {
			return cellError(nil, i, t, err)
		}
		zero = rest
	}
	return nil
}

// Restate appends the cells of a value that shows what is given, one for each column: the state goes on with them as if it had
// seen the records itself. zero are the cells of a value without records, which tell what each is. Where a sum's values were
// many or few doesn't show and doesn't matter.
func Restate(dst, zero []byte, cols []state.Column, shown []Shown) ([]byte, error) {
	if err := Restatable(zero, cols); err != nil {
		return dst, err
	}
	for i := 0; len(zero) > 0; i++ {
		t := tag(zero[0])
		rest, err := skip(t, zero[1:])
		if err != nil {
			return dst, cellError(nil, i, t, err)
		}
		zero = rest
		if dst, err = restate(dst, t, shown[i]); err != nil {
			return dst, fmt.Errorf("aggregate %s: %w", cols[i].Name, err)
		}
	}
	return dst, nil
}

func restate(dst []byte, t tag, s Shown) ([]byte, error) {
	switch t {
	case tagAvgInt, tagAvgFloat, tagAvgDecimal, tagAvgNumber:
		return restateMean(dst, t, s)
	}
	if s.Parts != nil {
		return dst, errors.New("it is no mean, and has no parts")
	}
	v := s.Value
	switch t {
	case tagCount:
		if v.Kind() != value.Int || v.Int() < 0 {
			return dst, fmt.Errorf("%s is no count", v)
		}
		return AppendCount(dst, v.Int()), nil
	case tagSumInt, tagSumFloat, tagSumDecimal, tagSumNumber:
		n := int64(1)
		if v.IsNull() {
			n = 0
		}
		return restateSum(dst, t, v, n)
	case tagMin, tagMax:
		return AppendMinMax(dst, t == tagMax, v), nil
	case tagFirst:
		return AppendFirst(dst, v), nil
	case tagLast:
		return AppendLast(dst, v), nil
	case tagCollect:
		if v.Kind() != value.List {
			return dst, fmt.Errorf("%s is no list", v)
		}
		for _, e := range v.List() {
			if e.IsNull() {
				return dst, errors.New("its list holds a null")
			}
		}
		return AppendCollect(dst, v.List()), nil
	}
	panic("agg: restate: " + t.String())
}

func restateMean(dst []byte, t tag, s Shown) ([]byte, error) {
	switch p := s.Parts; {
	case p == nil && s.Value.IsNull():
		return restateSum(dst, t, value.NullValue(), 0)
	case p == nil:
		return dst, errMean
	case p.Count < 0 || (p.Count == 0) != p.Sum.IsNull():
		return dst, fmt.Errorf("%d values can't add up to %s", p.Count, p.Sum)
	default:
		return restateSum(dst, t, p.Sum, p.Count)
	}
}

// restateSum appends a sum of n values, or the parts of a mean; v is null if there are none.
func restateSum(dst []byte, t tag, v value.Value, n int64) ([]byte, error) {
	var i intSum
	var f floatSum
	var d decimalSum
	wrong := func(what string) ([]byte, error) { return dst, fmt.Errorf("%s is no sum of %s", v, what) }
	// What a kind of sum may hold: integers fit into all.
	switch k := v.Kind(); {
	case n == 0:
	case k == value.Int:
		i = intSum{n, Int128{Hi: v.Int() >> 63, Lo: uint64(v.Int())}}
	case k == value.Decimal:
		d = decimalSum{n, v.Decimal()}
	case k == value.Float:
		f = floatSum{n, v.Float()}
	default:
		return wrong("numbers")
	}
	dst = append(dst, byte(t))
	switch t {
	case tagSumInt, tagAvgInt:
		if d.n > 0 {
			wide, ok := wideInt(v)
			if !ok {
				return wrong("integers")
			}
			i = intSum{n, wide}
		}
		if f.n > 0 {
			return wrong("integers")
		}
		return i.append(dst), nil
	case tagSumFloat, tagAvgFloat:
		switch {
		case i.n > 0:
			f = floatSum{n, float64(v.Int())}
		case d.n > 0:
			return wrong("floats")
		}
		return f.append(dst), nil
	case tagSumDecimal, tagAvgDecimal:
		switch {
		case f.n > 0:
			return wrong("decimals")
		case i.n > 0:
			d = decimalSum{n, decimal.FromInt(v.Int())}
		}
		if d.n > 0 && d.sum.IntDigits() > maxSumDigits {
			return dst, errSumDigits
		}
		return d.append(dst), nil
	}
	s := NumberSum{ints: i, floats: f, decimals: d}
	if wide, ok := wideInt(v); ok && d.n > 0 { // an integer beyond int64
		s = NumberSum{ints: intSum{n, wide}}
	}
	return s.append(dst), nil
}

// wideInt is an integer beyond int64, of up to 128 bits.
func wideInt(v value.Value) (Int128, bool) {
	if v.Kind() != value.Decimal || !v.IsInteger() {
		return Int128{}, false
	}
	b, ok := v.Decimal().BigInt()
	if !ok || b.BitLen() > 127 {
		return Int128{}, false
	}
	lo := new(big.Int).And(b, new(big.Int).SetUint64(math.MaxUint64))
	return Int128{Hi: new(big.Int).Rsh(b, 64).Int64(), Lo: lo.Uint64()}, true
}
