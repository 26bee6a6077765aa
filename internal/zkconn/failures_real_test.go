//go:build realzk

package zkconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/testenv"
)

// lateness is by how much a busy machine may miss a limit. What has no limit waits far longer.
const lateness = 10 * time.Second

// hasty has limits that are short enough for tests.
var hasty = Config{SessionTimeout: 4 * time.Second, ConnectTimeout: time.Second, CallTimeout: 3 * time.Second}

// named fails unless err is an environment's failure with this code, a remedy and these words.
func named(t *testing.T, err error, code batch.Code, words ...string) {
	t.Helper()
	e, ok := errors.AsType[*batch.Error](err)
	if !ok || e.Code != code || e.Remedy == "" {
		t.Errorf("error %v, want code %s and a remedy", err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(e.Error(), w) {
			t.Errorf("error %q, want one that says %q", e, w)
		}
	}
}

// working waits until a read succeeds, and returns the time that it took.
func working(t *testing.T, c *Conn) {
	t.Helper()
	until(t, "a read succeeds", func() bool {
		_, _, err := c.Exists(t.Context(), "/")
		return err == nil
	})
}

// failing waits until Err has this code.
func failing(t *testing.T, c *Conn, code batch.Code, words ...string) {
	t.Helper()
	until(t, string(code), func() bool { return c.Err() != nil && batch.CodeOf(c.Err()) == code })
	named(t, c.Err(), code, words...)
}

// limited checks that a call ends in time, and with this code.
func limited(t *testing.T, c *Conn, code batch.Code) {
	t.Helper()
	begun := time.Now()
	_, _, err := c.Get(t.Context(), "/")
	named(t, err, code)
	if took := time.Since(begun); took > c.cfg.CallTimeout+lateness {
		t.Errorf("a call took %v, the limit is %v", took, c.cfg.CallTimeout)
	}
}

// closes checks that Close ends soon in any state.
func closes(t *testing.T, c *Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	begun := time.Now()
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(begun); took > time.Second+lateness {
		t.Errorf("Close took %v", took)
	}
}

func TestQuorumLost(t *testing.T) {
	z := testenv.OwnZooKeeper(t, testenv.Nodes(3))
	c := open(t, hasty, z.Servers()...)
	working(t, c)
	z.Kill(t, 1, 2)
	failing(t, c, batch.CodeZKNoQuorum, z.Servers()[2], "no connection since", "too few servers", "start more than half")
	limited(t, c, batch.CodeZKNoQuorum)
	if _, err := c.Create(t.Context(), "/x", nil, 0, world); errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("a write that was never sent has an unknown outcome: %v", err)
	}
	z.Start(t)
	working(t, c)
	if err := c.Err(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	z.Kill(t)
	failing(t, c, batch.CodeZKRefused, "refused")
	limited(t, c, batch.CodeZKRefused)
	closes(t, c)
}

func TestNoAnswer(t *testing.T) {
	z := testenv.OwnZooKeeper(t)
	c := open(t, hasty, z.Servers()...)
	working(t, c)
	z.Pause(t)
	begun := time.Now()
	_, err := c.Create(t.Context(), "/x", nil, 0, world)
	named(t, err, batch.CodeZKNoAnswer)
	if !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("a write without an answer: %v, want an unknown outcome", err)
	}
	if took := time.Since(begun); took > hasty.CallTimeout+lateness {
		t.Errorf("the write took %v", took)
	}
	failing(t, c, batch.CodeZKNoAnswer)
	limited(t, c, batch.CodeZKNoAnswer)

	other := open(t, hasty, z.Servers()...)
	failing(t, other, batch.CodeZKNoAnswer, "takes connections")
	closes(t, other)

	z.Resume(t)
	working(t, c)
	z.Pause(t)
	closes(t, c)
	z.Resume(t)
}

// A server that hangs is left for another, with the same session.
func TestAnotherServerTakesOver(t *testing.T) {
	z := testenv.OwnZooKeeper(t, testenv.Nodes(3))
	cfg := hasty
	cfg.SessionTimeout = 15 * time.Second
	c := open(t, cfg, z.Servers()...)
	working(t, c)
	s := c.Session()
	for i, server := range z.Servers() {
		if server == s.Server {
			z.Pause(t, i+1)
		}
	}
	working(t, c)
	until(t, "another server", func() bool { now := c.Session(); return now.State == Connected && now.Server != s.Server })
	working(t, c)
	if now := c.Session(); now.ID != s.ID || now.Number != s.Number || now.Lines < 2 {
		t.Errorf("session %+v, before %+v", now, s)
	}
}

func TestSwallowedReplies(t *testing.T) {
	z := testenv.ZooKeeper(t)
	p := testenv.NewProxy(t, z.Servers()[0])
	c := open(t, hasty, p.Addr)
	working(t, c)
	p.SwallowReplies(true)
	_, err := c.Create(t.Context(), "/never", nil, 0, world)
	named(t, err, batch.CodeZKNoAnswer)
	if !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("write: %v", err)
	}
	p.SwallowReplies(false)
	working(t, c)
	_ = c.Delete(t.Context(), "/never", -1)
}

func TestCut(t *testing.T) {
	z := testenv.ZooKeeper(t)
	p := testenv.NewProxy(t, z.Servers()[0])
	c := open(t, hasty, p.Addr)
	working(t, c)
	root := z.Chroot(t, "cut")

	p.CutAfter(func(r testenv.ZooKeeperRequest) testenv.CutPoint {
		if r.Op == 5 {
			return testenv.CutReply
		}
		return testenv.NoCut
	})
	_, err := c.Set(t.Context(), root, []byte("done"), 0)
	named(t, err, batch.CodeZKCut, root)
	if !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("write: %v", err)
	}
	p.CutAfter(nil)
	if data, _, err := c.Get(t.Context(), root); err != nil || string(data) != "done" {
		t.Errorf("afterwards %q, %v", data, err)
	}

	// What takes connections and closes them isn't taken for ZooKeeper, nor for something else.
	closing := listen(t, func(conn net.Conn) { conn.Close() })
	other := open(t, hasty, closing)
	failing(t, other, batch.CodeZKCut, "closes them")
	limited(t, other, batch.CodeZKCut)
}

func TestOverloaded(t *testing.T) {
	z := testenv.ZooKeeper(t)
	p := testenv.NewProxy(t, z.Servers()[0])
	cfg := hasty
	cfg.SessionTimeout, cfg.CallTimeout = 20*time.Second, 10*time.Second
	c := open(t, cfg, p.Addr)
	working(t, c)
	p.Delay(slowAnswer + 200*time.Millisecond)
	if _, _, err := c.Get(t.Context(), "/"); err != nil {
		t.Errorf("slow is not wrong: %v", err)
	}
	named(t, c.Err(), batch.CodeZKOverloaded, "last answer")
	p.Delay(0)
	working(t, c)
	if err := c.Err(); err != nil {
		t.Errorf("quick again: %v", err)
	}
}

// A server that has too much to do says so, and does nothing.
func TestThrottled(t *testing.T) {
	z := testenv.OwnZooKeeper(t, testenv.Set("request_throttle_max_requests", "1"), testenv.Set("throttled_op_wait_time", "1"))
	c := open(t, Config{}, z.Servers()...)
	working(t, c)
	errs := make(chan error, 200)
	for i := range cap(errs) {
		go func() {
			_, err := c.Create(t.Context(), fmt.Sprintf("/n%d", i), nil, 0, world)
			errs <- err
		}()
	}
	throttled := 0
	for range cap(errs) {
		if err := <-errs; err != nil {
			named(t, err, batch.CodeZKOverloaded, "throttles")
			throttled++
		}
	}
	children, _, err := c.Children(t.Context(), "/")
	for err != nil && batch.CodeOf(err) == batch.CodeZKOverloaded {
		children, _, err = c.Children(t.Context(), "/")
	}
	if err != nil || len(children) != cap(errs)-throttled+1 {
		t.Errorf("%d of %d throttled, %d nodes, %v", throttled, cap(errs), len(children), err)
	}
	if throttled == 0 {
		t.Error("nothing was throttled")
	}
}

// More connections than the server allows from one address.
func TestTooManyConnections(t *testing.T) {
	z := testenv.OwnZooKeeper(t, testenv.Set("maxClientCnxns", "3"))
	var open_ []*Conn
	for range 3 {
		c := open(t, hasty, z.Servers()...)
		working(t, c)
		open_ = append(open_, c)
	}
	c := open(t, hasty, z.Servers()...)
	until(t, "a name for it", func() bool { return c.Err() != nil })
	// The word that would tell is refused, too, so that the two can't be told apart from a network that cuts.
	if code := batch.CodeOf(c.Err()); code != batch.CodeZKOverloaded && code != batch.CodeZKCut {
		t.Errorf("error %v", c.Err())
	}
	closes(t, open_[0])
	working(t, c)
}

func TestSomethingElse(t *testing.T) {
	k := testenv.Kafka(t)
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	c := open(t, hasty, k.Brokers()[0])
	failing(t, c, batch.CodeZKNotZK, "Kafka broker", k.Brokers()[0])
	c = open(t, hasty, web.Listener.Addr().String())
	failing(t, c, batch.CodeZKNotZK, "HTTP")
	greeting := listen(t, func(conn net.Conn) { fmt.Fprint(conn, "220 mail ready\r\n") })
	c = open(t, hasty, greeting)
	failing(t, c, batch.CodeZKNotZK, "220")
	limited(t, c, batch.CodeZKNotZK)

	// TLS where there is none.
	z := testenv.ZooKeeper(t)
	cfg := hasty
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	c = open(t, cfg, z.Servers()...)
	until(t, "a name for it", func() bool { return c.Err() != nil })
	if code := batch.CodeOf(c.Err()); code != batch.CodeZKNotZK && code != batch.CodeZKNoAnswer {
		t.Errorf("TLS against a plain port: %v", c.Err())
	}
}

func TestUnresolved(t *testing.T) {
	z := testenv.OwnZooKeeper(t, testenv.Nodes(3))
	const nobody = "zookeeper.invalid:2181"
	c := open(t, hasty, nobody)
	failing(t, c, batch.CodeZKUnresolved, nobody)
	limited(t, c, batch.CodeZKUnresolved)

	// One of three is no hindrance, and is named.
	c = open(t, hasty, nobody, z.Servers()[1], z.Servers()[2])
	working(t, c)
	until(t, "a warning", func() bool { return len(c.Warnings()) == 1 })
	named(t, c.Warnings()[0], batch.CodeZKUnresolved, nobody)
	if err := c.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
}

func TestChrootThatCannotBeMade(t *testing.T) {
	z := testenv.ZooKeeper(t)
	root := z.Chroot(t, "closed")
	if _, err := z.Conn(t).SetACL(root, zk.WorldACL(zk.PermRead), -1); err != nil {
		t.Fatal(err)
	}
	c := open(t, Config{Chroot: root + "/a/b"}, z.Servers()...)
	named(t, c.MakePath(t.Context(), "/x", world), batch.CodeZKNoChroot, root+"/a/b", "create on "+root, "nobody in particular")
	_, _, err := c.Get(t.Context(), "/x")
	named(t, err, batch.CodeZKNoChroot, root+"/a/b")
}

func TestNoPermission(t *testing.T) {
	z := testenv.ZooKeeper(t)
	root := z.Chroot(t, "owned")
	ctx := t.Context()
	owner := open(t, Config{User: "app", Password: "secret"}, z.Servers()...)
	if _, err := owner.Create(ctx, root+"/a", []byte("1"), 0, zk.AuthACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []Config{{}, {User: "other", Password: "secret"}} {
		c := open(t, cfg, z.Servers()...)
		_, _, err := c.Get(ctx, root+"/a")
		named(t, err, batch.CodeZKNoRights, "read on "+root+"/a", c.Identity())
		_, err = c.Set(ctx, root+"/a", nil, -1)
		named(t, err, batch.CodeZKNoRights, "write on "+root+"/a", c.Identity())
		_, err = c.Create(ctx, root+"/a/b", nil, 0, world)
		named(t, err, batch.CodeZKNoRights, "create on "+root+"/a", c.Identity())
		err = c.Multi(ctx, &zk.CheckVersionRequest{Path: root, Version: -1}, &zk.SetDataRequest{Path: root + "/a", Version: -1})
		named(t, err, batch.CodeZKNoRights, "write on "+root+"/a", c.Identity())
	}
	// An ACL for the authenticated identity, without one.
	c := open(t, Config{}, z.Servers()...)
	_, err := c.Create(ctx, root+"/b", nil, 0, zk.AuthACL(zk.PermAll))
	named(t, err, batch.CodeConfiguration, "ACL")
}

// Servers that want an identity, and a server that knows no digest identities.
func TestNotAuthenticated(t *testing.T) {
	z := testenv.OwnZooKeeper(t, testenv.Set("enforce.auth.enabled", "true"), testenv.Set("enforce.auth.schemes", "digest"))
	c := open(t, hasty, z.Servers()...)
	_, _, err := c.Get(t.Context(), "/")
	named(t, err, batch.CodeZKNoAuth, "authenticated sessions only")
	cfg := hasty
	cfg.User, cfg.Password = "app", "secret"
	working(t, open(t, cfg, z.Servers()...))
	_, all := diagnose(t, hasty, z.Servers()...)
	finding(t, all, batch.CodeZKNoAuth)

	none := testenv.OwnZooKeeper(t, testenv.Set("DigestAuthenticationProvider.enabled", "false"),
		testenv.Set("authProvider.1", "org.apache.zookeeper.server.auth.IPAuthenticationProvider"))
	c = open(t, cfg, none.Servers()...)
	failing(t, c, batch.CodeZKNoAuth, "refused the credentials of digest user app")
	limited(t, c, batch.CodeZKNoAuth)
	if strings.Contains(c.Err().Error(), cfg.Password) {
		t.Errorf("the message has the password: %v", c.Err())
	}
	_, all = diagnose(t, cfg, none.Servers()...)
	finding(t, all, batch.CodeZKNoAuth)
}

func TestTooLarge(t *testing.T) {
	z := testenv.ZooKeeper(t)
	root := z.Chroot(t, "large")
	c := open(t, Config{}, z.Servers()...)
	data := make([]byte, DefaultMaxBytes+1)
	_, err := c.Set(t.Context(), root, data, -1)
	named(t, err, batch.CodeZKTooLarge, root, fmt.Sprint(DefaultMaxBytes))
	if batch.KindOf(err) != batch.Permanent {
		t.Errorf("kind %v", batch.KindOf(err))
	}
	if _, err := c.Set(t.Context(), root, data[:DefaultMaxBytes-1000], -1); err != nil {
		t.Errorf("just below the limit: %v", err)
	}

	// A server that takes less than we thought cuts the line, again and again.
	cfg := Config{MaxBytes: 4 << 20}
	c = open(t, cfg, z.Servers()...)
	data = make([]byte, 2<<20)
	_, err = c.Set(t.Context(), root, data, -1)
	if !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("first: %v", err)
	}
	_, err = c.Set(t.Context(), root, data, -1)
	named(t, err, batch.CodeZKTooLarge, "2 times in a row", "jute.maxbuffer")

	// A list of children that is larger than any request is no hindrance.
	const multis, each = 20, 100
	for i := range multis {
		var ops []any
		for j := range each {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/%0600d", root, each*i+j), Acl: world})
		}
		if err := c.Multi(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
	if children, _, err := c.Children(t.Context(), root); err != nil || len(children) != multis*each {
		t.Errorf("%d children, %v", len(children), err)
	}
}

func TestSessionExpired(t *testing.T) {
	z := testenv.ZooKeeper(t)
	root := z.Chroot(t, "expiry")
	p := testenv.NewProxy(t, z.Servers()[0])
	cfg := hasty
	cfg.SessionTimeout = time.Second
	c := open(t, cfg, p.Addr)
	ctx := t.Context()
	working(t, c)
	watch, stop := c.Watch()
	defer stop()
	if s := <-watch; s.State != Connected || s.Number != 1 {
		t.Errorf("session %+v", s)
	}
	if _, err := c.Create(ctx, root+"/e", nil, zk.FlagEphemeral, world); err != nil {
		t.Fatal(err)
	}
	first := c.Session()
	if d := first.Deadline(); !d.After(first.Since) || d.After(time.Now().Add(first.Timeout)) {
		t.Errorf("deadline %v of %+v", d, first)
	}
	p.Refuse()
	bare := z.Conn(t)
	until(t, "the server ends the session", func() bool {
		there, _, err := bare.Exists(root + "/e")
		return err == nil && !there
	})
	if now := time.Now(); now.Before(c.Session().Deadline()) {
		t.Errorf("the server has ended the session at %v, before the deadline %v", now, c.Session().Deadline())
	}
	p.Accept(t)
	until(t, "the expiry is known", func() bool { s := c.Session(); return s.Number == 2 || s.State == Expired })
	if err := c.Err(); err != nil {
		named(t, err, batch.CodeZKExpired, fmt.Sprintf("%#x", first.ID))
	}
	until(t, "another session", func() bool { return c.Session().Number == 2 && c.Session().State == Connected })
	seen := map[State]bool{}
	for len(watch) > 0 {
		seen[(<-watch).State] = true
	}
	if !seen[Connected] {
		t.Errorf("the watch has seen %v", seen)
	}
	if s := c.Session(); s.ID == first.ID {
		t.Errorf("session %+v", s)
	}
	working(t, c)

	// A call of the old session is not made in the new one.
	_, err := c.Create(InSession(ctx, first.Number), root+"/late", nil, zk.FlagEphemeral, world)
	named(t, err, batch.CodeZKExpired)
	if _, err := c.Create(InSession(ctx, 2), root+"/e", nil, zk.FlagEphemeral, world); err != nil {
		t.Error(err)
	}
	closes(t, c)
	// A close ends the session at once, and with it what hung on it.
	if there, _, err := bare.Exists(root + "/e"); err != nil || there {
		t.Errorf("after Close: %v, %v", there, err)
	}
}

// listen serves connections until the test ends, and returns its address. Each is closed when serve has returned and the other
// side has closed it, or the test has ended.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go serve(conn)
		}
	}()
	return l.Addr().String()
}
