package gen

import (
	"context"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

var _ emitter.Surveyed = Source{}

// Survey tells how many records each partition has in all. Without a count the end is unknown, or, where the rate says
// when records come into being, the position: none come while nobody reads.
func (s Source) Survey(_ context.Context, id string, framing emitter.Framing, env emitter.Env, q emitter.SurveyQuery) ([]emitter.Survey, error) {
	em, err := s.Open(id, framing, env)
	if err != nil {
		return nil, err
	}
	e := em.(*Emitter)
	next := map[batch.Partition]int64{}
	for _, p := range q.Saved {
		next[p.Partition] = p.Next
	}
	all := make([]emitter.Survey, len(e.parts))
	for i := range all {
		p := e.partition(i)
		end := int64(-1)
		switch {
		case e.cfg.Count > 0:
			end = e.most(i)
		case e.cfg.Rate > 0:
			end = next[p]
		}
		all[i] = emitter.Survey{Partition: p, End: end, LogEnd: end, At: -1, Identity: e.identity}
	}
	return all, nil
}
