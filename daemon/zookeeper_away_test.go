//go:build realzk

package daemon_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/server"
)

// awaits waits until the status of a job that runs fits.
func (j *job) awaits(what string, ok func(server.Status) bool) server.Status {
	j.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var st server.Status
		if client, err := server.Dial(j.store()); err == nil {
			st, _ = client.Status(j.t.Context()) // a run that begins or ends doesn't answer
			client.Close()
		}
		if ok(st) {
			return st
		}
		if time.Now().After(deadline) {
			j.t.Fatalf("waited in vain for %s; status %+v", what, st)
		}
	}
}

// waitsFor tells whether a status says that ZooKeeper is what keeps batches from being processed.
func waitsFor(code string) func(server.Status) bool {
	return func(st server.Status) bool {
		return st.Pipeline != "" && !st.Ready && st.LastError != nil && string(st.LastError.Code) == code && strings.Contains(strings.Join(st.Reasons, "\n"), "zookeeper")
	}
}

// TestZooKeeperAwayAtTheStart: who needn't wait doesn't; who waits says for what, and goes on by itself.
func TestZooKeeperAwayAtTheStart(t *testing.T) {
	z := testenv.OwnZooKeeper(t)
	text := func(n int, more string) string {
		return generated(n, 0, fmt.Sprintf("servers: %q%s", z.Addr, more))
	}
	j := newJob(t, nil, text(100, ""))
	j.run(0)
	z.Stop(t)

	// Continue, and a store that isn't empty.
	j.put("pipeline.yaml", text(200, ""))
	began := time.Now()
	log := j.run(0)
	if took := time.Since(began); took > patience {
		t.Errorf("a start waits for %s", took)
	}
	if !strings.Contains(log, "can't be asked") || !strings.Contains(log, "zk_refused") || j.number("counts") != "200" {
		t.Errorf("counted %s\n%s", j.number("counts"), log)
	}

	// Stall: for a while, then the run ends.
	j.put("pipeline.yaml", text(300, ", while_away: stall, retry: {for: 2s}, call_timeout: 1s"))
	j.refused(4, "retry.for", "connection refused")
	if n := j.number("counts"); n != "200" {
		t.Errorf("counted %s while ZooKeeper is away", n)
	}

	// Stall, for ever; and continue with an empty store, which can't know.
	j.put("pipeline.yaml", text(300, ", while_away: stall"))
	full := j.data
	empty := newJob(t, nil, strings.Replace(text(50, ", id: other"), "pipeline: words", "pipeline: other", 1))
	stopFull, stopEmpty := j.start(), empty.start()
	for _, w := range []*job{j, empty} {
		w.awaits("the wait to be told", waitsFor("zk_refused"))
	}
	z.Start(t)
	for w, n := range map[*job]int64{j: 300, empty: 50} { // order: both run
		w.awaits("what is left", func(st server.Status) bool { return committed(st) == n && st.Ready })
	}
	for _, stop := range []func() (int, string){stopFull, stopEmpty} {
		if code, log := stop(); code != 0 {
			t.Errorf("exit %d\n%s", code, log)
		}
	}
	j.data = full
	by := z.Conn(t)
	if r := recordAt(t, by, "/trident/words"); r.total() != 300 || r.Committed.Txid != j.committedTxid() || j.number("counts") != "300" {
		t.Errorf("the record is %+v", r)
	}
	if r := recordAt(t, by, "/trident/other"); r.total() != 50 || empty.number("counts") != "50" {
		t.Errorf("the record is %+v", r)
	}
}

// TestG13StopWithAHungZooKeeper: a stop doesn't wait for a server that answers nothing; afterwards everything is counted once.
func TestG13StopWithAHungZooKeeper(t *testing.T) {
	for _, policy := range []string{"continue", "stall"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			z := testenv.OwnZooKeeper(t)
			text := func(n, rate int) string {
				return generated(n, rate, fmt.Sprintf("servers: %q, update_interval: 100ms, while_away: %s, call_timeout: 3s", z.Addr, policy))
			}
			j := newJob(t, nil, text(100_000, 1000))
			stop := j.start()
			j.awaits("a hundred", func(st server.Status) bool { return committed(st) >= 100 })
			z.Pause(t)
			st := j.awaits("the silence to show", func(st server.Status) bool {
				return len(st.Mirrors) == 1 && st.Mirrors[0].Error != nil && (policy == "continue" || strings.Contains(strings.Join(st.Reasons, ""), "commits wait for ZooKeeper"))
			})
			if code := string(st.Mirrors[0].Error.Code); code != "zk_no_answer" {
				t.Errorf("named as %s: %+v", code, st.Mirrors[0].Error)
			}
			began := time.Now()
			code, log := stop()
			if took := time.Since(began); code != 0 || took > stopLimit {
				t.Errorf("exit %d after %s\n%s", code, took, log)
			}
			z.Resume(t)
			n := 0
			if _, err := fmt.Sscan(j.number("counts"), &n); err != nil {
				t.Fatal(err)
			}
			n += 1000
			j.put("pipeline.yaml", text(n, 0))
			j.run(0)
			if got := j.number("counts"); got != fmt.Sprint(n) {
				t.Errorf("counted %s of %d", got, n)
			}
			if r := recordAt(t, z.Conn(t), "/trident/words"); r.total() != int64(n) || r.Committed.Txid != j.committedTxid() {
				t.Errorf("the record is %+v", r)
			}
		})
	}
}

// TestG14Servers: a name that isn't known doesn't keep a pipeline from the other servers, and is told.
func TestG14Servers(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "names")
	j := newJob(t, nil, generated(100, 50, fmt.Sprintf("servers: [\"no-such-host.invalid:2181\", %q], chroot: %s/a/b, update_interval: 0s", z.Addr, chroot)))
	log := j.run(0)
	if r := recordAt(t, z.Conn(t), chroot+"/a/b/trident/words"); r.total() != 100 {
		t.Errorf("the record is %+v", r)
	}
	if !strings.Contains(log, "no-such-host.invalid") || !strings.Contains(log, "zk_unresolved") {
		t.Errorf("no word of the unknown host\n%s", log)
	}
	j.put("pipeline.yaml", strings.Replace(generated(100, 0, "chroot: /x"), "servers", "", 1))
	j.data = filepath.Join(t.TempDir(), "none")
	j.refused(2, "zookeeper needs servers")
}
