package enginetest

import (
	"context"

	"github.com/tridentd/tridentd/engine"
)

// Ask answers a query with what the result's last batch left.
func Ask[A, R any](r *Result, q *engine.QueryStream[A, R], args A) []R {
	r.t.Helper()
	a, err := TryAsk(r, q, args)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// TryAsk is Ask for a query that is expected to fail.
func TryAsk[A, R any](r *Result, q *engine.QueryStream[A, R], args A) ([]R, error) {
	snap := r.snap()
	clock := Clock
	if t := int(snap.Txid()); t > 0 {
		clock = r.Entries[t-1].Time
	}
	a, err := q.AskSnapshot(context.Background(), snap, clock, args)
	return a.Rows, err
}
