package exec

import (
	"cmp"
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
	if err := x.revive(ctx); err != nil {
		return false, x.located(err, b.Txid)
	}
	for i, em := range x.emitters {
		if err := em.Err(); err != nil {
			return false, x.located(err, b.Txid)
		}
		x.appeared[i] = append(x.appeared[i], em.Discovered()...)
		if err := x.admit(ctx, em, x.appeared[i]); err != nil {
			return false, x.located(err, b.Txid)
		}
		x.appeared[i] = nil
	}
	if err := x.finishLoading(ctx); err != nil {
		return false, x.located(err, b.Txid)
	}
	x.mu.Lock()
	x.asked = b.Time
	x.mu.Unlock()
	if !recorded {
		pressed := x.cfg.Pressed != nil && x.cfg.Pressed()
		if pressed && x.putOff() {
			return false, nil
		}
		x.planRanges(b, pressed)
		if len(b.Ranges) == 0 {
			if due, err := x.due(ctx, b); err != nil || !due {
				return false, x.located(err, b.Txid)
			}
		}
		if x.timed {
			x.planIdle(b)
		}
	}
	f := &flight{b: b, read: make(chan struct{}), done: make(chan struct{}), overlays: map[string]*overlay{}}
	tables, err := x.tablesFor(ctx, f)
	if err != nil {
		return false, x.located(err, b.Txid)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range b.Ranges {
		_, listed := x.sourceAt[r.Source]
		c := x.cursors[r.Partition]
		if c == nil || !listed {
			return false, x.located(batch.NewError(batch.Permanent, batch.CodeUnreplayable, "plan", fmt.Errorf("a recorded range of a partition that no source reads"),
				"put its source back into the pipeline until the batch has committed").At(r.Partition, r.Start), b.Txid)
		}
		if c.next != r.Start {
			panic(fmt.Sprintf("exec: txid %d: %s does not start at %d, where the batch before ended", b.Txid, r, c.next))
		}
	}
	if recorded {
		x.joining = slices.DeleteFunc(x.joining, func(p batch.Position) bool {
			return slices.ContainsFunc(b.Joined, func(q batch.Position) bool { return p.Partition == q.Partition })
		})
	} else {
		b.Joined, x.joining = x.joining, nil
	}
	for _, r := range b.Ranges {
		c := x.cursors[r.Partition]
		c.next, c.movedPlan = r.End, b.Time
	}
	f.took.Plan = x.cfg.Now().Sub(began)
	f.undo, x.tables = x.tables, tables
	if recorded {
		e, known := x.recorded[b.Txid]
		f.expect, f.known = e.Ranges, known
	}
	x.flights[b.Txid] = f
	return true, nil
}

// pressedShare is the part of its bytes, one in so many, that a batch has while memory is short.
const pressedShare = 4

// putOff tells whether the next batch has to wait for one in flight. The end of that asks for it again.
func (x *Executor) putOff() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waiting = len(x.flights) > 0
	return x.waiting
}

// revive opens the store again if its handle is done for and nothing uses it. As long as batches are in flight, the
// commit of the first of them leads to that.
func (x *Executor) revive(ctx context.Context) error {
	x.mu.Lock()
	idle, txid := len(x.flights) == 0, x.txid
	x.mu.Unlock()
	if !idle || x.cfg.DB.Err() == nil || x.cfg.Reopened == nil {
		return nil
	}
	x.log.Warn("the store can't be written any more: it is opened again", "error", x.cfg.DB.Err())
	now, err := x.Reopen(ctx)
	if err == nil && now != txid {
		err = batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "reopen",
			fmt.Errorf("the store holds txid %d, the last to commit was %d", now, txid), "restore a savepoint, or rebuild by replay")
	}
	return err
}

// planRanges asks each emitter for the next range of each partition. The bytes that one batch may hold are shared
// evenly among the partitions that had something last time; what an emitter has fetched bounds the rest.
func (x *Executor) planRanges(b *batch.Batch, pressed bool) {
	lim := x.plan.Batch
	records := lim.MaxRecords
	if records <= 0 {
		records = plan.DefaultMaxRecords
	}
	bytes := cmp.Or(x.cfg.MaxBytes, lim.MaxBytes, plan.DefaultMaxBytes)
	if pressed {
		bytes /= pressedShare
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
		if x.holds(em.ID()) {
			continue
		}
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
		x.tables = f.undo
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
