//go:build realkafka

package daemon_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

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
		{"replay of deleted records", deletedRecords},
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
