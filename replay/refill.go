package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// Refill runs the ledger of o.Store from its first batch to its last with a pipeline that may be another than made it, into a
// store of its own in o.Dir: its states then hold what they would if the pipeline had been like that from the beginning, with
// the batches' borders, clocks and seeds as they were. sources are the sources that have other names by now, by their old
// ones. Input must come out as it was recorded; what becomes of it isn't compared.
//
// Sources that the pipeline doesn't have any more are left out, and sources that it has since are read by no batch.
func Refill(ctx context.Context, p *engine.Pipeline, o Options, sources map[string]string) (err error) {
	r, err := newRun(p, o)
	if err != nil {
		return err
	}
	if err := r.choose(ctx); err != nil {
		return err
	}
	r.plan.Ledger.Changes = false
	if err := r.translate(ctx, sources); err != nil {
		return err
	}
	for i := range r.saved {
		if to, ok := sources[r.saved[i].Source]; ok {
			r.saved[i].Source = to
		}
	}
	if err := r.newTables(ctx); err != nil {
		return err
	}
	db, err := pebblestate.Open(ctx, pebblestate.Options{
		Dir: r.o.Dir, Pipeline: r.plan.Name, Shards: r.o.Store.Shards(), CreateIfMissing: true, Logger: r.o.Logger,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if len(r.entries) > 0 {
		_, err = r.drive(ctx, db, r.entries, r.last+1)
	}
	return err
}

// translate reads the whole ledger, in the names and with the sources and tables of the run's plan.
func (r *run) translate(ctx context.Context, sources map[string]string) error {
	for e, err := range r.o.Store.Store().Entries(ctx, 1, r.last) {
		if err != nil {
			return err
		}
		if want := batch.Txid(len(r.entries) + 1); e.Txid != want {
			return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "replay",
				fmt.Errorf("the ledger begins at txid %d: txids %d to %d have been trimmed, so their input isn't known any more", e.Txid, want, e.Txid-1),
				"let the state begin empty, or keep a longer ledger")
		}
		r.entries = append(r.entries, e)
	}
	now := map[string]string{} // what a source of the entry at hand is called by now, where that is something else
	maps.Copy(now, sources)
	for i := len(r.entries) - 1; i >= 0; i-- {
		e := &r.entries[i]
		r.translateEntry(e, func(name string) string {
			if to, ok := now[name]; ok {
				return to
			}
			return name
		})
		if renames := renamedSources(e.Migrated); len(renames) > 0 {
			before := maps.Clone(now)
			for old, to := range renames { // order: each name by itself
				before[old] = to
				if later, ok := now[to]; ok {
					before[old] = later
				}
			}
			now = before
		}
	}
	return nil
}

// renamedSources are the sources that a migration has given other names.
func renamedSources(did []string) map[string]string {
	all := map[string]string{}
	for _, d := range did {
		if rest, ok := strings.CutPrefix(d, "rename source:"); ok {
			old, to, _ := strings.Cut(rest, "=")
			all[old] = to
		}
	}
	return all
}

func (r *run) translateEntry(e *txstate.Entry, name func(string) string) {
	has := func(source string) bool {
		return slices.ContainsFunc(r.plan.Sources, func(s *plan.Source) bool { return s.ID == source })
	}
	e.Ranges = slices.DeleteFunc(e.Ranges, func(g txstate.RangeEntry) bool { return !has(name(g.Source)) })
	for i := range e.Ranges {
		e.Ranges[i].Source = name(e.Ranges[i].Source)
	}
	slices.SortStableFunc(e.Ranges, func(a, b txstate.RangeEntry) int { return a.Compare(b.Partition) })
	e.Idle = slices.DeleteFunc(e.Idle, func(p batch.Partition) bool { return !has(name(p.Source)) })
	for i := range e.Idle {
		e.Idle[i].Source = name(e.Idle[i].Source)
	}
	slices.SortStableFunc(e.Idle, batch.Partition.Compare)
	e.Joined = slices.DeleteFunc(e.Joined, func(p batch.Position) bool { return !has(name(p.Source)) })
	for i := range e.Joined {
		e.Joined[i].Source = name(e.Joined[i].Source)
	}
	slices.SortStableFunc(e.Joined, func(a, b batch.Position) int { return a.Compare(b.Partition) })
	e.Watermarks = nil // made again
	schemas := exec.SchemasOf(r.plan)
	e.Statics = slices.DeleteFunc(e.Statics, func(v txstate.StaticVersion) bool {
		if state, ok := strings.CutPrefix(v.Name, "state "); ok { // of an import
			for _, s := range schemas {
				if s.Name == state {
					return false
				}
			}
			return true
		}
		return !slices.ContainsFunc(r.plan.Statics, func(s *plan.Static) bool { return s.Name == v.Name })
	})
}

// newTables lets the first batch begin with the present content of the static tables that it didn't use.
func (r *run) newTables(ctx context.Context) error {
	if len(r.entries) == 0 {
		return nil
	}
	first := slices.IndexFunc(r.entries, func(e txstate.Entry) bool { return !e.Reset })
	if first < 0 {
		return nil
	}
	for _, s := range r.plan.Statics {
		used := slices.IndexFunc(r.entries, func(e txstate.Entry) bool {
			return slices.ContainsFunc(e.Statics, func(v txstate.StaticVersion) bool { return v.Name == s.Name })
		})
		if used >= 0 && used <= first {
			continue
		}
		t, err := exec.ReadStatic(ctx, s, r.o.Logger)
		if err != nil {
			return fmt.Errorf("static table %s: %w", s.Name, err)
		}
		if r.tables == nil {
			r.tables = map[string]pebblestate.StaticTable{}
		}
		r.tables[s.Name] = t
		e := &r.entries[first]
		e.Statics = append(e.Statics, txstate.StaticVersion{Name: s.Name, Digest: t.Digest})
	}
	return nil
}

// table is exec.Config.Tables.
func (r *run) table(ctx context.Context, name string, digest uint64) (pebblestate.StaticTable, bool, error) {
	if t, ok := r.tables[name]; ok && t.Digest == digest {
		return t, true, nil
	}
	return r.o.Store.StaticWith(ctx, name, digest)
}
