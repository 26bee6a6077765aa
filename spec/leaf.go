package spec

import (
	"fmt"
	"math"
	"slices"

	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
	"github.com/tridentd/tridentd/window"
)

// leafRun takes the rows that reach an aggregate on one way through the streams, in one task.
type leafRun struct {
	t    *task
	f    *frameRun
	leaf *leaf
	c    *combiner

	keys    []*vec.Column
	args    []argument // of each aggregate, and its second ones
	bys     []argument
	key     []byte
	sel     []int32 // the rows to add
	numbers []int32 // and the group of each

	times  *vec.Column // event times of the records; nil without a window that goes by them
	starts []int64     // the window of each row in sel
	kept   []int32
	late   []*branchRun // take the rows that are late
	behind []int32      // these
	// Of windows that more can be said of than so many nanoseconds of event time.
	spread bool
	layout window.Layout
	all    []int64
}

// argument is the argument of an aggregate.
type argument struct {
	p   *expr.Program // nil: the values lie in col already
	buf vec.Column
	col *vec.Column // nil: the aggregate takes none
}

func (t *task) newLeaf(l *leaf) *leafRun {
	f := t.frame(l.frame)
	r := &leafRun{t: t, f: f, leaf: l, c: t.combiner(l.out)}
	r.c.leaves = append(r.c.leaves, r)
	for _, k := range l.keys {
		r.keys = append(r.keys, f.rows.Cols[k])
	}
	r.args, r.bys = make([]argument, len(l.aggs)), make([]argument, len(l.aggs))
	for i, a := range l.aggs {
		v := &l.out.values[i]
		if len(a.call.Args) > 0 {
			r.args[i] = newArgument(f, l, a.call.Args[0], v.fn, v.arg)
		}
		if len(a.call.Args) > 1 {
			r.bys[i] = newArgument(f, l, a.call.Args[1], v.fn, v.by)
		}
	}
	for _, list := range [][]argument{r.args, r.bys} {
		for i := range list {
			if list[i].p != nil {
				list[i].col = &list[i].buf
			}
		}
	}
	if w := l.out.window; w != nil {
		if w.events() {
			r.times = t.root.rows.Cols[t.src.time]
		}
		if w.time != nil {
			r.spread = w.time.Slide != 0 || w.time.Zone != "" || w.time.ByBatch
			r.layout = w.time.Layout()
		}
	}
	if l.out.ttl.events() {
		r.times = t.root.rows.Cols[t.src.time]
	}
	for _, b := range l.late {
		r.late = append(r.late, t.newBranch(b))
	}
	return r
}

// newArgument returns an argument of a kind: the column itself if it is nothing but a field's name.
func newArgument(f *frameRun, l *leaf, x *expr.Expr, fn string, kind vec.Kind) (a argument) {
	if name, ok := x.Name(); ok {
		if field, ok := l.scope.Lookup(name); ok && field.Type.Kind == kind {
			a.col = f.rows.Cols[field.Index]
			return a
		}
	}
	if kind == vec.Any {
		a.p = compiled(expr.Compile(x, l.scope))
	} else {
		a.p = compiled(expr.CompileAs(x, l.scope, fn+"()", vec.Type{Kind: kind}))
	}
	return a
}

// run finds the rows to add and the group of each.
func (r *leafRun) run(sel []int32) {
	r.sel, r.numbers = nil, r.numbers[:0]
	plain := r.times != nil && !r.spread && r.c.list == nil && r.leaf.out.ttl == nil
	switch {
	case plain:
		sel = r.assign(sel)
	case r.spread && r.times != nil:
		sel = r.inTime(sel)
	}
	if len(r.behind) > 0 {
		for _, b := range r.late {
			b.run(r.behind)
		}
		r.behind = r.behind[:0]
	}
	if len(sel) == 0 {
		return
	}
	before := len(sel)
	for i := range r.args {
		sel = r.eval(&r.bys[i], r.eval(&r.args[i], sel))
	}
	for i := range r.args {
		if r.leaf.out.values[i].needsNumbers() {
			sel = r.numbersOnly(sel, r.args[i].col, r.leaf.aggs[i].n.text)
		}
	}
	switch {
	case r.c.list != nil:
		r.list(sel)
	case r.spread:
		sel = r.expand(sel)
		r.number(sel)
	default:
		if plain && len(sel) != before {
			// The windows go with the rows that are left. None of these is late, so that nothing is told twice.
			sel = r.assign(sel)
		}
		r.number(sel)
	}
	if r.leaf.out.ttl.events() {
		for k, i := range sel {
			r.c.latest.Note(int(r.numbers[k]), r.times.Int[r.f.records[i]])
		}
	}
	r.sel = sel
}

// eval computes an argument, unless it lies in a column already.
func (r *leafRun) eval(a *argument, sel []int32) []int32 {
	if a.p == nil {
		return sel
	}
	a.p.Eval(r.t.evaluates(r.f, r.leaf.label), &r.f.rows, sel, &a.buf)
	return r.t.without(r.f, sel, r.leaf.label)
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
	w := r.leaf.out.window.time
	r.starts = r.starts[:0]
	kept := r.kept[:0]
	for _, i := range sel {
		ns := r.times.Int[r.f.records[i]]
		start := window.Start(ns, w.Size, w.Offset)
		end := start + w.Size
		if end < start {
			end = math.MaxInt64
		}
		if end <= r.c.mark {
			r.tooLate(i, start)
			continue
		}
		r.starts = append(r.starts, start)
		kept = append(kept, i)
	}
	r.kept = kept
	return kept
}

// tooLate turns a late row away, or leaves it to the streams that take late ones.
func (r *leafRun) tooLate(i int32, start int64) {
	if len(r.late) > 0 {
		r.behind = append(r.behind, i)
		return
	}
	r.t.reject(r.f.records[i], plan.RejectLate, r.leaf.window, fmt.Sprintf("the window that began at %s had closed: event time %s, watermark %s",
		nanoText(start), nanoText(r.times.Int[r.f.records[i]]), nanoText(r.c.mark)))
}

// inTime finds the rows of which a window is open.
func (r *leafRun) inTime(sel []int32) []int32 {
	kept := r.kept[:0]
	for _, i := range sel {
		r.all = r.layout.Starts(r.all[:0], r.times.Int[r.f.records[i]])
		// Windows end in the order in which they begin.
		if last := r.all[len(r.all)-1]; r.layout.End(last) <= r.c.mark {
			r.tooLate(i, last)
			continue
		}
		kept = append(kept, i)
	}
	r.kept = kept
	return kept
}

// expand returns each row as often as there are open windows that it lies in.
func (r *leafRun) expand(sel []int32) []int32 {
	r.starts = r.starts[:0]
	var rows []int32
	at := r.t.tc.Batch.Time.UnixNano()
	for _, i := range sel {
		if r.times != nil {
			at = r.times.Int[r.f.records[i]]
		}
		r.all = r.layout.Starts(r.all[:0], at)
		for _, start := range r.all {
			if r.layout.End(start) > r.c.mark {
				rows, r.starts = append(rows, i), append(r.starts, start)
			}
		}
	}
	return rows
}

// number finds the group of each row.
func (r *leafRun) number(sel []int32) {
	key := r.key
	windowed := r.leaf.out.window != nil
	if !windowed && len(r.keys) == 1 && r.keys[0].Type.Kind == vec.String && !r.keys[0].HasNulls() {
		for _, i := range sel {
			key = value.AppendKeyString(key[:0], r.keys[0].Str[i])
			r.numbers = append(r.numbers, r.c.groups.number(key))
		}
		r.key = key
		return
	}
	for n, i := range sel {
		key = key[:0]
		if windowed {
			key = value.AppendKeyTime(key, r.starts[n])
			if r.leaf.out.window.time.Slide != 0 {
				key = value.AppendKeyTime(key, r.layout.End(r.starts[n]))
			}
		}
		for _, c := range r.keys {
			key = appendKey(key, c, int(i))
		}
		r.numbers = append(r.numbers, r.c.groups.number(key))
	}
	r.key = key
}
