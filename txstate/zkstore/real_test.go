//go:build realzk

package zkstore

import (
	"context"
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

func dial(t *testing.T, z *testenv.ZooKeeperServer, chroot string) *zkconn.Conn {
	t.Helper()
	return connect(t, zkconn.Config{Servers: z.Servers(), Chroot: chroot})
}

func connect(t *testing.T, cfg zkconn.Config) *zkconn.Conn {
	t.Helper()
	c, err := zkconn.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // the test's own has ended
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// written waits until a record has written a point.
func written(t *testing.T, r *Record, txid batch.Txid) {
	t.Helper()
	until(t, fmt.Sprintf("txid %d in ZooKeeper", txid), func() bool {
		st := r.Status()
		return st.Txid == txid && !st.Pending
	})
}

// TestRealRecord: ZooKeeper's own client shows what was written, byte for byte; nodes that somebody removes or fills by hand are
// made right again; a store that isn't ours is refused.
func TestRealRecord(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "record")
	change := func(c *Config) { c.Chroot = chroot }
	open := func() *Record {
		t.Helper()
		cfg := Config{Pipeline: "words", ID: "words"}
		change(&cfg)
		r, err := New(cfg, dial(t, z, chroot), nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := open()
	if err := r.Reconcile(t.Context(), history{id: store, txid: 1}.standing()); err != nil {
		t.Fatal(err)
	}
	r.Advance(at(1))
	written(t, r, 1)
	out := z.Cli(t, "get", chroot+base+"/record")
	for _, s := range []string{`"pipeline": "words"`, `"txid": 1`, `"chain": "0000000000000065"`} {
		if !strings.Contains(out, s) {
			t.Errorf("zkCli prints no %s:\n%s", s, out)
		}
	}
	if out := z.Cli(t, "get", chroot+base+"/sources/lines/0000"); !strings.Contains(out, `{"topic":"lines","partition":0,"next":10,"txid":1},`+"\n") {
		t.Errorf("zkCli prints of the positions:\n%s", out)
	}

	by := z.Conn(t)
	for txid, do := range map[batch.Txid]func() error{
		2: func() error { return by.Delete(chroot+base+"/record", -1) },
		3: func() error { return by.Delete(chroot+base+"/sources/lines/0000", -1) },
		4: func() error { _, err := by.Set(chroot+base+"/record", []byte("rubbish"), -1); return err },
		5: func() error {
			_, err := by.Create(chroot+base+"/sources/lines/0001", nil, 0, zk.WorldACL(zk.PermAll))
			return err
		},
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		// The map's order is any: the txid only has to be another one.
		r.Advance(at(txid))
		written(t, r, txid)
		data, _, err := by.Get(chroot + base + "/record")
		if err != nil {
			t.Fatal(err)
		}
		if rec, err := parseRecord(data); err != nil || rec.Committed.Txid != txid {
			t.Errorf("after change %d the record is %q, %v", txid, data, err)
		}
	}
	kept := 0
	children, _, err := by.Children(chroot + base)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range children {
		if isGarbledName(c) {
			kept++
			if data, _, err := by.Get(chroot + base + "/" + c); err != nil || string(data) != "rubbish" {
				t.Errorf("kept beside: %q, %v", data, err)
			}
		}
	}
	if kept != 1 {
		t.Errorf("beside each other are %q", children)
	}
	r.Advance(at(6))
	written(t, r, 6)
	shut(t, r)

	r = open()
	defer shut(t, r)
	if all, err := r.Carried(t.Context()); err != nil || len(all) != 2 || all[0].Next != 60 {
		t.Errorf("carried %+v, %v", all, err)
	}
	if err := r.Reconcile(t.Context(), history{id: store, txid: 5}.standing()); batch.CodeOf(err) != batch.CodeRecordAhead || !strings.Contains(err.Error(), chroot+base+"/record") {
		t.Errorf("an older store: %v", err)
	}
	if err := r.Reconcile(t.Context(), history{id: other, txid: 8, chain: foreignChain}.standing()); batch.CodeOf(err) != batch.CodeRecordForeign {
		t.Errorf("another store: %v", err)
	}
}

// TestRealManyPartitions writes 25,000 partitions of topics with names of 100 characters, and moves them all.
func TestRealManyPartitions(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "wide")
	r, err := New(Config{Pipeline: "words", ID: "words", Chroot: chroot}, dial(t, z, chroot), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, r)
	for txid := batch.Txid(1); txid <= 3; txid++ {
		r.Advance(txstate.Point{Txid: txid, Epoch: 1, Chain: 1, Positions: wide(func(int) batch.Txid { return txid })})
		written(t, r, txid)
	}
	if st := r.Status(); len(st.Failures) > 0 {
		t.Errorf("failures %v", st.Failures)
	}
	all, err := r.Carried(t.Context())
	if err != nil || len(all) != 25000 {
		t.Fatalf("%d positions, %v", len(all), err)
	}
	for _, c := range all {
		if c.Txid != 3 || c.Next != 3 {
			t.Fatalf("%+v", c)
		}
	}
}

// TestRealLostReplies: requests whose reply is lost, as the line is cut behind them, are recognised as done. Each point is
// written once, whatever is cut.
func TestRealLostReplies(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "lost")
	proxy := testenv.NewProxy(t, z.Servers()[0])
	r, err := New(Config{Pipeline: "words", ID: "words", Chroot: chroot}, connect(t, zkconn.Config{Servers: []string{proxy.Addr}, Chroot: chroot}), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, r)
	by := z.Conn(t)
	for txid := batch.Txid(1); txid <= 6; txid++ {
		cut := []testenv.CutPoint{testenv.CutReply, testenv.CutBefore}[txid%2]
		var mu sync.Mutex
		armed := true
		proxy.CutAfter(func(q testenv.ZooKeeperRequest) testenv.CutPoint {
			mu.Lock()
			defer mu.Unlock()
			const multi = 14
			if q.Op != multi || !armed {
				return testenv.NoCut
			}
			armed = false
			return cut
		})
		r.Advance(at(txid))
		written(t, r, txid)
		mu.Lock()
		if armed {
			t.Errorf("txid %d: nothing was cut", txid)
		}
		mu.Unlock()
		data, stat, err := by.Get(chroot + base + "/record")
		if err != nil {
			t.Fatal(err)
		}
		if rec, err := parseRecord(data); err != nil || rec.Committed.Txid != txid || stat.Version != int32(txid-1) {
			t.Errorf("txid %d: version %d of %s, %v", txid, stat.Version, data, err)
		}
	}
	st := r.Status()
	if len(st.Failures) == 0 || st.Failures[batch.CodeRecordForeign]+st.Failures[batch.CodeRecordGarbled] > 0 {
		t.Errorf("failures %v", st.Failures)
	}
	children, _, err := by.Children(chroot + base)
	if err != nil || len(children) != 2 {
		t.Errorf("beside each other are %q, %v", children, err)
	}
}

// TestRealDigest: nodes have the ACL that was asked for, and after each of five cuts, one of them during authentication, five
// points are written with the same identity; others may read, if the ACL says so, and write nothing.
func TestRealDigest(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "digest")
	proxy := testenv.NewProxy(t, z.Servers()[0])
	acl, err := ParseACL([]string{"auth:cdrwa", "world:r"}, true)
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, zkconn.Config{Servers: []string{proxy.Addr}, Chroot: chroot, User: "app", Password: "secret"})
	r, err := New(Config{Pipeline: "words", ID: "words", Chroot: chroot, ACL: acl}, conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, r)
	txid := batch.Txid(0)
	for round := range 5 {
		if round == 2 {
			var once atomic.Bool
			proxy.CutAfter(func(q testenv.ZooKeeperRequest) testenv.CutPoint {
				const auth = 100
				if q.Op == auth && once.CompareAndSwap(false, true) {
					return testenv.CutReply
				}
				return testenv.NoCut
			})
		}
		proxy.Cut()
		for range 5 {
			txid++
			r.Advance(at(txid))
			written(t, r, txid)
		}
	}
	if st := r.Status(); st.Failures[batch.CodeZKNoRights]+st.Failures[batch.CodeZKNoAuth] > 0 || txid != 25 {
		t.Errorf("failures %v after %d points", st.Failures, txid)
	}
	got, _, err := z.Conn(t).GetACL(chroot + base + "/record")
	if err != nil || len(got) != 2 || !slices.ContainsFunc(got, func(a zk.ACL) bool {
		return a.Scheme == "digest" && strings.HasPrefix(a.ID, "app:") && a.Perms == zk.PermAll
	}) {
		t.Errorf("the ACL is %v, %v", got, err)
	}

	stranger, err := New(Config{Pipeline: "words", ID: "words", Chroot: chroot}, dial(t, z, chroot), nil)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := stranger.Carried(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("others read %v, %v", all, err)
	}
	if err := stranger.Reconcile(t.Context(), history{id: store, txid: 30}.standing()); err != nil {
		t.Errorf("others compare: %v", err)
	}
	stranger.Advance(at(30))
	until(t, "the refusal", func() bool { return stranger.Status().Err != nil })
	if e := stranger.Status().Err; batch.CodeOf(e) != batch.CodeZKNoRights || !strings.Contains(e.Error(), base) {
		t.Errorf("others write: %v", e)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := stranger.Close(ctx); batch.CodeOf(err) != batch.CodeZKNoRights {
		t.Errorf("closed with %v", err)
	}
}

// TestRealNoAnswer: while a server takes requests and answers nothing, a stall holds batches back soon and a close doesn't wait;
// once it answers, the record is right again.
func TestRealNoAnswer(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "silent")
	proxy := testenv.NewProxy(t, z.Servers()[0])
	conn := connect(t, zkconn.Config{Servers: []string{proxy.Addr}, Chroot: chroot, SessionTimeout: 4 * time.Second, CallTimeout: 3 * time.Second})
	r, err := New(Config{Pipeline: "words", ID: "words", Chroot: chroot, WhileAway: Stall}, conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Reconcile(t.Context(), history{id: store, txid: 1}.standing()); err != nil {
		t.Fatal(err)
	}
	r.Advance(at(1))
	written(t, r, 1)
	proxy.SwallowReplies(true)
	r.Advance(at(2))
	if r.Holding() == nil {
		t.Error("a batch may pass before the one before is written")
	}
	until(t, "the failure", func() bool { return r.Status().Err != nil })
	if e := r.Status().Err; batch.CodeOf(e) != batch.CodeZKNoAnswer {
		t.Errorf("named as %v", e)
	}
	proxy.SwallowReplies(false)
	proxy.Cut()
	written(t, r, 2)
	if err := r.Pass(t.Context()); err != nil {
		t.Error(err)
	}
	proxy.SwallowReplies(true)
	r.Advance(at(3))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := r.Close(ctx); err == nil {
		t.Error("closed, though nothing was answered")
	}
	if took := time.Since(began); took > 2500*time.Millisecond { // the call's own limit is 3 s
		t.Errorf("the close took %s", took)
	}
}
