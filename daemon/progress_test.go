package daemon

import (
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// screen is what a terminal shows, in the order in which it came.
type screen struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestLogsAfterTheBar: what is logged when the bar has gone, as the cause of a stop is, must be seen too.
func TestLogsAfterTheBar(t *testing.T) {
	var term screen
	p := newProgress(&term, "words", &observer{})
	p.draw()
	log := hclog.New(&hclog.LoggerOptions{Output: p.logs()})
	log.Info("while it runs")
	p.stop()
	log.Error("stopped for good")
	for _, want := range []string{"while it runs", "stopped for good"} {
		if !strings.Contains(term.String(), want) {
			t.Errorf("the terminal doesn't show %q:\n%s", want, term.String())
		}
	}
}
