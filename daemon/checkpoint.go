package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/savepoint"
	"github.com/tridentd/tridentd/server"
)

var _ server.Checkpointer = (*backend)(nil)

// Checkpoint implements server.Checkpointer.
func (b *backend) Checkpoint(ctx context.Context, dir string) (batch.Txid, error) {
	return b.h.Checkpoint(ctx, dir)
}

// withStore passes the store in dir to f, open for reading: at rest, or a copy that the daemon makes of its own. The copy
// is removed behind f.
func withStore(ctx context.Context, dir string, f func(db *pebblestate.DB) error) (err error) {
	client, err := server.Dial(dir)
	switch {
	case errors.Is(err, server.ErrNotRunning):
	case err != nil:
		return err
	default:
		defer client.Close()
		whole, aerr := filepath.Abs(dir) // err is the result, which the deferred removal adds to
		if aerr != nil {
			return aerr
		}
		// Beside the database: on another device it would be a whole copy.
		tmp, remove, aerr := savepoint.MakeCopies(whole)
		if aerr != nil {
			return aerr
		}
		defer func() { err = errors.Join(err, remove()) }()
		copied := filepath.Join(tmp, "store")
		switch _, cerr := client.Checkpoint(ctx, copied); {
		case cerr == nil:
			if err := linkBases(ctx, whole, copied); err != nil {
				return err
			}
			dir = copied
		case !holdsNoStore(cerr): // else it is a process that only stays up, and the store is at rest
			return cerr
		}
	}
	db, err := openAtRest(ctx, dir)
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // nothing was written
	return f(db)
}

// linkBases gives a copy what replays of a trimmed ledger begin at, which a checkpoint leaves out.
func linkBases(ctx context.Context, dir, copied string) (err error) {
	for range 3 {
		if err = pebblestate.LinkBases(ctx, dir, copied); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		// One was removed meanwhile, which happens once in a long time.
		if err := os.RemoveAll(filepath.Join(copied, pebblestate.BasesDir)); err != nil {
			return err
		}
	}
	return err
}
