package spec

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
	"github.com/tridentd/tridentd/window"
)

// leafRun combines the rows that reach an aggregate by key, for one task and one way through the streams. Rows of
// one key are added in the order of their records; the deltas of two ways are handed over one way after the other.
type leafRun struct {
	t    *task
	f    *frameRun
	leaf *leaf
	out  *output

	groups  groupTable
	keys    []*vec.Column
	args    []argument
	accums  []accumulator
	key     []byte
	numbers []int32 // the group of each row in sel

	times  *vec.Column // event times of the records; nil without a window
	mark   int64       // the watermark by which rows are late
	starts []int64     // the window of each row in sel
	kept   []int32
	deltas *plan.Deltas
	cells  []byte
	failed *batch.Error
}

// argument is the argument of an aggregate.
type argument struct {
	p   *expr.Program // nil: the values lie in col already
	buf vec.Column
	col *vec.Column // nil: the aggregate takes none
}

func (t *task) newLeaf(l *leaf) *leafRun {
	f := t.frame(l.frame)
	r := &leafRun{t: t, f: f, leaf: l, out: l.out}
	for _, k := range l.keys {
		r.keys = append(r.keys, f.rows.Cols[k])
	}
	r.args = make([]argument, len(l.aggs))
	for i, a := range l.aggs {
		v := l.out.values[i]
		r.accums = append(r.accums, newAccumulator(v.fn, v.arg))
		if len(a.args) == 0 {
			continue
		}
		arg := &r.args[i]
		if field, ok := plainField(&a, l.scope); ok && field.Type.Kind == v.arg {
			arg.col = f.rows.Cols[field.Index]
			continue
		}
		arg.col = &arg.buf
		if v.arg == vec.Any {
			arg.p = compiled(expr.Compile(a.args[0], l.scope))
		} else {
			arg.p = compiled(expr.CompileAs(a.args[0], l.scope, a.fn+"()", vec.Type{Kind: v.arg}))
		}
	}
	if l.out.window != nil {
		r.times = t.root.rows.Cols[t.src.time]
	}
	return r
}

// plainField tells which field the aggregate is of, if its argument is nothing but a name.
func plainField(a *aggDecl, s *expr.Scope) (expr.Field, bool) {
	names := a.args[0].Fields()
	if len(names) != 1 || strings.Join(strings.Fields(a.n.text), "") != a.fn+"("+names[0]+")" {
		return expr.Field{}, false
	}
	return s.Lookup(names[0])
}

func (r *leafRun) begin(tc *plan.TaskContext) {
	r.groups.reset()
	r.failed = nil
	for _, a := range r.accums {
		a.reset()
	}
	r.deltas = tc.Out[r.out.index]
	r.mark = math.MaxInt64
	for _, s := range r.out.timeSources {
		r.mark = min(r.mark, tc.Watermarks[s])
	}
}

func (r *leafRun) run(sel []int32) {
	if r.times != nil {
		if sel = r.assign(sel); len(sel) == 0 {
			return
		}
	}
	before := len(sel)
	for i := range r.args {
		a := &r.args[i]
		if a.p == nil {
			continue
		}
		a.p.Eval(r.t.evaluates(r.f, r.leaf.label), &r.f.rows, sel, &a.buf)
		sel = r.t.without(r.f, sel, r.leaf.label)
	}
	for i := range r.args {
		if v := &r.out.values[i]; v.arg == vec.Any && (v.fn == "sum" || v.fn == "avg") {
			sel = r.numbersOnly(sel, r.args[i].col, r.leaf.aggs[i].n.text)
		}
	}
	if r.times != nil && len(sel) != before {
		// The windows go with the rows that are left. None of these is late, so that nothing is told twice.
		sel = r.assign(sel)
	}
	r.number(sel)
	n := r.groups.len()
	for i, a := range r.accums {
		a.grow(n)
		if bad, err := a.add(r.args[i].col, sel, r.numbers); err != nil && r.failed == nil {
			r.failed = batch.NewError(batch.Permanent, batch.CodeOverflow, r.leaf.label,
				fmt.Errorf("stream %s, aggregate %s, key %s: %w", r.out.stream.name, r.out.values[i].name, formatKey(r.groups.key(int(bad))), err),
				"the state is as it was before this batch").At(r.t.tc.Partition, batch.NoOffset)
		}
	}
}

// numbersOnly turns away the rows whose argument of a sum is no number.
func (r *leafRun) numbersOnly(sel []int32, c *vec.Column, call string) []int32 {
	for k, i := range sel {
		if isNumber(c, int(i)) {
			continue
		}
		kept := slices.Clone(sel[:k])
		for _, i := range sel[k:] {
			if isNumber(c, int(i)) {
				kept = append(kept, i)
				continue
			}
			r.t.reject(r.f.records[i], plan.RejectBad, r.leaf.label, fmt.Sprintf("%s needs a number, here is a %s", call, c.Value(int(i)).Kind()))
		}
		return kept
	}
	return sel
}

func isNumber(c *vec.Column, i int) bool {
	if c.IsNull(i) {
		return true
	}
	switch c.Value(i).Kind() {
	case value.Int, value.Float, value.Decimal:
		return true
	}
	return false
}

// assign finds the window of each row and turns late ones away.
func (r *leafRun) assign(sel []int32) []int32 {
	w := r.out.window
	r.starts = r.starts[:0]
	kept := r.kept[:0]
	for _, i := range sel {
		ns := r.times.Int[r.f.records[i]]
		start := window.Start(ns, w.size, w.offset)
		end := start + w.size
		if end < start {
			end = math.MaxInt64
		}
		if end <= r.mark {
			r.t.reject(r.f.records[i], plan.RejectLate, r.leaf.window, fmt.Sprintf("the window that began at %s had closed: event time %s, watermark %s",
				nanoText(start), nanoText(ns), nanoText(r.mark)))
			continue
		}
		r.starts = append(r.starts, start)
		kept = append(kept, i)
	}
	r.kept = kept
	return kept
}

// number finds the group of each row.
func (r *leafRun) number(sel []int32) {
	r.numbers = r.numbers[:0]
	key := r.key
	if r.times == nil && len(r.keys) == 1 && r.keys[0].Type.Kind == vec.String && !r.keys[0].HasNulls() {
		for _, i := range sel {
			key = value.AppendKeyString(key[:0], r.keys[0].Str[i])
			r.numbers = append(r.numbers, r.groups.number(key))
		}
		r.key = key
		return
	}
	for n, i := range sel {
		key = key[:0]
		if r.times != nil {
			key = value.AppendKeyTime(key, r.starts[n])
		}
		for _, c := range r.keys {
			key = appendKey(key, c, int(i))
		}
		r.numbers = append(r.numbers, r.groups.number(key))
	}
	r.key = key
}

// end hands over the groups, in the order in which they first came.
func (r *leafRun) end() error {
	if r.failed != nil {
		return r.failed
	}
	for n := range r.groups.len() {
		cells := r.cells[:0]
		for _, a := range r.accums {
			cells = a.append(cells, n)
		}
		r.cells = cells
		if err := r.deltas.Add(r.groups.key(n), cells); err != nil {
			return batch.NewError(batch.Permanent, batch.CodeBatchTooLarge, r.leaf.label, err, "lower batch.max_records")
		}
	}
	return nil
}
