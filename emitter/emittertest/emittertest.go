// Package emittertest is the conformance suite of emitter.Emitter. A source that passes it plans ranges that
// follow each other without a gap, reads each of them again exactly, before and after its batch has committed and
// after a restart, several of one partition at once and while a later one is planned, and leaves nothing running once
// it is closed.
//
// A client's test describes its source by a Source and calls Run.
package emittertest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// wait is how long the suite waits for a source to deliver what was appended.
const wait = 20 * time.Second

// Source is a source under test. Partitions are numbered 0, 1, … in batch.Partition order.
type Source struct {
	// Open returns another emitter over the same data, with the start policy "earliest" where it has one. The
	// suite opens and closes it; at most one is open at a time.
	Open func(t *testing.T) emitter.Emitter

	// Partitions is the number of partitions that are there from the beginning.
	Partitions int

	// Append adds one record for each value to a partition. Values hold no line ends. Nil if the content is
	// fixed; then Records says how many each partition holds.
	Append  func(t *testing.T, partition int, values []string)
	Records int

	// AddPartition adds an empty partition behind the others; nil if the source can't grow.
	AddPartition func(t *testing.T)

	// Ignore names goroutines that belong to the server behind the source, not to the emitter.
	Ignore []goleak.Option
}

// Run runs the suite. newSource is called once for each test and returns a source of its own, without records unless
// the content is fixed.
func Run(t *testing.T, newSource func(t *testing.T) *Source) {
	for _, tc := range []struct {
		name string
		test func(*testing.T, *Source)
	}{
		{"PlansContiguousRanges", testContiguous},
		{"ReadsExactlyAgain", testReadAgain},
		{"KeepsLimits", testLimits},
		{"PlansAgainFromEarlier", testReplan},
		{"GoesOnAfterRestart", testRestart},
		{"AnyCutsReadTheSame", testCuts},
		{"NewPartitionsJoin", testJoin},
		{"YieldErrorComesBack", testYieldError},
		{"TellsStatusAndEnds", testStatus},
		{"SignalsReady", testReady},
		{"PartitionsAreIndependent", testConcurrent},
		{"RangesAreReadWhileLaterOnesArePlanned", testOverlap},
		{"ClosesCleanly", testClose},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, newSource(t)) })
	}
}

// record is a deep copy of a batch.Record.
type record = batch.Record

func clone(r *batch.Record) record {
	c := *r
	c.Key, c.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	c.Headers = nil
	for _, h := range r.Headers {
		c.Headers = append(c.Headers, batch.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	return c
}

func equal(a, b *record) bool {
	sameBytes := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
	return a.Offset == b.Offset && a.Timestamp == b.Timestamp && sameBytes(a.Key, b.Key) && sameBytes(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(g, h batch.Header) bool { return g.Key == h.Key && sameBytes(g.Value, h.Value) })
}

func same(a, b []record) bool {
	return slices.EqualFunc(a, b, func(x, y record) bool { return equal(&x, &y) })
}

// bench is an opened emitter with what a test knows of it.
type bench struct {
	t  *testing.T
	em emitter.Emitter
}

// open opens an emitter, admits what Open returned and arranges for it to be closed.
func open(t *testing.T, s *Source, saved []batch.Position, first bool) *bench {
	t.Helper()
	em := s.Open(t)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	starts, err := em.Open(ctx, saved, first)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	em.Admit(starts)
	b := &bench{t: t, em: em}
	return b
}

func (b *bench) close() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := b.em.Close(ctx); err != nil {
		b.t.Fatalf("Close: %v", err)
	}
}

// partitions waits until n partitions are admitted, admitting what is discovered.
func (b *bench) partitions(n int) []batch.Partition {
	b.t.Helper()
	var ps []batch.Partition
	b.until(fmt.Sprintf("%d partitions", n), func() bool {
		b.em.Admit(b.em.Discovered())
		ps = b.em.Partitions()
		return len(ps) >= n
	})
	if len(ps) != n {
		b.t.Fatalf("%d partitions, want %d: %v", len(ps), n, ps)
	}
	if !slices.IsSortedFunc(ps, batch.Partition.Compare) {
		b.t.Fatalf("Partitions are not in order: %v", ps)
	}
	for _, p := range ps {
		if p.Source != b.em.ID() {
			b.t.Fatalf("partition %v of source %q", p, b.em.ID())
		}
	}
	return ps
}

// until polls cond, woken by Ready, and fails the test when the time is over or the emitter has failed.
func (b *bench) until(what string, cond func() bool) {
	b.t.Helper()
	deadline := time.After(wait)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if err := b.em.Err(); err != nil {
			b.t.Fatalf("waiting for %s: %v", what, err)
		}
		select {
		case <-b.em.Ready():
		case <-tick.C:
		case <-deadline:
			b.t.Fatalf("no %s within %v; status %+v", what, wait, b.em.Status())
		}
	}
}

// plan waits for the next range of p.
func (b *bench) plan(p batch.Partition, from int64, limit emitter.Limit) batch.Range {
	b.t.Helper()
	var r batch.Range
	b.until(fmt.Sprintf("range of %v from %d", p, from), func() bool {
		var ok bool
		r, ok = b.em.Plan(p, from, limit)
		return ok
	})
	if r.Partition != p || r.Start != from || r.End <= from {
		b.t.Fatalf("Plan(%v, %d) returned %v", p, from, r)
	}
	return r
}

// read reads r and checks that the records are in order and inside.
func (b *bench) read(r batch.Range) []record {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), wait)
	defer cancel()
	recs, err := collect(ctx, b.em, r)
	if err != nil {
		b.t.Fatalf("Read(%v): %v", r, err)
	}
	last := r.Start - 1
	for i := range recs {
		if recs[i].Offset <= last || recs[i].Offset >= r.End {
			b.t.Fatalf("Read(%v): offset %d after %d", r, recs[i].Offset, last)
		}
		last = recs[i].Offset
	}
	return recs
}

func collect(ctx context.Context, em emitter.Emitter, r batch.Range) ([]record, error) {
	var recs []record
	err := em.Read(ctx, r, func(c *batch.Chunk) error {
		for i := range c.Records {
			recs = append(recs, clone(&c.Records[i]))
		}
		return nil
	})
	return recs, err
}

func (b *bench) same(what string, got, want []record) {
	b.t.Helper()
	if !same(got, want) {
		b.t.Fatalf("%s: got %d records %v, want %d records %v", what, len(got), brief(got), len(want), brief(want))
	}
}

func brief(recs []record) []string {
	var out []string
	for i, r := range recs {
		if i == 8 {
			return append(out, "…")
		}
		out = append(out, fmt.Sprintf("%d:%q", r.Offset, r.Value))
	}
	return out
}

// drained is what draining a partition gave: its ranges, and their records one slice for each.
type drained struct {
	ranges  []batch.Range
	records [][]record
}

func (d *drained) all() []record { return slices.Concat(d.records...) }

// drain plans and reads p from an offset until n records have come.
func (b *bench) drain(p batch.Partition, from int64, n int, limit emitter.Limit) *drained {
	b.t.Helper()
	d := &drained{}
	for got := 0; got < n; {
		r := b.plan(p, from, limit)
		recs := b.read(r)
		if limit.Records > 0 && int64(len(recs)) > limit.Records {
			b.t.Fatalf("%v holds %d records, the limit is %d", r, len(recs), limit.Records)
		}
		if size := rawBytes(recs); limit.Bytes > 0 && size > limit.Bytes && len(recs) > 1 {
			b.t.Fatalf("%v holds %d bytes in %d records, the limit is %d", r, size, len(recs), limit.Bytes)
		}
		d.ranges, d.records = append(d.ranges, r), append(d.records, recs)
		got += len(recs)
		from = r.End
	}
	if got := len(d.all()); got != n {
		b.t.Fatalf("%v: %d records, want %d", p, got, n)
	}
	return d
}

func rawBytes(recs []record) int64 {
	var n int64
	for _, r := range recs {
		n += int64(len(r.Key) + len(r.Value))
		for _, h := range r.Headers {
			n += int64(len(h.Key) + len(h.Value))
		}
	}
	return n
}

// starts opens an emitter for the first time and admits every partition; it returns where each begins.
func starts(t *testing.T, s *Source) (*bench, map[batch.Partition]batch.Position) {
	t.Helper()
	em := s.Open(t)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	ps, err := em.Open(ctx, nil, true)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	b := &bench{t: t, em: em}
	at := map[batch.Partition]batch.Position{}
	note := func(ps []batch.Position) {
		for _, p := range ps {
			if _, dup := at[p.Partition]; dup {
				t.Fatalf("%v was given a start twice", p)
			}
			at[p.Partition] = p
		}
		em.Admit(ps)
	}
	note(ps)
	b.until("starts", func() bool { note(em.Discovered()); return len(at) >= s.Partitions })
	return b, at
}

// fill appends n values to a partition, or tells how many a fixed source holds.
func fill(t *testing.T, s *Source, partition, n int) []string {
	t.Helper()
	if s.Append == nil {
		return nil
	}
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("p%d-%d-%s", partition, i, bytes.Repeat([]byte{'x'}, i%23))
	}
	s.Append(t, partition, values)
	return values
}

func count(s *Source, n int) int {
	if s.Append == nil {
		return s.Records
	}
	return n
}
