package spec

import (
	"encoding/json"
	"strconv"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/tridentd/tridentd/internal/value"
)

// Literal is a value that a file holds as data: a record of a test, a row that is expected. Environment variables are not put in.
type Literal struct {
	Kind LiteralKind
	Text string // of a scalar, as it is written; of a text without its quotes
	List []*Literal
	// Keys are a mapping's, in the order of the file.
	Keys   []string
	Fields map[string]*Literal

	at    pos // of the value
	keyAt pos // of the key that it stands at; of the value where there is none
}

// LiteralKind is what a Literal is.
type LiteralKind uint8

// The kinds of literals. A time is a text.
const (
	LiteralNull LiteralKind = iota
	LiteralText
	LiteralNumber
	LiteralBool
	LiteralList
	LiteralMap
)

func (k LiteralKind) String() string {
	return [...]string{"null", "a text", "a number", "true or false", "a list", "fields with values"}[k]
}

// Get returns a mapping's field; nil if it hasn't got it.
func (l *Literal) Get(name string) *Literal {
	if l == nil {
		return nil
	}
	return l.Fields[name]
}

// AppendJSON appends the value as JSON: fields in the order of the file, numbers as they are written.
func (l *Literal) AppendJSON(dst []byte) []byte {
	switch l.Kind {
	case LiteralNull:
		return append(dst, "null"...)
	case LiteralText:
		return value.AppendJSON(dst, value.StringOf(l.Text))
	case LiteralNumber, LiteralBool:
		return append(dst, l.Text...)
	case LiteralList:
		dst = append(dst, '[')
		for i, e := range l.List {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = e.AppendJSON(dst)
		}
		return append(dst, ']')
	case LiteralMap:
		dst = append(dst, '{')
		for i, k := range l.Keys {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = value.AppendJSON(dst, value.StringOf(k))
			dst = l.Fields[k].AppendJSON(append(dst, ": "...))
		}
		return append(dst, '}')
	}
	panic("spec: a literal of no kind")
}

// literal reads any value.
func (p *treeParser) literal(y ast.Node, keyAt pos) *Literal {
	if p.nodes++; p.nodes > maxNodes {
		if p.nodes == maxNodes+1 {
			p.add(posOf(y), "", "the file unfolds to more than %d values", maxNodes)
		}
		return nil
	}
	l := &Literal{at: posOf(y), keyAt: keyAt}
	switch t := y.(type) {
	case *ast.AnchorNode:
		p.anchors[t.Name.GetToken().Value] = t.Value
		return p.literal(t.Value, keyAt)
	case *ast.AliasNode:
		name := t.Value.GetToken().Value
		target, ok := p.anchors[name]
		if !ok {
			p.add(l.at, "", "there is no anchor &%s before this place", name)
			return nil
		}
		return p.literal(target, keyAt)
	case *ast.TagNode:
		p.add(l.at, "quote it if a text is meant", "YAML takes %s for a tag", t.Start.Value)
		return nil
	case *ast.NullNode:
		return l
	case *ast.BoolNode:
		l.Kind, l.Text = LiteralBool, strconv.FormatBool(t.Value)
	case *ast.IntegerNode, *ast.FloatNode:
		l.scalar(y.GetToken().Value)
	case *ast.StringNode:
		if l.Kind, l.Text = LiteralText, t.Value; t.Token.Type == token.StringType { // without quotes
			l.scalar(t.Value) // 1e3 is a string to the YAML library
		}
	case *ast.LiteralNode:
		l.Kind, l.Text = LiteralText, t.Value.Value
	case *ast.SequenceNode:
		l.Kind = LiteralList
		for _, e := range t.Values {
			c := p.literal(e, posOf(e))
			if c == nil {
				return nil
			}
			l.List = append(l.List, c)
		}
	case *ast.MappingNode, *ast.MappingValueNode:
		l.Kind, l.Fields = LiteralMap, map[string]*Literal{}
		whole := true
		p.each("this", y, keyAt, func(key string, at pos, v *ast.MappingValueNode) {
			c := p.literal(v.Value, at)
			if c == nil {
				whole = false
				return
			}
			l.Keys, l.Fields[key] = append(l.Keys, key), c
		})
		if !whole {
			return nil
		}
	default: // .inf and .nan are texts, as they are in states
		l.Kind, l.Text = LiteralText, y.GetToken().Value
	}
	return l
}

// scalar takes what stands without quotes: a number if it is one in JSON, so that a record means what it means in a file of records, and
// otherwise a text, whatever YAML holds it to be (0x1f, 1_000, +1, 007).
func (l *Literal) scalar(text string) {
	l.Kind, l.Text = LiteralText, text
	if text != "" && (text[0] == '-' || '0' <= text[0] && text[0] <= '9') && json.Valid([]byte(text)) {
		l.Kind = LiteralNumber
	}
}

func (l *Literal) String() string { return string(l.AppendJSON(nil)) }
