package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/parser/operator"
)

// MaxSource bounds the length of an expression in bytes. It keeps the depth of the syntax tree, over which the
// parser and this package recurse, within bounds.
const MaxSource = 16 << 10

// Expr is a parsed expression. It is immutable and may be shared.
type Expr struct {
	src     string
	offsets []int // byte offset of each rune, and of the end; nil where they are the same
	node    ast.Node
	// functions are those of Go that calls may be of; nil: none.
	functions map[string]*Custom
}

// parserConfig registers all built-in functions of expr-lang, and the aggregates, as ordinary functions, so that
// their calls parse as calls with any number of arguments.
var parserConfig = sync.OnceValue(func() *conf.Config {
	c := conf.CreateNew()
	c.DisableIfOperator = true
	for _, f := range builtin.Builtins {
		c.Functions[f.Name] = &builtin.Function{Name: f.Name}
	}
	for name := range aggregates {
		c.Functions[name] = &builtin.Function{Name: name}
	}
	return c
})

// Parse parses an expression. The error is of type Errors.
func Parse(src string) (*Expr, error) {
	e := &Expr{src: src}
	var errs Errors
	switch {
	case len(src) > MaxSource:
		errs.add(&Error{Offset: MaxSource, Msg: fmt.Sprintf("an expression may have %d bytes, this has %d", MaxSource, len(src))})
		return nil, errs
	case !utf8.ValidString(src):
		errs.add(&Error{Offset: invalidAt(src), Msg: "invalid UTF-8"})
		return nil, errs
	case strings.TrimSpace(src) == "":
		errs.add(&Error{Msg: "an expression is missing"})
		return nil, errs
	}
	if n := utf8.RuneCountInString(src); n != len(src) {
		e.offsets = make([]int, 0, n+1)
		for i := range src {
			e.offsets = append(e.offsets, i)
		}
		e.offsets = append(e.offsets, len(src))
	}
	// A Config memoises within itself, so each parser gets a shallow copy.
	cfg := *parserConfig()
	tree, err := parser.ParseWithConfig(src, &cfg)
	if err != nil {
		errs.add(e.syntaxError(err))
		return nil, errs
	}
	e.node = tree.Node
	v := validator{e: e, seen: map[ast.Node]bool{}}
	v.node(e.node)
	errs = v.errs
	if len(errs) > 0 {
		return nil, errs.sorted()
	}
	return e, nil
}

func invalidAt(s string) int {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return i
			}
		}
	}
	return len(s)
}

// String returns the source.
func (e *Expr) String() string { return e.src }

// Offset is the byte offset at which e begins in the source that it was parsed from; it isn't 0 for the argument
// of an aggregate.
func (e *Expr) Offset() int { return e.at(leftmost(e.node)) }

// leftmost descends to the node that is written first.
func leftmost(n ast.Node) ast.Node {
	for {
		switch x := n.(type) {
		case *ast.BinaryNode:
			n = x.Left
		case *ast.ConditionalNode:
			n = x.Cond
		case *ast.MemberNode:
			n = x.Node
		case *ast.ChainNode:
			n = x.Node
		case *ast.CallNode:
			n = x.Callee
		default:
			return n
		}
	}
}

// at is the byte offset of the token that n is named by: an operator, a name, a literal.
func (e *Expr) at(n ast.Node) int {
	if c, ok := n.(*ast.ConditionalNode); ok { // the parser places it behind its end
		n = leftmost(c)
	}
	return e.byteOffset(n.Location().From)
}

func (e *Expr) byteOffset(rune int) int {
	if e.offsets == nil {
		return min(max(rune, 0), len(e.src))
	}
	return e.offsets[min(max(rune, 0), len(e.offsets)-1)]
}

// syntaxError rewords what the parser reports.
func (e *Expr) syntaxError(err error) *Error {
	fe := &file.Error{}
	ok := errors.As(err, &fe)
	if !ok {
		return &Error{Msg: err.Error()}
	}
	off := e.byteOffset(fe.From)
	msg := fe.Message
	switch {
	case strings.HasPrefix(msg, "unexpected token EOF"):
		return &Error{Offset: len(e.src), Msg: "the expression ends too early", Hint: unbalanced(e.src)}
	case strings.HasPrefix(msg, "unexpected token "):
		tok := e.src[off:]
		for i, r := range tok {
			if i > 0 && !isWord(r) || i > 20 {
				tok = tok[:i]
				break
			}
		}
		out := &Error{Offset: off, Msg: fmt.Sprintf("unexpected %q", tok)}
		switch tok {
		case "=":
			out.Hint = "equality is written =="
		case "&", "|":
			out.Hint = "logic is written && and ||"
		case "if":
			out.Hint = "write condition ? a : b"
		case "#":
			out.Hint = "functions take values, not conditions over a list's elements"
		default:
			out.Hint = unbalanced(e.src)
		}
		return out
	case strings.Contains(msg, "float literal"):
		return &Error{Offset: e.numberBefore(off), Msg: "a float literal is out of range"}
	case strings.Contains(msg, "integer literal"), strings.HasPrefix(msg, "invalid hex literal"),
		strings.HasPrefix(msg, "invalid binary literal"), strings.HasPrefix(msg, "invalid octal literal"):
		return &Error{
			Offset: e.numberBefore(off), Msg: "an integer literal must lie within -9223372036854775807 and 9223372036854775807",
			Hint: `write decimal("…") for a larger number`,
		}
	case strings.Contains(msg, "coalesce expressions"):
		return &Error{Offset: off, Msg: "?? can't stand beside another operator without parentheses", Hint: `write (a ?? b) == c`}
	case strings.Contains(msg, "literal not terminated"):
		return &Error{Offset: off, Msg: "a string has no closing quote"}
	}
	return &Error{Offset: off, Msg: msg}
}

// numberBefore is the offset of the last number that begins before off: the parser reports a number when it has
// gone past it.
func (e *Expr) numberBefore(off int) int {
	at := 0
	for i := range off {
		if c := e.src[i]; '0' <= c && c <= '9' && (i == 0 || !isWord(rune(e.src[i-1]))) {
			at = i
		}
	}
	return at
}

func isWord(r rune) bool {
	return r == '_' || r == '$' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r >= utf8.RuneSelf
}

// unbalanced tells which bracket of s is missing, outside of string literals.
func unbalanced(s string) string {
	var open []byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '(', '[', '{':
			open = append(open, c)
		case ')', ']', '}':
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
		case '"', '\'', '`':
			for i++; i < len(s) && s[i] != c; i++ {
				if s[i] == '\\' && c != '`' {
					i++
				}
			}
		}
	}
	if len(open) == 0 {
		return ""
	}
	closing := map[byte]string{'(': ")", '[': "]", '{': "}"}
	return "a closing " + closing[open[len(open)-1]] + " is missing"
}

// validator reports the constructs of expr-lang that aren't part of the language.
type validator struct {
	e    *Expr
	errs Errors
	seen map[ast.Node]bool // a chained comparison has its middle twice
}

func (v *validator) node(n ast.Node) {
	if v.seen[n] {
		return
	}
	v.seen[n] = true
	no := func(what, hint string) { v.errs.add(&Error{Offset: v.e.at(n), Msg: what, Hint: hint}) }
	switch x := n.(type) {
	case *ast.BinaryNode:
		switch x.Operator {
		case "^":
			no("there is no operator ^", "a power is written **")
		case "..":
			no("there are no ranges", "write x >= a && x <= b")
		}
		if m := middle(x); m != nil && hasComparison(m, map[ast.Node]bool{}) {
			no("the middle of a chained comparison can't hold a comparison itself", "write a < b && b < c")
		}
	case *ast.SliceNode:
		no("there are no slices", "substr(s, from, length) cuts a string")
		return
	case *ast.CallNode:
		if _, ok := x.Callee.(*ast.IdentifierNode); !ok {
			v.notAFunction(x)
		}
	case *ast.MapNode:
		no("there are no maps", "give each value a field of its own")
		return
	case *ast.VariableDeclaratorNode:
		no("there are no variables", "set a field in a step before")
		return
	case *ast.SequenceNode:
		no("an expression is a single value", "take the ; away")
		return
	case *ast.BuiltinNode, *ast.PredicateNode, *ast.PointerNode:
		no("this isn't part of the language", "")
		return
	}
	children(n, v.node)
}

// children calls f for the operands of n, in the order in which they are written.
func children(n ast.Node, f func(ast.Node)) {
	all := func(ns []ast.Node) {
		for _, n := range ns {
			f(n)
		}
	}
	switch x := n.(type) {
	case *ast.UnaryNode:
		f(x.Node)
	case *ast.BinaryNode:
		f(x.Left)
		f(x.Right)
	case *ast.ChainNode:
		f(x.Node)
	case *ast.MemberNode:
		f(x.Node)
		f(x.Property)
	case *ast.CallNode:
		all(x.Arguments)
	case *ast.ConditionalNode:
		f(x.Cond)
		if x.Exp1 != x.Cond {
			f(x.Exp1)
		}
		f(x.Exp2)
	case *ast.ArrayNode:
		all(x.Nodes)
	}
}

// middle returns b of a < b < c, which the parser hands over as a < b && b < c with one node b; nil for anything else.
func middle(x *ast.BinaryNode) ast.Node {
	left, ok := x.Left.(*ast.BinaryNode)
	if ok && left.Operator == "&&" {
		left, ok = left.Right.(*ast.BinaryNode)
	}
	right, isBinary := x.Right.(*ast.BinaryNode)
	if ok && isBinary && left.Right == right.Left {
		return right.Left
	}
	return nil
}

// hasComparison tells whether n holds a comparison. Chains within the middle of chains would make the work grow
// with the power of their depth.
func hasComparison(n ast.Node, seen map[ast.Node]bool) bool {
	if seen[n] {
		return false
	}
	seen[n] = true
	if b, ok := n.(*ast.BinaryNode); ok && operator.IsComparison(b.Operator) {
		return true
	}
	found := false
	children(n, func(c ast.Node) { found = found || hasComparison(c, seen) })
	return found
}

func (v *validator) notAFunction(x *ast.CallNode) {
	err := &Error{Offset: v.e.at(x), Msg: "values have no methods"}
	if m, ok := x.Callee.(*ast.MemberNode); ok {
		if p, ok := m.Property.(*ast.StringNode); ok {
			err.Hint = fmt.Sprintf("write %s(%s, …)", p.Value, nameOf(m.Node))
		}
	}
	v.errs.add(err)
}

// Fields lists the names that e refers to, in order, a field of a record as "record.field".
func (e *Expr) Fields() []string {
	seen := map[string]bool{}
	var walk func(n ast.Node)
	walk = func(n ast.Node) {
		if path, ok := pathOf(n); ok {
			seen[path] = true
			return
		}
		children(n, walk)
	}
	walk(e.node)
	fields := make([]string, 0, len(seen))
	for f := range seen {
		fields = append(fields, f)
	}
	slices.Sort(fields)
	return fields
}

// calls passes the name of each function that e calls to each, in the order of the source.
func (e *Expr) calls(each func(name string)) {
	var walk func(n ast.Node)
	walk = func(n ast.Node) {
		if x, ok := n.(*ast.CallNode); ok {
			if id, ok := x.Callee.(*ast.IdentifierNode); ok {
				each(id.Value)
			}
		}
		children(n, walk)
	}
	walk(e.node)
}

// Name returns the name that e is, if it is nothing else.
func (e *Expr) Name() (name string, ok bool) { return pathOf(e.node) }

// envName is the record of all fields, for names that are no identifiers: $env["user-id"].
const envName = "$env"

// pathOf returns the name that n refers to, if n is a name: a, a.b, a["b"], $env["a"].
func pathOf(n ast.Node) (string, bool) {
	switch x := n.(type) {
	case *ast.IdentifierNode:
		return x.Value, true
	case *ast.ChainNode:
		return pathOf(x.Node)
	case *ast.MemberNode:
		p, ok := x.Property.(*ast.StringNode)
		if !ok {
			return "", false
		}
		record, ok := pathOf(x.Node)
		if !ok {
			return "", false
		}
		if record == envName {
			return p.Value, true
		}
		return record + "." + p.Value, true
	}
	return "", false
}
