package spec

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/tridentd/tridentd/internal/names"
)

// scalar parses a value that is no collection.
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
	case kindShare:
		if n.part, err = parseShare(n.text); err != nil {
			return err
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
	case kindString, kindList, kindMap, kindObject, kindValue:
	}
	return nil
}

// parseDuration reads a duration as time.ParseDuration does, and whole or broken days ("7d") besides. Negative
// ones are refused.
func parseDuration(s string) (time.Duration, error) {
	form := errors.New(`a duration is a number and a unit, as in "500ms", "10s", "24h" or "7d"`)
	rest, days := s, time.Duration(0)
	if i := strings.IndexByte(s, 'd'); i > 0 {
		n, err := strconv.ParseFloat(s[:i], 64)
		if err != nil || strings.ContainsAny(s[:i], "eExXpP_nN") {
			return 0, form
		}
		if math.Abs(n) > 100_000 {
			return 0, fmt.Errorf("%s is more than 100,000 days", s)
		}
		days, rest = time.Duration(n*float64(24*time.Hour)), s[i+1:]
		if rest == "" {
			rest = "0"
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		return 0, form
	}
	if d += days; d < 0 {
		return 0, errors.New("a duration can't be negative here")
	}
	return d, nil
}

// parseShare reads a part of a whole, in percent or of 1.
func parseShare(s string) (float64, error) {
	num, percent := strings.CutSuffix(s, "%")
	part, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
	if err != nil {
		return 0, errors.New(`a share is in percent or of 1, as in "1%" or 0.01`)
	}
	if percent {
		part /= 100
	}
	if !(part > 0 && part <= 1) {
		return 0, fmt.Errorf("%s is not above 0 and at most 100%%", s)
	}
	return part, nil
}

var sizeUnits = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"B", 1},
}

// parseSize reads a number of bytes with or without a unit.
func parseSize(s string) (int64, error) {
	form := errors.New(`a size is a number and a unit, as in "512KiB", "64MiB" or "1GiB"`)
	num, factor := s, int64(1)
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			num, factor = strings.TrimSpace(n), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n < 0 {
		return 0, form
	}
	if n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%s is too large", s)
	}
	return n * factor, nil
}

// checkAs tells why s can't be a name of some kind; nil if it can.
func checkAs(k kind, s string) error {
	switch {
	case k == kindName:
		return checkName(s)
	case k == kindField:
		return checkFieldName(s)
	case s == "":
		return errors.New("a field's name can't be empty")
	}
	return nil
}

// checkName tells why s can't name a pipeline, source, stream or state; nil if it can.
func checkName(s string) error {
	if strings.HasPrefix(s, "_") {
		return errors.New("names that start with _ are the engine's own")
	}
	if len(s) > 200 {
		return errors.New("a name has at most 200 characters")
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case (c == '_' || c == '-') && i > 0:
		default:
			return errors.New("a name is made of letters, digits, - and _, and begins with a letter or digit")
		}
	}
	if s == "" {
		return errors.New("a name can't be empty")
	}
	return nil
}

// checkFieldName tells why s can't name a field in an expression; nil if it can.
func checkFieldName(s string) error {
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case '0' <= c && c <= '9' && i > 0:
		default:
			return errors.New("a field's name is made of letters, digits and _, and doesn't begin with a digit")
		}
	}
	if s == "" {
		return errors.New("a field's name can't be empty")
	}
	return nil
}
