package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/coordinator"
	"github.com/tridentd/tridentd/coordinator/runner"
	"github.com/tridentd/tridentd/txstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is an executor that notes its calls. Each may be replaced; as it stands a call takes a millisecond and goes
// well, and there are limit batches to plan.
type fake struct {
	limit   batch.Txid
	ready   chan struct{}
	plan    func(ctx context.Context, b *batch.Batch, recorded bool) (bool, error)
	process func(ctx context.Context, b *batch.Batch) error
	record  func(ctx context.Context, b *batch.Batch) error
	commit  func(ctx context.Context, bs []*batch.Batch) error
	reopen  func(ctx context.Context) (batch.Txid, error)
	success func(b *batch.Batch)

	mu    sync.Mutex
	calls []string
}

func newFake(limit batch.Txid) *fake {
	f := &fake{limit: limit, ready: make(chan struct{}, 1)}
	f.ready <- struct{}{}
	return f
}

func (f *fake) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fake) noted() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func name(b *batch.Batch) string { return fmt.Sprintf("%d@%s", b.Txid, b.Attempt) }

func names(bs []*batch.Batch) string {
	var s []string
	for _, b := range bs {
		s = append(s, name(b))
	}
	return strings.Join(s, " ")
}

func (f *fake) Plan(ctx context.Context, b *batch.Batch, recorded bool) (bool, error) {
	if f.plan != nil {
		return f.plan(ctx, b, recorded)
	}
	if !recorded {
		if b.Txid > f.limit {
			return false, nil
		}
		n := int64(b.Txid)
		b.Ranges = []batch.Range{{Partition: batch.Partition{Source: "s", Topic: "t"}, Start: 10*n - 10, End: 10 * n}}
	}
	f.note("plan %s", name(b))
	return true, nil
}

func (f *fake) Process(ctx context.Context, b *batch.Batch) error {
	f.note("process %s", name(b))
	if f.process != nil {
		return f.process(ctx, b)
	}
	return sleep(ctx, time.Millisecond)
}

func (f *fake) Record(ctx context.Context, b *batch.Batch) error {
	f.note("record %s", name(b))
	if f.record != nil {
		return f.record(ctx, b)
	}
	return sleep(ctx, time.Millisecond)
}

func (f *fake) Commit(ctx context.Context, bs []*batch.Batch) error {
	f.note("commit %s", names(bs))
	if f.commit != nil {
		return f.commit(ctx, bs)
	}
	return sleep(ctx, time.Millisecond)
}

func (f *fake) Abort(bs []*batch.Batch) { f.note("abort %s", names(bs)) }

func (f *fake) Reopen(ctx context.Context) (batch.Txid, error) {
	f.note("reopen")
	return f.reopen(ctx)
}

func (f *fake) Success(b *batch.Batch) {
	f.note("success %s", name(b))
	if f.success != nil {
		f.success(b)
	}
}

func (f *fake) Ready() <-chan struct{} { return f.ready }

var one = coordinator.Config{MaxPending: 1}

// run runs f to the commit of its last batch and then drains, or until it ends by itself.
func run(t *testing.T, f *fake, cfg coordinator.Config) (*runner.Runner, error) {
	t.Helper()
	r, err := runner.New(runner.Config{Coordinator: cfg, Snapshot: txstate.Snapshot{Epoch: 1}, Executor: f})
	if err != nil {
		t.Fatal(err)
	}
	f.success = func(b *batch.Batch) {
		if b.Txid == f.limit {
			r.Drain()
		}
	}
	return r, r.Run(t.Context())
}

func want(t *testing.T, f *fake, calls ...string) {
	t.Helper()
	if got := f.noted(); !slices.Equal(got, calls) {
		t.Errorf("calls:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(calls, "\n"))
	}
}

func TestBatchGoesItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		if _, err := run(t, f, one); err != nil {
			t.Fatal(err)
		}
		want(t, f,
			"plan 1@1.1", "process 1@1.1", "commit 1@1.1", "success 1@1.1",
			"plan 2@1.1", "process 2@1.1", "commit 2@1.1", "success 2@1.1")
	})
}

func TestOutsideIsRecordedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		if _, err := run(t, f, coordinator.Config{MaxPending: 1, Outside: true}); err != nil {
			t.Fatal(err)
		}
		want(t, f, "plan 1@1.1", "process 1@1.1", "record 1@1.1", "commit 1@1.1", "success 1@1.1")
	})
}

func TestRecordedBatchesOfTheSnapshotComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		r, err := runner.New(runner.Config{
			Coordinator: coordinator.Config{Outside: true}, Executor: f,
			Snapshot: txstate.Snapshot{Txid: 4, Epoch: 3, Time: at, Recorded: []txstate.Entry{{
				Txid: 5, Attempt: batch.Attempt{Epoch: 2, N: 7}, Time: at.Add(time.Second), Seed: 99,
				Ranges: []txstate.RangeEntry{{Range: batch.Range{Start: 40, End: 44}}},
				Idle:   []batch.Partition{{Topic: "i"}}, Joined: []batch.Position{{Next: 40}},
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var got batch.Batch
		f.success = func(b *batch.Batch) { got = *b; r.Drain() }
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got.Txid != 5 || got.Attempt != (batch.Attempt{Epoch: 3, N: 1}) || !got.Time.Equal(at.Add(time.Second)) || got.Seed != 99 ||
			len(got.Ranges) != 1 || got.Ranges[0].End != 44 || len(got.Idle) != 1 || len(got.Joined) != 1 {
			t.Errorf("committed %+v", got)
		}
		want(t, f, "plan 5@3.1", "process 5@3.1", "commit 5@3.1", "success 5@3.1")
	})
}

// When 1 fails, 2 is cancelled and fails because of that. Only 1 is charged, and the abort waits for both.
func TestCancelledBatchIsNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		f.process = func(ctx context.Context, b *batch.Batch) error {
			if b.Attempt.N > 1 {
				return nil
			}
			if b.Txid == 1 {
				time.Sleep(10 * time.Millisecond)
				return errors.New("no route to host")
			}
			<-ctx.Done()
			time.Sleep(time.Hour) // the abort has to wait
			f.note("process %s returns", name(b))
			return context.Cause(ctx)
		}
		var charged []string
		r, err := runner.New(runner.Config{
			Coordinator: coordinator.Config{MaxPending: 2, Retry: coordinator.Retry{Attempts: 2}, MaxCommit: 1},
			Snapshot:    txstate.Snapshot{Epoch: 1}, Executor: f,
			Observe: func(_ time.Time, ev coordinator.Event, _ []coordinator.Action) {
				if e, ok := ev.(coordinator.Failed); ok {
					charged = append(charged, e.ID.String())
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		f.success = func(b *batch.Batch) {
			if b.Txid == 2 {
				r.Drain()
			}
		}
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := f.noted()
		returns, abort := slices.Index(got, "process 2@1.1 returns"), slices.Index(got, "abort 2@1.1 1@1.1")
		if returns < 0 || abort < returns || slices.Index(got, "plan 1@1.2") < abort {
			t.Errorf("calls: %q", got)
		}
		if !slices.Equal(charged, []string{"1@1.1", "2@1.1"}) {
			t.Errorf("failures told to the machine: %v", charged)
		}
		st := r.Stats()
		if st.Failing != nil || st.LastFailure == nil || st.LastFailure.Txid != 1 || st.LastFailure.Failures != 1 || st.Attempts != 4 || st.Committed != 2 {
			t.Errorf("stats: %+v, last failure %+v", st, st.LastFailure)
		}
	})
}

func TestTransientFailuresBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		var begun []time.Time
		f.process = func(_ context.Context, b *batch.Batch) error {
			begun = append(begun, time.Now())
			if b.Attempt.N <= 4 {
				return errors.New("connection refused")
			}
			return nil
		}
		if _, err := run(t, f, one); err != nil {
			t.Fatal(err)
		}
		low := 100 * time.Millisecond
		for i := range begun[1:] {
			if d := begun[i+1].Sub(begun[i]); d < low || d > low*5/4+time.Millisecond {
				t.Errorf("pause %d is %s, want %s and up to a quarter more", i+1, d, low)
			}
			low *= 2
		}
		if len(begun) != 5 {
			t.Errorf("%d attempts, want 5", len(begun))
		}
	})
}

func TestPermanentFailureEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(5)
		cause := batch.NewError(batch.Permanent, batch.CodeBadRecord, "decode", errors.New("no JSON"), "mend it")
		f.process = func(ctx context.Context, b *batch.Batch) error {
			if b.Txid == 3 {
				return cause
			}
			return sleep(ctx, time.Second)
		}
		r, err := run(t, f, coordinator.Config{MaxPending: 3})
		if !errors.Is(err, cause) {
			t.Fatalf("error %v", err)
		}
		if st := r.Stats(); st.Committed != 2 || st.Mode != "stopped" || !errors.Is(st.Cause, cause) {
			t.Errorf("stats: %+v", st)
		}
	})
}

func TestAttemptThatHangsTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		f.process = func(ctx context.Context, b *batch.Batch) error {
			if b.Attempt.N == 1 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}
		began := time.Now()
		r, err := run(t, f, coordinator.Config{MaxPending: 1, Timeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("took %s", took)
		}
		if lf := r.Stats().LastFailure; lf == nil || lf.Code != batch.CodeTimeout || !strings.Contains(lf.Err.Error(), "timed out after 5s") {
			t.Errorf("last failure: %+v", lf)
		}
	})
}

// The end of ctx stops: a running commit is waited for and counts, what has not come so far is dropped.
func TestStopWaitsForTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(9)
		f.commit = func(ctx context.Context, _ []*batch.Batch) error { return sleep(ctx, 3*time.Second) }
		f.process = func(ctx context.Context, b *batch.Batch) error {
			if b.Txid == 2 {
				return sleep(ctx, time.Hour)
			}
			return nil
		}
		r, err := runner.New(runner.Config{Coordinator: coordinator.Config{MaxPending: 2}, Snapshot: txstate.Snapshot{Epoch: 1}, Executor: f})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		calls := f.noted()
		// The commit of 1 and the processing of 2 begin together, in either order.
		if got := calls[len(calls)-2:]; !slices.Equal(got, []string{"abort 2@1.1", "success 1@1.1"}) || !slices.Contains(calls, "commit 1@1.1") {
			t.Errorf("the calls: %q", calls)
		}
		if got := r.Stats().Committed; got != 1 {
			t.Errorf("committed %d", got)
		}
	})
}

// A call that ignores its context doesn't keep a stop from ending; the error names it.
func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(9)
		release := make(chan struct{})
		f.process = func(context.Context, *batch.Batch) error { <-release; return nil }
		r, err := runner.New(runner.Config{Coordinator: one, Snapshot: txstate.Snapshot{Epoch: 1}, Executor: f})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(5*time.Second, r.Stop)
		began := time.Now()
		err = r.Run(t.Context())
		if took := time.Since(began); took != 5*time.Second+runner.DefaultStopTimeout {
			t.Errorf("took %s", took)
		}
		if err == nil || batch.CodeOf(err) != batch.CodeTimeout || !strings.Contains(err.Error(), "process txid 1 attempt 1.1 (for 25s)") {
			t.Errorf("error %v", err)
		}
		if calls := r.Stats().Calls; len(calls) != 1 || calls[0].Op != "process" {
			t.Errorf("calls: %+v", calls)
		}
		close(release)
		synctest.Wait()
		if slices.Contains(f.noted(), "abort 1@1.1") {
			t.Error("Abort is called after Run has returned")
		}
	})
}

// The end after a permanent failure is bounded too: first what still runs is dropped, then it is left behind.
func TestEndAfterAPermanentFailureIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		release := make(chan struct{})
		cause := batch.NewError(batch.Permanent, batch.CodeOverflow, "sum", errors.New("too large"), "")
		f.process = func(ctx context.Context, b *batch.Batch) error {
			if b.Txid == 2 {
				return cause
			}
			<-release
			return nil
		}
		r, err := runner.New(runner.Config{
			Coordinator: coordinator.Config{MaxPending: 2}, Snapshot: txstate.Snapshot{Epoch: 1}, Executor: f, StopTimeout: 3 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err = r.Run(t.Context())
		if !errors.Is(err, cause) || batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), "process txid 1") {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("took %s", took)
		}
		close(release)
	})
}

func TestUnknownOutcomeReopens(t *testing.T) {
	for _, holds := range []batch.Txid{0, 1} {
		t.Run(fmt.Sprint("holds ", holds), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(1)
				first := true
				f.commit = func(context.Context, []*batch.Batch) error {
					if first {
						first = false
						return fmt.Errorf("fsync: input/output error: %w", runner.ErrUnknown)
					}
					return nil
				}
				f.reopen = func(context.Context) (batch.Txid, error) { return holds, nil }
				if _, err := run(t, f, one); err != nil {
					t.Fatal(err)
				}
				if holds == 1 {
					want(t, f, "plan 1@1.1", "process 1@1.1", "commit 1@1.1", "reopen", "success 1@1.1")
				} else {
					want(t, f, "plan 1@1.1", "process 1@1.1", "commit 1@1.1", "reopen", "abort 1@1.1",
						"plan 1@1.2", "process 1@1.2", "commit 1@1.2", "success 1@1.2")
				}
			})
		})
	}
}

func TestReadyBeginsABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		<-f.ready
		r, err := runner.New(runner.Config{Coordinator: one, Snapshot: txstate.Snapshot{Epoch: 1}, Executor: f})
		if err != nil {
			t.Fatal(err)
		}
		f.success = func(*batch.Batch) { r.Drain() }
		ended := make(chan error, 1)
		go func() { ended <- r.Run(context.Background()) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		want(t, f)
		f.limit = 1
		f.ready <- struct{}{}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		want(t, f, "plan 1@1.1", "process 1@1.1", "commit 1@1.1", "success 1@1.1")
	})
}

// timed is a pipeline that wants a batch an hour after each.
type timed struct {
	*fake
	last time.Time
}

func (f *timed) Due() time.Time { return f.last.Add(time.Hour) }

func TestDueBeginsABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &timed{fake: newFake(3), last: time.Now()}
		<-f.ready
		began := f.last
		var at []time.Duration
		f.plan = func(_ context.Context, b *batch.Batch, _ bool) (bool, error) {
			if time.Since(f.last) < time.Hour {
				return false, nil
			}
			at = append(at, b.Time.Sub(began))
			return true, nil
		}
		r, err := runner.New(runner.Config{Coordinator: one, Snapshot: txstate.Snapshot{Epoch: 1}, Executor: f})
		if err != nil {
			t.Fatal(err)
		}
		f.success = func(b *batch.Batch) {
			f.last = time.Now()
			if b.Txid == f.limit {
				r.Drain()
			}
		}
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, d := range at {
			due := time.Duration(i+1) * time.Hour
			if d < due || d > due+time.Second {
				t.Errorf("batch %d begins after %s, want %s", i+1, d, due)
			}
		}
		if len(at) != 3 {
			t.Errorf("%d batches, want 3", len(at))
		}
	})
}

func TestStatsWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(9)
		f.process = func(ctx context.Context, b *batch.Batch) error {
			if b.Txid == 2 {
				return batch.NewError(batch.Transient, batch.CodeUnavailable, "read", errors.New("no leader"), "")
			}
			return sleep(ctx, time.Hour)
		}
		r, err := runner.New(runner.Config{
			Coordinator: coordinator.Config{MaxPending: 2, Retry: coordinator.Retry{Min: time.Minute, Max: time.Minute}},
			Snapshot:    txstate.Snapshot{Epoch: 1}, Executor: f,
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(context.Background()) }()
		time.Sleep(time.Second)
		st := r.Stats()
		if st.Mode != "running" || len(st.InFlight) != 1 || st.InFlight[0].Phase != coordinator.PhaseProcessing || st.Waiting != 1 {
			t.Errorf("stats: %+v", st)
		}
		if fl := st.Failing; fl == nil || fl.Txid != 2 || fl.Code != batch.CodeUnavailable || fl.Kind != batch.Transient || fl.Failures != 1 {
			t.Errorf("failing: %+v", st.Failing)
		}
		if left := time.Until(st.BackoffUntil); left < 58*time.Second || left > time.Minute {
			t.Errorf("back-off ends in %s", left)
		}
		if len(st.Calls) != 1 || st.Calls[0].Batch != "txid 1 attempt 1.1" {
			t.Errorf("calls: %+v", st.Calls)
		}
		r.Stop()
		r.Stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

func TestBadConfigurationIsRefused(t *testing.T) {
	_, err := runner.New(runner.Config{Coordinator: coordinator.Config{MaxPending: -1}, Executor: newFake(0)})
	if batch.CodeOf(err) != batch.CodeConfiguration || batch.KindOf(err) != batch.Permanent {
		t.Errorf("error %v", err)
	}
}

// What an operator reads: a warning at each failure with its place and the pause, and that it is over.
func TestFailuresAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		f.process = func(_ context.Context, b *batch.Batch) error {
			if b.Attempt.N <= 2 {
				return batch.NewError(batch.Transient, batch.CodeUnavailable, "read", errors.New("no leader"), "")
			}
			return nil
		}
		var out bytes.Buffer
		r, err := runner.New(runner.Config{
			Coordinator: one, Snapshot: txstate.Snapshot{Epoch: 1}, Executor: f,
			Logger: hclog.New(&hclog.LoggerOptions{Output: &out, JSONFormat: true, Level: hclog.Info}),
		})
		if err != nil {
			t.Fatal(err)
		}
		f.success = func(*batch.Batch) { r.Drain() }
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%v %v txid=%v attempt=%v phase=%v kind=%v code=%v failures=%v retries=%t",
				m["@level"], m["@message"], m["txid"], m["attempt"], m["phase"], m["kind"], m["code"], m["failures"], m["retry_in"] != nil))
		}
		want := []string{
			"warn batch failed and will be tried again txid=1 attempt=1.1 phase=processing kind=transient code=unavailable failures=1 retries=true",
			"warn batch failed and will be tried again txid=1 attempt=1.2 phase=processing kind=transient code=unavailable failures=2 retries=true",
			"info recovered txid=1 attempt=<nil> phase=<nil> kind=<nil> code=<nil> failures=2 retries=false",
		}
		if !slices.Equal(got, want) {
			t.Errorf("logged:\n%s", strings.Join(got, "\n"))
		}
	})
}
