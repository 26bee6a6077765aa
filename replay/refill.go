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
	if err := r.prepare(ctx, sources); err != nil {
		return err
	}
	db, err := pebblestate.Open(ctx, pebblestate.Options{
		Dir: r.o.Dir, Pipeline: r.plan.Name, Shards: r.o.Store.Shards(), CreateIfMissing: true, Logger: r.o.Logger,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if r.last > 0 {
		_, err = r.drive(ctx, db, 1, r.last, r.last+1)
	}
	return err
}

// era is a part of a ledger in which the sources had the same names.
type era struct {
	end batch.Txid        // the migration that gave them others, which isn't of it; 0: it lasts
	now map[string]string // what they are called by now, where that is something else
}

// prepare reads the whole ledger for what must be known before it is run, and has it run in the names and with the sources and
// tables of the run's plan. sources are those that get other names now.
func (r *run) prepare(ctx context.Context, sources map[string]string) error {
	var eras []era // the last one first
	var migrations []txstate.Entry
	next, first := batch.Txid(1), batch.Txid(0)
	used := map[string]batch.Txid{} // static tables, by name: the first batch that used it
	for e, err := range r.o.Store.Store().Entries(ctx, 1, r.last) {
		if err != nil {
			return err
		}
		if e.Txid != next {
			return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "replay",
				fmt.Errorf("the ledger begins at txid %d: txids %d to %d have been trimmed, so their input isn't known any more", e.Txid, next, e.Txid-1),
				"let the state begin empty, or keep a longer ledger")
		}
		next++
		if first == 0 && !e.Reset {
			first = e.Txid
		}
		for _, v := range e.Statics {
			if used[v.Name] == 0 {
				used[v.Name] = e.Txid
			}
		}
		if len(renamedSources(e.Migrated)) > 0 {
			migrations = append(migrations, e)
		}
	}
	now := maps.Clone(sources)
	for _, m := range slices.Backward(migrations) {
		eras = append(eras, era{now: now})
		before := maps.Clone(now)
		if before == nil {
			before = map[string]string{}
		}
		for old, to := range renamedSources(m.Migrated) { // order: each name by itself
			before[old] = to
			if later, ok := now[to]; ok {
				before[old] = later
			}
		}
		now = before
	}
	eras = append(eras, era{now: now})
	slices.Reverse(eras)
	for i := range migrations {
		eras[i].end = migrations[i].Txid
	}
	fresh, err := r.newTables(ctx, first, used)
	if err != nil {
		return err
	}
	r.translate = func(e *txstate.Entry) {
		i := slices.IndexFunc(eras, func(a era) bool { return a.end == 0 || e.Txid < a.end })
		r.translateEntry(e, func(name string) string {
			if to, ok := eras[i].now[name]; ok {
				return to
			}
			return name
		})
		if e.Txid == first {
			e.Statics = append(e.Statics, fresh...)
		}
	}
	for e, err := range r.entries(ctx, 1, r.last) {
		if err != nil {
			return err
		}
		r.outline.take(&e, r.last+1)
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

// newTables reads the present content of the static tables that the first batch didn't use, so that it can begin with them. used are
// the first batches that used each.
func (r *run) newTables(ctx context.Context, first batch.Txid, used map[string]batch.Txid) (fresh []txstate.StaticVersion, err error) {
	if first == 0 {
		return nil, nil
	}
	for _, s := range r.plan.Statics {
		if at := used[s.Name]; at > 0 && at <= first {
			continue
		}
		t, err := exec.ReadStatic(ctx, s, r.o.Logger)
		if err != nil {
			return nil, fmt.Errorf("static table %s: %w", s.Name, err)
		}
		if r.tables == nil {
			r.tables = map[string]pebblestate.StaticTable{}
		}
		r.tables[s.Name] = t
		fresh = append(fresh, txstate.StaticVersion{Name: s.Name, Digest: t.Digest})
	}
	return fresh, nil
}

// table is exec.Config.Tables.
func (r *run) table(ctx context.Context, name string, digest uint64) (pebblestate.StaticTable, bool, error) {
	if t, ok := r.tables[name]; ok && t.Digest == digest {
		return t, true, nil
	}
	return r.o.Store.StaticWith(ctx, name, digest)
}
