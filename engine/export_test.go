package engine

import "context"

// Reopen opens the store again, as is done after a write of unknown outcome.
func (h *Handle) Reopen(ctx context.Context) error {
	_, err := h.reopen(ctx)
	return err
}
