package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/savepoint"
)

// heldWorld is a ledger within 100 batches, and a place for savepoints of its store.
type heldWorld struct {
	*ledgerWorld
	place savepoint.Place
	to    string
}

func newHeldWorld(t *testing.T) *heldWorld {
	w := &heldWorld{ledgerWorld: newLedgerWorld(t, plan.Ledger{MaxBatches: 100}), to: filepath.Join(t.TempDir(), "place")}
	w.place = savepoint.At(w.to, "words")
	w.held.places = []string{w.to}
	return w
}

func (w *heldWorld) checkpoint(ctx context.Context, dir string) error {
	_, err := w.db.Checkpoint(ctx, dir)
	return err
}

func (w *heldWorld) create(name string) {
	w.t.Helper()
	if _, err := w.place.Create(w.t.Context(), name, w.dir, w.now, w.checkpoint); err != nil {
		w.t.Fatal(err)
	}
}

func (w *heldWorld) remove(name string) {
	w.t.Helper()
	if err := w.place.Remove(w.t.Context(), name); err != nil {
		w.t.Fatal(err)
	}
}

// begins checks where the ledger begins, and for which savepoint.
func (w *heldWorld) begins(first batch.Txid, heldFor string) {
	w.t.Helper()
	w.pass()
	if got, _, _ := w.check(); got != first || w.r.seen.HeldFor != heldFor {
		w.t.Errorf("the ledger begins at txid %d, held for %q; want %d, %q", got, w.r.seen.HeldFor, first, heldFor)
	}
}

// trimmed checks that the ledger is within its bounds.
func (w *heldWorld) trimmed() {
	w.t.Helper()
	w.pass()
	if first, _, last := w.check(); last-first >= 100 || w.r.seen.HeldFor != "" {
		w.t.Errorf("the ledger holds %d to %d, for %q", first, last, w.r.seen.HeldFor)
	}
}

// TestLedgerHeld: what leads from the oldest savepoint to the present stays, however old that is, until it is removed; bases don't.
func TestLedgerHeld(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t)
	w.commit(40, time.Minute)
	w.create("hand")
	w.commit(60, time.Minute)
	if _, err := w.place.Scheduled(t.Context(), w.dir, w.now, w.checkpoint); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		w.commit(60, time.Minute)
		w.begins(40, "hand") // check allows two bases
	}
	w.remove("hand")
	w.begins(40, "hand") // the places aren't looked at all the time
	w.now = w.now.Add(lookAgain)
	w.pass()
	if first, _, _ := w.check(); first != 100 || !strings.HasPrefix(w.r.seen.HeldFor, "schedule-") {
		t.Errorf("the ledger begins at txid %d, for %q", first, w.r.seen.HeldFor)
	}
	w.remove(w.r.seen.HeldFor)
	w.now = w.now.Add(lookAgain)
	w.trimmed()
	// One that has been made since the last look.
	w.create("late")
	late := w.txid
	w.commit(300, time.Minute)
	w.begins(late, "late")
}

// TestLedgerNotHeld: savepoints that nobody could go on from by this ledger hold nothing.
func TestLedgerNotHeld(t *testing.T) {
	t.Parallel()
	t.Run("before a migration", func(t *testing.T) {
		w := newHeldWorld(t)
		w.commit(40, time.Minute)
		if _, err := w.place.BeforeMigration(t.Context(), w.db, w.dir, w.now); err != nil {
			t.Fatal(err)
		}
		w.commit(200, time.Minute)
		w.trimmed()
	})
	t.Run("another store", func(t *testing.T) {
		w, other := newHeldWorld(t), newHeldWorld(t)
		w.held.places = []string{other.to}
		other.commit(40, time.Minute)
		other.create("other")
		w.commit(200, time.Minute)
		w.trimmed()
	})
	t.Run("the ledger has been trimmed", func(t *testing.T) {
		w := newHeldWorld(t)
		w.commit(40, time.Minute)
		w.create("early")
		w.commit(60, time.Minute)
		if err := w.db.TrimLedger(t.Context(), 42); err != nil {
			t.Fatal(err)
		}
		w.commit(200, time.Minute)
		w.trimmed()
	})
	t.Run("the next entry is there", func(t *testing.T) {
		w := newHeldWorld(t)
		w.commit(40, time.Minute)
		w.create("early")
		w.commit(60, time.Minute)
		if err := w.db.TrimLedger(t.Context(), 41); err != nil {
			t.Fatal(err)
		}
		w.commit(200, time.Minute)
		w.begins(41, "early")
	})
	t.Run("another history", func(t *testing.T) {
		w := newHeldWorld(t)
		w.commit(40, time.Minute)
		w.create("hand")
		w.remoteChain("hand")
		w.commit(200, time.Minute)
		w.trimmed()
	})
	t.Run("damaged", func(t *testing.T) {
		w := newHeldWorld(t)
		w.commit(40, time.Minute)
		w.create("hand")
		if err := os.WriteFile(filepath.Join(w.to, "words", "hand", "savepoint.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.commit(200, time.Minute)
		w.trimmed()
	})
}

// remoteChain has a savepoint say that it is of another history of the store, as one is that was made before the store was restored to
// an earlier txid and went on otherwise.
func (w *heldWorld) remoteChain(name string) {
	w.t.Helper()
	info, err := w.place.Load(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(w.to, "words", name, "savepoint.json")
	b, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), info.Chain, "0123456789abcdef", 1)), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// TestLedgerHeldUnknown: while a place can't be listed nothing is trimmed, and that is told.
func TestLedgerHeldUnknown(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t)
	if err := os.WriteFile(w.to, nil, 0o600); err != nil { // a file where the folder should be
		t.Fatal(err)
	}
	w.commit(300, time.Minute)
	if err := w.r.pass(t.Context(), w.db); err == nil || !strings.Contains(err.Error(), "can't be listed") {
		t.Errorf("%v", err)
	}
	if first, _, _ := w.check(); first != 1 || w.r.seen.First != 1 {
		t.Errorf("the ledger begins at txid %d, the status says %d", first, w.r.seen.First)
	}
	if err := os.Remove(w.to); err != nil {
		t.Fatal(err)
	}
	w.trimmed()
}

// slowBucket is a bucket whose objects are files of a folder, and which takes the first one once it is told to.
type slowBucket struct {
	dir         string
	began, goOn chan struct{}
	first       sync.Once
}

func (b *slowBucket) file(key string) string { return filepath.Join(b.dir, filepath.FromSlash(key)) }
func (b *slowBucket) String() string         { return b.dir }
func (b *slowBucket) Close() error           { return nil }

func (b *slowBucket) Objects(_ context.Context, prefix string) (all []savepoint.Object, err error) {
	err = fs.WalkDir(os.DirFS(b.dir), ".", func(key string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasPrefix(key, prefix) {
			all = append(all, savepoint.Object{Key: key})
		}
		return err
	})
	return all, err
}

func (b *slowBucket) Folders(context.Context, string) ([]string, error) { return nil, nil }

func (b *slowBucket) Open(_ context.Context, key string) (io.ReadCloser, error) {
	return os.Open(b.file(key))
}

func (b *slowBucket) Create(ctx context.Context, key string, r io.Reader) error {
	b.first.Do(func() {
		close(b.began)
		<-b.goOn
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(b.file(key)), 0o700); err != nil {
		return err
	}
	body, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return os.WriteFile(b.file(key), body, 0o600)
}

func (b *slowBucket) Delete(_ context.Context, key string) error { return os.Remove(b.file(key)) }

// TestLedgerHeldWhileASavepointIsMade: an upload that takes longer than the ledger's bounds finds in the end what the savepoint needs
// of the ledger, and one that fails lets go of it.
func TestLedgerHeldWhileASavepointIsMade(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"it comes to its place": false, "it fails": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newHeldWorld(t)
			w.commit(40, time.Minute)
			w.pass()
			if err := os.MkdirAll(w.to, 0o700); err != nil {
				t.Fatal(err)
			}
			bucket := &slowBucket{dir: w.to, began: make(chan struct{}), goOn: make(chan struct{})}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := savepoint.In(bucket, "", "words").Create(ctx, "slow", w.dir, w.now, func(ctx context.Context, dir string) error {
					if err := w.checkpoint(ctx, dir); err != nil {
						return err
					}
					// The copy's txid isn't known as yet: nothing is trimmed, whatever the bounds.
					w.commit(300, time.Minute)
					w.begins(1, "one that is being made")
					return nil
				})
				ended <- err
			}()
			select {
			case <-bucket.began:
			case err := <-ended:
				t.Fatal(err)
			}
			for range 3 {
				w.commit(300, time.Minute)
				w.begins(40, "slow")
			}
			if fails {
				cancel()
			}
			close(bucket.goOn)
			if err := <-ended; (err != nil) != fails {
				t.Fatal(err)
			}
			w.commit(300, time.Minute)
			if fails {
				w.trimmed()
				return
			}
			// The places were looked at a moment ago, when it wasn't there.
			w.begins(40, "slow")
			w.remove("slow")
			w.now = w.now.Add(lookAgain)
			w.trimmed()
		})
	}
}

// TestLedgerHeldUpTo: beyond the bounds that are set for it nothing is kept for a savepoint, but what later ones need.
func TestLedgerHeldUpTo(t *testing.T) {
	t.Parallel()
	// The size is an estimate by blocks of tables: what lies between the two savepoints is some of them.
	for name, c := range map[string]struct {
		ledger plan.Ledger
		later  int
	}{"age": {plan.Ledger{MaxBatches: 100, HeldAge: 10 * time.Hour}, 200}, "size": {plan.Ledger{MaxBatches: 100, HeldBytes: 150_000}, 600}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newHeldWorld(t)
			w.r.limits = ledgerBounds(c.ledger)
			var log bytes.Buffer
			w.r.log = hclog.New(&hclog.LoggerOptions{Output: &log})
			w.commit(40, time.Minute)
			w.create("forgotten")
			w.commit(c.later-40, time.Minute)
			w.create("later")
			w.begins(40, "forgotten")
			for w.r.seen.HeldFor == "forgotten" {
				if w.txid > 5000 {
					t.Fatalf("the ledger holds %d bytes", w.r.seen.Bytes)
				}
				w.commit(100, time.Minute)
				w.pass()
			}
			w.begins(batch.Txid(c.later), "later") // which is within the bounds: it doesn't go with the other
			if n := strings.Count(log.String(), "it can be restored, but not with --to-txid any more: savepoint=forgotten txid=40"); n != 1 {
				t.Errorf("told %d times: %s", n, log.String())
			}
			if got := time.Duration(w.txid-40) * time.Minute; name == "age" && (got < 10*time.Hour || got > 12*time.Hour) {
				t.Errorf("let go after %s", got)
			}
			for w.r.seen.HeldFor != "" {
				if w.txid > 9000 {
					t.Fatalf("the ledger holds %d bytes", w.r.seen.Bytes)
				}
				w.commit(100, time.Minute)
				w.pass()
			}
			w.trimmed()
			if n := strings.Count(log.String(), "not with --to-txid any more"); n != 2 {
				t.Errorf("told %d times: %s", n, log.String())
			}
		})
	}
}

// TestUnusable tells what can't be restored from what can't be reached.
func TestUnusable(t *testing.T) {
	t.Parallel()
	damaged := batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "savepoint", errors.New("cut"), "")
	away := batch.NewError(batch.Transient, batch.CodeUnavailable, "savepoint", errors.New("no route"), "")
	for _, c := range []struct {
		err  error
		want bool
	}{{damaged, true}, {errors.Join(damaged, damaged), true}, {away, false}, {errors.Join(damaged, away), false}, {errors.Join(errors.Join(damaged, away), damaged), false}} {
		if got := unusable(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}
