package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/savepoint"
	"github.com/tridentd/tridentd/txstate/txstatetest"
)

// savings is a saver over a store that the test commits to.
type savings struct {
	*saver
	t       *testing.T
	db      *pebblestate.DB
	dir, to string
}

func newSavings(t *testing.T) *savings {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "p")
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: dir, Pipeline: "p", Shards: 4, CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() }) //nolint:errcheck // it isn't used any more
	s := &savings{t: t, db: db, dir: dir, to: t.TempDir()}
	s.saver = s.again()
	return s
}

// again is the saver of another run.
func (s *savings) again() *saver {
	return &saver{
		Savepoints: plan.Savepoints{To: s.to, Every: time.Hour, Keep: 2}, pipeline: "p", dir: s.dir, log: hclog.NewNullLogger(), retry: time.Minute, now: time.Now,
		committed: func(ctx context.Context) (batch.Txid, uint64, error) {
			snap, err := s.db.Store().Load(ctx)
			return snap.Txid, snap.Chain, err
		},
		identity: s.db.Identity,
		checkpoint: func(ctx context.Context, dir string) error {
			_, err := s.db.Checkpoint(ctx, dir)
			return err
		},
	}
}

func (s *savings) commit(txid batch.Txid) {
	s.t.Helper()
	e, positions := txstatetest.Simple(txid, 1)
	if err := s.db.Commit(s.t.Context(), []pebblestate.Commit{{Entry: e, Positions: positions}}); err != nil {
		s.t.Fatal(err)
	}
}

// holds checks the txids of the savepoints there are.
func (s *savings) holds(want ...batch.Txid) {
	s.t.Helper()
	all, err := savepoint.At(s.to, "p").List(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	var got []batch.Txid
	for _, i := range all {
		got = append(got, i.Txid)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("there are savepoints of txids %d, want %d", got, want)
	}
}

// at runs a turn at a time and checks when the next is.
func (s *savings) at(now time.Time, next time.Duration) {
	s.t.Helper()
	s.now = func() time.Time { return now }
	if got := s.turn(s.t.Context()); got != next {
		s.t.Errorf("at %s: the next turn in %s, want %s (%v)", now.Format(time.TimeOnly), got, next, s.status().Err)
	}
}

// TestSavepointSchedule: one each hour in which something committed, two kept, those of others left alone.
func TestSavepointSchedule(t *testing.T) {
	t.Parallel()
	s := newSavings(t)
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	s.at(noon, time.Hour) // nothing has committed
	s.holds()
	s.commit(1)
	if _, err := savepoint.At(s.to, "p").Create(t.Context(), "mine", s.dir, noon, s.checkpoint); err != nil {
		t.Fatal(err)
	}
	s.at(noon.Add(time.Hour), time.Hour)
	s.holds(1, 1)
	s.at(noon.Add(90*time.Minute), 30*time.Minute) // not due
	s.at(noon.Add(2*time.Hour), time.Hour)         // nothing has committed since
	s.holds(1, 1)
	if st := s.status(); !st.Covered.Equal(noon.Add(2*time.Hour)) || st.Txid != 1 || st.Made != 1 || st.Bytes == 0 {
		t.Errorf("%+v", st)
	}
	s.commit(2)
	s.at(noon.Add(3*time.Hour), time.Hour)
	s.commit(3)
	s.at(noon.Add(4*time.Hour), time.Hour)
	s.holds(1, 2, 3) // that of txid 1 is the one made by hand
	if _, err := savepoint.At(s.to, "p").Load(t.Context(), "schedule-txid-000000000003-20261201T160000.000Z"); err != nil {
		t.Error(err)
	}

	// Another run goes on with the schedule, even with a clock that is behind.
	s.saver = s.again()
	s.commit(4)
	s.at(noon.Add(4*time.Hour+time.Minute), 59*time.Minute)
	s.saver = s.again()
	s.at(noon.Add(-48*time.Hour), time.Hour)
	s.holds(1, 2, 3)
	s.at(noon.Add(-47*time.Hour), time.Hour)
	if st := s.status(); st.Made != 1 || st.Txid != 4 {
		t.Errorf("%+v", st)
	}
}

// TestSavepointScheduleFails: what goes wrong is told and tried again, later and later.
func TestSavepointScheduleFails(t *testing.T) {
	t.Parallel()
	s := newSavings(t)
	s.commit(1)
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	cause := batch.NewError(batch.Transient, batch.CodeUnavailable, "savepoint", errors.New("the bucket is away"), "")
	works := s.checkpoint
	s.checkpoint = func(context.Context, string) error { return cause }
	s.at(noon, time.Minute)
	s.at(noon.Add(time.Minute), 2*time.Minute)
	for range 10 {
		s.at(noon.Add(3*time.Minute), s.wait*2-max(0, s.wait*2-time.Hour))
	}
	if st := s.status(); !errors.Is(st.Err, cause) || !st.Since.Equal(noon) || st.Failures != 12 || st.Made != 0 {
		t.Errorf("%+v", st)
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "copy-*")); err != nil || len(left) > 0 {
		t.Errorf("copies are left: %v, %v", left, err)
	}
	s.checkpoint = works
	s.at(noon.Add(4*time.Minute), time.Hour)
	s.holds(1)
	if st := s.status(); st.Err != nil || st.Made != 1 || st.Failures != 12 {
		t.Errorf("%+v", st)
	}
	s.commit(2)
	s.at(noon.Add(5*time.Minute), 59*time.Minute) // the schedule is the hour again
}

// TestSavepointPlaceFails: a place that can't be opened, or fails while a savepoint goes there, is tried again; what was left of the
// attempt goes once it is old, and is no savepoint before that.
func TestSavepointPlaceFails(t *testing.T) {
	t.Parallel()
	s := newSavings(t)
	s.commit(1)
	noon := time.Now()
	root := s.to
	s.to = filepath.Join(root, "place")
	if err := os.WriteFile(s.to, nil, 0o600); err != nil { // where a folder should be
		t.Fatal(err)
	}
	s.saver = s.again()
	s.at(noon, time.Minute)
	s.at(noon.Add(time.Minute), 2*time.Minute)
	if st := s.status(); st.Err == nil || st.Failures != 2 || !strings.Contains(st.Err.Error(), s.to) {
		t.Errorf("%+v", st)
	}
	if err := os.Remove(s.to); err != nil {
		t.Fatal(err)
	}
	s.at(noon.Add(3*time.Minute), time.Hour)
	s.holds(1)

	// It was killed while the next one was written.
	s.commit(2)
	left := filepath.Join(s.to, "p", "schedule-txid-000000000002-20261201T130300.000Z.123.partial")
	if err := os.MkdirAll(filepath.Join(left, "store", "db"), 0o750); err != nil {
		t.Fatal(err)
	}
	s.saver = s.again()
	s.at(noon.Add(63*time.Minute), time.Hour)
	s.holds(1, 2)
	if _, err := os.Stat(left); err != nil {
		t.Errorf("a part that may be somebody's at work is gone: %v", err)
	}
	s.commit(3)
	s.at(noon.Add(savepoint.LeftBehind+2*time.Hour), time.Hour)
	s.holds(2, 3)
	if _, err := os.Stat(left); err == nil {
		t.Error("a part that nobody works on is still there")
	}
}

func identity(t *testing.T, db *pebblestate.DB) string {
	t.Helper()
	id, err := db.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestSavepointsOfStores: two stores of one pipeline that share a place don't remove each other's, and each has a schedule of its own.
func TestSavepointsOfStores(t *testing.T) {
	t.Parallel()
	a, b := newSavings(t), newSavings(t)
	b.to = a.to
	b.saver = b.again()
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for i := range 4 {
		a.commit(batch.Txid(i + 1))
		a.at(noon.Add(time.Duration(i)*time.Hour), time.Hour)
	}
	for i := range 5 {
		b.commit(batch.Txid(i + 1))
	}
	b.at(noon.Add(200*time.Minute), time.Hour) // not in the 40 minutes of a's
	a.holds(3, 4, 5)
	for i := range 3 {
		b.commit(batch.Txid(i + 6))
		b.at(noon.Add(time.Duration(i+5)*time.Hour), time.Hour)
	}
	a.holds(3, 4, 7, 8)
}

// TestSavepointClockBack: the clock is set back; what is removed is what was made first.
func TestSavepointClockBack(t *testing.T) {
	t.Parallel()
	s := newSavings(t)
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for i := range 3 {
		s.commit(batch.Txid(i + 1))
		s.at(noon.Add(time.Duration(i)*time.Hour), time.Hour)
	}
	s.holds(2, 3)
	s.commit(4)
	s.at(noon.Add(-24*time.Hour), time.Hour) // an hour from now, not from what the clock was
	s.at(noon.Add(-23*time.Hour), time.Hour)
	s.holds(3, 4)
	s.commit(5)
	s.at(noon.Add(-22*time.Hour), time.Hour)
	s.holds(4, 5)
}

// TestSavepointsOfTwo: pipelines that share a place keep as many each as they are told.
func TestSavepointsOfTwo(t *testing.T) {
	t.Parallel()
	mine := newSavings(t)
	others := savepoint.At(mine.to, "p2")
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: filepath.Join(t.TempDir(), "p2"), Pipeline: "p2", Shards: 4, CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // it isn't used any more
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for i := range 5 {
		now := noon.Add(time.Duration(i) * time.Hour)
		if _, err := others.Scheduled(t.Context(), t.TempDir(), now, func(ctx context.Context, dir string) error {
			_, err := db.Checkpoint(ctx, dir)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		mine.commit(batch.Txid(i + 1))
		mine.at(now, time.Hour)
	}
	mine.holds(4, 5)
	if all, err := others.List(t.Context()); err != nil || len(all) != 5 {
		t.Errorf("%d of the other's five are left, %v", len(all), err)
	}
	if gone, err := others.Expire(t.Context(), identity(t, db), 1); err != nil || len(gone) != 4 {
		t.Errorf("%v, %v", gone, err)
	}
	mine.holds(4, 5)
}
