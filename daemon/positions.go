package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/txstate"
)

var _ server.Positioner = (*backend)(nil)

// Positions implements server.Positioner. A run that has ended, in a process that stays up, doesn't hold the store any more.
func (b *backend) Positions(ctx context.Context) (txstate.Snapshot, error) {
	snap, err := b.h.Positions(ctx)
	select {
	case <-b.h.Done():
		if err != nil {
			err = server.NotFound(err)
		}
	default:
	}
	return snap, err
}

// standing is where a pipeline stands.
type standing struct {
	running   bool // a process holds the store
	pid       int  // of that process
	txid      batch.Txid
	epoch     batch.Epoch
	positions []txstate.SavedPosition // in batch.Partition order; none: it has never run
}

// placed resolves the pipeline of a command that takes no other argument, and tells where it stands.
func (a *app) placed(ctx context.Context, args []string, data string) (*target, *plan.Plan, standing, error) {
	t, rest, err := a.resolve(args, data)
	if err != nil {
		return nil, nil, standing{}, err
	}
	if len(rest) > 0 {
		return nil, nil, standing{}, usagef("unexpected argument %q", rest[0])
	}
	pl, err := t.pipeline.Plan()
	if err != nil {
		return nil, nil, standing{}, usage(err)
	}
	st, err := stands(ctx, t)
	return t, pl, st, err
}

// stands asks the daemon where the pipeline of t stands, or reads it from the directory at rest. One that has never run
// stands nowhere, which is no error.
func stands(ctx context.Context, t *target) (standing, error) {
	var s standing
	read := func(db *pebblestate.DB) error {
		snap, err := db.Store().Load(ctx)
		s = standing{txid: snap.Txid, epoch: snap.Epoch, positions: snap.Positions}
		return err
	}
	err := askOrRead(ctx, t.dir, func(c *server.Client) error {
		ps, err := c.Positions(ctx)
		if errors.Is(err, server.ErrNotFound) { // a process that only stays up, or waits for the store
			db, err := openAtRest(ctx, t.dir)
			if err != nil {
				return err
			}
			defer db.Close() //nolint:errcheck // nothing was written
			return read(db)
		}
		if err != nil {
			return err
		}
		st, err := c.Status(ctx)
		s = standing{running: true, pid: st.PID, txid: ps.Txid, epoch: ps.Epoch}
		for i := range ps.Positions {
			s.positions = append(s.positions, ps.Positions[i].Saved())
		}
		return err
	}, read)
	if e, ok := errors.AsType[*exitError](err); ok && e.code == exitUsage { // there is no store
		return standing{}, nil
	}
	return s, err
}

// of returns the positions of one source, without the one that only tells that it has been opened before unless all is set.
func (s *standing) of(source string, all bool) []txstate.SavedPosition {
	var mine []txstate.SavedPosition
	for _, p := range s.positions {
		if p.Source == source && (all || p.Topic != "") {
			mine = append(mine, p)
		}
	}
	return mine
}

// surveyed is what one source says.
type surveyed struct {
	source *plan.Source
	parts  []emitter.Survey
	err    error // nobody answered
}

// survey asks all sources at once. The order of what it returns is the plan's.
func survey(ctx context.Context, pl *plan.Plan, s *standing, q emitter.SurveyQuery, log hclog.Logger) []surveyed {
	all := make([]surveyed, len(pl.Sources))
	var wg sync.WaitGroup
	for i, src := range pl.Sources {
		all[i].source = src
		if src.Survey == nil {
			all[i].err = batch.NewError(batch.Permanent, batch.CodeConfiguration, "survey", fmt.Errorf("source %s can't be asked what it holds", src.ID), "")
			continue
		}
		mine := q
		mine.Saved = nil
		for _, p := range s.of(src.ID, true) {
			mine.Saved = append(mine.Saved, p.Position)
		}
		wg.Go(func() {
			all[i].parts, all[i].err = src.Survey(ctx, plan.Env{Logger: log.With("source", src.ID)}, mine)
			if all[i].err != nil {
				all[i].err = fmt.Errorf("source %s: %w", src.ID, all[i].err)
			}
		})
	}
	wg.Wait()
	return all
}

// failures sums up what couldn't be asked; nil if everything could.
func failures(all []surveyed) error {
	var errs []error
	for i := range all {
		if all[i].err != nil {
			errs = append(errs, all[i].err)
			continue
		}
		for j := range all[i].parts {
			if err := all[i].parts[j].Err; err != nil {
				errs = append(errs, err)
			}
		}
	}
	return few(errs)
}

// shownErrors bounds a list of errors of one kind.
const shownErrors = 5

// few joins the first errors and counts the others.
func few(errs []error) error {
	if n := len(errs) - shownErrors; n > 0 {
		errs = append(errs[:shownErrors:shownErrors], fmt.Errorf("and %d more", n))
	}
	return errors.Join(errs...)
}

// within bounds what a command asks of servers. Its error says so in place of "context deadline exceeded".
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s (--timeout)", limit))
}

// brief is an error in one line, without its place, for a column of a table.
func brief(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*batch.Error](err); ok && e.Err != nil {
		err = e.Err
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
