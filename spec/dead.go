package spec

import (
	"context"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/sink/deadletter"
)

func deadLettersField() *field {
	return &field{
		name: "dead_letters", kind: kindObject,
		doc:     "Where records go whose source has `on_bad_record: dead_letter`: see [dead-letters.md](dead-letters.md).",
		example: "dead_letters: {kafka: {topic: orders-dead}}",
		fields: []*field{
			{name: "kafka", kind: kindObject, operator: true, doc: "A topic of a Kafka cluster. A letter is the record as it was, key, value and headers, with headers `tridentd.…` added.", fields: kafkaTarget()},
			{name: "file", kind: kindObject, operator: true, doc: "Files in a folder: one for each batch that has dead letters, a line of JSON for each.", fields: []*field{
				{name: "dir", kind: kindString, required: true, example: "dir: dead", doc: "The folder; it is made if it isn't there. A relative one is relative to the pipeline's file."},
			}},
			{name: "limit", kind: kindObject, def: "1,000 or 1% within 1h", doc: "How many bad records the pipeline lets pass before it stops: what is met first. Where one of `count` and `share` is given, the other sets no bound. Late rows, and those of the future, don't count.", fields: []*field{
				{name: "count", kind: kindInt, min: 1, def: "1,000", doc: "The most dead letters."},
				{name: "share", kind: kindShare, def: "1%", example: "share: 0.5%", doc: "The largest share of the records read, of all sources together; 10 dead letters are never too large a share."},
				{name: "within", kind: kindDuration, min: 1, def: "1h", doc: "How far back is counted, by the clocks of the batches."},
			}},
		},
	}
}

// deadDecl is `dead_letters`.
type deadDecl struct {
	target *sinkDecl // of the name plan.DeadLettersSink, without rows of streams
	limit  plan.DeadLimit
}

// deadLetters reads `dead_letters`; given tells that it stands in the file, be it wrong.
func (b *modeler) deadLetters(n *node, given bool) {
	used := slices.IndexFunc(b.m.sources, func(s *sourceDecl) bool { return s.onBad == plan.DeadLetter })
	if n == nil {
		if used >= 0 && !given {
			b.add(b.m.sources[used].at, "dead_letters: {kafka: {topic: …}}, or {file: {dir: …}}", "the bad records of source %s are to be dead letters, and dead_letters names no place for these", b.m.sources[used].name)
		}
		return
	}
	if used < 0 && len(b.broken) == 0 {
		b.add(n.keyAt, "set on_bad_record: dead_letter", "no source has the policy dead_letter: nothing would go there")
	}
	for _, s := range b.m.sinks {
		if s.name == plan.DeadLettersSink {
			b.add(s.at, "give it another name", "a sink of this name takes the dead letters (line %d)", n.keyAt.line)
		}
	}
	d := &deadDecl{target: &sinkDecl{name: plan.DeadLettersSink, at: n.keyAt}}
	d.target.connector, d.target.settings = n.operator()
	l := n.get("limit")
	if c := l.get("count"); c != nil {
		d.limit.Count = c.num
	}
	if c := l.get("share"); c != nil {
		d.limit.Share = c.part
	}
	if c := l.get("within"); c != nil {
		d.limit.Within = c.dur
	}
	d.limit = d.limit.WithDefaults()
	b.m.dead = d
}

// sinkIndex is the number in Plan.Sinks of sinks[i]: they are in the order of their names, that of dead letters among them.
func (m *model) sinkIndex(i int) int {
	if m.dead != nil && m.sinks[i].name > plan.DeadLettersSink {
		return i + 1
	}
	return i
}

// planDead adds what becomes of dead letters to the plan.
func (p *Pipeline) planDead(pl *plan.Plan) {
	d := p.m.dead
	if d == nil {
		return
	}
	pl.Dead = &plan.DeadLetters{Limit: d.limit, Encode: p.c.dead.encode, Read: func(ctx context.Context, env plan.Env, yield func(*deadletter.Letter) error) error {
		env.Dir = p.dir
		return p.c.dead.letters(ctx, env, p.name, yield)
	}}
	at, _ := slices.BinarySearchFunc(pl.Sinks, plan.DeadLettersSink, func(s *plan.Sink, name string) int { return strings.Compare(s.Name, name) })
	pl.Sinks = slices.Insert(pl.Sinks, at, p.sinkTo(plan.DeadLettersSink, p.c.dead.describe+", dead letters", p.c.dead))
}
