// Package rerun runs the same batches again and again, each time in other circumstances, and compares what they leave, byte for
// byte: on other numbers of procs, with other numbers of batches in flight, and after a crash at any point at which the store
// asked for a sync.
//
// What differs is told as a difference, never as an error: an error says that the batches couldn't be run.
package rerun

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/txstate"
)

// Clock is what is told as the time where a time only informs.
var Clock = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Input is what batches are made of: the records of each source, by its id, and for each txid from 1 on the ranges, the clock
// and the seed. Entries of a ledger serve as batches; where one has a Chain, the batch must come to that.
type Input struct {
	Sources map[string]*Source
	Batches []txstate.Entry
}

// Circumstances are what no result may depend on.
type Circumstances struct {
	Procs, Pending int
	// Check has every batch computed twice.
	Check bool
	// OnCommit is told each batch once it has committed. May be nil.
	OnCommit func(*txstate.Entry)
	// OnOutput is told what each batch has for a sink, before OnCommit; it must not keep what it is told. May be nil.
	OnOutput func(name string, out *sink.Output)
	// Open, if not nil, brings other emitters than those over Input.Sources; they must serve the same records.
	Open func(id string) (emitter.Emitter, error)
}

func (c Circumstances) String() string {
	return fmt.Sprintf("with %d procs and %d batches in flight", c.Procs, c.Pending)
}

// Run runs the batches that the store in db doesn't hold yet.
func (in *Input) Run(ctx context.Context, pl *plan.Plan, db *pebblestate.DB, c Circumstances) error {
	snap, err := db.Store().Load(ctx)
	if err != nil {
		return err
	}
	cfg := exec.Config{
		Plan: pl, DB: db, Shards: db.Shards(), Procs: c.Procs, PlanSum: xxhash.Sum64String(pl.Text), Build: "rerun",
		// What only informs must not differ between two runs either.
		Now:      func() time.Time { return Clock },
		OnCommit: c.OnCommit,
		OnOutput: c.OnOutput,
		Sources: func(id string) (emitter.Emitter, error) {
			s := in.Sources[id]
			if s == nil {
				return nil, fmt.Errorf("there is no input for source %q", id)
			}
			return s.Open(), nil
		},
	}
	if c.Open != nil {
		cfg.Sources = c.Open
	}
	if c.Check {
		cfg.Check = 1
	}
	x := exec.New(cfg)
	if _, err := x.Open(ctx); err != nil {
		return errors.Join(err, x.Close(ctx))
	}
	var batches []txstate.Entry
	for _, e := range in.Batches[snap.Txid:] {
		b := txstate.Entry{Txid: e.Txid, Attempt: batch.Attempt{Epoch: x.Epoch(), N: 1}, Time: e.Time, Seed: e.Seed, Idle: e.Idle, Joined: e.Joined}
		for _, r := range e.Ranges {
			b.Ranges = append(b.Ranges, txstate.RangeEntry{Range: r.Range})
		}
		batches = append(batches, b)
	}
	return errors.Join(x.Drive(ctx, batches, c.Pending), x.Close(ctx))
}

// OpenStore opens the store of a pipeline, or makes it.
func OpenStore(ctx context.Context, pl *plan.Plan, fs vfs.FS) (*pebblestate.DB, error) {
	return pebblestate.Open(ctx, pebblestate.Options{
		Dir: "data", FS: fs, Pipeline: pl.Name, Shards: plan.DefaultShards, CreateIfMissing: true,
	})
}

// OpenMemory makes an empty store of a pipeline in memory.
func OpenMemory(ctx context.Context, pl *plan.Plan) (*pebblestate.DB, error) {
	return OpenStore(ctx, pl, vfs.NewMem())
}

// Build makes the pipeline anew, so that what its functions keep for themselves begins anew, too.
type Build func() (*plan.Plan, error)

// Options bound what Verify tries.
type Options struct {
	// Crashes is how many crash points are tried, of those that there are, evenly spread; 0: all.
	Crashes int
	// More are further circumstances to try.
	More []Circumstances
}

// Verify runs the batches in all circumstances and returns how their results differ: for each circumstance in which they do, the
// first difference. It sets GOMAXPROCS meanwhile.
func (in *Input) Verify(ctx context.Context, build Build, o Options) (differences []string, err error) {
	found := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	want, err := in.once(ctx, build, vfs.NewMem(), Circumstances{Procs: 1, Pending: 1, Check: true})
	if batch.CodeOf(err) == batch.CodeNotDeterministic {
		return []string{err.Error()}, nil // it says more than any comparison of what is left could
	}
	if err != nil {
		return nil, err
	}
	for i, e := range in.Batches {
		if e.Chain != 0 && e.Chain != want.entries[i].Chain {
			found("txid %d is the first that differs from what was recorded: %s", e.Txid, entryDiff(&e, &want.entries[i]))
			break
		}
	}
	all := slices.Clone(o.More)
	for _, procs := range []int{1, 2, 16} {
		for _, pending := range []int{1, 4} {
			all = append(all, Circumstances{Procs: procs, Pending: pending})
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range all {
		runtime.GOMAXPROCS(c.Procs)
		got, err := in.once(ctx, build, vfs.NewMem(), c)
		if err != nil {
			return differences, fmt.Errorf("%s: %w", c, err)
		}
		if diff := want.diff(ctx, got); diff != "" {
			found("%s: %s", c, diff)
		}
	}
	for _, lost := range []int{100, 50} {
		points, syncs, err := in.crash(ctx, build, lost, o.Crashes)
		if err != nil {
			return differences, err
		}
		if syncs < len(in.Batches) {
			return differences, fmt.Errorf("%d batches made only %d syncs: a commit wasn't synced", len(in.Batches), syncs)
		}
		for _, p := range points {
			got, err := in.once(ctx, build, p.fs, Circumstances{Procs: 2, Pending: 2})
			if err != nil {
				return differences, fmt.Errorf("after a crash at sync %d of %d: %w", p.sync, syncs, err)
			}
			if diff := want.diff(ctx, got); diff != "" {
				found("after a crash at sync %d of %d: %s", p.sync, syncs, diff)
			}
		}
	}
	return differences, nil
}

// once runs what the store in fs doesn't hold yet and tells what it holds then.
func (in *Input) once(ctx context.Context, build Build, fs vfs.FS, c Circumstances) (_ *outcome, err error) {
	pl, err := build()
	if err != nil {
		return nil, err
	}
	db, err := OpenStore(ctx, pl, fs)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	if err := in.Run(ctx, pl, db, c); err != nil {
		return nil, err
	}
	o := &outcome{pl: pl, fs: fs}
	if o.entries, err = Entries(ctx, db); err != nil {
		return nil, err
	}
	o.digest, err = db.Digest(ctx)
	return o, err
}

// Entries lists a store's ledger.
func Entries(ctx context.Context, db *pebblestate.DB) ([]txstate.Entry, error) {
	var all []txstate.Entry
	for e, err := range db.Store().Entries(ctx, 1, 0) {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}
