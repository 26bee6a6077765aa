//go:build realzk

package daemon_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/tridentd/tridentd/internal/testenv"
)

// TestRestoreUnderARecord: after a restore ZooKeeper's record is ahead. The refusal names the step that is missing before all
// others, and with it the pipeline goes on from what was restored.
func TestRestoreUnderARecord(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "restored")
	settings := fmt.Sprintf("servers: %q, chroot: %s", z.Addr, chroot)
	j := newJob(t, nil, generated(500, 0, settings))
	j.run(0)
	j.must(0, "savepoint", "create", "--name", "s")
	restored := j.committedTxid()
	j.put("pipeline.yaml", generated(800, 0, settings))
	j.run(0)
	j.must(0, "savepoint", "restore", "s", "--replace")

	log := j.refused(4, "ahead of the store")
	if !regexp.MustCompile(`(?s)offsets export FILE --to zookeeper.*--data.*restore a savepoint`).MatchString(log) {
		t.Errorf("the export isn't what is named first\n%s", log)
	}
	if got := j.committedTxid(); got != restored {
		t.Errorf("txid %d, restored was %d", got, restored)
	}
	j.must(0, "offsets", "export", "--to", "zookeeper")
	j.run(0)
	r := recordAt(t, z.Conn(t), chroot+"/trident/words")
	if r.total() != 800 || r.Committed.Txid != j.committedTxid() || j.number("counts") != "800" {
		t.Errorf("the record is %+v, %s are counted", r, j.number("counts"))
	}
}
