package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/replay"
	"github.com/tridentd/tridentd/savepoint"
	"github.com/tridentd/tridentd/server"
)

func (a *app) savepointRestore() *cobra.Command {
	var f savepointFlags
	var replace, other bool
	var to uint64
	cmd := &cobra.Command{
		Use:   "restore FILE NAME",
		Short: "Make a savepoint the pipeline's data directory",
		Long: "restore makes the copy that a savepoint holds the pipeline's data directory; run goes on from there. A directory that is\n" +
			"there already is moved aside with --replace. With --to-txid the batches behind the savepoint, up to that txid, are run\n" +
			"again from the ledger of the directory that is replaced, and compared with it.",
		Example: "  tridentd savepoint restore orders.yaml before-upgrade --replace\n  tridentd savepoint restore orders.yaml before-upgrade --replace --to-txid 1234",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.at(cmd.Context(), &f, args, 1, 1, "the savepoint's name", func(t *target, place savepoint.Place, rest []string) error {
				return a.restore(cmd.Context(), t, place, rest[0], batch.Txid(to), replace, other)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&replace, "replace", false, "move the present data directory aside")
	cmd.Flags().BoolVar(&other, "other-store", false, "restore a savepoint of another store of the pipeline than the one that is replaced")
	cmd.Flags().Uint64Var(&to, "to-txid", 0, "run the batches behind the savepoint again, up to this one")
	return cmd
}

// restore makes a savepoint the data directory of t. From its first look at what is there until that has been replaced nobody
// else can open it.
func (a *app) restore(ctx context.Context, t *target, place savepoint.Place, name string, to batch.Txid, replace, other bool) (err error) {
	if client, err := server.Dial(t.dir); err == nil {
		client.Close()
		return usagef("a daemon works in %s: stop it first", t.dir)
	}
	there, occupied := pebblestate.Exists(t.dir), false
	if entries, err := os.ReadDir(t.dir); err == nil {
		occupied = len(entries) > 0
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	switch {
	case there && !replace:
		return usagef("%s holds the pipeline's data: --replace moves it aside", t.dir)
	case occupied && !replace:
		return usagef("%s isn't empty, though it holds no store that can be opened: --replace moves it aside", t.dir)
	case to != 0 && !there:
		return usagef("--to-txid %d needs the ledger behind the savepoint, and %s holds none", to, t.dir)
	}
	if err := movable(t.dir); err != nil {
		return err
	}
	var lock *pebblestate.Lock
	if occupied {
		if lock, err = pebblestate.LockDir(ctx, t.dir); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lock.Close()) }()
	}
	if err := a.keepReplaced(t.dir, ""); err != nil {
		return err
	}
	tmp := t.dir + pebblestate.SuffixRestoring
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	info, err := place.Restore(ctx, name, tmp)
	if err != nil {
		return savepointError(err)
	}
	if err := a.sameStore(ctx, t, lock, &info, other); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	at := info.Txid
	if to != 0 {
		if err := a.forward(ctx, t, lock, tmp, info.Txid, to); err != nil {
			return errors.Join(err, os.RemoveAll(tmp))
		}
		at = to
	}
	if err := raiseEpoch(ctx, t, lock, tmp); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	if err := a.putInPlace(t.dir, tmp, occupied, ""); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "%s holds the pipeline as of txid %d\n", t.dir, at)
	return nil
}

// movable refuses a directory that can't be exchanged for another: one that a file system is mounted at.
func movable(dir string) error {
	at, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	whole, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	above, err := os.Stat(filepath.Dir(whole))
	if err != nil {
		return err
	}
	a, ok := at.Sys().(*syscall.Stat_t)
	b, also := above.Sys().(*syscall.Stat_t)
	if ok && also && a.Dev != b.Dev {
		return usagef("%s is where a file system is mounted, and can't be exchanged for what is restored: have that mounted at %s, or restore with another --data", dir, filepath.Dir(whole))
	}
	return nil
}

// sameStore refuses a savepoint of another store than the one that it would replace, unless that is meant: both are of the pipeline,
// but what one has counted isn't what the other has. Where both have the same history up to the savepoint it doesn't matter.
func (a *app) sameStore(ctx context.Context, t *target, lock *pebblestate.Lock, info *savepoint.Info, other bool) error {
	if other || lock == nil || info.Identity == "" {
		return nil
	}
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: t.dir, ReadOnly: true, Lock: lock})
	if err != nil {
		return nil // a damaged one is what a savepoint is for
	}
	id, err := db.Identity(ctx)
	same := id == "" || id == info.Identity
	for e, eerr := range db.Store().Entries(ctx, info.Txid, info.Txid) {
		same = same || eerr == nil && fmt.Sprintf("%016x", e.Chain) == info.Chain // made by a replay of this one, or this one by one of that
	}
	if err := errors.Join(err, db.Close()); err != nil || same {
		return nil
	}
	return usagef("savepoint %s is of another store of the pipeline (%s) than the one in %s (%s): --other-store restores it all the same", info.Name, info.Identity, t.dir, id)
}

// putInPlace makes tmp dir. Where the system can exchange two directories there is no moment at which dir is neither the one nor
// the other; elsewhere pebblestate.CheckAside keeps a pipeline from beginning anew in that moment.
func (a *app) putInPlace(dir, tmp string, there bool, by string) error {
	parent := filepath.Dir(dir)
	if !there {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // it is empty
			return err
		}
		if err := os.Rename(tmp, dir); err != nil {
			return err
		}
		return syncDir(parent)
	}
	// What is replaced has this name for a moment, so it mustn't be that of a copy which the next restore deletes.
	whole := dir + pebblestate.SuffixRestored
	if err := errors.Join(os.Rename(tmp, whole), syncDir(parent)); err != nil {
		return err
	}
	switch err := exchange(whole, dir); {
	case errors.Is(err, errors.ErrUnsupported):
		aside := asideName(dir, by)
		if err := os.Rename(dir, aside); err != nil {
			return err
		}
		if err := os.Rename(whole, dir); err != nil {
			return errors.Join(err, os.Rename(aside, dir))
		}
		fmt.Fprintf(a.err, "%s is kept as %s\n", dir, aside)
		return syncDir(parent)
	case err != nil:
		return err
	}
	if err := syncDir(parent); err != nil {
		return err
	}
	return a.keepReplaced(dir, by)
}

// keepReplaced gives what has been replaced its name, be it by one that was interrupted just before that.
func (a *app) keepReplaced(dir, by string) error {
	aside := asideName(dir, by)
	switch err := os.Rename(dir+pebblestate.SuffixRestored, aside); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	fmt.Fprintf(a.err, "%s is kept as %s\n", dir, aside)
	return syncDir(filepath.Dir(dir))
}

func asideName(dir, by string) string {
	return dir + pebblestate.SuffixReplaced + time.Now().UTC().Format("20060102T150405.000") + by
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// forward runs the batches behind a restored store again, from the ledger of the present one.
func (a *app) forward(ctx context.Context, t *target, lock *pebblestate.Lock, dir string, from, to batch.Txid) error {
	if to < from {
		return usagef("--to-txid %d lies before the savepoint, which is of txid %d: choose an older one", to, from)
	}
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: t.dir, Pipeline: t.pipeline.Name(), ReadOnly: true, Lock: lock})
	if err != nil {
		return savepointError(err)
	}
	defer db.Close() //nolint:errcheck // nothing was written
	_, err = replay.Verify(ctx, t.pipeline, replay.Options{Store: db, Dir: dir, Base: true, To: to})
	if _, ok := errors.AsType[*replay.Different](err); ok {
		return &exitError{exitDifferent, err}
	}
	return savepointError(err)
}

// raiseEpoch gives a restored store the epoch above the one that it replaces, or those that lie aside if there is none: what an
// older store has told others must not look newer than what the restored one will. lock is that of the one it replaces.
func raiseEpoch(ctx context.Context, t *target, lock *pebblestate.Lock, dir string) error {
	var was batch.Epoch
	if lock != nil {
		was = epochOf(ctx, t.dir, lock)
	} else {
		aside, err := pebblestate.Aside(t.dir)
		if err != nil {
			return err
		}
		for _, old := range aside {
			if old != dir {
				was = max(was, epochOf(ctx, old, nil))
			}
		}
	}
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: dir, Pipeline: t.pipeline.Name()})
	if err != nil {
		return err
	}
	snap, err := db.Store().Load(ctx)
	if err == nil && was > snap.Epoch {
		err = db.Store().Claim(ctx, was)
	}
	if err == nil {
		err = makeBeginning(ctx, db)
	}
	return errors.Join(err, db.Close())
}

// makeBeginning makes a base of a store that was put together elsewhere, and so has none, where a replay of what follows couldn't
// begin at the first batch: the ledger has been trimmed, or the plan has changed.
func makeBeginning(ctx context.Context, db *pebblestate.DB) error {
	first, last := db.Ledger()
	need, plan := first > 1, uint64(0)
	for e, err := range db.Store().Entries(ctx, first, last) {
		if err != nil {
			return err
		}
		if need = need || len(e.Migrated) > 0 || plan != 0 && e.Plan != plan; need {
			break
		}
		if !e.Reset {
			plan = e.Plan
		}
	}
	if last == 0 || !need {
		return nil
	}
	_, err := db.MakeBase(ctx, time.Now())
	return err
}

// epochOf is the epoch of a store at rest; none of a damaged one, which is what a savepoint is for.
func epochOf(ctx context.Context, dir string, lock *pebblestate.Lock) batch.Epoch {
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: dir, ReadOnly: true, Lock: lock})
	if err != nil {
		return 0
	}
	snap, err := db.Store().Load(ctx)
	if err := errors.Join(err, db.Close()); err != nil {
		return 0
	}
	return snap.Epoch
}
