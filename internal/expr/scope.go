package expr

import (
	"maps"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/internal/vec"
)

// Type is the type of an expression.
type Type struct {
	vec.Type
	Nullable bool // rows may be null
}

// Kinds of fields, for scopes: any of them may be null at a row.
var (
	Any     = Type{vec.Type{Kind: vec.Any}, true}
	Bool    = Type{vec.Type{Kind: vec.Bool}, true}
	Int     = Type{vec.Type{Kind: vec.Int}, true}
	Float   = Type{vec.Type{Kind: vec.Float}, true}
	Decimal = Type{vec.Type{Kind: vec.Decimal}, true}
	String  = Type{vec.Type{Kind: vec.String}, true}
	Bytes   = Type{vec.Type{Kind: vec.Bytes}, true}
	Time    = Type{vec.Type{Kind: vec.Time}, true}
)

// NotNull is t without nulls.
func (t Type) NotNull() Type {
	t.Nullable = false
	return t
}

// Field is what a name stands for: a column of vec.Rows.
type Field struct {
	Type  Type
	Index int // in vec.Rows.Cols
}

// Scope is the set of names that an expression may use. The fields of a record, such as the row that a lookup
// found, are declared under dotted names: "al.name".
type Scope struct {
	fields map[string]Field

	// Unknown is asked for names that aren't declared, and declares them by returning true: the fields of a JSON
	// document. It must give equal answers to equal questions. nil: such a name is an error.
	Unknown func(name string) (Field, bool)
}

// NewScope returns an empty scope.
func NewScope() *Scope { return &Scope{fields: map[string]Field{}} }

// Set declares a name. A former field of the name is replaced, and so is a record.
func (s *Scope) Set(name string, f Field) {
	if !strings.Contains(name, ".") {
		s.deleteRecord(name)
	}
	s.fields[name] = f
}

// Delete takes a name away: a field, or a record with all its fields.
func (s *Scope) Delete(name string) {
	delete(s.fields, name)
	s.deleteRecord(name)
}

func (s *Scope) deleteRecord(name string) {
	maps.DeleteFunc(s.fields, func(n string, _ Field) bool { return strings.HasPrefix(n, name+".") })
}

// Lookup returns what a name stands for.
func (s *Scope) Lookup(name string) (Field, bool) {
	if f, ok := s.fields[name]; ok {
		return f, true
	}
	if s.Unknown != nil && !s.IsRecord(name) {
		if record, _, dotted := strings.Cut(name, "."); !dotted || !s.IsRecord(record) && !s.has(record) {
			if f, ok := s.Unknown(name); ok {
				return f, true
			}
		}
	}
	return Field{}, false
}

func (s *Scope) has(name string) bool {
	_, ok := s.fields[name]
	return ok
}

// IsRecord tells whether there are fields "name.…".
func (s *Scope) IsRecord(name string) bool {
	for n := range s.fields { // order: one is enough
		if strings.HasPrefix(n, name+".") {
			return true
		}
	}
	return false
}

// Names lists the declared names in order.
func (s *Scope) Names() []string { return slices.Sorted(maps.Keys(s.fields)) }

// Clone returns a copy that changes by itself. Unknown is shared.
func (s *Scope) Clone() *Scope { return &Scope{fields: maps.Clone(s.fields), Unknown: s.Unknown} }

// nearest returns a hint for a misspelt name.
func (s *Scope) nearest(name string) string {
	var candidates []string
	if record, field, ok := strings.Cut(name, "."); ok && s.IsRecord(record) {
		for _, n := range s.Names() {
			if f, ok := strings.CutPrefix(n, record+"."); ok {
				candidates = append(candidates, f)
			}
		}
		if near, ok := names.Nearest(field, candidates); ok {
			return "did you mean " + record + "." + near + "?"
		}
		return record + " has " + strings.Join(candidates, ", ")
	}
	for _, n := range s.Names() {
		record, _, _ := strings.Cut(n, ".")
		if len(candidates) == 0 || candidates[len(candidates)-1] != record {
			candidates = append(candidates, record)
		}
	}
	return didYouMean(name, candidates)
}

func didYouMean(name string, candidates []string) string {
	if near, ok := names.Nearest(name, candidates); ok {
		return "did you mean " + near + "?"
	}
	return ""
}
