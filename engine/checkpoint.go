package engine

import (
	"context"

	"github.com/tridentd/tridentd/batch"
)

// Checkpoint makes a copy of the store in dir, which must not exist, as of the last committed batch, and returns that
// batch's txid. Batches that commit wait for it, which takes milliseconds: what doesn't change any more is shared by
// hard links, where dir lies on the store's device.
func (h *Handle) Checkpoint(ctx context.Context, dir string) (batch.Txid, error) {
	db, err := h.asked()
	if err != nil {
		return 0, err
	}
	txid, err := db.Checkpoint(ctx, dir)
	return txid, h.meanwhile(err)
}
