//go:build realkafka

package daemon_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

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
