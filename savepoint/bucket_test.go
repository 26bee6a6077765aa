package savepoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/savepoint"
)

// memory is a bucket whose requests fail as a test wants.
type memory struct {
	mu       sync.Mutex
	objects  map[string]savepoint.Object
	content  map[string][]byte
	requests int
	// fault is asked before request n does anything, and behind that: then the request has been done, and its answer is lost.
	fault func(n int, op, key string, done bool) error
}

func newMemory() *memory {
	return &memory{objects: map[string]savepoint.Object{}, content: map[string][]byte{}}
}

func (m *memory) String() string { return "mem://m" }
func (m *memory) Close() error   { return nil }

// do makes a request. Faults are those of requests that are made one behind the other, whatever asks them.
func (m *memory) do(ctx context.Context, op, key string, f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests++
	n := m.requests
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.fault != nil {
		if err := m.fault(n, op, key, false); err != nil {
			return err
		}
	}
	err := f()
	if m.fault != nil && err == nil {
		return m.fault(n, op, key, true)
	}
	return err
}

func (m *memory) keys(prefix string) []string {
	return slices.Sorted(func(yield func(string) bool) {
		for k := range m.objects { // order: sorted behind
			if strings.HasPrefix(k, prefix) && !yield(k) {
				return
			}
		}
	})
}

func (m *memory) Objects(ctx context.Context, prefix string) (all []savepoint.Object, err error) {
	return all, m.do(ctx, "list", prefix, func() error {
		for _, k := range m.keys(prefix) {
			all = append(all, m.objects[k])
		}
		return nil
	})
}

func (m *memory) Folders(ctx context.Context, prefix string) (all []string, err error) {
	return all, m.do(ctx, "folders", prefix, func() error {
		for _, k := range m.keys(prefix) {
			if name, _, ok := strings.Cut(strings.TrimPrefix(k, prefix), "/"); ok && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
		return nil
	})
}

func (m *memory) Open(ctx context.Context, key string) (r io.ReadCloser, err error) {
	return r, m.do(ctx, "open", key, func() error {
		b, ok := m.content[key]
		if !ok {
			return fmt.Errorf("%s: %w", key, fs.ErrNotExist)
		}
		r = io.NopCloser(bytes.NewReader(b))
		return nil
	})
}

func (m *memory) Create(ctx context.Context, key string, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return m.do(ctx, "create", key, func() error {
		if _, ok := m.objects[key]; ok {
			return fmt.Errorf("%s: %w", key, fs.ErrExist)
		}
		m.put(key, b, time.Now())
		return nil
	})
}

func (m *memory) put(key string, b []byte, at time.Time) {
	m.objects[key] = savepoint.Object{Key: key, Size: int64(len(b)), Written: at}
	m.content[key] = b
}

func (m *memory) Delete(ctx context.Context, key string) error {
	return m.do(ctx, "delete", key, func() error {
		delete(m.objects, key)
		delete(m.content, key)
		return nil
	})
}

// clone is another bucket with the same content, and without faults.
func (m *memory) clone() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{objects: maps.Clone(m.objects), content: maps.Clone(m.content)}
}

func (m *memory) place() savepoint.Place {
	return savepoint.Hasten(savepoint.In(m, "some/prefix", pipeline))
}

// tryCreate makes a savepoint of a store.
func tryCreate(ctx context.Context, t testing.TB, p savepoint.Place, db *pebblestate.DB, name string) (savepoint.Info, error) {
	return p.Create(ctx, name, t.TempDir(), noon, func(ctx context.Context, dir string) error {
		_, err := db.Checkpoint(ctx, dir)
		return err
	})
}

func away(op, key string) error {
	return batch.NewError(batch.Transient, batch.CodeUnavailable, "savepoint", fmt.Errorf("%s %s: the bucket is away", op, key), "")
}

// errDead is the end of the process that works on a bucket.
var errDead = errors.New("killed")

// TestBucketLife: a bucket holds what a folder does, at <prefix>/<pipeline>/<name>.
func TestBucketLife(t *testing.T) {
	m := newMemory()
	p := m.place()
	if p.String() != "mem://m/some/prefix/words" {
		t.Errorf("it is called %s", p)
	}
	if all, err := p.List(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("an empty place lists %v, %v", all, err)
	}
	db := store(t, 3)
	info := create(t, p, db, "one")
	if m.objects["some/prefix/words/one/savepoint.json"].Size == 0 || len(m.keys("")) != len(info.Files)+1 || len(m.keys("some/prefix/words/one/store-")) != len(info.Files) {
		t.Errorf("the bucket holds %v", m.keys(""))
	}
	commit(t, db, 4, 6)
	create(t, p, db, "two")
	all, err := p.List(t.Context())
	if err != nil || len(all) != 2 || all[0].Name != "one" || all[1].Name != "two" || all[0].Chain != info.Chain {
		t.Fatalf("%+v, %v", all, err)
	}
	_, err = tryCreate(t.Context(), t, p, db, "one")
	code(t, err, batch.CodeConfiguration, "one exists")
	if _, err := p.Verify(t.Context(), "one"); err != nil {
		t.Error(err)
	}
	to := filepath.Join(t.TempDir(), pipeline)
	if _, err := p.Restore(t.Context(), "one", to); err != nil {
		t.Fatal(err)
	}
	holds(t, to, 3)

	// By an archive to a folder and to another bucket.
	var archive bytes.Buffer
	if _, err := p.Export(t.Context(), "two", &archive); err != nil {
		t.Fatal(err)
	}
	for kind, elsewhere := range map[string]savepoint.Place{"folder": savepoint.At(t.TempDir(), pipeline), "bucket": newMemory().place()} {
		if _, err := elsewhere.Import(t.Context(), bytes.NewReader(archive.Bytes()), "two.tar.zst", ""); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), pipeline)
		if got, err := elsewhere.Restore(t.Context(), "two", to); err != nil || got.Txid != 6 {
			t.Fatalf("%s: %+v, %v", kind, got, err)
		}
		holds(t, to, 6)
	}

	if err := p.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	code(t, p.Remove(t.Context(), "one"), batch.CodeConfiguration, "no savepoint one in mem://m/some/prefix/words", "there is two")
	if len(m.keys("some/prefix/words/one/")) > 0 {
		t.Errorf("what is left of one: %v", m.keys("some/prefix/words/one/"))
	}
	if _, err := p.Verify(t.Context(), "two"); err != nil {
		t.Error(err)
	}
}

// TestBucketOfTwo: pipelines in one bucket don't see each other's savepoints.
func TestBucketOfTwo(t *testing.T) {
	m := newMemory()
	mine := m.place()
	create(t, mine, store(t, 2), "one")
	others := savepoint.Hasten(savepoint.In(m, "some/prefix", "words2"))
	if all, err := others.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
	if err := others.Sweep(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	// Somebody has copied it to another pipeline's.
	for _, k := range m.keys("some/prefix/words/") {
		m.put(strings.Replace(k, "/words/", "/words2/", 1), m.content[k], time.Now())
	}
	_, err := others.Verify(t.Context(), "one")
	code(t, err, batch.CodeStoreForeign, "mem://m/some/prefix/words2/one/savepoint.json is of pipeline words")
	if _, err := mine.Verify(t.Context(), "one"); err != nil {
		t.Error(err)
	}
}

// TestBucketAway: each request fails once, before it was done or behind that, and all is as if none had.
func TestBucketAway(t *testing.T) {
	for _, done := range []bool{false, true} {
		m := newMemory()
		failed := map[string]bool{}
		m.fault = func(_ int, op, key string, behind bool) error {
			if id := op + " " + key; behind == done && !failed[id] {
				failed[id] = true
				return away(op, key)
			}
			return nil
		}
		p := m.place()
		db := store(t, 4)
		create(t, p, db, "one")
		if all, err := p.List(t.Context()); err != nil || len(all) != 1 {
			t.Fatalf("done %t: %v, %v", done, all, err)
		}
		if _, err := p.Verify(t.Context(), "one"); err != nil {
			t.Errorf("done %t: %v", done, err)
		}
		if err := p.Remove(t.Context(), "one"); err != nil {
			t.Errorf("done %t: %v", done, err)
		}
		if len(m.objects) > 0 {
			t.Errorf("done %t: %v is left", done, m.keys(""))
		}
	}
}

// TestBucketGone: a bucket that stays away is told as that after some attempts, and one that refuses at once.
func TestBucketGone(t *testing.T) {
	m := newMemory()
	p := m.place()
	m.fault = func(_ int, op, key string, _ bool) error { return away(op, key) }
	_, err := tryCreate(t.Context(), t, p, store(t, 1), "one")
	code(t, err, batch.CodeUnavailable, "the bucket is away")
	if batch.KindOf(err) != batch.Transient {
		t.Errorf("%v is permanent", err)
	}
	refused := batch.NewError(batch.Permanent, batch.CodeUnauthorized, "savepoint", errors.New("forbidden"), "")
	m.requests, m.fault = 0, func(int, string, string, bool) error { return refused }
	_, err = p.List(t.Context())
	code(t, err, batch.CodeUnauthorized)
	if m.requests != 1 {
		t.Errorf("%d requests of one that is refused", m.requests)
	}
}

// TestBucketKilled ends a process at each request of a life in turn, before the request is done or just behind it. Whatever the
// moment, each name that is listed is a whole savepoint, and what lies beside it goes with the next sweep.
func TestBucketKilled(t *testing.T) {
	db := store(t, 2)
	before := newMemory()
	create(t, before.place(), db, "before")
	commit(t, db, 3, 3)
	life := func(m *memory) error {
		p := m.place()
		if _, err := tryCreate(t.Context(), t, p, db, "new"); err != nil {
			return err
		}
		return p.Remove(t.Context(), "before")
	}
	whole := before.clone()
	if err := life(whole); err != nil {
		t.Fatal(err)
	}
	if whole.requests < 20 {
		t.Fatalf("a life has %d requests", whole.requests)
	}
	seen := map[string]int{}
	for n := 1; n <= whole.requests; n++ {
		for _, done := range []bool{false, true} {
			m := before.clone()
			m.fault = func(at int, _, _ string, behind bool) error {
				if at > n || at == n && behind == done {
					return errDead
				}
				return nil
			}
			if err := life(m); !errors.Is(err, errDead) {
				t.Fatalf("request %d: %v", n, err)
			}
			m.fault = nil
			p := m.place()
			all, err := p.List(t.Context())
			if err != nil || len(all) == 0 {
				t.Fatalf("request %d: %v, %v", n, all, err)
			}
			files := 0
			var names []string
			for _, i := range all {
				files += len(i.Files) + 1
				names = append(names, i.Name)
				if _, err := p.Verify(t.Context(), i.Name); err != nil {
					t.Errorf("request %d: %v", n, err)
				}
			}
			seen[strings.Join(names, " ")]++
			// What was written lately may be somebody's who is at work.
			had := len(m.objects)
			if err := p.Sweep(t.Context(), time.Now().Add(-time.Hour)); err != nil || len(m.objects) != had {
				t.Errorf("request %d: %v, a sweep took %d objects", n, err, had-len(m.objects))
			}
			if err := p.Sweep(t.Context(), time.Now().Add(time.Hour)); err != nil || len(m.objects) != files {
				t.Errorf("request %d: %v, %d objects of savepoints %v with %d: %v", n, err, len(m.objects), names, files, m.keys(""))
			}
			if _, err := tryCreate(t.Context(), t, p, db, "again"); err != nil {
				t.Errorf("request %d: %v", n, err)
			}
		}
	}
	for _, want := range []string{"before", "before new", "new"} {
		if seen[want] == 0 {
			t.Errorf("no moment left %s: %v", want, seen)
		}
	}
}

// TestBucketRace: of two that make a savepoint of one name at once one fails, and leaves nothing.
func TestBucketRace(t *testing.T) {
	m := newMemory()
	p := m.place()
	db := store(t, 2)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { _, errs[i] = tryCreate(t.Context(), t, p, db, "one") })
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
			continue
		}
		code(t, err, batch.CodeConfiguration, "one exists")
	}
	info, err := p.Verify(t.Context(), "one")
	if made != 1 || err != nil || len(m.objects) != len(info.Files)+1 {
		t.Errorf("%d were made, %v; the bucket holds %v", made, err, m.keys(""))
	}
}

// TestBucketDamage changes, cuts, removes and adds objects of a savepoint: each is named, and nothing is restored or exported.
func TestBucketDamage(t *testing.T) {
	sound := newMemory()
	create(t, sound.place(), store(t, 5), "one")
	for _, key := range sound.keys("") {
		b := sound.content[key]
		for kind, change := range map[string]func(m *memory){
			"missing": func(m *memory) { delete(m.objects, key) },
			"added":   func(m *memory) { m.put(key+".more", nil, time.Now()) },
			"cut":     func(m *memory) { m.put(key, b[:max(0, len(b)-2)], time.Now()) },
			"changed": func(m *memory) {
				c := bytes.Clone(b)
				if len(c) > 0 {
					c[len(c)/2] ^= 1
				}
				m.put(key, c, time.Now())
			},
		} {
			info := strings.HasSuffix(key, "savepoint.json")
			switch {
			case len(b) == 0 && kind != "missing" && kind != "added", info && kind == "added":
				continue // it would be the same, or nobody's
			}
			m := sound.clone()
			change(m)
			if kind == "missing" {
				delete(m.content, key)
			}
			p := m.place()
			want, words := batch.CodeStoreDamaged, []string{key}
			switch {
			case info && kind == "missing":
				want, words = batch.CodeConfiguration, []string{"no savepoint one"}
			case info && kind == "changed": // another place in it for each run, as it holds a random name
				words = nil
			case kind == "added":
				words = []string{key + ".more", "doesn't belong here"}
			}
			_, err := p.Verify(t.Context(), "one")
			if err == nil {
				t.Fatalf("%s, %s: it was taken", key, kind)
			}
			code(t, err, want, words...)
			_, err = p.Export(t.Context(), "one", io.Discard)
			code(t, err, want)
			to := filepath.Join(t.TempDir(), pipeline)
			_, err = p.Restore(t.Context(), "one", to)
			code(t, err, want)
			if left, _ := filepath.Glob(to + "*"); len(left) > 0 { //nolint:errcheck // the pattern is one
				t.Errorf("%s, %s: %v was left", key, kind, left)
			}
		}
	}
}

// TestBucketDescription changes what savepoint.json says of a whole store: it is refused.
func TestBucketDescription(t *testing.T) {
	sound := newMemory()
	create(t, sound.place(), store(t, 5), "one")
	key := sound.place().String()[len("mem://m/"):] + "/one/savepoint.json"
	for old, changed := range map[string]string{
		`"txid": 5`:         `"txid": 6`,
		`"epoch": 0`:        `"epoch": 1`,
		`"next": 50`:        `"next": 51`,
		`"Rows": 5`:         `"Rows": 4`,
		`"chain": "0`:       `"chain": "1`,
		`"State": "s"`:      `"State": "t"`,
		`"name": "one"`:     `"name": "two"`,
		`"format": 1`:       `"format": 99`,
		`"sha256": "`:       `"sha256": "0`,
		`"path": "FORMAT"`:  `"path": "../FORMAT"`,
		`"store": "store-`:  `"store": "../store-`,
		`"topic": "orders-`: `"topic": "orders`,
	} {
		m := sound.clone()
		b := bytes.Replace(m.content[key], []byte(old), []byte(changed), 1)
		if bytes.Equal(b, m.content[key]) {
			t.Fatalf("it has no %s:\n%s", old, b)
		}
		m.put(key, b, time.Now())
		if _, err := m.place().Verify(t.Context(), "one"); batch.CodeOf(err) != batch.CodeStoreDamaged {
			t.Errorf("with %s: %v", changed, err)
		}
		if _, err := m.place().Restore(t.Context(), "one", filepath.Join(t.TempDir(), pipeline)); batch.CodeOf(err) != batch.CodeStoreDamaged {
			t.Errorf("with %s: restored, %v", changed, err)
		}
	}
}

// TestBucketKeepsNothingHere: what was fetched to be looked at is gone from this machine behind that.
func TestBucketKeepsNothingHere(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	p := newMemory().place()
	create(t, p, store(t, 2), "one")
	if _, err := p.Verify(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if _, err := p.Export(t.Context(), "one", &archive); err != nil {
		t.Fatal(err)
	}
	if _, err := newMemory().place().Import(t.Context(), &archive, "a", ""); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "tridentd-*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v is left in %s", left, err, os.TempDir())
	}
}
