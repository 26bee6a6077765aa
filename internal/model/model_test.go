package model_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/model"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/rerun"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

var cases = flag.Int("model.cases", 0, "how many pipelines the engine is compared with the model on; 0: 2,000, or 20,000 with TRIDENTD_TEST_FULL")

// left is what a batch left: by node and key, and what was turned away up to it.
type left struct {
	rows     map[string]string
	rejected []string
}

// circumstances are what no result may depend on.
type circumstances struct {
	procs, pending int
	failures       int64 // how often functions fail in passing
	crash          int   // the commit at which the machine goes down; 0: never
	survives       int   // percent of what wasn't synced then
	seed           uint64
}

func drawCircumstances(t *rapid.T) circumstances {
	return circumstances{
		procs: rapid.IntRange(1, 4).Draw(t, "procs"), pending: rapid.IntRange(1, 4).Draw(t, "pending"),
		failures: rapid.Int64Range(0, 2).Draw(t, "failures"), crash: rapid.IntRange(0, 6).Draw(t, "crash"),
		survives: rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "survives"), seed: rapid.Uint64().Draw(t, "seed"),
	}
}

// expected is what the model says that each batch leaves; stops tells that the pipeline stops behind the last of them.
func expected(s *sample, mutation model.Mutation) (all []left, stops bool) {
	m := model.New(s.p, mutation)
	for i := range s.batches {
		var next *model.Batch
		if i+1 < len(s.batches) {
			next = &s.batches[i+1]
		}
		if !m.Take(&s.batches[i], next) {
			return all, true
		}
		l := left{rows: map[string]string{}}
		for k := range s.p.Nodes {
			if s.p.Nodes[k].Keeps() {
				for key, v := range m.Rows(k) { // order: a map is made
					l.rows[model.Name(k)+" "+key] = v
				}
			}
		}
		for k := range s.p.Nodes {
			for n, o := range m.Outputs(k) {
				l.rows[outputKey(model.Name(k), n)] = outputText(o.Row, o.Millis)
			}
		}
		for q := range s.p.Queries {
			for _, args := range s.args {
				rows, ok := m.Ask(q, args)
				l.answer(q, args, rows, ok)
			}
		}
		for _, r := range m.Rejected() {
			l.rejected = append(l.rejected, fmt.Sprintf("%s %s/%d at %d, step %s, txid %d", r.Kind, r.Source, r.Partition, r.Offset, r.Step, r.Txid))
		}
		slices.Sort(l.rejected)
		all = append(all, l)
	}
	return all, false
}

func outputKey(sink string, n int) string { return fmt.Sprintf("%s record %d", sink, n) }

func outputText(r row, millis int64) string { return fmt.Sprintf("%v at %d ms", r, millis) }

// answer notes what a call of a query came to.
func (l *left) answer(query int, args row, rows []row, ok bool) {
	text := "an error"
	if ok {
		text = fmt.Sprint(rows)
	}
	l.rows[fmt.Sprintf("%s of %v", model.QueryName(query), args)] = text
}

// run is the engine at work on a sample.
type run struct {
	s       *sample
	c       circumstances
	left    map[batch.Txid]left
	queries queries
	outputs rerun.Outputs
	crash   vfs.FS // what the machine holds after it went down
	err     error  // of reading what a batch left
}

// actual is what the engine leaves, batch by batch, and what stopped it. A batch that commits again after a crash must leave the same.
func actual(s *sample, c circumstances) (all []left, stopped, err error) {
	r := &run{s: s, c: c, left: map[batch.Txid]left{}, outputs: rerun.Outputs{}}
	pl, err := r.plan()
	if err != nil {
		return nil, nil, err
	}
	script, err := rerun.NewScript(pl, "model", nil, r.steps(pl))
	if err != nil {
		return nil, nil, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.procs))
	stopped, err = r.drive(script, pl, vfs.NewCrashableMem())
	if err == nil && r.crash != nil {
		if pl, err = r.plan(); err != nil {
			return nil, nil, err
		}
		stopped, err = r.drive(script, pl, r.crash)
	}
	for txid := batch.Txid(1); int(txid) <= len(r.left); txid++ {
		all = append(all, r.left[txid])
	}
	return all, stopped, err
}

// plan makes the pipeline anew.
func (r *run) plan() (*plan.Plan, error) {
	p, all := build(r.s.p, r.c.failures)
	r.queries = all
	pl, err := p.Plan()
	if err != nil {
		return nil, err
	}
	for i := range r.s.p.Nodes {
		if r.s.p.Nodes[i].Op != model.Static {
			continue
		}
		for _, st := range pl.Statics {
			if st.Name == model.Name(i) {
				st.Open = rerun.OpenTable(st.Name, nil, tableText(r.s.p.Nodes[i].F))
			}
		}
	}
	return pl, nil
}

func (r *run) steps(pl *plan.Plan) []rerun.Step {
	var steps []rerun.Step
	for _, b := range r.s.batches {
		st := rerun.Step{Clock: model.Start.Add(time.Duration(b.Clock) * time.Second), Records: map[batch.Partition][]batch.Record{}}
		if b.Advance {
			st.Watermark = time.Unix(b.AdvanceTo, 0)
		}
		for node, parts := range b.Records { // order: a map is made
			for part, records := range parts {
				p := batch.Partition{Source: model.Name(node), Topic: model.Name(node), Number: int32(part)}
				st.Records[p] = nil
				for _, rec := range records {
					st.Records[p] = append(st.Records[p], batch.Record{Value: []byte(text(rec))})
				}
			}
		}
		steps = append(steps, st)
	}
	return steps
}

// drive runs the batches that the store in fs doesn't hold yet. A failure in passing ends the process; another begins.
func (r *run) drive(script *rerun.Script, pl *plan.Plan, fs vfs.FS) (stopped, err error) {
	ctx := context.Background()
	db, err := rerun.OpenStore(ctx, pl, fs)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	mem, _ := fs.(*vfs.MemFS)
	c := rerun.Circumstances{Procs: r.c.procs, Pending: r.c.pending, OnOutput: r.outputs.Add, OnCommit: func(e *txstate.Entry) {
		if err := r.note(ctx, db, e); err != nil && r.err == nil {
			r.err = err
		}
		if r.crash == nil && int(e.Txid) == r.c.crash {
			r.crash = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.c.survives, RNG: rand.New(rand.NewPCG(r.c.seed, 0))})
		}
	}}
	for {
		stopped = script.Input().Run(ctx, script.Plan(pl), db, c)
		if stopped == nil || batch.KindOf(stopped) != batch.Transient {
			return stopped, r.err
		}
	}
}

// note keeps what batch txid left.
func (r *run) note(ctx context.Context, db *pebblestate.DB, e *txstate.Entry) error {
	txid := e.Txid
	snap, err := db.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close() //nolint:errcheck // it only reads
	l := left{rows: map[string]string{}}
	for i := range r.s.p.Nodes {
		n := &r.s.p.Nodes[i]
		if !n.Keeps() {
			continue
		}
		rows, err := read(ctx, snap, i, n)
		if err != nil {
			return fmt.Errorf("state %s: %w", model.Name(i), err)
		}
		for key, v := range rows { // order: a map is made
			l.rows[model.Name(i)+" "+key] = v
		}
	}
	for i := range r.s.p.Nodes {
		for n, o := range r.outputs[model.Name(i)][txid] {
			var v row
			if err := json.Unmarshal(o.Value, &v); err != nil || string(o.Key) != v.K {
				return fmt.Errorf("record %q for sink %s: %w", o.Value, model.Name(i), err)
			}
			l.rows[outputKey(model.Name(i), n)] = outputText(v, o.Timestamp)
		}
	}
	for q, asked := range r.queries {
		for _, args := range r.s.args {
			a, err := asked.AskSnapshot(ctx, snap, e.Time, args)
			if err != nil && batch.CodeOf(err) != batch.CodeBadRecord && batch.CodeOf(err) != batch.CodeUserError {
				return err
			}
			l.answer(q, args, a.Rows, err == nil)
		}
	}
	schema, err := query.Schema(snap, exec.RejectedState)
	if err != nil {
		return err
	}
	err = query.Rows(ctx, snap, schema, nil, func(row []value.Value) error {
		l.rejected = append(l.rejected, fmt.Sprintf("%s %s/%d at %d, step %s, txid %d",
			row[5].Str(), row[0].Str(), row[2].Int(), row[3].Int(), row[6].Str(), row[8].Int()))
		return nil
	})
	if err != nil {
		return err
	}
	slices.Sort(l.rejected)
	if was, ok := r.left[txid]; ok {
		if diff := was.diff(&l); diff != "" {
			return fmt.Errorf("txid %d left something else after the crash: %s", txid, diff)
		}
	}
	r.left[txid] = l
	return nil
}

// diff tells the first difference between what is expected and what is there.
func (l *left) diff(got *left) string {
	keys := slices.Sorted(maps.Keys(l.rows))
	for _, k := range slices.Sorted(maps.Keys(got.rows)) {
		if _, ok := l.rows[k]; !ok {
			return fmt.Sprintf("%s is %s, and should not be there", k, got.rows[k])
		}
	}
	for _, k := range keys {
		if v, ok := got.rows[k]; !ok {
			return fmt.Sprintf("%s is missing, and should be %s", k, l.rows[k])
		} else if v != l.rows[k] {
			return fmt.Sprintf("%s is %s, and should be %s", k, v, l.rows[k])
		}
	}
	if !slices.Equal(l.rejected, got.rejected) {
		return fmt.Sprintf("turned away were %q, and should be %q", got.rejected, l.rejected)
	}
	return ""
}

// compare tells how the engine differs from the model; empty if it doesn't. mutation is the model's.
func compare(s *sample, c circumstances, mutation model.Mutation) string {
	want, stops := expected(s, mutation)
	got, stopped, err := actual(s, c)
	if err != nil {
		return err.Error()
	}
	for i := range min(len(want), len(got)) {
		if diff := want[i].diff(&got[i]); diff != "" {
			return fmt.Sprintf("txid %d: %s", i+1, diff)
		}
	}
	switch {
	case (stopped != nil) != stops:
		return fmt.Sprintf("stopped by %v; that it stops should be %t", stopped, stops)
	case stopped != nil && batch.CodeOf(stopped) != batch.CodeBadRecord:
		return fmt.Sprintf("stopped by %v, and should by a bad record", stopped)
	case len(got) != len(want):
		return fmt.Sprintf("%d batches committed, and %d should", len(got), len(want))
	}
	return ""
}

func (s *sample) String() string {
	text := s.p.String()
	for i := range s.batches {
		text += fmt.Sprintf("  txid %d: %s\n", i+1, &s.batches[i])
	}
	if len(s.p.Queries) > 0 {
		text += fmt.Sprintf("  asked: %v\n", s.args)
	}
	return text
}

// The engine and the model agree on what every batch leaves, for any pipeline, records, borders of batches and faults.
func TestEngineIsAsModelled(t *testing.T) {
	// What is drawn is made smaller by least, which knows what it is.
	for name, v := range map[string]string{"rapid.checks": strconv.Itoa(wanted()), "rapid.shrinktime": "2s", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, v); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s, c := drawSample(t), drawCircumstances(t)
		if diff := compare(s, c, model.Right); diff != "" {
			s, c = least(s, c, model.Right)
			t.Fatalf("%s\n%swith %+v", compare(s, c, model.Right), s, c)
		}
	})
}

func wanted() int {
	if *cases > 0 {
		return *cases
	}
	if os.Getenv("TRIDENTD_TEST_FULL") != "" {
		return 20_000
	}
	return 2000
}

// The comparison finds every mutation of the model.
func TestMutationsAreFound(t *testing.T) {
	samples := rapid.Custom(drawSample)
	c := circumstances{procs: 2, pending: 2}
	for mutation := model.Right + 1; mutation < model.Mutations; mutation++ {
		found := 0
		for seed := 0; found == 0 && seed < 5000; seed++ {
			s := samples.Example(seed)
			right, _ := expected(s, model.Right)
			wrong, _ := expected(s, mutation)
			if !slices.EqualFunc(right, wrong, func(a, b left) bool { return a.diff(&b) == "" }) && compare(s, c, mutation) != "" {
				if found = seed + 1; testing.Verbose() {
					s, c := least(s, c, mutation)
					t.Logf("mutation %d, found on sample %d: %s\n%s", mutation, found, compare(s, c, mutation), s)
				}
			}
		}
		if found == 0 {
			t.Errorf("mutation %d is not found", mutation)
		}
	}
}
