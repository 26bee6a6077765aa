package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/change"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// A ledger may have been made by several plans, one after the other. A plan can only make again what it has made: a replay runs
// the last stretch of batches of its own plan, up to the one that it was asked for, and begins at a store as of that stretch's
// beginning. What a migration has done to the states isn't in the ledger: no stretch goes beyond one.

// PlanChange is a point of the ledger at which the plan changed.
type PlanChange struct {
	Txid batch.Txid // the first of the other plan, or the migration's
	What []string   // in what the plans differ, or what the migration did, as far as it is known
}

func (c *PlanChange) String() string {
	s := fmt.Sprintf("the pipeline changed at txid %d", c.Txid)
	if len(c.What) > 0 {
		s += " (" + strings.Join(c.What, "; ") + ")"
	}
	return s
}

// stretch is what of the ledger can be run.
type stretch struct {
	first, last   batch.Txid // last is first-1 where nothing has been committed since a migration
	held          batch.Txid // the first that the ledger holds
	since, behind *PlanChange
}

// stretch finds the last stretch of the run's own plan up to txid to. open says that an earlier end will do.
func (r *run) stretch(ctx context.Context, to batch.Txid, open bool) (stretch, error) {
	var s stretch
	begin := batch.Txid(0)            // behind what is of another plan, or a migration
	var barrier, since *txstate.Entry // what that is: before the present entry, and before the stretch
	var behind *txstate.Entry
	found := false
	for e, err := range r.o.Store.Store().Entries(ctx, 1, to) {
		if err != nil {
			return s, err
		}
		if s.held == 0 {
			s.held, begin = e.Txid, e.Txid
		}
		follows := found && s.last == e.Txid-1
		switch mine := r.mine(ctx, e.Plan); {
		case len(e.Migrated) > 0 && mine: // it goes on from there, be it that nothing has yet
			begin, barrier = e.Txid+1, &e
			found, s.first, s.last, since, behind = true, begin, e.Txid, &e, nil
		case e.Reset && len(e.Migrated) == 0: // of no plan in particular
			if follows {
				s.last = e.Txid
			}
		case mine && follows:
			s.last = e.Txid
		case mine:
			found, s.first, s.last, since, behind = true, begin, e.Txid, barrier, nil
		default:
			begin, barrier = e.Txid+1, &e
			if behind == nil {
				behind = &e
			}
		}
	}
	switch {
	case !found && barrier == nil: // nothing but resets
		s.first, s.last = s.held, to
	case !found:
		return s, r.foreign(ctx, barrier, "none of the ledger's batches was made by this pipeline as it is now")
	case s.last < to && behind != nil && !open:
		return s, r.foreign(ctx, behind, fmt.Sprintf("txid %d was made by another pipeline than this", to))
	case s.last < to && behind == nil: // resets of no plan in particular
		s.last = to
	}
	if since != nil {
		s.since = r.changed(ctx, since)
		if len(since.Migrated) == 0 {
			s.since.Txid = s.first
		}
	}
	if behind != nil && s.last < to {
		s.behind = r.changed(ctx, behind)
	}
	return s, nil
}

// mine tells whether the run's own plan makes of a batch what the plan with the given hash made of it. Every plan is made known to
// the store before it makes a batch: what names one that isn't known is compared all the same, and will differ.
func (r *run) mine(ctx context.Context, sum uint64) bool {
	if sum == r.sum || r.o.AnyPlan {
		return true
	}
	same, known := r.same[sum]
	if !known {
		was, ok := r.definition(ctx, sum)
		same = !ok || change.SameResults(was, exec.DefinitionOf(r.plan))
		r.same[sum] = same
	}
	return same
}

// changed describes a point at which the plan changed from e's, or by e.
func (r *run) changed(ctx context.Context, e *txstate.Entry) *PlanChange {
	if len(e.Migrated) > 0 {
		return &PlanChange{Txid: e.Txid, What: e.Migrated}
	}
	return &PlanChange{Txid: e.Txid, What: r.differences(ctx, e.Plan)}
}

// shownDifferences bounds what is told of two plans.
const shownDifferences = 5

// definition is that of the plan that the store knows under a hash.
func (r *run) definition(ctx context.Context, sum uint64) (d plan.Definition, ok bool) {
	p, ok, err := r.o.Store.PlanWith(ctx, sum)
	if err != nil || !ok {
		return d, false
	}
	return d, json.Unmarshal(p.Definition, &d) == nil
}

// differences tells in what the plan that the store knows under a hash differs from the run's own; nothing if it isn't known.
func (r *run) differences(ctx context.Context, sum uint64) []string {
	was, ok := r.definition(ctx, sum)
	if !ok || sum == r.sum {
		return nil
	}
	var all []string
	for _, d := range change.Compare(was, exec.DefinitionOf(r.plan)) {
		d.Means = ""
		if all = append(all, d.String()); len(all) == shownDifferences {
			break
		}
	}
	return all
}

func (r *run) foreign(ctx context.Context, e *txstate.Entry, what string) error {
	if all := r.differences(ctx, e.Plan); len(all) > 0 {
		what += ": " + strings.Join(all, "; ")
	}
	err := batch.NewError(batch.Permanent, batch.CodePlanChanged, "replay", errors.New(what), "replay it with the pipeline as it was then")
	err.Txid = e.Txid
	return err
}

// start settles where the replay begins and ends, and restores the base that it begins at where the first batch won't do.
func (r *run) start(ctx context.Context, asked bool) error {
	if r.o.To == 0 {
		return nil
	}
	s, err := r.stretch(ctx, r.o.To, !asked)
	if err != nil {
		return err
	}
	if s.held == 0 && !r.o.Base { // all of it has been trimmed
		r.first, _ = r.o.Store.Ledger()
		return r.noBeginning()
	}
	r.o.To, r.since, r.behind = s.last, s.since, s.behind
	if r.o.From > r.o.To && s.first <= s.last {
		return usage("txid %d was made by another pipeline than this, whose last is %d", r.o.From, r.o.To)
	}
	r.first = max(s.first, s.held)
	if r.o.Base || r.first <= 1 {
		return nil
	}
	bases, err := r.bases(r.o.To)
	if err != nil {
		return err
	}
	var damaged error
	for _, b := range bases { // the oldest that is whole
		if r.o.From > 1 && r.o.From <= b.Txid {
			break
		}
		err := r.beginAt(ctx, b)
		if batch.CodeOf(err) != batch.CodeStoreDamaged {
			return err
		}
		r.o.Logger.Warn("a base can't be used", "error", err)
		damaged = errors.Join(damaged, err, os.RemoveAll(r.o.Dir))
	}
	upTo := r.o.To
	if r.o.From > 1 {
		upTo = r.o.From - 1
	}
	if from := max(r.first-1, s.held); r.o.Savepoint != nil && from <= upTo { // its entry tells whose it is
		if r.o.Base, err = r.o.Savepoint(ctx, from, upTo, r.o.Dir); err != nil || r.o.Base {
			return err
		}
	}
	if damaged != nil {
		return damaged
	}
	return r.noBeginning()
}

// bases are those that the replay may begin at, up to a txid, the oldest first.
func (r *run) bases(upTo batch.Txid) ([]pebblestate.Base, error) {
	all, err := r.o.Store.Bases()
	return slices.DeleteFunc(all, func(b pebblestate.Base) bool { return b.Txid+1 < r.first || b.Txid > upTo }), err
}

// beginAt makes a base what the replay begins at.
func (r *run) beginAt(ctx context.Context, b pebblestate.Base) error {
	_, err := r.o.Store.RestoreBase(ctx, b.Txid, r.o.Dir)
	if r.o.Base = err == nil; r.o.Base {
		r.begun = b.Txid
	}
	return err
}

// inBase makes the error of a table that turns out to be damaged in a copy of a base one of the base.
func (r *run) inBase(err error) error {
	e, ok := errors.AsType[*batch.Error](err)
	if r.begun == 0 || !ok || e.Code != batch.CodeStoreDamaged || !strings.Contains(err.Error(), r.o.Dir) {
		return err
	}
	return batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "replay", fmt.Errorf("the base of txid %d, which the replay began at: %w", r.begun, e.Err),
		"remove "+pebblestate.BasePath(r.begun)+" in the data directory: the store itself is whole, and needs it for replays only")
}

// beginBefore has the replay begin as late as possible before its last batch, which must be run.
func (r *run) beginBefore(ctx context.Context) error {
	s, err := r.stretch(ctx, r.o.To, false)
	if err != nil {
		return err
	}
	r.since, r.first = s.since, max(s.first, s.held)
	if r.o.Base {
		return nil
	}
	bases, err := r.bases(r.o.To - 1)
	switch {
	case err != nil:
		return err
	case len(bases) > 0:
		return r.beginAt(ctx, bases[len(bases)-1])
	case r.first > 1:
		return r.noBeginning()
	}
	return nil
}

// noBeginning says why there is nothing to begin at.
func (r *run) noBeginning() error {
	bases, err := r.bases(r.last)
	if err != nil {
		return err
	}
	have := "and there is no base to begin at"
	if r.o.Savepoint != nil {
		have = "and there is neither a base nor a savepoint to begin at"
	}
	if len(bases) > 0 {
		have = fmt.Sprintf("and the first base to begin at is of txid %d", bases[0].Txid)
	}
	if r.since != nil {
		err := batch.NewError(batch.Permanent, batch.CodePlanChanged, "replay", fmt.Errorf("%s, %s", r.since, have),
			"replay what lies before with the pipeline as it was then; what follows once there is a savepoint to begin at")
		err.Txid = r.since.Txid
		return err
	}
	remedy := remedyTrimmed
	if len(bases) > 0 {
		remedy = fmt.Sprintf("ask for txid %d or a later one, ", bases[0].Txid+1) + remedy
	}
	return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "replay",
		fmt.Errorf("the ledger begins at txid %d, as what lies before has been trimmed, %s", r.first, have), remedy)
}
