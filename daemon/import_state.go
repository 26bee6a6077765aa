package daemon

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/migrate/storm"
	"github.com/tridentd/tridentd/state"
)

// importedStates reads the rows of each state from its file. Everything that is wrong with them is told by its line.
func importedStates(pl *plan.Plan, files map[string]string, form storm.Format, current int64) ([]engine.ImportedState, error) {
	var all []engine.ImportedState
	for _, name := range slices.Sorted(maps.Keys(files)) {
		schema, zero, err := importable(pl, name)
		if err != nil {
			return nil, err
		}
		enc, err := query.NewEncoder(schema, zero)
		if err != nil {
			return nil, usage(fmt.Errorf("no rows can be imported: %w", err))
		}
		f, err := os.Open(files[name])
		if err != nil {
			return nil, usagef("state %s: %w", name, err)
		}
		rows, err := readRows(f, files[name], enc, form, current)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		all = append(all, engine.ImportedState{Schema: schema, Rows: rows})
	}
	return all, nil
}

// importable finds a state in a plan.
func importable(pl *plan.Plan, name string) (state.Schema, func() []byte, error) {
	var have []string
	for _, e := range pl.Exchanges {
		if e.State == nil {
			continue
		}
		if e.State.Schema.Name == name {
			return e.State.Schema, e.State.Zero, nil
		}
		have = append(have, e.State.Schema.Name)
	}
	for _, p := range pl.Persists {
		if p.Schema.Name == name {
			return p.Schema, nil, nil
		}
		have = append(have, p.Schema.Name)
	}
	hint := ""
	if near, ok := names.Nearest(name, have); ok {
		hint = fmt.Sprintf("; did you mean %s?", near)
	}
	return state.Schema{}, nil, usagef("the pipeline keeps no state %q%s", name, hint)
}

// readRows reads a JSON object a line.
func readRows(r io.Reader, name string, enc *query.Encoder, form storm.Format, current int64) ([]engine.ImportedRow, error) {
	var rows []engine.ImportedRow
	var errs []error
	lines := map[string]int{} // where a key was given
	b := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := b.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			row, ok, err := importedRow(line, enc, form, current)
			switch before, twice := lines[string(row.Key)]; {
			case err != nil:
				errs = append(errs, fmt.Errorf("%s:%d: %w", name, n, err))
			case ok && twice:
				errs = append(errs, fmt.Errorf("%s:%d: its key was given in line %d already", name, n, before))
			case ok:
				lines[string(row.Key)] = n
				rows = append(rows, row)
			}
		}
		if err != nil {
			break
		}
	}
	if len(errs) > 0 {
		return nil, usage(few(errs))
	}
	return rows, nil
}

// importedRow encodes one line. ok is false for a key that only a transaction has made that hasn't committed.
func importedRow(line []byte, enc *query.Encoder, form storm.Format, current int64) (row engine.ImportedRow, ok bool, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return row, false, fmt.Errorf("it is no JSON object: %w", err)
	}
	values, absent := 0, 0
	for _, c := range enc.Values() {
		stored, there := fields[c.Name]
		if !there {
			continue // told by the encoder
		}
		settled, there, err := form.Settle(stored, current)
		if err != nil {
			return row, false, fmt.Errorf("column %s: %w", c.Name, err)
		}
		values++
		if !there {
			absent++
		}
		fields[c.Name] = settled
	}
	switch {
	case absent > 0 && absent == values:
		return row, false, nil
	case absent > 0:
		return row, false, errors.New("only some of its values were there before the transaction that hasn't committed")
	}
	row.Key, row.Value, err = enc.Row(fields)
	return row, err == nil, err
}
