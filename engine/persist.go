package engine

import (
	"context"
	"fmt"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// KV is a state under change by one batch. Reads see what the batch has written.
type KV[K comparable, V any] struct {
	ctx  context.Context
	st   plan.ReadWriter
	key  *value.Codec[K]
	row  *value.Row[V]
	kbuf []byte
	vbuf []byte
}

// Get returns the value of key; ok is false if there is none.
func (s *KV[K, V]) Get(key K) (v V, ok bool, err error) {
	if s.kbuf, err = s.key.Encode(s.kbuf[:0], key); err != nil {
		return v, false, err
	}
	b, ok, err := s.st.Get(s.ctx, s.kbuf)
	if err != nil || !ok {
		return v, false, err
	}
	v, err = s.row.Decode(b)
	return v, err == nil, err
}

// Set gives key a value.
func (s *KV[K, V]) Set(key K, v V) (err error) {
	if s.kbuf, err = s.key.Encode(s.kbuf[:0], key); err != nil {
		return err
	}
	if s.vbuf, err = s.row.Encode(s.vbuf[:0], v); err != nil {
		return err
	}
	s.st.Set(s.kbuf, s.vbuf)
	return nil
}

// Delete removes key.
func (s *KV[K, V]) Delete(key K) (err error) {
	if s.kbuf, err = s.key.Encode(s.kbuf[:0], key); err != nil {
		return err
	}
	s.st.Delete(s.kbuf)
	return nil
}

// PartitionPersist hands the values of each source partition, in offset order, to update, which changes the
// state called name as it likes: Trident's partitionPersist. Partitions come one after the other, in order; each
// sees what the ones before it have written. An error stops the pipeline unless it is Transient: nothing of the
// batch is applied then. The state's key columns are named as in GroupBy.
func PartitionPersist[K comparable, V, T any](s Stream[T], name string, update func(b *Batch, values []T, st *KV[K, V]) error, keyName ...string) {
	persist(s, name, func(b *Batch, values []T, st *KV[K, V], _ plan.ReadWriter) error { return update(b, values, st) }, keyName)
}

// PartitionPersistEmit is PartitionPersist with a stream behind it: that of what update emits, in order. In Trident's words it is
// the stream of new values of a partitionPersist. What is emitted mustn't be changed any more.
func PartitionPersistEmit[U any, K comparable, V, T any](s Stream[T], name string, update func(b *Batch, values []T, st *KV[K, V], emit func(U)) error, keyName ...string) Stream[U] {
	p := s.p
	step := "persist " + name
	out := Stream[U]{p: p, n: &node[U]{}, sources: s.sources, trail: s.trail.behind(&step)}
	if p.hasStage(name) {
		p.errorf("state %s: a batch aggregate, or a state whose rows are sent on, has the same name", name)
	}
	def := persist(s, name, func(b *Batch, values []T, st *KV[K, V], rw plan.ReadWriter) error {
		return update(b, values, st, func(v U) { rw.Emit(v) })
	}, keyName)
	if def != nil {
		def.Next = func() plan.RowTask { return &persistTask[U]{chains: chains[U]{n: out.n}, name: name} }
		p.placed[def] = len(p.exchanges)
	}
	return out
}

// persistTask pushes on what a persist emitted for one task.
type persistTask[U any] struct {
	chains[U]
	name string
	row  int64
}

func (t *persistTask[U]) Begin(tc *plan.TaskContext) error {
	tc.Careful = true // a panic can't be blamed on a record here, but on its step
	tc.Partition = batch.Partition{Source: t.name, Number: int32(tc.Shard)}
	t.row = 0
	return t.start(tc)
}

func (t *persistTask[U]) Row(row any) error {
	v, _ := row.(U) // a nil of an interface type stays one
	t.rc.offset, t.rc.time = t.row, txstate.NoTime
	t.row++
	t.cur.push(&t.rc, v)
	return t.rc.err
}

func (t *persistTask[U]) End() error { return t.finish() }

// persist adds a partitionPersist; nil if its types can't be kept.
func persist[K comparable, V, T any](
	s Stream[T], name string, update func(b *Batch, values []T, st *KV[K, V], rw plan.ReadWriter) error, keyName []string,
) *plan.Persist {
	p := s.p
	p.addState(name)
	key, err := value.KeyOf[K](keyName...)
	if err != nil {
		p.errorf("state %s: key: %w", name, err)
		return nil
	}
	row, err := value.RowOf[V]()
	if err != nil {
		p.errorf("state %s: value: %w", name, err)
		return nil
	}
	index := len(p.persists)
	step := "persist " + name
	def := &plan.Persist{
		Name:   name,
		Schema: state.Schema{Name: name, Kind: "rows", Key: key.Columns(), Values: row.Columns()},
		Apply: func(ctx context.Context, b *batch.Batch, part batch.Partition, rows any, st plan.ReadWriter) (err error) {
			defer func() {
				if v := recover(); v != nil {
					err = panicError(v)
				}
				err = persistError(err, step, part)
			}()
			return update(&Batch{b: b, part: part, step: step}, rows.([]T), &KV[K, V]{ctx: ctx, st: st, key: key, row: row}, st)
		},
	}
	p.persists = append(p.persists, def)
	p.define(s.trail, name, "persist")
	p.describe("  state %s: rows by %s, kept by partition", name, columnNames(key.Columns()))
	s.to(func(b *builder) push[T] {
		var rows []T
		b.begin = append(b.begin, func(*rec) { rows = nil }) // the batch before still holds its own
		b.end = append(b.end, func(rc *rec) {
			if len(rows) > 0 {
				rc.tc.Persist[index] = rows
			}
		})
		return func(_ *rec, v T) { rows = append(rows, v) }
	})
	return def
}

func persistError(err error, step string, p batch.Partition) error {
	if err == nil {
		return nil
	}
	if t := asTransient(err, step); t != nil {
		return t.At(p, batch.NoOffset)
	}
	return batch.NewError(batch.Permanent, batch.CodeUserError, step, fmt.Errorf("update function: %w", err),
		"mend the function; nothing of this batch was applied").At(p, batch.NoOffset)
}
