package rerun

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// Source holds the records of one source.
type Source struct {
	ID     string
	Parts  map[batch.Partition]*Part
	Fields []string // the columns of a delimited source; nil elsewhere
}

// Part holds the records of one partition, in the order of their offsets, which may have gaps.
type Part struct {
	Start   batch.Position // where its first batch begins
	Records []batch.Record
}

// NewSource returns a source without partitions.
func NewSource(id string) *Source { return &Source{ID: id, Parts: map[batch.Partition]*Part{}} }

// Part returns a partition, which is added if it isn't there.
func (s *Source) Part(p batch.Partition) *Part {
	if s.Parts[p] == nil {
		s.Parts[p] = &Part{Start: batch.Position{Partition: p, LeaderEpoch: batch.NoEpoch}}
	}
	return s.Parts[p]
}

// End is the offset behind the last record, or the start if there is none.
func (p *Part) End() int64 {
	if n := len(p.Records); n > 0 {
		return p.Records[n-1].Offset + 1
	}
	return p.Start.Next
}

// Partitions lists the partitions in order.
func (s *Source) Partitions() []batch.Partition {
	var all []batch.Partition
	for p := range s.Parts {
		all = append(all, p)
	}
	slices.SortFunc(all, batch.Partition.Compare)
	return all
}

// Open returns an emitter over the records. They must not change while it is in use.
func (s *Source) Open() emitter.Emitter { return &memory{s: s, ready: make(chan struct{}, 1)} }

// memory is an emitter over a Source.
type memory struct {
	s     *Source
	ready chan struct{}
}

func (m *memory) ID() string { return m.s.ID }

func (m *memory) Open(_ context.Context, saved []batch.Position, _ bool) ([]batch.Position, error) {
	known := map[batch.Partition]bool{}
	for _, p := range saved {
		known[p.Partition] = true
	}
	var starts []batch.Position
	for _, p := range m.s.Partitions() {
		if !known[p] {
			starts = append(starts, m.s.Parts[p].Start)
		}
	}
	return starts, nil
}

func (m *memory) Discovered() []batch.Position  { return nil }
func (m *memory) Admit([]batch.Position)        {}
func (m *memory) Ready() <-chan struct{}        { return m.ready }
func (m *memory) Partitions() []batch.Partition { return m.s.Partitions() }
func (m *memory) Ack(batch.Txid, []batch.Range) {}
func (m *memory) Err() error                    { return nil }
func (m *memory) Close(context.Context) error   { return nil }
func (p *Part) from(offset int64) (records []batch.Record) {
	i := sort.Search(len(p.Records), func(i int) bool { return p.Records[i].Offset >= offset })
	return p.Records[i:]
}

func (m *memory) Plan(p batch.Partition, from int64, limit emitter.Limit) (batch.Range, bool) {
	part := m.s.Parts[p]
	end := part.End()
	if recs := part.from(from); limit.Records > 0 && int64(len(recs)) > limit.Records {
		end = recs[limit.Records].Offset
	}
	return batch.Range{Partition: p, Start: from, End: end, LeaderEpoch: batch.NoEpoch}, end > from
}

// chunkSize is how many records come at once.
const chunkSize = 100

func (m *memory) Read(_ context.Context, r batch.Range, yield func(*batch.Chunk) error) error {
	part := m.s.Parts[r.Partition]
	if part == nil || r.Start < part.Start.Next {
		return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "read", fmt.Errorf("no records [%d,%d)", r.Start, r.End), "record the input anew").At(r.Partition, r.Start)
	}
	recs := part.from(r.Start)
	recs = recs[:sort.Search(len(recs), func(i int) bool { return recs[i].Offset >= r.End })]
	for some := range slices.Chunk(recs, chunkSize) {
		// A copy: what is handed over may be used only until yield returns, and who keeps or changes it must be found.
		c := batch.Chunk{Fields: m.s.Fields, Records: Clone(some)}
		if err := yield(&c); err != nil {
			return err
		}
		scribble(c.Records)
	}
	return nil
}

func (m *memory) Status() []emitter.Status {
	var all []emitter.Status
	for _, p := range m.s.Partitions() {
		part := m.s.Parts[p]
		end := part.End()
		all = append(all, emitter.Status{Partition: p, Start: part.Start.Next, End: end, LogEnd: end, AtEnd: true})
	}
	return all
}

func (m *memory) Ends(context.Context) (map[batch.Partition]int64, error) {
	ends := map[batch.Partition]int64{}
	for p, part := range m.s.Parts {
		ends[p] = part.End()
	}
	return ends, nil
}

// Clone copies records with all that they refer to.
func Clone(recs []batch.Record) []batch.Record {
	all := slices.Clone(recs)
	for i := range all {
		r := &all[i]
		r.Key, r.Value, r.Headers = slices.Clone(r.Key), slices.Clone(r.Value), slices.Clone(r.Headers)
		for j := range r.Headers {
			r.Headers[j].Value = slices.Clone(r.Headers[j].Value)
		}
	}
	return all
}

// scribble spoils records that nobody may look at any more.
func scribble(recs []batch.Record) {
	for i := range recs {
		for _, b := range [][]byte{recs[i].Key, recs[i].Value} {
			for j := range b {
				b[j] = 0xdb
			}
		}
	}
}
