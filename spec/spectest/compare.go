package spectest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/sink/deadletter"
	"github.com/tridentd/tridentd/spec"
	"github.com/tridentd/tridentd/state"
)

// compare holds what batch txid left against what is expected of it, and returns what differs.
func (r *run) compare(ctx context.Context, txid batch.Txid, snap *pebblestate.Snapshot) (failures []string, err error) {
	want := &r.test.Batches[txid-1].Expect
	for _, name := range want.Names {
		diff, err := r.compareState(ctx, txid, snap, name, want.States[name])
		if err != nil {
			return nil, err
		}
		if diff != "" {
			failures = append(failures, diff)
		}
	}
	for _, name := range want.Outputs {
		if diff := r.compareSink(txid, name, want.Sinks[name]); diff != "" {
			failures = append(failures, diff)
		}
	}
	diff, err := r.compareRejected(ctx, txid, snap, want.Rejected)
	if diff != "" {
		failures = append(failures, diff)
	}
	return failures, err
}

func (r *run) compareState(ctx context.Context, txid batch.Txid, snap *pebblestate.Snapshot, name string, want *spec.Literal) (string, error) {
	schema, err := query.Schema(snap, name)
	if err != nil {
		return "", err
	}
	cols := query.Columns(schema)
	if err := r.checkRows(want, "state "+name, cols, schema.Key); err != nil {
		return "", err
	}
	d := difference{cols: cols}
	found := make([]bool, len(want.List))
	err = query.Rows(ctx, snap, schema, nil, func(row []value.Value) error {
		i := slices.IndexFunc(want.List, func(l *spec.Literal) bool { return equalAll(row[:len(schema.Key)], cols, l) })
		if i < 0 {
			d.got(row)
			return nil
		}
		found[i] = true
		if !equalAll(row, cols, want.List[i]) {
			d.want(want.List[i])
			d.got(row)
		}
		return nil
	})
	for i, l := range want.List {
		if !found[i] {
			d.want(l)
		}
	}
	return d.text(fmt.Sprintf("%s: after batch %d state %s isn't as expected", r.test.PlaceOf(want), txid, name)), err
}

// checkRows reports expected rows that can't be compared.
func (r *run) checkRows(want *spec.Literal, what string, cols, key []state.Column) error {
	if err := r.checkColumns(want, what, cols); err != nil {
		return err
	}
	for i, l := range want.List {
		for _, c := range key {
			if l.Fields[c.Name] == nil {
				return r.test.ProblemAt(l, "", "a row of %s needs the key column %s", what, c.Name)
			}
		}
		for _, other := range want.List[:i] {
			if len(key) > 0 && !slices.ContainsFunc(key, func(c state.Column) bool { return l.Fields[c.Name].String() != other.Fields[c.Name].String() }) {
				return r.test.ProblemAt(l, "", "two rows of %s have the same key", what)
			}
		}
	}
	if len(key) == 0 && len(want.List) > 1 && what != rejectedRows {
		return r.test.ProblemAt(want.List[1], "", "%s has no key, and so one row at most", what)
	}
	return nil
}

// checkColumns reports fields of expected rows that aren't there.
func (r *run) checkColumns(want *spec.Literal, what string, cols []state.Column) error {
	for _, l := range want.List {
		for _, k := range l.Keys {
			if !slices.ContainsFunc(cols, func(c state.Column) bool { return c.Name == k }) {
				return r.test.ProblemAt(l.Fields[k], "its columns are "+names(cols), "%s has no column %s", what, k)
			}
		}
	}
	return nil
}

func names(cols []state.Column) string {
	var all []string
	for _, c := range cols {
		all = append(all, c.Name)
	}
	return strings.Join(all, ", ")
}

// rejectedRows is how messages speak of the rows that a batch turned away.
const rejectedRows = "rejected"

// rejectedColumns are what a test may ask of a row that was turned away.
var rejectedColumns = []state.Column{
	{Name: "source", Type: "string"},
	{Name: "partition", Type: "int"},
	{Name: "offset", Type: "int"},
	{Name: "kind", Type: "string"},
	{Name: "step", Type: "string"},
	{Name: "cause", Type: "string"},
	{Name: "key", Type: "string"},
	{Name: "value", Type: "string"},
	{Name: "dead", Type: "bool"},
}

// compareRejected compares the rows one by one, in the order in which they are kept.
func (r *run) compareRejected(ctx context.Context, txid batch.Txid, snap *pebblestate.Snapshot, want *spec.Literal) (string, error) {
	schema, err := query.Schema(snap, exec.RejectedState)
	if err != nil {
		return "", err
	}
	var have [][]value.Value
	err = query.Rows(ctx, snap, schema, nil, func(row []value.Value) error {
		// source, topic, partition, offset, n; kind, step, cause, txid, timestamp, key, value
		if row[8].Int() != int64(txid) {
			return nil
		}
		var copied []value.Value
		for _, i := range []int{0, 2, 3, 5, 6, 7, 10, 11} {
			v := row[i].Clone()
			if v.Kind() == value.Bytes {
				v = value.StringOf(string(v.Bytes()))
			}
			copied = append(copied, v)
		}
		have = append(have, append(copied, value.BoolOf(false)))
		return nil
	})
	if err != nil {
		return "", err
	}
	letters, err := r.letters(txid)
	if err != nil {
		return "", err
	}
	have = append(have, letters...)
	slices.SortStableFunc(have, func(a, b []value.Value) int { // by source, partition, offset
		return cmp.Or(strings.Compare(a[0].Str(), b[0].Str()), cmp.Compare(a[1].Int(), b[1].Int()), cmp.Compare(a[2].Int(), b[2].Int()))
	})
	place := r.test.Place
	var expected []*spec.Literal
	if want != nil {
		place, expected = r.test.PlaceOf(want), want.List
		if err := r.checkRows(want, rejectedRows, rejectedColumns, nil); err != nil {
			return "", err
		}
	}
	d := difference{cols: rejectedColumns}
	for i := range max(len(have), len(expected)) {
		same := i < len(have) && i < len(expected) && equalAll(have[i], rejectedColumns, expected[i])
		if !same && i < len(expected) {
			d.want(expected[i])
		}
		if !same && i < len(have) {
			d.got(have[i])
		}
	}
	return d.text(fmt.Sprintf("%s: batch %d didn't turn away what was expected", place, txid)), nil
}

// letters are the rows that became dead letters in a batch, with rejectedColumns.
func (r *run) letters(txid batch.Txid) (rows [][]value.Value, err error) {
	for _, rec := range r.outputs[plan.DeadLettersSink][txid] {
		l, err := deadletter.Read(rec.Key, rec.Value, rec.Headers)
		if err != nil {
			return nil, fmt.Errorf("sink %s, txid %d: %w", plan.DeadLettersSink, txid, err)
		}
		rows = append(rows, []value.Value{
			value.StringOf(l.Partition.Source), value.IntOf(int64(l.Partition.Number)), value.IntOf(l.Offset), value.StringOf(l.Kind), value.StringOf(l.Step),
			value.StringOf(l.Cause), textOrNull(l.Key), textOrNull(l.Value), value.BoolOf(true),
		})
	}
	return rows, nil
}

func textOrNull(b []byte) value.Value {
	if b == nil {
		return value.NullValue()
	}
	return value.StringOf(string(b))
}

// equalAll tells whether a row has the values that are expected of its columns.
func equalAll(row []value.Value, cols []state.Column, want *spec.Literal) bool {
	for i, v := range row {
		l := want.Fields[cols[i].Name]
		if l != nil && !equal(v, l, cols[i].Name) {
			return false
		}
	}
	return true
}

// equal tells whether a value is what a test says.
func equal(v value.Value, l *spec.Literal, column string) bool {
	switch {
	case v.IsNull() || l.Kind == spec.LiteralNull:
		return v.IsNull() && l.Kind == spec.LiteralNull
	case v.Kind() == value.List || v.IsJSON() || l.Kind == spec.LiteralList || l.Kind == spec.LiteralMap:
		return equalJSON(value.AppendJSON(nil, v), l.AppendJSON(nil))
	}
	text := string(value.AppendText(nil, v))
	switch v.Kind() {
	case value.Float:
		f, err := strconv.ParseFloat(l.Text, 64)
		return err == nil && (f == v.Float() || f != f && v.Float() != v.Float())
	case value.Int, value.Decimal:
		return equalNumbers(text, l.Text)
	case value.Time:
		at, err := time.Parse(time.RFC3339Nano, l.Text)
		return err == nil && at.UnixNano() == v.Nanos()
	case value.Bytes:
		return text == l.Text || string(v.Bytes()) == l.Text
	}
	if column == "step" || column == "cause" {
		return strings.Contains(text, l.Text)
	}
	return text == l.Text
}

func equalNumbers(a, b string) bool {
	x, err := decimal.Parse(a)
	if err != nil {
		return false
	}
	y, err := decimal.Parse(b)
	return err == nil && x.Cmp(y) == 0
}

// equalJSON tells whether two documents say the same: numbers by their values, fields in any order.
func equalJSON(a, b []byte) bool {
	var docs [2]any
	for i, text := range [][]byte{a, b} {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(&docs[i]); err != nil {
			return false
		}
		docs[i] = canonical(docs[i])
	}
	return reflect.DeepEqual(docs[0], docs[1])
}

// canonical writes numbers in one way.
func canonical(doc any) any {
	switch d := doc.(type) {
	case json.Number:
		if x, err := decimal.Parse(d.String()); err == nil {
			return x.String()
		}
	case []any:
		for i := range d {
			d[i] = canonical(d[i])
		}
	case map[string]any:
		for k := range d { // order: each field by itself
			d[k] = canonical(d[k])
		}
	}
	return doc
}
