package kafka

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/deadletter"
)

// TestLetters writes letters to a topic, reads them, and sends their records back to where they came from.
func TestLetters(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "dead", "in", "other"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	c := New(fake.ListenAddrs()...)
	target := c.DeadLetters("dead")
	if got := target.Describe(); got != "kafka topic dead, dead letters" {
		t.Error(got)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	send := func(partition int32, r *sink.Record) {
		t.Helper()
		rec := &kgo.Record{Topic: "dead", Partition: partition, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	letter := func(pipeline string, n int) *deadletter.Letter {
		return &deadletter.Letter{
			Pipeline: pipeline, Txid: batch.Txid(n + 1), Kind: deadletter.Bad, Partition: batch.Partition{Source: "in", Topic: "in", Number: 1}, Offset: int64(n),
			Timestamp: 1_700_000_000_000 + int64(n), Step: "decode", Cause: "no JSON", Key: []byte("k"), Value: []byte{0xff, byte(n)}, Headers: []batch.Header{{Key: "h", Value: []byte("v")}},
		}
	}
	const letters = 5
	for n := range letters {
		for _, pipeline := range []string{"p", "q"} { // they share the topic
			var r sink.Record
			if err := target.Encode(letter(pipeline, n), &r); err != nil {
				t.Fatal(err)
			}
			send(int32(n%2), &r)
		}
		send(0, &sink.Record{Value: []byte("no letter")})
	}
	var got []*deadletter.Letter
	if err := target.ReadLetters(t.Context(), emitter.Env{}, "p", func(l *deadletter.Letter) error { got = append(got, l); return nil }); err != nil {
		t.Fatal(err)
	}
	var order []int
	for _, l := range got {
		order = append(order, int(l.Offset))
		if want := letter("p", int(l.Offset)); !bytes.Equal(want.AppendJSON(nil), l.AppendJSON(nil)) {
			t.Errorf("%s\nwant %s", l.AppendJSON(nil), want.AppendJSON(nil))
		}
	}
	if !slices.Equal(order, []int{0, 2, 4, 1, 3}) {
		t.Errorf("offsets %v", order)
	}

	var back []emitter.Resent
	for _, l := range got {
		back = append(back, emitter.Resent{Topic: "in", Partition: 1, Record: batch.Record{Timestamp: l.Timestamp, Key: l.Key, Value: l.Value, Headers: l.Headers}},
			emitter.Resent{Topic: "other", Partition: -1, Record: batch.Record{Key: l.Key, Value: l.Value}})
	}
	if n, err := c.Topics("in").Resend(t.Context(), emitter.Env{}, back); n != 2*letters || err != nil {
		t.Fatalf("%d sent: %v", n, err)
	}
	in := records(t, fake.ListenAddrs(), "in", letters)
	for i, r := range in {
		if r.Partition != 1 || r.Timestamp.UnixMilli() != got[i].Timestamp || string(r.Key) != "k" || !bytes.Equal(r.Value, got[i].Value) || fmt.Sprint(r.Headers) != fmt.Sprint([]kgo.RecordHeader{{Key: "h", Value: []byte("v")}}) {
			t.Errorf("record %d: partition %d, %s, key %q, value %q, headers %v", i, r.Partition, r.Timestamp, r.Key, r.Value, r.Headers)
		}
	}
	other := records(t, fake.ListenAddrs(), "other", letters)
	for _, r := range other {
		if r.Partition != other[0].Partition {
			t.Errorf("records of one key lie in two partitions: %d, %d", r.Partition, other[0].Partition)
		}
	}
	n, err := c.Topics("in").Resend(t.Context(), emitter.Env{}, []emitter.Resent{{Topic: "none", Partition: 0, Record: batch.Record{Value: []byte("x")}}})
	if n != 0 || err == nil || !strings.Contains(err.Error(), "UNKNOWN_TOPIC_OR_PARTITION") {
		t.Errorf("to a topic that doesn't exist: %d sent, %v", n, err)
	}
	if err := c.DeadLetters("none").ReadLetters(t.Context(), emitter.Env{}, "p", nil); err == nil || !strings.Contains(err.Error(), "topic none") {
		t.Errorf("of a topic that doesn't exist: %v", err)
	}
}

// records reads the first n records of a topic.
func records(t *testing.T, brokers []string, topic string, n int) (all []*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for len(all) < n {
		fs := cl.PollFetches(t.Context())
		if err := fs.Err(); err != nil {
			t.Fatalf("%d of %d records: %v", len(all), n, context.Cause(t.Context()))
		}
		all = append(all, fs.Records()...)
	}
	return all
}
