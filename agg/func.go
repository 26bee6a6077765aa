package agg

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Func describes an aggregate function of declared pipelines.
type Func struct {
	Name             string
	MinArgs, MaxArgs int
	result           map[string]string // type of the argument to type of the result; "": any other
	exact            []string          // types of the argument for which Merge is exactly associative
	wants            string            // what the argument must be, for errors
	// Param is what the second argument is, if it is a constant: "n" or "k", how many values are kept, "p", which quantile;
	// empty if there is none. MinArgs and MaxArgs count it.
	Param string
}

var (
	sums    = map[string]string{"int": "int", "float": "float", "decimal": "decimal", "any": "any"}
	floats  = map[string]string{"int": "float", "float": "float", "decimal": "float", "any": "float"}
	means   = map[string]string{"int": "float", "float": "float", "decimal": "decimal", "any": "any"}
	ordered = map[string]string{
		"int": "int", "float": "float", "decimal": "decimal", "string": "string", "timestamp": "timestamp", "bool": "bool", "bytes": "bytes", "any": "any",
	}
	lists        = map[string]string{"": "list"}
	orderedTypes = slices.Sorted(maps.Keys(ordered))
	numberTypes  = slices.Sorted(maps.Keys(sums))
	valueTypes   = slices.Sorted(slices.Values(append([]string{"list"}, orderedTypes...)))

	funcs = map[string]Func{
		"count":    {Name: "count", result: map[string]string{"": "int"}, exact: []string{""}},
		"count_if": {Name: "count_if", MinArgs: 1, MaxArgs: 1, result: map[string]string{"bool": "int", "any": "int"}, exact: []string{"bool", "any"}, wants: "a condition"},
		"sum":      {Name: "sum", MinArgs: 1, MaxArgs: 1, result: sums, exact: []string{"int", "decimal"}, wants: "a number"},
		"avg":      {Name: "avg", MinArgs: 1, MaxArgs: 1, result: means, exact: []string{"int", "decimal"}, wants: "a number"},
		"min":      {Name: "min", MinArgs: 1, MaxArgs: 1, result: ordered, exact: orderedTypes, wants: "a value that has an order"},
		"max":      {Name: "max", MinArgs: 1, MaxArgs: 1, result: ordered, exact: orderedTypes, wants: "a value that has an order"},
		"first":    {Name: "first", MinArgs: 1, MaxArgs: 1},
		"last":     {Name: "last", MinArgs: 1, MaxArgs: 1},
		"collect":  {Name: "collect", MinArgs: 1, MaxArgs: 1, result: lists},
		"first_n":  {Name: "first_n", MinArgs: 2, MaxArgs: 2, Param: "n", result: lists},
		"last_n":   {Name: "last_n", MinArgs: 2, MaxArgs: 2, Param: "n", result: lists},
		"top":      {Name: "top", MinArgs: 2, MaxArgs: 3, Param: "k", result: listsOf(orderedTypes), exact: orderedTypes, wants: "a value that has an order"},
		"min_by":   {Name: "min_by", MinArgs: 2, MaxArgs: 2},
		"max_by":   {Name: "max_by", MinArgs: 2, MaxArgs: 2},
		"distinct": {Name: "distinct", MinArgs: 1, MaxArgs: 1, result: map[string]string{"": "int"}, exact: valueTypes},
		"quantile": {Name: "quantile", MinArgs: 2, MaxArgs: 2, Param: "p", result: floats, exact: numberTypes, wants: "a number"},
		"variance": {Name: "variance", MinArgs: 1, MaxArgs: 1, result: means, exact: []string{"int", "decimal"}, wants: "a number"},
		"stddev":   {Name: "stddev", MinArgs: 1, MaxArgs: 1, result: means, exact: []string{"int", "decimal"}, wants: "a number"},
	}
)

func listsOf(types []string) map[string]string {
	m := map[string]string{}
	for _, t := range types {
		m[t] = "list"
	}
	return m
}

// Lookup returns the function of that name.
func Lookup(name string) (Func, bool) {
	f, ok := funcs[name]
	return f, ok
}

// Names lists the functions in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(funcs)) }

// Result returns the type of the result for the type of the argument ("" for count), both named as state.Column
// names them.
func (f Func) Result(arg string) (string, error) {
	if f.result == nil {
		return arg, nil
	}
	if r, ok := f.result[arg]; ok {
		return r, nil
	}
	if r, ok := f.result[""]; ok {
		return r, nil
	}
	article := "a"
	if arg != "" && strings.Contains("aeiou", arg[:1]) {
		article = "an"
	}
	return "", fmt.Errorf("%s() needs %s, not %s %s", f.Name, f.wants, article, arg)
}

// Exact tells whether Merge is exactly associative for arguments of a type; see the function Exact.
func (f Func) Exact(arg string) bool { return slices.Contains(f.exact, arg) }
