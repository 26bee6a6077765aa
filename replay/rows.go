package replay

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
)

// differentKeys lists the first rows in which the states of the two stores differ.
func (r *run) differentKeys(ctx context.Context, db *pebblestate.DB) ([]Key, error) {
	was, err := r.o.Store.Snapshot()
	if err != nil {
		return nil, err
	}
	defer was.Close() //nolint:errcheck // nothing was written
	is, err := db.Snapshot()
	if err != nil {
		return nil, err
	}
	defer is.Close() //nolint:errcheck // nothing was written
	schemas, err := schemasOf(was, is)
	if err != nil {
		return nil, err
	}
	var keys []Key
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		for p, err := range differentRows(ctx, was, is, name) {
			if err != nil {
				return nil, err
			}
			k, err := p.text(schemas[name])
			if err != nil {
				return nil, err
			}
			if keys = append(keys, k); len(keys) == shownKeys {
				return keys, nil
			}
		}
	}
	return keys, nil
}

func schemasOf(snaps ...*pebblestate.Snapshot) (map[string]state.Schema, error) {
	all := map[string]state.Schema{}
	for _, s := range snaps {
		schemas, err := s.Schemas()
		if err != nil {
			return nil, err
		}
		for _, sc := range schemas {
			all[sc.Name] = sc
		}
	}
	return all, nil
}

// pair is one key with its two values; nil where there is none.
type pair struct{ key, was, is []byte }

// differentRows walks through a state in two snapshots, in key order.
func differentRows(ctx context.Context, was, is *pebblestate.Snapshot, name string) iter.Seq2[pair, error] {
	return func(yield func(pair, error) bool) {
		nextA, stopA := iter.Pull2(was.Scan(ctx, name, nil, nil))
		defer stopA()
		nextB, stopB := iter.Pull2(is.Scan(ctx, name, nil, nil))
		defer stopB()
		a, errA, moreA := nextA()
		b, errB, moreB := nextB()
		for moreA || moreB {
			if errA != nil || errB != nil {
				if errA == nil {
					errA = errB
				}
				yield(pair{}, errA)
				return
			}
			order := 0
			switch {
			case !moreA:
				order = 1
			case !moreB:
				order = -1
			default:
				order = bytes.Compare(a.Key, b.Key)
			}
			var p pair
			if order <= 0 {
				p.key, p.was = a.Key, a.Value
			}
			if order >= 0 {
				p.key, p.is = b.Key, b.Value
			}
			if (order != 0 || !bytes.Equal(p.was, p.is)) && !yield(p, nil) {
				return
			}
			if order <= 0 {
				a, errA, moreA = nextA()
			}
			if order >= 0 {
				b, errB, moreB = nextB()
			}
		}
	}
}

// text is the pair as people read it.
func (p *pair) text(s state.Schema) (Key, error) {
	c := Change{Schema: s}
	err := p.decode(&c)
	cols, n := query.Columns(s), len(s.Key)
	k := Key{State: s.Name, Key: fields(cols[:n], c.Key)}
	if c.Was != nil {
		k.Want = fields(cols[n:], c.Was)
	}
	if c.Now != nil {
		k.Got = fields(cols[n:], c.Now)
	}
	return k, err
}

func fields(cols []state.Column, row []value.Value) string {
	all := make([]string, len(row))
	for i, v := range row {
		all[i] = cols[i].Name + "=" + string(value.AppendText(nil, v))
	}
	return strings.Join(all, " ")
}
