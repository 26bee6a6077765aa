// Package change tells what a pipeline that has run differs in from what is to run now, what each difference means for the
// states that are kept, and whether what a user has decided settles it.
//
// It guarantees that nothing which changes what a kept state means, or what its bytes are, goes on by itself: such a difference
// stays open until it is accepted, or the state is made anew. It reads and writes nothing.
package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/state"
)

// Need is what a difference asks of the user.
type Need uint8

const (
	Nothing Need = iota // it goes on
	Accept              // kept states mean something else from now on
	Rebuild             // what is kept can't be read as what is declared
	Rename              // what is gone and what is new look like the same thing
)

// String is the need in a word.
func (n Need) String() string {
	return [...]string{"nothing", "accept", "rebuild", "rename"}[n]
}

// The kinds of parts.
const (
	Source = "source"
	Table  = "table"
	State  = "state"
)

// Difference is one thing in which two definitions differ.
type Difference struct {
	Kind, Name string
	// Aspect is what of the part differs: "added", "removed", "input", "step 2 from lines", "columns".
	Aspect  string
	Was, Is string // empty where there is nothing
	Need    Need
	States  []string // the kept states that it touches; for a state, itself
	// Means says what follows from it, if it goes on.
	Means string
	// Like is the removed part that an added one looks like.
	Like string
}

// String is the difference in a line.
func (d *Difference) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: ", d.Kind, d.Name)
	switch {
	case d.Was != "" && d.Is != "":
		fmt.Fprintf(&b, "%s: was %s, is %s", d.Aspect, d.Was, d.Is)
	case d.Was != "":
		fmt.Fprintf(&b, "%s: was %s", d.Aspect, d.Was)
	case d.Is != "":
		fmt.Fprintf(&b, "%s: %s", d.Aspect, d.Is)
	default:
		b.WriteString(d.Aspect)
	}
	if d.Kind != State && len(d.States) > 0 && d.Need != Nothing {
		fmt.Fprintf(&b, " (feeds %s)", strings.Join(d.States, ", "))
	}
	if d.Means != "" {
		b.WriteString("; " + d.Means)
	}
	return b.String()
}

// Compare lists the differences, sources first, each kind by name. Both definitions are as plan.Plan.Define returns them.
func Compare(was, is plan.Definition) []Difference {
	c := comparison{was: was, is: is, like: map[string]string{}}
	c.parts(Source, was.Sources, is.Sources)
	c.parts(Table, was.Tables, is.Tables)
	c.states()
	return c.all
}

type comparison struct {
	was, is plan.Definition
	like    map[string]string // by a new source: the one that is gone and reads the same
	all     []Difference
}

func (c *comparison) add(d Difference) { c.all = append(c.all, d) }

// parts compares sources or tables.
func (c *comparison) parts(kind string, was, is []plan.Part) {
	for _, name := range namesOf(was, is, func(p plan.Part) string { return p.Name }) {
		w, i := part(was, name), part(is, name)
		switch {
		case w == nil && kind == Source:
			d := Difference{Kind: kind, Name: name, Aspect: "added", Is: settingText(i, "input"), Means: "it begins as its start setting says"}
			if like := removedSource(was, is, i); like != "" {
				c.like[name] = like
				d.Need, d.Like, d.Means = Rename, like, fmt.Sprintf("it reads what source %s read, which is gone", like)
			}
			c.add(d)
		case w == nil:
			c.add(Difference{Kind: kind, Name: name, Aspect: "added", Is: settingText(i, "input"), Means: "it is read at the start"})
		case i == nil && kind == Source:
			c.add(Difference{Kind: kind, Name: name, Aspect: "removed", Was: settingText(w, "input"), Means: "its positions are kept"})
		case i == nil:
			c.add(Difference{Kind: kind, Name: name, Aspect: "removed", Was: settingText(w, "input"), Means: "its last content is kept"})
		default:
			c.settings(kind, w, i)
		}
	}
}

func (c *comparison) settings(kind string, was, is *plan.Part) {
	feeds := c.fed(kind, was.Name)
	for _, name := range namesOf(was.Settings, is.Settings, func(s plan.Setting) string { return s.Name }) {
		w, i := setting(was, name), setting(is, name)
		if w.Value == i.Value {
			continue
		}
		d := Difference{Kind: kind, Name: was.Name, Aspect: name, Was: w.Value, Is: i.Value}
		switch {
		case w.Policy || i.Policy:
			d.Means = "it counts from now on"
		case kind == Source && sameList(w, i):
			d.Means = "what is listed anew begins as the start setting says, the positions of what isn't listed any more are kept"
		case len(feeds) > 0:
			d.Need, d.States = Accept, feeds
		}
		c.add(d)
	}
}

// sameList tells whether of two settings nothing but the list of items differs, and that is the same list, longer or shorter.
func sameList(was, is plan.Setting) bool {
	rest := func(s plan.Setting) string { return strings.Replace(s.Value, strings.Join(s.Items, ", "), "", 1) }
	return len(was.Items) > 0 && len(is.Items) > 0 && rest(was) == rest(is) &&
		slices.ContainsFunc(was.Items, func(item string) bool { return slices.Contains(is.Items, item) })
}

// fed lists the states, kept by both, that a part feeds in both.
func (c *comparison) fed(kind, name string) []string {
	uses := func(s *plan.StateDefinition) bool {
		if kind == Table {
			return slices.Contains(s.Tables, name)
		}
		return slices.ContainsFunc(s.Ways, func(w plan.Way) bool { return w.Source == name })
	}
	var all []string
	for i := range c.is.States {
		s := &c.is.States[i]
		if w := stateOf(c.was.States, s.Schema.Name); w != nil && uses(w) && uses(s) {
			all = append(all, s.Schema.Name)
		}
	}
	return all
}

func (c *comparison) states() {
	for _, name := range namesOf(c.was.States, c.is.States, func(s plan.StateDefinition) string { return s.Schema.Name }) {
		w, i := stateOf(c.was.States, name), stateOf(c.is.States, name)
		switch {
		case w == nil:
			d := Difference{Kind: State, Name: name, Aspect: "added", Is: schemaText(&i.Schema), States: []string{name}, Means: "it begins empty, with what comes from now on"}
			if like := c.removedLike(i); like != "" {
				d.Need, d.Like = Rename, like
				d.Means = fmt.Sprintf("it looks like state %s, which is gone", like)
			}
			c.add(d)
		case i == nil:
			c.add(Difference{Kind: State, Name: name, Aspect: "removed", Was: schemaText(&w.Schema), States: []string{name}, Means: "its rows are kept, and nothing changes them any more"})
		default:
			c.schema(w, i)
			c.ways(w, i)
		}
	}
}

// removedSource finds a source that is gone and is declared just as p is.
func removedSource(was, is []plan.Part, p *plan.Part) string {
	for i := range was {
		if part(is, was[i].Name) == nil && len(p.Settings) > 0 && slices.EqualFunc(was[i].Settings, p.Settings, sameSetting) {
			return was[i].Name
		}
	}
	return ""
}

func sameSetting(a, b plan.Setting) bool { return a.Name == b.Name && a.Value == b.Value }

// removedLike finds a state that is gone and made just as s is.
func (c *comparison) removedLike(s *plan.StateDefinition) string {
	for i := range c.was.States {
		w := &c.was.States[i]
		if stateOf(c.is.States, w.Schema.Name) == nil && sameForm(&w.Schema, &s.Schema) && slices.EqualFunc(w.Ways, s.Ways, c.sameWay) && len(s.Ways) > 0 {
			return w.Schema.Name
		}
	}
	return ""
}

func (c *comparison) sameWay(was, is plan.Way) bool {
	return (was.Source == is.Source || was.Source == c.like[is.Source]) && slices.Equal(was.Steps, is.Steps)
}

// sameForm tells whether the bytes of one state can be read as those of the other.
func sameForm(a, b *state.Schema) bool {
	a, b = told(a, b)
	return formOf(a) == formOf(b)
}

// told leaves out what opaque values consist of where one of two schemas doesn't tell.
func told(a, b *state.Schema) (x, y *state.Schema) {
	if a.Kind != "opaque" || b.Kind != "opaque" || len(a.Values) > 0 && len(b.Values) > 0 {
		return a, b
	}
	was, is := *a, *b
	was.Values, is.Values = nil, nil
	return &was, &is
}

func (c *comparison) schema(was, is *plan.StateDefinition) {
	name := is.Schema.Name
	a, b := told(&was.Schema, &is.Schema)
	d := Difference{Kind: State, Name: name, Was: schemaText(a), Is: schemaText(b), States: []string{name}}
	switch {
	case !sameForm(&was.Schema, &is.Schema):
		d.Aspect, d.Need = "what it keeps", Rebuild
		d.Means = "what is kept can't be read as that"
		c.add(d)
	case d.Was != d.Is:
		d.Aspect, d.Need = "names of columns", Accept
		c.add(d)
	}
	if w, i := was.Schema.Window, is.Schema.Window; w != nil && i != nil && w.Retention != i.Retention {
		c.add(Difference{
			Kind: State, Name: name, Aspect: "retention", Was: durationText(w.Retention), Is: durationText(i.Retention), States: []string{name},
			Means: "it counts from now on",
		})
	}
}

func (c *comparison) ways(was, is *plan.StateDefinition) {
	if len(was.Ways) == 0 || len(is.Ways) == 0 {
		return // of one of them it isn't known
	}
	d := Difference{Kind: State, Name: is.Schema.Name, Need: Accept, States: []string{is.Schema.Name}}
	for _, source := range namesOf(was.Ways, is.Ways, func(w plan.Way) string { return w.Source }) {
		ws, is := waysFrom(was.Ways, source), waysFrom(is.Ways, source)
		for n := range max(len(ws), len(is)) {
			switch {
			case n >= len(ws):
				d.Aspect, d.Was, d.Is = "it is also fed from "+source, "", stepsText(is[n].Steps)
			case n >= len(is):
				d.Aspect, d.Was, d.Is = "it isn't fed from "+source+" any more", stepsText(ws[n].Steps), ""
			case slices.Equal(ws[n].Steps, is[n].Steps):
				continue
			default:
				at, w, i := middle(ws[n].Steps, is[n].Steps)
				d.Aspect = fmt.Sprintf("step %d from %s", at+1, source)
				d.Was, d.Is = stepsText(w), stepsText(i)
			}
			c.add(d)
		}
	}
}

// middle leaves out what two lists of steps begin and end with alike.
func middle(a, b []string) (at int, x, y []string) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b, at = a[1:], b[1:], at+1
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return at, a, b
}

// SameResults tells whether is makes of the batches that was has made just what that did: what differs has no part in them.
func SameResults(was, is plan.Definition) bool {
	fresh := func(source string) bool { return part(was.Sources, source) == nil }
	for _, d := range Compare(was, is) {
		switch {
		case d.Kind == Source && d.Aspect == "added", d.Kind == Table && d.Aspect == "removed":
		case d.Kind == Source && d.Aspect == "on_bad_record" && d.Was == "stop" && d.Is == "skip": // no bad record has come so far
		case d.Kind == State && d.Aspect == "added":
			s := stateOf(is.States, d.Name)
			if len(s.Ways) == 0 || slices.ContainsFunc(s.Ways, func(w plan.Way) bool { return !fresh(w.Source) }) {
				return false
			}
		default:
			return false
		}
	}
	return true
}
