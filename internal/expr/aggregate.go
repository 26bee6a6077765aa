package expr

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/expr-lang/expr/ast"

	"github.com/tridentd/tridentd/internal/vec"
)

// aggregates are the functions over the rows of a group.
var aggregates = map[string]aggregateForm{
	"count":    {},
	"count_if": {least: 1, most: 1},
	"sum":      {least: 1, most: 1},
	"min":      {least: 1, most: 1},
	"max":      {least: 1, most: 1},
	"avg":      {least: 1, most: 1},
	"first":    {least: 1, most: 1},
	"last":     {least: 1, most: 1},
	"collect":  {least: 1, most: 1},
	"first_n":  {least: 2, most: 2, constant: "n"},
	"last_n":   {least: 2, most: 2, constant: "n"},
	"top":      {least: 2, most: 3, constant: "k"},
	"min_by":   {least: 2, most: 2},
	"max_by":   {least: 2, most: 2},
	"distinct": {least: 1, most: 1},
	"quantile": {least: 2, most: 2, constant: "p"},
	"variance": {least: 1, most: 1},
	"stddev":   {least: 1, most: 1},
}

// aggregateForm is how an aggregate is called.
type aggregateForm struct {
	least, most int    // number of arguments
	constant    string // what the second argument is, if it is no expression: how many values are kept, or a share
}

// maxKept bounds how many values an aggregate may be asked to keep.
const maxKept = 1000

// Aggregate is a call of an aggregate. It is immutable.
type Aggregate struct {
	Fn string
	// Args are what is computed for each row: none, the values, or the values and what decides about them. The offsets
	// of their mistakes count from the beginning of the whole call.
	Args []*Expr
	// Param is the constant argument, in one way of writing it; empty if there is none.
	Param string
}

// ParseAggregate parses a call of an aggregate: count(), count_if(dep_delay > 15), sum(distance), top(page, 10, views).
// The error is of type Errors.
func ParseAggregate(src string) (*Aggregate, error) {
	e, err := Parse(src)
	if err != nil {
		return nil, err
	}
	var errs Errors
	call, ok := e.node.(*ast.CallNode)
	if !ok {
		errs.add(&Error{
			Offset: e.Offset(), Msg: "an aggregate is due here: count(), sum(x), …",
			Hint: "set a field in a step before to compute something per row",
		})
		return nil, errs
	}
	a := &Aggregate{Fn: call.Callee.(*ast.IdentifierNode).Value}
	form, ok := aggregates[a.Fn]
	if !ok {
		errs.add(&Error{
			Offset: e.at(call), Msg: a.Fn + "() is no aggregate",
			Hint: didYouMean(a.Fn, slices.Sorted(maps.Keys(aggregates))),
		})
		return nil, errs
	}
	if n := len(call.Arguments); n < form.least || n > form.most {
		errs.add(arityError(e.at(call), a.Fn, form.least, form.most, n))
		return nil, errs
	}
	for i, n := range call.Arguments {
		if i != 1 || form.constant == "" {
			a.Args = append(a.Args, &Expr{src: e.src, offsets: e.offsets, node: n})
			continue
		}
		if a.Param, ok = constantOf(n, form.constant == "p"); !ok {
			need := fmt.Sprintf("a number from 1 to %d", maxKept)
			if form.constant == "p" {
				need = "a number above 0 and up to 1"
			}
			errs.add(&Error{Offset: e.at(leftmost(n)), Msg: fmt.Sprintf("%s() needs %s here, written as a number", a.Fn, need)})
			return nil, errs
		}
	}
	return a, nil
}

// constantOf reads a share, or how many values are kept.
func constantOf(n ast.Node, share bool) (string, bool) {
	switch x := n.(type) {
	case *ast.IntegerNode:
		return strconv.Itoa(x.Value), x.Value >= 1 && (share && x.Value == 1 || !share && x.Value <= maxKept)
	case *ast.FloatNode:
		return strconv.FormatFloat(x.Value, 'g', -1, 64), share && x.Value > 0 && x.Value <= 1
	}
	return "", false
}

// Name is the function's name with its constant argument.
func (a *Aggregate) Name() string {
	if a.Param == "" {
		return a.Fn
	}
	return a.Fn + "(" + a.Param + ")"
}

// Check checks the arguments against a scope and returns the type of the result.
func (a *Aggregate) Check(s *Scope) (Type, Errors) {
	var types []Type
	var all Errors
	for _, arg := range a.Args {
		t, errs := arg.Check(s)
		if len(errs) == 0 && t.Kind == vec.Null {
			errs = Errors{{Offset: arg.Offset(), Msg: a.Fn + "() of nil has no value"}}
		}
		types, all = append(types, t), append(all, errs...)
	}
	if len(all) > 0 {
		return Type{}, all
	}
	if len(types) == 0 {
		return Int.NotNull(), nil
	}
	const sortable = "a number, a string or a timestamp"
	t, k := types[0], types[0].Kind
	need := ""
	switch a.Fn {
	case "count_if":
		if k != vec.Bool && k != vec.Any {
			need = "a condition"
		}
		t = Int.NotNull()
	case "sum", "avg", "quantile", "variance", "stddev":
		if !number(k) && k != vec.Any {
			need = "a number"
		}
		switch {
		case a.Fn == "quantile", a.Fn != "sum" && k == vec.Int:
			t = Float
		case a.Fn != "sum" && a.Fn != "avg": // of one number there is no variance
			t.Nullable = true
		}
	case "min", "max":
		if !ordered(k) {
			need = sortable
		}
	case "distinct":
		t = Int.NotNull()
	case "top":
		if !ordered(k) {
			need = sortable
		}
		if t = (Type{Type: vec.ListOf(k)}); len(types) == 2 {
			t.Elem = vec.Any
		}
	case "collect", "first_n", "last_n":
		elem := k
		if k == vec.List {
			elem = vec.Any
		}
		t = Type{Type: vec.ListOf(elem)}
	case "min_by", "max_by":
		t.Nullable = true
	}
	if need != "" {
		return Type{}, Errors{a.Args[0].mismatch(a.Args[0].node, a.Fn, need, types[0].Type)}
	}
	if len(types) == 2 && !ordered(types[1].Kind) {
		return Type{}, Errors{a.Args[1].mismatch(a.Args[1].node, a.Fn, sortable, types[1].Type)}
	}
	return t, nil
}

func ordered(k vec.Kind) bool {
	return number(k) || k == vec.String || k == vec.Time || k == vec.Any
}

func number(k vec.Kind) bool { return k == vec.Int || k == vec.Float || k == vec.Decimal }

func arityError(offset int, fn string, least, most, have int) *Error {
	var need string
	switch {
	case most < 0:
		need = fmt.Sprintf("%d or more arguments", least)
	case least == most && least == 1:
		need = "one argument"
	case least == most && least == 0:
		need = "no argument"
	case least == most:
		need = fmt.Sprintf("%d arguments", least)
	case least+1 == most:
		need = fmt.Sprintf("%d or %d arguments", least, most)
	default:
		need = fmt.Sprintf("%d to %d arguments", least, most)
	}
	return &Error{Offset: offset, Msg: fmt.Sprintf("%s() takes %s, not %d", fn, need, have)}
}

// mismatch tells that fn needs something else than n, which has type t.
func (e *Expr) mismatch(n ast.Node, fn, need string, t vec.Type) *Error {
	return &Error{Offset: e.at(leftmost(n)), Msg: fmt.Sprintf("%s() needs %s, %s is %s", fn, need, nameOf(n), article(t))}
}

// article writes a type with its article.
func article(t vec.Type) string {
	switch t.Kind {
	case vec.Null:
		return "nil"
	case vec.Any:
		return "a value of unknown type"
	}
	return t.Article()
}
