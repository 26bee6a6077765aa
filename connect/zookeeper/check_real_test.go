//go:build realzk

package zookeeper

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/internal/testenv"
)

func examine(t *testing.T, k *Keeper, limit time.Duration) []doctor.Finding {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	all := k.Check(ctx, doctor.Env{Pipeline: "words"})
	if took := time.Since(began); took > limit+10*time.Second {
		t.Errorf("the check took %s", took)
	}
	for _, f := range all {
		if well := f.Level == doctor.OK; f.Subject == "" || f.Text == "" || well != (f.Code == "") || well != (f.Remedy == "") {
			t.Errorf("what isn't ok has a code and a remedy, and nothing else has: %+v", f)
		}
	}
	return all
}

func wantFinding(t *testing.T, all []doctor.Finding, level doctor.Level, subject string, code batch.Code, texts ...string) {
	t.Helper()
	for _, f := range all {
		if f.Level == level && f.Subject == subject && f.Code == code && !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(f.Text, s) }) {
			return
		}
	}
	t.Errorf("no finding %s %q %s with %q among %+v", level, subject, code, texts, all)
}

// tree lists all nodes below a path.
func tree(t *testing.T, c *zk.Conn, path string) []string {
	t.Helper()
	children, _, err := c.Children(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, name := range children {
		below := strings.TrimSuffix(path, "/") + "/" + name
		all = append(append(all, below), tree(t, c, below)...)
	}
	return all
}

func TestCheckRights(t *testing.T) {
	z := testenv.ZooKeeper(t)
	root := z.Chroot(t, "doctor")
	conn := z.Conn(t)
	world := zk.WorldACL(zk.PermAll)
	create := func(path string, data string, acl []zk.ACL) {
		t.Helper()
		if _, err := conn.Create(path, []byte(data), 0, acl); err != nil {
			t.Fatal(path, err)
		}
	}
	k := New(z.Servers()...).Chroot(root + "/missing")
	server := "zookeeper " + z.Servers()[0]

	all := examine(t, k, 15*time.Second)
	wantFinding(t, all, doctor.OK, server, "", "serves", "version 3.9.5")
	wantFinding(t, all, doctor.Warn, "zookeeper ensemble", batch.CodeZKEnsemble, "a single server")
	wantFinding(t, all, doctor.Warn, "zookeeper "+root+"/missing/trident/words", batch.CodeZKNoChroot, "the chroot "+root+"/missing isn't there")
	wantFinding(t, all, doctor.OK, "zookeeper "+root+"/missing/trident/words", "", "the first run makes it in "+root)
	wantFinding(t, all, doctor.OK, "zookeeper clock", "", "agrees")
	if left := tree(t, conn, root); len(left) > 0 {
		t.Errorf("the check left %v", left)
	}

	readOnly := zk.WorldACL(zk.PermRead)
	create(root+"/ro", "", readOnly)
	k = New(z.Servers()...).Chroot(root).Path("/ro").Auth(Auth{User: "app", Password: "x"})
	wantFinding(t, examine(t, k, 15*time.Second), doctor.Error, "zookeeper "+root+"/ro/words", batch.CodeZKNoRights,
		"making a node", "the right create on "+root+"/ro", "digest user app", "the ACL of "+root+"/ro is world:anyone:r")

	create(root+"/keep", "", zk.WorldACL(zk.PermAll&^zk.PermDelete))
	k = New(z.Servers()...).Chroot(root).Path("/keep")
	wantFinding(t, examine(t, k, 15*time.Second), doctor.Error, "zookeeper "+root+"/keep/words", batch.CodeZKNoRights, "removing a node", "the right delete on "+root+"/keep")

	// Nodes that the pipeline itself couldn't write again.
	k = New(z.Servers()...).Chroot(root).ACL("world:r")
	wantFinding(t, examine(t, k, 15*time.Second), doctor.Error, "zookeeper "+root+"/trident/words", batch.CodeZKNoRights, "made with the ACL of the settings")

	// A record that somebody else has made.
	for _, p := range []string{"/trident", "/trident/words"} {
		create(root+p, "", world)
	}
	k = New(z.Servers()...).Chroot(root)
	create(root+"/trident/words/record", "{}", readOnly)
	wantFinding(t, examine(t, k, 15*time.Second), doctor.Error, "zookeeper "+root+"/trident/words", batch.CodeZKNoRights, "writing the record", "the right write on "+root+"/trident/words/record")
	if err := conn.Delete(root+"/trident/words/record", -1); err != nil {
		t.Fatal(err)
	}
	create(root+"/trident/words/record", "{}", world)
	all = examine(t, k, 15*time.Second)
	wantFinding(t, all, doctor.OK, "zookeeper "+root+"/trident/words", "", "nodes can be made, written and removed")
	if data, stat, err := conn.Get(root + "/trident/words/record"); err != nil || string(data) != "{}" || stat.Version != 0 {
		t.Errorf("the check changed the record: %q, %+v, %v", data, stat, err)
	}
	// What may not be removed goes with the session that made it.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		left := slices.DeleteFunc(tree(t, conn, root), func(p string) bool { return !strings.Contains(p, "/tridentd-doctor-") })
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("checks left %v", left)
		}
	}
}

func TestCheckQuorum(t *testing.T) {
	z := testenv.OwnZooKeeper(t, testenv.Nodes(3))
	k := New(z.Servers()...)
	subject := func(node int) string { return "zookeeper " + z.Servers()[node-1] }
	all := examine(t, k, 15*time.Second)
	wantFinding(t, all, doctor.OK, "zookeeper ensemble", "", "survives the loss of 1")
	wantFinding(t, all, doctor.OK, "zookeeper /trident/words", "", "the first run makes it in /")

	follower := 1
	if z.Leader(t) == follower {
		follower = 2
	}
	z.Pause(t, follower)
	all = examine(t, k, 15*time.Second)
	wantFinding(t, all, doctor.Warn, subject(follower), batch.CodeZKNoAnswer)
	wantFinding(t, all, doctor.OK, "zookeeper /trident/words", "")
	z.Resume(t, follower)

	z.Kill(t, follower)
	for n := 1; n <= 3; n++ {
		if n != follower && n != z.Leader(t) {
			z.Kill(t, n)
			break
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		all = examine(t, k, 15*time.Second)
		if slices.ContainsFunc(all, func(f doctor.Finding) bool { return f.Level == doctor.Error && f.Code == batch.CodeZKNoQuorum }) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the loss of the quorum isn't named: %+v", all)
		}
	}
	wantFinding(t, all, doctor.Error, subject(follower), batch.CodeZKRefused, "nothing listens there")
}

func TestCheckSettings(t *testing.T) {
	all := examine(t, New("nowhere"), time.Second)
	wantFinding(t, all, doctor.Error, "zookeeper", batch.CodeConfiguration, "host:port")
	all = examine(t, New("127.0.0.1:1").Auth(Auth{User: "a", PasswordFile: "no-such-file"}), time.Second)
	wantFinding(t, all, doctor.Error, "zookeeper", batch.CodeConfiguration, "auth.password_file")
}
