package savepoint

import (
	"context"
	"fmt"
	"time"

	"github.com/tridentd/tridentd/pebblestate"
)

// migrationPrefix begins the names of savepoints that BeforeMigration makes.
const migrationPrefix = "migration-"

// BeforeMigration makes the savepoint that a change of a store begins with, so that there is always a way back. db is the store
// that is about to be changed; scratch is a directory on its device, and the savepoint shares files with the store by hard links
// if the place lies there too. It is never removed by a schedule.
func (p Place) BeforeMigration(ctx context.Context, db *pebblestate.DB, scratch string, now time.Time) (Info, error) {
	snap, err := db.Store().Load(ctx)
	if err != nil {
		return Info{}, err
	}
	name := fmt.Sprintf("%stxid-%012d-%s", migrationPrefix, snap.Txid, now.UTC().Format(nameTime))
	return p.Create(ctx, name, scratch, now, func(ctx context.Context, dir string) error {
		_, err := db.Checkpoint(ctx, dir)
		return err
	})
}

// nameTime is how a time stands in a savepoint's name.
const nameTime = "20060102T150405.000Z"
