package runner

import (
	"time"

	"github.com/tridentd/tridentd/coordinator"
)

// Call is a running call of the Executor.
type Call struct {
	Op    string // "plan", "process", "record", "commit" or "reopen"
	Batch string // which batches, in words; empty for reopen
	Since time.Time
}

// Stats tells where a run stands.
type Stats struct {
	coordinator.Stats
	// LastFailure is the latest failure, overcome or not; nil if there was none. Failing is the one to alarm about.
	LastFailure *coordinator.Failure
	// Calls are those that run at the moment, in the order they began.
	Calls []Call
}

// Stats may be called at any time from any goroutine.
func (r *Runner) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := Stats{Stats: r.machine.Stats()}
	if r.last != nil {
		f := *r.last
		st.LastFailure = &f
	}
	for _, c := range r.calls {
		st.Calls = append(st.Calls, *c)
	}
	return st
}
