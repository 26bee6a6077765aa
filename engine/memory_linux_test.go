// The race detector keeps several bytes of its own for each one, so that a process's memory says nothing under it.

//go:build !race

package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter/gen"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/pebblestate"
)

// slowDisk lets all writes together have no more than rate bytes a second.
type slowDisk struct {
	vfs.FS
	rate int64

	mu   sync.Mutex
	free time.Time // when the disk has written what it was given
}

func (d *slowDisk) wait(n int) {
	d.mu.Lock()
	if now := time.Now(); d.free.Before(now) {
		d.free = now
	}
	d.free = d.free.Add(time.Duration(int64(n) * int64(time.Second) / d.rate))
	until := d.free
	d.mu.Unlock()
	time.Sleep(time.Until(until))
}

func (d *slowDisk) slow(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &slowFile{f, d}, nil
}

func (d *slowDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.slow(d.FS.Create(name, c))
}

func (d *slowDisk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.slow(d.FS.ReuseForWrite(from, to, c))
}

type slowFile struct {
	vfs.File
	disk *slowDisk
}

func (f *slowFile) Write(p []byte) (int, error) {
	f.disk.wait(len(p))
	return f.File.Write(p)
}

func (f *slowFile) WriteAt(p []byte, at int64) (int, error) {
	f.disk.wait(len(p))
	return f.File.WriteAt(p, at)
}

const memoryVar = "TRIDENTD_TEST_MEMORY_LIMIT"

// A source that is always ahead, rows that are all different, and a disk that takes a fraction of what comes: the process, with everything that it is, stays
// within its limit, and every record is there in the end.
func TestMemoryLimit(t *testing.T) {
	if v := os.Getenv(memoryVar); v != "" {
		limit, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		drainSlowly(t, limit)
		return
	}
	t.Parallel()
	const limit = 160 << 20
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestMemoryLimit$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", memoryVar, limit))
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestMemoryLimit")) {
		t.Fatalf("%v\n%s", err, out)
	}
	_, rest, found := strings.Cut(string(out), "peak ")
	if !found {
		t.Fatalf("no peak in\n%s", out)
	}
	peak, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("at most %d MiB", peak>>20)
	if peak > limit {
		t.Errorf("the process had %d MiB, its limit is %d", peak>>20, int64(limit)>>20)
	}
}

func drainSlowly(t *testing.T, limit int64) {
	debug.SetMemoryLimit(limit - limit/4) // as the command run does
	const size, count = 512, 120_000
	p := engine.New("slow", engine.WithMemoryLimit(limit))
	in := engine.From(p, "in", gen.New(gen.Config{MaxBytes: size, Count: count, Partitions: 2, Make: func(rng *batch.Rand, partition int32, offset int64, rec *batch.Record) {
		rec.Value = fmt.Appendf(rec.Value, "%032x", uint64(offset)*2+uint64(partition))
		for len(rec.Value) < size {
			rec.Value = append(rec.Value, byte(' '+rng.IntN(64)))
		}
	}}), codec.String())
	engine.Aggregate(engine.GroupBy(in, func(s string) string { return s[:32] }, "id"), "rows", agg.LastOf("row", func(s string) string { return s }))
	engine.Aggregate(engine.GroupBy(in, func(string) string { return "all" }, "what"), "counts", agg.Count[string]("n"))
	o := engine.Options{DataDir: t.TempDir(), UntilCaughtUp: true}
	h, err := engine.Start(context.Background(), p, engine.StoreOn(o, &slowDisk{FS: vfs.Default, rate: 80 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Wait(); err != nil {
		t.Fatal(err)
	}
	db, err := pebblestate.Open(context.Background(), pebblestate.Options{Dir: h.Dir(), Pipeline: "slow", ReadOnly: true, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	all, err := engine.ReadSnapshot[string, int64](context.Background(), snap, "counts")
	if err := errors.Join(err, snap.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	if all["all"] != count {
		t.Errorf("%d records are counted, want %d", all["all"], count)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("peak %d\n", kib<<10)
		}
	}
}
