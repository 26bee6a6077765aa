package zkstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// Lease is a Lock that is held. Whoever asks it reads the clock: a process that was stopped for longer than its session finds
// out before it does anything, whichever of its goroutines runs first.
type Lease struct {
	lock    *Lock
	node    string // ours, below the chroot
	version int32  // of the node, since the lock was taken
	session int64

	wake    chan struct{} // asks for a confirmation now; room for one
	release chan struct{}
	stopped chan struct{}
	lost    chan struct{}
	ctx     context.Context // of what goes on in the background
	cancel  context.CancelFunc
	once    sync.Once

	mu      sync.Mutex
	tenure  tenure
	epoch   batch.Epoch
	err     error
	changed chan struct{} // closed, and made anew, at each confirmation
}

var _ txstate.Lease = (*Lease)(nil)

func newLease(l *Lock, node string, version int32, s Session, epoch batch.Epoch, sent time.Duration) *Lease {
	e := &Lease{
		lock: l, node: node, version: version, session: s.ID, epoch: epoch,
		tenure:  tenure{timeout: s.Timeout, confirmed: sent},
		wake:    make(chan struct{}, 1),
		release: make(chan struct{}),
		stopped: make(chan struct{}),
		lost:    make(chan struct{}),
		changed: make(chan struct{}),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	go e.run()
	return e
}

// Epoch implements txstate.Lease.
func (e *Lease) Epoch() batch.Epoch {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch
}

// Lost implements txstate.Lease.
func (e *Lease) Lost() <-chan struct{} { return e.lost }

// Err implements txstate.Lease.
func (e *Lease) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// Guard returns the check that makes a write to ZooKeeper conditional on the lock: Config.Guard.
func (e *Lease) Guard() []any {
	return []any{&zk.CheckVersionRequest{Path: e.node, Version: e.version}}
}

// state says how things stand now, by the clock, and takes note of a loss.
func (e *Lease) state() (tenancy, error) {
	now, timeout := e.lock.now(), e.lock.conn.Session().Timeout
	e.mu.Lock()
	e.tenure.grant(timeout)
	t, err, since := e.tenure.state(now), e.err, now-e.tenure.confirmed
	limit := e.tenure.limit()
	e.mu.Unlock()
	if err == nil && t == expired {
		err = e.lose(fmt.Errorf("ZooKeeper hasn't confirmed it for %s, and after %s another process may have it", since.Round(time.Millisecond), limit.Round(time.Millisecond)))
	}
	if err != nil {
		return expired, err
	}
	return t, nil
}

// Pass implements txstate.Gate.
func (e *Lease) Pass(ctx context.Context) error {
	for {
		e.mu.Lock()
		changed := e.changed
		e.mu.Unlock()
		t, err := e.state()
		switch {
		case err != nil:
			return err
		case t == valid && e.lock.conn.Session().Up:
			return nil
		}
		e.poke()
		timer := time.NewTimer(recheck)
		select {
		case <-changed:
		case <-timer.C:
		case <-e.lost:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}

// Holding is why Pass keeps batches waiting; nil if it doesn't.
func (e *Lease) Holding() error {
	t, err := e.state()
	up := e.lock.conn.Session().Up
	switch cerr := e.lock.conn.Err(); {
	case err != nil:
		return err
	case up && t == valid:
		return nil
	case cerr != nil:
		return cerr
	case t != valid:
		return batch.NewError(batch.Transient, batch.CodeZKNoAnswer, "lock", fmt.Errorf("%s hasn't been confirmed for a while", e.lock.name), "see to the servers of the ensemble")
	}
	return nil
}

func (e *Lease) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// run confirms the lease until it is lost or released.
func (e *Lease) run() {
	defer close(e.stopped)
	var gone <-chan zk.Event
	for {
		if _, err := e.state(); err != nil {
			return
		}
		if e.lock.conn.Session().Up {
			e.confirm()
			if gone == nil {
				gone = e.watch()
			}
		}
		t := time.NewTimer(e.next())
		select {
		case <-t.C:
		case <-e.wake:
			if !e.lock.conn.Session().Up { // whoever waits asks again soon
				select {
				case <-t.C:
				case <-e.release:
				}
			}
		case <-gone:
			gone = nil
		case <-e.release:
		}
		t.Stop()
		select {
		case <-e.release:
			return
		default:
		}
	}
}

// next is the time until the lease is to be confirmed again, or has run out. While the connection is down it is looked at more
// often.
func (e *Lease) next() time.Duration {
	e.mu.Lock()
	t := e.tenure
	e.mu.Unlock()
	wait := t.beat()
	if !e.lock.conn.Session().Up {
		wait = min(wait, recheck)
	}
	return max(min(wait, t.left(e.lock.now())), 0)
}

// confirm asks whether the node still stands: by a request that the leader answers, so that no server that is itself cut off
// from the ensemble can.
func (e *Lease) confirm() {
	if !e.same() {
		return
	}
	e.mu.Lock()
	limit := e.tenure.timeout / 3
	e.mu.Unlock()
	ctx, cancel := e.within(limit)
	defer cancel()
	sent := e.lock.now()
	err := e.lock.conn.Multi(ctx, e.Guard()...)
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		if e.same() {
			e.lose(fmt.Errorf("its node %s was removed or changed", e.lock.cfg.Chroot+e.node)) //nolint:errcheck // it is kept
		}
		return
	case err != nil || !e.same():
		return
	}
	e.mu.Lock()
	e.tenure.confirm(sent)
	close(e.changed)
	e.changed = make(chan struct{})
	e.mu.Unlock()
}

// within bounds a request by limit and by the time after which the lock is lost anyway, so that this is noticed then.
func (e *Lease) within(limit time.Duration) (context.Context, context.CancelFunc) {
	e.mu.Lock()
	left := e.tenure.left(e.lock.now())
	e.mu.Unlock()
	return context.WithTimeout(e.ctx, min(limit, left))
}

// same tells whether the session is the one that the lock was taken in. With another, even if the node is still there, nothing
// keeps it there.
func (e *Lease) same() bool {
	s := e.lock.conn.Session()
	if s.ID == e.session || s.ID == 0 {
		return true
	}
	e.lose(errors.New("the session in which it was taken has ended")) //nolint:errcheck // it is kept
	return false
}

// watch has a removal of the node noticed at once.
func (e *Lease) watch() <-chan zk.Event {
	ctx, cancel := e.within(cleanupLimit)
	defer cancel()
	there, _, gone, err := e.lock.conn.ExistsW(ctx, e.node)
	if err != nil {
		return nil
	}
	if !there { // since the last confirmation
		e.poke()
	}
	return gone
}

// lose takes note that the lock is lost, and returns why: the first cause counts.
func (e *Lease) lose(cause error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		b := batch.NewError(batch.Permanent, batch.CodeLockLost, "lock", fmt.Errorf("%s is lost: %w", e.lock.name, cause),
			"start again: what was not committed is done by whoever holds the lock; with --standby a process waits for it again by itself")
		b.Pipeline = e.lock.cfg.Pipeline
		e.err = b
		close(e.lost)
	}
	return e.err
}

// Claim implements txstate.Lease. A claim whose reply was lost is recognised by its content.
func (e *Lease) Claim(ctx context.Context, epoch batch.Epoch) error {
	l := e.lock
	me := self(l.cfg.Now(), true)
	text := encodeNode(epochNode{Version: lockFormat, Pipeline: l.cfg.Pipeline, Epoch: epoch, Host: me.Host, PID: me.PID, Claimed: me.Since})
	var last error
	for range claims {
		if err := e.Pass(ctx); err != nil {
			return err
		}
		found, version, err := l.readEpoch(ctx)
		if err != nil {
			return err
		}
		e.mu.Lock()
		e.epoch = max(e.epoch, found)
		e.mu.Unlock()
		if last != nil && found == epoch { // nobody else can have written it: our node has been there all the time
			if data, _, err := l.conn.Get(ctx, l.epoch); err != nil || string(data) == string(text) {
				return err
			}
		}
		if found >= epoch {
			return batch.NewError(batch.Transient, batch.CodeLockHeld, "lock", fmt.Errorf("epoch %d is to be claimed, %s holds %d already", epoch, l.cfg.Chroot+l.epoch, found),
				"it is tried again with a higher one")
		}
		var op any = &zk.SetDataRequest{Path: l.epoch, Data: text, Version: version}
		if version < 0 {
			op = &zk.CreateRequest{Path: l.epoch, Data: text, Acl: l.cfg.ACL}
		}
		if last = l.conn.Multi(ctx, append(e.Guard(), op)...); last == nil {
			e.mu.Lock()
			e.epoch = epoch
			e.mu.Unlock()
			l.log.Info("epoch claimed", "epoch", uint64(epoch))
			return nil
		}
		e.poke() // if our node is gone, that is soon known
	}
	return last
}

// Release implements txstate.Lease. What can't be removed now ends with the session, or is removed by the next Acquire.
func (e *Lease) Release(ctx context.Context) error {
	e.once.Do(func() {
		close(e.release)
		e.cancel()
	})
	select {
	case <-e.stopped:
	case <-ctx.Done():
	}
	_ = e.lose(errors.New("it was given up"))
	l := e.lock
	l.mu.Lock()
	if l.lease == e {
		l.lease = nil
	}
	l.mu.Unlock()
	l.withdraw(ctx)
	return nil
}

// Under implements txstate.Leased: each write is conditional on the lock, in one request.
func (r *Record) Under(lease txstate.Lease) {
	e, ok := lease.(interface{ Guard() []any })
	if !ok {
		panic(fmt.Sprintf("zkstore: a record can't work under a %T", lease))
	}
	r.work.Lock()
	defer r.work.Unlock()
	r.cfg.Guard = e.Guard
}

var _ txstate.Leased = (*Record)(nil)
