package expr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// nullRule is what a function does at a row where an argument is null.
type nullRule uint8

const (
	nullFails   nullRule = iota // the row fails: the rule for functions
	nullPasses                  // the result is null: the rule for arithmetic
	nullIsFalse                 // the result is false: the rule for comparisons
	nullIsGiven                 // the overload sees to it
)

// function is a function or an operator. What it does depends on its arguments' types.
type function struct {
	name      string
	operator  bool
	nulls     nullRule
	impure    bool // depends on more than its arguments
	custom    bool // a user's: it is called when there are rows, not before
	nullable  bool // gives null by itself
	overloads []overload
}

// overload is a function for one list of argument types. A function's overloads are tried in order: first for an
// exact match, then with ints widened to floats or decimals.
type overload struct {
	params   []vec.Type
	variadic bool // the last parameter may be repeated
	result   vec.Type
	run      loop
	// prepare makes the loop from an argument that has to be a constant, the one with index constant.
	prepare  func(v value.Value) (loop, error)
	constant int
}

// loop computes an overload for the rows in sel. Unless the function is given nulls, no argument is null there. out
// has been reset to the result's type; a row that fails is told by call.fail.
type loop func(c *callKernel, m *machine, args []*vec.Column, sel []int32, out *vec.Column)

// functions are the functions by name. It is filled by init functions and not changed later.
var functions = map[string]*function{}

func register(fs ...*function) {
	for _, f := range fs {
		if functions[f.name] != nil {
			panic("expr: two functions " + f.name)
		}
		functions[f.name] = f
	}
}

func (o *overload) param(i int) vec.Type { return o.params[min(i, len(o.params)-1)] }

func (o *overload) takes(n int) bool {
	return n == len(o.params) || o.variadic && n >= len(o.params)
}

// match is the cost of an argument of type arg for a parameter: 0 if it fits exactly, 1 if it is widened, seenLater
// if it shows at run time, -1 if it doesn't fit.
func match(arg, param vec.Type) int {
	lists := arg.Kind == vec.List && param.Kind == vec.List
	switch {
	case arg == param || param.Kind == vec.Any || lists && param.Elem == vec.Any:
		return 0
	case arg.Kind == vec.Null, lists && arg.Elem == vec.Null:
		return 0
	case widens(arg.Kind, param.Kind):
		return 1
	case arg.Kind == vec.Any, lists && arg.Elem == vec.Any:
		return seenLater
	}
	return -1
}

// pick returns the overloads that the types may turn out to need: one, unless a type shows at run time only.
func (f *function) pick(args []vec.Type) []*overload {
	var fitting []*overload
	dynamic := false
	for i := range f.overloads {
		o := &f.overloads[i]
		if !o.takes(len(args)) {
			continue
		}
		if cost := o.cost(args); cost >= 0 {
			fitting = append(fitting, o)
			dynamic = dynamic || cost >= seenLater
		}
	}
	if dynamic || len(fitting) == 0 {
		return fitting
	}
	return []*overload{fittest(fitting, args)}
}

// fittest returns the overload that the types suit best, the first one of several; nil if they suit none.
func fittest(os []*overload, args []vec.Type) (best *overload) {
	least := 0
	for _, o := range os {
		if cost := o.cost(args); cost >= 0 && (best == nil || cost < least) {
			best, least = o, cost
		}
	}
	return best
}

// seenLater is the cost of an argument whose type shows at run time; it exceeds that of any number of widened ones.
const seenLater = 1 << 16

// cost tells how well types suit the overload: 0 exactly, -1 not at all.
func (o *overload) cost(args []vec.Type) int {
	sum := 0
	for i, a := range args {
		c := match(a, o.param(i))
		if c < 0 {
			return -1
		}
		sum += c
	}
	return sum
}

// call compiles a call of a function.
func (c *compiler) call(x *ast.CallNode) operand {
	name := x.Callee.(*ast.IdentifierNode).Value
	args, ok := c.exprs(x.Arguments)
	switch {
	case name == "coalesce":
		if len(args) == 0 {
			c.errs.add(arityError(c.e.at(x), name, 1, -1, 0))
			return operand{node: x}
		}
		if !ok {
			return operand{node: x}
		}
		if !c.oneType(x, name, args) {
			return operand{node: x}
		}
		o := args[len(args)-1]
		for i := len(args) - 2; i >= 0; i-- {
			o = c.orElse(x, args[i], o)
		}
		return o
	case (name == "min" || name == "max") && len(args) > 2:
		if !ok {
			return operand{node: x}
		}
		if !c.oneType(x, name, args) {
			return operand{node: x}
		}
		o := args[0]
		for _, a := range args[1:] {
			if o = c.apply(x, functions[name], o, a); o.bad() {
				break
			}
		}
		return o
	}
	f, known := c.function(name)
	if _, isAggregate := aggregates[name]; isAggregate && (!known || len(args) == 1) {
		return c.errorf(x, "name it under aggregate: and use its result in a stream behind", "%s() is an aggregate, it has no value at a row", name)
	}
	if !known {
		return c.errorf(x, didYouMean(name, c.functionNames()), "unknown function %s()", name)
	}
	if !ok {
		return operand{node: x}
	}
	return c.apply(x, f, args...)
}

// oneType converts arguments to their common type, or reports the first one that has none with those before it.
func (c *compiler) oneType(n ast.Node, name string, args []operand) bool {
	if _, ok := c.unify(args); ok {
		return true
	}
	var t vec.Type
	for i, a := range args {
		next, ok := common(t, a.t.Type)
		if !ok {
			c.errorf(n, "", "%s() needs arguments of one type, %s and %s", name, describe(args[i-1]), describe(a))
			break
		}
		t = next
	}
	return false
}

// apply compiles a function or an operator over its arguments.
func (c *compiler) apply(n ast.Node, f *function, args ...operand) operand {
	if !c.arity(n, f, len(args)) {
		return operand{node: n}
	}
	if len(args) == 2 {
		args[0], args[1] = c.sameNumbers(args[0], args[1])
	}
	types := make([]vec.Type, len(args))
	nullable := false
	for i, a := range args {
		types[i] = a.t.Type
		nullable = nullable || f.nulls == nullPasses && a.t.Nullable
	}
	candidates := f.pick(types)
	if len(candidates) == 0 {
		return c.misapplied(n, f, args)
	}
	k := &callKernel{f: f, text: textOf(n), bufs: make([]vec.Column, len(args)), cols: make([]*vec.Column, len(args))}
	if f.impure {
		k.site = c.site(n)
	}
	var t vec.Type
	if len(candidates) == 1 {
		o := candidates[0]
		for i := range args {
			if args[i].bad() {
				return operand{node: n}
			}
			p := o.param(i)
			if p.Kind == vec.Any || p.Kind == vec.List && p.Elem == vec.Any && args[i].t.Kind == vec.List {
				continue
			}
			args[i] = c.convert(args[i], p, f.needs(i, len(args)))
		}
		k.run, t = o.run, o.result
		if o.prepare != nil {
			a := args[o.constant]
			if !a.constant || a.val.IsNull() {
				return c.errorf(a.node, "", "%s needs %s here that is written out, not computed from the row", f.title(), article(o.param(o.constant)))
			}
			run, err := o.prepare(a.val)
			if err != nil {
				return c.errorf(a.node, "", "%s: %s", f.title(), err)
			}
			k.run = run
		}
	} else {
		t = candidates[0].result
		for _, o := range candidates[1:] {
			if o.result != t {
				t = vec.Type{Kind: vec.Any}
			}
		}
		k.run = (&dynamicCall{candidates: candidates}).run
	}
	k.t = t
	for _, a := range args {
		if a.bad() {
			return operand{node: n}
		}
		k.args = append(k.args, a.k)
		k.names = append(k.names, nameOf(a.node))
	}
	return c.made(n, Type{t, nullable || f.nullable || t.Kind == vec.Any}, k, !f.impure && !f.custom, args...)
}

// site numbers the calls of impure functions. A chained comparison compiles its middle twice, as one call.
func (c *compiler) site(n ast.Node) int {
	i := slices.Index(c.sites, n)
	if i < 0 {
		i = len(c.sites)
		c.sites = append(c.sites, n)
	}
	return i
}

func (f *function) title() string {
	if f.operator {
		return f.name
	}
	return f.name + "()"
}

func (c *compiler) arity(n ast.Node, f *function, have int) bool {
	least, most := -1, 0
	for i := range f.overloads {
		o := &f.overloads[i]
		if o.takes(have) {
			return true
		}
		if least < 0 || len(o.params) < least {
			least = len(o.params)
		}
		if o.variadic {
			most = -1
		} else if most >= 0 {
			most = max(most, len(o.params))
		}
	}
	c.errs.add(arityError(c.e.at(leftmost(n)), f.name, least, most, have))
	return false
}

// needs begins the message for argument i of n: "lower() needs a string".
func (f *function) needs(i, n int) string {
	var kinds []vec.Kind
	for j := range f.overloads {
		if o := &f.overloads[j]; o.takes(n) && !slices.Contains(kinds, o.param(i).Kind) {
			kinds = append(kinds, o.param(i).Kind)
		}
	}
	var alternatives []string
	if !slices.ContainsFunc([]vec.Kind{vec.Int, vec.Float, vec.Decimal}, func(k vec.Kind) bool { return !slices.Contains(kinds, k) }) {
		alternatives = append(alternatives, "a number")
		kinds = slices.DeleteFunc(kinds, number)
	}
	for _, k := range kinds {
		alternatives = append(alternatives, article(vec.Type{Kind: k}))
	}
	last := len(alternatives) - 1
	if last == 0 {
		return f.title() + " needs " + alternatives[0]
	}
	return f.title() + " needs " + strings.Join(alternatives[:last], ", ") + " or " + alternatives[last]
}

// misapplied reports why no overload takes the arguments: the first one that no overload takes in its place, or
// all of them together.
func (c *compiler) misapplied(n ast.Node, f *function, args []operand) operand {
	hint := ""
	has := func(k vec.Kind) bool {
		return slices.ContainsFunc(args, func(o operand) bool { return o.t.Kind == k })
	}
	switch {
	case has(vec.Float) && has(vec.Decimal):
		hint = "convert one: decimal(x) or float(x)"
	case f.name == "+" && has(vec.String):
		hint = "write string(x) to join texts"
	case f.name == "/" && has(vec.Decimal):
		hint = "quo(a, b, 2) divides decimals and rounds to 2 digits"
	}
	for i, a := range args {
		if f.takesAt(i, len(args), a.t.Type) {
			continue
		}
		return c.errorf(a.node, hint, "%s, %s", f.needs(i, len(args)), describe(a))
	}
	descriptions := make([]string, len(args))
	for i, a := range args {
		descriptions[i] = describe(a)
	}
	last := len(descriptions) - 1
	return c.errorf(n, hint, "%s needs %s, %s and %s", f.title(), f.together(), strings.Join(descriptions[:last], ", "),
		descriptions[last])
}

func (f *function) together() string {
	if f.operator {
		return "operands of one type"
	}
	return "arguments of one type"
}

func (f *function) takesAt(i, n int, t vec.Type) bool {
	for j := range f.overloads {
		if o := &f.overloads[j]; o.takes(n) && match(t, o.param(i)) >= 0 {
			return true
		}
	}
	return false
}

// callKernel calls a function at the rows in sel.
type callKernel struct {
	f     *function
	t     vec.Type
	run   loop
	args  []kernel
	names []string
	text  string
	site  int // of an impure function: which of the calls in its expression

	bufs []vec.Column
	cols []*vec.Column
	some []int32 // the rows without a null argument
	m    *machine
	out  *vec.Column // of the loop that runs
}

func (k *callKernel) eval(m *machine, sel []int32, out *vec.Column) *vec.Column {
	nulls := false
	for i, a := range k.args {
		k.cols[i] = a.eval(m, sel, &k.bufs[i])
		nulls = nulls || k.cols[i].HasNulls()
	}
	out.Reset(k.t, m.n)
	if nulls && k.f.nulls != nullIsGiven {
		sel = k.withoutNulls(m, sel, out)
	}
	k.m, k.out = m, out
	k.run(k, m, k.cols, sel, out)
	return out
}

// withoutNulls settles the rows with a null argument and returns the others.
func (k *callKernel) withoutNulls(m *machine, sel []int32, out *vec.Column) []int32 {
	k.some = k.some[:0]
rows:
	for _, r := range sel {
		for i, c := range k.cols {
			if !c.IsNull(int(r)) {
				continue
			}
			switch k.f.nulls {
			case nullIsFalse:
				out.Bool[r] = false
			case nullPasses:
				out.SetNull(int(r))
			case nullFails:
				k.failNull(m, r, i, out)
			}
			continue rows
		}
		k.some = append(k.some, r)
	}
	return k.some
}

func (k *callKernel) failNull(m *machine, r int32, arg int, out *vec.Column) {
	out.SetNull(int(r))
	m.fail(r, func() string {
		if k.names[arg] == "nil" {
			return k.f.title() + " takes no nil"
		}
		return fmt.Sprintf("%s takes no nil, %s is nil", k.f.title(), k.names[arg])
	})
}

// fail makes a row fail.
func (k *callKernel) fail(r int32, err error) {
	k.out.SetNull(int(r))
	cause := err
	if !k.f.custom {
		cause = nil // the message says all of it
	}
	k.m.failWith(r, cause, func() string { return k.text + ": " + err.Error() })
}

// dynamicCall calls an overload as the types of a row's arguments turn out to be, for all rows of the same types at
// once.
type dynamicCall struct {
	candidates []*overload
	types      []vec.Type
	bufs       []vec.Column // arguments of the types that the overload takes
	cols       []*vec.Column
	result     vec.Column
	same, rest []int32
}

func (d *dynamicCall) run(c *callKernel, m *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	if d.types == nil {
		d.types = make([]vec.Type, len(args))
		d.bufs = make([]vec.Column, len(args))
		d.cols = make([]*vec.Column, len(args))
	}
	for len(sel) > 0 {
		for i, a := range args {
			d.types[i] = typeAt(a, sel[0])
		}
		d.same, d.rest = d.same[:0], d.rest[:0]
		for _, r := range sel {
			if d.alike(args, r) {
				d.same = append(d.same, r)
			} else {
				d.rest = append(d.rest, r) // overtakes sel, which may be d.rest itself, nowhere
			}
		}
		d.alikes(c, m, args, out)
		sel = d.rest
	}
}

func typeAt(c *vec.Column, r int32) vec.Type {
	if c.Type.Kind != vec.Any {
		return c.Type
	}
	t := vec.Type{Kind: vec.KindOf(c.Any[r])}
	if t.Kind == vec.List {
		t.Elem = vec.Any
	}
	return t
}

// alike tells whether the arguments of row r have the types in d.types.
func (d *dynamicCall) alike(args []*vec.Column, r int32) bool {
	for i, a := range args {
		if a.Type.Kind == vec.Any && vec.KindOf(a.Any[r]) != d.types[i].Kind {
			return false
		}
	}
	return true
}

// alikes computes the rows in d.same, whose arguments have the types in d.types.
func (d *dynamicCall) alikes(c *callKernel, m *machine, args []*vec.Column, out *vec.Column) {
	defer func() { c.out = out }()
	o := fittest(d.candidates, d.types)
	if o == nil {
		c.out = out
		for _, r := range d.same {
			c.fail(r, d.mismatch(c, args, int(r)))
		}
		return
	}
	for i, a := range args {
		t := o.param(i)
		if t.Kind == vec.Any || t.Kind == vec.List && t.Elem == vec.Any {
			t = d.types[i]
		}
		if a.Type == t {
			d.cols[i] = a
			continue
		}
		d.cols[i] = &d.bufs[i]
		d.bufs[i].Reset(t, m.n)
		c.out = out
		convertRows(&d.bufs[i], a, d.same, func(r int32) { c.fail(r, d.mismatch(c, args, int(r))) })
		if d.bufs[i].HasNulls() { // rows that failed to be converted
			d.same = slices.DeleteFunc(d.same, func(r int32) bool { return d.bufs[i].Null[r] })
		}
	}
	d.result.Reset(o.result, m.n)
	c.out = &d.result
	o.run(c, m, d.cols, d.same, &d.result)
	if out.Type == d.result.Type {
		out.CopyRows(&d.result, d.same)
	} else {
		convertRows(out, &d.result, d.same, func(int32) { panic("expr: a result of the wrong type") })
	}
}

func (d *dynamicCall) mismatch(c *callKernel, args []*vec.Column, r int) error {
	for i, t := range d.types {
		if !c.f.takesAt(i, len(args), t) {
			return fmt.Errorf("%s, %s is %s", c.f.needs(i, len(args)), c.names[i], articleOf(args[i].Value(r)))
		}
	}
	descriptions := make([]string, len(args))
	for i, a := range args {
		descriptions[i] = c.names[i] + " is " + articleOf(a.Value(r))
	}
	return fmt.Errorf("%s needs %s, %s", c.f.title(), c.f.together(), strings.Join(descriptions, " and "))
}
