package spec

import "github.com/tridentd/tridentd/internal/plan"

func ledgerField() *field {
	return &field{name: "ledger", kind: kindObject, doc: "What is kept of batches that have committed, for `ledger`, `replay` and what rebuilds earlier states.", fields: []*field{
		{
			name: "changes", kind: kindEnum, enum: []string{"digests", "keep"}, def: "digests",
			doc: "`digests`: of what a batch changed its digest is kept, by which a replay finds the first batch that comes out otherwise. `keep`: the changes themselves, too, so that it names key and both values. It costs the disk what the batches write.",
		},
		{name: "retention", kind: kindObject, doc: "How much is kept; the bound that is met first counts. What a replay needs to begin at, and what a savepoint needs, is never trimmed.", fields: []*field{
			{name: "age", kind: kindDuration, def: "7d", doc: "How long a batch is kept after its commit; `0s`: for ever."},
			{name: "size", kind: kindSize, def: "2GiB", doc: "How large the ledger and the kept changes may be on disk; `0`: any size."},
			{name: "batches", kind: kindInt, min: 1, def: "no bound", doc: "How many batches are kept."},
		}},
		{name: "held", kind: kindObject, doc: "How much is kept beyond `retention` because a savepoint needs it. A savepoint that would need more can be restored, but not with `--to-txid` any more.", fields: []*field{
			{name: "age", kind: kindDuration, def: "no bound", doc: "How long a batch is kept after its commit; `0s`: for ever."},
			{name: "size", kind: kindSize, def: "no bound", doc: "How large the ledger and the kept changes may become on disk; `0`: any size."},
		}},
	}}
}

// ledgerOf reads the setting ledger. Nothing in it is its default.
func ledgerOf(n *node) plan.Ledger {
	l := plan.Ledger{Changes: n.get("changes").str() == "keep"}
	r := n.get("retention")
	if v := r.get("age"); v != nil {
		if l.MaxAge = v.dur; l.MaxAge == 0 {
			l.MaxAge = -1
		}
	}
	if v := r.get("size"); v != nil {
		if l.MaxBytes = v.num; l.MaxBytes == 0 {
			l.MaxBytes = -1
		}
	}
	if v := r.get("batches"); v != nil {
		l.MaxBatches = v.num
	}
	held := n.get("held")
	if v := held.get("age"); v != nil {
		l.HeldAge = v.dur
	}
	if v := held.get("size"); v != nil {
		l.HeldBytes = v.num
	}
	return l
}
