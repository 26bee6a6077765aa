package pebblestate

import (
	"path/filepath"
	"testing"
)

// TestIdentity: it stays, differs from that of any other database, and goes with a copy; reading alone gives none.
func TestIdentity(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	open := func(name string, readOnly bool) *DB {
		t.Helper()
		db, err := Open(ctx, Options{Dir: filepath.Join(dir, name), Pipeline: "words", Shards: 4, CreateIfMissing: !readOnly, ReadOnly: readOnly})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	ask := func(db *DB) string {
		t.Helper()
		id, err := db.Identity(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	shut := func(db *DB) {
		t.Helper()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	shut(open("a", false))
	reader := open("a", true)
	if id := ask(reader); id != "" {
		t.Errorf("a database that is only read has got the identity %q", id)
	}
	shut(reader)
	a, b := open("a", false), open("b", false)
	id := ask(a)
	if len(id) != 2*identitySize || ask(a) != id || ask(b) == id {
		t.Errorf("identities %q, again %q, another's %q", id, ask(a), ask(b))
	}
	if _, err := a.Checkpoint(ctx, filepath.Join(dir, "copy")); err != nil {
		t.Fatal(err)
	}
	shut(a)
	shut(b)
	for _, name := range []string{"a", "copy"} {
		db := open(name, true)
		if got := ask(db); got != id {
			t.Errorf("%s has the identity %q later, had %q", name, got, id)
		}
		shut(db)
	}
}
