// Package enginetest runs a pipeline inside go test: on given records, in given batches, with no server, no clock
// and no sleep.
//
//	r := enginetest.Run(t, Words(), enginetest.Input{"lines": {"a b"}}, enginetest.Input{"lines": {"A"}})
//	got := enginetest.State[string, int64](r, "counts")
//
// Everything runs through the engine's own code, on a store in memory. Batch T is the T-th input. The batches' clock
// begins at [Clock] and moves on by a second from batch to batch; [Input.At] and [AdvanceTo] let more time pass.
//
// A result shows what the last batch left, and through [Result.At] what any batch before it left.
package enginetest

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/rerun"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/txstate"
)

// Input is one batch: for each source, the values of its records. "lines" is partition 0 of source lines, "lines/2" its
// partition 2. The first value that a CSV source is given in partition 0 is its header line. A record that is more than its value
// is written by [Record].
type Input map[string][]string

// Clock is the time of the first batch.
var Clock = rerun.Clock

// What an Input says besides records. No source has such a name.
const (
	clockKey     = "\x00clock"
	watermarkKey = "\x00watermark"
	recordMark   = "\x00record"
)

// AdvanceTo is a batch before which event time comes to t in all partitions of all sources that have any, as later records would have
// brought it there: in this batch, windows that end by t close. It may be given records, too, which are held against t. In Result.Entries time is
// brought on by a partition without records, of topic "watermark", in the batch before; where it is, all others count as idle.
func AdvanceTo(t time.Time) Input {
	return Input{watermarkKey: {t.UTC().Format(time.RFC3339Nano)}}
}

// At returns the batch with another clock; those behind it go on from there. It goes by whole milliseconds and never back.
func (in Input) At(clock time.Time) Input {
	other := maps.Clone(in)
	if other == nil {
		other = Input{}
	}
	other[clockKey] = []string{clock.UTC().Format(time.RFC3339Nano)}
	return other
}

// Record writes a record with key, timestamp or headers, or with a null value, for an Input. Its offset is not used.
func Record(r batch.Record) string {
	b, err := json.Marshal(r)
	if err != nil {
		panic("enginetest: a record can't be written: " + err.Error())
	}
	return recordMark + string(b)
}

func recordOf(text string) (r batch.Record, err error) {
	doc, ok := strings.CutPrefix(text, recordMark)
	if !ok {
		return batch.Record{Value: []byte(text)}, nil
	}
	err = json.Unmarshal([]byte(doc), &r)
	return r, err
}

// Result is what a run left.
type Result struct {
	t  testing.TB
	db *pebblestate.DB
	// Entries are the ledger's entries, in txid order.
	Entries []txstate.Entry
	// snaps holds what each batch left; snaps[0] is the empty store.
	snaps   []*pebblestate.Snapshot
	outputs rerun.Outputs
	sinks   []string
}

// Run runs p on the batches. A failure fails the test.
func Run(t testing.TB, p *engine.Pipeline, in ...Input) *Result {
	t.Helper()
	r, err := Try(t, p, in...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Try is Run for a pipeline that is expected to stop: the result holds what had committed before.
func Try(t testing.TB, p *engine.Pipeline, in ...Input) (*Result, error) {
	t.Helper()
	w, err := newWorld(p, in)
	if err != nil {
		t.Fatal(err)
	}
	db, err := rerun.OpenMemory(t.Context(), w.plan)
	if err != nil {
		t.Fatal(err)
	}
	r := &Result{t: t, db: db, outputs: rerun.Outputs{}}
	for _, s := range w.plan.Sinks {
		r.sinks = append(r.sinks, s.Name)
	}
	t.Cleanup(func() {
		for _, s := range r.snaps {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	var snapErr error
	keep := func() {
		snap, err := db.Snapshot()
		if err != nil {
			snapErr = err
			return
		}
		r.snaps = append(r.snaps, snap)
	}
	keep()
	runErr := w.script.Input().Run(t.Context(), w.script.Plan(w.plan), db, rerun.Circumstances{Pending: 2, OnOutput: r.outputs.Add, OnCommit: func(e *txstate.Entry) {
		if keep(); len(r.snaps) != int(e.Txid)+1 && snapErr == nil {
			panic(fmt.Sprintf("enginetest: txid %d committed as number %d", e.Txid, len(r.snaps)-1))
		}
	}})
	if snapErr != nil {
		t.Fatal(snapErr)
	}
	if r.Entries, err = rerun.Entries(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return r, runErr
}

// Txid is the batch that the result shows: the last that committed, or the one that At was asked for.
func (r *Result) Txid() batch.Txid { return r.snap().Txid() }

// At returns what batch txid left; 0 is the beginning. A batch that hasn't committed fails the test.
func (r *Result) At(txid batch.Txid) *Result {
	r.t.Helper()
	if int64(txid) >= int64(len(r.snaps)) {
		r.t.Fatalf("At(%d): txid %d was the last that committed", txid, r.Txid())
	}
	return &Result{t: r.t, db: r.db, Entries: r.Entries[:txid], snaps: r.snaps[:txid+1], outputs: r.outputs, sinks: r.sinks}
}

func (r *Result) snap() *pebblestate.Snapshot { return r.snaps[len(r.snaps)-1] }

// has tells whether a state has been written yet.
func (r *Result) has(name string) bool {
	r.t.Helper()
	schemas, err := r.snap().Schemas()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range schemas {
		if s.Name == name {
			return true
		}
	}
	return false
}

// Output is what batch txid has for a sink, in order: what its target would be given. No target is contacted, nor needed.
func (r *Result) Output(name string, txid batch.Txid) []sink.Record {
	r.t.Helper()
	r.At(txid)
	if !slices.Contains(r.sinks, name) {
		r.t.Fatalf("the pipeline has no sink %q", name)
	}
	return r.outputs[name][txid]
}

// State returns the rows of a state, as engine.ReadState does.
func State[K comparable, V any](r *Result, name string) map[K]V {
	r.t.Helper()
	rows, err := engine.ReadSnapshot[K, V](context.Background(), r.snap(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	return rows
}

// Change is what a batch did to a row: Was is nil where it made the row, Now where it removed it.
type Change[V any] struct{ Was, Now *V }

// Changes returns what batch r.Txid() changed in a state: with Result.At, what any batch changed.
func Changes[K comparable, V any](r *Result, name string) map[K]Change[V] {
	r.t.Helper()
	now, was := State[K, V](r, name), map[K]V{}
	if before := r.At(max(r.Txid(), 1) - 1); before.has(name) {
		was = State[K, V](before, name)
	}
	all := map[K]Change[V]{}
	for k, v := range now { // order: a map is made
		w, ok := was[k]
		switch {
		case !ok:
			all[k] = Change[V]{Now: &v}
		case !reflect.DeepEqual(v, w):
			all[k] = Change[V]{&w, &v}
		}
	}
	for k, w := range was { // order: a map is made
		if _, ok := now[k]; !ok {
			all[k] = Change[V]{Was: &w}
		}
	}
	return all
}

// world is a pipeline with its input.
type world struct {
	plan   *plan.Plan
	script *rerun.Script
}

func newWorld(p *engine.Pipeline, in []Input) (*world, error) {
	pl, err := p.Plan()
	if err != nil {
		return nil, err
	}
	w := &world{plan: pl}
	isCSV := map[string]bool{}
	for _, s := range pl.Sources {
		isCSV[s.ID] = s.Framing == emitter.CSV
	}
	fields := map[string][]string{}
	var steps []rerun.Step
	for i, values := range in {
		step := rerun.Step{Records: map[batch.Partition][]batch.Record{}}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if err := readInput(&step, pl, key, values[key], isCSV, fields); err != nil {
				return nil, fmt.Errorf("input %d: %w", i, err)
			}
		}
		steps = append(steps, step)
	}
	w.script, err = rerun.NewScript(pl, "enginetest", fields, steps)
	return w, err
}

// readInput adds one key of an Input to a step.
func readInput(step *rerun.Step, pl *plan.Plan, key string, values []string, isCSV map[string]bool, fields map[string][]string) (err error) {
	switch key {
	case clockKey:
		step.Clock, err = time.Parse(time.RFC3339Nano, values[0])
		return err
	case watermarkKey:
		step.Watermark, err = time.Parse(time.RFC3339Nano, values[0])
		return err
	}
	p, err := rerun.ParsePartition(pl, key)
	if err != nil {
		return err
	}
	if isCSV[p.Source] && fields[p.Source] == nil && p.Number == 0 && len(values) > 0 {
		if fields[p.Source], err = csv.NewReader(strings.NewReader(values[0])).Read(); err != nil {
			return fmt.Errorf("header of %s: %w", p.Source, err)
		}
		values = values[1:]
	}
	var records []batch.Record
	for _, v := range values {
		r, err := recordOf(v)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		records = append(records, r)
	}
	step.Records[p] = records
	return nil
}
