// Package decimal is exact decimal arithmetic: sums, differences and products lose no digit, and equal numbers
// have one representation, so that 1.50 and 1.5 are the same key and the same bytes.
//
// A Decimal holds at most MaxDigits digits before the decimal point and MaxDigits after it. What would need more
// is an error that wraps ErrRange: no input, 1e1000000000 included, costs more than a bounded amount of work.
// Only Quo and Round round, half to even, at a scale that the caller names.
package decimal

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
)

// MaxDigits bounds the digits on each side of the decimal point.
const MaxDigits = 1000

// Errors that results wrap.
var (
	ErrSyntax         = errors.New("not a decimal number")
	ErrRange          = fmt.Errorf("more than %d digits before or after the decimal point", MaxDigits)
	ErrDivisionByZero = errors.New("division by zero")
)

// Decimal is an exact decimal number. The zero value is 0. A Decimal is immutable; copies may be used by many
// goroutines at once. Compare with Cmp or Equal: numbers of more than 18 digits live behind a pointer.
//
// Invariants (one representation per number): the value is coefficient * 10^exp; the coefficient is no multiple
// of ten; zero has exp 0; wide is nil exactly if the coefficient fits an int64, and coef is 0 if it isn't nil.
type Decimal struct {
	coef int64
	wide *big.Int // never written to once it is here
	exp  int32
}

// pow10 holds the powers of ten that fit an int64.
var pow10 = func() (p [19]int64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return p
}()

var bigTen = big.NewInt(10)

func bigPow10(n int32) *big.Int {
	if n < int32(len(pow10)) {
		return big.NewInt(pow10[n])
	}
	return new(big.Int).Exp(bigTen, big.NewInt(int64(n)), nil)
}

// New returns coef * 10^exp.
func New(coef int64, exp int32) (Decimal, error) { return small(coef, int64(exp)) }

// FromInt returns the number i.
func FromInt(i int64) Decimal {
	d, err := small(i, 0)
	if err != nil {
		panic("decimal: an int64 is out of range")
	}
	return d
}

// FromBig returns coef * 10^exp. It keeps no reference to coef.
func FromBig(coef *big.Int, exp int32) (Decimal, error) {
	return fromBig(new(big.Int).Set(coef), int64(exp))
}

// small normalises an int64 coefficient.
func small(coef, exp int64) (Decimal, error) {
	if coef == 0 {
		return Decimal{}, nil
	}
	for coef&1 == 0 && coef%10 == 0 {
		coef /= 10
		exp++
	}
	if exp < -MaxDigits || exp+int64(digits(abs(coef))) > MaxDigits {
		return Decimal{}, ErrRange
	}
	return Decimal{coef: coef, exp: int32(exp)}, nil
}

// fromBig normalises c, which it may keep and change.
func fromBig(c *big.Int, exp int64) (Decimal, error) {
	if c.IsInt64() {
		return small(c.Int64(), exp)
	}
	// Factors of ten are taken off in halving steps, as divisions of long numbers are dear. 10^n has n factors of
	// two, so that trailing zero bits bound what is worth trying.
	if max := int64(c.TrailingZeroBits()); max > 0 {
		var q, r big.Int
		for step := int32(min(max, 1<<11)); step > 0; {
			p := bigPow10(step)
			q.QuoRem(c, p, &r)
			if r.Sign() != 0 {
				step /= 2
				continue
			}
			c.Set(&q)
			exp += int64(step)
		}
	}
	if c.IsInt64() {
		return small(c.Int64(), exp)
	}
	if exp < -MaxDigits || exp+int64(bigDigits(c)) > MaxDigits {
		return Decimal{}, ErrRange
	}
	return Decimal{wide: c, exp: int32(exp)}, nil
}

func abs(i int64) uint64 {
	if i < 0 {
		return -uint64(i)
	}
	return uint64(i)
}

// digits counts the decimal digits of u; 1 for 0.
func digits(u uint64) int {
	n := (bits.Len64(u)*1233)>>12 + 1 // within one of the answer
	if n <= 19 && u < uint64Pow10(n-1) {
		n--
	}
	if n == 20 && u < 1e19 {
		n--
	}
	return max(n, 1)
}

func uint64Pow10(n int) uint64 {
	if n < len(pow10) {
		return uint64(pow10[n])
	}
	return math.MaxUint64
}

func bigDigits(c *big.Int) int {
	n := int(float64(c.BitLen())*math.Log10(2)) + 1 // at most one too high for numbers of this size
	if c.CmpAbs(bigPow10(int32(n-1))) < 0 {
		n--
	}
	return n
}

// Sign is -1, 0 or 1.
func (d Decimal) Sign() int {
	if d.wide != nil {
		return d.wide.Sign()
	}
	switch {
	case d.coef < 0:
		return -1
	case d.coef > 0:
		return 1
	}
	return 0
}

// IsZero tells whether d is 0.
func (d Decimal) IsZero() bool { return d.coef == 0 && d.wide == nil }

// IsInt tells whether d has no digits after the decimal point.
func (d Decimal) IsInt() bool { return d.exp >= 0 }

// IntDigits returns the number of digits before the decimal point, 0 if there are none but zeros.
func (d Decimal) IntDigits() int {
	n := int(d.exp)
	switch {
	case d.IsZero():
		return 0
	case d.wide != nil:
		n += bigDigits(d.wide)
	default:
		n += digits(abs(d.coef))
	}
	return max(n, 0)
}

// Small returns the coefficient and exponent of a number whose coefficient fits an int64; ok = false for others.
func (d Decimal) Small() (coef int64, exp int32, ok bool) { return d.coef, d.exp, d.wide == nil }

// Coefficient returns the coefficient, which is no multiple of ten, as a new number.
func (d Decimal) Coefficient() *big.Int {
	if d.wide != nil {
		return new(big.Int).Set(d.wide)
	}
	return big.NewInt(d.coef)
}

// Exponent returns the power of ten that the coefficient is multiplied by.
func (d Decimal) Exponent() int32 { return d.exp }

// coefficient is Coefficient for readers only.
func (d Decimal) coefficient() *big.Int {
	if d.wide != nil {
		return d.wide
	}
	return big.NewInt(d.coef)
}

// Neg returns -d.
func (d Decimal) Neg() Decimal {
	if d.wide == nil && d.coef != math.MinInt64 {
		return Decimal{coef: -d.coef, exp: d.exp}
	}
	c := new(big.Int).Neg(d.coefficient())
	if c.IsInt64() {
		return Decimal{coef: c.Int64(), exp: d.exp}
	}
	return Decimal{wide: c, exp: d.exp}
}

// Abs returns d without its sign.
func (d Decimal) Abs() Decimal {
	if d.Sign() < 0 {
		return d.Neg()
	}
	return d
}

// scaleTo multiplies coef by 10^n if the product fits an int64.
func scaleTo(coef int64, n int32) (int64, bool) {
	if n == 0 {
		return coef, true
	}
	if n >= int32(len(pow10)) {
		return 0, false
	}
	hi, lo := bits.Mul64(abs(coef), uint64(pow10[n]))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, false
	}
	if coef < 0 {
		return -int64(lo), true
	}
	return int64(lo), true
}

// align returns the coefficients of a and b at their common exponent, if all is small.
func align(a, b Decimal) (x, y int64, exp int32, ok bool) {
	if a.wide != nil || b.wide != nil {
		return 0, 0, 0, false
	}
	switch {
	case a.exp == b.exp:
		return a.coef, b.coef, a.exp, true
	case a.coef == 0:
		return 0, b.coef, b.exp, true
	case b.coef == 0:
		return a.coef, 0, a.exp, true
	case a.exp > b.exp:
		x, ok = scaleTo(a.coef, a.exp-b.exp)
		return x, b.coef, b.exp, ok
	default:
		y, ok = scaleTo(b.coef, b.exp-a.exp)
		return a.coef, y, a.exp, ok
	}
}

// alignBig returns the coefficients of a and b at their common exponent. They are for reading only.
func alignBig(a, b Decimal) (x, y *big.Int, exp int32) {
	x, y, exp = a.coefficient(), b.coefficient(), min(a.exp, b.exp)
	if a.exp > exp {
		x = new(big.Int).Mul(x, bigPow10(a.exp-exp))
	}
	if b.exp > exp {
		y = new(big.Int).Mul(y, bigPow10(b.exp-exp))
	}
	return x, y, exp
}

// Add returns d + e, exactly.
func (d Decimal) Add(e Decimal) (Decimal, error) {
	if x, y, exp, ok := align(d, e); ok {
		if s := x + y; (s > x) == (y > 0) {
			return small(s, int64(exp))
		}
	}
	x, y, exp := alignBig(d, e)
	return fromBig(new(big.Int).Add(x, y), int64(exp))
}

// Sub returns d - e, exactly.
func (d Decimal) Sub(e Decimal) (Decimal, error) { return d.Add(e.Neg()) }

// Mul returns d * e, exactly.
func (d Decimal) Mul(e Decimal) (Decimal, error) {
	if d.wide == nil && e.wide == nil {
		hi, lo := bits.Mul64(abs(d.coef), abs(e.coef))
		if hi == 0 && lo <= math.MaxInt64 {
			c := int64(lo)
			if (d.coef < 0) != (e.coef < 0) {
				c = -c
			}
			return small(c, int64(d.exp)+int64(e.exp))
		}
	}
	return fromBig(new(big.Int).Mul(d.coefficient(), e.coefficient()), int64(d.exp)+int64(e.exp))
}

// Quo returns d / e with scale digits after the decimal point (0 to MaxDigits), rounded half to even.
func (d Decimal) Quo(e Decimal, scale int32) (Decimal, error) {
	if err := checkScale(scale); err != nil {
		return Decimal{}, err
	}
	if e.IsZero() {
		return Decimal{}, ErrDivisionByZero
	}
	num, den := d.Coefficient(), e.Coefficient()
	// d/e = num/den * 10^(d.exp-e.exp); the wanted integer is d/e * 10^scale.
	if shift := d.exp - e.exp + scale; shift >= 0 {
		num.Mul(num, bigPow10(shift))
	} else {
		den.Mul(den, bigPow10(-shift))
	}
	return fromBig(roundQuo(num, den), int64(-scale))
}

// roundQuo returns num/den rounded half to even. It may change both.
func roundQuo(num, den *big.Int) *big.Int {
	if den.Sign() < 0 {
		num.Neg(num)
		den.Neg(den)
	}
	q, r := new(big.Int).QuoRem(num, den, new(big.Int))
	r.Abs(r).Lsh(r, 1)
	if c := r.Cmp(den); c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(sign(num)))
	}
	return q
}

func sign(x *big.Int) int64 {
	if x.Sign() < 0 {
		return -1
	}
	return 1
}

func checkScale(scale int32) error {
	if scale < 0 || scale > MaxDigits {
		return fmt.Errorf("scale %d: it is from 0 to %d", scale, MaxDigits)
	}
	return nil
}

// Round returns d with at most scale digits after the decimal point (0 to MaxDigits), rounded half to even.
func (d Decimal) Round(scale int32) (Decimal, error) {
	if err := checkScale(scale); err != nil {
		return Decimal{}, err
	}
	if d.exp >= -scale {
		return d, nil
	}
	return fromBig(roundQuo(d.Coefficient(), bigPow10(-scale-d.exp)), int64(-scale))
}

// Floor returns the greatest integer that isn't above d.
func (d Decimal) Floor() (Decimal, error) {
	if d.exp >= 0 {
		return d, nil
	}
	// Div rounds towards minus infinity for a positive divisor.
	q := d.Coefficient()
	return fromBig(q.Div(q, bigPow10(-d.exp)), 0)
}

// Ceil returns the least integer that isn't below d.
func (d Decimal) Ceil() (Decimal, error) {
	f, err := d.Neg().Floor()
	return f.Neg(), err
}

// Cmp compares by value: -1, 0 or 1.
func (d Decimal) Cmp(e Decimal) int {
	if x, y, _, ok := align(d, e); ok {
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	if a, b := d.Sign(), e.Sign(); a != b {
		if a < b {
			return -1
		}
		return 1
	}
	x, y, _ := alignBig(d, e)
	return x.Cmp(y)
}

// Equal tells whether d and e are the same number.
func (d Decimal) Equal(e Decimal) bool { return d.exp == e.exp && d.Cmp(e) == 0 }

// Int64 returns d as an int64; ok = false if it has a fraction or is out of range.
func (d Decimal) Int64() (i int64, ok bool) {
	if d.wide != nil || d.exp < 0 {
		return 0, false
	}
	return scaleTo(d.coef, d.exp)
}

// BigInt returns d as an integer; ok = false if it has a fraction.
func (d Decimal) BigInt() (i *big.Int, ok bool) {
	if d.exp < 0 {
		return nil, false
	}
	c := d.Coefficient()
	return c.Mul(c, bigPow10(d.exp)), true
}

// Rat returns d as a fraction.
func (d Decimal) Rat() *big.Rat {
	if i, ok := d.BigInt(); ok {
		return new(big.Rat).SetInt(i)
	}
	return new(big.Rat).SetFrac(d.Coefficient(), bigPow10(-d.exp))
}

// Float64 returns the float nearest to d, half to even; an infinity if d is beyond all of them.
func (d Decimal) Float64() float64 {
	f, err := strconv.ParseFloat(string(d.appendScientific(make([]byte, 0, 32))), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		panic("decimal: a number that ParseFloat doesn't take: " + err.Error())
	}
	return f
}

// FromFloat returns the number that f's shortest decimal form stands for: 0.1 gives 0.1. NaN and infinities are
// errors.
func FromFloat(f float64) (Decimal, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return Decimal{}, fmt.Errorf("%w: %v", ErrSyntax, f)
	}
	return Parse(strconv.FormatFloat(f, 'e', -1, 64))
}
