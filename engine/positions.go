package engine

import (
	"context"

	"github.com/tridentd/tridentd/txstate"
)

// Positions reads from the store where the pipeline stands: all that it holds, as of one txid, even while the sources can't
// be opened.
func (h *Handle) Positions(ctx context.Context) (txstate.Snapshot, error) {
	db, err := h.asked()
	if err != nil {
		return txstate.Snapshot{}, err
	}
	snap, err := db.Store().Load(ctx)
	return snap, h.meanwhile(err)
}
