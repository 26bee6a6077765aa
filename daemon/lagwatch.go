package daemon

import (
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tridentd/tridentd/engine"
)

const (
	// lagEvery is the time between two looks at the lag.
	lagEvery = 30 * time.Second
	// lagLooks is how many looks in a row must show more lag than the one before until that is worth a warning.
	lagLooks = 5
	// lagQuiet is for how long a lag that goes on growing isn't warned of again.
	lagQuiet = 10 * time.Minute
)

// lagWatch notices sources whose lag keeps growing: the pipeline is slower than what comes in.
type lagWatch struct {
	log     hclog.Logger
	growing func(source string, is bool) // for metrics
	sources map[string]*lagTrend
}

// lagTrend is how the lag of one source has gone.
type lagTrend struct {
	lag    int64 // at the last look
	rises  int   // looks in a row that showed more than the one before
	from   int64 // the lag before the first of them
	since  time.Time
	warned time.Time // zero: it isn't known to grow
}

// newLagGrowing returns the metric that says so.
func newLagGrowing(pipeline string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "tridentd", Name: "lag_growing", Help: "1 while the lag of a source has grown from look to look.",
		ConstLabels: prometheus.Labels{"pipeline": pipeline},
	}, []string{"source"})
}

// watchLag looks at the lag of a run until that has ended.
func watchLag(h *engine.Handle, growing *prometheus.GaugeVec, log hclog.Logger) {
	w := &lagWatch{log: log, growing: func(source string, is bool) {
		v := 0.0
		if is {
			v = 1
		}
		growing.WithLabelValues(source).Set(v)
	}, sources: map[string]*lagTrend{}}
	t := time.NewTicker(lagEvery)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			w.look(now, h.Status().Partitions)
		case <-h.Done():
			return
		}
	}
}

// look takes one look. Partitions whose end isn't known count as they were: nothing.
func (w *lagWatch) look(now time.Time, parts []engine.PartitionStatus) {
	sum := map[string]int64{}
	for _, p := range parts {
		sum[p.Source] += max(0, p.Lag())
	}
	for _, source := range slices.Sorted(maps.Keys(sum)) {
		lag := sum[source]
		t := w.sources[source]
		if t == nil {
			w.sources[source] = &lagTrend{lag: lag, from: lag, since: now}
			w.growing(source, false)
			continue
		}
		if lag > t.lag {
			t.rises++
		} else {
			w.level(source, t, now)
			t.from, t.since = lag, now
		}
		t.lag = lag
		if t.rises >= lagLooks && (t.warned.IsZero() || now.Sub(t.warned) >= lagQuiet) {
			t.warned = now
			w.growing(source, true)
			w.log.Warn("the lag keeps growing: more comes in than is processed", "source", source, "lag", lag, "was", t.from,
				"for", now.Sub(t.since).Round(time.Second))
		}
	}
}

// level notes that the lag doesn't grow any more.
func (w *lagWatch) level(source string, t *lagTrend, now time.Time) {
	if !t.warned.IsZero() {
		w.growing(source, false)
		w.log.Info("the lag has stopped growing", "source", source, "lag", t.lag, "after", now.Sub(t.since).Round(time.Second))
	}
	t.rises, t.warned = 0, time.Time{}
}
