package agg

import (
	"fmt"

	"github.com/tridentd/tridentd/internal/value"
)

// Feed takes the values of one aggregate of one key, of whatever kinds they are: what declared pipelines use for the
// aggregates that are more than a number or a value.
type Feed interface {
	// Add takes x into account; by is the second value of those that take two. What it keeps is its own. An error
	// tells of an x that the aggregate can't take, or of a bound that was left.
	Add(x, by value.Value) error
	// Append appends the cell.
	Append(dst []byte) []byte
}

// NewFeed returns an empty Feed of a function for values of a type, as columns name it. param is its constant
// argument, weighted tells of a `top` by weights. The function must be one that has a Feed: first_n, last_n, top, min_by,
// max_by, distinct, quantile, variance, stddev.
func NewFeed(fn, typ, param string, weighted bool) (Feed, error) {
	switch fn {
	case "first_n", "last_n":
		n, err := keptOf(param)
		return &few{limit: n, last: fn == "last_n"}, err
	case "top":
		k, err := keptOf(param)
		return &top{limit: k, weighted: weighted}, err
	case "min_by", "max_by":
		return &by{max: fn == "max_by"}, nil
	case "distinct":
		return &hyperLogLog{}, nil
	case "quantile":
		p, err := shareOf(param)
		return &histogram{p: p}, err
	case "variance", "stddev":
		return &moments{t: momentsTag(typ, fn == "stddev")}, nil
	}
	panic(fmt.Sprintf("agg: %s has no feed", fn))
}
