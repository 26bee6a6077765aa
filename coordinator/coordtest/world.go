package coordtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/coordinator"
	"github.com/tridentd/tridentd/coordinator/runner"
	"github.com/tridentd/tridentd/txstate"
)

// World is a model of everything around a coordinator: sources that grow, a local store that loses what was not
// synced, one participant outside it, and an executor's memory. Its methods are what an executor does; each
// checks that it may be done now. The first violation is kept for Err.
//
// Every record has a number of its own to add to a sum, and the store and the participant count how often each
// was added, so a record lost or applied twice shows at once.
type World struct {
	cfg  WorldConfig
	seed uint64

	mu  sync.Mutex
	err error

	parts   []source
	store   store
	pending []write // written and not synced, in order
	broken  bool    // a sync failed: only Reopen makes the store usable again
	outside participant

	// An executor's memory; a crash loses it.
	run       int  // counts starts and crashes
	alive     bool // between a start and a crash
	epoch     batch.Epoch
	flights   []*flight // planned or being planned, in txid order
	commits   int       // Commits running
	succeeded batch.Txid
	kept      map[batch.Txid]clock // of batches processed at least once

	spent   map[batch.Txid]batch.Attempt              // the highest attempt that was planned or failed
	trouble bool                                      // faults are on
	plot    func(call string, id coordinator.ID) fate // decides the calls' fates in place of chance; may be nil
	stats   WorldStats
}

// WorldConfig is what a World is made from.
type WorldConfig struct {
	Partitions int
	MaxRecords int64 // in a batch, per partition
	Outside    bool
	MaxPending int
	Hangs      bool // calls may hang until they are cancelled: wants a Timeout
}

// WorldStats counts what has happened, so that tests can tell whether the world was hostile enough.
type WorldStats struct {
	Crashes, Transient, Permanent, Unknown, Hangs, Begun, Replayed, Skipped int
}

type source struct {
	length  int64 // records that exist
	fetched int64 // records that planning can see
	cursor  int64 // where the next range begins
}

type clock struct {
	time time.Time
	seed uint64
}

// store is what is durable.
type store struct {
	txid      batch.Txid
	epoch     batch.Epoch
	time      time.Time
	positions []int64
	counts    [][]uint8
	sum       uint64
	ledger    []batch.Batch
	recorded  []batch.Batch
}

// participant is a store outside: it applies a batch at once and durably, if it follows on the last.
type participant struct {
	txid   batch.Txid
	epoch  batch.Epoch
	last   batch.Batch // the batch txid, to tell a repetition from another batch
	counts [][]uint8
}

// write is one atomic write to the local store: a record or a commit.
type write struct {
	record *batch.Batch
	commit []*flight
}

type flight struct {
	b         *batch.Batch
	planned   bool
	processed bool
	running   int
	sum       uint64
}

func (f *flight) id() coordinator.ID {
	return coordinator.ID{Txid: f.b.Txid, Attempt: f.b.Attempt}
}

// NewWorld returns a world without records, with faults on.
func NewWorld(cfg WorldConfig, seed uint64) *World {
	w := &World{cfg: cfg, seed: seed, trouble: true, spent: map[batch.Txid]batch.Attempt{}}
	w.parts = make([]source, cfg.Partitions)
	w.store.positions = make([]int64, cfg.Partitions)
	w.store.counts = make([][]uint8, cfg.Partitions)
	w.outside.counts = make([][]uint8, cfg.Partitions)
	return w
}

// Err is the first violation; nil if there was none.
func (w *World) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Stats returns what has happened so far.
func (w *World) Stats() WorldStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

func (w *World) check(ok bool, format string, args ...any) bool {
	if !ok && w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
	return ok
}

// rand returns the random numbers of one happening: they depend on the seed and the names alone, not on what
// else happens at the time.
func (w *World) rand(what string, id coordinator.ID) *batch.Rand {
	b := batch.Batch{Seed: w.seed}
	p := batch.Partition{Source: fmt.Sprint(w.run), Topic: id.Attempt.String()}
	return b.Rand(what, p, int64(id.Txid))
}

// Produce adds n records to partition p. Planning sees them after Fetch.
func (w *World) Produce(p int, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parts[p].length += n
	w.store.counts[p] = append(w.store.counts[p], make([]uint8, n)...)
	w.outside.counts[p] = append(w.outside.counts[p], make([]uint8, n)...)
}

// Fetch lets planning see all records.
func (w *World) Fetch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.parts {
		w.parts[i].fetched = w.parts[i].length
	}
}

// Calm ends all faults.
func (w *World) Calm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble = false
}

// Done tells whether every record that exists has been committed and told.
func (w *World) Done() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, p := range w.parts {
		if w.store.positions[i] != p.length {
			return false
		}
	}
	return w.succeeded == w.store.txid && len(w.pending) == 0
}

// Start takes the next epoch and returns where the store stands.
func (w *World) Start() txstate.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check(len(w.flights) == 0, "a start with %d batches in flight", len(w.flights))
	w.settle("start")
	w.run++
	w.alive = true
	w.store.epoch++
	w.epoch, w.outside.epoch = w.store.epoch, w.store.epoch
	w.kept = map[batch.Txid]clock{}
	w.succeeded = w.store.txid
	w.resetCursors()
	s := txstate.Snapshot{Txid: w.store.txid, Epoch: w.epoch, Time: w.store.time}
	for _, b := range w.store.recorded {
		e := txstate.Entry{Txid: b.Txid, Attempt: b.Attempt, Time: b.Time, Seed: b.Seed}
		for _, r := range b.Ranges {
			e.Ranges = append(e.Ranges, txstate.RangeEntry{Range: r})
		}
		s.Recorded = append(s.Recorded, e)
	}
	return s
}

func (w *World) resetCursors() {
	for i := range w.parts {
		w.parts[i].cursor = w.store.positions[i]
	}
}

// Crash loses what is in memory and, of what was not synced, everything from a random write on.
func (w *World) Crash() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Crashes++
	w.settle("crash")
	for _, f := range w.flights {
		w.spend(f.id())
	}
	w.flights, w.commits = nil, 0
	w.alive = false
	w.run++ // what still runs belongs to the past
}

// settle decides what of the writes not synced is durable: those before a random one.
func (w *World) settle(why string) {
	if len(w.pending) > 0 {
		r := w.rand(why, coordinator.ID{Txid: w.store.txid, Attempt: batch.Attempt{Epoch: w.epoch}})
		w.pending = w.pending[:r.IntN(len(w.pending)+1)]
	}
	w.flush()
	w.broken = false
}

// flush makes all pending writes durable.
func (w *World) flush() {
	for _, wr := range w.pending {
		if wr.record != nil {
			w.flushRecord(*wr.record)
		}
		for _, f := range wr.commit {
			w.flushCommit(f)
		}
	}
	w.pending = nil
}

func (w *World) flushRecord(b batch.Batch) {
	if i := int(b.Txid - w.store.txid - 1); i < len(w.store.recorded) {
		old := w.store.recorded[i]
		w.check(sameBatch(old, b), "the record of txid %d changes: %s becomes %s", b.Txid, describe(old), describe(b))
		w.store.recorded[i] = b
		return
	}
	w.store.recorded = append(w.store.recorded, b)
	w.check(b.Txid == w.store.txid+batch.Txid(len(w.store.recorded)), "txid %d is recorded out of order", b.Txid)
}

func (w *World) flushCommit(f *flight) {
	b := *f.b
	s := &w.store
	if !w.check(b.Txid == s.txid+1, "txid %d commits after %d", b.Txid, s.txid) {
		return
	}
	w.check(!b.Time.Before(s.time), "the clock of txid %d falls", b.Txid)
	for _, r := range b.Ranges {
		p := r.Number
		w.check(r.Start == s.positions[p] && r.End > r.Start, "txid %d: %s does not follow on %d", b.Txid, r, s.positions[p])
		s.positions[p] = r.End
		w.count(s.counts, r, "the store")
	}
	s.txid, s.time, s.sum = b.Txid, b.Time, s.sum+f.sum
	s.ledger = append(s.ledger, b)
	if len(s.recorded) > 0 {
		w.check(sameBatch(s.recorded[0], b), "txid %d commits as %s, recorded was %s", b.Txid, describe(b), describe(s.recorded[0]))
		s.recorded = slices.Clone(s.recorded[1:])
	}
}

// count notes that the records of r have been applied to counts.
func (w *World) count(counts [][]uint8, r batch.Range, who string) {
	for o := r.Start; o < r.End; o++ {
		counts[r.Number][o]++
		w.check(counts[r.Number][o] == 1, "%s applies record %d of partition %d %d times", who, o, r.Number, counts[r.Number][o])
	}
}

// sameBatch tells whether two batches, attempts apart, are one.
func sameBatch(a, b batch.Batch) bool {
	return a.Txid == b.Txid && a.Time.Equal(b.Time) && a.Seed == b.Seed && slices.Equal(a.Ranges, b.Ranges)
}

func describe(b batch.Batch) string {
	return fmt.Sprintf("%d@%s time=%s seed=%x%s", b.Txid, b.Attempt, since(b.Time), b.Seed, formatRanges(b.Ranges))
}

func value(p int32, offset int64) uint64 { return uint64(p+1)*1_000_003 + uint64(offset)*7919 }

// Verify checks the ledger and the sums once everything has been committed.
func (w *World) Verify() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var want uint64
	ends := make([]int64, len(w.parts))
	for i, b := range w.store.ledger {
		w.check(b.Txid == batch.Txid(i+1), "ledger: txid %d at place %d", b.Txid, i+1)
		for _, r := range b.Ranges {
			w.check(r.Start == ends[r.Number], "ledger: txid %d: %s, expected to start at %d", b.Txid, r, ends[r.Number])
			ends[r.Number] = r.End
		}
	}
	for p := range w.parts {
		w.check(ends[p] == w.parts[p].length, "partition %d: %d of %d records committed", p, ends[p], w.parts[p].length)
		for o := range w.parts[p].length {
			want += value(int32(p), o)
			w.check(!w.cfg.Outside || w.outside.counts[p][o] == 1, "outside: record %d of partition %d is applied %d times", o, p, w.outside.counts[p][o])
		}
	}
	w.check(w.store.sum == want, "sum is %d, expected %d", w.store.sum, want)
	return w.err
}

// Ledger returns what has committed.
func (w *World) Ledger() []batch.Batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.store.ledger)
}

var errCancelled = errors.New("cancelled")

func transient(op string) error {
	return batch.NewError(batch.Transient, batch.CodeUnavailable, op, errors.New("server away"), "")
}

func permanent(op string) error {
	return batch.NewError(batch.Permanent, batch.CodeBadRecord, op, errors.New("no JSON"), "")
}

func unknown() error { return fmt.Errorf("fsync: %w", runner.ErrUnknown) }

// Add adds what has happened elsewhere.
func (s *WorldStats) Add(o WorldStats) {
	s.Crashes += o.Crashes
	s.Transient += o.Transient
	s.Permanent += o.Permanent
	s.Unknown += o.Unknown
	s.Hangs += o.Hangs
	s.Begun += o.Begun
	s.Replayed += o.Replayed
	s.Skipped += o.Skipped
}
