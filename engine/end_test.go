package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
)

// faulty is a source of lines that fails to open, or hangs when it is asked for its end.
type faulty struct {
	emitter.Source
	open  error         // what opening it gives; nil: it opens
	asked chan struct{} // if not nil, asking for the ends closes it and then hangs
}

func (f faulty) Open(id string, framing emitter.Framing, env emitter.Env) (emitter.Emitter, error) {
	if f.open != nil {
		return nil, f.open
	}
	em, err := f.Source.Open(id, framing, env)
	return faultyEmitter{em, f.asked}, err
}

type faultyEmitter struct {
	emitter.Emitter
	asked chan struct{}
}

func (f faultyEmitter) Ends(ctx context.Context) (map[batch.Partition]int64, error) {
	if f.asked == nil {
		return f.Emitter.Ends(ctx)
	}
	close(f.asked)
	<-ctx.Done()
	return nil, ctx.Err()
}

// faultyRun starts a pipeline over a file of three lines.
func faultyRun(t *testing.T, dir string, f faulty, o engine.Options) *engine.Handle {
	t.Helper()
	in := filepath.Join(dir, "in.txt")
	if err := os.WriteFile(in, []byte("a\nb\na\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Source = file.Paths(in)
	p := engine.New("test")
	countWords(engine.From(p, "lines", f, codec.String()), "counts")
	o.DataDir = filepath.Join(dir, "data")
	h, err := engine.Start(t.Context(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// waitFor returns once a status is as wanted.
func waitFor(t *testing.T, h *engine.Handle, what string, ok func(engine.Status) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(h.Status()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no status with %s: %+v", what, h.Status())
		}
	}
}

// TestDrainWhileEndsAreAsked: a source that doesn't answer how long it is doesn't hold a stop up.
func TestDrainWhileEndsAreAsked(t *testing.T) {
	asked := make(chan struct{})
	h := faultyRun(t, t.TempDir(), faulty{asked: asked}, engine.Options{UntilCaughtUp: true})
	<-asked
	h.Drain()
	if err := h.Wait(); err != nil {
		t.Error(err)
	}
}

// TestStatusOfWhatHasCommitted: where the pipeline stands is known before its sources have been opened, when they can't
// be, and when it has ended.
func TestStatusOfWhatHasCommitted(t *testing.T) {
	dir := t.TempDir()
	h := faultyRun(t, dir, faulty{}, engine.Options{UntilCaughtUp: true})
	if err := h.Wait(); err != nil {
		t.Fatal(err)
	}
	first := h.Status()
	if first.Txid == 0 || first.Epoch != 1 || len(first.Reasons) != 1 || first.Failing {
		t.Errorf("after the end: %+v", first)
	}

	away := errors.New("away")
	h = faultyRun(t, dir, faulty{open: away}, engine.Options{})
	waitFor(t, h, "the cause", func(st engine.Status) bool { return st.Failing })
	for range 2 {
		st := h.Status()
		if st.Txid != first.Txid || st.Epoch == 0 || len(st.Reasons) == 0 {
			t.Errorf("without its source: %+v", st)
		}
		h.Drain()
		if err := h.Wait(); err != nil {
			t.Fatal(err)
		}
	}

	gone := batch.NewError(batch.Permanent, batch.CodeTopicMissing, "open", errors.New("gone"), "make it")
	began := time.Now()
	h = faultyRun(t, dir, faulty{open: gone}, engine.Options{})
	if err := h.Wait(); batch.CodeOf(err) != batch.CodeTopicMissing {
		t.Fatal(err)
	}
	if st := h.Status(); st.Txid != first.Txid || !st.Failing || st.FailureSince.Before(began) {
		t.Errorf("after a stop for good: %+v", st)
	}
}
