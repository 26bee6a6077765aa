package spec

import (
	"strings"

	"github.com/tridentd/tridentd/internal/plan"
)

// definition describes the pipeline by its parts: what text says as a whole.
func (p *Pipeline) definition() *plan.Definition {
	d := &plan.Definition{}
	for i, s := range p.c.sources {
		part := plan.Part{Name: s.decl.name, Settings: []plan.Setting{
			{Name: "input", Value: p.connectors[i].describe, Items: p.connectors[i].inputs},
			{Name: "decode", Value: s.decl.decode.text()},
			{Name: "on_bad_record", Value: s.decl.onBad.String(), Policy: true},
		}}
		if s.decl.onBad == plan.DeadLetter {
			part.Settings = append(part.Settings, plan.Setting{Name: "dead_letters", Value: p.m.dead.limit.Definition(), Policy: true})
		}
		if t := s.decl.time; t != nil {
			part.Settings = append(part.Settings,
				plan.Setting{Name: "time", Value: s.decl.timeField.text},
				plan.Setting{Name: "lateness", Value: t.Lateness.String(), Policy: true},
				plan.Setting{Name: "idle", Value: orDefault(t.Idle, plan.DefaultIdle).String(), Policy: true},
				plan.Setting{Name: "future", Value: orDefault(t.Future, plan.DefaultFuture).String(), Policy: true})
		}
		d.Sources = append(d.Sources, part)
	}
	for i, s := range p.c.statics {
		d.Tables = append(d.Tables, plan.Part{Name: s.decl.name, Settings: []plan.Setting{
			{Name: "input", Value: p.tables[i].describe},
			{Name: "decode", Value: s.decl.decode.text()},
			{Name: "key", Value: s.decl.key.text},
		}})
	}
	for _, o := range p.c.outputs {
		if o.join != nil && o.join.timed {
			d.States = append(d.States, plan.StateDefinition{Schema: o.schema, Ways: p.m.waysTo(o.stream, o.step+1)})
		}
		if !o.kept {
			continue
		}
		def := plan.StateDefinition{Schema: o.schema, Ways: p.m.ways(o.stream)}
		for _, s := range p.m.upstream(o.stream) {
			for _, st := range s.steps {
				if st.op == "lookup" && p.m.looksIn(st) == nil {
					def.Tables = append(def.Tables, st.n.get("state").text)
				}
			}
		}
		d.States = append(d.States, def)
		if o.window.keyed() || o.ttl != nil {
			def.Schema = o.open
			d.States = append(d.States, def)
		}
	}
	return d
}

// upstream lists a stream and those before it.
func (m *model) upstream(s *streamDecl) []*streamDecl {
	all := []*streamDecl{s}
	for _, d := range m.dependencies(s) {
		all = append(all, m.upstream(d.on)...)
	}
	return all
}

// ways are the chains of steps from sources to the end of a stream. The names of the streams between play no part.
func (m *model) ways(s *streamDecl) []plan.Way {
	return m.waysTo(s, len(s.steps))
}

// waysTo is ways to the first n steps of a stream.
func (m *model) waysTo(s *streamDecl, n int) []plan.Way {
	var steps []string
	for _, st := range s.steps[:n] {
		steps = append(steps, st.change(s))
	}
	var all []plan.Way
	for _, f := range s.from {
		all = append(all, m.waysOn(f.text, steps)...)
	}
	for i, st := range s.steps[:n] {
		if with := st.n.get("with"); st.op == "join" && with != nil {
			all = append(all, m.waysOn(with.text, steps[i:])...)
		}
		if of := m.looksIn(st); of != nil {
			for _, w := range m.ways(of) {
				all = append(all, plan.Way{Source: w.Source, Steps: append(append([]string{}, w.Steps...), steps[i:]...)})
			}
		}
	}
	return all
}

// waysOn are the ways to what a name stands for, and further steps.
func (m *model) waysOn(name string, steps []string) []plan.Way {
	before := []plan.Way{{Source: name}}
	if up := m.stream(name); up != nil {
		before = m.ways(up)
	} else if up, at, side := m.late(name); up != nil {
		if st := up.steps[at]; st.op != "join" {
			before = m.waysTo(up, at+1)
		} else if before = m.waysOn(st.n.get("with").str(), nil); side == 0 {
			before = m.waysTo(up, at)
		}
		for i := range before {
			steps := before[i].Steps
			if st := up.steps[at]; st.op == "join" {
				steps = append(steps, st.change(up))
			}
			before[i].Steps = append(steps, "late")
		}
	}
	var all []plan.Way
	for _, w := range before {
		all = append(all, plan.Way{Source: w.Source, Steps: append(append([]string{}, w.Steps...), steps...)})
	}
	return all
}

// change is a step's text without what the state's schema says, its name, and for how long windows are kept; and without what is sent on.
func (st *stepDecl) change(s *streamDecl) string {
	text := st.text(s)
	switch st.op {
	case "aggregate":
		if st.emit != nil {
			text = strings.TrimSuffix(text, " emits "+st.emit.text)
		}
		text = strings.TrimSuffix(text, " in state "+s.state)
	case "window":
		text, _, _ = strings.Cut(text, " kept ")
	case "join":
		text, _, _ = strings.Cut(text, " late ")
	}
	return text
}
