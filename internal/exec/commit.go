package exec

import (
	"context"
	"errors"
	"fmt"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// Record makes a batch's ranges durable before anything of it is applied outside the local store.
func (x *Executor) Record(ctx context.Context, b *batch.Batch) error {
	x.mu.Lock()
	f := x.flights[b.Txid]
	x.mu.Unlock()
	e := x.entryOf(f)
	if err := x.cfg.DB.Store().Record(ctx, *e); err != nil {
		return x.located(err, b.Txid)
	}
	x.mu.Lock()
	x.recorded[b.Txid] = *e
	x.mu.Unlock()
	return nil
}

// entryOf is the ledger's entry of a processed batch, but for its chain and its commit.
func (x *Executor) entryOf(f *flight) *txstate.Entry {
	b := f.b
	e := &txstate.Entry{
		Txid: b.Txid, Attempt: b.Attempt, Attempts: b.Attempt.N, Time: b.Time, Seed: b.Seed,
		Idle: b.Idle, Joined: b.Joined, Counts: f.counts, States: f.states,
		Build: x.cfg.Build, Plan: x.cfg.PlanSum, Took: f.took, Watermarks: f.times.watermarks(x.plan),
	}
	for i, r := range b.Ranges {
		e.Ranges = append(e.Ranges, txstate.RangeEntry{Range: r, Input: f.results[i].input, EventTime: f.times.partTime(r.Partition)})
	}
	for i, out := range f.outputs {
		if out != nil {
			e.Sinks = append(e.Sinks, txstate.SinkDigest{Sink: x.plan.Sinks[i].Name, Records: out.Count, Chain: out.Chain})
		}
	}
	for _, c := range f.contents {
		e.Statics = append(e.Statics, txstate.StaticVersion{Name: c.table.Name, Rows: rowsOf(&c.table), Digest: c.table.Digest})
	}
	return e
}

func (t *times) partTime(p batch.Partition) int64 {
	if et, ok := t.parts[p]; ok {
		return et
	}
	return txstate.NoTime
}

// chainOf is the digest of everything before and everything this batch was and did.
func chainOf(before uint64, e *txstate.Entry) uint64 {
	d := digest(seedChain).word(before).word(uint64(e.Txid)).word(uint64(e.Time.UnixMilli())).word(e.Seed)
	for _, r := range e.Ranges {
		d = d.text(r.Source).text(r.Topic).word(uint64(r.Number)).word(uint64(r.Start)).word(uint64(r.End)).
			word(uint64(r.Records)).word(r.Digest)
	}
	for _, s := range e.States {
		d = d.text(s.State).word(uint64(s.Writes)).word(s.Digest)
	}
	for _, s := range e.Statics {
		d = d.text(s.Name).word(s.Digest)
	}
	if e.Reset {
		d = d.word(seedReset)
		for _, r := range e.Ranges {
			d = d.text(r.Identity)
		}
	}
	if e.Imported != "" {
		d = d.text(e.Imported)
	}
	for _, m := range e.Migrated {
		d = d.text(m)
	}
	return d.sum()
}

// Commit makes consecutive batches durable in one synced write.
func (x *Executor) Commit(ctx context.Context, bs []*batch.Batch) error {
	began := x.cfg.Now()
	x.mu.Lock()
	fs := make([]*flight, len(bs))
	for i, b := range bs {
		if fs[i] = x.flights[b.Txid]; fs[i] == nil || fs[i].b != b {
			x.mu.Unlock()
			panic(fmt.Sprintf("exec: commit of txid %d attempt %s, which is not in flight", b.Txid, b.Attempt))
		}
	}
	chain := x.chain
	joined := map[batch.Partition]batch.Txid{}
	commits := make([]pebblestate.Commit, len(fs))
	for i, f := range fs {
		f.entry = x.entryOf(f)
		chain = chainOf(chain, f.entry)
		f.entry.Chain = chain
		f.entry.Committed = began
		commits[i] = pebblestate.Commit{Entry: *f.entry, Sets: f.sets, Keep: x.plan.Ledger.Changes}
		for _, j := range f.b.Joined {
			joined[j.Partition] = f.b.Txid
			commits[i].Positions = append(commits[i].Positions, x.movedTo(f, j, joined))
		}
		for _, r := range f.entry.Ranges {
			commits[i].Positions = append(commits[i].Positions, x.movedTo(f, r.Position(), joined))
		}
		for _, c := range f.contents {
			commits[i].Statics = append(commits[i].Statics, c.table)
		}
	}
	commits[0].Schemas = x.schemas
	x.mu.Unlock()
	if len(x.targets) > 0 {
		if len(fs) != 1 {
			panic(fmt.Sprintf("exec: commit of %d batches at once, with targets outside", len(fs)))
		}
		if err := x.deliver(ctx, fs[0]); err != nil {
			return x.located(err, bs[0].Txid)
		}
	}
	if err := x.cfg.DB.Commit(ctx, commits); err != nil {
		if x.cfg.DB.Err() != nil && !errors.Is(err, pebblestate.ErrUnknownOutcome) {
			// Surely nothing was written, but nothing can be until the store has been opened again.
			err = fmt.Errorf("%w: %w", pebblestate.ErrUnknownOutcome, err)
		}
		return x.located(err, bs[0].Txid)
	}
	took := x.cfg.Now().Sub(began)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.schemas = nil
	for i, f := range fs {
		delete(x.recorded, f.b.Txid)
		f.took.Commit = took
		f.entry.Took = f.took
		for _, p := range commits[i].Positions {
			x.cursors[p.Partition].saved = p
		}
		x.txid, x.chain, x.clock, x.times = f.b.Txid, f.entry.Chain, f.b.Time, f.times
		if x.windowed {
			x.windows = f.windows
		}
		x.given, x.wakes, x.tally = f.gives, f.wakes, f.tally
	}
	return nil
}

// movedTo is the saved position of a partition that batch f moved or admitted.
func (x *Executor) movedTo(f *flight, p batch.Position, joined map[batch.Partition]batch.Txid) txstate.SavedPosition {
	s := txstate.SavedPosition{Position: p, EventTime: f.times.partTime(p.Partition), MovedAt: f.b.Time, Txid: f.b.Txid}
	if s.Joined = joined[p.Partition]; s.Joined == 0 {
		s.Joined = x.cursors[p.Partition].saved.Joined
	}
	return s
}

// Success tells sources and mirrors that a batch has committed, and frees what it held.
func (x *Executor) Success(b *batch.Batch) {
	x.mu.Lock()
	f := x.flights[b.Txid]
	delete(x.flights, b.Txid)
	again := x.waiting
	x.waiting = false
	x.mu.Unlock()
	if again {
		defer x.signal()
	}
	byRange := map[string][]batch.Range{}
	for _, r := range b.Ranges {
		byRange[r.Source] = append(byRange[r.Source], r)
	}
	for _, em := range x.emitters {
		if rs := byRange[em.ID()]; rs != nil {
			em.Ack(b.Txid, rs)
		}
	}
	if len(x.cfg.Mirrors) > 0 {
		at := x.Point()
		for _, m := range x.cfg.Mirrors {
			Tell(m, at)
		}
	}
	if x.cfg.OnOutput != nil {
		for i, out := range f.outputs {
			if out != nil {
				x.cfg.OnOutput(x.plan.Sinks[i].Name, out)
			}
		}
	}
	if x.cfg.OnCommit != nil {
		x.cfg.OnCommit(f.entry)
	}
	if x.loads {
		x.signal() // what waits for a source to be loaded may go on
	}
	x.mu.Lock()
	x.release(f)
	x.mu.Unlock()
}

// release gives a batch's buffers back. Overlays stay with whoever still reads them.
func (x *Executor) release(f *flight) {
	for _, r := range f.results {
		if r != nil {
			x.outs.put(r.out)
		}
	}
	for _, st := range f.stages {
		for i := range st.parts {
			x.outs.put(st.parts[i].out)
		}
	}
	f.results, f.stages, f.sets, f.pages, f.outputs = nil, nil, nil, nil, nil
}

// Reopen opens the database again after a commit of unknown outcome and tells what it holds.
func (x *Executor) Reopen(ctx context.Context) (batch.Txid, error) {
	db, err := x.cfg.Reopened(ctx)
	if err != nil {
		return 0, err
	}
	x.cfg.DB = db
	snap, err := db.Store().Load(ctx)
	if err != nil {
		return 0, err
	}
	if snap.Epoch != x.epoch {
		return 0, x.located(batch.NewError(batch.Permanent, batch.CodeStoreInUse, "reopen",
			fmt.Errorf("the store is held by epoch %d, this run has epoch %d", snap.Epoch, x.epoch),
			"make sure that one process runs the pipeline, and start again"), 0)
	}
	if err := x.restore(ctx, snap); err != nil {
		return 0, err
	}
	return snap.Txid, nil
}
