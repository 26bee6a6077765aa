package change

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/state"
)

// Decisions are what a user has said of the differences. The zero value says nothing.
type Decisions struct {
	Accept          bool              // what has changed is meant: the kept states go on
	Rename, Sources map[string]string // states and sources with another name, by their old one
	Rebuild         []string          // kept states to be made anew from the recorded batches
	RebuildAll      bool              // every state that the pipeline keeps
	Backfill        []string          // new states to be filled from the recorded batches
	Drop            []string          // states that nothing changes any more, to be removed with their rows
}

// The actions of steps.
const (
	ActionAccept       = "accept"
	ActionRename       = "rename"
	ActionRenameSource = "rename source"
	ActionDrop         = "drop"
	ActionRebuild      = "rebuild"
	ActionBackfill     = "backfill"
	ActionBegin        = "begin" // a new state, source or table, by itself
	ActionKeep         = "keep"  // what nothing changes any more, by itself
	ActionApply        = "apply" // a setting that counts from now on, by itself
)

// Step is one thing that a migration does, or that a start does by itself.
type Step struct {
	Action string
	What   string // kind and name of what it is done to
	Old    string // rename
	// Difference is what the step is about, where that is one.
	Difference *Difference
	Name       string // of the state or source, as it is afterwards
	Means      string
}

// ByItself tells whether a start takes the step without being told.
func (s *Step) ByItself() bool {
	return s.Action == ActionBegin || s.Action == ActionKeep || s.Action == ActionApply
}

// String is the step in the grammar of the command migrate.
func (s *Step) String() string {
	switch s.Action {
	case ActionRename:
		return "rename " + s.Old + "=" + s.Name
	case ActionRenameSource:
		return "rename source:" + s.Old + "=" + s.Name
	case ActionAccept:
		return "accept " + s.Difference.String()
	}
	return s.Action + " " + s.Name
}

// Resolution is what comes of two definitions and a user's decisions.
type Resolution struct {
	Differences []Difference // with the renames applied
	Open        []Difference // those of them that no decision settles
	Steps       []Step
	// Schemas are those of kept states whose descriptions change, though not their bytes.
	Schemas []state.Schema
	// Refill lists the states to be made from the recorded batches: rebuilt and backfilled ones, by name.
	Refill []string
}

// Resolve applies decisions to what Compare finds. stored are the schemas of all states in the store: it may hold more than
// the pipeline that ran last has declared. Decisions that fit nothing are an error.
func Resolve(was, is plan.Definition, stored []state.Schema, d Decisions) (*Resolution, error) {
	r := &resolver{was: was, is: is, stored: stored, d: d, out: &Resolution{}}
	if err := r.renames(); err != nil {
		return nil, err
	}
	r.out.Differences = Compare(r.was, r.is)
	r.left()
	if err := r.check(); err != nil {
		return nil, err
	}
	for i := range r.out.Differences {
		r.settle(&r.out.Differences[i])
	}
	r.drop()
	r.refill()
	for i := range r.is.States {
		s := &r.is.States[i]
		if w := stateOf(r.was.States, s.Schema.Name); w != nil && !r.remade(s.Schema.Name) && sameForm(&w.Schema, &s.Schema) && !sameSchema(&w.Schema, &s.Schema) {
			r.out.Schemas = append(r.out.Schemas, s.Schema)
		}
	}
	return r.out, nil
}

type resolver struct {
	was, is plan.Definition
	stored  []state.Schema
	d       Decisions
	out     *Resolution
}

func (r *resolver) remade(name string) bool {
	return r.d.RebuildAll || slices.Contains(r.d.Rebuild, name) || slices.Contains(r.d.Backfill, name)
}

// renames gives what was its new names.
func (r *resolver) renames() error {
	var errs []error
	w := r.was
	w.Sources, w.States = slices.Clone(w.Sources), slices.Clone(w.States)
	taken := map[string]string{} // the old name, by the new one
	for _, old := range slices.Sorted(maps.Keys(r.d.Sources)) {
		name := r.d.Sources[old]
		from, to := part(r.was.Sources, old), part(r.is.Sources, name)
		first, twice := taken[name]
		taken[name] = old
		switch {
		case twice:
			errs = append(errs, fmt.Errorf("sources %s and %s can't both become %s: each has positions of its own", first, old, name))
		case from == nil:
			errs = append(errs, noSuch(Source, old, "the store", namesIn(r.was.Sources)))
		case to == nil:
			errs = append(errs, noSuch(Source, name, "the pipeline", namesIn(r.is.Sources)))
		case part(r.was.Sources, name) != nil && r.d.Sources[name] == "":
			errs = append(errs, fmt.Errorf("source %s can't become %s: the store knows a source of that name", old, name))
		default:
			for i := range w.Sources {
				if r.was.Sources[i].Name == old {
					w.Sources[i].Name = name
				}
			}
			r.step(Step{Action: ActionRenameSource, What: "source " + old, Old: old, Name: name, Means: "its positions go on under that name"})
		}
	}
	for i := range w.States {
		ways := slices.Clone(w.States[i].Ways)
		for j := range ways {
			if to, ok := r.d.Sources[ways[j].Source]; ok {
				ways[j].Source = to
			}
		}
		slices.SortStableFunc(ways, func(a, b plan.Way) int { return strings.Compare(a.Source, b.Source) })
		w.States[i].Ways = ways
	}
	clear(taken)
	for _, old := range slices.Sorted(maps.Keys(r.d.Rename)) {
		name := r.d.Rename[old]
		first, twice := taken[name]
		taken[name] = old
		i := slices.IndexFunc(r.stored, func(s state.Schema) bool { return s.Name == old })
		switch {
		case twice:
			errs = append(errs, fmt.Errorf("states %s and %s can't both become %s: each has rows of its own", first, old, name))
		case slices.Contains(r.d.Drop, old):
			errs = append(errs, fmt.Errorf("state %s can't be dropped and go on as %s: say one of both", old, name))
		case i < 0:
			errs = append(errs, noSuch(State, old, "the store", r.storedNames()))
		case strings.HasPrefix(old, "_"):
			errs = append(errs, fmt.Errorf("state %s is the engine's own", old))
		case stateOf(r.is.States, name) == nil:
			errs = append(errs, noSuch(State, name, "the pipeline", statesIn(r.is.States)))
		case r.holds(name) && r.d.Rename[name] == "" && !slices.Contains(r.d.Drop, name):
			errs = append(errs, fmt.Errorf("state %s can't become %s: the store holds a state of that name; drop it, or rename it, too", old, name))
		default:
			if at := slices.IndexFunc(r.was.States, func(s plan.StateDefinition) bool { return s.Schema.Name == old }); at >= 0 {
				w.States[at].Schema.Name = name
			} else { // nothing has changed it for longer than the last plan
				s := r.stored[i]
				s.Name = name
				w.States = append(w.States, plan.StateDefinition{Schema: s})
			}
			r.step(Step{Action: ActionRename, What: "state " + old, Old: old, Name: name, Means: "its rows go on under that name"})
		}
	}
	slices.SortFunc(w.Sources, func(a, b plan.Part) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(w.States, func(a, b plan.StateDefinition) int { return strings.Compare(a.Schema.Name, b.Schema.Name) })
	r.was = w
	return errors.Join(errs...)
}

// left finds states that come back: their rows have missed whatever was counted in between.
func (r *resolver) left() {
	for i := range r.out.Differences {
		d := &r.out.Differences[i]
		at := slices.IndexFunc(r.stored, func(s state.Schema) bool { return s.Name == d.Name })
		if d.Kind != State || d.Aspect != "added" || at < 0 || slices.Contains(r.d.Drop, d.Name) {
			continue
		}
		d.Aspect, d.Need, d.Like, d.Was = "back again", Accept, "", schemaText(&r.stored[at])
		d.Means = "the store holds rows of it that nothing has changed since it was taken out of the pipeline"
		if !sameForm(&r.stored[at], &stateOf(r.is.States, d.Name).Schema) {
			d.Need = Rebuild
		}
	}
}

// check refuses decisions that fit nothing.
func (r *resolver) check() error {
	var errs []error
	for _, name := range r.d.Rebuild {
		switch {
		case stateOf(r.is.States, name) == nil:
			errs = append(errs, noSuch(State, name, "the pipeline", statesIn(r.is.States)))
		case stateOf(r.was.States, name) == nil && !r.holds(name):
			errs = append(errs, fmt.Errorf("state %s is new: backfill it", name))
		}
	}
	for _, name := range r.d.Backfill {
		switch {
		case stateOf(r.is.States, name) == nil:
			errs = append(errs, noSuch(State, name, "the pipeline", statesIn(r.is.States)))
		case stateOf(r.was.States, name) != nil:
			errs = append(errs, fmt.Errorf("state %s isn't new: rebuild it", name))
		}
	}
	for _, name := range r.d.Drop {
		renamed := slices.Contains(slices.Collect(maps.Values(r.d.Rename)), name)
		switch {
		case !r.holds(name):
			errs = append(errs, noSuch(State, name, "the store", r.storedNames()))
		case strings.HasPrefix(name, "_"):
			errs = append(errs, fmt.Errorf("state %s is the engine's own", name))
		case stateOf(r.is.States, name) != nil && stateOf(r.was.States, name) != nil && !renamed:
			errs = append(errs, fmt.Errorf("state %s is kept by the pipeline: take it out there first", name))
		}
	}
	return errors.Join(errs...)
}

// holds tells whether the store has a state of that name, be it one that nothing changes any more.
func (r *resolver) holds(name string) bool {
	return slices.ContainsFunc(r.stored, func(s state.Schema) bool { return s.Name == name })
}

func (r *resolver) storedNames() []string {
	var all []string
	for _, s := range r.stored {
		if !strings.HasPrefix(s.Name, "_") {
			all = append(all, s.Name)
		}
	}
	return all
}

// settle makes a step of a difference, or leaves it open.
func (r *resolver) settle(d *Difference) {
	remade := len(d.States) > 0 && !slices.ContainsFunc(d.States, func(s string) bool { return !r.remade(s) })
	switch {
	case d.Aspect == "added" && d.Kind == State:
		if slices.Contains(r.d.Backfill, d.Name) || r.d.RebuildAll {
			return // a step of its own
		}
		if d.Need == Rename && !r.d.Accept && !slices.Contains(r.d.Drop, d.Like) {
			r.out.Open = append(r.out.Open, *d)
			return
		}
		r.step(Step{Action: ActionBegin, What: "state " + d.Name, Name: d.Name, Means: "empty, with what comes from now on", Difference: d})
	case d.Aspect == "removed" && d.Kind == State:
		if !slices.Contains(r.d.Drop, d.Name) {
			r.step(Step{Action: ActionKeep, What: "state " + d.Name, Name: d.Name, Means: d.Means, Difference: d})
		}
	case d.Need == Rename && !r.d.Accept:
		r.out.Open = append(r.out.Open, *d)
	case d.Aspect == "added":
		r.step(Step{Action: ActionBegin, What: d.Kind + " " + d.Name, Name: d.Name, Means: d.Means, Difference: d})
	case d.Aspect == "removed":
		r.step(Step{Action: ActionKeep, What: d.Kind + " " + d.Name, Name: d.Name, Means: d.Means, Difference: d})
	case d.Need == Nothing:
		r.step(Step{Action: ActionApply, What: d.Kind + " " + d.Name, Name: d.Name, Means: d.Means, Difference: d})
	case remade: // a step of its own
	case d.Need == Accept && r.d.Accept:
		r.step(Step{Action: ActionAccept, What: d.Kind + " " + d.Name, Name: d.Name, Means: "what is kept goes on with it", Difference: d})
	default:
		r.out.Open = append(r.out.Open, *d)
	}
}

func (r *resolver) drop() {
	for _, name := range slices.Sorted(slices.Values(r.d.Drop)) {
		r.step(Step{Action: ActionDrop, What: "state " + name, Name: name, Means: "its rows are removed"})
	}
}

func (r *resolver) refill() {
	for i := range r.is.States {
		name := r.is.States[i].Schema.Name
		switch {
		case !r.remade(name):
		case stateOf(r.was.States, name) != nil:
			r.out.Refill = append(r.out.Refill, name)
			r.step(Step{Action: ActionRebuild, What: "state " + name, Name: name, Means: "made anew from the recorded batches"})
		default:
			r.out.Refill = append(r.out.Refill, name)
			r.step(Step{Action: ActionBackfill, What: "state " + name, Name: name, Means: "filled from the recorded batches"})
		}
	}
}

func (r *resolver) step(s Step) { r.out.Steps = append(r.out.Steps, s) }

func noSuch(kind, name, where string, have []string) error {
	hint := ""
	if near, ok := names.Nearest(name, have); ok {
		hint = fmt.Sprintf("; did you mean %s?", near)
	} else if len(have) > 0 {
		hint = "; it has " + strings.Join(have, ", ")
	}
	return fmt.Errorf("%s has no %s %q%s", where, kind, name, hint)
}

func namesIn(all []plan.Part) []string {
	var list []string
	for _, p := range all {
		list = append(list, p.Name)
	}
	return list
}

func statesIn(all []plan.StateDefinition) []string {
	var list []string
	for _, s := range all {
		list = append(list, s.Schema.Name)
	}
	return list
}

func sameSchema(a, b *state.Schema) bool {
	return schemaText(a) == schemaText(b) && (a.Window == nil || b.Window == nil || *a.Window == *b.Window)
}
