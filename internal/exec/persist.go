package exec

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// rowWriter collects a batch's writes to one state outside an exchange, key by key.
type rowWriter struct {
	ctx    context.Context
	view   *view
	shards []map[string][]byte // nil values are deletions
	rows   []any               // emitted
}

func newRowWriter(ctx context.Context, v *view, shards int) *rowWriter {
	return &rowWriter{ctx: ctx, view: v, shards: make([]map[string][]byte, shards)}
}

func (w *rowWriter) shard(key []byte) int { return state.ShardOf(key, len(w.shards)) }

// Get reads what the batch has written so far, over what it found.
func (w *rowWriter) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	s := w.shard(key)
	if v, ok := w.shards[s][string(key)]; ok {
		return v, v != nil, nil
	}
	return w.view.get(ctx, s, key)
}

func (w *rowWriter) Set(key, val []byte) {
	w.put(key, append(make([]byte, 0, len(val)), val...)) // never nil: an empty value is a value
}

func (w *rowWriter) Delete(key []byte) { w.put(key, nil) }

// Emit keeps a row for the stage behind.
func (w *rowWriter) Emit(row any) { w.rows = append(w.rows, row) }

func (w *rowWriter) put(key, val []byte) {
	s := w.shard(key)
	if w.shards[s] == nil {
		w.shards[s] = map[string][]byte{}
	}
	w.shards[s][string(key)] = val
}

// set turns the collected writes into a write set and its overlay; nil if there are none.
func (w *rowWriter) set(name string) (*state.WriteSet, *overlay) {
	set := &state.WriteSet{State: name, Shards: make([][]state.Write, len(w.shards))}
	d := digest(seedChange)
	for i, m := range w.shards {
		if len(m) == 0 {
			continue
		}
		keys := make([]string, 0, len(m))
		for k := range m {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		sd := digest(seedChange)
		for _, k := range keys {
			wr := state.Write{Op: state.Set, Key: []byte(k), Value: m[k]}
			if wr.Value == nil {
				wr.Op = state.Delete
			}
			set.Shards[i] = append(set.Shards[i], wr)
			sd = sd.bytes(wr.Key).nullable(wr.Value)
		}
		set.Writes += int64(len(keys))
		d = d.word(uint64(i)).word(uint64(len(keys))).word(sd.sum())
	}
	if set.Writes == 0 {
		return nil, nil
	}
	set.Digest = d.sum()
	return set, &overlay{shards: w.shards}
}

// runPersist applies the rows of a partitionPersist, one task after the other: in source-partition order, then those of the
// stages that are through, in the order of their shards. It returns what the stage behind it handed over; nil if there is none.
func (x *Executor) runPersist(ctx context.Context, f *flight, before []*flight, i int) (*stageOut, error) {
	p := x.plan.Persists[i]
	v, err := x.viewOf(p.Schema.Name, before)
	if err != nil {
		return nil, err
	}
	w := newRowWriter(ctx, v, x.cfg.Shards)
	var out *stageOut
	if p.Next != nil {
		out = &stageOut{name: p.Name}
	}
	var emitted [][]any // by task, in order
	apply := func(part batch.Partition, rows any) error {
		if rows == nil {
			return nil
		}
		w.rows = nil
		err := p.Apply(ctx, f.b, part, rows, w)
		emitted = append(emitted, w.rows)
		return err
	}
	for j, r := range f.results {
		if err := apply(f.b.Ranges[j].Partition, r.persist[i]); err != nil {
			return nil, err
		}
	}
	for _, st := range f.stages {
		for k := range st.parts {
			if part := &st.parts[k]; part.persist != nil {
				if err := apply(st.partition(part), part.persist[i]); err != nil {
					return nil, err
				}
			}
		}
	}
	if f.placed == nil {
		f.placed = map[int]int{}
	}
	f.placed[i] = len(f.stages)
	if set, o := w.set(p.Schema.Name); set != nil {
		f.sets = append(f.sets, set)
		f.overlays[p.Schema.Name] = o
	}
	if out == nil {
		return nil, nil
	}
	read := x.readerOf(f, before)
	for n, rows := range emitted {
		if len(rows) == 0 {
			continue
		}
		part := stagePart{shard: n}
		tc := x.stageContext(f, n)
		tc.Out, tc.State = x.outs.get(x.cfg.Shards), read
		task := p.Next()
		if err := task.Begin(tc); err != nil {
			return nil, err
		}
		for _, row := range rows {
			if err := task.Row(row); err != nil {
				return nil, err
			}
		}
		if err := task.End(); err != nil {
			return nil, err
		}
		part.finish(tc)
		out.parts = append(out.parts, part)
	}
	return out, nil
}

// checkOrder panics if a stage has rows for a persist that had run, or deltas though all exchanges had: through is how many stages
// there were then.
func (x *Executor) checkOrder(f *flight, through int) {
	for n, st := range f.stages {
		for k := range st.parts {
			part := &st.parts[k]
			for i, rows := range part.persist {
				if rows != nil && f.placed[i] <= n {
					panic("exec: persist " + x.plan.Persists[i].Name + " comes before " + st.name + ", which has rows for it")
				}
			}
			for i, d := range part.out {
				if n >= through && d.Len() > 0 {
					panic("exec: exchange " + x.plan.Exchanges[i].Name + " comes before " + st.name + ", which has deltas for it")
				}
			}
		}
	}
}

// RejectedState is the state that holds the rows turned away.
const RejectedState = "_rejected"

// RejectedSchema describes it: the place of the record, then what became of it. For a row of a later stage source is the
// stage's name, topic is empty, partition is the shard, offset the txid and n the row's number in the shard.
func RejectedSchema() state.Schema {
	return state.Schema{
		Name: RejectedState, Kind: "rows",
		Key: []state.Column{
			{Name: "source", Type: "string"},
			{Name: "topic", Type: "string"},
			{Name: "partition", Type: "int"},
			{Name: "offset", Type: "int"},
			{Name: "n", Type: "int"},
		},
		Values: []state.Column{
			{Name: "kind", Type: "string"},
			{Name: "step", Type: "string"},
			{Name: "cause", Type: "string"},
			{Name: "txid", Type: "int"},
			{Name: "timestamp", Type: "timestamp"},
			{Name: "key", Type: "bytes"},
			{Name: "value", Type: "bytes"},
		},
	}
}

// collectRejected writes the rows turned away that don't become dead letters. A record's offset says which it is, n tells apart several of one record. A
// later stage's rows have no offsets that would last: theirs is the txid, as if each batch were one record of the
// shard, so that no two batches write the same key.
func (x *Executor) collectRejected(f *flight) {
	w := newRowWriter(context.Background(), nil, x.cfg.Shards)
	put := func(p batch.Partition, offset, n int64, r *plan.Rejected) {
		key := value.AppendKey(nil, value.StringOf(p.Source))
		key = value.AppendKey(key, value.StringOf(p.Topic))
		key = value.AppendKey(key, value.IntOf(int64(p.Number)))
		key = value.AppendKey(key, value.IntOf(offset))
		key = value.AppendKey(key, value.IntOf(n))
		ts := value.NullValue()
		if r.Timestamp != 0 {
			ts = value.TimeOf(r.Timestamp * int64(time.Millisecond))
		}
		w.Set(key, rowOf(value.StringOf(string(r.Kind)), value.StringOf(r.Step), value.StringOf(r.Cause), value.IntOf(int64(f.b.Txid)),
			ts, bytesOrNull(r.Key), bytesOrNull(r.Value)))
	}
	for i, res := range f.results {
		if x.sourcePolicy(&f.b.Ranges[i]) == plan.DeadLetter {
			continue
		}
		n, last := int64(0), int64(-2)
		for j := range res.rejected {
			r := &res.rejected[j]
			if r.Offset != last {
				n, last = 0, r.Offset
			}
			put(f.b.Ranges[i].Partition, r.Offset, n, r)
			n++
		}
	}
	for _, st := range f.stages {
		if x.onBad == plan.DeadLetter {
			break
		}
		for k := range st.parts {
			part := &st.parts[k]
			for j := range part.rejected {
				put(st.partition(part), int64(f.b.Txid), int64(j), &part.rejected[j])
			}
		}
	}
	if set, _ := w.set(RejectedState); set != nil {
		f.sets = append(f.sets, set)
	}
}

func bytesOrNull(b []byte) value.Value {
	if b == nil {
		return value.NullValue()
	}
	return value.BytesOf(b)
}

// rowOf encodes the value columns of a state of kind "rows".
func rowOf(cols ...value.Value) []byte {
	var b []byte
	for _, c := range cols {
		b = value.AppendBinary(b, c)
	}
	return b
}

// SchemaText is a schema in canonical form, for the plan's text.
func SchemaText(s state.Schema) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a Schema holds only strings and numbers
	}
	return string(b)
}
