package plan

import (
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// The delta of a table of latest rows is a flag and, if the key has a row, the row.
const (
	TableRemoves = iota
	TableSets
)

// Table is the exchange of a table: of each key the last delta counts.
func Table(name string, schema state.Schema) *Exchange {
	return &Exchange{
		Name: name, FormatKey: value.KeyText,
		Merge: func(dst, _, b []byte) ([]byte, error) { return append(dst, b...), nil },
		State: &State{Schema: schema, Update: func(dst, _, delta []byte) ([]byte, bool, error) {
			if delta[0] == TableRemoves {
				return nil, false, nil
			}
			return append(dst, delta[1:]...), true, nil
		}},
	}
}
