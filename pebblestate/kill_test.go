package pebblestate

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/batch"
)

const workerEnv = "PEBBLESTATE_TEST_DIR"

// TestWorker is the process that TestKill kills: it commits, and tells each txid once its commit has returned.
func TestWorker(t *testing.T) {
	dir := os.Getenv(workerEnv)
	if dir == "" {
		return // not that process
	}
	o := testOptions(nil)
	o.Dir = dir
	db := mustOpen(t, o)
	for txid := txidOf(t, db) + 1; ; txid++ {
		mustCommit(t, db, commitOf(txid, setOf("s", o.Shards, add("total", uint64(txid)))))
		fmt.Printf("committed %d\n", txid)
	}
}

// TestKill kills a process that commits, several times over. While it lives the database is refused with its pid;
// once it is gone nothing stands in the way, and nothing that it had committed is missing.
func TestKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "words")
	o := testOptions(nil)
	o.Dir = dir
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWorker$")
		cmd.Env = append(os.Environ(), workerEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var told batch.Txid
		lines := bufio.NewScanner(out)
		for n := 0; n < 40 && lines.Scan(); n++ {
			if !strings.HasPrefix(lines.Text(), "committed ") {
				t.Fatalf("the worker says %q", lines.Text())
			}
			if _, err := fmt.Sscanf(lines.Text(), "committed %d", &told); err != nil {
				t.Fatal(err)
			}
		}
		_, err = Open(t.Context(), o)
		wantCode(t, err, batch.CodeStoreInUse, fmt.Sprintf("process %d", cmd.Process.Pid))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it told before it died
			if _, err := fmt.Sscanf(lines.Text(), "committed %d", &told); err != nil {
				break
			}
		}
		_ = cmd.Wait() // it was killed
		db := mustOpen(t, o)
		got := txidOf(t, db)
		if got < told || got > told+1 {
			t.Fatalf("opened at txid %d, %d had committed", got, told)
		}
		m := model{"s": {"total": string(num(uint64(got) * uint64(got+1) / 2))}}
		mustHold(t, db, m)
		mustClose(t, db)
	}
}
