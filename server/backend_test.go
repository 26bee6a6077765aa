package server

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

var started = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// fakeBackend is a pipeline with one state and a ledger of n entries.
type fakeBackend struct {
	status  atomic.Pointer[Status]
	entries int
	rows    [][]value.Value
	failAt  int // Query fails before this row, Ledger before this entry; 0: never
	err     error
	stops   atomic.Int32
	block   chan struct{} // if not nil, Query waits for it after its first row
	reached chan struct{} // closed when Query waits
	ended   chan struct{} // if not nil, receives the end of a Query
}

var wordColumns = []state.Column{
	{Name: "word", Type: "string"},
	{Name: "n", Type: "int", Agg: "count"},
	{Name: "total", Type: "decimal", Agg: "sum"},
}

func newBackend() *fakeBackend {
	amount, err := decimal.Parse("1.50")
	if err != nil {
		panic(err)
	}
	b := &fakeBackend{entries: 3, rows: [][]value.Value{
		{value.StringOf("a\"b"), value.IntOf(2), value.DecimalOf(amount)},
		{value.StringOf("the"), value.IntOf(1<<62 + 1), value.NullValue()},
	}}
	b.status.Store(&Status{
		Pipeline: "words", Ready: true, Epoch: 7, Committed: 3, Started: started,
		InFlight: []InFlight{{Txid: 4, Attempt: "7.1", Phase: "process"}},
		Partitions: []PartitionStatus{
			{Source: "lines", Topic: "t", Partition: 0, Committed: 10, End: 15, LogEnd: 16, Lag: 5, Oldest: started},
			{Source: "lines", Topic: "t", Partition: 1, Committed: 5, End: Unknown, LogEnd: Unknown, Lag: Unknown, Error: "no leader"},
		},
		Mirrors: []MirrorStatus{
			{Name: "kafka group g", Txid: 2, Pending: true, Error: &ErrorStatus{Code: batch.CodeGroupMembers}, Failures: map[batch.Code]int64{batch.CodeGroupMembers: 4}},
		},
		BatchSeconds: PhaseSeconds{Commit: 0.25},
	})
	return b
}

// grow makes n rows and n ledger entries: more than what is buffered.
func (b *fakeBackend) grow(n int) {
	b.entries = n
	for len(b.rows) < n {
		b.rows = append(b.rows, b.rows[0])
	}
}

func (b *fakeBackend) Status(context.Context) Status { return *b.status.Load() }

func (b *fakeBackend) States(context.Context) ([]state.Schema, error) {
	return []state.Schema{{Name: "counts", Kind: "aggregate", Key: wordColumns[:1], Values: wordColumns[1:]}}, nil
}

func (b *fakeBackend) Query(_ context.Context, name string, keys []string, w RowWriter) error {
	if b.ended != nil {
		defer func() { b.ended <- struct{}{} }()
	}
	if name != "counts" {
		return NotFound(fmt.Errorf("no state %q", name))
	}
	if len(keys) > 1 {
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "query", errors.New("the key has one column"), "give one key")
	}
	if b.failAt == 1 {
		return b.err
	}
	if err := w.Begin(3, wordColumns); err != nil {
		return err
	}
	for i, row := range b.rows {
		if i+1 == b.failAt {
			return b.err
		}
		if len(keys) == 1 && row[0].Str() != keys[0] {
			continue
		}
		if err := w.Row(row); err != nil {
			return err
		}
		if b.block != nil {
			close(b.reached)
			<-b.block
			b.block = nil
		}
	}
	return nil
}

func (b *fakeBackend) Ledger(_ context.Context, from, to batch.Txid, emit func(*txstate.Entry) error) error {
	for txid := max(from, 1); txid <= batch.Txid(b.entries) && (to == 0 || txid <= to); txid++ {
		if int(txid) == b.failAt {
			return b.err
		}
		if err := emit(ledgerEntry(txid)); err != nil {
			return err
		}
	}
	return nil
}

func (b *fakeBackend) Stop() { b.stops.Add(1) }

func ledgerEntry(txid batch.Txid) *txstate.Entry {
	p := batch.Partition{Source: "lines", Topic: "t", Number: 1}
	start := int64(txid-1) * 10
	return &txstate.Entry{
		Txid: txid, Attempt: batch.Attempt{Epoch: 7, N: 2}, Attempts: 2,
		Time: started, Committed: started.Add(time.Second), Seed: 1<<63 + 1,
		Ranges: []txstate.RangeEntry{{
			Range: batch.Range{Partition: p, Start: start, End: start + 10},
			Input: batch.Input{Records: 9, Bytes: 900, Digest: 0xab},
		}},
		Counts: txstate.Counts{Read: 9, Rejected: 3, Late: 2, Future: 1},
		States: []txstate.StateDigest{{State: "counts", Writes: 4, Digest: 1}},
		Chain:  2, Build: "dev amd64 v1", Plan: 3,
		Took: txstate.Durations{Plan: time.Millisecond, Read: 2 * time.Millisecond, Process: 3 * time.Millisecond, Commit: 4 * time.Millisecond},
	}
}

// start serves b for the length of the test.
func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}
