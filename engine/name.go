package engine

import "github.com/tridentd/tridentd/internal/plan"

// stepName is how an operator is called in errors, rows turned away and the plan.
type stepName struct {
	step string
	// What Name needs to change it; line is 0 where it can't.
	kind, suffix string
	line         int            // in the plan, from 1
	stage        *plan.Exchange // that is called like the step; nil: none
	renamed      func()         // is called when the step's name has changed; nil: nothing else depends on it
}

// named numbers the operator and adds it to the plan. The functions of a chain ask for the step when they are built: Name may
// have changed it by then.
func (n *stepName) named(p *Pipeline, kind, suffix string) {
	n.step, n.kind, n.suffix = p.step(kind), kind, suffix
	p.describe("  %s%s", n.step, suffix)
	n.line = len(p.lines)
}

// Name gives a name to the operator that s comes from: "map 3" is then called by it in errors, in the rows that are turned away and in
// the plan, whatever is added to the pipeline before it. The sequences of Batch.Rand go by it. Sources, states and batch aggregates have their names already.
func (s Stream[T]) Name(name string) Stream[T] {
	p, n := s.p, s.n
	p.checkName("operator", name)
	switch {
	case n.line == 0:
		p.errorf("Name(%q): it belongs directly behind an operator that has no name of its own", name)
		return s
	case p.names[name]:
		p.errorf("two operators are named %q", name)
	case n.stage != nil && p.hasStage(name):
		p.errorf("Name(%q): a batch aggregate, or a state whose rows are sent on, has the same name", name)
	}
	p.names[name] = true
	if t := s.trail; t.step == &n.step { // how states come about goes on to be told by kinds
		kind := n.kind
		t.step = &kind
	}
	n.step = name
	if n.stage != nil {
		n.stage.Name = name
	}
	line := "  " + n.kind + " " + name + n.suffix
	p.lines[n.line-1], p.text[n.line-1] = line, line
	n.line = 0
	if n.renamed != nil {
		n.renamed()
	}
	return s
}

// Parallelism bounds how many of the tasks that s lies in work at once: partitions of its sources, or partitions of the stage behind
// a repartitioning, a join or an aggregate. It spares memory, or a server that a function asks; no result depends on it, and
// without it all cores are used. The least of several bounds counts. Behind PartitionPersistEmit tasks work one after the other anyway.
// The streams of a query can't be bounded: each call has one task, and callers decide how many there are.
func (s Stream[T]) Parallelism(n int) Stream[T] {
	switch {
	case n < 1:
		s.p.errorf("Parallelism(%d): at least one task must work", n)
	case s.p.outer != nil && len(s.at) == 0:
		s.p.errorf("Parallelism: it can't bound how many calls of a query are answered at once")
	}
	for _, bound := range s.at {
		if *bound == 0 || n < *bound {
			*bound = n
		}
	}
	return s
}

// Apply hands s to a reusable piece of pipeline and returns what that makes of it: Trident's applyAssembly.
func (s Stream[T]) Apply(assembly func(Stream[T]) Stream[T]) Stream[T] { return assembly(s) }

// Apply is Stream.Apply for a piece whose result is of another type.
func Apply[T, U any](s Stream[T], assembly func(Stream[T]) Stream[U]) Stream[U] { return assembly(s) }
