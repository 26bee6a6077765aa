package daemon_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tridentd/tridentd/server"
)

// TestLedgerIsFollowed: what the daemon commits is printed while it runs; the end of the daemon is that of the list.
func TestLedgerIsFollowed(t *testing.T) {
	t.Parallel()
	j := newJob(t, nil, strings.Replace(linesFile, "file: {paths: [lines.txt]}", "generate: {kind: words, rate: 100}", 1))
	run := j.spawn(j.runArgs()...)
	j.await("a first batch", func(st *server.Status) bool { return st.Committed > 0 })
	list := j.spawn("ledger", "--follow", "--format", "csv")
	lines := func() []string { return strings.Split(strings.TrimSpace(list.errs.String()), "\n") }
	for deadline := time.Now().Add(patience); len(lines()) < 4; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the list doesn't grow:\n%s", list.errs.String())
		}
	}
	run.signal(syscall.SIGTERM)
	if code := run.exit(stopLimit); code != 0 {
		t.Errorf("exit %d of the run", code)
	}
	if code := list.exit(stopLimit); code != 0 {
		t.Errorf("exit %d of the list\n%s", code, list.errs.String())
	}
	for i, line := range lines() {
		if i == 0 != strings.HasPrefix(line, "txid,") {
			t.Errorf("line %d: %s", i, line)
		}
	}
}
