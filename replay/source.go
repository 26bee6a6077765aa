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
	saved  []batch.Position // where the store in question stands: what has become of the input since is noticed by it
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
	s := &source{Emitter: em}
	for _, p := range r.saved {
		if p.Source == id && p.Topic != "" { // one without a topic only says that the source has been opened before
			s.saved = append(s.saved, p)
		}
	}
	s.starts = slices.Clone(r.outline.starts[id])
	return s, nil
}

// knows tells whether a batch that is run knows a source: it is the first to read a partition of it.
func (r *run) knows(source string) bool { return len(r.outline.starts[source]) > 0 }

// Open checks the input against the positions of the store in question; where the batches begin, the ledger says.
func (s *source) Open(ctx context.Context, replayed []batch.Position, _ bool) ([]batch.Position, error) {
	if _, err := s.Emitter.Open(ctx, s.saved, false); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(s.starts, func(p batch.Position) bool {
		return slices.ContainsFunc(replayed, func(q batch.Position) bool { return q.Partition == p.Partition })
	}), nil
}

func (s *source) Discovered() []batch.Position { return nil }
func (s *source) Admit([]batch.Position)       {}
