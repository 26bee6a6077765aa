package daemon_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tridentd/tridentd/server"
)

// namespaceVar is set in the process that has a mount namespace of its own.
const namespaceVar = "TRIDENTD_TEST_NAMESPACE"

// TestG35FullDisk: a full device is a clear stop, and once there is room again nothing is missing.
//
// The small device is a file system in memory, mounted in a mount namespace of a process that this test starts: so it
// needs no privilege, and nothing is left behind.
func TestG35FullDisk(t *testing.T) {
	if os.Getenv(namespaceVar) == "" {
		t.Parallel()
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe, "-test.run=^TestG35FullDisk$", "-test.v", "-test.count=1")
		cmd.Env = append(os.Environ(), namespaceVar+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
			Pdeathsig:   syscall.SIGKILL,
		}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestG35FullDisk") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	const total = 3_000_000
	orders := func(rate int) string {
		return fmt.Sprintf(`pipeline: orders
batch: {max_records: 20000}
sources:
  orders:
    generate: {kind: orders, count: %d, rate: %d}
streams:
  by_id:
    from: orders
    steps:
      - group_by: [id]
      - aggregate: {n: count()}
  all:
    from: orders
    steps:
      - aggregate: {n: count()}
`, total, rate)
	}
	j := newJob(t, nil, orders(200_000))
	j.data = filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(j.data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", j.data, "tmpfs", 0, "size=400m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(j.data, 0); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(j.data, "ballast")
	fill := func(free int64) {
		t.Helper()
		if err := os.RemoveAll(ballast); err != nil {
			t.Fatal(err)
		}
		var st syscall.Statfs_t
		if err := syscall.Statfs(j.data, &st); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, max(int64(st.Bavail)*st.Bsize-free, 0))
		if err := os.WriteFile(ballast, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := j.spawn(j.runArgs()...)
	j.await("a batch", func(st *server.Status) bool { return committed(*st) > 0 })
	p.signal(syscall.SIGTERM)
	if code := p.exit(patience); code != 0 {
		t.Errorf("exit %d\n%s", code, p.errs.String())
	}
	j.rewrite(nil, orders(0))
	fill(40 << 20) // the store leaves 16 MiB, and takes 18 MiB for each log, of which there may be two
	j.refused(1, "bytes are free", j.store(), "free space on the device")
	entries := j.ledger()
	var done int64
	for _, e := range entries {
		done += e.Records
	}
	if done == 0 || done >= total {
		t.Errorf("%d records before the device was full", done)
	}
	j.holds("all", fmt.Sprint(done))
	fill(0) // not even a start has room
	j.refused(1, "no space left on device", "free space on the device")
	j.holds("all", fmt.Sprint(done))
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	j.run(0)
	j.holds("all", fmt.Sprint(total))
	if n := len(j.rows("by_id")); n != total {
		t.Errorf("%d orders, want %d", n, total)
	}
	j.checkRanges(0, total)
}

// TestSignalWhileThePipelineIsRead: from its first step on a run ends in order, here while its file comes through a pipe.
func TestSignalWhileThePipelineIsRead(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		j := newJob(t, nil, linesFile)
		j.put("lines.txt", "a\n")
		j.file = filepath.Join(j.dir, "pipe.yaml")
		if err := syscall.Mkfifo(j.file, 0o600); err != nil {
			t.Fatal(err)
		}
		p := j.spawn(j.runArgs()...)
		pipe, err := os.OpenFile(j.file, os.O_WRONLY, 0) // returns once the process reads
		if err != nil {
			t.Fatal(err)
		}
		p.signal(s)
		if _, err := pipe.WriteString(linesFile); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		if err := pipe.Close(); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		if code := p.exit(patience); code != 0 || !strings.Contains(p.errs.String(), "stopping") {
			t.Errorf("%s: exit %d\n%s", s, code, p.errs.String())
		}
	}
}
