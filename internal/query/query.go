// Package query reads the rows of a state for people and programs that have neither the pipeline nor its file: the
// schema that is stored with a state is enough.
package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/enc"
	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
)

// Schema returns the schema of a state in a snapshot. The error for a state that isn't there names those that are.
func Schema(snap *pebblestate.Snapshot, name string) (state.Schema, error) {
	schemas, err := snap.Schemas()
	if err != nil {
		return state.Schema{}, err
	}
	var have []string
	for _, s := range schemas {
		if s.Name == name {
			return s, nil
		}
		have = append(have, s.Name)
	}
	msg := fmt.Sprintf("no state %q; there is %s", name, strings.Join(have, ", "))
	if len(have) == 0 {
		msg = fmt.Sprintf("no state %q: nothing has been committed yet", name)
	}
	if near, ok := names.Nearest(name, have); ok {
		msg += fmt.Sprintf("; did you mean %s?", near)
	}
	return state.Schema{}, batch.NewError(batch.Permanent, batch.CodeConfiguration, "query", fmt.Errorf("%s", msg), "")
}

// Columns are the columns of a state's rows: its key's, then its values'.
func Columns(s state.Schema) []state.Column {
	cols := append([]state.Column(nil), s.Key...)
	if s.Kind == "opaque" {
		return append(cols, state.Column{Name: "value", Type: "bytes"})
	}
	return append(cols, s.Values...)
}

// Rows passes the rows whose leading key columns equal keys (all rows if there are none) to emit, in key order. The
// row may be used until emit returns.
func Rows(ctx context.Context, snap *pebblestate.Snapshot, s state.Schema, keys []string, emit func(row []value.Value) error) error {
	prefixes, err := Prefixes(s, keys)
	if err != nil {
		return err
	}
	var row []value.Value
	for _, prefix := range prefixes {
		for r, err := range snap.Scan(ctx, s.Name, prefix, enc.PrefixEnd(prefix)) {
			if err != nil {
				return err
			}
			if row, err = Decode(row[:0], s, r.Key, r.Value); err != nil {
				return err
			}
			if err := emit(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// Decode appends the columns of a row: its key's, then its values'.
func Decode(row []value.Value, s state.Schema, key, val []byte) ([]value.Value, error) {
	row, err := decode(row, s, key, val)
	if err == nil && slices.ContainsFunc(row, garbledJSON) {
		err = errors.New("it holds JSON text that is none")
	}
	if err != nil {
		err = batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "query",
			fmt.Errorf("state %s, key %x: %w", s.Name, key, err), "restore a savepoint, or rebuild by replay")
	}
	return row, err
}

// Key decodes the leading columns of a key, as many as there are.
func Key(s state.Schema, key []byte) ([]value.Value, error) {
	var row []value.Value
	for range s.Key {
		if len(key) == 0 {
			break
		}
		v, rest, err := value.DecodeKey(key)
		if err != nil {
			return row, err
		}
		row, key = append(row, v), rest
	}
	return row, nil
}

// garbledJSON tells whether a value is to be shown as JSON text and isn't. Decoders don't look into it.
func garbledJSON(v value.Value) bool {
	if v.Kind() == value.List {
		return slices.ContainsFunc(v.List(), garbledJSON)
	}
	return v.IsJSON() && !json.Valid([]byte(v.Str()))
}

func decode(row []value.Value, s state.Schema, key, val []byte) ([]value.Value, error) {
	for range s.Key {
		v, rest, err := value.DecodeKey(key)
		if err != nil {
			return row, err
		}
		row, key = append(row, v), rest
	}
	switch s.Kind {
	case "aggregate":
		return agg.Results(row, val)
	case "opaque":
		return append(row, value.BytesOf(val)), nil
	}
	for range s.Values {
		v, rest, err := value.DecodeBinary(val)
		if err != nil {
			return row, err
		}
		row, val = append(row, v), rest
	}
	return row, nil
}
