package replay_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/replay"
	"github.com/tridentd/tridentd/txstate"
)

// TestIntoKnowsNoLaterSource: a store as of a txid before a source was added doesn't take the source for one that has been
// opened before: its start policy is still to be applied. As of the last txid it knows what the original knows.
func TestIntoKnowsNoLaterSource(t *testing.T) {
	w := newWorld(t)
	w.run("data") // one epoch
	before := func() batch.Txid {
		db := w.open("data", true)
		defer db.Close() //nolint:errcheck // nothing was written
		snap, err := db.Store().Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return snap.Txid
	}()
	w.write("more.txt", strings.Repeat("x\n", 10))
	build := func() *engine.Pipeline {
		p := w.pipeline()
		more := engine.From(p, "more", file.Paths(filepath.Join(w.dir, "more.txt")), codec.String())
		engine.Aggregate(engine.GroupBy(more, func(s string) string { return s }, "line"), "more", agg.Count[string]("n"))
		return p
	}
	if err := engine.Run(t.Context(), build(), engine.Options{DataDir: filepath.Join(w.dir, "data"), UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	db := w.open("data", true)
	original, err := db.Store().Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	load := func(name string, to batch.Txid) txstate.Snapshot {
		t.Helper()
		dir := filepath.Join(w.dir, name, "words")
		if _, err := replay.Verify(t.Context(), build(), replay.Options{Store: db, To: to, Dir: dir}); err != nil {
			t.Fatal(err)
		}
		other := w.open(name, true)
		defer other.Close() //nolint:errcheck // nothing was written
		snap, err := other.Store().Load(t.Context())
		if err != nil || snap.Epoch < original.Epoch {
			t.Errorf("epoch %d, %v; the original has %d, and attempts must not fall", snap.Epoch, err, original.Epoch)
		}
		return snap
	}
	for _, p := range load("early", before).Positions {
		if p.Source == "more" {
			t.Errorf("a position %s of a source that came later", p.Position)
		}
	}
	whole := load("whole", 0)
	if len(whole.Positions) != len(original.Positions) {
		t.Fatalf("%d positions, want %d", len(whole.Positions), len(original.Positions))
	}
	for i, p := range whole.Positions {
		if p.Position != original.Positions[i].Position {
			t.Errorf("position %s, want %s", p.Position, original.Positions[i].Position)
		}
	}
}
