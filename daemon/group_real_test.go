//go:build realkafka

package daemon_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/server"
)

func TestGroupOnKafka(t *testing.T) {
	k := testenv.Kafka(t)
	for name, run := range groupScenarios {
		t.Run(name, func(t *testing.T) { t.Parallel(); run(t, k.Brokers()) })
	}
}

// TestGroupSeenByKafka is the textbook case: three partitions at 0, a batch of twenty records of each, and Kafka's own
// tool shows that the next offsets are 20 and nothing is left.
func TestGroupSeenByKafka(t *testing.T) {
	k := testenv.Kafka(t)
	w := newGroupWorld(t, k.Brokers(), 3, "")
	w.run(0)
	w.described(k, "0 0 0", "0 0 0", "0 0 0")
	w.produce(20, 0, 1, 2)
	w.run(0)
	w.described(k, "20 20 0", "20 20 0", "20 20 0")
	if code, out, errs := w.command("ledger", w.file, "--data", w.data, "--format", "csv"); code != 0 || strings.Count(out, "\n") != 4 {
		t.Errorf("not one batch with three ranges: exit %d\n%s%s", code, out, errs)
	}
	w.counted(60)
}

// described holds Kafka's own description against CURRENT-OFFSET, LOG-END-OFFSET and LAG of each partition.
func (w *groupWorld) described(k *testenv.KafkaServer, want ...string) {
	w.t.Helper()
	out := k.Tool(w.t, "consumer-groups", "--describe", "--group", w.group)
	got := make([]string, len(want))
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) >= 6 && f[1] == w.topic {
			got[f[2][0]-'0'] = strings.Join(f[3:6], " ")
		}
	}
	for i := range want {
		if got[i] != want[i] {
			w.t.Errorf("partition %d: %q, want %q\n%s", i, got[i], want[i], out)
		}
	}
}

// TestGroupOutage: while the broker is away nothing is lost, afterwards the group is right by itself, and a broker that
// takes connections and never answers doesn't hold up a stop.
func TestGroupOutage(t *testing.T) {
	k := testenv.OwnKafka(t)
	w := newGroupWorld(t, k.Brokers(), 1, "")
	w.produce(10, 0)
	stop := w.start()
	w.await("the first ten", 30*time.Second, func(st server.Status) bool { return committed(st) == 10 && w.offsets() == "10" })
	k.Stop(t)
	w.await("the outage shows", 60*time.Second, func(st server.Status) bool { return len(st.Mirrors) == 1 && st.Mirrors[0].Error != nil })
	k.Start(t)
	w.produce(10, 0)
	w.await("the mirror catches up", 90*time.Second, func(st server.Status) bool {
		return committed(st) == 20 && w.offsets() == "20" && st.Mirrors[0].Error == nil
	})
	k.Pause(t)
	began := time.Now()
	code, log := stop()
	took := time.Since(began)
	k.Resume(t)
	if code != 0 || took > stopLimit {
		t.Errorf("exit %d after %s\n%s", code, took, log)
	}
	if n := strings.Count(log, "up to date again"); n != 1 {
		t.Errorf("the end of the outage is told %d times\n%s", n, log)
	}
	w.run(0)
	w.shows("20")
	w.counted(20)
}
