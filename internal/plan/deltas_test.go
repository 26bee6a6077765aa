package plan

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/state"
)

func TestDeltasGroupByShardAndKeepTheirOrder(t *testing.T) {
	type entry struct{ key, value []byte }
	d := new(Deltas)
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(1, 300).Draw(t, "shards")
		entries := rapid.SliceOf(rapid.Custom(func(t *rapid.T) entry {
			return entry{rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "key"), rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "value")}
		})).Draw(t, "entries")
		d.Reset(shards)
		want := make([][]entry, shards)
		for _, e := range entries {
			if err := d.Add(e.key, e.value); err != nil {
				t.Fatal(err)
			}
			s := state.ShardOf(e.key, shards)
			want[s] = append(want[s], e)
		}
		d.Finish()
		if d.Len() != len(entries) {
			t.Fatalf("Len %d, want %d", d.Len(), len(entries))
		}
		for s := range shards {
			got := d.Shard(s)
			if len(got) != len(want[s]) {
				t.Fatalf("shard %d has %d entries, want %d", s, len(got), len(want[s]))
			}
			for i := range got {
				if !bytes.Equal(d.Key(&got[i]), want[s][i].key) || !bytes.Equal(d.Value(&got[i]), want[s][i].value) {
					t.Fatalf("shard %d entry %d: %x %x, want %x %x", s, i, d.Key(&got[i]), d.Value(&got[i]), want[s][i].key, want[s][i].value)
				}
				if i > 0 && !got[i-1].Before(&got[i]) && len(want[s][i-1].key)+len(want[s][i-1].value) > 0 {
					t.Fatalf("shard %d: entry %d isn't before entry %d", s, i-1, i)
				}
			}
		}
	})
}

func TestPrefixOrdersAsKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "a")
		b := rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "b")
		if pa, pb := prefix(a), prefix(b); pa < pb && bytes.Compare(a, b) >= 0 {
			t.Fatalf("%x has a lower prefix than %x", a, b)
		}
	})
}
