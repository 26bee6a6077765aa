package pebblestate

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/txstate/txstatetest"
)

type underTest struct {
	txstate.Store
	db *DB
	o  Options
}

func (u underTest) Commit(ctx context.Context, e txstate.Entry, positions []txstate.SavedPosition) error {
	return u.db.Commit(ctx, []Commit{{Entry: e, Positions: positions}})
}

func (u underTest) Reopen(t *testing.T) txstatetest.Store {
	mustClose(t, u.db)
	return openUnderTest(t, u.o)
}

func openUnderTest(t *testing.T, o Options) txstatetest.Store {
	db := mustOpen(t, o)
	t.Cleanup(func() { _ = db.Close() })
	return underTest{db.Store(), db, o}
}

func TestStore(t *testing.T) {
	txstatetest.Run(t, func(t *testing.T) txstatetest.Store { return openUnderTest(t, testOptions(vfs.NewMem())) })
}

// TestEntryOfAnother: an entry that lies where another one belongs isn't taken for that.
func TestEntryOfAnother(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	mustCommit(t, db, commitOf(1))
	other := commitOf(2).Entry
	if err := db.pebble.Set(txidKey(kindLedger, 1), appendEntry(nil, &other), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, db, commitOf(2)) // readers see what was there with the last commit
	var got error
	for _, err := range db.Store().Entries(t.Context(), 1, 1) {
		got = err
	}
	wantCode(t, got, batch.CodeStoreDamaged, "that of txid 2")
}

func TestTrimLedger(t *testing.T) {
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	for txid := batch.Txid(1); txid <= 20; txid++ {
		mustCommit(t, db, commitOf(txid))
	}
	wantCode(t, db.TrimLedger(t.Context(), 21), batch.CodeConfiguration, "21")
	if err := db.TrimLedger(t.Context(), 11); err != nil {
		t.Fatal(err)
	}
	if err := db.TrimLedger(t.Context(), 5); err != nil { // below what is gone already
		t.Fatal(err)
	}
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	mustCommit(t, db, commitOf(21))
	first, n := batch.Txid(0), 0
	for e, err := range db.Store().Entries(t.Context(), 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = e.Txid
		}
		n++
	}
	if first != 11 || n != 11 {
		t.Fatalf("%d entries from txid %d are left, want 11 from 11", n, first)
	}
}

func TestClosed(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	r, err := db.State("s")
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	mustClose(t, db) // once more is no error
	for name, f := range map[string]func() error{
		"Commit":   func() error { return db.Commit(t.Context(), []Commit{commitOf(1)}) },
		"Snapshot": func() error { _, err := db.Snapshot(); return err },
		"State":    func() error { _, err := db.State("s"); return err },
		"Get":      func() error { _, _, err := r.Get(t.Context(), []byte("k")); return err },
		"Load":     func() error { _, err := db.Store().Load(t.Context()); return err },
		"Claim":    func() error { return db.Store().Claim(t.Context(), 1) },
		"Digest":   func() error { _, err := db.Digest(t.Context()); return err },
		"Static":   func() error { _, _, err := db.Static(t.Context(), "t"); return err },
	} {
		if err := f(); err != ErrClosed {
			t.Errorf("%s on a closed database: %v", name, err)
		}
	}
}
