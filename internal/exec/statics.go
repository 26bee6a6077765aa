package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// content is what a static table holds from some batch on.
type content struct {
	table pebblestate.StaticTable
	built any // what Static.Build made of it; nil until a batch uses it
}

// tables are the static tables as a batch leaves them to the next, by index in Plan.Statics. It is a value: replaced
// and never changed.
type tables struct {
	inUse []*content // nil for a table that no batch has used yet
	next  []*content // what the next batch that is planned anew is the first to use; nil for nothing new
}

func (t tables) clone() tables { return tables{slices.Clone(t.inUse), slices.Clone(t.next)} }

// take makes c the content in use, as a new version.
func (t *tables) take(i int, c *content) *content {
	c = &content{table: c.table, built: c.built}
	c.table.Version = 1
	if was := t.inUse[i]; was != nil {
		c.table.Version = was.table.Version + 1
	}
	t.inUse[i] = c
	if n := t.next[i]; n != nil && n.table.Digest == c.table.Digest {
		t.next[i] = nil
	}
	return c
}

// loadStatics reads each static table whole. Where its content differs from the one in the store it becomes a new
// version; where it can't be read at all, the one in the store serves.
func (x *Executor) loadStatics(ctx context.Context) error {
	n := len(x.plan.Statics)
	x.tables = tables{make([]*content, n), make([]*content, n)}
	for i, s := range x.plan.Statics {
		stored, have, err := x.cfg.DB.Static(ctx, s.Name)
		if err != nil {
			return err
		}
		if have {
			x.tables.inUse[i] = &content{table: stored}
		}
		if x.cfg.Tables != nil {
			continue
		}
		c := x.tables.inUse[i]
		table, err := x.readStatic(ctx, s)
		switch {
		case err != nil && have && batch.CodeOf(err) != batch.CodeFileDamaged:
			x.log.Warn("static table can't be read; going on with the copy in the store", "table", s.Name, "error", err)
		case err != nil:
			return x.located(fmt.Errorf("static table %s: %w", s.Name, err), 0)
		case !have || stored.Digest != table.Digest:
			c = &content{table: table}
			x.tables.next[i] = c
			if have {
				x.log.Info("static table has changed: the next batch uses its new content", "table", s.Name, "rows", rowsOf(&table))
			}
		}
		if err := c.build(s); err != nil { // a bad row is told before anything begins
			return x.located(err, 0)
		}
	}
	return nil
}

func (c *content) build(s *plan.Static) (err error) {
	if c.built == nil {
		c.built, err = s.Build(partsOf(&c.table))
	}
	return err
}

// tablesFor gives a batch the static tables that it uses, and returns what it leaves to the next. A recorded batch
// uses what its record names, whatever the tables hold by now; one that is planned anew takes what is new.
func (x *Executor) tablesFor(ctx context.Context, f *flight) (tables, error) {
	x.mu.Lock()
	n := x.tables.clone()
	e, recorded := x.recorded[f.b.Txid]
	x.mu.Unlock()
	for i, s := range x.plan.Statics {
		c := n.next[i]
		if recorded {
			var err error
			if c, err = x.recordedContent(ctx, &e, s, n, i); err != nil {
				return n, err
			}
		}
		if c != nil {
			f.contents = append(f.contents, n.take(i, c))
		}
		if err := n.inUse[i].build(s); err != nil {
			return n, err
		}
		f.tables = append(f.tables, n.inUse[i].built)
	}
	return n, nil
}

// recordedContent is the content of table i that the recorded batch e is the first to use; nil if it goes on with the
// one in use.
func (x *Executor) recordedContent(ctx context.Context, e *txstate.Entry, s *plan.Static, t tables, i int) (*content, error) {
	at := slices.IndexFunc(e.Statics, func(v txstate.StaticVersion) bool { return v.Name == s.Name })
	if at < 0 {
		if t.inUse[i] != nil {
			return nil, nil
		}
		return nil, batch.NewError(batch.Permanent, batch.CodeUnreplayable, "plan",
			fmt.Errorf("no content of static table %s is recorded with txid %d or before", s.Name, e.Txid), "run it with the pipeline that recorded it")
	}
	want := e.Statics[at].Digest
	if n := t.next[i]; n != nil && n.table.Digest == want {
		return n, nil
	}
	find := x.cfg.Tables
	if find == nil {
		find = x.cfg.DB.StaticWith
	}
	table, ok, err := find(ctx, s.Name, want)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, batch.NewError(batch.Permanent, batch.CodeUnreplayable, "plan",
			fmt.Errorf("txid %d used static table %s with digest %016x, which is neither in the store nor what the table holds now", e.Txid, s.Name, want),
			"put the table back as it was until the batch has committed")
	}
	return &content{table: table}, nil
}

// checkRecorded refuses to go on with batches that another plan, or the code of another build, has recorded: they might
// come out differently.
func (x *Executor) checkRecorded(recorded []txstate.Entry) error {
	for i := range recorded {
		e := &recorded[i]
		var cause error
		switch {
		case e.Plan != x.cfg.PlanSum:
			cause = fmt.Errorf("txid %d was recorded by plan %016x and hasn't committed; the plan now is %016x", e.Txid, e.Plan, x.cfg.PlanSum)
		case e.Build != x.cfg.Build:
			cause = fmt.Errorf("txid %d was recorded by build %q and hasn't committed; the build now is %q", e.Txid, e.Build, x.cfg.Build)
		default:
			continue
		}
		err := batch.NewError(batch.Permanent, batch.CodeStoreForeign, "open", cause,
			"start the pipeline as it was once more, so that the batch commits, then change it")
		err.Txid = e.Txid
		return err
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
func (x *Executor) readStatic(ctx context.Context, s *plan.Static) (pebblestate.StaticTable, error) {
	return ReadStatic(ctx, s, x.log)
}

// ReadStatic reads what a static table holds now.
func ReadStatic(ctx context.Context, s *plan.Static, log hclog.Logger) (t pebblestate.StaticTable, err error) {
	em, err := s.Open(plan.Env{Logger: log.With("table", s.Name)})
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
	c.Headers = batch.CloneHeaders(r.Headers)
	return c
}

// schemasOf lists the schemas of every state that the plan keeps, the engine's own included.
func schemasOf(p *plan.Plan) []state.Schema {
	var all []state.Schema
	windowed, timers := false, false
	for _, e := range p.Exchanges {
		for _, st := range []*plan.State{e.State, e.Output} {
			if st != nil {
				all = append(all, st.Schema)
				windowed = windowed || st.Schema.Window != nil
			}
		}
		timers = timers || e.Operator != nil
	}
	for _, s := range p.Persists {
		all = append(all, s.Schema)
	}
	all = append(all, RejectedSchema())
	if windowed {
		all = append(all, WindowsSchema())
	}
	if timers {
		all = append(all, TimersSchema())
	}
	if p.Dead != nil {
		all = append(all, DeadSchema())
	}
	if len(p.Sinks) > 0 {
		all = append(all, SinksSchema())
	}
	return all
}
