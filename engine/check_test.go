package engine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/pebblestate"
)

// TestCheckDeterminism runs a pipeline whose function isn't pure for one record: the run stops for good at its batch, what came before has
// committed, and once the function has been mended it goes on as if nothing had been.
func TestCheckDeterminism(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "in.txt")
	if err := os.WriteFile(path, []byte("a\nb\na\nb\nodd\na\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	build := func(pure bool) *engine.Pipeline {
		p := engine.New("words", engine.WithBatching(engine.Batching{MaxRecords: 2}))
		lines := engine.From(p, "lines", file.Paths(path), codec.String())
		bent := engine.Map(lines, func(s string) string {
			if s == "odd" && !pure {
				return fmt.Sprint(s, calls.Add(1))
			}
			return s
		})
		engine.Aggregate(engine.GroupBy(bent, func(s string) string { return s }, "word"), "counts", agg.Count[string]("n"))
		return p
	}
	run := func(pure bool, reg *prometheus.Registry) error {
		return engine.Run(t.Context(), build(pure), engine.Options{
			DataDir: dir, UntilCaughtUp: true, CheckDeterminism: 1, Registerer: reg,
		})
	}
	reg := prometheus.NewRegistry()
	err := run(false, reg)
	e, ok := errors.AsType[*batch.Error](err)
	if !ok || e.Code != batch.CodeNotDeterministic || e.Kind != batch.Permanent || e.Txid != 3 || e.Offset != 4 || e.Pipeline != "words" {
		t.Fatalf("%v, want a permanent stop at txid 3, offset 4", err)
	}
	wantLines(t, exposition(t, reg), `tridentd_batches_checked_total{pipeline="words"} 2`, `tridentd_committed_txid{pipeline="words"} 2`,
		`tridentd_attempts_failed_total{code="not_deterministic",kind="permanent",pipeline="words"} 1`)
	if err := run(true, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: filepath.Join(dir, "words"), Pipeline: "words", ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // it was only read
	snap, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close() //nolint:errcheck // it was only read
	rows, err := engine.ReadSnapshot[string, int64](t.Context(), snap, "counts")
	if err != nil || fmt.Sprint(rows) != "map[a:3 b:2 odd:1]" {
		t.Errorf("%v, %v", rows, err)
	}
	for _, p := range []float64{-0.1, 1.1} {
		err := engine.Run(t.Context(), build(true), engine.Options{DataDir: dir, CheckDeterminism: p})
		if batch.CodeOf(err) != batch.CodeConfiguration || !strings.Contains(err.Error(), "CheckDeterminism") {
			t.Errorf("%v: %v", p, err)
		}
	}
}
