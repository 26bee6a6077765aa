package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/pebblestate"
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

// ended returns what a run that was told to stop has ended with. With a grace beyond the minute that it may take here, a stop that
// waits for what is in flight is found out.
func ended(t *testing.T, h *engine.Handle) error {
	t.Helper()
	select {
	case <-h.Done():
		return h.Wait()
	case <-time.After(time.Minute):
		t.Fatalf("the stop isn't over within a minute: %+v", h.Status())
		return nil
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

// TestTheCauseStandsWhileARunCloses: between a stop for good and the end, which closing holds up, a status names the cause.
func TestTheCauseStandsWhileARunCloses(t *testing.T) {
	gone := batch.NewError(batch.Permanent, batch.CodeTopicMissing, "open", errors.New("gone"), "make it")
	for _, c := range []struct {
		name   string
		source faulty
		code   batch.Code
	}{
		{"a batch that fails", faulty{}, batch.CodeBadRecord},
		{"a source that can't be opened", faulty{open: gone}, batch.CodeTopicMissing},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := filepath.Join(t.TempDir(), "in.txt")
			if err := os.WriteFile(in, []byte("a\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			c.source.Source = file.Paths(in)
			p := engine.New("test")
			countWords(engine.Map(engine.From(p, "lines", c.source, codec.String()), func(string) string { panic("no word") }), "counts")
			started := make(chan *engine.Handle, 1)
			var closing engine.Status
			h, err := engine.Start(t.Context(), p, engine.Options{
				DataDir: t.TempDir(), BeforeClose: func() { closing = (<-started).Status() },
			})
			if err != nil {
				t.Fatal(err)
			}
			started <- h
			err = h.Wait()
			if batch.CodeOf(err) != c.code {
				t.Fatalf("the run ended with %v, want %s", err, c.code)
			}
			if !closing.Failing || closing.FailureSince.IsZero() || batch.CodeOf(closing.Failure) != c.code || !slices.Contains(closing.Reasons, err.Error()) {
				t.Errorf("while it was being closed: %+v, want the cause: %v", closing, err)
			}
		})
	}
}

// TestAskingWhileTheStoreIsOpenedAgain: whoever asks meanwhile gets an answer at once, and not that the pipeline has ended.
func TestAskingWhileTheStoreIsOpenedAgain(t *testing.T) {
	h := faultyRun(t, t.TempDir(), faulty{open: errors.New("away")}, engine.Options{})
	waitFor(t, h, "the cause", func(st engine.Status) bool { return st.Failing })
	reader, err := h.Snapshot() // closing the store waits for it
	if err != nil {
		t.Fatal(err)
	}
	reopened := make(chan error, 1)
	go func() { reopened <- h.Reopen(t.Context()) }()
	for err == nil {
		var s *pebblestate.Snapshot
		if s, err = h.Snapshot(); err == nil {
			s.Close()
		}
	}
	meanwhile := func(what string, err error) {
		t.Helper()
		if batch.KindOf(err) != batch.Transient || err == nil || !strings.Contains(err.Error(), "the store is being opened again") {
			t.Errorf("%s: %v", what, err)
		}
		select {
		case err := <-reopened:
			t.Fatalf("%s took until the store had been opened (%v)", what, err)
		default:
		}
	}
	meanwhile("a snapshot", err)
	for _, err := range h.Entries(t.Context(), 1, 0) {
		meanwhile("the ledger", err)
	}
	if st := h.Status(); !st.Failing {
		t.Errorf("status: %+v", st)
	}
	h.Drain()
	select {
	case err := <-reopened:
		t.Fatalf("status and drain took until the store had been opened (%v)", err)
	default:
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
	<-reopened // it fails if the run has ended meanwhile
	if err := h.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := h.Snapshot(); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("after the end: %v", err)
	}
}

// TestStopOfAStepThatHangs: batch.timeout is off and a step never returns; a stop is over within 10 s and says what hangs.
func TestStopOfAStepThatHangs(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.txt")
	if err := os.WriteFile(in, []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hanging, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	p := engine.New("test")
	countWords(engine.Map(engine.From(p, "lines", file.Paths(in), codec.String()), func(v string) string {
		close(hanging)
		<-release
		return v
	}), "counts")
	h, err := engine.Start(t.Context(), p, engine.Options{DataDir: filepath.Join(dir, "data"), Grace: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	<-hanging
	h.Drain()
	err = ended(t, h)
	if after := fmt.Sprintf("after %s still running: process", engine.StopTimeout); batch.CodeOf(err) != batch.CodeTimeout || !strings.Contains(err.Error(), after) {
		t.Errorf("the end: %v", err)
	}
	if all := engine.DefaultGrace + engine.StopTimeout + engine.CloseGrace; all > 10*time.Second {
		t.Errorf("with the default grace the stop takes %s", all)
	}
}
