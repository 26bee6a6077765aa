package coordinator

import (
	"errors"
	"fmt"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// Defaults of Config.
const (
	DefaultMaxPending = 4
	DefaultRetryMin   = 100 * time.Millisecond
	DefaultRetryMax   = 30 * time.Second
)

// Config is set once, before the first event. The zero value is usable.
type Config struct {
	// MaxPending is how many batches may be in flight: begun and not yet committed. A place becomes free by a
	// commit only. 0 means DefaultMaxPending.
	MaxPending int
	// Interval is the least time between the first beginnings of two batches. 0 begins a batch as soon as there
	// is data and room.
	Interval time.Duration
	// Retry says what follows a transient failure.
	Retry Retry
	// Timeout bounds the planning and processing of one attempt, and apart from that its recording; an attempt
	// that takes longer counts as failed, transiently. A commit is never given up on. 0 means no bound.
	Timeout time.Duration
	// Outside says that participants outside the local store take part in commits: ranges are recorded first,
	// and batches commit one by one.
	Outside bool
	// MaxCommit is how many consecutive batches may share one commit where nothing is outside. 0 means as many
	// as are in flight.
	MaxCommit int
	// Seed is what the seeds of batches and the jitter of back-offs derive from.
	Seed uint64
}

// Retry bounds and paces attempts after transient failures.
type Retry struct {
	// Min is the back-off after the first failure of a batch; each further failure doubles it, up to Max. A
	// jitter of up to a quarter is added, within Max. 0 means DefaultRetryMin and DefaultRetryMax.
	Min, Max time.Duration
	// Attempts is how many failures of one batch end the run. 0 means no bound.
	Attempts uint32
	// For ends the run at the first failure of a batch that comes this long after its first one. 0 means no bound.
	For time.Duration
}

func (c Config) withDefaults() Config {
	if c.MaxPending == 0 {
		c.MaxPending = DefaultMaxPending
	}
	if c.MaxCommit == 0 {
		c.MaxCommit = c.MaxPending
	}
	if c.Retry.Min == 0 {
		c.Retry.Min = DefaultRetryMin
	}
	if c.Retry.Max == 0 {
		c.Retry.Max = max(DefaultRetryMax, c.Retry.Min)
	}
	return c
}

// Validate returns an error that names every field out of its range.
func (c Config) Validate() error {
	var errs []error
	atLeast := func(name string, ok bool, v any, least string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %v: it must be at least %s", name, v, least))
		}
	}
	atLeast("MaxPending", c.MaxPending >= 0, c.MaxPending, "1 (0 for the default)")
	atLeast("MaxCommit", c.MaxCommit >= 0, c.MaxCommit, "1 (0 for the default)")
	atLeast("Interval", c.Interval >= 0, c.Interval, "0")
	atLeast("Timeout", c.Timeout >= 0, c.Timeout, "0")
	atLeast("Retry.Min", c.Retry.Min >= 0, c.Retry.Min, "0")
	atLeast("Retry.Max", c.Retry.Max == 0 || c.Retry.Max >= c.Retry.Min, c.Retry.Max, "Retry.Min")
	atLeast("Retry.For", c.Retry.For >= 0, c.Retry.For, "0")
	if len(errs) == 0 {
		return nil
	}
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "configure", errors.Join(errs...), "correct the setting")
}

// backoff is how long to wait after the n-th failure (from 1) of a batch with the given seed. The same failure of
// the same batch always waits equally long.
func (r Retry) backoff(seed uint64, txid batch.Txid, n uint32) time.Duration {
	// Room for the jitter is left below Max, so that pipelines that fail together don't come back together.
	limit := max(r.Min, r.Max/5*4)
	d := r.Min
	for i := uint32(1); i < n && d < limit; i++ {
		d *= 2
	}
	d = min(d, limit)
	b := batch.Batch{Seed: seed}
	jitter := time.Duration(b.Rand("backoff", batch.Partition{Number: int32(n)}, int64(txid)).Float64() * float64(d/4))
	return max(min(d+jitter, r.Max).Truncate(time.Millisecond), r.Min)
}

// seedOf derives the seed of a batch from the pipeline's.
func seedOf(base uint64, txid batch.Txid) uint64 {
	b := batch.Batch{Seed: base}
	return b.Rand("batch", batch.Partition{}, int64(txid)).Uint64()
}
