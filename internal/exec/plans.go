package exec

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/change"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
)

// DefinitionOf describes a plan by its parts, the engine's own states left out.
func DefinitionOf(p *plan.Plan) plan.Definition {
	return p.Define(slices.DeleteFunc(schemasOf(p), func(s state.Schema) bool { return ours(s.Name) }))
}

// ours tells whether a state is the engine's own.
func ours(name string) bool { return strings.HasPrefix(name, "_") }

// StoredDefinition is what the store says of the plan that its states are those of. A store that nobody has told one is taken to
// be of is, but for the states, which describe themselves.
func StoredDefinition(ctx context.Context, db *pebblestate.DB, is plan.Definition) (was plan.Definition, stored []state.Schema, err error) {
	snap, err := db.Snapshot()
	if err != nil {
		return was, nil, err
	}
	defer snap.Close() //nolint:errcheck // it only reads
	if stored, err = snap.Schemas(); err != nil {
		return was, nil, err
	}
	p, ok, err := db.Plan(ctx)
	if err != nil {
		return was, nil, err
	}
	if !ok {
		was.Sources, was.Tables = is.Sources, is.Tables
		for _, s := range stored {
			if !ours(s.Name) {
				was.States = append(was.States, plan.StateDefinition{Schema: s})
			}
		}
		return was, stored, nil
	}
	if err := json.Unmarshal(p.Definition, &was); err != nil {
		return was, nil, batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "open", fmt.Errorf("what the store says of plan %016x: %w", p.Sum, err),
			"restore a savepoint")
	}
	return was, stored, nil
}

// PlanFor is a plan as the store keeps it.
func PlanFor(sum uint64, d plan.Definition) pebblestate.Plan {
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // a Definition holds only strings and numbers
	}
	return pebblestate.Plan{Sum: sum, Definition: b}
}

// checkPlan compares the plan with the one that the store's states are those of. What goes on by itself is logged and the store
// told of it; anything else is refused. A replay runs what a plan has made, and compares nothing.
func (x *Executor) checkPlan(ctx context.Context, txid batch.Txid) error {
	is := DefinitionOf(x.plan)
	was, stored, err := StoredDefinition(ctx, x.cfg.DB, is)
	if err != nil {
		return err
	}
	if err := x.newSchemas(stored); err != nil {
		return err
	}
	now := PlanFor(x.cfg.PlanSum, is)
	have, known, err := x.cfg.DB.Plan(ctx)
	if err != nil || known && have.Sum == now.Sum && string(have.Definition) == string(now.Definition) {
		return err
	}
	if x.cfg.Tables == nil {
		r, err := change.Resolve(was, is, stored, change.Decisions{})
		if err != nil {
			return err
		}
		if len(r.Open) > 0 {
			return Refused(r.Open)
		}
		for i := range r.Steps {
			if s := &r.Steps[i]; txid > 0 {
				x.log.Info("the pipeline has changed", "action", s.Action, "what", said(s), "means", s.Means, "from_txid", uint64(txid)+1)
			}
		}
		if known && have.Sum != now.Sum && txid > 0 {
			x.log.Info("batches are made by another plan from here on", "from_txid", uint64(txid)+1, "plan", fmt.Sprintf("%016x", now.Sum), "was", fmt.Sprintf("%016x", have.Sum))
		}
	}
	if err := x.cfg.DB.SetPlan(ctx, now); err != nil || !known || have.Sum == now.Sum || txid == 0 || x.cfg.Tables != nil {
		return err
	}
	// Replays of what the plan is about to make begin here: they can't run what lies before.
	if _, err := x.cfg.DB.MakeBase(ctx, x.cfg.Now()); err != nil {
		x.log.Warn("no copy of the store could be kept where the plan changes: what comes can't be replayed before the next base is made", "error", err)
	}
	return nil
}

// said is what a step is about, in a line.
func said(s *change.Step) string {
	if s.Difference == nil {
		return s.What
	}
	d := *s.Difference
	d.Means = ""
	return d.String()
}

// newSchemas finds the states that the next commit describes: new ones, and those whose descriptions have changed. The engine's
// own states don't change.
func (x *Executor) newSchemas(stored []state.Schema) error {
	have := make(map[string]string, len(stored))
	for _, s := range stored {
		have[s.Name] = SchemaText(s)
	}
	x.schemas = nil
	for _, s := range schemasOf(x.plan) {
		was, ok := have[s.Name]
		now := SchemaText(s)
		if ok && was != now && ours(s.Name) {
			return batch.NewError(batch.Permanent, batch.CodeStoreForeign, "open",
				fmt.Errorf("state %s was kept as %s, this build keeps it as %s", s.Name, was, now), "use the build that wrote it, or restore a savepoint of this one")
		}
		if was != now {
			x.schemas = append(x.schemas, s)
		}
	}
	return nil
}

// Refused is the error of a start, or a migration, that leaves differences open.
func Refused(open []change.Difference) error {
	var b strings.Builder
	b.WriteString("the pipeline has changed, and what it has kept doesn't go with that:")
	var ways []string
	rebuilt := map[string]bool{} // states that nothing else settles
	add := func(way string) {
		if !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
	}
	for i := range open {
		d := &open[i]
		b.WriteString("\n  " + d.String())
		switch d.Need {
		case change.Nothing:
			panic("exec: " + d.String() + " is open, and needs nothing")
		case change.Accept:
			for _, s := range d.States {
				add("--rebuild " + s)
			}
		case change.Rebuild:
			add("--rebuild " + d.Name)
			rebuilt[d.Name] = true
		case change.Rename:
			if d.Kind == change.Source {
				add("--rename source:" + d.Like + "=" + d.Name)
			} else {
				add("--rename " + d.Like + "=" + d.Name)
			}
		}
	}
	accepted := func(d change.Difference) bool {
		return d.Need == change.Accept && slices.ContainsFunc(d.States, func(s string) bool { return !rebuilt[s] })
	}
	if slices.ContainsFunc(open, accepted) {
		add("--accept, if the change is meant and the rows are to go on")
	}
	if slices.ContainsFunc(open, func(d change.Difference) bool { return d.Need == change.Rename }) {
		add("--accept, if it is something new")
	}
	return batch.NewError(batch.Permanent, batch.CodePlanChanged, "open", errorText(b.String()),
		"undo the change; or give what has changed a new name; or run tridentd migrate with "+strings.Join(ways, ", or "))
}

// errorText is an error that is all text.
type errorText string

func (e errorText) Error() string { return string(e) }
