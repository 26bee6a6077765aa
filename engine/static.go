package engine

import (
	"fmt"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/plan"
)

// Table is rows by key that the values of streams can be looked up in: a static one, declared by Static, or one that a stream
// keeps, Latest.
type Table[K comparable, V any] struct {
	p     *Pipeline
	name  string
	index int // of a static table

	static bool
	of     tableOf
	moving *plan.State // of a table that changes while the pipeline runs; nil for a static one, and after a failure
}

// Static declares a table that is read whole when the pipeline starts and copied into the store, so that a replay finds the
// content that the batch used. A changed file is a new version, used from a recorded txid on. Two rows of one key are an error.
func Static[K comparable, V any](p *Pipeline, name string, src emitter.Source, dec codec.Decoder[V], key func(V) K) Table[K, V] {
	p.addState(name)
	if err := dec.Err(); err != nil {
		p.errorf("static table %s: %w", name, err)
	}
	framing := emitter.Lines
	if dec.CSV() {
		framing = emitter.CSV
	}
	t := Table[K, V]{p: p, name: name, static: true, index: len(p.statics)}
	st := &plan.Static{
		Name: name,
		Open: func(env plan.Env) (emitter.Emitter, error) { return src.Open(name, framing, env) },
		Build: func(parts []plan.StaticPart) (any, error) {
			return buildTable(name, parts, dec, key)
		},
	}
	if ch, ok := src.(doctor.Checker); ok {
		st.Check = ch.Check
	}
	p.statics = append(p.statics, st)
	p.describe("static table %s: %s, decode %s", name, src.Describe(), dec.Describe())
	p.tables = append(p.tables, plan.Part{Name: name, Settings: []plan.Setting{{Name: "input", Value: src.Describe()}, {Name: "decode", Value: dec.Describe()}}})
	return t
}

func buildTable[K comparable, V any](name string, parts []plan.StaticPart, dec codec.Decoder[V], key func(V) K) (map[K]*V, error) {
	table := map[K]*V{}
	for _, part := range parts {
		d := dec.New()
		if err := d.Begin(slices.Clone(part.Chunk.Fields)); err != nil {
			return nil, badRow(name, part.Partition, batch.NoOffset, err)
		}
		for i := range part.Chunk.Records {
			r := &part.Chunk.Records[i]
			v := new(V)
			if err := d.Decode(r, v); err != nil {
				return nil, badRow(name, part.Partition, r.Offset, err)
			}
			k := key(*v)
			if _, twice := table[k]; twice {
				return nil, badRow(name, part.Partition, r.Offset, fmt.Errorf("a second row with key %v", k))
			}
			table[k] = v
		}
	}
	return table, nil
}

func badRow(name string, p batch.Partition, offset int64, err error) error {
	return batch.NewError(batch.Permanent, batch.CodeBadRecord, "load table "+name, err, "mend the row and start again").At(p, offset)
}

// Lookup joins each value with the row of a table that has its key. The row is nil where there is none; it is shared and must
// not be changed. In a static table it is found on the spot. In one that a stream keeps the lookup is a query of the table's state,
// which sees what the batch's own records have made of it.
func Lookup[T any, K comparable, V, R any](s Stream[T], t Table[K, V], key func(T) K, f func(v T, row *V) R) Stream[R] {
	if t.moving != nil {
		return lookupMoving(s, t, key, f)
	}
	out := derive[R](s)
	if !t.static {
		return out // its declaration has failed
	}
	if !s.p.sees(t.p) {
		s.p.errorf("Lookup: the table belongs to another pipeline")
		return out
	}
	s.p.tablesRead = append(s.p.tablesRead, t.name)
	out.trail.table = t.name
	out.n.named(s.p, "lookup", " in "+out.trail.table)
	s.to(func(b *builder) push[T] {
		step := out.n.step
		next := out.n.build(b)
		var table map[K]*V
		b.begin = append(b.begin, func(rc *rec) { table, _ = rc.tc.Statics[t.index].(map[K]*V) })
		if !b.careful {
			return func(rc *rec, v T) { next(rc, f(v, table[key(v)])) }
		}
		return func(rc *rec, v T) {
			var r R
			if rc.guard(step, func() { r = f(v, table[key(v)]) }) {
				next(rc, r)
			}
		}
	})
	return out
}
