package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter/gen"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/savepoint"
)

// TestSavepointsOfARun: a pipeline that runs makes them, keeps as many as it is told, and sweeps what a killed process has left.
func TestSavepointsOfARun(t *testing.T) {
	t.Parallel()
	root, to := t.TempDir(), t.TempDir()
	p := engine.New("saved", engine.WithSavepoints(engine.Savepoints{To: to, Every: 10 * time.Millisecond, Keep: 3}))
	countWords(engine.From(p, "lines", gen.New(gen.Config{Partitions: 2, Rate: 20_000, Make: func(rng *batch.Rand, _ int32, _ int64, rec *batch.Record) {
		rec.Value = fmt.Appendf(nil, "word%d", rng.Uint64()%100)
	}}), codec.String()), "counts")
	left := filepath.Join(root, "saved", fmt.Sprintf("copy-%d-1", os.Getpid()))
	if err := os.MkdirAll(left, 0o750); err != nil {
		t.Fatal(err)
	}
	h, err := engine.Start(t.Context(), p, engine.Options{DataDir: root})
	if err != nil {
		t.Fatal(err)
	}
	for txid := batch.Txid(1); h.Status().Savepoints.Made < 5; txid++ {
		if err := h.WaitFor(t.Context(), txid); err != nil {
			t.Fatal(err)
		}
	}
	h.Drain()
	if err := h.Wait(); err != nil {
		t.Fatal(err)
	}
	place := savepoint.At(to, "saved")
	all, err := place.List(t.Context())
	if err != nil || len(all) < 3 || len(all) > 4 { // the end may come between one that is made and one that goes
		t.Fatalf("%d savepoints, %v; want 3", len(all), err)
	}
	for _, i := range all {
		if _, err := place.Verify(t.Context(), i.Name); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed process has left is still there")
	}
}

func TestSavepointsRefused(t *testing.T) {
	t.Parallel()
	for text, s := range map[string]engine.Savepoints{
		"To is missing":                   {Every: time.Hour},
		"negative":                        {To: "x", Keep: -1},
		"s3:// aren't known (known: none": {To: "s3://bucket/prefix?secret=s"},
	} {
		p := engine.New("saved", engine.WithSavepoints(s))
		countWords(engine.From(p, "lines", nowhere{}, codec.String()), "counts")
		_, err := engine.Start(t.Context(), p, engine.Options{DataDir: t.TempDir()})
		if batch.CodeOf(err) != batch.CodeConfiguration || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
