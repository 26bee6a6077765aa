//go:build realkafka

package daemon_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/internal/testenv"
)

// TestOffsetsOnKafka runs the scenarios of lag and offsets against a real broker, one after the other on topics of the same
// name.
func TestOffsetsOnKafka(t *testing.T) {
	k, _ := ownKafka(t)
	for _, name := range slices.Sorted(maps.Keys(offsetScenarios)) {
		t.Run(name, func(t *testing.T) {
			b := connect(t, k.Brokers())
			defer func() {
				b.drop("t")
				b.forget(ownGroup)
			}()
			offsetScenarios[name](t, b)
		})
	}
}

// TestLagOfDeadKafka is G33c without the page: a broker that is gone, and one that takes connections and never answers.
func TestLagOfDeadKafka(t *testing.T) {
	k, b := ownKafka(t)
	t.Run("stopped", func(t *testing.T) {
		b := connect(t, k.Brokers())
		lagOfDeadBroker(t, b, func() { k.Stop(t) })
	})
	k.Start(t)
	b.drop("t")
	b.forget(ownGroup)
	t.Run("hangs", func(t *testing.T) {
		b := connect(t, k.Brokers())
		lagOfDeadBroker(t, b, func() { k.Pause(t) })
		k.Resume(t)
	})
}

// TestLagOfLostLeader: with one broker of three away, the partitions of the others have their figures, and the one that can't
// be asked has its reason.
func TestLagOfLostLeader(t *testing.T) {
	k, b := ownKafka(t, testenv.Brokers(3))
	b.topic("t", 3)
	for p := range int32(3) {
		b.sendTo(p, 4)
	}
	j := newJob(t, b, counting(""))
	j.run(0)
	j.lag(0, "4,4,0,0 4,4,0,0 4,4,0,0")
	k.Kill(t, 2)
	code, out, errs := j.command("lag", "--format", "csv")
	if code != 1 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	asked := strings.Count(out, ",4,4,0,0,")
	if asked != 2 {
		t.Errorf("%d partitions have figures, want 2\n%s%s", asked, out, errs)
	}
}

// TestG08OnKafka cuts a log back as Kafka does: a replica that lags behind is elected, as no other is left. The pipeline stops
// with both ends, and goes on after an explicit choice.
func TestG08OnKafka(t *testing.T) {
	k, b := ownKafka(t, testenv.Brokers(3))
	const leader, replica = 2, 3
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "t", -1, -1
	topic.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{leader, replica}}}
	for name, value := range map[string]string{"unclean.leader.election.enable": "true", "min.insync.replicas": "1"} {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, new(value)
		topic.Configs = append(topic.Configs, c)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(t.Context(), b.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.produce("t", times(11, "a")...)
	k.Kill(t, replica)
	b.produce("t", times(2, "a")...)
	j := newJob(t, b, counting(", group: off"))
	j.run(0)
	j.holds("counts", "a,13")
	k.Kill(t, leader)
	k.Start(t, replica)
	produced := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return b.cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("b")}).FirstErr() == nil
	}
	for deadline := time.Now().Add(2 * time.Minute); !produced(); {
		if time.Now().After(deadline) {
			t.Fatal("no replica was elected")
		}
	}
	ends, err := b.adm.ListEndOffsets(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup("t", 0)
	if end.Offset > 13 || end.Offset < 11 {
		t.Fatalf("the log ends at %d: it wasn't cut back", end.Offset)
	}
	j.refused(4, "the log of topic t partition 0 was cut back", "had 13")
	j.holds("counts", "a,13")
	j.offsets(0, "reset", "--to", "11", "--yes")
	j.run(0)
	j.holds("counts", "a,13", fmt.Sprintf("b,%d", end.Offset-11))
}
