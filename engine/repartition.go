package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
)

// A repartitioning hands the values of a stream to n partitions of its own, which the operators behind it see in place of those of
// the sources: PartitionAggregate, PartitionPersist, Batch.Partition, the order in which things come. Which partition a value goes to
// follows from the value and the record that it comes from, never from the machine; n is part of the pipeline, as results may depend
// on it. Within a partition values come in the order of the partitions that they come from (sources by id, topic, partition) and of
// offsets. They keep their event times. Their types must be of exported fields throughout.

// maxPartitions is how many partitions a repartitioning may have: each is a shard of a store with the default number of shards.
const maxPartitions = plan.DefaultShards

// Shuffle spreads the values over n partitions: each as the place of its record hashes, so that a record goes the same way however
// batches are cut.
func (s Stream[T]) Shuffle(n int) Stream[T] {
	return repartition(s, "shuffle", n, func(b *builder, _ *stepName) placer[T] {
		keys := partKeys(n)
		var of, text []byte // the partition that is worked on, as it is hashed
		var at, nth int64   // the record, and which of its values comes
		b.begin = append(b.begin, func(rc *rec) {
			p := rc.tc.Partition
			of = fmt.Appendf(of[:0], "%q %q %d", p.Source, p.Topic, p.Number)
			at, nth = batch.NoOffset, 0
		})
		return func(rc *rec, _ T, put func([]byte) bool) {
			if rc.offset != at {
				at, nth = rc.offset, 0
			}
			text = binary.AppendVarint(binary.AppendVarint(append(text[:0], of...), at), nth)
			nth++
			put(keys[xxhash.Sum64(text)%uint64(n)])
		}
	})
}

// PartitionBy brings values with equal keys to the same of n partitions. Keys are as in GroupBy.
func PartitionBy[K comparable, T any](s Stream[T], key func(T) K, n int) Stream[T] {
	codec, err := value.KeyOf[K]()
	if err != nil {
		s.p.errorf("PartitionBy: %w", err)
		return derive[T](s)
	}
	return repartition(s, "partition_by", n, func(b *builder, at *stepName) placer[T] {
		keys := partKeys(n)
		var buf []byte
		return func(rc *rec, v T, put func([]byte) bool) {
			var k K
			if !b.careful {
				k = key(v)
			} else if !rc.guard(at.step, func() { k = key(v) }) {
				return
			}
			var err error
			if buf, err = codec.Encode(buf[:0], k); err != nil {
				rc.bad(at.step, err)
				return
			}
			put(keys[xxhash.Sum64(buf)%uint64(n)])
		}
	})
}

// Partition hands each value to the partition that f says, from 0 to n-1: Trident's partition with a grouping of one's own. Another number
// is a bad record.
func (s Stream[T]) Partition(n int, f func(T) int) Stream[T] {
	return repartition(s, "partition", n, func(b *builder, at *stepName) placer[T] {
		keys := partKeys(n)
		return func(rc *rec, v T, put func([]byte) bool) {
			var i int
			if !b.careful {
				i = f(v)
			} else if !rc.guard(at.step, func() { i = f(v) }) {
				return
			}
			if i < 0 || i >= n {
				rc.bad(at.step, fmt.Errorf("partition %d of %d", i, n))
				return
			}
			put(keys[i])
		}
	})
}

// Broadcast hands each value to every one of n partitions.
func (s Stream[T]) Broadcast(n int) Stream[T] {
	return repartition(s, "broadcast", n, func(*builder, *stepName) placer[T] {
		keys := partKeys(n)
		return func(_ *rec, _ T, put func([]byte) bool) {
			for _, k := range keys {
				if !put(k) {
					return
				}
			}
		}
	})
}

// Global hands all values to one partition.
func (s Stream[T]) Global() Stream[T] {
	return repartition(s, "global", 1, func(*builder, *stepName) placer[T] {
		keys := partKeys(1)
		return func(_ *rec, _ T, put func([]byte) bool) { put(keys[0]) }
	})
}

// BatchGlobal hands all values of a batch to one of n partitions, which takes turns from txid to txid.
func (s Stream[T]) BatchGlobal(n int) Stream[T] {
	return repartition(s, "batch_global", n, func(*builder, *stepName) placer[T] {
		keys := partKeys(n)
		return func(rc *rec, _ T, put func([]byte) bool) {
			put(keys[uint64(rc.tc.Batch.Txid)%uint64(n)])
		}
	})
}

// IdentityPartition leaves the values where they are. It is there for those who look for Trident's identityPartition.
func (s Stream[T]) IdentityPartition() Stream[T] { return s }

func repartition[T any](s Stream[T], kind string, n int, place func(b *builder, at *stepName) placer[T]) Stream[T] {
	p := s.p
	full := kind
	if kind != "global" {
		full = fmt.Sprintf("%s into %d", kind, n)
	}
	out, e, index := rowsStage[T](p, full, "")
	after(&out, s)
	wire, err := value.WireOf[T]()
	switch {
	case err != nil:
		p.errorf("%s: %w", kind, err)
		return out
	case n < 1 || n > maxPartitions:
		p.errorf("%s: %d partitions; 1 to %d are possible", kind, n, maxPartitions)
		return out
	}
	// Each partition is a shard: its task is the partition's own, with its rows as the only group.
	sendRows(s, e, index, 0, n, wire, func(b *builder) placer[T] { return place(b, &out.n.stepName) })
	e.Next = func() plan.StageTask {
		vals := &sideOf[T]{wire: wire}
		t := &rowsTask[T]{chains: chains[T]{n: out.n}, stage: e, sides: []side{vals}}
		t.take = func(t *rowsTask[T], _ []byte, rows []row) error {
			t.rc.key = nil // a row turned away is told by its own place
			for i := range rows {
				if t.pass(vals.vals[rows[i].at], &rows[i]); t.rc.err != nil {
					break
				}
			}
			return nil
		}
		return t
	}
	return out
}
