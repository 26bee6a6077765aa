package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/txstate"
)

// Target is a place outside that takes a stream's values: a Kafka topic, say. What it keeps of a batch it keeps whole and once.
type Target[T any] interface {
	// Describe names the target and the form of its records in one line, without addresses and secrets. It belongs to what
	// decides the results.
	Describe() string
	// Encode makes a record of a value. It must be a pure function. An error makes the value a bad record. r comes empty, but for
	// Timestamp, which is the value's event time where there is one. What r refers to may be used again after the call.
	Encode(v T, r *sink.Record) error
	// Open makes the sink of one run. It contacts nobody.
	Open(pipeline, name string, env emitter.Env) (sink.Sink, error)
}

// To sends a stream's values to a target outside. name names the sink in progress, metrics and errors; under it the target knows what
// it was given, so that a sink of another name begins anew.
//
// As soon as a pipeline has a sink, the ranges of each batch are made durable before any of its output leaves, and batches
// commit one by one: the target has the output of each batch once, whatever happens between the two worlds.
func To[T any](s Stream[T], name string, target Target[T]) {
	p := s.p
	p.checkName("sink", name)
	for _, d := range p.sinks {
		if d.plan.Name == name {
			p.errorf("two sinks are named %q", name)
		}
	}
	def := addSink(p, name, target)
	p.describe("sink %s: %s, from %s", name, def.plan.Describe, s.way())
	step := "sink " + name
	s.to(func(b *builder) push[T] {
		var buf *sink.Buffer
		b.begin = append(b.begin, func(rc *rec) {
			buf = &sink.Buffer{} // that of the batch before is still to be delivered
			rc.tc.Sinks[def.index] = buf
		})
		var r sink.Record
		var v T
		encode := func() error { return target.Encode(v, &r) }
		return func(rc *rec, in T) {
			v, r = in, sink.Record{Timestamp: sink.NoTimestamp, Headers: r.Headers[:0]}
			if rc.time != txstate.NoTime {
				r.Timestamp = rc.time / int64(time.Millisecond)
			}
			if !rc.try(b, step, encode) {
				return
			}
			r.Offset = rc.offset
			if rc.from != nil {
				r.Offset = rc.from.offset
			}
			buf.Add(r)
		}
	})
}

// transactor is a target whose servers hold transactions for its sinks.
type transactor interface {
	Transactions(pipeline, name string) (sink.Transactions, error)
}

// sinkDef is a sink under construction.
type sinkDef struct {
	plan  *plan.Sink
	index int // in Plan.Sinks; known once the pipeline is compiled
}

// addSink adds a sink to the pipeline; what is sent to it is up to the caller.
func addSink[T any](p *Pipeline, name string, target Target[T]) *sinkDef {
	def := &sinkDef{plan: &plan.Sink{
		Name: name, Describe: target.Describe(),
		Open: func(env plan.Env) (sink.Sink, error) { return target.Open(p.name, name, env) },
	}}
	if ch, ok := target.(doctor.Checker); ok {
		def.plan.Check = ch.Check
	}
	if tx, ok := target.(transactor); ok {
		def.plan.Transactions = func() (sink.Transactions, error) { return tx.Transactions(p.name, name) }
	}
	p.sinks = append(p.sinks, def)
	return def
}

// way tells in one line how the stream comes about.
func (s Stream[T]) way() string {
	ways, _ := s.trail.ways()
	var all []string
	for _, w := range ways {
		all = append(all, strings.Join(append([]string{w.Source}, w.Steps...), " > "))
	}
	if len(all) == 0 {
		return fmt.Sprintf("%T", s)
	}
	return strings.Join(all, ", ")
}
