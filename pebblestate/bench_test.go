package pebblestate

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/state"
)

// BenchmarkCommit writes 50,000 of a million keys with each synced commit.
func BenchmarkCommit(b *testing.B) {
	const keys, perCommit = 1_000_000, 50_000
	for _, op := range []state.Op{state.Set, state.Merge} {
		b.Run([]string{"set", "merge"}[op], func(b *testing.B) {
			o := testOptions(nil)
			o.Dir, o.Shards = b.TempDir()+"/words", DefaultShards
			o.MemTableBytes, o.CacheBytes = 0, 0
			db := mustOpen(b, o)
			defer mustClose(b, db)
			rnd := rand.New(rand.NewPCG(1, 1))
			sets := make([]*state.WriteSet, 8)
			for i := range sets {
				seen := map[int]bool{}
				var ws []state.Write
				for len(ws) < perCommit {
					if k := rnd.IntN(keys); !seen[k] {
						seen[k] = true
						ws = append(ws, state.Write{Op: op, Key: fmt.Appendf(nil, "user-%08d", k), Value: num(1)})
					}
				}
				sets[i] = setOf("s", o.Shards, ws...)
			}
			txid := batch.Txid(0)
			for b.Loop() {
				txid++
				mustCommit(b, db, commitOf(txid, sets[int(txid)%len(sets)]))
			}
			b.ReportMetric(float64(perCommit)*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
		})
	}
}

// BenchmarkGet reads keys that the cache holds, and keys that it can't hold.
func BenchmarkGet(b *testing.B) {
	const keys = 200_000
	for name, cacheBytes := range map[string]int64{"cached": 1 << 30, "missed": 1} {
		b.Run(name, func(b *testing.B) {
			o := testOptions(nil)
			o.Dir, o.Shards = b.TempDir()+"/words", DefaultShards
			o.MemTableBytes, o.CacheBytes = 0, cacheBytes
			db := mustOpen(b, o)
			defer mustClose(b, db)
			ws := make([]state.Write, keys)
			for i := range ws {
				ws[i] = set(fmt.Sprintf("user-%08d", i), "0123456789")
			}
			mustCommit(b, db, commitOf(1, setOf("s", o.Shards, ws...)))
			if err := db.pebble.Flush(); err != nil {
				b.Fatal(err)
			}
			r, err := db.State("s")
			if err != nil {
				b.Fatal(err)
			}
			i := 0
			for b.Loop() {
				if i++; i == keys {
					i = 0
				}
				if _, ok, err := r.Get(b.Context(), ws[i*7919%keys].Key); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
