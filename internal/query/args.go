package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// Arg is an argument of a query as text.
type Arg struct{ Name, Text string }

// ParseArgs takes words as arguments of a query that has params: NAME=VALUE where NAME is a parameter's, and otherwise the value of the
// first parameter that no word before has given one.
func ParseArgs(params []state.Column, words []string) ([]Arg, error) {
	var args []Arg
	given := func(name string) bool { return slices.ContainsFunc(args, func(a Arg) bool { return a.Name == name }) }
	for _, w := range words {
		if name, text, ok := strings.Cut(w, "="); ok && slices.ContainsFunc(params, func(c state.Column) bool { return c.Name == name }) {
			args = append(args, Arg{name, text})
			continue
		}
		at := slices.IndexFunc(params, func(c state.Column) bool { return !given(c.Name) })
		if at < 0 {
			return nil, wrongArgs(params, fmt.Errorf("%q: %d arguments have values already", w, len(params)))
		}
		args = append(args, Arg{params[at].Name, w})
	}
	return args, nil
}

// ArgsJSON makes a JSON object of arguments as a query takes them. Values are written as keys are: see Prefixes. Those that aren't
// given are left out.
func ArgsJSON(params []state.Column, args []Arg) ([]byte, error) {
	b := []byte{'{'}
	for i, a := range args {
		at := slices.IndexFunc(params, func(c state.Column) bool { return c.Name == a.Name })
		switch {
		case at < 0:
			err := fmt.Errorf("there is no argument %s", a.Name)
			if near, ok := names.Nearest(a.Name, columnNames(params)); ok {
				err = fmt.Errorf("%w; did you mean %s?", err, near)
			}
			return nil, wrongArgs(params, err)
		case slices.ContainsFunc(args[:i], func(o Arg) bool { return o.Name == a.Name }):
			return nil, wrongArgs(params, fmt.Errorf("%s is given twice", a.Name))
		}
		v, err := argJSON(params[at].Type, a.Text)
		if err != nil {
			return nil, wrongArgs(params, fmt.Errorf("%s: %w", a.Name, err))
		}
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(a.Name)
		if err != nil {
			return nil, wrongArgs(params, err)
		}
		b = append(append(append(b, name...), ':'), v...)
	}
	return append(b, '}'), nil
}

// argJSON writes one argument as JSON. What is no column of its own is given as JSON text.
func argJSON(typ, text string) ([]byte, error) {
	if typ == "any" {
		if !json.Valid([]byte(text)) {
			return nil, errors.New("it isn't JSON")
		}
		var b bytes.Buffer
		err := json.Compact(&b, []byte(text))
		return b.Bytes(), err
	}
	v, err := parseAs(typ, text)
	if err != nil {
		return nil, err
	}
	if typ == "decimal" && !v.IsNull() { // all its digits
		return json.Marshal(v.Decimal().String())
	}
	return value.AppendJSON(nil, v), nil
}

func columnNames(cols []state.Column) []string {
	all := make([]string, len(cols))
	for i, c := range cols {
		all[i] = c.Name
	}
	return all
}

func wrongArgs(params []state.Column, err error) error {
	var takes []string
	for _, c := range params {
		takes = append(takes, c.Name+" "+c.Type)
	}
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "query", err, "the query takes "+strings.Join(takes, ", "))
}
