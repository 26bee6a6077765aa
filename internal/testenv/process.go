package testenv

import (
	"context"
	"os"
	"strings"
	"testing"
)

// process is a server of one process.
type process struct {
	script string
	dir    string // empty: shared, and not ours to stop
}

// Start starts the server if it doesn't run.
func (p process) Start(tb testing.TB) { tb.Helper(); p.control(tb, "start") }

// Stop ends the server in an orderly way: clients are sent away, and the data stay.
func (p process) Stop(tb testing.TB) { tb.Helper(); p.control(tb, "stop") }

// Kill ends the server by SIGKILL: a crash.
func (p process) Kill(tb testing.TB) { tb.Helper(); p.control(tb, "kill") }

// Pause stops the server with SIGSTOP: connections stay open, and nothing answers.
func (p process) Pause(tb testing.TB) { tb.Helper(); p.control(tb, "pause") }

// Resume lets a paused server go on.
func (p process) Resume(tb testing.TB) { tb.Helper(); p.control(tb, "resume") }

func (p process) control(tb testing.TB, command string) {
	tb.Helper()
	if p.dir == "" {
		tb.Fatalf("testenv: %s on the shared server of %s would break other tests; start one for the test alone", command, p.script)
	}
	control(tb, p.script, p.dir, command, nil)
}

// ownServer starts a server of one process with a script, in a directory whose name begins with prefix, and returns it with the
// address. Both go with the test.
func ownServer(tb testing.TB, script, prefix string, opts []Option) (p process, addr string) {
	tb.Helper()
	dir, err := os.MkdirTemp("", prefix) //nolint:usetesting // scripts/test knows what to end by this name
	if err != nil {
		tb.Fatalf("testenv: no directory for %s: %v", script, err)
	}
	call := func(ctx context.Context, command string, args ...string) (string, error) {
		return run(ctx, startTimeout, script, append([]string{command, "--dir", dir}, args...)...)
	}
	tb.Cleanup(func() {
		// The test's own context has ended by now.
		if out, err := call(context.Background(), "clean"); err != nil {
			tb.Errorf("testenv: ending %s: %v\n%s", script, err, out)
		}
		os.RemoveAll(dir) //nolint:errcheck // what a failed start left; the script has removed the rest
	})
	args := []string{"--port", "auto"}
	for _, o := range opts {
		o(&args)
	}
	if out, err := call(tb.Context(), "start", args...); err != nil {
		tb.Fatalf("testenv: this test needs a real server, which didn't start: %s: %v\n%s", script, err, out)
	}
	out, err := call(tb.Context(), "address")
	if err != nil {
		tb.Fatalf("testenv: address of %s: %v\n%s", script, err, out)
	}
	return process{script: script, dir: dir}, strings.TrimSpace(out)
}
