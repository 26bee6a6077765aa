package replay_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/replay"
	"github.com/tridentd/tridentd/window"
)

// A run that is bounded to what is there sends on what its watermark lets close, in batches without data at its end; a replay comes
// to the same.
func TestStages(t *testing.T) {
	w := newWorld(t)
	var b strings.Builder
	for i := range 2000 {
		b.WriteString(time.Unix(int64(i), 0).UTC().Format(time.RFC3339) + "\n")
	}
	w.write("times.txt", b.String())
	type result = engine.Result[string, int64]
	build := func() *engine.Pipeline {
		p := engine.New("words", engine.WithBatching(engine.Batching{MaxRecords: perBatch}))
		at := func(s string) time.Time {
			v, err := time.Parse(time.RFC3339, s)
			if err != nil {
				panic(err)
			}
			return v
		}
		lines := engine.From(p, "lines", file.Paths(filepath.Join(w.dir, "times.txt")), codec.String()).EventTime(at, 0)
		all := func(string) string { return "all" }
		tens := engine.Aggregate(engine.GroupByWindow(lines, window.Tumbling(10*time.Second), all, "all"), "tens", agg.Count[string]("n"))
		hundreds := engine.Aggregate(
			engine.GroupByWindow(engine.Closed[int64](tens), window.Tumbling(100*time.Second), func(r result) string { return r.Key }, "all"),
			"hundreds", agg.SumOf("n", func(r result) int64 { return r.Value }))
		engine.Aggregate(engine.GroupBy(engine.Closed[int64](hundreds), func(r result) string { return r.Key }, "all"),
			"total", agg.SumOf("n", func(r result) int64 { return r.Value }))
		news := engine.Updates[int64](hundreds)
		engine.Aggregate(engine.GroupBy(news, func(r result) string { return r.Key }, "all"), "changes", agg.Count[result]("n"))
		return p
	}
	if err := engine.Run(t.Context(), build(), engine.Options{DataDir: filepath.Join(w.dir, "data"), UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	db := w.open("data", true)
	snap, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close() //nolint:errcheck // it only reads
	total, err := engine.ReadSnapshot[string, int64](t.Context(), snap, "total")
	if err != nil {
		t.Fatal(err)
	}
	// The watermark is that of the last second: the window up to 2000 is open.
	if total["all"] != 1900 {
		t.Errorf("the windows that have closed hold %d records, want 1900", total["all"])
	}
	for _, procs := range []int{1, 16} {
		if _, err := replay.Verify(t.Context(), build(), replay.Options{Store: db, Procs: procs}); err != nil {
			t.Errorf("on %d procs: %v", procs, err)
		}
	}
}
