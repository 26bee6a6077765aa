package query

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// Prefixes encodes the leading columns of a key, given as text, in the order of keys. The word null stands for a null in every
// column but a string's. Where only the values say of which type they are, a text stands for each value that is shown so, and
// there are as many prefixes; none is the beginning of another.
func Prefixes(s state.Schema, keys []string) ([][]byte, error) {
	if len(keys) > len(s.Key) {
		return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "query",
			fmt.Errorf("%d key values for state %s, whose key has %d columns", len(keys), s.Name, len(s.Key)), "")
	}
	all := [][]byte{nil}
	for i, text := range keys {
		values, err := parse(s.Key[i].Type, text)
		if err != nil {
			return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "query",
				fmt.Errorf("key column %s of state %s: %w", s.Key[i].Name, s.Name, err), "")
		}
		longer := make([][]byte, 0, len(all)*len(values))
		for _, p := range all {
			for _, v := range values {
				longer = append(longer, value.AppendKey(slices.Clip(p), v))
			}
		}
		all = longer
	}
	slices.SortFunc(all, bytes.Compare)
	return slices.CompactFunc(all, bytes.Equal), nil
}

// parse returns what a text stands for in a column of a type.
func parse(typ, text string) ([]value.Value, error) {
	if typ == "any" {
		return shownAs(text), nil
	}
	v, err := parseAs(typ, text)
	return []value.Value{v}, err
}

func parseAs(typ, text string) (value.Value, error) {
	if typ != "string" && text == "null" {
		return value.NullValue(), nil
	}
	switch typ {
	case "string":
		return value.StringOf(text), nil
	case "int":
		v, err := FromJSON(typ, json.RawMessage(text))
		if err != nil {
			return value.Value{}, fmt.Errorf("%q is not an integer", text)
		}
		return v, nil
	case "float":
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return value.Value{}, fmt.Errorf("%q is not a number", text)
		}
		return value.FloatOf(f), nil
	case "decimal":
		d, err := decimal.Parse(text)
		if err != nil {
			return value.Value{}, err
		}
		return value.DecimalOf(d), nil
	case "bool":
		v, err := strconv.ParseBool(text)
		if err != nil {
			return value.Value{}, fmt.Errorf("%q is neither true nor false", text)
		}
		return value.BoolOf(v), nil
	case "timestamp":
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return value.Value{}, fmt.Errorf("%q is not a time like 2006-01-02T15:04:05Z", text)
		}
		return value.TimeOf(t.UnixNano()), nil
	case "bytes":
		v, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return value.Value{}, fmt.Errorf("%q is not base64", text)
		}
		return value.BytesOf(v), nil
	}
	return value.Value{}, fmt.Errorf("a %s can't be looked up by text", typ)
}

// shownAs returns the values of all types that are shown as text, as a table shows them or as JSON does. Quotes are JSON's: what stands
// between them is a string, and nothing else.
func shownAs(text string) []value.Value {
	raw := json.RawMessage(text)
	if json.Valid(raw) {
		if raw = bytes.TrimSpace(raw); raw[0] == '"' {
			if v, err := FromJSON("string", raw); err == nil {
				return []value.Value{v}
			}
		}
	}
	all := []value.Value{value.StringOf(text)}
	if text == "true" || text == "false" {
		all = append(all, value.BoolOf(text == "true"))
	}
	for _, typ := range []string{"int", "float", "decimal", "timestamp", "bytes"} {
		if v, err := parseAs(typ, text); err == nil {
			all = append(all, v)
		}
	}
	if len(raw) > 0 && json.Valid(raw) {
		switch raw[0] {
		case '[':
			if v, err := FromJSON("list", raw); err == nil {
				all = append(all, v)
			}
			all = append(all, value.JSONOf(text))
		case '{':
			all = append(all, value.JSONOf(text))
		}
	}
	return all
}
