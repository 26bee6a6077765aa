//go:build realkafka

package daemon_test

import (
	"strings"
	"testing"

	"github.com/tridentd/tridentd/internal/testenv"
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
