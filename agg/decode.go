package agg

import (
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// Decoder returns a function that reads the cells of a state's value, as its columns describe them, into a V: a
// struct of accumulators as given to Fields (their names and kinds must be the columns'); a struct of plain fields named
// as the columns, in any order; or, for one column, a plain type. Plain fields take the results, and one that
// isn't a pointer or of the form {V X; Valid bool} can't take null. The function may be used by many goroutines.
func Decoder[V any](cols []state.Column) (func(cells []byte, dst *V) error, error) {
	t := reflect.TypeFor[V]()
	if acc, ok := any(new(V)).(accumulator); ok {
		if len(cols) != 1 {
			return nil, fmt.Errorf("%s is one aggregate; there are %d columns", t, len(cols))
		}
		found, err := describe(nil, cols[0].Name, 0, acc)
		if err != nil {
			return nil, err
		}
		return accumulatorDecoder[V](found, cols)
	}
	if found, err := accumulatorsOf(t); err == nil {
		return accumulatorDecoder[V](found, cols)
	}
	return plainDecoder[V](cols)
}

func accumulatorDecoder[V any](found []cellAt, cols []state.Column) (func([]byte, *V) error, error) {
	if len(found) != len(cols) {
		return nil, fmt.Errorf("%s has %d aggregates; there are %d columns", reflect.TypeFor[V](), len(found), len(cols))
	}
	names := make([]string, len(found))
	for i, c := range found {
		names[i] = c.column.Name
		want := cols[i]
		if want.Agg == "count_if" { // its cell is a count
			want.Agg = "count"
		}
		if base, _, ok := strings.Cut(want.Agg, "("); ok && c.param == "" && c.column.Agg == base {
			want.Agg = base // a plain accumulator reads what any parameter made
		}
		if c.column != want {
			return nil, fmt.Errorf("%s has %s where column %d is %s", reflect.TypeFor[V](), describeColumn(c.column), i+1, describeColumn(cols[i]))
		}
	}
	return func(cells []byte, dst *V) error {
		var zero V
		*dst = zero
		return loadCells(found, names, cells, unsafe.Pointer(dst))
	}, nil
}

func describeColumn(c state.Column) string { return fmt.Sprintf("%s %s(%s)", c.Name, c.Agg, c.Type) }

func loadCells(found []cellAt, names []string, cells []byte, base unsafe.Pointer) error {
	for i := range found {
		rest, err := found[i].in(base).load(cells)
		if err != nil {
			return damaged(names, i, err)
		}
		cells = rest
	}
	if len(cells) > 0 {
		return damaged(names, -1, fmt.Errorf("%d bytes behind the last aggregate", len(cells)))
	}
	return nil
}

func plainDecoder[V any](cols []state.Column) (func([]byte, *V) error, error) {
	t := reflect.TypeFor[V]()
	row, err := value.RowOf[V]()
	if err != nil {
		return nil, err
	}
	fields := row.Columns()
	if len(fields) != len(cols) {
		return nil, fmt.Errorf("%s has %d fields; there are %d columns", t, len(fields), len(cols))
	}
	byName := map[string]int{}
	for i, c := range cols {
		byName[c.Name] = i
	}
	from := make([]int, len(fields)) // the column of each field
	for i, f := range fields {
		at, ok := byName[f.Name]
		switch {
		case ok:
			from[i] = at
		case len(fields) > 1:
			return nil, fmt.Errorf("%s has a field %s; there is no such column", t, f.Name)
		}
		if a, b := f.Type, cols[from[i]].Type; a != b && a != "any" && b != "any" {
			return nil, fmt.Errorf("column %s is of type %s; %s wants %s", cols[from[i]].Name, b, t, a)
		}
	}
	return func(cells []byte, dst *V) error {
		results, err := Results(make([]value.Value, 0, len(cols)), cells)
		if err != nil {
			return err
		}
		if len(results) != len(cols) {
			return damaged(nil, -1, fmt.Errorf("%d results for %d columns", len(results), len(cols)))
		}
		var buf []byte
		for i, at := range from {
			v := results[at]
			if fields[i].Type == "any" && !v.IsNull() && !v.IsJSON() {
				v = value.JSONOf(string(value.AppendJSON(nil, v)))
			}
			buf = value.AppendBinary(buf, v)
		}
		var zero V
		*dst = zero
		return row.DecodeInto(buf, dst)
	}, nil
}

// DecodeInto reads cells into dst, a struct of accumulators of the kinds and in the order that the cells were written
// with.
func DecodeInto[A any](cells []byte, dst *A) error {
	found, err := accumulatorsOf(reflect.TypeFor[A]())
	if err != nil {
		return err
	}
	names := make([]string, len(found))
	for i, c := range found {
		names[i] = c.column.Name
	}
	var zero A
	*dst = zero
	return loadCells(found, names, cells, unsafe.Pointer(dst))
}

// Scalar returns the result of a single cell. Null is an error unless V is a pointer or of the form {V X; Valid bool}.
func Scalar[V any](cells []byte) (v V, err error) {
	results, err := Results(nil, cells)
	if err != nil {
		return v, err
	}
	if len(results) != 1 {
		return v, fmt.Errorf("%d results where one is wanted", len(results))
	}
	row, err := codecOf[V]()
	if err != nil {
		return v, err
	}
	r := results[0]
	if row.Columns()[0].Type == "any" && !r.IsNull() && !r.IsJSON() {
		r = value.JSONOf(string(value.AppendJSON(nil, r)))
	}
	err = row.DecodeInto(value.AppendBinary(nil, r), &v)
	return v, err
}
