package zkstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

const (
	// quiet is for how long a cause that comes and goes isn't warned of again.
	quiet = 5 * time.Minute
	// slack is how much later than UpdateInterval a write may end before batches that must not get ahead are kept back.
	slack = time.Second
	// recheck is the time between two looks at the connection while something waits for it.
	recheck = 100 * time.Millisecond
	// startLimit bounds, under Continue, how long a start waits for the servers.
	startLimit = 5 * time.Second
	// conflicts is how often in a row a write may find that somebody else has written before it counts as a failure.
	conflicts = 3
)

// Record keeps a pipeline's record in ZooKeeper.
type Record struct {
	cfg   Config
	conn  Conn
	close func(ctx context.Context) error
	base  string
	name  string
	log   hclog.Logger

	ctx     context.Context
	cancel  context.CancelFunc
	wake    chan struct{} // room for one
	closing chan struct{}
	done    chan struct{}
	broken  chan struct{}
	once    sync.Once

	mu       sync.Mutex
	want     wanted
	standing txstate.Standing // as Reconcile was told
	begun    map[batch.Txid]batch.Attempt
	rewind   bool
	behind   time.Time // since when something committed isn't written; zero if everything is
	urgent   bool      // a batch is held back, and no round has found out why yet
	status   txstate.MirrorStatus
	err      error         // what broken was closed for
	changed  chan struct{} // closed, and made anew, when a round ends

	work sync.Mutex // held over a round; guards what is below, and is taken before mu

	there   map[string]held // what ZooKeeper holds, as far as known
	known   bool            // there was read, and no failure came since
	garbled map[string]held // what of there can't be read and isn't kept beside yet
	mine    map[string]mark
	round   uint64 // the latest wanted.seq that was written
	roundAt time.Time
	retryAt time.Time // after a failure; zero: there is none
	wasDown bool      // the connection was down at that failure
	backoff time.Duration
	warned  map[batch.Code]time.Time
	overdue bool // a failure has lasted for RetryFor, and that was told
}

// wanted is what was last asked to be written. seq numbers the askings.
type wanted struct {
	seq   uint64
	told  bool // point is set
	point txstate.Point
}

var (
	_ txstate.Recorder  = (*Record)(nil)
	_ txstate.Gate      = (*Record)(nil)
	_ txstate.Showing   = (*Record)(nil)
	_ txstate.Exporting = (*Record)(nil)
)

// New returns a record that is kept through conn. It asks nobody before it is told something. release is called at the end, to
// give the connection up; it may be nil.
func New(cfg Config, conn Conn, release func(ctx context.Context) error) (*Record, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Record{
		cfg: cfg, conn: conn, close: release, base: cfg.Base(),
		name:    "zookeeper " + cfg.Chroot + cfg.Base(),
		log:     cfg.Logger.With("zookeeper", cfg.Chroot+cfg.Base()),
		wake:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
		broken:  make(chan struct{}),
		changed: make(chan struct{}),
		begun:   map[batch.Txid]batch.Attempt{},
		status:  txstate.MirrorStatus{Failures: map[batch.Code]int64{}},
		mine:    map[string]mark{},
		warned:  map[batch.Code]time.Time{},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go r.run()
	return r, nil
}

// Name implements txstate.Mirror.
func (r *Record) Name() string { return r.name }

// Rewind implements txstate.Mirror.
func (r *Record) Rewind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rewind = true
}

// Committed implements txstate.Mirror, for whoever knows no more than the positions. The record says nothing of the batch's
// time and digests then.
func (r *Record) Committed(txid batch.Txid, epoch batch.Epoch, positions []txstate.SavedPosition) {
	r.Advance(txstate.Point{Txid: txid, Epoch: epoch, Positions: positions})
}

// Advance implements txstate.Recorder.
func (r *Record) Advance(p txstate.Point) {
	now := r.cfg.Now()
	r.mu.Lock()
	r.want = wanted{seq: r.want.seq + 1, told: true, point: p}
	maps.DeleteFunc(r.begun, func(txid batch.Txid, _ batch.Attempt) bool { return txid <= p.Txid })
	if !r.status.Pending {
		r.status.Pending, r.behind = true, now
	}
	r.mu.Unlock()
	r.poke()
}

// Begun implements txstate.Observing. First beginnings show with the next write; that a batch is tried again is written for
// itself, as there may be no other for long.
func (r *Record) Begun(txid batch.Txid, attempt batch.Attempt) {
	r.mu.Lock()
	r.begun[txid] = attempt
	again := attempt.N > 1 && r.want.told
	if again {
		r.want.seq++
	}
	r.mu.Unlock()
	if again {
		r.poke()
	}
}

// urge has a round begin now, whether or not anything is to be written: what holds a batch back is told, and lasts, from then on.
func (r *Record) urge() {
	r.mu.Lock()
	due := r.want.told && r.status.Err == nil && !r.urgent
	r.urgent = r.urgent || due
	r.mu.Unlock()
	if due {
		r.poke()
	}
}

func (r *Record) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Status implements txstate.Mirror. While something waits to be written, a connection that is down counts as a failure before the next
// write has met it.
func (r *Record) Status() txstate.MirrorStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.status
	st.Failures = maps.Clone(st.Failures)
	switch {
	case r.err != nil:
		st.Err = r.err
	case st.Err == nil && st.Pending:
		if err := r.conn.Err(); err != nil {
			st.Err, st.Since = err, r.behind.UTC()
		}
	}
	return st
}

// Broken implements txstate.Recorder.
func (r *Record) Broken() <-chan struct{} { return r.broken }

// Err implements txstate.Recorder.
func (r *Record) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// breakWith ends the run.
func (r *Record) breakWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
		close(r.broken)
	}
}

// Close implements txstate.Mirror. It tells what couldn't be written.
func (r *Record) Close(ctx context.Context) error {
	r.once.Do(func() { close(r.closing) })
	select {
	case <-r.done:
	case <-ctx.Done():
		r.cancel()
		<-r.done
	}
	r.cancel()
	var closed error
	if r.close != nil {
		closed = r.close(ctx)
	}
	st := r.Status()
	if !st.Pending || r.Err() != nil { // what has broken is told by the run
		return closed
	}
	err := st.Err
	if err == nil {
		err = context.Cause(ctx)
	}
	return errors.Join(fmt.Errorf("%s: what has committed since txid %d isn't written; the next run writes it: %w", r.name, st.Txid, err), closed)
}

// run does the rounds until Close, and one more then if something is outstanding.
func (r *Record) run() {
	defer close(r.done)
	for {
		var timer <-chan time.Time
		wait, due := r.next()
		if due {
			timer = time.After(wait)
		}
		select {
		case <-r.closing:
			if r.Status().Pending {
				r.do()
			}
			return
		case <-r.broken:
			<-r.closing
			return
		case <-r.wake:
		case <-timer:
			if r.due() {
				r.do()
			}
		}
	}
}

// next tells how long to wait for the next round, or for the next look whether one is due.
func (r *Record) next() (wait time.Duration, ok bool) {
	r.mu.Lock()
	want, urgent := r.want, r.urgent
	r.mu.Unlock()
	r.work.Lock()
	defer r.work.Unlock()
	now := r.cfg.Now()
	switch {
	case !want.told:
		return 0, false
	case !r.retryAt.IsZero() && r.wasDown:
		return min(r.retryAt.Sub(now), recheck), true
	case !r.retryAt.IsZero():
		return r.retryAt.Sub(now), true
	case urgent:
		return 0, true
	case want.seq != r.round:
		return r.roundAt.Add(r.cfg.UpdateInterval).Sub(now), true
	}
	return 0, false
}

// due tells whether to begin a round now: a failure whose connection is up again isn't waited for.
func (r *Record) due() bool {
	r.work.Lock()
	defer r.work.Unlock()
	return r.retryAt.IsZero() || !r.cfg.Now().Before(r.retryAt) || r.wasDown && r.away() == nil
}

// do does a round and takes note of its outcome.
func (r *Record) do() {
	r.work.Lock()
	defer r.work.Unlock()
	began := r.cfg.Now()
	r.mu.Lock()
	want, rewind, standing := r.want, r.rewind, r.standing
	working := r.working(want.point.Txid)
	r.mu.Unlock()
	if !want.told {
		return
	}
	p := &want.point
	standing.Txid, standing.Chain, standing.Epoch, standing.Positions = p.Txid, p.Chain, p.Epoch, p.Positions
	// A call would wait for a connection. That there is none is told at once, and looked at again soon.
	err := r.away()
	if err == nil {
		err = r.attempt(r.ctx, &standing, p, working, rewind)
	}
	if err == nil {
		r.succeed(&want, began)
		return
	}
	r.fail(err)
}

// away is why nothing can be written right now. A slow server is no reason: it takes what is written.
func (r *Record) away() error {
	if err := r.conn.Err(); err != nil && batch.CodeOf(err) != batch.CodeZKOverloaded {
		return err
	}
	return nil
}

// working is the first batch that has begun and not committed. REQUIRES: r.mu is held.
func (r *Record) working(committed batch.Txid) *workingPart {
	var first *workingPart
	for txid, a := range r.begun { // order: the lowest counts
		if txid > committed && (first == nil || txid < first.Txid) {
			first = &workingPart{Txid: txid, Attempt: a.N, Epoch: a.Epoch}
		}
	}
	return first
}

// attempt brings ZooKeeper to where the store stands. REQUIRES: r.work is held.
func (r *Record) attempt(ctx context.Context, s *txstate.Standing, p *txstate.Point, working *workingPart, rewind bool) error {
	want := contentOf(r.cfg.Pipeline, s.Store, p, working, r.cfg.Now())
	for try := 1; ; try++ {
		if err := r.look(ctx, s, rewind); err != nil {
			return err
		}
		err := r.keepGarbled(ctx)
		if err == nil {
			err = r.apply(ctx, r.there, r.mine, r.changes(r.there, &want, false))
		}
		if err == nil {
			return nil
		}
		r.known = false // whether a request that failed was carried out isn't known
		if !errors.Is(err, errChanged) {
			return err
		}
		if try == conflicts {
			return batch.NewError(batch.Transient, batch.CodeRecordForeign, "record",
				fmt.Errorf("ZooKeeper's node %s: %w, each time that it was to be written", r.cfg.Chroot+r.base, err), "find out who else writes below this node")
		}
	}
}

// look reads and judges what is there, unless that is known. It writes nothing. REQUIRES: r.work is held.
func (r *Record) look(ctx context.Context, s *txstate.Standing, rewind bool) error {
	if r.known {
		return nil
	}
	there, err := r.read(ctx)
	if err != nil {
		return err
	}
	f, err := r.judgeAll(ctx, s, there, r.mine, rewind)
	if err != nil {
		return err
	}
	if len(f.lost) > 0 {
		r.log.Warn("nodes in ZooKeeper are gone, which this run had written; they are written again", "nodes", trimmed(f.lost))
		for _, name := range f.lost {
			delete(r.mine, name)
		}
	}
	if len(f.changed) > 0 {
		r.log.Warn("somebody has changed nodes in ZooKeeper; they are written again", "nodes", trimmed(f.changed), "code", string(batch.CodeRecordForeign))
		r.count(batch.CodeRecordForeign)
	}
	r.there, r.garbled, r.known = there, f.garbled, true
	return nil
}

// succeed sets the status after a round that wrote all of want. REQUIRES: r.work is held.
func (r *Record) succeed(want *wanted, began time.Time) {
	now := r.cfg.Now()
	r.backoff, r.retryAt, r.round, r.roundAt, r.overdue = 0, time.Time{}, want.seq, now, false
	r.mu.Lock()
	was := r.status.Err
	r.status.Txid, r.status.Written, r.status.Err, r.status.Since = want.point.Txid, now.UTC(), nil, time.Time{}
	r.status.Pending, r.behind = r.want.point.Txid != want.point.Txid, began
	r.rewind, r.urgent = false, false
	r.signal()
	r.mu.Unlock()
	if was != nil {
		r.log.Info("the record in ZooKeeper is up to date again", "txid", uint64(want.point.Txid))
		delete(r.warned, batch.CodeOf(was))
	}
	warnings := r.conn.Warnings()
	if e, ok := errors.AsType[*batch.Error](r.conn.Err()); ok && e.Code == batch.CodeZKOverloaded {
		warnings = append(warnings, e)
	}
	for _, e := range warnings {
		if r.warnAs(e, "ZooKeeper takes what is written, but not all is well with it", now) {
			r.count(e.Code)
		}
	}
}

// signal wakes whoever waits for a round's end. REQUIRES: r.mu is held.
func (r *Record) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// fail sets the status after a round that didn't write everything. REQUIRES: r.work is held.
func (r *Record) fail(err error) {
	now := r.cfg.Now()
	r.known, r.roundAt = false, now
	r.backoff = min(max(2*r.backoff, r.cfg.RetryMin), r.cfg.RetryMax)
	r.retryAt, r.wasDown = now.Add(r.backoff), r.away() != nil
	e := failure(err)
	r.mu.Lock()
	if r.status.Err == nil {
		r.status.Since = now.UTC()
	}
	since := r.status.Since
	r.status.Err = e
	r.status.Failures[e.Code]++
	r.urgent = false
	r.signal()
	r.mu.Unlock()
	if refuses(e) || e.Kind == batch.Permanent && r.cfg.WhileAway == Stall {
		r.breakWith(e)
		return
	}
	if r.cfg.RetryFor > 0 {
		if !now.Before(since.Add(r.cfg.RetryFor)) {
			r.expire(e, now.Sub(since))
		} else if limit := since.Add(r.cfg.RetryFor); r.retryAt.After(limit) {
			r.retryAt = limit
		}
	}
	r.warn(e, now)
}

// expire does what is due when a failure has lasted for RetryFor.
func (r *Record) expire(e *batch.Error, lasted time.Duration) {
	if r.cfg.WhileAway == Stall {
		r.breakWith(r.expired(e, lasted))
		return
	}
	if !r.overdue {
		r.overdue = true
		r.log.Error("the record in ZooKeeper can't be written for longer than retry.for; batches go on without it", "error", e, "code", string(e.Code),
			"for", lasted.Round(time.Second))
	}
}

// expired is the end of a run that must not go on without the record.
func (r *Record) expired(e *batch.Error, lasted time.Duration) error {
	err := batch.NewError(batch.Permanent, e.Code, "record", fmt.Errorf("retry.for has passed: for %s no batch has committed, as %w", lasted.Round(time.Second), e.Err), e.Remedy)
	err.Pipeline = r.cfg.Pipeline
	return err
}

// refuses tells whether an error is a judgement on what was found, which ends a run under either policy.
func refuses(e *batch.Error) bool {
	return e.Kind == batch.Permanent && (e.Code == batch.CodeRecordAhead || e.Code == batch.CodeRecordForeign || e.Code == batch.CodeRecordGarbled)
}

// failure completes what the connection says.
func failure(err error) *batch.Error {
	if e, ok := errors.AsType[*batch.Error](err); ok {
		return e
	}
	return batch.NewError(batch.Transient, batch.CodeOf(err), "record", fmt.Errorf("ZooKeeper: %w", err), "")
}

func (r *Record) count(code batch.Code) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Failures[code]++
}

// warn tells that the record can't be written. REQUIRES: r.work is held.
func (r *Record) warn(e *batch.Error, now time.Time) {
	what := "the record in ZooKeeper is not up to date; trying again, batches go on"
	if r.cfg.WhileAway == Stall {
		what = "the record in ZooKeeper can't be written; trying again, no batch commits until it can"
	}
	r.warnAs(e, what, now)
}

// warnAs logs a cause, as an error if no retry mends it, unless it was logged shortly before, and tells whether it did.
// REQUIRES: r.work is held.
func (r *Record) warnAs(e *batch.Error, what string, now time.Time) bool {
	args := []any{"error", e, "code", string(e.Code)}
	last, ok := r.warned[e.Code]
	r.warned[e.Code] = now
	if ok && now.Sub(last) < quiet {
		r.log.Debug(what, args...)
		return false
	}
	level := hclog.Warn
	if e.Kind == batch.Permanent {
		level = hclog.Error
	}
	r.log.Log(level, what, args...)
	return true
}
