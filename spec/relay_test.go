package spec_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
)

// TestSortAndLimit sorts the rows of each batch and hands on the first of them, of all and for each value of a field; rows of several
// partitions, tasks and ways count alike.
func TestSortAndLimit(t *testing.T) {
	build := parsed(t, fmt.Sprintf(lookupHead, "stop")+`
streams:
  big:
    from: orders
    steps:
      - filter: amount > 4
      - set: {amount: amount + 100}
  ranked:
    from: [orders, big]
    steps:
      - sort: [amount desc, who]
      - set: {row: '(who ?? "-") + ":" + string(amount ?? 0)'}
      - set: {all: '"x"'}
      - group_by: [all]
      - aggregate: {rows: collect(row)}
  least:
    from: orders
    steps:
      - sort: amount
      - limit: 2
      - set: {all: '"x"'}
      - group_by: [all]
      - aggregate: {rows: collect(amount)}
  first:
    from: [orders, people]
    steps:
      - limit: 2
      - set: {all: '"x"'}
      - group_by: [all]
      - aggregate: {rows: count()}
  each:
    from: [orders, big]
    steps:
      - filter: who != nil
      - sort: [amount desc]
      - limit: {rows: 2, per: [who]}
      - group_by: [who]
      - aggregate: {rows: collect(amount)}
`)
	none := `{"amount":3,"at":"1970-01-01T00:01:40Z"}`
	null := `{"who":"nil","at":"1970-01-01T00:01:40Z"}`
	in := []enginetest.Input{
		{
			"orders/0": {buys("bob", 5, 100), buys("ann", 1, 100), buys("ann", 3, 100)}, "orders/1": {buys("ann", 5, 100), buys("bob", 2, 100), none, null},
			"people": {`{"id":"x"}`},
		},
		{"people": {`{"id":"x"}`}},
		{"orders/1": {buys("ann", 7, 101)}},
	}
	r := enginetest.Run(t, build(), in...)
	lists := func(state string) []string {
		got := enginetest.State[string, []string](r, state)
		return got["x"]
	}
	numbers := enginetest.State[string, []int64](r, "least")["x"]
	want := []string{
		"ann:105", "bob:105", "ann:5", "bob:5", "-:3", "ann:3", "bob:2", "ann:1", "nil:0",
		"ann:107", "ann:7",
	}
	if got := lists("ranked"); !slices.Equal(got, want) {
		t.Errorf("ranked has %q, want %q", got, want)
	}
	if want := []int64{1, 7}; !slices.Equal(numbers, want) { // the first is null, which collect passes over
		t.Errorf("least has %v, want %v", numbers, want)
	}
	if n := enginetest.State[string, int64](r, "first")["x"]; n != 4 {
		t.Errorf("first has %d rows, want 2, 1, 1", n)
	}
	each := enginetest.State[string, []int64](r, "each")
	for who, want := range map[string][]int64{"ann": {105, 5, 107, 7}, "bob": {105, 5}} {
		if !slices.Equal(each[who], want) {
			t.Errorf("%s has %v, want %v", who, each[who], want)
		}
	}
	enginetest.Deterministic(t, build, in...)
}

// TestRelayKeeps holds that rows go through sort, limit and repartitions with their event times, lateness, properties and fields that nobody declared.
func TestRelayKeeps(t *testing.T) {
	for _, step := range []string{
		"sort: at", "limit: 1000", "limit: {rows: 1000, per: [who]}", "repartition: shuffle", "repartition: global",
		"repartition: {by: [who], into: 3}", "repartition: {into: 200}",
	} {
		build := parsed(t, fmt.Sprintf(lookupHead, "skip")+`
streams:
  others: {from: people, steps: [{aggregate: {n: count()}}]}
  minutes:
    from: orders
    steps:
      - flat_map: {copy: "[1, 2]"}
      - `+step+`
      - set: {where: string(_offset) + "@" + _topic + "/" + to.city}
      - window: {tumbling: 1m}
      - group_by: [where]
      - aggregate: {n: count()}
`)
		city := func(at int) string { return fmt.Sprintf(`{"who":"ann","at":%q,"to":{"city":"Oslo"}}`, stamp(at)) }
		in := []enginetest.Input{
			{"orders/0": {city(100), city(110)}, "orders/1": {city(200)}},
			{"orders/0": {city(200)}},
			{"orders/0": {city(60)}},
		}
		r := enginetest.Run(t, build(), in...)
		at := func(second int, where string) engine.Windowed[string] {
			return engine.At(time.Unix(int64(second), 0).UTC(), where)
		}
		want := map[engine.Windowed[string]]int64{
			at(60, "0@orders/Oslo"): 2, at(60, "1@orders/Oslo"): 2, at(180, "0@orders/Oslo"): 2, at(180, "2@orders/Oslo"): 2,
		}
		if got := enginetest.State[engine.Windowed[string], int64](r, "minutes"); !maps.Equal(got, want) {
			t.Errorf("%s: the windows are %v, want %v", step, got, want)
		}
		if bad := r.Rejected(); len(bad) != 2 || bad[0].Kind != "late" || bad[1].Kind != "late" {
			t.Errorf("%s: turned away: %+v", step, bad)
		}
	}
}

// TestRepartition holds that a repartition loses and doubles nothing, that equal rows meet, and that its outcome is a function of the batches.
func TestRepartition(t *testing.T) {
	build := parsed(t, fmt.Sprintf(lookupHead, "stop")+`
streams:
  others: {from: people, steps: [{aggregate: {n: count()}}]}
  spread:
    from: orders
    parallelism: 2
    steps:
      - flat_map: {n: "[1, 2, 3]"}
      - repartition: shuffle
      - set: {what: who + string(n)}
      - group_by: [what]
      - aggregate: {rows: count(), sum: sum(amount)}
  together:
    from: spread
    steps:
      - repartition: {by: [what], into: 4}
      - set: {all: '"x"'}
      - group_by: [all]
      - aggregate: {updates: count()}
`)
	var in []enginetest.Input
	for i := range 3 {
		var one, two []string
		for k := range 20 {
			one = append(one, buys("ann", k, 100+i))
			two = append(two, buys("bob", k, 100+i))
		}
		in = append(in, enginetest.Input{"orders/0": one, "orders/1": two})
	}
	type totals struct{ Rows, Sum int64 }
	r := enginetest.Run(t, build(), in...)
	got := enginetest.State[string, totals](r, "spread")
	if len(got) != 6 {
		t.Errorf("spread has the groups %v", got)
	}
	for what, v := range got { // order: each is looked at alone
		if v != (totals{60, 570}) {
			t.Errorf("%s has %v", what, v)
		}
	}
	if n := enginetest.State[string, int64](r, "together")["x"]; n != 18 {
		t.Errorf("%d rows came to together, want 18", n)
	}
	enginetest.Deterministic(t, build, in...)
}
