package spec

import (
	"slices"

	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/vec"
	"github.com/tridentd/tridentd/state"
)

func (c *checker) groupBy(st *stepDecl, e *env) []int {
	var keys []int
	for _, name := range c.named(st, e) {
		if e.scope.IsRecord(name) {
			c.add(st.at, "set a field to it first", "%s takes fields, %s is a found row", st.op, name)
			continue
		}
		f, _ := e.lookup(name)
		keys = append(keys, f.Index)
	}
	return keys
}

func (c *checker) aggregate(l *leaf, st *stepDecl, e *env, w *windowDecl) {
	out := l.out
	l.aggs = st.aggs
	var args []*expr.Expr
	for _, a := range st.aggs {
		args = append(args, a.call.Args...)
	}
	l.scope = e.freeze(args...)
	fresh := out.sources == nil
	out.window = w
	if w != nil {
		c.windowNames(l, st, e, w)
	}
	c.expires(out, st, e)
	c.emits(out, st)
	if !slices.Contains(out.sources, e.src) {
		out.sources = append(out.sources, e.src)
	}
	for i, k := range l.keys {
		col := e.frame.cols[k]
		switch {
		case fresh:
			out.keys = append(out.keys, col.typ)
			out.schema.Key = append(out.schema.Key, state.Column{Name: col.name, Type: col.typ.Kind.String()})
		case i < len(out.keys):
			k, ok := merged(out.keys[i].Kind, col.typ.Kind)
			if !ok {
				c.disagree(st, col.name, out.keys[i], col.typ)
			} else if k != out.keys[i].Kind {
				out.keys[i], out.schema.Key[i].Type = expr.Any, vec.Any.String()
			}
		}
	}
	for i, a := range st.aggs {
		t, errs := a.call.Check(e.scope)
		if len(errs) > 0 {
			c.exprError(a.n, errs)
			continue
		}
		v := aggValue{name: a.name, fn: a.call.Fn, param: a.call.Param, typ: t}
		for k, x := range a.call.Args {
			e.reads(x)
			at, _ := x.Check(e.scope)
			if k == 0 {
				v.arg = argKind(v.fn, at.Kind)
			} else {
				v.by = argKind(v.fn, at.Kind)
			}
		}
		if v.arg == vec.List {
			c.add(a.n.place(0), "", "%s() of lists is not available", v.fn)
		}
		for _, k := range out.schema.Key {
			if k.Name == a.name {
				c.add(a.n.keyAt, "", "%s is a field of the group", a.name)
			}
		}
		if fresh {
			out.values = append(out.values, v)
			continue
		}
		if i >= len(out.values) {
			continue // an earlier one was wrong, and reported
		}
		w := &out.values[i]
		if k, ok := merged(w.arg, v.arg); !ok {
			c.disagree(st, a.n.text, expr.Type{Type: vec.Type{Kind: w.arg}}, expr.Type{Type: vec.Type{Kind: v.arg}})
		} else if w.arg = k; w.typ.Type != v.typ.Type {
			w.typ = expr.Any
		}
		if k, ok := merged(w.by, v.by); !ok {
			c.disagree(st, a.n.text, expr.Type{Type: vec.Type{Kind: w.by}}, expr.Type{Type: vec.Type{Kind: v.by}})
		} else {
			w.by = k
		}
	}
}

// argKind is the kind of values that an aggregate accumulates; Any where it shows record by record only.
func argKind(fn string, k vec.Kind) vec.Kind {
	switch {
	case fn == "count_if":
		return vec.Bool
	case k == vec.Null:
		return vec.Any
	}
	return k
}

// merged is the kind of a column that has one kind in one merged stream and another in another: a declared and an
// undeclared field can meet, two declared ones of different types can't.
func merged(a, b vec.Kind) (k vec.Kind, ok bool) {
	switch {
	case a == b:
		return a, true
	case a == vec.Any || b == vec.Any:
		return vec.Any, true
	}
	return 0, false
}

func (c *checker) disagree(st *stepDecl, what string, a, b expr.Type) {
	c.add(st.at, "declare it alike in types", "the merged streams disagree: %s is %s in one and %s in another", what, typeText(a), typeText(b))
}
