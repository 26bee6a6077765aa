package replay

import (
	"context"
	"iter"

	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
)

// Change is one key of a state that differs between two stores. A row that isn't there is nil.
type Change struct {
	Schema   state.Schema
	Key      []value.Value
	Was, Now []value.Value // the values behind the key
}

// Changes lists the keys of a state whose values differ between two snapshots, in key order.
func Changes(ctx context.Context, was, now *pebblestate.Snapshot, name string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		schemas, err := schemasOf(was, now)
		if err != nil {
			yield(Change{}, err)
			return
		}
		s, ok := schemas[name]
		if !ok {
			_, err := query.Schema(now, name)
			yield(Change{}, err)
			return
		}
		for p, err := range differentRows(ctx, was, now, name) {
			c := Change{Schema: s}
			if err == nil {
				err = p.decode(&c)
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// decode fills in what the pair holds.
func (p *pair) decode(c *Change) error {
	for _, side := range []struct {
		value []byte
		to    *[]value.Value
	}{{p.was, &c.Was}, {p.is, &c.Now}} {
		if side.value == nil {
			continue
		}
		row, err := query.Decode(nil, c.Schema, p.key, side.value)
		if err != nil {
			return err
		}
		n := len(c.Schema.Key)
		c.Key, *side.to = row[:n], row[n:]
	}
	return nil
}
