package spec_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
	"github.com/tridentd/tridentd/spec"
)

const lookupHead = `
pipeline: p
on_bad_record: %s
sources:
  people:
    kafka: {brokers: ["127.0.0.1:1"], topics: [people]}
    decode: json
    types: {id: string}
  orders:
    kafka: {brokers: ["127.0.0.1:1"], topics: [orders]}
    decode: json
    types: {who: string, amount: int, at: timestamp}
    time: {field: at, lateness: 10s}
`

func parsed(t *testing.T, text string) func() *engine.Pipeline {
	t.Helper()
	return func() *engine.Pipeline {
		p, err := spec.Parse("p.yaml", []byte(text), spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		pl, err := p.Plan()
		if err != nil {
			t.Fatal(err)
		}
		return engine.Wrap(pl)
	}
}

func buys(who string, amount, at int) string {
	return fmt.Sprintf(`{"who":%q,"amount":%d,"at":%q}`, who, amount, stamp(at))
}

type placed struct{ Who, Land string }

// personRow is a row of the table person: the fields that lookups name.
type personRow struct {
	City codec.Null[string] `json:"home.city"`
	Land string
}

// TestLookupLatest looks rows up in a table that changes: a lookup sees what its own batch has made of the table, whichever was
// written first; no match gives nulls, or no row; removed rows are gone.
func TestLookupLatest(t *testing.T) {
	build := parsed(t, fmt.Sprintf(lookupHead, "stop")+`
states:
  person: {latest: {from: people, key: id, remove: gone}}
streams:
  all:
    from: orders
    steps:
      - lookup: {state: person, key: who, as: p}
      - set:
          land: '"" + (p.land ?? (p.id == nil ? "nobody" : "nowhere"))'
      - group_by: [who, land]
      - aggregate: {n: count()}
  known:
    from: orders
    steps:
      - lookup: {state: person, key: lower(who), as: p, kind: inner}
      - set:
          land: string(p.home.city ?? "-") + "/" + string(_offset)
      - group_by: [who, land]
      - aggregate: {n: count()}
`)
	in := []enginetest.Input{
		{"orders": {buys("ann", 1, 100), buys("bob", 1, 100)}, "people": {`{"id":"ann","land":"no","home":{"city":"Oslo"}}`}},
		{"orders": {buys("ann", 1, 101)}, "people/1": {`{"id":"bob"}`, `{"id":"ann","land":"x"}`, `{"id":"ann","land":"se","home":{"city":"Lund"}}`}},
		{"orders": {buys("ann", 1, 102), buys("bob", 1, 102), buys("ANN", 1, 102)}, "people": {`{"id":"ann","gone":true}`, `{"id":"ann","land":"dk"}`, `{"id":"bob","gone":true}`}},
	}
	r := enginetest.Run(t, build(), in...)
	wantRows[placed](t, r.At(1), "all", "ann no", "bob nobody")
	wantRows[placed](t, r.At(2), "all", "ann no", "bob nobody", "ann se")
	wantRows[placed](t, r, "all", "ann no", "bob nobody times 2", "ann se", "ann dk", "ANN nobody")
	wantRows[placed](t, r, "known", "ann Oslo/0", "ann Lund/2", "ann -/3", "ANN -/5")
	if rows := enginetest.State[string, personRow](r, "person"); len(rows) != 1 || rows["ann"].Land != "dk" {
		t.Errorf("person has the rows %v", rows)
	}
	enginetest.Deterministic(t, build, in...)
}

// TestLookupWindows looks rows of windows up by their starts: tumbling and sliding ones, days of a time zone, and windows by batch time. A lookup sees
// what its own batch has made of them; a start at which no window begins, and null, find nothing.
func TestLookupWindows(t *testing.T) {
	build := parsed(t, fmt.Sprintf(lookupHead, "stop")+`
streams:
  p: {from: people, steps: [{aggregate: {n: count()}}]}
  minutes:
    from: orders
    steps:
      - window: {tumbling: 1m}
      - group_by: [who]
      - aggregate: {orders: count(), most: max(amount)}
  slides:
    from: orders
    steps:
      - window: {sliding: 1m, every: 20s}
      - group_by: [who]
      - aggregate: {orders: count()}
  days:
    from: orders
    steps:
      - window: {tumbling: 1d, zone: Europe/Berlin}
      - aggregate: {orders: count()}
  found:
    from: orders
    steps:
      - set:
          start: truncate(at, "1m")
          slide: 'amount == 9 ? nil : truncate(at, "20s")'
          day: timestamp("1969-12-31T23:00:00Z")
      - lookup: {state: minutes, key: [start, who], as: m}
      - lookup: {state: slides, key: [slide, who], as: s}
      - lookup: {state: minutes, key: ['add(start, "1s")', who], as: none}
      - lookup: {state: days, key: day, as: d}
      - filter: none.orders == nil && m.window_start == start && m.who == who && (s.window_end == nil || s.window_end == add(slide, "1m"))
      - set:
          land: string(m.orders) + "/" + string(m.most) + "/" + string(s.orders ?? 0) + "/" + string(d.orders)
      - group_by: [who, land]
      - aggregate: {n: count()}
`)
	in := []enginetest.Input{
		{"orders": {buys("ann", 1, 100), buys("ann", 3, 110), buys("bob", 2, 100)}},
		{"orders": {buys("ann", 2, 119), buys("ann", 9, 121)}},
	}
	r := enginetest.Run(t, build(), in...)
	wantRows[placed](t, r.At(1), "found", "ann 2/3/2/3 times 2", "bob 1/2/1/3")
	wantRows[placed](t, r, "found", "ann 2/3/2/3 times 2", "bob 1/2/1/3", "ann 3/3/4/5", "ann 1/9/0/5")
	enginetest.Deterministic(t, build, in...)
}

type seenBy struct {
	Who  string
	Land codec.Null[string]
}

// TestLookupTime keeps event time and lateness on the way through lookups.
func TestLookupTime(t *testing.T) {
	build := parsed(t, fmt.Sprintf(lookupHead, "skip")+`
states:
  person: {latest: {from: people, key: id}}
streams:
  seen:
    from: orders
    steps:
      - group_by: [who]
      - aggregate: {orders: count(), last: max(amount)}
  total:
    from: orders
    steps:
      - aggregate: {everything: count()}
  hourly:
    from: orders
    steps:
      - lookup: {state: person, key: who, as: p}
      - lookup: {state: seen, key: who, as: s}
      - lookup: {state: total, as: t}
      - set:
          who: who + string(s.orders) + "/" + string(t.everything)
          land: p.land
      - window: {tumbling: 1m}
      - group_by: [who, land]
      - aggregate: {n: count()}
`)
	in := []enginetest.Input{
		{"people": {`{"id":"ann","land":"no"}`}, "orders": {buys("ann", 1, 100), buys("ann", 1, 110)}},
		{"orders": {buys("bob", 1, 200)}},
		{"orders": {buys("ann", 9, 100)}},
	}
	r := enginetest.Run(t, build(), in...)
	got := enginetest.State[engine.Windowed[seenBy], int64](r, "hourly")
	want := map[engine.Windowed[seenBy]]int64{
		engine.At(time.Unix(60, 0).UTC(), seenBy{"ann2/2", codec.Of("no")}):        2,
		engine.At(time.Unix(180, 0).UTC(), seenBy{"bob1/3", codec.Null[string]{}}): 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("hourly is %v, want %v", got, want)
	}
	if bad := r.Rejected(); len(bad) != 1 || bad[0].Kind != "late" {
		t.Errorf("turned away: %+v", bad)
	}
	enginetest.Deterministic(t, build, in...)
}

// TestTombstones removes rows of tables by records without a value, told by the record's key; to anything else that begins at the source,
// and to a table whose key is a field of the value, they are bad records.
func TestTombstones(t *testing.T) {
	const states = `
states:
  person: {latest: {from: people, key: string(_key), fields: [land]}}
`
	has := func(key, value string) string {
		return enginetest.Record(batch.Record{Key: []byte(key), Value: []byte(value)})
	}
	tombstone := func(key string) string { return enginetest.Record(batch.Record{Key: []byte(key)}) }
	in := []enginetest.Input{
		{"people": {has("a", `{"land":"no"}`), has("b", `{"land":"se"}`), tombstone("a"), tombstone("c")}},
		{"people": {tombstone("b"), has("a", `{"land":"dk"}`), has("d", `{"land":"fi"}`)}},
		{"people": {has("d", `{"land":"is"}`), tombstone("d")}, "people/1": {has("b", `{"land":null}`)}},
	}
	only := parsed(t, fmt.Sprintf(lookupHead, "stop")+states+`
streams:
  n: {from: orders, steps: [{aggregate: {n: count()}}]}
`)
	r := enginetest.Run(t, only(), in...)
	for txid, want := range []string{1: "map[b:{se}]", 2: "map[a:{dk} d:{fi}]", 3: "map[a:{dk} b:{}]"} {
		if txid == 0 {
			continue
		}
		rows := map[string]struct{ Land string }{}
		for k, v := range enginetest.State[string, landRow](r.At(batch.Txid(txid)), "person") { // order: into a map
			rows[k] = struct{ Land string }{v.Land.V}
		}
		if got := fmt.Sprint(rows); got != want {
			t.Errorf("txid %d: %s, want %s", txid, got, want)
		}
	}
	enginetest.Deterministic(t, only, in...)

	shared := parsed(t, fmt.Sprintf(lookupHead, "skip")+states+`
  byID: {latest: {from: people, key: id}}
streams:
  n: {from: people, steps: [{aggregate: {n: count()}}]}
  o: {from: orders, steps: [{aggregate: {n: count()}}]}
`)
	r = enginetest.Run(t, shared(), enginetest.Input{"people": {has("a", `{"land":"no","id":"x"}`), tombstone("a"), has("b", `{"land":"se"}`)}})
	if rows := enginetest.State[string, landRow](r, "person"); len(rows) != 1 || rows["b"].Land.V != "se" {
		t.Errorf("person has the rows %v", rows)
	}
	var causes []string
	for _, bad := range r.Rejected() {
		causes = append(causes, fmt.Sprintf("%d %s: %s", bad.Offset, bad.Step, bad.Cause))
	}
	want := []string{
		"1 decode: the value is null", "1 latest byID: the value is null, and the key of the row to remove is a field of it",
		"2 latest byID: the key id is null",
	}
	if !slices.Equal(causes, want) {
		t.Errorf("turned away: %q, want %q", causes, want)
	}
}

type landRow struct{ Land codec.Null[string] }

// TestTombstonesOfDocuments: a record without a value removes its row whatever values are decoded from.
func TestTombstonesOfDocuments(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"x.avsc":  `{"type":"record","name":"X","fields":[{"name":"id","type":"string"}]}`,
		"x.proto": `syntax = "proto3"; message X { string id = 1; }`,
	} { // order: each by itself
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for decode, value := range map[string]string{
		"json":                     `{"id": "x"}`,
		"{avro: {schema: x.avsc}}": "\x02x",
		"{protobuf: {schema: x.proto, message: X}}": "\x0a\x01x",
	} { // order: each by itself
		p, err := spec.Parse("p.yaml", fmt.Appendf(nil, `
pipeline: p
sources:
  xs: {kafka: {brokers: ["127.0.0.1:1"], topics: [xs]}, decode: %s}
  ys: {kafka: {brokers: ["127.0.0.1:1"], topics: [ys]}, decode: string}
states:
  last: {latest: {from: xs, key: string(_key), fields: [id]}}
streams:
  n: {from: ys, steps: [{aggregate: {n: count()}}]}
`, decode), spec.Options{Dir: dir})
		if err != nil {
			t.Fatal(decode, err)
		}
		pl, err := p.Plan()
		if err != nil {
			t.Fatal(decode, err)
		}
		has := func(key string) string {
			return enginetest.Record(batch.Record{Key: []byte(key), Value: []byte(value)})
		}
		none := func(key string) string { return enginetest.Record(batch.Record{Key: []byte(key)}) }
		r := enginetest.Run(t, engine.Wrap(pl), enginetest.Input{"xs": {has("a"), has("b"), has("c"), none("a")}}, enginetest.Input{"xs": {none("b")}})
		if rows := enginetest.State[string, struct{ ID string }](r, "last"); len(rows) != 1 || rows["c"].ID != "x" {
			t.Errorf("%s: rows %v, want that of c alone", decode, rows)
		}
	}
}
