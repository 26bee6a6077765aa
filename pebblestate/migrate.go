package pebblestate

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tridentd/tridentd/internal/enc"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// Migration is what a change of a pipeline does to its store, in one synced write: no batch makes it, but it has a ledger entry
// and a txid of its own. A name is given to one thing at most, and taken from it before it is given to another.
type Migration struct {
	Entry txstate.Entry
	Plan  Plan
	// Drop lists states that end with all their rows.
	Drop []string
	// Rename gives states other names, Sources the sources whose positions are kept; by old name.
	Rename, Sources map[string]string
	// Schemas are those of states that change, by their new names.
	Schemas []state.Schema
}

// Migrate applies m. What isn't there to be dropped or renamed is passed over. It panics if m.Entry's txid doesn't follow the
// last committed one, and must not be called while batches are recorded or in flight.
func (db *DB) Migrate(ctx context.Context, m Migration) error {
	db.writing.Lock()
	defer db.writing.Unlock()
	if want := db.rec.committed.txid + 1; m.Entry.Txid != want || len(db.rec.recorded) > 0 {
		panic(fmt.Sprintf("pebblestate: migration as txid %d where %d is due, %d batches are recorded", m.Entry.Txid, want, len(db.rec.recorded)))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	current := db.current.Load()
	if current == nil {
		return ErrClosed
	}
	w := db.newWriter(m.Entry.Txid)
	states, err := w.migrateStates(&m, current.states)
	if err != nil {
		return err
	}
	if err := w.migratePositions(ctx, m.Sources, current); err != nil {
		return err
	}
	last := committed{txid: m.Entry.Txid, chain: m.Entry.Chain, time: m.Entry.Time}
	if err := w.set(keyCommitted, last.append(nil)); err != nil {
		return err
	}
	if err := w.set(txidKey(kindLedger, m.Entry.Txid), appendEntry(nil, &m.Entry)); err != nil {
		return err
	}
	if err := w.putPlan(&m.Plan); err != nil {
		return err
	}
	return db.commit(&write{b: w.b, committed: last, states: states}, nil)
}

// migrateStates drops, renames and redefines, and returns the states as they are then.
func (w *writer) migrateStates(m *Migration, states map[string]*table) (map[string]*table, error) {
	kept := map[string]*table{}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		t := states[name]
		if slices.Contains(m.Drop, name) {
			if err := w.dropState(t, states); err != nil {
				return nil, err
			}
			continue
		}
		to, renamed := m.Rename[name]
		if !renamed {
			to = name
		} else if err := w.delete(stateKey(name)); err != nil {
			return nil, err
		}
		if kept[to] != nil {
			panic("pebblestate: a migration gives two states the name " + to)
		}
		c := *t
		c.schema.Name = to
		kept[to] = &c
	}
	for i := range m.Schemas {
		if t := kept[m.Schemas[i].Name]; t != nil {
			t.schema = m.Schemas[i]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		if t := kept[name]; states[name] == nil || states[name].id != t.id || slices.ContainsFunc(m.Schemas, func(s state.Schema) bool { return s.Name == name }) {
			if err := w.set(stateKey(name), appendState(nil, t.id, &t.schema)); err != nil {
				return nil, err
			}
		}
	}
	return kept, nil
}

// dropState removes a state's rows and its name. Its id isn't given to another.
func (w *writer) dropState(t *table, states map[string]*table) error {
	next, err := w.nextStateID(states)
	if err != nil {
		return err
	}
	if err := w.set(keyStates, enc.AppendUvarint(nil, next-1)); err != nil {
		return err
	}
	if err := w.b.DeleteRange(t.prefix, enc.PrefixEnd(t.prefix), nil); err != nil {
		return err
	}
	return w.delete(stateKey(t.schema.Name))
}

// migratePositions gives the positions of renamed sources their new source. Those that an earlier source of that name has left end.
func (w *writer) migratePositions(ctx context.Context, sources map[string]string, v *version) error {
	if len(sources) == 0 {
		return nil
	}
	it, err := v.snap.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: []byte{kindPosition}, UpperBound: []byte{kindPosition + 1}})
	if err != nil {
		return w.db.failedRead(err)
	}
	taken := map[string]bool{}
	for _, to := range sources { // order: a set
		taken[to] = true
	}
	var moved []txstate.SavedPosition
	for it.First(); it.Valid() && err == nil; it.Next() {
		var p txstate.SavedPosition
		if p, err = decodePosition(it.Key(), it.Value()); err != nil {
			err = w.db.garbled(fmt.Sprintf("the position with key %x", it.Key()), err)
			break
		}
		to, ok := sources[p.Source]
		if !ok && !taken[p.Source] {
			continue
		}
		if err = w.delete(it.Key()); err != nil {
			break
		}
		if ok {
			p.Source = to
			moved = append(moved, p)
		}
	}
	if err := w.db.closed(it, err); err != nil {
		return err
	}
	for i := range moved { // behind all deletions: two sources may swap their names
		if err := w.set(positionKey(moved[i].Partition), appendPosition(nil, &moved[i])); err != nil {
			return err
		}
	}
	return nil
}

// Load fills a state that doesn't exist, or ends what was in it, with rows: each key once, in any order. The rows are written in
// as many writes as they need, and no txid is spent on them: it is for a copy of a store that nobody uses before it is
// whole. An error leaves a part.
func (db *DB) Load(ctx context.Context, schema state.Schema, rows iter.Seq2[Row, error]) (n int64, err error) {
	db.writing.Lock()
	defer db.writing.Unlock()
	current := db.current.Load()
	if current == nil {
		return 0, ErrClosed
	}
	w := db.newWriter(current.txid)
	states := current.states
	if t := states[schema.Name]; t != nil {
		states = maps.Clone(states)
		delete(states, schema.Name)
		if err := w.dropState(t, current.states); err != nil {
			return 0, err
		}
	}
	states, err = w.putSchemas(&Commit{Schemas: []state.Schema{schema}}, states)
	if err != nil {
		return 0, err
	}
	t := states[schema.Name]
	flush := func() error {
		if err := db.sync(w.b); err != nil {
			return err
		}
		w = db.newWriter(current.txid)
		return nil
	}
	for row, err := range rows {
		if err != nil {
			return n, err
		}
		w.key = append(appendShard(append(w.key[:0], t.prefix...), state.ShardOf(row.Key, w.shards)), row.Key...)
		if int64(w.b.Len()+len(w.key)+len(row.Value))+opBytes > min(w.limit, loadBytes) {
			if err := flush(); err != nil {
				return n, err
			}
			if err := ctx.Err(); err != nil {
				return n, context.Cause(ctx)
			}
			w.key = append(appendShard(append(w.key[:0], t.prefix...), state.ShardOf(row.Key, w.shards)), row.Key...)
		}
		if err := w.set(w.key, row.Value); err != nil {
			return n, err
		}
		n++
	}
	if err := flush(); err != nil {
		return n, err
	}
	return n, db.publish(db.rec.committed.txid, states)
}

// loadBytes bounds one write of Load.
const loadBytes = 8 << 20

// nextStateID is an id that no state has had. Those of dropped states are above all others only in keyStates.
func (w *writer) nextStateID(states map[string]*table) (uint64, error) {
	b, err := w.db.value(keyStates)
	if err != nil {
		return 0, err
	}
	var highest uint64
	if b != nil {
		r := enc.NewReader(b)
		highest = r.Uvarint()
		if err := r.Done(); err != nil {
			return 0, w.db.garbled("the highest id of a state", err)
		}
	}
	for _, t := range states { // order: a maximum
		highest = max(highest, t.id)
	}
	return highest + 1, nil
}
