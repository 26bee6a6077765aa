package agg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
)

// Buckets of a histogram: each power of two is cut into bucketParts of equal width, so that a number is less than
// 1/bucketParts of itself from the border of its bucket. Integers of up to bucketBits+1 bits are borders themselves.
const (
	bucketBits  = 7
	bucketParts = 1 << bucketBits
	bucketShift = 52 - bucketBits
)

// histogram counts numbers by buckets whose borders are bits of the numbers, as DDSketch does by a logarithm: no
// bucket depends on a processor's last digit. The counts are integers and the buckets are fixed, so the bytes depend
// on the numbers only, not on their order.
//
// The payload of tagQuantile is 8 bytes, LE: which quantile; uvarint: how many NaNs; uvarint: the number of buckets. If
// there are any, the least and the greatest number follow, 8 bytes each, LE, and for each bucket a varint, how far its number
// lies above that of the one before (of the first, its number), and a uvarint, its count.
type histogram struct {
	fault
	p      float64
	nans   int64
	least  float64
	most   float64
	bucket []int32 // sorted
	n      []int64
}

// bucketOf numbers the bucket of a number that isn't NaN, in the order of the numbers. What is too small for a normal
// float counts as 0.
func bucketOf(f float64) int32 {
	b := int32(math.Float64bits(math.Abs(f)) >> bucketShift)
	switch {
	case b < bucketParts:
		return 0
	case f < 0:
		return -b
	}
	return b
}

// border is the number that a bucket stands for: the one in it that is nearest to 0.
func border(bucket int32) float64 {
	f := math.Float64frombits(uint64(max(bucket, -bucket)) << bucketShift)
	if bucket < 0 {
		return -f
	}
	return f
}

// Add takes a number into account, unless it is null.
func (h *histogram) Add(x, _ value.Value) error {
	switch x.Kind() {
	case value.Null:
		return nil
	case value.Int:
		return h.add(float64(x.Int()))
	case value.Float:
		return h.add(x.Float())
	case value.Decimal:
		return h.add(x.Decimal().Float64())
	}
	return errNoNumber
}

func (h *histogram) add(f float64) error {
	if f != f {
		h.nans++
		return nil
	}
	f = canonical(f)
	if len(h.bucket) == 0 {
		h.least, h.most = f, f
	}
	h.least, h.most = min(h.least, f), max(h.most, f)
	return h.count(bucketOf(f), 1)
}

func (h *histogram) count(bucket int32, n int64) error {
	i, found := slices.BinarySearch(h.bucket, bucket)
	if !found {
		h.bucket, h.n = slices.Insert(h.bucket, i, bucket), slices.Insert(h.n, i, n)
		return nil
	}
	sum, ok := addCount(h.n[i], n)
	if !ok {
		return errTooMany
	}
	h.n[i] = sum
	return nil
}

// Append appends the cell.
func (h *histogram) Append(dst []byte) []byte { return h.append(append(dst, byte(tagQuantile))) }

func (h *histogram) append(dst []byte) []byte {
	dst = appendFloat(dst, h.p)
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(h.nans)), uint64(len(h.bucket)))
	if len(h.bucket) == 0 {
		return dst
	}
	dst = appendFloat(appendFloat(dst, h.least), h.most)
	last := int32(0)
	for i, b := range h.bucket {
		dst = binary.AppendUvarint(binary.AppendVarint(dst, int64(b-last)), uint64(h.n[i]))
		last = b
	}
	return dst
}

var errBuckets = errors.New("its buckets are out of order")

func (h *histogram) read(b []byte) (rest []byte, err error) {
	if h.p, b, err = readFloat(b); err != nil {
		return nil, err
	}
	if !(h.p > 0 && h.p <= 1) {
		return nil, errShare
	}
	if h.nans, b, err = readCount(b); err != nil {
		return nil, err
	}
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)) {
		return nil, errCut
	}
	b = b[w:]
	if n == 0 {
		return b, nil
	}
	if h.least, b, err = readFloat(b); err != nil {
		return nil, err
	}
	if h.most, b, err = readFloat(b); err != nil {
		return nil, err
	}
	h.bucket, h.n = make([]int32, n), make([]int64, n)
	const last = math.MaxInt64 >> bucketShift
	at := int64(0)
	for i := range h.bucket {
		step, w := binary.Varint(b)
		if w <= 0 {
			return nil, errCut
		}
		b = b[w:]
		if step > 2*last || step < -last || i > 0 && step <= 0 {
			return nil, errBuckets
		}
		if at += step; at > last || at < -last {
			return nil, errBuckets
		}
		h.bucket[i] = int32(at)
		if h.n[i], b, err = readCount(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func readFloat(b []byte) (float64, []byte, error) {
	if len(b) < 8 {
		return 0, nil, errCut
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b)), b[8:], nil
}

func mergeQuantile(dst, a, b []byte) (merged, restA, restB []byte, err error) {
	var x, y histogram
	if restA, err = x.read(a); err != nil {
		return dst, nil, nil, err
	}
	if restB, err = y.read(b); err != nil {
		return dst, nil, nil, err
	}
	if x.p != y.p {
		return dst, nil, nil, parameters(x.p, y.p)
	}
	if err := x.merge(&y); err != nil {
		return dst, nil, nil, err
	}
	return x.append(dst), restA, restB, nil
}

func (h *histogram) merge(o *histogram) error {
	nans, ok := addCount(h.nans, o.nans)
	if !ok {
		return errTooMany
	}
	h.nans = nans
	switch {
	case len(o.bucket) == 0:
		return nil
	case len(h.bucket) == 0:
		h.least, h.most = o.least, o.most
	}
	h.least, h.most = min(h.least, o.least), max(h.most, o.most)
	buckets, counts := make([]int32, 0, len(h.bucket)+len(o.bucket)), make([]int64, 0, len(h.bucket)+len(o.bucket))
	for i, k := 0, 0; i < len(h.bucket) || k < len(o.bucket); {
		switch {
		case k == len(o.bucket) || i < len(h.bucket) && h.bucket[i] < o.bucket[k]:
			buckets, counts = append(buckets, h.bucket[i]), append(counts, h.n[i])
			i++
		case i == len(h.bucket) || o.bucket[k] < h.bucket[i]:
			buckets, counts = append(buckets, o.bucket[k]), append(counts, o.n[k])
			k++
		default:
			sum, ok := addCount(h.n[i], o.n[k])
			if !ok {
				return errTooMany
			}
			buckets, counts = append(buckets, h.bucket[i]), append(counts, sum)
			i, k = i+1, k+1
		}
	}
	h.bucket, h.n = buckets, counts
	return nil
}

// result is the least number, as near as its bucket tells, for which the numbers up to it are at least the share p of
// all. NaNs are above all numbers.
func (h *histogram) result() (value.Value, error) {
	total := h.nans
	for _, n := range h.n {
		sum, ok := addCount(total, n)
		if !ok {
			return value.NullValue(), errTooMany
		}
		total = sum
	}
	if total == 0 {
		return value.NullValue(), nil
	}
	rank := rankOf(h.p, total)
	for i, n := range h.n {
		if rank -= n; rank <= 0 {
			return value.FloatOf(min(max(border(h.bucket[i]), h.least), h.most)), nil
		}
	}
	return value.FloatOf(math.NaN()), nil
}

// rankOf is p·n, rounded up, and at least 1: of p as it is written, so that 0.1 is a tenth.
func rankOf(p float64, n int64) int64 {
	d, err := decimal.FromFloat(p)
	if err == nil {
		d, err = d.Mul(decimal.FromInt(n))
	}
	if err == nil {
		d, err = d.Ceil()
	}
	rank, ok := d.Int64()
	if err != nil || !ok {
		panic(fmt.Sprintf("agg: quantile %v of %d numbers: %v", p, n, err))
	}
	return max(rank, 1)
}

func (h *histogram) detach() { h.bucket, h.n = slices.Clone(h.bucket), slices.Clone(h.n) }

var errShare = errors.New("a number above 0 and up to 1 is due")

// shareOf reads which quantile is wanted.
func shareOf(p string) (float64, error) {
	d, err := decimal.Parse(p)
	if err != nil || d.Sign() <= 0 || d.Cmp(decimal.FromInt(1)) > 0 {
		return 0, errShare
	}
	return d.Float64(), nil
}

// Quantile estimates a quantile of numbers: the least number for which the numbers up to it are at least that share of
// all. Which, a tag of the field says: `trident:",p=0.99"`. The result is less than 0.8 % off; for
// integers up to 256, and if all numbers are the same, it is exact.
type Quantile[N Number] struct {
	h    histogram
	kind kind
}

// Add takes x into account.
func (q *Quantile[N]) Add(x N) {
	if q.kind == 0 {
		q.kind = kindOf[N]()
	}
	v, err := q.kind.value(unsafe.Pointer(&x))
	if err != nil {
		q.h.fail(err)
		return
	}
	q.h.keep(q.h.Add(v, value.NullValue()))
}

// Value returns the quantile; ok = false if there was no number.
func (q Quantile[N]) Value() (x float64, ok bool) {
	v, err := q.h.result()
	if err != nil || v.IsNull() {
		return 0, false
	}
	return v.Float(), true
}

// String returns the quantile, "null" if there was no number.
func (q Quantile[N]) String() string {
	v, err := q.h.result()
	if err != nil {
		return err.Error()
	}
	return v.String()
}

func (q *Quantile[N]) describe() (fn, typ string, err error) {
	if fn = "quantile"; q.h.p != 0 {
		fn += "(" + value.FloatOf(q.h.p).String() + ")"
	}
	return fn, "float", nil
}
func (q *Quantile[N]) at(p unsafe.Pointer) accumulator { return (*Quantile[N])(p) }
func (q *Quantile[N]) append(dst []byte) []byte        { return q.h.Append(dst) }
func (q *Quantile[N]) status() uintptr {
	return unsafe.Offsetof(q.h) + unsafe.Offsetof(q.h.fault) + unsafe.Offsetof(q.h.fault.bad)
}
func (q *Quantile[N]) failure() error { return q.h.failure() }
func (q *Quantile[N]) detach()        { q.h.detach() }

func (q *Quantile[N]) load(cells []byte) ([]byte, error) {
	b, err := open(cells, tagQuantile)
	if err != nil {
		return nil, err
	}
	return q.h.read(b)
}

func (q *Quantile[N]) configure(p string) (err error) {
	q.h.p, err = shareOf(p)
	return err
}
func (q *Quantile[N]) parameter() string { return "p" }
