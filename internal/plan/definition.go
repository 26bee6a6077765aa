package plan

import (
	"slices"
	"strings"

	"github.com/tridentd/tridentd/state"
)

// Definition says, part by part, what decides a pipeline's results: what Text says as a whole. The store keeps it, so that what
// a changed pipeline differs in can be named. It is made of what the pipeline declares: a function of Go is opaque, and
// one that has changed looks the same.
type Definition struct {
	Sources []Part            `json:"sources"` // by name
	Tables  []Part            `json:"tables,omitempty"`
	States  []StateDefinition `json:"states"` // by name, without the engine's own
}

// Part is a source, or a static table.
type Part struct {
	Name     string    `json:"name"`
	Settings []Setting `json:"settings"`
}

// Setting is one of a part's settings, as text.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Policy marks a setting that decides which records are turned away, and not what the others come to.
	Policy bool `json:"policy,omitempty"`
	// Items are what a source reads, as they stand in Value, joined by ", ": topics, files. Such a list may grow and shrink.
	Items []string `json:"items,omitempty"`
}

// StateDefinition is a state and how it comes about.
type StateDefinition struct {
	Schema state.Schema `json:"schema"`
	Ways   []Way        `json:"ways,omitempty"` // by source
	Tables []string     `json:"tables,omitempty"`
}

// Way is one chain of steps from a source to a state.
type Way struct {
	Source string   `json:"source"`
	Steps  []string `json:"steps"`
}

// Define completes what the plan's author has said of its parts: every source, and every state with one of the schemas, is
// listed, in order.
func (p *Plan) Define(schemas []state.Schema) Definition {
	var d Definition
	if p.Definition != nil {
		d = *p.Definition
	}
	d.Sources, d.Tables = slices.Clone(d.Sources), slices.Clone(d.Tables)
	for _, s := range p.Sources {
		if !slices.ContainsFunc(d.Sources, func(x Part) bool { return x.Name == s.ID }) {
			d.Sources = append(d.Sources, Part{Name: s.ID})
		}
	}
	byName := func(a, b Part) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(d.Sources, byName)
	slices.SortFunc(d.Tables, byName)
	described := d.States
	d.States = nil
	for _, s := range schemas {
		def := StateDefinition{Schema: s}
		if i := slices.IndexFunc(described, func(x StateDefinition) bool { return x.Schema.Name == s.Name }); i >= 0 {
			def = described[i]
			def.Schema = s
			def.Ways = slices.Clone(def.Ways)
			slices.SortStableFunc(def.Ways, func(a, b Way) int { return strings.Compare(a.Source, b.Source) })
			def.Tables = slices.Compact(slices.Sorted(slices.Values(def.Tables)))
		}
		d.States = append(d.States, def)
	}
	slices.SortFunc(d.States, func(a, b StateDefinition) int { return strings.Compare(a.Schema.Name, b.Schema.Name) })
	return d
}
