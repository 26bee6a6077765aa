package plan

import (
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// Query is a query stream. What it is asked with goes through its tasks like a batch, over the states as one committed txid has left
// them, and what comes out at its end is the answer. It changes nothing, and is no part of Plan.Text.
type Query struct {
	Name string
	// Lines describe the query for people.
	Lines   []string
	Params  []state.Column // the fields of the arguments
	Columns []state.Column // of the answer's rows
	States  []string       // that it reads, by name
	Tables  []string       // static ones that it looks up, by name
	// Sorted tells that the rows of the answer come in an order that the query asks for.
	Sorted bool
	// Decode makes arguments of a JSON object that has the Params as fields.
	Decode func(text []byte) (any, error)
	// NewTask makes the task of the first stage. Its Process isn't called: End sends the arguments through the chain. What comes to
	// the query's end is left in TaskContext.Persist[0], in the stages behind it, too.
	NewTask func(args any) Task
	// Exchanges keep no states, and are fed by the first stage and by exchanges before them.
	Exchanges []*Exchange
	// Rows passes what a task has left at the query's end on, row by row, in the order of the Columns.
	Rows func(left any, emit func(row []value.Value) error) error
}
