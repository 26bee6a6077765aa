package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// A peek shows rows to people and does nothing else. So that none can change a result, it is no step of its stream: steps are
// numbered, written into the plan's text and told of in rejected rows as if it weren't there. Nor does it make a column used: what would
// be decoded for its sake alone could turn a record away, or alter what a state keeps of its rows. It shows what is there.

func peekField() *field {
	return &field{
		name: "peek", kind: kindInt, min: 1, operator: true, example: "peek: {fields: [user, amount], rows: 5}",
		doc: "Writes the first so many rows of each batch to the log, at level info, and hands all on as they are.",
		enumOr: &field{kind: kindObject, fields: []*field{
			{name: "fields", kind: kindList, item: &field{kind: kindRef}, def: "all that are there", example: "fields: [user, amount]", doc: "The fields to show."},
			{name: "rows", kind: kindInt, min: 1, def: "10", doc: "The most rows of each batch that are shown."},
		}},
	}
}

const (
	defaultPeekRows = 10
	// peekClip bounds the text of one field, in bytes.
	peekClip = 200
)

// peekDecl is a peek of a stream.
type peekDecl struct {
	at     pos
	before int // the step, from 0, that it stands ahead of; the number of steps at the stream's end
	fields *node
	plan   *plan.Peek
}

// peek adds a peek to a stream.
func (b *modeler) peek(s *streamDecl, n *node) {
	p := &peekDecl{at: n.keyAt, before: len(s.steps), fields: n.get("fields"), plan: &plan.Peek{Stream: s.name, N: len(s.peeks) + 1, Rows: defaultPeekRows}}
	rows := n.get("rows")
	if rows == nil && len(n.keys) == 0 {
		rows = n // peek: 5
	}
	if rows != nil && rows.num > 0 {
		p.plan.Rows = int(min(rows.num, 1<<20))
	}
	s.peeks = append(s.peeks, p)
}

// checkPeeks holds the peeks against what a stream ends in.
func (b *modeler) checkPeeks(s *streamDecl) {
	for _, p := range s.peeks {
		if s.aggregates() && p.before == len(s.steps) {
			b.add(p.at, "peek before it, or in a stream that begins at "+s.name, "there can be no peek behind an aggregate")
		}
	}
}

// text describes a peek for people.
func (p *peekDecl) text() string {
	what := "all fields"
	if p.fields != nil {
		what = strings.Join(p.fields.texts(), ", ")
	}
	return fmt.Sprintf("peek %d: %s; no more than %d of a batch go to the log", p.plan.N, what, p.plan.Rows)
}

// peekEnd is a peek as it is reached on one way. Its columns are found once everything else is known.
type peekEnd struct {
	decl  *peekDecl
	env   *env
	frame *frame
	names []string
	cols  []int // of the frame
}

// peeks checks the peeks that stand ahead of a step of a stream.
func (c *checker) peeks(b *branch, s *streamDecl, step int, e *env) {
	for _, p := range s.peeks {
		if p.before != step {
			continue
		}
		end := &peekEnd{decl: p, env: e.clone(), frame: e.frame}
		c.peeked = append(c.peeked, end)
		b.ops = append(b.ops, op{kind: "peek", frame: e.frame, peek: end})
		if p.fields == nil {
			continue
		}
		for _, n := range p.fields.list {
			if _, ok := e.scope.Lookup(n.text); ok {
				continue
			}
			hint := nearest(n.text, firstNames(e.scope))
			if e.scope.IsRecord(n.text) {
				hint = "name its fields, as in " + n.text + "." + fieldsOf(e.scope, n.text)[0]
			}
			c.add(n.at, hint, "there is no field %s here", n.text)
		}
	}
}

// fieldsOf lists the fields of a record.
func fieldsOf(s *expr.Scope, record string) []string {
	var all []string
	for _, n := range s.Names() {
		if f, ok := strings.CutPrefix(n, record+"."); ok {
			all = append(all, f)
		}
	}
	return all
}

// resolvePeeks finds the columns that peeks show. A field that is asked for by name and isn't there is a mistake.
func (c *checker) resolvePeeks() {
	for _, p := range c.peeked {
		e := p.env
		if p.decl.fields != nil {
			for _, n := range p.decl.fields.list {
				if !p.show(n.text) {
					hint := "leave it out"
					if e.src.decl != nil {
						hint += ", or declare its type under types"
					}
					c.add(n.at, hint, "peek shows what is there without it, and no other step uses %s", n.text)
				}
			}
			continue
		}
		// Fields of a document, and of joined rows, are known by the steps that name them, be it behind the peek.
		names := e.scope.Names()
		for _, col := range e.src.root.cols {
			if _, ok := e.scope.Lookup(col.name); ok && col.name != "" {
				names = append(names, col.name)
			}
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if !isMeta(name) {
				p.show(name)
			}
		}
	}
}

// show adds a field to those that are shown, if it is there.
func (p *peekEnd) show(name string) bool {
	f, ok := p.env.scope.Lookup(name)
	if !ok || !p.frame.filled(f.Index) {
		return false
	}
	p.names, p.cols = append(p.names, name), append(p.cols, f.Index)
	return true
}

// filled tells whether a column holds values when steps run. It makes a flat_map take along what is there.
func (f *frame) filled(i int) bool {
	switch c := f.cols[i]; {
	case c.used, c.check:
		return true
	case c.origin == fromParent:
		c.used = f.parent.filled(c.from)
		return c.used
	default:
		return c.origin == fromStep
	}
}

// peekRun shows rows of one task.
type peekRun struct {
	t     *task
	f     *frameRun
	end   *peekEnd
	cols  []*vec.Column
	shown int // in the batch
}

func (t *task) newPeek(end *peekEnd) *peekRun {
	r := &peekRun{t: t, f: t.frame(end.frame), end: end}
	for _, k := range end.cols {
		r.cols = append(r.cols, r.f.rows.Cols[k])
	}
	return r
}

func (r *peekRun) begin(*plan.TaskContext) { r.shown = 0 }

func (r *peekRun) run(sel []int32) []int32 {
	most := r.end.decl.plan.Rows - r.shown
	for _, i := range sel[:min(most, len(sel))] {
		row := plan.Peeked{Peek: r.end.decl.plan, Partition: r.t.tc.Partition, Offset: r.t.recs[r.f.records[i]].Offset}
		for k, c := range r.cols {
			row.Fields = append(row.Fields, "row."+r.end.names[k], shown(c, int(i)))
		}
		r.t.tc.Peeked = append(r.t.tc.Peeked, row)
		r.shown++
	}
	return sel
}

// shown is a value as a logger takes it: text is copied, and cut where it is long.
func shown(c *vec.Column, i int) any {
	if c.IsNull(i) {
		return nil
	}
	switch v := c.Value(i); v.Kind() {
	case value.Null:
		return nil
	case value.Bool:
		return v.Bool()
	case value.Int:
		return v.Int()
	case value.Float:
		return v.Float()
	default:
		text := value.AppendText(nil, v)
		if len(text) > peekClip {
			return strings.ToValidUTF8(string(text[:peekClip]), "") + "…"
		}
		return string(text)
	}
}
