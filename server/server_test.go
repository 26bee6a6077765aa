package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"github.com/tridentd/tridentd/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestListenAddresses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct{ listen, text string }{
		{taken.Addr().String(), "address already in use"},
		{"127.0.0.1", "missing port"},
		{"127.0.0.1:http", "invalid syntax"},
		{":8642", "isn't a loopback address"},
		{"0.0.0.0:0", "isn't a loopback address"},
		{"192.0.2.1:0", "isn't a loopback address"},
	} {
		s, err := Start(Config{Backend: newBackend(), Listen: c.listen})
		if err == nil {
			_ = s.Close(t.Context())
			t.Errorf("listening on %q worked", c.listen)
			continue
		}
		var e *batch.Error
		if !errors.As(err, &e) || e.Code != batch.CodeConfiguration || e.Remedy == "" || !strings.Contains(err.Error(), c.text) {
			t.Errorf("listening on %q: %v, want a configuration error with %q", c.listen, err, c.text)
		}
	}
}

// Several pipelines on one machine find a port each.
func TestDefaultAddressMovesOn(t *testing.T) {
	a := start(t, Config{Backend: newBackend()})
	b := start(t, Config{Backend: newBackend()})
	if a.Addr() == b.Addr() {
		t.Fatalf("both on %s", a.Addr())
	}
	for _, s := range []*Server{a, b} {
		if host, _, _ := net.SplitHostPort(s.Addr()); host != "127.0.0.1" {
			t.Errorf("listens on %s", s.Addr())
		}
		if resp, _ := get(t, s, "/healthz"); resp.StatusCode != 200 {
			t.Errorf("%s: %d", s.Addr(), resp.StatusCode)
		}
	}
}

func TestListenOff(t *testing.T) {
	s := start(t, Config{Backend: newBackend(), Listen: ListenOff, Dir: t.TempDir()})
	if s.Addr() != "" {
		t.Errorf("address %s", s.Addr())
	}
}

// Close waits for a running request, and no longer than it may.
func TestClose(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprintf("patient=%v", patient), func(t *testing.T) {
			b := newBackend()
			b.block, b.reached = make(chan struct{}), make(chan struct{})
			release := b.block
			s, err := Start(Config{Backend: b, Listen: "127.0.0.1:0"})
			if err != nil {
				t.Fatal(err)
			}
			result := make(chan error, 1)
			go func() {
				resp, err := http.Get("http://" + s.Addr() + "/api/v1/states/counts")
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				result <- err
			}()
			<-b.reached
			limit := 5 * time.Second
			if !patient {
				limit = 20 * time.Millisecond
			} else {
				go func() {
					time.Sleep(20 * time.Millisecond)
					close(release)
				}()
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err = s.Close(ctx)
			if patient {
				if err != nil {
					t.Errorf("Close: %v", err)
				}
				if err := <-result; err != nil {
					t.Errorf("the running request: %v", err)
				}
				return
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Close: %v, want a deadline exceeded", err)
			}
			if err := <-result; err == nil {
				t.Error("the request that was cut off looks whole")
			}
			close(release)
		})
	}
}

func TestMetrics(t *testing.T) {
	b := newBackend()
	m := NewMetrics("words")
	s := start(t, Config{Backend: b, Metrics: m, Listen: "127.0.0.1:0"})
	m.Resumed(1)
	m.AttemptBegun()
	m.AttemptFailed(batch.Transient, batch.CodeTimeout)
	m.AttemptBegun()
	m.BatchCommitted(ledgerEntry(2))
	m.BatchCommitted(ledgerEntry(3))

	_, body := get(t, s, "/metrics")
	for _, line := range []string{
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
		`tridentd_epoch{pipeline="words"} 7`,
		`tridentd_batches_in_flight{pipeline="words"} 1`,
		`tridentd_failing{pipeline="words"} 0`,
		`tridentd_lag_records{partition="0",pipeline="words",source="lines",topic="t"} 5`,
		`tridentd_partition_committed_offset{partition="1",pipeline="words",source="lines",topic="t"} 5`,
		`tridentd_partition_unavailable{partition="1",pipeline="words",source="lines",topic="t"} 1`,
		`tridentd_mirror_txid{mirror="kafka group g",pipeline="words"} 2`,
		`tridentd_mirror_failing{mirror="kafka group g",pipeline="words"} 1`,
		`tridentd_mirror_failures_total{code="group_members",mirror="kafka group g",pipeline="words"} 4`,
		`go_goroutines`,
	} {
		if !strings.Contains(body, line) {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	for _, absent := range []string{
		`tridentd_lag_records{partition="1"`, // not known
		`tridentd_last_error_timestamp_seconds{`,
	} {
		if strings.Contains(body, absent) {
			t.Errorf("/metrics has %s", absent)
		}
	}

	st := *b.status.Load()
	st.Failing, st.LastError = true, &ErrorStatus{Kind: "permanent", Code: batch.CodeOverflow, Since: started}
	b.status.Store(&st)
	_, body = get(t, s, "/metrics")
	for _, line := range []string{
		`tridentd_failing{pipeline="words"} 1`,
		`tridentd_last_error_timestamp_seconds{code="overflow",kind="permanent",pipeline="words"} 1.7961192e+09`,
	} {
		if !strings.Contains(body, line) {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	if problems, err := promlint.New(strings.NewReader(body)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("metrics against the naming rules: %v %v", problems, err)
	}
}

func BenchmarkBatchCommitted(b *testing.B) {
	m, e := NewMetrics("words"), ledgerEntry(1)
	b.ReportAllocs()
	for b.Loop() {
		m.BatchCommitted(e)
	}
}

func TestLagOf(t *testing.T) {
	for _, c := range []struct{ committed, end, want int64 }{
		{10, 15, 5}, {15, 15, 0}, {16, 15, 0}, {0, Unknown, Unknown}, {Unknown, 3, Unknown},
	} {
		if got := LagOf(c.committed, c.end); got != c.want {
			t.Errorf("LagOf(%d, %d) = %d, want %d", c.committed, c.end, got, c.want)
		}
	}
}
