package spec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
	"github.com/tridentd/tridentd/spec"
)

const joinHead = `
pipeline: p
on_bad_record: skip
sources:
  orders:
    kafka: {brokers: ["127.0.0.1:1"], topics: [orders]}
    decode: json
    types: {id: string, amount: int, placed_at: timestamp}
    time: {field: placed_at, lateness: %[1]s}
  payments:
    kafka: {brokers: ["127.0.0.1:1"], topics: [payments]}
    decode: json
    types: {paid_at: timestamp}
    time: {field: paid_at, lateness: %[1]s}
  notes:
    kafka: {brokers: ["127.0.0.1:1"], topics: [notes]}
    decode: json
streams:
  everything:
    from: [orders, payments, notes]
    steps:
      - aggregate: {n: count()}
`

func joining(t *testing.T, lateness, streams string) func() *engine.Pipeline {
	t.Helper()
	return parsed(t, fmt.Sprintf(joinHead, lateness)+streams)
}

func stamp(at int) string { return time.Unix(int64(at), 0).UTC().Format(time.RFC3339) }

func order(id string, amount, at int) string {
	return fmt.Sprintf(`{"id":%q,"amount":%d,"placed_at":%q,"to":{"city":"c%d"}}`, id, amount, stamp(at), amount)
}

func payment(of string, at int) string {
	return fmt.Sprintf(`{"order":%q,"by":"card %s","paid_at":%q}`, of, of, stamp(at))
}

// wantRows holds the keys of a state that counts rows, written one behind the other, against rows.
func wantRows[K comparable](t *testing.T, r *enginetest.Result, state string, rows ...string) {
	t.Helper()
	var got []string
	for k, n := range enginetest.State[K, int64](r, state) { // order: sorted below
		text := strings.Trim(fmt.Sprint(k), "{}")
		if n != 1 {
			text += fmt.Sprint(" times ", n)
		}
		got = append(got, text)
	}
	slices.Sort(got)
	slices.Sort(rows)
	if !slices.Equal(got, rows) {
		t.Errorf("%s at txid %d: %q, want %q", state, r.Txid(), got, rows)
	}
}

type joinedRow struct{ Order, Payment string }

// eachKind joins orders and payments in each way. %[1]s is an option of the steps.
const eachKind = `
  inner:
    from: orders
    steps:
      - join: {with: payments, on: {id: order}, as: p%[1]s}
      - set:
          o: string(amount) + " " + to.city
          p: p.by
      - group_by: [o, p]
      - aggregate: {n: count()}
  left:
    from: orders
    steps:
      - join: {with: payments, kind: left, on: {id: order}, as: p%[1]s}
      - set:
          o: string(amount)
          p: p.by ?? "-"
      - group_by: [o, p]
      - aggregate: {n: count()}
  right:
    from: orders
    steps:
      - join: {with: payments, kind: right, on: {id: order}, as: p%[1]s}
      - set:
          o: string(amount ?? 0)
          p: p.by
      - group_by: [o, p]
      - aggregate: {n: count()}
  full:
    from: orders
    steps:
      - join: {with: payments, kind: full, on: {id: order}, as: p%[1]s}
      - set:
          o: string(amount ?? 0)
          p: p.by ?? "-"
      - group_by: [o, p]
      - aggregate: {n: count()}
  unpaid:
    from: orders
    steps:
      - join: {with: payments, kind: anti, on: {id: order}%[1]s}
      - set: {p: to.city}
      - group_by: [id, p]
      - aggregate: {n: count()}
`

func TestJoinWithin(t *testing.T) {
	build := joining(t, "30s", fmt.Sprintf(eachKind, ", within: 10s"))
	in := []enginetest.Input{
		{"orders": {order("a", 1, 100), order("b", 2, 100)}, "payments/1": {payment("d", 100)}},
		{"payments": {payment("a", 110), payment("b", 111)}},
		{"orders/1": {order("a", 3, 105), order("d", 4, 90)}},
		enginetest.AdvanceTo(time.Unix(140, 0)),
	}
	r := enginetest.Run(t, build(), in...)
	wantRows[joinedRow](t, r, "inner", "1 c1 card a", "3 c3 card a", "4 c4 card d")
	wantRows[joinedRow](t, r, "left", "1 card a", "3 card a", "4 card d", "2 -")
	wantRows[joinedRow](t, r, "right", "1 card a", "3 card a", "4 card d", "0 card b")
	wantRows[joinedRow](t, r, "full", "1 card a", "3 card a", "4 card d", "2 -", "0 card b")
	wantRows[joinedRow](t, r, "unpaid", "b c2")
	wantRows[joinedRow](t, r.At(3), "unpaid")
	if bad := r.Rejected(); len(bad) > 0 {
		t.Errorf("turned away: %+v", bad)
	}
	enginetest.Deterministic(t, build, in...)
	r = enginetest.Run(t, joining(t, "0s", fmt.Sprintf(eachKind, ", within: 10s"))(),
		enginetest.Input{"orders": {order("a", 1, 100)}, "payments": {payment("c", 100)}},
		enginetest.Input{"payments": {payment("a", 99), payment("a", 100)}})
	wantRows[joinedRow](t, r, "inner", "1 c1 card a")
	late := r.Rejected()
	if len(late) != 5 || late[0].Kind != "late" || late[0].Source != "payments" || late[0].Offset != 1 || !strings.Contains(late[0].Step, "(join)") ||
		!strings.Contains(late[0].Cause, "1970-01-01T00:01:39Z lies before the watermark 1970-01-01T00:01:40Z") {
		t.Errorf("turned away: %+v", late)
	}
}

// TestLateRowsOfJoins: rows that are late for a join go on by themselves, those of either side, with their event times; two ways that lead to a
// join, or merged streams of late rows, lose and repeat none.
func TestLateRowsOfJoins(t *testing.T) {
	build := joining(t, "0s", `
  big:
    from: orders
    steps:
      - filter: amount > 2
      - set: {id: id + "!"}
  paid:
    from: [orders, big]
    steps:
      - peek: 1
      - join: {with: payments, on: {id: order}, within: 10s, as: p, late: lateorders, late_with: latepayments}
      - group_by: [amount]
      - aggregate: {n: count()}
  tardy:
    from: lateorders
    steps:
      - set: {at: unix_ms(placed_at), city: to.city}
      - group_by: [id, at, city]
      - aggregate: {n: count()}
  unused:
    from: latepayments
    steps:
      - group_by: [order, by]
      - aggregate: {n: count()}
  again:
    from: lateorders
    steps:
      - join: {with: latepayments, on: {id: order}, as: p}
      - set: {by: p.by}
      - group_by: [id, by]
      - aggregate: {n: count()}
`)
	in := []enginetest.Input{
		{"orders": {order("a", 1, 100)}, "payments": {payment("a", 100)}},
		{"orders": {order("a", 2, 99), order("b", 3, 98), order("c", 4, 100)}, "payments": {payment("b", 99), payment("b!", 97), payment("c", 101)}},
		{"orders": {order("a", 5, 200)}, "payments": {payment("x", 200)}},
		{"payments": {payment("y", 99)}, "orders": {order("y", 1, 150)}},
	}
	r := enginetest.Run(t, build(), in...)
	wantRows[int64](t, r, "paid", "1", "4")
	wantRows[struct {
		ID   string
		At   int64
		City string
	}](t, r, "tardy", "a 99000 c2", "b 98000 c3", "b! 98000 c3", "y 150000 c1")
	type pair struct{ A, B string }
	wantRows[pair](t, r, "unused", "b card b", "b! card b!", "y card y")
	wantRows[pair](t, r, "again", "b card b", "b! card b!", "y card y")
	if bad := r.Rejected(); len(bad) > 0 {
		t.Errorf("turned away: %+v", bad)
	}
	enginetest.Deterministic(t, build, in...)
}

func TestJoinInABatch(t *testing.T) {
	build := joining(t, "0s", fmt.Sprintf(eachKind, ""))
	in := []enginetest.Input{
		{"orders": {order("a", 1, 100), order("b", 2, 100)}, "payments": {payment("a", 300), payment("d", 100)}, "payments/1": {payment("a", 400)}},
		{"payments": {payment("b", 111)}}, // its order was in the batch before
	}
	r := enginetest.Run(t, build(), in...)
	wantRows[joinedRow](t, r, "inner", "1 c1 card a times 2")
	wantRows[joinedRow](t, r, "left", "1 card a times 2", "2 -")
	wantRows[joinedRow](t, r, "right", "1 card a times 2", "0 card d", "0 card b")
	wantRows[joinedRow](t, r, "full", "1 card a times 2", "2 -", "0 card d", "0 card b")
	wantRows[joinedRow](t, r, "unpaid", "b c2")
	enginetest.Deterministic(t, build, in...)
}

// Null keys meet each other, and -0 meets 0; a number doesn't meet its text. Case G25.
func TestJoinKeys(t *testing.T) {
	build := joining(t, "0s", `
  pairs:
    from: notes
    steps:
      - join: {with: payments, on: {of: order, k: k}, as: p}
      - set: {o: text, p: p.by}
      - group_by: [o, p]
      - aggregate: {n: count()}
`)
	in := []enginetest.Input{{
		"notes":    {`{"text":"null"}`, `{"text":"zero","of":0.0,"k":1}`, `{"text":"number","of":7,"k":1}`},
		"payments": {`{"by":"none","paid_at":"2025-01-01T00:00:00Z"}`, `{"by":"minus","order":-0.0,"k":1,"paid_at":"2025-01-01T00:00:00Z"}`, `{"by":"text","order":"7","k":1,"paid_at":"2025-01-01T00:00:00Z"}`},
	}}
	r := enginetest.Run(t, build(), in...)
	wantRows[joinedRow](t, r, "pairs", "null none", "zero minus")
}

// The rows of a join can be joined and put into windows; what is joined may itself be rows of an aggregate, and of several streams.
func TestJoinsOneBehindTheOther(t *testing.T) {
	build := joining(t, "1m", `
  all:
    from: [orders, returns]
    steps:
      - filter: id != "x"
  returns:
    from: orders
    steps:
      - filter: amount < 0
      - set: {kind: '"return"'}
  daily:
    from: payments
    steps:
      - window: {tumbling: 10s}
      - group_by: [order]
      - aggregate:
          times: count()
  twice:
    from: all
    steps:
      - join: {with: payments, on: {id: order}, within: 20s, as: p}
      - keep: [id, amount, kind, p.by]
      - join: {with: daily, kind: left, on: {id: order}, within: 20s, as: d}
      - set:
          text: id + " " + string(amount) + " " + (kind ?? "order") + " " + p.by
          times: d.times ?? 0
      - window: {tumbling: 1m}
      - group_by: [text, times]
      - aggregate: {n: count()}
`)
	in := []enginetest.Input{
		{"orders": {order("a", 1, 100), order("b", -2, 101)}},
		{"payments": {payment("a", 102), payment("a", 103), payment("b", 119)}},
		{"orders": {order("x", 9, 90)}},
		enginetest.AdvanceTo(time.Unix(200, 0)),
	}
	type key = engine.Windowed[struct {
		Text  string
		Times int64
	}]
	r := enginetest.Run(t, build(), in...)
	at := "1970-01-01 00:01:00 +0000 UTC "
	wantRows[key](t, r, "twice",
		at+"{a 1 order card a 2 times 2", at+"{b -2 order card b 1", at+"{b -2 return card b 1")
	enginetest.Deterministic(t, build, in...)
}

// A stream can be joined with what it comes of; a join's own fields hide those that are called like the other row.
func TestJoinOfASourceWithItself(t *testing.T) {
	build := joining(t, "1m", `
  pairs:
    from: orders
    steps:
      - set: {o: amount}
      - join: {with: orders, on: {to.city: id}, within: 5s, as: o}
      - set: {a: id, b: o.amount}
      - group_by: [a, b]
      - aggregate: {n: count()}
  same:
    from: orders
    steps:
      - join: {with: orders, on: {id: id}, as: o}
      - set: {a: id, b: o.amount}
      - group_by: [a, b]
      - aggregate: {n: count()}
`)
	in := []enginetest.Input{{"orders": {order("c1", 1, 100), order("a", 1, 104), order("b", 1, 106)}}}
	r := enginetest.Run(t, build(), in...)
	type key struct {
		A string
		B int64
	}
	wantRows[key](t, r, "pairs", "c1 1", "a 1")
	wantRows[key](t, r, "same", "c1 1", "a 1", "b 1")
	enginetest.Deterministic(t, build, in...)
}

func TestJoinsThatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		"{with: paymnts, on: {id: order}, as: p}":                                     "there is no source or stream paymnts",
		"{with: payments, on: {id: order}}":                                           "join needs as",
		"{with: payments, kind: anti, on: {id: order}, as: p}":                        "leave it out",
		"{with: payments, on: {idd: paid_at}, as: p}":                                 "",
		"{with: payments, on: {id: paid_at}, as: p}":                                  "paid_at is a timestamp, and id, which it must equal, a string",
		"{with: notes, on: {id: order}, within: 1h, as: p}":                           "a join within a duration needs event time, and source notes",
		"{with: payments, kind: outer, on: {id: order}, as: p}":                       "outer",
		"{with: payments, on: {id: order}, within: -1h, as: p}":                       "-1h",
		"{with: late, on: {id: order}, as: p}":                                        "a cycle: late from late",
		"{with: payments, on: {id: order}, as: _offset}":                              "_offset is a property of the record",
		"{with: payments, on: {id: order}, as: p}\n      - window: {tumbling: 1h}":    "a window needs event time, and the rows of a join within a batch have none",
		"{with: payments, on: {id: order}, within: 1h, as: p, late: l}":               "no stream begins at l",
		"{with: payments, on: {id: order}, within: 1h, as: p, late: orders}":          "the stream of late rows has the name of source orders",
		"{with: payments, on: {id: order}, within: 1h, as: p, late_with: everything}": "the stream of late rows has the name of stream everything",
		"{with: payments, on: {id: order}, within: 1h, as: p, late: l, late_with: l}": "two streams of late rows are named l",
		"{with: payments, on: {id: order}, as: p, late: l}":                           "nothing is late in a join within a batch",
	} { // order: each by itself
		_, err := spec.Parse("p.yaml", []byte(fmt.Sprintf(joinHead, "0s")+`
  late:
    from: orders
    steps:
      - join: `+text+`
      - aggregate: {n: count()}
`), spec.Options{})
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "p.yaml:2") {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// What decides a state behind a join are the steps of both sides; the rows that wait are a state of their own.
func TestDefinitionOfJoins(t *testing.T) {
	pl, err := joining(t, "0s", `
  paid:
    from: payments
    steps:
      - filter: order != "x"
  unpaid:
    from: orders
    steps:
      - join: {with: paid, kind: anti, on: {id: order}, within: 1h}
      - filter: amount > 0
      - join: {with: payments, kind: anti, on: {id: order}, within: 2h}
      - aggregate: {n: count()}
`)().Plan()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, d := range pl.Definition.States {
		for _, w := range d.Ways {
			got[d.Schema.Name] = append(got[d.Schema.Name], w.Source+": "+strings.Join(w.Steps, "; "))
		}
	}
	first, second := "join anti with paid on id = order within 1h0m0s", "join anti with payments on id = order within 2h0m0s"
	for state, want := range map[string][]string{
		"unpaid.join":   {"orders: " + first, `payments: filter order != "x"; ` + first},
		"unpaid.join.2": {"orders: " + first + "; filter amount > 0; " + second, `payments: filter order != "x"; ` + first + "; filter amount > 0; " + second, "payments: " + second},
		"unpaid": {
			"orders: " + first + "; filter amount > 0; " + second + "; aggregate n = count()",
			`payments: filter order != "x"; ` + first + "; filter amount > 0; " + second + "; aggregate n = count()",
			"payments: " + second + "; aggregate n = count()",
		},
	} { // order: each by itself
		if !slices.Equal(got[state], want) {
			t.Errorf("%s: %q, want %q", state, got[state], want)
		}
	}
}
