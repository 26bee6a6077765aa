package spec

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// referenceText is the part of the reference that isn't derived from the grammar. A line {{settings PATH}} stands
// for the table of that part of the grammar, {{properties}} for the record's own properties, and {{later}} for
// what isn't available yet.
//
//go:embed reference.md
var referenceText string

// Reference returns the reference page of pipeline files.
func Reference() []byte {
	g := grammar()
	var b strings.Builder
	for line := range strings.Lines(referenceText) {
		directive, ok := strings.CutPrefix(strings.TrimSpace(line), "{{")
		if !ok {
			b.WriteString(line)
			continue
		}
		switch name, path, _ := strings.Cut(strings.TrimSuffix(directive, "}}"), " "); name {
		case "settings":
			settingsTable(&b, g.at(path))
		case "properties":
			b.WriteString("| field | type | what it is |\n|---|---|---|\n")
			for _, m := range meta {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.name, m.typ.Type, m.doc)
			}
		case "later":
			b.WriteString(strings.Join(laterNames(g, ""), ", ") + "\n")
		default:
			panic("spec: the reference has a directive " + line)
		}
	}
	return []byte(b.String())
}

// at descends to a part of the grammar: names separated by dots, items passed through.
func (f *field) at(path string) *field {
	for name := range strings.SplitSeq(path, ".") {
		if name == "" {
			continue
		}
		if f = f.inner().child(name); f == nil {
			panic("spec: the grammar has no " + path)
		}
	}
	return f.inner()
}

// inner passes from lists, maps and enums to the objects in them.
func (f *field) inner() *field {
	for {
		switch {
		case f.enumOr != nil:
			f = f.enumOr
		case f.kind != kindObject && f.item != nil:
			f = f.item
		default:
			return f
		}
	}
}

func settingsTable(b *strings.Builder, f *field) {
	b.WriteString("| setting | value | default | what it does |\n|---|---|---|---|\n")
	var examples []string
	for _, c := range f.fields {
		if c.later {
			continue
		}
		def := c.def
		switch {
		case c.required:
			def = "**required**"
		case def == "":
			def = "–"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", c.name, strings.ReplaceAll(c.value(), "|", "\\|"), def, c.doc)
		if c.example != "" {
			examples = append(examples, c.example)
		}
	}
	if len(examples) > 0 {
		b.WriteString("\nFor example\n\n```yaml\n" + strings.Join(examples, "\n") + "\n```\n")
	}
}

// value says in a few words what may be written.
func (f *field) value() string {
	switch f.kind {
	case kindList:
		if f.item.kind == kindObject {
			return "list"
		}
		return "list: " + f.item.value()
	case kindMap:
		if f.item.kind == kindObject {
			return "by name"
		}
		return "by name: " + f.item.value()
	case kindObject:
		return "settings"
	case kindEnum:
		v := "`" + strings.Join(f.enum, "`, `") + "`"
		if f.enumOr != nil {
			v += ", or settings"
		}
		return v
	case kindInt:
		v := fmt.Sprintf("number, at least %d", f.min)
		if f.enumOr != nil {
			v += ", or settings"
		}
		return v
	case kindBool:
		return "`true`, `false`"
	case kindDuration:
		return "duration"
	case kindSize:
		return "size"
	case kindShare:
		return "share"
	case kindName, kindField:
		return "name"
	case kindRef:
		return "field"
	case kindExpr:
		return "expression"
	case kindAggregate:
		return "aggregate"
	case kindString:
		return "text"
	case kindValue:
		return "any value"
	}
	panic("spec: a field of no kind")
}

// laterNames lists what the grammar knows and this version can't run.
func laterNames(f *field, path string) []string {
	var all []string
	add := func(s string) {
		if s = "`" + s + "`"; !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	for _, c := range f.fields {
		name := c.name
		if path != "" {
			name = path + "." + c.name
		}
		if c.later {
			add(name)
			continue
		}
		for _, v := range c.laterEnum {
			add(name + ": " + v)
		}
		for _, n := range laterNames(c.inner(), name) {
			add(strings.Trim(n, "`"))
		}
	}
	return all
}
