// Package vec holds rows as typed columns, a chunk of a few thousand rows at a time.
//
// A column's content is a plain function of what was written to it: no map, no pointer identity and no leftover
// of an earlier chunk shows in it. Once its buffers have grown to the size of a chunk, filling it again allocates
// nothing.
//
// The caller's duties: a Column belongs to one goroutine; what lies in Str and Any refers to memory that somebody
// else owns (a record's value, an Arena) and is good for as long as that is.
package vec

// Kind is what a column holds.
type Kind uint8

const (
	Null    Kind = iota // nothing but nulls: the type of the literal nil
	Any                 // a value of any kind, told row by row: an undeclared field of a JSON document
	Bool                //
	Int                 // 64 bits
	Float               //
	Decimal             //
	String              // UTF-8
	Bytes               //
	Time                // nanoseconds since 1970, UTC
	List                // of elements of one kind
)

var kindNames = [...]string{
	Null: "nil", Any: "any", Bool: "bool", Int: "int", Float: "float", Decimal: "decimal", String: "string",
	Bytes: "bytes", Time: "timestamp", List: "list",
}

func (k Kind) String() string { return kindNames[k] }

// Type is a column's type. Types are compared with ==.
type Type struct {
	Kind Kind
	Elem Kind // of a List; a list of lists has Any. Null otherwise, and for a list known to be empty
}

// ListOf is the type of lists of elem.
func ListOf(elem Kind) Type { return Type{Kind: List, Elem: elem} }

func (t Type) String() string {
	if t.Kind == List && t.Elem != Null {
		return "list<" + t.Elem.String() + ">"
	}
	return t.Kind.String()
}

// Article writes a type with its article, for sentences. What is said of Null and Any depends on the sentence.
func (t Type) Article() string {
	switch t.Kind {
	case Int:
		return "an int"
	case Bytes:
		return "bytes"
	}
	return "a " + t.String()
}

// Rows is a chunk of rows. All its columns have N rows; columns that nobody reads may be nil.
type Rows struct {
	N    int
	Cols []*Column
}

// Iota returns sel with the numbers 0 to n-1: the selection of all rows. The memory of sel is used again.
func Iota(sel []int32, n int) []int32 {
	if cap(sel) < n {
		sel = make([]int32, 0, n)
	}
	for len(sel) < n {
		sel = append(sel, int32(len(sel)))
	}
	return sel[:n]
}
