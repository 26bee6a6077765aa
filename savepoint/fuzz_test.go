package savepoint_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/savepoint"
)

// FuzzInfo puts anything into savepoint.json, beside a store that is whole. What isn't the description of that store is refused, and then
// nothing is restored; what is restored is the whole store.
func FuzzInfo(f *testing.F) {
	from := savepoint.At(f.TempDir(), pipeline)
	db := store(f, 3)
	create(f, from, db, "one")
	want, err := db.Digest(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	meta, err := os.ReadFile(filepath.Join(dirOf(from, "one"), "savepoint.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(meta)
	f.Add([]byte("{}"))
	f.Add([]byte{})
	f.Add(meta[:len(meta)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		root := t.TempDir()
		p := savepoint.At(root, pipeline)
		if err := os.CopyFS(dirOf(p, "one"), os.DirFS(dirOf(from, "one"))); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dirOf(p, "one"), "savepoint.json"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := p.List(t.Context()); err != nil && batch.KindOf(err) != batch.Permanent {
			t.Errorf("list: %v", err)
		}
		info, err := p.Verify(t.Context(), "one")
		to := filepath.Join(t.TempDir(), pipeline)
		got, rerr := p.Restore(t.Context(), "one", to)
		if err != nil {
			if batch.KindOf(err) != batch.Permanent {
				t.Errorf("verify: %v", err)
			}
			if _, serr := os.Stat(filepath.Join(to, "FORMAT")); rerr != nil && serr == nil {
				t.Errorf("restore failed (%v) and left a store", rerr)
			}
		}
		if rerr != nil {
			if err == nil {
				t.Errorf("verified, and not restored: %v", rerr)
			}
			return
		}
		if err == nil && !reflect.DeepEqual(info.Files, got.Files) {
			t.Errorf("%v was verified, %v restored", info.Files, got.Files)
		}
		db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: to, Pipeline: pipeline, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close() //nolint:errcheck // it was only read
		if d, err := db.Digest(t.Context()); err != nil || d != want {
			t.Errorf("restored with digest %016x, %v, want %016x", d, err, want)
		}
	})
}
