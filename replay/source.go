package replay

import (
	"context"
	"fmt"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/plan"
)

// source reads recorded ranges of an emitter and plans none.
type source struct {
	emitter.Emitter
	starts []batch.Position // of every partition that joined in a batch to be run
}

// open is exec.Config.Sources.
func (r *run) open(id string) (emitter.Emitter, error) {
	i := slices.IndexFunc(r.plan.Sources, func(s *plan.Source) bool { return s.ID == id })
	if i < 0 {
		panic(fmt.Sprintf("replay: no source %q in the plan", id))
	}
	em, err := r.plan.Sources[i].Open(plan.Env{Logger: r.o.Logger.With("source", id)})
	if err != nil {
		return nil, err
	}
	return &source{Emitter: em, starts: slices.Clone(r.outline.starts[id])}, nil
}

// knows tells whether a batch that is run knows a source: it is the first to read a partition of it.
func (r *run) knows(source string) bool { return len(r.outline.starts[source]) > 0 }

// Open doesn't hold the input against where the store in question stands: each range is held against what was read of it, so that
// what has changed is named, and what lies before it can be replayed. Where the batches begin, the ledger says.
func (s *source) Open(ctx context.Context, replayed []batch.Position, _ bool) ([]batch.Position, error) {
	if _, err := s.Emitter.Open(ctx, nil, false); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(s.starts, func(p batch.Position) bool {
		return slices.ContainsFunc(replayed, func(q batch.Position) bool { return q.Partition == p.Partition })
	}), nil
}

func (s *source) Discovered() []batch.Position { return nil }
func (s *source) Admit([]batch.Position)       {}
