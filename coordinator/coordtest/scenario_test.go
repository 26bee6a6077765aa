package coordtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/coordinator"
	"github.com/tridentd/tridentd/coordinator/runner"
)

// A start takes an epoch above every one before, so the attempts of what it begins again are higher than all before,
// however many there were.
func TestAttemptsRiseOverRestarts(t *testing.T) {
	p := newPlay(t, coordinator.Config{}, 30)
	p.fates(times(3, of("process", 2), before))
	p.crash = func(call string, txid batch.Txid, _ int) bool { return call == "commit" && txid >= 2 }
	p.start()
	p.crash = nil
	p.start()
	p.complete()

	var got []string
	for _, b := range p.beginnings(2) {
		got = append(got, b.Batch.Attempt.String())
	}
	if want := []string{"1.1", "1.2", "1.3", "1.4", "2.1"}; !slices.Equal(got, want) {
		t.Errorf("attempts of txid 2: %v, want %v", got, want)
	}
}

// What is reported of an attempt of an earlier process changes nothing, not even if it is a permanent failure.
func TestReportsOfAnEarlierProcessAreIgnored(t *testing.T) {
	p := newPlay(t, coordinator.Config{}, 10)
	p.crash = func(call string, _ batch.Txid, _ int) bool { return call == "commit" }
	p.start()
	m, err := coordinator.New(p.cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.Step(Base, startOf(p.w.Start()))
	if got := m.Step(Base, coordinator.DataReady{}); len(got) != 1 || FormatAction(got[0])[:11] != "begin 1@2.1" {
		t.Fatalf("after the restart: %v", got)
	}
	old := coordinator.ID{Txid: 1, Attempt: batch.Attempt{Epoch: 1, N: 1}}
	for _, ev := range []coordinator.Event{
		coordinator.Planned{ID: old, Plan: 1, OK: true},
		coordinator.Processed{ID: old},
		coordinator.Recorded{ID: old},
		coordinator.Committed{ID: old},
		coordinator.CommitUnknown{ID: old, Err: unknown()},
		coordinator.Failed{ID: old, Err: permanent("process")},
	} {
		if got := m.Step(Base, ev); len(got) != 0 {
			t.Errorf("%T of an earlier process: %v", ev, got)
		}
	}
}

// Over its attempts a batch keeps its seed. It keeps its clock from when its ranges were asked to be recorded; before,
// each attempt has the clock of its planning, which rises by the back-off.
func TestClockOverAttempts(t *testing.T) {
	for _, c := range []struct {
		call  string // that fails
		stays bool
	}{{"process", false}, {"commit", true}} {
		p := newPlay(t, coordinator.Config{Outside: true}, 50)
		p.fates(times(3, of(c.call, 2), before))
		p.start()
		p.complete()
		all := p.beginnings(2)
		if len(all) != 4 {
			t.Fatalf("%s: txid 2 was begun %d times, want 4", c.call, len(all))
		}
		for i, b := range all[1:] {
			was := all[i].Batch
			if b.Batch.Seed != was.Seed {
				t.Errorf("%s: attempt %s has seed %x, the one before %x", c.call, b.Batch.Attempt, b.Batch.Seed, was.Seed)
			}
			took := b.Batch.Time.Sub(was.Time)
			if c.stays != (took == 0) || !c.stays && took < coordinator.DefaultRetryMin {
				t.Errorf("%s: the clock of attempt %s is %s behind that of the one before", c.call, b.Batch.Attempt, took)
			}
		}
	}
}

// Once recorded, a batch is the same after a restart, though more data waits by then and the clock has moved on.
func TestARecordedBatchIsTheSameAfterARestart(t *testing.T) {
	p := newPlay(t, coordinator.Config{Outside: true}, 4)
	p.crash = func(call string, _ batch.Txid, _ int) bool { return call == "commit" }
	p.start()
	p.crash = nil
	p.w.Produce(0, 6)
	p.w.Fetch()
	p.now = p.now.Add(time.Hour)
	p.start()
	p.complete()

	all := p.beginnings(1)
	if len(all) != 2 || !all[1].Recorded {
		t.Fatalf("beginnings of txid 1: %v", all)
	}
	first := p.w.Ledger()[0]
	if !sameBatch(first, all[1].Batch) || first.Ranges[0].End != 4 || !first.Time.Equal(all[0].Batch.Time) {
		t.Errorf("txid 1 committed as %s, begun first as %s", describe(first), describe(all[0].Batch))
	}
}

// Not recorded, a batch may become another one after a restart: nothing of it was seen by anybody.
func TestAnUnrecordedBatchIsPlannedAnewAfterARestart(t *testing.T) {
	p := newPlay(t, coordinator.Config{Outside: true}, 4)
	p.crash = func(call string, _ batch.Txid, _ int) bool { return call == "record" }
	p.start()
	p.crash = nil
	p.w.Produce(0, 6)
	p.w.Fetch()
	p.start()
	p.complete()
	if got, want := ledgerRanges(p.w.Ledger()), []string{"1 s/t-0 [0,10)"}; !slices.Equal(got, want) {
		t.Errorf("ledger: %v, want %v", got, want)
	}
}

// The process dies after the participant outside has taken a batch and before the local write: the batch comes
// again as it was, and the participant skips it.
func TestCrashBetweenTheOutsideAndTheLocalWrite(t *testing.T) {
	p := newPlay(t, coordinator.Config{Outside: true}, 30)
	p.crash = func(call string, txid batch.Txid, step int) bool { return call == "commit" && txid == 2 && step == 1 }
	p.start()
	p.crash = nil
	p.start()
	p.complete()
	if n := p.w.Stats().Skipped; n != 1 {
		t.Errorf("the participant skipped %d batches, want 1", n)
	}
}

// The answer of a participant outside is lost: the attempt fails, the next one is skipped there and commits.
func TestTheParticipantsAnswerIsLost(t *testing.T) {
	p := newPlay(t, coordinator.Config{Outside: true}, 30)
	p.fates(times(1, of("commit", 2), after))
	p.start()
	p.complete()
	p.inOrder("commit 2@1.1", "abort #1", "begin 2@1.2", "commit 2@1.2", "success 2@1.2")
	if n := p.w.Stats().Skipped; n != 1 {
		t.Errorf("the participant skipped %d batches, want 1", n)
	}
}

// The process dies between the local write and its sync: whether the write survives or not, nothing is lost and
// nothing applied twice.
func TestCrashBetweenTheWriteAndItsSync(t *testing.T) {
	for _, outside := range []bool{false, true} {
		var kept, lost int
		for seed := range uint64(20) {
			p := newPlay(t, coordinator.Config{Outside: outside, MaxCommit: 1}, 30)
			p.w.seed = seed
			p.crash = func(call string, txid batch.Txid, step int) bool {
				last := 1
				if outside {
					last = 2
				}
				return call == "commit" && txid == 2 && step == last
			}
			p.start()
			if len(p.w.Ledger()) == 2 {
				kept++
			} else {
				lost++
			}
			p.crash = nil
			p.start()
			p.complete()
		}
		if kept == 0 || lost == 0 {
			t.Errorf("outside=%t: the write survived %d times and was lost %d times: both should happen", outside, kept, lost)
		}
	}
}

// A batch has succeeded only once its sync has returned.
func TestNoSuccessBeforeTheSync(t *testing.T) {
	p := newPlay(t, coordinator.Config{MaxCommit: 1}, 20)
	p.crash = func(call string, txid batch.Txid, step int) bool { return call == "commit" && txid == 2 && step == 1 }
	p.start()
	p.inOrder("commit 1@1.1", "success 1@1.1", "commit 2@1.1", "crash")
	if slices.Contains(p.done, "success 2@1.1") {
		t.Error("txid 2 has succeeded before its sync")
	}
}

// After a sync that failed the handle is not used again: what is in flight is dropped, the store is opened afresh
// and tells what it holds; only then a batch begins.
func TestUnknownOutcomeIsSettledByReopening(t *testing.T) {
	for _, outside := range []bool{false, true} {
		var kept, lost int
		for seed := range uint64(20) {
			p := newPlay(t, coordinator.Config{Outside: outside, MaxCommit: 1, MaxPending: 3}, 50)
			p.w.seed = seed
			p.fates(times(1, of("commit", 2), uncertain))
			p.start()
			p.complete()
			p.inOrder("commit 2@1.1", "abort #1", "reopen #1", "begin")
			if slices.Contains(p.done, "success 2@1.1") {
				kept++
				p.inOrder("reopen #1", "success 2@1.1", "begin 3@1.2")
			} else {
				lost++
				p.inOrder("reopen #1", "abort #2 2@1.1", "begin 2@1.2", "success 2@1.2")
			}
		}
		if kept == 0 || lost == 0 {
			t.Errorf("outside=%t: the write survived %d times and was lost %d times: both should happen", outside, kept, lost)
		}
	}
}

// The next batch is computed, and recorded, while one commits; it is applied outside only after the local write of
// the one before is durable.
func TestTheNextBatchIsComputedDuringACommit(t *testing.T) {
	m, err := coordinator.New(coordinator.Config{Outside: true, MaxPending: 2})
	if err != nil {
		t.Fatal(err)
	}
	id := func(txid batch.Txid) coordinator.ID {
		return coordinator.ID{Txid: txid, Attempt: batch.Attempt{Epoch: 1, N: 1}}
	}
	tell := func(ev coordinator.Event) (did []string) {
		for _, a := range m.Step(Base, ev) {
			did = append(did, FormatAction(a))
		}
		return did
	}
	tell(coordinator.Start{Epoch: 1})
	tell(coordinator.DataReady{})
	tell(coordinator.Planned{ID: id(1), Plan: 1, OK: true})
	tell(coordinator.Processed{ID: id(1)})
	if got := tell(coordinator.Recorded{ID: id(1)}); !slices.Contains(got, "commit 1@1.1") {
		t.Fatalf("recorded: %v", got)
	}
	if got := tell(coordinator.Planned{ID: id(2), Plan: 2, OK: true}); !slices.Contains(got, "process 2@1.1") {
		t.Errorf("planned during a commit: %v", got)
	}
	if got := tell(coordinator.Processed{ID: id(2)}); !slices.Equal(got, []string{"record 2@1.1"}) {
		t.Errorf("processed during a commit: %v", got)
	}
	if got := tell(coordinator.Recorded{ID: id(2)}); len(got) != 0 {
		t.Errorf("recorded during a commit: %v", got)
	}
	if got := tell(coordinator.Committed{ID: id(1)}); !slices.Contains(got, "commit 2@1.1") {
		t.Errorf("committed: %v", got)
	}
}

// Eight batches in flight, the first two attempts of the third fail: the ledger has 100 batches of ten records, no
// gap, no overlap, and the third took three attempts.
func TestManyInFlightAndOneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorld(WorldConfig{Partitions: 1, MaxRecords: 10, MaxPending: 8}, 1)
		w.Calm()
		w.plot = func(call string, id coordinator.ID) fate {
			if call == "process" && id.Txid == 3 && id.Attempt.N <= 2 {
				return before
			}
			return good
		}
		w.Produce(0, 1000)
		w.Fetch()
		x := NewExecutor(w)
		r, err := runner.New(runner.Config{Coordinator: coordinator.Config{MaxPending: 8}, Snapshot: w.Start(), Executor: x})
		if err != nil {
			t.Fatal(err)
		}
		x.Signal()
		go func() {
			for began := time.Now(); !w.Done() && time.Since(began) < time.Hour; {
				time.Sleep(10 * time.Millisecond)
			}
			r.Drain()
		}()
		if err := r.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := w.Verify(); err != nil {
			t.Fatal(err)
		}
		ledger := w.Ledger()
		var want []string
		for i := range 100 {
			want = append(want, fmt.Sprintf("%d s/t-0 [%d,%d)", i+1, 10*i, 10*i+10))
		}
		if got := ledgerRanges(ledger); !slices.Equal(got, want) {
			t.Errorf("ledger: %v", got)
		}
		if n := ledger[2].Attempt.N; n != 3 {
			t.Errorf("txid 3 took %d attempts, want 3", n)
		}
		for _, i := range []int{0, 1} {
			if n := ledger[i].Attempt.N; n != 1 {
				t.Errorf("txid %d took %d attempts, want 1", i+1, n)
			}
		}
	})
}
