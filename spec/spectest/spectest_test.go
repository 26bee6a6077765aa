package spectest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/spec"
	"github.com/tridentd/tridentd/spec/spectest"
)

// orders is a pipeline with most of what a test can be about: keys, timestamps, windows, a table, rows turned away.
const orders = `pipeline: orders
on_bad_record: skip
sources:
  orders:
    kafka: {brokers: [127.0.0.1:1], topics: [orders]}
    decode: json
    types: {id: string, amount: decimal, at: timestamp}
    time: {field: at, lateness: 1m}
  clicks:
    file: {paths: [nowhere.csv]}
    decode:
      csv: {null_values: ["NA"]}
    types: {n: int}
states:
  countries:
    static:
      file: {paths: [nowhere/countries.csv]}
      decode: csv
      key: code
streams:
  hourly:
    from: orders
    steps:
      - lookup: {state: countries, key: country, as: c}
      - set:
          name: c.name ?? "unknown"
      - window: {tumbling: 1h}
      - group_by: [name]
      - aggregate: {n: count(), revenue: sum(amount), ids: collect(id)}
  keys:
    from: orders
    steps:
      - set:
          k: string(_key)
          day: date(_timestamp)
      - group_by: [k, day]
      - aggregate: {n: count(), mean: avg(float(string(amount)))}
  clicked:
    from: clicks
    steps:
      - group_by: [page]
      - aggregate: {n: sum(n), last: last(n), records: count()}
  total:
    from: clicks
    steps:
      - aggregate: {n: count()}
`

// load writes files beside each other and loads the tests of the one that is called first.
func load(t *testing.T, path string, files map[string]string) (*spec.Pipeline, []*spec.Test, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	return spec.LoadTests(path, spec.Options{})
}

func failures(t *testing.T, tests string) (string, error) {
	t.Helper()
	p, all, err := load(t, "orders_test.yaml", map[string]string{"orders.yaml": orders, "orders_test.yaml": tests})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, test := range all {
		out, err := spectest.RunTest(t.Context(), p, test, spectest.Options{})
		if err != nil {
			return "", err
		}
		b.WriteString(strings.Join(out.Failures, "\n"))
	}
	return b.String(), nil
}

const passing = `tests:
  - name: all of it
    tables:
      countries: [{code: de, name: Germany}]
    batches:
      - records:
          orders:
            - {_key: k1, _timestamp: "2026-01-01T05:00:00Z", id: a, country: de, amount: 1.50, at: "2026-01-01T00:10:00Z"}
            - '{"id": "b", "country": "fr", "amount": 2, "at": "2026-01-01T00:20:00Z"}'
            - {_key: k1, _timestamp: "2026-01-01T05:00:00Z", _value: {id: "c", country: de, amount: 2.50, at: "2026-01-01T00:59:59.5Z"}}
          clicks:
            - {page: home, n: 3}
            - {page: home}
            - "NA,home"
        expect:
          states:
            hourly:
              - {window_start: "2026-01-01T01:00:00+01:00", name: Germany, n: 2, revenue: 4, ids: [a, c]}
              - {window_start: "2026-01-01T00:00:00Z", name: unknown, revenue: 2.00}
            keys:
              - {k: k1, day: "2026-01-01", n: 2, mean: 2}
            clicked: [{page: home, n: 3, last: 3, records: 3}]
            total: [{n: 3}]
          rejected:
            - {kind: bad, source: orders, offset: 1, cause: nil}
      - clock: "2026-01-01T03:00:00Z"
        watermark: "2026-01-01T01:00:00Z"
        records:
          orders/3:
            - {_key: null, id: d, country: de, amount: 9, at: "2026-01-01T00:59:59Z"}
            - {id: e, country: de, amount: 9, at: "2026-01-01T04:00:01Z"}
            - no JSON
        expect:
          states:
            hourly: [{window_start: "2026-01-01T00:00:00Z", name: Germany, n: 2}, {window_start: "2026-01-01T00:00:00Z", name: unknown}]
          rejected:
            - {kind: late, offset: 0, value: '{"id": "d", "country": "de", "amount": 9, "at": "2026-01-01T00:59:59Z"}'}
            - {kind: bad, partition: 3, step: keys}
            - {kind: future, offset: 1}
            - {kind: bad, offset: 2, step: decode, value: no JSON}
`

func TestPassing(t *testing.T) {
	p, tests, err := load(t, "orders.yaml", map[string]string{"orders.yaml": orders, "orders_test.yaml": passing})
	if err != nil {
		t.Fatal(err)
	}
	out, err := spectest.RunTest(t.Context(), p, tests[0], spectest.Options{Deterministic: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range out.Failures {
		t.Error(f)
	}
	if out.Batches != 2 || out.Records != 9 {
		t.Errorf("%d batches, %d records", out.Batches, out.Records)
	}
}

// TestFailing breaks each expectation in turn: a comparison that never fails proves nothing.
func TestFailing(t *testing.T) {
	for _, tc := range []struct{ from, to, want string }{
		{"{window_start: \"2026-01-01T01:00:00+01:00\", name: Germany, n: 2, revenue: 4, ids: [a, c]}", "{window_start: \"2026-01-01T01:00:00+01:00\", name: Germany, n: 2, revenue: 4, ids: [c, a]}", "ids"},
		{"revenue: 2.00", "revenue: 2.01", "- 2026-01-01T00:00:00Z  unknown     2.01"},
		{"mean: 2}", "mean: 2.0000001}", "2.0000001"},
		{"last: 3", "last: null", "+ home  3  3"},
		{"total: [{n: 3}]", "total: []", "after batch 1 state total"},
		{"day: \"2026-01-01\"", "day: \"2026-01-02\"", "after batch 1 state keys"},
		{"{kind: bad, source: orders, offset: 1, cause: nil}", "{kind: bad, source: orders, offset: 0, cause: nil}", "batch 1 didn't turn away what was expected"},
		{"          rejected:\n            - {kind: bad, source: orders, offset: 1, cause: nil}\n", "", "batch 1 didn't turn away what was expected"},
		{"{kind: future, offset: 1}", "{kind: late, offset: 1}", "+ orders  3          1       future"},
		{"            - {kind: bad, offset: 2, step: decode, value: no JSON}\n", "", "decode"},
		{"            - no JSON\n", "", "- "},
		{"        watermark: \"2026-01-01T01:00:00Z\"\n", "", "after batch 2 state hourly"},
		{"amount: 1.50", "amount: 1.51", "4.01"},
	} {
		changed := strings.Replace(passing, tc.from, tc.to, 1)
		if changed == passing {
			t.Fatalf("%q is not in the test", tc.from)
		}
		got, err := failures(t, changed)
		if err != nil {
			t.Errorf("%s: %v", tc.to, err)
		} else if !strings.Contains(got, tc.want) {
			t.Errorf("with %q in place of %q: %q lacks %q", tc.to, tc.from, got, tc.want)
		}
	}
}

func TestStops(t *testing.T) {
	const stopping = `
  - name: stops
    batches:
      - records: {orders: [{_key: a, _timestamp: "2026-01-01T05:00:00Z", id: a, amount: 1, at: "2026-01-01T00:10:00Z"}]}
      - records: {orders: [%]}
        expect: {error: "is not a time"}
`
	for name, tc := range map[string]struct{ record, want string }{
		"as expected":      {`{id: a, at: x}`, ""},
		"otherwise":        {`no JSON`, `batch 2 stopped the pipeline, but not with "is not a time"`},
		"it doesn't stop":  {`{_key: a, _timestamp: "2026-01-01T05:00:00Z", id: a, amount: 1, at: "2026-01-01T00:10:00Z"}`, `batch 2 has committed; it was expected to stop`},
		"it doesn't begin": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tests := "tests:" + strings.Replace(stopping, "%", tc.record, 1)
			p, all, err := load(t, "p_test.yaml", map[string]string{
				"p.yaml": strings.Replace(orders, "on_bad_record: skip\n", "", 1), "p_test.yaml": tests,
				"nowhere.csv": "page,n\n",
			})
			if tc.record == "" {
				tests = strings.Replace(tests, "id: a, amount: 1", "id: a, amount: x", 1)
				p, all, err = load(t, "p_test.yaml", map[string]string{"p.yaml": strings.Replace(orders, "on_bad_record: skip\n", "", 1), "p_test.yaml": tests})
				tc.want = "batch 1 stopped the pipeline"
			}
			if err != nil {
				t.Fatal(err)
			}
			all[0].Tables = map[string][]*spec.Literal{"countries": nil}
			out, err := spectest.RunTest(t.Context(), p, all[0], spectest.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(out.Failures, "\n")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestMistakes: what is wrong in a test is told with its place, before anything is compared.
func TestMistakes(t *testing.T) {
	for name, tc := range map[string]struct{ batches, want string }{
		"source":     {"[{records: {order: [a]}}]", `orders_test.yaml:2:5: records: pipeline orders has no source "order"`},
		"state":      {"[{expect: {states: {hourl: []}}}]", "orders_test.yaml:3:34: the pipeline keeps no state hourl"},
		"column":     {"[{records: {clicks: [{page: a, n: 1}]}, expect: {states: {clicked: [{page: a, m: 1}]}}}]", "orders_test.yaml:3:92: state clicked has no column m"},
		"key":        {"[{records: {clicks: [{page: a, n: 1}]}, expect: {states: {clicked: [{n: 1}]}}}]", "a row of state clicked needs the key column page"},
		"same key":   {"[{expect: {states: {clicked: [{page: a}, {page: a}]}}}]", "two rows of state clicked have the same key"},
		"one row":    {"[{expect: {states: {total: [{n: 1}, {n: 2}]}}}]", "one row at most"},
		"rejected":   {"[{expect: {rejected: [{kid: a}]}}]", "rejected has no column kid"},
		"no rows":    {"[{expect: {states: {total: 3}}}]", "rows are a list, not a number"},
		"no row":     {"[{expect: {states: {total: [3]}}}]", "a row is fields with values, not a number"},
		"no list":    {"[{records: {orders: a}}]", "records are a list, not a text"},
		"clock":      {"[{clock: yesterday}]", `clock: "yesterday" is no time`},
		"goes back":  {`[{clock: "2027-01-01T00:00:00Z"}, {clock: "2026-01-01T00:00:00Z"}]`, "batch 2: its clock"},
		"timestamp":  {"[{records: {orders: [{_timestamp: 3, id: a}]}}]", "the timestamp 3 is no time"},
		"both":       {"[{records: {orders: [{_value: 3, id: a}]}}]", "a record with _value has no other fields"},
		"error then": {"[{expect: {error: a}}, {}]", "no batch can follow one that stops the pipeline"},
		"misspelt":   {"[{record: {orders: [a]}}]", `unknown field "record"`},
		"anchor":     {"[{records: {orders: [*a]}}]", "there is no anchor &a"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := failures(t, "tests:\n  - name: n\n    batches: "+tc.batches+"\n    tables: {countries: []}\n")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v lacks %q", err, tc.want)
			}
		})
	}
	t.Run("no pipeline", func(t *testing.T) {
		_, _, err := load(t, "x_test.yaml", map[string]string{"x_test.yaml": "tests: [{name: a, batches: [{}]}]\n"})
		var p spec.Problems
		if !errors.As(err, &p) || !strings.Contains(err.Error(), "x.yaml: can't be read") {
			t.Error(err)
		}
	})
	t.Run("a table that isn't there", func(t *testing.T) {
		_, err := failures(t, "tests:\n  - name: n\n    batches: [{}]\n    tables: {countrys: []}\n")
		if err == nil || !strings.Contains(err.Error(), "no static table countrys") {
			t.Error(err)
		}
	})
}

// TestPlaces: tests stand in the pipeline's file, beside it, or in a file that names it.
func TestPlaces(t *testing.T) {
	inside := orders + "tests: [{name: inside, batches: [{}]}]\n"
	p, tests, err := load(t, "orders.yaml", map[string]string{
		"orders.yaml": inside, "orders_test.yaml": "tests: [{name: beside, batches: [{}]}]\n",
		"more_test.yaml": "pipeline: orders.yaml\ntests: [{name: more, batches: [{}]}]\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tests) != 2 || tests[0].Name != "inside" || tests[1].Name != "beside" || p.Name() != "orders" {
		t.Errorf("%d tests", len(tests))
	}
	for path, want := range map[string]string{"more_test.yaml": "more", "orders_test.yaml": "beside"} {
		p, tests, err := spec.LoadTests(path, spec.Options{})
		if err != nil || len(tests) != 1 || tests[0].Name != want || p.Name() != "orders" {
			t.Errorf("%s: %v, %v", path, tests, err)
		}
	}
}

// TestSinks: what a batch has for a sink is compared record by record, and no target is contacted.
func TestSinks(t *testing.T) {
	const text = orders + `sinks:
  big:
    from: bigger
    kafka: {brokers: [127.0.0.1:1], topic: big, key: id}
    fields: [id, amount, at, tags]
tests:
  - name: big orders
    tables: {countries: []}
    batches:
      - records: {orders: [{id: a, amount: 1.50, at: "2026-01-01T00:10:00Z"}, {id: b, amount: 15, at: "2026-01-01T00:10:01Z", tags: [x, 1]}, {id: c, amount: 20, at: "2026-01-01T00:10:02Z"}]}
        expect:
          sinks:
            big:
              - {_key: b, id: b, amount: "15", at: "2026-01-01T00:10:01Z", tags: [x, 1]}
              - {_key: c, tags: null}
      - expect: {sinks: {big: []}}
`
	pipeline := strings.Replace(text, "streams:\n", "streams:\n  bigger:\n    from: orders\n    steps:\n      - filter: amount > 10\n", 1)
	pipeline = strings.Replace(pipeline, "k: string(_key)", "k: id", 1)
	pipeline = strings.Replace(pipeline, "day: date(_timestamp)", "day: id", 1)
	for from, want := range map[string]string{
		"": "", "{_key: c, tags: null}": "what batch 1 has for sink big isn't as expected", "tags: [x, 1]}\n              ": `["x",1]`, "_key: b": "- d",
	} {
		to := map[string]string{"_key: b": "_key: d", "tags: [x, 1]}\n              ": "tags: [x, 2]}\n              "}[from]
		if strings.HasPrefix(from, "{_key: c") {
			to = "{_key: d}"
		}
		p, tests, err := load(t, "o.yaml", map[string]string{"o.yaml": strings.Replace(pipeline, from, to, 1)})
		if err != nil {
			t.Fatal(err)
		}
		out, err := spectest.RunTest(t.Context(), p, tests[0], spectest.Options{Deterministic: from == ""})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(out.Failures, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("with %q: %q lacks %q", to, got, want)
		}
	}
}

const asked = orders + `queries:
  hours:
    args: {at: timestamp, names: string, factor: decimal}
    steps:
      - flat_map:
          name: split(names, ",")
      - lookup: {state: hourly, key: ['truncate(at, "1h")', name], as: h, kind: inner}
    answer: {name: name, n: h.n, revenue: h.revenue * factor, from: h.window_start}
  ranked:
    args: {names: string}
    steps:
      - flat_map:
          name: split(names, ",")
      - lookup: {state: hourly, key: ['timestamp("2026-01-01T00:00:00Z")', name], as: h}
      - lookup: {state: countries, key: name, as: c}
      - set: {land: c.name, n: h.n ?? 0}
      - sort: [n desc, name]
      - limit: 2
    answer: {name: name, n: n, land: land}
  odd:
    args: {id: string}
    answer: {n: int(id)}
tests:
  - name: questions
    tables: {countries: [{code: de, name: Germany}, {code: Germany, name: itself}]}
    batches:
      - records:
          orders:
            - {id: a, country: de, amount: 1.50, at: "2026-01-01T00:10:00Z"}
            - {id: b, country: fr, amount: 2, at: "2026-01-01T00:20:00Z"}
        expect:
          queries:
            - {call: hours, args: {at: "2026-01-01T00:59:00Z", names: "Germany,unknown,Germany,nobody", factor: 2}, answer: [{n: 1}, {name: unknown}, {name: Germany, revenue: 3, from: "2026-01-01T00:00:00Z"}]}
            - {call: hours, args: {at: "2026-01-01T01:00:00Z", names: Germany}, answer: []}
            - {call: odd, args: {id: x}, error: is no integer}
            - {call: odd, args: {idd: x}, error: did you mean id?}
      - records:
          orders: [{id: b, country: fr, amount: 2, at: "2026-01-01T00:20:00Z"}]
        expect:
          queries:
            - call: ranked
              args: {names: "nobody,Germany,unknown"}
              answer: [{name: unknown, n: 2, land: null}, {name: Germany, n: 1, land: itself}]
`

// TestQueries asks queries of what batches have left, of windows too, and breaks each expectation in turn.
func TestQueries(t *testing.T) {
	pipeline := strings.Replace(strings.Replace(asked, "k: string(_key)", "k: id", 1), "day: date(_timestamp)", "day: id", 1)
	for _, tc := range []struct{ from, to, want string }{
		{"", "", ""},
		{"{n: 1}, {name: unknown}", "{n: 2}, {name: unknown}", "-          2\n"},
		{"revenue: 3,", "revenue: 4,", "after batch 1 the answer of query hours isn't as expected"},
		{"{name: unknown}, ", "", "+ "},
		{"answer: []}", "answer: [{n: 1}]}", "- 1"},
		{"error: is no integer", "error: is no number", `after batch 1 query odd failed, but not with "is no number"`},
		{"args: {id: x}, error", "args: {id: 12}, error", "is no integer"},
		{"args: {id: x}, error", `args: {id: "12"}, error`, "after batch 1 query odd was answered"},
		{"{idd: x}, error: did you mean id?", "{idd: x}, answer: []", "query odd failed: "},
		{"{name: unknown, n: 2, land: null}, {name: Germany, n: 1, land: itself}", "{name: Germany, n: 1, land: itself}, {name: unknown, n: 2, land: null}", "after batch 2 the answer of query ranked"},
		{"land: itself", "land: other", "- Germany  1  other"},
	} {
		changed := strings.Replace(pipeline, tc.from, tc.to, 1)
		if tc.from != "" && changed == pipeline {
			t.Fatalf("%q is not in the test", tc.from)
		}
		p, tests, err := load(t, "o.yaml", map[string]string{"o.yaml": changed})
		if err != nil {
			t.Fatal(err)
		}
		out, err := spectest.RunTest(t.Context(), p, tests[0], spectest.Options{Deterministic: tc.from == ""})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(out.Failures, "\n"); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("with %q: %q lacks %q", tc.to, got, tc.want)
		}
	}
	for from, c := range map[string]struct{ to, want string }{
		"call: hours, args":    {"call: hour, args", `no query "hour"; there is hours, odd, ranked; did you mean hours?`},
		"[{n: 1}, ":            {"[{m: 1}, ", "query hours has no column m"},
		"args: {id: x}, error": {"args: 3, error", "arguments are fields with values, not a number"},
		", answer: []}":        {"}", "a call has either an answer or an error"},
		"error: is no integer": {"error: 3", "error is a part of the error's text, not a number"},
		"call: odd, args":      {"call: 3, args", "call is the name of a query, not a number"},
	} { // order: each by itself
		p, tests, err := load(t, "o.yaml", map[string]string{"o.yaml": strings.Replace(pipeline, from, c.to, 1)})
		if err == nil {
			_, err = spectest.RunTest(t.Context(), p, tests[0], spectest.Options{})
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with %q: %v lacks %q", c.to, err, c.want)
		}
	}
}

// TestNumbersAreJSON: what is a number in a file of records is the same number in a test; what stands in quotes, or is none to JSON, is a text.
func TestNumbersAreJSON(t *testing.T) {
	const pipeline = `pipeline: kinds
sources:
  v:
    file: {paths: [nowhere.jsonl]}
    decode: json
streams:
  kinds:
    from: v
    steps:
      - aggregate: {u: collect(u)}
`
	const tests = `tests:
  - name: kinds
    batches:
      - records:
          v: [{u: 15e2}, {u: -1E+3}, {u: 1.5e3}, {u: "1e3"}, {u: 0x1f}, {u: 1_000}, {u: +1}, {u: 007}, {u: 1e}, {u: -}, {u: 1e308}]
        expect: {states: {kinds: [{u: [1500, -1000, 1500, "1e3", "0x1f", "1_000", "+1", "007", "1e", "-", 1e308]}]}}
`
	p, all, err := load(t, "kinds_test.yaml", map[string]string{"kinds.yaml": pipeline, "kinds_test.yaml": tests})
	if err != nil {
		t.Fatal(err)
	}
	out, err := spectest.RunTest(t.Context(), p, all[0], spectest.Options{})
	if err != nil || len(out.Failures) > 0 {
		t.Errorf("%v, %s", err, strings.Join(out.Failures, "\n"))
	}
}
