package exec

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// A migration is a ledger entry of its own: it has a txid, and says what was done to the states, which no batch could do.

// Migration is what Migrate does to a store.
type Migration struct {
	Plan            pebblestate.Plan // of the pipeline as it is from now on
	Did             []string         // what is done, for the ledger; not empty
	Drop            []string         // states
	Rename, Sources map[string]string
	Schemas         []state.Schema // of kept states that are described otherwise
	// Refill lists the states that are taken over whole from another store, as of the same txid.
	Refill []state.Schema
	From   *pebblestate.DB // may be nil if Refill is empty
	Build  string
	Now    time.Time
}

// Migrate changes a store at rest: a copy that nobody uses before Migrate has returned, as it takes several writes if states are
// refilled. It returns the ledger's entry, which is in the last of them.
func Migrate(ctx context.Context, db *pebblestate.DB, m Migration) (txstate.Entry, error) {
	store := db.Store()
	snap, err := store.Load(ctx)
	if err != nil {
		return txstate.Entry{}, err
	}
	if err := Settled(&snap); err != nil {
		return txstate.Entry{}, err
	}
	e := txstate.Entry{
		Txid: snap.Txid + 1, Attempt: batch.Attempt{Epoch: snap.Epoch + 1, N: 1}, Attempts: 1, Time: m.Now.UTC().Truncate(time.Millisecond),
		Reset: true, Migrated: m.Did, Build: m.Build, Plan: m.Plan.Sum, Committed: m.Now.UTC(),
	}
	if e.Time.Before(snap.Time) {
		e.Time = snap.Time
	}
	for last, err := range store.Entries(ctx, snap.Txid, snap.Txid) {
		if err != nil {
			return e, err
		}
		for _, w := range last.Watermarks {
			if to, ok := m.Sources[w.Source]; ok {
				w.Source = to
			}
			e.Watermarks = append(e.Watermarks, w)
		}
	}
	slices.SortFunc(e.Watermarks, func(a, b txstate.Watermark) int { return strings.Compare(a.Source, b.Source) })
	if err := store.Claim(ctx, e.Attempt.Epoch); err != nil {
		return e, err
	}
	for _, s := range []state.Schema{WindowsSchema(), TimersSchema()} {
		if err := m.index(ctx, db, s); err != nil {
			return e, err
		}
	}
	for _, s := range m.Refill {
		from, err := m.From.Snapshot()
		if err != nil {
			return e, err
		}
		n, err := db.Load(ctx, s, from.Scan(ctx, s.Name, nil, nil))
		if err := errors.Join(err, from.Close()); err != nil {
			return e, fmt.Errorf("state %s: %w", s.Name, err)
		}
		d, err := digestOf(ctx, db, s.Name)
		if err != nil {
			return e, err
		}
		e.States = append(e.States, txstate.StateDigest{State: s.Name, Writes: n, Digest: d})
	}
	slices.SortFunc(e.States, func(a, b txstate.StateDigest) int { return strings.Compare(a.State, b.State) })
	e.Chain = chainOf(snap.Chain, &e)
	return e, db.Migrate(ctx, pebblestate.Migration{
		Entry: e, Plan: m.Plan, Drop: m.Drop, Rename: m.Rename, Sources: m.Sources, Schemas: m.Schemas,
	})
}

// Settled refuses a store with batches that are recorded and haven't committed: the pipeline that recorded them settles them.
func Settled(snap *txstate.Snapshot) error {
	n := len(snap.Recorded)
	if n == 0 {
		return nil
	}
	e := batch.NewError(batch.Permanent, batch.CodePlanChanged, "migrate", errors.New("its ranges are recorded, and it hasn't committed yet"),
		"run the pipeline as it was until it has, then migrate")
	e.Txid = snap.Recorded[n-1].Txid
	return e
}

func digestOf(ctx context.Context, db *pebblestate.DB, name string) (uint64, error) {
	all, err := db.StateDigests(ctx)
	for _, d := range all {
		if d.State == name {
			return d.Digest, err
		}
	}
	return 0, err
}

// index brings what the store remembers of windows, or timers, in line with the states, whose names lead the keys there.
func (m *Migration) index(ctx context.Context, db *pebblestate.DB, index state.Schema) error {
	var rows []pebblestate.Row
	changed := false
	take := func(db *pebblestate.DB, name func(string) (string, bool)) error {
		snap, err := db.Snapshot()
		if err != nil {
			return err
		}
		defer snap.Close() //nolint:errcheck // it only reads
		for row, err := range snap.Scan(ctx, index.Name, nil, nil) {
			if err != nil {
				return err
			}
			v, rest, err := value.DecodeKey(row.Key)
			if err != nil {
				return fmt.Errorf("state %s: %w", index.Name, err)
			}
			was := v.Str()
			to, keep := name(was)
			changed = changed || !keep || to != was
			if keep {
				rows = append(rows, pebblestate.Row{Key: append(value.AppendKey(nil, value.StringOf(to)), rest...), Value: row.Value})
			}
		}
		return nil
	}
	refilled := func(name string) bool {
		return slices.ContainsFunc(m.Refill, func(s state.Schema) bool { return s.Name == name })
	}
	err := take(db, func(name string) (string, bool) {
		if slices.Contains(m.Drop, name) {
			return name, false
		}
		if to, ok := m.Rename[name]; ok {
			name = to
		}
		return name, !refilled(name)
	})
	if err != nil {
		return err
	}
	if m.From != nil {
		n := len(rows)
		if err := take(m.From, func(name string) (string, bool) { return name, refilled(name) }); err != nil {
			return err
		}
		changed = changed || len(rows) > n
	}
	if !changed {
		return nil
	}
	_, err = db.Load(ctx, index, rowsIn(rows))
	return err
}

func rowsIn(rows []pebblestate.Row) iter.Seq2[pebblestate.Row, error] {
	return func(yield func(pebblestate.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}
