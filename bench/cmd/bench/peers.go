package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tridentd/tridentd/bench/workload"
)

// opened are the packages of the JDK that Flink and Storm reach into.
var opened = []string{
	"java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util", "java.util.concurrent",
	"java.util.concurrent.atomic", "java.text", "java.time", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.util.calendar",
}

// peer is another engine: its program in bench/peers.
func (b *bench) peer(ctx context.Context, name, dir string, s workload.Spec, env ...string) (*program, error) {
	b.say("building %s", dir)
	script := exec.CommandContext(ctx, filepath.Join(b.root, "bench", "peers", "build.sh"), dir, filepath.Join(b.dir, "java"))
	script.Stderr = os.Stderr
	out, err := script.Output()
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", dir, err)
	}
	classes := strings.TrimSpace(string(out))
	return &program{name: name, spec: s, zookeeper: dir == "storm", command: func(r *request) ([]string, []string) {
		args := []string{"java", "-Xmx" + b.heap, "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}
		for _, p := range opened {
			args = append(args, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
		}
		if conf := filepath.Join(b.root, "bench", "peers", dir, "log4j2.properties"); dir == "storm" {
			args = append(args, "-Dlog4j2.configurationFile="+conf)
		}
		vars := append([]string{
			"BOOTSTRAP=" + b.kafka.address, "TOPIC=" + r.topic, fmt.Sprintf("N=%d", r.n), "WORK=" + r.dir, "TOTALS=" + r.totals, "APP=" + peerApp + r.run,
		}, env...)
		if b.zookeeper != nil {
			vars = append(vars, "ZK="+b.zookeeper.address)
		}
		return append(args, "-cp", classes, "Peer"), vars
	}}, nil
}

// peerApp begins the names of the topics that Kafka Streams makes for itself.
const peerApp = "bench-peer-"

// peers asks how much faster than others. A peer that can't be built doesn't keep the others from running.
func peers(ctx context.Context, b *bench) error {
	s := b.views()
	programs := []*program{b.ours("ours, YAML", "yaml", s)}
	var failed error
	for _, p := range []struct {
		name, dir string
		env       []string
	}{
		{"Flink, checkpoint each second", "flink", []string{"CHECKPOINT_MS=1000"}},
		{"Kafka Streams, commit 100 ms", "kstreams", []string{"COMMIT_MS=100"}},
		{"Kafka Streams, commit 1 s", "kstreams", []string{"COMMIT_MS=1000"}},
		{"Storm Trident", "storm", nil},
	} {
		built, err := b.peer(ctx, p.name, p.dir, s, p.env...)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		programs = append(programs, built)
	}
	rows, err := b.compare(ctx, "peers", programs...)
	if len(rows) > 0 {
		flink := 6.0
		if b.records >= 20_000_000 { // the JVM's warming up weighs less
			flink = 5
		}
		for _, g := range []struct {
			name  string
			times float64
		}{{"Flink, checkpoint each second", flink}, {"Kafka Streams, commit 100 ms", 8}, {"Storm Trident", 15}} {
			if r, ok := find(rows, g.name); ok {
				b.atLeast("speed beside "+g.name, 1/r.Ratio, g.times, "times", r.Disturbed > 0 || rows[0].Disturbed > 0)
			}
		}
	}
	return errors.Join(failed, err, b.dropTopics(ctx, peerApp))
}
