package query

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// Encoder makes rows of a state of what they show: the inverse of Decode.
type Encoder struct {
	schema state.Schema
	zero   []byte // the cells of a value without records
	shown  []agg.Shown
	wanted map[string]bool
}

// NewEncoder returns the encoder of a state; zero returns the cells of a value without records, for a state of aggregates. The
// error says why rows of this state can't be made.
func NewEncoder(s state.Schema, zero func() []byte) (*Encoder, error) {
	e := &Encoder{schema: s, wanted: map[string]bool{}}
	switch {
	case s.Kind == "opaque":
		return nil, fmt.Errorf("state %s holds values of a user's own encoding", s.Name)
	case s.Window != nil || len(s.Key) > 1 && s.Key[0].Name == "window_start" && s.Key[1].Name == "window_end":
		return nil, fmt.Errorf("state %s has windows: which of them have closed, and were sent on, doesn't show", s.Name)
	case s.Kind == "aggregate":
		e.zero = zero()
		if err := agg.Restatable(e.zero, s.Values); err != nil {
			return nil, fmt.Errorf("state %s: %w", s.Name, err)
		}
		e.shown = make([]agg.Shown, len(s.Values))
	}
	for _, c := range Columns(s) {
		e.wanted[c.Name] = true
	}
	return e, nil
}

// Values names the columns that aren't the key's.
func (e *Encoder) Values() []state.Column { return e.schema.Values }

// Row encodes a row that is given by its columns, as JSON shows them. All columns must be there, and no other.
func (e *Encoder) Row(fields map[string]json.RawMessage) (key, val []byte, err error) {
	for name := range fields { // order: any that is wrong will do; there is one in most cases
		if !e.wanted[name] {
			return nil, nil, fmt.Errorf("state %s has no column %q", e.schema.Name, name)
		}
	}
	for _, c := range e.schema.Key {
		v, err := e.field(fields, c)
		if err != nil {
			return nil, nil, err
		}
		key = value.AppendKey(key, v)
	}
	if e.schema.Kind == "rows" {
		for _, c := range e.schema.Values {
			v, err := e.field(fields, c)
			if err != nil {
				return nil, nil, err
			}
			val = value.AppendBinary(val, v)
		}
		return key, val, nil
	}
	for i, c := range e.schema.Values {
		if e.shown[i], err = e.aggregate(fields, c); err != nil {
			return nil, nil, err
		}
	}
	val, err = agg.Restate(nil, e.zero, e.schema.Values, e.shown)
	return key, val, err
}

func (e *Encoder) field(fields map[string]json.RawMessage, c state.Column) (value.Value, error) {
	raw, ok := fields[c.Name]
	if !ok {
		return value.Value{}, fmt.Errorf("column %s is missing", c.Name)
	}
	v, err := FromJSON(c.Type, raw)
	if err != nil {
		return v, fmt.Errorf("column %s: %w", c.Name, err)
	}
	return v, nil
}

func (e *Encoder) aggregate(fields map[string]json.RawMessage, c state.Column) (agg.Shown, error) {
	if c.Agg == "avg" {
		var parts struct {
			Sum   json.RawMessage `json:"sum"`
			Count *int64          `json:"count"`
		}
		if json.Unmarshal(fields[c.Name], &parts) == nil && parts.Sum != nil && parts.Count != nil {
			v, err := FromJSON("any", parts.Sum)
			if err == nil && v.Kind() == value.String { // decimals are strings
				v, err = FromJSON("decimal", parts.Sum)
			}
			if err != nil {
				return agg.Shown{}, fmt.Errorf("column %s: %w", c.Name, err)
			}
			return agg.Shown{Parts: &agg.Parts{Sum: v, Count: *parts.Count}}, nil
		}
		c.Type = "any"
	}
	v, err := e.field(fields, c)
	return agg.Shown{Value: v}, err
}

// FromJSON reads a value of a column's type from the JSON that queries show it as; where JSON has several ways to write one (a
// decimal as a string or a number, a float without a fraction), all will do.
func FromJSON(typ string, raw json.RawMessage) (value.Value, error) {
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		return value.NullValue(), nil
	}
	wrong := func() (value.Value, error) {
		const most = 60
		text := string(raw)
		if len(text) > most {
			text = text[:most] + "…"
		}
		article := "a"
		if typ == "int" {
			article = "an"
		}
		return value.Value{}, fmt.Errorf("%s is not %s %s", text, article, typ)
	}
	var text string
	quoted := json.Unmarshal(raw, &text) == nil
	switch typ {
	case "string":
		if !quoted {
			return wrong()
		}
		return value.StringOf(text), nil
	case "int":
		b, ok := new(big.Int).SetString(string(raw), 10)
		if !ok || quoted {
			return wrong()
		}
		return wideInt(b)
	case "float":
		switch text {
		case "NaN":
			return value.FloatOf(math.NaN()), nil
		case "+Inf":
			return value.FloatOf(math.Inf(1)), nil
		case "-Inf":
			return value.FloatOf(math.Inf(-1)), nil
		}
		var f float64
		if json.Unmarshal(raw, &f) != nil {
			return wrong()
		}
		return value.FloatOf(f), nil
	case "decimal":
		if !quoted {
			text = string(raw)
		}
		d, err := decimal.Parse(text)
		if err != nil {
			return wrong()
		}
		return value.DecimalOf(d), nil
	case "bool":
		var b bool
		if json.Unmarshal(raw, &b) != nil {
			return wrong()
		}
		return value.BoolOf(b), nil
	case "timestamp":
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil || !quoted {
			return wrong()
		}
		if t.Year() < 1678 || t.Year() > 2261 { // what nanoseconds in 64 bits reach
			return value.Value{}, fmt.Errorf("%s is out of the range of timestamps", raw)
		}
		return value.TimeOf(t.UnixNano()), nil
	case "bytes":
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil || !quoted {
			return wrong()
		}
		return value.BytesOf(b), nil
	case "list":
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return wrong()
		}
		vs := make([]value.Value, len(list))
		for i, e := range list {
			var err error
			if vs[i], err = FromJSON("any", e); err != nil {
				return value.Value{}, err
			}
		}
		return value.ListOf(vs), nil
	case "any":
		return anyJSON(raw, text, quoted)
	}
	return value.Value{}, fmt.Errorf("a %s can't be read from JSON", typ)
}

func wideInt(b *big.Int) (value.Value, error) {
	if b.BitLen() > 127 {
		return value.Value{}, errors.New("an integer beyond 128 bits")
	}
	lo := new(big.Int).And(b, new(big.Int).SetUint64(math.MaxUint64))
	return value.WideIntOf(new(big.Int).Rsh(b, 64).Int64(), lo.Uint64()), nil
}

// anyJSON reads a value whose type only the JSON says: a number without fraction and exponent is an integer.
func anyJSON(raw json.RawMessage, text string, quoted bool) (value.Value, error) {
	switch {
	case quoted:
		return value.StringOf(text), nil
	case string(raw) == "true", string(raw) == "false":
		return FromJSON("bool", raw)
	case len(raw) > 0 && raw[0] == '[':
		return FromJSON("list", raw)
	case len(raw) > 0 && raw[0] == '{':
		if !json.Valid(raw) {
			return value.Value{}, fmt.Errorf("%s is not JSON", raw)
		}
		return value.JSONOf(string(raw)), nil
	case strings.ContainsAny(string(raw), ".eE"):
		return FromJSON("float", raw)
	}
	return FromJSON("int", raw)
}
