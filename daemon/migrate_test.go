package daemon_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/daemon"
)

// migrationPipeline is a pipeline over JSON lines; parts are its further streams, by name.
func migrationPipeline(batch int, parts ...string) string {
	streams := map[string]string{
		"totals": "    steps:\n      - group_by: [user]\n      - aggregate: {n: count(), sum: sum(amount)}\n",
		"kept":   "    steps:\n      - filter: amount % 3 != 0\n      - group_by: [user]\n      - aggregate: {n: count(), mean: avg(amount)}\n",
		"hourly": "    steps:\n      - window: {tumbling: 1h}\n      - group_by: [user]\n      - aggregate: {n: count(), most: max(amount)}\n",
	}
	streams["by_hour"] = streams["hourly"]
	s := fmt.Sprintf(`pipeline: orders
batch: {max_records: %d}
sources:
  orders:
    file: {paths: ["in-*.json"]}
    decode: json
    types: {user: string, amount: int, at: timestamp}
    time: {field: at, lateness: 1000h}
streams:
`, batch)
	for _, p := range parts {
		s += "  " + p + ":\n    from: orders\n" + streams[p]
	}
	return s
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// command runs a command in this process, and returns what it prints.
func command(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := daemon.Execute(t.Context(), args, &out, &errs); code != want {
		t.Fatalf("tridentd %s: %d, want %d\n%s", strings.Join(args, " "), code, want, errs.String())
	}
	return out.String()
}

// runMigrated writes a pipeline of these parts and runs it on what is there, in batches of a random size.
func runMigrated(t *testing.T, file, data string, rng *rand.Rand, parts ...string) {
	t.Helper()
	writeFile(t, file, migrationPipeline(1+rng.IntN(40), parts...))
	command(t, 0, "run", file, "--data", data, "--until", "caught-up", "--listen", "off", "--log-level", "error")
}

// appendOrders appends lines to the input files.
func appendOrders(t *testing.T, dir string, rng *rand.Rand, n int) {
	t.Helper()
	for f := range 3 {
		var b strings.Builder
		for range n {
			fmt.Fprintf(&b, `{"user":"u%d","amount":%d,"at":"2026-01-01T%02d:%02d:00Z"}`+"\n", rng.IntN(20), rng.IntN(1000), rng.IntN(24), rng.IntN(60))
		}
		out, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("in-%d.json", f)), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.WriteString(b.String()); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A state that is filled from the recorded batches, wherever in the input that happens, is in the end the state of a pipeline
// that had it from the start.
func TestBackfilledIsAsFromTheStart(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(20261201, seed))
		dir := t.TempDir()
		file := filepath.Join(dir, "orders.yaml")
		run := func(data string, parts ...string) { runMigrated(t, file, data, rng, parts...) }
		moved, fresh := filepath.Join(dir, "moved"), filepath.Join(dir, "fresh")
		for range 1 + rng.IntN(3) {
			appendOrders(t, dir, rng, rng.IntN(60))
			run(moved, "totals")
		}
		writeFile(t, file, migrationPipeline(10, "totals", "kept", "hourly"))
		command(t, 0, "migrate", file, "--data", moved, "--backfill", "kept,hourly")
		appendOrders(t, dir, rng, rng.IntN(60))
		run(moved, "totals", "kept", "hourly")
		command(t, 0, "replay", file, "--data", moved, "--verify")
		run(fresh, "totals", "kept", "hourly")
		for _, state := range []string{"totals", "kept", "hourly"} {
			got := command(t, 0, "query", file, state, "--data", moved, "--format", "csv")
			if want := command(t, 0, "query", file, state, "--data", fresh, "--format", "csv"); got != want {
				t.Errorf("seed %d, state %s: backfilled\n%s\nfrom the start\n%s", seed, state, got, want)
			}
		}
	}
}

// A windowed state that has been given another name goes on with its open windows: it ends as the undisturbed one does.
func TestRenamedWindowsGoOn(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(20261202, seed))
		dir := t.TempDir()
		file := filepath.Join(dir, "orders.yaml")
		run := func(data string, parts ...string) { runMigrated(t, file, data, rng, parts...) }
		moved, fresh := filepath.Join(dir, "moved"), filepath.Join(dir, "fresh")
		appendOrders(t, dir, rng, 30+rng.IntN(60))
		run(moved, "totals", "hourly")
		rows := command(t, 0, "query", file, "hourly", "--data", moved, "--format", "csv")
		if strings.Count(rows, "\n") < 20 {
			t.Fatalf("seed %d: hardly a window is open:\n%s", seed, rows)
		}
		writeFile(t, file, migrationPipeline(10, "totals", "by_hour"))
		command(t, 4, "run", file, "--data", moved, "--until", "caught-up", "--listen", "off", "--log-level", "error")
		command(t, 0, "migrate", file, "--data", moved, "--rename", "hourly=by_hour")
		if got := command(t, 0, "query", file, "by_hour", "--data", moved, "--format", "csv"); got != rows {
			t.Errorf("seed %d: renamed\n%s\nbefore\n%s", seed, got, rows)
		}
		appendOrders(t, dir, rng, 30+rng.IntN(60))
		run(moved, "totals", "by_hour")
		command(t, 0, "replay", file, "--data", moved, "--verify")
		run(fresh, "totals", "hourly")
		got := command(t, 0, "query", file, "by_hour", "--data", moved, "--format", "csv")
		if want := command(t, 0, "query", file, "hourly", "--data", fresh, "--format", "csv"); got != want || got == rows {
			t.Errorf("seed %d: renamed\n%s\nundisturbed\n%s", seed, got, want)
		}
	}
}

// A migration that is killed leaves the store as it was, or migrated; and in either case it can be done again.
func TestMigrationKilled(t *testing.T) {
	dir := t.TempDir()
	file, data := filepath.Join(dir, "orders.yaml"), filepath.Join(dir, "data")
	appendOrders(t, dir, rand.New(rand.NewPCG(20261201, 9)), 400)
	writeFile(t, file, migrationPipeline(50, "totals"))
	command(t, 0, "run", file, "--data", data, "--until", "caught-up", "--listen", "off", "--log-level", "error")
	before := command(t, 0, "query", file, "totals", "--data", data, "--format", "csv")
	writeFile(t, file, migrationPipeline(50, "totals", "kept"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	as := filepath.Join(dir, "tridentd")
	if err := os.Symlink(self, as); err != nil {
		t.Fatal(err)
	}
	done := false
	olds, news := 0, 0
	for wait := time.Millisecond; !done; wait += wait / 4 {
		cmd := exec.Command(as, "migrate", file, "--data", data, "--backfill", "kept")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("a migration that nobody disturbed: %v\n%s", err, out.String())
			}
			done = true
		case <-time.After(wait): // the moment of the kill is what varies
			cmd.Process.Kill() //nolint:errcheck // it may have ended
			<-ended
		}
		if got := command(t, 0, "query", file, "totals", "--data", data, "--format", "csv"); got != before {
			t.Fatalf("killed after %s: totals are\n%s", wait, got)
		}
		if strings.Contains(command(t, 0, "migrate", file, "--data", data, "--dry-run"), "begin") {
			olds++
			if done {
				t.Fatal("the migration has ended, and the store is as it was")
			}
			continue
		}
		news++
		done = true
	}
	if olds == 0 || news != 1 {
		t.Errorf("as it was %d times, migrated %d times", olds, news)
	}
	command(t, 0, "run", file, "--data", data, "--until", "caught-up", "--listen", "off", "--log-level", "error")
	fresh := filepath.Join(dir, "fresh")
	command(t, 0, "run", file, "--data", fresh, "--until", "caught-up", "--listen", "off", "--log-level", "error")
	got := command(t, 0, "query", file, "kept", "--data", data, "--format", "csv")
	if want := command(t, 0, "query", file, "kept", "--data", fresh, "--format", "csv"); got != want {
		t.Errorf("kept: migrated\n%s\nfrom the start\n%s", got, want)
	}
}
