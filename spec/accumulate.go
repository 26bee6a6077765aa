package spec

import (
	"errors"
	"fmt"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// accumulator keeps one aggregate of all groups of a task, in slices by the groups' numbers.
type accumulator interface {
	reset()
	// grow makes room for n groups; new ones are empty.
	grow(n int)
	// add adds the rows in sel of a column, sel[k] to the group groups[k]. by is the column of the second argument, if
	// there is one. bad is the group where it failed.
	add(c, by *vec.Column, sel, groups []int32) (bad int32, err error)
	// append appends the cell of a group.
	append(dst []byte, group int) []byte
}

// newAccumulator returns the accumulator of an aggregate.
func newAccumulator(v *aggValue) accumulator {
	fn, arg := v.fn, v.arg
	switch fn {
	case "count":
		return &countAcc{}
	case "count_if":
		return &countIfAcc{}
	case "sum", "avg":
		return newSum(fn == "avg", arg)
	case "min", "max":
		return newExtreme(fn == "max", arg)
	case "first":
		return &firstAcc{}
	case "last":
		return &lastAcc{}
	case "collect":
		return &collectAcc{}
	}
	return &feedAcc{v: v}
}

func newSum(mean bool, arg vec.Kind) accumulator {
	switch arg {
	case vec.Int:
		return &intSumAcc{mean: mean}
	case vec.Float:
		return &floatSumAcc{mean: mean}
	case vec.Decimal:
		return &decimalSumAcc{mean: mean}
	default:
		return &numberSumAcc{mean: mean}
	}
}

func newExtreme(max bool, arg vec.Kind) accumulator {
	switch arg {
	case vec.Int, vec.Time:
		return &intExtremeAcc{max: max, time: arg == vec.Time}
	case vec.String, vec.Bytes:
		return &textExtremeAcc{max: max, bytes: arg == vec.Bytes}
	default:
		return &valueExtremeAcc{max: max}
	}
}

// exact tells whether the aggregate's merge is associative to the last bit.
func (v *aggValue) exact() bool {
	f, ok := agg.Lookup(v.fn)
	if !ok {
		panic("spec: no aggregate " + v.fn)
	}
	name := ""
	if f.MaxArgs > 0 {
		name = v.arg.String()
	}
	return f.Exact(name)
}

// extend returns s with n elements, the new ones zero.
func extend[T any](s []T, n int) []T {
	old := len(s)
	if cap(s) < n {
		s = append(make([]T, 0, max(n, 2*cap(s))), s...)
	}
	s = s[:n]
	clear(s[old:])
	return s
}

type countAcc struct{ n []int64 }

func (a *countAcc) reset()     { a.n = a.n[:0] }
func (a *countAcc) grow(n int) { a.n = extend(a.n, n) }

func (a *countAcc) add(_, _ *vec.Column, _, groups []int32) (int32, error) {
	for _, g := range groups {
		a.n[g]++
	}
	return 0, nil
}

func (a *countAcc) append(dst []byte, g int) []byte { return agg.AppendCount(dst, a.n[g]) }

type countIfAcc struct{ countAcc }

func (a *countIfAcc) add(c, _ *vec.Column, sel, groups []int32) (int32, error) {
	nulls := c.HasNulls()
	for k, i := range sel {
		if c.Bool[i] && !(nulls && c.Null[i]) {
			a.n[groups[k]]++
		}
	}
	return 0, nil
}

type intSum struct {
	sum agg.Int128
	n   int64
}

type intSumAcc struct {
	mean bool
	s    []intSum
}

func (a *intSumAcc) reset()     { a.s = a.s[:0] }
func (a *intSumAcc) grow(n int) { a.s = extend(a.s, n) }

func (a *intSumAcc) add(c, _ *vec.Column, sel, groups []int32) (int32, error) {
	nulls := c.HasNulls()
	for k, i := range sel {
		if nulls && c.Null[i] {
			continue
		}
		s := &a.s[groups[k]]
		if !s.sum.Add(c.Int[i]) {
			return groups[k], errors.New("the sum is beyond 128 bits")
		}
		s.n++
	}
	return 0, nil
}

func (a *intSumAcc) append(dst []byte, g int) []byte {
	s := &a.s[g]
	if a.mean {
		return agg.AppendAvgInt(dst, s.sum.Hi, s.sum.Lo, s.n)
	}
	return agg.AppendSumInt(dst, s.sum.Hi, s.sum.Lo, s.n)
}

type floatSum struct {
	sum float64
	n   int64
}

// floatSumAcc adds floats up in the order of the records: one after the other, as nothing else gives the same bits.
type floatSumAcc struct {
	mean bool
	s    []floatSum
}

func (a *floatSumAcc) reset()     { a.s = a.s[:0] }
func (a *floatSumAcc) grow(n int) { a.s = extend(a.s, n) }

func (a *floatSumAcc) add(c, _ *vec.Column, sel, groups []int32) (int32, error) {
	nulls := c.HasNulls()
	for k, i := range sel {
		if nulls && c.Null[i] {
			continue
		}
		s := &a.s[groups[k]]
		if s.n == 0 { // 0 plus -0 would be 0
			s.sum = c.Float[i]
		} else {
			s.sum += c.Float[i]
		}
		s.n++
	}
	return 0, nil
}

func (a *floatSumAcc) append(dst []byte, g int) []byte {
	s := &a.s[g]
	if a.mean {
		return agg.AppendAvgFloat(dst, s.sum, s.n)
	}
	return agg.AppendSumFloat(dst, s.sum, s.n)
}

type decimalSum struct {
	sum decimal.Decimal
	n   int64
}

type decimalSumAcc struct {
	mean bool
	s    []decimalSum
}

func (a *decimalSumAcc) reset()     { a.s = a.s[:0] }
func (a *decimalSumAcc) grow(n int) { a.s = extend(a.s, n) }

func (a *decimalSumAcc) add(c, _ *vec.Column, sel, groups []int32) (int32, error) {
	for k, i := range sel {
		if c.IsNull(int(i)) {
			continue
		}
		s := &a.s[groups[k]]
		sum, err := agg.AddDecimal(s.sum, c.Dec[i])
		if err != nil {
			return groups[k], err
		}
		s.sum, s.n = sum, s.n+1
	}
	return 0, nil
}

func (a *decimalSumAcc) append(dst []byte, g int) []byte {
	s := &a.s[g]
	if a.mean {
		return agg.AppendAvgDecimal(dst, s.sum, s.n)
	}
	return agg.AppendSumDecimal(dst, s.sum, s.n)
}

// numberSumAcc sums numbers of fields that aren't declared. The leaf has turned away what is no number.
type numberSumAcc struct {
	mean bool
	s    []agg.NumberSum
}

func (a *numberSumAcc) reset()     { a.s = a.s[:0] }
func (a *numberSumAcc) grow(n int) { a.s = extend(a.s, n) }

func (a *numberSumAcc) add(c, _ *vec.Column, sel, groups []int32) (int32, error) {
	for k, i := range sel {
		if c.IsNull(int(i)) {
			continue
		}
		if err := a.s[groups[k]].Add(c.Value(int(i))); err != nil {
			return groups[k], err
		}
	}
	return 0, nil
}

func (a *numberSumAcc) append(dst []byte, g int) []byte {
	if a.mean {
		return agg.AppendAvgNumber(dst, &a.s[g])
	}
	return agg.AppendSumNumber(dst, &a.s[g])
}

// intExtremeAcc is the least or greatest of ints or times.
type intExtremeAcc struct {
	max, time bool
	best      []int64
	has       []bool
}

func (a *intExtremeAcc) reset() { a.best, a.has = a.best[:0], a.has[:0] }

func (a *intExtremeAcc) grow(n int) { a.best, a.has = extend(a.best, n), extend(a.has, n) }

func (a *intExtremeAcc) add(c, _ *vec.Column, sel, groups []int32) (int32, error) {
	nulls := c.HasNulls()
	for k, i := range sel {
		if nulls && c.Null[i] {
			continue
		}
		g, v := groups[k], c.Int[i]
		if !a.has[g] || (v > a.best[g]) == a.max && v != a.best[g] {
			a.best[g], a.has[g] = v, true
		}
	}
	return 0, nil
}

func (a *intExtremeAcc) append(dst []byte, g int) []byte {
	v := value.NullValue()
	switch {
	case !a.has[g]:
	case a.time:
		v = value.TimeOf(a.best[g])
	default:
		v = value.IntOf(a.best[g])
	}
	return agg.AppendMinMax(dst, a.max, v)
}

// textExtremeAcc is the least or greatest of strings or bytes. It owns its copies.
type textExtremeAcc struct {
	max, bytes bool
	best       [][]byte
	has        []bool
}

func (a *textExtremeAcc) reset() { a.best, a.has = a.best[:0], a.has[:0] }

func (a *textExtremeAcc) grow(n int) { a.best, a.has = extend(a.best, n), extend(a.has, n) }

func (a *textExtremeAcc) add(c, _ *vec.Column, sel, groups []int32) (int32, error) {
	for k, i := range sel {
		if c.IsNull(int(i)) {
			continue
		}
		g, v := groups[k], c.Str[i]
		best := a.best[g]
		if !a.has[g] || a.max && string(v) > string(best) || !a.max && string(v) < string(best) {
			a.best[g], a.has[g] = append(best[:0], v...), true
		}
	}
	return 0, nil
}

func (a *textExtremeAcc) append(dst []byte, g int) []byte {
	v := value.NullValue()
	switch {
	case !a.has[g]:
	case a.bytes:
		v = value.BytesOf(a.best[g])
	default:
		v = value.StringOf(vec.Text(a.best[g]))
	}
	return agg.AppendMinMax(dst, a.max, v)
}

// valueExtremeAcc is the least or greatest of values of any kind.
type valueExtremeAcc struct {
	max  bool
	best []value.Value
}

func (a *valueExtremeAcc) reset()     { a.best = a.best[:0] }
func (a *valueExtremeAcc) grow(n int) { a.best = extend(a.best, n) }

func (a *valueExtremeAcc) add(c, _ *vec.Column, sel, groups []int32) (int32, error) {
	for k, i := range sel {
		if v := c.Value(int(i)); agg.Better(a.max, a.best[groups[k]], v) {
			a.best[groups[k]] = v.Clone()
		}
	}
	return 0, nil
}

func (a *valueExtremeAcc) append(dst []byte, g int) []byte {
	return agg.AppendMinMax(dst, a.max, a.best[g])
}

type firstAcc struct{ v []value.Value }

func (a *firstAcc) reset()     { a.v = a.v[:0] }
func (a *firstAcc) grow(n int) { a.v = extend(a.v, n) }

func (a *firstAcc) add(c, _ *vec.Column, sel, groups []int32) (int32, error) {
	for k, i := range sel {
		if g := groups[k]; a.v[g].IsNull() && !c.IsNull(int(i)) {
			a.v[g] = c.Value(int(i)).Clone()
		}
	}
	return 0, nil
}

func (a *firstAcc) append(dst []byte, g int) []byte { return agg.AppendFirst(dst, a.v[g]) }

// lastAcc keeps the last value of each group in its binary form, in memory that is written over.
type lastAcc struct {
	v   [][]byte
	has []bool
}

func (a *lastAcc) reset() { a.v, a.has = a.v[:0], a.has[:0] }

func (a *lastAcc) grow(n int) { a.v, a.has = extend(a.v, n), extend(a.has, n) }

func (a *lastAcc) add(c, _ *vec.Column, sel, groups []int32) (int32, error) {
	for k, i := range sel {
		if c.IsNull(int(i)) {
			continue
		}
		g := groups[k]
		a.v[g], a.has[g] = value.AppendBinary(a.v[g][:0], c.Value(int(i))), true
	}
	return 0, nil
}

func (a *lastAcc) append(dst []byte, g int) []byte {
	if !a.has[g] {
		return agg.AppendLast(dst, value.NullValue())
	}
	v, _, err := value.ViewBinary(a.v[g])
	if err != nil {
		panic(fmt.Sprintf("spec: a value doesn't survive its encoding: %v", err))
	}
	return agg.AppendLast(dst, v)
}

type collectAcc struct{ v [][]value.Value }

func (a *collectAcc) reset()     { a.v = a.v[:0] }
func (a *collectAcc) grow(n int) { a.v = extend(a.v, n) }

func (a *collectAcc) add(c, _ *vec.Column, sel, groups []int32) (int32, error) {
	for k, i := range sel {
		if !c.IsNull(int(i)) {
			a.v[groups[k]] = append(a.v[groups[k]], c.Value(int(i)).Clone())
		}
	}
	return 0, nil
}

func (a *collectAcc) append(dst []byte, g int) []byte { return agg.AppendCollect(dst, a.v[g]) }

// feedAcc is for the aggregates that keep more than a number or a value.
type feedAcc struct {
	v     *aggValue
	feeds []agg.Feed
}

func (a *feedAcc) reset() {
	clear(a.feeds)
	a.feeds = a.feeds[:0]
}

func (a *feedAcc) grow(n int) {
	for len(a.feeds) < n {
		f, err := agg.NewFeed(a.v.fn, a.v.arg.String(), a.v.param, a.v.weighted())
		if err != nil {
			panic(fmt.Sprintf("spec: %s(%s): %v", a.v.fn, a.v.param, err))
		}
		a.feeds = append(a.feeds, f)
	}
}

func (a *feedAcc) add(c, by *vec.Column, sel, groups []int32) (int32, error) {
	for k, i := range sel {
		var second value.Value
		if by != nil {
			second = by.Value(int(i))
		}
		if err := a.feeds[groups[k]].Add(c.Value(int(i)), second); err != nil {
			return groups[k], err
		}
	}
	return 0, nil
}

func (a *feedAcc) append(dst []byte, g int) []byte { return a.feeds[g].Append(dst) }
