// Package agg defines aggregates: what a state keeps per key, how two of them combine, and how users declare them
// in Go. An aggregate never wraps round and never rounds what is exact: what leaves its range is an error that
// names it.
//
// # Cells
//
// A state's value is a row of cells, one per aggregate, each a tag and a payload that needs no schema to be read
// (docs/internals/values.md has the bytes). Deltas of a batch have the same form as values: Merge combines two
// deltas, or a value and a later delta, without knowing the pipeline; so a store can merge when it pleases. Results
// gives what queries show.
//
// Merge is exactly associative for the cells that Exact names: any grouping of the same sequence of deltas gives
// the same bytes. It also can't fail on what was written: counts and sums of integers have 128 bits, and a batch's sums of
// decimals are bounded (AddDecimal), so that what is too large shows in the batch that brings it, before its commit, and
// never in a store that merges later. The order of the sequence is kept by all callers, since first, last, collect and their likes depend on it; float
// sums depend on the grouping too and are therefore only ever combined as the batches are recorded.
//
// # Declaring aggregates
//
// Fields takes a struct of accumulators and a function that feeds them; Count, SumOf and the like are single
// aggregates; Combine, Reduce and Fold take any functions. See docs/reference/aggregates.md.
package agg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// tag begins a cell.
type tag byte

const (
	tagCount      tag = 1 + iota // varint of up to 128 bits: the count
	tagSumInt                    // uvarint: number of values; varint of up to 128 bits: their sum
	tagSumFloat                  // uvarint; 8 bytes, little endian
	tagSumDecimal                // uvarint; decimal as a binary value
	tagSumNumber                 // as numberSum.append
	tagMin                       // binary value, null if there was none
	tagMax                       // likewise
	tagAvgInt                    // as tagSumInt
	tagAvgFloat                  // as tagSumFloat
	tagAvgDecimal                // as tagSumDecimal
	tagAvgNumber                 // as tagSumNumber
	tagFirst                     // binary value, null if there was none
	tagLast                      // likewise
	tagCollect                   // uvarint: number of values; binary values
	tagCustom                    // uvarint: length; a row of binary values
	tagList                      // uvarint: number of items; each a uvarint length and a row of binary values
	tagFirstN                    // as few says
	tagLastN                     // likewise
	tagTop                       // as top says
	tagTopBy                     // likewise
	tagMinBy                     // as by says
	tagMaxBy                     // likewise
	tagDistinct                  // as hyperLogLog says
	tagQuantile                  // as histogram says
	tagVarInt                    // as moments says, for numbers of each kind
	tagVarFloat
	tagVarDecimal
	tagVarNumber
	tagStdInt // likewise; in the order of the variances
	tagStdFloat
	tagStdDecimal
	tagStdNumber
	tagEnd // no tag
)

var tagNames = [...]string{
	tagCount: "a count", tagSumInt: "a sum of integers", tagSumFloat: "a sum of floats", tagSumDecimal: "a sum of decimals",
	tagSumNumber: "a sum of numbers", tagMin: "a minimum", tagMax: "a maximum", tagAvgInt: "a mean of integers",
	tagAvgFloat: "a mean of floats", tagAvgDecimal: "a mean of decimals", tagAvgNumber: "a mean of numbers", tagFirst: "a first value",
	tagLast: "a last value", tagCollect: "a list of values", tagCustom: "a user's aggregate", tagList: "values for a user's aggregate",
	tagFirstN: "first values", tagLastN: "last values", tagTop: "greatest values", tagTopBy: "values of the greatest weights",
	tagMinBy: "a value by a minimum", tagMaxBy: "a value by a maximum", tagDistinct: "a number of distinct values", tagQuantile: "a quantile",
	tagVarInt: "a variance of integers", tagVarFloat: "a variance of floats", tagVarDecimal: "a variance of decimals", tagVarNumber: "a variance of numbers",
	tagStdInt: "a standard deviation of integers", tagStdFloat: "a standard deviation of floats", tagStdDecimal: "a standard deviation of decimals",
	tagStdNumber: "a standard deviation of numbers",
}

func (t tag) String() string {
	if t == 0 || t >= tagEnd {
		return fmt.Sprintf("tag %d", byte(t))
	}
	return tagNames[t]
}

// exact tells whether Merge of cells with this tag is exactly associative.
func (t tag) exact() bool {
	switch t {
	case tagCount, tagSumInt, tagSumDecimal, tagMin, tagMax, tagAvgInt, tagAvgDecimal, tagTop, tagTopBy, tagDistinct, tagQuantile,
		tagVarInt, tagVarDecimal, tagStdInt, tagStdDecimal:
		return true
	default:
		return false
	}
}

var (
	errCut       = errors.New("it is cut off")
	errTooMany   = errors.New("more values than an int64 counts")
	errWide      = errors.New("it is beyond 128 bits")
	errCount     = errors.New("it is beyond int64")
	errNotMerged = errors.New("only its pipeline can combine it")
)

// Merge appends to dst the combination, cell by cell, of a and b, where a is earlier. dst must not overlap them. It
// fails, with a *batch.Error, if the rows don't fit together (CodeStoreDamaged) or a result leaves its range
// (CodeOverflow); dst is worth nothing then.
func Merge(dst, a, b []byte) ([]byte, error) { return mergeNamed(dst, a, b, nil) }

// Merger returns Merge with errors that name the columns.
func Merger(cols []state.Column) func(dst, a, b []byte) ([]byte, error) {
	names := make([]string, len(cols))
	for i, c := range cols {
		names[i] = c.Name
	}
	return func(dst, a, b []byte) ([]byte, error) { return mergeNamed(dst, a, b, names) }
}

// mergeNamed is Merge that knows the cells' names for its errors.
func mergeNamed(dst, a, b []byte, names []string) ([]byte, error) {
	for i := 0; len(a) > 0 && len(b) > 0; i++ {
		ta, tb := tag(a[0]), tag(b[0])
		if ta != tb {
			return dst, damaged(names, i, fmt.Errorf("%s and %s can't be combined", ta, tb))
		}
		var err error
		if dst, a, b, err = mergeCell(append(dst, a[0]), ta, a[1:], b[1:]); err != nil {
			return dst, cellError(names, i, ta, err)
		}
	}
	if len(a) != len(b) {
		return dst, damaged(names, -1, errors.New("two rows of aggregates differ in length"))
	}
	return dst, nil
}

// mergeCell appends the payload of the combination and returns what follows the cells.
func mergeCell(dst []byte, t tag, a, b []byte) (merged, restA, restB []byte, err error) {
	switch t {
	case tagCount:
		x, n := readInt128(a)
		y, m := readInt128(b)
		if n <= 0 || m <= 0 {
			return dst, nil, nil, errCut
		}
		if !x.AddWide(y) {
			return dst, nil, nil, errWide
		}
		return appendInt128(dst, x), a[n:], b[m:], nil
	case tagSumInt, tagAvgInt:
		x, a, err := readIntSum(a)
		if err != nil {
			return dst, nil, nil, err
		}
		y, b, err := readIntSum(b)
		if err != nil {
			return dst, nil, nil, err
		}
		if err := x.merge(y); err != nil {
			return dst, nil, nil, err
		}
		return x.append(dst), a, b, nil
	case tagSumFloat, tagAvgFloat:
		x, a, err := readFloatSum(a)
		if err != nil {
			return dst, nil, nil, err
		}
		y, b, err := readFloatSum(b)
		if err != nil {
			return dst, nil, nil, err
		}
		if err := x.merge(y); err != nil {
			return dst, nil, nil, err
		}
		return x.append(dst), a, b, nil
	case tagSumDecimal, tagAvgDecimal:
		x, a, err := readDecimalSum(a)
		if err != nil {
			return dst, nil, nil, err
		}
		y, b, err := readDecimalSum(b)
		if err != nil {
			return dst, nil, nil, err
		}
		if err := x.merge(y); err != nil {
			return dst, nil, nil, err
		}
		return x.append(dst), a, b, nil
	case tagSumNumber, tagAvgNumber:
		x, a, err := readNumberSum(a)
		if err != nil {
			return dst, nil, nil, err
		}
		y, b, err := readNumberSum(b)
		if err != nil {
			return dst, nil, nil, err
		}
		if err := x.Merge(&y); err != nil {
			return dst, nil, nil, err
		}
		return x.append(dst), a, b, nil
	case tagMin, tagMax, tagFirst, tagLast:
		x, restA, err := value.ViewBinary(a)
		if err != nil {
			return dst, nil, nil, err
		}
		y, restB, err := value.ViewBinary(b)
		if err != nil {
			return dst, nil, nil, err
		}
		if takesLater(t, x, y) {
			return append(dst, b[:len(b)-len(restB)]...), restA, restB, nil
		}
		return append(dst, a[:len(a)-len(restA)]...), restA, restB, nil
	case tagCollect, tagList:
		return mergeLists(dst, t, a, b)
	case tagFirstN, tagLastN:
		return mergeFew(dst, t == tagLastN, a, b)
	case tagTop, tagTopBy:
		return mergeTop(dst, t == tagTopBy, a, b)
	case tagMinBy, tagMaxBy:
		return mergeBy(dst, t == tagMaxBy, a, b)
	case tagDistinct:
		return mergeDistinct(dst, a, b)
	case tagQuantile:
		return mergeQuantile(dst, a, b)
	case tagVarInt, tagVarFloat, tagVarDecimal, tagVarNumber, tagStdInt, tagStdFloat, tagStdDecimal, tagStdNumber:
		return mergeMoments(dst, a, b)
	case tagCustom:
		return dst, nil, nil, errNotMerged
	default:
		return dst, nil, nil, errors.New("it has no meaning")
	}
}

// takesLater tells whether the combination of x and a later y is y.
func takesLater(t tag, x, y value.Value) bool {
	switch {
	case y.IsNull():
		return false
	case x.IsNull():
		return true
	}
	switch t {
	case tagMin:
		return value.Compare(y, x) < 0
	case tagMax:
		return value.Compare(y, x) > 0
	}
	return t == tagLast
}

func mergeLists(dst []byte, t tag, a, b []byte) (merged, restA, restB []byte, err error) {
	x, itemsA, restA, err := readList(t, a)
	if err != nil {
		return dst, nil, nil, err
	}
	y, itemsB, restB, err := readList(t, b)
	if err != nil {
		return dst, nil, nil, err
	}
	dst = binary.AppendUvarint(dst, uint64(x)+uint64(y)) // each item has a byte at least, so this can't overflow
	return append(append(dst, itemsA...), itemsB...), restA, restB, nil
}

// readList splits a payload of tagCollect or tagList into the number of its items, their bytes and the rest.
func readList(t tag, b []byte) (n int, items, rest []byte, err error) {
	count, w := binary.Uvarint(b)
	if w <= 0 || count > uint64(len(b)-w) {
		return 0, nil, nil, errCut
	}
	items = b[w:]
	rest = items
	for range count {
		if t == tagCollect {
			if _, rest, err = value.ViewBinary(rest); err != nil {
				return 0, nil, nil, err
			}
			continue
		}
		if _, rest, err = readSized(rest); err != nil {
			return 0, nil, nil, err
		}
	}
	return int(count), items[:len(items)-len(rest)], rest, nil
}

// readSized reads bytes led by their length.
func readSized(b []byte) (s, rest []byte, err error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, errCut
	}
	end := w + int(n)
	return b[w:end], b[end:], nil
}

// Exact tells whether Merge of these cells is exactly associative, which makes them fit to be written as merge
// operands: counts, sums, means, variances and standard deviations of integers and decimals, minima, maxima and top (their
// order is total: -0 equals 0, NaN comes last), distinct and quantiles. Not so: sums, means, variances and standard
// deviations of floats and of mixed numbers, what depends on the order of the values (first, last, their likes with n,
// min_by, max_by, collect), users' aggregates, and bytes that are no cells.
func Exact(cells []byte) bool {
	for len(cells) > 0 {
		t := tag(cells[0])
		if !t.exact() {
			return false
		}
		rest, err := skip(t, cells[1:])
		if err != nil {
			return false
		}
		cells = rest
	}
	return true
}

// skip returns what follows a payload.
func skip(t tag, b []byte) (rest []byte, err error) {
	switch t {
	case tagCount:
		_, n := readInt128(b)
		if n <= 0 {
			return nil, errCut
		}
		return b[n:], nil
	case tagSumInt, tagAvgInt:
		_, rest, err = readIntSum(b)
	case tagSumFloat, tagAvgFloat:
		_, rest, err = readFloatSum(b)
	case tagSumDecimal, tagAvgDecimal:
		_, rest, err = readDecimalSum(b)
	case tagSumNumber, tagAvgNumber:
		_, rest, err = readNumberSum(b)
	case tagMin, tagMax, tagFirst, tagLast:
		_, rest, err = value.ViewBinary(b)
	case tagCollect, tagList:
		_, _, rest, err = readList(t, b)
	case tagFirstN, tagLastN:
		rest, err = new(few).read(b)
	case tagTop, tagTopBy:
		rest, err = (&top{weighted: t == tagTopBy}).read(b, value.ViewBinary)
	case tagMinBy, tagMaxBy:
		_, _, rest, err = readBy(b)
	case tagDistinct:
		rest, err = new(hyperLogLog).read(b)
	case tagQuantile:
		rest, err = new(histogram).read(b)
	case tagVarInt, tagVarFloat, tagVarDecimal, tagVarNumber, tagStdInt, tagStdFloat, tagStdDecimal, tagStdNumber:
		rest, err = new(moments).read(b)
	case tagCustom:
		_, rest, err = readSized(b)
	default:
		return nil, errors.New("it has no meaning")
	}
	return rest, err
}

// Results appends what the cells come to, as queries show it: of nothing but nulls, null, except for counts and distinct (0)
// and lists (empty). Sums of integers beyond int64 are values that print with all their digits. A user's
// aggregate gives as many values as it has columns.
func Results(dst []value.Value, cells []byte) ([]value.Value, error) {
	for i := 0; len(cells) > 0; i++ {
		t := tag(cells[0])
		var err error
		if dst, cells, err = result(dst, t, cells[1:]); err != nil {
			return dst, cellError(nil, i, t, err)
		}
	}
	return dst, nil
}

func result(dst []value.Value, t tag, b []byte) ([]value.Value, []byte, error) {
	switch t {
	case tagCount:
		n, w := readInt128(b)
		if w <= 0 {
			return dst, nil, errCut
		}
		return append(dst, value.WideIntOf(n.Hi, n.Lo)), b[w:], nil
	case tagSumInt, tagAvgInt:
		s, rest, err := readIntSum(b)
		if err != nil {
			return dst, nil, err
		}
		return append(dst, s.result(t == tagAvgInt)), rest, nil
	case tagSumFloat, tagAvgFloat:
		s, rest, err := readFloatSum(b)
		if err != nil {
			return dst, nil, err
		}
		return append(dst, s.result(t == tagAvgFloat)), rest, nil
	case tagSumDecimal, tagAvgDecimal:
		s, rest, err := readDecimalSum(b)
		if err != nil {
			return dst, nil, err
		}
		v, err := s.result(t == tagAvgDecimal)
		return append(dst, v), rest, err
	case tagSumNumber, tagAvgNumber:
		s, rest, err := readNumberSum(b)
		if err != nil {
			return dst, nil, err
		}
		v, err := s.result(t == tagAvgNumber)
		return append(dst, v), rest, err
	case tagMin, tagMax, tagFirst, tagLast:
		v, rest, err := value.DecodeBinary(b)
		if err != nil {
			return dst, nil, err
		}
		return append(dst, v), rest, nil
	case tagCollect:
		n, items, rest, err := readList(t, b)
		if err != nil {
			return dst, nil, err
		}
		vs := make([]value.Value, n)
		for i := range vs {
			if vs[i], items, err = value.DecodeBinary(items); err != nil {
				return dst, nil, err
			}
		}
		return append(dst, value.ListOf(vs)), rest, nil
	case tagFirstN, tagLastN:
		var f few
		rest, err := f.read(b)
		if err != nil {
			return dst, nil, err
		}
		return append(dst, f.result()), rest, nil
	case tagTop, tagTopBy:
		l := top{weighted: t == tagTopBy}
		rest, err := l.read(b, value.DecodeBinary)
		if err != nil {
			return dst, nil, err
		}
		return append(dst, l.result()), rest, nil
	case tagMinBy, tagMaxBy:
		_, cell, rest, err := readBy(b)
		if err != nil {
			return dst, nil, err
		}
		v, _, err := value.DecodeBinary(cell)
		return append(dst, v), rest, err
	case tagDistinct:
		var h hyperLogLog
		rest, err := h.read(b)
		if err != nil {
			return dst, nil, err
		}
		return append(dst, h.result()), rest, nil
	case tagQuantile:
		var h histogram
		rest, err := h.read(b)
		if err != nil {
			return dst, nil, err
		}
		v, err := h.result()
		return append(dst, v), rest, err
	case tagVarInt, tagVarFloat, tagVarDecimal, tagVarNumber, tagStdInt, tagStdFloat, tagStdDecimal, tagStdNumber:
		m := moments{t: t}
		rest, err := m.read(b)
		if err != nil {
			return dst, nil, err
		}
		v, err := m.result()
		return append(dst, v), rest, err
	case tagCustom:
		row, rest, err := readSized(b)
		if err != nil {
			return dst, nil, err
		}
		for len(row) > 0 {
			var v value.Value
			if v, row, err = value.DecodeBinary(row); err != nil {
				return dst, nil, err
			}
			dst = append(dst, v)
		}
		return dst, rest, nil
	case tagList:
		return dst, nil, errors.New("they haven't been applied yet")
	default:
		return dst, nil, errors.New("it has no meaning")
	}
}

// cellError makes a *batch.Error of what went wrong with the cell at index i.
func cellError(names []string, i int, t tag, err error) error {
	switch {
	case errors.Is(err, errWide), errors.Is(err, errCount), errors.Is(err, errTooMany), errors.Is(err, errSumDigits), errors.Is(err, decimal.ErrRange):
		return overflow(cellName(names, i), fmt.Errorf("%s: %w", t, err))
	case errors.Is(err, errNotMerged):
		return batch.NewError(batch.Permanent, batch.CodeInternal, cellName(names, i), fmt.Errorf("%s: %w", t, err), "")
	}
	return damaged(names, i, fmt.Errorf("%s: %w", t, err))
}

func overflow(name string, err error) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeOverflow, name, err, "aggregate a smaller or a wider type; the state is as it was before this batch")
}

func damaged(names []string, i int, err error) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeStoreDamaged, cellName(names, i), err, "restore a savepoint, or rebuild by replay")
}

func cellName(names []string, i int) string {
	switch {
	case i < 0:
		return "merge aggregates"
	case i < len(names):
		return "aggregate " + names[i]
	}
	return fmt.Sprintf("aggregate %d", i+1)
}

// canonical is the one NaN and the one zero that cells hold.
func canonical(f float64) float64 {
	switch {
	case f != f:
		return math.NaN()
	case f == 0:
		return 0
	}
	return f
}
