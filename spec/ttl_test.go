package spec_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/engine/enginetest"
	"github.com/tridentd/tridentd/spec"
)

const ttlHead = `
pipeline: p
on_bad_record: stop
sources:
  timed:
    kafka: {brokers: ["127.0.0.1:1"], topics: [timed]}
    decode: json
    types: {k: string, n: int, at: timestamp}
    time: {field: at}
  plain:
    kafka: {brokers: ["127.0.0.1:1"], topics: [plain]}
    decode: json
    types: {k: string, n: int}
`

func timedRecord(k string, n, at int) string {
	return fmt.Sprintf(`{"k":%q,"n":%d,"at":%q}`, k, n, stamp(at))
}

// TestTTLByEventTime: rows of an aggregate and of a table are forgotten once the watermark is so much past the latest of their values; lookups
// and streams of new values see it.
func TestTTLByEventTime(t *testing.T) {
	build := parsed(t, ttlHead+`
states:
  table: {latest: {from: timed, key: k, fields: [n], ttl: 10s}}
streams:
  sums:
    from: timed
    steps:
      - group_by: [k]
      - aggregate: {total: sum(n)}
        ttl: 10s
  totals:
    from: sums
    steps:
      - group_by: [k, total]
      - aggregate: {times: count()}
  found:
    from: plain
    steps:
      - lookup: {state: sums, key: k, as: s}
      - lookup: {state: table, key: k, as: t}
      - group_by: [n, k, s.total, t.n]
      - aggregate: {times: count()}
`)
	asks := func(n int, k string) string { return fmt.Sprintf(`{"k":%q,"n":%d}`, k, n) }
	in := []enginetest.Input{
		{"timed": {timedRecord("a", 1, 100), timedRecord("a", 2, 98), timedRecord("b", 4, 103)}, "plain": {asks(1, "a"), asks(1, "b")}},
		{"timed": {timedRecord("c", 8, 109)}, "plain": {asks(2, "a")}},
		{"timed": {timedRecord("c", 16, 110)}, "plain": {asks(3, "a")}}, // watermark 109
		{"plain": {asks(4, "a"), asks(4, "b")}},                         // watermark 110: a has expired
		{"timed": {timedRecord("a", 32, 101)}, "plain": {asks(5, "a")}}, // late: a new row, as of 110
		{"timed": {timedRecord("d", 64, 119)}},
		{"plain": {asks(7, "a"), asks(7, "b"), asks(7, "c")}}, // watermark 119
	}
	r := enginetest.Run(t, build(), in...)
	sums := func(txid batch.Txid, want map[string]int64) {
		t.Helper()
		if got := enginetest.State[string, int64](r.At(txid), "sums"); !maps.Equal(got, want) {
			t.Errorf("txid %d: sums %v, want %v", txid, got, want)
		}
	}
	sums(3, map[string]int64{"a": 3, "b": 4, "c": 24})
	sums(4, map[string]int64{"b": 4, "c": 24})
	sums(5, map[string]int64{"a": 32, "b": 4, "c": 24})
	sums(7, map[string]int64{"a": 32, "c": 24, "d": 64})
	type row struct{ N int64 }
	if got := enginetest.State[string, row](r, "table"); !maps.Equal(got, map[string]row{"a": {32}, "c": {16}, "d": {64}}) {
		t.Errorf("table %v", got)
	}
	type total struct {
		K     string
		Total codec.Null[int64]
	}
	got := enginetest.State[total, int64](r, "totals")
	for k, n := range map[string]int64{"a": 3, "b": 4} {
		if got[total{k, codec.Of(n)}] != 1 {
			t.Errorf("totals %v lack %s=%d", got, k, n)
		}
	}
	if got[total{"a", codec.Of(int64(32))}] != 1 || got[total{"a", codec.Of(int64(35))}] != 0 {
		t.Errorf("totals %v: a goes on with what had expired", got)
	}
	type found struct {
		N    int64
		K    string
		S, T codec.Null[int64]
	}
	seen := map[string]int64{}
	for f, n := range enginetest.State[found, int64](r, "found") { // order: into a map
		text := fmt.Sprintf("%d%s", f.N, f.K)
		if f.S.Valid && f.T.Valid {
			text += fmt.Sprintf(" %d %d", f.S.V, f.T.V)
		} else if f.S.Valid != f.T.Valid {
			text += " half"
		}
		seen[text] = n
	}
	wantSeen := map[string]int64{"1a 3 2": 1, "1b 4 4": 1, "2a 3 2": 1, "3a 3 2": 1, "4a": 1, "4b 4 4": 1, "5a 32 32": 1, "7a 32 32": 1, "7b": 1, "7c 24 16": 1}
	if !maps.Equal(seen, wantSeen) {
		t.Errorf("found %v, want %v", seen, wantSeen)
	}
	enginetest.Deterministic(t, build, in...)
}

func TestTTLByBatch(t *testing.T) {
	build := parsed(t, ttlHead+`
streams:
  sums:
    from: [timed, plain]
    steps:
      - group_by: [k]
      - aggregate: {total: sum(n), mean: avg(n)}
        ttl: 1m
        ttl_by: batch
`)
	at := func(s int) time.Time { return enginetest.Clock.Add(time.Duration(s) * time.Second) }
	put := func(k string, s int) enginetest.Input {
		return enginetest.Input{"plain": {fmt.Sprintf(`{"k":%q,"n":1}`, k)}}.At(at(s))
	}
	in := []enginetest.Input{put("a", 0), put("b", 30), put("c", 59), put("a", 60), put("b", 89)}
	r := enginetest.Run(t, build(), in...)
	type sum struct {
		Total int64
		Mean  float64
	}
	for txid, want := range []map[string]sum{3: {"a": {1, 1}, "b": {1, 1}, "c": {1, 1}}, 4: {"a": {1, 1}, "b": {1, 1}, "c": {1, 1}}, 5: {"a": {1, 1}, "b": {2, 1}, "c": {1, 1}}} {
		if txid < 3 {
			continue
		}
		if got := enginetest.State[string, sum](r.At(batch.Txid(txid)), "sums"); !maps.Equal(got, want) {
			t.Errorf("txid %d: %v, want %v", txid, got, want)
		}
	}
	enginetest.Deterministic(t, build, in...)
}

func TestTTLMistakes(t *testing.T) {
	for text, want := range map[string]string{
		`{from: plain, steps: [{group_by: [k], }, {aggregate: {n: count()}, ttl: 1h}]}`:                                "ttl (without ttl_by: batch) needs event time, and source plain (line 10) has no time:",
		`{from: timed, steps: [{group_by: [k]}, {aggregate: {n: count()}, ttl_by: batch}]}`:                            "there is no ttl",
		`{from: timed, steps: [{window: {tumbling: 1h}}, {group_by: [k]}, {aggregate: {n: count()}, ttl: 1h}]}`:        "the rows of windows have no ttl",
		`{from: timed, steps: [{group_by: [k]}, {batch_aggregate: {n: count()}, ttl: 1h}, {aggregate: {m: count()}}]}`: "ttl is an option of aggregate, not of batch_aggregate",
		`{from: timed, steps: [{group_by: [k]}, {aggregate: {n: count()}, ttl: 0s}]}`:                                  "ttl",
	} { // order: each by itself
		_, err := spec.Parse("p.yaml", []byte(ttlHead+"streams:\n  s: "+text+"\n"), spec.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestTTLTombstones: a record without a value, which has no event time, removes its row from a table whose rows expire by event time; what comes
// for its key in the same batch counts as of its own time.
func TestTTLTombstones(t *testing.T) {
	build := parsed(t, ttlHead+`
states:
  table: {latest: {from: timed, key: string(_key), fields: [n], ttl: 10s}}
streams:
  other: {from: plain, steps: [{aggregate: {n: count()}}]}
`)
	has := func(key string, n, at int) string {
		return enginetest.Record(batch.Record{Key: []byte(key), Value: []byte(timedRecord(key, n, at))})
	}
	none := func(key string) string { return enginetest.Record(batch.Record{Key: []byte(key)}) }
	in := []enginetest.Input{
		{"timed": {has("a", 1, 100), has("b", 2, 100), none("a"), none("c"), none("b"), has("b", 3, 101)}},
		{"timed": {none("x"), has("z", 4, 110)}},
		{"timed": {none("x")}}, // watermark 110: b lives till 111
		{"timed": {has("z", 5, 111)}},
		{"timed": {none("z")}},
	}
	r := enginetest.Run(t, build(), in...)
	type row struct{ N int64 }
	for txid, want := range []map[string]row{1: {"b": {3}}, 2: {"b": {3}, "z": {4}}, 3: {"b": {3}, "z": {4}}, 4: {"b": {3}, "z": {5}}, 5: {}} {
		if txid == 0 {
			continue
		}
		if got := enginetest.State[string, row](r.At(batch.Txid(txid)), "table"); !maps.Equal(got, want) {
			t.Errorf("txid %d: %v, want %v", txid, got, want)
		}
	}
	enginetest.Deterministic(t, build, in...)
}
