package change

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/state"
)

// namesOf lists the names in both, in order, each once.
func namesOf[T any](a, b []T, name func(T) string) []string {
	var all []string
	for _, list := range [][]T{a, b} {
		for _, v := range list {
			all = append(all, name(v))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func part(all []plan.Part, name string) *plan.Part {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

func stateOf(all []plan.StateDefinition, name string) *plan.StateDefinition {
	for i := range all {
		if all[i].Schema.Name == name {
			return &all[i]
		}
	}
	return nil
}

func setting(p *plan.Part, name string) plan.Setting {
	for _, s := range p.Settings {
		if s.Name == name {
			return s
		}
	}
	return plan.Setting{Name: name}
}

func settingText(p *plan.Part, name string) string { return setting(p, name).Value }

func waysFrom(all []plan.Way, source string) []plan.Way {
	var found []plan.Way
	for _, w := range all {
		if w.Source == source {
			found = append(found, w)
		}
	}
	return found
}

func stepsText(steps []string) string {
	if len(steps) == 0 {
		return "nothing"
	}
	return strings.Join(steps, " | ")
}

// schemaText is what a state keeps, but for its name and its window's retention.
func schemaText(s *state.Schema) string {
	columns := func(cols []state.Column) string {
		var parts []string
		for _, c := range cols {
			text := c.Name + " " + c.Type
			if c.Agg != "" {
				text = fmt.Sprintf("%s %s(%s)", c.Name, c.Agg, c.Type)
			}
			parts = append(parts, text)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return strings.TrimSpace(columns(s.Values) + " by " + columns(s.Key) + windowText(s.Window))
}

func windowText(w *state.Window) string {
	if w == nil {
		return ""
	}
	text := " in windows of " + durationText(w.Size)
	if w.Slide != 0 {
		text += " every " + durationText(w.Slide)
	}
	if w.Offset != 0 {
		text += " offset " + durationText(w.Offset)
	}
	if w.Zone != "" {
		text += " in " + w.Zone
	}
	if w.ByBatch {
		text += " of batch time"
	}
	return text
}

// formOf is all of a schema that its bytes depend on.
func formOf(s *state.Schema) string {
	c := *s
	c.Name = ""
	blank := func(cols []state.Column) []state.Column {
		cols = slices.Clone(cols)
		for i := range cols {
			cols[i].Name = ""
		}
		return cols
	}
	c.Key = blank(c.Key)
	if c.Kind != "opaque" { // of such values a column says which of their parts it is
		c.Values = blank(c.Values)
	}
	if c.Window != nil {
		w := *c.Window
		w.Retention = 0
		c.Window = &w
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // a Schema holds only strings and numbers
	}
	return string(b)
}

func durationText(ns int64) string { return time.Duration(ns).String() }
