package replaytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/rerun"
	"github.com/tridentd/tridentd/txstate"
)

// Live is what the pipeline's sources hold now, from where they start by their own settings: it is read once into memory, in
// batches of the pipeline's own size, and once more for one of the comparisons.
type Live struct {
	// Records is about how many are taken, in all; a batch that has begun is finished. Default: 100,000.
	Records int64
	// BatchRecords bounds what a batch takes of a partition, if the pipeline doesn't say. Default: 1,000.
	BatchRecords int64
	// Timeout bounds the reading. Default: a minute.
	Timeout time.Duration
}

// Defaults of Live.
const (
	DefaultRecords      = 100_000
	DefaultBatchRecords = 1_000
	DefaultTimeout      = time.Minute
)

// retryAfter is the pause after a failure of a source that may pass.
const retryAfter = 100 * time.Millisecond

func (l Live) withDefaults() Live {
	if l.Records <= 0 {
		l.Records = DefaultRecords
	}
	if l.BatchRecords <= 0 {
		l.BatchRecords = DefaultBatchRecords
	}
	if l.Timeout <= 0 {
		l.Timeout = DefaultTimeout
	}
	return l
}

// Record keeps in dir what Live takes of the sources, for Recorded. What lies there of an earlier recording is replaced.
func Record(t testing.TB, build func() *engine.Pipeline, dir string, l Live) {
	t.Helper()
	pl, err := build().Plan()
	if err != nil {
		t.Fatal(err)
	}
	rec, err := l.record(t.Context(), pl, false)
	if err == nil {
		err = write(dir, rec.in)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (l Live) verify(ctx context.Context, build func() *engine.Pipeline) ([]string, error) {
	pl, err := build().Plan()
	if err != nil {
		return nil, err
	}
	rec, err := l.record(ctx, pl, true)
	if batch.CodeOf(err) == batch.CodeNotDeterministic {
		return []string{err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	return verify(ctx, build, rec.in, rerun.Circumstances{Procs: 2, Pending: 4, Open: rec.again})
}

// recording is what has been read of live sources.
type recording struct {
	plan  *plan.Plan
	in    *rerun.Input
	saved []txstate.SavedPosition // where the reading ended
}

// record runs the pipeline over its sources, one batch after the other.
func (l Live) record(ctx context.Context, pl *plan.Plan, check bool) (_ *recording, err error) {
	l = l.withDefaults()
	if pl.Batch.MaxRecords == 0 {
		small := *pl
		small.Batch.MaxRecords = l.BatchRecords
		pl = &small
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.Timeout, batch.NewError(batch.Transient, batch.CodeTimeout, "record",
		fmt.Errorf("the sources weren't read within %s", l.Timeout), "ask for fewer Records, or raise Live.Timeout"))
	defer cancel()
	db, err := rerun.OpenStore(ctx, pl, vfs.NewMem())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rec := &recording{plan: pl, in: &rerun.Input{Sources: map[string]*rerun.Source{}}}
	cfg := exec.Config{
		Plan: pl, DB: db, Shards: db.Shards(), PlanSum: xxhash.Sum64String(pl.Text), Build: "replaytest", Now: func() time.Time { return rerun.Clock },
		Sources: rec.tee,
	}
	if check {
		cfg.Check = 1
	}
	x := exec.New(cfg)
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, x.Close(closing))
	}()
	if _, err := x.Open(ctx); err != nil {
		return nil, err
	}
	if err := l.run(ctx, x); err != nil {
		return nil, err
	}
	if rec.in.Batches, err = rerun.Entries(ctx, db); err != nil {
		return nil, err
	}
	if len(rec.in.Batches) == 0 {
		return nil, nothing("the sources of pipeline " + pl.Name + " hold no records")
	}
	_, rec.saved = x.Committed()
	return rec, nil
}

const closeTimeout = 10 * time.Second

// run begins batches until enough has been read, or all that there was at the start.
func (l Live) run(ctx context.Context, x *exec.Executor) error {
	var ends map[batch.Partition]int64
	err := retry(ctx, func() (err error) {
		ends, err = x.Ends(ctx)
		return err
	})
	if err != nil {
		return err
	}
	var clock time.Time
	var read int64
	for txid := batch.Txid(1); read < l.Records && !x.Reached(ends); txid++ {
		if now := time.Now().UTC().Truncate(time.Millisecond); now.After(clock) {
			clock = now
		}
		b := &batch.Batch{Txid: txid, Attempt: batch.Attempt{Epoch: x.Epoch()}, Time: clock, Seed: xxhash.Sum64String("replaytest" + strconv.FormatUint(uint64(txid), 10))}
		err := retry(ctx, func() error {
			next := *b
			next.Attempt.N++
			b = &next
			b.Ranges, b.Idle, b.Joined = nil, nil, nil
			if err := plans(ctx, x, b); err != nil {
				return err
			}
			err := x.Process(ctx, b)
			if err != nil {
				x.Abort([]*batch.Batch{b})
			}
			return err
		})
		if err != nil {
			return err
		}
		if err := x.Commit(ctx, []*batch.Batch{b}); err != nil {
			return err
		}
		x.Success(b)
		for _, r := range b.Ranges {
			read += r.End - r.Start
		}
	}
	return nil
}

// plans waits until there is something for b.
func plans(ctx context.Context, x *exec.Executor, b *batch.Batch) error {
	for {
		ok, err := x.Plan(ctx, b, false)
		if err != nil || ok {
			return err
		}
		select {
		case <-x.Ready():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// retry calls f until it succeeds or fails for good.
func retry(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || batch.KindOf(err) == batch.Permanent {
			return err
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// open opens a source of the pipeline.
func (r *recording) open(id string) (emitter.Emitter, error) {
	i := slices.IndexFunc(r.plan.Sources, func(s *plan.Source) bool { return s.ID == id })
	if i < 0 {
		panic("replaytest: no source " + id + " in the plan")
	}
	return r.plan.Sources[i].Open(plan.Env{})
}

// tee opens a source so that what is read of it is kept.
func (r *recording) tee(id string) (emitter.Emitter, error) {
	em, err := r.open(id)
	if err != nil {
		return nil, err
	}
	s := rerun.NewSource(id)
	r.in.Sources[id] = s
	return &tee{Emitter: em, s: s}, nil
}

// again opens a source to read what has been recorded of it once more.
func (r *recording) again(id string) (emitter.Emitter, error) {
	em, err := r.open(id)
	if err != nil {
		return nil, err
	}
	s := &reread{Emitter: em}
	for _, p := range r.saved {
		if p.Source == id {
			s.saved = append(s.saved, p.Position)
		}
	}
	src := r.in.Sources[id]
	for _, p := range src.Partitions() {
		s.starts = append(s.starts, src.Parts[p].Start)
	}
	return s, nil
}

// tee keeps what is read of an emitter.
type tee struct {
	emitter.Emitter
	mu sync.Mutex
	s  *rerun.Source
}

func (e *tee) Open(ctx context.Context, saved []batch.Position, first bool) ([]batch.Position, error) {
	starts, err := e.Emitter.Open(ctx, saved, first)
	e.begin(starts)
	return starts, err
}

func (e *tee) Discovered() []batch.Position {
	starts := e.Emitter.Discovered()
	e.begin(starts)
	return starts
}

func (e *tee) begin(starts []batch.Position) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range starts {
		e.s.Part(p.Partition).Start = p
	}
}

func (e *tee) Read(ctx context.Context, r batch.Range, yield func(*batch.Chunk) error) error {
	return e.Emitter.Read(ctx, r, func(c *batch.Chunk) error {
		e.keep(r.Partition, c)
		return yield(c)
	})
}

// keep adds what hasn't been read before: an attempt, or a check, reads a range again.
func (e *tee) keep(p batch.Partition, c *batch.Chunk) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.Fields != nil {
		e.s.Fields = slices.Clone(c.Fields)
	}
	part := e.s.Part(p)
	for _, rec := range rerun.Clone(c.Records) {
		if rec.Offset >= part.End() {
			part.Records = append(part.Records, rec)
		}
	}
}

// reread reads the ranges of batches that another run has planned.
type reread struct {
	emitter.Emitter
	saved, starts []batch.Position
}

// Open checks the source against the end of what was read; where the batches begin, they say.
func (s *reread) Open(ctx context.Context, have []batch.Position, _ bool) ([]batch.Position, error) {
	if _, err := s.Emitter.Open(ctx, s.saved, false); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(s.starts), func(p batch.Position) bool {
		return slices.ContainsFunc(have, func(q batch.Position) bool { return q.Partition == p.Partition })
	}), nil
}

func (s *reread) Discovered() []batch.Position { return nil }
func (s *reread) Admit([]batch.Position)       {}
