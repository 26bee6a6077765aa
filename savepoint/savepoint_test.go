package savepoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/savepoint"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate/txstatetest"
)

const pipeline = "words"

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// store makes a store with n batches in a directory of its own, and leaves it open.
func store(t testing.TB, n int) *pebblestate.DB {
	t.Helper()
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: filepath.Join(t.TempDir(), pipeline), Pipeline: pipeline, Shards: 4, CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() }) //nolint:errcheck // it isn't used any more
	commit(t, db, 1, n)
	return db
}

func commit(t testing.TB, db *pebblestate.DB, from, to int) {
	t.Helper()
	for txid := from; txid <= to; txid++ {
		e, positions := txstatetest.Simple(batch.Txid(txid), 1)
		s := &state.WriteSet{State: "s", Shards: make([][]state.Write, db.Shards()), Writes: 1}
		key := fmt.Appendf(nil, "key-%d", txid)
		i := state.ShardOf(key, db.Shards())
		s.Shards[i] = []state.Write{{Op: state.Set, Key: key, Value: []byte(strings.Repeat("v", txid))}}
		if err := db.Commit(t.Context(), []pebblestate.Commit{{Entry: e, Positions: positions, Sets: []*state.WriteSet{s}}}); err != nil {
			t.Fatal(err)
		}
	}
}

// dirOf is the directory of a savepoint in a folder.
func dirOf(p savepoint.Place, name string) string { return filepath.Join(p.String(), name) }

func storeOf(p savepoint.Place, name string) string { return filepath.Join(dirOf(p, name), "store") }

func create(t testing.TB, p savepoint.Place, db *pebblestate.DB, name string) savepoint.Info {
	t.Helper()
	info, err := p.Create(t.Context(), name, t.TempDir(), noon, func(ctx context.Context, dir string) error {
		_, err := db.Checkpoint(ctx, dir)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// holds checks that a directory holds a store at txid, and that it can be worked on.
func holds(t *testing.T, dir string, txid batch.Txid) {
	t.Helper()
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: dir, Pipeline: pipeline})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // it isn't used any more
	snap, err := db.Store().Load(t.Context())
	if err != nil || snap.Txid != txid {
		t.Fatalf("%s is at txid %d, %v; want %d", dir, snap.Txid, err, txid)
	}
	digests, err := db.StateDigests(t.Context())
	if err != nil || len(digests) != 1 || digests[0].Rows != int64(txid) {
		t.Errorf("states %v, %v; want one of %d rows", digests, err, txid)
	}
	commit(t, db, int(txid)+1, int(txid)+1)
}

func code(t *testing.T, err error, want batch.Code, words ...string) {
	t.Helper()
	if err == nil || batch.CodeOf(err) != want {
		t.Fatalf("%v, want code %s", err, want)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q doesn't say %q", err, w)
		}
	}
}

func TestLife(t *testing.T) {
	p := savepoint.At(t.TempDir(), pipeline)
	if all, err := p.List(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("an empty place lists %v, %v", all, err)
	}
	db := store(t, 3)
	first := create(t, p, db, "")
	if first.Name != "txid-000000000003" || first.Txid != 3 || first.Pipeline != pipeline || !first.Created.Equal(noon) || first.Bytes == 0 {
		t.Errorf("%+v", first)
	}
	commit(t, db, 4, 9)
	second := create(t, p, db, "second")
	all, err := p.List(t.Context())
	if err != nil || len(all) != 2 || all[0].Name != first.Name || all[1].Name != "second" || all[1].Txid != 9 {
		t.Fatalf("list %+v, %v", all, err)
	}
	_, err = p.Create(t.Context(), "second", t.TempDir(), noon, func(context.Context, string) error {
		t.Error("a copy was made for a name that is taken")
		return nil
	})
	code(t, err, batch.CodeConfiguration, "second exists")
	for _, info := range all {
		if got, err := p.Verify(t.Context(), info.Name); err != nil || got.Chain != info.Chain {
			t.Errorf("%s: %+v, %v", info.Name, got, err)
		}
	}
	to := filepath.Join(t.TempDir(), "restored", pipeline)
	if _, err := p.Restore(t.Context(), first.Name, to); err != nil {
		t.Fatal(err)
	}
	holds(t, to, 3)
	if _, err := p.Verify(t.Context(), first.Name); err != nil {
		t.Errorf("work on what was restored changed the savepoint: %v", err)
	}
	_, err = p.Restore(t.Context(), second.Name, to)
	code(t, err, batch.CodeConfiguration, "isn't empty")
	if err := p.Remove(t.Context(), first.Name); err != nil {
		t.Fatal(err)
	}
	code(t, p.Remove(t.Context(), first.Name), batch.CodeConfiguration, first.Name, "there is second")
	if all, err := p.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("list %v, %v", all, err)
	}
}

func TestArchive(t *testing.T) {
	p := savepoint.At(t.TempDir(), pipeline)
	info := create(t, p, store(t, 5), "")
	var archive bytes.Buffer
	if _, err := p.Export(t.Context(), info.Name, &archive); err != nil {
		t.Fatal(err)
	}
	whole := archive.Bytes()
	elsewhere := savepoint.At(t.TempDir(), pipeline)
	got, err := elsewhere.Import(t.Context(), bytes.NewReader(whole), "a.tar.zst", "")
	if err != nil || got.Name != info.Name || got.Chain != info.Chain {
		t.Fatalf("%+v, %v", got, err)
	}
	to := filepath.Join(t.TempDir(), pipeline)
	if _, err := elsewhere.Restore(t.Context(), info.Name, to); err != nil {
		t.Fatal(err)
	}
	holds(t, to, 5)
	_, err = elsewhere.Import(t.Context(), bytes.NewReader(whole), "a.tar.zst", "")
	code(t, err, batch.CodeConfiguration, "exists")
	_, err = savepoint.At(t.TempDir(), "others").Import(t.Context(), bytes.NewReader(whole), "a.tar.zst", "")
	code(t, err, batch.CodeStoreForeign, "is of pipeline words")

	for kind, more := range map[string][]byte{"itself again": whole, "text": []byte("hello"), "zeros": make([]byte, 1024)} {
		p := savepoint.At(t.TempDir(), pipeline)
		_, err = p.Import(t.Context(), io.MultiReader(bytes.NewReader(whole), bytes.NewReader(more)), "a.tar.zst", "")
		if code(t, err, batch.CodeStoreDamaged, "a.tar.zst", "behind"); t.Failed() {
			t.Log(kind)
		}
	}
	// A source that fails is no damage.
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := savepoint.At(t.TempDir(), pipeline).Import(dead, bytes.NewReader(whole), "a.tar.zst", ""); !errors.Is(err, context.Canceled) || batch.CodeOf(err) == batch.CodeStoreDamaged {
		t.Errorf("an import that is ended: %v", err)
	}
	// Whatever is cut off or changed, nothing is made of it.
	rapid.Check(t, func(rt *rapid.T) {
		b := bytes.Clone(whole)
		if rapid.Bool().Draw(rt, "cut") {
			b = b[:rapid.IntRange(0, len(b)-1).Draw(rt, "at")]
		} else {
			b[rapid.IntRange(0, len(b)-1).Draw(rt, "at")] ^= byte(rapid.IntRange(1, 255).Draw(rt, "by"))
		}
		p := savepoint.At(t.TempDir(), pipeline)
		got, err := p.Import(t.Context(), bytes.NewReader(b), "a.tar.zst", "")
		if err == nil {
			// A bit of the frame that no byte of the content depends on.
			if _, err := p.Verify(t.Context(), got.Name); err != nil || got.Chain != info.Chain {
				rt.Fatalf("a changed archive was taken: %+v, %v", got, err)
			}
			return
		}
		if all, lerr := p.List(t.Context()); len(all) != 0 || lerr != nil {
			rt.Fatalf("%v, but there is %v, %v", err, all, lerr)
		}
	})
}

// TestDamage changes, cuts, removes and adds files of a savepoint: each is named.
func TestDamage(t *testing.T) {
	p := savepoint.At(t.TempDir(), pipeline)
	db := store(t, 5)
	info := create(t, p, db, "whole")
	for i, f := range info.Files {
		for kind, change := range map[string]func(path string) error{
			"missing": os.Remove,
			"added":   func(path string) error { return os.WriteFile(path+".more", nil, 0o600) },
			"cut": func(path string) error {
				if f.Size == 0 {
					return os.Remove(path)
				}
				return os.Truncate(path, f.Size-1)
			},
		} {
			name := fmt.Sprintf("%s-%d", kind, i)
			if _, err := p.Restore(t.Context(), "whole", storeOf(p, name)); err != nil {
				t.Fatal(err)
			}
			meta, err := os.ReadFile(filepath.Join(dirOf(p, "whole"), "savepoint.json"))
			if err != nil {
				t.Fatal(err)
			}
			meta = bytes.Replace(meta, []byte(`"name": "whole"`), fmt.Appendf(nil, `"name": %q`, name), 1)
			if err := os.WriteFile(filepath.Join(dirOf(p, name), "savepoint.json"), meta, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := change(filepath.Join(storeOf(p, name), filepath.FromSlash(f.Path))); err != nil {
				t.Fatal(err)
			}
			_, err = p.Verify(t.Context(), name)
			code(t, err, batch.CodeStoreDamaged, filepath.Base(f.Path))
			to := filepath.Join(t.TempDir(), pipeline)
			_, err = p.Restore(t.Context(), name, to)
			code(t, err, batch.CodeStoreDamaged)
			if _, err := os.Stat(to); err == nil {
				t.Errorf("%s: something was restored", name)
			}
		}
	}
}

// TestInterrupted: what was being made when the process ended is no savepoint, and is in nobody's way.
func TestInterrupted(t *testing.T) {
	root := t.TempDir()
	p := savepoint.At(root, pipeline)
	db := store(t, 2)
	left := filepath.Join(root, pipeline, "one.partial", "store")
	if err := os.MkdirAll(left, 0o750); err != nil {
		t.Fatal(err)
	}
	if all, err := p.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("list %v, %v", all, err)
	}
	_, err := p.Load(t.Context(), "one")
	code(t, err, batch.CodeConfiguration, "there is none")
	create(t, p, db, "one")
	if _, err := p.Verify(t.Context(), "one"); err != nil {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	p := savepoint.At(t.TempDir(), pipeline)
	for _, name := range []string{"../x", "a/b", ".hidden", "x.partial", strings.Repeat("n", 200)} {
		code(t, p.Remove(t.Context(), name), batch.CodeConfiguration)
		_, err := p.Load(t.Context(), name)
		code(t, err, batch.CodeConfiguration)
	}
}

// FuzzImport: garbage is refused with an error, and nothing is made of it.
func FuzzImport(f *testing.F) {
	p := savepoint.At(f.TempDir(), pipeline)
	info := create(f, p, store(f, 2), "")
	var archive bytes.Buffer
	if _, err := p.Export(f.Context(), info.Name, &archive); err != nil {
		f.Fatal(err)
	}
	f.Add(archive.Bytes())
	f.Add([]byte{})
	f.Add([]byte("(\xb5/\xfd"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := savepoint.At(t.TempDir(), pipeline)
		if got, err := p.Import(t.Context(), bytes.NewReader(b), "fuzzed", ""); err == nil {
			if _, err := p.Verify(t.Context(), got.Name); err != nil {
				t.Error(err)
			}
		} else if all, _ := p.List(t.Context()); len(all) != 0 { //nolint:errcheck // what is there counts
			t.Errorf("%v, but there is %v", err, all)
		}
	})
}

// TestOutside: a place in a data directory would go wherever that goes.
func TestOutside(t *testing.T) {
	data := filepath.Join(t.TempDir(), pipeline)
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: data, Pipeline: pipeline, CreateIfMissing: true})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{"", "sub", "sub/deeper"} {
		_, err := savepoint.Open(t.Context(), filepath.Join(data, in), pipeline)
		code(t, err, batch.CodeConfiguration, "lies in a pipeline's data directory", data)
	}
	if _, err := savepoint.Open(t.Context(), filepath.Join(filepath.Dir(data), "savepoints"), pipeline); err != nil {
		t.Error(err)
	}
}
