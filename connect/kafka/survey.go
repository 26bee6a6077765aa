package kafka

import (
	"context"

	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/kafka"
	"github.com/tridentd/tridentd/txstate"
)

var _ emitter.Surveyed = Source{}

// Survey implements emitter.Surveyed.
func (s Source) Survey(ctx context.Context, id string, _ emitter.Framing, env emitter.Env, q emitter.SurveyQuery) ([]emitter.Survey, error) {
	if s.err != nil {
		return nil, s.err
	}
	return kafka.Survey(ctx, s.cfg, id, env, q)
}

// Exporter makes what writes the source's offsets to a group on purpose: the named one, or else the source's own. It is a
// txstate.Exporting.
func (s Source) Exporter(pipeline, id, group string, env emitter.Env) (txstate.Mirror, error) {
	if s.err != nil {
		return nil, s.err
	}
	return NewExporter(s.cfg, pipeline, id, group, env)
}

// NewExporter makes what writes the offsets of a source to a group on purpose: the named one, or else the source's own.
func NewExporter(cfg kafka.Config, pipeline, id, group string, env emitter.Env) (txstate.Mirror, error) {
	if group != "" {
		cfg.Group = group
	}
	return NewMirror(cfg, pipeline, id, env)
}
