package pebblestate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/state"
)

// drawSet draws what a batch does to a state. Keys are few, so that they meet; the first byte is the window.
// State "sums" takes numbers only, so that operands can be merged into every value.
func drawSet(t *rapid.T, name string, shards int) *state.WriteSet {
	key := rapid.Custom(func(t *rapid.T) string {
		return rapid.StringOfN(rapid.SampledFrom([]rune{'a', 'b', 'c', 0, 0x7f}), 1, 3, -1).Draw(t, "key")
	})
	keys := rapid.SliceOfNDistinct(key, 0, 12, rapid.ID[string]).Draw(t, "keys")
	writes := make([]state.Write, len(keys))
	for i, k := range keys {
		switch op := rapid.IntRange(0, 3).Draw(t, "op"); {
		case op == 0:
			writes[i] = del(k)
		case op == 1 && name == "sums":
			writes[i] = add(k, rapid.Uint64Range(0, 1000).Draw(t, "n"))
		case name == "sums":
			writes[i] = set(k, string(num(rapid.Uint64Range(0, 1000).Draw(t, "n"))))
		default:
			writes[i] = set(k, rapid.StringN(0, 5, -1).Draw(t, "value"))
		}
	}
	s := setOf(name, shards, writes...)
	for _, w := range []string{"a", "b", "ab", "\x7f"} {
		if rapid.IntRange(0, 9).Draw(t, "drop") == 0 {
			s.DropWindows = append(s.DropWindows, []byte(w))
		}
	}
	return s
}

// TestModel commits at random and compares every way of reading with a map: through the cache, by snapshot, by
// scans with bounds; with tiny caches and memtables, over reopened databases, with several txids in one write.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := testOptions(vfs.NewMem())
		o.Shards = rapid.SampledFrom([]int{1, 3, 16}).Draw(rt, "shards")
		o.CacheBytes = rapid.SampledFrom([]int64{1, 2000, 1 << 20}).Draw(rt, "cache")
		db := mustOpen(t, o)
		defer func() { mustClose(t, db) }()
		m := model{"sums": {}, "texts": {}}
		names := []string{"sums", "texts"}
		txid := batch.Txid(0)
		readers := map[string]state.Reader{}
		open := func() {
			for _, name := range names {
				r, err := db.State(name)
				if err != nil {
					rt.Fatal(err)
				}
				readers[name] = r
			}
		}
		open()
		rt.Repeat(map[string]func(*rapid.T){
			"commit": func(rt *rapid.T) {
				var commits []Commit
				for range rapid.IntRange(1, 3).Draw(rt, "txids") {
					txid++
					var sets []*state.WriteSet
					for _, name := range names {
						if rapid.Bool().Draw(rt, name) {
							sets = append(sets, drawSet(rt, name, o.Shards))
						}
					}
					commits = append(commits, commitOf(txid, sets...))
					for _, s := range sets {
						m.apply(s)
					}
				}
				mustCommit(t, db, commits...)
			},
			"get": func(rt *rapid.T) {
				name := rapid.SampledFrom(names).Draw(rt, "state")
				s, err := db.Snapshot()
				if err != nil {
					rt.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				keys := rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune{'a', 'b', 'c', 0, 0x7f}), 1, 3, -1), 1, 8).Draw(rt, "keys")
				for _, k := range keys {
					want, exists := m[name][k]
					got, ok, err := readers[name].Get(t.Context(), []byte(k))
					if err != nil || ok != exists || string(got) != want {
						rt.Fatalf("Get(%s, %q) = %x, %v, %v; want %x, %v", name, k, got, ok, err, want, exists)
					}
					got, ok, err = s.Get(t.Context(), name, []byte(k))
					if err != nil || ok != exists || string(got) != want {
						rt.Fatalf("Snapshot.Get(%s, %q) = %x, %v, %v; want %x, %v", name, k, got, ok, err, want, exists)
					}
				}
			},
			"scan": func(rt *rapid.T) {
				name := rapid.SampledFrom(names).Draw(rt, "state")
				bound := rapid.OneOf(rapid.Just(""), rapid.StringOfN(rapid.SampledFrom([]rune{'a', 'b', 'c', 0, 0x7f}), 1, 2, -1))
				from, to := bound.Draw(rt, "from"), bound.Draw(rt, "to")
				s, err := db.Snapshot()
				if err != nil {
					rt.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				if s.Txid() != txid {
					rt.Fatalf("the snapshot is at txid %d, want %d", s.Txid(), txid)
				}
				var f, u []byte
				if from != "" {
					f = []byte(from)
				}
				if to != "" {
					u = []byte(to)
				}
				if got, want := scan(t, s, name, f, u), m.rows(name, from, to); !slices.Equal(got, want) {
					rt.Fatalf("Scan(%s, %q, %q):\n got %v\nwant %v", name, from, to, got, want)
				}
			},
			"flush": func(rt *rapid.T) {
				if err := db.pebble.Flush(); err != nil {
					rt.Fatal(err)
				}
			},
			"reopen": func(rt *rapid.T) {
				before, err := db.Digest(t.Context())
				if err != nil {
					rt.Fatal(err)
				}
				mustClose(t, db)
				db = mustOpen(t, o)
				open()
				if after, err := db.Digest(t.Context()); err != nil || after != before {
					rt.Fatalf("the digest was %x, reopened it is %x (%v)", before, after, err)
				}
				if got := txidOf(t, db); got != txid {
					rt.Fatalf("reopened at txid %d, want %d", got, txid)
				}
			},
			"": func(rt *rapid.T) {
				if used := db.rec.budget.used.Load(); used < 0 || used > o.CacheBytes {
					rt.Fatalf("the caches use %d of %d bytes", used, o.CacheBytes)
				}
			},
		})
	})
}

// TestScanFetchesAhead crosses the sizes at which a shard's rows are fetched.
func TestScanFetchesAhead(t *testing.T) {
	for _, shards := range []int{1, 7, 256} {
		o := testOptions(vfs.NewMem())
		o.Shards = shards
		db := mustOpen(t, o)
		m := model{}
		var writes []state.Write
		for i := range 5000 {
			writes = append(writes, set(fmt.Sprintf("key-%05d", i), fmt.Sprint(i)))
		}
		s := setOf("s", shards, writes...)
		mustCommit(t, db, commitOf(1, setOf("r", shards, set("r", "r")), s, setOf("t", shards, set("t", "t"))))
		m.apply(s)
		mustHold(t, db, m)
		snap, err := db.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := scan(t, snap, "s", []byte("key-01000"), []byte("key-03000")), m.rows("s", "key-01000", "key-03000"); !slices.Equal(got, want) {
			t.Fatalf("%d shards: a range of %d rows, want %d", shards, len(got), len(want))
		}
		n := 0
		for range snap.Scan(t.Context(), "s", nil, nil) {
			if n++; n == 10 {
				break
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var last error
		for _, err := range snap.Scan(ctx, "s", nil, nil) {
			cancel()
			last = err
		}
		cancel()
		if !errors.Is(last, context.Canceled) {
			t.Fatalf("a scan whose context was cancelled ends with %v", last)
		}
		if err := snap.Close(); err != nil {
			t.Fatal(err)
		}
		mustClose(t, db)
	}
}

// TestDigestIsLogical compares databases that hold the same by different ways.
func TestDigestIsLogical(t *testing.T) {
	build := func(shards int, commits ...func(shards int) *state.WriteSet) uint64 {
		o := testOptions(vfs.NewMem())
		o.Shards = shards
		db := mustOpen(t, o)
		defer mustClose(t, db)
		for i, c := range commits {
			mustCommit(t, db, commitOf(batch.Txid(i+1), c(shards)))
		}
		d, err := db.Digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	write := func(ws ...state.Write) func(int) *state.WriteSet {
		return func(shards int) *state.WriteSet { return setOf("s", shards, slices.Clone(ws)...) }
	}
	want := build(4, write(set("a", string(num(3))), set("b", string(num(5)))))
	for name, got := range map[string]uint64{
		"other shards":    build(9, write(set("a", string(num(3))), set("b", string(num(5))))),
		"merge operands":  build(4, write(add("a", 1), add("b", 5)), write(add("a", 2))),
		"a removed key":   build(4, write(set("a", string(num(3))), set("c", "x")), write(set("b", string(num(5))), del("c"))),
		"a merge to sets": build(4, write(set("a", string(num(2)))), write(add("a", 1), set("b", string(num(5))))),
	} {
		if got != want {
			t.Errorf("%s: digest %x, want %x", name, got, want)
		}
	}
	for name, got := range map[string]uint64{
		"another value": build(4, write(set("a", string(num(4))), set("b", string(num(5))))),
		"another key":   build(4, write(set("a", string(num(3))), set("c", string(num(5))))),
		"a key more":    build(4, write(set("a", string(num(3))), set("b", string(num(5))), set("c", ""))),
		"moved bytes":   build(4, write(set("a"+string(num(3)), ""), set("b", string(num(5))))),
	} {
		if got == want {
			t.Errorf("%s: the digest is the same", name)
		}
	}
}

func TestSnapshotStays(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	mustCommit(t, db, commitOf(1, setOf("s", 4, set("k", "one"))))
	snap, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	mustCommit(t, db, commitOf(2, setOf("s", 4, set("k", "two"), set("l", "new")), setOf("later", 4, set("x", "y"))))
	if got := scan(t, snap, "s", nil, nil); !slices.Equal(got, []string{fmt.Sprintf("%q=%x", "k", "one")}) || snap.Txid() != 1 {
		t.Errorf("the snapshot of txid 1 holds %v at txid %d", got, snap.Txid())
	}
	if schemas, err := snap.Schemas(); err != nil || len(schemas) != 1 {
		t.Errorf("the snapshot of txid 1 has schemas %v, %v", schemas, err)
	}
	if _, ok, err := snap.Get(t.Context(), "later", []byte("x")); ok || err != nil {
		t.Errorf("a later state shows: %v, %v", ok, err)
	}
	for range 2 {
		if err := snap.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSchemas(t *testing.T) {
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	counts := state.Schema{
		Name: "counts", Kind: "aggregate", Key: []state.Column{{Name: "word", Type: "string"}},
		Values: []state.Column{{Name: "n", Type: "int", Agg: "count"}}, Window: &state.Window{Size: 5, Offset: 1, Retention: 9},
	}
	c := commitOf(1, setOf("counts", 4, add("a", 1)), setOf("undeclared", 4, set("k", "v")))
	c.Schemas = []state.Schema{counts}
	mustCommit(t, db, c)
	c = commitOf(2, setOf("counts", 4, add("a", 2)))
	counts.Values[0].Name = "total"
	c.Schemas = []state.Schema{counts, {Name: "empty", Kind: "rows"}}
	mustCommit(t, db, c)
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	s, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	got, err := s.Schemas()
	if err != nil || len(got) != 3 {
		t.Fatalf("schemas %+v, %v", got, err)
	}
	if got[0].Name != "counts" || got[0].Values[0].Name != "total" || *got[0].Window != *counts.Window ||
		got[1].Name != "empty" || got[2].Name != "undeclared" || got[2].Kind != "opaque" {
		t.Fatalf("schemas %+v", got)
	}
	if v, ok, err := s.Get(t.Context(), "counts", []byte("a")); err != nil || !ok || !bytes.Equal(v, num(3)) {
		t.Fatalf("a state lost its rows with a new schema: %x, %v, %v", v, ok, err)
	}
}

func TestStatics(t *testing.T) {
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	if _, ok, err := db.Static(t.Context(), "airlines"); ok || err != nil {
		t.Fatalf("a table that isn't there: %v, %v", ok, err)
	}
	var recs []batch.Record
	for i := range 3000 {
		recs = append(recs, batch.Record{Offset: int64(i), Timestamp: int64(i) - 7, Value: bytes.Repeat([]byte{byte(i)}, 300)})
	}
	recs[1].Key = []byte{}
	recs[2] = batch.Record{Offset: 2, Headers: []batch.Header{{Key: "h", Value: nil}, {Key: "", Value: []byte{}}}}
	first := StaticTable{Name: "airlines", Version: 1, Digest: 11, Parts: []StaticPart{
		{Partition: batch.Partition{Source: "airlines", Topic: "a.csv"}, Fields: []string{"carrier", "name"}, Records: recs},
		{Partition: batch.Partition{Source: "airlines", Topic: "b.csv", Number: 3}, Records: recs[:3:3]},
		{Partition: batch.Partition{Source: "airlines", Topic: "c.csv"}, Fields: []string{}},
	}}
	second := StaticTable{Name: "airlines", Version: 2, Digest: 12, Parts: first.Parts[1:2]}
	other := StaticTable{Name: "airlines2", Version: 9, Digest: 11}
	c := commitOf(1)
	c.Statics = []StaticTable{first, other}
	mustCommit(t, db, c)
	check := func(got StaticTable, ok bool, err error, want StaticTable) {
		t.Helper()
		if err != nil || !ok {
			t.Fatalf("%v, %v", ok, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %.500s\nwant %.500s", fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want))
		}
	}
	got, ok, err := db.Static(t.Context(), "airlines")
	check(got, ok, err, first)
	c = commitOf(2)
	c.Statics = []StaticTable{second}
	mustCommit(t, db, c)
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	got, ok, err = db.Static(t.Context(), "airlines")
	check(got, ok, err, second)
	got, ok, err = db.StaticWith(t.Context(), "airlines", 11)
	check(got, ok, err, first)
	got, ok, err = db.Static(t.Context(), "airlines2")
	check(got, ok, err, other)
	if _, ok, err := db.StaticWith(t.Context(), "airlines", 13); ok || err != nil {
		t.Fatalf("a content that isn't there: %v, %v", ok, err)
	}
}

func TestBatchTooLarge(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.MaxBatchBytes = 2000
	db := mustOpen(t, o)
	defer mustClose(t, db)
	big := func(n int) *state.WriteSet {
		var ws []state.Write
		for i := range n {
			ws = append(ws, set(fmt.Sprintf("%03d", i), "0123456789"))
		}
		return setOf("s", 4, ws...)
	}
	mustCommit(t, db, commitOf(1, big(20)))
	err := db.Commit(t.Context(), []Commit{commitOf(2, big(200))})
	wantCode(t, err, batch.CodeBatchTooLarge, "max_records", "2000", "txid 2")
	if errors.Is(err, ErrUnknownOutcome) || batch.KindOf(err) != batch.Permanent {
		t.Fatalf("nothing was written, but: %v", err)
	}
	if err := db.Commit(t.Context(), []Commit{commitOf(2, big(20)), commitOf(3, big(200))}); batch.CodeOf(err) != batch.CodeBatchTooLarge {
		t.Fatal(err)
	}
	if got := txidOf(t, db); got != 1 {
		t.Fatalf("a refused commit moved the txid to %d", got)
	}
	drop := setOf("s", 4)
	for i := range 200 {
		drop.DropWindows = append(drop.DropWindows, []byte{byte(i), 1})
	}
	wantCode(t, db.Commit(t.Context(), []Commit{commitOf(2, drop)}), batch.CodeBatchTooLarge)

	// Several that fit one by one take as many writes as they need.
	var commits []Commit
	for txid := batch.Txid(2); txid <= 9; txid++ {
		commits = append(commits, commitOf(txid, big(20+int(txid))))
	}
	mustCommit(t, db, commits...)
	m := model{}
	m.apply(big(29))
	mustHold(t, db, m)
	if got := txidOf(t, db); got != 9 {
		t.Fatalf("txid %d, want 9", got)
	}
}

func TestMerger(t *testing.T) {
	// Concatenation with marks is associative and shows every operand and its place.
	concat := func(dst, older, newer []byte) ([]byte, error) { return append(append(dst, older...), newer...), nil }
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 4), 1, 8).Draw(t, "operands")
		at := rapid.IntRange(0, len(parts)-1).Draw(t, "first")
		fold := func(parts [][]byte, newer bool) []byte {
			start := parts[len(parts)-1]
			if newer {
				start = parts[0]
			}
			first := bytes.Clone(start)
			m, err := newMerger(concat).Merge(nil, first)
			if err != nil {
				t.Fatal(err)
			}
			clear(first) // the merger must not hold on to it
			for i := 1; i < len(parts); i++ {
				var err error
				if newer {
					op := bytes.Clone(parts[i])
					err = m.MergeNewer(op)
					clear(op)
				} else {
					op := bytes.Clone(parts[len(parts)-1-i])
					err = m.MergeOlder(op)
					clear(op)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			out, closer, err := m.Finish(true)
			if err != nil {
				t.Fatal(err)
			}
			out = bytes.Clone(out) // the next merge may have the memory
			if err := closer.Close(); err != nil {
				t.Fatal(err)
			}
			return out
		}
		want := bytes.Join(parts, nil)
		groups := [][]byte{fold(parts[:at+1], rapid.Bool().Draw(t, "up"))}
		if at+1 < len(parts) {
			groups = append(groups, fold(parts[at+1:], rapid.Bool().Draw(t, "up")))
		}
		if got := fold(groups, rapid.Bool().Draw(t, "up")); !bytes.Equal(got, want) {
			t.Fatalf("got %x, want %x", got, want)
		}
	})
}

func TestMergeError(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer func() { _ = db.Close() }()
	mustCommit(t, db, commitOf(1, setOf("s", 4, set("k", "not a number"))))
	mustCommit(t, db, commitOf(2, setOf("s", 4, add("k", 1))))
	r, err := db.State("s")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Get(t.Context(), []byte("k")); err == nil {
		t.Fatal("operands that don't fit were merged")
	}
}

// TestFillOfAnOlderVersion fills the cache with what was read before a commit published its version and has not yet
// touched the cache: readers of the new version would see its value, and then the old one.
func TestFillOfAnOlderVersion(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	mustCommit(t, db, commitOf(1, setOf("s", 4, add("k", 1)))) // a merge leaves the cache without the key
	old, err := db.acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer db.release(old)
	c, key := old.states["s"].cache, []byte("k")
	shard := state.ShardOf(key, db.format.Shards)
	fill := func(v *version) (kept bool) {
		_, _, at := c.get(shard, key)
		c.fill(shard, key, num(1), at, func() bool { return db.current.Load() == v })
		_, kept, _ = c.get(shard, key)
		return kept
	}
	if err := db.publish(db.rec.committed.txid, old.states); err != nil {
		t.Fatal(err)
	}
	if fill(old) {
		t.Error("the cache took the value of a version that isn't current")
	}
	if !fill(db.current.Load()) {
		t.Error("the cache didn't take the value of the current version")
	}
}

// TestConcurrentReads reads while commits go on: each reader sees values rise, never one that isn't committed, never
// one older than a commit that had returned before it asked. A cache that takes a stale fill fails this.
func TestConcurrentReads(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.CacheBytes = 3 * cachedOverhead // most reads miss, many fills are evicted
	db := mustOpen(t, o)
	defer mustClose(t, db)
	keys := []string{"a", "b", "c", "d", "e", "f"}
	const txids = 400
	var mu sync.Mutex
	var begun, returned uint64
	bounds := func() (lo, hi uint64) {
		mu.Lock()
		defer mu.Unlock()
		return returned, begun
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			r, err := db.State("s")
			if err != nil {
				t.Error(err)
				return
			}
			seen := map[string]uint64{}
			for n := i; ctx.Err() == nil; n++ {
				k := keys[n%len(keys)]
				lo, _ := bounds()
				v, ok, err := r.Get(ctx, []byte(k))
				_, hi := bounds()
				got := uint64(0)
				if ok {
					got, _ = numOf(v)
				}
				if err != nil || got < lo || got > hi || got < seen[k] {
					t.Errorf("Get(%s) = %d (%v) after %d; between %d and %d had committed", k, got, err, seen[k], lo, hi)
					return
				}
				seen[k] = got
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			lo, _ := bounds()
			s, err := db.Snapshot()
			if err != nil {
				t.Error(err)
				return
			}
			var values []uint64
			for row, err := range s.Scan(ctx, "s", nil, nil) {
				if err != nil {
					break
				}
				n, _ := numOf(row.Value)
				values = append(values, n)
			}
			txid := uint64(s.Txid())
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if ctx.Err() != nil {
				return
			}
			for _, v := range values {
				if v != txid || txid < lo {
					t.Errorf("the snapshot of txid %d holds %v; %d had committed", txid, values, lo)
					return
				}
			}
		}
	})
	for txid := uint64(1); txid <= txids; txid++ {
		var ws []state.Write
		for i, k := range keys {
			if (uint64(i)+txid)%2 == 0 || txid == 1 {
				ws = append(ws, set(k, string(num(txid))))
			} else {
				ws = append(ws, add(k, 1))
			}
		}
		mu.Lock()
		begun = txid
		mu.Unlock()
		mustCommit(t, db, commitOf(batch.Txid(txid), setOf("s", 4, ws...)))
		mu.Lock()
		returned = txid
		mu.Unlock()
	}
	stop()
	wg.Wait()
}

func numOf(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("%x is no number", b)
	}
	var n uint64
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n, nil
}
