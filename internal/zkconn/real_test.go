//go:build realzk

package zkconn

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/testenv"
)

var world = zk.WorldACL(zk.PermAll)

const patience = 60 * time.Second

// open returns a Conn with short time-outs, which is closed with the test.
func open(t *testing.T, cfg Config, servers ...string) *Conn {
	t.Helper()
	cfg.Servers = servers
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func TestNodes(t *testing.T) {
	z := testenv.ZooKeeper(t)
	root := z.Chroot(t, "zkconn")
	ctx := t.Context()
	c := open(t, Config{Chroot: root + "/a/b"}, z.Servers()...)

	// A missing chroot is named where something is read, and made where something is.
	_, _, err := c.Get(ctx, "/x")
	if batch.CodeOf(err) != batch.CodeZKNoChroot || !errors.Is(err, zk.ErrNoNode) {
		t.Errorf("Get without chroot: %v", err)
	}
	if there, _, err := c.Exists(ctx, "/x"); err != nil || there {
		t.Errorf("Exists without chroot: %v, %v", there, err)
	}
	if p, err := c.Create(ctx, "/x", []byte("1"), 0, world); err != nil || p != "/x" {
		t.Fatalf("Create: %q, %v", p, err)
	}
	if _, err := c.Create(ctx, "/x", nil, 0, world); !errors.Is(err, zk.ErrNodeExists) {
		t.Errorf("Create again: %v", err)
	}
	data, stat, err := c.Get(ctx, "/x")
	if err != nil || string(data) != "1" || stat.Version != 0 {
		t.Errorf("Get: %q, %+v, %v", data, stat, err)
	}
	if _, err := c.Set(ctx, "/x", []byte("2"), 7); !errors.Is(err, zk.ErrBadVersion) {
		t.Errorf("Set with another version: %v", err)
	}
	if stat, err = c.Set(ctx, "/x", []byte("2"), 0); err != nil || stat.Version != 1 {
		t.Errorf("Set: %+v, %v", stat, err)
	}
	if err := c.MakePath(ctx, "/p/q/r", world); err != nil {
		t.Error(err)
	}
	if err := c.MakePath(ctx, "/p/q/r", world); err != nil {
		t.Error(err)
	}
	if err := c.Delete(ctx, "/p", -1); !errors.Is(err, zk.ErrNotEmpty) {
		t.Errorf("Delete of a node with children: %v", err)
	}
	if acl, _, err := c.ACL(ctx, "/x"); err != nil || len(acl) != 1 || acl[0].Scheme != "world" {
		t.Errorf("ACL: %v, %v", acl, err)
	}

	create := &zk.CreateRequest{Path: "/m", Data: []byte("m"), Acl: world}
	if err := c.Multi(ctx, create, &zk.CheckVersionRequest{Path: "/x", Version: 1}, &zk.DeleteRequest{Path: "/p/q/r", Version: 0}); err != nil {
		t.Errorf("Multi: %v", err)
	}
	if create.Path != "/m" {
		t.Errorf("Multi has changed the path to %s", create.Path)
	}
	err = c.Multi(ctx, &zk.SetDataRequest{Path: "/m", Data: nil, Version: -1}, &zk.CheckVersionRequest{Path: "/x", Version: 5}, &zk.DeleteRequest{Path: "/none"})
	if !errors.Is(err, zk.ErrBadVersion) || err.Error() != "multi "+root+"/a/b/x: zk: version conflict" {
		t.Errorf("Multi that fails: %v", err)
	}
	children, _, err := c.Children(ctx, "/")
	if err != nil || len(children) != 3 {
		t.Errorf("Children: %v, %v", children, err)
	}

	_, _, events, err := c.GetW(ctx, "/m")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, "/m", -1); err != nil {
		t.Error(err)
	}
	if e := <-events; e.Type != zk.EventNodeDeleted {
		t.Errorf("event %+v", e)
	}
	there, _, events, err := c.ExistsW(ctx, "/m")
	if err != nil || there {
		t.Fatalf("ExistsW: %v, %v", there, err)
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
	if e := <-events; e.Type != zk.EventNotWatching {
		t.Errorf("event at the end: %+v", e)
	}
	if _, _, err := c.Get(ctx, "/x"); !errors.Is(err, ErrClosed) {
		t.Errorf("Get on a closed Conn: %v", err)
	}
}
