package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// pendingStatic is a content of a static table that the next batch is the first to use: it is copied into the
// store with that batch.
type pendingStatic struct {
	version txstate.StaticVersion
	table   pebblestate.StaticTable
}

// loadStatics reads each static table whole. Where its content differs from the copy in the store it becomes a
// new version; where it can't be read at all, the copy serves.
func (x *Executor) loadStatics(ctx context.Context) error {
	x.statics = make([]any, len(x.plan.Statics))
	x.versions = nil
	for i, s := range x.plan.Statics {
		stored, have, err := x.cfg.DB.Static(ctx, s.Name)
		if err != nil {
			return err
		}
		table, err := x.readStatic(ctx, s)
		switch {
		case err != nil && have && batch.CodeOf(err) != batch.CodeFileDamaged:
			x.log.Warn("static table can't be read; going on with the copy in the store", "table", s.Name, "error", err)
			table = stored
		case err != nil:
			return x.located(fmt.Errorf("static table %s: %w", s.Name, err), 0)
		case have && stored.Digest == table.Digest:
			table.Version = stored.Version
		default:
			table.Version = stored.Version + 1
			x.versions = append(x.versions, pendingStatic{
				version: txstate.StaticVersion{Name: s.Name, Rows: rowsOf(&table), Digest: table.Digest},
				table:   table,
			})
			if have {
				x.log.Info("static table has changed: the next batch uses its new content", "table", s.Name, "rows", rowsOf(&table))
			}
		}
		if x.statics[i], err = s.Build(partsOf(&table)); err != nil {
			return x.located(err, 0)
		}
	}
	return nil
}

func rowsOf(t *pebblestate.StaticTable) int64 {
	var n int64
	for i := range t.Parts {
		n += int64(len(t.Parts[i].Records))
	}
	return n
}

func partsOf(t *pebblestate.StaticTable) []plan.StaticPart {
	parts := make([]plan.StaticPart, len(t.Parts))
	for i, p := range t.Parts {
		parts[i] = plan.StaticPart{Partition: p.Partition, Chunk: batch.Chunk{Records: p.Records, Fields: p.Fields}}
	}
	return parts
}

// readStatic reads the table's source from its beginning to its present end.
func (x *Executor) readStatic(ctx context.Context, s *plan.Static) (t pebblestate.StaticTable, err error) {
	em, err := s.Open(plan.Env{Logger: x.log.With("table", s.Name)})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, em.Close(ctx)) }()
	starts, err := em.Open(ctx, nil, true)
	if err != nil {
		return t, err
	}
	em.Admit(starts)
	ends, err := em.Ends(ctx)
	if err != nil {
		return t, err
	}
	slices.SortFunc(starts, func(a, b batch.Position) int { return a.Compare(b.Partition) })
	t.Name = s.Name
	d := digest(seedInput)
	for _, p := range starts {
		part := pebblestate.StaticPart{Partition: p.Partition}
		in := newInput()
		if end := ends[p.Partition]; end > p.Next {
			r := batch.Range{Partition: p.Partition, Start: p.Next, End: end, Identity: p.Identity, LeaderEpoch: p.LeaderEpoch}
			err := em.Read(ctx, r, func(c *batch.Chunk) error {
				in.add(c.Records)
				part.Fields = slices.Clone(c.Fields)
				for i := range c.Records {
					part.Records = append(part.Records, cloneRecord(&c.Records[i]))
				}
				return nil
			})
			if err != nil {
				return t, err
			}
		}
		got := in.result()
		d = d.text(p.Topic).word(uint64(p.Number)).word(uint64(got.Records)).word(got.Digest)
		for _, f := range part.Fields {
			d = d.text(f)
		}
		t.Parts = append(t.Parts, part)
	}
	t.Digest = d.sum()
	return t, nil
}

func cloneRecord(r *batch.Record) batch.Record {
	c := *r
	c.Key, c.Value = slices.Clone(r.Key), slices.Clone(r.Value)
	c.Headers = slices.Clone(r.Headers)
	for i := range c.Headers {
		c.Headers[i].Value = slices.Clone(c.Headers[i].Value)
	}
	return c
}

// schemasOf lists the schemas of every state that the plan keeps, the engine's own included.
func schemasOf(p *plan.Plan) []state.Schema {
	var all []state.Schema
	windowed := false
	for _, e := range p.Exchanges {
		if e.State != nil {
			all = append(all, e.State.Schema)
			windowed = windowed || e.State.Schema.Window != nil
		}
	}
	for _, s := range p.Persists {
		all = append(all, s.Schema)
	}
	all = append(all, RejectedSchema())
	if windowed {
		all = append(all, WindowsSchema())
	}
	return all
}

// checkSchemas compares the plan's states with those in the store. A state that isn't there yet begins with the
// next commit; one that is there under its name but differs is refused.
func (x *Executor) checkSchemas() error {
	snap, err := x.cfg.DB.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	stored, err := snap.Schemas()
	if err != nil {
		return err
	}
	have := make(map[string]string, len(stored))
	for _, s := range stored {
		have[s.Name] = SchemaText(s)
	}
	x.schemas = nil
	for _, s := range schemasOf(x.plan) {
		was, ok := have[s.Name]
		switch now := SchemaText(s); {
		case !ok:
			x.schemas = append(x.schemas, s)
		case was != now:
			return x.located(batch.NewError(batch.Permanent, batch.CodeStoreForeign, "open",
				fmt.Errorf("state %s was kept as %s, the pipeline now declares %s", s.Name, was, now),
				"give the changed state another name, or start over with another --data"), 0)
		}
	}
	return nil
}
