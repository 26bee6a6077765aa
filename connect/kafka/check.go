package kafka

import (
	"context"
	"fmt"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/kafka"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/txstate/kafkagroup"
)

var _ doctor.Checker = Source{}

// Check implements doctor.Checker: brokers, topics, and, unless it is a table's, the group that shows the offsets.
func (s Source) Check(ctx context.Context, env doctor.Env) []doctor.Finding {
	if s.err != nil {
		return []doctor.Finding{doctor.Of("kafka", s.err)}
	}
	return Check(ctx, s.cfg, !s.unmirrored && env.Source != "", env)
}

// Check asks the cluster of a source how it is, and, if the source's offsets are mirrored, the group that shows them.
func Check(ctx context.Context, cfg kafka.Config, mirrored bool, env doctor.Env) []doctor.Finding {
	var opts kafka.CheckOptions
	if mirrored {
		opts.Group = groupOf(cfg, env.Pipeline)
		if env.Locked {
			opts.TransactionalID = kafkagroup.TransactionalID(env.Pipeline, env.Source)
		}
	}
	findings := kafka.Check(ctx, cfg, opts, env)
	if !mirrored {
		return findings
	}
	for _, f := range findings {
		if f.Subject == groupSubject(opts.Group) && f.Level == doctor.OK { // it can be asked
			return append(findings, checkShown(ctx, cfg, opts.Group, env)...)
		}
	}
	return findings
}

func groupSubject(group string) string { return "kafka group " + group }

// checkShown compares what the group shows with what the store holds. Differences that the next run mends by itself are
// passed over.
func checkShown(ctx context.Context, cfg kafka.Config, group string, env doctor.Env) []doctor.Finding {
	m, err := NewMirror(cfg, env.Pipeline, env.Source, emitter.Env{})
	if err != nil {
		return []doctor.Finding{doctor.Of(groupSubject(group), err)}
	}
	defer m.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it has been told nothing
	shown, err := m.(txstate.Showing).Shown(ctx)
	if err != nil {
		f := doctor.Of(groupSubject(group), err)
		f.Level = doctor.Warn // the run tries again
		return []doctor.Finding{f}
	}
	next := map[batch.Partition]int64{}
	for _, p := range env.Positions {
		next[p.Partition] = p.Next
	}
	var findings []doctor.Finding
	add := func(level doctor.Level, code batch.Code, remedy, format string, args ...any) {
		for _, f := range findings {
			if f.Code == code {
				return // one partition is named for all
			}
		}
		findings = append(findings, doctor.Finding{Level: level, Subject: groupSubject(group), Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	for _, s := range shown {
		has, stored := next[s.Partition]
		where := fmt.Sprintf("%s-%d", s.Topic, s.Number)
		switch {
		case s.By != "":
			add(doctor.Warn, batch.CodeGroupForeign, "give each pipeline, and each other consumer, a group of its own",
				"the offset of %s, %d, was written by %s", where, s.Next, s.By)
		case env.Positions == nil && s.Txid > 0:
			add(doctor.Error, batch.CodeStoreMissing, "name the right --data, or restore a savepoint; run --fresh starts over",
				"shows that this pipeline has run up to txid %d, and the data directory is empty", s.Txid)
		case stored && s.Next > has && !env.Running:
			add(doctor.Warn, batch.CodeGroupAhead, "make sure that the pipeline doesn't run from another data directory too",
				"holds %d for %s, written at txid %d; the store stands at %d", s.Next, where, s.Txid, has)
		}
	}
	return findings
}
