package daemon

import (
	"context"
	"path/filepath"
	"time"

	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/savepoint"
)

// localSavepoints is the folder of savepoints beside the pipelines' data directories.
func (t *target) localSavepoints() string { return filepath.Join(t.root, names.Savepoints) }

// savepoints opens the place of t's savepoints: the one asked for; else the one that the pipeline names; else a folder beside the
// data directory.
func (t *target) savepoints(ctx context.Context, asked string) (savepoint.Place, error) {
	where := asked
	if where == "" {
		pl, err := t.pipeline.Plan()
		if err != nil {
			return savepoint.Place{}, err
		}
		where = pl.Savepoints.To
	}
	if where == "" {
		where = t.localSavepoints()
	}
	return savepoint.Open(ctx, where, t.pipeline.Name())
}

// beforeMigration makes the savepoint that a change of t's store at rest begins with, where t's pipeline keeps its savepoints,
// else beside its data directory.
func (a *app) beforeMigration(ctx context.Context, t *target, db *pebblestate.DB) (savepoint.Info, error) {
	whole, err := filepath.Abs(t.dir)
	if err != nil {
		return savepoint.Info{}, err
	}
	place, err := t.savepoints(ctx, "")
	if err != nil {
		return savepoint.Info{}, err
	}
	defer place.Close() //nolint:errcheck // what was written has been answered
	return place.BeforeMigration(ctx, db, whole, time.Now())
}
