package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/sinktest"
)

// upper sends lines in capitals, whose first word is the key, to a target in memory.
type upper struct {
	m      *sinktest.Memory
	suffix string
}

func (upper) Describe() string { return "memory" }

func (u upper) Encode(v string, r *sink.Record) error {
	if v == "bad" {
		return errors.New("it can't be written")
	}
	key, _, _ := strings.Cut(v, " ")
	r.Key, r.Value = []byte(key), []byte(strings.ToUpper(v)+u.suffix)
	return nil
}

func (u upper) Open(string, string, emitter.Env) (sink.Sink, error) { return u.m.Open() }

// sinkRun is a pipeline that sends lines of a file to targets and counts them.
type sinkRun struct {
	t       *testing.T
	dir     string
	data    string
	targets map[string]upper
	opts    []engine.PipelineOption
	lines   []string
}

func newSinkRun(t *testing.T, n int) *sinkRun {
	t.Helper()
	dir := t.TempDir()
	r := &sinkRun{t: t, dir: dir, data: filepath.Join(dir, "data"), targets: map[string]upper{"out": {m: &sinktest.Memory{}}}}
	for i := range n {
		r.lines = append(r.lines, fmt.Sprintf("k%d %d", i%3, i))
	}
	if err := os.WriteFile(filepath.Join(dir, "lines.txt"), []byte(strings.Join(r.lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *sinkRun) pipeline() *engine.Pipeline {
	p := engine.New("test", append([]engine.PipelineOption{engine.WithBatching(engine.Batching{MaxRecords: 10, RetryMin: time.Millisecond, RetryMax: 2 * time.Millisecond})}, r.opts...)...)
	s := engine.From(p, "lines", file.Paths(filepath.Join(r.dir, "lines.txt")), codec.String())
	names := make([]string, 0, len(r.targets))
	for name := range r.targets { // order: sorted below
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		engine.To(s, name, r.targets[name])
	}
	engine.Aggregate(engine.GroupBy(s, func(l string) string { return l[:2] }, "key"), "counts", agg.Count[string]("n"))
	return p
}

func (r *sinkRun) run(change ...func(*engine.Options)) error {
	o := engine.Options{DataDir: r.data, UntilCaughtUp: true}
	for _, c := range change {
		c(&o)
	}
	return engine.Run(r.t.Context(), r.pipeline(), o)
}

// exact checks that a target holds each line once, in order.
func (r *sinkRun) exact(name string) {
	r.t.Helper()
	recs, err := r.targets[name].m.Records(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var got []string
	for i := range recs {
		got = append(got, string(recs[i].Value))
	}
	want := make([]string, len(r.lines))
	for i, l := range r.lines {
		want[i] = strings.ToUpper(l)
	}
	if !slices.Equal(got, want) {
		r.t.Fatalf("%s holds %d records, want %d, each once and in order: %q", name, len(got), len(want), got)
	}
}

func (r *sinkRun) counts() int64 {
	r.t.Helper()
	db, err := pebblestate.Open(r.t.Context(), pebblestate.Options{Dir: filepath.Join(r.data, "test"), Pipeline: "test", ReadOnly: true})
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // it only reads
	snap, err := db.Snapshot()
	if err != nil {
		r.t.Fatal(err)
	}
	defer snap.Close() //nolint:errcheck // it only reads
	rows, err := engine.ReadSnapshot[string, int64](r.t.Context(), snap, "counts")
	if err != nil {
		r.t.Fatal(err)
	}
	var n int64
	for _, c := range rows { // order: a sum
		n += c
	}
	return n
}

func TestSink(t *testing.T) {
	r := newSinkRun(t, 95)
	r.targets["second"] = upper{m: &sinktest.Memory{}}
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	r.exact("out")
	r.exact("second")
	if n := r.counts(); n != 95 {
		t.Errorf("counted %d", n)
	}
	held := r.targets["out"].m.Held()
	if held.Txid == 0 || held.Epoch != 1 {
		t.Errorf("the target's progress: %+v", held)
	}
	// Nothing new: a second run sends nothing.
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	r.exact("out")
	if now := r.targets["out"].m.Held(); now.Txid != held.Txid || now.Chain != held.Chain || now.Epoch != 2 {
		t.Errorf("the target's progress after another run: %+v, was %+v", now, held)
	}
}

// TestSinkFaults has every call of a sink fail now and then, before it takes effect and after.
func TestSinkFaults(t *testing.T) {
	for seed := range uint64(30) {
		r := newSinkRun(t, 120)
		rng := rand.New(rand.NewPCG(seed, 7))
		second := upper{m: &sinktest.Memory{}}
		r.targets["second"] = second
		faults := 0
		for _, m := range []*sinktest.Memory{r.targets["out"].m, second.m} {
			claimed := false
			m.Fault = func(op string, done bool) error {
				if op == "progress" || op == "claim" && !claimed { // these are tried again slowly
					claimed = claimed || op == "claim" && done
					return nil
				}
				if rng.IntN(6) != 0 {
					return nil
				}
				faults++
				return fmt.Errorf("%s is cut off, done: %t", op, done)
			}
		}
		if err := r.run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		r.exact("out")
		r.exact("second")
		if n := r.counts(); n != 120 {
			t.Errorf("seed %d: counted %d", seed, n)
		}
		if faults == 0 {
			t.Errorf("seed %d: nothing failed", seed)
		}
	}
}

// TestSinkDeaths ends the run at each call of a sink, before it takes effect and after, and begins another.
func TestSinkDeaths(t *testing.T) {
	died := batch.NewError(batch.Permanent, batch.CodeInternal, "test", errors.New("the process dies here"), "")
	for at := 1; ; at++ {
		r := newSinkRun(t, 45)
		r.targets["second"] = upper{m: &sinktest.Memory{}}
		calls := 0
		fault := func(string, bool) error {
			if calls++; calls == at {
				return died
			}
			return nil
		}
		for _, name := range []string{"out", "second"} {
			r.targets[name].m.Fault = fault
		}
		err := r.run()
		if calls < at {
			if err != nil {
				t.Fatal(err)
			}
			if at < 40 {
				t.Errorf("only %d calls", calls)
			}
			return
		}
		if err == nil || !strings.Contains(err.Error(), "the process dies here") {
			t.Fatalf("call %d: %v", at, err)
		}
		if err := r.run(); err != nil {
			t.Fatalf("after a death at call %d: %v", at, err)
		}
		r.exact("out")
		r.exact("second")
		if n := r.counts(); n != 45 {
			t.Errorf("after a death at call %d: counted %d", at, n)
		}
	}
}

func TestSinkAheadOfTheStore(t *testing.T) {
	r := newSinkRun(t, 40)
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	held := r.targets["out"].m.Held()
	r.data = filepath.Join(r.dir, "another")
	err := r.run()
	if batch.CodeOf(err) != batch.CodeSinkAhead || batch.KindOf(err) != batch.Permanent {
		t.Fatalf("an empty store behind a sink's target: %v", err)
	}
	for _, part := range []string{"pipeline test", "sink out", fmt.Sprintf("txid %d", held.Txid), "txid 0", "--fresh"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error doesn't say %q: %v", part, err)
		}
	}
	r.exact("out")
	if err := r.run(func(o *engine.Options) { o.Fresh = true }); err != nil {
		t.Fatal(err)
	}
	recs, err := r.targets["out"].m.Records(t.Context())
	if err != nil || len(recs) != 80 {
		t.Errorf("%d records after a fresh start, %v; want them all twice", len(recs), err)
	}
}

func TestSinkBehindTheStore(t *testing.T) {
	r := newSinkRun(t, 40)
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	r.targets["out"] = upper{m: &sinktest.Memory{}}
	err := r.run()
	if batch.CodeOf(err) != batch.CodeSinkBehind || batch.KindOf(err) != batch.Permanent {
		t.Fatalf("a target that has forgotten everything: %v", err)
	}
}

// TestRule4SkipNeedsAnEqualChain lets a run die after the target took a batch that the store hasn't committed: the next run passes
// that batch over where it comes to the same digest, and stops for good where it doesn't.
func TestRule4SkipNeedsAnEqualChain(t *testing.T) {
	r := newSinkRun(t, 40)
	died := batch.NewError(batch.Permanent, batch.CodeInternal, "test", errors.New("the process dies here"), "")
	m := r.targets["out"].m
	commits := 0
	m.Fault = func(op string, done bool) error {
		if op == "commit" && done {
			if commits++; commits == 2 {
				return died
			}
		}
		return nil
	}
	if err := r.run(); err == nil || !strings.Contains(err.Error(), "the process dies here") {
		t.Fatal(err)
	}
	m.Fault = nil
	r.targets["out"] = upper{m: m, suffix: "!"}
	err := r.run()
	if batch.CodeOf(err) != batch.CodeSinkDiffers || batch.KindOf(err) != batch.Permanent {
		t.Fatalf("the batch that the target holds, with another output: %v", err)
	}
	r.targets["out"] = upper{m: m}
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	r.exact("out")
}

func TestSinkBadRecord(t *testing.T) {
	build := func(opts ...engine.PipelineOption) func() *engine.Pipeline {
		return lines(func(s engine.Stream[string]) { engine.To(s, "out", upper{m: &sinktest.Memory{}}) }, opts...)
	}
	in := []enginetest.Input{{"lines": {"a 1", "bad", "b 2"}}}
	_, err := enginetest.Try(t, build()(), in...)
	if e, ok := errors.AsType[*batch.Error](err); !ok || e.Code != batch.CodeBadRecord || e.Op != "sink out" || e.Offset != 1 {
		t.Errorf("a value that can't be written: %v", err)
	}
	skip := build(engine.OnBadRecord(engine.Skip))
	r := enginetest.Run(t, skip(), in...)
	if rej := r.Rejected(); len(rej) != 1 || rej[0].Step != "sink out" || rej[0].Offset != 1 {
		t.Errorf("turned away: %+v", rej)
	}
	enginetest.Deterministic(t, skip, in...)
}

func TestSinkMistakes(t *testing.T) {
	p := engine.New("test")
	s := engine.From(p, "lines", nowhere{}, codec.String())
	engine.To(s, "two", upper{m: &sinktest.Memory{}})
	engine.To(s, "two", upper{m: &sinktest.Memory{}})
	engine.To(s, "a.b", upper{m: &sinktest.Memory{}})
	_, err := p.Plan()
	for _, part := range []string{`two sinks are named "two"`, `sink name "a.b"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error doesn't say %q: %v", part, err)
		}
	}
}
