package exec

import (
	"github.com/tridentd/tridentd/internal/plan"
)

// checkStages panics where a plan asks for what can't be: whoever compiled it is at fault. It tells whether a state has windows.
func checkStages(p *plan.Plan) (windowed bool) {
	stages := map[string]bool{}
	stage := func(name string) {
		if stages[name] {
			panic("exec: two stages are named " + name + ", by which the rows that they turn away are told apart")
		}
		stages[name] = true
	}
	for _, e := range p.Exchanges {
		st := e.State
		windowed = windowed || st != nil && st.Schema.Window != nil || e.Output != nil && e.Output.Schema.Window != nil
		if e.Next != nil || e.Operator != nil {
			stage(e.Name)
		}
		if e.Operator != nil {
			panic("exec: " + e.Name + " has an operator")
		}
		if st == nil {
			continue
		}
		switch {
		case st.Mergeable && st.Emit != 0:
			panic("exec: rows of " + e.Name + " are sent on, so its state can't be written as merge operands")
		case (st.Emit != 0) != (e.Next != nil):
			panic("exec: " + e.Name + " sends rows on, and nothing takes them, or the other way round")
		case st.Emit&plan.EmitCloses != 0:
			panic("exec: " + e.Name + " sends closing windows on")
		}
	}
	for _, q := range p.Persists {
		if q.Next != nil || q.Before != nil {
			panic("exec: a stage behind " + q.Name)
		}
	}
	return windowed
}
