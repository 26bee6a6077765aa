package columnar

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// origin is where what a path leads to is taken from: a column of the rows, or others below.
type origin struct {
	name    string
	at      int // of the column; -1: none
	typ     vec.Type
	members []*origin
}

// origins sorts the fields of rows by the records that they are to lie in. A field that is a value and has fields of its own is a mistake.
func origins(fields []Field) (*origin, error) {
	root := &origin{at: -1}
	for i, f := range fields {
		at := root
		for name := range strings.SplitSeq(f.Name, ".") {
			next := at.take(name)
			if next == nil {
				next = &origin{name: name, at: -1}
				at.members = append(at.members, next)
			}
			at = next
			if at.at >= 0 {
				return nil, fmt.Errorf("fields %s and %s: a field is a value or has fields", fields[at.at].Name, f.Name)
			}
		}
		if len(at.members) > 0 {
			return nil, fmt.Errorf("field %s: it is a value, and has fields", f.Name)
		}
		at.at, at.typ = i, f.Type
	}
	return root, nil
}

// take returns the member of a name; nil if there is none.
func (o *origin) take(name string) *origin {
	for _, m := range o.members {
		if m.name == name {
			return m
		}
	}
	return nil
}

// null tells whether nothing at or below o has a value in row i.
func (o *origin) null(cols []*vec.Column, i int) bool {
	if o.at >= 0 {
		return cols[o.at].IsNull(i)
	}
	for _, m := range o.members {
		if !m.null(cols, i) {
			return false
		}
	}
	return true
}

// misfits are what keeps rows from being written by a schema.
type misfits struct{ errs []error }

func (m *misfits) add(path, format string, args ...any) {
	m.errs = append(m.errs, fmt.Errorf("field %s: "+format, append([]any{path}, args...)...))
}

// unplaced notes the members of o that a record has no field for; known are the fields that it has.
func (m *misfits) unplaced(o *origin, prefix, where string, known []string) {
	for _, c := range o.members {
		switch near, ok := names.Nearest(c.name, known); {
		case slices.Contains(known, c.name):
		case ok:
			m.add(prefix+c.name, "%s has no such field; did it mean %s?", where, near)
		default:
			m.add(prefix+c.name, "%s has no such field", where)
		}
	}
}

// err joins what was noted: each has its own place behind Unwrap() []error.
func (m *misfits) err() error { return errors.Join(m.errs...) }

// due says that a value or a type isn't what a schema wants. is has an article.
func due(is, want string) error { return fmt.Errorf("%s where %s is due", is, want) }

// article is what a value is, for sentences.
func article(v value.Value) string {
	if v.IsNull() {
		return "null"
	}
	return vec.Type{Kind: vec.KindOf(v)}.Article()
}

// typeText is a column's type, for sentences.
func typeText(t vec.Type) string {
	switch t.Kind {
	case vec.Null:
		return "nothing but null"
	case vec.Any:
		return "one value"
	default:
		return t.Article()
	}
}

// fit says how a value of one kind goes into a type.
type fit uint8

const (
	asItIs    fit = iota // it is what the type holds
	converted            // the type can hold it as something else
	passes               // it can't
)
