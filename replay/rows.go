package replay

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/exec"
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
	var raw []rawKey
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		for p, err := range differentRows(ctx, was, is, name) {
			if err != nil {
				return nil, err
			}
			k := p.text(schemas[name])
			raw = append(raw, rawKey{name, p.key})
			if keys = append(keys, k); len(keys) == shownKeys {
				return keys, r.lastWriters(ctx, keys, raw)
			}
		}
	}
	return keys, r.lastWriters(ctx, keys, raw)
}

// rawKey is a key as it is stored.
type rawKey struct {
	state string
	key   []byte
}

// lastWriters finds the batches that wrote the keys last, as far back as changes were kept.
func (r *run) lastWriters(ctx context.Context, keys []Key, raw []rawKey) error {
	missing := len(keys)
	for txid := r.last; txid > 0 && missing > 0; txid-- {
		sets, ok, err := r.o.Store.Changes(ctx, txid)
		switch {
		case batch.CodeOf(err) == batch.CodeStoreDamaged:
			return nil // who wrote what can't be told behind it
		case err != nil:
			return err
		case !ok && r.isReset(ctx, txid):
			continue
		case !ok:
			return nil
		}
		for i := range keys {
			if keys[i].Last == 0 && writes(sets, raw[i]) {
				keys[i].Last = txid
				missing--
			}
		}
	}
	return nil
}

// isReset tells whether a batch that is run is one that has no changes of its own.
func (r *run) isReset(ctx context.Context, txid batch.Txid) bool {
	if txid <= r.base || txid > r.o.To {
		return false
	}
	e := r.entry(ctx, txid)
	return e != nil && e.Reset
}

// writes tells whether the sets write a key.
func writes(sets []*state.WriteSet, k rawKey) bool {
	for _, s := range sets {
		if s.State != k.state {
			continue
		}
		if slices.ContainsFunc(s.DropWindows, func(start []byte) bool { return bytes.HasPrefix(k.key, start) }) {
			return true
		}
		_, found := slices.BinarySearchFunc(s.Shards[state.ShardOf(k.key, len(s.Shards))], k.key, func(w state.Write, key []byte) int {
			return bytes.Compare(w.Key, key)
		})
		return found
	}
	return false
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

// text is the pair as people read it: what can't be decoded, which a changed row may hold, as bytes.
func (p *pair) text(s state.Schema) Key {
	k := Key{State: s.Name, Key: fmt.Sprintf("%x", p.key)}
	cols, n := query.Columns(s), len(s.Key)
	for _, side := range []struct {
		value []byte
		to    *string
	}{{p.was, &k.Want}, {p.is, &k.Got}} {
		if side.value == nil {
			continue
		}
		row, err := query.Decode(nil, s, p.key, side.value)
		if err != nil || len(row) != len(cols) {
			*side.to = fmt.Sprintf("bytes %x", side.value)
			continue
		}
		k.Key, *side.to = fields(cols[:n], row[:n]), fields(cols[n:], row[n:])
	}
	return k
}

func fields(cols []state.Column, row []value.Value) string {
	all := make([]string, len(row))
	for i, v := range row {
		all[i] = cols[i].Name + "=" + string(value.AppendText(nil, v))
	}
	return strings.Join(all, " ")
}

// writtenKeys puts the writes of a batch into words.
func (r *run) writtenKeys(ks []exec.KeyDifference) []Key {
	schemas := map[string]state.Schema{}
	if snap, err := r.o.Store.Snapshot(); err == nil {
		schemas, _ = schemasOf(snap) // without a schema key and value are told as bytes
		snap.Close()                 //nolint:errcheck // nothing was written
	}
	for _, s := range exec.SchemasOf(r.plan) {
		if _, ok := schemas[s.Name]; !ok {
			schemas[s.Name] = s
		}
	}
	var keys []Key
	for i := range ks {
		k := &ks[i]
		s := schemas[k.State]
		key := Key{State: k.State, From: k.From, Want: writeText(s, k.Window, k.Want), Got: writeText(s, k.Window, k.Got)}
		if cols, err := query.Key(s, k.Key); err == nil && len(cols) > 0 {
			key.Key = fields(s.Key[:len(cols)], cols)
		} else {
			key.Key = fmt.Sprintf("%x", k.Key)
		}
		keys = append(keys, key)
	}
	return keys
}

// writeText is what a write does; empty for none.
func writeText(s state.Schema, window bool, w *state.Write) string {
	if w == nil {
		return ""
	}
	value := fmt.Sprintf("bytes %x", w.Value)
	cols := query.Columns(s)
	if row, err := query.Decode(nil, s, w.Key, w.Value); err == nil && s.Kind != "" && len(row) == len(cols) {
		value = fields(cols[len(s.Key):], row[len(s.Key):])
	}
	switch {
	case window:
		return "that the window is dropped"
	case w.Op == state.Delete:
		return "that it is removed"
	case w.Op == state.Merge:
		return value + " added"
	}
	return value
}
