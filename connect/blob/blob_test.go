package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocloud "gocloud.dev/blob"
	"gocloud.dev/blob/memblob"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/connect/blob"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/savepoint"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate/txstatetest"
)

const pipeline = "words"

// kinds are places in buckets of each kind that can be had here.
func kinds(t *testing.T) map[string]savepoint.Place {
	t.Helper()
	open := func(where string) savepoint.Place {
		p, err := savepoint.Open(t.Context(), where, pipeline)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() }) //nolint:errcheck // it isn't used any more
		return p
	}
	mem := memblob.OpenBucket(nil)
	t.Cleanup(func() { mem.Close() }) //nolint:errcheck // it isn't used any more
	return map[string]savepoint.Place{
		"mem":  savepoint.In(blob.Of(mem, "mem://m"), "a/prefix", pipeline),
		"file": open("file://" + filepath.ToSlash(filepath.Join(t.TempDir(), "made"))),
		"s3":   open(newS3(t).url("backups", "a/prefix")),
	}
}

// store makes a store of n batches and leaves it open.
func store(t *testing.T, n int) *pebblestate.DB {
	t.Helper()
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: filepath.Join(t.TempDir(), pipeline), Pipeline: pipeline, Shards: 4, CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() }) //nolint:errcheck // it isn't used any more
	for txid := 1; txid <= n; txid++ {
		e, positions := txstatetest.Simple(batch.Txid(txid), 1)
		s := &state.WriteSet{State: "s", Shards: make([][]state.Write, db.Shards()), Writes: 1}
		key := fmt.Appendf(nil, "key-%d", txid)
		i := state.ShardOf(key, db.Shards())
		s.Shards[i] = []state.Write{{Op: state.Set, Key: key, Value: []byte("v")}}
		if err := db.Commit(t.Context(), []pebblestate.Commit{{Entry: e, Positions: positions, Sets: []*state.WriteSet{s}}}); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

func create(ctx context.Context, t *testing.T, p savepoint.Place, db *pebblestate.DB, name string) (savepoint.Info, error) {
	t.Helper()
	return p.Create(ctx, name, t.TempDir(), time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC), func(ctx context.Context, dir string) error {
		_, err := db.Checkpoint(ctx, dir)
		return err
	})
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

// TestLife: a bucket of each kind keeps savepoints from their making to their end.
func TestLife(t *testing.T) {
	for kind, p := range kinds(t) {
		t.Run(kind, func(t *testing.T) {
			db := store(t, 7)
			info, err := create(t.Context(), t, p, db, "one")
			if err != nil {
				t.Fatal(err)
			}
			_, err = create(t.Context(), t, p, db, "one")
			code(t, err, batch.CodeConfiguration, "one exists")
			for i := range 4 {
				if _, err := create(t.Context(), t, p, db, fmt.Sprint("more-", i)); err != nil {
					t.Fatal(err)
				}
			}
			all, err := p.List(t.Context())
			if err != nil || len(all) != 5 || all[4].Name != "one" && all[0].Chain != info.Chain {
				t.Fatalf("%+v, %v", all, err)
			}
			if _, err := p.Verify(t.Context(), "one"); err != nil {
				t.Error(err)
			}
			to := filepath.Join(t.TempDir(), pipeline)
			if got, err := p.Restore(t.Context(), "one", to); err != nil || got.Txid != 7 {
				t.Fatalf("%+v, %v", got, err)
			}
			restored, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: to, Pipeline: pipeline})
			if err != nil {
				t.Fatal(err)
			}
			want, werr := db.Digest(t.Context())
			if got, err := restored.Digest(t.Context()); err != nil || werr != nil || got != want {
				t.Errorf("restored with digest %016x, %v, want %016x, %v", got, err, want, werr)
			}
			if err := restored.Close(); err != nil {
				t.Error(err)
			}
			var archive bytes.Buffer
			if _, err := p.Export(t.Context(), "one", &archive); err != nil {
				t.Fatal(err)
			}
			if err := p.Remove(t.Context(), "one"); err != nil {
				t.Fatal(err)
			}
			code(t, p.Remove(t.Context(), "one"), batch.CodeConfiguration, "no savepoint one")
			if got, err := p.Import(t.Context(), &archive, "a", ""); err != nil || got.Chain != info.Chain {
				t.Fatalf("%+v, %v", got, err)
			}
			if _, err := p.Verify(t.Context(), "one"); err != nil {
				t.Error(err)
			}
			if err := p.Sweep(t.Context(), time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
			if _, err := p.Verify(t.Context(), "one"); err != nil {
				t.Errorf("behind a sweep: %v", err)
			}
		})
	}
}

// buckets are of the same kinds, one level lower.
func buckets(t *testing.T) map[string]savepoint.Bucket {
	t.Helper()
	mem := blob.Of(memblob.OpenBucket(nil), "mem://m")
	t.Cleanup(func() { mem.Close() }) //nolint:errcheck // it isn't used any more
	dir := blob.Of(opened(t, "file://"+filepath.ToSlash(t.TempDir())+"?metadata=skip&no_tmp_dir=true"), "file://d")
	s := blob.Of(opened(t, newS3(t).url("backups", "")), "s3://backups")
	return map[string]savepoint.Bucket{"mem": mem, "file": dir, "s3": s}
}

func opened(t *testing.T, url string) *gocloud.Bucket {
	t.Helper()
	b, err := gocloud.OpenBucket(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() }) //nolint:errcheck // it isn't used any more
	return b
}

// TestContract is what savepoint.Bucket promises, of each kind.
func TestContract(t *testing.T) {
	for kind, b := range buckets(t) {
		t.Run(kind, func(t *testing.T) {
			ctx := t.Context()
			for i := range 8 {
				if err := b.Create(ctx, fmt.Sprintf("p/%d/x", i), strings.NewReader(strings.Repeat("x", i))); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Create(ctx, "p/3/x", strings.NewReader("other")); !errors.Is(err, fs.ErrExist) {
				t.Errorf("written over one that is there: %v", err)
			}
			if err := b.Create(ctx, "q", failingSource{}); !errors.Is(err, errSource) {
				t.Errorf("what can't be read: %v", err)
			}
			dead, cancel := context.WithCancelCause(ctx)
			cancel(errSource)
			if err := b.Create(dead, "r", strings.NewReader("r")); err == nil {
				t.Error("written with a context that has ended")
			}
			all, err := b.Objects(ctx, "")
			var keys []string
			for _, o := range all {
				keys = append(keys, o.Key)
				if o.Written.IsZero() {
					t.Errorf("%+v", o)
				}
			}
			if err != nil || len(all) != 8 || !slices.IsSorted(keys) || keys[7] != "p/7/x" || all[7].Size != 7 {
				t.Errorf("%v, %v", all, err)
			}
			if names, err := b.Folders(ctx, "p/"); err != nil || !slices.Equal(names, []string{"0", "1", "2", "3", "4", "5", "6", "7"}) {
				t.Errorf("%v, %v", names, err)
			}
			r, err := b.Open(ctx, "p/4/x")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != "xxxx" {
				t.Errorf("%q, %v", got, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if _, err := b.Open(ctx, "p/9/x"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("one that isn't there: %v", err)
			}
			for range 2 {
				if err := b.Delete(ctx, "p/4/x"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

var errSource = errors.New("the source fails")

// failingSource fails behind some bytes.
type failingSource struct{}

func (failingSource) Read(p []byte) (int, error) { return min(len(p), 3), errSource }

// TestRefused: what a server of S3's kind answers, as the kinds of error that decide whether it is tried again.
func TestRefused(t *testing.T) {
	s := newS3(t)
	ctx := t.Context()
	_, err := savepoint.Open(ctx, s.url("nowhere", "p"), pipeline)
	code(t, err, batch.CodeConfiguration, "there is no bucket s3://nowhere")
	for _, c := range []struct {
		status int
		code   string
		want   batch.Code
		kind   batch.Kind
	}{
		{http.StatusForbidden, "AccessDenied", batch.CodeUnauthorized, batch.Permanent},
		{http.StatusForbidden, "InvalidAccessKeyId", batch.CodeUnauthorized, batch.Permanent},
		{http.StatusBadRequest, "ExpiredToken", batch.CodeUnauthorized, batch.Permanent},
		{http.StatusMovedPermanently, "PermanentRedirect", batch.CodeConfiguration, batch.Permanent},
		{http.StatusBadRequest, "AuthorizationHeaderMalformed", batch.CodeConfiguration, batch.Permanent},
		{http.StatusServiceUnavailable, "SlowDown", batch.CodeUnavailable, batch.Transient},
		{http.StatusInternalServerError, "InternalError", batch.CodeUnavailable, batch.Transient},
	} {
		s.refuse = func(*http.Request) (int, string) { return c.status, c.code }
		_, err := savepoint.Open(ctx, s.url("backups", "p"), pipeline)
		code(t, err, c.want, "s3://backups")
		if batch.KindOf(err) != c.kind {
			t.Errorf("%d %s: %s", c.status, c.code, batch.KindOf(err))
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("it tells a secret: %v", err)
		}
	}
	s.Close()
	_, err = savepoint.Open(ctx, s.url("backups", "p"), pipeline)
	code(t, err, batch.CodeUnavailable)
	for _, where := range []string{"s3://backups/p?nonsense=1", "s3://%zz/", "ftp://host/dir"} {
		_, err = savepoint.Open(ctx, where, pipeline)
		code(t, err, batch.CodeConfiguration)
	}
}

// TestAway: a server that fails each request once is asked again, and what was uploaded is whole.
func TestAway(t *testing.T) {
	s := newS3(t)
	p, err := savepoint.Open(t.Context(), s.url("backups", ""), pipeline)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close() //nolint:errcheck // it isn't used any more
	failed := map[string]bool{}
	s.refuse = func(r *http.Request) (int, string) {
		if id := r.Method + r.URL.Path; r.Method == http.MethodPut && !failed[id] && len(failed) < 3 {
			failed[id] = true
			return http.StatusServiceUnavailable, "SlowDown"
		}
		return 0, ""
	}
	if _, err := create(t.Context(), t, p, store(t, 3), "one"); err != nil {
		t.Fatal(err)
	}
	if len(failed) != 3 {
		t.Errorf("%d uploads were refused", len(failed))
	}
	if _, err := p.Verify(t.Context(), "one"); err != nil {
		t.Error(err)
	}
}

// TestFilesAreAFolder: what a bucket of files holds can be read as a folder.
func TestFilesAreAFolder(t *testing.T) {
	dir := t.TempDir()
	p, err := savepoint.Open(t.Context(), "file://"+filepath.ToSlash(dir), pipeline)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close() //nolint:errcheck // it isn't used any more
	if _, err := create(t.Context(), t, p, store(t, 3), "one"); err != nil {
		t.Fatal(err)
	}
	folder := savepoint.At(dir, pipeline)
	if _, err := folder.Verify(t.Context(), "one"); err != nil {
		t.Error(err)
	}
	if err := folder.Remove(t.Context(), "one"); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, pipeline)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v is left", left, err)
	}
}
