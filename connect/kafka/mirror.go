package kafka

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/kafka"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/txstate/kafkagroup"
)

// DefaultGroup is the group of a pipeline's sources that name none.
func DefaultGroup(pipeline string) string { return kafkagroup.DefaultGroup(pipeline) }

// NewMirror makes what shows the committed offsets of a source in its group, the pipeline's default group if it has
// none.
func NewMirror(cfg kafka.Config, pipeline, id string, env emitter.Env) (txstate.Mirror, error) {
	opts, err := cfg.ClientOptions(env.Logger)
	if err != nil {
		return nil, err
	}
	reads := func(topic string) bool { return slices.Contains(cfg.Topics, topic) }
	if cfg.Pattern != "" {
		pattern, err := regexp.Compile(`^(?:` + cfg.Pattern + `)$`)
		if err != nil {
			return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "kafka source", fmt.Errorf("pattern: %w", err), "mend the regular expression")
		}
		reads = pattern.MatchString
	}
	m, err := kafkagroup.New(kafkagroup.Config{
		Group: groupOf(cfg, pipeline), Pipeline: pipeline, Source: id, Reads: reads, Client: opts, Logger: env.Logger, Timeout: min(cfg.Timeout, kafkagroup.DefaultTimeout),
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Mirrored names what the mirror of a source writes.
func Mirrored(cfg kafka.Config, pipeline string) []string {
	brokers := slices.Sorted(slices.Values(cfg.Brokers))
	group := fmt.Sprintf("consumer group %s at %s", groupOf(cfg, pipeline), strings.Join(brokers, ", "))
	if cfg.Pattern != "" {
		return []string{fmt.Sprintf("the offsets of topics like %s in %s", cfg.Pattern, group)}
	}
	var all []string
	for _, t := range cfg.Topics {
		all = append(all, fmt.Sprintf("the offsets of topic %s in %s", t, group))
	}
	return all
}

func groupOf(cfg kafka.Config, pipeline string) string {
	if cfg.Group != "" {
		return cfg.Group
	}
	return kafkagroup.DefaultGroup(pipeline)
}

// Mirror implements engine.MirroredSource.
func (s Source) Mirror(pipeline, id string, env emitter.Env) (txstate.Mirror, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.unmirrored {
		return nil, nil //nolint:nilnil // no mirror is no error
	}
	return NewMirror(s.cfg, pipeline, id, env)
}

// Mirrored implements engine.MirroredSource.
func (s Source) Mirrored(pipeline string) []string {
	if s.unmirrored {
		return nil
	}
	return Mirrored(s.cfg, pipeline)
}
