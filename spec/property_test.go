package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/txstate"
)

// wide is a pipeline that uses every operator, several ways to one state included.
const wide = `
pipeline: wide
on_bad_record: skip
sources:
  a:
    kafka: {brokers: ["localhost:9092"], topics: [t]}
    decode: json
    types: {at: timestamp, f: float}
    time: {field: at}
  b:
    kafka: {brokers: ["localhost:9092"], topics: [u]}
    decode: json
    types: {f: float}
states:
  names:
    static: {file: {paths: [names.json]}, decode: json, key: id}
streams:
  tagged:
    from: a
    steps:
      - filter: tags != nil
      - flat_map: {tag: tags}
      - lookup: {state: names, key: tag, as: name}
      - set:
          label: name.text ?? "none"
  big:
    from: a
    steps:
      - filter: n > 10
      - set: {tag: string(n), label: '"big"'}
  by_label:
    from: [tagged, big]
    steps:
      - group_by: [label]
      - aggregate: {n: count(), f: first(tag), l: last(tag), all: collect(_offset), s: sum(f), m: avg(n)}
  windows:
    from: tagged
    steps:
      - window: {tumbling: 10s}
      - group_by: [tag]
      - aggregate: {n: count(), most: max(n), least: min(label)}
  sketches:
    from: [tagged, big]
    steps:
      - group_by: [label]
      - aggregate:
          early: first_n(tag, 2)
          late: last_n(tag, 3)
          most: top(n, 2)
          users: top(user, 2, f)
          least: min_by(tag, f)
          greatest: max_by(_offset, n)
          tags: distinct(tag)
          median: quantile(n, 0.5)
          spread: variance(f)
          deviation: stddev(n)
  per_batch:
    from: [tagged, big, b]
    steps:
      - group_by: [user]
      - batch_aggregate: {n: count(), total: sum(n), tags: collect(tag)}
      - filter: n > 1
      - flat_map: {tag: tags}
      - set: {n2: n * total}
  pairs:
    from: [tagged, big]
    steps:
      - set: {odd: n % 2 == 1}
      - distinct: [tag, odd]
      - group_by: [tag]
      - batch_aggregate: {kinds: count()}
      - aggregate: {tags: count(), kinds: sum(kinds)}
  counts:
    from: [per_batch, a]
    steps:
      - group_by: [tag]
      - batch_aggregate: {rows: count(), most: max(n), products: sum(n2)}
      - lookup: {state: names, key: string(tag), as: name}
      - group_by: [name.text]
      - aggregate: {tags: count(), rows: sum(rows), products: last(products), order: collect(tag)}
  both:
    from: [a, b]
    steps:
      - keep: [user, n, f]
      - group_by: [user]
      - aggregate: {n: count(), total: sum(n), some: count_if(n > 5), f: avg(f)}
`

func namesTable() map[string]plan.StaticPart {
	return map[string]plan.StaticPart{"names": {Chunk: batch.Chunk{Records: []batch.Record{
		{Value: []byte(`{"id":"x","text":"ex"}`)}, {Offset: 1, Value: []byte(`{"id":"y","text":"why"}`)}, {Offset: 2, Value: []byte(`{"id":7}`)},
	}}}}
}

func parsed(t fataler, file string) *Pipeline {
	p, err := Parse("p.yaml", []byte(file), Options{Dir: "testdata/none", Env: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return p
}

type fataler interface{ Fatalf(string, ...any) }

func drawRecord(t *rapid.T) []byte {
	return []byte(rapid.SampledFrom([]string{
		fmt.Sprintf(`{"user":"u%d","n":%d,"f":%g,"tags":["x","y"],"at":%q}`, rapid.IntRange(0, 3).Draw(t, "user"), rapid.IntRange(0, 20).Draw(t, "n"),
			rapid.Float64Range(-1e6, 1e6).Draw(t, "f"), time.Unix(rapid.Int64Range(1_700_000_000, 1_700_000_060).Draw(t, "at"), 0).UTC().Format(time.RFC3339)),
		`{"user":null,"n":9223372036854775807,"tags":["x","x",7,null],"at":1700000030000}`,
		`{"user":1.5,"tags":[],"at":"2099-01-01T00:00:00Z"}`,
		`{"user":"u1","n":"many","tags":"x","at":1700000001000}`,
		`{"n":18446744073709551616,"f":0.1,"at":1700000002000}`,
		`{"user":"u2","at":null}`,
		`{"user":`,
		`null`,
		`[]`,
	}).Draw(t, "record"))
}

// outcome is all that a run leaves.
type outcome struct {
	states   []map[string][]byte
	rejected string
	times    map[batch.Partition]int64
}

func runWide(t fataler, p *Pipeline, recs map[string][][]byte, chunk int) outcome {
	b, err := newBench(p, namesTable())
	if err != nil {
		t.Fatalf("%v", err)
	}
	var ins []input
	for _, src := range []string{"a", "b"} {
		in := input{partition: batch.Partition{Source: src, Topic: "t"}, chunk: chunk}
		for i, v := range recs[src] {
			in.records = append(in.records, batch.Record{Offset: int64(i), Value: v})
		}
		ins = append(ins, in)
	}
	if err := b.run(time.Unix(1_700_000_100, 0).UTC(), time.Unix(1_700_000_020, 0).UnixNano(), ins...); err != nil {
		t.Fatalf("%v", err)
	}
	return outcome{states: b.states, rejected: fmt.Sprintf("%+v", b.rejected), times: b.maxTime}
}

// TestChunksDontShow cuts the same records into chunks in several ways.
func TestChunksDontShow(t *testing.T) {
	p := parsed(t, wide)
	rapid.Check(t, func(t *rapid.T) {
		recs := map[string][][]byte{
			"a": rapid.SliceOfN(rapid.Custom(drawRecord), 0, 40).Draw(t, "a"),
			"b": rapid.SliceOfN(rapid.Custom(drawRecord), 0, 10).Draw(t, "b"),
		}
		want := runWide(t, p, recs, 0)
		for _, chunk := range []int{1, 3, 7} {
			got := runWide(t, p, recs, chunk)
			for i, st := range want.states {
				if !maps.EqualFunc(st, got.states[i], slices.Equal) {
					t.Fatalf("state %d in chunks of %d: %q, want %q", i, chunk, got.states[i], st)
				}
			}
			if got.rejected != want.rejected {
				t.Fatalf("rejected in chunks of %d:\n%s\nwant\n%s", chunk, got.rejected, want.rejected)
			}
			if !maps.Equal(got.times, want.times) {
				t.Fatalf("event times in chunks of %d: %v, want %v", chunk, got.times, want.times)
			}
		}
	})
}

// TestBlocksDontShow has more records than a block, so that borders of blocks and chunks differ.
func TestBlocksDontShow(t *testing.T) {
	p := parsed(t, wide)
	for seed := range 5 {
		few := rapid.SliceOfN(rapid.Custom(drawRecord), 10, 10).Example(seed)
		var a [][]byte
		for i := range blockRows + 500 {
			a = append(a, few[(i*7+i/13)%len(few)])
		}
		recs := map[string][][]byte{"a": a}
		want, got := runWide(t, p, recs, 0), runWide(t, p, recs, 1999)
		for i, st := range want.states {
			if !maps.EqualFunc(st, got.states[i], slices.Equal) {
				t.Fatalf("seed %d: state %d differs", seed, i)
			}
		}
		if got.rejected != want.rejected {
			t.Fatalf("seed %d: what was turned away differs", seed)
		}
	}
}

// TestTotals holds counts, sums and extremes against a few lines of ordinary Go.
func TestTotals(t *testing.T) {
	p := parsed(t, `
pipeline: totals
sources:
  s: {kafka: {brokers: ["localhost:9092"], topics: [t]}, decode: json, types: {user: string, n: int}}
streams:
  totals:
    from: s
    steps:
      - filter: n == nil || n > -5
      - group_by: [user]
      - aggregate: {rows: count(), total: sum(n), most: max(n), least: min(n), mean: avg(n), even: count_if(n % 2 == 0)}
`)
	type rec struct {
		User *string `json:"user,omitempty"`
		N    *int64  `json:"n,omitempty"`
	}
	drawn := rapid.Custom(func(t *rapid.T) rec {
		var r rec
		if rapid.Bool().Draw(t, "has user") {
			u := rapid.SampledFrom([]string{"", "a", "b", "ü\x00", `"\`}).Draw(t, "user")
			r.User = &u
		}
		if rapid.Bool().Draw(t, "has n") {
			n := rapid.Int64Range(-10, 1<<40).Draw(t, "n")
			r.N = &n
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		type total struct {
			rows, sum, most, least, n, even int64
			user                            *string
		}
		want := map[string]*total{}
		b, err := newBench(p, nil)
		if err != nil {
			t.Fatalf("%v", err)
		}
		offset := int64(0)
		for range rapid.IntRange(1, 3).Draw(t, "batches") {
			in := input{partition: batch.Partition{Source: "s", Topic: "t"}}
			for _, r := range rapid.SliceOfN(drawn, 0, 20).Draw(t, "records") {
				doc, err := json.Marshal(r)
				if err != nil {
					t.Fatalf("%v", err)
				}
				in.records = append(in.records, batch.Record{Offset: offset, Value: doc})
				offset++
				if r.N != nil && *r.N <= -5 {
					continue
				}
				key := "null"
				if r.User != nil {
					key = strconv.Quote(*r.User)
				}
				w := want[key]
				if w == nil {
					w = &total{most: math.MinInt64, least: math.MaxInt64, user: r.User}
					want[key] = w
				}
				w.rows++
				if r.N != nil {
					w.n++
					w.sum += *r.N
					w.most, w.least = max(w.most, *r.N), min(w.least, *r.N)
					if *r.N%2 == 0 {
						w.even++
					}
				}
			}
			if err := b.run(time.Unix(0, 0), txstate.NoTime, in); err != nil {
				t.Fatalf("%v", err)
			}
		}
		var lines []string
		for _, w := range want {
			user, most, least, sum, mean := value.NullValue(), "null", "null", "null", "null"
			if w.user != nil {
				user = value.StringOf(*w.user)
			}
			if w.n > 0 {
				most, least, sum = strconv.FormatInt(w.most, 10), strconv.FormatInt(w.least, 10), strconv.FormatInt(w.sum, 10)
				mean = string(value.AppendJSON(nil, value.FloatOf(float64(w.sum)/float64(w.n))))
			}
			lines = append(lines, fmt.Sprintf(`{"user": %s, "rows": %d, "total": %s, "most": %s, "least": %s, "mean": %s, "even": %d}`,
				value.AppendJSON(nil, user), w.rows, sum, most, least, mean, w.even))
		}
		got, err := b.state("totals")
		if err != nil {
			t.Fatalf("%v", err)
		}
		have := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		if got == "" {
			have = nil
		}
		slices.Sort(have)
		slices.Sort(lines)
		if !slices.Equal(have, lines) {
			t.Fatalf("got\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(lines, "\n"))
		}
	})
}

// TestPlanTextIsCanonical says the same thing in two ways.
func TestPlanTextIsCanonical(t *testing.T) {
	one := parsed(t, `
pipeline: p
sources:
  b: {kafka: {brokers: ["localhost:9092"], topics: [t]}, decode: json, types: {y: int, x: string}}
  a: {kafka: {brokers: ["localhost:9092"], topics: [u]}, decode: string}
streams:
  two: {from: b, steps: [{aggregate: {n: count()}}]}
  one: {from: a, steps: [{filter: value != nil}, {aggregate: {n: count()}}]}
`)
	other := parsed(t, `
# Limits and comments are no part of a plan.
pipeline: p
batch: {max_records: 7, max_pending: 1}
streams:
  one:
    from: [a]
    steps:
      - filter: "value != nil"   # quoted
      - aggregate:
          n: count()
        state: one
  two:
    from: b
    steps:
      - aggregate:
          n: count()
sources:
  a:
    decode: string
    kafka: {topics: u, brokers: localhost:9092}
  b:
    types: {x: string, y: int}
    decode: json
    on_bad_record: stop
    kafka:
      brokers: [localhost:9092]
      topics: [t]
`)
	if one.text() != other.text() {
		t.Errorf("two texts of one plan:\n%s\n%s", one.text(), other.text())
	}
	changed := parsed(t, strings.Replace(`
pipeline: p
sources:
  b: {kafka: {brokers: ["localhost:9092"], topics: [t]}, decode: json, types: {y: int, x: string}}
  a: {kafka: {brokers: ["localhost:9092"], topics: [u]}, decode: string}
streams:
  two: {from: b, steps: [{aggregate: {n: count()}}]}
  one: {from: a, steps: [{filter: value != nil}, {aggregate: {n: count()}}]}
`, "value != nil", "value == nil", 1))
	if changed.text() == one.text() {
		t.Error("another filter gives the same text")
	}
}

// FuzzParse looks for panics, and for mistakes without a place in the file.
func FuzzParse(f *testing.F) {
	f.Add(wide)
	f.Add("a: !x\nb: [1, {c: d}]\n? e\n: f\n<<: *x\n")
	f.Add("pipeline: p\nsources: {s: {file: {paths: [a]}, decode: csv}}\nstreams: {x: {from: s, steps: [{aggregate: {n: max(a, b)}}]}}\n")
	f.Add("pipeline: \"${A:-p}\"\nstreams:\n  x:\n    steps:\n      - filter: |\n          a ==\n            \"ü\n")
	f.Fuzz(func(t *testing.T, src string) {
		lines := strings.Count(src, "\n") + strings.Count(src, "\r") + 1 // YAML takes either for a line's end
		p, err := Parse("f.yaml", []byte(src), Options{Dir: "testdata/none", Env: func(string) (string, bool) { return "", false }})
		if err == nil {
			if _, err := p.Plan(); err != nil {
				t.Fatalf("a checked file has no plan: %v", err)
			}
			return
		}
		var ps Problems
		if !errors.As(err, &ps) || len(ps) == 0 {
			t.Fatalf("the error is %T: %v", err, err)
		}
		for _, pr := range ps {
			if pr.Line < 0 || pr.Line > lines || pr.Line > 0 && pr.Column < 1 || pr.Msg == "" {
				t.Fatalf("a problem at %d:%d of %d lines: %q", pr.Line, pr.Column, lines, pr.Msg)
			}
		}
	})
}
