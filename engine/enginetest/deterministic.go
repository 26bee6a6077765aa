package enginetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// Deterministic asserts that a pipeline gives the same bytes whatever happens: on 1, 2 and 16 procs, with 1 and 4
// batches in flight, and after a crash at every point at which the store has asked for a sync, with and without what
// wasn't synced. build is called for each run, so that state that a function keeps of its own shows too. It sets
// GOMAXPROCS: not for parallel tests.
func Deterministic(t testing.TB, build func() *engine.Pipeline, in ...Input) {
	t.Helper()
	want, err := runOnce(build, in, vfs.NewMem(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 2, 16} {
		runtime.GOMAXPROCS(procs)
		for _, pending := range []int{1, 4} {
			got, err := runOnce(build, in, vfs.NewMem(), procs, pending)
			if err != nil {
				t.Fatalf("with %d procs and %d batches in flight: %v", procs, pending, err)
			}
			if diff := want.diff(got); diff != "" {
				t.Errorf("with %d procs and %d batches in flight: %s", procs, pending, diff)
			}
		}
	}
	for _, lost := range []int{100, 50} { // percent of what wasn't synced
		clones, err := crashPoints(build, in, lost)
		if err != nil {
			t.Fatal(err)
		}
		if len(clones) < len(in) {
			t.Fatalf("%d batches made only %d syncs: a commit wasn't synced", len(in), len(clones))
		}
		for i, fs := range clones {
			got, err := runOnce(build, in, fs, 2, 2)
			if err != nil {
				t.Fatalf("after a crash at sync %d of %d: %v", i+1, len(clones), err)
			}
			if diff := want.diff(got); diff != "" {
				t.Errorf("after a crash at sync %d of %d: %s", i+1, len(clones), diff)
			}
		}
	}
}

// outcome is what two runs are compared by.
type outcome struct {
	entries []txstate.Entry
	digest  uint64
}

func (o *outcome) diff(got *outcome) string {
	if len(o.entries) != len(got.entries) {
		return fmt.Sprintf("%d batches committed, not %d", len(got.entries), len(o.entries))
	}
	for i := range o.entries {
		w, g := &o.entries[i], &got.entries[i]
		if w.Chain == g.Chain {
			continue
		}
		for j := range w.States {
			if j >= len(g.States) || w.States[j] != g.States[j] {
				return fmt.Sprintf("txid %d is the first that differs: state %s", w.Txid, w.States[j].State)
			}
		}
		return fmt.Sprintf("txid %d is the first that differs", w.Txid)
	}
	if o.digest != got.digest {
		return fmt.Sprintf("the final state differs: digest %016x, not %016x", got.digest, o.digest)
	}
	return ""
}

// runOnce runs the batches that the store in fs doesn't hold yet.
func runOnce(build func() *engine.Pipeline, in []Input, fs vfs.FS, procs, pending int) (_ *outcome, err error) {
	ctx := context.Background()
	w, err := newWorld(build(), in)
	if err != nil {
		return nil, err
	}
	w.procs = procs
	db, err := w.open(fs)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	snap, err := db.Store().Load(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.run(ctx, db, snap.Txid, pending); err != nil {
		return nil, err
	}
	return outcomeOf(ctx, db)
}

func outcomeOf(ctx context.Context, db *pebblestate.DB) (*outcome, error) {
	o := &outcome{}
	var err error
	if o.entries, err = entriesOf(ctx, db); err != nil {
		return nil, err
	}
	o.digest, err = db.Digest(ctx)
	return o, err
}

// crashPoints runs the batches and returns, for each sync that the store asked for, what a crash just before it
// would have left on disk, with so many percent of what wasn't synced lost.
func crashPoints(build func() *engine.Pipeline, in []Input, lost int) ([]vfs.FS, error) {
	mem := vfs.NewCrashableMem()
	var mu sync.Mutex
	var clones []vfs.FS
	rng := rand.New(rand.NewPCG(1, 2)) // picks the blocks that are lost
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			mu.Lock()
			defer mu.Unlock()
			clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100 - lost, RNG: rng}))
		}
		return nil
	}))
	_, err := runOnce(build, in, fs, 2, 2)
	mu.Lock()
	defer mu.Unlock()
	return clones, err
}
