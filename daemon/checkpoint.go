package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
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
		whole, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		// Beside the database: on another device it would be a whole copy.
		tmp, err := os.MkdirTemp(whole, "copy-")
		if err != nil {
			return fmt.Errorf("a directory for a copy of the store: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
		dir = filepath.Join(tmp, "store")
		if _, err := client.Checkpoint(ctx, dir); err != nil {
			return err
		}
	}
	db, err := openAtRest(ctx, dir)
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // nothing was written
	return f(db)
}
