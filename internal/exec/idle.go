package exec

import (
	"math"
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/txstate"
)

// planIdle lists the partitions of timed sources that stood at their end, with the source answering, for the
// idle limit of batch time, and those that are saved but not read any more: nothing will come of them.
func (x *Executor) planIdle(b *batch.Batch) {
	b.Idle = nil
	moves := make(map[batch.Partition]bool, len(b.Ranges))
	for _, r := range b.Ranges {
		moves[r.Partition] = true
	}
	for i, em := range x.emitters {
		rule := x.plan.Sources[i].Time
		if rule == nil {
			continue
		}
		x.mu.Lock()
		read := em.Partitions()
		for p := range x.cursors { // order: sorted below
			if _, found := slices.BinarySearchFunc(read, p, batch.Partition.Compare); p.Source == em.ID() && !found {
				b.Idle = append(b.Idle, p)
			}
		}
		x.mu.Unlock()
		limit := rule.Idle
		if limit <= 0 {
			limit = plan.DefaultIdle
		}
		for _, st := range em.Status() {
			if moves[st.Partition] || !st.AtEnd {
				continue
			}
			x.mu.Lock()
			c := x.cursors[st.Partition]
			if c.movedPlan.IsZero() {
				c.movedPlan = b.Time // the first batch that could have moved it
			}
			since := b.Time.Sub(c.movedPlan)
			x.mu.Unlock()
			if since >= limit {
				b.Idle = append(b.Idle, st.Partition)
			}
		}
	}
	slices.SortFunc(b.Idle, batch.Partition.Compare)
}

// waits tells whether something is left that a higher watermark would let close or wake. REQUIRES: x.mu is held.
func (x *Executor) waits() bool {
	for _, st := range windowedStates(x.plan) {
		if st.Emit&plan.EmitCloses == 0 || st.Clock != plan.ClockEvent {
			continue
		}
		for _, closed := range x.windows[st.Schema.Name] { // order: whether there is one
			if closed == 0 {
				return true
			}
		}
	}
	for st := range operators(x.plan) {
		if wake, known := x.wakes[st.Schema.Name]; st.Clock == plan.ClockEvent && (!known || wake != never) {
			return true
		}
	}
	return false
}

// quiet is a partition of a timed source that nothing comes of.
type quiet struct {
	source    int
	partition batch.Partition
	from      time.Time // when it is idle
}

// idleDue tells when a partition that holds a watermark back will have been idle for its limit, so that something can be closed or
// woken; the zero time: nothing would come of it. Where a source can't tell yet whether a partition stands at its end, it
// is the time to look again. Nothing is in flight. REQUIRES: x.mu is held.
func (x *Executor) idleDue() time.Time {
	if !x.waits() {
		return time.Time{}
	}
	var all []quiet
	var again time.Time
	for i, em := range x.emitters {
		rule := x.plan.Sources[i].Time
		if rule == nil {
			continue
		}
		limit := rule.Idle
		if limit <= 0 {
			limit = plan.DefaultIdle
		}
		read := em.Partitions()
		for p := range x.cursors { // order: sorted below
			if _, found := slices.BinarySearchFunc(read, p, batch.Partition.Compare); p.Source == em.ID() && !found {
				all = append(all, quiet{i, p, time.Time{}})
			}
		}
		for _, st := range em.Status() {
			c := x.cursors[st.Partition]
			if c == nil || !st.AtEnd || c.movedPlan.IsZero() {
				if t := x.asked.Add(limit); again.IsZero() || t.Before(again) {
					again = t
				}
				continue
			}
			all = append(all, quiet{i, st.Partition, c.movedPlan.Add(limit)})
		}
	}
	slices.SortFunc(all, func(a, b quiet) int {
		if c := a.from.Compare(b.from); c != 0 {
			return c
		}
		return a.partition.Compare(b.partition)
	})
	// held[i] are the largest event times of source i's partitions, the first to be idle first, and those that stay at the end.
	times := &times{marks: slices.Clone(x.times.marks)}
	held := x.heldBack(all)
	for n := 0; n < len(all); {
		at := all[n].from
		for ; n < len(all) && all[n].from.Equal(at); n++ {
			i := all[n].source
			if held[i] = held[i][1:]; len(held[i]) > 0 && held[i][0] != txstate.NoTime && held[i][0] != math.MaxInt64 {
				times.marks[i] = max(times.marks[i], held[i][0]-int64(x.plan.Sources[i].Time.Lateness))
			}
		}
		if x.mayLet(times) {
			if at.IsZero() {
				return time.UnixMilli(1)
			}
			return at
		}
	}
	return again
}

// heldBack returns, for each source, the least of the largest event times seen in its partitions before any of the quiet ones is
// idle, then once the first is, and so on; once all are, the largest of all. It is txstate.NoTime where a partition has shown none,
// the greatest int64 where no partition takes part.
func (x *Executor) heldBack(all []quiet) map[int][]int64 {
	order := map[int][]batch.Partition{}
	left := map[int]int64{}
	isQuiet := map[batch.Partition]bool{}
	for _, q := range all {
		order[q.source] = append(order[q.source], q.partition)
		isQuiet[q.partition] = true
	}
	shown := func(p batch.Partition) int64 {
		if et, ok := x.times.parts[p]; ok {
			return et
		}
		return math.MaxInt64 // it doesn't take part yet
	}
	for p, et := range x.times.parts { // order: a minimum
		i, listed := x.sourceAt[p.Source]
		if !listed || isQuiet[p] {
			continue
		}
		if m, ok := left[i]; !ok || et < m {
			left[i] = et
		}
	}
	for _, p := range x.joining {
		if i, listed := x.sourceAt[p.Source]; listed && p.Topic != "" {
			left[i] = txstate.NoTime
		}
	}
	held := map[int][]int64{}
	for i, parts := range order { // order: each source by itself
		least, ok := left[i]
		steps := []int64{least}
		if !ok { // all of the source's are quiet
			least = math.MaxInt64
			if steps[0], ok = x.times.most(parts[0].Source); !ok {
				steps[0] = math.MaxInt64
			}
		}
		for _, p := range slices.Backward(parts) {
			least = min(least, shown(p))
			steps = append(steps, least)
		}
		slices.Reverse(steps)
		held[i] = steps
	}
	return held
}

// mayLet is lets by what is in memory: an operator's hint may be too early. REQUIRES: x.mu is held.
func (x *Executor) mayLet(times *times) bool {
	if x.closable(times, txstate.NoTime) {
		return true
	}
	for st := range operators(x.plan) {
		if st.Clock == plan.ClockEvent && x.wakes[st.Schema.Name] <= times.least(st.TimeSources) {
			return true
		}
	}
	return false
}
