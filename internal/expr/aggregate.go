package expr

import (
	"fmt"
	"maps"
	"slices"

	"github.com/expr-lang/expr/ast"

	"github.com/tridentd/tridentd/internal/vec"
)

// aggregates are the functions over the rows of a group, with their number of arguments.
var aggregates = map[string]int{
	"count": 0, "count_if": 1, "sum": 1, "min": 1, "max": 1, "avg": 1, "first": 1, "last": 1, "collect": 1,
}

// ParseAggregate parses a call of an aggregate: count(), count_if(dep_delay > 15), sum(distance). The offsets of
// the arguments' mistakes count from the beginning of src. The error is of type Errors.
func ParseAggregate(src string) (fn string, args []*Expr, err error) {
	e, err := Parse(src)
	if err != nil {
		return "", nil, err
	}
	var errs Errors
	call, ok := e.node.(*ast.CallNode)
	if !ok {
		errs.add(&Error{
			Offset: e.Offset(), Msg: "an aggregate is due here: count(), sum(x), …",
			Hint: "set a field in a step before to compute something per row",
		})
		return "", nil, errs
	}
	fn = call.Callee.(*ast.IdentifierNode).Value
	arity, ok := aggregates[fn]
	if !ok {
		errs.add(&Error{
			Offset: e.at(call), Msg: fn + "() is no aggregate",
			Hint: didYouMean(fn, slices.Sorted(maps.Keys(aggregates))),
		})
		return "", nil, errs
	}
	if len(call.Arguments) != arity {
		errs.add(arityError(e.at(call), fn, arity, arity, len(call.Arguments)))
		return "", nil, errs
	}
	for _, a := range call.Arguments {
		args = append(args, &Expr{src: e.src, offsets: e.offsets, node: a})
	}
	return fn, args, nil
}

// CheckAggregate checks the arguments of an aggregate against a scope and returns the type of its result.
func CheckAggregate(fn string, args []*Expr, s *Scope) (Type, Errors) {
	if fn == "count" {
		return Int.NotNull(), nil
	}
	arg := args[0]
	t, errs := arg.Check(s)
	if len(errs) > 0 {
		return Type{}, errs
	}
	k := t.Kind
	need := ""
	if k == vec.Null {
		return Type{}, Errors{{Offset: arg.Offset(), Msg: fn + "() of nil has no value"}}
	}
	switch fn {
	case "count_if":
		if k != vec.Bool && k != vec.Any {
			need = "a condition"
		}
		t = Int.NotNull()
	case "sum", "avg":
		if !number(k) && k != vec.Any {
			need = "a number"
		}
		if fn == "avg" && k == vec.Int {
			t = Float
		}
	case "min", "max":
		if !number(k) && k != vec.String && k != vec.Time && k != vec.Any {
			need = "a number, a string or a timestamp"
		}
	case "collect":
		elem := k
		if k == vec.List {
			elem = vec.Any
		}
		t = Type{Type: vec.ListOf(elem)}
	}
	if need != "" {
		return Type{}, Errors{arg.mismatch(arg.node, fn, need, t.Type)}
	}
	return t, nil
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
	case vec.Int:
		return "an int"
	case vec.Any:
		return "a value of unknown type"
	case vec.Bytes:
		return "bytes"
	}
	return "a " + t.String()
}
