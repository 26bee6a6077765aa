package exec

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/plan"
)

// Plan fills b with the next range of every partition that has something, or takes over the recorded ranges. It
// is called for one batch at a time, in txid order. ok is false if there is nothing.
func (x *Executor) Plan(ctx context.Context, b *batch.Batch, recorded bool) (ok bool, err error) {
	began := x.cfg.Now()
	for _, em := range x.emitters {
		if err := em.Err(); err != nil {
			return false, x.located(err, b.Txid)
		}
		if err := x.admit(ctx, em, em.Discovered()); err != nil {
			return false, err
		}
	}
	if !recorded {
		x.planRanges(b)
		if len(b.Ranges) == 0 {
			return false, nil
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if recorded {
		x.joining = slices.DeleteFunc(x.joining, func(p batch.Position) bool {
			return slices.ContainsFunc(b.Joined, func(q batch.Position) bool { return p.Partition == q.Partition })
		})
	} else {
		b.Joined, x.joining = x.joining, nil
	}
	for _, r := range b.Ranges {
		c := x.cursors[r.Partition]
		if c == nil {
			return false, batch.NewError(batch.Permanent, batch.CodeUnreplayable, "plan", fmt.Errorf("a recorded range of a partition that no source reads"),
				"put its topic or file back into the pipeline until the batch has committed").At(r.Partition, r.Start)
		}
		if c.next != r.Start {
			panic(fmt.Sprintf("exec: txid %d: %s does not start at %d, where the batch before ended", b.Txid, r, c.next))
		}
		c.next, c.movedPlan = r.End, b.Time
	}
	f := &flight{b: b, read: make(chan struct{}), done: make(chan struct{}), overlays: map[string]*overlay{}}
	f.took.Plan = x.cfg.Now().Sub(began)
	f.statics, x.versions = x.versions, nil
	if recorded {
		f.expect = x.recorded[b.Txid].Ranges
	}
	x.flights[b.Txid] = f
	return true, nil
}

// planRanges asks each emitter for the next range of each partition. The bytes that one batch may hold are shared
// evenly among the partitions that had something last time; what an emitter has fetched bounds the rest.
func (x *Executor) planRanges(b *batch.Batch) {
	lim := x.plan.Batch
	records := lim.MaxRecords
	if records <= 0 {
		records = plan.DefaultMaxRecords
	}
	bytes := lim.MaxBytes
	if bytes <= 0 {
		bytes = plan.DefaultMaxBytes
	}
	pending := lim.MaxPending
	if pending <= 0 {
		pending = plan.DefaultMaxPending
	}
	active := 0
	for _, em := range x.emitters {
		active += x.active[em.ID()]
	}
	limit := emitter.Limit{Records: records, Bytes: max(bytes/int64(pending)/int64(max(active, 1)), 1)}
	for _, em := range x.emitters {
		n := 0
		parts := em.Partitions()
		for _, p := range parts {
			x.mu.Lock()
			from := x.cursors[p].next
			x.mu.Unlock()
			if r, ok := em.Plan(p, from, limit); ok {
				if r.Start != from || r.End <= from {
					panic(fmt.Sprintf("exec: emitter %s planned %s from offset %d", em.ID(), r, from))
				}
				b.Ranges = append(b.Ranges, r)
				n++
			}
		}
		x.active[em.ID()] = n
	}
	slices.SortFunc(b.Ranges, func(p, q batch.Range) int { return p.Compare(q.Partition) })
	if x.timed && len(b.Ranges) > 0 {
		x.planIdle(b)
	}
}

// planIdle lists the partitions of timed sources that stood at their end, with the source answering, for the
// idle limit of batch time.
func (x *Executor) planIdle(b *batch.Batch) {
	moves := make(map[batch.Partition]bool, len(b.Ranges))
	for _, r := range b.Ranges {
		moves[r.Partition] = true
	}
	for i, em := range x.emitters {
		rule := x.plan.Sources[i].Time
		if rule == nil {
			continue
		}
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

// Abort drops everything held for the batches, newest first, and sets the partitions back to where they start.
func (x *Executor) Abort(bs []*batch.Batch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range bs {
		f := x.flights[b.Txid]
		if f == nil {
			continue
		}
		for _, r := range b.Ranges {
			x.cursors[r.Partition].next = r.Start
		}
		x.joining = append(slices.Clone(b.Joined), x.joining...)
		x.versions = append(f.statics, x.versions...)
		delete(x.flights, b.Txid)
		x.release(f)
	}
	slices.SortFunc(x.joining, func(a, b batch.Position) int { return a.Compare(b.Partition) })
}

// Oldest is the timestamp of the oldest record fetched and not planned yet; zero if there is none.
func (x *Executor) Oldest() time.Time {
	var oldest int64
	for _, em := range x.emitters {
		for _, st := range em.Status() {
			if st.Oldest != 0 && (oldest == 0 || st.Oldest < oldest) {
				oldest = st.Oldest
			}
		}
	}
	if oldest == 0 {
		return time.Time{}
	}
	return time.UnixMilli(oldest).UTC()
}
