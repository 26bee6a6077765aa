package pebblestate

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
)

// content is every file of a directory, but the lock's.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == lockName {
			return err
		}
		b, err := os.ReadFile(path)
		m[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// build makes a database of 100 txids on disk: tables, a MANIFEST with several records, and a log that holds the
// last txids. kill leaves it as the end of its process would.
func build(t *testing.T, kill bool) Options {
	t.Helper()
	o := testOptions(nil)
	o.Dir = filepath.Join(t.TempDir(), "words")
	o.ReadOnly = false
	work := o
	if kill {
		work.Dir = filepath.Join(t.TempDir(), "words")
	}
	db := mustOpen(t, work)
	for txid := batch.Txid(1); txid <= 100; txid++ {
		mustCommit(t, db, commitOf(txid, setOf("s", 4, add("a", 1), set(fmt.Sprint(txid), "x"))))
		if txid == 40 || txid == 90 {
			if err := db.pebble.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if kill {
		if err := os.CopyFS(o.Dir, os.DirFS(work.Dir)); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, db)
	return o
}

// find returns the files that match, in order.
func findFiles(t *testing.T, dir, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, dbName, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no file %s: %v", pattern, err)
	}
	slices.Sort(names)
	return names
}

func flip(t *testing.T, path string, at int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 0x55
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func size(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Size())
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// TestRemovedFloor takes the floor away while the database is at work: the next commit puts it back, so that a log that is
// lost later is noticed all the same.
func TestRemovedFloor(t *testing.T) {
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	mustCommit(t, db, commitOf(1))
	path := o.FS.PathJoin(o.Dir, floorName)
	if err := o.FS.Remove(path); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, db, commitOf(2))
	want := floorMark{txid: 2, phase: working}
	if got, err := readFloor(o.FS, o.Dir); err != nil || got != want {
		t.Errorf("the floor is %+v (%v), want %+v", got, err, want)
	}
	if err := o.FS.Remove(path); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	want.phase = closed
	if got, err := readFloor(o.FS, o.Dir); err != nil || got != want {
		t.Errorf("after the end the floor is %+v (%v), want %+v", got, err, want)
	}
}

// TestDamage damages one file at a time. The database must be refused, naming the file, and nothing may change.
func TestDamage(t *testing.T) {
	last := func(s []string) string { return s[len(s)-1] }
	cases := []struct {
		name   string
		damage func(t *testing.T, dir string)
		names  string // what the error must match
	}{
		{"a byte of the MANIFEST", func(t *testing.T, dir string) {
			m := last(findFiles(t, dir, "MANIFEST-*"))
			flip(t, m, size(t, m)/2)
		}, `MANIFEST-\d+`},
		{"the first byte of the MANIFEST", func(t *testing.T, dir string) { flip(t, last(findFiles(t, dir, "MANIFEST-*")), 0) }, `MANIFEST-\d+`},
		{"a cut MANIFEST", func(t *testing.T, dir string) {
			m := last(findFiles(t, dir, "MANIFEST-*"))
			if err := os.Truncate(m, int64(size(t, m)/2)); err != nil {
				t.Fatal(err)
			}
		}, `MANIFEST-\d+|\d+\.sst`},
		{"no MANIFEST", func(t *testing.T, dir string) { remove(t, last(findFiles(t, dir, "MANIFEST-*"))) }, `MANIFEST-\d+`},
		{"no marker of the MANIFEST", func(t *testing.T, dir string) { remove(t, findFiles(t, dir, "marker.manifest.*")[0]) }, `marker\.manifest`},
		{"no marker of the format", func(t *testing.T, dir string) { remove(t, findFiles(t, dir, "marker.format-version.*")[0]) }, `marker\.format-version`},
		{"no first table", func(t *testing.T, dir string) { remove(t, findFiles(t, dir, "*.sst")[0]) }, `\d+\.sst`},
		{"no last table", func(t *testing.T, dir string) { remove(t, last(findFiles(t, dir, "*.sst"))) }, `\d+\.sst`},
		{"a cut table", func(t *testing.T, dir string) {
			if err := os.Truncate(findFiles(t, dir, "*.sst")[0], 100); err != nil {
				t.Fatal(err)
			}
		}, `\d+\.sst`},
		{"no log", func(t *testing.T, dir string) {
			for _, l := range findFiles(t, dir, "*.log") {
				remove(t, l)
			}
		}, `\*\.log`},
		{"a cut log", func(t *testing.T, dir string) {
			if err := os.Truncate(last(findFiles(t, dir, "*.log")), 1000); err != nil {
				t.Fatal(err)
			}
		}, `\.log`},
		{"an empty log", func(t *testing.T, dir string) {
			for _, l := range findFiles(t, dir, "*.log") {
				if err := os.Truncate(l, 0); err != nil {
					t.Fatal(err)
				}
			}
		}, `\.log`},
		{"a byte of the log", func(t *testing.T, dir string) { flip(t, last(findFiles(t, dir, "*.log")), 200) }, `\.log`},
		{"no FORMAT", func(t *testing.T, dir string) { remove(t, filepath.Join(dir, formatName)) }, `FORMAT`},
		{"a byte of FORMAT", func(t *testing.T, dir string) { flip(t, filepath.Join(dir, formatName), 3) }, `FORMAT`},
		{"other shards in FORMAT", func(t *testing.T, dir string) {
			path := filepath.Join(dir, formatName)
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, bytes.Replace(b, []byte(`"shards":4`), []byte(`"shards":5`), 1), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, `FORMAT`},
		{"no database but FORMAT", func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, dbName)); err != nil {
				t.Fatal(err)
			}
		}, `\.log`},
		{"an empty database under FORMAT", func(t *testing.T, dir string) {
			sub := filepath.Join(dir, dbName)
			if err := os.RemoveAll(sub); err != nil {
				t.Fatal(err)
			}
			db, err := pebble.Open(sub, &pebble.Options{Merger: newMerger(addMerge), Logger: logger{hclog.NewNullLogger(), nil}})
			if err == nil {
				err = db.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}, `.`},
	}
	for _, kill := range []bool{false, true} {
		for _, c := range cases {
			t.Run(fmt.Sprintf("%s/kill=%v", c.name, kill), func(t *testing.T) {
				o := build(t, kill)
				c.damage(t, o.Dir)
				before := content(t, o.Dir)
				for _, ro := range []bool{true, false} {
					o.ReadOnly = ro
					db, err := Open(t.Context(), o)
					if err == nil {
						t.Errorf("opened at txid %d (read-only %v)", txidOf(t, db), ro)
						mustClose(t, db)
						return
					}
					wantCode(t, err, batch.CodeStoreDamaged, "savepoint", "replay")
					if !regexp.MustCompile(c.names).MatchString(err.Error()) {
						t.Errorf("%q doesn't name %s", err, c.names)
					}
					if batch.KindOf(err) != batch.Permanent {
						t.Errorf("%v is %s", err, batch.KindOf(err))
					}
					after := content(t, o.Dir)
					for path, b := range before {
						if after[path] != b {
							t.Errorf("%s was changed or removed (read-only %v)", path, ro)
						}
					}
					if len(after) != len(before) {
						t.Errorf("%d files became %d", len(before), len(after))
					}
				}
			})
		}
	}
}

// TestDamagedTable flips a byte in the rows of a table, which is noticed only when they are read.
func TestDamagedTable(t *testing.T) {
	o := build(t, false)
	table := findFiles(t, o.Dir, "*.sst")[0]
	for at := range 64 {
		flip(t, table, at)
	}
	db, err := Open(t.Context(), o)
	if err == nil {
		defer func() { _ = db.Close() }()
		_, err = db.Digest(t.Context())
	}
	wantCode(t, err, batch.CodeStoreDamaged, filepath.Base(table))
}

// TestAnyFlippedByte flips one byte of the MANIFEST or of a log anywhere. Either the database is refused, or
// nothing of it is missing.
func TestAnyFlippedByte(t *testing.T) {
	o := build(t, false)
	kept := content(t, o.Dir)
	db := mustOpen(t, o)
	want, err := db.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	rnd := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 60 {
		if err := os.RemoveAll(o.Dir); err != nil {
			t.Fatal(err)
		}
		var targets []string
		for path, b := range kept {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(b), 0o600); err != nil {
				t.Fatal(err)
			}
			if base := filepath.Base(path); strings.HasPrefix(base, "MANIFEST") || strings.HasSuffix(base, ".log") {
				targets = append(targets, path)
			}
		}
		slices.Sort(targets)
		target := targets[rnd.IntN(len(targets))]
		at := rnd.IntN(len(kept[target]))
		flip(t, target, at)
		db, err := Open(t.Context(), o)
		if err != nil {
			wantCode(t, err, batch.CodeStoreDamaged)
			refused++
			continue
		}
		got, err := db.Digest(t.Context())
		if err != nil || got != want || txidOf(t, db) != 100 {
			t.Fatalf("byte %d of %s: opened at txid %d with digest %x (%v), want 100 with %x", at, target, txidOf(t, db), got, err, want)
		}
		mustClose(t, db)
	}
	if refused < 20 {
		t.Errorf("only %d of 60 flipped bytes were noticed", refused)
	}
}

func TestOpenRefusals(t *testing.T) {
	o := build(t, false)
	db := mustOpen(t, o)
	for _, ro := range []bool{true, false} {
		second := o
		second.ReadOnly = ro
		_, err := Open(t.Context(), second)
		wantCode(t, err, batch.CodeStoreInUse, fmt.Sprintf("process %d", os.Getpid()))
	}
	mustCommit(t, db, commitOf(101)) // the refused ones did no harm
	mustClose(t, db)

	foreign := o
	foreign.Pipeline = "orders"
	_, err := Open(t.Context(), foreign)
	wantCode(t, err, batch.CodeStoreForeign, "words", "orders")

	path := filepath.Join(o.Dir, formatName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Replace(b, []byte(`"format":1`), []byte(`"format":99`), 1)
	if err := os.WriteFile(path, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), o)
	wantCode(t, err, batch.CodeStoreForeign, "99", "newer build")

	for name, change := range map[string]func(o *Options){
		"read-only":            func(o *Options) { o.ReadOnly = true },
		"without permission":   func(o *Options) { o.CreateIfMissing = false },
		"read-only, empty dir": func(o *Options) { o.ReadOnly = true; o.Dir = t.TempDir() },
	} {
		missing := o
		missing.Dir = filepath.Join(t.TempDir(), "none")
		change(&missing)
		if _, err := Open(t.Context(), missing); !errors.Is(err, ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
		if name != "read-only, empty dir" {
			if _, err := os.Stat(missing.Dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: the directory was made: %v", name, err)
			}
		}
	}
	for name, change := range map[string]func(o *Options){
		"Dir":           func(o *Options) { o.Dir = "" },
		"Pipeline":      func(o *Options) { o.Pipeline = "" },
		"Shards":        func(o *Options) { o.Shards = MaxShards + 1 },
		"CacheBytes":    func(o *Options) { o.CacheBytes = -1 },
		"MemTableBytes": func(o *Options) { o.MemTableBytes = 1 },
		"MaxBatchBytes": func(o *Options) { o.MaxBatchBytes = 4 << 30 },
	} {
		bad := testOptions(vfs.NewMem())
		change(&bad)
		_, err := Open(t.Context(), bad)
		wantCode(t, err, batch.CodeConfiguration, name)
	}
}

// TestReadOnly reads a database at rest, also one whose process was killed, and leaves every file as it was.
func TestReadOnly(t *testing.T) {
	for _, kill := range []bool{false, true} {
		o := build(t, kill)
		before := content(t, o.Dir)
		o.ReadOnly = true
		db := mustOpen(t, o)
		if got := txidOf(t, db); got != 100 {
			t.Fatalf("kill=%v: txid %d, want 100", kill, got)
		}
		r, err := db.State("s")
		if err != nil {
			t.Fatal(err)
		}
		if v, ok, err := r.Get(t.Context(), []byte("a")); err != nil || !ok || !bytes.Equal(v, num(100)) {
			t.Fatalf("a = %x, %v, %v", v, ok, err)
		}
		if err := db.Commit(t.Context(), []Commit{commitOf(101)}); err == nil {
			t.Fatal("a commit to a read-only database")
		}
		if err := db.Store().Claim(t.Context(), 9); err == nil {
			t.Fatal("a claim in a read-only database")
		}
		mustClose(t, db)
		after := content(t, o.Dir)
		if len(before) != len(after) {
			t.Errorf("kill=%v: %d files became %d", kill, len(before), len(after))
		}
		for path, b := range before {
			if after[path] != b {
				t.Errorf("kill=%v: %s was changed", kill, path)
			}
		}
	}
}

// TestOtherFiles leaves alone what others keep in the directory.
func TestOtherFiles(t *testing.T) {
	o := testOptions(nil)
	o.Dir = t.TempDir()
	other := filepath.Join(o.Dir, "control.sock")
	if err := os.WriteFile(other, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	db := mustOpen(t, o)
	mustCommit(t, db, commitOf(1))
	mustClose(t, db)
	db = mustOpen(t, o)
	if got := txidOf(t, db); got != 1 {
		t.Fatalf("txid %d", got)
	}
	mustClose(t, db)
	if b, err := os.ReadFile(other); err != nil || string(b) != "x" {
		t.Fatalf("%q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(o.Dir, ownerName)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the owner's file outlives its owner: %v", err)
	}
}

func TestScanRecords(t *testing.T) {
	o := build(t, false)
	m := findFiles(t, o.Dir, "MANIFEST-*")
	b, err := os.ReadFile(m[len(m)-1])
	if err != nil {
		t.Fatal(err)
	}
	if good, more := scanRecords(b); good != len(b) || more {
		t.Fatalf("a whole MANIFEST of %d bytes: good up to %d, more %v", len(b), good, more)
	}
	if good, _ := scanRecords(append(slices.Clone(b), make([]byte, 100)...)); good != len(b)+100 {
		t.Errorf("zeros at the end: good up to %d", good)
	}
	if good, more := scanRecords(b[:len(b)-1]); good >= len(b)-1 || more {
		t.Errorf("a torn end: good up to %d of %d, more %v", good, len(b)-1, more)
	}
	broken := slices.Clone(b)
	broken[8] ^= 1
	if good, more := scanRecords(broken); good != 0 || !more {
		t.Errorf("a broken first record: good up to %d, more %v", good, more)
	}
}
