package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/txstate"
)

// Role is what a process is to a pipeline.
type Role uint8

const (
	Sole    Role = iota // there is no lock, or it hasn't been taken yet
	Leader              // it has the lock, and runs the pipeline
	Standby             // it waits until it may
)

func (r Role) String() string {
	switch r {
	case Leader:
		return "leader"
	case Standby:
		return "standby"
	case Sole:
	}
	return ""
}

// directoryPoll is the time between two looks at a data directory that another process has.
const directoryPoll = 200 * time.Millisecond

// lockRetryMax is the largest back-off while the lock can't be asked for: nobody leads meanwhile, and an attempt takes its time, as it
// waits for a connection.
const lockRetryMax = 3 * time.Second

// lossGrace is how long the end of a term whose record somebody else has written waits for the lease to be confirmed or lost.
const lossGrace = 5 * time.Second

func errNoLock(pipeline string) error {
	e := batch.NewError(batch.Permanent, batch.CodeConfiguration, "standby", errors.New("the pipeline has no lock, so that nothing says which process leads"),
		"give it zookeeper with role: lock, or start it without --standby")
	e.Pipeline = pipeline
	return e
}

// underLock runs the pipeline in terms: each begins with taking the lock and ends with giving it up. Without Options.Standby
// there is one.
//
// The order is: lock, directory, the epoch, claimed in the store and under the lock, then everything else. At
// the end the store is closed before the lock is given up, so that the next leader finds the directory free.
func (h *Handle) underLock(ctx context.Context) (err error) {
	lock, err := h.plan.Keeper.Lock(plan.Env{Logger: h.log})
	if err != nil {
		return errors.Join(err, h.closeStore())
	}
	h.mu.Lock()
	h.lock = lock
	h.mu.Unlock()
	defer func() {
		h.endsWith(err)
		// Also where the run never led: then the store, if it is open, hasn't been closed.
		err = errors.Join(err, h.closeStore())
		closing, cancel := context.WithTimeout(ctx, closeGrace)
		defer cancel()
		if cerr := lock.Close(closing); cerr != nil {
			h.log.Warn("the lock couldn't be given up; it ends with its session", "error", cerr)
		}
	}()
	for {
		lease, err := h.acquire(ctx, lock)
		if err != nil || lease == nil {
			return err
		}
		opened, err := h.takeStore(ctx, lease)
		if err == nil && opened {
			err = h.term(ctx, lease)
		}
		h.endsWith(err)
		lost := batch.CodeOf(err) == batch.CodeLockLost && err != nil
		h.release(ctx, lease)
		if !lost || !h.o.Standby || h.isDrained() {
			return err
		}
		h.o.Observer.Failed(err)
		h.stepDown()
	}
}

// acquire takes the lock; no lease if the run was drained before. While the lock can't be asked for nothing is lost by waiting, so
// that this is tried again for as long as it takes, whatever limits the failures of the record.
func (h *Handle) acquire(ctx context.Context, lock txstate.Lock) (lease txstate.Lease, err error) {
	ctx, cancel := h.untilDrained(ctx)
	defer cancel()
	ok, err := h.retryWithin(ctx, "taking the lock", lockRetryMax, func() (err error) {
		lease, err = lock.Acquire(ctx, h.o.Standby)
		return err
	})
	if errors.Is(err, errDrained) {
		err = nil
	}
	if !ok {
		return nil, err
	}
	return lease, nil
}

// takeStore opens the store under the lease. A process that held the lock before may need a moment to leave the directory, and one
// that was stopped leaves it only when it goes on: it is waited for. ok is false if the run was drained before.
func (h *Handle) takeStore(ctx context.Context, lease txstate.Lease) (ok bool, err error) {
	h.mu.Lock()
	open := h.db != nil
	h.mu.Unlock()
	for !open {
		err := h.openStore(ctx)
		switch {
		case err == nil:
			open = true
			continue
		case batch.CodeOf(err) != batch.CodeStoreInUse:
			return false, err
		}
		h.setOpening(err)
		t := time.NewTimer(directoryPoll)
		select {
		case <-t.C:
		case <-lease.Lost():
			t.Stop()
			return false, lease.Err()
		case <-h.drain:
			t.Stop()
			return false, nil
		}
	}
	h.setOpening(nil)
	h.mu.Lock()
	h.role = Leader
	h.mu.Unlock()
	return true, nil
}

// release gives the lock up, in an orderly way if the time allows it.
func (h *Handle) release(ctx context.Context, lease txstate.Lease) {
	closing, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	if err := lease.Release(closing); err != nil {
		h.log.Warn("the lock couldn't be given up; it ends with its session", "error", err)
	}
}

// lossOf is why the lease is lost, nil if it isn't, at the end of a term that failed with err. A master that is deposed may learn that
// from what another one has written before its lease has noticed: the lease is asked.
func (h *Handle) lossOf(lease txstate.Lease, err error) error {
	if err == nil {
		return lease.Err()
	}
	ctx, cancel := context.WithTimeout(context.Background(), lossGrace)
	defer cancel()
	ctx, undrained := h.untilDrained(ctx)
	defer undrained()
	code := batch.CodeOf(err)
	if c, ok := lease.(txstate.Confirming); ok && (code == batch.CodeRecordForeign || code == batch.CodeRecordAhead) {
		_ = c.Confirm(ctx)
	} else { // it looks at the clock, and isn't waited for
		cancel()
		_ = lease.Pass(ctx)
	}
	return lease.Err()
}

// stepDown makes a standby of a run that has lost its lock.
func (h *Handle) stepDown() {
	h.leaveMirrors()
	h.mu.Lock()
	h.role, h.fatal, h.cause, h.opening, h.closed, h.targets = Standby, nil, nil, nil, false, nil
	h.mu.Unlock()
	h.log.Warn("waiting for the lock again")
}

// closeStore closes the store of a run that never led.
func (h *Handle) closeStore() error {
	h.mu.Lock()
	db := h.db
	h.db, h.closed = nil, true
	h.mu.Unlock()
	if db == nil {
		return nil
	}
	if h.o.BeforeClose != nil {
		h.o.BeforeClose()
	}
	return db.Close()
}

func (h *Handle) isDrained() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.drained
}

// waits says what a standby waits for.
func (h *Handle) waits(opening error) string {
	h.mu.Lock()
	lock := h.lock
	h.mu.Unlock()
	if opening != nil {
		return "standby: " + opening.Error()
	}
	if lock != nil {
		if holder := lock.Holder(); holder != "" {
			return fmt.Sprintf("standby: %s is held by %s", lock.Name(), holder)
		}
	}
	return "standby: the lock is being asked for"
}

// errStandby is what a standby answers to whoever asks for what only the leader has.
var errStandby = batch.NewError(batch.Transient, batch.CodeUnavailable, "ask", errors.New("this process is a standby, and has no data open"), "ask the process that leads")
