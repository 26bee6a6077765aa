//go:build realkafka

package kafkagroup

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/txstate"
)

// realMirror returns a mirror of a topic of its own on a real broker.
func realMirror(t *testing.T, k *testenv.KafkaServer, topic, group, pipeline string, lease txstate.Lease) *Mirror {
	t.Helper()
	m, err := New(Config{
		Group: group, Pipeline: pipeline, Source: source, Reads: func(n string) bool { return n == topic },
		Client: []kgo.Opt{kgo.SeedBrokers(k.Brokers()...)}, Interval: time.Millisecond, Reread: 100 * time.Millisecond, RetryMin: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Under(lease)
	t.Cleanup(func() { m.Close(t.Context()) }) //nolint:errcheck // what couldn't be written is told by the status
	return m
}

func positionsOf(topic string, txid batch.Txid, nexts ...int64) []txstate.SavedPosition {
	all := at(txid, nexts...)
	for i := range all {
		all[i].Topic, all[i].LeaderEpoch = topic, 0
	}
	return all
}

func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("within a minute not: %s", what)
		}
	}
}

// claimed claims m's producer. On a new broker the topics that coordinators need are still being made.
func claimed(t *testing.T, m *Mirror) {
	t.Helper()
	await(t, "the coordinators are there", func() bool {
		_, err := m.fetch(t.Context())
		if err == nil {
			err = m.fence.claim(t.Context(), m.client)
		}
		if err != nil && failure(m.cfg.Group, err).Code != batch.CodeGroupCoordinator {
			t.Fatal(err)
		}
		return err == nil
	})
}

var errStop = errors.New("stopped")

// heldBy returns what the group holds for each partition. First offsets that a transaction is still settling are left out by a broker
// that is asked for all of them; later ones it calls unstable.
func heldBy(t *testing.T, k *testenv.KafkaServer, group, topic string) (nexts [nParts]int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	await(t, "the group's transactions are settled", func() bool {
		offsets, err := kadm.NewClient(cl).FetchOffsets(kadm.RequireStable(t.Context()), group)
		if err == nil {
			err = offsets.Error()
		}
		if errors.Is(err, kerr.UnstableOffsetCommit) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		for p := range nexts {
			o, ok := offsets.Lookup(topic, int32(p))
			if !ok {
				return false
			}
			nexts[p] = o.At
		}
		return true
	})
	return nexts
}

// Two masters, neither of which knows of the other: what the older one still sends is refused by the broker, it ends, and nothing
// moves back.
func TestRealDeposedMirrorIsRefused(t *testing.T) {
	k := testenv.Kafka(t)
	topic, group, pipeline := k.Topic(t, "fenced", nParts, nil), testenv.Unique("fenced"), testenv.Unique("words")
	older := realMirror(t, k, topic, group, pipeline, staleLease())
	older.Committed(1, 1, positionsOf(topic, 1, 20, 20, 20))
	await(t, "the older one has written", func() bool { return older.Status().Txid == 1 })
	if got := heldBy(t, k, group, topic); got != [nParts]int64{20, 20, 20} {
		t.Fatalf("the group holds %v", got)
	}
	out := k.Tool(t, "consumer-groups", "--describe", "--group", group)
	shown := 0
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == topic && f[3] == "20" {
			shown++
		}
	}
	if shown != nParts {
		t.Errorf("Kafka's own tool shows 20 for %d of %d partitions:\n%s", shown, nParts, out)
	}

	newer := realMirror(t, k, topic, group, pipeline, newTestLease())
	newer.Committed(2, 2, positionsOf(topic, 2, 40, 40, 40))
	await(t, "the newer one has written", func() bool { return newer.Status().Txid == 2 })
	// Ahead of the newer one's txid, so that nothing but the broker stands against it.
	older.Committed(9, 1, positionsOf(topic, 9, 10, 10, 10))
	await(t, "the older one has ended", func() bool { return batch.CodeOf(older.Status().Err) == batch.CodeLockLost })
	newer.Committed(3, 2, positionsOf(topic, 3, 60, 60, 60))
	await(t, "the newer one goes on", func() bool { return newer.Status().Txid == 3 })
	if got := heldBy(t, k, group, topic); got != [nParts]int64{60, 60, 60} {
		t.Errorf("the group holds %v", got)
	}
	if st := newer.Status(); st.Err != nil || len(st.Failures) > 0 {
		t.Errorf("the newer one was disturbed: %+v", st)
	}
	t.Logf("the older one: %v", older.Status().Err)
}

// A transaction that hangs, since its master has gone silent, is settled by the successor before it reads the group; and one that
// the brokers have given up doesn't end a mirror that nobody has deposed.
func TestRealHangingTransactionIsSettled(t *testing.T) {
	k := testenv.Kafka(t)
	topic, group, pipeline := k.Topic(t, "fenced", nParts, nil), testenv.Unique("fenced"), testenv.Unique("words")
	silent := realMirror(t, k, topic, group, pipeline, staleLease())
	claimed(t, silent)
	half := func() {
		t.Helper()
		err := silent.fence.transaction(t.Context(), silent.client, group, func() error {
			silent.has = map[part]held{}
			if err := silent.write(t.Context(), 1, positionsOf(topic, 1, 7, 7, 7), map[part]error{}); err != nil {
				return err
			}
			return errStop
		})
		if err != errStop { //nolint:errorlint // just this one
			t.Fatal(err)
		}
	}
	half()
	// Claimed again on condition of its epoch: nobody has taken it over, so it goes on.
	if err := silent.fence.claim(t.Context(), silent.client); err != nil {
		t.Fatalf("a producer of one's own can't be claimed again: %v", err)
	}
	half()
	began := time.Now()
	next := realMirror(t, k, topic, group, pipeline, newTestLease())
	next.Committed(2, 2, positionsOf(topic, 2, 40, 40, 40))
	await(t, "the successor has written", func() bool { return next.Status().Txid == 2 })
	if got := heldBy(t, k, group, topic); got != [nParts]int64{40, 40, 40} {
		t.Errorf("the group holds %v", got)
	}
	if d := time.Since(began); d > txnTimeout/2 {
		t.Errorf("the successor waited %s for the hanging transaction", d)
	}
	// The silent one wakes up and ends its transaction.
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = silent.fence.id, silent.fence.producer, silent.fence.epoch, true
	resp, err := end.RequestWith(t.Context(), silent.client)
	if err != nil || resp.ErrorCode == 0 {
		t.Errorf("the end of a transaction of a deposed producer: %v, code %d", err, resp.ErrorCode)
	}
	if err := silent.fence.claim(t.Context(), silent.client); batch.CodeOf(failure(group, err)) != batch.CodeLockLost {
		t.Errorf("the silent one claims the producer again: %v", err)
	}
	if got := heldBy(t, k, group, topic); got != [nParts]int64{40, 40, 40} {
		t.Errorf("the group holds %v", got)
	}
}

// The first claim of a master that is gone reaches the brokers after that of the next, who holds the lock and goes on.
func TestRealLateClaimIsOvercome(t *testing.T) {
	k := testenv.Kafka(t)
	topic, group, pipeline := k.Topic(t, "fenced", nParts, nil), testenv.Unique("fenced"), testenv.Unique("words")
	m := realMirror(t, k, topic, group, pipeline, newTestLease())
	m.Committed(1, 2, positionsOf(topic, 1, 20, 20, 20))
	await(t, "it has written", func() bool { return m.Status().Txid == 1 })
	gone := realMirror(t, k, topic, group, pipeline, newTestLease())
	claimed(t, gone)
	m.Committed(2, 2, positionsOf(topic, 2, 40, 40, 40))
	await(t, "it goes on", func() bool { return m.Status().Txid == 2 })
	if got := heldBy(t, k, group, topic); got != [nParts]int64{40, 40, 40} {
		t.Errorf("the group holds %v", got)
	}
}

// A broker lets a transaction write over the offsets of a group's members; the mirror doesn't.
func TestRealMembersKeepTheirOffsets(t *testing.T) {
	k := testenv.Kafka(t)
	for name, opts := range map[string][]kgo.Opt{"classic": nil, "assigned by the brokers": {kgo.ServerSideBalancer()}} {
		t.Run(name, func(t *testing.T) {
			topic, group, pipeline := k.Topic(t, "fenced", nParts, nil), testenv.Unique("fenced"), testenv.Unique("words")
			consumer, err := kgo.NewClient(append(opts, kgo.SeedBrokers(k.Brokers()...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())...)
			if err != nil {
				t.Fatal(err)
			}
			defer consumer.Close()
			mine := map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 3}, 1: {Epoch: -1, Offset: 3}, 2: {Epoch: -1, Offset: 3}}}
			await(t, "the consumer has joined, and has committed", func() bool {
				member, _ := consumer.GroupMetadata()
				ok := member != ""
				consumer.CommitOffsetsSync(t.Context(), mine, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
					ok = ok && err == nil && len(resp.Topics) == 1
					for _, rt := range resp.Topics {
						for _, p := range rt.Partitions {
							ok = ok && p.ErrorCode == 0
						}
					}
				})
				return ok
			})
			m := realMirror(t, k, topic, group, pipeline, newTestLease())
			m.Committed(1, 1, positionsOf(topic, 1, 20, 20, 20))
			await(t, "the group is refused several times", func() bool { return m.Status().Failures[batch.CodeGroupMembers] > 2 })
			if st := m.Status(); batch.CodeOf(st.Err) != batch.CodeGroupMembers || st.Txid != 0 {
				t.Errorf("status %+v", st)
			}
			if got := heldBy(t, k, group, topic); got != [nParts]int64{3, 3, 3} {
				t.Errorf("the consumer's offsets are overwritten: %v", got)
			}
			consumer.Close()
			await(t, "the group is taken over", func() bool { return m.Status().Txid == 1 })
			if got := heldBy(t, k, group, topic); got != [nParts]int64{20, 20, 20} {
				t.Errorf("the group holds %v", got)
			}
		})
	}
}
