package model

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// of is what an aggregate of rows comes to.
func (a Agg) of(rows []Row) []int64 {
	var ns, sorted []int64
	sum, odd := int64(0), int64(0)
	for _, r := range rows {
		ns = append(ns, r.N)
		sum += r.N
		if r.N%2 != 0 {
			odd++
		}
	}
	sorted = slices.Sorted(slices.Values(ns))
	n := len(ns)
	switch a {
	case Count:
		return []int64{int64(n)}
	case Sum:
		return []int64{sum}
	case Min:
		return []int64{sorted[0]}
	case Max:
		return []int64{sorted[n-1]}
	case First:
		return []int64{ns[0]}
	case Last:
		return []int64{ns[n-1]}
	case CountOdd:
		return []int64{odd}
	case Distinct:
		return []int64{int64(len(slices.Compact(sorted)))}
	case MinBy:
		return []int64{rows[slices.Index(ns, sorted[0])].At}
	case MaxBy:
		return []int64{rows[slices.Index(ns, sorted[n-1])].At}
	case Collect:
		return ns
	case FirstTwo:
		return ns[:min(n, 2)]
	case LastTwo:
		return ns[max(n-2, 0):]
	case TopTwo:
		top := slices.Compact(sorted)
		slices.Reverse(top)
		return top[:min(len(top), 2)]
	case Fields:
		return []int64{int64(n), sum, sorted[n-1], ns[n-1], int64(math.Float64bits(float64(sum) / float64(n)))}
	case Combine:
		return []int64{ns[0], ns[n-1], sum}
	default:
	}
	var e Ends
	for _, r := range rows {
		e = FoldIn(e, r)
	}
	return []int64{e.F, e.L, e.S}
}

// Where a key lies, and in which order keys come, follows from its bytes: docs/internals/values.md.

const shards = 256

func hash(b []byte) uint64 { return xxhash.Sum64(b) }

func shardOf(key string) int { return int(hash([]byte(key)) % shards) }

func textKey(s string) string { return "\x20" + strings.ReplaceAll(s, "\x00", "\x00\xff") + "\x00\x01" }

func numberKey(n int64) string { return "\x09" + ordered(n) }

func timeKey(ns int64) string { return "\x30" + ordered(ns) }

func ordered(n int64) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(n)^1<<63))
}

const trueKey = "\x05"
