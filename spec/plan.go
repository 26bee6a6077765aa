package spec

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tridentd/tridentd/agg"
	connect "github.com/tridentd/tridentd/connect/zookeeper"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/kafka"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/windowop"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/window"
)

// Pipeline is a checked pipeline. It is immutable.
type Pipeline struct {
	name       string
	dir        string
	m          *model
	c          *checker
	connectors []connector     // as c.sources
	tables     []connector     // as c.statics
	keeper     *connect.Keeper // nil: nothing keeps the record outside
	notes      []string
}

// Name is the pipeline's name.
func (p *Pipeline) Name() string { return p.name }

// Dir is the directory that relative paths in the file are relative to.
func (p *Pipeline) Dir() string { return p.dir }

// Notes tell what is worth knowing and no mistake.
func (p *Pipeline) Notes() []string { return slices.Clone(p.notes) }

// KafkaSource is a source that reads Kafka, with the settings that it is opened with. Config.Group is the consumer
// group in which committed offsets are shown; empty for none.
type KafkaSource struct {
	ID     string
	Config kafka.Config
}

// KafkaSources lists the sources that read Kafka, by ID.
func (p *Pipeline) KafkaSources() []KafkaSource {
	var all []KafkaSource
	for i, s := range p.c.sources {
		if k := p.connectors[i].kafka; k != nil {
			all = append(all, KafkaSource{ID: s.decl.name, Config: *k})
		}
	}
	return all
}

// Plan compiles the pipeline. Each call gives a plan of its own.
func (p *Pipeline) Plan() (*plan.Plan, error) {
	saves, err := p.planSavepoints()
	if err != nil {
		return nil, err
	}
	pl := &plan.Plan{Name: p.name, Batch: p.m.limits, Ledger: p.m.ledger, Memory: p.m.memory, Savepoints: saves, Text: p.text(), Definition: p.definition(), Lines: p.lines(), Keeper: p.planKeeper()}
	for i, s := range p.c.sources {
		con := p.connectors[i]
		src := &plan.Source{
			ID: s.decl.name, OnBad: s.decl.onBad, Time: s.decl.time,
			Open:      p.opener(s.decl.name, con),
			NewTask:   func() plan.Task { return newTask(s) },
			Mirrored:  con.mirrored,
			LoadFirst: s.decl.load,
			Parallel:  s.parallel,
			Resend:    con.resend,
		}
		if con.mirror != nil {
			src.Mirror = func(env plan.Env) (txstate.Mirror, error) { return con.mirror(s.decl.name, env) }
		}
		if con.exporter != nil {
			src.Exporter = func(env plan.Env, group string) (txstate.Mirror, error) {
				return con.exporter(s.decl.name, group, env)
			}
		}
		if con.survey != nil {
			src.Survey = func(ctx context.Context, env plan.Env, q emitter.SurveyQuery) ([]emitter.Survey, error) {
				env.Dir = p.dir
				return con.survey(ctx, s.decl.name, env, q)
			}
		}
		src.Check = p.checker(con)
		pl.Sources = append(pl.Sources, src)
	}
	for _, o := range p.c.outputs {
		if o.join != nil {
			pl.Exchanges = append(pl.Exchanges, o.joinExchange())
			continue
		}
		if o.stream.table {
			e := plan.Table(o.name, o.schema)
			if o.ttl != nil {
				o.expire(e)
			}
			pl.Exchanges = append(pl.Exchanges, e)
			continue
		}
		pl.Exchanges = append(pl.Exchanges, o.exchange())
	}
	for i := range p.m.sinks {
		pl.Sinks = append(pl.Sinks, p.planSink(i))
	}
	p.planDead(pl)
	for i, s := range p.c.statics {
		pl.Statics = append(pl.Statics, &plan.Static{
			Name: s.decl.name, Build: s.build, Open: p.opener(s.decl.name, p.tables[i]), Check: p.checker(p.tables[i]),
		})
	}
	for _, q := range p.c.queries {
		pl.Queries = append(pl.Queries, q.plan())
	}
	slices.SortFunc(pl.Queries, func(a, b *plan.Query) int { return strings.Compare(a.Name, b.Name) })
	for _, q := range pl.Queries {
		pl.Lines = append(pl.Lines, q.Lines...)
	}
	return pl, nil
}

func (p *Pipeline) opener(id string, c connector) func(plan.Env) (emitter.Emitter, error) {
	return func(env plan.Env) (emitter.Emitter, error) {
		env.Dir = p.dir
		return c.open(id, env)
	}
}

func (p *Pipeline) checker(c connector) func(context.Context, doctor.Env) []doctor.Finding {
	if c.check == nil {
		return nil
	}
	return func(ctx context.Context, env doctor.Env) []doctor.Finding {
		env.Dir = p.dir
		return c.check(ctx, env)
	}
}

func (o *output) exchange() *plan.Exchange {
	merge := agg.Merger(o.schema.Values)
	e := &plan.Exchange{Name: o.name, Merge: merge, FormatKey: value.KeyText}
	if o.derived != nil {
		e.Parallel = o.derived.parallel
		e.Next = func() plan.StageTask { return newStage(o.derived) }
	}
	update := func(dst, old, delta []byte) ([]byte, error) {
		if old == nil {
			return append(dst, delta...), nil
		}
		return merge(dst, old, delta)
	}
	switch {
	case !o.kept:
	case o.window.keyed():
		o.operate(e, windowop.Aggregate{Merge: merge, Update: update})
	default:
		e.State = &plan.State{
			Schema: o.schema, Mergeable: o.mergeable(), Emit: o.emits, TimeSources: o.timeSources, Zero: o.zero,
			Update: func(dst, old, delta []byte) ([]byte, bool, error) {
				v, err := update(dst, old, delta)
				return v, true, err
			},
		}
		if o.window != nil && o.window.shape.BatchTime() {
			e.State.Clock = plan.ClockBatch
		}
		if o.ttl != nil {
			o.expire(e)
		}
	}
	return e
}

// operate makes an exchange's operator sort the rows into windows.
func (o *output) operate(e *plan.Exchange, does windowop.Aggregate) {
	w := o.window
	e.Merge = nil
	e.State = &plan.State{Schema: o.open, TimeSources: o.timeSources}
	e.Output = &plan.State{Schema: o.schema, Zero: o.zero}
	if w.shape.Kind() == window.OfSession {
		step := o.stream.windowLabel()
		e.Operator = func() plan.Operator {
			return &windowop.Session{Aggregate: does, Step: step, Gap: w.shape.Size(), Retention: w.retention, Emit: o.emits}
		}
		return
	}
	e.State.Clock = plan.ClockBatch
	n, every := w.shape.Values()
	e.Operator = func() plan.Operator {
		return &windowop.Count{Aggregate: does, N: n, Every: every, Retention: w.retention, Emit: o.emits}
	}
}

// mergeable tells of a state that is written without being read.
func (o *output) mergeable() bool { return o.exact() && o.derived == nil && !o.looked && o.ttl == nil }

// zero returns the cells of a value that no record has reached.
func (o *output) zero() []byte {
	var cells []byte
	for i := range o.values {
		a := newAccumulator(&o.values[i])
		a.grow(1)
		cells = a.append(cells, 0)
	}
	return cells
}

// exact tells whether the aggregates' merge is associative to the last bit.
func (o *output) exact() bool {
	for _, v := range o.values {
		if !v.exact() {
			return false
		}
	}
	return true
}

// finish completes the outputs once all sources have been checked: their schemas and the indices that plans use.
func (c *checker) finish() {
	for _, o := range c.outputs {
		if o.kept {
			o.schema.Name, o.schema.Kind = o.stream.state, "aggregate"
			if o.stream.table {
				o.schema.Kind = "rows"
			}
		}
		if o.join != nil && o.join.timed {
			o.schema.Name, o.schema.Kind = o.stream.joinState(o.step), "opaque"
			o.timeSources = c.indices(o.roots())
		}
		for _, v := range o.values {
			o.schema.Values = append(o.schema.Values, v.column())
		}
		for _, t := range o.table {
			o.schema.Values = append(o.schema.Values, state.Column{Name: t.name, Type: t.typ.Kind.String()})
		}
		if o.ttl != nil {
			o.open = windowop.ExpiringSchema(o.schema)
			if o.ttl.events() {
				o.timeSources = c.indices(o.roots())
			}
		}
		if w := o.window; w != nil {
			o.groupBy = o.schema.Key
			switch w.shape.Kind() {
			case window.OfTime:
				o.schema.Window = w.time
				o.schema.Key = append(w.time.Columns(), o.schema.Key...)
			case window.OfSession:
				o.open, o.schema = windowop.SessionSchemas(o.schema.Name, o.groupBy, o.schema.Values)
			case window.OfCount:
				o.open, o.schema = windowop.CountSchemas(o.schema.Name, o.groupBy, o.schema.Values)
			}
			if w.events() {
				o.timeSources = c.indices(o.roots())
			}
		}
	}
	// Rows are made of those before them.
	for _, o := range slices.Backward(c.outputs) {
		if o.derived != nil {
			o.derived.propagate()
		}
		if o.join != nil {
			o.propagateJoin()
			if o.join.timed {
				o.schema.Values = o.waiting()
			}
		}
	}
	for _, s := range c.sources {
		s.propagate()
	}
}

// indices are the numbers of sources in a plan.
func (c *checker) indices(of []*source) []int {
	var all []int
	for i, s := range c.sources {
		if slices.Contains(of, s) {
			all = append(all, i)
		}
	}
	return all
}

func (s *source) propagate() {
	for _, b := range s.branches {
		b.propagate()
	}
}

// propagate marks what the columns in use are made from, the innermost rows first.
func (b *branch) propagate() {
	for _, c := range b.children {
		c.propagate()
	}
	if b.leaf != nil {
		for _, l := range b.leaf.late {
			l.propagate()
		}
	}
	if b.join != nil {
		for _, l := range b.join.late {
			l.propagate()
		}
	}
	for _, o := range slices.Backward(b.ops) {
		if o.next != nil {
			o.next.propagate()
		}
		if o.table != nil {
			for _, g := range o.reads {
				if o.frame.cols[g.into].used {
					o.table.cols[g.from].used = true
				}
			}
		}
	}
}

// text is the canonical description of everything that decides the results.
func (p *Pipeline) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pipeline %s\n", p.name)
	for i, s := range p.c.sources {
		fmt.Fprintf(&b, "source %s: %s; %s; on_bad_record %d", s.decl.name, p.connectors[i].describe, s.decl.decode.text(), s.decl.onBad)
		if t := s.decl.time; t != nil {
			fmt.Fprintf(&b, "; time %s lateness %s idle %s future %s", s.decl.timeField.text, t.Lateness, orDefault(t.Idle, plan.DefaultIdle), orDefault(t.Future, plan.DefaultFuture))
		}
		if s.decl.load {
			b.WriteString("; load first")
		}
		b.WriteByte('\n')
	}
	for i, s := range p.c.statics {
		fmt.Fprintf(&b, "static %s: %s; %s; key %s\n", s.decl.name, p.tables[i].describe, s.decl.decode.text(), s.decl.key.text)
	}
	for _, f := range p.m.customs() {
		fmt.Fprintf(&b, "function %s, %s\n", f, f.Purity())
	}
	for _, s := range p.m.streams {
		fmt.Fprintf(&b, "stream %s from %s\n", s.name, strings.Join(slices.Sorted(slices.Values((&node{list: s.from}).texts())), ", "))
		for _, st := range s.steps {
			fmt.Fprintf(&b, "  %s\n", st.text(s))
		}
	}
	for i, s := range p.m.sinks {
		fmt.Fprintf(&b, "sink %s: %s\n", s.name, s.text(p.c.targets[i].describe))
	}
	if d := p.m.dead; d != nil {
		fmt.Fprintf(&b, "dead letters: %s, %s\n", p.c.dead.describe, d.limit.Definition())
	}
	return b.String()
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

func (d *decodeDecl) text() string {
	text := "decode " + d.kind
	if len(d.nulls) > 0 {
		text += fmt.Sprintf(" nulls %q", d.nulls)
	}
	if d.schema != nil {
		text += d.schema.text()
	}
	var types []string
	for _, t := range d.types {
		types = append(types, t.name+" "+t.kind.String())
	}
	if len(types) > 0 {
		slices.Sort(types)
		text += " types " + strings.Join(types, ", ")
	}
	return text
}

// text writes a step in one line, without what has no effect on the results.
func (st *stepDecl) text(s *streamDecl) string {
	var parts []string
	switch st.op {
	case "filter":
		return "filter " + st.exprs[0].e.String()
	case "set", "flat_map", "answer":
		for _, x := range st.exprs {
			parts = append(parts, x.name+" = "+x.e.String())
		}
	case "keep", "drop", "group_by", "distinct":
		parts = st.n.texts()
	case "lookup":
		return lookupText(st)
	case "latest":
		return latestText(st)
	case "window":
		return windowText(st)
	case "join":
		return joinText(st)
	case "sort", "limit", "repartition":
		return relayText(st)
	case "aggregate":
		for _, a := range st.aggs {
			parts = append(parts, a.name+" = "+a.n.text)
		}
		if x := st.expiry(); x != nil {
			parts = append(parts, x.text())
		}
		text := "aggregate " + strings.Join(parts, ", ") + " in state " + s.state
		if st.emit != nil {
			text += " emits " + st.emit.text
		}
		return text
	case "batch_aggregate":
		for _, a := range st.aggs {
			parts = append(parts, a.name+" = "+a.n.text)
		}
	}
	return st.op + " " + strings.Join(parts, ", ")
}

// lines describe the plan for people.
func (p *Pipeline) lines() []string {
	var lines []string
	for i, s := range p.c.sources {
		lines = append(lines, fmt.Sprintf("source %s: %s", s.decl.name, p.connectors[i].describe))
		lines = append(lines, "  "+s.decl.decode.text()+"; fields in use: "+s.inUse())
		if t := s.decl.time; t != nil {
			lines = append(lines, fmt.Sprintf("  event time %s, lateness %s, idle after %s, at most %s ahead", s.decl.timeField.text, t.Lateness,
				orDefault(t.Idle, plan.DefaultIdle), orDefault(t.Future, plan.DefaultFuture)))
		}
		if con := p.connectors[i]; con.mirror != nil {
			lines = append(lines, "  committed offsets are shown in consumer group "+con.kafka.Group)
		}
		if s.decl.load {
			lines = append(lines, "  read to its present end before other sources begin")
		}
		lines = append(lines, "  "+[...]string{plan.Stop: "a bad record stops the pipeline", plan.Skip: "bad records go to _rejected", plan.DeadLetter: "bad records become dead letters"}[s.decl.onBad])
	}
	for i, s := range p.c.statics {
		lines = append(lines, fmt.Sprintf("table %s: %s, by %s", s.decl.name, p.tables[i].describe, s.decl.key.text))
	}
	for _, f := range p.m.customs() {
		lines = append(lines, fmt.Sprintf("function %s, %s", f, f.Purity()))
	}
	for _, s := range p.m.streams {
		if s.table {
			lines = append(lines, fmt.Sprintf("table %s from %s: %s", s.name, s.from[0].text, s.steps[0].text(s)))
			continue
		}
		lines = append(lines, fmt.Sprintf("stream %s from %s", s.name, strings.Join((&node{list: s.from}).texts(), ", ")))
		peeks := s.peeks
		for i := range len(s.steps) + 1 {
			for len(peeks) > 0 && peeks[0].before == i {
				lines, peeks = append(lines, "  "+peeks[0].text()), peeks[1:]
			}
			if i < len(s.steps) {
				lines = append(lines, "  "+strconv.Itoa(i+1)+" "+s.steps[i].text(s))
			}
		}
	}
	for _, o := range p.c.outputs {
		if o.join != nil {
			if r := o.join.relay; r != nil {
				lines = append(lines, fmt.Sprintf("stage %s: %s; of each batch; %s", o.name, relayText(o.stream.steps[o.step]), r.tasks()))
				continue
			}
			if l := o.join.lookup; l != nil {
				lines = append(lines, fmt.Sprintf("stage %s: %s; as the batch has left the state; %d shards", o.name, lookupText(o.stream.steps[o.step]), plan.DefaultShards))
				continue
			}
			line := fmt.Sprintf("stage %s: %s; ", o.name, joinText(o.stream.steps[o.step]))
			if o.join.timed {
				line += "rows wait in state " + o.schema.Name
			} else {
				line += "of each batch"
			}
			lines = append(lines, fmt.Sprintf("%s; %d shards", line, plan.DefaultShards))
			continue
		}
		if !o.kept {
			what := columnsText(o.schema.Values) + " by "
			if o.stream.steps[o.step].op == "distinct" {
				what = "distinct "
			}
			lines = append(lines, fmt.Sprintf("stage %s: %s%s; of each batch; %d shards", o.name, what, columnsText(o.schema.Key), plan.DefaultShards))
			continue
		}
		how := "read, changed and written"
		switch {
		case o.window.keyed():
			how = "open windows in " + windowop.KeptName(o.schema.Name)
		case o.stream.table:
			how = "the last rows"
		case o.mergeable():
			how = "written as merge operands"
		}
		if o.ttl != nil {
			how += "; expire: " + o.ttl.text()
		}
		switch {
		case o.derived == nil:
		case o.emits == plan.EmitCloses:
			how += "; rows are sent on when their windows close"
		default:
			how += "; rows that change are sent on"
		}
		lines = append(lines, fmt.Sprintf("state %s: %s by %s; %s; %d shards", o.schema.Name, columnsText(o.schema.Values), columnsText(o.schema.Key), how, plan.DefaultShards))
	}
	for i, s := range p.m.sinks {
		lines = append(lines, fmt.Sprintf("sink %s: %s; ranges are made durable before output leaves, batches commit one by one", s.name, s.text(p.c.targets[i].describe)))
	}
	if d := p.m.dead; d != nil {
		lines = append(lines, fmt.Sprintf("dead letters: %s; at most %s; ranges are made durable before output leaves, batches commit one by one", p.c.dead.describe, d.limit))
	}
	if p.keeper != nil {
		lines = append(lines, p.keeper.Describe(p.name))
	}
	for _, n := range p.notes {
		lines = append(lines, "note: "+n)
	}
	return lines
}

func columnsText(cols []state.Column) string {
	var parts []string
	for _, c := range cols {
		parts = append(parts, c.Name+" "+c.Type)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// inUse lists the columns that are decoded.
func (s *source) inUse() string {
	var all []string
	for _, c := range s.root.cols {
		if (c.used || c.check) && (c.origin == fromDocument || c.origin == fromMeta) {
			all = append(all, c.name)
		}
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}
