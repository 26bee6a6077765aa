package daemon

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
)

// TestLagWatch: a lag that grows look by look is warned of once, then now and then; one that comes and goes isn't.
func TestLagWatch(t *testing.T) {
	var log bytes.Buffer
	growing := map[string]bool{}
	w := &lagWatch{
		log:     hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info, DisableTime: true}),
		growing: func(source string, is bool) { growing[source] = is },
		sources: map[string]*lagTrend{},
	}
	now := time.Unix(1_700_000_000, 0)
	look := func(ends ...int64) {
		var parts []engine.PartitionStatus
		for i, end := range ends {
			parts = append(parts, engine.PartitionStatus{Partition: batch.Partition{Source: "s", Topic: "t", Number: int32(i)}, Committed: 10, End: end})
		}
		now = now.Add(lagEvery)
		w.look(now, parts)
	}
	warnings := func() int { return strings.Count(log.String(), "[WARN]") }
	for i := range int64(20) { // up and down
		look(10+i%lagLooks, 10)
	}
	look(-1, -1) // not known: no lag
	if warnings() != 0 || growing["s"] {
		t.Fatalf("a lag that comes and goes is warned of\n%s", &log)
	}
	for i := range int64(lagLooks) {
		if warnings() != 0 {
			t.Fatalf("warned after %d looks\n%s", i, &log)
		}
		look(11+i, 10)
	}
	if warnings() != 1 || !growing["s"] || !strings.Contains(log.String(), "source=s lag=5 was=0") {
		t.Fatalf("a growing lag isn't warned of once\n%s", &log)
	}
	looks := int64(lagQuiet / lagEvery)
	for i := range looks {
		look(100+i, 10)
	}
	if warnings() != 2 {
		t.Errorf("%d warnings within %s\n%s", warnings(), lagQuiet, &log)
	}
	look(11, 10)
	if growing["s"] || strings.Count(log.String(), "stopped growing") != 1 {
		t.Errorf("the end isn't told\n%s", &log)
	}
	look(12, 10)
	if warnings() != 2 {
		t.Errorf("warned at once\n%s", &log)
	}
}
