package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/savepoint"
)

// Savepoints says where savepoints of a pipeline that runs are made by themselves. Zero fields keep their defaults.
type Savepoints struct {
	// To is a folder, or a bucket by its URL, such as s3://name/prefix?region=eu-west-1: the program imports connect/blob for
	// those. What lies on the store's own disk dies with it.
	To    string
	Every time.Duration // default 1 hour
	Keep  int           // of those made by schedule; default 24
}

// WithSavepoints has savepoints made by schedule while the pipeline runs. No result depends on it.
func WithSavepoints(s Savepoints) PipelineOption {
	return func(p *Pipeline) {
		if s.To == "" || s.Every < 0 || s.Keep < 0 {
			p.errorf("Savepoints: To is missing, or a value is negative, in %+v", s)
			return
		}
		p.savepoints = plan.Savepoints{To: s.To, Every: s.Every, Keep: s.Keep}
	}
}

// SavepointStatus tells of the savepoints that a run makes by schedule.
type SavepointStatus struct {
	Place string
	Name  string // of the last; empty if there is none yet
	Txid  batch.Txid
	Bytes int64
	Took  time.Duration // zero if an earlier run made it
	// Covered is when the last savepoint held all that had committed: what has committed since would be lost with the disk.
	Covered  time.Time
	Made     int64 // by this process
	Failures int64 // since the process started
	Err      error // why there is none where one is due
	Since    time.Time
}

// After a failure a savepoint is tried again in firstRetry, then in twice as long each time, up to Savepoints.Every.
const firstRetry = time.Minute

// saver makes savepoints of a run when their time has come. The clock says when, never what: a savepoint holds what had committed.
type saver struct {
	plan.Savepoints
	pipeline string
	dir      string // the store's
	log      hclog.Logger
	now      func() time.Time
	retry    time.Duration
	// committed returns the last committed txid and the chain as of it.
	committed  func(ctx context.Context) (batch.Txid, uint64, error)
	identity   func(ctx context.Context) (string, error) // of the store
	checkpoint savepoint.Checkpoint

	// Of the goroutine that runs it.
	place *savepoint.Place // nil until it has been opened
	last  savepoint.Info   // the last scheduled one
	next  time.Time
	wait  time.Duration // before another attempt; zero after a success

	mu sync.Mutex
	st SavepointStatus
}

// newSaver checks what can be checked without asking anybody. It returns nil for a pipeline without a place.
func newSaver(h *Handle) (*saver, error) {
	s := &saver{Savepoints: h.plan.Savepoints, pipeline: h.plan.Name, dir: h.dir, log: h.log, now: time.Now, retry: firstRetry}
	if s.To == "" {
		return nil, nil
	}
	if s.Every == 0 {
		s.Every = plan.DefaultSavepointEvery
	}
	if s.Keep == 0 {
		s.Keep = plan.DefaultSavepointKeep
	}
	s.committed = func(ctx context.Context) (batch.Txid, uint64, error) {
		db, err := h.asked()
		if err != nil {
			return 0, 0, err
		}
		snap, err := db.Store().Load(ctx)
		return snap.Txid, snap.Chain, h.meanwhile(err)
	}
	s.identity = func(ctx context.Context) (string, error) {
		db, err := h.asked()
		if err != nil {
			return "", err
		}
		id, err := db.Identity(ctx)
		return id, h.meanwhile(err)
	}
	s.checkpoint = func(ctx context.Context, dir string) error {
		_, err := h.Checkpoint(ctx, dir)
		return err
	}
	return s, savepoint.CheckPlace(s.To)
}

// start begins to make savepoints, and returns what ends that.
func (s *saver) start(ctx context.Context) (stop func()) {
	if s == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// run makes savepoints until ctx ends. Nothing that goes wrong here stops a batch.
func (s *saver) run(ctx context.Context) {
	whole, err := filepath.Abs(s.dir)
	if err == nil {
		s.dir = whole
	}
	defer func() {
		if s.place != nil {
			s.place.Close() //nolint:errcheck // what was written has been answered
			s.place = nil
		}
	}()
	for {
		t := time.NewTimer(s.turn(ctx))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// turn does what is due and returns when to look again.
func (s *saver) turn(ctx context.Context) time.Duration {
	err := s.due(ctx)
	switch {
	case ctx.Err() != nil:
		return s.Every
	case err == nil:
		s.wait = 0
		s.note(nil)
		return max(0, s.next.Sub(s.now()))
	case errors.Is(err, errAgain), errors.Is(err, errEnded): // the store is being opened again, which tells of itself
		return time.Second
	}
	s.wait = min(max(2*s.wait, s.retry), s.Every)
	s.note(err)
	s.log.Error("no savepoint could be made; batches go on", "place", s.where(), "error", err, "code", string(batch.CodeOf(err)), "again_in", s.wait)
	return s.wait
}

func (s *saver) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.st.Failures++
		if s.st.Err == nil {
			s.st.Since = s.now()
		}
	}
	s.st.Err = err
}

// due makes a savepoint if its time has come.
func (s *saver) due(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	now := s.now()
	if s.next.After(now.Add(s.Every)) { // the clock was set back
		s.next = now.Add(s.Every)
	}
	if now.Before(s.next) {
		return nil
	}
	txid, chain, err := s.committed(ctx)
	if err != nil {
		return err
	}
	if txid == 0 || txid == s.last.Txid && fmt.Sprintf("%016x", chain) == s.last.Chain {
		s.cover(now)
		s.next = now.Add(s.Every)
		return nil
	}
	// Their order is that of their making, whatever the clock does.
	at := now
	if next := s.last.Created.Add(time.Millisecond); at.Before(next) {
		at = next
	}
	info, err := s.place.Scheduled(ctx, s.dir, at, s.checkpoint)
	if err != nil {
		return err
	}
	took := s.now().Sub(now)
	s.last, s.next = info, now.Add(s.Every)
	s.log.Info("savepoint made", "name", info.Name, "place", s.place.String(), "txid", uint64(info.Txid), "bytes", info.Bytes, "took", took.Round(time.Millisecond))
	s.mu.Lock()
	s.st.Name, s.st.Txid, s.st.Bytes, s.st.Took, s.st.Covered = info.Name, info.Txid, info.Bytes, took, now
	s.st.Made++
	s.mu.Unlock()
	gone, err := s.place.Expire(ctx, info.Identity, s.Keep)
	for _, name := range gone {
		s.log.Info("savepoint removed: as many as are to be kept are newer", "name", name)
	}
	if err := errors.Join(err, s.place.Sweep(ctx, now.Add(-savepoint.LeftBehind))); err != nil {
		return fmt.Errorf("savepoint %s was made, but older ones can't be removed: %w", info.Name, err)
	}
	return nil
}

func (s *saver) cover(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.Covered = at
}

// open opens the place and finds the last savepoint that a schedule has made of this store there.
func (s *saver) open(ctx context.Context) error {
	if s.place != nil {
		return nil
	}
	id, err := s.identity(ctx)
	if err != nil {
		return err
	}
	place, err := savepoint.Open(ctx, s.To, s.pipeline)
	if err != nil {
		return err
	}
	all, err := place.List(ctx)
	if err != nil && len(all) == 0 {
		return errors.Join(err, place.Close())
	}
	if err != nil { // the others serve
		s.log.Warn("a savepoint can't be read", "place", place.String(), "error", err)
	}
	s.last = savepoint.Info{}
	for _, i := range all {
		if i.Made == savepoint.BySchedule && i.Identity == id {
			s.last = i
		}
	}
	s.place, s.next = &place, time.Time{}
	if s.last.Name != "" {
		s.next = s.last.Created.Add(s.Every)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.Name, s.st.Txid, s.st.Bytes, s.st.Took, s.st.Covered = s.last.Name, s.last.Txid, s.last.Bytes, 0, s.last.Created
	return nil
}

// where names the place, be it open or not.
func (s *saver) where() string {
	if s.place != nil {
		return s.place.String()
	}
	return savepoint.Redacted(s.To)
}

func (s *saver) status() SavepointStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.st
	st.Place = savepoint.Redacted(s.To)
	return st
}
