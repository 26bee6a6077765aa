package query

import (
	"encoding/json"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// FuzzRow reads a row of any bytes as any kind of state: it decodes whole, and can be shown, or the store is damaged.
func FuzzRow(f *testing.F) {
	f.Add("rows", value.AppendKey(nil, value.StringOf("a")), value.AppendBinary(value.AppendBinary(nil, value.IntOf(7)), value.NullValue()))
	f.Add("aggregate", value.AppendKey(nil, value.IntOf(-1)), []byte{1, 0, 0})
	f.Add("opaque", value.AppendKey(nil, value.NullValue()), []byte{})
	f.Fuzz(func(t *testing.T, kind string, key, val []byte) {
		s := state.Schema{
			Name: "s", Kind: kind, Key: []state.Column{{Name: "k", Type: "any"}},
			Values: []state.Column{{Name: "a", Type: "any"}, {Name: "b", Type: "any"}},
		}
		row, err := Decode(nil, s, key, val)
		if err != nil {
			if batch.CodeOf(err) != batch.CodeStoreDamaged {
				t.Errorf("%v, want code %s", err, batch.CodeStoreDamaged)
			}
			return
		}
		if kind != "aggregate" && len(row) != len(Columns(s)) {
			t.Errorf("%d columns of %d", len(row), len(Columns(s)))
		}
		for _, v := range row {
			value.AppendText(nil, v)
			if b := value.AppendJSON(nil, v); !json.Valid(b) {
				t.Errorf("%s is no JSON", b)
			}
		}
	})
}

// FuzzImportedRow: what an import takes of a line is what a query shows of it.
func FuzzImportedRow(f *testing.F) {
	f.Add([]byte(`{"k":"a","n":7,"at":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"k":null,"n":9007199254740993,"at":null}`))
	f.Add([]byte(`{"k":"a","n":1e400,"at":0}`))
	s := state.Schema{
		Name: "s", Kind: "rows", Key: []state.Column{{Name: "k", Type: "string"}},
		Values: []state.Column{{Name: "n", Type: "int"}, {Name: "at", Type: "timestamp"}},
	}
	e, err := NewEncoder(s, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(line, &fields) != nil {
			return
		}
		key, val, err := e.Row(fields)
		if err != nil {
			return
		}
		row, err := Decode(nil, s, key, val)
		if err != nil || len(row) != 3 {
			t.Fatalf("%s: %v, %v", line, row, err)
		}
		for i, c := range Columns(s) {
			again, err := FromJSON(c.Type, value.AppendJSON(nil, row[i]))
			if err != nil || value.Compare(again, row[i]) != 0 {
				t.Errorf("column %s: %v came back as %v, %v", c.Name, row[i], again, err)
			}
		}
	})
}
