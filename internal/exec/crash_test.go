package exec_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tridentd/tridentd/batch"
)

// syncPoints keeps what a crash would have left just before each sync that is asked for.
type syncPoints struct {
	mem    *vfs.MemFS
	mu     sync.Mutex
	rng    *rand.Rand
	keep   int // percent of what wasn't synced that survives
	clones []vfs.FS
}

func (s *syncPoints) fs() vfs.FS {
	return errorfs.Wrap(s.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			s.mu.Lock()
			defer s.mu.Unlock()
			s.clones = append(s.clones, s.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: s.keep, RNG: s.rng}))
		}
		return nil
	}))
}

// slowCommits lets the batches behind a commit catch up, so that they share the next.
func slowCommits(call string, _ *batch.Batch, after bool) error {
	if call == "commit" && !after {
		time.Sleep(3 * time.Millisecond)
	}
	return nil
}

// A crash at any sync of a running pipeline, with batches in flight and commits that share a write, and the next
// process goes on to the same end: the same ledger, each record once, the same bytes in every state.
func TestCrashAtEverySync(t *testing.T) {
	w := newWorld(t)
	n, keeps := 70, []int{0, 50}
	if *long {
		n, keeps = 400, []int{0, 10, 30, 50, 70, 90, 100}
	}
	w.fill(n)
	want := w.once(vfs.NewMem())
	if err := want.check(w); err != nil {
		t.Fatal(err)
	}
	if len(want.entries) < 8 {
		t.Fatalf("only %d batches", len(want.entries))
	}
	for _, keep := range keeps {
		points := &syncPoints{mem: vfs.NewCrashableMem(), rng: rand.New(rand.NewPCG(uint64(keep), 1)), keep: keep}
		w.commit = nil
		w.hook = slowCommits
		w.same(want, w.once(points.fs()), "without a crash")
		w.hook = nil
		shared := 0
		for _, n := range w.commit {
			shared = max(shared, n)
		}
		if shared < 2 {
			t.Errorf("no commit held more than one batch: %v", w.commit)
		}
		at := map[int]bool{} // how many batches the clones held
		for i, fs := range points.clones {
			p, err := w.start(fs)
			if err != nil {
				t.Fatalf("sync %d of %d: %v", i+1, len(points.clones), err)
			}
			txid, _ := p.Committed()
			at[int(txid)] = true
			if err := p.finish(); err != nil {
				t.Fatalf("sync %d of %d: %v", i+1, len(points.clones), err)
			}
			w.same(want, w.outcomeOf(fs), fmt.Sprintf("keeping %d%%, after a crash at sync %d of %d", keep, i+1, len(points.clones)))
		}
		if len(at) < 4 {
			t.Errorf("the crashes left only %v batches", at)
		}
	}
}
