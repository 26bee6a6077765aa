package spectest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/spec"
	"github.com/tridentd/tridentd/state"
)

// compareSink compares what a batch has for a sink one by one, in order.
func (r *run) compareSink(txid batch.Txid, name string, want *spec.Literal) string {
	have := slices.Clone(r.outputs[name][txid])
	for i := range have {
		if have[i].Value == nil {
			continue
		}
		var err error
		if have[i].Value, err = r.p.SinkValue(name, have[i].Value); err != nil {
			return fmt.Sprintf("%s: what batch %d has for sink %s can't be read: %v", r.test.PlaceOf(want), txid, name, err)
		}
	}
	var cols []state.Column
	column := func(name string) {
		if !slices.ContainsFunc(cols, func(c state.Column) bool { return c.Name == name }) {
			cols = append(cols, state.Column{Name: name})
		}
	}
	column(keyProperty)
	for i := range have {
		for _, f := range members(have[i].Value) {
			column(f.name)
		}
	}
	for _, l := range want.List {
		for _, name := range l.Keys {
			column(name)
		}
	}
	d := difference{cols: cols}
	for i := range max(len(have), len(want.List)) {
		var row []value.Value
		if i < len(have) {
			row = rowOf(&have[i], cols)
		}
		same := i < len(have) && i < len(want.List) && equalAll(row, cols, want.List[i])
		if !same && i < len(want.List) {
			d.want(want.List[i])
		}
		if !same && i < len(have) {
			d.got(row)
		}
	}
	return d.text(fmt.Sprintf("%s: what batch %d has for sink %s isn't as expected", r.test.PlaceOf(want), txid, name))
}

// rowOf is a record for a sink as a row: its key, then the fields of its value; null where there is none.
func rowOf(rec *sink.Record, cols []state.Column) []value.Value {
	row := make([]value.Value, len(cols))
	fields := members(rec.Value)
	for i, c := range cols {
		if c.Name == keyProperty {
			if rec.Key != nil {
				row[i] = value.StringOf(string(rec.Key))
			}
			continue
		}
		if k := slices.IndexFunc(fields, func(f member) bool { return f.name == c.Name }); k >= 0 {
			row[i] = fields[k].value
		}
	}
	return row
}

// member is a field of a record's value.
type member struct {
	name  string
	value value.Value
}

// members are the fields of a value, in order; what is no object is the field _value.
func members(doc []byte) []member {
	if doc == nil {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return []member{{valueProperty, scalarOf(doc)}}
	}
	var all []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			break
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			break
		}
		all = append(all, member{fmt.Sprint(name), scalarOf(raw)})
	}
	return all
}

// scalarOf is a JSON value: a text, null, or what else it is as JSON. What is no JSON is a text.
func scalarOf(doc []byte) value.Value {
	var text *string
	switch err := json.Unmarshal(doc, &text); {
	case err == nil && text == nil:
		return value.NullValue()
	case err == nil:
		return value.StringOf(*text)
	case json.Valid(doc):
		return value.JSONOf(string(doc))
	}
	return value.StringOf(string(doc))
}
