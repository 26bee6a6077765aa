// Package enginetest runs a pipeline inside go test: on given records, in given batches, with no server, no clock
// and no sleep.
//
//	r := enginetest.Run(t, Words(), enginetest.Input{"lines": {"a b"}}, enginetest.Input{"lines": {"A"}})
//	got := enginetest.State[string, int64](r, "counts")
//
// Everything runs through the engine's own code, on a store in memory. Batch T is the T-th input. The batches' clock
// begins at [Clock] and moves on by a second from batch to batch.
package enginetest

import (
	"context"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/rerun"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// Input is one batch: for each source, the values of its records. "lines" is partition 0 of source lines, "lines/2" its
// partition 2. The first value that a CSV source is given in partition 0 is its header line.
type Input map[string][]string

// Clock is the time of the first batch.
var Clock = rerun.Clock

// Result is what a run left.
type Result struct {
	t  testing.TB
	db *pebblestate.DB
	// Entries are the ledger's entries, in txid order.
	Entries []txstate.Entry
}

// Run runs p on the batches. A failure fails the test.
func Run(t testing.TB, p *engine.Pipeline, in ...Input) *Result {
	t.Helper()
	r, err := Try(t, p, in...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Try is Run for a pipeline that is expected to stop: the result holds what had committed before.
func Try(t testing.TB, p *engine.Pipeline, in ...Input) (*Result, error) {
	t.Helper()
	w, err := newWorld(p, in)
	if err != nil {
		t.Fatal(err)
	}
	db, err := rerun.OpenStore(t.Context(), w.plan, vfs.NewMem())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	runErr := w.in.Run(t.Context(), w.plan, db, rerun.Circumstances{Pending: 2})
	r := &Result{t: t, db: db}
	if r.Entries, err = rerun.Entries(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return r, runErr
}

// State returns the rows of a state, as engine.ReadState does.
func State[K comparable, V any](r *Result, name string) map[K]V {
	r.t.Helper()
	snap, err := r.db.Snapshot()
	if err != nil {
		r.t.Fatal(err)
	}
	defer snap.Close() //nolint:errcheck // it only reads
	rows, err := engine.ReadSnapshot[K, V](context.Background(), snap, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return rows
}

// Rejected is a row that was turned away. Behind a BatchAggregate Source is its name, Offset the txid and Key the
// row's key as text.
type Rejected struct {
	Source string
	Offset int64
	Kind   string // "bad", "late", "future"
	Step   string
	Cause  string
	Txid   batch.Txid
	Key    string
	Value  string
}

// Rejected lists the rows turned away, by source, partition and offset.
func (r *Result) Rejected() []Rejected {
	r.t.Helper()
	snap, err := r.db.Snapshot()
	if err != nil {
		r.t.Fatal(err)
	}
	defer snap.Close() //nolint:errcheck // it only reads
	schema, err := query.Schema(snap, exec.RejectedState)
	if err != nil {
		r.t.Fatal(err)
	}
	var all []Rejected
	err = query.Rows(context.Background(), snap, schema, nil, func(row []value.Value) error {
		// source, topic, partition, offset, n; kind, step, cause, txid, timestamp, key, value
		rej := Rejected{
			Source: row[0].Str(), Offset: row[3].Int(), Kind: row[5].Str(), Step: row[6].Str(), Cause: row[7].Str(),
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

// world is a pipeline with its input.
type world struct {
	plan *plan.Plan
	in   *rerun.Input
}

func newWorld(p *engine.Pipeline, in []Input) (*world, error) {
	pl, err := p.Plan()
	if err != nil {
		return nil, err
	}
	w := &world{plan: pl, in: &rerun.Input{Sources: map[string]*rerun.Source{}}}
	csvs := map[string]bool{}
	for _, s := range pl.Sources {
		src := rerun.NewSource(s.ID)
		src.Part(batch.Partition{Source: s.ID, Topic: s.ID})
		w.in.Sources[s.ID] = src
		csvs[s.ID] = s.Framing == emitter.CSV
	}
	for i, batchInput := range in {
		e := txstate.Entry{Txid: batch.Txid(i + 1), Time: Clock.Add(time.Duration(i) * time.Second), Seed: xxhash.Sum64String("enginetest" + strconv.Itoa(i))}
		for key, values := range batchInput {
			id, number, err := splitKey(key)
			if err != nil {
				return nil, err
			}
			s := w.in.Sources[id]
			if s == nil {
				return nil, fmt.Errorf("input %d: pipeline %s has no source %q", i, pl.Name, id)
			}
			p := batch.Partition{Source: id, Topic: id, Number: number}
			part := s.Part(p)
			if csvs[id] && s.Fields == nil && number == 0 && len(values) > 0 {
				if s.Fields, err = csv.NewReader(strings.NewReader(values[0])).Read(); err != nil {
					return nil, fmt.Errorf("input %d: header of %s: %w", i, id, err)
				}
				values = values[1:]
			}
			if len(values) == 0 {
				continue
			}
			start := part.End()
			for _, v := range values {
				part.Records = append(part.Records, batch.Record{Offset: part.End(), Value: []byte(v)})
			}
			e.Ranges = append(e.Ranges, txstate.RangeEntry{Range: batch.Range{
				Partition: p, Start: start, End: start + int64(len(values)), LeaderEpoch: batch.NoEpoch,
			}})
		}
		slices.SortFunc(e.Ranges, func(a, b txstate.RangeEntry) int { return a.Compare(b.Partition) })
		w.in.Batches = append(w.in.Batches, e)
	}
	if len(w.in.Batches) > 0 {
		first := &w.in.Batches[0]
		for _, s := range w.in.Sources {
			for _, p := range s.Partitions() {
				first.Joined = append(first.Joined, s.Parts[p].Start)
			}
		}
		slices.SortFunc(first.Joined, func(a, b batch.Position) int { return a.Compare(b.Partition) })
	}
	return w, nil
}

func splitKey(key string) (id string, number int32, err error) {
	id, n, ok := strings.Cut(key, "/")
	if !ok {
		return id, 0, nil
	}
	v, err := strconv.ParseInt(n, 10, 32)
	if err != nil || v < 0 {
		return "", 0, fmt.Errorf("input %q: %q is not a partition number", key, n)
	}
	return id, int32(v), nil
}
