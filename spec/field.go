package spec

// kind says what a setting's value is.
type kind uint8

const (
	kindString    kind = iota // free text
	kindName                  // the name of a source, stream, state or pipeline
	kindField                 // a new name for a field of a row
	kindRef                   // a field of a row, by its name
	kindInt                   // a whole number, at least min
	kindBool                  // true or false
	kindDuration              // "500ms", "24h", "7d"
	kindSize                  // bytes: "64MiB"
	kindShare                 // more than none of a whole, and at most all: "1%", 0.01
	kindEnum                  // one of enum
	kindExpr                  // an expression over the row's fields
	kindAggregate             // a call of an aggregate function
	kindList                  // a list of item; a single scalar is a list of one
	kindMap                   // names of the user's choice, each with an item
	kindObject                // fields
	kindValue                 // any value, as data
)

// field describes one setting. The grammar is a tree of them, and the only description of it: the parser, the
// reference page and the JSON Schema are all derived from it.
type field struct {
	name string
	kind kind
	doc  string
	def  string // the default, as the reference shows it
	// example is shown by the reference, as YAML.
	example string

	required bool
	min      int64
	enum     []string
	item     *field
	keys     kind // of a map: kindName, kindField or kindRef
	fields   []*field

	// operator marks the settings of an object of which exactly one must be given: a source's connector, a step's
	// operator. of names the operator that a setting is an option of; empty: of any.
	operator bool
	of       string

	// enumOr gives, for an enum or a number, the object that may stand in its place.
	enumOr *field

	// later marks what the grammar knows and this version can't run. It is an error that says so.
	later bool
	// laterEnum lists values of an enum to which the same applies.
	laterEnum []string
}

func (f *field) child(name string) *field {
	for _, c := range f.fields {
		if c.name == name {
			return c
		}
	}
	return nil
}

// childNames lists what may be written in an object.
func (f *field) childNames() []string {
	var names []string
	for _, c := range f.fields {
		names = append(names, c.name)
	}
	return names
}

func (f *field) operators() []string {
	var names []string
	for _, c := range f.fields {
		if c.operator && !c.later {
			names = append(names, c.name)
		}
	}
	return names
}
