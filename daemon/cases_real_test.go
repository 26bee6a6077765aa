//go:build realkafka

package daemon_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/server"
)

// ownKafka is a broker of the test's own: its topics have the names that the cases give them.
func ownKafka(t *testing.T, opts ...testenv.Option) (*testenv.KafkaServer, *brokers) {
	t.Helper()
	k := testenv.OwnKafka(t, opts...)
	return k, connect(t, k.Brokers())
}

// TestCasesOnKafka runs cases whose outcome hangs on the broker against a real one, which makes topics by itself.
func TestCasesOnKafka(t *testing.T) {
	k, _ := ownKafka(t, testenv.Set("auto.create.topics.enable", "true"))
	for _, c := range []struct {
		name string
		run  func(*testing.T, *brokers)
	}{
		{"G02", positionBelowTheLogStart},
		{"G03", retriedRecordsAreDeleted},
		{"replay of deleted records", deletedRecords},
		{"compacted table", compactedTable},
		{"G06 aborted", func(t *testing.T, b *brokers) { openTransaction(t, b, kgo.TryAbort) }},
		{"G06 committed", func(t *testing.T, b *brokers) { openTransaction(t, b, kgo.TryCommit) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := connect(t, k.Brokers())
			c.run(t, b)
			b.drop("t")
			if _, err := b.adm.DeleteGroups(context.Background(), "tridentd-counting"); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("G32", func(t *testing.T) {
		b := connect(t, k.Brokers())
		b.topic("lines", 1)
		missingTopic(t, b)
	})
}

// TestG36StopWithAHungBroker: connections stay open and nothing answers; a stop is over in time all the same.
func TestG36StopWithAHungBroker(t *testing.T) {
	k, b := ownKafka(t)
	b.topic("t", 1)
	b.produce("t", times(10, "a")...)
	j := newJob(t, b, counting(""))
	p := j.spawn(j.runArgs()...)
	j.awaitNext(10)
	stopHung := func(signals int) {
		t.Helper()
		k.Pause(t)
		began := time.Now()
		for range signals {
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // the second may come too late
			time.Sleep(50 * time.Millisecond)
		}
		code := p.exit(2 * stopLimit)
		took := time.Since(began)
		k.Resume(t)
		if took > stopLimit || code != 0 && !(signals > 1 && code == 1) {
			t.Errorf("exit %d after %s\n%s", code, took, p.errs.String())
		}
	}
	stopHung(1)

	b.produce("t", times(5, "a")...)
	p = j.spawn(j.runArgs()...)
	j.awaitNext(15)
	stopHung(2)

	// Signalled while the broker is down for good and its absence is known.
	b.produce("t", times(5, "a")...)
	p = j.spawn(j.runArgs()...)
	j.awaitNext(20)
	k.Stop(t)
	j.await("the broker's absence", func(st *server.Status) bool { return !st.Ready })
	p.signal(syscall.SIGTERM)
	if code := p.exit(stopLimit); code != 0 {
		t.Errorf("exit %d\n%s", code, p.errs.String())
	}
	k.Start(t)
	b.produce("t", times(5, "a")...)
	log := j.run(0)
	if strings.Contains(log, "[ERROR]") {
		t.Errorf("errors after the broker came back:\n%s", log)
	}
	j.holds("counts", "a,25")
	j.checkRanges(0, 25)
}

// TestG05PartitionWithoutALeader: at a restart one of three brokers is away, and with it the only replica of a partition.
// Its position is kept, a bounded run isn't done without it, and it goes on by itself when the broker is back.
func TestG05PartitionWithoutALeader(t *testing.T) {
	k, b := ownKafka(t, testenv.Brokers(3))
	b.assigned("t", [][]int32{{1}, {2}, {3}})
	for p := range int32(3) {
		b.sendTo(p, 10)
	}
	j := newJob(t, b, counting(""))
	j.run(0)

	k.Kill(t, 2)
	b.sendTo(0, 5)
	b.sendTo(2, 5)
	p := j.spawn(j.runArgs("--until", "caught-up")...)
	done := func(st *server.Status) (next [3]int64, errs int) {
		for _, p := range st.Partitions {
			next[p.Partition] = p.Committed
			if p.Error != "" {
				errs++
			}
		}
		return next, errs
	}
	j.await("the partitions that are led, and what keeps the other", func(st *server.Status) bool {
		next, errs := done(st)
		return next == [3]int64{15, 10, 15} && errs == 1 && !st.Ready
	})
	var stdout, stderr lockedBuffer
	code := daemon.Execute(t.Context(), []string{"offsets", "show", j.file, "--data", j.data, "--format", "csv"}, &stdout, &stderr)
	if !strings.Contains(stdout.String(), "lines,t,1,10,") {
		t.Errorf("offsets show: exit %d, partition 1 isn't at 10\n%s%s", code, stdout.String(), stderr.String())
	}
	select {
	case <-p.done:
		t.Fatalf("a bounded run is done without a partition\n%s", p.errs.String())
	case <-time.After(2 * time.Second):
	}
	k.Start(t, 2)
	b.sendTo(1, 5)
	if code := p.exit(patience); code != 0 { // it is at the end that it had aimed at
		t.Errorf("exit %d\n%s", code, p.errs.String())
	}
	j.run(0) // what came behind the end that the bounded run aimed at
	j.holds("counts", "a,45")
}

// assigned makes a topic with its replicas on the brokers given, by partition.
func (b *brokers) assigned(topic string, replicas [][]int32) {
	b.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, -1, -1
	for i, r := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), r
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(b.t.Context(), b.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		b.t.Fatalf("topic %s: %v", topic, err)
	}
}
