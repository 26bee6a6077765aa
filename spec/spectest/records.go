package spectest

import (
	"encoding/csv"
	"slices"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/spec"
)

// The properties that a record may be given beside its value, under the names by which steps see them.
const (
	keyProperty       = "_key"
	timestampProperty = "_timestamp"
	valueProperty     = "_value"
)

var properties = []string{keyProperty, timestampProperty, valueProperty}

// writer turns what a test says into the records of one source, or of one static table.
type writer struct {
	test  *spec.Test
	what  string
	shape spec.Shape
}

// see takes note of the columns that rows have, where no header line tells them.
func (w *writer) see(rows []*spec.Literal) {
	if w.shape.Decode != "csv" || w.shape.Exact {
		return
	}
	for _, l := range rows {
		if v := l.Get(valueProperty); v != nil {
			l = v
		}
		for _, k := range l.Keys {
			if !slices.Contains(w.shape.Columns, k) && !slices.Contains(properties, k) {
				w.shape.Columns = append(w.shape.Columns, k)
			}
		}
	}
}

// columns are those of a delimited source; nil elsewhere.
func (w *writer) columns() []string {
	if w.shape.Decode != "csv" {
		return nil
	}
	return w.shape.Columns
}

// record writes one record. Fields of a mapping that begin with _ are the record's own properties; the others are its value, unless that
// is given by _value.
func (w *writer) record(l *spec.Literal) (r batch.Record, err error) {
	if !slices.ContainsFunc(l.Keys, func(k string) bool { return slices.Contains(properties, k) }) {
		r.Value, err = w.value(l)
		return r, err
	}
	rest := &spec.Literal{Kind: spec.LiteralMap, Fields: map[string]*spec.Literal{}}
	for _, k := range l.Keys {
		v := l.Fields[k]
		switch k {
		case keyProperty:
			if r.Key, err = w.text(v, "a key"); err != nil {
				return r, err
			}
		case timestampProperty:
			at, err := time.Parse(time.RFC3339Nano, v.Text)
			if err != nil || v.Kind != spec.LiteralText {
				return r, w.test.ProblemAt(v, "write it as 2026-01-01T00:00:00Z", "%s: the timestamp %s is no time", w.what, v)
			}
			r.Timestamp = at.UnixMilli()
		case valueProperty:
		default:
			rest.Keys, rest.Fields[k] = append(rest.Keys, k), v
		}
	}
	given := l.Get(valueProperty)
	switch {
	case given != nil && len(rest.Keys) > 0:
		return r, w.test.ProblemAt(rest.Fields[rest.Keys[0]], "", "%s: a record with _value has no other fields but _key and _timestamp", w.what)
	case given != nil:
		r.Value, err = w.value(given)
	case len(rest.Keys) > 0:
		r.Value, err = w.value(rest)
	}
	return r, err
}

// text is what a scalar says; null is nil.
func (w *writer) text(l *spec.Literal, what string) ([]byte, error) {
	switch l.Kind {
	case spec.LiteralNull:
		return nil, nil
	case spec.LiteralText, spec.LiteralNumber, spec.LiteralBool:
		return []byte(l.Text), nil
	default:
		return nil, w.test.ProblemAt(l, "", "%s: %s is a text, not %s", w.what, what, l.Kind)
	}
}

// value writes a record's value as the source decodes it. A text is the value as it is.
func (w *writer) value(l *spec.Literal) ([]byte, error) {
	switch {
	case l.Kind == spec.LiteralNull:
		return nil, nil
	case l.Kind == spec.LiteralText:
		return []byte(l.Text), nil
	case w.shape.Decode == "json":
		return l.AppendJSON(nil), nil
	case w.shape.Decode == "csv":
		return w.csv(l)
	}
	return w.text(l, "a record of decode: "+w.shape.Decode)
}

// csv writes a line of the columns in a mapping; those that it lacks are null.
func (w *writer) csv(l *spec.Literal) ([]byte, error) {
	if l.Kind != spec.LiteralMap {
		return nil, w.test.ProblemAt(l, "", "%s: a record of csv is a line, or fields with values, not %s", w.what, l.Kind)
	}
	null := ""
	if len(w.shape.Nulls) > 0 {
		null = w.shape.Nulls[0]
	}
	cells := make([]string, len(w.shape.Columns))
	for i := range cells {
		cells[i] = null
	}
	for _, k := range l.Keys {
		i := slices.Index(w.shape.Columns, k)
		if i < 0 {
			return nil, w.test.ProblemAt(l.Fields[k], "its columns are "+strings.Join(w.shape.Columns, ", "), "%s has no column %s", w.what, k)
		}
		if l.Fields[k].Kind == spec.LiteralNull {
			continue
		}
		cell, err := w.text(l.Fields[k], "column "+k)
		if err != nil {
			return nil, err
		}
		cells[i] = string(cell)
	}
	var b strings.Builder
	out := csv.NewWriter(&b)
	if err := out.Write(cells); err != nil {
		return nil, w.test.ProblemAt(l, "", "%s: %v", w.what, err)
	}
	out.Flush()
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}
