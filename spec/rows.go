package spec

import (
	"slices"
	"strings"

	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/vec"
	"github.com/tridentd/tridentd/window"
)

// origin says where a column's values come from.
type origin uint8

const (
	fromDocument origin = iota // a field of the record's value
	fromMeta                   // a property of the record
	fromParent                 // a column of the frame before the flat_map
	fromStep                   // computed by a step
	fromTable                  // a column of a static table
	fromResult                 // a field of an aggregate's rows
)

// column is one column of a frame.
type column struct {
	name   string
	typ    expr.Type
	origin origin
	from   int  // fromParent: the column's index there
	used   bool // something reads it
	check  bool // its type is declared: it is read and checked even if nothing reads it
}

// frame is a set of rows with the same number of rows: the records of a chunk, or what a flat_map made of another
// frame's rows. All streams of a source share its frames; a step adds columns and never changes one.
type frame struct {
	parent *frame
	cols   []*column
	byName map[string]int // of the root: document fields and properties
	byFrom map[int]int    // of others: own column by the parent's
}

func (f *frame) add(c *column) int {
	f.cols = append(f.cols, c)
	return len(f.cols) - 1
}

// gather returns the column that holds column i of the parent.
func (f *frame) gather(i int) int {
	if j, ok := f.byFrom[i]; ok {
		return j
	}
	p := f.parent.cols[i]
	j := f.add(&column{name: p.name, typ: p.typ, origin: fromParent, from: i})
	f.byFrom[i] = j
	return j
}

func (f *frame) child() *frame { return &frame{parent: f, byFrom: map[int]int{}} }

// propagate marks what used columns are made from, from the innermost frame outwards.
func (f *frame) propagate() {
	for _, c := range f.cols {
		if c.used && c.origin == fromParent {
			f.parent.cols[c.from].used = true
		}
	}
}

// env is what a step sees: a frame and the names that stand for its columns.
type env struct {
	src    *source
	frame  *frame
	scope  *expr.Scope
	open   bool // fields that nobody named before are fields of the document
	hidden map[string]bool
}

// newEnv returns the environment at a source.
func newEnv(src *source) *env {
	e := &env{src: src, frame: src.root, scope: expr.NewScope(), hidden: map[string]bool{}}
	for i, c := range src.root.cols {
		if c.name != "" {
			e.scope.Set(c.name, expr.Field{Type: c.typ, Index: i})
		}
	}
	e.open = src.open
	e.scope.Unknown = e.unknown
	return e
}

// clone returns a copy that changes by itself; the frame is shared.
func (e *env) clone() *env {
	c := *e
	c.hidden = make(map[string]bool, len(e.hidden))
	for k := range e.hidden { // copied: the order doesn't matter
		c.hidden[k] = true
	}
	c.scope = e.scope.Clone()
	c.scope.Unknown = c.unknown
	return &c
}

// unknown declares fields of an open document as they are named.
func (e *env) unknown(name string) (expr.Field, bool) {
	first, _, nested := strings.Cut(name, ".")
	if o := e.src.out; o != nil && o.join != nil {
		if !e.open || e.hidden[first] || e.hidden[name] {
			return expr.Field{}, false
		}
		i, ok := o.joinedColumn(name)
		if !ok {
			return expr.Field{}, false
		}
		return e.field(i), true
	}
	if !e.open || e.hidden[first] || e.hidden[name] || nested && !e.src.decl.decode.nests() || !e.src.decl.decode.schema.has(name) {
		return expr.Field{}, false
	}
	i := e.src.document(name)
	return e.field(i), true
}

// field brings a column of the root to the present frame.
func (e *env) field(root int) expr.Field {
	i := e.bring(e.frame, root)
	return expr.Field{Type: e.frame.cols[i].typ, Index: i}
}

func (e *env) bring(f *frame, root int) int {
	if f.parent == nil {
		return root
	}
	return f.gather(e.bring(f.parent, root))
}

// lookup resolves a field's name and marks its column as read.
func (e *env) lookup(name string) (expr.Field, bool) {
	f, ok := e.scope.Lookup(name)
	if ok {
		e.frame.cols[f.Index].used = true
	}
	return f, ok
}

// freeze returns a scope with all names that the expressions use. It stays as it is, and compiling with it declares
// no more columns, so that tasks may do it at any time.
func (e *env) freeze(xs ...*expr.Expr) *expr.Scope {
	s := e.scope.Clone()
	s.Unknown = nil
	for _, x := range xs {
		for _, name := range x.Fields() {
			if f, ok := e.scope.Lookup(name); ok {
				s.Set(name, f)
			}
		}
	}
	return s
}

// reads marks the columns that an expression reads.
func (e *env) reads(x *expr.Expr) {
	for _, name := range x.Fields() {
		e.lookup(name)
	}
}

// set declares a computed field.
func (e *env) set(name string, t expr.Type) int {
	i := e.frame.add(&column{name: name, typ: t, origin: fromStep})
	e.declare(name, i)
	return i
}

func (e *env) declare(name string, i int) {
	e.scope.Set(name, expr.Field{Type: e.frame.cols[i].typ, Index: i})
	delete(e.hidden, name)
}

// drop takes a field away.
func (e *env) drop(name string) {
	e.scope.Delete(name)
	e.hidden[name] = true
}

// keep takes everything away but the named fields and records.
func (e *env) keep(names []string) {
	for _, name := range names {
		if !e.scope.IsRecord(name) {
			if f, ok := e.scope.Lookup(name); ok {
				e.scope.Set(name, f)
			}
		}
	}
	for _, n := range e.scope.Names() {
		first, _, _ := strings.Cut(n, ".")
		if !slices.Contains(names, n) && !slices.Contains(names, first) && !isMeta(n) {
			e.scope.Delete(n)
		}
	}
	e.open = false
}

// expand moves on to the rows of a flat_map; all names stay.
func (e *env) expand() *frame {
	next := e.frame.child()
	scope := expr.NewScope()
	for _, name := range e.scope.Names() {
		f, _ := e.scope.Lookup(name)
		i := next.gather(f.Index)
		scope.Set(name, expr.Field{Type: next.cols[i].typ, Index: i})
	}
	e.frame, e.scope = next, scope
	e.scope.Unknown = e.unknown
	return next
}

// source is a source with the columns that its streams ask for, or what the rows of an aggregate come from.
type source struct {
	decl *sourceDecl // nil for an aggregate
	out  *output     // the aggregate; nil for a source of records
	root *frame
	open bool // a document may have fields that nobody declared
	time int  // the column of the event time; -1 if there is none
	// parallel bounds how many of its tasks work at once; 0: nothing does.
	parallel int

	branches []*branch
}

// newSource returns a source with its declared columns.
func newSource(d *sourceDecl) *source {
	s := &source{decl: d, root: &frame{byName: map[string]int{}}, time: -1}
	for _, m := range meta {
		if !d.arguments {
			s.property(m.name, m.typ)
		}
	}
	switch d.decode.kind {
	case "string":
		s.property("value", expr.String)
		s.property("key", expr.String)
	case "bytes":
		s.property("value", expr.Bytes)
		s.property("key", expr.Bytes)
	default:
		for _, t := range d.decode.types {
			i := s.document(t.name)
			s.root.cols[i].check = true
		}
		for _, h := range d.header {
			if h != "" && !isMeta(h) {
				s.document(h)
			}
		}
		for _, f := range d.decode.schema.fields() {
			if !strings.Contains(f.Name, ".") && !isMeta(f.Name) {
				s.document(f.Name)
			}
		}
		s.open = d.header == nil && !d.arguments
	}
	return s
}

func (s *source) property(name string, t expr.Type) {
	s.root.byName[name] = s.root.add(&column{name: name, typ: t, origin: fromMeta})
}

// results declares the columns of an aggregate's rows: those of the window, the fields of the group, the aggregates; and, without
// a name, the rows' event time if they have one.
func (s *source) results(o *output) {
	if o.window != nil {
		typ := expr.Time
		if o.window.shape.Kind() == window.OfCount {
			typ = expr.Int
		}
		for _, name := range []string{"window_start", "window_end"} {
			s.root.add(&column{name: name, typ: typ.NotNull(), origin: fromResult})
		}
	}
	for i, t := range o.keys {
		s.root.add(&column{name: o.schema.Key[i].Name, typ: t, origin: fromResult})
	}
	for _, v := range o.values {
		s.root.add(&column{name: v.name, typ: v.typ, origin: fromResult})
	}
	if o.window != nil && o.window.events() {
		s.time = s.root.add(&column{typ: expr.Time.NotNull(), origin: fromResult})
	}
}

// document returns the column of a field of the record's value.
func (s *source) document(name string) int {
	if i, ok := s.root.byName[name]; ok {
		return i
	}
	t := expr.Any
	if k, ok := s.decl.decode.typeOf(name); ok {
		t = expr.Type{Type: vec.Type{Kind: k}, Nullable: true}
	} else if s.decl.decode.kind == "csv" {
		t = expr.String
	}
	i := s.root.add(&column{name: name, typ: t, origin: fromDocument})
	s.root.byName[name] = i
	return i
}
