package exec

import (
	"bytes"
	"context"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/state"
)

// KeyDifference is one key that a batch wrote otherwise than it was recorded.
type KeyDifference struct {
	State     string
	Key       []byte
	Want, Got *state.Write // recorded, and now; nil: none
	// Window says that Key is the start of a window whose rows only one of the two drops: the one that has a write, which then
	// is a deletion.
	Window bool
	// From are the partitions whose records reach the key now; none where that can't be told.
	From []batch.Partition
}

// keyDifferences bounds Difference.Keys.
const keyDifferences = 5

// compareKept compares what a processed batch writes with what had been kept of its writes.
func (x *Executor) compareKept(ctx context.Context, b *batch.Batch, kept func(context.Context, batch.Txid) ([]*state.WriteSet, bool, error)) (*Difference, error) {
	want, ok, err := kept(ctx, b.Txid)
	damaged := err != nil && batch.CodeOf(err) == batch.CodeStoreDamaged && want != nil
	if err != nil && !damaged || !ok {
		return nil, x.located(err, b.Txid)
	}
	x.mu.Lock()
	f := x.flights[b.Txid]
	x.mu.Unlock()
	keys := differentWrites(want, f.sets)
	if len(keys) == 0 && !damaged {
		return nil, nil
	}
	for i := range keys {
		keys[i].From = x.reach(f, &keys[i])
	}
	d := &Difference{Txid: b.Txid, What: "the kept changes", Keys: keys, Kept: true, Want: "other writes", Got: "those that its digests are of"}
	if damaged {
		d.Want = err.Error()
	} else if len(keys) > 0 {
		d.What = "the kept changes of state " + keys[0].State
	}
	return d, nil
}

// differentWrites lists the first keys, by state and key, that two lists of write sets, each by state, don't agree on.
func differentWrites(want, got []*state.WriteSet) []KeyDifference {
	var all []KeyDifference
	for len(want)+len(got) > 0 && len(all) < keyDifferences {
		var w, g *state.WriteSet
		if len(got) == 0 || len(want) > 0 && want[0].State <= got[0].State {
			w, want = want[0], want[1:]
		}
		if len(got) > 0 && (w == nil || w.State == got[0].State) {
			g, got = got[0], got[1:]
		}
		all = append(all, differentSets(w, g)...)
	}
	return all[:min(len(all), keyDifferences)]
}

// differentSets does so for one state; nil is no write.
func differentSets(want, got *state.WriteSet) []KeyDifference {
	none := &state.WriteSet{}
	if want == nil {
		want, none.State = none, got.State
	}
	if got == nil {
		got, none.State = none, want.State
	}
	all := differentRuns(dropsOf(want), dropsOf(got))
	for i := range all {
		all[i].Window = true
	}
	for i := range max(len(want.Shards), len(got.Shards)) {
		all = append(all, differentRuns(shardOf(want, i), shardOf(got, i))...)
	}
	for i := range all {
		all[i].State = got.State
	}
	slices.SortStableFunc(all, func(a, b KeyDifference) int { return bytes.Compare(a.Key, b.Key) })
	return all
}

func shardOf(s *state.WriteSet, i int) []state.Write {
	if i < len(s.Shards) {
		return s.Shards[i]
	}
	return nil
}

// dropsOf are the dropped windows as deletions.
func dropsOf(s *state.WriteSet) []state.Write {
	var all []state.Write
	for _, start := range s.DropWindows {
		all = append(all, state.Write{Op: state.Delete, Key: start})
	}
	return all
}

// differentRuns compares two lists of writes in key order, up to keyDifferences differences.
func differentRuns(want, got []state.Write) []KeyDifference {
	var all []KeyDifference
	for len(want)+len(got) > 0 && len(all) < keyDifferences {
		var d KeyDifference
		order := 0
		switch {
		case len(got) == 0:
			order = -1
		case len(want) == 0:
			order = 1
		default:
			order = bytes.Compare(want[0].Key, got[0].Key)
		}
		if order <= 0 {
			d.Key, d.Want, want = want[0].Key, &want[0], want[1:]
		}
		if order >= 0 {
			d.Key, d.Got, got = got[0].Key, &got[0], got[1:]
		}
		if order != 0 || d.Want.Op != d.Got.Op || !bytes.Equal(d.Want.Value, d.Got.Value) {
			all = append(all, d)
		}
	}
	return slices.Clip(all)
}

// reach lists the partitions with a delta for a key of a state that they feed without a stage between.
func (x *Executor) reach(f *flight, k *KeyDifference) []batch.Partition {
	if k.Window {
		return nil
	}
	var all []batch.Partition
	for i, e := range x.plan.Exchanges {
		if e.State == nil || e.State.Schema.Name != k.State {
			continue
		}
		shard := state.ShardOf(k.Key, x.cfg.Shards)
		for j, r := range f.results {
			d := r.out[i]
			if d.Len() == 0 {
				continue
			}
			deltas := d.Shard(shard)
			if slices.ContainsFunc(deltas, func(e plan.Delta) bool { return bytes.Equal(d.Key(&e), k.Key) }) {
				all = append(all, f.b.Ranges[j].Partition)
			}
		}
	}
	return all
}

// SchemasOf lists the schemas of all states that a plan keeps.
func SchemasOf(p *plan.Plan) []state.Schema { return schemasOf(p) }
