package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// Import is where a pipeline that has never run begins: not with nothing, but where something else has come to.
type Import struct {
	// From says, for people, where the positions were found. It becomes part of the ledger.
	From string
	// Moves are the positions. Each partition begins at its Move's From and goes on at Next: the two differ only where what
	// lies between is gone and is skipped on purpose.
	Moves  []Move
	States []ImportedState
}

// ImportedState are the rows that a state begins with.
type ImportedState = exec.ImportedState

// ImportedRow is one of them, encoded as the state keeps it.
type ImportedRow = exec.ImportedRow

// ImportInto begins a pipeline's ledger with an import: positions and rows are in one synced write, as txid 1. The store must be
// empty, and open for writing; nothing is changed otherwise.
func ImportInto(ctx context.Context, p *Pipeline, db *pebblestate.DB, in Import) (txstate.Entry, error) {
	pl, err := p.Plan()
	if err != nil {
		return txstate.Entry{}, err
	}
	snap, err := db.Store().Load(ctx)
	if err != nil {
		return txstate.Entry{}, err
	}
	if snap.Txid > 0 || len(snap.Positions) > 0 || len(snap.Recorded) > 0 {
		return txstate.Entry{}, batch.NewError(batch.Permanent, batch.CodeConfiguration, "import",
			fmt.Errorf("the store has begun: it is at txid %d", snap.Txid),
			"import into another --data; or set its positions by offsets reset; or remove the data directory, if what it holds isn't wanted")
	}
	if in.From == "" || len(in.Moves) == 0 {
		return txstate.Entry{}, batch.NewError(batch.Permanent, batch.CodeConfiguration, "import", errors.New("there is no position to begin at"), "name positions, and where they come from")
	}
	states := slices.Clone(in.States)
	slices.SortFunc(states, func(a, b ImportedState) int { return strings.Compare(a.Schema.Name, b.Schema.Name) })
	return exec.Reset(ctx, db, in.Moves, exec.ResetOptions{
		Build: Build(), PlanSum: xxhash.Sum64String(pl.Text), Now: time.Now(), Imported: in.From, States: states,
	})
}
