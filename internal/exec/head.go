package exec

import (
	"context"
	"fmt"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// How much of the ledger's end is held against the saved positions at a start.
const (
	headEntries = 64
	headRanges  = 1 << 12
)

// checkHead compares the positions that were moved last with the ledger's newest entries: were one of them another, records would
// be counted twice, or left out, without a trace. A replay compares them all.
func (x *Executor) checkHead(ctx context.Context, snap *txstate.Snapshot) error {
	at := make(map[batch.Partition]*txstate.SavedPosition, len(snap.Positions))
	for i := range snap.Positions {
		at[snap.Positions[i].Partition] = &snap.Positions[i]
	}
	first, _ := x.cfg.DB.Ledger()
	moved := map[batch.Partition]bool{}
	for txid := snap.Txid; txid >= max(first, 1) && txid+headEntries > snap.Txid && len(moved) < headRanges; txid-- {
		for e, err := range x.cfg.DB.Store().Entries(ctx, txid, txid) {
			if err != nil {
				return err
			}
			if len(e.Migrated) > 0 {
				return nil // partitions may have had other names before
			}
			for i := range e.Ranges {
				r := &e.Ranges[i].Range
				if moved[r.Partition] {
					continue
				}
				moved[r.Partition] = true
				switch p := at[r.Partition]; {
				case p == nil:
					return misplaced(r, txid, "the store has no position of it")
				case p.Next != r.End || p.Txid != txid:
					return misplaced(r, txid, fmt.Sprintf("the store has offset %d, moved by txid %d", p.Next, p.Txid))
				}
			}
		}
	}
	return nil
}

func misplaced(r *batch.Range, txid batch.Txid, has string) error {
	return batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "open", fmt.Errorf("by the ledger txid %d has moved it to offset %d, %s", txid, r.End, has),
		"restore a savepoint, or rebuild by replay").At(r.Partition, r.End)
}
