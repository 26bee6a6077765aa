package enginetest

import (
	"context"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/value"
)

// Rejected is a row that was turned away. Behind a BatchAggregate Source is its name, Offset the txid and Key the
// row's key as text.
type Rejected struct {
	Source    string
	Partition int32
	Offset    int64
	Kind      string // "bad", "late", "future"
	Step      string
	Cause     string
	Txid      batch.Txid
	Key       string
	Value     string
}

// Rejected lists the rows turned away up to r.Txid(), by source, partition and offset.
func (r *Result) Rejected() []Rejected {
	r.t.Helper()
	if r.Txid() == 0 {
		return nil
	}
	schema, err := query.Schema(r.snap(), exec.RejectedState)
	if err != nil {
		r.t.Fatal(err)
	}
	var all []Rejected
	err = query.Rows(context.Background(), r.snap(), schema, nil, func(row []value.Value) error {
		// source, topic, partition, offset, n; kind, step, cause, txid, timestamp, key, value
		rej := Rejected{
			Source: row[0].Str(), Partition: int32(row[2].Int()), Offset: row[3].Int(), Kind: row[5].Str(), Step: row[6].Str(), Cause: row[7].Str(),
			Txid: batch.Txid(row[8].Int()),
		}
		if !row[10].IsNull() {
			rej.Key = string(row[10].Bytes())
		}
		if !row[11].IsNull() {
			rej.Value = string(row[11].Bytes())
		}
		all = append(all, rej)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// RejectedIn lists the rows that batch txid turned away: the late ones, those from the future and the bad ones.
func (r *Result) RejectedIn(txid batch.Txid) []Rejected {
	r.t.Helper()
	return slices.DeleteFunc(r.At(txid).Rejected(), func(rej Rejected) bool { return rej.Txid != txid })
}
