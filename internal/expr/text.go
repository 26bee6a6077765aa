package expr

import (
	"strconv"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser/operator"

	"github.com/tridentd/tridentd/internal/value"
)

// longestText bounds what messages quote of an expression or a value, in bytes.
const longestText = 60

// textOf writes an expression for messages, its end cut off if it is long.
func textOf(n ast.Node) string {
	var w textWriter
	w.node(n, 0)
	return cut(string(w.buf))
}

// nameOf is how messages speak of an operand.
func nameOf(n ast.Node) string {
	s := textOf(n)
	if len(s) > 40 {
		return "the argument"
	}
	return s
}

// textWriter writes a syntax tree as source. It stops soon after longestText bytes, so that writing each node of a
// large tree takes bounded time.
type textWriter struct{ buf []byte }

func (w *textWriter) full() bool { return len(w.buf) > longestText }

func (w *textWriter) add(s string) { w.buf = append(w.buf, s...) }

// postfix binds tighter than any operator.
const postfix = 1000

// node writes n, in parentheses where its operator binds weaker than least.
func (w *textWriter) node(n ast.Node, least int) {
	if w.full() {
		return
	}
	switch x := n.(type) {
	case *ast.NilNode:
		w.add("nil")
	case *ast.BoolNode:
		w.buf = strconv.AppendBool(w.buf, x.Value)
	case *ast.IntegerNode:
		w.buf = strconv.AppendInt(w.buf, int64(x.Value), 10)
	case *ast.FloatNode:
		w.buf = value.AppendText(w.buf, value.FloatOf(x.Value))
	case *ast.StringNode:
		w.buf = strconv.AppendQuote(w.buf, cut(x.Value))
	case *ast.BytesNode:
		w.add("b")
		w.buf = strconv.AppendQuote(w.buf, cut(string(x.Value)))
	case *ast.IdentifierNode:
		w.add(x.Value)
	case *ast.UnaryNode:
		p := operator.Unary[x.Operator].Precedence
		w.open(p < least)
		w.add(x.Operator)
		if x.Operator == "not" {
			w.add(" ")
		}
		w.node(x.Node, p)
		w.close(p < least)
	case *ast.BinaryNode:
		op := operator.Binary[x.Operator]
		left, right := op.Precedence, op.Precedence+1
		if op.Associativity == operator.Right {
			left, right = right, left
		}
		// ?? binds tightest, but may not stand to the left of another operator.
		paren := op.Precedence < least || x.Operator == "??" && 0 < least && least < op.Precedence
		w.open(paren)
		w.node(x.Left, left)
		w.add(" " + x.Operator + " ")
		w.node(x.Right, right)
		w.close(paren)
	case *ast.ConditionalNode:
		w.open(least > 0)
		w.node(x.Cond, 1)
		if x.Exp1 == x.Cond {
			w.add(" ?: ")
		} else {
			w.add(" ? ")
			w.node(x.Exp1, 1)
			w.add(" : ")
		}
		w.node(x.Exp2, 0)
		w.close(least > 0)
	case *ast.ChainNode:
		w.node(x.Node, least)
	case *ast.MemberNode:
		w.node(x.Node, postfix)
		if p, ok := x.Property.(*ast.StringNode); ok && !isEnv(x.Node) {
			w.add("." + p.Value)
			break
		}
		w.add("[")
		w.node(x.Property, 0)
		w.add("]")
	case *ast.CallNode:
		w.node(x.Callee, postfix)
		w.add("(")
		w.nodes(x.Arguments)
		w.add(")")
	case *ast.ArrayNode:
		w.add("[")
		w.nodes(x.Nodes)
		w.add("]")
	}
}

func (w *textWriter) nodes(ns []ast.Node) {
	for i, n := range ns {
		if w.full() {
			return
		}
		if i > 0 {
			w.add(", ")
		}
		w.node(n, 0)
	}
}

func (w *textWriter) open(paren bool) {
	if paren {
		w.add("(")
	}
}

func (w *textWriter) close(paren bool) {
	if paren {
		w.add(")")
	}
}

func isEnv(n ast.Node) bool {
	id, ok := n.(*ast.IdentifierNode)
	return ok && id.Value == envName
}

// cut shortens a text for a message.
func cut(s string) string {
	if len(s) <= longestText {
		return s
	}
	n := 0
	for i := range s {
		if i > longestText {
			break
		}
		n = i
	}
	return s[:n] + "…"
}
