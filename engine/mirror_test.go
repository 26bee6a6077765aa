package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/txstate"
)

// mirror notes what it is told.
type mirror struct {
	carried []txstate.Carried
	refused []error // what Carried answers first
	open    error

	mu     sync.Mutex
	asked  int
	rewind bool
	told   []string // "txid: next"
	closed int
}

func (m *mirror) Name() string { return "mirror" }

func (m *mirror) Carried(context.Context) ([]txstate.Carried, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if m.asked <= len(m.refused) {
		return nil, m.refused[m.asked-1]
	}
	return slices.Clone(m.carried), nil
}

func (m *mirror) Rewind() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rewind = true
}

func (m *mirror) Committed(txid batch.Txid, epoch batch.Epoch, positions []txstate.SavedPosition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if epoch == 0 || m.closed > 0 {
		panic("no epoch, or told after Close")
	}
	text := fmt.Sprintf("%d:", txid)
	for _, p := range positions {
		text += fmt.Sprintf(" %d", p.Next)
	}
	m.told = append(m.told, text)
}

func (m *mirror) Status() txstate.MirrorStatus { return txstate.MirrorStatus{Txid: 7, Pending: true} }

func (m *mirror) Close(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed++
	return errors.New("it never gets done")
}

// mirrored is a source of files with a mirror.
type mirrored struct {
	emitter.Source
	m     *mirror
	write []string
}

func (s mirrored) Mirror(pipeline, id string, _ emitter.Env) (txstate.Mirror, error) {
	if pipeline != "test" || id != "lines" {
		return nil, fmt.Errorf("made for %s, %s", pipeline, id)
	}
	if s.m == nil {
		return nil, nil //nolint:nilnil // no mirror is no error
	}
	return s.m, s.m.open
}

func (s mirrored) Mirrored(string) []string { return s.write }

// mirrorRun runs a pipeline of one file with five lines.
type mirrorRun struct {
	t    *testing.T
	dir  string
	file string
}

func newMirrorRun(t *testing.T) *mirrorRun {
	r := &mirrorRun{t: t, dir: t.TempDir()}
	r.file = filepath.Join(r.dir, "in.txt")
	r.append("a\nb\na\nc\na\n")
	return r
}

func (r *mirrorRun) append(text string) {
	r.t.Helper()
	f, err := os.OpenFile(r.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // the write is checked
	if _, err := f.WriteString(text); err != nil {
		r.t.Fatal(err)
	}
}

func (r *mirrorRun) run(m *mirror, change ...func(*engine.Options)) error {
	p := engine.New("test")
	countWords(engine.From(p, "lines", mirrored{Source: file.Paths(r.file), m: m}, codec.String()), "counts")
	o := engine.Options{DataDir: filepath.Join(r.dir, "data"), UntilCaughtUp: true}
	for _, f := range change {
		f(&o)
	}
	return engine.Run(r.t.Context(), p, o)
}

func fresh(o *engine.Options) { o.Fresh = true }

func (r *mirrorRun) told(m *mirror, want ...string) {
	r.t.Helper()
	if !slices.Equal(m.told, want) {
		r.t.Errorf("the mirror was told %q, want %q", m.told, want)
	}
	if m.closed != 1 {
		r.t.Errorf("the mirror was closed %d times", m.closed)
	}
}

// TestMirrorIsTold: at the start what the store holds, then each batch. That it can't be written is no failure.
func TestMirrorIsTold(t *testing.T) {
	r := newMirrorRun(t)
	m := &mirror{}
	if err := r.run(m); err != nil {
		t.Fatal(err)
	}
	r.told(m, "0: 0", "1: 5")
	r.append("d\n")
	m = &mirror{}
	if err := r.run(m); err != nil {
		t.Fatal(err)
	}
	r.told(m, "1: 5", "2: 6")
	if m.asked != 0 {
		t.Error("a store with data was doubted")
	}
	if err := r.run(nil); err != nil {
		t.Errorf("without a mirror: %v", err)
	}
}

// TestEmptyStoreIsDoubted: where the mirror says that the pipeline has run, it doesn't start over by itself.
func TestEmptyStoreIsDoubted(t *testing.T) {
	at := func(n int32, next int64, txid batch.Txid) txstate.Carried {
		return txstate.Carried{Partition: batch.Partition{Source: "lines", Topic: "t", Number: n}, Next: next, Txid: txid, Epoch: 3}
	}
	refuses := &mirror{carried: []txstate.Carried{at(0, 20, 12), at(1, 0, 0), at(2, 7, 11)}}
	r := newMirrorRun(t)
	err := r.run(refuses)
	var e *batch.Error
	if !errors.As(err, &e) || e.Kind != batch.Permanent || e.Code != batch.CodeStoreMissing || e.Pipeline != "test" ||
		!strings.Contains(e.Error(), "txid 12 (t-0 at 20, t-2 at 7)") || !strings.Contains(e.Remedy, "--fresh") {
		t.Fatalf("started over what ran: %v", err)
	}
	r.told(refuses)

	many := &mirror{}
	for i := range int32(30) {
		many.carried = append(many.carried, at(i, 1, 1))
	}
	if err := r.run(many); err == nil || !strings.Contains(err.Error(), "t-7 at 1, 22 more partitions)") {
		t.Errorf("thirty partitions: %v", err)
	}

	over := &mirror{carried: refuses.carried}
	if err := r.run(over, fresh); err != nil {
		t.Fatal(err)
	}
	r.told(over, "0: 0", "1: 5")
	if !over.rewind || over.asked != 0 {
		t.Errorf("a fresh start: rewind %v, asked %d times", over.rewind, over.asked)
	}
	again := &mirror{carried: refuses.carried}
	if err := r.run(again, fresh); err != nil {
		t.Fatal(err)
	}
	r.told(again, "1: 5")
	if again.rewind {
		t.Error("a store with data lets the mirror go back")
	}
}

// TestDoubtsAreSettled: a mirror that is away, or refuses to answer, is asked again, and a txid of 0 is no sign of a run.
func TestDoubtsAreSettled(t *testing.T) {
	away := batch.NewError(batch.Transient, batch.CodeUnavailable, "mirror", errors.New("away"), "")
	denied := batch.NewError(batch.Transient, batch.CodeUnauthorized, "mirror", errors.New("denied"), "")
	for name, c := range map[string]struct {
		m     *mirror
		asked int
	}{
		"away":    {&mirror{refused: []error{away, away}}, 3},
		"denied":  {&mirror{refused: []error{denied}}, 2},
		"unmoved": {&mirror{carried: []txstate.Carried{{Next: 5}}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newMirrorRun(t)
			if err := r.run(c.m); err != nil {
				t.Fatal(err)
			}
			r.told(c.m, "0: 0", "1: 5")
			if c.m.asked != c.asked {
				t.Errorf("asked %d times, want %d", c.m.asked, c.asked)
			}
		})
	}
}

// TestDenied: who may not read a mirror may have written it before. An empty store doesn't start beside it, and says what to do.
func TestDenied(t *testing.T) {
	denied := batch.NewError(batch.Transient, batch.CodeUnauthorized, "mirror", errors.New("denied"), "grant it")
	m := &mirror{refused: slices.Repeat([]error{denied}, 1000)}
	r := newMirrorRun(t)
	p := engine.New("test")
	countWords(engine.From(p, "lines", mirrored{Source: file.Paths(r.file), m: m}, codec.String()), "counts")
	h, err := engine.Start(t.Context(), p, engine.Options{DataDir: filepath.Join(r.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	var e *batch.Error
	eventually(t, "the refusal", func() bool { return errors.As(h.Status().Failure, &e) })
	if !errors.Is(e, denied.Err) || e.Code != batch.CodeUnauthorized || e.Pipeline != "test" || !strings.Contains(e.Error(), "is empty, and whether the pipeline has run before") ||
		!strings.HasPrefix(e.Remedy, "grant it; or, ") || !strings.Contains(e.Remedy, "--fresh") {
		t.Errorf("refused with %v; %s", e, e.Remedy)
	}
	h.Drain()
	if err := h.Wait(); err != nil {
		t.Errorf("a drained start: %v", err)
	}
	r.told(m)
	over := &mirror{refused: slices.Repeat([]error{denied}, 1000)}
	if err := r.run(over, fresh); err != nil {
		t.Fatal(err)
	}
	r.told(over, "0: 0", "1: 5")
}

// TestMirrorOfAFailedStart: a start that fails, or that is stopped while it waits, closes the mirrors.
func TestMirrorOfAFailedStart(t *testing.T) {
	r := newMirrorRun(t)
	bad := &mirror{open: errors.New("bad settings")}
	if err := r.run(bad); err == nil || !strings.Contains(err.Error(), "bad settings") {
		t.Errorf("Run: %v", err)
	}
	waits := &mirror{refused: slices.Repeat([]error{errors.New("away")}, 1000)}
	p := engine.New("test")
	countWords(engine.From(p, "lines", mirrored{Source: file.Paths(r.file), m: waits}, codec.String()), "counts")
	h, err := engine.Start(t.Context(), p, engine.Options{DataDir: filepath.Join(r.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	for {
		st := h.Status()
		if len(st.Mirrors) == 1 && st.Failing {
			if st.Mirrors[0].Name != "mirror" || st.Mirrors[0].Txid != 7 || !st.Mirrors[0].Pending {
				t.Errorf("status %+v", st.Mirrors)
			}
			break
		}
	}
	h.Drain()
	if err := h.Wait(); err != nil {
		t.Errorf("a drained start: %v", err)
	}
	r.told(waits)
}

func TestTwoSourcesWriteTheSame(t *testing.T) {
	p := engine.New("test")
	for _, id := range []string{"one", "two"} {
		s := engine.From(p, id, mirrored{Source: file.Paths("x"), write: []string{id, "topic t in group g"}}, codec.String())
		countWords(s, "counts_"+id)
	}
	_, err := p.Plan()
	if err == nil || batch.CodeOf(err) != batch.CodeConfiguration || !strings.Contains(err.Error(), "sources one and two would both write topic t in group g") {
		t.Errorf("Plan: %v", err)
	}
}
