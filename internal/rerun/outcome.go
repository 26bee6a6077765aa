package rerun

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/replay"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// outcome is what a run left.
type outcome struct {
	pl      *plan.Plan
	fs      vfs.FS
	entries []txstate.Entry
	digest  uint64
}

// diff tells how got differs from o; empty if it doesn't.
func (o *outcome) diff(ctx context.Context, got *outcome) string {
	if len(o.entries) != len(got.entries) {
		return fmt.Sprintf("%d batches committed, not %d", len(got.entries), len(o.entries))
	}
	for i := range o.entries {
		w, g := &o.entries[i], &got.entries[i]
		if w.Chain != g.Chain {
			return fmt.Sprintf("txid %d is the first that differs: %s%s", w.Txid, entryDiff(w, g), o.rows(ctx, got))
		}
	}
	if o.digest != got.digest {
		return fmt.Sprintf("the final state differs: digest %016x, not %016x%s", got.digest, o.digest, o.rows(ctx, got))
	}
	return ""
}

func entryDiff(w, g *txstate.Entry) string {
	for j := range min(len(w.Ranges), len(g.Ranges)) {
		if w.Ranges[j].Input != g.Ranges[j].Input {
			return fmt.Sprintf("what was read of %s", w.Ranges[j].Range)
		}
	}
	for j := range w.States {
		if j >= len(g.States) || w.States[j] != g.States[j] {
			return "state " + w.States[j].State
		}
	}
	return fmt.Sprintf("what it changed: %v, not %v", g.States, w.States)
}

// rows tells the first rows of the final states in which they differ.
func (o *outcome) rows(ctx context.Context, got *outcome) string {
	const shown = 3
	var b strings.Builder
	err := o.compare(ctx, got, func(name string, c *replay.Change) bool {
		cols, n := query.Columns(c.Schema), len(c.Schema.Key)
		fmt.Fprintf(&b, "\n  state %s, key %s: %s, not %s", name, text(cols[:n], c.Key), text(cols[n:], c.Now), text(cols[n:], c.Was))
		return strings.Count(b.String(), "\n") < shown
	})
	if err != nil {
		fmt.Fprintf(&b, "\n  (its rows can't be compared: %v)", err)
	}
	return b.String()
}

func text(cols []state.Column, row []value.Value) string {
	if row == nil {
		return "no row"
	}
	var all []string
	for i, v := range row {
		all = append(all, cols[i].Name+"="+string(value.AppendText(nil, v)))
	}
	return strings.Join(all, " ")
}

// compare passes the rows that differ to each until it returns false.
func (o *outcome) compare(ctx context.Context, got *outcome, each func(name string, c *replay.Change) bool) (err error) {
	var snaps [2]*pebblestate.Snapshot
	for i, side := range []*outcome{o, got} {
		db, oerr := OpenStore(ctx, side.pl, side.fs)
		if oerr != nil {
			return oerr
		}
		defer db.Close() //nolint:errcheck // nothing was written
		if snaps[i], err = db.Snapshot(); err != nil {
			return err
		}
		defer snaps[i].Close() //nolint:errcheck // nothing was written
	}
	schemas, err := snaps[0].Schemas()
	if err != nil {
		return err
	}
	more, err := snaps[1].Schemas()
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, s := range append(schemas, more...) {
		if seen[s.Name] {
			continue
		}
		seen[s.Name] = true
		for c, err := range replay.Changes(ctx, snaps[0], snaps[1], s.Name) {
			if err != nil {
				return err
			}
			if !each(s.Name, &c) {
				return nil
			}
		}
	}
	return nil
}

// crashPoint is what a crash just before a sync would have left on disk.
type crashPoint struct {
	sync int // its number, from 1
	fs   vfs.FS
}

// crash runs the batches and returns what a crash would have left, at so many of the syncs that the store asks for (0: at each),
// evenly spread, with so many percent of what wasn't synced lost; and how many syncs there were.
func (in *Input) crash(ctx context.Context, build Build, lost, limit int) (points []crashPoint, syncs int, err error) {
	stride := 1
	if limit > 0 { // a file system takes room: only those that are wanted are copied
		n, err := in.syncs(ctx, build, vfs.NewMem(), func(int) {})
		if err != nil {
			return nil, 0, err
		}
		stride = max(1, (n+limit-1)/limit)
	}
	mem := vfs.NewCrashableMem()
	rng := rand.New(rand.NewPCG(1, 2)) // picks the blocks that are lost
	syncs, err = in.syncs(ctx, build, mem, func(n int) {
		if n%stride == 0 {
			points = append(points, crashPoint{n, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100 - lost, RNG: rng})})
		}
	})
	return points, syncs, err
}

// syncs runs the batches, calls each before each sync, with its number, and tells how many there were.
func (in *Input) syncs(ctx context.Context, build Build, mem vfs.FS, each func(n int)) (int, error) {
	var mu sync.Mutex
	n := 0
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			mu.Lock()
			defer mu.Unlock()
			n++
			each(n)
		}
		return nil
	}))
	_, err := in.once(ctx, build, fs, Circumstances{Procs: 2, Pending: 2})
	mu.Lock()
	defer mu.Unlock()
	return n, err
}
