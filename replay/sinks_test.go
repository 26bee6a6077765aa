package replay_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/replay"
	"github.com/tridentd/tridentd/sink/filesink"
	"github.com/tridentd/tridentd/txstate"
)

type word struct{ Word string }

// sinking keeps no state of its own: what the lines hold goes to one sink, their words, bent, to another.
func (w *world) sinking() *engine.Pipeline {
	p := engine.New("words", engine.WithBatching(engine.Batching{MaxRecords: perBatch}), engine.WithLedger(engine.Ledger{KeepChanges: w.keep}))
	lines := engine.From(p, "lines", file.Paths(filepath.Join(w.dir, "in-*.txt")), codec.String())
	engine.To(engine.Map(lines, func(s string) word { return word{s} }), "all", filesink.JSON[word](filepath.Join(w.dir, "all")))
	words := engine.FlatMap(lines, strings.Fields)
	engine.To(engine.Map(words, func(s string) word { return word{w.bend(s)} }), "bent", filesink.JSON[word](filepath.Join(w.dir, "bent")))
	return p
}

func (w *world) verifySinks(o replay.Options) (replay.Report, error) {
	db := w.open("data", true)
	defer db.Close() //nolint:errcheck // nothing was written
	o.Store = db
	return replay.Verify(w.t.Context(), w.sinking(), o)
}

// TestSinks: the ledger has what each batch gave to each sink, and a replay that would give something else names sink and txid.
func TestSinks(t *testing.T) {
	for _, keep := range []bool{false, true} {
		w := newWorld(t)
		w.keep = keep
		w.write("in-2.txt", strings.Repeat("a b\n", lineCount-1)+"a Late\n")
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		if err := engine.Run(ctx, w.sinking(), engine.Options{DataDir: filepath.Join(w.dir, "data"), UntilCaughtUp: true}); err != nil {
			t.Fatal(err)
		}
		for _, procs := range []int{1, 2, 16} {
			if _, err := w.verifySinks(replay.Options{Procs: procs}); err != nil {
				t.Fatalf("procs %d: %v", procs, err)
			}
		}
		db := w.open("data", true)
		var late batch.Txid // the batch that took the line in question
		given := map[string]int64{}
		for e, err := range db.Store().Entries(t.Context(), 0, 0) {
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range e.Sinks {
				given[s.Sink] += s.Records
			}
			if slices.ContainsFunc(e.Ranges, func(r txstate.RangeEntry) bool { return strings.HasSuffix(r.Topic, "in-2.txt") && r.End == lineCount }) {
				late = e.Txid
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if given["all"] != fileCount*lineCount || given["bent"] != 2*fileCount*lineCount {
			t.Errorf("the ledger says that the sinks were given %v", given)
		}
		w.bend = func(s string) string {
			if s == "Late" {
				return "too late"
			}
			return strings.ToLower(s)
		}
		_, err := w.verifySinks(replay.Options{})
		d := different(t, err)
		if d.What != "sink bent" || d.Txid != late || !strings.Contains(d.Want, " records, digest ") || d.Want == d.Got {
			t.Errorf("%+v, want sink bent at txid %d", d, late)
		}
		if d.Writes != keep || len(d.Keys) != 1 || d.Keys[0].State != "_sinks" || d.Keys[0].Key != "sink=bent" || d.Keys[0].Want == d.Keys[0].Got {
			t.Errorf("the keys are %+v", d.Keys)
		}
	}
}
