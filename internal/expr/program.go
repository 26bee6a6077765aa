package expr

import (
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/vec"
)

// Context is what an evaluation depends on besides the rows, and where it reports failures.
type Context struct {
	Batch     *batch.Batch    // for now(), rand() and uuid()
	Partition batch.Partition // for rand()
	// Step names the place of the expression in its pipeline, for rand(): two steps draw different numbers.
	Step string
	// Offsets are the offsets of the rows' records, for rand(). Rows that came from one record draw one number.
	Offsets []int64

	// Errs receives what went wrong, at most one failure for a row and evaluation, in the order of the rows.
	Errs []RowError
}

// RowError is the failure of one row.
type RowError struct {
	Row int32
	Msg string
	Err error // of a function that failed; nil elsewhere
}

// Program is a compiled expression with its scratch memory. It isn't for concurrent use.
type Program struct {
	root kernel
	typ  Type
	m    machine
	sel  []int32
	buf  vec.Column
}

// Compile compiles e. The error is of type Errors and has all mistakes.
func Compile(e *Expr, s *Scope) (*Program, error) {
	c := compiler{e: e, s: s}
	o := c.expr(e.node)
	if len(c.errs) == 0 && o.t.Kind == vec.Null {
		o = c.convert(o, vec.Type{Kind: vec.Any}, "")
	}
	return c.program(o)
}

// CompileAs compiles e for a place that needs values of type t, which what names in errors: "filter", "sum()". An
// int is widened to a float or a decimal. A value whose type shows at run time only is checked row by row.
func CompileAs(e *Expr, s *Scope, what string, t vec.Type) (*Program, error) {
	c := compiler{e: e, s: s}
	o := c.expr(e.node)
	if len(c.errs) == 0 {
		o = c.coerce(o, t, what, article(t))
	}
	return c.program(o)
}

// CompileFilter compiles the condition of a filter, for Program.Filter.
func CompileFilter(e *Expr, s *Scope) (*Program, error) {
	return CompileAs(e, s, "filter", vec.Type{Kind: vec.Bool})
}

func (c *compiler) program(o operand) (*Program, error) {
	if len(c.errs) > 0 {
		return nil, c.errs.sorted()
	}
	return &Program{root: o.k, typ: o.t}, nil
}

// Check tells the type of e, or all mistakes.
func (e *Expr) Check(s *Scope) (Type, Errors) {
	c := compiler{e: e, s: s}
	o := c.expr(e.node)
	if len(c.errs) > 0 {
		return Type{}, c.errs.sorted()
	}
	return o.t, nil
}

// Type is the type of the values.
func (p *Program) Type() Type { return p.typ }

// Eval computes the expression for the rows in sel, nil for all rows, and makes out a column of in.N rows of which
// those in sel are valid, each at its row's own place. A row that failed is null and is told in ctx.Errs. Strings
// in out refer to in or to p, and are good until either changes. out must not be a column of in.
func (p *Program) Eval(ctx *Context, in *vec.Rows, sel []int32, out *vec.Column) {
	if slices.Contains(in.Cols, out) {
		panic("expr: the result would overwrite a column of the input")
	}
	sel = p.begin(ctx, in, sel)
	res := p.root.eval(&p.m, sel, out)
	if res != out {
		out.Reset(res.Type, in.N)
		out.CopyRows(res, sel)
	}
	for _, e := range p.end(ctx) {
		out.SetNull(int(e.Row))
	}
}

// Filter appends to dst the rows in sel, nil for all rows, for which the condition is true. dst may be sel[:0]. A
// row that failed isn't among them and is told in ctx.Errs. p must be of type Bool.
func (p *Program) Filter(ctx *Context, in *vec.Rows, sel, dst []int32) []int32 {
	if p.typ.Kind != vec.Bool {
		panic("expr: Filter with a program of type " + p.typ.String())
	}
	sel = p.begin(ctx, in, sel)
	start := len(dst)
	dst = filter(p.root, &p.m, sel, dst, &p.buf)
	if len(p.end(ctx)) > 0 {
		kept := slices.DeleteFunc(dst[start:], func(r int32) bool { return p.m.failed[r] })
		dst = dst[:start+len(kept)]
	}
	return dst
}

func (p *Program) begin(ctx *Context, in *vec.Rows, sel []int32) []int32 {
	p.m.begin(ctx, in)
	if sel == nil {
		p.sel = vec.Iota(p.sel, in.N)
		sel = p.sel
	}
	return sel
}

// end returns the failures of this evaluation, in the order of the rows.
func (p *Program) end(ctx *Context) []RowError {
	errs := ctx.Errs[p.m.firstErr:]
	if len(errs) > 1 {
		slices.SortFunc(errs, func(a, b RowError) int { return int(a.Row - b.Row) })
	}
	return errs
}

// machine is the state of one evaluation.
type machine struct {
	ctx      *Context
	in       *vec.Rows
	n        int
	arena    vec.Arena // holds the strings that kernels make
	text     []byte    // scratch
	firstErr int       // of this evaluation, in ctx.Errs
	failed   []bool    // by row; empty while none has failed
}

func (m *machine) begin(ctx *Context, in *vec.Rows) {
	m.ctx, m.in, m.n = ctx, in, in.N
	m.arena.Reset()
	m.firstErr = len(ctx.Errs)
	m.failed = m.failed[:0]
}

// fail reports the failure of a row, the first one only. The kernel makes the row's value null.
func (m *machine) fail(row int32, msg func() string) { m.failWith(row, nil, msg) }

func (m *machine) failWith(row int32, err error, msg func() string) {
	if len(m.failed) == 0 {
		m.failed = slices.Grow(m.failed, m.n)[:m.n]
		clear(m.failed)
	}
	if m.failed[row] {
		return
	}
	m.failed[row] = true
	m.ctx.Errs = append(m.ctx.Errs, RowError{Row: row, Msg: msg(), Err: err})
}

// kernel computes a value for the rows in sel. The result has the rows in sel valid, at their own places; it is
// out, which the kernel resets, unless the values lie in a column already. No row of it may be changed by others.
type kernel interface {
	eval(m *machine, sel []int32, out *vec.Column) *vec.Column
}

// filterer is a kernel of type Bool that can find the true rows without a column of results. dst may be sel[:0].
type filterer interface {
	filter(m *machine, sel, dst []int32) []int32
}

// filter appends the rows for which k is true to dst, which may be sel[:0].
func filter(k kernel, m *machine, sel, dst []int32, buf *vec.Column) []int32 {
	if f, ok := k.(filterer); ok {
		return f.filter(m, sel, dst)
	}
	return truths(k.eval(m, sel, buf), sel, dst)
}

// truths appends the rows of sel for which a Bool column is true to dst, which may be sel[:0].
func truths(c *vec.Column, sel, dst []int32) []int32 {
	if !c.HasNulls() {
		for _, r := range sel {
			if c.Bool[r] {
				dst = append(dst, r)
			}
		}
		return dst
	}
	for _, r := range sel {
		if c.Bool[r] && !c.Null[r] {
			dst = append(dst, r)
		}
	}
	return dst
}
