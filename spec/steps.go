package spec

import (
	"fmt"
	"slices"

	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// branchRun runs the steps of a branch in one task.
type branchRun struct {
	t        *task
	ops      []stepRun
	leaf     *leafRun
	join     *joinRun
	table    *tableRun
	sink     *sinkRun
	answer   *answerRun
	children []*branchRun
}

// stepRun is one step in one task. It passes the rows in sel on, or some of them, or rows of another frame. It
// leaves sel as it is.
type stepRun interface {
	begin(tc *plan.TaskContext)
	run(sel []int32) []int32
}

func (t *task) newBranch(b *branch) *branchRun {
	r := &branchRun{t: t}
	for i := range b.ops {
		r.ops = append(r.ops, t.newStep(&b.ops[i]))
	}
	if b.leaf != nil {
		r.leaf = t.newLeaf(b.leaf)
	}
	if b.join != nil {
		r.join = t.newJoinRun(b.join)
	}
	if b.table != nil {
		r.table = t.newTableRun(b.table)
	}
	if b.sink != nil {
		r.sink = t.newSinkRun(b.sink)
	}
	if b.answer != nil {
		r.answer = t.newAnswerRun(b.answer)
	}
	for _, c := range b.children {
		r.children = append(r.children, t.newBranch(c))
	}
	return r
}

func (t *task) newStep(o *op) stepRun {
	f := t.frame(o.frame)
	switch o.kind {
	case "filter":
		return &filterRun{t: t, f: f, label: o.label, p: compiled(expr.CompileFilter(o.exprs[0].e, o.scope))}
	case "set":
		s := &setRun{t: t, f: f, label: o.label, in: vec.Rows{Cols: slices.Clone(f.rows.Cols)}}
		for i, x := range o.exprs {
			s.programs = append(s.programs, compiled(expr.Compile(x.e, o.scope)))
			s.into = append(s.into, f.rows.Cols[o.into[i]])
			s.in.Cols[o.into[i]] = nil
		}
		return s
	case "flat_map":
		m := &flatMapRun{t: t, f: f, label: o.label, p: compiled(expr.Compile(o.exprs[0].e, o.scope)), next: t.frame(o.next)}
		m.typ = o.next.cols[o.into[0]].typ.Type
		m.into = m.next.rows.Cols[o.into[0]]
		for i, c := range o.next.cols {
			if c.origin == fromParent && c.used {
				m.carried = append(m.carried, carry{from: f.rows.Cols[c.from], into: m.next.rows.Cols[i]})
			}
		}
		return m
	case "lookup":
		l := &lookupRun{t: t, f: f, label: o.label, table: o.table, inner: o.inner, p: compiled(expr.Compile(o.exprs[0].e, o.scope))}
		for _, g := range o.reads {
			if o.frame.cols[g.into].used {
				l.reads = append(l.reads, g)
			}
		}
		return l
	case "peek":
		return t.newPeek(o.peek)
	}
	panic("spec: no step " + o.kind)
}

// compiled takes a program of an expression that has been checked.
func compiled(p *expr.Program, err error) *expr.Program {
	if err != nil {
		panic(fmt.Sprintf("spec: a checked expression doesn't compile: %v", err))
	}
	return p
}

func (b *branchRun) begin(tc *plan.TaskContext) {
	for _, o := range b.ops {
		o.begin(tc)
	}
	for _, c := range b.children {
		c.begin(tc)
	}
	if b.leaf != nil {
		for _, l := range b.leaf.late {
			l.begin(tc)
		}
	}
	if b.join != nil {
		for _, l := range b.join.late {
			l.begin(tc)
		}
	}
}

// run takes rows of the frame that the branch begins in.
func (b *branchRun) run(sel []int32) {
	for _, o := range b.ops {
		if sel = o.run(sel); len(sel) == 0 {
			return
		}
	}
	if b.leaf != nil {
		b.leaf.run(sel)
	}
	if b.join != nil {
		b.join.run(sel)
	}
	if b.table != nil {
		b.table.run(sel)
	}
	if b.sink != nil {
		b.sink.run(sel)
	}
	if b.answer != nil {
		b.answer.run(sel)
	}
	for _, c := range b.children {
		c.run(sel)
	}
}

type filterRun struct {
	t     *task
	f     *frameRun
	label string
	p     *expr.Program
	kept  []int32
}

func (s *filterRun) begin(*plan.TaskContext) {}

func (s *filterRun) run(sel []int32) []int32 {
	s.kept = s.p.Filter(s.t.evaluates(s.f, s.label), &s.f.rows, sel, s.kept[:0])
	s.t.tc.Filtered += int64(len(sel) - len(s.kept) - len(s.t.ctx.Errs))
	s.t.noteErrs(s.f, s.label)
	return s.kept
}

type setRun struct {
	t        *task
	f        *frameRun
	label    string
	programs []*expr.Program
	in       vec.Rows // the frame's rows without the columns that the step computes
	into     []*vec.Column
}

func (s *setRun) begin(*plan.TaskContext) {}

func (s *setRun) run(sel []int32) []int32 {
	s.in.N = s.f.rows.N
	for i, p := range s.programs {
		p.Eval(s.t.evaluates(s.f, s.label), &s.in, sel, s.into[i])
		sel = s.t.without(s.f, sel, s.label)
	}
	return sel
}

// carry is a column that a flat_map takes along.
type carry struct{ from, into *vec.Column }

type flatMapRun struct {
	t       *task
	f, next *frameRun
	label   string
	p       *expr.Program
	carried []carry
	typ     vec.Type
	into    *vec.Column

	lists    vec.Column
	rows     []int32 // for each new row, the row that it comes from
	elements []int32 // and its element in the lists' Elems
	all      []int32
}

func (s *flatMapRun) begin(*plan.TaskContext) {}

func (s *flatMapRun) run(sel []int32) []int32 {
	s.p.Eval(s.t.evaluates(s.f, s.label), &s.f.rows, sel, &s.lists)
	sel = s.t.without(s.f, sel, s.label)
	s.rows, s.elements = s.rows[:0], s.elements[:0]
	if s.lists.Type.Kind == vec.List {
		s.expand(sel)
	} else {
		s.expandAny(sel)
	}
	n := len(s.rows)
	s.next.rows.N = n
	s.next.records, s.next.offsets = s.next.records[:0], s.next.offsets[:0]
	for _, r := range s.rows {
		s.next.records = append(s.next.records, s.f.records[r])
		s.next.offsets = append(s.next.offsets, s.f.offsets[r])
	}
	for _, c := range s.carried {
		c.into.Gather(c.from, s.rows)
	}
	s.all = vec.Iota(s.all, n)
	return s.all
}

func (s *flatMapRun) expand(sel []int32) {
	for _, r := range sel {
		if s.lists.IsNull(int(r)) {
			s.null(r)
			continue
		}
		span := s.lists.List[r]
		for k := range span.Len {
			s.rows = append(s.rows, r)
			s.elements = append(s.elements, span.Start+k)
		}
	}
	s.into.Gather(s.lists.Elems, s.elements)
}

// expandAny is for lists whose type shows row by row.
func (s *flatMapRun) expandAny(sel []int32) {
	s.into.Reset(s.typ, 0)
	for _, r := range sel {
		if s.lists.IsNull(int(r)) {
			s.null(r)
			continue
		}
		v := s.lists.Value(int(r))
		if v.Kind() != value.List {
			s.t.reject(s.f.records[r], plan.RejectBad, s.label, "flat_map needs a list, this is a "+v.Kind().String())
			continue
		}
		for _, e := range v.List() {
			s.rows = append(s.rows, r)
			s.into.AppendAny(e)
		}
	}
}

func (s *flatMapRun) null(r int32) {
	s.t.reject(s.f.records[r], plan.RejectBad, s.label, "flat_map needs a list, this is null")
}

type lookupRun struct {
	t     *task
	f     *frameRun
	label string
	p     *expr.Program
	table *static
	reads []gatherColumn
	inner bool
	kept  []int32

	rows *staticTable
	keys vec.Column
	key  []byte
	hits []int32
}

func (s *lookupRun) begin(tc *plan.TaskContext) {
	rows, ok := tc.Statics[s.table.index].(*staticTable)
	if !ok {
		panic("spec: the static table " + s.table.decl.name + " was not built")
	}
	s.rows = rows
}

func (s *lookupRun) run(sel []int32) []int32 {
	s.p.Eval(s.t.evaluates(s.f, s.label), &s.f.rows, sel, &s.keys)
	sel = s.t.without(s.f, sel, s.label)
	if cap(s.hits) < s.f.rows.N {
		s.hits = make([]int32, s.f.rows.N)
	}
	s.hits = s.hits[:s.f.rows.N]
	for i := range s.hits {
		s.hits[i] = -1
	}
	for _, r := range sel {
		if s.keys.IsNull(int(r)) {
			continue // null equals nothing
		}
		s.key = appendKey(s.key[:0], &s.keys, int(r))
		if n, ok := s.rows.index[string(s.key)]; ok {
			s.hits[r] = n
		}
	}
	for _, g := range s.reads {
		s.f.rows.Cols[g.into].Gather(s.rows.cols[g.from], s.hits)
	}
	if s.inner {
		s.kept = s.kept[:0]
		for _, r := range sel {
			if s.hits[r] >= 0 {
				s.kept = append(s.kept, r)
			}
		}
		s.t.tc.Filtered += int64(len(sel) - len(s.kept))
		return s.kept
	}
	return sel
}

// appendRow appends row i of columns in the encoding of rows. A column that is nil is null.
func appendRow(dst []byte, cols []*vec.Column, i int) []byte {
	for _, c := range cols {
		var v value.Value
		if c != nil {
			v = c.Value(i)
		}
		dst = value.AppendBinary(dst, v)
	}
	return dst
}

// appendKey appends row i of a column in the encoding of keys.
func appendKey(dst []byte, c *vec.Column, i int) []byte {
	if c.IsNull(i) {
		return value.AppendKeyNull(dst)
	}
	switch c.Type.Kind {
	case vec.Bool:
		return value.AppendKeyBool(dst, c.Bool[i])
	case vec.Int:
		return value.AppendKeyInt(dst, c.Int[i])
	case vec.Time:
		return value.AppendKeyTime(dst, c.Int[i])
	case vec.Float:
		return value.AppendKeyFloat(dst, c.Float[i])
	case vec.Decimal:
		return value.AppendKeyDecimal(dst, c.Dec[i])
	case vec.String:
		return value.AppendKeyString(dst, c.Str[i])
	case vec.Bytes:
		return value.AppendKeyBytes(dst, c.Str[i])
	default:
		return value.AppendKey(dst, c.Value(i))
	}
}
