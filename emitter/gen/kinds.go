package gen

import (
	"math/bits"
	"strconv"
	"sync"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// What a kind makes is part of recorded batches: a change of it is a new kind.
var kinds = map[string]Config{
	"words":  {Make: words, MaxBytes: 128},
	"users":  {Make: users, MaxBytes: 96},
	"orders": {Make: orders, MaxBytes: 128},
	"events": {Make: events, MaxBytes: 128},
}

// began is the time of the first record, in milliseconds since 1970: 2026-01-01T00:00:00Z. A millisecond passes from
// one offset to the next.
const began = 1767225600000

var vocabulary = []string{
	"the", "of", "and", "to", "a", "in", "that", "it", "is", "was", "batch", "stream", "state", "record", "offset", "commit", "ledger",
	"range", "replay", "order", "exactly", "once", "never", "always", "whole", "part", "river", "stone", "cloud", "wind", "light", "water",
	"tree", "bird", "road", "house", "night", "morning", "winter", "summer", "hand", "voice", "word", "story", "letter", "number", "table", "door",
	"window", "garden", "island", "mountain", "harbour", "bridge", "market", "station", "engine", "trident", "wave", "tide", "anchor", "sail", "captain", "shore",
}

var (
	wordRanks    = zipf(len(vocabulary))
	productRanks = zipf(1000)
	userRanks    = sync.OnceValue(func() *ranks { r := zipf(100_000); return &r })
)

func words(rng *batch.Rand, _ int32, offset int64, rec *batch.Record) {
	rec.Timestamp = began + offset
	for i := range 1 + rng.IntN(12) {
		if i > 0 {
			rec.Value = append(rec.Value, ' ')
		}
		rec.Value = append(rec.Value, vocabulary[wordRanks.draw(rng)]...)
	}
}

func users(rng *batch.Rand, _ int32, offset int64, rec *batch.Record) {
	rec.Timestamp = began + offset
	v := append(rec.Value, `{"user":"u`...)
	v = strconv.AppendInt(v, int64(userRanks().draw(rng)), 10)
	v = append(v, `","page":"/products/`...)
	v = strconv.AppendInt(v, int64(productRanks.draw(rng)), 10)
	v = append(v, `","ms":`...)
	v = strconv.AppendInt(v, rec.Timestamp, 10)
	v = append(v, `,"n":`...)
	v = strconv.AppendInt(v, int64(1+rng.IntN(100)), 10)
	rec.Value = append(v, '}')
}

func orders(rng *batch.Rand, partition int32, offset int64, rec *batch.Record) {
	rec.Timestamp = began + offset
	id := append([]byte("o"), strconv.Itoa(int(partition))...)
	id = append(id, '-')
	id = strconv.AppendInt(id, offset, 10)
	rec.Key = id
	v := append(rec.Value, `{"id":"`...)
	v = append(v, id...)
	v = append(v, `","customer":"c`...)
	v = strconv.AppendInt(v, int64(rng.IntN(5000)), 10)
	v = append(v, `","amount":"`...)
	cents := 100 + rng.IntN(50_000)
	v = strconv.AppendInt(v, int64(cents/100), 10)
	v = append(v, '.', byte('0'+cents/10%10), byte('0'+cents%10))
	v = append(v, `","placed_at":"`...)
	v = time.UnixMilli(rec.Timestamp).UTC().AppendFormat(v, time.RFC3339Nano)
	rec.Value = append(v, `"}`...)
}

func events(rng *batch.Rand, _ int32, offset int64, rec *batch.Record) {
	rec.Timestamp = began + offset
	rec.Key = append(rec.Key, 's')
	rec.Key = strconv.AppendInt(rec.Key, int64(rng.IntN(1000)), 10)
	v := append(rec.Value, `{"sensor":"`...)
	v = append(v, rec.Key...)
	v = append(v, `","value":`...)
	tenths := rng.IntN(1000) - 200
	if tenths < 0 {
		v, tenths = append(v, '-'), -tenths
	}
	v = strconv.AppendInt(v, int64(tenths/10), 10)
	v = append(v, '.', byte('0'+tenths%10))
	v = append(v, `,"at":"`...)
	v = time.UnixMilli(rec.Timestamp-int64(rng.IntN(30_000))).UTC().AppendFormat(v, time.RFC3339Nano)
	rec.Value = append(v, `"}`...)
}

// ranks draws numbers from 0 up, number k in proportion to 1/(k+1). It works on integers: no floating point, so that
// every machine draws the same.
type ranks struct {
	sums  []uint64 // running sums of the weights, below 2^44
	guide []int32  // the lowest rank that a bucket of sums may give
	shift int      // a sum's bucket is what stays of it above these bits
}

func zipf(n int) ranks {
	r := ranks{sums: make([]uint64, n)}
	var sum uint64
	for k := range r.sums {
		sum += (1 << 40) / uint64(k+1)
		r.sums[k] = sum
	}
	r.shift = max(bits.Len64(sum)-12, 0)
	k := int32(0)
	for b := range (sum-1)>>r.shift + 1 {
		for r.sums[k] <= b<<r.shift {
			k++
		}
		r.guide = append(r.guide, k)
	}
	return r
}

func (r *ranks) draw(rng *batch.Rand) int {
	x := rng.Uint64() % r.sums[len(r.sums)-1] // the bias of at most 2^-20 is beyond notice
	b := x >> r.shift
	lo, hi := int(r.guide[b]), len(r.sums)-1
	if int(b)+1 < len(r.guide) {
		hi = int(r.guide[b+1])
	}
	for lo < hi { // the first rank whose sum is above x
		if mid := (lo + hi) / 2; r.sums[mid] > x {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}
