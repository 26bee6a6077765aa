//go:build realzk

package zkstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/internal/zkconn"
	"github.com/tridentd/tridentd/txstate"
)

// realConn tells a lock of the session, as connect/zookeeper does.
type realConn struct{ *zkconn.Conn }

func (c realConn) Session() Session {
	s := c.Conn.Session()
	if s.State == zkconn.Expired {
		s.ID = NoSession
	}
	return Session{ID: s.ID, Timeout: s.Timeout, Up: s.State == zkconn.Connected}
}

// testLock returns a lock with a connection of its own, through addr.
func testLock(t *testing.T, addr, chroot string, session time.Duration) *Lock {
	t.Helper()
	c, err := zkconn.New(zkconn.Config{Servers: strings.Split(addr, ","), Chroot: chroot, SessionTimeout: session})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLock(Config{Pipeline: "words", ID: "words", Chroot: chroot}, realConn{c}, c.Close)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // the test's own has ended
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("closing a lock: %v", err)
		}
	})
	return l
}

func acquire(t *testing.T, l *Lock) txstate.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lease, err := l.Acquire(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func passes(t *testing.T, lease txstate.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := lease.Pass(ctx); err != nil {
		t.Fatalf("the holder isn't let pass: %v", err)
	}
}

func isLost(t *testing.T, lease txstate.Lease, within time.Duration) {
	t.Helper()
	select {
	case <-lease.Lost():
	case <-time.After(within):
		t.Fatalf("the lease isn't lost within %s", within)
	}
	err := lease.Pass(t.Context())
	if batch.CodeOf(err) != batch.CodeLockLost || batch.KindOf(err) != batch.Permanent || !errors.Is(err, lease.Err()) {
		t.Errorf("a lost lease says %v", err)
	}
}

// One holds the lock, the others wait in the order in which they came; who doesn't want to wait learns who holds it. The epoch only
// rises.
func TestRealLock(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "lock")
	first := acquire(t, testLock(t, z.Addr, chroot, 10*time.Second))
	passes(t, first)
	if e := first.Epoch(); e != 0 {
		t.Errorf("epoch %d before anybody has claimed one", e)
	}
	for _, epoch := range []batch.Epoch{3, 4} {
		if err := first.Claim(t.Context(), epoch); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Claim(t.Context(), 4); batch.KindOf(err) != batch.Transient || batch.CodeOf(err) != batch.CodeLockHeld {
		t.Errorf("an epoch is claimed twice: %v", err)
	}

	_, err := testLock(t, z.Addr, chroot, 10*time.Second).Acquire(t.Context(), false)
	me := self(time.Time{}, true)
	if batch.CodeOf(err) != batch.CodeLockHeld || batch.KindOf(err) != batch.Permanent {
		t.Fatalf("a lock that is held is refused with %v", err)
	}
	for _, s := range []string{fmt.Sprintf("process %d on %s, which holds it since 20", me.PID, me.Host), chroot + "/trident/words/lock"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the refusal doesn't say %q: %v", s, err)
		}
	}
	out := z.Cli(t, "get", chroot+"/trident/words/epoch")
	if !strings.Contains(out, `"pipeline":"words","epoch":4,"host":`) {
		t.Errorf("zkCli prints of the epoch:\n%s", out)
	}

	var order []int
	var mu sync.Mutex
	var wg sync.WaitGroup
	const waiting = 3
	by := z.Conn(t)
	for i := range waiting {
		l := testLock(t, z.Addr, chroot, 10*time.Second)
		wg.Go(func() {
			lease, err := l.Acquire(t.Context(), true)
			if err != nil {
				t.Errorf("waiting: %v", err)
				return
			}
			mu.Lock()
			order = append(order, i)
			epoch := lease.Epoch() + 1
			mu.Unlock()
			if err := lease.Claim(t.Context(), epoch); err != nil {
				t.Errorf("claiming %d: %v", epoch, err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
		until(t, fmt.Sprintf("%d in the queue", i+2), func() bool {
			all, _, err := by.Children(chroot + "/trident/words/lock")
			return err == nil && len(all) == i+2
		})
		if h := l.Holder(); h != "" && !strings.Contains(h, "holds it") {
			t.Errorf("the holder is given as %q", h)
		}
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if !slices.IsSorted(order) || len(order) != waiting {
		t.Errorf("the lock was taken in the order %v", order)
	}
	data, _, err := by.Get(chroot + "/trident/words/epoch")
	var n epochNode
	if err != nil || json.Unmarshal(data, &n) != nil || n.Epoch != 4+waiting {
		t.Errorf("the epoch is %s, %v", data, err)
	}
	if all, _, err := by.Children(chroot + "/trident/words/lock"); err != nil || len(all) != 0 {
		t.Errorf("%v is left of the queue, %v", all, err)
	}
}

// What somebody else does to the nodes.
func TestRealLockNodesChangedByHand(t *testing.T) {
	z := testenv.ZooKeeper(t)
	by := z.Conn(t)
	dir := func(chroot string) string { return chroot + "/trident/words/lock" }
	only := func(t *testing.T, chroot string) string {
		t.Helper()
		all, _, err := by.Children(dir(chroot))
		if err != nil || len(all) != 1 {
			t.Fatalf("nodes %v, %v", all, err)
		}
		return dir(chroot) + "/" + all[0]
	}
	t.Run("the holder's node is removed", func(t *testing.T) {
		chroot := z.Chroot(t, "lock")
		l := testLock(t, z.Addr, chroot, 10*time.Second)
		lease := acquire(t, l)
		if err := by.Delete(only(t, chroot), -1); err != nil {
			t.Fatal(err)
		}
		isLost(t, lease, 3*time.Second)
		if err := lease.Claim(t.Context(), 5); batch.CodeOf(err) != batch.CodeLockLost {
			t.Errorf("an epoch is claimed without the lock: %v", err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		again := acquire(t, l)
		passes(t, again)
	})
	t.Run("the holder's node is written to", func(t *testing.T) {
		chroot := z.Chroot(t, "lock")
		lease := acquire(t, testLock(t, z.Addr, chroot, 10*time.Second))
		if _, err := by.Set(only(t, chroot), []byte("mine"), -1); err != nil {
			t.Fatal(err)
		}
		isLost(t, lease, 5*time.Second)
	})
	t.Run("a node in the queue is removed", func(t *testing.T) {
		chroot := z.Chroot(t, "lock")
		first := acquire(t, testLock(t, z.Addr, chroot, 10*time.Second))
		holder := only(t, chroot)
		l := testLock(t, z.Addr, chroot, 4*time.Second)
		var leads atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := l.Acquire(t.Context(), true); err != nil {
				t.Errorf("waiting: %v", err)
			}
			leads.Store(true)
		}()
		second := func() (string, bool) {
			all, _, err := by.Children(dir(chroot))
			for _, n := range all {
				if err == nil && dir(chroot)+"/"+n != holder {
					return dir(chroot) + "/" + n, true
				}
			}
			return "", false
		}
		var node string
		until(t, "a second in the queue", func() (ok bool) { node, ok = second(); return ok })
		if err := by.Delete(node, -1); err != nil {
			t.Fatal(err)
		}
		until(t, "it queues again", func() bool { n, ok := second(); return ok && n != node })
		if leads.Load() {
			t.Error("two hold the lock")
		}
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-done
	})
	t.Run("foreign nodes", func(t *testing.T) {
		chroot := z.Chroot(t, "lock")
		l := testLock(t, z.Addr, chroot, 10*time.Second)
		if err := acquire(t, l).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := by.Create(dir(chroot)+"/readme", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, l)
		for content, code := range map[string]batch.Code{
			"": batch.CodeRecordGarbled, "{}": batch.CodeRecordGarbled, `{"tridentd":1,"pipeline":"other","epoch":9}`: batch.CodeRecordForeign,
		} {
			_, err := by.Set(chroot+"/trident/words/epoch", []byte(content), -1)
			if errors.Is(err, zk.ErrNoNode) {
				_, err = by.Create(chroot+"/trident/words/epoch", []byte(content), 0, zk.WorldACL(zk.PermAll))
			}
			if err != nil {
				t.Fatal(err)
			}
			err = lease.Claim(t.Context(), 20)
			if batch.CodeOf(err) != code || batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), chroot+"/trident/words/epoch") {
				t.Errorf("an epoch node of %q: %v", content, err)
			}
		}
	})
}

// The reply to the request that makes the node, or claims the epoch, is lost: it is recognised as done.
func TestRealLockLostReplies(t *testing.T) {
	z := testenv.ZooKeeper(t)
	const create, multi = 1, 14
	for _, point := range []testenv.CutPoint{testenv.CutBefore, testenv.CutReply} {
		t.Run(fmt.Sprintf("node, cut point %d", point), func(t *testing.T) {
			chroot := z.Chroot(t, "lock")
			p := testenv.NewProxy(t, z.Addr)
			l := testLock(t, p.Addr, chroot, 10*time.Second)
			var cut atomic.Bool
			p.CutAfter(func(r testenv.ZooKeeperRequest) testenv.CutPoint {
				if r.Op == create && strings.Contains(string(r.Body), l.process) && cut.CompareAndSwap(false, true) {
					return point
				}
				return testenv.NoCut
			})
			var lease txstate.Lease
			until(t, "the lock", func() bool { // a failure is the caller's to try again
				var err error
				lease, err = l.Acquire(t.Context(), true)
				return err == nil
			})
			passes(t, lease)
			if all, _, err := z.Conn(t).Children(chroot + "/trident/words/lock"); err != nil || len(all) != 1 || !cut.Load() {
				t.Errorf("nodes %v, %v; cut: %t", all, err, cut.Load())
			}
		})
		t.Run(fmt.Sprintf("epoch, cut point %d", point), func(t *testing.T) {
			chroot := z.Chroot(t, "lock")
			p := testenv.NewProxy(t, z.Addr)
			lease := acquire(t, testLock(t, p.Addr, chroot, 10*time.Second))
			var cut atomic.Bool
			p.CutAfter(func(r testenv.ZooKeeperRequest) testenv.CutPoint {
				if r.Op == multi && strings.Contains(string(r.Body), `"epoch":7`) && cut.CompareAndSwap(false, true) {
					return point
				}
				return testenv.NoCut
			})
			if err := lease.Claim(t.Context(), 7); err != nil || !cut.Load() {
				t.Fatalf("%v; cut: %t", err, cut.Load())
			}
			data, stat, err := z.Conn(t).Get(chroot + "/trident/words/epoch")
			if err != nil || !strings.Contains(string(data), `"epoch":7`) || stat.Version != 0 {
				t.Errorf("the epoch is %s, version %d, %v", data, stat.Version, err)
			}
			passes(t, lease)
		})
	}
}

// A connection that is lost for a moment changes nothing: nobody passes meanwhile, then the same lease goes on.
func TestRealLockShortLoss(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "lock")
	p := testenv.NewProxy(t, z.Addr)
	l := testLock(t, p.Addr, chroot, 40*time.Second) // far longer than it is away
	lease := acquire(t, l)
	for range 2 {
		p.Refuse()
		until(t, "the loss is noticed", func() bool { return !l.conn.Session().Up })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := lease.Pass(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a connection Pass says %v", err)
		}
		cancel()
		if lease.(*Lease).Holding() == nil {
			t.Error("it isn't said what is waited for")
		}
		p.Accept(t)
		passes(t, lease)
	}
	select {
	case <-lease.Lost():
		t.Errorf("the lease is lost: %v", lease.Err())
	default:
	}
}

// The holder is cut off: the next one leads within the session's time-out and two seconds, and at no moment do two hold the lock.
func TestRealLockCutOff(t *testing.T) {
	z := testenv.ZooKeeper(t)
	const session = 4 * time.Second
	for name, off := range map[string]func(*testenv.Proxy){
		"cut":             func(p *testenv.Proxy) { p.Refuse() },
		"answers dropped": func(p *testenv.Proxy) { p.SwallowReplies(true); p.SwallowRequests(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chroot := z.Chroot(t, "lock")
			p := testenv.NewProxy(t, z.Addr)
			lease := acquire(t, testLock(t, p.Addr, chroot, session))
			next := testLock(t, z.Addr, chroot, session)
			leads := make(chan txstate.Lease, 1)
			go func() {
				lease, err := next.Acquire(t.Context(), true)
				if err != nil {
					t.Errorf("waiting: %v", err)
				}
				leads <- lease
			}()
			until(t, "a second in the queue", func() bool { return next.Holder() != "" })
			began := time.Now()
			off(p)
			var second txstate.Lease
			for second == nil {
				select {
				case second = <-leads:
				case <-time.After(session + 3*time.Second):
					t.Fatal("nobody leads")
				}
			}
			took := time.Since(began)
			// By its own clock the first one has given up before.
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := lease.Pass(ctx); batch.CodeOf(err) != batch.CodeLockLost {
				t.Errorf("the first one isn't told that it has lost the lock: %v", err)
			}
			if took > session+2*time.Second {
				t.Errorf("the next one led after %s", took)
			}
			t.Logf("after %s: %v", took.Round(time.Millisecond), lease.Err())
			passes(t, second)
		})
	}
}

// A process that was stopped for longer than its session finds out before anything else, though its connection still seems to be fine,
// and whichever goroutine runs first.
func TestRealLockStoppedClock(t *testing.T) {
	z := testenv.ZooKeeper(t)
	l := testLock(t, z.Addr, z.Chroot(t, "lock"), 10*time.Second)
	var ahead atomic.Int64
	l.now = func() time.Duration { return sinceBoot() + time.Duration(ahead.Load()) }
	lease := acquire(t, l)
	passes(t, lease)
	ahead.Store(int64(8500 * time.Millisecond))
	if err := lease.Pass(t.Context()); batch.CodeOf(err) != batch.CodeLockLost {
		t.Fatalf("after 8.5 s without a confirmation: %v", err)
	}
	isLost(t, lease, time.Second)
}

// The record's writes are conditional on the lock, in the request itself.
func TestRealRecordUnderALostLock(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "lock")
	lease := acquire(t, testLock(t, z.Addr, chroot, 10*time.Second))
	r, err := New(Config{Pipeline: "words", ID: "words", Chroot: chroot, WhileAway: Stall}, dial(t, z, chroot), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Under(lease)
	if err := r.Reconcile(t.Context(), history{id: store, txid: 1}.standing()); err != nil {
		t.Fatal(err)
	}
	r.Advance(at(1))
	written(t, r, 1)
	by := z.Conn(t)
	all, _, err := by.Children(chroot + "/trident/words/lock")
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if err := by.Delete(chroot+"/trident/words/lock/"+all[0], -1); err != nil {
		t.Fatal(err)
	}
	r.Advance(at(2))
	until(t, "the write is refused", func() bool { return r.Status().Err != nil })
	data, _, err := by.Get(chroot + base + "/record")
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := parseRecord(data); err != nil || rec.Committed.Txid != 1 {
		t.Errorf("the record is %s, %v", data, err)
	}
	r.Close(t.Context()) //nolint:errcheck // what couldn't be written has been told
}

// The ensemble loses its leader and elects another: the holder waits, and goes on with the same lease; the queue stays.
func TestRealLockElection(t *testing.T) {
	z := testenv.OwnZooKeeper(t, testenv.Nodes(3))
	chroot := z.Chroot(t, "lock")
	lease := acquire(t, testLock(t, z.Addr, chroot, 40*time.Second))
	next := testLock(t, z.Addr, chroot, 40*time.Second)
	leads := make(chan txstate.Lease, 1)
	go func() {
		lease, err := next.Acquire(t.Context(), true)
		for err != nil && t.Context().Err() == nil { // as the engine does
			lease, err = next.Acquire(t.Context(), true)
		}
		leads <- lease
	}()
	until(t, "a second in the queue", func() bool { return next.Holder() != "" })
	z.Kill(t, z.Leader(t))
	confirmed := lease.(*Lease).tenureNow().confirmed
	until(t, "a confirmation by the new leader", func() bool { return lease.(*Lease).tenureNow().confirmed > confirmed+3*time.Second })
	passes(t, lease)
	select {
	case <-leads:
		t.Fatal("two hold the lock")
	case <-lease.Lost():
		t.Fatalf("the lease is lost: %v", lease.Err())
	default:
	}
	if err := lease.Claim(t.Context(), 9); err != nil {
		t.Error(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case second := <-leads:
		passes(t, second)
		if second.Epoch() != 9 {
			t.Errorf("the next one is told epoch %d", second.Epoch())
		}
	case <-time.After(time.Minute):
		t.Error("the next one doesn't lead")
	}
}

func (e *Lease) tenureNow() tenure {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tenure
}
