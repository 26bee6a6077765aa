package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/savepoint"
)

// holdings finds what the savepoints of a store need of its ledger: the entries behind each of them, by which any later txid can be
// gone back to. Those made before a migration need none, as nothing lies between the two.
//
// The places are looked at only when something is to be trimmed that a savepoint might need. A savepoint made behind a look is of the
// txid that had committed then, or of a later one: what lies before can be trimmed without another look.
type holdings struct {
	pipeline string
	places   []string
	log      hclog.Logger

	looked time.Time        // zero before the first look
	upTo   batch.Txid       // the last committed at the last look
	found  []savepoint.Info // the store's own, by txid
}

// lookAgain is for how long what holds the ledger is taken to be still there.
const lookAgain = 10 * time.Minute

// newHoldings looks where savepoints of a pipeline are made unless another place is named: in the one of its own, and beside its
// data directory.
func newHoldings(h *Handle) *holdings {
	s := &holdings{pipeline: h.plan.Name, log: h.log, places: []string{filepath.Join(filepath.Dir(h.dir), names.Savepoints)}}
	if to := h.plan.Savepoints.To; to != "" {
		s.places = append(s.places, to)
	}
	return s
}

// oldest is the first savepoint, if there is one, that needs what would be trimmed to let the ledger begin at keep.
func (s *holdings) oldest(v *ledgerView, keep batch.Txid) (*savepoint.Info, error) {
	if age := v.now.Sub(s.looked); s.looked.IsZero() || keep > s.upTo || age < 0 || age >= lookAgain {
		if err := s.look(v); err != nil {
			return nil, fmt.Errorf("the savepoints, which it must be kept for, can't be listed: %w", err)
		}
	}
	for i := range s.found {
		info := &s.found[i]
		if info.Txid >= keep {
			break
		}
		if ok, err := leadsOn(v, info); ok || err != nil {
			return info, err
		}
	}
	return nil, nil
}

// leadsOn tells whether the ledger goes on from a savepoint: it holds all that was committed behind it, in the same history.
func leadsOn(v *ledgerView, info *savepoint.Info) (bool, error) {
	switch {
	case info.Txid+1 < v.first || info.Txid > v.last:
		return false, nil
	case info.Txid < v.first: // its own entry isn't needed
		return true, nil
	}
	e, err := v.entry(info.Txid)
	return fmt.Sprintf("%016x", e.Chain) == info.Chain, err
}

func (s *holdings) look(v *ledgerView) error {
	var found []savepoint.Info
	for _, where := range s.places {
		all, err := s.list(v.ctx, where)
		if err != nil {
			return err
		}
		found = append(found, all...)
	}
	if len(found) > 0 {
		id, err := v.db.Identity(v.ctx)
		if err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(i savepoint.Info) bool {
			return i.Identity != id || i.Made != savepoint.ByHand && i.Made != savepoint.BySchedule
		})
	}
	slices.SortStableFunc(found, func(a, b savepoint.Info) int { return cmp.Compare(a.Txid, b.Txid) })
	s.found, s.looked, s.upTo = found, v.now, v.last
	return nil
}

// list lists a place. What can't be read there is no savepoint that could be restored.
func (s *holdings) list(ctx context.Context, where string) ([]savepoint.Info, error) {
	place, err := savepoint.Open(ctx, where, s.pipeline)
	if err != nil {
		return nil, err
	}
	all, err := place.List(ctx)
	if err != nil && unusable(err) {
		s.log.Warn("a savepoint can't be used: the ledger isn't kept for it", "place", place.String(), "error", err)
		err = nil
	}
	return all, errors.Join(err, place.Close())
}

// unusable tells whether an error of listing a place is only about savepoints that nobody could restore.
func unusable(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok { // of errors.Join
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !unusable(err) })
	}
	code := batch.CodeOf(err)
	return code == batch.CodeStoreDamaged || code == batch.CodeStoreForeign
}
