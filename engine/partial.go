package engine

import (
	"fmt"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/txstate"
)

// PartitionAggregate sends on, for each partition and batch, what the partition's values in the batch come to: Trident's
// partitionAggregate. Partitions are those of the sources or of the repartitioning, join or aggregate that s comes of; one
// without values in a batch sends nothing. R is as in BatchAggregate. A result that a step behind it fails on is a bad record, told
// by the offset of the last record that the partition had.
func PartitionAggregate[R, T any](s Stream[T], a agg.Aggregation[T]) Stream[R] {
	out := derive[R](s)
	out.timed = false
	out.n.named(s.p, "partition_aggregate", ": "+aggregateNames(a.Columns()))
	if err := a.Err(); err != nil {
		s.p.errorf("PartitionAggregate: %w", err)
		return out
	}
	if _, err := decoderOf[R](a.Columns()); err != nil {
		s.p.errorf("PartitionAggregate: %w", err)
		return out
	}
	s.to(func(b *builder) push[T] {
		step := out.n.step
		next := out.n.build(b)
		dec, err := decoderOf[R](a.Columns())
		if err != nil {
			panic(err) // it was tried above
		}
		table, live := a.NewTable(), false
		var delta, cells []byte
		b.begin = append(b.begin, func(*rec) {
			table.Reset()
			table.New()
			live = false
		})
		b.end = append(b.end, func(rc *rec) {
			if !live {
				return
			}
			delta = table.Append(delta[:0], 0)
			var r R
			var err error
			if cells, err = a.Update(cells[:0], nil, delta); err == nil {
				err = dec(cells, &r)
			}
			if err != nil {
				rc.fail(aggregateError(step, err).At(rc.tc.Partition, rc.offset))
				return
			}
			rc.r, rc.key, rc.from, rc.wire = nil, nil, nil, nil
			rc.time, rc.mayBeLate = txstate.NoTime, false
			next(rc, r)
		})
		return func(rc *rec, v T) {
			var err error
			if b.careful {
				var ok bool
				if ok, err = addCarefully(rc, table, 0, step, v); !ok && err == nil {
					return
				}
			} else if err = table.Add(0, v); isBadRecord(err) {
				if rc.tc.OnBad != plan.Stop {
					panic(err) // to be run again, carefully: that can undo it
				}
				rc.bad(step, err)
				return
			}
			if err != nil {
				rc.fail(aggregateError(step, err).At(rc.tc.Partition, rc.offset))
				return
			}
			live = true
		}
	})
	return out
}

func aggregateError(step string, err error) *batch.Error {
	code := batch.CodeUserError
	if batch.KindOf(err) == batch.Permanent {
		code = batch.CodeOf(err)
	}
	return batch.NewError(batch.Permanent, code, step, err, "the states are as they were before this batch; use a wider type")
}

// AggregateAll keeps what all values of a stream come to, in a state called name that has one row: Trident's persistentAggregate of a
// stream that isn't grouped, whose state is a Snapshottable. StateQuery finds the row by the key true.
func AggregateAll[T any](s Stream[T], name string, a agg.Aggregation[T]) *State[bool] {
	return Aggregate(all(s), name, a)
}

// all brings all values together, by a key that they share.
func all[T any](s Stream[T]) Grouped[bool, T] {
	key, err := value.KeyOf[bool]("all")
	if err != nil {
		panic(fmt.Sprintf("engine: a bool as a key: %v", err))
	}
	return Grouped[bool, T]{s: s, key: func(T) bool { return true }, codec: key}
}

// BatchAggregateAll sends on what all values of a batch come to, one result per batch that has any: Trident's aggregate of a stream
// that isn't grouped. R and name are as in BatchAggregate.
func BatchAggregateAll[R, T any](s Stream[T], name string, a agg.Aggregation[T]) Stream[R] {
	totals := BatchAggregate[R](all(s), name, a)
	out := derive[R](totals)
	out.n.step = name
	totals.to(func(b *builder) push[Total[bool, R]] {
		next := out.n.build(b)
		return func(rc *rec, v Total[bool, R]) { next(rc, v.Value) }
	})
	return out
}
