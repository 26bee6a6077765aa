package engine

import (
	"regexp"
	"slices"
	"time"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/state"
)

// trail is how a stream has come about, for the plan's definition: its operators' kinds, as their functions are opaque.
type trail struct {
	source *sourceDef // where it begins; nil behind an operator
	from   []*trail
	step   *string // of the operator, which may be named later
	table  string  // that the operator looks up
}

// behind is the trail of an operator's stream.
func (t *trail) behind(step *string) *trail { return &trail{from: []*trail{t}, step: step} }

// stepNumber is what tells operators of one kind apart in errors: an operator added elsewhere changes it.
var stepNumber = regexp.MustCompile(` \d+$`)

// ways are the chains of operators from sources to the end of the trail, and the tables on them. Some operators don't show: a peek
// changes nothing, a merge is where ways meet, and event times are the source's.
func (t *trail) ways() (ways []plan.Way, tables []string) {
	if t == nil {
		return nil, nil
	}
	if t.source != nil {
		return []plan.Way{{Source: t.source.plan.ID}}, nil
	}
	step := ""
	if t.step != nil {
		step = stepNumber.ReplaceAllString(*t.step, "")
	}
	if t.table != "" {
		step += " in " + t.table
		tables = append(tables, t.table)
	}
	for _, f := range t.from {
		ws, ts := f.ways()
		tables = append(tables, ts...)
		for _, w := range ws {
			if step != "" && step != "peek" && step != "merge" && step != "event time" {
				w.Steps = append(slices.Clip(w.Steps), step)
			}
			ways = append(ways, w)
		}
	}
	return ways, tables
}

// define notes how a state comes about.
func (p *Pipeline) define(t *trail, name string, last ...string) {
	ways, tables := t.ways()
	for i := range ways {
		ways[i].Steps = append(slices.Clip(ways[i].Steps), last...)
	}
	p.defined = append(p.defined, plan.StateDefinition{Schema: state.Schema{Name: name}, Ways: ways, Tables: tables})
}

// definition describes the pipeline by its parts.
func (p *Pipeline) definition() *plan.Definition {
	d := &plan.Definition{States: p.defined, Tables: p.tables}
	for _, s := range p.sources {
		part := plan.Part{Name: s.plan.ID, Settings: []plan.Setting{
			{Name: "input", Value: s.desc, Items: s.inputs},
			{Name: "decode", Value: s.decode},
			{Name: "on_bad_record", Value: p.onBad.String(), Policy: true},
		}}
		if p.dead != nil {
			part.Settings = append(part.Settings, plan.Setting{Name: "dead_letters", Value: p.dead.limit.Definition(), Policy: true})
		}
		if t := s.plan.Time; t != nil {
			part.Settings = append(part.Settings,
				plan.Setting{Name: "time", Value: "a function"},
				plan.Setting{Name: "lateness", Value: t.Lateness.String(), Policy: true},
				plan.Setting{Name: "idle", Value: or(t.Idle, plan.DefaultIdle).String(), Policy: true},
				plan.Setting{Name: "future", Value: or(t.Future, plan.DefaultFuture).String(), Policy: true})
		}
		d.Sources = append(d.Sources, part)
	}
	return d
}

func or(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}
