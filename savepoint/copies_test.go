package savepoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/scratch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate/txstatetest"
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

// TestInMaking: while a savepoint is made, that can be seen beside the store, and what a killed process has left isn't taken for it.
func TestInMaking(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "words")
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: dir, Pipeline: "words", Shards: 4, CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() }) //nolint:errcheck // it isn't used any more
	e, positions := txstatetest.Simple(1, 1)
	if err := db.Commit(t.Context(), []pebblestate.Commit{{Entry: e, Positions: positions}}); err != nil {
		t.Fatal(err)
	}
	seen := func() []Making {
		t.Helper()
		all, err := InMaking(dir)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	replayed, remove, err := MakeCopies(dir) // for something else
	if err != nil || len(seen()) != 0 {
		t.Fatalf("%+v, %v", seen(), err)
	}
	killed := filepath.Join(dir, copyPrefix+"killed")
	if err := errors.Join(os.Mkdir(killed, 0o700), mark(killed, nil)); err != nil {
		t.Fatal(err)
	}
	var begun []Making
	info, err := At(t.TempDir(), "words").Create(t.Context(), "s", dir, time.Now(), func(ctx context.Context, to string) error {
		begun = seen()
		_, err := db.Checkpoint(ctx, to)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(begun) != 1 || !begun[0].Begun || begun[0].Name != "" || begun[0].Txid != 0 {
		t.Errorf("while it is copied: %+v", begun)
	}
	if all := seen(); len(all) != 0 {
		t.Errorf("once it is made: %+v", all)
	}
	if err := mark(replayed, &info); err != nil {
		t.Fatal(err)
	}
	all := seen()
	if want := (Making{Name: "s", Txid: info.Txid, Chain: info.Chain, copy: replayed}); len(all) != 1 || all[0] != want || all[0].Same(begun[0]) {
		t.Errorf("%+v, want %+v", all, want)
	}
	if err := os.WriteFile(filepath.Join(replayed, markName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := InMaking(dir); err == nil {
		t.Errorf("a garbled one: %+v", all)
	}
	if err := remove(); err != nil || len(seen()) != 0 {
		t.Errorf("%+v, %v", seen(), err)
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
