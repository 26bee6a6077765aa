package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/pebblestate"
)

// Different is the first thing that doesn't come out as it was recorded.
type Different struct {
	Txid      batch.Txid
	What      string // "state counts", "counts", "chain"
	Want, Got string // recorded, and now
	// Keys are rows of the last committed state that differ, the first ones in key order: what was kept allows no closer
	// look.
	Keys   []Key
	Causes []string // likely ones, the likeliest first
}

// Key is one row that differs, as text; empty where there is none.
type Key struct{ State, Key, Want, Got string }

// shownKeys bounds Different.Keys.
const shownKeys = 5

func (d *Different) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "txid %d: %s: recorded %s, now %s", d.Txid, d.What, d.Want, d.Got)
	none := func(s string) string {
		if s == "" {
			return "no row"
		}
		return s
	}
	for _, k := range d.Keys {
		fmt.Fprintf(&b, "\n  state %s, key %s: recorded %s, now %s", k.State, k.Key, none(k.Want), none(k.Got))
	}
	if len(d.Causes) > 0 {
		fmt.Fprintf(&b, "\n  likely: %s", strings.Join(d.Causes, "; "))
	}
	return b.String()
}

// explain finds out what there is to know about the first batch that differs.
func (r *run) explain(ctx context.Context, db *pebblestate.DB, d *exec.Difference) error {
	found := &Different{Txid: d.Txid, What: d.What, Want: d.Want, Got: d.Got, Causes: r.causes(d.Txid)}
	if r.o.To != r.last {
		return found
	}
	// Only the final states have been kept: the rest is run unseen, up to them.
	if err := r.drive(ctx, db, r.entries[d.Txid-r.base-1:], r.last+1); err != nil {
		r.o.Logger.Warn("the batches behind the first different one don't run", "error", err)
		return found
	}
	keys, err := r.differentKeys(ctx, db)
	found.Keys = keys
	return errors.Join(found, err)
}

// causes are likely reasons for batch txid to come out otherwise.
func (r *run) causes(txid batch.Txid) []string {
	e := r.entry(txid)
	var all []string
	if e.Plan != xxhash.Sum64String(r.plan.Text) {
		all = append(all, "the pipeline's definition has changed since")
	}
	if now := engine.Build(); e.Build != now {
		all = append(all, fmt.Sprintf("the batch was made by another build (%s, this is %s)", e.Build, now))
	}
	if len(all) == 0 {
		all = append(all, "a function of the pipeline isn't pure (a clock, a random number, map order), or the store was changed by hand")
	}
	return all
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
	return &Different{
		Txid: r.last, What: "the final states", Want: fmt.Sprintf("digest %016x", want), Got: fmt.Sprintf("digest %016x", got), Keys: keys,
		Causes: []string{"every batch came out equal: the states were changed by something else than a batch (a damaged disk, an edit)"},
	}
}
