package expr

import (
	"errors"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

func init() {
	rounding := func(name string, ofFloat func(float64) float64, ofDecimal func(decimal.Decimal) (decimal.Decimal, error)) *function {
		return &function{name: name, overloads: []overload{
			{params: params(tInt), result: tInt, run: map1(ints, ints, same[int64])},
			{params: params(tFloat), result: tFloat, run: map1(floats, floats, func(f float64) (float64, error) { return ofFloat(f), nil })},
			{params: params(tDecimal), result: tDecimal, run: map1(decs, decs, ofDecimal)},
		}}
	}
	round := rounding("round", math.Round, func(d decimal.Decimal) (decimal.Decimal, error) { return roundDecimal(d, 0) })
	round.overloads = append(round.overloads, overload{
		params: params(tDecimal, tInt), result: tDecimal, run: map2(decs, ints, decs, roundDecimal),
	})
	register(
		rounding("abs", math.Abs, func(d decimal.Decimal) (decimal.Decimal, error) { return d.Abs(), nil }),
		rounding("floor", math.Floor, decimal.Decimal.Floor),
		rounding("ceil", math.Ceil, func(d decimal.Decimal) (decimal.Decimal, error) {
			f, err := d.Neg().Floor()
			return f.Neg(), err
		}),
		round,
		extreme("min", less),
		extreme("max", greater),
		&function{name: "quo", overloads: []overload{
			{params: params(tDecimal, tDecimal, tInt), result: tDecimal, run: map3(decs, decs, ints, decs, quo)},
		}},
		&function{name: "hash", overloads: []overload{
			{params: params(tString), result: tInt, run: map1(strs, ints, func(s []byte) (int64, error) { return hash(s), nil })},
			{params: params(tBytes), result: tInt, run: map1(strs, ints, func(s []byte) (int64, error) { return hash(s), nil })},
			{params: params(tAny), result: tInt, run: hashAny},
		}},
	)
	// The absolute value of an int may not fit.
	functions["abs"].overloads[0].run = map1(ints, ints, func(i int64) (int64, error) {
		switch {
		case i == math.MinInt64:
			return 0, errOverflow
		case i < 0:
			return -i, nil
		}
		return i, nil
	})
}

// roundDecimal rounds half away from zero, as round does floats.
func roundDecimal(d decimal.Decimal, scale int64) (decimal.Decimal, error) {
	if scale < 0 || scale >= decimal.MaxDigits {
		return decimal.Decimal{}, errScale
	}
	half, err := decimal.New(5, int32(-scale-1))
	if err != nil {
		return decimal.Decimal{}, err
	}
	shift, err := decimal.New(1, int32(-scale))
	if err != nil {
		return decimal.Decimal{}, err
	}
	// |d| + half, cut off at the scale: floor((|d| + half) / shift) * shift, of which the division only moves the point.
	up, err := d.Abs().Add(half)
	if err != nil {
		return decimal.Decimal{}, err
	}
	moved, err := decimal.New(1, int32(scale))
	if err != nil {
		return decimal.Decimal{}, err
	}
	if up, err = up.Mul(moved); err != nil {
		return decimal.Decimal{}, err
	}
	if up, err = up.Floor(); err != nil {
		return decimal.Decimal{}, err
	}
	if up, err = up.Mul(shift); err != nil {
		return decimal.Decimal{}, err
	}
	if d.Sign() < 0 {
		up = up.Neg()
	}
	return up, nil
}

var errScale = errors.New("the number of digits must lie within 0 and 999")

func quo(a, b decimal.Decimal, scale int64) (decimal.Decimal, error) {
	if scale < 0 || scale >= decimal.MaxDigits {
		return decimal.Decimal{}, errScale
	}
	return a.Quo(b, int32(scale))
}

// extreme is min or max of two; the compiler folds more. NaN is the result if one is.
func extreme(name string, want outcome) *function {
	return &function{name: name, overloads: []overload{
		{params: params(tInt, tInt), result: tInt, run: map2(ints, ints, ints, func(a, b int64) (int64, error) {
			if (a < b) == (want == less) {
				return a, nil
			}
			return b, nil
		})},
		floats2(map2(floats, floats, floats, func(a, b float64) (float64, error) {
			if want == less {
				return min(a, b), nil
			}
			return max(a, b), nil
		})),
		decimals2(func(a, b decimal.Decimal) (decimal.Decimal, error) {
			if outcomeOf(a.Cmp(b)) == want {
				return a, nil
			}
			return b, nil
		}),
		{params: params(tString, tString), result: tString, run: map2(strs, strs, strs, func(a, b []byte) ([]byte, error) {
			if compareStrings(a, b, want) {
				return a, nil
			}
			return b, nil
		})},
		{params: params(tTime, tTime), result: tTime, run: map2(ints, ints, ints, func(a, b int64) (int64, error) {
			if (a < b) == (want == less) {
				return a, nil
			}
			return b, nil
		})},
	}}
}

// hash is the upper 63 bits of xxhash64 with seed 0: an int that is never negative.
func hash(b []byte) int64 { return int64(xxhash.Sum64(b) >> 1) }

// hashAny hashes the text of a value, as string() writes it.
func hashAny(_ *callKernel, m *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	for _, r := range sel {
		v := args[0].Value(int(r))
		if v.Kind() == value.Bytes {
			out.Int[r] = hash(v.Bytes())
			continue
		}
		m.text = appendText(m.text[:0], v)
		out.Int[r] = hash(m.text)
	}
}
