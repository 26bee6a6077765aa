package engine_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/txstate"
)

// exposition is what Prometheus reads.
func exposition(t *testing.T, g prometheus.Gatherer) string {
	t.Helper()
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if rec.Code != 200 {
		t.Fatalf("%d: %s", rec.Code, rec.Body)
	}
	return rec.Body.String()
}

func wantLines(t *testing.T, body string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(body, "\n"+line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if t.Failed() {
		t.Log(body)
	}
}

func ledgerEntry(txid batch.Txid) *txstate.Entry {
	start := int64(txid-1) * 10
	return &txstate.Entry{
		Txid: txid, Attempt: batch.Attempt{Epoch: 7, N: 2}, Attempts: 2,
		Ranges: []txstate.RangeEntry{{
			Range: batch.Range{Partition: batch.Partition{Source: "lines", Topic: "t", Number: 1}, Start: start, End: start + 10},
			Input: batch.Input{Records: 9, Bytes: 900, Digest: 0xab},
		}},
		Counts: txstate.Counts{Read: 9, Rejected: 3, Late: 2, Future: 1},
		States: []txstate.StateDigest{{State: "counts", Writes: 4, Digest: 1}},
		Took:   txstate.Durations{Plan: time.Millisecond, Read: 2 * time.Millisecond, Process: 3 * time.Millisecond, Commit: 4 * time.Millisecond},
	}
}

func TestMetrics(t *testing.T) {
	var status atomic.Pointer[engine.Status]
	part := func(n int32, committed, end, logEnd int64) engine.PartitionStatus {
		return engine.PartitionStatus{Partition: batch.Partition{Source: "lines", Topic: "t", Number: n}, Committed: committed, End: end, LogEnd: logEnd}
	}
	away := part(1, 5, -1, -1)
	away.Err = errors.New("no leader")
	status.Store(&engine.Status{
		Ledger: &engine.LedgerStatus{First: 91, Base: 100, Bytes: 4096, HeldFor: "before-upgrade"},
		Epoch:  7, InFlight: []engine.InFlight{{Txid: 4}},
		Partitions: []engine.PartitionStatus{part(0, 10, 15, 16), away},
		Mirrors: []engine.MirrorStatus{{Name: "kafka group g", MirrorStatus: txstate.MirrorStatus{
			Txid: 2, Err: errors.New("members"), Failures: map[batch.Code]int64{batch.CodeGroupMembers: 4},
		}}},
	})
	m := engine.NewMetrics("words", func() engine.Status { return *status.Load() })
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	m.Resumed(1)
	m.Begun(2, batch.Attempt{})
	m.Failed(batch.NewError(batch.Transient, batch.CodeTimeout, "process", errors.New("timed out"), ""))
	m.Begun(2, batch.Attempt{})
	m.Committed(ledgerEntry(2))
	m.Committed(ledgerEntry(3))

	body := exposition(t, reg)
	wantLines(t, body,
		`tridentd_attempts_total{pipeline="words"} 2`,
		`tridentd_attempts_failed_total{code="timeout",kind="transient",pipeline="words"} 1`,
		`tridentd_batches_total{pipeline="words"} 2`,
		`tridentd_committed_txid{pipeline="words"} 3`,
		`tridentd_records_total{pipeline="words",source="lines"} 18`,
		`tridentd_bytes_total{pipeline="words",source="lines"} 1800`,
		`tridentd_state_writes_total{pipeline="words",state="counts"} 8`,
		`tridentd_rows_rejected_total{pipeline="words",reason="bad"} 6`,
		`tridentd_rows_rejected_total{pipeline="words",reason="late"} 4`,
		`tridentd_rows_rejected_total{pipeline="words",reason="future"} 2`,
		`tridentd_batch_seconds_count{phase="commit",pipeline="words"} 2`,
		`tridentd_ready{pipeline="words"} 1`,
		`tridentd_ledger_first_txid{pipeline="words"} 91`,
		`tridentd_ledger_base_txid{pipeline="words"} 100`,
		`tridentd_ledger_bytes{pipeline="words"} 4096`,
		`tridentd_ledger_held{pipeline="words"} 1`,
		`tridentd_epoch{pipeline="words"} 7`,
		`tridentd_batches_in_flight{pipeline="words"} 1`,
		`tridentd_failing{pipeline="words"} 0`,
		`tridentd_lag_records{partition="0",pipeline="words",source="lines",topic="t"} 5`,
		`tridentd_partition_log_end_offset{partition="0",pipeline="words",source="lines",topic="t"} 16`,
		`tridentd_partition_committed_offset{partition="1",pipeline="words",source="lines",topic="t"} 5`,
		`tridentd_partition_unavailable{partition="1",pipeline="words",source="lines",topic="t"} 1`,
		`tridentd_mirror_txid{mirror="kafka group g",pipeline="words"} 2`,
		`tridentd_mirror_failing{mirror="kafka group g",pipeline="words"} 1`,
		`tridentd_mirror_failures_total{code="group_members",mirror="kafka group g",pipeline="words"} 4`,
	)
	for _, absent := range []string{
		`tridentd_lag_records{partition="1"`, // not known
		`tridentd_last_error_timestamp_seconds{`,
		`tridentd_leading{`,
	} {
		if strings.Contains(body, absent) {
			t.Errorf("the metrics have %s", absent)
		}
	}

	status.Store(&engine.Status{
		Left: []engine.MirrorFailures{{Name: "kafka group g", Failures: map[batch.Code]int64{batch.CodeGroupMembers: 4}}, {Name: "zookeeper /a", Failures: map[batch.Code]int64{batch.CodeZKCut: 1}}},
		Mirrors: []engine.MirrorStatus{{Name: "kafka group g", MirrorStatus: txstate.MirrorStatus{
			Failures: map[batch.Code]int64{batch.CodeGroupMembers: 2, batch.CodeTimeout: 1},
		}}},
		Role: engine.Standby, Reasons: []string{"overflow"}, Failing: true, FailureSince: time.Unix(1_796_119_200, 0),
		Failure: batch.NewError(batch.Permanent, batch.CodeOverflow, "process", errors.New("overflow"), ""),
	})
	body = exposition(t, reg)
	wantLines(t, body,
		`tridentd_ready{pipeline="words"} 0`,
		`tridentd_leading{pipeline="words"} 0`,
		`tridentd_mirror_failures_total{code="group_members",mirror="kafka group g",pipeline="words"} 6`,
		`tridentd_mirror_failures_total{code="timeout",mirror="kafka group g",pipeline="words"} 1`,
		`tridentd_mirror_failures_total{code="zk_cut",mirror="zookeeper /a",pipeline="words"} 1`,
		`tridentd_failing{pipeline="words"} 1`,
		`tridentd_last_error_timestamp_seconds{code="overflow",kind="permanent",pipeline="words"} 1.7961192e+09`,
	)
	if problems, err := promlint.New(strings.NewReader(body)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("metrics against the naming rules: %v %v", problems, err)
	}
}

// TestRegisterer: a run's metrics tell of it when it has ended, too, and make way for those of the pipeline's next run, but
// not while it is under way.
func TestRegisterer(t *testing.T) {
	dir := t.TempDir()
	reg := prometheus.NewRegistry()
	o := engine.Options{UntilCaughtUp: true, Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"site": "a"}, reg)}
	for _, records := range []string{"3", "0"} { // the second run finds nothing to do
		h := faultyRun(t, dir, faulty{}, o)
		if err := h.Wait(); err != nil {
			t.Fatal(err)
		}
		body := exposition(t, reg)
		wantLines(t, body, `tridentd_committed_txid{pipeline="test",site="a"} 1`, `tridentd_ready{pipeline="test",site="a"} 0`)
		if records != "0" {
			wantLines(t, body, `tridentd_records_total{pipeline="test",site="a",source="lines"} `+records)
		} else if strings.Contains(body, "tridentd_records_total{") {
			t.Errorf("the second run has counted records\n%s", body)
		}
	}

	asked := make(chan struct{})
	h := faultyRun(t, dir, faulty{asked: asked}, o)
	<-asked
	p := engine.New("test")
	_, err := engine.Start(t.Context(), p, engine.Options{DataDir: t.TempDir(), Registerer: o.Registerer})
	if batch.CodeOf(err) != batch.CodeConfiguration {
		t.Errorf("two runs under one name: %v", err)
	}
	wantLines(t, exposition(t, reg), `tridentd_failing{pipeline="test",site="a"} 0`)
	h.Drain()
	if err := h.Wait(); err != nil {
		t.Error(err)
	}
}

func TestLag(t *testing.T) {
	for _, c := range []struct{ committed, end, want int64 }{{10, 15, 5}, {15, 15, 0}, {16, 15, 0}, {0, -1, -1}, {-1, 3, -1}} {
		p := engine.PartitionStatus{Committed: c.committed, End: c.end}
		if got := p.Lag(); got != c.want {
			t.Errorf("lag from %d to %d is %d, want %d", c.committed, c.end, got, c.want)
		}
	}
}

func BenchmarkMetricsCommitted(b *testing.B) {
	m, e := engine.NewMetrics("words", nil), ledgerEntry(1)
	b.ReportAllocs()
	for b.Loop() {
		m.Committed(e)
	}
}
