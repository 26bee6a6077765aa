//go:build crash || realsql

package daemon_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/server"
)

// awaitCommit waits until the process that works in dir has committed a batch behind after.
func awaitCommit(t *testing.T, dir string, after batch.Txid) bool {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		c, err := server.Dial(dir)
		if err != nil {
			continue
		}
		st, err := c.Status(t.Context())
		c.Close()
		if err == nil && st.Committed > after {
			return true
		}
	}
	t.Error("no commit within a minute of the start")
	return false
}

func build(t *testing.T, dir string) string {
	t.Helper()
	bin := filepath.Join(dir, "tridentd")
	cmd := exec.Command("go", "build", "-o", bin, "github.com/tridentd/tridentd/cmd/tridentd")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, bin, file, data string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(bin, "run", file, "--data", data, "--listen", "off", "--log-level", "warn")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && out.Len() > 0 {
			t.Logf("output of pid %d:\n%s", cmd.Process.Pid, out.String())
		}
	})
	return cmd
}

func openStore(t *testing.T, dir string, readOnly bool) *pebblestate.DB {
	t.Helper()
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: dir, ReadOnly: readOnly})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// runKilled kills a pipeline's process by SIGKILL again and again: mostly a moment after a commit, else at any moment, the start included. Then it has
// the rest done; some must be left by then. running counts the kills after a commit.
func runKilled(t *testing.T, bin, file, data, store string, kills int, seed uint64) (running int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	var last batch.Txid
	for i := range kills {
		cmd := start(t, bin, file, data)
		if rng.IntN(10) > 0 && i%4 != 3 {
			awaitCommit(t, store, last)
			running++
		}
		time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() //nolint:errcheck // it was killed
		txid, _ := progressOf(t, store)
		if txid < last {
			t.Fatalf("kill %d: txid %d after %d", i+1, txid, last)
		}
		last = txid
	}
	toTheEnd(t, bin, file, data)
	if after, _ := progressOf(t, store); after == last {
		t.Errorf("all was done before the last kill, at txid %d: the kills found too little at work", last)
	}
	return running
}

// toTheEnd runs a pipeline until it has caught up.
func toTheEnd(t *testing.T, bin, file, data string) {
	t.Helper()
	if out, err := exec.Command(bin, "run", file, "--data", data, "--until", "caught-up", "--listen", "off").CombinedOutput(); err != nil {
		t.Fatalf("the last run: %v\n%s", err, out)
	}
}

// verified has replay --verify compare all, and returns what it says.
func verified(t *testing.T, bin, file, data string) string {
	t.Helper()
	out, err := exec.Command(bin, "replay", file, "--data", data, "--verify").CombinedOutput()
	if err != nil {
		t.Errorf("replay: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// progressOf reads what a killed process left: the last committed txid, and how many offsets are done.
func progressOf(t *testing.T, dir string) (batch.Txid, int64) {
	t.Helper()
	if !pebblestate.Exists(dir) {
		return 0, 0
	}
	db := openStore(t, dir, true)
	defer db.Close() //nolint:errcheck // nothing was written
	snap, err := db.Store().Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var done int64
	for _, p := range snap.Positions {
		if p.Topic != "" {
			done += p.Next
		}
	}
	return snap.Txid, done
}
