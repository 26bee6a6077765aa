//go:build realkafka

package testenv

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func produce(t *testing.T, k *KafkaServer, topic string, limit time.Duration) error {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr()
}

func TestSharedKafka(t *testing.T) {
	k := Kafka(t)
	topic := k.Topic(t, "testenv", 3, map[string]string{"retention.ms": "-1"})
	if err := produce(t, k, topic, callTimeout); err != nil {
		t.Fatal(err)
	}
	out := k.Tool(t, "topics", "--describe", "--topic", topic)
	if !strings.Contains(out, "PartitionCount: 3") || !strings.Contains(out, "retention.ms=-1") {
		t.Errorf("topic as described:\n%s", out)
	}
}

// A broker that is paused takes nothing and tells nothing; one that was killed comes back with its data.
func TestOwnKafkaFaults(t *testing.T) {
	k := OwnKafka(t)
	topic := k.Topic(t, "faults", 1, nil)
	if err := produce(t, k, topic, callTimeout); err != nil {
		t.Fatal(err)
	}

	k.Pause(t)
	if err := produce(t, k, topic, time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("producing to a paused broker: %v, want a deadline exceeded", err)
	}
	k.Resume(t)
	if err := produce(t, k, topic, callTimeout); err != nil {
		t.Fatal(err)
	}

	k.Kill(t)
	k.Start(t)
	out := k.Tool(t, "get-offsets", "--topic", topic)
	// The record sent to the paused broker may have been taken after all.
	if got := strings.TrimSpace(out); got != topic+":0:2" && got != topic+":0:3" {
		t.Errorf("offsets after the crash: %q, want 2 or 3 records", got)
	}
	k.Stop(t)
}
