package decimal

import (
	"fmt"
	"math/big"
	"strconv"
)

// maxText bounds the length of what Parse looks at: every digit of the largest number, with sign, point and some
// zeros too many.
const maxText = 4 * MaxDigits

// Parse reads [+-]digits[.digits][e[+-]digits], with at least one digit before or after the point. Nothing else
// is allowed: no spaces, no separators, no names of infinities.
func Parse(s string) (Decimal, error) { return parse(s) }

// ParseBytes is Parse of a byte slice, which it doesn't keep.
func ParseBytes(b []byte) (Decimal, error) { return parse(b) }

func parse[S string | []byte](s S) (Decimal, error) {
	if len(s) > maxText {
		return Decimal{}, fmt.Errorf("a number of %d characters: %w", len(s), ErrRange)
	}
	i, neg := 0, false
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		neg = s[i] == '-'
		i++
	}
	start := i
	var u uint64
	var n, frac int // digits seen; digits after the point
	wide, point := false, false
	for ; i < len(s); i++ {
		c := s[i]
		if c == '.' {
			if point {
				return Decimal{}, syntaxError(s)
			}
			point = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		n++
		if point {
			frac++
		}
		if u > (1<<63-1-9)/10 {
			wide = true
			continue
		}
		u = u*10 + uint64(c-'0')
	}
	end := i
	if n == 0 {
		return Decimal{}, syntaxError(s)
	}
	var exp int64
	if i < len(s) {
		if s[i] != 'e' && s[i] != 'E' {
			return Decimal{}, syntaxError(s)
		}
		var ok bool
		if exp, ok = parseExponent(s[i+1:]); !ok {
			return Decimal{}, syntaxError(s)
		}
	}
	exp -= int64(frac)
	var d Decimal
	var err error
	if !wide {
		c := int64(u)
		if neg {
			c = -c
		}
		d, err = small(c, exp)
	} else {
		text := make([]byte, 0, n+1)
		if neg {
			text = append(text, '-')
		}
		for _, c := range []byte(s[start:end]) {
			if c != '.' {
				text = append(text, c)
			}
		}
		c, ok := new(big.Int).SetString(string(text), 10)
		if !ok {
			panic("decimal: digits that aren't an integer")
		}
		d, err = fromBig(c, exp)
	}
	if err != nil {
		return Decimal{}, fmt.Errorf("%s: %w", shorten(string(s)), err)
	}
	return d, nil
}

// parseExponent reads a signed integer. Values beyond any use are cut to ±1e9, which is out of range as well.
func parseExponent[S string | []byte](s S) (exp int64, ok bool) {
	i, neg := 0, false
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		neg = s[i] == '-'
		i++
	}
	if i == len(s) {
		return 0, false
	}
	for ; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		if exp < 1e9 {
			exp = exp*10 + int64(s[i]-'0')
		}
	}
	exp = min(exp, 1e9)
	if neg {
		exp = -exp
	}
	return exp, true
}

func syntaxError[S string | []byte](s S) error {
	return fmt.Errorf("%w: %q", ErrSyntax, shorten(string(s)))
}

func shorten(s string) string {
	if len(s) > 40 {
		return s[:37] + "..."
	}
	return s
}

// String returns the plain notation: no exponent, no zeros at the end of a fraction, "-" before negative numbers.
func (d Decimal) String() string { return string(d.append(make([]byte, 0, 32))) }

// AppendText appends the plain notation. The error is always nil.
func (d Decimal) AppendText(dst []byte) ([]byte, error) { return d.append(dst), nil }

func (d Decimal) append(dst []byte) []byte {
	start := len(dst)
	dst = d.appendCoefficient(dst)
	if d.exp >= 0 {
		for range d.exp {
			dst = append(dst, '0')
		}
		return dst
	}
	if dst[start] == '-' {
		start++
	}
	frac := int(-d.exp)
	if missing := frac + 1 - (len(dst) - start); missing > 0 {
		for range missing {
			dst = append(dst, '0')
		}
		copy(dst[start+missing:], dst[start:len(dst)-missing])
		for i := range missing {
			dst[start+i] = '0'
		}
	}
	dst = append(dst, 0)
	point := len(dst) - 1 - frac
	copy(dst[point+1:], dst[point:len(dst)-1])
	dst[point] = '.'
	return dst
}

func (d Decimal) appendCoefficient(dst []byte) []byte {
	if d.wide != nil {
		return d.wide.Append(dst, 10)
	}
	return strconv.AppendInt(dst, d.coef, 10)
}

func (d Decimal) appendScientific(dst []byte) []byte {
	dst = append(d.appendCoefficient(dst), 'e')
	return strconv.AppendInt(dst, int64(d.exp), 10)
}

// MarshalText returns the plain notation.
func (d Decimal) MarshalText() ([]byte, error) { return d.append(nil), nil }

// UnmarshalText is Parse.
func (d *Decimal) UnmarshalText(text []byte) error {
	p, err := ParseBytes(text)
	if err != nil {
		return err
	}
	*d = p
	return nil
}

// MarshalJSON returns the plain notation as a string, since readers of JSON take numbers for floats.
func (d Decimal) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 32), '"')
	return append(d.append(b), '"'), nil
}

// UnmarshalJSON takes a number or a string that holds one, without rounding either.
func (d *Decimal) UnmarshalJSON(b []byte) error {
	if len(b) >= 2 && b[0] == '"' && b[len(b)-1] == '"' {
		b = b[1 : len(b)-1]
	}
	return d.UnmarshalText(b)
}
