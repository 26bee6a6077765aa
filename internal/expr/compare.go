package expr

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/expr-lang/expr/ast"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// outcome of a comparison, as a bit. A comparison operator is the set of the outcomes for which it is true.
type outcome uint8

const (
	less outcome = 1 << iota
	equal
	greater
	unordered // one of the floats is NaN

	lessOrEqual    = less | equal
	greaterOrEqual = greater | equal
	notEqual       = less | greater | unordered
)

var comparisons = map[string]outcome{
	"<": less, "<=": lessOrEqual, "==": equal, "!=": notEqual, ">=": greaterOrEqual, ">": greater,
}

// flip is the operator with its sides exchanged.
func (op outcome) flip() outcome {
	f := op &^ (less | greater)
	if op&less != 0 {
		f |= greater
	}
	if op&greater != 0 {
		f |= less
	}
	return f
}

func outcomeOf(c int) outcome {
	switch {
	case c < 0:
		return less
	case c > 0:
		return greater
	}
	return equal
}

func compareFloats(a, b float64) outcome {
	switch {
	case a < b:
		return less
	case a > b:
		return greater
	case a == b:
		return equal
	}
	return unordered
}

// compareIntFloat compares exactly: it doesn't round a to a float.
func compareIntFloat(a int64, b float64) outcome {
	switch {
	case b != b:
		return unordered
	case b >= 1<<63:
		return less
	case b < -1<<63:
		return greater
	}
	whole := int64(b)
	if c := cmp.Compare(a, whole); c != 0 {
		return outcomeOf(c)
	}
	return outcomeOf(cmp.Compare(0, b-float64(whole)))
}

// compareValues compares what isn't null. ok is false where the kinds don't go together.
func compareValues(a, b value.Value) (o outcome, ok bool) {
	ka, kb := a.Kind(), b.Kind()
	switch {
	case ka == value.Float && kb == value.Float:
		return compareFloats(a.Float(), b.Float()), true
	case ka == value.Int && kb == value.Float:
		return compareIntFloat(a.Int(), b.Float()), true
	case ka == value.Float && kb == value.Int:
		return compareIntFloat(b.Int(), a.Float()).flip(), true
	case ka == kb, ka == value.Int && kb == value.Decimal, ka == value.Decimal && kb == value.Int:
		return outcomeOf(value.Compare(a, b)), true
	}
	return 0, false
}

// equalValues is == on values whose types show at run time: null is equal to null only, and values of types that
// don't go together are unequal.
func equalValues(a, b value.Value) bool {
	if a.IsNull() || b.IsNull() {
		return a.IsNull() && b.IsNull()
	}
	o, ok := compareValues(a, b)
	return ok && o == equal
}

// comparable tells whether operands of two kinds may be compared with ==.
func comparable(a, b vec.Kind) bool {
	return a == b || a == vec.Any || b == vec.Any || a == vec.Null || b == vec.Null || widens(a, b) || widens(b, a)
}

func (c *compiler) comparison(x *ast.BinaryNode, l, r operand) operand {
	op := comparisons[x.Operator]
	equality := op == equal || op == notEqual
	if l.constant && !r.constant { // a constant stands on the right
		l, r, op = r, l, op.flip()
	}
	l, r = c.sameNumbers(l, r)
	lk, rk := l.t.Kind, r.t.Kind
	switch {
	case l.isNil() || r.isNil():
		if !equality {
			return c.errorOp(x, "== nil and != nil test for nil", "%s with nil is never true", x.Operator)
		}
		if l.isNil() {
			l = r
		}
		return c.made(x, Bool.NotNull(), &nullKernel{x: l.k, want: op == equal}, true, l)
	case lk == vec.Any || rk == vec.Any:
		k := &compareAny{l: l.k, r: r.k, op: op, constant: r.constant, text: textOf(x)}
		if d := c.decimalLiteral(r); d.t.Kind == vec.Decimal {
			k.decimal = d.val
		}
		return c.made(x, Bool.NotNull(), k, true, l, r)
	case !comparable(lk, rk):
		return c.incomparable(x, l, r)
	case lk == vec.List, lk == vec.Bool && !equality:
		return c.errorOp(x, "", "%s doesn't apply, %s", x.Operator, describe(l))
	}
	if lk == vec.Decimal || rk == vec.Decimal {
		t := vec.Type{Kind: vec.Decimal}
		l, r = c.convert(l, t, ""), c.convert(r, t, "")
	} else if lk != rk && r.constant {
		l, r = c.exactConstant(l, r)
	}
	k := &compareKernel{l: l.k, r: r.k, op: op}
	if r.constant && l.t.Kind == r.t.Kind {
		k.constant, k.val = true, r.val
	}
	return c.made(x, Bool.NotNull(), k, true, l, r)
}

// exactConstant gives the constant r the type of l, an int or a float, if it has exactly its value there.
func (c *compiler) exactConstant(l, r operand) (operand, operand) {
	const exact = 1 << 53
	if l.t.Kind == vec.Float {
		if i := r.val.Int(); -exact <= i && i <= exact {
			r = constant(r.node, l.t.Type, value.FloatOf(float64(i)))
		}
	} else if f := r.val.Float(); -exact <= f && f <= exact && f == float64(int64(f)) {
		r = constant(r.node, l.t.Type, value.IntOf(int64(f)))
	}
	return l, r
}

func (c *compiler) incomparable(x *ast.BinaryNode, l, r operand) operand {
	hint := ""
	literal, other := r, l
	if l.constant {
		literal, other = l, r
	}
	switch {
	case other.t.Kind == vec.Time && literal.t.Kind == vec.String && literal.constant:
		hint = fmt.Sprintf("write timestamp(%s)", nameOf(literal.node))
	case other.t.Kind == vec.String && number(literal.t.Kind) && literal.constant:
		hint = fmt.Sprintf("declare %s under types:, or write %s(%s)", nameOf(other.node), literal.t.Kind, nameOf(other.node))
	case l.t.Kind == vec.Float || r.t.Kind == vec.Float:
		hint = "convert one: decimal(x) or float(x)"
	}
	return c.errorOp(x, hint, "%s compares values of one type, %s and %s", x.Operator, describe(l), describe(r))
}

// nullKernel is x == nil, or x != nil.
type nullKernel struct {
	x    kernel
	want bool
	buf  vec.Column
}

func (k *nullKernel) eval(m *machine, sel []int32, out *vec.Column) *vec.Column {
	x := k.x.eval(m, sel, &k.buf)
	out.Reset(tBool, m.n)
	if !x.HasNulls() {
		for _, r := range sel {
			out.Bool[r] = !k.want
		}
		return out
	}
	for _, r := range sel {
		out.Bool[r] = x.Null[r] == k.want
	}
	return out
}

func (k *nullKernel) filter(m *machine, sel, dst []int32) []int32 {
	x := k.x.eval(m, sel, &k.buf)
	if !x.HasNulls() {
		if k.want {
			return dst
		}
		return append(dst, sel...)
	}
	return filterNulls(dst, x.Null, sel, k.want)
}

// filterNulls appends the rows that are null, or those that aren't.
func filterNulls(dst []int32, null []bool, sel []int32, want bool) []int32 {
	n, out := len(dst), room(dst, len(sel))
	for _, r := range sel {
		out[n] = r
		n += bit(null[r] == want)
	}
	return out[:n]
}

// compareAny compares values whose types show at run time.
type compareAny struct {
	l, r       kernel
	op         outcome
	constant   bool        // the right side is the same at every row
	decimal    value.Value // what a float literal on the right stands for beside a decimal
	text       string
	bufL, bufR vec.Column
}

func (k *compareAny) eval(m *machine, sel []int32, out *vec.Column) *vec.Column {
	a, b := k.l.eval(m, sel, &k.bufL), k.r.eval(m, sel, &k.bufR)
	out.Reset(tBool, m.n)
	equality := k.op == equal || k.op == notEqual
	var y value.Value
	for i, r := range sel {
		x := a.Value(int(r))
		if i == 0 || !k.constant {
			y = b.Value(int(r))
		}
		if x.Kind() == value.Int && y.Kind() == value.Int {
			out.Bool[r] = outcomeOf(cmp.Compare(x.Int(), y.Int()))&k.op != 0
			continue
		}
		if x.Kind() == value.Decimal && k.decimal.Kind() == value.Decimal {
			out.Bool[r] = outcomeOf(value.Compare(x, k.decimal))&k.op != 0
			continue
		}
		if mixed(x, y) || mixed(y, x) {
			m.fail(r, func() string { return k.text + ": " + errMixed })
			out.SetNull(int(r))
			continue
		}
		if equality {
			out.Bool[r] = equalValues(x, y) == (k.op == equal)
			continue
		}
		out.Bool[r] = false
		if x.IsNull() || y.IsNull() {
			continue
		}
		o, ok := compareValues(x, y)
		if kind := x.Kind(); !ok || kind == value.Bool || kind == value.List {
			m.fail(r, func() string {
				return fmt.Sprintf("%s: %s and %s have no order", k.text, articleOf(x), articleOf(y))
			})
			out.SetNull(int(r))
			continue
		}
		out.Bool[r] = o&k.op != 0
	}
	return out
}

const errMixed = "a float and a decimal don't mix, convert one"

func mixed(a, b value.Value) bool { return a.Kind() == value.Float && b.Kind() == value.Decimal }

// compareKernel compares columns of one type, or of int and float. With null, == and != test for null, the others
// are false.
type compareKernel struct {
	l, r       kernel
	op         outcome
	constant   bool // the right side is val
	val        value.Value
	bufL, bufR vec.Column
	some       []int32    // the rows without nulls
	result     vec.Column // of a filter
}

func (k *compareKernel) eval(m *machine, sel []int32, out *vec.Column) *vec.Column {
	a, b := k.l.eval(m, sel, &k.bufL), k.r.eval(m, sel, &k.bufR)
	out.Reset(tBool, m.n)
	o := out.Bool
	if a.HasNulls() || b.HasNulls() {
		k.some = k.some[:0]
		for _, r := range sel {
			if x, y := a.IsNull(int(r)), b.IsNull(int(r)); x || y {
				o[r] = k.nulls(x, y)
			} else {
				k.some = append(k.some, r)
			}
		}
		sel = k.some
	}
	switch lk, rk := a.Type.Kind, b.Type.Kind; {
	case lk != rk && lk == vec.Int:
		for _, r := range sel {
			o[r] = compareIntFloat(a.Int[r], b.Float[r])&k.op != 0
		}
	case lk != rk:
		flipped := k.op.flip()
		for _, r := range sel {
			o[r] = compareIntFloat(b.Int[r], a.Float[r])&flipped != 0
		}
	case lk == vec.Int || lk == vec.Time:
		compareInto(o, a.Int, b.Int, sel, k.op)
	case lk == vec.Float:
		compareInto(o, a.Float, b.Float, sel, k.op)
	case lk == vec.String || lk == vec.Bytes:
		for _, r := range sel {
			o[r] = compareStrings(a.Str[r], b.Str[r], k.op)
		}
	case lk == vec.Bool:
		for _, r := range sel {
			o[r] = (a.Bool[r] == b.Bool[r]) == (k.op == equal)
		}
	case lk == vec.Decimal:
		for _, r := range sel {
			o[r] = outcomeOf(a.Dec[r].Cmp(b.Dec[r]))&k.op != 0
		}
	}
	return out
}

// nulls is the result where a side, or both, are null.
func (k *compareKernel) nulls(l, r bool) bool {
	return k.op == equal && l && r || k.op == notEqual && l != r
}

// compareStrings spares the order where only equality is asked for.
func compareStrings(a, b []byte, op outcome) bool {
	switch op {
	case equal:
		return string(a) == string(b)
	case notEqual:
		return string(a) != string(b)
	}
	return outcomeOf(bytes.Compare(a, b))&op != 0
}

func compareInto[T int64 | float64](o []bool, a, b []T, sel []int32, op outcome) {
	switch op {
	case less:
		for _, r := range sel {
			o[r] = a[r] < b[r]
		}
	case lessOrEqual:
		for _, r := range sel {
			o[r] = a[r] <= b[r]
		}
	case equal:
		for _, r := range sel {
			o[r] = a[r] == b[r]
		}
	case notEqual:
		for _, r := range sel {
			o[r] = a[r] != b[r]
		}
	case greaterOrEqual:
		for _, r := range sel {
			o[r] = a[r] >= b[r]
		}
	case greater:
		for _, r := range sel {
			o[r] = a[r] > b[r]
		}
	}
}

func (k *compareKernel) filter(m *machine, sel, dst []int32) []int32 {
	if !k.constant {
		return truths(k.eval(m, sel, &k.result), sel, dst)
	}
	a := k.l.eval(m, sel, &k.bufL)
	if a.HasNulls() {
		if k.op == notEqual { // which is true for null
			return truths(k.eval(m, sel, &k.result), sel, dst)
		}
		start := len(dst)
		dst = filterNulls(dst, a.Null, sel, false)
		sel, dst = dst[start:], dst[:start]
	}
	switch a.Type.Kind {
	case vec.Int:
		return filterConst(dst, a.Int, k.val.Int(), sel, k.op)
	case vec.Time:
		return filterConst(dst, a.Int, k.val.Nanos(), sel, k.op)
	case vec.Float:
		return filterConst(dst, a.Float, k.val.Float(), sel, k.op)
	case vec.String:
		return filterString(dst, a.Str, k.val.Str(), sel, k.op)
	}
	return truths(k.eval(m, sel, &k.result), sel, dst)
}

// filterConst appends the rows whose value compares to b as wanted. It writes each row and counts it if it is one:
// a branch would be mispredicted.
func filterConst[T int64 | float64](dst []int32, a []T, b T, sel []int32, op outcome) []int32 {
	n, out := len(dst), room(dst, len(sel))
	switch op {
	case less:
		for _, r := range sel {
			out[n] = r
			n += bit(a[r] < b)
		}
	case lessOrEqual:
		for _, r := range sel {
			out[n] = r
			n += bit(a[r] <= b)
		}
	case equal:
		for _, r := range sel {
			out[n] = r
			n += bit(a[r] == b)
		}
	case notEqual:
		for _, r := range sel {
			out[n] = r
			n += bit(a[r] != b)
		}
	case greaterOrEqual:
		for _, r := range sel {
			out[n] = r
			n += bit(a[r] >= b)
		}
	case greater:
		for _, r := range sel {
			out[n] = r
			n += bit(a[r] > b)
		}
	}
	return out[:n]
}

// room returns dst with n more elements of undefined content, in place where there is room.
func room(dst []int32, n int) []int32 {
	if cap(dst)-len(dst) >= n {
		return dst[:len(dst)+n]
	}
	return append(dst, make([]int32, n)...)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func filterString(dst []int32, a [][]byte, b string, sel []int32, op outcome) []int32 {
	if op != equal && op != notEqual {
		raw := vec.Raw(b)
		for _, r := range sel {
			if compareStrings(a[r], raw, op) {
				dst = append(dst, r)
			}
		}
		return dst
	}
	n, out := len(dst), room(dst, len(sel))
	for _, r := range sel {
		out[n] = r
		n += bit((string(a[r]) == b) == (op == equal))
	}
	return out[:n]
}
