package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/deadletter"
)

// DeadTarget is where dead letters go: kafka.Cluster's DeadLetters, filesink.DeadLetters, or a target of one's own.
type DeadTarget = Target[*deadletter.Letter]

// LettersReader is a DeadTarget whose letters can be read again: the command deadletters lists them.
type LettersReader interface {
	ReadLetters(ctx context.Context, env emitter.Env, pipeline string, yield func(*deadletter.Letter) error) error
}

// DeadLetters sends bad records to a target, with their own bytes, where they came from, and why: once each, in the same way as To
// sends its output. So it does with those that are late or too far in the future, which otherwise go to the state _rejected. The
// pipeline stops when there are more than DeadLimit lets pass.
func DeadLetters(target DeadTarget) PipelineOption {
	return func(p *Pipeline) {
		if p.dead == nil {
			p.dead = &deadDef{}
		}
		p.dead.target = target
	}
}

// DeadLimit is how many bad records may become dead letters before the pipeline stops; what is met first counts. Late records, and those of
// the future, don't count.
type DeadLimit struct {
	// Count is the most within Within, and Share the largest part of the records read within it, above 0 and at most 1; 10 are never too large a
	// share. The defaults are 1,000 and 0.01. Where one of them is given, the other sets no bound.
	Count int64
	Share float64
	// Within is how far back of the batch's clock is counted; the default is an hour.
	Within time.Duration
}

// WithDeadLimit sets the limit of DeadLetters.
func WithDeadLimit(l DeadLimit) PipelineOption {
	return func(p *Pipeline) {
		if l.Count < 0 || l.Within < 0 || !(l.Share >= 0 && l.Share <= 1) {
			p.errorf("DeadLimit: a value out of range in %+v", l)
		}
		if p.dead == nil {
			p.dead = &deadDef{}
		}
		p.dead.limit = plan.DeadLimit{Count: l.Count, Share: l.Share, Within: l.Within}
	}
}

// deadDef is what the options say of dead letters.
type deadDef struct {
	target DeadTarget // nil: only a limit was set
	limit  plan.DeadLimit
	sink   *sinkDef
}

// checkDead completes the policy, and reports options that don't go together.
func (p *Pipeline) checkDead() []error {
	wrong := func(remedy, format string, args ...any) []error {
		return []error{batch.NewError(batch.Permanent, batch.CodeConfiguration, "", fmt.Errorf(format, args...), remedy)}
	}
	if p.dead == nil {
		if p.onBad == plan.DeadLetter {
			return wrong("add engine.DeadLetters", "OnBadRecord(DeadLetter): no option says where dead letters go")
		}
		return nil
	}
	switch {
	case p.dead.target == nil:
		return wrong("add engine.DeadLetters", "WithDeadLimit: no option says where dead letters go")
	case p.policySet && p.onBad != plan.DeadLetter:
		return wrong("leave one of the options out", "DeadLetters: by OnBadRecord(%s) nothing would go there", p.onBad)
	}
	for _, d := range p.sinks {
		if d.plan.Name == plan.DeadLettersSink && d != p.dead.sink {
			return wrong("give it another name", "a sink named %q takes the dead letters", d.plan.Name)
		}
	}
	p.onBad, p.dead.limit = plan.DeadLetter, p.dead.limit.WithDefaults()
	return nil
}

// planDead adds dead letters and their sink to the plan.
func (p *Pipeline) planDead(pl *plan.Plan) {
	d := p.dead
	if d == nil {
		return
	}
	t := d.target
	d.sink = addSink(p, plan.DeadLettersSink, t)
	p.text = append(p.text, fmt.Sprintf("dead letters: %s, %s", t.Describe(), d.limit.Definition()))
	pl.Lines = append(slices.Clip(pl.Lines), fmt.Sprintf("dead letters: %s; at most %s", t.Describe(), d.limit))
	pl.Dead = &plan.DeadLetters{Limit: d.limit, Encode: func(l *deadletter.Letter, r *sink.Record) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = panicError(v)
			}
		}()
		return t.Encode(l, r)
	}}
	if lr, ok := t.(LettersReader); ok {
		pl.Dead.Read = func(ctx context.Context, env plan.Env, yield func(*deadletter.Letter) error) error {
			return lr.ReadLetters(ctx, env, p.name, yield)
		}
	}
}
