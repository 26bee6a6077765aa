package replay

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/scratch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// Input passes the records that batch o.To read to yield, in the order of partitions and offsets. Nothing of a partition is passed
// on unless it is what the batch read: otherwise the error has batch.CodeUnreplayable, or the cause, with partition and range.
// Records may be used until yield returns.
func Input(ctx context.Context, p *engine.Pipeline, o Options, yield func(p batch.Partition, r *batch.Record) error) (err error) {
	r, e, err := oneBatch(ctx, p, o)
	if err != nil || e.Reset {
		return err
	}
	closing := func(close func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, close(ctx))
	}
	for i := 0; i < len(e.Ranges); {
		id := e.Ranges[i].Source
		j := i
		for j < len(e.Ranges) && e.Ranges[j].Source == id {
			j++
		}
		if !slices.Contains(r.sources(), id) {
			return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "read", fmt.Errorf("txid %d read source %s, which the pipeline doesn't have", e.Txid, id),
				"take the pipeline as it was then")
		}
		em, err := r.open(id)
		if err != nil {
			return err
		}
		defer closing(em.Close)
		if _, err := em.Open(ctx, nil, false); err != nil {
			return err
		}
		for ; i < j; i++ {
			var recs []batch.Record
			err := exec.Reread(ctx, em, e.Txid, &e.Ranges[i], func(c *batch.Chunk) error {
				for k := range c.Records {
					recs = append(recs, copyRecord(&c.Records[k]))
				}
				return nil
			})
			if err != nil {
				return err
			}
			for k := range recs {
				if err := yield(e.Ranges[i].Partition, &recs[k]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *run) sources() (ids []string) {
	for _, s := range r.plan.Sources {
		ids = append(ids, s.ID)
	}
	return ids
}

func copyRecord(r *batch.Record) batch.Record {
	c := *r
	c.Key, c.Value = slices.Clone(r.Key), slices.Clone(r.Value)
	c.Headers = nil
	for _, h := range r.Headers {
		c.Headers = append(c.Headers, batch.Header{Key: strings.Clone(h.Key), Value: slices.Clone(h.Value)})
	}
	return c
}

// oneBatch finds the ledger entry of batch o.To.
func oneBatch(ctx context.Context, p *engine.Pipeline, o Options) (*run, *txstate.Entry, error) {
	r, err := newRun(p, o)
	if err != nil {
		return nil, nil, err
	}
	if err := r.choose(ctx); err != nil {
		return nil, nil, err
	}
	for e, err := range o.Store.Store().Entries(ctx, r.o.To, r.o.To) {
		return r, &e, err
	}
	return nil, nil, usage("the ledger doesn't hold txid %d any more: it has been trimmed", r.o.To)
}

// Write is what a batch did to one key of a state.
type Write struct {
	Schema state.Schema
	Key    []value.Value // as many columns as could be decoded: of a dropped window its start
	// Op is "set", "add" (Change is merged into what is there), "delete", or "drop window" (all rows whose key begins with Key).
	Op     string
	Change []value.Value // what is added
	// Old and New are the values before and behind the batch; nil where there is no row. Known says which are known at all.
	Old, New           []value.Value
	KnownOld, KnownNew bool
}

// Written tells where writes come from.
type Written struct {
	// Kept: from the changes that were kept. What isn't in them (values before the batch, sums behind it) isn't known.
	// Otherwise the batch was run again.
	Kept bool
	// Different is the first batch up to the one in question that didn't come out as recorded, if there is one: the writes are
	// those of now.
	Different *Different
}

// Writes passes what batch o.To wrote to yield, by state and key: from the changes that were kept, or it runs the batches up to it
// again as Verify does. Of what NoBatch names nothing is run or passed.
func Writes(ctx context.Context, p *engine.Pipeline, o Options, yield func(Write) error) (from Written, err error) {
	r, e, err := oneBatch(ctx, p, o)
	if err != nil {
		return from, err
	}
	if NoBatch(e) != "" {
		return from, nil
	}
	sets, ok, err := o.Store.Changes(ctx, e.Txid)
	if err != nil {
		return from, err
	}
	if ok {
		from.Kept = true
		snap, err := o.Store.Snapshot()
		if err != nil {
			return from, err
		}
		defer snap.Close() //nolint:errcheck // nothing was written
		schemas, err := r.keptSchemas(ctx, snap, e.Plan)
		if err != nil {
			return from, err
		}
		return from, r.passWrites(ctx, sets, schemas, nil, nil, yield)
	}
	if r.o.Dir == "" {
		dir, remove, err := scratch.Make("", "tridentd-replay-")
		if err != nil {
			return from, err
		}
		defer remove() //nolint:errcheck // nothing in it is of use; the next replay removes it
		r.o.Dir = filepath.Join(dir, "store")
	}
	if err := r.beginBefore(ctx); err != nil {
		return from, err
	}
	db, err := pebblestate.Open(ctx, pebblestate.Options{
		Dir: r.o.Dir, Pipeline: r.plan.Name, Shards: r.o.Store.Shards(), CreateIfMissing: true, Logger: r.o.Logger,
	})
	if err != nil {
		return from, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := r.begin(ctx, db); err != nil {
		return from, err
	}
	if r.base >= r.o.To {
		panic("replay: a base at the batch that is asked for")
	}
	// The batches are run whatever comes of them.
	drive := func(first, last batch.Txid) (*pebblestate.Snapshot, error) {
		d, err := r.drive(ctx, db, first, last, r.o.To+1)
		if err != nil {
			return nil, err
		}
		if d != nil && from.Different == nil {
			from.Different = r.told(ctx, d)
		}
		return db.Snapshot()
	}
	r.plan.Ledger.Changes = false
	was, err := drive(r.base+1, r.o.To-1)
	if err != nil {
		return from, err
	}
	defer was.Close() //nolint:errcheck // nothing was written
	r.plan.Ledger.Changes = true
	is, err := drive(r.o.To, r.o.To)
	if err != nil {
		return from, err
	}
	defer is.Close() //nolint:errcheck // nothing was written
	if sets, _, err = db.Changes(ctx, e.Txid); err != nil {
		return from, err
	}
	schemas, err := schemasOf(is)
	if err != nil {
		return from, err
	}
	return from, r.passWrites(ctx, sets, schemas, is, was, yield)
}

// NoBatch says which command made an entry that neither read nor wrote anything, such as "migrate (rename a=b)"; it is empty for a
// batch, and for an import, whose rows are written as those of a batch are.
func NoBatch(e *txstate.Entry) string {
	switch {
	case !e.Reset || e.Imported != "":
		return ""
	case len(e.Migrated) > 0:
		return "migrate (" + strings.Join(e.Migrated, "; ") + ")"
	}
	return "reset"
}

// keptSchemas are those of the states that a batch of a plan has written, by the names that they had then: since then they may have
// been renamed, dropped, or made anew as something else.
func (r *run) keptSchemas(ctx context.Context, snap *pebblestate.Snapshot, sum uint64) (map[string]state.Schema, error) {
	schemas, err := schemasOf(snap)
	if err != nil {
		return nil, err
	}
	if was, ok := r.definition(ctx, sum); ok {
		for i := range was.States {
			schemas[was.States[i].Schema.Name] = was.States[i].Schema
		}
	}
	return schemas, nil
}

// rawSchema shows a state of which nothing is known as bytes.
func rawSchema(name string) state.Schema {
	return state.Schema{Name: name, Key: []state.Column{{Name: "key", Type: "bytes"}}, Values: []state.Column{{Name: "value", Type: "bytes"}}}
}

// passWrites decodes writes. Unless they are nil, was and is have the values before and behind the batch.
func (r *run) passWrites(ctx context.Context, sets []*state.WriteSet, schemas map[string]state.Schema, is, was *pebblestate.Snapshot, yield func(Write) error) error {
	for _, set := range sets {
		s, known := schemas[set.State]
		if !known {
			s = rawSchema(set.State)
		}
		for _, start := range set.DropWindows {
			key, err := []value.Value{value.BytesOf(start)}, error(nil)
			if known {
				key, err = query.Key(s, start)
			}
			if err != nil {
				return err
			}
			if err := yield(Write{Schema: s, Key: key, Op: "drop window"}); err != nil {
				return err
			}
		}
		var writes []*state.Write
		for _, shard := range set.Shards {
			for i := range shard {
				writes = append(writes, &shard[i])
			}
		}
		slices.SortFunc(writes, func(a, b *state.Write) int { return strings.Compare(string(a.Key), string(b.Key)) })
		for _, w := range writes {
			d, err := decodeWrite(ctx, s, known, w, is, was)
			if err != nil {
				return err
			}
			if err := yield(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// decodeWrite decodes one write; one of a state that isn't known as bytes.
func decodeWrite(ctx context.Context, s state.Schema, known bool, w *state.Write, is, was *pebblestate.Snapshot) (d Write, err error) {
	d = Write{Schema: s, Key: []value.Value{value.BytesOf(w.Key)}}
	if known {
		if d.Key, err = query.Key(s, w.Key); err != nil {
			return d, err
		}
	}
	values := func(val []byte) ([]value.Value, error) {
		if !known {
			return []value.Value{value.BytesOf(val)}, nil
		}
		row, err := query.Decode(nil, s, w.Key, val)
		if err != nil {
			return nil, err
		}
		return row[len(s.Key):], nil
	}
	switch w.Op {
	case state.Set:
		d.Op, d.KnownNew = "set", true
		d.New, err = values(w.Value)
	case state.Merge:
		d.Op = "add"
		d.Change, err = values(w.Value)
	case state.Delete:
		d.Op, d.KnownNew = "delete", true
	}
	if err != nil || was == nil {
		return d, err
	}
	for _, side := range []struct {
		snap  *pebblestate.Snapshot
		to    *[]value.Value
		known *bool
	}{{was, &d.Old, &d.KnownOld}, {is, &d.New, &d.KnownNew}} {
		val, ok, err := side.snap.Get(ctx, s.Name, w.Key)
		if err != nil {
			return d, err
		}
		*side.known, *side.to = true, nil
		if ok {
			if *side.to, err = values(val); err != nil {
				return d, err
			}
		}
	}
	return d, nil
}
