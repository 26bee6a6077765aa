//go:build realzk

package testenv

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

func TestSharedZooKeeper(t *testing.T) {
	z := ZooKeeper(t)
	root := z.Chroot(t, "testenv")
	c := z.Conn(t)
	if _, err := c.Create(root+"/a", []byte("content"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	// The test's own client may do everything.
	if _, err := c.Create(root+"/closed", nil, 0, zk.DigestACL(zk.PermAll, "somebody", "else")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Get(root + "/closed"); err != nil {
		t.Errorf("the super user may not read: %v", err)
	}
	if out := z.Cli(t, "get", root+"/a"); !strings.Contains(out, "content") {
		t.Errorf("zkCli shows %q", out)
	}
	if mode := z.Mode(t, 1); mode != "standalone" {
		t.Errorf("mode %q", mode)
	}
}

// Two of three nodes carry on; one alone doesn't serve; what was written is there afterwards.
func TestOwnZooKeeperFaults(t *testing.T) {
	z := OwnZooKeeper(t, Nodes(3))
	if n := len(z.Servers()); n != 3 {
		t.Fatalf("%d servers", n)
	}
	c := z.Conn(t)
	if _, err := c.Create("/a", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	leader := z.Leader(t)
	other := leader%3 + 1
	last := other%3 + 1

	z.Kill(t, other)
	if _, _, err := z.Conn(t).Exists("/a"); err != nil {
		t.Errorf("with two of three: %v", err)
	}
	z.Kill(t, leader)
	for deadline := time.Now().Add(callTimeout); z.Mode(t, last) != ""; {
		if time.Now().After(deadline) {
			t.Fatal("a node alone goes on serving")
		}
		time.Sleep(50 * time.Millisecond)
	}
	if answer := z.Word(t, last, "srvr"); !strings.Contains(answer, "not currently serving") {
		t.Errorf("a node without quorum says %q", answer)
	}
	z.Start(t)
	if ok, _, err := z.Conn(t).Exists("/a"); err != nil || !ok {
		t.Errorf("afterwards: %v, %v", ok, err)
	}

	z.Pause(t, last)
	if _, err := fourLetters(t.Context(), z.Servers()[last-1], "srvr"); err == nil {
		t.Error("a paused node answers")
	}
	z.Resume(t, last)
	// The node may first find that it was away for too long, and begin anew.
	for deadline := time.Now().Add(callTimeout); ; time.Sleep(50 * time.Millisecond) {
		answer, err := fourLetters(t.Context(), z.Servers()[last-1], "ruok")
		if answer == "imok" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("ruok: %q, %v", answer, err)
		}
	}
}

func TestProxyForZooKeeper(t *testing.T) {
	z := ZooKeeper(t)
	root := z.Chroot(t, "proxy")
	p := NewProxy(t, z.Servers()[0])
	const session = 4 * time.Second
	c, events, err := zk.Connect([]string{p.Addr}, session, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for c.State() != zk.StateHasSession {
		<-events
	}
	if p.Open() != 1 || p.Accepted() != 1 {
		t.Errorf("%d of %d connections open, want 1 of 1", p.Open(), p.Accepted())
	}

	// A create whose answer is lost has been done all the same.
	p.CutAfter(func(r ZooKeeperRequest) CutPoint {
		if r.Op == 1 {
			return CutReply
		}
		return NoCut
	})
	if _, err := c.Create(root+"/done", nil, 0, zk.WorldACL(zk.PermAll)); !errors.Is(err, zk.ErrConnectionClosed) {
		t.Errorf("create whose answer is lost: %v", err)
	}
	p.CutAfter(nil)
	if ok, _, err := z.Conn(t).Exists(root + "/done"); err != nil || !ok {
		t.Errorf("the create wasn't done: %v, %v", ok, err)
	}

	// One that was cut before the server got it hasn't.
	p.CutAfter(func(r ZooKeeperRequest) CutPoint {
		if r.Op == 1 {
			return CutBefore
		}
		return NoCut
	})
	if _, err := c.Create(root+"/lost", nil, 0, zk.WorldACL(zk.PermAll)); !errors.Is(err, zk.ErrConnectionClosed) {
		t.Errorf("create that is cut off: %v", err)
	}
	p.CutAfter(nil)
	if ok, _, err := z.Conn(t).Exists(root + "/lost"); err != nil || ok {
		t.Errorf("a create that was cut off was done: %v, %v", ok, err)
	}

	const delay = 300 * time.Millisecond
	p.Delay(delay)
	begun := time.Now()
	if _, _, err := c.Exists(root); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < delay {
		t.Errorf("delayed answer after %v", took)
	}
	p.Delay(0)

	// Swallowed answers end the connection by the client's own limit; a new one works.
	p.SwallowReplies(true)
	if _, _, err := c.Exists(root); err == nil {
		t.Error("a swallowed answer arrived")
	}
	p.SwallowReplies(false)
	deadline := time.Now().Add(callTimeout)
	for {
		if _, _, err := c.Exists(root); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no connection after the fault")
		}
	}
	p.Refuse()
	if _, err := fourLetters(t.Context(), p.Addr, "ruok"); err == nil {
		t.Error("a proxy that refuses takes connections")
	}
	p.Accept(t)
	if answer, err := fourLetters(t.Context(), p.Addr, "ruok"); err != nil || answer != "imok" {
		t.Errorf("ruok through the proxy: %q, %v", answer, err)
	}
}
