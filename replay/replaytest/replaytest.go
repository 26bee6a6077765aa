// Package replaytest asserts, in a pipeline's own tests, that its results follow from its input alone: the same records in the same
// batches give the same bytes, computed twice, on any number of procs, with any number of batches in flight, and whatever
// crash lies between.
//
//	func TestReplay(t *testing.T) {
//		replaytest.Verify(t, build, replaytest.Live{Records: 100_000}) // what the pipeline's topics hold
//	}
//
// The input is a bounded part of the pipeline's own sources ([Live]), a recording of it that lies beside the test ([Recorded]),
// or the ledger of a store that has run ([Ledger]). Nothing is written to any server: no offset is committed, no lock taken,
// and the states are built in memory.
//
// A difference fails the test, with txid, state, key and both values, and where that can be told with the record and the step
// in which it arises. Package enginetest does the same for records that stand in the test.
package replaytest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/rerun"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/replay"
)

// Input is where the records come from: Live, Recorded or Ledger.
type Input interface {
	// verify returns what differs.
	verify(ctx context.Context, build func() *engine.Pipeline) (differences []string, err error)
}

// Verify asserts that a pipeline's results follow from its input. build is called for each run, so that what a function keeps
// for itself shows too. It sets GOMAXPROCS: not for parallel tests.
func Verify(t testing.TB, build func() *engine.Pipeline, in Input) {
	t.Helper()
	differences, err := in.verify(t.Context(), build)
	for _, d := range differences {
		t.Errorf("%s", d)
	}
	if err != nil {
		t.Errorf("%v", err)
	}
}

// Crashes is how many points of a crash are tried, of those that there are, evenly spread over the run.
const Crashes = 20

func verify(ctx context.Context, build func() *engine.Pipeline, in *rerun.Input, more ...rerun.Circumstances) ([]string, error) {
	return in.Verify(ctx, func() (*plan.Plan, error) { return build().Plan() }, rerun.Options{Crashes: Crashes, More: more})
}

// Ledger is a directory that holds the data directory of the pipeline: what has run is run again, over the ranges that its ledger
// names, and held against the ledger and the states. The sources must still hold the records, and no process may work in the
// directory.
type Ledger string

func (dir Ledger) verify(ctx context.Context, build func() *engine.Pipeline) (differences []string, err error) {
	name := build().Name()
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: filepath.Join(string(dir), name), Pipeline: name, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	snap, err := db.Store().Load(ctx)
	if err != nil {
		return nil, err
	}
	if snap.Txid == 0 {
		return nil, nothing(fmt.Sprintf("the ledger in %s has no batch", string(dir)))
	}
	for _, procs := range []int{1, 2, 16} {
		_, err := replay.Verify(ctx, build(), replay.Options{Store: db, Procs: procs, Pending: procs})
		if d, ok := errors.AsType[*replay.Different](err); ok {
			return []string{fmt.Sprintf("with %d procs: %v", procs, d)}, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// nothing is the error of an input that proves nothing.
func nothing(what string) error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "verify", errors.New(what), "give the test input that has records: without any, nothing is proved")
}
