package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/vec"
	"github.com/tridentd/tridentd/internal/windowop"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// A table of latest values is a stream whose only step keeps the last row of each key. Other streams can't begin at it; they look
// rows up in it.

func latestField() *field {
	return &field{name: "latest", kind: kindObject, operator: true, doc: "A table of the last row of each key of a source or stream, for `lookup`. A record without a value removes the row of its key: see [tables.md](tables.md).", fields: append([]*field{
		{name: "from", kind: kindName, required: true, doc: "The source or stream whose rows the table keeps."},
		{name: "key", kind: kindList, item: &field{kind: kindExpr}, required: true, example: "key: string(_key)", doc: "What a row is kept by: fields, or expressions. A column takes a field's name, that of another expression is `key`, `key2`, … A row whose key is null is a bad record."},
		{name: "fields", kind: kindList, item: &field{kind: kindRef}, def: "fields whose names are known, and those that lookups name", example: "fields: [name, country]", doc: "The fields that are kept besides the key."},
		{name: "remove", kind: kindExpr, def: "none", example: `remove: op == "d"`, doc: "Rows for which this is true remove the row of their key."},
	}, ttlFields("")...)}
}

// tableColumn is a column of a table of latest values.
type tableColumn struct {
	name string
	typ  expr.Type
}

// latest makes a stream of a table of latest values.
func (b *modeler) latest(name string, n, settings *node) *streamDecl {
	s := &streamDecl{name: name, at: n.keyAt, state: name, table: true}
	if f := settings.get("from"); f != nil {
		s.from = []*node{f}
	}
	st := &stepDecl{op: "latest", at: settings.keyAt, n: settings, label: "latest " + name, ttl: settings.get("ttl"), ttlBy: settings.get("ttl_by")}
	if keys := settings.get("key"); keys != nil {
		if len(keys.list) == 0 {
			b.add(keys.keyAt, "as in key: id", "a table has a key")
		}
		for _, k := range keys.list {
			st.exprs = b.exprs(st.exprs, "", k)
			x := &st.exprs[len(st.exprs)-1]
			if field, ok := x.e.Name(); ok {
				x.name = field
			} else if x.name = "key"; len(st.exprs) > 1 {
				x.name = fmt.Sprintf("key%d", len(st.exprs))
			}
			for _, other := range st.exprs[:len(st.exprs)-1] {
				if other.name == x.name {
					b.add(k.at, "", "the key has %s twice", x.name)
				}
			}
		}
	}
	if r := settings.get("remove"); r != nil {
		st.filter = b.exprs(nil, "", r)
	}
	s.steps = []*stepDecl{st}
	switch {
	case b.m.source(name) != nil:
		b.add(n.keyAt, "", "state %s has the name of a source", name)
	case len(s.from) == 0:
		b.broken = append(b.broken, name)
	}
	return s
}

// tableEnd is the end of a branch at a table of latest values.
type tableEnd struct {
	out    *output
	frame  *frame
	scope  *expr.Scope
	keys   []exprDecl
	remove *exprDecl
	cols   []int // the frame's columns, by column of the table; -1 where this way has no such field
	label  string
	// source tells of rows that are a source's records as they are: one without a value removes its key.
	source bool
	// byRecord tells that the key can be told of a record without a value.
	byRecord bool
}

// tableEnd checks one way to a table.
func (c *checker) tableEnd(out *output, st *stepDecl, e *env, direct bool) *tableEnd {
	c.expires(out, st, e)
	t := &tableEnd{out: out, frame: e.frame, label: st.label, source: direct && e.src.out == nil, byRecord: true}
	fresh := out.sources == nil
	if !slices.Contains(out.sources, e.src) {
		out.sources = append(out.sources, e.src)
	}
	for i, x := range st.exprs {
		typ, ok := c.typed(x, e)
		switch {
		case !ok:
			typ = expr.Any
		case typ.Kind == vec.List:
			c.add(x.n.place(0), "", "a key is one value, this is %s", typeText(typ))
		case typ.Kind == vec.Null:
			typ = expr.Any
		}
		for _, f := range x.e.Fields() {
			t.byRecord = t.byRecord && (isMeta(f) || e.src.out == nil && f == "key" && e.src.decl.decode.plain())
		}
		switch {
		case fresh:
			out.keys = append(out.keys, typ)
			out.schema.Key = append(out.schema.Key, state.Column{Name: x.name, Type: typ.Kind.String()})
		case i < len(out.keys):
			if k, ok := merged(out.keys[i].Kind, typ.Kind); !ok {
				c.disagree(st, x.name, out.keys[i], typ)
			} else if k != out.keys[i].Kind {
				out.keys[i], out.schema.Key[i].Type = expr.Any, vec.Any.String()
			}
		}
	}
	t.keys = st.exprs
	used := expressions(st.exprs)
	if len(st.filter) > 0 {
		x := st.filter[0]
		if typ, ok := c.typed(x, e); ok && typ.Kind != vec.Bool && typ.Kind != vec.Any && typ.Kind != vec.Null {
			c.add(x.n.place(0), "", "remove needs a condition, this is %s", typeText(typ))
		}
		t.remove, used = &x, append(used, x.e)
	}
	if fresh {
		c.tableColumns(out, st, e)
	}
	for i := range out.table {
		col := &out.table[i]
		f, ok := e.lookup(col.name)
		if !ok {
			t.cols = append(t.cols, -1)
			col.typ.Nullable = true
			continue
		}
		t.cols = append(t.cols, f.Index)
		if fresh {
			col.typ = f.Type
		} else if k, ok := merged(col.typ.Kind, f.Type.Kind); !ok {
			c.disagree(st, col.name, col.typ, f.Type)
		} else if k != col.typ.Kind {
			col.typ = expr.Any
		}
	}
	t.scope = e.freeze(used...)
	return t
}

// tableColumns says which fields of its rows a table keeps.
func (c *checker) tableColumns(out *output, st *stepDecl, e *env) {
	add := func(name string) {
		isKey := slices.ContainsFunc(out.schema.Key, func(k state.Column) bool { return k.Name == name })
		if !isKey && !slices.ContainsFunc(out.table, func(t tableColumn) bool { return t.name == name }) {
			out.table = append(out.table, tableColumn{name: name, typ: expr.Any})
		}
	}
	if list := st.n.get("fields"); list != nil {
		for i, f := range list.list {
			if _, ok := e.scope.Lookup(f.text); !ok {
				c.add(f.at, nearest(f.text, firstNames(e.scope)), "there is no field %s in %s", f.text, st.n.get("from").str())
				continue
			}
			if slices.ContainsFunc(list.list[:i], func(g *node) bool { return g.text == f.text }) {
				c.add(f.at, "", "%s is listed twice", f.text)
			}
			add(f.text)
		}
		return
	}
	for _, name := range e.scope.Names() {
		if !isMeta(name) {
			add(name)
		}
	}
	var named []string
	for _, s := range c.m.streams {
		for _, l := range s.steps {
			as := l.n.get("as")
			if l.op != "lookup" || l.n.get("state").str() != out.stream.state || as == nil {
				continue
			}
			for _, d := range c.dotted {
				if f, ok := strings.CutPrefix(d, as.text+"."); ok {
					named = append(named, f)
				}
			}
		}
	}
	slices.Sort(named)
	for _, f := range named {
		if _, ok := e.scope.Lookup(f); ok && !isMeta(f) {
			add(f)
		}
	}
	slices.SortStableFunc(out.table, func(a, b tableColumn) int { return cmp.Compare(a.name, b.name) })
}

// latestText writes the step of a table in one line.
func latestText(st *stepDecl) string {
	var keys []string
	for _, x := range st.exprs {
		keys = append(keys, x.e.String())
	}
	text := "latest by " + strings.Join(keys, ", ")
	if f := st.n.get("fields"); f != nil {
		text += "; fields " + strings.Join(f.texts(), ", ")
	}
	if len(st.filter) > 0 {
		text += "; removed if " + st.filter[0].e.String()
	}
	if x := st.expiry(); x != nil {
		text += "; " + x.text()
	}
	return text
}

// tableSender keeps, for one task and table, the last row of each key.
type tableSender struct {
	t     *task
	out   *output
	runs  []*tableRun
	slots groupTable
	rows  []lastRow // by slot
	// latest are by slot, where rows expire by their event times; delta is of one slot then.
	latest windowop.LatestTimes
	delta  []byte

	deltas *plan.Deltas
}

// lastRow is the last row of a key: that of the largest offset and, of one record, of the last way.
type lastRow struct {
	offset int64
	way    int
	delta  []byte
}

// tableRun takes the rows that reach a table on one way, in one task.
type tableRun struct {
	s      *tableSender
	f      *frameRun
	end    *tableEnd
	way    int
	keys   []*expr.Program
	cols   []vec.Column
	remove *expr.Program
	gone   []int32
	values []*vec.Column // nil: null
	times  *vec.Column   // event times of the records; nil: the table doesn't go by them

	key, delta []byte
}

// tableSender returns the task's sender for a table.
func (t *task) tableSender(o *output) *tableSender {
	for _, s := range t.tables {
		if s.out == o {
			return s
		}
	}
	s := &tableSender{t: t, out: o}
	t.tables = append(t.tables, s)
	return s
}

func (t *task) newTableRun(end *tableEnd) *tableRun {
	r := &tableRun{s: t.tableSender(end.out), f: t.frame(end.frame), end: end, cols: make([]vec.Column, len(end.keys))}
	r.way = len(r.s.runs)
	r.s.runs = append(r.s.runs, r)
	for _, k := range end.keys {
		r.keys = append(r.keys, compiled(expr.Compile(k.e, end.scope)))
	}
	if end.remove != nil {
		r.remove = compiled(expr.CompileFilter(end.remove.e, end.scope))
	}
	if end.out.ttl.events() {
		r.times = t.root.rows.Cols[t.src.time]
	}
	for _, k := range end.cols {
		r.values = append(r.values, r.f.column(k))
	}
	return r
}

func (s *tableSender) begin(tc *plan.TaskContext) {
	s.slots.reset()
	s.rows, s.latest = s.rows[:0], s.latest[:0]
	s.deltas = tc.Out[s.out.index]
}

// run takes rows of the frame that the way ends in.
func (r *tableRun) run(sel []int32) {
	r.gone = r.gone[:0]
	if r.remove != nil {
		r.gone = r.remove.Filter(r.s.t.evaluates(r.f, r.end.label), &r.f.rows, sel, r.gone)
		sel = r.s.t.without(r.f, sel, r.end.label)
	}
	next := r.gone
	for _, i := range r.keyed(sel) {
		for len(next) > 0 && next[0] < i { // its key couldn't be told
			next = next[1:]
		}
		gone := len(next) > 0 && next[0] == i
		if r.end.source && r.s.t.recs[r.f.records[i]].Value == nil {
			gone = true
		}
		at := int64(txstate.NoTime)
		if r.times != nil {
			at = r.times.Int[r.f.records[i]]
		}
		r.put(i, gone, at)
	}
}

// removed takes records without a value.
func (r *tableRun) removed(sel []int32) {
	if !r.end.byRecord {
		for _, i := range sel {
			r.s.t.reject(i, plan.RejectBad, r.end.label, "the value is null, and the key of the row to remove is a field of it")
		}
		return
	}
	for _, i := range r.keyed(sel) {
		r.put(i, true, txstate.NoTime)
	}
}

// keyed computes the keys and returns the rows that have one.
func (r *tableRun) keyed(sel []int32) []int32 {
	t := r.s.t
	for k, p := range r.keys {
		c := &r.cols[k]
		p.Eval(t.evaluates(r.f, r.end.label), &r.f.rows, sel, c)
		sel = t.without(r.f, sel, r.end.label)
		kept := sel[:0:0]
		for _, i := range sel {
			if c.IsNull(int(i)) {
				t.reject(r.f.records[i], plan.RejectBad, r.end.label, "the key "+r.end.keys[k].n.text+" is null")
				continue
			}
			kept = append(kept, i)
		}
		sel = kept
	}
	return sel
}

// put makes row i, of event time at, the last of its key, unless a later one is there.
func (r *tableRun) put(i int32, gone bool, at int64) {
	r.key = r.key[:0]
	for k := range r.cols {
		r.key = appendKey(r.key, &r.cols[k], int(i))
	}
	r.delta = append(r.delta[:0], plan.TableRemoves)
	if !gone {
		r.delta[0] = plan.TableSets
		r.delta = appendRow(r.delta, r.values, int(i))
	}
	s := r.s
	slot := int(s.slots.number(r.key))
	if r.times != nil {
		s.latest.Note(slot, at)
	}
	switch {
	case slot < len(s.rows):
		last := &s.rows[slot]
		if offset := r.f.offsets[i]; offset < last.offset || offset == last.offset && r.way < last.way {
			return
		}
	case slot < cap(s.rows): // keeps the memory of the batch before
		s.rows = s.rows[:slot+1]
	default:
		s.rows = append(s.rows, lastRow{})
	}
	last := &s.rows[slot]
	last.offset, last.way, last.delta = r.f.offsets[i], r.way, append(last.delta[:0], r.delta...)
}

func (s *tableSender) end() error {
	for n := range s.rows {
		delta := s.rows[n].delta
		if s.out.ttl.events() {
			s.delta = append(windowop.AppendTimed(s.delta[:0], s.latest[n]), delta...)
			delta = s.delta
		}
		if err := s.deltas.Add(s.slots.key(n), delta); err != nil {
			return batch.NewError(batch.Permanent, batch.CodeBatchTooLarge, "table "+s.out.name, err, "lower batch.max_records")
		}
	}
	return nil
}
