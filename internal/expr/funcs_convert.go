package expr

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

func init() {
	register(
		&function{name: "int", overloads: []overload{
			{params: params(tInt), result: tInt, run: map1(ints, ints, same[int64])},
			{params: params(tFloat), result: tInt, run: map1(floats, ints, intOfFloat)},
			{params: params(tDecimal), result: tInt, run: map1(decs, ints, intOfDecimal)},
			{params: params(tString), result: tInt, run: map1(strs, ints, intOfString)},
		}},
		&function{name: "float", overloads: []overload{
			{params: params(tInt), result: tFloat, run: map1(ints, floats, func(i int64) (float64, error) { return float64(i), nil })},
			{params: params(tFloat), result: tFloat, run: map1(floats, floats, same[float64])},
			{params: params(tDecimal), result: tFloat, run: map1(decs, floats, func(d decimal.Decimal) (float64, error) { return d.Float64(), nil })},
			{params: params(tString), result: tFloat, run: map1(strs, floats, floatOfString)},
		}},
		&function{name: "decimal", overloads: []overload{
			{params: params(tInt), result: tDecimal, run: map1(ints, decs, func(i int64) (decimal.Decimal, error) { return decimal.FromInt(i), nil })},
			{params: params(tFloat), result: tDecimal, run: map1(floats, decs, decimal.FromFloat)},
			{params: params(tDecimal), result: tDecimal, run: map1(decs, decs, same[decimal.Decimal])},
			{params: params(tString), result: tDecimal, run: map1(strs, decs, decimal.ParseBytes)},
		}},
		&function{name: "bool", overloads: []overload{
			{params: params(tBool), result: tBool, run: map1(bools, bools, same[bool])},
			{params: params(tString), result: tBool, run: map1(strs, bools, boolOfString)},
		}},
		&function{name: "string", overloads: []overload{
			{params: params(tString), result: tString, run: map1(strs, strs, same[[]byte])},
			{params: params(tBytes), result: tString, run: map1(strs, strs, stringOfBytes)},
			{params: params(tAny), result: tString, run: stringOfAny},
		}},
		&function{name: "timestamp", overloads: []overload{
			{params: params(tTime), result: tTime, run: map1(ints, ints, same[int64])},
			{params: params(tString), result: tTime, run: map1(strs, ints, ParseTime)},
			{params: params(tInt), result: tTime, run: map1(ints, ints, func(ms int64) (int64, error) {
				ns, ok := mulInt(ms, int64(time.Millisecond))
				if !ok {
					return 0, errTime
				}
				return ns, nil
			})},
		}},
		&function{name: "type", nulls: nullIsGiven, overloads: []overload{{params: params(tAny), result: tString, run: typeNames}}},
	)
}

func intOfFloat(f float64) (int64, error) {
	if t := math.Trunc(f); t >= -1<<63 && t < 1<<63 {
		return int64(t), nil
	}
	return 0, fmt.Errorf("%s doesn't fit 64 bits", value.AppendText(nil, value.FloatOf(f)))
}

func intOfDecimal(d decimal.Decimal) (int64, error) {
	whole, err := d.Abs().Floor()
	if err != nil {
		return 0, err
	}
	if d.Sign() < 0 {
		whole = whole.Neg()
	}
	if i, ok := whole.Int64(); ok {
		return i, nil
	}
	return 0, fmt.Errorf("%s doesn't fit 64 bits", cut(d.String()))
}

func intOfString(s []byte) (int64, error) {
	i, err := strconv.ParseInt(vec.Text(s), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s doesn't fit 64 bits", quote(value.StringOf(vec.Text(s))))
	case err != nil:
		return 0, fmt.Errorf("%s is no integer", quote(value.StringOf(vec.Text(s))))
	}
	return i, nil
}

func floatOfString(s []byte) (float64, error) {
	for _, c := range s { // ParseFloat also takes hexadecimal numbers and underscores
		if c == '_' || c == 'x' || c == 'X' {
			return 0, fmt.Errorf("%s is no number", quote(value.StringOf(vec.Text(s))))
		}
	}
	f, err := strconv.ParseFloat(vec.Text(s), 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is beyond the range of floats", quote(value.StringOf(vec.Text(s))))
	case err != nil:
		return 0, fmt.Errorf("%s is no number", quote(value.StringOf(vec.Text(s))))
	}
	return f, nil
}

func boolOfString(s []byte) (bool, error) {
	switch string(s) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf(`%s is neither "true" nor "false"`, quote(value.StringOf(vec.Text(s))))
}

var errUTF8 = errors.New("the bytes are not valid UTF-8")

func stringOfBytes(b []byte) ([]byte, error) {
	if !utf8.Valid(b) {
		return nil, errUTF8
	}
	return b, nil
}

// appendText is how string() writes a value.
func appendText(dst []byte, v value.Value) []byte { return value.AppendText(dst, v) }

func stringOfAny(c *callKernel, m *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	for _, r := range sel {
		v := args[0].Value(int(r))
		switch v.Kind() {
		case value.String:
			out.Str[r] = vec.Raw(v.Str())
		case value.Bytes:
			s, err := stringOfBytes(v.Bytes())
			if err != nil {
				c.fail(r, err)
				continue
			}
			out.Str[r] = s
		default:
			out.Str[r] = m.arena.Take(appendText(m.arena.Tail(32), v))
		}
	}
}

func typeNames(_ *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	for _, r := range sel {
		out.Str[r] = vec.Raw(vec.KindOf(args[0].Value(int(r))).String())
	}
}
