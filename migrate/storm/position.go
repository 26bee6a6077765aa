package storm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tridentd/tridentd/batch"
)

// Position is how far a topology has come in one partition.
type Position struct {
	Topic     string
	Partition int32
	Next      int64 // the offset to be processed next
	// From is where that was found: the path of a node, a line of a file.
	From string
	// Txid is the Trident transaction that Next was taken from; 0 where there are none.
	Txid int64
	// Topology names who wrote it, as far as that is known.
	Topology string
}

// Left is what a topology has left behind.
type Left struct {
	Positions []Position // by topic and partition, each once
	// Current is Trident's transaction that isn't known to have committed, which the values of its states are judged by; 0
	// where there are no transactions.
	Current int64
}

// Nodes are the nodes of ZooKeeper. Paths are absolute.
type Nodes interface {
	// Get returns the data of a node; ok is false if there is none.
	Get(ctx context.Context, path string) (data []byte, ok bool, err error)
	// Children returns the names of a node's children; ok is false if there is no such node.
	Children(ctx context.Context, path string) (names []string, ok bool, err error)
}

// findings gathers positions and what is wrong, so that everything is told at once.
type findings struct {
	left Left
	errs []error
	seen map[at]string // where a partition was found
}

type at struct {
	topic     string
	partition int32
}

func (f *findings) add(p Position) {
	if f.seen == nil {
		f.seen = map[at]string{}
	}
	key := at{p.Topic, p.Partition}
	if other, ok := f.seen[key]; ok {
		f.fail(p.From, "name the one that counts by its path or id", "is about %s-%d, and so is %s", p.Topic, p.Partition, other)
		return
	}
	f.seen[key] = p.From
	f.left.Positions = append(f.left.Positions, p)
}

func (f *findings) fail(where, remedy, format string, args ...any) {
	f.errs = append(f.errs, failure(where, remedy, format, args...))
}

// failure says what is wrong with what was found at a place.
func failure(where, remedy, format string, args ...any) error {
	return batch.NewError(batch.Permanent, batch.CodeRecordGarbled, "import", fmt.Errorf("%s "+format, append([]any{where}, args...)...), remedy)
}

// result is what has been found, in order.
func (f *findings) result(where, remedy string) (*Left, error) {
	if len(f.errs) > 0 {
		return nil, errors.Join(f.errs...)
	}
	if len(f.left.Positions) == 0 {
		return nil, failure(where, remedy, "holds no position")
	}
	slices.SortFunc(f.left.Positions, func(a, b Position) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return &f.left, nil
}
