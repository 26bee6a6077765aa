package enginetest

import (
	"fmt"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/value"
)

// watched is the key of a row in a state that Watch keeps. Row -1 holds how many there are.
type watched struct {
	Txid, Row int64
}

// Watch notes what comes along a stream, so that [Rows] can tell: in a state of the given name, which is part of the pipeline from
// then on. T is what a repartitioning could hand on: a type without unexported fields and interfaces.
func Watch[T any](s engine.Stream[T], name string) {
	wire, err := value.WireOf[T]()
	if err != nil {
		panic(fmt.Sprintf("enginetest: Watch(%s): %v", name, err))
	}
	engine.PartitionPersist(s, name, func(b *engine.Batch, values []T, st *engine.KV[watched, []byte]) error {
		txid := int64(b.Txid())
		n, err := count(st, txid)
		if err != nil {
			return err
		}
		for i := range values {
			row, err := wire.Append(nil, &values[i])
			if err != nil {
				return err
			}
			if err := st.Set(watched{txid, n}, row); err != nil {
				return err
			}
			n++
		}
		return st.Set(watched{txid, -1}, value.AppendKey(nil, value.IntOf(n)))
	}, "txid", "row")
}

// count is how many rows of a batch have been noted.
func count(st *engine.KV[watched, []byte], txid int64) (int64, error) {
	b, ok, err := st.Get(watched{txid, -1})
	if err != nil || !ok {
		return 0, err
	}
	n, _, err := value.DecodeKey(b)
	return n.Int(), err
}

// Rows returns what came along a watched stream in batch txid: partition by partition of its sources, then shard by shard of stages
// behind them, and within these as it came.
func Rows[T any](r *Result, name string, txid batch.Txid) []T {
	r.t.Helper()
	at := r.At(txid)
	if !at.has(name) {
		return nil
	}
	wire, err := value.WireOf[T]()
	if err != nil {
		r.t.Fatal(err)
	}
	notes := State[watched, []byte](at, name)
	var all []T
	for n := int64(0); ; n++ {
		b, ok := notes[watched{int64(txid), n}]
		if !ok {
			return all
		}
		var v T
		if _, err := wire.DecodeInto(b, &v); err != nil {
			r.t.Fatalf("watched stream %s, txid %d, row %d: %v", name, txid, n, err)
		}
		all = append(all, v)
	}
}
