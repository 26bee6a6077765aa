package spectest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/rerun"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/spec"
	"github.com/tridentd/tridentd/txstate"
)

// run is one test on its way.
type run struct {
	p      *spec.Pipeline
	test   *spec.Test
	plan   *plan.Plan
	script *rerun.Script
	tables map[string]func(plan.Env) (emitter.Emitter, error)
	fails  bool // the last batch is expected to
	// outputs is what the batches have for sinks.
	outputs rerun.Outputs
}

func newRun(p *spec.Pipeline, test *spec.Test) (*run, error) {
	r := &run{p: p, test: test, tables: map[string]func(plan.Env) (emitter.Emitter, error){}, outputs: rerun.Outputs{}}
	pl, err := p.Plan()
	if err != nil {
		return nil, err
	}
	r.plan = pl
	for name, rows := range test.Tables { // order: each table by itself
		shape, ok := p.TableShape(name)
		if !ok {
			return nil, test.ProblemAt(nil, "", "tables: the pipeline has no static table %s", name)
		}
		w := &writer{test: test, what: "table " + name, shape: shape}
		w.see(rows)
		var records []batch.Record
		for _, row := range rows {
			rec, err := w.record(row)
			if err != nil {
				return nil, err
			}
			records = append(records, rec)
		}
		r.tables[name] = rerun.OpenTable(name, w.columns(), records)
	}
	if r.script, err = r.newScript(); err != nil {
		return nil, err
	}
	if err := r.checkStates(); err != nil {
		return nil, err
	}
	return r, r.checkCalls()
}

// newScript writes the test's records.
func (r *run) newScript() (*rerun.Script, error) {
	writers := map[string]*writer{}
	place := func(text string) (p batch.Partition, w *writer, err error) {
		if p, err = rerun.ParsePartition(r.plan, text); err != nil {
			return p, nil, r.test.ProblemAt(nil, "", "records: %v", err)
		}
		if w = writers[p.Source]; w == nil {
			shape, _ := r.p.SourceShape(p.Source)
			w = &writer{test: r.test, what: "source " + p.Source, shape: shape}
			writers[p.Source] = w
		}
		return p, w, nil
	}
	for _, b := range r.test.Batches {
		for _, key := range b.RecordKeys {
			_, w, err := place(key)
			if err != nil {
				return nil, err
			}
			w.see(b.Records[key])
		}
		r.fails = b.Expect.Error != nil
	}
	var steps []rerun.Step
	for _, b := range r.test.Batches {
		step := rerun.Step{Clock: b.Clock, Watermark: b.Watermark, Records: map[batch.Partition][]batch.Record{}}
		for _, key := range b.RecordKeys {
			p, w, err := place(key)
			if err != nil {
				return nil, err
			}
			for _, l := range b.Records[key] {
				rec, err := w.record(l)
				if err != nil {
					return nil, err
				}
				step.Records[p] = append(step.Records[p], rec)
			}
		}
		steps = append(steps, step)
	}
	fields := map[string][]string{}
	for id, w := range writers { // order: each source by itself
		fields[id] = w.columns()
	}
	script, err := rerun.NewScript(r.plan, r.test.Name, fields, steps)
	if err != nil {
		return nil, r.test.ProblemAt(nil, "", "%v", err)
	}
	return script, nil
}

// build is the pipeline's plan over the test's tables and times.
func (r *run) build() (*plan.Plan, error) {
	pl, err := r.p.Plan()
	if err != nil {
		return nil, err
	}
	for i, s := range pl.Statics {
		if open := r.tables[s.Name]; open != nil {
			with := *s
			with.Open = open
			pl.Statics[i] = &with
		}
	}
	return r.script.Plan(pl), nil
}

func (r *run) verify(ctx context.Context) ([]string, error) {
	return r.script.Input().Verify(ctx, r.build, rerun.Options{})
}

// run runs the batches and notes in out what isn't as expected.
func (r *run) run(ctx context.Context, out *Outcome) (err error) {
	pl, err := r.build()
	if err != nil {
		return err
	}
	db, err := rerun.OpenMemory(ctx, pl)
	if err != nil {
		return err
	}
	var snaps []*pebblestate.Snapshot
	var clocks []time.Time
	defer func() {
		for _, s := range snaps {
			if cerr := s.Close(); err == nil {
				err = cerr
			}
		}
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	var snapErr error
	stopped := r.script.Input().Run(ctx, pl, db, rerun.Circumstances{Pending: 2, OnOutput: r.outputs.Add, OnCommit: func(e *txstate.Entry) {
		snap, err := db.Snapshot()
		if err != nil {
			snapErr = err
			return
		}
		snaps, clocks = append(snaps, snap), append(clocks, e.Time)
		out.Records += e.Counts.Read
	}})
	if snapErr != nil {
		return snapErr
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	out.Batches = len(snaps)
	answers := exec.NewAnswers(pl)
	for i, snap := range snaps {
		failures, err := r.compare(ctx, batch.Txid(i+1), snap)
		if err != nil {
			return err
		}
		out.Failures = append(out.Failures, failures...)
		if failures, err = r.ask(ctx, answers, snap, clocks[i]); err != nil {
			return err
		}
		out.Failures = append(out.Failures, failures...)
	}
	if f := r.stop(len(snaps), stopped); f != "" {
		out.Failures = append(out.Failures, f)
	}
	return nil
}

// stop holds against what is expected that the pipeline has stopped behind so many batches, or that it hasn't.
func (r *run) stop(committed int, err error) string {
	n := len(r.test.Batches)
	want := r.test.Batches[n-1].Expect.Error
	switch {
	case err == nil && want == nil:
		return ""
	case err == nil:
		return fmt.Sprintf("%s: batch %d has committed; it was expected to stop with %q", r.test.PlaceOf(want), n, want.Text)
	case want == nil || committed < n-1:
		return fmt.Sprintf("%s: batch %d stopped the pipeline: %v", r.test.Place, committed+1, err)
	case !strings.Contains(err.Error(), want.Text):
		return fmt.Sprintf("%s: batch %d stopped the pipeline, but not with %q: %v", r.test.PlaceOf(want), n, want.Text, err)
	}
	return ""
}

// states are the names of the states that tests may look at.
func (r *run) states() []string {
	var all []string
	for _, e := range r.plan.Exchanges {
		for _, st := range []*plan.State{e.State, e.Output} {
			if st != nil && !slices.Contains(all, st.Schema.Name) {
				all = append(all, st.Schema.Name)
			}
		}
	}
	for _, p := range r.plan.Persists {
		all = append(all, p.Schema.Name)
	}
	return all
}

// checkStates reports expected rows of states, and of sinks, that the pipeline hasn't got.
func (r *run) checkStates() error {
	have := r.states()
	for _, b := range r.test.Batches {
		for _, name := range b.Expect.Names {
			if !slices.Contains(have, name) {
				return r.test.ProblemAt(b.Expect.States[name], "it keeps "+strings.Join(have, ", "), "the pipeline keeps no state %s", name)
			}
		}
		for _, name := range b.Expect.Outputs {
			if !slices.ContainsFunc(r.plan.Sinks, func(s *plan.Sink) bool { return s.Name == name }) {
				return r.test.ProblemAt(b.Expect.Sinks[name], "", "the pipeline has no sink %s", name)
			}
		}
	}
	return nil
}
