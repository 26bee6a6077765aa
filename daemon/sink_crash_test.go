//go:build crash

package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/internal/testenv"
)

// TestKillWithSinks sends records of a topic on to another topic and to files, in a process that is killed by SIGKILL again and again. Who
// reads committed records only must find each once, in both.
func TestKillWithSinks(t *testing.T) {
	records, kills := 100_000, 25 // far more than the runs get to, on a quick machine too
	if testenv.Full() {
		records, kills = 800_000, 200
	}
	k := testenv.Kafka(t)
	topic, target := k.Topic(t, "in", 2, nil), k.Topic(t, "out", 3, nil)
	dir := t.TempDir()
	bin := build(t, dir)
	file := filepath.Join(dir, "relay.yaml")
	write(t, file, fmt.Sprintf(`pipeline: relay-%s
connections:
  kafka: {brokers: ["%s"]}
batch:
  max_records: 100
sources:
  in:
    kafka: {topics: [%s]}
    decode: json
    types: {n: int}
streams:
  odd:
    from: in
    steps:
      - filter: n %% 2 == 1
      - set: {k: string(n %% 10)}
  counts:
    from: in
    steps:
      - aggregate: {n: count()}
sinks:
  topic:
    from: odd
    fields: [n]
    kafka:
      topic: %s
      key: k
  files: {from: odd, file: {dir: out}}
`, topic, strings.Join(k.Brokers(), `", "`), topic, target))
	data := filepath.Join(dir, "data")
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range records {
		cl.Produce(t.Context(), &kgo.Record{Value: fmt.Appendf(nil, `{"n":%d}`, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(data, "relay-"+topic)
	running := runKilled(t, bin, file, data, store, kills, 20261202)

	each := func(where string, rows [][]byte) {
		t.Helper()
		seen := map[int]int{}
		for _, r := range rows {
			var v struct{ N int }
			if err := json.Unmarshal(r, &v); err != nil {
				t.Fatalf("%s: %s: %v", where, r, err)
			}
			seen[v.N]++
		}
		for n := 1; n < records; n += 2 {
			if seen[n] != 1 {
				t.Errorf("%s: record %d is there %d times", where, n, seen[n])
			}
		}
		if len(seen) != records/2 {
			t.Errorf("%s: %d records, want %d", where, len(seen), records/2)
		}
	}
	each("the topic", readCommitted(t, k.Brokers(), target))
	names, err := filepath.Glob(filepath.Join(dir, "out", "files-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]byte
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))...)
	}
	each("the files", rows)
	t.Logf("%d records, %d kills, %d of them after a commit, %d files: %s", records, kills, running, len(names), verified(t, bin, file, data))
}

// readCommitted reads the values of a topic to its end.
func readCommitted(t *testing.T, brokers []string, topic string) (values [][]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var ends kadm.ListedOffsets
	for settled := false; !settled; time.Sleep(20 * time.Millisecond) { // the markers of the last commit come a moment after it
		log, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
		if err == nil {
			ends, err = kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
		}
		if err != nil {
			t.Fatal(err)
		}
		settled = true
		log.Each(func(o kadm.ListedOffset) {
			if s, ok := ends.Lookup(o.Topic, o.Partition); !ok || s.Offset != o.Offset {
				settled = false
			}
		})
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if !r.Attrs.IsControl() {
				values = append(values, r.Value)
			}
		})
	}
	return values
}
