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
	yes  bool
	// exact tells that text stands in the file from textAt on as it is, so that an offset in it is a place.
	exact  bool
	textAt pos
	indent int // of a block scalar's lines

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

func (p *treeParser) scalar(n *node, what string, y ast.Node) *node {
	f := n.field
	switch t := y.(type) {
	case *ast.NullNode:
		hint := ""
		switch {
		case f.kind == kindExpr || f.kind == kindAggregate:
			hint = "an expression is meant; quote it if it begins with # or !"
		case t.GetToken().Value != "null" || t.GetToken().Type != token.ImplicitNullType:
			hint = "quote it if the text is meant: " + strconv.Quote(t.GetToken().Value)
		}
		p.add(n.keyAt, hint, "%s has no value", what)
		return nil
	case *ast.MappingNode, *ast.MappingValueNode:
		if text, ok := unspaced(y); ok && f.kind == kindString {
			n.text = text
			return p.substituted(n, what)
		}
		if f.enumOr != nil {
			return p.value(f.enumOr, what, y, n.keyAt)
		}
		hint := ""
		if f.kind == kindExpr || f.kind == kindAggregate {
			hint = "quote an expression that holds \": \" or begins with {"
		}
		p.add(n.at, hint, "%s must be %s, not fields with values", what, wanted(f))
		return nil
	case *ast.SequenceNode:
		hint := ""
		if f.kind == kindExpr {
			hint = "quote an expression that begins with ["
		}
		p.add(n.at, hint, "%s must be %s, not a list", what, wanted(f))
		return nil
	}
	p.locate(n, y)
	return p.substituted(n, what)
}

// unspaced returns the text a:b of an element of a list in braces, as host:9092, which the YAML parser takes for a
// key and a value although no blank follows the colon.
func unspaced(y ast.Node) (string, bool) {
	m, ok := y.(*ast.MappingNode)
	if ok && len(m.Values) == 1 && !strings.HasPrefix(m.GetToken().Value, "{") {
		y = m.Values[0]
	}
	v, ok := y.(*ast.MappingValueNode)
	if !ok || v.Value == nil {
		return "", false
	}
	key, colon, val := v.Key.GetToken(), v.Start, v.Value.GetToken()
	plain := key.Type == token.StringType && (val.Type == token.StringType || val.Type == token.IntegerType)
	if !plain || colon.Position.Line != val.Position.Line || colon.Position.Column+1 != val.Position.Column {
		return "", false
	}
	return key.Value + ":" + val.Value, true
}

// substituted puts the environment into the scalar's text and reads it as its field's kind.
func (p *treeParser) substituted(n *node, what string) *node {
	f := n.field
	text, changed, err := expandEnv(n.text, p.env)
	if err != nil {
		p.add(n.place(strings.Index(n.text, "${")), "", "%v", err)
		return nil
	}
	if changed {
		n.text, n.exact = text, false
	}
	if err := p.typed(n); err != nil {
		p.add(n.at, suggestion(f, n.text), "%s: %v", what, err)
		return nil
	}
	return n
}

// locate takes the scalar's text and notes whether it stands in the file as it is.
func (p *treeParser) locate(n *node, y ast.Node) {
	tok := y.GetToken()
	if lit, ok := y.(*ast.LiteralNode); ok {
		n.text = strings.TrimSuffix(lit.Value.Value, "\n")
		first := p.line(tok.Position.Line + 1)
		n.indent = len(first) - len(strings.TrimLeft(first, " "))
		n.textAt = pos{tok.Position.Line + 1, n.indent + 1}
		n.exact = tok.Type == token.LiteralType
		return
	}
	n.text = tok.Value
	n.textAt = n.at
	switch tok.Type {
	case token.SingleQuoteType, token.DoubleQuoteType:
		n.textAt.column++
		n.exact = strings.HasPrefix(tail(p.line(n.at.line), n.textAt.column), n.text)
	default:
		n.exact = strings.HasPrefix(tail(p.line(n.at.line), n.at.column), n.text)
	}
}

func suggestion(f *field, text string) string {
	if f.kind != kindEnum {
		return ""
	}
	if near, ok := names.Nearest(text, f.enum); ok {
		return "did you mean " + near + "?"
	}
	return ""
}

func wanted(f *field) string {
	switch f.kind {
	case kindInt:
		return "a whole number"
	case kindBool:
		return "true or false"
	case kindDuration:
		return "a duration such as 10s"
	case kindSize:
		return "a size such as 64MiB"
	case kindEnum:
		return "one of " + strings.Join(f.enum, ", ")
	case kindExpr:
		return "an expression"
	case kindAggregate:
		return "a call of an aggregate such as count()"
	case kindName, kindField, kindRef:
		return "a name"
	default:
		return "a text"
	}
}

// typed reads the scalar's text as its field's kind.
func (p *treeParser) typed(n *node) (err error) {
	f := n.field
	switch f.kind {
	case kindInt:
		if n.num, err = strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 10, 64); err != nil {
			return fmt.Errorf("%q is not a whole number", n.text)
		}
		if n.num < f.min {
			return fmt.Errorf("%d is below %d", n.num, f.min)
		}
	case kindBool:
		switch n.text {
		case "true":
			n.yes = true
		case "false":
		default:
			return fmt.Errorf("%q is neither true nor false", n.text)
		}
	case kindDuration:
		if n.dur, err = parseDuration(n.text); err != nil {
			return err
		}
		if int64(n.dur) < f.min {
			return errors.New("it must be more than 0")
		}
	case kindSize:
		if n.num, err = parseSize(n.text); err != nil {
			return err
		}
		if n.num < f.min {
			return errors.New("it must be more than 0")
		}
	case kindEnum:
		if slices.Contains(f.laterEnum, n.text) {
			return fmt.Errorf("%s is not available yet; there is %s", n.text, strings.Join(f.enum, ", "))
		}
		if !slices.Contains(f.enum, n.text) {
			return fmt.Errorf("%q is not one of %s", n.text, strings.Join(f.enum, ", "))
		}
	case kindName, kindField, kindRef:
		return checkAs(f.kind, n.text)
	case kindExpr, kindAggregate:
		if strings.TrimSpace(n.text) == "" {
			return errors.New("the expression is empty")
		}
	case kindString, kindList, kindMap, kindObject:
	}
	return nil
}
