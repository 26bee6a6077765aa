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

	"github.com/prometheus/client_golang/prometheus"
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
			limit := time.Minute
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

// TestMetrics: what a run registers is shown beside the figures of the process.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "words"}, func() float64 { return 3 }))
	for _, c := range []struct {
		metrics prometheus.Gatherer
		shown   bool
	}{{nil, false}, {reg, true}} {
		s := start(t, Config{Backend: newBackend(), Metrics: c.metrics, Listen: "127.0.0.1:0"})
		_, body := get(t, s, "/metrics")
		if !strings.Contains(body, "\ngo_goroutines ") || !strings.Contains(body, "\nprocess_start_time_seconds ") || strings.Contains(body, "\nwords 3\n") != c.shown {
			t.Errorf("/metrics of %v:\n%s", c.metrics, body)
		}
	}
}
