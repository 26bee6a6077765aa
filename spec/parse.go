package spec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/tridentd/tridentd/internal/names"
)

// maxNodes bounds what a file may unfold to through aliases.
const maxNodes = 100_000

// node is a part of the file that fits its field of the grammar.
type node struct {
	field *field
	at    pos // of the value
	keyAt pos // of the key; of the value where there is none

	text string // of a scalar, with the environment put in
	num  int64  // of kindInt and kindSize
	dur  time.Duration
	part float64 // of kindShare: of 1
	yes  bool
	// exact tells that text stands in the file from textAt on as it is, so that an offset in it is a place.
	exact  bool
	textAt pos
	indent int // of a block scalar's lines

	literal *Literal // of kindValue

	list   []*node
	keys   []string // of an object or map, in the order of the file
	values map[string]*node
	failed []string // keys whose values were wrong, and reported
}

// has tells whether a setting is given, be it wrong.
func (n *node) has(name string) bool {
	return n != nil && (n.values[name] != nil || slices.Contains(n.failed, name))
}

// get returns the setting of an object; nil if it isn't given.
func (n *node) get(name string) *node {
	if n == nil {
		return nil
	}
	return n.values[name]
}

// operator returns the name of the object's operator setting and its value; nil if none was given.
func (n *node) operator() (string, *node) {
	if n != nil {
		for _, k := range n.keys {
			if c := n.field.child(k); c != nil && c.operator {
				return k, n.values[k]
			}
		}
	}
	return "", nil
}

func (n *node) str() string {
	if n == nil {
		return ""
	}
	return n.text
}

// texts returns the texts of a list's scalars.
func (n *node) texts() []string {
	if n == nil {
		return nil
	}
	var all []string
	for _, c := range n.list {
		all = append(all, c.text)
	}
	return all
}

// place returns where a byte offset of text is in the file, as well as that can be told.
func (n *node) place(offset int) pos {
	if !n.exact {
		return n.at
	}
	at := n.textAt
	for i, r := range n.text {
		if i >= offset {
			break
		}
		if at.column++; r == '\n' {
			at.line, at.column = at.line+1, n.indent+1
		}
	}
	return at
}

// treeParser turns YAML into nodes by a grammar.
type treeParser struct {
	*reporter
	env     func(string) (string, bool)
	anchors map[string]ast.Node
	nodes   int
	// swallowed tells that part of the file was taken for something else by YAML, so that what seems to be missing
	// may be there.
	swallowed bool
}

// parseTree parses a file. It returns nil, and has reported why, if there is nothing to go on with.
func (p *treeParser) parseTree(src []byte, g *field) *node {
	f, err := parseYAML(src)
	if err != nil {
		p.syntax(err)
		return nil
	}
	var body ast.Node
	for _, d := range f.Docs {
		switch {
		case d.Body == nil:
		case body != nil:
			p.add(posOf(d.Body), "", "a second document in the file: a file holds one pipeline")
		default:
			body = d.Body
		}
	}
	if body == nil {
		p.add(pos{}, "it begins with a line like `pipeline: words`", "the file is empty")
		return nil
	}
	p.anchors = map[string]ast.Node{}
	return p.value(g, "the file", body, posOf(body))
}

// parseYAML keeps a panic of the YAML parser from becoming ours.
func parseYAML(src []byte) (f *ast.File, err error) {
	defer func() {
		if v := recover(); v != nil {
			f, err = nil, fmt.Errorf("this is not YAML: %v", v)
		}
	}()
	return parser.ParseBytes(src, 0, parser.AllowDuplicateMapKey())
}

func (p *treeParser) syntax(err error) {
	ye, ok := errors.AsType[yaml.Error](err)
	if !ok || ye.GetToken() == nil {
		p.add(pos{}, "", "%v", err)
		return
	}
	at := pos{ye.GetToken().Position.Line, ye.GetToken().Position.Column}
	msg, hint := ye.GetMessage(), ""
	line := p.line(at.line)
	switch {
	case strings.Contains(msg, "tag") || strings.Contains(line, ": !"):
		hint = "an expression that begins with ! must be quoted: \"!x\""
	case strings.Contains(msg, "not allowed in this context"):
		hint = "a value that begins with a quote or holds \": \" must be quoted as a whole: '\"a\" + b'"
	case strings.ContainsRune(line, '{'):
		hint = "inside { } quote an expression as a whole if it holds , # ! or a quote"
	}
	p.add(at, hint, "not valid YAML: %s", msg)
}

func posOf(n ast.Node) pos {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return posOf(n.Values[0])
		}
	case *ast.MappingValueNode:
		return posOf(n.Key)
	case *ast.DocumentNode:
		if n.Body != nil {
			return posOf(n.Body)
		}
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return pos{t.Position.Line, t.Position.Column}
	}
	return pos{}
}

// value parses y as a value of f. what names it in messages.
func (p *treeParser) value(f *field, what string, y ast.Node, keyAt pos) *node {
	if p.nodes++; p.nodes > maxNodes {
		if p.nodes == maxNodes+1 {
			p.add(posOf(y), "", "the file unfolds to more than %d values", maxNodes)
		}
		return nil
	}
	if f.kind == kindValue {
		l := p.literal(y, keyAt)
		if l == nil {
			return nil
		}
		return &node{field: f, at: l.at, keyAt: keyAt, literal: l}
	}
	switch t := y.(type) {
	case *ast.AnchorNode:
		p.anchors[t.Name.GetToken().Value] = t.Value
		return p.value(f, what, t.Value, keyAt)
	case *ast.AliasNode:
		name := t.Value.GetToken().Value
		target, ok := p.anchors[name]
		if !ok {
			p.add(posOf(y), "", "there is no anchor &%s before this place", name)
			return nil
		}
		return p.value(f, what, target, keyAt)
	case *ast.TagNode:
		p.swallowed = true
		hint := ""
		if f.kind == kindExpr || f.kind == kindAggregate {
			at := posOf(y)
			hint = "write \"" + strings.ReplaceAll(strings.TrimSpace(tail(p.line(at.line), at.column)), `"`, `\"`) + "\""
		}
		p.add(posOf(y), hint, "YAML takes %s for a tag; %s", t.Start.Value, "what begins with ! must be quoted")
		return nil
	}
	n := &node{field: f, at: posOf(y), keyAt: keyAt}
	switch f.kind {
	case kindObject:
		return p.object(n, what, y)
	case kindMap:
		return p.mapping(n, what, y)
	case kindList:
		return p.sequence(n, what, y)
	default:
		return p.scalar(n, what, y)
	}
}

func tail(line string, column int) string {
	rs := []rune(line)
	if column-1 >= len(rs) {
		return ""
	}
	return string(rs[column-1:])
}

// entries lists the fields of a mapping; ok is false, and the mismatch reported, if y isn't one.
func (p *treeParser) entries(what string, y ast.Node, keyAt pos) (values []*ast.MappingValueNode, ok bool) {
	switch t := y.(type) {
	case *ast.MappingNode:
		return t.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{t}, true
	case *ast.NullNode:
		p.add(keyAt, "", "%s has no value", what)
	default:
		p.add(posOf(y), "", "%s must be fields with values, not %s", what, describe(y))
	}
	return nil, false
}

// each calls visit for each entry with the key that it has, once for each key.
func (p *treeParser) each(what string, y ast.Node, keyAt pos, visit func(key string, at pos, v *ast.MappingValueNode)) bool {
	values, ok := p.entries(what, y, keyAt)
	if !ok {
		return false
	}
	first := map[string]pos{}
	for _, v := range values {
		at := posOf(v.Key)
		var key string
		switch k := v.Key.(type) {
		case *ast.MergeKeyNode:
			p.add(at, "repeat the fields, or put an anchor on a whole value", "merge keys (<<) are not supported")
			continue
		case *ast.MappingKeyNode:
			p.add(at, "", "write `name: value` instead of a key with ?")
			continue
		default:
			key = k.GetToken().Value
		}
		if before, ok := first[key]; ok {
			p.add(at, "", "%s is given twice; the first is in line %d", quoteKey(key), before.line)
			continue
		}
		first[key] = at
		visit(key, at, v)
	}
	return true
}

func quoteKey(key string) string { return strconv.Quote(key) }

func (n *node) put(key string, v *node) {
	if n.values == nil {
		n.values = map[string]*node{}
	}
	n.keys = append(n.keys, key)
	n.values[key] = v
}

func (p *treeParser) object(n *node, what string, y ast.Node) *node {
	f := n.field
	type operator struct {
		name string
		at   pos
	}
	var ops []operator
	given := map[string]pos{}
	broken := false
	ok := p.each(what, y, n.keyAt, func(key string, at pos, v *ast.MappingValueNode) {
		given[key] = at
		c := f.child(key)
		switch {
		case c == nil:
			broken = true
			hint := ""
			if near, ok := names.Nearest(key, f.childNames()); ok {
				hint = "did you mean " + near + "?"
			} else if len(f.fields) > 0 {
				hint = "known: " + strings.Join(known(f), ", ")
			}
			if hidden(v.Value) {
				hint = "inside { } quote an expression as a whole if it holds , # ! or a quote"
			}
			p.add(at, hint, "unknown field %s", quoteKey(key))
			return
		case c.operator:
			ops = append(ops, operator{key, at})
		}
		if c.later {
			broken = true
			n.failed = append(n.failed, key)
			p.add(at, "", "%s is not available yet", key)
			return
		}
		if child := p.value(c, key, v.Value, at); child != nil {
			n.put(key, child)
		} else {
			broken = true
			n.failed = append(n.failed, key)
		}
	})
	if !ok {
		return nil
	}
	if len(ops) > 1 {
		p.add(ops[1].at, "", "%s and %s exclude each other: %s has one of %s", ops[0].name, ops[1].name, what, strings.Join(f.operators(), ", "))
		return nil
	}
	if want := f.operators(); len(want) > 0 && len(ops) == 0 && !broken && !p.swallowed {
		p.add(n.keyAt, "", "%s needs one of %s", what, strings.Join(want, ", "))
		return nil
	}
	var missing []string
	hint := ""
	for _, c := range f.fields {
		if at, ok := given[c.name]; ok && c.of != "" && len(ops) == 1 && ops[0].name != c.of {
			p.add(at, "", "%s is an option of %s, not of %s", c.name, c.of, ops[0].name)
		}
		if _, ok := given[c.name]; !ok && c.required && !c.operator && !broken && !p.swallowed {
			missing = append(missing, c.name)
			hint = exampleOf(c)
		}
	}
	if len(missing) > 0 {
		if len(missing) > 1 {
			hint = ""
		}
		p.add(n.keyAt, hint, "%s needs %s", what, strings.Join(missing, ", "))
	}
	return n
}

// known lists what may be written in an object in this version.
func known(f *field) []string {
	var all []string
	for _, c := range f.fields {
		if !c.later {
			all = append(all, c.name)
		}
	}
	return all
}

func exampleOf(f *field) string {
	if f.example == "" || strings.Contains(f.example, "\n") {
		return ""
	}
	return "for example " + f.example
}

// hidden tells whether a flow mapping's value is one that nobody wrote: what YAML makes of a piece of an
// expression that was cut at a comma.
func hidden(y ast.Node) bool {
	t, ok := y.(*ast.NullNode)
	return ok && t.GetToken().Value == "null" && t.GetToken().Type == token.ImplicitNullType
}

func (p *treeParser) mapping(n *node, what string, y ast.Node) *node {
	f := n.field
	values, ok := p.entries(what, y, n.keyAt)
	if !ok {
		return nil
	}
	if m, isMap := y.(*ast.MappingNode); isMap && m.IsFlowStyle && p.cut(f, m) {
		return nil
	}
	if len(values) == 0 {
		p.add(n.keyAt, "", "%s is empty", what)
		return nil
	}
	whole := true
	p.each(what, y, n.keyAt, func(key string, at pos, v *ast.MappingValueNode) {
		err := checkAs(f.keys, key)
		if err != nil {
			p.add(at, "", "%s: %v", quoteKey(key), err)
			whole = false
		}
		if v := p.value(f.item, itemName(f, key), v.Value, at); v != nil && err == nil {
			n.put(key, v)
		} else {
			whole = false
			n.failed = append(n.failed, key)
		}
	})
	if !whole && len(n.keys) == 0 {
		return nil
	}
	return n
}

// cut notices expressions that YAML cut at a comma: in {a: f(x, y)} it sees a key `y)` without a value. Such a piece
// is reported once, with the whole value in quotes.
func (p *treeParser) cut(f *field, m *ast.MappingNode) bool {
	if f.item.kind != kindExpr && f.item.kind != kindAggregate {
		return false
	}
	found := false
	for i := 1; i < len(m.Values); i++ {
		if !hidden(m.Values[i].Value) {
			continue
		}
		j := i - 1
		for j > 0 && hidden(m.Values[j].Value) {
			j--
		}
		if hidden(m.Values[j].Value) || checkFieldName(m.Values[i].Key.GetToken().Value) == nil {
			continue
		}
		parts := []string{m.Values[j].Value.GetToken().Value}
		for k := j + 1; k <= i; k++ {
			parts = append(parts, m.Values[k].Key.GetToken().Value)
		}
		for i+1 < len(m.Values) && hidden(m.Values[i+1].Value) {
			i++
			parts = append(parts, m.Values[i].Key.GetToken().Value)
		}
		found = true
		p.add(posOf(m.Values[j].Value), fmt.Sprintf("write %s: %s", m.Values[j].Key.GetToken().Value, strconv.Quote(strings.Join(parts, ", "))),
			"inside { } YAML cuts this expression at the comma")
	}
	return found
}

func itemName(f *field, key string) string {
	if f.item.name != "" {
		return f.item.name + " " + key
	}
	return key
}

func (p *treeParser) sequence(n *node, what string, y ast.Node) *node {
	f := n.field
	seq, ok := y.(*ast.SequenceNode)
	if !ok {
		if f.item.kind == kindObject {
			p.add(n.at, "", "%s must be a list, not %s", what, describe(y))
			return nil
		}
		one := p.value(f.item, what, y, n.keyAt)
		if one == nil {
			return nil
		}
		n.list = []*node{one}
		return n
	}
	whole := true
	for i, v := range seq.Values {
		name := what
		if f.item.name != "" {
			name = fmt.Sprintf("%s %d", f.item.name, i+1)
		}
		c := p.value(f.item, name, v, posOf(v))
		if c == nil {
			whole = false
			// A step that is wrong still keeps its place, so that what follows it can be checked as far as it goes.
			c = &node{field: f.item, at: posOf(v), keyAt: posOf(v)}
			n.failed = append(n.failed, name)
			if f.item.kind != kindObject {
				continue
			}
		}
		n.list = append(n.list, c)
	}
	if len(seq.Values) == 0 {
		p.add(n.at, "", "%s is empty", what)
		return nil
	}
	if !whole && len(n.list) == 0 {
		return nil
	}
	return n
}

func describe(y ast.Node) string {
	switch y.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "fields with values"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	default:
		return "a single value"
	}
}
