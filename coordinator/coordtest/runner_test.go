package coordtest_test

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/coordinator/coordtest"
	"github.com/tridentd/tridentd/coordinator/runner"
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// TestRunnerSimulation runs the same worlds behind real runners with their goroutines, on a fake clock.
func TestRunnerSimulation(t *testing.T) {
	var all coordtest.WorldStats
	for i := range *seeds {
		seed := *first + uint64(i)
		var stats coordtest.WorldStats
		var err error
		synctest.Test(t, func(*testing.T) { stats, err = simulateRunner(seed) })
		if err != nil {
			t.Fatalf("seed %d: %v\nrepeat with: go test ./coordinator/coordtest -run TestRunnerSimulation -coord.seeds 1 -coord.seed %d", seed, err, seed)
		}
		all.Add(stats)
	}
	t.Logf("%+v", all)
	if *seeds >= 100 && (all.Crashes < *seeds || all.Unknown < *seeds || all.Replayed < *seeds || all.Skipped < *seeds/10) {
		t.Errorf("too little happened in %d seeds: %+v", *seeds, all)
	}
}

func simulateRunner(seed uint64) (coordtest.WorldStats, error) {
	setup := coordtest.SetupOf(seed)
	w := coordtest.NewWorld(setup.World, seed)
	rb := batch.Batch{Seed: seed}
	r := rb.Rand("runner simulation", batch.Partition{}, 0)
	began := time.Now()
	var now atomic.Pointer[coordtest.Executor]
	var produced atomic.Bool
	go func() {
		rest := setup.Records
		for rest > 0 {
			n := min(rest, int64(1+r.IntN(12)))
			rest -= n
			w.Produce(r.IntN(setup.World.Partitions), n)
			w.Fetch()
			if x := now.Load(); x != nil {
				x.Signal()
			}
			time.Sleep(time.Duration(r.IntN(int(2 * setup.Trouble / 40))))
		}
		time.Sleep(time.Until(began.Add(setup.Trouble)))
		w.Calm()
		produced.Store(true)
	}()
	for n := 0; ; n++ {
		x := coordtest.NewExecutor(w)
		run, err := runner.New(runner.Config{Coordinator: setup.Machine, Snapshot: w.Start(), Executor: x})
		if err != nil {
			return w.Stats(), err
		}
		now.Store(x)
		x.Signal()
		over, err := oneRun(w, x, run, n, &produced)
		if err == nil {
			err = w.Err()
		}
		if err == nil && over {
			err = w.Verify()
		}
		if err == nil && time.Since(began) > setup.Trouble+10*time.Minute {
			err = fmt.Errorf("not converged: %+v", run.Stats())
		}
		if err != nil || over {
			for !produced.Load() {
				time.Sleep(time.Second)
			}
			return w.Stats(), err
		}
	}
}

// oneRun runs until a crash, a stop, or until all is done.
func oneRun(w *coordtest.World, x *coordtest.Executor, run *runner.Runner, n int, produced *atomic.Bool) (over bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- run.Run(ctx) }()
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-x.Crashed:
			cancel()
			<-ended
			return false, nil
		case <-ended: // whatever the cause was, it is mended
			return false, nil
		case <-tick.C:
		}
		switch {
		case produced.Load() && w.Done():
			run.Drain()
			if err := <-ended; err != nil {
				return false, fmt.Errorf("drained with %w", err)
			}
			return true, nil
		case !produced.Load() && n%5 == 3 && time.Since(began) > time.Second:
			run.Drain()
		case !produced.Load() && n%5 == 4 && time.Since(began) > time.Second:
			run.Stop()
		case time.Since(began) > 20*time.Minute:
			run.Stop()
			return false, fmt.Errorf("not converged: %+v; %w", run.Stats(), <-ended)
		}
	}
}
