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
	errHidden = errors.New("it can't be gone on with from what it shows, as it keeps more than that")
)

// Restatable tells whether cells can be made of what they show, given those of a value without records: the error names the
// first that can't be.
func Restatable(zero []byte, cols []state.Column) error {
	for i := 0; len(zero) > 0; i++ {
		t := tag(zero[0])
		switch {
		case t == tagCustom || t == tagList:
			return fmt.Errorf("aggregate %s: %w", cols[i].Name, errCustom)
		case t == tagMinBy || t == tagMaxBy || t == tagDistinct || t == tagQuantile || t >= tagVarInt && t < tagEnd:
			return fmt.Errorf("aggregate %s: %s: %w", cols[i].Name, t, errHidden)
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
		cell := zero[:len(zero)-len(rest)]
		zero = rest
		if dst, err = restate(dst, cell, shown[i]); err != nil {
			return dst, fmt.Errorf("aggregate %s: %w", cols[i].Name, err)
		}
	}
	return dst, nil
}

// restate appends the cell that shows s; zero is the cell without values.
func restate(dst, zero []byte, s Shown) ([]byte, error) {
	t := tag(zero[0])
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
		if err := listed(v); err != nil {
			return dst, err
		}
		return AppendCollect(dst, v.List()), nil
	case tagFirstN, tagLastN:
		return restateFew(dst, zero, v)
	case tagTop, tagTopBy:
		return restateTop(dst, zero, v)
	}
	panic("agg: restate: " + t.String())
}

func listed(v value.Value) error {
	if v.Kind() != value.List {
		return fmt.Errorf("%s is no list", v)
	}
	for _, e := range v.List() {
		if e.IsNull() {
			return errors.New("its list holds a null")
		}
	}
	return nil
}

func restateFew(dst, zero []byte, v value.Value) ([]byte, error) {
	f := few{last: tag(zero[0]) == tagLastN}
	if _, err := f.read(zero[1:]); err != nil {
		return dst, err
	}
	if err := listed(v); err != nil {
		return dst, err
	}
	if len(v.List()) > f.limit {
		return dst, fmt.Errorf("%d values are more than the %d that are kept", len(v.List()), f.limit)
	}
	for _, e := range v.List() {
		if err := f.Add(e, value.NullValue()); err != nil {
			return dst, err
		}
	}
	return f.Append(dst), nil
}

func restateTop(dst, zero []byte, v value.Value) ([]byte, error) {
	t := top{weighted: tag(zero[0]) == tagTopBy}
	if _, err := t.read(zero[1:], value.ViewBinary); err != nil {
		return dst, err
	}
	if err := listed(v); err != nil {
		return dst, err
	}
	for _, e := range v.List() {
		x, weight := e, value.NullValue()
		if t.weighted {
			if e.Kind() != value.List || len(e.List()) != 2 || listed(e) != nil {
				return dst, fmt.Errorf("%s is no pair of a value and its weight", e)
			}
			x, weight = e.List()[0], e.List()[1]
		}
		if err := t.Add(x, weight); err != nil {
			return dst, err
		}
	}
	if n := len(v.List()); len(t.entries) != n {
		return dst, fmt.Errorf("%d values, of which only %d are kept", n, len(t.entries))
	}
	return t.Append(dst), nil
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
