package txstate_test

import (
	"context"
	"testing"

	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/txstate/txstatetest"
)

type memory struct{ *txstate.Memory }

func (m memory) Commit(_ context.Context, e txstate.Entry, positions []txstate.SavedPosition) error {
	m.Memory.Commit(e, positions)
	return nil
}

func (m memory) Reopen(*testing.T) txstatetest.Store { return m }

func TestMemory(t *testing.T) {
	txstatetest.Run(t, func(*testing.T) txstatetest.Store { return memory{txstate.NewMemory()} })
}
