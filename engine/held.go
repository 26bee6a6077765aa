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
// The places are looked at only when something is to be trimmed that a savepoint might need. A savepoint begun behind a look is of the
// txid that had committed then, or of a later one: what lies before can be trimmed without another look. One that was being made then
// may be of an earlier txid, and come to its place at any time later: until then it counts by its copy, and once that is gone the places
// are looked at again.
type holdings struct {
	pipeline string
	dir      string // of the store
	places   []string
	log      hclog.Logger

	making []savepoint.Making // at the last call
	looked time.Time          // zero before the first look
	upTo   batch.Txid         // the last committed at the last look
	found  []savepoint.Info   // the store's own, by txid
}

// holder is a savepoint that needs entries of the ledger.
type holder struct {
	name   string
	txid   batch.Txid // it needs the entries behind that
	chain  string
	making bool // it isn't in its place yet
}

// lookAgain is for how long what holds the ledger is taken to be still there.
const lookAgain = 10 * time.Minute

// newHoldings looks where savepoints of a pipeline are made unless another place is named: in the one of its own, and beside its
// data directory.
func newHoldings(h *Handle) *holdings {
	s := &holdings{pipeline: h.plan.Name, dir: h.dir, log: h.log, places: []string{filepath.Join(filepath.Dir(h.dir), names.Savepoints)}}
	if to := h.plan.Savepoints.To; to != "" {
		s.places = append(s.places, to)
	}
	return s
}

// needing lists the savepoints that need something of what would be trimmed to let the ledger begin at keep, by txid.
func (s *holdings) needing(v *ledgerView, keep batch.Txid) ([]holder, error) {
	making, err := savepoint.InMaking(s.dir) // before a look: whatever leaves this list is found by that
	if err != nil {
		return nil, fmt.Errorf("the savepoints that are being made, which it must be kept for, can't be listed: %w", err)
	}
	for _, was := range s.making {
		if !slices.ContainsFunc(making, was.Same) {
			s.looked = time.Time{}
		}
	}
	s.making = making
	if age := v.now.Sub(s.looked); s.looked.IsZero() || keep > s.upTo || age < 0 || age >= lookAgain {
		if err := s.look(v); err != nil {
			return nil, fmt.Errorf("the savepoints, which it must be kept for, can't be listed: %w", err)
		}
	}
	all := make([]holder, 0, len(s.found)+len(making))
	for i := range s.found {
		all = append(all, holder{name: s.found[i].Name, txid: s.found[i].Txid, chain: s.found[i].Chain})
	}
	for _, m := range making {
		switch {
		case m.Begun: // of what txid isn't known as yet: it may be any
			all = append(all, holder{name: "one that is being made", txid: v.first - 1, making: true})
		case holds(m.Made):
			all = append(all, holder{name: m.Name, txid: m.Txid, chain: m.Chain, making: true})
		}
	}
	slices.SortStableFunc(all, func(a, b holder) int { return cmp.Compare(a.txid, b.txid) })
	needing := all[:0]
	for _, h := range all {
		if h.txid >= keep {
			break
		}
		ok, err := leadsOn(v, &h)
		if err != nil {
			return nil, err
		}
		if ok {
			needing = append(needing, h)
		}
	}
	return needing, nil
}

// leadsOn tells whether the ledger goes on from a savepoint: it holds all that was committed behind it, in the same history.
func leadsOn(v *ledgerView, h *holder) (bool, error) {
	switch {
	case h.txid+1 < v.first || h.txid > v.last:
		return false, nil
	case h.txid < v.first: // its own entry isn't needed
		return true, nil
	}
	e, err := v.entry(h.txid)
	return fmt.Sprintf("%016x", e.Chain) == h.chain, err
}

// holds tells whether savepoints that were made for a reason hold the ledger.
func holds(r savepoint.Reason) bool { return r == savepoint.ByHand || r == savepoint.BySchedule }

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
			return i.Identity != id || !holds(i.Made)
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
