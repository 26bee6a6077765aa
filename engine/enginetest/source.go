package enginetest

import (
	"context"
	"fmt"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// source is an emitter over records in memory.
type source struct {
	id     string
	parts  map[batch.Partition]*records
	fields []string
	ready  chan struct{}
}

type records struct {
	values []string
}

var _ emitter.Emitter = (*source)(nil)

func (s *source) ID() string { return s.id }

func (s *source) Open(_ context.Context, saved []batch.Position, _ bool) ([]batch.Position, error) {
	known := map[batch.Partition]bool{}
	for _, p := range saved {
		known[p.Partition] = true
	}
	var starts []batch.Position
	for _, p := range s.Partitions() {
		if !known[p] {
			starts = append(starts, batch.Position{Partition: p, LeaderEpoch: batch.NoEpoch})
		}
	}
	return starts, nil
}

func (s *source) Discovered() []batch.Position { return nil }
func (s *source) Admit([]batch.Position)       {}
func (s *source) Ready() <-chan struct{}       { return s.ready }

func (s *source) Partitions() []batch.Partition {
	var all []batch.Partition
	for p := range s.parts {
		all = append(all, p)
	}
	slices.SortFunc(all, batch.Partition.Compare)
	return all
}

func (s *source) Plan(p batch.Partition, from int64, limit emitter.Limit) (batch.Range, bool) {
	end := int64(len(s.parts[p].values))
	if limit.Records > 0 {
		end = min(end, from+limit.Records)
	}
	return batch.Range{Partition: p, Start: from, End: end, LeaderEpoch: batch.NoEpoch}, end > from
}

func (s *source) Read(_ context.Context, r batch.Range, yield func(*batch.Chunk) error) error {
	part := s.parts[r.Partition]
	if part == nil || r.End > int64(len(part.values)) {
		return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "read", fmt.Errorf("no records [%d,%d)", r.Start, r.End), "").At(r.Partition, r.Start)
	}
	const chunk = 100
	for at := r.Start; at < r.End; at += chunk {
		c := batch.Chunk{Fields: s.fields}
		for o := at; o < min(at+chunk, r.End); o++ {
			c.Records = append(c.Records, batch.Record{Offset: o, Value: []byte(part.values[o])})
		}
		if err := yield(&c); err != nil {
			return err
		}
	}
	return nil
}

func (s *source) Ack(batch.Txid, []batch.Range) {}

func (s *source) Status() []emitter.Status {
	var all []emitter.Status
	for _, p := range s.Partitions() {
		n := int64(len(s.parts[p].values))
		all = append(all, emitter.Status{Partition: p, End: n, LogEnd: n, AtEnd: true})
	}
	return all
}

func (s *source) Ends(context.Context) (map[batch.Partition]int64, error) {
	ends := map[batch.Partition]int64{}
	for p, r := range s.parts {
		ends[p] = int64(len(r.values))
	}
	return ends, nil
}

func (s *source) Err() error                  { return nil }
func (s *source) Close(context.Context) error { return nil }
