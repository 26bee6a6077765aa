package daemon_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tridentd/tridentd/server"
)

const linesFile = `pipeline: counting
sources:
  lines:
    file: {paths: [lines.txt]}
    decode: string
streams:
  counts:
    from: lines
    steps:
      - group_by: [value]
      - aggregate: {n: count()}
`

// TestReaderThatHangs: somebody who reads a large state and stops reading doesn't keep the pipeline from an orderly end.
func TestReaderThatHangs(t *testing.T) {
	t.Parallel()
	j := newJob(t, nil, linesFile)
	var lines strings.Builder
	for i := range 60_000 {
		lines.WriteString(strings.Repeat("x", 200) + string(rune('a'+i%26)) + time.Duration(i).String() + "\n")
	}
	j.put("lines.txt", lines.String())
	j.run(0)
	p := j.spawn("run", "--listen", "127.0.0.1:0", "--log-level", "info")
	var addr string
	j.await("its address", func(st *server.Status) bool {
		addr = st.Listen
		return st.Ready && addr != ""
	})
	resp, err := http.Get("http://" + addr + "/api/v1/states/counts")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil { // and no more
		t.Fatal(err)
	}
	p.signal(syscall.SIGTERM)
	if code := p.exit(stopLimit); code != 0 {
		t.Errorf("exit %d\n%s", code, p.errs.String())
	}
	p.inOrder()
}

// TestHold: with --on-stop hold the process stays up after a stop for good, be it while it runs or before it could begin,
// says why, and ends when it is asked to, with the code of the stop.
func TestHold(t *testing.T) {
	t.Parallel()
	held := func(t *testing.T, j *job, cause string, end func(p *process)) {
		t.Helper()
		p := j.spawn("run", "--listen", "127.0.0.1:0", "--on-stop", "hold")
		var addr string
		j.await("the cause", func(st *server.Status) bool {
			addr = st.Listen
			return !st.Ready && st.Failing && st.LastError != nil && strings.Contains(strings.Join(st.Reasons, " "), cause) && addr != ""
		})
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
			resp, err := http.Get("http://" + addr + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != want || want != http.StatusOK && !strings.Contains(string(body), cause) {
				t.Errorf("%s: %s %q, %v", path, resp.Status, body, err)
			}
		}
		// Until the store is closed, its other readers are asked to come again.
		j.eventually(func() bool { return strings.Contains(p.errs.String(), "staying up until told to end") })
		end(p)
		if code := p.exit(stopLimit); code != 4 {
			t.Errorf("exit %d, want 4\n%s", code, p.errs.String())
		}
	}
	signal := func(p *process) { p.signal(syscall.SIGTERM) }
	t.Run("a bad record, a signal", func(t *testing.T) {
		t.Parallel()
		j := newJob(t, nil, strings.Replace(linesFile, "decode: string", "decode: json\n    types: {value: int}", 1))
		j.put("lines.txt", "{\"value\":1}\n")
		j.run(0)
		j.put("lines.txt", "{\"value\":1}\nno JSON\n")
		held(t, j, "lines.txt", func(p *process) {
			// What it left can be looked at, and kept.
			for _, args := range [][]string{{"query", "counts"}, {"ledger"}, {"replay", "--verify"}} {
				if code, out, errs := j.command(args...); code != 0 || len(args) > 1 && out == "" {
					t.Errorf("%v beside it: exit %d\n%s%s", args, code, out, errs)
				}
			}
			signal(p)
		})
	})
	t.Run("a damaged store, the socket", func(t *testing.T) {
		t.Parallel()
		j := newJob(t, nil, linesFile)
		j.put("lines.txt", "a\n")
		j.run(0)
		if err := os.Remove(currentManifest(t, j.store())); err != nil {
			t.Fatal(err)
		}
		held(t, j, "MANIFEST", func(*process) {
			c, err := server.Dial(j.store())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
}
