//go:build realzk

package zkconn

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/tridentd/tridentd/internal/testenv"
)

// The credentials are presented on each connection before anything else, and a cut in the middle of that is only another cut.
func TestCredentialsOnEachConnection(t *testing.T) {
	z := testenv.ZooKeeper(t)
	root := z.Chroot(t, "again")
	p := testenv.NewProxy(t, z.Servers()[0])
	const session = 6 * time.Second
	c := open(t, Config{User: "app", Password: "secret", SessionTimeout: session, ConnectTimeout: 2 * time.Second}, p.Addr)
	ctx := t.Context()
	if _, err := c.Create(ctx, root+"/a", nil, 0, zk.AuthACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	version := int32(0)
	for cut := range 5 {
		var during atomic.Int32 // authentications that are cut
		if cut == 2 {
			during.Store(1)
		}
		p.CutAfter(func(r testenv.ZooKeeperRequest) testenv.CutPoint {
			if r.Op == opAuth && during.Add(-1) >= 0 {
				return testenv.CutReply
			}
			return testenv.NoCut
		})
		lines := c.Session().Lines
		p.Cut()
		until(t, "another connection", func() bool { return c.Session().Lines > lines })
		for range 5 {
			begun := time.Now()
			stat, err := c.Set(ctx, root+"/a", fmt.Appendf(nil, "%d", version), version)
			if err != nil {
				t.Fatalf("cut %d: %v", cut, err)
			}
			version = stat.Version
			if took := time.Since(begun); took > session {
				t.Errorf("cut %d: a write took %v", cut, took)
			}
		}
		if cut == 2 && during.Load() >= 0 {
			t.Error("no authentication has been cut")
		}
	}
	if version != 25 {
		t.Errorf("%d writes, want 25", version)
	}
	if s := c.Session(); s.Number != 1 {
		t.Errorf("session %+v", s)
	}
}

// A hundred reconnects leave neither goroutines nor connections behind, whatever they meet.
func TestReconnectsLeaveNothing(t *testing.T) {
	z := testenv.ZooKeeper(t)
	root := z.Chroot(t, "cuts")
	p := testenv.NewProxy(t, z.Servers()[0])
	ignore := goleak.IgnoreCurrent()
	c := open(t, Config{SessionTimeout: 10 * time.Second, quick: time.Nanosecond}, p.Addr)
	ctx := t.Context()
	working(t, c)
	_, _, events, err := c.GetW(ctx, root)
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	const cuts = 100
	for i := range cuts {
		lines := c.Session().Lines
		switch i % 4 {
		case 0, 1:
			p.Cut()
		case 2: // during a write
			p.CutAfter(func(r testenv.ZooKeeperRequest) testenv.CutPoint {
				if r.Op == 1 {
					return testenv.CutReply
				}
				return testenv.NoCut
			})
			if _, err := c.Create(ctx, fmt.Sprintf("%s/%d", root, i), nil, 0, world); err == nil {
				t.Error("a create without its reply has succeeded")
			}
			p.CutAfter(nil)
		case 3: // during the handshake of the next one
			var once atomic.Bool
			p.CutAfter(func(r testenv.ZooKeeperRequest) testenv.CutPoint {
				if r.Xid == testenv.XidConnect && !once.Swap(true) {
					return testenv.CutBefore
				}
				return testenv.NoCut
			})
			p.Cut()
		}
		until(t, "another connection", func() bool { return c.Session().Lines > lines })
		p.CutAfter(nil)
	}
	working(t, c)
	until(t, "one connection", func() bool { return p.Open() == 1 })
	until(t, "as many goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
	if s := c.Session(); s.Number != 1 || s.Lines < cuts {
		t.Errorf("session %+v", s)
	}
	// The watch has lived through it all.
	if _, err := c.Set(ctx, root, []byte("x"), -1); err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.Type != zk.EventNodeDataChanged {
		t.Errorf("event %+v", e)
	}
	closes(t, c)
	until(t, "no connection", func() bool { return p.Open() == 0 })
	goleak.VerifyNone(t, ignore)
}

// Whatever takes sessions and drops the line at once isn't asked again without end.
func TestNoStormOfDials(t *testing.T) {
	z := testenv.ZooKeeper(t)
	var proxies []*testenv.Proxy
	var addrs []string
	for range 3 {
		p := testenv.NewProxy(t, z.Servers()[0])
		p.CutAfter(func(r testenv.ZooKeeperRequest) testenv.CutPoint {
			if r.Op >= 0 {
				return testenv.CutBefore
			}
			return testenv.NoCut
		})
		proxies, addrs = append(proxies, p), append(addrs, p.Addr)
	}
	cfg := hasty
	cfg.CallTimeout = 5 * time.Second
	c := open(t, cfg, addrs...)
	if _, _, err := c.Exists(t.Context(), "/"); err == nil {
		t.Error("a read through a line that is always cut")
	}
	accepted := 0
	for _, p := range proxies {
		accepted += p.Accepted()
	}
	if most := 12; accepted > most {
		t.Errorf("%d connections in %v, want %d at most", accepted, cfg.CallTimeout, most)
	}
	for _, p := range proxies {
		p.CutAfter(nil)
	}
	working(t, c)
}

// Calls that were given up don't pile up behind a server that hangs.
func TestGivenUpCallsEnd(t *testing.T) {
	z := testenv.ZooKeeper(t)
	p := testenv.NewProxy(t, z.Servers()[0])
	cfg := hasty
	cfg.SessionTimeout, cfg.CallTimeout = 30*time.Second, time.Second
	ignore := goleak.IgnoreCurrent()
	c := open(t, cfg, p.Addr)
	working(t, c)
	before := runtime.NumGoroutine()
	p.SwallowReplies(true)
	for range 3 * maxCalls {
		go func() { _, _, _ = c.Exists(t.Context(), "/") }()
	}
	until(t, "the line is given up long before the session", func() bool { return c.Session().State != Connected })
	p.SwallowReplies(false)
	p.Cut()
	working(t, c)
	until(t, "as many goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
	closes(t, c)
	goleak.VerifyNone(t, ignore)
}
