package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/bench/workload"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/value"
)

// stateName is the state of every job. Its key holds the user or the word, and its first aggregates are a count and a sum.
const stateName = "totals"

// View is a record as the job in Go sees it.
type View struct {
	User string
	N    int64
}

// Totals is what a user comes to.
type Totals struct {
	Views agg.Counter
	Total agg.Sum[int64]
}

func views(src kafka.Source) *engine.Pipeline {
	p := engine.New("bench-go")
	all := engine.From(p, "views", src, codec.JSON[View]())
	byUser := engine.GroupBy(all, func(v View) string { return v.User }, "user")
	engine.Aggregate(byUser, stateName, agg.Fields(func(t *Totals, v View) {
		t.Views.Inc()
		t.Total.Add(v.N)
	}))
	return p
}

// declared is a job in YAML: what belongs to its source, other tables, and the steps.
type declared struct {
	source, states, steps string
	key                   int // where in the state's key the user or the word stands
}

const viewsSource = `    decode: json
    types: {user: string, n: int}
`

const counted = `      - aggregate: {views: count(), total: sum(n)}
`

var jobs = map[string]declared{
	"yaml": {source: viewsSource, steps: `      - group_by: [user]
` + counted},
	"window": {
		source: `    decode: json
    types: {user: string, n: int, ms: timestamp}
    time: {field: ms, lateness: 10s, future: 100000d}
`, steps: `      - window: {tumbling: 10m}
      - group_by: [user]
` + counted, key: 1,
	},
	"lookup": {source: viewsSource, states: `states:
  users:
    static:
      file: {paths: ["%s"]}
      decode: csv
      key: user
`, steps: `      - lookup: {state: users, key: user, as: u}
      - set:
          country: u.country ?? "none"
      - group_by: [user, country]
` + counted},
	"words": {source: `    decode: string
`, steps: `      - flat_map:
          word: split(value, " ")
      - group_by: [word]
      - aggregate: {n: count()}
`},
}

func jobNames() []string { return append(slices.Sorted(maps.Keys(jobs)), "go") }

// yaml is the pipeline's file.
func (f *flags) yaml() (string, error) {
	j, ok := jobs[f.job]
	if !ok {
		return "", fmt.Errorf("-job %s is none of %s", f.job, strings.Join(jobNames(), ", "))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "pipeline: bench-%s\n", f.job)
	if f.zookeeper != "" {
		server, path, _ := strings.Cut(f.zookeeper, "/")
		fmt.Fprintf(&b, "zookeeper: {servers: [%q], path: %q}\n", server, "/"+path)
	}
	fmt.Fprintf(&b, "ledger: {changes: %s}\n", f.changes)
	fmt.Fprintf(&b, "sources:\n  records:\n    kafka:\n      brokers: [%q]\n      topics: [%s]\n", f.brokers, f.topic)
	if f.group != "" {
		fmt.Fprintf(&b, "      group: %s\n", f.group)
	}
	b.WriteString(j.source)
	if j.states != "" {
		fmt.Fprintf(&b, j.states, f.table)
	}
	fmt.Fprintf(&b, "streams:\n  %s:\n    from: records\n    steps:\n%s", stateName, j.steps)
	return b.String(), nil
}

// dump opens the pipeline again and writes the totals of its state; what is kept for several windows or countries is added up.
func (f *flags) dump(ctx context.Context, p *engine.Pipeline) error {
	h, err := engine.Start(ctx, p, engine.Options{DataDir: f.dir})
	if err != nil {
		return err
	}
	defer func() {
		h.Drain()
		_ = h.Wait() // it did nothing
	}()
	snap, err := h.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close() //nolint:errcheck // it only reads
	out, err := os.Create(f.totals)
	if err != nil {
		return err
	}
	totals := map[string]workload.Total{}
	for row, err := range snap.Scan(ctx, stateName, nil, nil) {
		if err != nil {
			return err
		}
		key, err := f.key(row.Key)
		if err != nil {
			return err
		}
		vs, err := agg.Results(nil, row.Value)
		if err != nil {
			return err
		}
		t := totals[key]
		t.Count += vs[0].Int()
		if len(vs) > 1 {
			t.Sum += vs[1].Int()
		}
		totals[key] = t
	}
	w := bufio.NewWriter(out)
	var line []byte
	for k, t := range totals { // order: whoever compares them doesn't mind
		line = workload.AppendLine(line[:0], k, t)
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return out.Close()
}

// key is the user or the word in a key.
func (f *flags) key(b []byte) (string, error) {
	for range jobs[f.job].key {
		var err error
		if _, b, err = value.DecodeKey(b); err != nil {
			return "", err
		}
	}
	v, _, err := value.DecodeKey(b)
	if err != nil {
		return "", err
	}
	if v.Kind() != value.String {
		return "", fmt.Errorf("a key of %s is %v, no string", stateName, v)
	}
	return v.Str(), nil
}
