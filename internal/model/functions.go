package model

import (
	"fmt"
	"strconv"
)

// The functions of users that pipelines are made of. They are given to the engine as they are: input, no semantics.

// View is what a function may know of its batch.
type View struct {
	Txid      int64
	Seconds   int64 // since the first batch
	Partition int64
	Offset    int64
}

// Functions is how many there are of each kind.
const Functions = 4

// bounded keeps numbers small.
func bounded(n int64) int64 { return n % 10_000 }

// MapRow is a Map; it needs the batch from function 2 on.
func MapRow(f int, v View, r Row) Row {
	switch f {
	case 0:
		r.N = bounded(3*r.N + 1)
	case 1:
		r.K = string(rune('a' + (r.N%3+3)%3))
	case 2:
		r.N = bounded(r.N + 10*v.Txid + 100*v.Partition)
	default:
		r.N = bounded(r.N + v.Seconds + 20*v.Offset)
	}
	return r
}

// Fails tells for which values a function fails.
func Fails(f int, r Row) bool { return (r.N+int64(f))%5 == 3 }

// Keep is a Filter.
func Keep(f int, r Row) bool { return (r.N+int64(f))%3 != 0 }

// Spread is a FlatMap.
func Spread(f int, r Row) []Row {
	n := int((r.N%int64(f+2) + int64(f+2)) % int64(f+2))
	var rows []Row
	for i := range n {
		rows = append(rows, Row{K: r.K, N: bounded(r.N*2 + int64(i)), At: r.At})
	}
	return rows
}

// KeyOf is a key.
func KeyOf(key int, r Row) string {
	switch key {
	case 0:
		return r.K
	case 1:
		return strconv.FormatInt(r.N%3, 10)
	}
	return r.K + "\x00" + strconv.FormatInt(r.N%2, 10)
}

// PartOf is a Partition's function; with f above 0 it is wrong for some values.
func PartOf(f, parts int, r Row) int {
	if f > 0 && r.N%7 == 5 {
		return parts
	}
	return int((r.N%int64(parts) + int64(parts)) % int64(parts))
}

// Removes tells for which values a LatestEntries removes the key.
func Removes(r Row) bool { return r.N%4 == 1 }

// Digest makes one number of a result, for what stands behind it.
func Digest(value []int64) int64 {
	n := int64(len(value))
	for _, v := range value {
		n = bounded(n*31 + v)
	}
	return n
}

// ResultRow is what is made of a result: of a key, and where its window begins and ends.
func ResultRow(key string, start, end int64, value []int64) Row {
	return Row{K: key, N: bounded(Digest(value) + (end-start)%97), At: start / 1e9}
}

// Joined is what is made of a combination of values; nil where a side has none.
func Joined(rows ...*Row) Row {
	out := Row{}
	for i, r := range rows {
		if r == nil {
			out.N = bounded(out.N*17 + 5)
			continue
		}
		if out.K == "" {
			out.K = r.K
		}
		out.N = bounded(out.N*17 + r.N*int64(i+2))
		out.At = max(out.At, r.At)
	}
	return out
}

// Reduced is what a MultiReduce emits for a key; an error for some.
func Reduced(key string, sides [][]Row) ([]Row, error) {
	out := Row{K: key}
	for _, rows := range sides {
		for _, r := range rows {
			out.N = bounded(out.N*13 + r.N)
		}
		out.N = bounded(out.N*7 + int64(len(rows)))
	}
	if out.N%6 == 4 {
		return nil, fmt.Errorf("no %d", out.N)
	}
	return []Row{out, {K: key, N: bounded(out.N + 1)}}, nil
}

// Found is what a lookup makes of a value and of what it found.
func Found(r Row, row []int64) Row {
	if row == nil {
		r.N = bounded(r.N*11 + 1)
		return r
	}
	r.N = bounded(r.N*11 + Digest(row))
	return r
}

// Forgets tells for which values a persist deletes its row.
func Forgets(r Row) bool { return r.N%6 == 2 }

// Before is the order of an Extreme: whether a comes before b. Some values are equal in it.
func Before(f int, a, b Row) bool {
	if f < 2 {
		return a.N%4 < b.N%4
	}
	return a.N < b.N
}

// Compare is Before as a comparison.
func Compare(f int, a, b Row) int {
	switch {
	case Before(f, a, b):
		return -1
	case Before(f, b, a):
		return 1
	}
	return 0
}

// Limits tells how many rows an Arrange lets pass; 0: it sorts.
func Limits(f int) int {
	if f < 2 {
		return 0
	}
	return f - 1
}

// TableRows are the rows of a static table: the key and what stands there.
func TableRows(f int) []Row {
	all := []Row{{K: "a", N: 5, At: 50}, {K: "c", N: -6}, {K: "1", N: 7, At: 1}, {K: "0", N: 8}, {K: "-1", N: 9}, {K: "b\x001", N: 10}, {K: "a\x000", N: 11, At: 2}}
	return all[f:]
}

// Persisted is a persist's update of a row: how many values came, and the last.
func Persisted(seen, last int64, r Row) (int64, int64) { return seen + 1, bounded(last*3 + r.N) }

// WindowAsked is the start of the window that a WindowQuery asks for, in seconds.
func WindowAsked(w Window, r Row) int64 {
	step := w.Size
	switch w.Shape {
	case Sliding:
		step = w.Slide
	case Days:
		return r.At - (r.At%86_400+86_400)%86_400 - 3600
	default:
	}
	at := r.At - w.Offset
	return at - (at%step+step)%step + w.Offset
}

// Ends is what Combine and Fold keep.
type Ends struct {
	F, L, S int64
}

// Lift is Combine's.
func Lift(r Row) Ends { return Ends{r.N, r.N, r.N} }

// Together is Combine's: associative, but not commutative.
func Together(a, b Ends) Ends { return Ends{a.F, b.L, a.S + b.S} }

// FoldIn is Fold's: not associative.
func FoldIn(a Ends, r Row) Ends { return Ends{a.F + 1, r.N, bounded(a.S*31 + r.N)} }

// WatchedRow is a row of a watched stream as numbers.
func WatchedRow(r Row) []int64 {
	return []int64{int64(hash([]byte(r.K)) % 1_000_000), r.N, r.At}
}
