package enginetest

import (
	"testing"

	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/rerun"
)

// Deterministic asserts that a pipeline gives the same bytes whatever happens: computed twice, on 1, 2 and 16 procs, with 1 and
// 4 batches in flight, and after a crash at every point at which the store has asked for a sync, with and without what
// wasn't synced. build is called for each run, so that state that a function keeps of its own shows too. It sets
// GOMAXPROCS: not for parallel tests.
//
// What differs is told with txid, state, key and both values, and where that can be told with the step and the record.
func Deterministic(t testing.TB, build func() *engine.Pipeline, in ...Input) {
	t.Helper()
	w, err := newWorld(build(), in)
	if err != nil {
		t.Fatal(err)
	}
	again := func() (*plan.Plan, error) {
		pl, err := build().Plan()
		if err != nil {
			return nil, err
		}
		return w.script.Plan(pl), nil
	}
	differences, err := w.script.Input().Verify(t.Context(), again, rerun.Options{})
	for _, d := range differences {
		t.Errorf("%s", d)
	}
	if err != nil {
		t.Fatal(err)
	}
}
