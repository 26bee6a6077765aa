package expr

import (
	"fmt"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// compiler checks an expression and builds its kernels in one go. After a mistake it goes on, to find the others,
// with operands without kernel; these raise no further mistakes.
type compiler struct {
	e    *Expr
	s    *Scope
	errs Errors

	sites []ast.Node // calls of impure functions
}

// operand is a compiled subexpression.
type operand struct {
	node ast.Node
	t    Type
	k    kernel // nil after a mistake

	constant bool
	val      value.Value // of a constant
}

func (o operand) bad() bool { return o.k == nil }

// isNil tells whether o is nil at every row.
func (o operand) isNil() bool { return o.t.Kind == vec.Null || o.constant && o.val.IsNull() }

// errorf reports a mistake at the beginning of n.
func (c *compiler) errorf(n ast.Node, hint, format string, args ...any) operand {
	return c.errorAt(c.e.at(leftmost(n)), n, hint, format, args...)
}

// errorOp reports a mistake at the operator or the name of n.
func (c *compiler) errorOp(n ast.Node, hint, format string, args ...any) operand {
	return c.errorAt(c.e.at(n), n, hint, format, args...)
}

func (c *compiler) errorAt(offset int, n ast.Node, hint, format string, args ...any) operand {
	c.errs.add(&Error{Offset: offset, Msg: fmt.Sprintf(format, args...), Hint: hint})
	return operand{node: n}
}

// describe is "carrier is a string".
func describe(o operand) string { return nameOf(o.node) + " is " + article(o.t.Type) }

func (c *compiler) expr(n ast.Node) operand {
	if path, ok := pathOf(n); ok {
		return c.field(n, path)
	}
	switch x := n.(type) {
	case *ast.NilNode:
		return constant(n, vec.Type{Kind: vec.Null}, value.NullValue())
	case *ast.BoolNode:
		return constant(n, vec.Type{Kind: vec.Bool}, value.BoolOf(x.Value))
	case *ast.IntegerNode:
		return constant(n, vec.Type{Kind: vec.Int}, value.IntOf(int64(x.Value)))
	case *ast.FloatNode:
		return constant(n, vec.Type{Kind: vec.Float}, value.FloatOf(x.Value))
	case *ast.StringNode:
		return constant(n, vec.Type{Kind: vec.String}, value.StringOf(x.Value))
	case *ast.BytesNode:
		return constant(n, vec.Type{Kind: vec.Bytes}, value.BytesOf(x.Value))
	case *ast.ChainNode:
		return c.expr(x.Node)
	case *ast.MemberNode:
		return c.member(x)
	case *ast.UnaryNode:
		return c.unary(x)
	case *ast.BinaryNode:
		return c.binary(x)
	case *ast.ConditionalNode:
		return c.conditional(x)
	case *ast.ArrayNode:
		return c.list(x, false)
	case *ast.CallNode:
		return c.call(x)
	}
	panic(fmt.Sprintf("expr: %T passed the parser", n))
}

func (c *compiler) exprs(ns []ast.Node) (os []operand, ok bool) {
	ok = true
	for _, n := range ns {
		o := c.expr(n)
		ok = ok && !o.bad()
		os = append(os, o)
	}
	return os, ok
}

func constant(n ast.Node, t vec.Type, v value.Value) operand {
	return operand{node: n, t: Type{t, v.IsNull()}, k: &constKernel{t: t, v: v}, constant: true, val: v}
}

// made returns the operand of a kernel over args. Where all of them are constants, so is the result; its failure
// is a mistake then.
func (c *compiler) made(n ast.Node, t Type, k kernel, pure bool, args ...operand) operand {
	o := operand{node: n, t: t, k: k}
	if !pure {
		return o
	}
	for _, a := range args {
		if !a.constant {
			return o
		}
	}
	p := Program{root: k, typ: t}
	var ctx Context
	var out vec.Column
	p.Eval(&ctx, &vec.Rows{N: 1}, nil, &out)
	if len(ctx.Errs) > 0 {
		return c.errorOp(n, "", "%s", ctx.Errs[0].Msg)
	}
	return constant(n, t.Type, own(out.Value(0)))
}

// own returns v with strings that are its own.
func own(v value.Value) value.Value {
	switch v.Kind() {
	case value.String:
		return value.StringOf(strings.Clone(v.Str()))
	case value.Bytes:
		return value.BytesOf(append([]byte{}, v.Bytes()...))
	case value.List:
		vs := make([]value.Value, len(v.List()))
		for i, e := range v.List() {
			vs[i] = own(e)
		}
		return value.ListOf(vs)
	}
	return v
}

func (c *compiler) field(n ast.Node, name string) operand {
	if f, ok := c.s.Lookup(name); ok {
		return operand{node: n, t: f.Type, k: &fieldKernel{index: f.Index, t: f.Type.Type, name: name}}
	}
	record, member, dotted := strings.Cut(name, ".")
	switch f, isField := c.s.Lookup(record); {
	case c.s.IsRecord(name):
		return c.errorf(n, c.s.nearest(name+"."), "%s is a record: name one of its fields", name)
	case dotted && c.s.IsRecord(record):
		return c.errorf(n, c.s.nearest(name), "unknown field %s of %s", member, record)
	case dotted && isField:
		return c.errorf(n, "", "%s is %s and has no fields", record, article(f.Type.Type))
	case dotted:
		return c.errorf(n, c.s.nearest(record), "unknown name %s", record)
	case name == envName:
		return c.errorf(n, `write $env["name"]`, "$env stands for all fields of the row")
	}
	if _, isFunction := functions[name]; isFunction {
		return c.errorf(n, "write "+name+"(…)", "%s is a function", name)
	}
	return c.errorf(n, c.s.nearest(name), "unknown field %s", name)
}

// member compiles what isn't a name: an index, or a field of something computed.
func (c *compiler) member(x *ast.MemberNode) operand {
	base, index := c.expr(x.Node), c.expr(x.Property)
	if base.bad() || index.bad() {
		return operand{node: x}
	}
	if index.t.Kind == vec.String {
		return c.errorf(x, "", "%s and has no fields", describe(base))
	}
	elem := vec.Any
	switch base.t.Kind {
	case vec.List:
		elem = base.t.Elem
	case vec.Any:
	case vec.Null:
		return constant(x, base.t.Type, base.val)
	case vec.String:
		return c.errorf(x, "substr(s, 0, 1) is the first character", "a string has no [ ]")
	default:
		return c.errorf(x, "", "%s and has no [ ]", describe(base))
	}
	index = c.coerce(index, vec.Type{Kind: vec.Int}, "[ ]", "an int")
	if index.bad() {
		return index
	}
	k := &indexKernel{list: base.k, index: index.k, t: vec.Type{Kind: elem}, text: textOf(x)}
	return c.made(x, Type{k.t, true}, k, true, base, index)
}

func (c *compiler) unary(x *ast.UnaryNode) operand {
	o := c.expr(x.Node)
	if o.bad() {
		return operand{node: x}
	}
	switch x.Operator {
	case "!", "not":
		o = c.coerce(o, vec.Type{Kind: vec.Bool}, x.Operator, "a condition")
		if o.bad() {
			return o
		}
		return c.made(x, o.t, &notKernel{x: o.k}, true, o)
	case "+":
		return c.apply(x, positive, o)
	}
	return c.apply(x, negative, o)
}

func (c *compiler) binary(x *ast.BinaryNode) operand {
	l := c.expr(x.Left)
	var r operand
	if list, ok := x.Right.(*ast.ArrayNode); ok && l.t.Kind == vec.Decimal {
		r = c.list(list, true)
	} else {
		r = c.expr(x.Right)
	}
	if l.bad() || r.bad() {
		return operand{node: x}
	}
	switch x.Operator {
	case "&&", "and", "||", "or":
		return c.logic(x, l, r)
	case "==", "!=", "<", "<=", ">", ">=":
		return c.comparison(x, l, r)
	case "in":
		return c.in(x, l, r)
	case "??":
		return c.orElse(x, l, r)
	}
	l, r = c.sameNumbers(l, r)
	f, ok := operators[x.Operator]
	if !ok {
		return c.errorOp(x, "", "unknown operator %s", x.Operator)
	}
	return c.apply(x, f, l, r)
}

func (c *compiler) logic(x *ast.BinaryNode, l, r operand) operand {
	l = c.coerce(l, vec.Type{Kind: vec.Bool}, x.Operator, "a condition")
	r = c.coerce(r, vec.Type{Kind: vec.Bool}, x.Operator, "a condition")
	if l.bad() || r.bad() {
		return operand{node: x}
	}
	and := x.Operator == "&&" || x.Operator == "and"
	k := &logicKernel{l: l.k, r: r.k, and: and, strict: !l.t.Nullable}
	return c.made(x, Type{vec.Type{Kind: vec.Bool}, l.t.Nullable || r.t.Nullable}, k, true, l, r)
}

func (c *compiler) conditional(x *ast.ConditionalNode) operand {
	cond := c.expr(x.Cond)
	var yes operand
	if x.Exp1 == x.Cond { // a ?: b has its condition for the result, which is true then
		yes = constant(x.Exp1, vec.Type{Kind: vec.Bool}, value.BoolOf(true))
	} else {
		yes = c.expr(x.Exp1)
	}
	arms := []operand{yes, c.expr(x.Exp2)}
	ok := !arms[0].bad() && !arms[1].bad()
	if !cond.bad() {
		cond = c.coerce(cond, vec.Type{Kind: vec.Bool}, "? :", "a condition")
	}
	if cond.bad() || !ok {
		return operand{node: x}
	}
	t, ok := c.unify(arms)
	if !ok {
		return c.errorf(x, "", "both results of ? : need one type, %s and %s", describe(arms[0]), describe(arms[1]))
	}
	k := &conditionalKernel{cond: cond.k, yes: arms[0].k, no: arms[1].k, t: t}
	return c.made(x, Type{t, arms[0].t.Nullable || arms[1].t.Nullable}, k, true, cond, arms[0], arms[1])
}

func (c *compiler) orElse(n ast.Node, l, r operand) operand {
	both := []operand{l, r}
	t, ok := c.unify(both)
	if !ok {
		return c.errorf(n, "", "both sides of ?? need one type, %s and %s", describe(l), describe(r))
	}
	k := &orElseKernel{l: both[0].k, r: both[1].k, t: t}
	return c.made(n, Type{t, l.t.Nullable && r.t.Nullable}, k, true, l, r)
}

// list compiles [a, b, …]. In a list of decimals, float literals are decimals.
func (c *compiler) list(x *ast.ArrayNode, decimals bool) operand {
	elems, ok := c.exprs(x.Nodes)
	if !ok {
		return operand{node: x}
	}
	for i := range elems {
		if decimals && elems[i].t.Kind == vec.Float {
			elems[i] = c.decimalLiteral(elems[i])
		}
	}
	elem := vec.Type{Kind: vec.Null}
	if len(elems) > 0 {
		if elem, ok = c.unify(elems); !ok {
			elem = vec.Type{Kind: vec.Any}
			for i := range elems {
				elems[i] = c.convert(elems[i], elem, "")
			}
		}
	}
	if elem.Kind == vec.List {
		elem = vec.Type{Kind: vec.Any}
		for i := range elems {
			elems[i] = c.convert(elems[i], elem, "")
		}
	}
	k := &listKernel{t: vec.ListOf(elem.Kind), bufs: make([]vec.Column, len(elems)), cols: make([]*vec.Column, len(elems))}
	for _, e := range elems {
		k.elems = append(k.elems, e.k)
	}
	return c.made(x, Type{k.t, false}, k, true, elems...)
}

// in compiles l in r.
func (c *compiler) in(x *ast.BinaryNode, l, r operand) operand {
	switch r.t.Kind {
	case vec.List, vec.Any, vec.Null:
	default:
		hint := ""
		if l.t.Kind == vec.String && r.t.Kind == vec.String {
			hint = "write " + nameOf(r.node) + " contains " + nameOf(l.node)
		}
		return c.errorf(r.node, hint, "in needs a list, %s", describe(r))
	}
	if r.t.Kind == vec.List && r.t.Elem == vec.Decimal && l.t.Kind == vec.Float {
		l = c.decimalLiteral(l)
	}
	if r.t.Kind == vec.List && !comparable(l.t.Kind, r.t.Elem) {
		return c.errorf(x, "", "in compares with elements of its own type, %s and %s", describe(l), describe(r))
	}
	k := &inKernel{x: l.k, list: r.k}
	if r.constant {
		k.prepare(l.t.Kind, r.val)
	}
	return c.made(x, Bool.NotNull(), k, true, l, r)
}

// decimalLiteral turns the literal of a float into the decimal that is written there.
func (c *compiler) decimalLiteral(o operand) operand {
	n, sign := o.node, ""
	if u, ok := n.(*ast.UnaryNode); ok && u.Operator == "-" {
		n, sign = u.Node, "-"
	}
	if _, ok := n.(*ast.FloatNode); !ok {
		return o
	}
	loc := n.Location()
	text := strings.ReplaceAll(c.e.src[c.e.byteOffset(loc.From):c.e.byteOffset(loc.To)], "_", "")
	d, err := decimal.Parse(sign + text)
	if err != nil {
		return o
	}
	return constant(o.node, vec.Type{Kind: vec.Decimal}, value.DecimalOf(d))
}

// sameNumbers lets a float literal beside a decimal be a decimal.
func (c *compiler) sameNumbers(l, r operand) (operand, operand) {
	switch {
	case l.t.Kind == vec.Decimal && r.t.Kind == vec.Float:
		r = c.decimalLiteral(r)
	case l.t.Kind == vec.Float && r.t.Kind == vec.Decimal:
		l = c.decimalLiteral(l)
	}
	return l, r
}

// unify converts operands to their common type: that of all of them, where an int is widened to a float or a
// decimal, nil joins anything, and what is known at run time only makes all of it so. ok is false if there is none.
func (c *compiler) unify(os []operand) (t vec.Type, ok bool) {
	for _, o := range os {
		if o.t.Kind == vec.Decimal {
			for i := range os {
				if os[i].t.Kind == vec.Float {
					os[i] = c.decimalLiteral(os[i])
				}
			}
			break
		}
	}
	for _, o := range os {
		if t, ok = common(t, o.t.Type); !ok {
			return t, false
		}
	}
	for i := range os {
		os[i] = c.convert(os[i], t, "")
	}
	return t, true
}

func common(a, b vec.Type) (vec.Type, bool) {
	switch {
	case a == b, b.Kind == vec.Null:
		return a, true
	case a.Kind == vec.Null:
		return b, true
	case a.Kind == vec.Any || b.Kind == vec.Any:
		return vec.Type{Kind: vec.Any}, true
	case widens(a.Kind, b.Kind):
		return b, true
	case widens(b.Kind, a.Kind):
		return a, true
	case a.Kind == vec.List && b.Kind == vec.List && a.Elem == vec.Null:
		return b, true
	case a.Kind == vec.List && b.Kind == vec.List && b.Elem == vec.Null:
		return a, true
	}
	return vec.Type{}, false
}

// widens tells whether an operand of kind from may stand where to is needed.
func widens(from, to vec.Kind) bool {
	return from == vec.Int && (to == vec.Float || to == vec.Decimal)
}

// coerce converts o to t for a place that needs it, or reports a mistake: "filter needs a condition, x is an int".
func (c *compiler) coerce(o operand, t vec.Type, what, need string) operand {
	if o.bad() {
		return o
	}
	if t.Kind == vec.Decimal && o.t.Kind == vec.Float {
		o = c.decimalLiteral(o)
	}
	k := o.t.Kind
	switch {
	case o.t.Type == t, k == vec.Null, k == vec.Any, t.Kind == vec.Any, widens(k, t.Kind),
		k == vec.List && t.Kind == vec.List && (o.t.Elem == vec.Null || o.t.Elem == vec.Any || t.Elem == vec.Any):
		return c.convert(o, t, what+" needs "+need)
	}
	return c.errorf(o.node, "", "%s needs %s, %s", what, need, describe(o))
}

// convert converts o to t, which it can be. need begins the message for a row that turns out to be something else.
func (c *compiler) convert(o operand, t vec.Type, need string) operand {
	if o.bad() || o.t.Type == t {
		return o
	}
	nullable := o.t.Nullable || o.t.Kind == vec.Null || o.t.Kind == vec.Any
	k := &convertKernel{x: o.k, t: t, need: need, name: nameOf(o.node)}
	return c.made(o.node, Type{t, nullable}, k, true, o)
}
