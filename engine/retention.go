package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// The ledger is trimmed beside the batches, in passes every few seconds: none of it is done by a commit.
//
// A replay begins at txid 1 or, once that has been trimmed, at a base: a copy of the store as of an earlier txid. The
// ledger keeps within its bounds, and bases are made so that one always lies in what it holds: a new one as soon as the
// latest beginning has left the newer half of the bounds. So at least the newer half of what the bounds allow can be
// replayed, there are at most two bases (three for a moment), and each pins the tables that the store had when it was made,
// until the bounds have passed it. What a savepoint needs (holdings) is kept beyond the
// bounds, but not beyond those of Ledger.Held…; a replay of that begins there.
const (
	retentionEvery = 5 * time.Second
	// baseEvery is the least time between two bases, whatever the bounds: making one writes the memtables out. Where
	// batches outrun their bounds in less, the ledger grows for so long.
	baseEvery = time.Minute
)

// retention trims the ledger of one run.
type retention struct {
	limits plan.Ledger
	log    hclog.Logger
	now    func() time.Time // decides when something is trimmed, never what a batch is
	every  time.Duration    // between bases
	made   time.Time        // the last one
	// held lists the savepoints that need something of what lies before keep, by txid.
	held func(v *ledgerView, keep batch.Txid) ([]holder, error)
	seen LedgerStatus // by the last pass
}

// LedgerStatus is what the ledger holds, as the last pass over it left it: every few seconds there is one.
type LedgerStatus struct {
	First batch.Txid // the first entry
	// Base is the txid behind which the earliest replay can begin; 0 while none is trimmed.
	Base  batch.Txid
	Bytes int64 // of entries and kept changes, in tables
	// HeldFor is the savepoint for which more is kept than the bounds allow; empty if there is none.
	HeldFor string
}

// ledgerBounds fills in the defaults.
func ledgerBounds(l plan.Ledger) plan.Ledger {
	if l.MaxAge == 0 {
		l.MaxAge = plan.DefaultLedgerAge
	}
	if l.MaxBytes == 0 {
		l.MaxBytes = plan.DefaultLedgerBytes
	}
	return l
}

// keepLedger trims the ledger in the background, until what it returns is called. However short the run, one pass is made, unless
// that takes longer than the end of a run may.
func (h *Handle) keepLedger(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		h.trimLedger(ctx, stop)
	}()
	return func() {
		defer cancel()
		close(stop)
		t := time.NewTimer(closeGrace)
		defer t.Stop()
		select {
		case <-ended:
			return
		case <-t.C:
		}
		cancel()
		<-ended
	}
}

// trimLedger makes passes until stop is closed.
func (h *Handle) trimLedger(ctx context.Context, stop <-chan struct{}) {
	r := &retention{limits: ledgerBounds(h.plan.Ledger), log: h.log, now: time.Now, every: baseEvery, held: newHoldings(h).needing}
	tick := time.NewTicker(retentionEvery)
	defer tick.Stop()
	for failing := false; ; {
		db, err := h.asked()
		if err == nil {
			err = r.pass(ctx, db)
			if seen := r.seen; seen.First > 0 {
				h.ledger.Store(&seen)
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil, errors.Is(err, pebblestate.ErrClosed), errors.Is(err, errAgain):
			failing = err != nil && failing
		case !failing: // a store that fails is told by its commits; what else there is once
			failing = true
			h.log.Warn("the ledger can't be trimmed; trying again", "error", err)
		}
		select {
		case <-tick.C:
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// ledgerView is what a pass looks at.
type ledgerView struct {
	ctx         context.Context
	db          *pebblestate.DB
	now         time.Time
	first, last batch.Txid
}

// pass makes a base if one is due, and trims what is out of bounds.
func (r *retention) pass(ctx context.Context, db *pebblestate.DB) error {
	v := &ledgerView{ctx: ctx, db: db, now: r.now()}
	if v.first, v.last = db.Ledger(); v.last == 0 {
		return nil
	}
	bases, err := db.Bases()
	if err != nil {
		return err
	}
	// The newest txid behind which a replay can begin; none if what there was has been lost, or was never there as the
	// store was restored from a savepoint.
	var newest batch.Txid
	first := v.first
	begin := make([]batch.Txid, 0, len(bases)+1)
	for _, b := range bases {
		if v.first <= b.Txid && b.Txid <= v.last {
			newest = b.Txid
			begin = append(begin, b.Txid)
		}
	}
	lost := newest == 0 && v.first > 1
	half, err := v.within(r.limits, 1, 2)
	if err != nil {
		return err
	}
	if (lost || newest+1 < half) && v.last > newest && (lost || r.made.IsZero() || v.now.Sub(r.made) >= r.every) {
		began := time.Now()
		b, err := db.MakeBase(ctx, v.now)
		if err != nil {
			return fmt.Errorf("making a base: %w", err)
		}
		r.made = v.now
		newest = b.Txid
		begin = append(begin, b.Txid)
		r.log.Info("the ledger has a new base, which replays can begin at", "txid", uint64(b.Txid), "bytes", b.Bytes, "took", time.Since(began).Round(time.Millisecond))
	}
	bound, err := v.overdue(r.limits)
	if err != nil {
		return err
	}
	bound = min(bound, newest) // the base's own entry stays: it tells whose base it is
	keep, heldFor, unknown := r.hold(v, bound)
	if keep > v.first {
		if err := db.TrimLedger(ctx, keep); err != nil {
			return err
		}
		r.log.Debug("the ledger is trimmed", "first", uint64(keep), "last", uint64(v.last), "removed", uint64(keep-v.first))
		v.first = keep
	}
	// Each pins the tables of its time: what the bounds have passed goes, also where the ledger is kept for a savepoint, at which
	// a replay of that part begins.
	stale := max(v.first, bound)
	if len(bases) > 0 && bases[0].Txid < stale {
		if err := db.RemoveBases(stale); err != nil {
			return err
		}
	}
	if v.first > first {
		if err := db.CompactLedger(ctx); err != nil {
			return err
		}
	}
	seen := LedgerStatus{First: v.first, HeldFor: heldFor}
	for _, txid := range begin {
		if v.first > 1 && txid >= stale {
			seen.Base = txid
			break
		}
	}
	if seen.Bytes, err = db.LedgerBytes(v.first); err == nil {
		r.seen = seen
	}
	return errors.Join(unknown, err)
}

// hold keeps what leads from the oldest savepoint of the store to the present, beyond the bounds: any txid behind it can then be gone
// back to. What lies beyond the bounds that are set for this is let go. While the savepoints aren't known, nothing is trimmed.
func (r *retention) hold(v *ledgerView, bound batch.Txid) (keep batch.Txid, heldFor string, err error) {
	if bound <= v.first {
		return bound, "", nil
	}
	all, err := r.held(v, bound)
	if err != nil {
		return v.first, r.seen.HeldFor, err
	}
	limit, err := v.within(plan.Ledger{MaxAge: r.limits.HeldAge, MaxBytes: r.limits.HeldBytes}, 1, 1)
	if err != nil {
		return v.first, r.seen.HeldFor, err
	}
	kept := slices.IndexFunc(all, func(h holder) bool { return h.txid+1 >= limit })
	if keep = bound; kept < 0 {
		kept = len(all)
	} else {
		h := &all[kept]
		keep, heldFor = max(v.first, min(bound, h.txid)), h.name
		if h.name != r.seen.HeldFor {
			r.tell(h)
		}
	}
	for _, h := range all[:kept] {
		if h.txid+1 < keep {
			r.log.Warn("a savepoint needs more of the ledger than is kept for savepoints (ledger: held): it can be restored, but not with --to-txid any more",
				"savepoint", h.name, "txid", uint64(h.txid))
		}
	}
	return keep, heldFor, nil
}

// tell says what the ledger is kept for.
func (r *retention) tell(h *holder) {
	if h.making {
		r.log.Info("the ledger is kept beyond its bounds, as a savepoint that is being made will need it", "savepoint", h.name, "txid", uint64(h.txid))
		return
	}
	r.log.Info("the ledger is kept beyond its bounds, as a savepoint needs it: remove that, if nobody will go back to a txid behind it",
		"savepoint", h.name, "txid", uint64(h.txid))
}

// slack is the share of a bound by which it is overstepped (age) or kept below (count and size) so that not every pass
// trims: 1/slack.
const slack = 32

// overdue is the first txid that stays, if something is out of bounds; otherwise the first there is.
func (v *ledgerView) overdue(l plan.Ledger) (batch.Txid, error) {
	loose := l
	if l.MaxAge > 0 {
		loose.MaxAge += l.MaxAge / slack
	}
	keep, err := v.within(loose, 1, 1)
	if err != nil || keep == v.first {
		return v.first, err
	}
	tight := l
	if tight.MaxBatches > 0 {
		tight.MaxBatches = max(1, tight.MaxBatches-tight.MaxBatches/slack)
	}
	if tight.MaxBytes > 0 {
		tight.MaxBytes -= tight.MaxBytes / slack
	}
	return v.within(tight, 1, 1)
}

// within is the first txid whose entry lies within num/den of the bounds; the last one's does always.
func (v *ledgerView) within(l plan.Ledger, num, den int64) (batch.Txid, error) {
	first := v.first
	if n := l.MaxBatches; n > 0 {
		if n = max(1, n*num/den); int64(v.last-first) >= n {
			first = v.last - batch.Txid(n) + 1
		}
	}
	if l.MaxAge > 0 {
		since := v.now.Add(-l.MaxAge / time.Duration(den) * time.Duration(num))
		var err error
		if first, err = v.search(first, func(txid batch.Txid) (bool, error) {
			at, err := v.committed(txid)
			return !at.Before(since), err
		}); err != nil {
			return first, err
		}
	}
	if l.MaxBytes > 0 {
		limit := l.MaxBytes / den * num
		return v.search(first, func(txid batch.Txid) (bool, error) {
			n, err := v.db.LedgerBytes(txid)
			return n <= limit, err
		})
	}
	return first, nil
}

// search is the first txid from one on that is in bounds; the last if none is. What follows one in bounds is, too.
func (v *ledgerView) search(from batch.Txid, in func(batch.Txid) (bool, error)) (batch.Txid, error) {
	if ok, err := in(from); ok || err != nil { // mostly
		return from, err
	}
	var failed error
	n := sort.Search(int(v.last-from), func(i int) bool {
		if failed != nil {
			return true
		}
		ok, err := in(from + batch.Txid(i))
		failed = err
		return ok
	})
	return from + batch.Txid(n), failed
}

func (v *ledgerView) committed(txid batch.Txid) (time.Time, error) {
	e, err := v.entry(txid)
	return e.Committed, err
}

func (v *ledgerView) entry(txid batch.Txid) (txstate.Entry, error) {
	for e, err := range v.db.Store().Entries(v.ctx, txid, txid) {
		return e, err
	}
	return txstate.Entry{}, fmt.Errorf("the ledger has no entry of txid %d", txid)
}
