package engine

import (
	"context"
	"fmt"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
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
	p := s.p
	p.addState(name)
	key, err := value.KeyOf[K](keyName...)
	if err != nil {
		p.errorf("state %s: key: %w", name, err)
		return
	}
	row, err := value.RowOf[V]()
	if err != nil {
		p.errorf("state %s: value: %w", name, err)
		return
	}
	index := len(p.persists)
	step := "persist " + name
	p.persists = append(p.persists, &plan.Persist{
		Name:   name,
		Schema: state.Schema{Name: name, Kind: "rows", Key: key.Columns(), Values: row.Columns()},
		Apply: func(ctx context.Context, b *batch.Batch, part batch.Partition, rows any, st plan.ReadWriter) (err error) {
			defer func() {
				if v := recover(); v != nil {
					err = panicError(v)
				}
				err = persistError(err, step, part)
			}()
			return update(&Batch{b: b, part: part, step: step}, rows.([]T), &KV[K, V]{ctx: ctx, st: st, key: key, row: row})
		},
	})
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
