package rerun

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/txstate"
)

// Script makes an Input of records that stand in a test, batch by batch. All partitions that any batch names take part from the
// first one on.
type Script struct {
	in    *Input
	name  string // seeds are made of it
	clock time.Time
	mark  time.Time                // to which event time has been brought
	timed map[string]time.Duration // the lateness of sources with event time
	// marks are event times that batches show in a partition besides those of their records.
	marks map[mark]int64
}

type mark struct {
	partition batch.Partition
	txid      batch.Txid
}

// Step is one batch of a Script.
type Step struct {
	// Clock is the batch's; zero: a second after that of the batch before.
	Clock time.Time
	// Watermark is where event time has come to before the batch, in every source that has any; zero: where the records have
	// brought it.
	Watermark time.Time
	// Records are what the batch takes. Their offsets are given to them.
	Records map[batch.Partition][]batch.Record
}

// ParsePartition reads what tests write: "lines" is partition 0 of source lines, "lines/2" its partition 2.
func ParsePartition(pl *plan.Plan, text string) (batch.Partition, error) {
	id, n, numbered := strings.Cut(text, "/")
	p := batch.Partition{Source: id, Topic: id}
	if numbered {
		v, err := strconv.ParseInt(n, 10, 32)
		if err != nil || v < 0 {
			return p, fmt.Errorf("%q: %q is not a partition number", text, n)
		}
		p.Number = int32(v)
	}
	if !slices.ContainsFunc(pl.Sources, func(s *plan.Source) bool { return s.ID == id }) {
		return p, fmt.Errorf("pipeline %s has no source %q", pl.Name, id)
	}
	return p, nil
}

// NewScript returns the script of some batches for a plan. name decides their seeds; fields are the columns of delimited sources.
func NewScript(pl *plan.Plan, name string, fields map[string][]string, steps []Step) (*Script, error) {
	s := &Script{in: &Input{Sources: map[string]*Source{}}, name: name, clock: Clock, timed: map[string]time.Duration{}, marks: map[mark]int64{}}
	for _, src := range pl.Sources {
		to := NewSource(src.ID)
		to.Fields = fields[src.ID]
		to.Part(batch.Partition{Source: src.ID, Topic: src.ID})
		s.in.Sources[src.ID] = to
		if src.Time != nil {
			s.timed[src.ID] = src.Time.Lateness
		}
	}
	for _, step := range steps {
		for p := range step.Records { // order: they are only made known
			s.in.Sources[p.Source].Part(p)
		}
	}
	for i := range steps {
		if err := s.add(&steps[i]); err != nil {
			return nil, fmt.Errorf("batch %d: %w", i+1, err)
		}
	}
	s.idle()
	if len(s.in.Batches) > 0 {
		first := &s.in.Batches[0]
		for _, src := range s.in.Sources { // order: sorted below
			for _, p := range src.Partitions() {
				first.Joined = append(first.Joined, src.Parts[p].Start)
			}
		}
		slices.SortFunc(first.Joined, func(a, b batch.Position) int { return a.Compare(b.Partition) })
	}
	return s, nil
}

// Input returns the batches.
func (s *Script) Input() *Input { return s.in }

// add appends a batch.
func (s *Script) add(step *Step) error {
	n := len(s.in.Batches)
	switch {
	case !step.Clock.IsZero() && step.Clock.Before(s.clock):
		return fmt.Errorf("its clock %s lies before %s, where that of the batches before stands", rfc(step.Clock), rfc(s.clock))
	case !step.Clock.IsZero():
		s.clock = step.Clock.UTC().Truncate(time.Millisecond)
	case n > 0:
		s.clock = s.clock.Add(time.Second)
	}
	if !step.Watermark.IsZero() {
		if err := s.advance(step.Watermark); err != nil {
			return err
		}
	}
	e := txstate.Entry{Txid: batch.Txid(n + 1), Time: s.clock, Seed: xxhash.Sum64String(s.name + strconv.Itoa(n))}
	for p, records := range step.Records { // order: each partition by itself, sorted below
		if len(records) == 0 {
			continue
		}
		part, start := s.in.Sources[p.Source].Part(p), s.end(p)
		for i, r := range records {
			r.Offset = start + int64(i)
			part.Records = append(part.Records, r)
		}
		e.Ranges = append(e.Ranges, entryOf(p, start, part.End()))
	}
	slices.SortFunc(e.Ranges, func(a, b txstate.RangeEntry) int { return a.Compare(b.Partition) })
	s.in.Batches = append(s.in.Batches, e)
	return nil
}

// end is the offset that the batches so far have come to in a partition.
func (s *Script) end(p batch.Partition) int64 {
	for _, e := range slices.Backward(s.in.Batches) {
		for _, r := range e.Ranges {
			if r.Partition == p {
				return r.End
			}
		}
	}
	return 0
}

func entryOf(p batch.Partition, start, end int64) txstate.RangeEntry {
	return txstate.RangeEntry{Range: batch.Range{Partition: p, Start: start, End: end, LeaderEpoch: batch.NoEpoch}}
}

// watermarkTopic holds, in each source with event time, a partition without records that brings the time on. Whenever it does, all
// others count as idle, and at all other times it does itself.
const watermarkTopic = "watermark"

func watermarkOf(source string) batch.Partition {
	return batch.Partition{Source: source, Topic: watermarkTopic}
}

// advance lets the last batch leave a watermark: it takes an offset of each watermark partition, at which there is no record, as of
// a log that was compacted. A markedTask shows the time.
func (s *Script) advance(to time.Time) error {
	n := len(s.in.Batches)
	switch {
	case len(s.timed) == 0:
		return fmt.Errorf("event time comes to %s, but no source of the pipeline has any", rfc(to))
	case n == 0:
		return fmt.Errorf("event time comes to %s before the first batch; begin with a batch, if need be an empty one", rfc(to))
	case to.Before(s.mark):
		return fmt.Errorf("event time comes to %s, but it has come to %s before", rfc(to), rfc(s.mark))
	}
	s.mark = to
	e := &s.in.Batches[n-1]
	for id, lateness := range s.timed { // order: each source by itself, sorted below
		p := watermarkOf(id)
		s.in.Sources[id].Part(p)
		start := s.end(p)
		e.Ranges = append(e.Ranges, entryOf(p, start, start+1))
		s.marks[mark{p, e.Txid}] = to.Add(lateness).UnixNano()
	}
	slices.SortFunc(e.Ranges, func(a, b txstate.RangeEntry) int { return a.Compare(b.Partition) })
	return nil
}

// idle sets which partitions count as idle: none, unless there are watermark partitions.
func (s *Script) idle() {
	if len(s.marks) == 0 {
		return
	}
	for i := range s.in.Batches {
		e := &s.in.Batches[i]
		for id := range s.timed { // order: sorted below
			_, marked := s.marks[mark{watermarkOf(id), e.Txid}]
			for _, p := range s.in.Sources[id].Partitions() {
				if marked != (p.Topic == watermarkTopic) {
					e.Idle = append(e.Idle, p)
				}
			}
		}
		slices.SortFunc(e.Idle, batch.Partition.Compare)
	}
}

// Plan returns a plan whose tasks show the event times that the script brings besides its records. pl itself stays as it is.
func (s *Script) Plan(pl *plan.Plan) *plan.Plan {
	if len(s.marks) == 0 {
		return pl
	}
	other := *pl
	other.Sources = slices.Clone(pl.Sources)
	for i, src := range pl.Sources {
		if _, timed := s.timed[src.ID]; timed {
			with := *src
			with.NewTask = func() plan.Task { return &markedTask{Task: src.NewTask(), marks: s.marks} }
			other.Sources[i] = &with
		}
	}
	return &other
}

// markedTask shows event times of its own.
type markedTask struct {
	plan.Task
	marks map[mark]int64
	tc    *plan.TaskContext
}

func (t *markedTask) Begin(tc *plan.TaskContext) error {
	t.tc = tc
	return t.Task.Begin(tc)
}

func (t *markedTask) End() error {
	if ns, ok := t.marks[mark{t.tc.Partition, t.tc.Batch.Txid}]; ok {
		t.tc.EventTime = max(t.tc.EventTime, ns)
	}
	return t.Task.End()
}

func rfc(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// OpenTable returns what opens a static table with given content.
func OpenTable(id string, fields []string, records []batch.Record) func(plan.Env) (emitter.Emitter, error) {
	src := NewSource(id)
	src.Fields = fields
	part := src.Part(batch.Partition{Source: id, Topic: id})
	for i, r := range records {
		r.Offset = int64(i)
		part.Records = append(part.Records, r)
	}
	return func(plan.Env) (emitter.Emitter, error) { return src.Open(), nil }
}
