package spec

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/txstate"
)

// bench runs a plan's tasks and exchanges in memory, one batch after the other, as internal/exec would.
type bench struct {
	plan     *plan.Plan
	statics  []any
	states   []map[string][]byte // by exchange
	rejected []plan.Rejected
	peeked   []plan.Peeked
	tasks    map[string]plan.Task
	txid     batch.Txid
	// maxTime is the largest event time of the last batch's partitions, by partition.
	maxTime map[batch.Partition]int64
}

func newBench(p *Pipeline, statics map[string]plan.StaticPart) (*bench, error) {
	pl, err := p.Plan()
	if err != nil {
		return nil, err
	}
	b := &bench{plan: pl, tasks: map[string]plan.Task{}, maxTime: map[batch.Partition]int64{}}
	for range pl.Exchanges {
		b.states = append(b.states, map[string][]byte{})
	}
	for _, s := range pl.Statics {
		part, ok := statics[s.Name]
		if !ok {
			return nil, fmt.Errorf("no rows for static table %s", s.Name)
		}
		table, err := s.Build([]plan.StaticPart{part})
		if err != nil {
			return nil, err
		}
		b.statics = append(b.statics, table)
	}
	return b, nil
}

// input is what one partition has for one batch, cut into chunks.
type input struct {
	partition batch.Partition
	fields    []string
	records   []batch.Record
	chunk     int // records per chunk; 0: all in one
}

// run takes one batch. Inputs are in partition order.
func (b *bench) run(at time.Time, watermark int64, inputs ...input) error {
	b.txid++
	bt := &batch.Batch{Txid: b.txid, Time: at, Seed: uint64(b.txid)}
	merged := make([]map[string][]byte, len(b.plan.Exchanges))
	for i := range merged {
		merged[i] = map[string][]byte{}
	}
	var rejected []plan.Rejected
	for _, in := range inputs {
		src := b.source(in.partition.Source)
		task := b.tasks[src.ID]
		if task == nil {
			task = src.NewTask()
			b.tasks[src.ID] = task
		}
		tc := &plan.TaskContext{
			Batch: bt, Partition: in.partition, OnBad: src.OnBad, Statics: b.statics, EventTime: txstate.NoTime,
			Watermarks: slices.Repeat([]int64{watermark}, len(b.plan.Sources)),
		}
		if src.Time != nil {
			tc.Future = orDefault(src.Time.Future, plan.DefaultFuture)
		}
		for range b.plan.Exchanges {
			d := new(plan.Deltas)
			d.Reset(4)
			tc.Out = append(tc.Out, d)
		}
		if err := task.Begin(tc); err != nil {
			return err
		}
		for recs := in.records; len(recs) > 0; {
			n := len(recs)
			if in.chunk > 0 {
				n = min(n, in.chunk)
			}
			if err := task.Process(&batch.Chunk{Records: recs[:n], Fields: in.fields}); err != nil {
				return err
			}
			recs = recs[n:]
		}
		if err := task.End(); err != nil {
			return err
		}
		b.maxTime[in.partition] = tc.EventTime
		for i, e := range b.plan.Exchanges {
			if err := mergeInto(merged[i], e, tc.Out[i]); err != nil {
				return err
			}
		}
		rejected = append(rejected, tc.Rejected...)
		b.peeked = append(b.peeked, tc.Peeked...)
	}
	for i, e := range b.plan.Exchanges {
		if e.Next != nil {
			turned, err := b.stage(e, bt, merged[i], merged)
			if err != nil {
				return err
			}
			rejected = append(rejected, turned...)
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(merged[i])) {
			v, keep, err := e.State.Update(nil, b.states[i][key], merged[i][key])
			if err != nil {
				return err
			}
			if keep {
				b.states[i][key] = v
			}
		}
	}
	b.rejected = append(b.rejected, rejected...)
	return nil
}

// stage runs the stage behind an exchange, in as many shards as deltas have here.
func (b *bench) stage(e *plan.Exchange, bt *batch.Batch, rows map[string][]byte, merged []map[string][]byte) ([]plan.Rejected, error) {
	var rejected []plan.Rejected
	var shards plan.Deltas
	shards.Reset(4)
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if err := shards.Add([]byte(key), rows[key]); err != nil {
			return nil, err
		}
	}
	shards.Finish()
	task := e.Next()
	for shard := range 4 {
		entries := slices.Clone(shards.Shard(shard))
		slices.SortFunc(entries, func(x, y plan.Delta) int { return bytes.Compare(shards.Key(&x), shards.Key(&y)) })
		tc := &plan.TaskContext{Batch: bt, Shard: shard, OnBad: b.onBad(), Statics: b.statics, EventTime: txstate.NoTime}
		for range b.plan.Exchanges {
			d := new(plan.Deltas)
			d.Reset(4)
			tc.Out = append(tc.Out, d)
		}
		if err := task.Begin(tc); err != nil {
			return nil, err
		}
		for i := range entries {
			if err := task.Row(shards.Key(&entries[i]), shards.Value(&entries[i])); err != nil {
				return nil, err
			}
		}
		if err := task.End(); err != nil {
			return nil, err
		}
		for i, e := range b.plan.Exchanges {
			if err := mergeInto(merged[i], e, tc.Out[i]); err != nil {
				return nil, err
			}
		}
		rejected = append(rejected, tc.Rejected...)
		b.peeked = append(b.peeked, tc.Peeked...)
	}
	return rejected, nil
}

// onBad is the policy of later stages: that of all sources, or to stop.
func (b *bench) onBad() plan.OnBad {
	for _, s := range b.plan.Sources {
		if s.OnBad == plan.Stop {
			return plan.Stop
		}
	}
	return plan.Skip
}

func mergeInto(into map[string][]byte, e *plan.Exchange, d *plan.Deltas) error {
	d.Finish()
	for shard := range 4 {
		entries := slices.Clone(d.Shard(shard))
		slices.SortFunc(entries, func(x, y plan.Delta) int {
			if c := bytes.Compare(d.Key(&x), d.Key(&y)); c != 0 {
				return c
			}
			if x.Before(&y) {
				return -1
			}
			return 1
		})
		for i := range entries {
			key, val := string(d.Key(&entries[i])), d.Value(&entries[i])
			old, ok := into[key]
			if !ok {
				into[key] = bytes.Clone(val)
				continue
			}
			m, err := e.Merge(nil, old, val)
			if err != nil {
				return err
			}
			into[key] = m
		}
	}
	return nil
}

func (b *bench) source(id string) *plan.Source {
	for _, s := range b.plan.Sources {
		if s.ID == id {
			return s
		}
	}
	panic("no source " + id)
}

// state writes the rows of a state, in key order, as JSON objects.
func (b *bench) state(name string) (string, error) {
	var out []byte
	for i, e := range b.plan.Exchanges {
		if e.State == nil || e.State.Schema.Name != name {
			continue
		}
		sc := e.State.Schema
		for _, key := range slices.Sorted(maps.Keys(b.states[i])) {
			rest := []byte(key)
			out = append(out, '{')
			for k, c := range sc.Key {
				v, next, err := value.DecodeKey(rest)
				if err != nil {
					return "", err
				}
				rest = next
				if k > 0 {
					out = append(out, ", "...)
				}
				out = value.AppendJSON(append(strconv.AppendQuote(out, c.Name), ": "...), v)
			}
			if len(rest) > 0 {
				return "", fmt.Errorf("key %x has more than %d columns", key, len(sc.Key))
			}
			vals, err := agg.Results(nil, b.states[i][key])
			if err != nil {
				return "", err
			}
			if len(vals) != len(sc.Values) {
				return "", fmt.Errorf("%d cells for %d columns", len(vals), len(sc.Values))
			}
			for k, c := range sc.Values {
				if k > 0 || len(sc.Key) > 0 {
					out = append(out, ", "...)
				}
				out = value.AppendJSON(append(strconv.AppendQuote(out, c.Name), ": "...), vals[k])
			}
			out = append(out, "}\n"...)
		}
		return string(out), nil
	}
	return "", fmt.Errorf("no state %s", name)
}

// TestRun runs pipelines on given records.
//
//	pipeline            a file; its static tables follow
//	static name=N columns=(…)
//	batch source=S [partition=N] [columns=(…)] [time=T] [watermark=T] [chunk=N]
//	                    one record a line; NULL is the null value, K=>V a record with a key
//	state name=N
//	rejected
//	peeked              what peeks have shown since it was asked last
func TestRun(t *testing.T) {
	datadriven.Walk(t, "testdata/run", func(t *testing.T, path string) {
		var p *Pipeline
		var b *bench
		statics := map[string]plan.StaticPart{}
		offsets := map[batch.Partition]int64{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			arg := func(name string) string {
				var s string
				d.MaybeScanArgs(t, name, &s)
				return s
			}
			columns := func() []string {
				for _, a := range d.CmdArgs {
					if a.Key == "columns" {
						return a.Vals
					}
				}
				return nil
			}
			instant := func(name string, def time.Time) time.Time {
				if s := arg(name); s != "" {
					at, err := time.Parse(time.RFC3339, s)
					if err != nil {
						d.Fatalf(t, "%v", err)
					}
					return at
				}
				return def
			}
			lines := func(first int64) []batch.Record {
				var recs []batch.Record
				for line := range strings.Lines(d.Input + "\n") {
					r := batch.Record{Offset: first + int64(len(recs)), Timestamp: 1_700_000_000_000 + int64(len(recs))}
					key, val, keyed := strings.Cut(strings.TrimSuffix(line, "\n"), "=>")
					if keyed {
						r.Key = []byte(key)
					} else {
						val = key
					}
					if val != "NULL" {
						r.Value = []byte(val)
					}
					recs = append(recs, r)
				}
				return recs
			}
			ready := func() error {
				if b != nil {
					return nil
				}
				if p == nil {
					return errors.New("there is no pipeline")
				}
				var err error
				b, err = newBench(p, statics)
				return err
			}
			switch d.Cmd {
			case "pipeline":
				var err error
				b, statics = nil, map[string]plan.StaticPart{}
				clear(offsets)
				p, err = Parse("p.yaml", []byte(d.Input), Options{Dir: "testdata/data", Env: func(string) (string, bool) { return "", false }})
				if err != nil {
					return err.Error() + "\n"
				}
				return ""
			case "static":
				statics[arg("name")] = plan.StaticPart{Partition: batch.Partition{Source: arg("name"), Topic: "f"}, Chunk: batch.Chunk{Records: lines(0), Fields: columns()}}
				return ""
			case "batch":
				if err := ready(); err != nil {
					return err.Error() + "\n"
				}
				in := input{partition: batch.Partition{Source: arg("source"), Topic: "t"}, fields: columns()}
				d.MaybeScanArgs(t, "partition", &in.partition.Number)
				d.MaybeScanArgs(t, "chunk", &in.chunk)
				in.records = lines(offsets[in.partition])
				mark := instant("watermark", time.Time{})
				watermark := txstate.NoTime
				if !mark.IsZero() {
					watermark = mark.UnixNano()
				}
				if err := b.run(instant("time", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), watermark, in); err != nil {
					delete(b.tasks, in.partition.Source)
					return fmt.Sprintf("%s error %s: %v\n", batch.KindOf(err), batch.CodeOf(err), err)
				}
				offsets[in.partition] += int64(len(in.records))
				if et := b.maxTime[in.partition]; et != txstate.NoTime {
					return "event time " + nanoText(et) + "\n"
				}
				return ""
			case "state":
				if err := ready(); err != nil {
					return err.Error() + "\n"
				}
				s, err := b.state(arg("name"))
				if err != nil {
					return err.Error() + "\n"
				}
				return s
			case "peeked":
				out := ""
				for _, r := range b.peeked {
					out += fmt.Sprintf("%s %d: %s offset %d:", r.Peek.Stream, r.Peek.N, r.Partition.Source, r.Offset)
					for i := 0; i < len(r.Fields); i += 2 {
						out += fmt.Sprintf(" %s=%v", r.Fields[i], r.Fields[i+1])
					}
					out += "\n"
				}
				b.peeked = nil
				return out
			case "rejected":
				out := ""
				for _, r := range b.rejected {
					v := "NULL"
					if r.Value != nil {
						v = strconv.Quote(string(r.Value))
					}
					out += fmt.Sprintf("%s offset %d, %s: %s: %s\n", r.Kind, r.Offset, r.Step, r.Cause, v)
				}
				return out
			}
			d.Fatalf(t, "no command %s", d.Cmd)
			return ""
		})
	})
}
