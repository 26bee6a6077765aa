package replay

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/scratch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// DefaultPending is how many batches are worked on at once.
const DefaultPending = 4

// Options are the settings of a replay. Store has no default.
type Options struct {
	// Store holds the ledger that is run again. It is only read.
	Store *pebblestate.DB
	// To is the last batch to run; 0 is the last committed.
	To batch.Txid
	// From is the first batch to compare; those before are run, as its state is made of them. 0 is the first.
	From batch.Txid
	// Dir is where the replayed store is built, and stays: it must hold none yet. Empty: in a temporary directory, which
	// is removed in the end.
	Dir string
	// Scratch says that Dir will be thrown away: nothing is kept in it that a replay doesn't need.
	Scratch bool
	// Base says that Dir holds a store to begin at, instead of at the first batch: a savepoint that was restored there.
	Base bool
	// Savepoint restores, where neither the first batch nor a base will do, the oldest savepoint of the store's history whose
	// txid lies in a range, in a directory that isn't there; ok is false if there is none. May be nil.
	Savepoint func(ctx context.Context, from, to batch.Txid, dir string) (ok bool, err error)
	// AnyPlan runs, and compares, batches that another plan has made, too: what comes out different is what the change alters.
	AnyPlan bool
	// SkipStates leaves the final states uncompared.
	SkipStates bool
	// Procs bounds how many partitions and shards are worked on at once (default: GOMAXPROCS), Pending how many batches
	// (default: DefaultPending). No result depends on them.
	Procs, Pending int
	// Committed is told each batch that has been run, in txid order. It must not block. May be nil.
	Committed func(e *txstate.Entry)
	Logger    hclog.Logger // default: none
}

// Report is what a replay came to.
type Report struct {
	From, To batch.Txid
	Batches  int64 // that were compared
	Records  int64 // in them
	Took     time.Duration
	// States tells that the rows of all states were compared: To was the last committed batch.
	States bool
	// Kept counts those of the batches whose changes were kept, and were compared one by one.
	Kept int64
	// Before is the first batch below From that doesn't come out equal, if there is one: what From and later batches make of
	// earlier values may then differ, too.
	Before *Different
	// Since is where the plan became what it is: an earlier plan's batches were not run. Behind is where it changed again: To
	// is the last batch before that. nil where there is no such point.
	Since, Behind *PlanChange
}

// Verify runs the batches up to o.To again and compares them. It returns a *Different for the first that doesn't come
// out equal, and any other error where that can't be told.
func Verify(ctx context.Context, p *engine.Pipeline, o Options) (Report, error) {
	r, err := newRun(p, o)
	if err != nil {
		return Report{}, err
	}
	if err := r.choose(ctx); err != nil {
		return Report{}, err
	}
	if r.o.Dir == "" || r.o.Scratch {
		r.plan.Ledger.Changes = false // nobody will ask for them
	}
	if r.o.Dir == "" {
		dir, remove, err := scratch.Make("", "tridentd-replay-")
		if err != nil {
			return Report{}, err
		}
		defer remove() //nolint:errcheck // nothing in it is of use; the next replay removes it
		r.o.Dir = filepath.Join(dir, "store")
	}
	if err := r.start(ctx, o.To != 0); err != nil {
		return Report{}, err
	}
	rep, err := r.verify(ctx)
	return rep, r.inBase(err)
}

func newRun(p *engine.Pipeline, o Options) (*run, error) {
	pl, err := p.Plan()
	if err != nil {
		return nil, err
	}
	if o.Pending <= 0 {
		o.Pending = DefaultPending
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	own := *pl // the pipeline's may be shared
	return &run{o: o, plan: &own, sum: xxhash.Sum64String(own.Text), same: map[uint64]bool{}}, nil
}

// run is one replay.
type run struct {
	o       Options
	plan    *plan.Plan
	last    batch.Txid                         // the last committed in the store in question
	base    batch.Txid                         // what the replay begins behind
	begun   batch.Txid                         // the base that was restored for that; 0 if none was
	first   batch.Txid                         // the first that the plan can run; 0 or 1: there is none before it
	tables  map[string]pebblestate.StaticTable // that no batch has used so far
	since   *PlanChange
	behind  *PlanChange
	sum     uint64          // the plan's hash
	same    map[uint64]bool // by hash: plans that make the same of a batch
	outline outline
	// translate puts an entry into the names of the run's plan; nil: as it was recorded.
	translate func(e *txstate.Entry)
	epoch     batch.Epoch      // of the store in question
	stands    txstate.Snapshot // of the store in question
	before    *Different       // the first below o.From
	kept      atomic.Int64     // batches whose kept changes were compared
}

// choose settles what is to be run.
func (r *run) choose(ctx context.Context) error {
	snap, err := r.o.Store.Store().Load(ctx)
	if err != nil {
		return err
	}
	r.last, r.epoch, r.stands = snap.Txid, snap.Epoch, snap
	if r.o.To == 0 {
		r.o.To = snap.Txid
	}
	r.o.From = max(r.o.From, 1)
	switch {
	case r.o.To > snap.Txid:
		return usage("txid %d isn't committed: the last is %d", r.o.To, snap.Txid)
	case r.o.From > r.o.To && r.o.To > 0:
		return usage("txid %d lies behind txid %d", r.o.From, r.o.To)
	}
	return nil
}

// begin takes the store that the batches are run into as what they begin at.
func (r *run) begin(ctx context.Context, db *pebblestate.DB) error {
	snap, err := db.Store().Load(ctx)
	switch {
	case err != nil:
		return err
	case !r.o.Base && snap.Txid > 0:
		return usage("%s holds a store already", r.o.Dir)
	case snap.Txid > r.o.To:
		return usage("%s is at txid %d, which lies behind txid %d", r.o.Dir, snap.Txid, r.o.To)
	}
	r.base = snap.Txid
	if r.base+1 < r.first {
		return r.noBeginning()
	}
	r.o.From = max(r.o.From, r.base+1)
	next := r.base + 1
	for e, err := range r.o.Store.Store().Entries(ctx, max(r.base, 1), r.o.To) {
		if err != nil {
			return err
		}
		if e.Txid == r.base {
			if e.Chain != snap.Chain {
				return &Different{
					Txid: e.Txid, What: "chain", Want: fmt.Sprintf("%016x", e.Chain), Got: fmt.Sprintf("%016x", snap.Chain),
					Causes: []string{r.o.Dir + " is a store of another history"},
				}
			}
			continue
		}
		if e.Txid != next {
			return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "replay",
				fmt.Errorf("the ledger begins at txid %d, and the replay would begin at txid %d: what lies between has been trimmed", e.Txid, next), remedyTrimmed)
		}
		next++
		r.outline.take(&e, r.o.From)
	}
	if next <= r.o.To {
		return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "replay",
			fmt.Errorf("the ledger doesn't hold txids %d to %d any more: they have been trimmed", r.base+1, r.o.To), remedyTrimmed)
	}
	return nil
}

const remedyTrimmed = "have a longer ledger kept (ledger: retention), or savepoints made (savepoints: every)"

func usage(format string, args ...any) error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "replay", fmt.Errorf(format, args...), "choose among the txids that the ledger lists")
}

// verify runs and compares.
func (r *run) verify(ctx context.Context) (rep Report, err error) {
	began := time.Now()
	rep = Report{From: r.o.From, To: r.o.To, Since: r.since, Behind: r.behind}
	db, err := pebblestate.Open(ctx, pebblestate.Options{
		Dir: r.o.Dir, Pipeline: r.plan.Name, Shards: r.o.Store.Shards(), CreateIfMissing: true, Logger: r.o.Logger,
	})
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := r.begin(ctx, db); err != nil {
		return rep, err
	}
	rep.From = r.o.From
	before, err := r.drive(ctx, db, r.base+1, r.o.To, r.o.From)
	rep.Took = time.Since(began)
	rep.Kept = r.kept.Load()
	if before != nil {
		r.before = r.told(ctx, before)
		rep.Before = r.before
	}
	if d, ok := errors.AsType[*exec.Difference](err); ok {
		return rep, r.explain(ctx, db, d)
	}
	if err != nil {
		return rep, r.failed(ctx, err)
	}
	if err := r.compareHead(ctx, db); err != nil {
		return rep, err
	}
	if err := r.settle(ctx, db); err != nil {
		return rep, err
	}
	if r.o.To >= r.o.From {
		rep.Batches, rep.Records = int64(r.o.To-r.o.From+1), r.outline.records
	}
	if r.o.To == r.last && !r.o.SkipStates {
		rep.States = true
		err = r.compareStates(ctx, db)
	}
	return rep, err
}

// settle completes what a run goes on from: the starts of partitions that no batch has begun with yet, where the replay came to
// the end of the ledger, and an epoch that no attempt of the replayed batches, and no mirror, has seen a higher one of.
func (r *run) settle(ctx context.Context, db *pebblestate.DB) error {
	snap, err := db.Store().Load(ctx)
	if err != nil {
		return err
	}
	if r.o.To == r.last {
		var missing []batch.Position
		for i := range r.stands.Positions {
			p := r.stands.Positions[i].Position
			if !slices.ContainsFunc(snap.Positions, func(q txstate.SavedPosition) bool { return q.Partition == p.Partition }) {
				missing = append(missing, p)
			}
		}
		if len(missing) > 0 {
			if err := db.Store().Admit(ctx, missing); err != nil {
				return err
			}
		}
	}
	if r.epoch > snap.Epoch {
		return db.Store().Claim(ctx, r.epoch)
	}
	return nil
}

// failed makes a difference of a batch that committed when it was recorded and can't be processed now. Whatever kept its input
// from being read stays an error.
func (r *run) failed(ctx context.Context, err error) error {
	e, ok := errors.AsType[*batch.Error](err)
	if !ok || e.Txid <= r.base || e.Txid > r.o.To {
		return err
	}
	switch e.Code {
	case batch.CodeBadRecord, batch.CodeUserError, batch.CodeOverflow:
		return &Different{Txid: e.Txid, What: "the batch", Want: "that it commits", Got: e.Error(), Causes: r.causes(ctx, &exec.Difference{Txid: e.Txid})}
	}
	return err
}

// drive runs the batches from first, which follows what db holds, to last, and compares those from a txid on. before is the first
// below it that differs.
func (r *run) drive(ctx context.Context, db *pebblestate.DB, first, last, from batch.Txid) (before *exec.Difference, err error) {
	x := exec.New(exec.Config{
		Plan: r.plan, DB: db, Shards: db.Shards(), Logger: r.o.Logger, Procs: r.o.Procs,
		Build: engine.Build(), PlanSum: r.sum, Now: time.Now,
		OnCommit: r.o.Committed, Sources: r.open, Mark: r.knows, Tables: r.table,
	})
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, x.Close(closing))
	}()
	if _, err := x.Open(ctx); err != nil {
		return nil, err
	}
	return x.DriveWith(ctx, r.entries(ctx, first, last), exec.DriveOptions{Pending: r.o.Pending, From: from, Kept: r.changes})
}

// changes returns what had been kept of a batch.
func (r *run) changes(ctx context.Context, txid batch.Txid) ([]*state.WriteSet, bool, error) {
	sets, ok, err := r.o.Store.Changes(ctx, txid)
	if ok && txid >= r.o.From {
		r.kept.Add(1)
	}
	return sets, ok, err
}

const closeTimeout = 10 * time.Second
