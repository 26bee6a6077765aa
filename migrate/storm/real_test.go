//go:build realzk

package storm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/internal/zkconn"
)

func connect(t *testing.T, cfg zkconn.Config) *Ensemble {
	t.Helper()
	e, err := Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return e
}

// TestRealNodes: nodes as Storm has written them, read from a real ZooKeeper, which is left as it was.
func TestRealNodes(t *testing.T) {
	server := testenv.ZooKeeper(t)
	plain := server.Conn(t)
	for _, w := range written {
		t.Run(w.file, func(t *testing.T) {
			below := server.Chroot(t, "storm")
			paths, nodes := fixture(t, w.file)
			for _, p := range paths {
				if _, err := plain.Create(below+p, []byte(nodes[p]), 0, zk.WorldACL(zk.PermAll)); err != nil {
					t.Fatal(err)
				}
			}
			e := connect(t, zkconn.Config{Servers: server.Servers()})
			l, err := w.read(t, e, below)
			expect(t, l, err, w.want)
			for _, p := range paths {
				data, st, err := plain.Get(below + p)
				if err != nil || string(data) != nodes[p] || st.Version != 0 {
					t.Errorf("%s: %q, version %d, %v", p, data, st.Version, err)
				}
			}
		})
	}
}

// TestRealRights: a cluster that lets only its own identity read (storm.zookeeper.topology.auth.scheme: digest).
func TestRealRights(t *testing.T) {
	server := testenv.ZooKeeper(t)
	plain := server.Conn(t)
	below := server.Chroot(t, "storm")
	acl := zk.DigestACL(zk.PermAll, "storm", "secret")
	if err := plain.AddAuth("digest", []byte("storm:secret")); err != nil {
		t.Fatal(err)
	}
	_, nodes := fixture(t, "spout-1.2.4.txt")
	for _, p := range []string{"/kafka", "/kafka/words", "/kafka/words/partition_0"} {
		if _, err := plain.Create(below+p, []byte(nodes[p]), 0, acl); err != nil {
			t.Fatal(err)
		}
	}
	_, err := ReadSpout(t.Context(), connect(t, zkconn.Config{Servers: server.Servers()}), below+"/kafka", "words")
	if batch.CodeOf(err) != batch.CodeZKNoRights || err == nil {
		t.Errorf("without an identity: %v", err)
	}
	l, err := ReadSpout(t.Context(), connect(t, zkconn.Config{Servers: server.Servers(), User: "storm", Password: "secret"}), below+"/kafka", "words")
	expect(t, l, err, "lines-0=120 current 0")
}

// TestRealAway: a server that isn't there is named, in time, as what it is.
func TestRealAway(t *testing.T) {
	e := connect(t, zkconn.Config{Servers: []string{"127.0.0.1:1"}, CallTimeout: time.Second})
	_, err := ReadTrident(t.Context(), e, "/transactional", "words")
	if e := (*batch.Error)(nil); !errors.As(err, &e) || e.Code != batch.CodeZKRefused || e.Kind != batch.Transient {
		t.Errorf("%v", err)
	}
}
