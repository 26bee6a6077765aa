//go:build crash

package daemon_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/internal/testenv"
)

// TestKillWithDeadLetters reads a topic in which each seventh record is bad, in a process that is killed by SIGKILL again and again. Each
// bad record must be a dead letter once, with its own bytes and place, in a topic and in files.
func TestKillWithDeadLetters(t *testing.T) {
	records, kills := 100_000, 20
	if testenv.Full() {
		records, kills = 800_000, 200
	}
	k := testenv.Kafka(t)
	topic, target := k.Topic(t, "in", 2, nil), k.Topic(t, "dead", 3, nil)
	dir := t.TempDir()
	bin := build(t, dir)
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	type place struct {
		partition int32
		offset    int64
	}
	bad := map[place]int{}
	for i := range records {
		r := &kgo.Record{Key: fmt.Appendf(nil, "k%d", i%10), Value: fmt.Appendf(nil, `{"n":%d}`, i)}
		if i%7 == 0 {
			r.Value, r.Headers = fmt.Appendf(nil, "bad\xff%d", i), []kgo.RecordHeader{{Key: "number", Value: fmt.Append(nil, i)}}
		}
		cl.Produce(t.Context(), r, func(r *kgo.Record, err error) { // one at a time
			if err != nil {
				t.Error(err)
			}
			if i%7 == 0 {
				bad[place{r.Partition, r.Offset}] = i
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"topic": fmt.Sprintf("kafka: {topic: %s}", target), "files": "file: {dir: dead}"} {
		t.Run(name, func(t *testing.T) {
			pipeline := "dead-" + name + "-" + topic
			file, data := filepath.Join(dir, name+".yaml"), filepath.Join(dir, "data")
			write(t, file, fmt.Sprintf(`pipeline: %s
connections:
  kafka: {brokers: ["%s"]}
batch: {max_records: 100}
on_bad_record: dead_letter
dead_letters:
  %s
  limit: {count: %d}
sources:
  in:
    kafka: {topics: [%s]}
    decode: json
    types: {n: int}
streams:
  counts:
    from: in
    steps:
      - filter: n >= 0
      - aggregate: {n: count()}
`, pipeline, strings.Join(k.Brokers(), `", "`), to, records, topic))
			store := filepath.Join(data, pipeline)
			running := runKilled(t, bin, file, data, store, kills, 20261203)
			out, err := exec.Command(bin, "deadletters", file, "--format", "json").Output()
			if err != nil {
				t.Fatalf("deadletters: %v", err)
			}
			var letters []struct {
				Partition int32
				Offset    int64
				Step      string
				Value     struct{ Base64 []byte }
				Headers   []struct{ Key, Value string }
			}
			if err := json.Unmarshal(out, &letters); err != nil {
				t.Fatal(err)
			}
			seen := map[int]bool{}
			for _, l := range letters {
				n, ok := bad[place{l.Partition, l.Offset}]
				switch {
				case !ok:
					t.Errorf("partition %d offset %d is a dead letter, and no bad record", l.Partition, l.Offset)
				case seen[n]:
					t.Errorf("record %d is there twice", n)
				case l.Step != "decode" || string(l.Value.Base64) != fmt.Sprintf("bad\xff%d", n) || len(l.Headers) != 1 || l.Headers[0].Value != fmt.Sprint(n):
					t.Errorf("record %d: %+v", n, l)
				}
				seen[n] = true
			}
			if len(seen) != len(bad) || len(bad) != (records+6)/7 {
				t.Errorf("%d dead letters of %d bad records, want %d", len(seen), len(bad), (records+6)/7)
			}
			t.Logf("%d records, %d dead letters, %d kills, %d of them after a commit: %s", records, len(letters), kills, running, verified(t, bin, file, data))
		})
	}
}
