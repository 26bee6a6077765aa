package query

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

var drawn = map[string]func(*rapid.T) value.Value{
	"string":    func(t *rapid.T) value.Value { return value.StringOf(rapid.String().Draw(t, "string")) },
	"int":       func(t *rapid.T) value.Value { return value.IntOf(rapid.Int64().Draw(t, "int")) },
	"float":     func(t *rapid.T) value.Value { return value.FloatOf(rapid.Float64().Draw(t, "float")) },
	"bool":      func(t *rapid.T) value.Value { return value.BoolOf(rapid.Bool().Draw(t, "bool")) },
	"bytes":     func(t *rapid.T) value.Value { return value.BytesOf(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) },
	"timestamp": func(t *rapid.T) value.Value { return value.TimeOf(rapid.Int64Range(-9e18, 9e18).Draw(t, "timestamp")) },
	"decimal": func(t *rapid.T) value.Value {
		d, err := decimal.New(rapid.Int64().Draw(t, "coefficient"), rapid.Int32Range(-9, 9).Draw(t, "exponent"))
		if err != nil {
			t.Fatal(err)
		}
		return value.DecimalOf(d)
	},
}

// TestFromJSON: what queries show reads back as the same value, and null as null.
func TestFromJSON(t *testing.T) {
	for typ, draw := range drawn {
		t.Run(typ, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				v := draw(rt)
				text := value.AppendJSON(nil, v)
				got, err := FromJSON(typ, text)
				if err != nil || got.Kind() != v.Kind() || value.Compare(got, v) != 0 {
					rt.Fatalf("%s: %s, %v, want %s", text, got, err, v)
				}
			})
			if v, err := FromJSON(typ, json.RawMessage(" null ")); err != nil || !v.IsNull() {
				t.Errorf("null: %v, %v", v, err)
			}
		})
	}
}

func TestFromJSONForms(t *testing.T) {
	for _, tc := range []struct{ typ, text, want string }{
		{"int", "170141183460469231731687303715884105727", "170141183460469231731687303715884105727"},
		{"int", "170141183460469231731687303715884105728", "beyond 128 bits"},
		{"int", "1.0", "is not an int"},
		{"int", `"1"`, "is not an int"},
		{"int", "1e3", "is not an int"},
		{"float", "3", "3"},
		{"float", `"NaN"`, "NaN"},
		{"float", `"-Inf"`, "-Inf"},
		{"float", `"1"`, "is not a float"},
		{"decimal", "1.50", "1.5"},
		{"decimal", `"1.50"`, "1.5"},
		{"decimal", `"x"`, "is not a decimal"},
		{"bool", "1", "is not a bool"},
		{"string", "1", "is not a string"},
		{"bytes", `"%"`, "is not a bytes"},
		{"timestamp", `"2026-01-31"`, "is not a timestamp"},
		{"timestamp", `"2026-01-31T01:00:00+01:00"`, "2026-01-31T00:00:00Z"},
		{"timestamp", `"3000-01-01T00:00:00Z"`, "out of the range"},
		{"list", `[1, "a", [true], null]`, `[1,"a",[true],null]`},
		{"list", `{}`, "is not a list"},
		{"any", "12", "12"},
		{"any", "1.5", "1.5"},
		{"any", `"a"`, "a"},
		{"any", "true", "true"},
		{"any", `{"a":1}`, `{"a":1}`},
		{"any", "{", "is not JSON"},
		{"opaque", "1", "can't be read from JSON"},
	} {
		v, err := FromJSON(tc.typ, json.RawMessage(tc.text))
		got := string(value.AppendText(nil, v))
		if err != nil {
			got = err.Error()
		}
		if got != tc.want && (err == nil || !strings.Contains(got, tc.want)) {
			t.Errorf("%s %s: %s, want %s", tc.typ, tc.text, got, tc.want)
		}
	}
	if v, err := FromJSON("float", json.RawMessage("3")); err != nil || v.Kind() != value.Float || v.Float() != 3 || math.Signbit(v.Float()) {
		t.Errorf("%v, %v", v, err)
	}
}

// TestEncodeRows: rows in columns come back as they were given.
func TestEncodeRows(t *testing.T) {
	s := state.Schema{Name: "rows", Kind: "rows", Key: []state.Column{{Name: "k", Type: "string"}, {Name: "n", Type: "int"}}, Values: []state.Column{{Name: "v", Type: "decimal"}, {Name: "w", Type: "any"}}}
	e, err := NewEncoder(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	row := func(text string) map[string]json.RawMessage {
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	key, val, err := e.Row(row(`{"k":"a","n":null,"v":"1.50","w":[1]}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(nil, s, key, val)
	if err != nil || len(got) != 4 || got[0].Str() != "a" || !got[1].IsNull() || got[2].String() != "1.5" || got[3].String() != "[1]" {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		`{"k":"a","n":1,"v":1}`:                "column w is missing",
		`{"k":"a","v":1,"w":1}`:                "column n is missing",
		`{"k":1,"n":1,"v":1,"w":1}`:            "column k: 1 is not a string",
		`{"k":"a","n":1,"v":1,"w":1,"x":null}`: `no column "x"`,
	} {
		if _, _, err := e.Row(row(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := NewEncoder(state.Schema{Name: "o", Kind: "opaque"}, nil); err == nil || !strings.Contains(err.Error(), "a user's own encoding") {
		t.Errorf("opaque: %v", err)
	}
}
