package replaytest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/replay/replaytest"
	"github.com/tridentd/tridentd/window"
)

// fakeTB notes failures instead of failing.
type fakeTB struct {
	testing.TB
	failures []string
}

func (f *fakeTB) Helper() {}
func (f *fakeTB) Errorf(format string, args ...any) {
	f.failures = append(f.failures, fmt.Sprintf(format, args...))
}

// fails runs f and wants it to fail with text.
func fails(t *testing.T, f func(tb testing.TB), texts ...string) {
	t.Helper()
	tb := &fakeTB{TB: t}
	f(tb)
	all := strings.Join(tb.failures, "\n")
	if len(tb.failures) == 0 {
		t.Error("it passed")
	}
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("%s\nlacks %q", all, text)
		}
	}
}

type event struct {
	User string    `json:"user"`
	N    int64     `json:"n"`
	At   time.Time `json:"at"`
}

// events is a pipeline with a windowed state, a float and a batch aggregate: all that batch borders show in.
func events(src kafka.Source, bend func(string) string) func() *engine.Pipeline {
	return func() *engine.Pipeline {
		p := engine.New("events", engine.OnBadRecord(engine.Skip))
		in := engine.From(p, "events", src, codec.JSON[event]()).EventTime(func(e event) time.Time { return e.At }, 5*time.Second)
		bent := engine.Map(in, func(e event) event {
			e.User = bend(e.User)
			return e
		})
		byUser := engine.GroupBy(bent, func(e event) string { return e.User }, "user")
		engine.Aggregate(byUser, "means", agg.MeanOf("mean", func(e event) float64 { return float64(e.N) / 3 }))
		engine.Aggregate(engine.GroupByWindow(bent, window.Tumbling(time.Minute), func(e event) string { return e.User }, "user"), "per_minute", agg.Count[event]("n"))
		totals := engine.BatchAggregate[int64](byUser, "totals", agg.Count[event]("n"))
		engine.Aggregate(engine.GroupBy(totals, func(t engine.Total[string, int64]) int64 { return t.Value }, "size"), "sizes", agg.Count[engine.Total[string, int64]]("n"))
		return p
	}
}

func same(s string) string { return s }

// impure bends one record, differently each time.
func impure() func(string) string {
	var calls atomic.Int64
	return func(s string) string {
		if s == "odd" {
			return fmt.Sprint(s, calls.Add(1))
		}
		return s
	}
}

// produce fills a topic of 3 partitions.
func produce(t *testing.T, brokers []string, topic string, n int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var recs []*kgo.Record
	for i := range n {
		b, err := json.Marshal(event{fmt.Sprint("user", i*i%17), int64(i), time.Date(2026, 1, 1, 0, 0, i*7%600, 0, time.UTC)})
		switch {
		case err != nil:
			t.Fatal(err)
		case i == n/2:
			b = []byte(`{"user":"odd","n":1,"at":"2026-01-01T00:00:00Z"}`)
		case i%97 == 5:
			b = []byte("\xff{")
		}
		recs = append(recs, &kgo.Record{Partition: int32(i % 3), Value: b, Key: []byte{byte(i)}, Headers: []kgo.RecordHeader{{Key: "i", Value: []byte(fmt.Sprint(i))}, {Key: "null"}}})
	}
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func fake(t *testing.T) []string {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "events", "empty"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()
}

// live is what every broker must pass.
func live(t *testing.T, brokers []string, topic string, n int) {
	t.Helper()
	produce(t, brokers, topic, n)
	c := kafka.New(brokers...)
	l := replaytest.Live{Records: int64(n), BatchRecords: int64(n)/24 + 1}
	replaytest.Verify(t, events(c.Topics(topic), same), l)
	fails(t, func(tb testing.TB) { replaytest.Verify(tb, events(c.Topics(topic), impure()), l) },
		"computed twice", "key user=odd", "step map 1", topic+"-")

	dir := t.TempDir()
	replaytest.Record(t, events(c.Topics(topic), same), dir, l)
	nowhere := kafka.New("127.0.0.1:1").Topics(topic) // a recording needs no broker
	replaytest.Verify(t, events(nowhere, same), replaytest.Recorded(dir))
	fails(t, func(tb testing.TB) { replaytest.Verify(tb, events(nowhere, impure()), replaytest.Recorded(dir)) }, "computed twice", "key user=odd", "step map 1")
}

func TestLive(t *testing.T) {
	brokers := fake(t)
	live(t, brokers, "events", 1500)
	fails(t, func(tb testing.TB) {
		replaytest.Verify(tb, events(kafka.New(brokers...).Topics("empty"), same), replaytest.Live{})
	}, "hold no records")
	fails(t, func(tb testing.TB) {
		replaytest.Verify(tb, events(kafka.New("127.0.0.1:1").Topics("events"), same), replaytest.Live{Timeout: time.Second})
	}, "127.0.0.1:1")
}

// TestBounded takes a part of a topic only, and leaves no trace in the group.
func TestBounded(t *testing.T) {
	brokers := fake(t)
	produce(t, brokers, "events", 900)
	dir := t.TempDir()
	replaytest.Record(t, events(kafka.New(brokers...).Topics("events"), same), dir, replaytest.Live{Records: 100, BatchRecords: 10})
	b, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "\n"); n < 100 || n > 130 {
		t.Errorf("%d records were taken, want about 100", n)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if groups, err := listGroups(t.Context(), cl); err != nil || len(groups) != 0 {
		t.Errorf("groups %q, %v", groups, err)
	}
}

func lines(pattern string, bend func(string) string) func() *engine.Pipeline {
	return func() *engine.Pipeline {
		p := engine.New("words", engine.WithBatching(engine.Batching{MaxRecords: 50}))
		in := engine.From(p, "lines", file.Paths(pattern), codec.String())
		words := engine.FlatMap(in, strings.Fields)
		engine.Aggregate(engine.GroupBy(engine.Map(words, bend), same, "word"), "counts", agg.Count[string]("n"))
		return p
	}
}

func TestLedger(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "in.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("a b\nodd c\n", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	fails(t, func(tb testing.TB) { replaytest.Verify(tb, lines(path, same), replaytest.Ledger(data)) }, "words")
	if err := engine.Run(t.Context(), lines(path, same)(), engine.Options{DataDir: data, UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	replaytest.Verify(t, lines(path, same), replaytest.Ledger(data))
	fails(t, func(tb testing.TB) { replaytest.Verify(tb, lines(path, impure()), replaytest.Ledger(data)) }, "txid 1", "state counts")
	replaytest.Verify(t, lines(path, same), replaytest.Live{})
}

// TestBetweenBatches: what a function keeps between batches isn't found by computing a batch twice.
func TestBetweenBatches(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "in.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("a\n", 400)), 0o600); err != nil {
		t.Fatal(err)
	}
	build := func() *engine.Pipeline {
		var txids atomic.Int64
		var last atomic.Uint64
		p := engine.New("words", engine.WithBatching(engine.Batching{MaxRecords: 50}))
		in := engine.From(p, "lines", file.Paths(path), codec.String())
		kept := engine.TryMap(in, func(b *engine.Batch, s string) (string, error) {
			if last.Swap(uint64(b.Txid())) != uint64(b.Txid()) {
				txids.Add(1)
			}
			return fmt.Sprint(s, txids.Load()), nil
		})
		engine.Aggregate(engine.GroupBy(kept, same, "word"), "counts", agg.Count[string]("n"))
		return p
	}
	fails(t, func(tb testing.TB) { replaytest.Verify(tb, build, replaytest.Live{}) }, "after a crash at sync", "state counts", "key word=a")
}

func TestRecordedByHand(t *testing.T) {
	write := func(t *testing.T, files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	const two = `{"topic":"t","partition":0,"offset":0,"value":"a b"}` + "\n" + `{"topic":"t","partition":0,"offset":7,"value":"c"}` + "\n"
	const joined = `{"txid":1,"time":"2026-01-01T00:00:00Z","seed":1,"joined":[{"source":"lines","topic":"t","partition":0}],"ranges":[{"source":"lines","topic":"t","partition":0,"end":5}]}` + "\n"
	for name, tc := range map[string]struct {
		files map[string]string
		want  string // empty: it passes
	}{
		"records alone":  {map[string]string{"lines.jsonl": two}, ""},
		"no topic":       {map[string]string{"lines.jsonl": `{"offset":3,"value":{"base64":"/w=="},"key":null}`}, ""},
		"batches":        {map[string]string{"lines.jsonl": two, "batches.jsonl": joined}, ""},
		"nothing there":  {nil, "lines.jsonl"},
		"empty":          {map[string]string{"lines.jsonl": "\n"}, "no records"},
		"no JSON":        {map[string]string{"lines.jsonl": two + "{"}, "lines.jsonl:3:"},
		"unknown field":  {map[string]string{"lines.jsonl": `{"valu":"a"}`}, "valu"},
		"odd value":      {map[string]string{"lines.jsonl": `{"value":3}`}, "lines.jsonl:1:"},
		"going back":     {map[string]string{"lines.jsonl": two + two}, "comes behind offset 7"},
		"another source": {map[string]string{"lines.jsonl": two, "batches.jsonl": strings.ReplaceAll(joined, `"lines"`, `"x"`)}, `no source "x"`},
		"a gap":          {map[string]string{"lines.jsonl": two, "batches.jsonl": joined + strings.Replace(joined, `"txid":1`, `"txid":2`, 1)}, "joins twice"},
		"txids":          {map[string]string{"lines.jsonl": two, "batches.jsonl": joined + joined}, "txid 1 in place of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, tc.files)
			verify := func(tb testing.TB) {
				replaytest.Verify(tb, lines("/nowhere/*", same), replaytest.Recorded(dir))
			}
			if tc.want == "" {
				verify(t)
				return
			}
			fails(t, verify, tc.want)
		})
	}
}

func listGroups(ctx context.Context, cl *kgo.Client) ([]string, error) {
	resp, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, g := range resp.Groups {
		all = append(all, g.Group)
	}
	return all, nil
}
