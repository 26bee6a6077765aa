package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// Different is the first thing that doesn't come out as it was recorded.
type Different struct {
	Txid      batch.Txid
	What      string // "state counts", "counts", "chain"
	Want, Got string // recorded, and now
	// Keys are the first in key order of what differs. If Writes is set they are what batch Txid wrote, otherwise rows of the
	// last committed state: what was kept allows no closer look then.
	Keys   []Key
	Writes bool
	Causes []string // likely ones, the likeliest first
}

// Key is one key that differs, with its values as text; empty where there is none.
type Key struct {
	State, Key, Want, Got string
	// From are the partitions whose records reach the key in that batch, where that can be told.
	From []batch.Partition
	// Last is the last batch that wrote the key, where changes were kept; 0 elsewhere, and if it is the batch in question.
	Last batch.Txid
}

// shownKeys bounds Different.Keys.
const shownKeys = 5

func (d *Different) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "txid %d: %s: recorded %s, now %s", d.Txid, d.What, d.Want, d.Got)
	none := "no row"
	if d.Writes {
		none = "no write"
	}
	for _, k := range d.Keys {
		fmt.Fprintf(&b, "\n  state %s, key %s", k.State, k.Key)
		lead := " of "
		for _, p := range k.From {
			b.WriteString(lead + p.String())
			lead = ", "
		}
		if k.Last > 0 {
			fmt.Fprintf(&b, ", last written by txid %d", k.Last)
		}
		fmt.Fprintf(&b, ": recorded %s, now %s", cmp.Or(k.Want, none), cmp.Or(k.Got, none))
	}
	if len(d.Causes) > 0 {
		fmt.Fprintf(&b, "\n  likely: %s", strings.Join(d.Causes, "; "))
	}
	return b.String()
}

// told puts a difference into words.
func (r *run) told(ctx context.Context, d *exec.Difference) *Different {
	t := &Different{Txid: d.Txid, What: d.What, Want: d.Want, Got: d.Got, Causes: r.causes(ctx, d)}
	if len(d.Keys) > 0 {
		t.Writes = true
		t.Keys = r.writtenKeys(d.Keys)
	}
	return t
}

// explain finds out what there is to know about the first batch that differs.
func (r *run) explain(ctx context.Context, db *pebblestate.DB, d *exec.Difference) error {
	found := r.told(ctx, d)
	if r.o.To != r.last || found.Writes || d.Kept || r.o.SkipStates {
		return found
	}
	// Only the final states have been kept: the rest is run unseen, up to them.
	if _, err := r.drive(ctx, db, d.Txid, r.o.To, r.last+1); err != nil {
		r.o.Logger.Warn("the batches behind the first different one don't run", "error", err)
		return found
	}
	keys, err := r.differentKeys(ctx, db)
	found.Keys = keys
	return errors.Join(found, err)
}

// causes are likely reasons for a batch to come out otherwise.
func (r *run) causes(ctx context.Context, d *exec.Difference) []string {
	const byHand = "the store was changed by hand, or by a damaged disk"
	if d.Kept && !slices.ContainsFunc(d.Keys, func(k exec.KeyDifference) bool { return k.Got != nil && k.Got.Op == state.Set }) {
		return []string{"the record of the changes isn't what was written: " + byHand}
	}
	var all []string
	if r.before != nil {
		all = append(all, fmt.Sprintf("something before txid %d differs: from txid %d on", r.o.From, r.before.Txid))
	}
	e := r.entry(ctx, d.Txid)
	if e != nil && e.Plan != xxhash.Sum64String(r.plan.Text) {
		all = append(all, "the pipeline's definition has changed since")
	}
	if now := engine.Build(); e != nil && e.Build != now {
		all = append(all, fmt.Sprintf("the batch was made by another build (%s, this is %s)", e.Build, now))
	}
	if len(all) == 0 {
		all = append(all, "a function of the pipeline isn't pure (a clock, a random number, map order), or "+byHand)
	}
	return all
}

// compareHead compares what the next batch goes on from, where the replay has come to the end of the ledger: the chain, the clock,
// and every position with what the ranges of the batches add up to.
func (r *run) compareHead(ctx context.Context, db *pebblestate.DB) error {
	if r.o.To != r.last {
		return nil
	}
	got, err := db.Store().Load(ctx)
	if err != nil {
		return err
	}
	want := &r.stands
	different := func(what, want, got string) error {
		d := &Different{Txid: r.last, What: what, Want: want, Got: got, Causes: []string{
			"every batch came out equal: what the next one goes on from was changed by something else than a batch (a damaged disk, an edit)",
		}}
		if r.before != nil {
			d.Causes = []string{fmt.Sprintf("something before txid %d differs: from txid %d on", r.o.From, r.before.Txid)}
		}
		return d
	}
	chain := got.Chain
	if r.last > r.base { // the replayed one goes on from what differs below From
		chain = r.outline.chain
	}
	if want.Chain != chain {
		return different("the head of the chain", fmt.Sprintf("%016x", want.Chain), fmt.Sprintf("%016x", chain))
	}
	if !want.Time.Equal(got.Time) {
		return different("the clock", want.Time.Format(time.RFC3339Nano), got.Time.Format(time.RFC3339Nano))
	}
	at := make(map[batch.Partition]*txstate.SavedPosition, len(got.Positions))
	for i := range got.Positions {
		at[got.Positions[i].Partition] = &got.Positions[i]
	}
	for i := range want.Positions {
		w := &want.Positions[i]
		g := at[w.Partition]
		delete(at, w.Partition)
		switch {
		case w.Topic == "": // it only says that the source has been opened before
		case g == nil && w.Txid == 0 && w.Joined == 0: // no batch has begun with it so far
		case g == nil:
			return different("the position of "+w.Partition.String(), positionText(w), "none")
		case positionText(w) != positionText(g):
			return different("the position of "+w.Partition.String(), positionText(w), positionText(g))
		}
	}
	for i := range got.Positions {
		if g := &got.Positions[i]; at[g.Partition] != nil && g.Topic != "" {
			return different("the position of "+g.Partition.String(), "none", positionText(g))
		}
	}
	return nil
}

// positionText is all of a saved position but its partition.
func positionText(p *txstate.SavedPosition) string {
	text := fmt.Sprintf("offset %d, moved by txid %d, joined with txid %d", p.Next, p.Txid, p.Joined)
	if p.LeaderEpoch != batch.NoEpoch {
		text += fmt.Sprintf(", leader epoch %d", p.LeaderEpoch)
	}
	if p.Identity != "" {
		text += fmt.Sprintf(", of %x", p.Identity)
	}
	if p.EventTime != txstate.NoTime {
		text += ", event time " + time.Unix(0, p.EventTime).UTC().Format(time.RFC3339Nano)
	}
	return text
}

// compareStates compares the rows of all states.
func (r *run) compareStates(ctx context.Context, db *pebblestate.DB) error {
	want, err := r.o.Store.Digest(ctx)
	if err != nil {
		return err
	}
	got, err := db.Digest(ctx)
	if err != nil || want == got {
		return err
	}
	keys, err := r.differentKeys(ctx, db)
	if err != nil {
		return err
	}
	d := &Different{
		Txid: r.last, What: "the final states", Want: fmt.Sprintf("digest %016x", want), Got: fmt.Sprintf("digest %016x", got), Keys: keys,
		Causes: []string{"every batch came out equal: the states were changed by something else than a batch (a damaged disk, an edit)"},
	}
	if r.before != nil {
		d.Causes = []string{fmt.Sprintf("something before txid %d differs: from txid %d on", r.o.From, r.before.Txid)}
	}
	return d
}
