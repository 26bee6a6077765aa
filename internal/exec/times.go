package exec

import (
	"maps"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/txstate"
)

// times is how far event time has come: a value, replaced and never changed once a batch has left it. It is a
// function of the ledger alone: of the partitions that joined, the largest event time each range brought, and
// the recorded idle flags.
type times struct {
	// parts holds the largest event time of every joined partition of a timed source.
	parts map[batch.Partition]int64
	// marks holds the watermark of each source, by index in Plan.Sources; txstate.NoTime where there is none.
	marks []int64
	// absent holds the watermarks of sources that the plan doesn't have, or not with event time, for the day when they are
	// back. Each entry of the ledger carries them on, since a restart looks at the last one only.
	absent []txstate.Watermark
}

func newTimes(p *plan.Plan) *times {
	t := &times{parts: map[batch.Partition]int64{}, marks: make([]int64, len(p.Sources))}
	for i := range t.marks {
		t.marks[i] = txstate.NoTime
	}
	return t
}

// next returns what batch b leaves, whose ranges brought the event times of seen (same order as b.Ranges). A
// source's watermark is the least, over its partitions that are not idle, of the largest event time seen less
// the lateness; it never falls. A partition that joined and has shown no time yet holds it where it is. Once all are idle it is the
// largest time of all: as it would be if they had become idle one after the other, the last to speak last.
func (t *times) next(p *plan.Plan, b *batch.Batch, seen []int64) *times {
	timed := map[string]int{}
	for i, s := range p.Sources {
		if s.Time != nil {
			timed[s.ID] = i
		}
	}
	if len(timed) == 0 {
		return t
	}
	n := &times{parts: maps.Clone(t.parts), marks: slices.Clone(t.marks), absent: t.absent}
	for _, j := range b.Joined {
		if _, ok := timed[j.Source]; ok && j.Topic != "" {
			n.parts[j.Partition] = txstate.NoTime
		}
	}
	for i, r := range b.Ranges {
		if _, ok := timed[r.Source]; !ok {
			continue
		}
		if et, ok := n.parts[r.Partition]; !ok || seen[i] > et {
			n.parts[r.Partition] = seen[i]
		}
	}
	idle := make(map[batch.Partition]bool, len(b.Idle))
	for _, q := range b.Idle {
		idle[q] = true
	}
	least := make(map[int]int64, len(timed))
	for q, et := range n.parts { // order: a minimum
		if idle[q] {
			continue
		}
		i := timed[q.Source]
		if m, ok := least[i]; !ok || et < m {
			least[i] = et
		}
	}
	for id, i := range timed { // order: each source by itself
		if _, held := least[i]; held {
			continue
		}
		if et, ok := n.most(id); ok {
			least[i] = et
		}
	}
	for i, et := range least { // order: each source by itself
		if et == txstate.NoTime {
			continue
		}
		if w := et - int64(p.Sources[i].Time.Lateness); w > n.marks[i] {
			n.marks[i] = w
		}
	}
	return n
}

// most is the largest event time that a partition of a source has shown; false if none takes part.
func (t *times) most(source string) (most int64, ok bool) {
	for q, et := range t.parts { // order: a maximum
		if q.Source == source && (!ok || et > most) {
			most, ok = et, true
		}
	}
	return most, ok
}

// take sets the watermarks that a batch left.
func (t *times) take(p *plan.Plan, left []txstate.Watermark) {
	for _, w := range left {
		i := slices.IndexFunc(p.Sources, func(s *plan.Source) bool { return s.ID == w.Source && s.Time != nil })
		if i < 0 {
			t.absent = append(t.absent, w)
			continue
		}
		t.marks[i] = w.Time
	}
}

// watermarks lists, by source, what there is.
func (t *times) watermarks(p *plan.Plan) []txstate.Watermark {
	all := slices.Clone(t.absent)
	for i, s := range p.Sources {
		if s.Time != nil && t.marks[i] != txstate.NoTime {
			all = append(all, txstate.Watermark{Source: s.ID, Time: t.marks[i]})
		}
	}
	slices.SortFunc(all, func(a, b txstate.Watermark) int { return strings.Compare(a.Source, b.Source) })
	return all
}

// least is the watermark of several sources together: the lowest of theirs.
func (t *times) least(sources []int) int64 {
	if len(sources) == 0 {
		return txstate.NoTime
	}
	m := t.marks[sources[0]]
	for _, i := range sources[1:] {
		m = min(m, t.marks[i])
	}
	return m
}
