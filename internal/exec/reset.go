package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// A reset is a ledger entry of its own: it has a txid, moves positions and processes nothing. Each of its ranges starts
// where the partition stood and ends where it was set to: an end above the start skips what lies between, one below it has
// that read again, an equal one only changes whose offsets they are (Identity). Event times and watermarks stay.

// Move is one partition that is set by hand.
type Move struct {
	batch.Position // where it is set to
	// From is where a partition that the store doesn't know would have begun; it joins there.
	From int64
}

// ResetOptions are what a reset's ledger entry says besides the positions.
type ResetOptions struct {
	Build   string
	PlanSum uint64
	Now     time.Time
	// Imported says where the positions, and States, come from: for an import. It isn't empty if there are States.
	Imported string
	States   []ImportedState
}

// Reset sets positions in a store at rest: one synced write holds the positions and the ledger's entry, which it returns.
// The epoch is raised before that.
func Reset(ctx context.Context, db *pebblestate.DB, moves []Move, o ResetOptions) (txstate.Entry, error) {
	store := db.Store()
	snap, err := store.Load(ctx)
	if err != nil {
		return txstate.Entry{}, err
	}
	if n := len(snap.Recorded); n > 0 {
		e := batch.NewError(batch.Permanent, batch.CodeConfiguration, "reset", errors.New("its ranges are recorded, and it hasn't committed yet"),
			"run the pipeline until it has, then reset")
		e.Txid = snap.Recorded[n-1].Txid
		return txstate.Entry{}, e
	}
	e := txstate.Entry{
		Txid: snap.Txid + 1, Attempt: batch.Attempt{Epoch: snap.Epoch + 1, N: 1}, Attempts: 1, Time: o.Now.UTC().Truncate(time.Millisecond),
		Reset: true, Imported: o.Imported, Build: o.Build, Plan: o.PlanSum, Committed: o.Now.UTC(),
	}
	if e.Time.Before(snap.Time) {
		e.Time = snap.Time
	}
	if snap.Txid > 0 {
		for last, err := range store.Entries(ctx, snap.Txid, snap.Txid) {
			if err != nil {
				return e, err
			}
			e.Watermarks = last.Watermarks
		}
	}
	saved := map[batch.Partition]txstate.SavedPosition{}
	for _, p := range snap.Positions {
		saved[p.Partition] = p
	}
	moves = slices.Clone(moves)
	slices.SortFunc(moves, func(a, b Move) int { return a.Compare(b.Partition) })
	for _, m := range moves {
		if isMarker(m.Partition) {
			panic("exec: a reset of no partition")
		}
		was, ok := saved[m.Partition]
		if !ok {
			was = txstate.AdmittedAt(batch.Position{Partition: m.Partition, Next: m.From, Identity: m.Identity, LeaderEpoch: batch.NoEpoch})
			saved[m.Partition] = was
		}
		if was.Joined == 0 {
			e.Joined = append(e.Joined, was.Position)
		}
		e.Ranges = append(e.Ranges, txstate.RangeEntry{
			Range:     batch.Range{Partition: m.Partition, Start: was.Next, End: m.Next, Identity: m.Identity, LeaderEpoch: m.LeaderEpoch},
			EventTime: was.EventTime,
		})
	}
	var c pebblestate.Commit
	for _, s := range o.States {
		s.addTo(&c, &e, db.Shards())
	}
	e.Chain = chainOf(snap.Chain, &e)
	if err := store.Claim(ctx, e.Attempt.Epoch); err != nil {
		return e, err
	}
	c.Entry, c.Positions = e, resetPositions(&e, func(p batch.Partition) txstate.SavedPosition { return saved[p] })
	return e, db.Commit(ctx, []pebblestate.Commit{c})
}

// resetPositions are the positions that a reset leaves. was is what the store held, or what its Joined says.
func resetPositions(e *txstate.Entry, was func(batch.Partition) txstate.SavedPosition) []txstate.SavedPosition {
	all := make([]txstate.SavedPosition, len(e.Ranges))
	for i, r := range e.Ranges {
		p := was(r.Partition)
		p.Position, p.MovedAt, p.Txid = r.Position(), e.Time, e.Txid
		if p.Joined == 0 {
			p.Joined = e.Txid
		}
		all[i] = p
	}
	return all
}

// redo does a recorded reset again: what a replay does where the ledger has one. before is the recorded chain of the entry before.
// With compare nothing is written if it comes out otherwise. Nothing is in flight.
func (x *Executor) redo(ctx context.Context, want *txstate.Entry, before uint64, compare bool) (d *Difference, _ error) {
	e := want.Clone()
	e.States, e.Statics = nil, nil
	fail := func(format string, args ...any) error {
		return x.located(batch.NewError(batch.Permanent, batch.CodeUnreplayable, "plan", fmt.Errorf(format, args...),
			"put its source back into the pipeline until the batch has committed"), e.Txid)
	}
	var c pebblestate.Commit
	if err := x.reimport(ctx, want, &c, &e); err != nil {
		return nil, x.located(err, e.Txid)
	}
	x.mu.Lock()
	for _, j := range e.Joined {
		if c := x.cursors[j.Partition]; c == nil {
			x.cursors[j.Partition] = &cursor{next: j.Next, saved: txstate.AdmittedAt(j)}
		}
	}
	for _, r := range e.Ranges {
		c := x.cursors[r.Partition]
		if _, listed := x.sourceAt[r.Source]; c == nil || !listed {
			x.mu.Unlock()
			return nil, fail("a reset of %s, which no source reads", r.Partition)
		}
		if c.next != r.Start {
			x.mu.Unlock()
			panic(fmt.Sprintf("exec: txid %d: %s is reset from %d, but stands at %d", e.Txid, r.Partition, r.Start, c.next))
		}
	}
	e.Chain = chainOf(x.chain, &e)
	positions := resetPositions(&e, func(p batch.Partition) txstate.SavedPosition { return x.cursors[p].saved })
	x.mu.Unlock()
	if now := chainOf(before, &e); want.Chain != 0 && now != want.Chain {
		d = &Difference{Txid: e.Txid, What: "chain", Want: fmt.Sprintf("%016x", want.Chain), Got: fmt.Sprintf("%016x", now)}
		if compare {
			return d, nil
		}
	}
	c.Entry, c.Positions, c.Keep = e, positions, x.plan.Ledger.Changes
	if err := x.cfg.DB.Commit(ctx, []pebblestate.Commit{c}); err != nil {
		return d, x.located(err, e.Txid)
	}
	x.mu.Lock()
	x.joining = slices.DeleteFunc(x.joining, func(p batch.Position) bool {
		return slices.ContainsFunc(e.Joined, func(q batch.Position) bool { return p.Partition == q.Partition })
	})
	x.times = x.times.next(x.plan, &batch.Batch{Joined: e.Joined}, nil)
	for _, p := range positions {
		x.cursors[p.Partition] = &cursor{next: p.Next, movedPlan: p.MovedAt, saved: p}
	}
	x.txid, x.chain, x.clock = e.Txid, e.Chain, e.Time
	x.mu.Unlock()
	if x.cfg.OnCommit != nil {
		x.cfg.OnCommit(&e)
	}
	return d, nil
}
