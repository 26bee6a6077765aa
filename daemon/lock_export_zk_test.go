//go:build realzk

package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/server"
)

// TestExportUnderLock: while one process leads, an export from another copy of the data, as it may lie on another host, is
// refused, and the leader doesn't notice. Once nobody leads it is written.
func TestExportUnderLock(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "exported")
	j := newJob(t, nil, generated(500, 0, fmt.Sprintf("servers: %q, chroot: %s, role: lock", z.Addr, chroot)))
	j.run(0)
	other := *j
	other.data = filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(other.data, os.DirFS(j.data)); err != nil {
		t.Fatal(err)
	}
	leader := j.spawn("run", "--standby", "--listen", "127.0.0.1:0")
	before, _ := leader.becomes("it leads", leads)
	by := z.Conn(t)
	written := recordAt(t, by, chroot+"/trident/words")

	_, errs := other.offsets(1, "export", "--to", "zookeeper")
	if !strings.Contains(errs, fmt.Sprintf("is held by process %d", before.PID)) || !strings.Contains(errs, "stop the process that holds the lock") {
		t.Errorf("refused with\n%s", errs)
	}
	if now := recordAt(t, by, chroot+"/trident/words"); now.Epoch != written.Epoch || now.Committed.Txid != written.Committed.Txid {
		t.Errorf("the record was %+v, and is %+v", written, now)
	}
	leader.becomes("it still leads", func(st *server.Status) bool { return leads(st) && st.Epoch == before.Epoch })
	leader.signal(syscall.SIGTERM)
	if code := leader.exit(patience); code != 0 {
		t.Errorf("exit %d\n%s", code, leader.errs.String())
	}

	other.offsets(0, "export", "--to", "zookeeper")
	if now := recordAt(t, by, chroot+"/trident/words"); now.Epoch >= int(before.Epoch) {
		t.Errorf("the record is %+v, the copy is from before epoch %d", now, before.Epoch)
	}
	if left, _, err := by.Children(chroot + "/trident/words/lock"); err != nil || len(left) > 0 {
		t.Errorf("%v is left of the queue, %v", left, err)
	}
}
