//go:build realkafka

package replay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/server"
)

const kafkaPartitions = 4

// kafkaWorld is a topic full of lines, with programs that count their words.
type kafkaWorld struct {
	*world
	k     *testenv.KafkaServer
	topic string
	cl    *kgo.Client
}

// fill produces n lines of three words each, and one line with the word marker in the middle.
func (w *kafkaWorld) fill(n int) {
	w.t.Helper()
	failed := make(chan error, 1)
	for i := range n {
		text := fmt.Sprintf("word%03d word%03d word%03d", i%500, i*7%500, i*i%500)
		if i == n/2 {
			text += " marker"
		}
		w.cl.Produce(w.t.Context(), &kgo.Record{Topic: w.topic, Partition: int32(i % kafkaPartitions), Value: []byte(text)}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := w.cl.Flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	select {
	case err := <-failed:
		w.t.Fatal(err)
	default:
	}
}

func (w *kafkaWorld) pipeline() *engine.Pipeline {
	p := engine.New("words", engine.WithBatching(engine.Batching{MaxRecords: 2_000}), engine.WithLedger(engine.Ledger{KeepChanges: true}))
	lines := engine.From(p, "lines", kafka.New(w.k.Brokers()...).Topics(w.topic).NoMirror(), codec.String())
	words := engine.Map(engine.FlatMap(lines, strings.Fields), func(s string) string { return w.bend(s) })
	engine.Aggregate(engine.GroupBy(words, func(s string) string { return s }, "word"), "counts", agg.Count[string]("n"))
	return p
}

// tridentd runs a command of the program over a data directory.
func (w *kafkaWorld) tridentd(data string, args ...string) (code int, said string, took time.Duration) {
	w.t.Helper()
	var out bytes.Buffer
	began := time.Now()
	code = daemon.Execute(w.t.Context(), append([]string{args[0], "words", "--data", w.dir + "/" + data}, args[1:]...), &out, &out, w.pipeline())
	return code, out.String(), time.Since(began)
}

// ends runs a command that must end with the code and say all of words.
func (w *kafkaWorld) ends(code int, data string, args []string, words ...string) (said string, took time.Duration) {
	w.t.Helper()
	got, said, took := w.tridentd(data, args...)
	if got != code {
		w.t.Fatalf("%s: exit %d, want %d\n%s", args, got, code, said)
	}
	if code != 0 {
		w.t.Log(said)
	}
	for _, word := range words {
		if !strings.Contains(said, word) {
			w.t.Errorf("%s doesn't say %q:\n%s", args, word, said)
		}
	}
	return said, took
}

func (w *kafkaWorld) entries(data string) (all []server.LedgerEntry) {
	w.t.Helper()
	said, _ := w.ends(0, data, []string{"ledger", "--format", "json"})
	if err := json.Unmarshal([]byte(said), &all); err != nil {
		w.t.Fatal(err)
	}
	return all
}

// TestOnKafka verifies what was made of a topic: equal on any number of cores; and each way not to be equal has its exit code and
// says where.
func TestOnKafka(t *testing.T) {
	n := 100_000
	if testenv.Full() {
		n = 1_000_000
	}
	w := &kafkaWorld{world: &world{t: t, dir: t.TempDir(), bend: strings.ToLower}, k: testenv.Kafka(t)}
	w.topic = w.k.Topic(t, "lines", kafkaPartitions, nil)
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.k.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	w.cl = cl
	w.fill(n)

	run := []string{"run", "--until", "caught-up", "--listen", "off"}
	verify := []string{"replay", "--verify"}
	_, live := w.ends(0, "data", run)
	count := strings.ReplaceAll(fmt.Sprintf("%d,%03d", n/1000, n%1000), "1000,", "1,000,")
	for _, procs := range []string{"1", "2", "16"} {
		said, took := w.ends(0, "data", append(verify, "--procs", procs), count+" records: input, changes (key by key) and final state equal")
		t.Logf("run %s, replay on %s procs %s: %s", live, procs, took, strings.TrimSpace(said))
	}

	t.Run("impure step", func(t *testing.T) {
		i := &kafkaWorld{world: &world{t: t, dir: w.dir}, k: w.k, topic: w.topic, cl: cl}
		var calls atomic.Int64
		i.bend = func(s string) string {
			if s == "marker" {
				return fmt.Sprintf("marker-%d", calls.Add(1))
			}
			return s
		}
		i.ends(0, "impure", run)
		said, _ := i.ends(3, "impure", verify, "state counts", "key word=marker-1: recorded n=1 added, now no write",
			"key word=marker-2 of lines/"+w.topic, "recorded no write, now n=1 added", "isn't pure")
		if !strings.Contains(said, "txid ") {
			t.Error(said)
		}
	})

	t.Run("a byte changed", func(t *testing.T) {
		ledger := w.entries("data")
		txid := ledger[len(ledger)/2].Txid
		w.tamper("data", txid, []byte("word123\x00\x01"), true)
		w.ends(3, "data", verify, fmt.Sprintf("txid %d: the kept changes of state counts", txid), "state counts, key word=word123 of lines/"+w.topic)
	})

	t.Run("records deleted", func(t *testing.T) {
		var first *server.LedgerRange
		for _, e := range w.entries("data") {
			for i := range e.Ranges {
				if r := &e.Ranges[i]; first == nil && r.Partition == 2 {
					first = r
				}
			}
		}
		var at kadm.Offsets
		at.AddOffset(w.topic, 2, first.Start+10, -1)
		resp, err := kadm.NewClient(cl).DeleteRecords(t.Context(), at)
		if err == nil {
			err = resp.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
		w.ends(1, "data", verify, "lines/"+w.topic+"-2", fmt.Sprintf("[%d,%d)", first.Start, first.End))
	})
}
