package zkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/batch"
)

// fakeSession is a session with the ensemble in memory: what a lock needs besides.
type fakeSession struct {
	*fake
	session Session
	owner   map[string]int64                // of the ephemeral nodes
	watches map[string][]chan zk.Event      // that haven't fired
	watched []string                        // each watch that was asked for
	hang    func(ctx context.Context) error // in place of every request that writes or checks
	created int
}

func newFakeSession(f *fake, id int64) *fakeSession {
	return &fakeSession{fake: f, session: Session{ID: id, Timeout: 9 * time.Second, Up: true}, owner: map[string]int64{}, watches: map[string][]chan zk.Event{}}
}

func (s *fakeSession) set(session Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = session
}

func (s *fakeSession) Session() Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

func (s *fakeSession) Multi(ctx context.Context, ops ...any) error {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		return hang(ctx)
	}
	return s.fake.Multi(ctx, ops...)
}

func (s *fakeSession) Get(ctx context.Context, p string) ([]byte, *zk.Stat, error) {
	data, stat, err := s.fake.Get(ctx, p)
	if err == nil {
		s.mu.Lock()
		stat.EphemeralOwner = s.owner[p]
		s.mu.Unlock()
	}
	return data, stat, err
}

func (s *fakeSession) Create(ctx context.Context, p string, data []byte, _ int32, acl []zk.ACL) (string, error) {
	s.mu.Lock()
	s.created++
	p = fmt.Sprintf("%s%010d", p, 1000+s.created)
	s.owner[p] = s.session.ID
	s.mu.Unlock()
	return p, s.fake.Multi(ctx, &zk.CreateRequest{Path: p, Data: data, Acl: acl})
}

func (s *fakeSession) Delete(_ context.Context, p string, _ int32) error {
	s.remove(p)
	return nil
}

func (s *fakeSession) ExistsW(_ context.Context, p string) (bool, *zk.Stat, <-chan zk.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan zk.Event, 1)
	s.watches[p] = append(s.watches[p], c)
	s.watched = append(s.watched, p)
	return s.nodes[p] != nil, &zk.Stat{EphemeralOwner: s.owner[p]}, c, nil
}

// remove deletes a node, and fires its watches.
func (s *fakeSession) remove(p string) {
	s.fake.remove(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.watches[p] {
		c <- zk.Event{Type: zk.EventNodeDeleted, Path: p}
	}
	delete(s.watches, p)
}

func (s *fakeSession) asked(p string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(s.watched), func(q string) bool { return q != p }))
}

// openLock returns a lock by the clock of the test's bubble.
func openLock(t *testing.T, s *fakeSession) *Lock {
	t.Helper()
	l, err := NewLock(Config{Pipeline: "words", ID: "words"}, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l.now = func() time.Duration { return time.Hour + time.Since(began) }
	return l
}

// TestWaitingLeavesOneWatch: a standby that waits for long looks again and again, and asks to be told of its predecessor once in
// each session.
func TestWaitingLeavesOneWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		const before = base + "/lock/somebody-0000000007"
		f.put(before, `{"tridentd":1,"host":"h","pid":1,"holds":true}`)
		s := newFakeSession(f, 1)
		l := openLock(t, s)
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 3 { // as the engine does after a failure
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				_, err = l.Acquire(ctx, true)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					return
				}
			}
		}()
		time.Sleep(150 * time.Minute)
		synctest.Wait()
		if n := s.asked(before); n != 1 {
			t.Errorf("in %d looks or so %d watches were left on the predecessor", 2*150*60/9, n)
		}
		s.mu.Lock()
		if n := len(s.watched); n != 1 {
			t.Errorf("%d watches in all: %q", n, s.watched)
		}
		s.mu.Unlock()
		s.set(Session{ID: 2, Timeout: 9 * time.Second, Up: true}) // the old one's watches have ended with it
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := s.asked(before); n != 2 {
			t.Errorf("%d watches in two sessions", n)
		}
		began := time.Now()
		s.remove(before)
		<-done
		if err != nil || time.Since(began) > 0 {
			t.Errorf("the lock was taken %s after it was free: %v", time.Since(began), err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// holds takes the lock, which is free.
func holds(t *testing.T, l *Lock) *Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	return lease.(*Lease)
}

// TestLostInTime: the loss is told when the limit has passed, also while a request hangs.
func TestLostInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession(newFake(), 1)
		l := openLock(t, s)
		lease := holds(t, l)
		began := time.Now()
		s.mu.Lock()
		s.hang = func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		s.mu.Unlock()
		<-lease.Lost()
		if d := time.Since(began); d > 7500*time.Millisecond { // five sixths of 9 s
			t.Errorf("told %s after the last confirmation", d)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestShorterTimeout: a server that grants the session less time on a later connection ends it sooner; one that grants more may be
// followed by one that doesn't.
func TestShorterTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession(newFake(), 1)
		l := openLock(t, s)
		lease := holds(t, l)
		time.Sleep(2 * time.Second) // confirmed after one and a half
		s.set(Session{ID: 1, Timeout: 3 * time.Second, Up: true})
		s.mu.Lock()
		s.hang = func(context.Context) error { return errDown }
		s.mu.Unlock()
		time.Sleep(1500 * time.Millisecond)
		if err := lease.Pass(func() context.Context { ctx, cancel := context.WithCancel(t.Context()); cancel(); return ctx }()); !errors.Is(err, context.Canceled) {
			t.Errorf("%v in doubt", err)
		}
		time.Sleep(500 * time.Millisecond) // two and a half since the confirmation
		synctest.Wait()
		if _, err := lease.state(); batch.CodeOf(err) != batch.CodeLockLost {
			t.Errorf("the lock outlives a session of 3 s: %v", err)
		}
		s.mu.Lock()
		s.hang = nil
		s.mu.Unlock()
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}

		l = openLock(t, s)
		lease = holds(t, l)
		s.set(Session{ID: 1, Timeout: time.Minute, Up: true})
		time.Sleep(10 * time.Second)
		s.mu.Lock()
		s.hang = func(context.Context) error { return errDown }
		s.mu.Unlock()
		time.Sleep(3 * time.Second)
		if _, err := lease.state(); batch.CodeOf(err) != batch.CodeLockLost {
			t.Errorf("the lock outlives a session that had 3 s: %v", err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestAskingHasNoLimit: retry.for ends no asking for the lock, by a standby or not: each failure is one that may be tried again.
func TestAskingHasNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession(newFake(), 1)
		s.setDown(errDown)
		l, err := NewLock(Config{Pipeline: "words", ID: "words", WhileAway: Stall, RetryFor: time.Minute}, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		for wait := range 60 {
			if _, err := l.Acquire(t.Context(), wait%2 == 0); batch.KindOf(err) != batch.Transient || batch.CodeOf(err) != batch.CodeZKRefused {
				t.Fatalf("after %d minutes: %v", wait, err)
			}
			time.Sleep(time.Minute)
		}
		s.setDown(nil)
		holds(t, l)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
