package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tridentd/tridentd/bench/workload"
)

// scenario is one question, and the programs that answer it.
type scenario struct {
	name, about string
	run         func(ctx context.Context, b *bench) error
}

var scenarios = []scenario{
	{"drain", "count and sum by user over what waits: the hand-written loop, ours in YAML and in Go", drain},
	{"peers", "the same beside Kafka Streams, Storm Trident and Flink, which Maven fetches", peers},
	{"keys", "the same with many distinct keys in equal shares", manyKeys},
	{"partitions", "the same from 4, 100 and 1,000 partitions", manyPartitions},
	{"operators", "word count, windows, a join with a static table", operators},
	{"costs", "what the group's mirror, ZooKeeper, metrics and kept changes cost", costs},
	{"live", "whether generator, broker and tridentd keep up with a rate on the same cores", live},
	{"latency", "from produce to committed and synced, at 1,000 records a second", latency},
	{"restart", "from a start with many keys to its first commit", restart},
}

func (b *bench) views() workload.Spec {
	return workload.Spec{Kind: workload.Views, Records: b.records, Partitions: 4}
}

// ours is a run of tridentd.
func (b *bench) ours(name, job string, s workload.Spec, more ...string) *program {
	return &program{name: name, spec: s, command: func(r *request) ([]string, []string) {
		args := []string{
			b.bin("ours"), "-brokers", b.kafka.address, "-topic", r.topic, "-dir", filepath.Join(r.dir, "data"), "-totals", r.totals, "-n", fmt.Sprint(r.n), "-job", job,
		}
		if b.profiles != "" {
			args = append(args, "-cpuprofile", filepath.Join(b.profiles, job+"-"+r.run+".pprof"))
		}
		return append(args, more...), nil
	}}
}

func (b *bench) ceiling(s workload.Spec) *program {
	return &program{name: "hand-written loop", spec: s, command: func(r *request) ([]string, []string) {
		return []string{b.bin("ceiling"), "-brokers", b.kafka.address, "-topic", r.topic, "-dir", filepath.Join(r.dir, "data"), "-totals", r.totals}, nil
	}}
}

// compare runs the programs by turns. Before that each topic is read once, so that none meets a broker, or a page cache, colder than the others.
// A program that fails doesn't keep the others from running.
func (b *bench) compare(ctx context.Context, scenario string, programs ...*program) ([]Row, error) {
	b.say("\n%s", scenario)
	warm := map[string]bool{}
	for _, p := range programs {
		if warm[p.spec.Topic()] {
			continue
		}
		warm[p.spec.Topic()] = true
		if _, _, err := b.load(ctx, p.spec); err != nil {
			return nil, err
		}
		kept := b.report.Runs
		job := "yaml"
		if p.spec.Kind == workload.Lines {
			job = "words"
		}
		_, err := b.measured(ctx, scenario, b.ours("(warming up)", job, p.spec, "-group", "off"), 0)
		b.report.Runs = kept
		if err != nil {
			return nil, err
		}
	}
	failed := map[*program]error{}
	for round := 1; round <= b.rounds; round++ {
		for i := range programs {
			// Who comes first changes from round to round.
			p := programs[(i+round-1)%len(programs)]
			if failed[p] != nil {
				continue
			}
			if _, err := b.measured(ctx, scenario, p, round); err != nil {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				b.say("%v", err)
				failed[p] = err
			}
		}
	}
	var err error
	for _, p := range programs {
		err = errors.Join(err, failed[p])
	}
	return b.finish(scenario, programs), err
}

// drain is the first question: how fast, beside what is possible.
func drain(ctx context.Context, b *bench) error {
	s := b.views()
	rows, err := b.compare(ctx, "drain", b.ceiling(s), b.ours("ours, YAML", "yaml", s), b.ours("ours, Go API", "go", s))
	if y, ok := find(rows, "ours, YAML"); ok {
		d := y.Disturbed > 0
		b.atLeast("drain, YAML", y.Rate/1e6, 3, "M records/s", d)
		b.atLeast("drain, share of the hand-written loop", y.Ratio, 0.7, "", d)
		b.atMost("drain, CPU seconds per million records", y.CPUPerMillion, 0.6, "s", d)
		b.atMost("drain, memory", float64(y.PeakMemory>>20), 250, "MB", d)
		b.atMost("drain, allocations", y.Allocs, 0.05, "per record", d)
	}
	if g, ok := find(rows, "ours, Go API"); ok {
		b.atLeast("drain, Go API", g.Rate/1e6, 2.5, "M records/s", g.Disturbed > 0)
	}
	return err
}

// manyKeys asks what a state that doesn't fit into caches costs.
func manyKeys(ctx context.Context, b *bench) error {
	few := workload.Spec{Kind: workload.Views, Records: 2 * b.keys, Partitions: 4}
	many := few
	many.Users, many.Uniform = b.keys, true
	name := fmt.Sprintf("%d keys, uniform", b.keys)
	rows, err := b.compare(ctx, "keys", b.ours(fmt.Sprintf("%d keys, Zipf", workload.DefaultUsers), "yaml", few), b.ours(name, "yaml", many))
	if r, ok := find(rows, name); ok {
		b.atLeast(name+": speed, of that at 100,000", r.Ratio, 1.0/3, "", r.Disturbed > 0)
		b.atMost(name+": memory", float64(r.PeakMemory>>20), 600, "MB", r.Disturbed > 0)
	}
	return err
}

func manyPartitions(ctx context.Context, b *bench) error {
	var ps []*program
	counts := []int32{4, 100, 1000}
	names := make([]string, len(counts))
	for i, n := range counts {
		s := b.views()
		s.Partitions = n
		names[i] = fmt.Sprintf("%d partitions", n)
		ps = append(ps, b.ours(names[i], "yaml", s))
	}
	rows, err := b.compare(ctx, "partitions", ps...)
	for i, limit := range []float64{0, 0.7, 0.4} {
		if r, ok := find(rows, names[i]); ok && i > 0 {
			b.atLeast(names[i]+": speed, of that at 4", r.Ratio, limit, "", r.Disturbed > 0)
		}
	}
	return err
}

func operators(ctx context.Context, b *bench) error {
	s := b.views()
	table := filepath.Join(b.dir, "users.csv")
	f, err := os.Create(table)
	if err != nil {
		return err
	}
	if err := errors.Join(s.WriteUsers(f), f.Close()); err != nil {
		return err
	}
	words := b.ours("word count (words)", "words", workload.Spec{Kind: workload.Lines, Records: max(b.records/workload.WordsPerLine, 1), Partitions: 4})
	words.units = workload.WordsPerLine
	rows, err := b.compare(ctx, "operators", b.ours("the plain job", "yaml", s), b.ours("tumbling window", "window", s), b.ours("static table", "lookup", s, "-table", table), words)
	for _, name := range []string{"tumbling window", "static table"} {
		if r, ok := find(rows, name); ok {
			b.atLeast(name+": speed, of the plain job", r.Ratio, 0.5, "", r.Disturbed > 0)
		}
	}
	if r, ok := find(rows, words.name); ok {
		b.atLeast("word count", r.Rate/1e6, 5, "M words/s", r.Disturbed > 0)
	}
	return err
}

// costs asks what each of the things costs that can be switched on beside the job.
func costs(ctx context.Context, b *bench) error {
	s := b.views()
	zk := b.ours("with ZooKeeper's record", "yaml", s)
	bare := zk.command
	zk.zookeeper = true
	zk.command = func(r *request) (args, env []string) {
		args, env = bare(r)
		return append(args, "-group", "off", "-zookeeper", b.zookeeper.address+"/bench"), env
	}
	goals := []*program{b.ours("with the group's mirror", "yaml", s), zk, b.ours("with metrics", "yaml", s, "-group", "off", "-metrics")}
	all := append([]*program{b.ours("neither", "yaml", s, "-group", "off")}, goals...)
	all = append(all, b.ours("with changes kept", "yaml", s, "-group", "off", "-changes", "keep"))
	rows, err := b.compare(ctx, "costs", all...)
	for _, p := range goals {
		if r, ok := find(rows, p.name); ok {
			b.atMost(p.name+": more processor time", 100*(r.CPURatio-1), 5, "%", r.Disturbed > 0)
		}
	}
	return err
}
