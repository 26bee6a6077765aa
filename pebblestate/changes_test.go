package pebblestate

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/state"
)

// kept is a database with the changes of txids 1 and 2 kept: those of 2 fill several chunks.
func kept(t testing.TB) (*DB, [][]*state.WriteSet) {
	t.Helper()
	db := mustOpen(t, testOptions(vfs.NewMem()))
	t.Cleanup(func() { mustClose(t, db) })
	small := []*state.WriteSet{setOf("a", 4, add("x", 1), add("y", 2)), setOf("b", 4, set("k", "v"), set("empty", ""), del("gone"))}
	small[0].Digest, small[1].Digest = 7, 8
	small[1].DropWindows = [][]byte{[]byte("w1"), []byte("w2")}
	var many []state.Write
	for i := range 20_000 {
		many = append(many, set(fmt.Sprintf("key %06d", i), strings.Repeat("v", 40)))
	}
	large := []*state.WriteSet{setOf("b", 4, many...)}
	c1, c2 := commitOf(1, small...), commitOf(2, large...)
	c1.Keep, c2.Keep = true, true
	mustCommit(t, db, c1, c2, commitOf(3, setOf("a", 4, add("x", 1))))
	return db, [][]*state.WriteSet{small, large}
}

func changesOf(t testing.TB, db *DB, txid batch.Txid) []*state.WriteSet {
	t.Helper()
	sets, ok, err := db.Changes(t.Context(), txid)
	if err != nil || !ok {
		t.Fatalf("txid %d: %t, %v", txid, ok, err)
	}
	return sets
}

func sameSets(a, b []*state.WriteSet) bool {
	return reflect.DeepEqual(a, b)
}

func TestChangesAreKept(t *testing.T) {
	db, want := kept(t)
	for i := range want {
		if got := changesOf(t, db, batch.Txid(i+1)); !sameSets(got, want[i]) {
			t.Errorf("txid %d: got %+v, want %+v", i+1, got, want[i])
		}
	}
	if _, ok, err := db.Changes(t.Context(), 3); ok || err != nil {
		t.Errorf("changes that weren't kept: %t, %v", ok, err)
	}
	// They go with the ledger.
	if err := db.TrimLedger(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := db.Changes(t.Context(), 1); ok || err != nil {
		t.Errorf("trimmed changes: %t, %v", ok, err)
	}
	changesOf(t, db, 2)
	value, closer, err := db.pebble.Get(changesKey(2, 1))
	if err != nil {
		t.Fatalf("no second chunk: %v", err)
	}
	if len(value) > changesChunk+1<<10 {
		t.Errorf("a chunk of %d bytes", len(value))
	}
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestChangesCostTheLimit: kept changes count for the bound of a write.
func TestChangesCostTheLimit(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.MaxBatchBytes = 3 << 10
	db := mustOpen(t, o)
	defer mustClose(t, db)
	c := commitOf(1, setOf("a", 4, set("k", strings.Repeat("v", 2<<10))))
	c.Keep = true
	wantCode(t, db.Commit(t.Context(), []Commit{c}), batch.CodeBatchTooLarge)
	c.Keep = false
	mustCommit(t, db, c)
}

// change writes another value under a key, or removes it.
func change(t testing.TB, db *DB, key, value []byte) {
	t.Helper()
	var err error
	if value == nil {
		err = db.pebble.Delete(key, pebble.Sync)
	} else {
		err = db.pebble.Set(key, value, pebble.Sync)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := db.publish(db.rec.committed.txid, db.current.Load().states); err != nil {
		t.Fatal(err)
	}
}

func TestChangesDamaged(t *testing.T) {
	raw := func(db *DB, key []byte) []byte {
		v, closer, err := db.pebble.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		defer closer.Close() //nolint:errcheck // the value has been copied
		return bytes.Clone(v)
	}
	for _, tc := range []struct {
		name   string
		damage func(db *DB)
		words  string
	}{
		{"a byte", func(db *DB) {
			v := raw(db, changesKey(2, 0))
			v[len(v)-7] ^= 1 // in a value
			change(t, db, changesKey(2, 0), v)
		}, "the checksum is wrong"},
		{"a chunk is missing", func(db *DB) { change(t, db, changesKey(2, 0), nil) }, "chunk 0 is missing"},
		{"the end is missing", func(db *DB) {
			n := 0
			for ; ; n++ {
				if v := raw(db, changesKey(2, n)); v[len(v)-1-changesSum] == 1 {
					break
				}
			}
			change(t, db, changesKey(2, n), nil)
		}, "its end is missing"},
		{"another's chunk", func(db *DB) { change(t, db, changesKey(2, 0), raw(db, changesKey(1, 0))) }, "the checksum is wrong"},
		{"an empty one", func(db *DB) { change(t, db, changesKey(2, 0), []byte{}) }, "has 0 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			db, _ := kept(t)
			tc.damage(db)
			_, ok, err := db.Changes(t.Context(), 2)
			wantCode(t, err, batch.CodeStoreDamaged, "txid 2", tc.words)
			if !ok {
				t.Error("damaged changes are told as none")
			}
		})
	}
}

// TestChangesAllTheSame: a byte that was changed leaves the rest to be shown.
func TestChangesAllTheSame(t *testing.T) {
	db, want := kept(t)
	key := changesKey(1, 0)
	v, closer, err := db.pebble.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.Replace(bytes.Clone(v), []byte("\x01k\x01v"), []byte("\x01k\x01w"), 1)
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	change(t, db, key, b)
	sets, _, err := db.Changes(t.Context(), 1)
	wantCode(t, err, batch.CodeStoreDamaged)
	i := state.ShardOf([]byte("k"), 4)
	w := want[0][1].Shards[i]
	for j := range w {
		if string(w[j].Key) == "k" {
			w[j].Value = []byte("w")
		}
	}
	if !sameSets(sets, want[0]) {
		t.Errorf("got %+v, want %+v", sets, want[0])
	}
}

func TestGoldenChanges(t *testing.T) {
	db, _ := kept(t)
	v, closer, err := db.pebble.Get(changesKey(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "changes", v)
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
}

// FuzzChanges: whatever lies under the keys of kept changes is read or refused.
func FuzzChanges(f *testing.F) {
	db, _ := kept(f)
	for _, at := range [][]byte{changesKey(1, 0), changesKey(2, 1)} {
		v, closer, err := db.pebble.Get(at)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(v[:min(len(v), 4<<10)]), []byte{})
		f.Add(bytes.Clone(v[:8]), bytes.Clone(v[8:min(len(v), 4<<10)]))
		if err := closer.Close(); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		d := changesReader{txid: 9, shards: 4}
		d.chunk(changesKey(9, 0), first)
		if len(second) > 0 {
			d.chunk(changesKey(9, 1), second)
		}
		if d.done() != nil {
			return
		}
		// What was read without an error is written as a record of the same sets.
		db := &DB{format: format{Shards: 4}, opts: Options{MaxBatchBytes: 1 << 20}}
		w := &writer{b: new(pebble.Batch), txid: 9, limit: 1 << 20, shards: 4, db: db}
		if err := w.putChanges(d.sets); err != nil {
			t.Fatal(err)
		}
	})
}
