package engine

import (
	"context"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/pebblestate"
)

// What bounds a stop, besides the grace.
const (
	StopTimeout = stopTimeout
	CloseGrace  = closeGrace
)

// Reopen opens the store again, as is done after a write of unknown outcome.
func (h *Handle) Reopen(ctx context.Context) error {
	_, err := h.reopen(ctx)
	return err
}

// StoreOn has the runs of o keep their store on a file system of the test's.
func StoreOn(o Options, fs vfs.FS) Options {
	o.store = func(s *pebblestate.Options) { s.FS = fs }
	return o
}
