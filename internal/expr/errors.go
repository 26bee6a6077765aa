package expr

import (
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake in an expression.
type Error struct {
	Offset int    // in bytes from the beginning of the source
	Msg    string // what is wrong
	Hint   string // what to write instead; may be empty
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("offset %d: %s", e.Offset, e.Msg)
	}
	return fmt.Sprintf("offset %d: %s (%s)", e.Offset, e.Msg, e.Hint)
}

// Errors are all mistakes of an expression, ordered by offset.
type Errors []*Error

func (es Errors) Error() string {
	var b strings.Builder
	for i, e := range es {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(e.Error())
	}
	return b.String()
}

// add appends a mistake, once: an operand of a chained comparison is visited twice.
func (es *Errors) add(e *Error) {
	for _, have := range *es {
		if *have == *e {
			return
		}
	}
	*es = append(*es, e)
}

func (es Errors) sorted() Errors {
	slices.SortStableFunc(es, func(a, b *Error) int { return a.Offset - b.Offset })
	return es
}
