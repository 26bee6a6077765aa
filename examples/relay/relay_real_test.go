//go:build realkafka

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/spec"
)

// TestRelay runs both forms of the pipeline on a broker of their own, the one in Go first.
func TestRelay(t *testing.T) {
	k := testenv.OwnKafka(t)
	k.TopicNamed(t, "payments", 2, nil)
	k.TopicNamed(t, "large-payments", 3, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...), kgo.DefaultProduceTopic("payments"), kgo.ConsumeTopics("large-payments"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range 2000 {
		v := fmt.Appendf(nil, `{"id":"p%d","account":"a%d","amount":"%d.50"}`, i, i%7, i)
		if err := cl.ProduceSync(ctx, &kgo.Record{Value: v}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	run := func(p *engine.Pipeline, data string) {
		t.Helper()
		if err := engine.Run(ctx, p, engine.Options{DataDir: data, UntilCaughtUp: true}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(n int) (keys, values []string) {
		t.Helper()
		for len(values) < n {
			fs := cl.PollFetches(ctx)
			if err := fs.Err(); err != nil {
				t.Fatalf("after %d of %d records: %v", len(values), n, err)
			}
			fs.EachRecord(func(r *kgo.Record) { keys, values = append(keys, string(r.Key)), append(values, string(r.Value)) })
		}
		slices.Sort(values)
		return keys, values
	}
	data := t.TempDir()
	run(Relay(kafka.New(k.Brokers()...)), data)
	keys, inGo := read(1000)
	if len(inGo) != 1000 || inGo[0] != `{"account":"a0","amount":"1001.5","id":"p1001"}` || !slices.Contains(keys, "a3") {
		t.Errorf("in Go: %d records, the first is %s", len(inGo), inGo[0])
	}
	run(Relay(kafka.New(k.Brokers()...)), data) // nothing new: nothing is sent

	t.Setenv("KAFKA_BROKERS", k.Brokers()[0])
	p, err := spec.Load("relay.yaml", spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	// Another data directory: on purpose, so that the output is written again.
	if err := engine.Run(ctx, engine.Wrap(pl), engine.Options{DataDir: filepath.Join(t.TempDir(), "again"), UntilCaughtUp: true, Fresh: true}); err != nil {
		t.Fatal(err)
	}
	if _, declared := read(1000); !slices.Equal(declared, inGo) {
		t.Errorf("declared: %d records, the first is %s", len(declared), declared[0])
	}
	groups, err := kadm.NewClient(cl).FetchOffsets(ctx, "tridentd.sink.relay.large")
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := groups.Lookup("large-payments", 0); !ok || o.At == 0 {
		t.Errorf("the sink's progress: %+v", o)
	}
}
