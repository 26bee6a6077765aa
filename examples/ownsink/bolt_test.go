package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/sinktest"
)

// held is a file as the conformance suite takes it.
type held struct{ *File }

func (h held) Open() (sink.Sink, error) { return h.To().Open("p", "out", emitter.Env{}) }

func (h held) Records(context.Context) (recs []sink.Record, err error) {
	all, err := h.Entries()
	for _, e := range all {
		recs = append(recs, sink.Record{Value: []byte(e)})
	}
	return recs, err
}

func TestConformance(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Target {
		f := &File{Path: filepath.Join(t.TempDir(), "out.bolt")}
		t.Cleanup(func() {
			if f.db != nil {
				f.db.Close() //nolint:errcheck // the test is over
			}
		})
		return held{f}
	}, sinktest.ValuesOnly())
}

func TestErrorsAreNamed(t *testing.T) {
	dir := t.TempDir()
	busy := filepath.Join(dir, "busy.bolt")
	db, err := bbolt.Open(busy, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // nothing was written
	text := filepath.Join(dir, "text.bolt")
	if err := os.WriteFile(text, bytes.Repeat([]byte("no database\n"), 2000), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]batch.Kind{busy: batch.Transient, text: batch.Permanent} {
		k, err := held{&File{Path: path}}.Open()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = k.Claim(ctx, 1)
		e, ok := errors.AsType[*batch.Error](err)
		if !ok || e.Kind != kind || e.Remedy == "" {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestCommands runs the example as users do, in two runs; the second finds nothing left to do.
func TestCommands(t *testing.T) {
	f := &File{Path: filepath.Join(t.TempDir(), "stock.bolt")}
	data := t.TempDir()
	command := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := daemon.Execute(t.Context(), append(args, "--data", data), &out, &errs, Stock(f)); code != 0 {
			t.Fatalf("%v: exit %d\n%s", args, code, errs.String())
		}
		return out.String()
	}
	for range 2 {
		command("run", "--until", "caught-up", "--listen", "off")
	}
	got, err := f.Entries()
	if err != nil {
		t.Fatal(err)
	}
	// Batches of four: each shelf that a batch changed, in no order but that of its states' shards.
	want := [][]string{{"a1 10", "b4 30", "c2 7"}, {"a1 15", "b4 0", "c2 5"}, {"a1 14", "b4 8"}}
	for i, w := range want {
		if len(got) < len(w) {
			t.Fatalf("batch %d: %q left, want %q", i+1, got, w)
		}
		b := slices.Sorted(slices.Values(got[:len(w)]))
		if !slices.Equal(b, w) {
			t.Errorf("batch %d: %q, want %q", i+1, b, w)
		}
		got = got[len(w):]
	}
	if len(got) > 0 {
		t.Errorf("more: %q", got)
	}
	if got := command("replay", "--verify"); !strings.Contains(got, "equal (byte for byte)") {
		t.Error(got)
	}
}
