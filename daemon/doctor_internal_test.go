package daemon

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/txstate"
)

// A check that doesn't heed its context is left behind; what others found is told nevertheless, in the plan's order.
func TestExamineLeavesBehindWhatHangs(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	finding := doctor.Finding{Subject: "server b", Text: "well"}
	pl := &plan.Plan{Name: "p", Sources: []*plan.Source{
		{ID: "a", Check: func(context.Context, doctor.Env) []doctor.Finding { <-release; return nil }},
		{ID: "none"},
		{ID: "b", Check: func(_ context.Context, env doctor.Env) []doctor.Finding {
			if env.Source != "b" || env.Pipeline != "p" || !env.Locked || env.Positions != nil {
				t.Errorf("the check is given %+v", env)
			}
			return []doctor.Finding{finding, finding}
		}},
	}, Keeper: &plan.Keeper{Describe: "zookeeper", Lock: noLock, Check: func(ctx context.Context, _ doctor.Env) []doctor.Finding {
		<-ctx.Done() // with a little of the time left
		return []doctor.Finding{{Level: doctor.Warn, Subject: "zookeeper", Code: batch.CodeTimeout, Text: "slow", Remedy: "wait"}}
	}}}
	dir := t.TempDir()
	began := time.Now()
	all := examine(t.Context(), &target{pipeline: engine.New("p"), root: dir, dir: dir + "/p"}, pl, time.Second)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	var got []string
	for _, f := range all {
		if f.Subject != "disk" && f.Subject != "memory" {
			got = append(got, f.Level.String()+" "+f.Subject+" "+string(f.Code))
		}
	}
	want := "ok data " + dir + "/p |error source a not_checked|ok server b |warn zookeeper timeout"
	if s := strings.Join(got, "|"); s != want {
		t.Errorf("found %q, want %q", s, want)
	}
}

func noLock(plan.Env) (txstate.Lock, error) { return nil, nil }

func statusOf() *server.Status {
	return &server.Status{
		PID: 7, Committed: 3, Reasons: []string{"it waits"}, LastError: &server.ErrorStatus{Code: "timeout"},
		Mirrors:    []server.MirrorStatus{{Name: "kafka group g", Error: &server.ErrorStatus{Code: batch.CodeGroupMembers, Message: "members", Remedy: "end them"}}, {Name: "other"}},
		Partitions: []server.PartitionStatus{{Source: "s", Topic: "t", Committed: 5}, {Source: "s", Topic: "t", Partition: 1, Committed: -1}},
	}
}

func TestFindingsTable(t *testing.T) {
	var b strings.Builder
	err := findingsTable(&b, []doctor.Finding{
		{Subject: "kafka a", Text: "well"},
		{Level: doctor.Warn, Subject: "kafka a/ö", Code: "x", Text: "odd\x1b[1m\n", Remedy: "mend it"},
	})
	want := "ok     kafka a    well\n" + `warn   kafka a/ö  odd\x1b[1m\n   → mend it` + "\n"
	if err != nil || b.String() != want {
		t.Errorf("%v\n%q, want\n%q", err, b.String(), want)
	}
}

func TestRunningStore(t *testing.T) {
	s := runningStore("data d", statusOf())
	want := []doctor.Finding{
		{Level: doctor.Warn, Subject: "data d", Code: "timeout", Text: "process 7 works in it, committed txid 3; not ready: it waits", Remedy: "see tridentd status, and what is said below"},
		{Level: doctor.Warn, Subject: "kafka group g", Code: batch.CodeGroupMembers, Text: "not up to date: members", Remedy: "end them"},
	}
	if len(s.findings) != 2 || s.findings[0] != want[0] || s.findings[1] != want[1] || !s.running {
		t.Errorf("found %+v", s)
	}
	if len(s.positions) != 1 || s.positions[0].Next != 5 || s.positions[0].Topic != "t" {
		t.Errorf("positions %+v", s.positions)
	}
}

func TestCheckMemoryAndSpace(t *testing.T) {
	if fs := checkMemory(0, plan.Limits{MaxBytes: 1 << 60}); len(fs) != 1 || fs[0].Code != doctor.CodeMemory || fs[0].Level != doctor.Warn {
		t.Errorf("a batch larger than the memory: %+v", fs)
	}
	if fs := checkMemory(0, plan.Limits{MaxBytes: 1}); len(fs) != 1 || fs[0].Level != doctor.OK {
		t.Errorf("a small batch: %+v", fs)
	}
	for _, tc := range []struct {
		free  uint64
		level doctor.Level
	}{{10 << 30, doctor.OK}, {500 << 20, doctor.Warn}, {1 << 20, doctor.Error}} {
		if f := spaceFinding(tc.free, 20<<30); f.Level != tc.level {
			t.Errorf("%d bytes free: %+v", tc.free, f)
		}
	}
}
