package expr

import (
	"errors"
	"math"
	"math/bits"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/vec"
)

// Types of parameters and results.
var (
	tAny     = vec.Type{Kind: vec.Any}
	tBool    = vec.Type{Kind: vec.Bool}
	tInt     = vec.Type{Kind: vec.Int}
	tFloat   = vec.Type{Kind: vec.Float}
	tDecimal = vec.Type{Kind: vec.Decimal}
	tString  = vec.Type{Kind: vec.String}
	tBytes   = vec.Type{Kind: vec.Bytes}
	tTime    = vec.Type{Kind: vec.Time}
	tList    = vec.ListOf(vec.Any)
	tStrings = vec.ListOf(vec.String)
)

func params(ts ...vec.Type) []vec.Type { return ts }

var (
	errOverflow = errors.New("the result leaves the range of 64-bit integers")
	errZero     = errors.New("division by zero")
)

// Scalar operations on ints; ok is false where the result doesn't fit.

func addInt(a, b int64) (int64, bool) {
	s := a + b
	return s, (s > a) == (b > 0)
}

func subInt(a, b int64) (int64, bool) {
	d := a - b
	return d, (d < a) == (b > 0)
}

func mulInt(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	// The signed product's high word is the unsigned one's, less each operand where the other is negative.
	h := int64(hi) - a>>63&b - b>>63&a
	return int64(lo), h == int64(lo)>>63
}

// intLoop computes an operation on ints whose result may not fit.
func intLoop(op func(a, b int64) (int64, bool)) loop {
	return func(c *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
		a, b, o := args[0].Int, args[1].Int, out.Int
		for _, r := range sel {
			v, ok := op(a[r], b[r])
			if !ok {
				c.fail(r, errOverflow)
				continue
			}
			o[r] = v
		}
	}
}

func addInts(c *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	a, b, o := args[0].Int, args[1].Int, out.Int
	for _, r := range sel {
		v, ok := addInt(a[r], b[r])
		if !ok {
			c.fail(r, errOverflow)
			continue
		}
		o[r] = v
	}
}

func subInts(c *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	a, b, o := args[0].Int, args[1].Int, out.Int
	for _, r := range sel {
		v, ok := subInt(a[r], b[r])
		if !ok {
			c.fail(r, errOverflow)
			continue
		}
		o[r] = v
	}
}

func modInts(c *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	a, b, o := args[0].Int, args[1].Int, out.Int
	for _, r := range sel {
		if b[r] == 0 {
			c.fail(r, errZero)
			continue
		}
		o[r] = a[r] % b[r]
	}
}

func divInts(c *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	a, b, o := args[0].Int, args[1].Int, out.Float
	for _, r := range sel {
		if b[r] == 0 {
			c.fail(r, errZero)
			continue
		}
		o[r] = float64(a[r]) / float64(b[r])
	}
}

// The loops over floats store each result, which rounds it: the compiler may not fuse it with what comes next.

func addFloats(_ *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	a, b, o := args[0].Float, args[1].Float, out.Float
	for _, r := range sel {
		o[r] = a[r] + b[r]
	}
}

func subFloats(_ *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	a, b, o := args[0].Float, args[1].Float, out.Float
	for _, r := range sel {
		o[r] = a[r] - b[r]
	}
}

func mulFloats(_ *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	a, b, o := args[0].Float, args[1].Float, out.Float
	for _, r := range sel {
		o[r] = a[r] * b[r]
	}
}

func divFloats(_ *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	a, b, o := args[0].Float, args[1].Float, out.Float
	for _, r := range sel {
		o[r] = a[r] / b[r]
	}
}

// joinStrings is a + b on strings.
func joinStrings(_ *callKernel, m *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	a, b, o := args[0].Str, args[1].Str, out.Str
	for _, r := range sel {
		s := m.arena.Alloc(len(a[r]) + len(b[r]))
		copy(s[copy(s, a[r]):], b[r])
		o[r] = s
	}
}

func arithmetic(name string, overloads ...overload) *function {
	return &function{name: name, operator: true, nulls: nullPasses, overloads: overloads}
}

func ints2(run loop) overload { return overload{params: params(tInt, tInt), result: tInt, run: run} }

func floats2(run loop) overload {
	return overload{params: params(tFloat, tFloat), result: tFloat, run: run}
}

func decimals2(op func(a, b decimal.Decimal) (decimal.Decimal, error)) overload {
	return overload{params: params(tDecimal, tDecimal), result: tDecimal, run: map2(decs, decs, decs, op)}
}

// The arithmetic operators. Of two numbers of different types the int is widened; a float and a decimal don't mix.
var (
	operators = map[string]*function{
		"+": arithmetic("+", ints2(addInts), floats2(addFloats), decimals2(decimal.Decimal.Add),
			overload{params: params(tString, tString), result: tString, run: joinStrings}),
		"-": arithmetic("-", ints2(subInts), floats2(subFloats), decimals2(decimal.Decimal.Sub)),
		"*": arithmetic("*", ints2(intLoop(mulInt)), floats2(mulFloats), decimals2(decimal.Decimal.Mul)),
		"/": arithmetic("/", overload{params: params(tInt, tInt), result: tFloat, run: divInts}, floats2(divFloats)),
		"%": arithmetic("%", ints2(modInts)),
		"**": arithmetic("**", floats2(map2(floats, floats, floats, func(a, b float64) (float64, error) {
			return math.Pow(a, b), nil
		}))),
		"contains":   textOperator("contains", contains),
		"startsWith": textOperator("startsWith", hasPrefix),
		"endsWith":   textOperator("endsWith", hasSuffix),
		"matches": {name: "matches", operator: true, nulls: nullIsFalse, overloads: []overload{
			{params: params(tString, tString), result: tBool, constant: 1, prepare: prepareMatches},
		}},
	}
	negative = arithmetic("-",
		overload{params: params(tInt), result: tInt, run: map1(ints, ints, func(a int64) (int64, error) {
			if a == math.MinInt64 {
				return 0, errOverflow
			}
			return -a, nil
		})},
		overload{params: params(tFloat), result: tFloat, run: map1(floats, floats, func(a float64) (float64, error) { return -a, nil })},
		overload{params: params(tDecimal), result: tDecimal, run: map1(decs, decs, func(a decimal.Decimal) (decimal.Decimal, error) { return a.Neg(), nil })},
	)
	positive = arithmetic("+",
		overload{params: params(tInt), result: tInt, run: map1(ints, ints, same[int64])},
		overload{params: params(tFloat), result: tFloat, run: map1(floats, floats, same[float64])},
		overload{params: params(tDecimal), result: tDecimal, run: map1(decs, decs, same[decimal.Decimal])},
	)
)

func same[T any](v T) (T, error) { return v, nil }

// Accessors name the slice of a column that a loop works on.

func bools(c *vec.Column) []bool           { return c.Bool }
func ints(c *vec.Column) []int64           { return c.Int }
func floats(c *vec.Column) []float64       { return c.Float }
func decs(c *vec.Column) []decimal.Decimal { return c.Dec }
func strs(c *vec.Column) [][]byte          { return c.Str }

// map1 makes a loop of a function of one argument; map2 and map3 of two and three.
func map1[A, R any](a func(*vec.Column) []A, result func(*vec.Column) []R, f func(A) (R, error)) loop {
	return func(c *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
		x, o := a(args[0]), result(out)
		for _, r := range sel {
			v, err := f(x[r])
			if err != nil {
				c.fail(r, err)
				continue
			}
			o[r] = v
		}
	}
}

func map2[A, B, R any](a func(*vec.Column) []A, b func(*vec.Column) []B, result func(*vec.Column) []R, f func(A, B) (R, error)) loop {
	return func(c *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
		x, y, o := a(args[0]), b(args[1]), result(out)
		for _, r := range sel {
			v, err := f(x[r], y[r])
			if err != nil {
				c.fail(r, err)
				continue
			}
			o[r] = v
		}
	}
}

func map3[A, B, C, R any](a func(*vec.Column) []A, b func(*vec.Column) []B, d func(*vec.Column) []C, result func(*vec.Column) []R,
	f func(A, B, C) (R, error),
) loop {
	return func(c *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
		x, y, z, o := a(args[0]), b(args[1]), d(args[2]), result(out)
		for _, r := range sel {
			v, err := f(x[r], y[r], z[r])
			if err != nil {
				c.fail(r, err)
				continue
			}
			o[r] = v
		}
	}
}
