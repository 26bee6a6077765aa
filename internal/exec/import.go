package exec

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// An import is a reset that may bring rows of states along. They aren't made of any record, so a copy of them lies in the
// store as a static table: a replay takes them from there.

// ImportedState are the rows that an import brings into a state that has none.
type ImportedState struct {
	Schema state.Schema
	Rows   []ImportedRow // each key once, in any order
}

// ImportedRow is one of them, encoded as the state keeps it.
type ImportedRow struct{ Key, Value []byte }

// importTable is the static table that keeps what was imported into a state. No table of a pipeline has a space in its name.
func importTable(stateName string) string { return "state " + stateName }

// addTo puts the rows into a commit, and what they are into its entry.
func (s *ImportedState) addTo(c *pebblestate.Commit, e *txstate.Entry, shards int) {
	w := newRowWriter(context.Background(), nil, shards)
	for _, r := range s.Rows {
		w.Set(r.Key, r.Value)
	}
	set, _ := w.set(s.Schema.Name)
	c.Schemas = append(c.Schemas, s.Schema)
	if set == nil {
		return
	}
	part := pebblestate.StaticPart{Records: make([]batch.Record, 0, set.Writes)}
	for _, writes := range set.Shards {
		for _, wr := range writes {
			part.Records = append(part.Records, batch.Record{Offset: int64(len(part.Records)), Key: wr.Key, Value: wr.Value})
		}
	}
	t := pebblestate.StaticTable{Name: importTable(s.Schema.Name), Version: 1, Digest: set.Digest, Parts: []pebblestate.StaticPart{part}}
	c.Sets = append(c.Sets, set)
	c.Statics = append(c.Statics, t)
	e.States = append(e.States, txstate.StateDigest{State: s.Schema.Name, Writes: set.Writes, Digest: set.Digest})
	e.Statics = append(e.Statics, txstate.StaticVersion{Name: t.Name, Rows: set.Writes, Digest: set.Digest})
}

// reimport does again what an import brought into states, from the copies that the store in question keeps.
func (x *Executor) reimport(ctx context.Context, want *txstate.Entry, c *pebblestate.Commit, e *txstate.Entry) error {
	find := x.cfg.Tables
	if find == nil {
		find = x.cfg.DB.StaticWith
	}
	fail := func(format string, args ...any) error {
		return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "plan", fmt.Errorf(format, args...), "begin at a savepoint made behind the import")
	}
	schemas := schemasOf(x.plan)
	for _, v := range want.Statics {
		name, ok := strings.CutPrefix(v.Name, importTable(""))
		i := slices.IndexFunc(schemas, func(s state.Schema) bool { return s.Name == name })
		if !ok || i < 0 {
			return fail("txid %d imported rows of state %q, which the pipeline doesn't keep", want.Txid, name)
		}
		t, ok, err := find(ctx, v.Name, v.Digest)
		switch {
		case err != nil:
			return err
		case !ok || len(t.Parts) != 1:
			return fail("what txid %d imported into state %s isn't in the store any more", want.Txid, name)
		}
		s := ImportedState{Schema: schemas[i]}
		for _, r := range t.Parts[0].Records {
			s.Rows = append(s.Rows, ImportedRow{r.Key, r.Value})
		}
		s.addTo(c, e, x.cfg.Shards)
	}
	return nil
}
