// Package batch holds the values that every other package speaks of: transaction ids, attempts, offset
// ranges, records and the error type that carries them.
//
// A batch is a value. Given the same Batch and the same records, a pipeline computes the same writes, byte
// for byte, on any machine and any number of cores; nothing outside these values may reach a result. The
// package imports nothing of the project.
package batch

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Txid numbers the batches of a pipeline: 1, 2, 3, … with no gap. Zero means "none yet".
type Txid uint64

func (t Txid) String() string { return strconv.FormatUint(uint64(t), 10) }

// Epoch numbers the masters of a pipeline. Each start takes a higher one than any that was seen before.
type Epoch uint64

// Attempt is the coordinator's decision to begin a batch (again). Attempts of one txid are ordered by epoch,
// then by N, and only ever rise, restarts included.
type Attempt struct {
	Epoch Epoch
	N     uint32 // 1 for the first beginning within the epoch
}

// Compare orders attempts by (epoch, n).
func (a Attempt) Compare(b Attempt) int {
	if c := cmp.Compare(a.Epoch, b.Epoch); c != 0 {
		return c
	}
	return cmp.Compare(a.N, b.N)
}

func (a Attempt) String() string { return fmt.Sprintf("%d.%d", a.Epoch, a.N) }

// Partition names one partition of one source.
type Partition struct {
	Source string // the emitter's id: several emitters may read one topic and are kept apart by it
	Topic  string // Kafka topic, or the file's path as it was given
	Number int32  // Kafka partition; 0 for a file
}

// Compare orders partitions by source, topic and number. Partial results merge in this order.
func (p Partition) Compare(q Partition) int {
	if c := strings.Compare(p.Source, q.Source); c != 0 {
		return c
	}
	if c := strings.Compare(p.Topic, q.Topic); c != 0 {
		return c
	}
	return cmp.Compare(p.Number, q.Number)
}

func (p Partition) String() string { return fmt.Sprintf("%s/%s-%d", p.Source, p.Topic, p.Number) }

// NoEpoch is the LeaderEpoch of a source without leader epochs, or of a range without records.
const NoEpoch int32 = -1

// Position is where a partition stands: everything below Next is done.
type Position struct {
	Partition
	Next int64 // the offset to be read next

	// Identity tells apart what carries the same name: Kafka's topic id, or a file's fingerprint over what
	// lies below Next. Empty where a source has none.
	Identity string

	// LeaderEpoch is the Kafka leader epoch of the last record below Next, NoEpoch if unknown. A log that was
	// cut back below Next is noticed by it.
	LeaderEpoch int32
}

func (p Position) String() string { return fmt.Sprintf("%s next=%d", p.Partition, p.Next) }

// Range is a half-open range of offsets [Start, End) of one partition. Offsets inside may yield no record
// (compaction, transaction markers, aborted records).
type Range struct {
	Partition
	Start, End  int64
	Identity    string // as Position.Identity, of the position at End
	LeaderEpoch int32  // as Position.LeaderEpoch, of the position at End
}

// Position is where the partition stands once the range is done.
func (r Range) Position() Position {
	return Position{Partition: r.Partition, Next: r.End, Identity: r.Identity, LeaderEpoch: r.LeaderEpoch}
}

func (r Range) String() string { return fmt.Sprintf("%s [%d,%d)", r.Partition, r.Start, r.End) }

// Batch is everything that a run of a batch may depend on besides the records in its ranges.
type Batch struct {
	Txid    Txid
	Attempt Attempt
	// Time is the batch's clock, in UTC, truncated to milliseconds. It never falls from one txid to the next.
	Time time.Time
	Seed uint64
	// Ranges hold one entry per partition that moves, ordered by Partition.Compare, each starting where the
	// batch before ended.
	Ranges []Range
	// Idle lists the partitions that were idle when the batch was planned, ordered by Partition.Compare; they
	// do not hold event time back.
	Idle []Partition
	// Joined are the partitions admitted since the batch before, with their starts, ordered by Partition.Compare.
	Joined []Position
}

// Rand is a source of random numbers for one step at one record. It depends on the batch's seed, the step's
// name and the record's place only, so that a replay draws the same numbers.
func (b *Batch) Rand(step string, p Partition, offset int64) *Rand {
	h := b.Seed ^ 0x9e3779b97f4a7c15
	for _, s := range [...]string{step, p.Source, p.Topic} {
		for i := range len(s) {
			h = mix(h ^ uint64(s[i]))
		}
		h = mix(h ^ uint64(len(s))<<32)
	}
	h = mix(h ^ uint64(uint32(p.Number)))
	h = mix(h ^ uint64(offset))
	return &Rand{state: h}
}

// Rand is SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). It is kept here,
// rather than taken from math/rand, so that its sequence is part of the recorded batch and can't change with a
// Go release.
type Rand struct{ state uint64 }

// Uint64 returns the next 64 random bits.
func (r *Rand) Uint64() uint64 {
	r.state += 0x9e3779b97f4a7c15
	return mix(r.state)
}

// Float64 returns a number in [0, 1).
func (r *Rand) Float64() float64 { return float64(r.Uint64()>>11) / (1 << 53) }

// IntN returns a number in [0, n). It panics if n <= 0.
func (r *Rand) IntN(n int) int {
	if n <= 0 {
		panic("batch: IntN of a number below 1")
	}
	limit := -uint64(n) % uint64(n) // 2^64 mod n: values below it would be drawn too often
	for {
		if v := r.Uint64(); v >= limit {
			return int(v % uint64(n))
		}
	}
}

func mix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// Header is a record's header.
type Header struct {
	Key   string
	Value []byte
}

// CloneHeaders copies headers and their values; nil stays nil.
func CloneHeaders(hs []Header) []Header {
	c := slices.Clone(hs)
	for i := range c {
		c[i].Value = bytes.Clone(c[i].Value)
	}
	return c
}

// Record is one input record as it was read. Nil Key and Value are Kafka's null, which is not the empty string.
type Record struct {
	Offset    int64
	Timestamp int64 // milliseconds since 1970; 0 where the source has none
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Chunk is a run of records of one partition in offset order. It and everything it points to may be used only
// until the function that received it returns.
type Chunk struct {
	Records []Record
	// Fields names the columns of a delimited source with a header line (CSV); nil elsewhere.
	Fields []string
}

// Input tells what was read of a range: it is recorded, and every later reading of the range is compared to it.
type Input struct {
	Records int64
	Bytes   int64 // keys, values and header values
	Digest  uint64
}
