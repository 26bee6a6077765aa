package replay

import (
	"context"
	"fmt"
	"iter"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// A ledger may have millions of entries. It is read twice, once for what a replay must know before it begins, and once while the
// batches are run, and no more of it is held than of the batches at work.

// outline is what a replay knows beforehand of the entries that it runs.
type outline struct {
	starts  map[string][]batch.Position // by source: of every partition that joins
	chain   uint64                      // of the last
	records int64                       // that those from Options.From on read
}

func (o *outline) take(e *txstate.Entry, from batch.Txid) {
	for _, p := range e.Joined {
		if o.starts == nil {
			o.starts = map[string][]batch.Position{}
		}
		o.starts[p.Source] = append(o.starts[p.Source], p)
	}
	o.chain = e.Chain
	if e.Txid >= from {
		o.records += e.Counts.Read
	}
}

// entries yields the entries of the batches from first to last, as they are to be run. One that isn't there is an error: they were
// when the replay began.
func (r *run) entries(ctx context.Context, first, last batch.Txid) iter.Seq2[txstate.Entry, error] {
	return func(yield func(txstate.Entry, error) bool) {
		if first > last {
			return
		}
		next := first
		for e, err := range r.o.Store.Store().Entries(ctx, first, last) {
			if err == nil && e.Txid != next {
				break
			}
			next++
			if err == nil && r.translate != nil {
				r.translate(&e)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		if next <= last {
			yield(txstate.Entry{}, batch.NewError(batch.Permanent, batch.CodeUnreplayable, "replay", fmt.Errorf("the ledger's entry of txid %d is gone", next),
				"replay a copy, or while nothing trims the ledger"))
		}
	}
}

// entry is that of a batch that is run; nil if it can't be read.
func (r *run) entry(ctx context.Context, txid batch.Txid) *txstate.Entry {
	for e, err := range r.entries(ctx, txid, txid) {
		if err == nil {
			return &e
		}
	}
	return nil
}
