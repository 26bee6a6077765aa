package savepoint

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/scratch"
)

// TestSweepCopies: what somebody uses stays, whatever the number of its process means to the one that looks; all else goes.
func TestSweepCopies(t *testing.T) {
	dir := t.TempDir()
	used, remove, err := MakeCopies(dir)
	if err != nil {
		t.Fatal(err)
	}
	killed, old, store := filepath.Join(dir, copyPrefix+"1"), filepath.Join(dir, copyPrefix+"4194305-7"), filepath.Join(dir, "db")
	for _, d := range []string{used, killed, old, store} {
		if err := os.MkdirAll(filepath.Join(d, "inside"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(killed+scratch.LockSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	SweepCopies(dir)
	for path, stays := range map[string]bool{used: true, used + scratch.LockSuffix: true, killed: false, killed + scratch.LockSuffix: false, old: false, store: true} {
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%s: %v, want that it stays: %t", path, err, stays)
		}
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, copyPrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestCopyFiles: a store that changes, or goes, while it is copied to another device doesn't become a savepoint.
func TestCopyFiles(t *testing.T) {
	from := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(from, "db"), 0o700), os.WriteFile(filepath.Join(from, "FORMAT"), []byte("1"), 0o600), os.WriteFile(filepath.Join(from, "db", "1.sst"), []byte("rows"), 0o600)); err != nil {
		t.Fatal(err)
	}
	files, err := sums(t.Context(), from)
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	info := Info{Files: files}
	copied := func() error { return copyFiles(t.Context(), info, from, filepath.Join(t.TempDir(), "to")) }
	if err := copied(); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(path string) error{
		func(path string) error { return os.WriteFile(path, []byte("rowS"), 0o600) },
		func(path string) error { return os.WriteFile(path, nil, 0o600) },
		os.Remove,
	} {
		if err := change(filepath.Join(from, "db", "1.sst")); err != nil {
			t.Fatal(err)
		}
		if err := copied(); err == nil || batch.CodeOf(err) == batch.CodeStoreDamaged {
			t.Errorf("a changed file: %v", err)
		}
	}
}
