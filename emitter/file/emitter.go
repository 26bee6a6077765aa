package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// Emitter reads the files of one source. A few workers read ahead, always for the file that has the least waiting to
// be planned, so that no file starves another; a poller looks for files that have grown or come.
type Emitter struct {
	id      string
	source  Source
	framing emitter.Framing
	dir     string
	log     hclog.Logger
	ready   chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	work    sync.Cond // on mu: a worker may find something to do
	parts   map[batch.Partition]*partition
	order   []*partition // admitted, in partition order
	fresh   []batch.Position
	growing map[string]int64 // sizes of compressed files that were found, but may still be in the writing
	ahead   int64            // bytes read and not planned, of all files
	open    int              // files the workers hold open
	bounded bool             // Ends has been asked
	err     error
	closed  bool

	cursors cursors
}

var _ emitter.Emitter = (*Emitter)(nil)

func newEmitter(id string, s Source, framing emitter.Framing, env emitter.Env) *Emitter {
	e := &Emitter{
		id: id, source: s, framing: framing, dir: env.Dir, log: env.Logger,
		ready: make(chan struct{}, 1), parts: map[batch.Partition]*partition{}, growing: map[string]int64{},
	}
	e.work.L = &e.mu
	e.cursors.most = s.open
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// ID is the source's name.
func (e *Emitter) ID() string { return e.id }

// Ready receives a value when Plan, Discovered or Err may have something new.
func (e *Emitter) Ready() <-chan struct{} { return e.ready }

func (e *Emitter) signal() {
	select {
	case e.ready <- struct{}{}:
	default:
	}
}

// Open finds the files and compares those with a saved position to its fingerprint.
func (e *Emitter) Open(ctx context.Context, saved []batch.Position, _ bool) ([]batch.Position, error) {
	files, err := expand(e.dir, e.source.globs)
	if err != nil {
		return nil, configuration(err, "correct the pattern")
	}
	if len(files) == 0 {
		e.log.Warn("no file matches", "paths", e.source.globs, "dir", e.dir)
	}
	positions := map[batch.Partition]batch.Position{}
	for _, p := range saved {
		positions[p.Partition] = p
	}
	var starts []batch.Position
	for _, file := range files {
		f := e.newPartition(file)
		if err := check(file.path); err != nil {
			return nil, f.located("open", batch.NoOffset, err)
		}
		p, ok := positions[f.id]
		if !ok {
			starts = append(starts, start(f.id))
		} else if err := e.restore(ctx, f, p); err != nil {
			return nil, err
		}
		e.mu.Lock()
		e.parts[f.id] = f
		if ok {
			f.admitted = true
			e.order = append(e.order, f)
		}
		e.mu.Unlock()
	}
	for range e.source.workers {
		e.wg.Go(e.read)
	}
	e.wg.Go(e.poll)
	return starts, nil
}

func (e *Emitter) newPartition(file found) *partition {
	return &partition{
		id: e.partitionOf(file), path: file.path, counted: -1, cut: e.newCutter(file.path),
	}
}

func (e *Emitter) partitionOf(file found) batch.Partition {
	return batch.Partition{Source: e.id, Topic: file.topic}
}

func (e *Emitter) newCutter(path string) *cutter {
	return newCutter(path, e.framing, e.source.block, e.source.record)
}

// start is where a file begins that has no position yet.
func start(p batch.Partition) batch.Position {
	return batch.Position{Partition: p, LeaderEpoch: batch.NoEpoch}
}

// restore puts a file at its saved position.
func (e *Emitter) restore(ctx context.Context, f *partition, p batch.Position) error {
	f.acked, f.planned = p.Next, p.Next
	if p.Next == 0 {
		return nil
	}
	if p.Identity == "" { // a position that somebody set by its number alone
		f.from = p.Next
		return nil
	}
	fp, err := parseFingerprint(p.Identity)
	if err != nil {
		return f.located("open", p.Next, configuration(err, "reset the position of this file"))
	}
	if err := f.cut.resume(ctx, p.Next, fp); err != nil {
		return f.located("open", p.Next, errors.Join(err, f.cut.detach()))
	}
	f.next, f.pos = p.Next, fp.bytes
	f.info = f.cut.info
	if e.open == e.source.open {
		return f.cut.detach()
	}
	f.open = true
	e.open++
	return nil
}

// Discovered returns the starts of files that came since the last call.
func (e *Emitter) Discovered() []batch.Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	fresh := e.fresh
	e.fresh = nil
	return fresh
}

// Admit lets files be planned.
func (e *Emitter) Admit(ps []batch.Position) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range ps {
		f := e.parts[p.Partition]
		if f == nil || f.admitted {
			continue
		}
		f.admitted = true
		f.acked, f.planned, f.from = p.Next, p.Next, p.Next
		e.order = append(e.order, f)
	}
	slices.SortFunc(e.order, func(a, b *partition) int { return a.id.Compare(b.id) })
	e.work.Broadcast()
}

// Partitions lists the admitted files.
func (e *Emitter) Partitions() []batch.Partition {
	e.mu.Lock()
	defer e.mu.Unlock()
	ps := make([]batch.Partition, len(e.order))
	for i, f := range e.order {
		ps[i] = f.id
	}
	return ps
}

// Plan returns a range of what has been read ahead.
func (e *Emitter) Plan(p batch.Partition, from int64, limit emitter.Limit) (batch.Range, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.parts[p]
	if f == nil || !f.admitted {
		return batch.Range{}, false
	}
	if from < f.low() {
		e.goBack(f, from)
	}
	r, ok := f.plan(from, limit)
	f.planned = from
	if ok {
		f.planned = r.End
	}
	e.ahead += f.measure()
	e.work.Signal()
	return r, ok
}

// goBack makes the workers read a file from its beginning, up to record n without keeping anything.
func (e *Emitter) goBack(f *partition, n int64) {
	if !f.busy { // otherwise the worker closes what it holds
		e.closeCutter(f.cut)
	}
	if f.open {
		f.open = false
		e.open--
	}
	f.cut = e.newCutter(f.path)
	f.blocks, f.next, f.from, f.ended, f.failed, f.trouble = nil, 0, n, false, nil, nil
	e.work.Broadcast()
}

func (e *Emitter) closeCutter(c *cutter) {
	if err := c.detach(); err != nil {
		e.log.Warn("closing a file failed", "path", c.path, "error", err)
	}
}

// Ack forgets what has committed.
func (e *Emitter) Ack(_ batch.Txid, ranges []batch.Range) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range ranges {
		if f := e.parts[r.Partition]; f != nil {
			f.ack(r.End)
			e.ahead += f.measure()
			e.surface(f)
		}
	}
	e.work.Broadcast()
}

// surface makes a file's permanent fault the emitter's once everything before it has committed: which batches come
// before the stop doesn't depend on how far the workers were ahead.
func (e *Emitter) surface(f *partition) {
	if f.failed != nil && f.acked >= f.next && e.err == nil {
		e.err = f.failed
		e.signal()
	}
}

// Err returns the fault that all records before have committed up to.
func (e *Emitter) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// Status lists the admitted files.
func (e *Emitter) Status() []emitter.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	st := make([]emitter.Status, len(e.order))
	for i, f := range e.order {
		st[i] = f.status()
	}
	return st
}

// Ends counts the records that every file has now. From then on a last line without a line end is a record. The
// record at which a damaged file ends counts: it is there, and the run must not end as though it weren't.
func (e *Emitter) Ends(ctx context.Context) (map[batch.Partition]int64, error) {
	e.mu.Lock()
	e.bounded = true
	order := slices.Clone(e.order)
	for _, f := range order {
		if f.ended && f.size > f.pos {
			f.ended = false
		}
	}
	e.work.Broadcast()
	e.mu.Unlock()

	ends := make(map[batch.Partition]int64, len(order))
	for _, f := range order {
		e.mu.Lock()
		n, known := f.next, f.ended
		if f.failed != nil {
			n, known = f.next+1, true
		}
		size := f.size
		e.mu.Unlock()
		if known && !compressed(f.path) {
			info, err := os.Stat(f.path)
			known = err == nil && info.Size() == size
		}
		if !known {
			var err error
			if n, err = e.count(ctx, f); err != nil {
				return nil, err
			}
		}
		ends[f.id] = n
		e.mu.Lock()
		f.counted = n
		e.mu.Unlock()
	}
	return ends, nil
}

// count reads a file to its end.
func (e *Emitter) count(ctx context.Context, f *partition) (int64, error) {
	c := e.newCutter(f.path)
	err := c.attach(ctx)
	for err == nil {
		_, err = c.cut(ctx, true)
	}
	n := c.next
	e.closeCutter(c)
	if errors.Is(err, io.EOF) {
		return n, nil
	}
	err = f.located("count", n, err)
	switch batch.CodeOf(err) {
	case batch.CodeFileDamaged, batch.CodeBadRecord:
		return n + 1, nil
	}
	return 0, err
}

// Close ends the workers and closes the files.
func (e *Emitter) Close(ctx context.Context) error {
	e.cancel()
	e.mu.Lock()
	e.closed = true
	e.work.Broadcast()
	e.mu.Unlock()
	done := make(chan struct{})
	go func() {
		e.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("source %s: closing: %w", e.id, context.Cause(ctx))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	errs := []error{e.cursors.close()}
	for _, f := range e.parts { // order: each file is closed, whatever closing another says
		errs = append(errs, f.cut.detach())
	}
	return errors.Join(errs...)
}

// read is one worker.
func (e *Emitter) read() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for !e.closed {
		f := e.pick()
		if f == nil {
			e.work.Wait()
			continue
		}
		f.busy = true
		if !f.open {
			f.open = true
			e.open++
		}
		c, final := f.cut, e.bounded || compressed(f.path)
		e.mu.Unlock()
		err := c.attach(e.ctx)
		var b *block
		if err == nil {
			b, err = c.cut(e.ctx, final)
		}
		e.mu.Lock()
		f.busy = false
		if f.cut != c { // Plan went back meanwhile
			e.closeCutter(c)
			continue
		}
		e.took(f, b, err, final)
	}
}

// pick returns the file to read next: of those that may be read, the one with the least read ahead.
func (e *Emitter) pick() *partition {
	if e.ahead >= e.source.ahead {
		return nil
	}
	var best *partition
	for _, f := range e.order {
		switch {
		case f.busy || f.ended || f.failed != nil || f.trouble != nil:
		case f.ahead >= e.source.ahead/int64(e.source.open):
		case !f.open && e.open >= e.source.open:
		case best == nil || f.ahead < best.ahead:
			best = f
		}
	}
	return best
}

// took takes over what a worker has read of f, or the reason for which it hasn't.
func (e *Emitter) took(f *partition, b *block, err error, final bool) {
	f.next, f.pos = f.cut.next, f.cut.pos
	if b != nil {
		if b.next() > f.from {
			f.blocks = append(f.blocks, b)
			e.ahead += f.measure()
			e.signal()
		}
		return
	}
	if context.Cause(e.ctx) != nil {
		return
	}
	f.size, f.info = f.pos+int64(len(f.cut.have)), f.cut.info
	e.closeCutter(f.cut)
	f.open = false
	e.open--
	e.work.Broadcast() // another file may be opened
	if errors.Is(err, io.EOF) {
		f.ended = true
		if e.bounded && !final && f.size > f.pos {
			f.ended = false // Ends was asked while the worker looked
		}
		if f.next < f.from {
			f.failed = batch.NewError(batch.Permanent, batch.CodeOutOfRange, "read",
				fmt.Errorf("the position is at record %d, the file holds %d", f.from, f.next), "reset the position of this file").At(f.id, f.from)
			f.next = f.from
			e.surface(f)
		}
		e.signal()
		return
	}
	err = f.located("read", f.next, err)
	if batch.KindOf(err) == batch.Permanent {
		f.failed = err
		e.surface(f)
	} else {
		f.trouble = err
		e.log.Warn("reading a file failed, trying again", "path", f.path, "error", err)
	}
	e.signal()
}

// poll looks after files that have grown, been replaced or come.
func (e *Emitter) poll() {
	tick := time.NewTicker(e.source.poll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.lookAtFiles()
			e.lookForFiles()
		case <-e.ctx.Done():
			return
		}
	}
}

// lookAtFiles asks the file system without holding anybody up.
func (e *Emitter) lookAtFiles() {
	e.mu.Lock()
	var quiet []*partition
	for _, f := range e.order {
		if f.trouble != nil {
			f.trouble = nil
			e.work.Broadcast()
		}
		if f.ended && f.failed == nil && !compressed(f.path) {
			quiet = append(quiet, f)
		}
	}
	e.mu.Unlock()
	for _, f := range quiet {
		info, err := os.Stat(f.path)
		e.mu.Lock()
		switch {
		case !f.ended: // Plan went back
		case errors.Is(err, os.ErrNotExist):
			if !f.missed {
				f.missed = true
				e.log.Warn("a file is gone; all that it held has been read", "path", f.path, "records", f.next)
			}
		case err == nil && (info.Size() != f.size || !os.SameFile(info, f.info)):
			f.ended, f.missed = false, false
			e.work.Broadcast()
		}
		e.mu.Unlock()
	}
}

// lookForFiles finds files that match by now. A compressed one is taken once two looks saw the same size.
func (e *Emitter) lookForFiles() {
	files, err := expand(e.dir, e.source.globs)
	if err != nil {
		e.log.Warn("looking for files failed", "error", err)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, file := range files {
		if e.parts[e.partitionOf(file)] != nil {
			continue
		}
		if compressed(file.path) {
			info, err := os.Stat(file.path)
			if err != nil {
				continue
			}
			if before, ok := e.growing[file.path]; !ok || before != info.Size() {
				e.growing[file.path] = info.Size()
				continue
			}
			delete(e.growing, file.path)
		}
		f := e.newPartition(file)
		e.parts[f.id] = f
		e.fresh = append(e.fresh, start(f.id))
	}
	if len(e.fresh) > 0 {
		e.signal()
	}
}
