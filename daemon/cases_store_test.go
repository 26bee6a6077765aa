package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tridentd/tridentd/batch"
	engexec "github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/spec"
	"github.com/tridentd/tridentd/txstate"
)

// storeFile is the file of a data directory that a pattern matches, of several the largest.
func storeFile(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("no file %s in %s: %v", pattern, dir, err)
	}
	size := func(name string) int64 {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	return slices.MaxFunc(found, func(a, b string) int { return int(size(a) - size(b)) })
}

// currentManifest is the MANIFEST that the store's marker names.
func currentManifest(t *testing.T, dir string) string {
	t.Helper()
	_, name, ok := strings.Cut(filepath.Base(storeFile(t, dir, "db/marker.manifest.*")), "MANIFEST-")
	if !ok {
		t.Fatal("the marker names no MANIFEST")
	}
	return filepath.Join(dir, "db", "MANIFEST-"+name)
}

// TestG19DamagedStore: a store with a damaged or missing file is neither an empty nor an older one.
func TestG19DamagedStore(t *testing.T) {
	t.Parallel()
	const text = `pipeline: counting
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
	good := newJob(t, nil, text)
	for i := 1; i <= 10; i++ {
		good.put("lines.txt", strings.Repeat("a\n", 10*i))
		good.run(0)
	}
	good.holds("counts", "a,100")
	input := strings.Repeat("a\n", 110) // so that there is something to do

	remove := func(pattern string) func(t *testing.T, dir string) string {
		return func(t *testing.T, dir string) string {
			file := storeFile(t, dir, pattern)
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			return filepath.Base(file)
		}
	}
	for name, damage := range map[string]func(t *testing.T, dir string) (file string){
		"a byte of the MANIFEST": func(t *testing.T, dir string) string {
			file := currentManifest(t, dir)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 0x40
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
			return filepath.Base(file)
		},
		"no MANIFEST": func(t *testing.T, dir string) string {
			file := currentManifest(t, dir)
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			return filepath.Base(file)
		},
		// What CURRENT was in other stores: the name of the MANIFEST that holds.
		"no marker": func(t *testing.T, dir string) string {
			remove("db/marker.manifest.*")(t, dir)
			return "marker.manifest"
		},
		"no table":  remove("db/*.sst"),
		"no log":    func(t *testing.T, dir string) string { remove("db/*.log")(t, dir); return ".log" },
		"no FORMAT": remove("FORMAT"),
		"no directory": func(t *testing.T, dir string) string {
			if err := os.RemoveAll(filepath.Join(dir, "db")); err != nil {
				t.Fatal(err)
			}
			return "db"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, nil, text)
			j.put("lines.txt", input)
			if err := os.CopyFS(j.data, os.DirFS(good.data)); err != nil {
				t.Fatal(err)
			}
			file := damage(t, j.store())
			before := files(t, j.data)
			for range 2 {
				j.refused(4, j.store(), file, "restore a savepoint")
				code, out, errs := j.command("query", "counts")
				if code != 1 || out != "" {
					t.Errorf("query: exit %d, want 1\n%s", code, out)
				}
				j.tells(errs, file, "restore a savepoint")
				if code, out, errs := j.command("ledger"); code != 1 || out != "" || !strings.Contains(errs, file) {
					t.Errorf("ledger: exit %d, want 1\n%s%s", code, out, errs)
				}
			}
			if changed := differing(before, files(t, j.data)); len(changed) > 0 {
				t.Errorf("changed in the damaged directory: %v", changed)
			}
		})
	}
}

// TestG34TwoProcesses: one directory has one process; the others are told, or are answered by it.
func TestG34TwoProcesses(t *testing.T) {
	t.Parallel()
	b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
	b.produce("t", times(10, "a")...)
	j := newJob(t, b, counting(""))
	first := j.spawn(j.runArgs()...)
	j.awaitNext(10)
	for _, args := range [][]string{j.runArgs("--until", "caught-up"), j.runArgs(), {"run"}} {
		second := j.spawn(args...)
		if code := second.exit(patience); code != 1 {
			t.Errorf("the second run: exit %d, want 1", code)
		}
		j.tells(second.errs.String(), "in use", j.store())
	}
	b.produce("t", times(10, "a")...)
	j.awaitNext(20)
	j.holds("counts", "a,20")
	j.checkRanges(0, 20) // through the daemon
	if st, ok := j.status(); !ok || st.PID != first.cmd.Process.Pid || !st.Ready {
		t.Errorf("status %+v, want the first process, ready", st)
	}
	if log := first.errs.String(); strings.Contains(log, "[ERROR]") || strings.Contains(log, "[WARN]") {
		t.Errorf("the first run was disturbed:\n%s", log)
	}
	first.signal(syscall.SIGKILL)
	first.exit(patience)
	b.produce("t", times(5, "a")...)
	j.run(0)
	j.holds("counts", "a,25")
	j.checkRanges(0, 25)
}

// TestG35BatchesAreCutByBytes: a batch is cut by bytes before it begins, whatever the number of its records.
func TestG35BatchesAreCutByBytes(t *testing.T) {
	t.Parallel()
	b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
	for i := range 50 {
		b.produce("t", fmt.Sprintf("%02d", i)+strings.Repeat("x", 998))
	}
	j := newJob(t, b, strings.Replace(counting(""), "\n", "\nbatch: {max_bytes: 16KiB, max_pending: 4}\n", 1))
	j.run(0)
	if n := len(j.rows("counts")); n != 50 {
		t.Errorf("%d values, want 50", n)
	}
	j.checkRanges(0, 50)
	for _, e := range j.ledger() {
		if n := e.Ranges[0].Bytes; n > 4<<10 {
			t.Errorf("txid %d has %d bytes; in flight there may be 16 KiB in four batches", e.Txid, n)
		}
	}
}

// TestG35BatchAboveTheStoresLimit: a batch that one write can't take is an error that names a way out, and nothing of
// it is applied.
func TestG35BatchAboveTheStoresLimit(t *testing.T) {
	t.Parallel()
	b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
	for i := range 100 {
		b.produce("t", fmt.Sprint(i))
	}
	j := newJob(t, b, counting(""))
	j.run(0)
	var entries []txstate.Entry
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: j.store(), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range db.Store().Entries(t.Context(), 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	sp, err := spec.Load(j.file, spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := sp.Plan()
	if err != nil {
		t.Fatal(err)
	}
	db, err = pebblestate.Open(t.Context(), pebblestate.Options{
		Dir: filepath.Join(t.TempDir(), "small"), Pipeline: pl.Name, Shards: 256, CreateIfMissing: true, MaxBatchBytes: 1 << 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // nothing was written
	x := engexec.New(engexec.Config{Plan: pl, DB: db, Shards: db.Shards(), Now: time.Now})
	if _, err := x.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer x.Close(context.Background()) //nolint:errcheck // the run is over
	err = x.Drive(t.Context(), entries, 4)
	var e *batch.Error
	if !errors.As(err, &e) || e.Kind != batch.Permanent || e.Code != batch.CodeBatchTooLarge {
		t.Fatalf("error %v, want a permanent one, batch_too_large", err)
	}
	for _, want := range []string{"txid 1", "batch.max_records", "batch.max_bytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %s", err, want)
		}
	}
	snap, err := db.Store().Load(t.Context())
	if err != nil || snap.Txid != 0 {
		t.Errorf("the store is at txid %d, %v; want 0", snap.Txid, err)
	}
}
