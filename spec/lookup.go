package spec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
	"github.com/tridentd/tridentd/state"
)

// A lookup in a state that changes while the pipeline runs brings the rows of its stream to the shards that hold their keys and
// reads there, as the second side of a join. It sees the state as the batch's own records have left it.

func lookupField() *field {
	return &field{name: "lookup", kind: kindObject, operator: true, doc: "Looks a row up in a static table, in one of latest values, or in the state of a stream; not in one of sessions or of windows of so many rows. Its fields are then `as.field`; without a match they are null. In what is no static table it is looked up as the batch's own records have left it.", fields: []*field{
		{name: "state", kind: kindName, required: true, doc: "The table, or the state."},
		{name: "key", kind: kindList, item: &field{kind: kindExpr}, def: "none, for the state of an aggregate without `group_by`", example: "key: customer", doc: "The key to look up; of a state with several key fields one expression for each, in their order. That of a state with windows begins with the window's start."},
		{name: "as", kind: kindField, required: true, doc: "The name under which the found row's fields are seen."},
		{name: "kind", kind: kindEnum, enum: []string{"left", "inner"}, def: "left", doc: "`left`: rows without a match go on, with nulls; `inner`: they don't."},
	}}
}

// lookupDecl is a checked lookup in a state that changes.
type lookupDecl struct {
	of    *output // that keeps the state
	inner bool
}

// keeperOf returns the stream that keeps a state; nil if none does.
func (m *model) keeperOf(state string) *streamDecl {
	for _, s := range m.streams {
		if s.state == state {
			return s
		}
	}
	if m.outer != nil {
		return m.outer.keeperOf(state)
	}
	return nil
}

// looksIn returns the stream whose state a step looks rows up in; nil for other steps, and static tables.
func (m *model) looksIn(st *stepDecl) *streamDecl {
	if st.op != "lookup" {
		return nil
	}
	name := st.n.get("state").str()
	if m.static(name) != nil || name == "" {
		return nil
	}
	return m.keeperOf(name)
}

// keyColumn is a column of the key of a state.
type keyColumn struct {
	name string
	typ  expr.Type
	// found is where it is in the state's rows, and given where in the keys of lookups; -1 where it follows from those before.
	found, given int
}

// key lists the columns of the state's key: those of the window, of which its start tells the end, then the groups'.
func (l *lookupDecl) key() []keyColumn {
	var all []keyColumn
	if w := l.of.window; w != nil && w.time != nil { // others are reported
		for i, c := range w.time.Columns() {
			k := keyColumn{name: c.Name, typ: expr.Time.NotNull(), found: i, given: i}
			if i > 0 {
				k.given = -1
			}
			all = append(all, k)
		}
	}
	led, given := len(all), min(len(all), 1)
	groups := l.of.schema.Key[len(l.of.schema.Key)-len(l.of.keys):] // that of windows is put before them when the check is done
	for i, c := range groups {
		all = append(all, keyColumn{name: c.Name, typ: l.of.keys[i], found: led + i, given: given + i})
	}
	return all
}

// given are the columns of the key that a lookup has expressions for.
func (l *lookupDecl) given() []keyColumn {
	return slices.DeleteFunc(l.key(), func(k keyColumn) bool { return k.given < 0 })
}

// column returns the number, in the rows of a state, of a column, and its type.
func (l *lookupDecl) column(name string) (int, expr.Type, bool) {
	key := l.key()
	for _, k := range key {
		if k.name == name {
			return k.found, k.typ, true
		}
	}
	n := len(key)
	for i, t := range l.of.table {
		if t.name == name {
			return n + i, t.typ, true
		}
	}
	for i, v := range l.of.values {
		if v.name == name {
			return n + i, v.typ, true
		}
	}
	return 0, expr.Type{}, false
}

func (l *lookupDecl) names() []string {
	var all []string
	for _, k := range l.key() {
		all = append(all, k.name)
	}
	for _, t := range l.of.table {
		all = append(all, t.name)
	}
	for _, v := range l.of.values {
		all = append(all, v.name)
	}
	return all
}

// lookupSide checks the way of a stream's rows to a lookup in a state that changes.
func (c *checker) lookupSide(b *branch, o *output, st *stepDecl, e *env) *joinSide {
	s := &joinSide{out: o, env: e, label: st.label}
	set := op{kind: "set", label: st.label, frame: e.frame}
	for _, x := range st.exprs {
		typ, ok := c.typed(x, e)
		if !ok || typ.Kind == vec.Null {
			typ = expr.Any
		}
		s.keyTypes = append(s.keyTypes, typ)
		if name, plain := x.e.Name(); plain && ok {
			if f, found := e.lookup(name); found {
				s.keys = append(s.keys, f.Index)
				continue
			}
		}
		col := e.frame.add(&column{typ: typ, origin: fromStep, used: true})
		set.exprs, set.into = append(set.exprs, x), append(set.into, col)
		s.keys = append(s.keys, col)
	}
	if len(set.exprs) > 0 {
		set.scope = e.freeze(expressions(set.exprs)...)
		b.ops = append(b.ops, set)
	}
	o.addSide(s)
	return s
}

// lookedUp holds a lookup against the state, which has been checked by now, and declares the event time of its rows.
func (c *checker) lookedUp(o *output) {
	l, st := o.join.lookup, o.stream.steps[o.step]
	ref := st.n.get("state")
	if l.of.sources == nil {
		return // nothing leads there; why has been reported
	}
	if l.of.window.keyed() {
		c.add(ref.at, "begin a stream at "+l.of.stream.name, "the rows of %s can't be looked up: where its windows begin and end is up to the rows in them", ref.text)
		return
	}
	given := l.given()
	if have := len(st.exprs); have != len(given) {
		at := st.at
		if n := st.n.get("key"); n != nil {
			at = n.keyAt
		}
		c.add(at, "", "the key of %s is %s, that of the lookup has length %d", ref.text, keyText(given), have)
		return
	}
	for _, s := range o.join.sides {
		if l.of.window != nil && l.of.window.time.Slide != 0 {
			s.window = l.of.window.time
		}
		for i, k := range given {
			if have := s.keyTypes[i]; have.Kind != k.typ.Kind && have.Kind != vec.Any && k.typ.Kind != vec.Any {
				c.add(st.exprs[i].n.place(0), "", "%s of %s is %s, this is %s", k.called(), ref.text, typeText(k.typ), typeText(have))
			}
		}
	}
	c.keepTimes(o)
}

// called is what messages call a column of a key.
func (k *keyColumn) called() string {
	if k.name == "window_start" {
		return "the start of the windows"
	}
	return "the key"
}

func keyText(key []keyColumn) string {
	if len(key) == 0 {
		return "empty, as it has a single row"
	}
	var cols []state.Column
	for _, k := range key {
		cols = append(cols, state.Column{Name: k.name, Type: k.typ.Kind.String()})
	}
	return columnsText(cols)
}

// canBeLate tells of rows that are judged by the watermark: records, also such as have been to a lookup or a relay. What windows and joins in
// event time have made is never late.
func (s *source) canBeLate() bool {
	if s.out == nil {
		return true
	}
	if s.out.join == nil || !s.out.join.passes() {
		return false
	}
	for _, src := range s.out.sources {
		if !src.canBeLate() {
			return false
		}
	}
	return true
}

// lookupText writes a lookup in one line.
func lookupText(st *stepDecl) string {
	var keys []string
	for _, x := range st.exprs {
		keys = append(keys, x.e.String())
	}
	text := fmt.Sprintf("lookup %s by %s as %s", st.n.get("state").text, strings.Join(keys, ", "), st.n.get("as").text)
	if st.n.get("kind").str() == "inner" {
		text += " inner"
	}
	return text
}

// lookupReader reads the rows of a state in one shard.
type lookupReader struct {
	l     *lookupDecl
	state state.Reader
	cols  []int // of each carried field, in the state's rows
	row   []value.Value
	timed bool
}

func newLookupReader(o *output, carried []int) *lookupReader {
	r := &lookupReader{l: o.join.lookup, timed: o.derived.time >= 0}
	for _, i := range carried {
		col, _, ok := r.l.column(o.join.fields[i].name)
		if !ok {
			panic("spec: a lookup's field is none of the state's: " + o.join.fields[i].name)
		}
		r.cols = append(r.cols, col)
	}
	return r
}

// find reads the row of a key.
func (r *lookupReader) find(key []byte) (found bool, err error) {
	// The key is found in the state of the batch: nothing is waited for.
	b, found, err := r.state.Get(context.Background(), key)
	if err != nil || !found || len(r.cols) == 0 {
		return found, err
	}
	r.row = r.row[:0]
	for rest := key; len(rest) > 0; {
		var v value.Value
		if v, rest, err = value.DecodeKey(rest); err != nil {
			return false, err
		}
		r.row = append(r.row, v)
	}
	if r.l.of.stream.table {
		for rest := b; len(rest) > 0; {
			var v value.Value
			if v, rest, err = value.DecodeBinary(rest); err != nil {
				return false, err
			}
			r.row = append(r.row, v)
		}
	} else if r.row, err = agg.Results(r.row, b); err != nil {
		return false, err
	}
	if n := len(r.l.of.schema.Key) + len(r.l.of.schema.Values); len(r.row) != n {
		return false, fmt.Errorf("%d columns in a row of %d", len(r.row), n)
	}
	return true, nil
}

// look calls row for each row that has come for a key.
func (r *joinReader) look(key, b []byte, row func(vals []value.Value, at int64) error) error {
	found, err := r.lookup.find(key)
	if err != nil {
		return err
	}
	if !found && r.lookup.l.inner {
		return nil
	}
	for rest := b; len(rest) > 0; {
		var wire []byte
		if wire, rest, err = nextWire(rest); err != nil {
			return err
		}
		at, err := r.passed(wire, r.lookup.timed)
		if err != nil {
			return err
		}
		if found {
			for k, i := range r.carried[1] {
				r.vals[i] = r.lookup.row[r.lookup.cols[k]]
			}
		}
		if err := row(r.vals, at); err != nil {
			return err
		}
	}
	return nil
}

// ofBatch tells of an error that carries what is to be done about it.
func ofBatch(err error) bool {
	_, ok := errors.AsType[*batch.Error](err)
	return ok
}
