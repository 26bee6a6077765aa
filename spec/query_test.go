package spec_test

import (
	"strings"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/spec"
)

const queryHead = `pipeline: p
sources:
  people:
    kafka: {brokers: ["127.0.0.1:1"], topics: [people]}
    decode: json
    types: {id: string, age: int, at: timestamp}
    time: {field: at}
states:
  person: {latest: {from: people, key: id}}
streams:
  ages:
    from: people
    steps:
      - group_by: [age]
      - aggregate: {n: count()}
  hours:
    from: people
    steps:
      - window: {tumbling: 1h}
      - aggregate: {n: count()}
  visits:
    from: people
    steps:
      - window: {session: 1h}
      - aggregate: {n: count()}
`

// TestQueriesArePlanned: queries are no part of what decides results, and are described.
func TestQueriesArePlanned(t *testing.T) {
	without, err := spec.Parse("p.yaml", []byte(queryHead), spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	with, err := spec.Parse("p.yaml", []byte(queryHead+`queries:
  older:
    args: {id: string, by: int}
    steps:
      - lookup: {state: person, key: id, as: p}
      - lookup: {state: ages, key: p.age + by, as: same}
      - filter: p.age > 10
    answer: {id: p.id, others: same.n ?? 0, by: by}
`), spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := without.Plan()
	if err != nil {
		t.Fatal(err)
	}
	b, err := with.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if a.Text != b.Text || len(a.Exchanges) != len(b.Exchanges) {
		t.Errorf("the plan is another:\n%s\n%s", a.Text, b.Text)
	}
	for i, e := range b.Exchanges {
		if e.State.Mergeable != a.Exchanges[i].State.Mergeable {
			t.Errorf("state %s is written otherwise", e.State.Schema.Name)
		}
	}
	if len(a.Queries) != 0 || len(b.Queries) != 1 {
		t.Fatalf("%d and %d queries", len(a.Queries), len(b.Queries))
	}
	q := b.Queries[0]
	lines := strings.Join(q.Lines, "\n")
	for _, want := range []string{"query older: [id string, by int] to [id string, others int, by int]", "  1 lookup person by id as p", "  3 filter", "  answer id = p.id, others = same.n ?? 0, by = by"} {
		if !strings.Contains(lines, want) {
			t.Errorf("%s\nlacks %s", lines, want)
		}
	}
	if got := strings.Join(q.States, " "); got != "ages person" {
		t.Errorf("it reads %s", got)
	}
	for text, want := range map[string]string{
		`{"id": "x", "by": 1}`:  "",
		`{}`:                    "",
		`{"id": null}`:          "",
		`{"id": 1}`:             "field id: ",
		`{"by": 1.5}`:           "field by: ",
		`{"idd": "x"}`:          "there is no argument idd; did you mean id?",
		`[]`:                    "arguments of query older: ",
		`{"id": "x"`:            "arguments of query older: ",
		`{"id": "x"} {"by": 1}`: "arguments of query older: ",
	} { // order: each by itself
		_, err := q.Decode([]byte(text))
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		case err != nil && batch.CodeOf(err) != batch.CodeConfiguration:
			t.Errorf("%s: code %s", text, batch.CodeOf(err))
		}
	}
}

// TestQueriesSort: what a plan says of the order of answers.
func TestQueriesSort(t *testing.T) {
	for steps, sorted := range map[string]bool{
		"{filter: id != nil}": false,
		"{sort: [id]}":        true,
		"{sort: [id desc]}, {limit: 3}, {filter: id != nil}, {set: {x: id}}":          true,
		"{sort: [id]}, {limit: {rows: 3, per: [id]}}":                                 false,
		"{sort: [id]}, {lookup: {state: person, key: id, as: p}}":                     false,
		"{lookup: {state: person, key: id, as: p}}, {sort: [id]}":                     true,
		"{sort: [id]}, {distinct: [id]}":                                              false,
		"{sort: [id]}, {group_by: [id]}, {batch_aggregate: {n: count()}}, {limit: 1}": false,
	} { // order: each by itself
		p, err := spec.Parse("p.yaml", []byte(queryHead+"queries: {q: {args: {id: string}, steps: ["+steps+"], answer: {id: id}}}\n"), spec.Options{})
		if err != nil {
			t.Fatalf("%s: %v", steps, err)
		}
		pl, err := p.Plan()
		if err != nil {
			t.Fatal(err)
		}
		if got := pl.Queries[0].Sorted; got != sorted {
			t.Errorf("[%s] is sorted: %t, want %t", steps, got, sorted)
		}
	}
}

func TestQueryMistakes(t *testing.T) {
	for text, want := range map[string]string{
		`{args: {id: string}, answer: {}}`:           "answer is empty",
		`{args: {id: string}}`:                       "needs answer",
		`{args: {id: string}, answer: {x: idd}}`:     "did you mean id?",
		`{args: {id: string}, answer: {x: _offset}}`: "_offset",
		`{args: {_key: string}, answer: {x: "1"}}`:   "an argument can't be called _key",
		`{args: {id: text}, answer: {x: id}}`:        "text",
		`{args: {id: string}, steps: [{lookup: {state: persons, key: id, as: p}}], answer: {x: id}}`:               "there is no state persons",
		`{args: {id: string}, steps: [{lookup: {state: hours, key: id, as: h}}], answer: {x: id}}`:                 "the start of the windows of hours is a timestamp, this is a string",
		`{args: {at: timestamp}, steps: [{lookup: {state: hours, key: [at, at], as: h}}], answer: {x: at}}`:        "the key of hours is [window_start timestamp], that of the lookup has length 2",
		`{args: {at: timestamp}, steps: [{lookup: {state: visits, key: [at, at], as: h}}], answer: {x: at}}`:       "the rows of visits can't be looked up: where its windows begin and end is up to the rows in them",
		`{args: {at: timestamp}, steps: [{lookup: {state: hours, key: at, as: h}}], answer: {x: h.window_end}}`:    "h.window_end",
		`{args: {id: string}, steps: [{sort: [idd]}], answer: {x: id}}`:                                            "did you mean id?",
		`{args: {id: string}, steps: [{repartition: global}], answer: {x: id}}`:                                    "there can be no repartition",
		`{args: {id: int}, steps: [{lookup: {state: person, key: id, as: p}}], answer: {x: p.age}}`:                "the key of person is a string, this is an int",
		`{args: {id: string}, steps: [{lookup: {state: person, key: id, as: p}}], answer: {x: p.agee}}`:            "p.agee",
		`{args: {id: string}, steps: [{group_by: [id]}, {aggregate: {n: count()}}], answer: {x: n}}`:               "there can be no aggregate",
		`{args: {id: string}, steps: [{window: {tumbling: 1h}}, {batch_aggregate: {n: count()}}], answer: {x: n}}`: "there can be no window",
		`{args: {id: string}, steps: [{join: {with: people, on: {id: id}, as: p}}], answer: {x: id}}`:              "there can be no join",
		`{args: {id: string}, steps: [{group_by: [id]}], answer: {x: id}}`:                                         "group_by has no aggregate behind it",
	} { // order: each by itself
		_, err := spec.Parse("p.yaml", []byte(queryHead+"queries:\n  q: "+text+"\n"), spec.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
