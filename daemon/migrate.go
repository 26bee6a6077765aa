package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/change"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/scratch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/replay"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/state"
)

// migrateFlags are the settings of migrate.
type migrateFlags struct {
	data, format            string
	dryRun, accept          bool
	rename                  []string
	rebuild, backfill, drop []string
}

func (a *app) migrateCommand() *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "migrate FILE",
		Short: "Bring a pipeline's store in line with a changed pipeline",
		Long: "migrate compares the pipeline with the one that made its store, and does to the store what the change needs: states are renamed,\n" +
			"dropped, or made from the recorded batches; changed steps in front of kept states are accepted. What goes on by itself needs no\n" +
			"migration: run says so in its log. A savepoint is made first. The pipeline must be at rest. Killed at any moment, the store is as\n" +
			"it was, or migrated. With --dry-run nothing is changed: exit code 3 means that a decision is missing, without which run refuses to start.",
		Example: "  tridentd migrate orders.yaml --dry-run\n  tridentd migrate orders.yaml --accept\n" +
			"  tridentd migrate orders.yaml --rename revenue=revenue_hourly --backfill refunds --drop old_totals",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(f.format); err != nil {
				return err
			}
			t, rest, err := a.resolve(args, f.data)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usagef("unexpected argument %q", rest[0])
			}
			return queryError(a.migrate(cmd.Context(), t, &f))
		},
	}
	dataFlag(cmd, &f.data)
	formatFlag(cmd, &f.format)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would be done, and change nothing")
	cmd.Flags().BoolVar(&f.accept, "accept", false, "the changed steps are meant: states that they feed go on, and what looks renamed is new")
	cmd.Flags().StringSliceVar(&f.rename, "rename", nil, "OLD=NEW: a state or source has another name by now (state:OLD=NEW or source:OLD=NEW where both do)")
	cmd.Flags().StringSliceVar(&f.rebuild, "rebuild", nil, "make a kept state anew from the recorded batches (all: every state)")
	cmd.Flags().StringSliceVar(&f.backfill, "backfill", nil, "fill a new state from the recorded batches")
	cmd.Flags().StringSliceVar(&f.drop, "drop", nil, "remove a state that the pipeline doesn't keep any more, with its rows")
	return cmd
}

// everyState stands for all states with --rebuild.
const everyState = "all"

// decisions are what the flags say, of the two definitions.
func (f *migrateFlags) decisions(was, is plan.Definition, stored []state.Schema) (change.Decisions, error) {
	d := change.Decisions{Accept: f.accept, Rename: map[string]string{}, Sources: map[string]string{}, Backfill: f.backfill, Drop: f.drop}
	for _, name := range f.rebuild {
		if name == everyState {
			d.RebuildAll = true
			continue
		}
		d.Rebuild = append(d.Rebuild, name)
	}
	for _, r := range f.rename {
		kind, names, said := strings.Cut(r, ":")
		if !said {
			kind, names = "", r
		}
		old, to, ok := strings.Cut(names, "=")
		if !ok || old == "" || to == "" || said && kind != change.State && kind != change.Source {
			return d, usagef("--rename %q: it is OLD=NEW, state:OLD=NEW or source:OLD=NEW", r)
		}
		aState := slices.ContainsFunc(stored, func(s state.Schema) bool { return s.Name == old }) &&
			slices.ContainsFunc(is.States, func(s plan.StateDefinition) bool { return s.Schema.Name == to })
		aSource := slices.ContainsFunc(was.Sources, func(p plan.Part) bool { return p.Name == old }) &&
			slices.ContainsFunc(is.Sources, func(p plan.Part) bool { return p.Name == to })
		into := d.Rename
		switch {
		case kind == change.State, kind == "" && aState && !aSource:
		case kind == change.Source, kind == "" && aSource && !aState:
			into = d.Sources
		case aState && aSource:
			return d, usagef("--rename %s: there are a state and a source of these names: say state:%s or source:%s", r, r, r)
		default:
			return d, usagef("--rename %s: neither a state nor a source is called %s in the store and %s in the pipeline", r, old, to)
		}
		if had, ok := into[old]; ok && had != to {
			return d, usagef("--rename %s: it is to become %s, too", r, had)
		}
		into[old] = to
	}
	return d, nil
}

// migrate compares, and does what the flags say.
func (a *app) migrate(ctx context.Context, t *target, f *migrateFlags) error {
	if f.dryRun {
		return withStore(ctx, t.dir, func(db *pebblestate.DB) error {
			r, err := resolve(ctx, t, db, f)
			if err != nil {
				return err
			}
			if err := a.printMigration(f.format, r); err != nil {
				return err
			}
			if len(r.Open) > 0 {
				return &exitError{exitDifferent, exec.Refused(r.Open)}
			}
			return nil
		})
	}
	if client, err := server.Dial(t.dir); err == nil {
		client.Close()
		return usagef("a daemon works in %s: stop it first", t.dir)
	}
	if !pebblestate.Exists(t.dir) {
		return usagef("%s holds no data: the pipeline hasn't run with this --data", t.dir)
	}
	lock, err := pebblestate.LockDir(ctx, t.dir)
	if err != nil {
		return err
	}
	return errors.Join(a.migrateLocked(ctx, t, lock, f), lock.Close())
}

// resolve finds what has changed, and what the flags make of it.
func resolve(ctx context.Context, t *target, db *pebblestate.DB, f *migrateFlags) (*change.Resolution, error) {
	pl, err := t.pipeline.Plan()
	if err != nil {
		return nil, err
	}
	is := exec.DefinitionOf(pl)
	was, stored, err := exec.StoredDefinition(ctx, db, is)
	if err != nil {
		return nil, err
	}
	d, err := f.decisions(was, is, stored)
	if err != nil {
		return nil, err
	}
	r, err := change.Resolve(was, is, stored, d)
	return r, usage(err)
}

// migrateLocked migrates a copy of the store and lets it take the store's place. Nobody else can open that meanwhile.
func (a *app) migrateLocked(ctx context.Context, t *target, lock *pebblestate.Lock, f *migrateFlags) (err error) {
	if err := a.keepReplaced(t.dir, ""); err != nil {
		return err
	}
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: t.dir, Pipeline: t.pipeline.Name(), Lock: lock})
	if err != nil {
		return err
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, db.Close())
		}
	}()
	snap, err := db.Store().Load(ctx)
	if err == nil {
		err = exec.Settled(&snap)
	}
	if err != nil {
		return err
	}
	r, err := resolve(ctx, t, db, f)
	if err != nil {
		return err
	}
	if len(r.Open) > 0 {
		return usage(exec.Refused(r.Open))
	}
	did := doing(r)
	if len(did) == 0 {
		fmt.Fprintln(a.err, "nothing to migrate: what has changed goes on by itself")
		return a.printMigration(f.format, r)
	}
	info, err := a.beforeMigration(ctx, t, db)
	if err != nil {
		return fmt.Errorf("the savepoint that a migration begins with: %w", err)
	}
	fmt.Fprintf(a.err, "savepoint %s holds the pipeline as it was, txid %d\n", info.Name, info.Txid)
	tmp, err := filepath.Abs(t.dir + pebblestate.SuffixRestoring)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := a.migrateCopy(ctx, t, db, tmp, r, did); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	closed = true
	if err := db.Close(); err != nil {
		return err
	}
	earlier, err := pebblestate.Aside(t.dir)
	if err != nil {
		return err
	}
	earlier = slices.DeleteFunc(earlier, func(dir string) bool { return !strings.HasSuffix(dir, byMigration) })
	if err := a.putInPlace(t.dir, tmp, true, byMigration); err != nil {
		return err
	}
	for _, dir := range earlier { // each has its savepoint
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		fmt.Fprintf(a.err, "%s, which an earlier migration had replaced, is removed\n", dir)
	}
	fmt.Fprintf(a.err, "%s is migrated: txid %d\n", t.dir, snap.Txid+1)
	return a.printMigration(f.format, r)
}

// byMigration ends the names of directories that a migration has replaced: the next one removes them.
const byMigration = ".migrated"

// doing lists what a migration has to do, in the order of the steps and in the grammar of the command.
func doing(r *change.Resolution) []string {
	var did []string
	for i := range r.Steps {
		if s := &r.Steps[i]; !s.ByItself() {
			did = append(did, s.String())
		}
	}
	return did
}

// migrateCopy makes a migrated copy of db in dir.
func (a *app) migrateCopy(ctx context.Context, t *target, db *pebblestate.DB, dir string, r *change.Resolution, did []string) (err error) {
	pl, err := t.pipeline.Plan()
	if err != nil {
		return err
	}
	now := time.Now()
	m := exec.Migration{
		Plan: exec.PlanFor(xxhash.Sum64String(pl.Text), exec.DefinitionOf(pl)), Did: did, Schemas: r.Schemas,
		Rename: map[string]string{}, Sources: map[string]string{}, Build: engine.Build(), Now: now,
	}
	for _, s := range r.Steps {
		switch s.Action {
		case change.ActionRename:
			m.Rename[s.Old] = s.Name
		case change.ActionRenameSource:
			m.Sources[s.Old] = s.Name
		case change.ActionDrop:
			m.Drop = append(m.Drop, s.Name)
		}
	}
	if len(r.Refill) > 0 {
		from, done, err := a.refill(ctx, t, db, m.Sources)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, done()) }()
		m.From = from
		for _, s := range exec.SchemasOf(pl) {
			if slices.Contains(r.Refill, s.Name) {
				m.Refill = append(m.Refill, s)
			}
		}
	}
	if _, err := db.Checkpoint(ctx, dir); err != nil {
		return err
	}
	if err := pebblestate.LinkBases(ctx, t.dir, dir); err != nil { // for replays with the pipeline as it was
		return err
	}
	copied, err := pebblestate.Open(ctx, pebblestate.Options{Dir: dir, Pipeline: t.pipeline.Name()})
	if err != nil {
		return err
	}
	_, err = exec.Migrate(ctx, copied, m)
	if err == nil {
		// Replays of what follows begin here: no ledger tells what a migration has done.
		_, err = copied.MakeBase(ctx, now)
	}
	return errors.Join(err, copied.Close())
}

// refill runs the ledger with the changed pipeline, and opens what came of it. done gives that up.
func (a *app) refill(ctx context.Context, t *target, db *pebblestate.DB, sources map[string]string) (from *pebblestate.DB, done func() error, err error) {
	boundHeap(defaultMemoryLimit())
	root, remove, err := scratch.Make("", "tridentd-migrate-")
	if err != nil {
		return nil, nil, err
	}
	seen := newReplayProgress(a.err)
	err = replay.Refill(ctx, t.pipeline, replay.Options{Store: db, Dir: filepath.Join(root, "store"), Committed: seen.committed}, sources)
	seen.stop()
	if err == nil {
		from, err = pebblestate.Open(ctx, pebblestate.Options{Dir: filepath.Join(root, "store"), Pipeline: t.pipeline.Name(), ReadOnly: true})
	}
	if err != nil {
		if batch.CodeOf(err) == batch.CodeBadRecord {
			err = fmt.Errorf("the recorded batches can't be run with the changed pipeline: %w", err)
		}
		return nil, nil, errors.Join(err, remove())
	}
	return from, func() error { return errors.Join(from.Close(), remove()) }, nil
}

var migrationColumns = []state.Column{
	{Name: "action", Type: "string"},
	{Name: "what", Type: "string"},
	{Name: "differs", Type: "string"},
	{Name: "was", Type: "string"},
	{Name: "is", Type: "string"},
	{Name: "means", Type: "string"},
}

// printMigration prints the steps, then the differences that no decision settles.
func (a *app) printMigration(format string, r *change.Resolution) error {
	p := newPrinter(format, a.out)
	if err := p.Begin(0, migrationColumns); err != nil {
		return err
	}
	row := func(action, what, differs, was, is, means string) error {
		text := func(s string) value.Value {
			if s == "" {
				return value.NullValue()
			}
			return value.StringOf(s)
		}
		return p.Row([]value.Value{text(action), text(what), text(differs), text(was), text(is), text(means)})
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		var d change.Difference
		if s.Difference != nil {
			d = *s.Difference
		}
		if err := row(s.Action, s.What, d.Aspect, cmp.Or(d.Was, s.Old), cmp.Or(d.Is, renamedTo(s)), s.Means); err != nil {
			return err
		}
	}
	for i := range r.Open {
		d := &r.Open[i]
		if err := row("decide", d.Kind+" "+d.Name, d.Aspect, d.Was, d.Is, cmp.Or(d.Means, "it changes what is kept in "+strings.Join(d.States, ", "))); err != nil {
			return err
		}
	}
	return p.end()
}

func renamedTo(s *change.Step) string {
	if s.Old == "" {
		return ""
	}
	return s.Name
}
