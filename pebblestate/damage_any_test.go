package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// files is a directory tree in memory, by path.
type files map[string][]byte

func filesOf(t testing.TB, fsys vfs.FS, dir string) files {
	t.Helper()
	all := files{}
	var walk func(dir string)
	walk = func(dir string) {
		names, err := fsys.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			path := fsys.PathJoin(dir, name)
			info, err := fsys.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				walk(path)
				continue
			}
			if all[path], err = readFile(fsys, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	walk(dir)
	return all
}

// place makes a file system of them, with path holding b; nil: without path.
func (f files) place(t testing.TB, path string, b []byte) vfs.FS {
	t.Helper()
	fsys := vfs.NewMem()
	for p, was := range f {
		if p == path {
			was = b
		}
		if err := fsys.MkdirAll(fsys.PathDir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if was == nil {
			continue
		}
		w, err := fsys.Create(p, vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = w.Write(slices.Clone(was))
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return fsys
}

func (f files) paths() []string {
	var all []string
	for p := range f {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}

// holding is all that a database holds.
type holding struct {
	snap    txstate.Snapshot
	entries []txstate.Entry
	states  []StateDigest
	static  StaticTable
	id      string
}

// readAll reads everything; an error is the first that any reader meets.
func readAll(ctx context.Context, db *DB) (h holding, err error) {
	if h.snap, err = db.Store().Load(ctx); err != nil {
		return h, err
	}
	for e, err := range db.Store().Entries(ctx, 1, 0) {
		if err != nil {
			return h, err
		}
		h.entries = append(h.entries, e)
	}
	if h.states, err = db.StateDigests(ctx); err != nil {
		return h, err
	}
	if h.static, _, err = db.Static(ctx, "table"); err != nil {
		return h, err
	}
	h.id, err = db.Identity(ctx)
	return h, err
}

// damagedBase makes a database with something of everything: tables, a log, bases of states, a static table, an identity; as an orderly
// end leaves it, or the end of its process.
func damagedBase(t testing.TB, kill bool) (Options, files, holding) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	o := testOptions(mem)
	db := mustOpen(t, o)
	if _, err := db.Identity(t.Context()); err != nil {
		t.Fatal(err)
	}
	for txid := batch.Txid(1); txid <= 30; txid++ {
		c := commitOf(txid, setOf("s", 4, add("a", 1), set(fmt.Sprint(txid), strings.Repeat("x", 200))), setOf("other", 4, set("k", fmt.Sprint(txid))))
		if txid == 1 {
			c.Schemas = []state.Schema{{Name: "s", Kind: "opaque"}}
			c.Statics = []StaticTable{{Name: "table", Version: 1, Digest: 7, Parts: []StaticPart{{Fields: []string{"a"}, Records: []batch.Record{{Value: []byte("v")}}}}}}
		}
		mustCommit(t, db, c)
		if txid == 12 || txid == 24 {
			if err := db.pebble.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, err := readAll(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if kill {
		all := filesOf(t, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), o.Dir)
		mustClose(t, db)
		return o, all, want
	}
	mustClose(t, db)
	return o, filesOf(t, mem, o.Dir), want
}

// survives opens a database one of whose files holds b in place of what was written. It must be refused as damaged, at once or when what
// is damaged is read, or hold all that it held; refused tells which. Whatever happens, it isn't a database that begins anew.
func survives(t *testing.T, o Options, all files, want *holding, path string, b []byte, readOnly bool) (refused bool) {
	t.Helper()
	what := fmt.Sprintf("%s with %d bytes of %d (read-only %v)", path, len(b), len(all[path]), readOnly)
	o.FS, o.ReadOnly = all.place(t, path, b), readOnly
	o.Fatal = func(err error) { t.Errorf("%s: the process would have ended: %v", what, err) }
	db, err := Open(t.Context(), o)
	if err != nil {
		if code := batch.CodeOf(err); code != batch.CodeStoreDamaged && code != batch.CodeStoreForeign || batch.KindOf(err) != batch.Permanent {
			t.Errorf("%s: %s: %v", what, code, err)
		}
		return true
	}
	got, err := readAll(t.Context(), db)
	switch {
	case err != nil && batch.CodeOf(err) != batch.CodeStoreDamaged:
		t.Errorf("%s: %s: %v", what, batch.CodeOf(err), err)
	case err == nil && !reflect.DeepEqual(&got, want):
		t.Errorf("%s: it holds txid %d and %d entries, states %v, want txid %d, %v", what, got.snap.Txid, len(got.entries), got.states, want.snap.Txid, want.states)
	}
	if cerr := db.Close(); cerr != nil && err == nil && !errors.Is(cerr, io.EOF) && batch.CodeOf(cerr) != batch.CodeStoreDamaged {
		t.Errorf("%s: close: %v", what, cerr)
	}
	return err != nil
}

// TestDamagedAnywhere flips, cuts, empties, removes and lengthens each file of a data directory.
func TestDamagedAnywhere(t *testing.T) {
	flips, cuts := 6, 3
	if os.Getenv("TRIDENTD_TEST_FULL") == "1" {
		flips, cuts = 200, 60
	}
	for _, kill := range []bool{false, true} {
		o, all, want := damagedBase(t, kill)
		rng := rand.New(rand.NewPCG(1, 3))
		tried, refused := 0, 0
		for _, path := range all.paths() {
			was := all[path]
			try := func(b []byte) {
				tried++
				if survives(t, o, all, &want, path, b, tried%2 == 0) {
					refused++
				}
			}
			try(nil)
			try([]byte{})
			try(append(slices.Clone(was), "garbage behind the end of the file"...))
			for range cuts {
				if len(was) > 0 {
					try(slices.Clone(was[:rng.IntN(len(was))]))
				}
			}
			for range flips {
				if len(was) > 0 {
					b := slices.Clone(was)
					b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
					try(b)
				}
			}
			if len(was) > 100 {
				b := slices.Clone(was)
				clear(b[rng.IntN(len(b)):])
				try(b)
			}
		}
		t.Logf("kill=%v: %d files, %d damages, %d refused", kill, len(all), tried, refused)
		if refused < tried/4 {
			t.Errorf("kill=%v: only %d of %d damages were noticed", kill, refused, tried)
		}
	}
}

// FuzzFile damages one file of a data directory: the byte at a place, or all from there on.
func FuzzFile(f *testing.F) {
	type base struct {
		o    Options
		all  files
		want holding
	}
	var bases [2]base
	for i := range bases {
		bases[i].o, bases[i].all, bases[i].want = damagedBase(f, i == 1)
	}
	f.Add(false, uint8(0), uint32(3), byte(1), false)
	f.Add(true, uint8(1), uint32(100), byte(0), true)
	f.Fuzz(func(t *testing.T, kill bool, file uint8, at uint32, flip byte, cut bool) {
		b := &bases[0]
		if kill {
			b = &bases[1]
		}
		paths := b.all.paths()
		path := paths[int(file)%len(paths)]
		was := b.all[path]
		if len(was) == 0 {
			return
		}
		now := slices.Clone(was)
		if i := int(at) % len(was); cut {
			now = now[:i]
		} else {
			now[i] ^= flip
		}
		survives(t, b.o, b.all, &b.want, path, now, flip%2 == 0)
	})
}
