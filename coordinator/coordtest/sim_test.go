package coordtest_test

import (
	"flag"
	"testing"

	"github.com/tridentd/tridentd/coordinator/coordtest"
)

var (
	seeds = flag.Int("coord.seeds", 300, "how many seeds to simulate")
	first = flag.Uint64("coord.seed", 1, "the first seed")
)

// TestSimulation runs many seeds through the machine alone. A seed that fails is printed with the command that
// repeats it.
func TestSimulation(t *testing.T) {
	var all coordtest.WorldStats
	for i := range *seeds {
		seed := *first + uint64(i)
		res, err := coordtest.Simulate(seed)
		if err != nil {
			t.Fatalf("seed %d: %v\nrepeat with: go test ./coordinator/coordtest -run TestSimulation -coord.seeds 1 -coord.seed %d", seed, err, seed)
		}
		all.Add(res.Stats)
	}
	t.Logf("%+v", all)
	if *seeds < 100 {
		return
	}
	for what, n := range map[string]int{
		"crashes": all.Crashes, "transient failures": all.Transient, "permanent failures": all.Permanent, "unknown outcomes": all.Unknown,
		"hangs": all.Hangs, "batches begun with recorded ranges": all.Replayed, "repetitions skipped outside": all.Skipped,
	} {
		if n < *seeds/10 {
			t.Errorf("only %d %s in %d seeds", n, what, *seeds)
		}
	}
}

// TestSimulationRepeats holds that a seed decides everything.
func TestSimulationRepeats(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		a, err := coordtest.Simulate(seed)
		if err != nil {
			t.Fatal(err)
		}
		b, err := coordtest.Simulate(seed)
		if err != nil {
			t.Fatal(err)
		}
		if a != b {
			t.Errorf("seed %d: %+v, then %+v", seed, a, b)
		}
	}
}
