package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/txstate"
)

// Stream is a flow of values of one type. Any number of operators may be attached to it; each sees every value.
type Stream[T any] struct {
	p       *Pipeline
	n       *node[T]
	sources []*sourceDef
	root    *sourceDef // set where the stream is what a source decodes
	timed   bool       // its values have an event time
	trail   *trail
	at      []*int // the bounds on how many of the tasks that the stream lies in work at once; nil: they have none
}

// derive begins a stream behind s.
func derive[U, T any](s Stream[T]) Stream[U] {
	n := &node[U]{}
	return Stream[U]{p: s.p, n: n, sources: s.sources, timed: s.timed, trail: s.trail.behind(&n.step), at: s.at}
}

func (s Stream[T]) to(f func(b *builder) push[T]) { s.n.outs = append(s.n.outs, f) }

// SourceOption is a setting of one source.
type SourceOption func(*sourceDef)

// LoadFirst makes all other sources wait until this one has been read to the end that it has when the pipeline is first started: a
// table is complete before what is looked up in it begins. A run that ends while it loads goes on from where it was, up to the end at that time.
// Later runs don't wait.
func LoadFirst(s *sourceDef) { s.plan.LoadFirst = true }

// From begins a stream: id names the source in ledger, metrics and errors, and keeps its offsets apart from those of
// other sources that read the same data.
func From[T any](p *Pipeline, id string, src emitter.Source, dec codec.Decoder[T], opts ...SourceOption) Stream[T] {
	p.checkName("source", id)
	for _, s := range p.sources {
		if s.plan.ID == id {
			p.errorf("two sources are named %q", id)
		}
	}
	if err := dec.Err(); err != nil {
		p.errorf("source %s: %w", id, err)
	}
	n := &node[T]{stepName: stepName{step: "decode"}}
	framing := emitter.Lines
	if dec.CSV() {
		framing = emitter.CSV
	}
	def := &sourceDef{desc: src.Describe(), decode: dec.Describe(), plan: &plan.Source{
		ID:      id,
		Framing: framing,
		Open:    func(env plan.Env) (emitter.Emitter, error) { return src.Open(id, framing, env) },
		NewTask: func() plan.Task { return &sourceTask[T]{chains: chains[T]{n: n}, dec: dec.New()} },
	}}
	if l, ok := src.(emitter.Listing); ok {
		def.inputs = l.Inputs()
	}
	if ms, ok := src.(MirroredSource); ok {
		def.plan.Mirror = func(env plan.Env) (txstate.Mirror, error) { return ms.Mirror(p.name, id, env) }
		def.plan.Mirrored = ms.Mirrored(p.name)
	}
	if es, ok := src.(ExportedSource); ok {
		def.plan.Exporter = func(env plan.Env, place string) (txstate.Mirror, error) {
			return es.Exporter(p.name, id, place, env)
		}
	}
	if ss, ok := src.(emitter.Surveyed); ok {
		def.plan.Survey = func(ctx context.Context, env plan.Env, q emitter.SurveyQuery) ([]emitter.Survey, error) {
			return ss.Survey(ctx, id, framing, env, q)
		}
	}
	if rs, ok := src.(emitter.Resending); ok {
		def.plan.Resend = rs.Resend
	}
	if ch, ok := src.(doctor.Checker); ok {
		def.plan.Check = ch.Check
	}
	for _, o := range opts {
		o(def)
	}
	p.sources = append(p.sources, def)
	p.describe("source %s: %s, decode %s", id, def.desc, def.decode)
	if def.plan.LoadFirst {
		p.describe("  loaded before others begin")
	}
	return Stream[T]{p: p, n: n, sources: []*sourceDef{def}, root: def, trail: &trail{source: def}, at: []*int{&def.plan.Parallel}}
}

// TimeOption is a setting of a source's event time.
type TimeOption func(*plan.EventTime)

// IdleAfter sets for how long of batch time a partition without data holds the watermark back. The default is a
// minute.
func IdleAfter(d time.Duration) TimeOption { return func(e *plan.EventTime) { e.Idle = d } }

// FutureBound sets how far ahead of the batch's clock an event time may lie; values beyond are turned away into
// the state _rejected. The default is an hour.
func FutureBound(d time.Duration) TimeOption { return func(e *plan.EventTime) { e.Future = d } }

// EventTime gives each value of a source an event time, by which windows are told. A window closes once the
// watermark, the largest event time seen less lateness, has passed its end; what comes later is turned away into the
// state _rejected. It must be the first thing that is said of the source's stream.
func (s Stream[T]) EventTime(f func(T) time.Time, lateness time.Duration, opts ...TimeOption) Stream[T] {
	out := derive[T](s)
	out.timed = true
	switch {
	case s.root == nil:
		s.p.errorf("EventTime: it belongs directly behind From")
		return out
	case s.root.plan.Time != nil:
		s.p.errorf("source %s: EventTime is given twice", s.root.plan.ID)
		return out
	case lateness < 0:
		s.p.errorf("source %s: EventTime: negative lateness %s", s.root.plan.ID, lateness)
	}
	et := &plan.EventTime{Lateness: lateness}
	for _, o := range opts {
		o(et)
	}
	if et.Idle < 0 || et.Future < 0 {
		s.p.errorf("source %s: EventTime: negative bound", s.root.plan.ID)
	}
	s.root.plan.Time = et
	s.p.describe("  event time of %s: lateness %s, idle after %s, at most %s ahead", s.root.plan.ID, lateness, et.Idle, et.Future)
	const step = "event time"
	out.n.step = step
	s.to(func(b *builder) push[T] {
		next := out.n.build(b)
		return func(rc *rec, v T) {
			var t time.Time
			if !b.careful {
				t = f(v)
			} else if !rc.guard(step, func() { t = f(v) }) {
				return
			}
			ns := t.UnixNano()
			if y := t.Year(); y < 1678 || y > 2261 {
				rc.bad(step, fmt.Errorf("time %s lies outside the years 1678 to 2261", t.Format(time.RFC3339)))
				return
			}
			limit := rc.tc.Batch.Time.UnixNano()
			if rc.tc.Future > math.MaxInt64-time.Duration(limit) {
				limit = math.MaxInt64
			} else {
				limit += int64(rc.tc.Future)
			}
			if ns > limit {
				rc.reject(plan.RejectFuture, step, fmt.Sprintf("event time %s lies more than %s ahead of the batch's clock %s",
					t.UTC().Format(time.RFC3339Nano), rc.tc.Future, rc.tc.Batch.Time.Format(time.RFC3339Nano)))
				return
			}
			rc.time = ns
			rc.tc.EventTime = max(rc.tc.EventTime, ns)
			next(rc, v)
		}
	})
	return out
}

// Merge brings streams together. Values of one source partition keep their order; results of different
// partitions are combined in source, topic, partition order.
func Merge[T any](first Stream[T], others ...Stream[T]) Stream[T] {
	out := derive[T](first)
	forward := func(b *builder) push[T] { return out.n.build(b) }
	first.to(forward)
	for _, s := range others {
		if s.p != first.p {
			first.p.strange("Merge", s.p)
			continue
		}
		out.timed = out.timed && s.timed
		for _, d := range s.sources {
			if !slices.Contains(out.sources, d) {
				out.sources = append(slices.Clip(out.sources), d)
			}
		}
		out.at = append(slices.Clip(out.at), s.at...)
		s.to(forward)
		out.trail.from = append(out.trail.from, s.trail)
	}
	out.n.named(first.p, "merge", fmt.Sprintf(" of %d streams", len(others)+1))
	return out
}
