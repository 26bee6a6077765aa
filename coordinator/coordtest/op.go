package coordtest

import (
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/coordinator"
)

// fate is what becomes of one call.
type fate uint8

const (
	good      fate = iota
	before         // fails before it does anything
	after          // does its work, then fails
	forever        // fails for good, before it does anything
	uncertain      // a commit that can't tell
	hang           // doesn't return until it is cancelled
)

// op is one call of an executor: steps with time between them, any of which may fail. Between two steps the
// process may crash.
type op struct {
	w       *World
	run     int
	name    string
	flights []*flight
	hangs   bool
	steps   []func() error
	rand    *batch.Rand
}

// step runs the next step; done tells that it was the last or failed. A call of an earlier run is void.
func (o *op) step() (done bool, err error) {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	if o.run != o.w.run {
		return true, errCancelled
	}
	next := o.steps[0]
	o.steps = o.steps[1:]
	if err = next(); err != nil || len(o.steps) == 0 {
		o.end()
		return true, err
	}
	return false, nil
}

// cancel ends the call before its next step.
func (o *op) cancel() {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	if o.run == o.w.run {
		o.end()
	}
}

func (o *op) end() {
	for _, f := range o.flights {
		f.running--
	}
	if o.name == "commit" {
		o.w.commits--
	}
}

func (w *World) newOp(name string, id coordinator.ID, fs []*flight) (*op, fate) {
	o := &op{w: w, run: w.run, name: name, flights: fs, rand: w.rand(name, id)}
	for _, f := range fs {
		f.running++
	}
	what := good
	switch {
	case w.plot != nil:
		what = w.plot(name, id)
	case w.trouble:
		what = w.draw(name, o.rand)
	}
	switch what {
	case before, after:
		w.stats.Transient++
	case forever:
		w.stats.Permanent++
	case uncertain:
		w.stats.Unknown++
	case hang:
		w.stats.Hangs++
		o.hangs = true
	}
	return o, what
}

// void is a call of a process that is dead: it does nothing.
func (w *World) void() *op { return &op{w: w, run: -1, rand: w.rand("void", coordinator.ID{})} }

func (w *World) draw(name string, r *batch.Rand) fate {
	x := r.IntN(1000)
	switch {
	case x < 70:
		return before
	case x < 100:
		return after
	case x < 110:
		return forever
	case x < 160 && name == "commit":
		return uncertain
	case x < 130 && w.cfg.Hangs && name != "commit" && name != "reopen":
		return hang
	}
	return good
}

// work returns the steps of a call of the given fate.
func (f fate) work(name string, do func() error) []func() error {
	switch f {
	case before:
		return []func() error{func() error { return transient(name) }}
	case forever:
		return []func() error{func() error { return permanent(name) }}
	case after:
		return []func() error{do, func() error { return transient(name) }}
	default:
		return []func() error{do}
	}
}

// flight returns the flight of a batch if it is there in just this attempt.
func (w *World) flight(b *batch.Batch) *flight {
	for _, f := range w.flights {
		if f.b == b {
			return f
		}
	}
	w.check(false, "%s is not in flight", describe(*b))
	return &flight{b: b}
}

// spend notes an attempt that has been planned, or failed or was dropped: the next must be above it.
func (w *World) spend(id coordinator.ID) {
	if w.spent[id.Txid].Compare(id.Attempt) < 0 {
		w.spent[id.Txid] = id.Attempt
	}
}

// plan begins to plan b, which is the next after those in flight. ok is set when the op is done.
func (w *World) plan(b *batch.Batch, recorded bool, ok *bool) *op {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.alive {
		return w.void()
	}
	id := coordinator.ID{Txid: b.Txid, Attempt: b.Attempt}
	w.stats.Begun++
	for _, f := range w.flights {
		w.check(f.planned, "%s is begun while %s is being planned", id, f.id())
	}
	next := w.succeeded + batch.Txid(len(w.flights)) + 1
	w.check(b.Txid == next, "%s is begun, the next is %d", id, next)
	w.check(len(w.flights) < w.cfg.MaxPending, "%s is begun with %d in flight", id, len(w.flights))
	w.check(b.Attempt.Epoch == w.epoch, "%s is begun in epoch %d", id, w.epoch)
	w.check(w.spent[b.Txid].Compare(b.Attempt) < 0, "%s is begun, after attempt %s", id, w.spent[b.Txid])
	last := w.store.time
	if n := len(w.flights); n > 0 {
		last = w.flights[n-1].b.Time
	}
	w.check(!b.Time.Before(last), "the clock of %s falls behind the batch before", id)
	if c, ok := w.kept[b.Txid]; ok {
		w.check(c.seed == b.Seed, "the seed of %s changes", id)
		w.check(!recorded || c.time.Equal(b.Time), "the clock of %s changes, which is recorded", id)
	}
	if i := int(b.Txid) - int(w.store.txid) - 1; i < len(w.store.recorded) {
		w.check(recorded && sameBatch(w.store.recorded[i], *b), "%s is begun, recorded is %s", describe(*b), describe(w.store.recorded[i]))
	}
	if recorded {
		w.stats.Replayed++
	}
	f := &flight{b: b}
	w.flights = append(w.flights, f)
	o, what := w.newOp("plan", id, []*flight{f})
	o.steps = what.work("plan", func() error {
		if recorded {
			*ok = true
		} else {
			w.planRanges(b, o.rand)
			*ok = len(b.Ranges) > 0
		}
		if !*ok {
			w.flights = w.flights[:len(w.flights)-1]
			return nil
		}
		for _, r := range b.Ranges {
			p := &w.parts[r.Number]
			w.check(r.Start == p.cursor, "%s: %s does not start at %d", id, r, p.cursor)
			p.cursor = r.End
		}
		f.planned = true
		w.spend(id)
		return nil
	})
	return o
}

// planRanges takes a random share of what has been fetched, so that a second planning seldom gives the same.
func (w *World) planRanges(b *batch.Batch, r *batch.Rand) {
	b.Ranges = nil
	for i, p := range w.parts {
		n := min(p.fetched-p.cursor, w.cfg.MaxRecords)
		if n <= 0 {
			continue
		}
		if w.trouble {
			n = int64(1 + r.IntN(int(n)))
		}
		b.Ranges = append(b.Ranges, batch.Range{
			Partition: batch.Partition{Source: "s", Topic: "t", Number: int32(i)},
			Start:     p.cursor, End: p.cursor + n, LeaderEpoch: batch.NoEpoch,
		})
	}
	if w.trouble && len(b.Ranges) > 1 && r.IntN(2) == 0 {
		b.Ranges = slices.Delete(b.Ranges, 0, 1+r.IntN(len(b.Ranges)-1))
	}
}

func (w *World) process(b *batch.Batch) *op {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.alive {
		return w.void()
	}
	f := w.flight(b)
	w.check(f.planned && !f.processed && f.running == 0, "%s is processed out of turn", f.id())
	w.kept[b.Txid] = clock{b.Time, b.Seed}
	o, what := w.newOp("process", f.id(), []*flight{f})
	o.steps = what.work("process", func() error {
		for _, r := range b.Ranges {
			for off := r.Start; off < r.End; off++ {
				f.sum += value(r.Number, off)
			}
		}
		f.processed = true
		return nil
	})
	return o
}

func (w *World) record(b *batch.Batch) *op {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.alive {
		return w.void()
	}
	f := w.flight(b)
	w.check(w.cfg.Outside, "%s is recorded though nothing is outside", f.id())
	w.check(f.processed && f.running == 0, "%s is recorded out of turn", f.id())
	o, what := w.newOp("record", f.id(), []*flight{f})
	o.steps = what.work("record", func() error {
		c := *b
		w.pending = append(w.pending, write{record: &c})
		return nil
	})
	if what == good || what == after {
		o.steps = slices.Insert(o.steps, 1, w.sync)
	}
	return o
}

// sync makes everything written so far durable.
func (w *World) sync() error {
	if w.broken {
		return transient("sync")
	}
	w.flush()
	return nil
}

func (w *World) commit(bs []*batch.Batch) *op {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.alive {
		return w.void()
	}
	w.commits++
	w.check(w.commits == 1, "%d commits at a time", w.commits)
	w.check(!w.broken, "txid %d commits while the store is not usable", bs[0].Txid)
	fs := make([]*flight, len(bs))
	for i, b := range bs {
		fs[i] = w.flight(b)
		w.check(b.Txid == w.store.txid+batch.Txid(i)+1, "txid %d commits after %d", b.Txid, w.store.txid)
		w.check(fs[i].processed && fs[i].running == 0, "%s commits out of turn", fs[i].id())
	}
	o, what := w.newOp("commit", fs[len(fs)-1].id(), fs)
	if w.cfg.Outside {
		b := *bs[0]
		w.check(len(bs) == 1, "%d batches commit together though there is a participant outside", len(bs))
		w.check(len(w.store.recorded) > 0 && sameBatch(w.store.recorded[0], b), "%s commits unrecorded", describe(b))
		o.steps = what.work("commit", func() error { return w.applyOutside(b) })
	} else if what == after {
		what = before
	}
	switch what {
	case before, forever:
		if !w.cfg.Outside {
			o.steps = what.work("commit", nil)
		}
	case good, uncertain:
		o.steps = append(o.steps,
			func() error {
				w.pending = append(w.pending, write{commit: fs})
				return nil
			},
			func() error {
				if what == uncertain {
					w.broken = true
					return unknown()
				}
				return w.sync()
			})
	}
	return o
}

// applyOutside applies b to the participant outside, once.
func (w *World) applyOutside(b batch.Batch) error {
	p := &w.outside
	w.check(w.store.txid == b.Txid-1, "txid %d is applied outside while the store holds %d", b.Txid, w.store.txid)
	for _, wr := range w.pending {
		w.check(wr.commit == nil, "txid %d is applied outside while a commit is not synced", b.Txid)
	}
	w.check(p.epoch == b.Attempt.Epoch, "txid %d of epoch %d reaches a participant of epoch %d", b.Txid, b.Attempt.Epoch, p.epoch)
	switch p.txid {
	case b.Txid: // applied before, the answer or the local write was lost
		w.stats.Skipped++
		w.check(sameBatch(p.last, b), "%s is skipped outside, applied was %s", describe(b), describe(p.last))
		return nil
	case b.Txid - 1:
		p.txid, p.last = b.Txid, b
		for _, r := range b.Ranges {
			w.count(p.counts, r, "the participant outside")
		}
		return nil
	default:
		w.check(false, "txid %d is applied outside after %d", b.Txid, p.txid)
		return permanent("commit")
	}
}

// drop is an executor's Abort. If forget, what was fetched has to be fetched again.
func (w *World) drop(ids []coordinator.ID) (forget bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.alive {
		return false
	}
	for _, id := range ids {
		w.spend(id)
		n := len(w.flights)
		if n == 0 || w.flights[n-1].id() != id {
			for _, f := range w.flights {
				w.check(f.id() != id, "%s is dropped before %s", id, w.flights[n-1].id())
			}
			continue
		}
		f := w.flights[n-1]
		w.check(f.running == 0, "%s is dropped while a call for it runs", id)
		w.flights = w.flights[:n-1]
		if !f.planned {
			continue
		}
		for _, r := range f.b.Ranges {
			w.parts[r.Number].cursor = r.Start
		}
	}
	if w.trouble && w.rand("forget", ids[0]).IntN(3) == 0 {
		for i := range w.parts {
			w.parts[i].fetched = w.parts[i].cursor
		}
		return true
	}
	return false
}

// success is an executor's Success.
func (w *World) success(id coordinator.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.alive {
		return
	}
	w.check(id.Txid == w.succeeded+1, "success of %s after %d", id, w.succeeded)
	w.check(w.store.txid >= id.Txid, "success of %s, the store holds %d", id, w.store.txid)
	if w.check(len(w.flights) > 0 && w.flights[0].id() == id, "success of %s, which is not the oldest in flight", id) {
		w.flights = w.flights[1:]
	}
	w.succeeded = id.Txid
}

// reopen begins to open the store again. txid is set when the op is done.
func (w *World) reopen(n uint64, txid *batch.Txid) *op {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.alive {
		return w.void()
	}
	w.check(w.broken, "reopening a store that works")
	for _, f := range w.flights {
		w.check(f.running == 0, "reopening while a call for %s runs", f.id())
	}
	o, what := w.newOp("reopen", coordinator.ID{Txid: w.store.txid, Attempt: batch.Attempt{Epoch: w.epoch, N: uint32(n)}}, nil)
	o.steps = what.work("reopen", func() error {
		w.settle("reopen")
		*txid = w.store.txid
		return nil
	})
	if what == after { // what the store holds has been settled; opening it once more finds the same
		o.steps[0] = func() error { return nil }
	}
	return o
}
