package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/scratch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/replay"
	"github.com/tridentd/tridentd/savepoint"
	"github.com/tridentd/tridentd/state"
)

// past is a pipeline's store as of earlier txids: rebuilt from the ledger, beginning at a savepoint where there is one.
type past struct {
	target *target
	place  savepoint.Place
	db     *pebblestate.DB // the store as it is
	last   batch.Txid
	tmp    string
}

// inThePast passes what rebuilds earlier stores to f, and removes behind it what was built.
func (a *app) inThePast(ctx context.Context, t *target, f func(p *past) error) error {
	return withStore(ctx, t.dir, func(db *pebblestate.DB) (err error) {
		snap, err := db.Store().Load(ctx)
		if err != nil {
			return err
		}
		place, perr := t.savepoints(ctx, "")
		if perr != nil { // an earlier beginning serves, too
			fmt.Fprintf(a.err, "savepoints can't be used: %v\n", perr)
			place = savepoint.At(t.localSavepoints(), t.pipeline.Name())
		}
		defer place.Close() //nolint:errcheck // it was only read
		p := &past{target: t, place: place, db: db, last: snap.Txid}
		tmp, remove, err := scratch.Make("", "tridentd-past-")
		if err != nil {
			return err
		}
		p.tmp = tmp
		defer func() { err = errors.Join(err, remove()) }()
		return f(p)
	})
}

// at passes a snapshot of the store as of a txid to f.
func (p *past) at(ctx context.Context, txid batch.Txid, f func(snap *pebblestate.Snapshot) error) error {
	if txid > p.last {
		return usagef("txid %d isn't committed: the last is %d", txid, p.last)
	}
	db := p.db
	if txid < p.last {
		var err error
		if db, err = p.rebuild(ctx, txid); err != nil {
			return err
		}
		defer db.Close() //nolint:errcheck // nothing was written
	}
	snap, err := db.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close() //nolint:errcheck // nothing was written
	return f(snap)
}

// rebuild runs the ledger's batches up to txid again, and opens what came of it.
func (p *past) rebuild(ctx context.Context, txid batch.Txid) (*pebblestate.DB, error) {
	dir := filepath.Join(p.tmp, txid.String())
	if txid == 0 { // for a replay that is the last
		return pebblestate.Open(ctx, pebblestate.Options{Dir: dir, Pipeline: p.target.pipeline.Name(), Shards: p.db.Shards(), CreateIfMissing: true})
	}
	base, err := p.base(ctx, txid, dir)
	if err != nil {
		return nil, err
	}
	_, err = replay.Verify(ctx, p.target.pipeline, replay.Options{Store: p.db, Dir: dir, Base: base, To: txid})
	if _, ok := errors.AsType[*replay.Different](err); ok {
		return nil, &exitError{exitDifferent, err}
	}
	if err != nil {
		return nil, queryError(err)
	}
	return openAtRest(ctx, dir)
}

// base restores the latest base or savepoint up to txid that is of this store's history, if there is one. One that can't be
// used isn't needed: an older one serves, or the first batch.
func (p *past) base(ctx context.Context, txid batch.Txid, dir string) (bool, error) {
	all, _ := p.place.List(ctx)
	slices.SortStableFunc(all, func(a, b savepoint.Info) int { return cmp.Compare(b.Txid, a.Txid) })
	latest := slices.IndexFunc(all, func(i savepoint.Info) bool { return i.Txid <= txid })
	bases, err := p.db.Bases()
	if err != nil {
		return false, err
	}
	for _, b := range slices.Backward(bases) {
		if b.Txid > txid || latest >= 0 && b.Txid < all[latest].Txid {
			continue
		}
		if _, err := p.db.RestoreBase(ctx, b.Txid, dir); err == nil || ctx.Err() != nil {
			return err == nil, err
		}
		if err := os.RemoveAll(dir); err != nil {
			return false, err
		}
	}
	for i := range all {
		if all[i].Txid > txid {
			continue
		}
		ok, err := restoreOurs(ctx, p.db, p.place, &all[i], dir)
		if ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// restoreOurs restores a savepoint in dir if it is of the store's own history, as the ledger tells, and whole.
func restoreOurs(ctx context.Context, db *pebblestate.DB, place savepoint.Place, info *savepoint.Info, dir string) (bool, error) {
	if info.Txid == 0 {
		return false, nil
	}
	ours := false
	for e, err := range db.Store().Entries(ctx, info.Txid, info.Txid) {
		if err != nil {
			return false, err
		}
		ours = fmt.Sprintf("%016x", e.Chain) == info.Chain
	}
	if !ours {
		return false, nil
	}
	if _, err := place.Restore(ctx, info.Name, dir); err != nil {
		return false, ctx.Err()
	}
	return true, nil
}

// txidAt is the last txid that had committed at a time.
func (p *past) txidAt(ctx context.Context, at time.Time) (batch.Txid, error) {
	var found, first batch.Txid
	for e, err := range p.db.Store().Entries(ctx, 1, 0) {
		if err != nil {
			return 0, err
		}
		if first == 0 {
			first = e.Txid
		}
		if e.Committed.After(at) {
			break
		}
		found = e.Txid
	}
	if found == 0 && first > 1 {
		return 0, fmt.Errorf("the ledger begins at txid %d, which committed after %s: what lies before it has been trimmed", first, at.Format(time.RFC3339))
	}
	return found, nil
}

// atFlags choose an earlier txid.
type atFlags struct {
	txid txidFlag
	time string
}

// txidFlag is a flag that takes a txid, and knows whether it was given one.
type txidFlag struct {
	txid  batch.Txid
	given bool
}

// String implements pflag.Value.
func (f *txidFlag) String() string {
	if !f.given {
		return ""
	}
	return strconv.FormatUint(uint64(f.txid), 10)
}

// Set implements pflag.Value.
func (f *txidFlag) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return errors.New("it is no txid: a whole number from 0 on")
	}
	f.txid, f.given = batch.Txid(n), true
	return nil
}

// Type implements pflag.Value.
func (f *txidFlag) Type() string { return "int" }

func (f *atFlags) add(cmd *cobra.Command) {
	cmd.Flags().Var(&f.txid, "at-txid", "as of this txid, rebuilt by replay from the ledger (0: before the first batch)")
	cmd.Flags().StringVar(&f.time, "at-time", "", "as of the last txid that had committed at this time (RFC 3339)")
}

func (f *atFlags) set() bool { return f.txid.given || f.time != "" }

// choose is the txid that the flags ask for.
func (f *atFlags) choose(ctx context.Context, p *past) (batch.Txid, error) {
	if f.time == "" {
		return f.txid.txid, nil
	}
	at, err := time.Parse(time.RFC3339Nano, f.time)
	switch {
	case f.txid.given:
		return 0, usagef("give --at-txid or --at-time, not both")
	case err != nil:
		return 0, usagef("--at-time %q isn't a time such as 2026-12-01T10:00:00Z", f.time)
	}
	return p.txidAt(ctx, at)
}

// queryPast prints a state as it was.
func (a *app) queryPast(ctx context.Context, args []string, data string, f *atFlags, w rowPrinter) error {
	t, rest, err := a.resolve(args, data)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return usagef("name the state to print")
	}
	return a.inThePast(ctx, t, func(p *past) error {
		txid, err := f.choose(ctx, p)
		if err != nil {
			return err
		}
		return p.at(ctx, txid, func(snap *pebblestate.Snapshot) error {
			return p.query(ctx, snap, rest[0], rest[1:], w)
		})
	})
}

// query prints a state of an earlier snapshot. One that has begun since was empty then.
func (p *past) query(ctx context.Context, snap *pebblestate.Snapshot, name string, keys []string, w rowPrinter) error {
	if _, err := query.Schema(snap, name); err == nil {
		return querySnapshot(ctx, snap, name, keys, w)
	}
	now, err := p.db.Snapshot()
	if err != nil {
		return err
	}
	defer now.Close() //nolint:errcheck // nothing was written
	schema, err := query.Schema(now, name)
	if err != nil {
		return err
	}
	if _, err := query.Prefixes(schema, keys); err != nil {
		return err
	}
	return w.Begin(snap.Txid(), query.Columns(schema))
}

func (a *app) diffCommand() *cobra.Command {
	var data, format string
	cmd := &cobra.Command{
		Use:   "diff FILE STATE TXID [TXID]",
		Short: "Show the keys of a state that changed between two txids",
		Long: "diff prints the rows of a state that differ between two committed txids, the second of which is the last committed unless\n" +
			"it is given. Earlier states are rebuilt by replay from the ledger.",
		Example: "  tridentd diff orders.yaml revenue 1200 1234",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			t, rest, err := a.resolve(args, data)
			if err != nil {
				return err
			}
			if len(rest) < 2 || len(rest) > 3 {
				return usagef("name a state and one or two txids")
			}
			var txids []batch.Txid
			for _, s := range rest[1:] {
				n, err := strconv.ParseUint(s, 10, 63)
				if err != nil {
					return usagef("%q is no txid", s)
				}
				txids = append(txids, batch.Txid(n))
			}
			return a.diff(cmd.Context(), t, rest[0], txids, newStatePrinter(format, a.out))
		},
	}
	dataFlag(cmd, &data)
	formatFlag(cmd, &format)
	return cmd
}

// diff prints what changed in a state from the first of txids to the second, or to the last committed.
func (a *app) diff(ctx context.Context, t *target, name string, txids []batch.Txid, w rowPrinter) error {
	return a.inThePast(ctx, t, func(p *past) error {
		to := p.last
		if len(txids) > 1 {
			to = txids[1]
		}
		if to < txids[0] {
			return usagef("txid %d lies behind txid %d", txids[0], to)
		}
		return p.at(ctx, txids[0], func(was *pebblestate.Snapshot) error {
			if to == txids[0] {
				return printChanges(ctx, was, was, name, w)
			}
			return p.at(ctx, to, func(now *pebblestate.Snapshot) error { return printChanges(ctx, was, now, name, w) })
		})
	})
}

func printChanges(ctx context.Context, was, now *pebblestate.Snapshot, name string, w rowPrinter) error {
	schema, err := query.Schema(now, name)
	if err != nil {
		var werr error
		if schema, werr = query.Schema(was, name); werr != nil {
			return queryError(err)
		}
	}
	cols := query.Columns(schema)
	n := len(schema.Key)
	head := append([]state.Column{{Name: "change", Type: "string"}}, cols[:n]...)
	for _, side := range []string{"was_", "now_"} {
		for _, c := range cols[n:] {
			c.Name = side + c.Name
			head = append(head, c)
		}
	}
	if err := w.Begin(now.Txid(), head); err != nil {
		return err
	}
	for c, err := range replay.Changes(ctx, was, now, name) {
		if err != nil {
			return err
		}
		kind := "changed"
		switch {
		case c.Was == nil:
			kind = "added"
		case c.Now == nil:
			kind = "removed"
		}
		row := append([]value.Value{value.StringOf(kind)}, c.Key...)
		for _, side := range [][]value.Value{c.Was, c.Now} {
			for i := range cols[n:] {
				if side == nil {
					row = append(row, value.NullValue())
				} else {
					row = append(row, side[i])
				}
			}
		}
		if err := w.Row(row); err != nil {
			return err
		}
	}
	return w.end()
}
