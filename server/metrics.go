package server

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// Metrics counts what a pipeline does. It is a prometheus.Collector: Start shows it at /metrics, and a program may
// register it with a Registerer of its own. Every metric carries the label pipeline.
//
// The methods cost a few atomic additions per batch and nothing per record, so they are always on. Figures that
// describe the present (lag, batches in flight, readiness) are taken from the Backend when they are read.
type Metrics struct {
	attempts  prometheus.Counter
	failures  *prometheus.CounterVec // kind, code
	batches   prometheus.Counter
	seconds   *prometheus.HistogramVec // phase
	plan      prometheus.Observer
	read      prometheus.Observer
	process   prometheus.Observer
	commit    prometheus.Observer
	records   *prometheus.CounterVec // source
	bytes     *prometheus.CounterVec // source
	writes    *prometheus.CounterVec // state
	rejected  *prometheus.CounterVec // reason
	bad       prometheus.Counter
	late      prometheus.Counter
	future    prometheus.Counter
	committed prometheus.Gauge
	growing   *prometheus.GaugeVec // source

	now statusDescs

	mu      sync.Mutex
	backend Backend // nil until a server has been started
}

// statusDescs are the metrics made from a Status.
type statusDescs struct {
	ready, leading, epoch, inFlight, failing, lastError *prometheus.Desc
	position, end, logEnd, lag, oldest, unavailable     *prometheus.Desc
	mirrorTxid, mirrorFailing, mirrorFailures           *prometheus.Desc
}

// NewMetrics returns the metrics of one pipeline.
func NewMetrics(pipeline string) *Metrics {
	labels := prometheus.Labels{"pipeline": pipeline}
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "tridentd", Name: name, Help: help, ConstLabels: labels}
	}
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("tridentd_"+name, help, variable, labels)
	}
	m := &Metrics{
		attempts: prometheus.NewCounter(counter("attempts_total", "Beginnings of batches, first ones and repeated ones.")),
		failures: prometheus.NewCounterVec(counter("attempts_failed_total",
			"Attempts that failed, by what the failure means and its cause."), []string{"kind", "code"}),
		batches: prometheus.NewCounter(counter("batches_total", "Batches committed since the process started.")),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "tridentd", Name: "batch_seconds", ConstLabels: labels,
			Help:    "Seconds that committed batches spent in each phase: plan, read, process, commit.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 17), // 0.5 ms to 33 s
		}, []string{"phase"}),
		records:  prometheus.NewCounterVec(counter("records_total", "Records in committed batches."), []string{"source"}),
		bytes:    prometheus.NewCounterVec(counter("bytes_total", "Bytes of keys, values and header values in committed batches."), []string{"source"}),
		writes:   prometheus.NewCounterVec(counter("state_writes_total", "Keys written to a state by committed batches."), []string{"state"}),
		rejected: prometheus.NewCounterVec(counter("rows_rejected_total", "Rows turned away: bad, late, or too far in the future."), []string{"reason"}),
		committed: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "tridentd", Name: "committed_txid", ConstLabels: labels, Help: "The last committed txid.",
		}),
		growing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "tridentd", Name: "lag_growing", ConstLabels: labels, Help: "1 while the lag of a source has grown from look to look.",
		}, []string{"source"}),
		now: statusDescs{
			ready:       desc("ready", "1 if batches can be processed, 0 if something stands in the way (/readyz says what)."),
			leading:     desc("leading", "1 in the process that has the pipeline's lock, 0 in one that waits for it; none without a lock."),
			epoch:       desc("epoch", "The epoch of this run; each start takes a higher one."),
			inFlight:    desc("batches_in_flight", "Batches begun and not yet committed."),
			failing:     desc("failing", "1 while the last failure still stands: nothing has committed since."),
			lastError:   desc("last_error_timestamp_seconds", "When the last failure of this process began, by kind and code.", "kind", "code"),
			position:    desc("partition_committed_offset", "The next offset to be processed.", partitionLabels...),
			end:         desc("partition_end_offset", "The offset after the last record that can be read.", partitionLabels...),
			logEnd:      desc("partition_log_end_offset", "The offset after the last record, readable or held back by an open transaction.", partitionLabels...),
			lag:         desc("lag_records", "Offsets between the committed position and the end.", partitionLabels...),
			oldest:      desc("oldest_record_timestamp_seconds", "Timestamp of the oldest record fetched and not yet processed.", partitionLabels...),
			unavailable: desc("partition_unavailable", "1 while the partition can't be read.", partitionLabels...),

			mirrorTxid:     desc("mirror_txid", "The txid up to which a mirror of the committed positions has been written.", "mirror"),
			mirrorFailing:  desc("mirror_failing", "1 while something keeps a mirror from being up to date.", "mirror"),
			mirrorFailures: desc("mirror_failures_total", "What went wrong with a mirror since the process started, by cause.", "mirror", "code"),
		},
	}
	phase := func(name string) prometheus.Observer { return m.seconds.WithLabelValues(name) }
	m.plan, m.read, m.process, m.commit = phase("plan"), phase("read"), phase("process"), phase("commit")
	m.bad, m.late, m.future = m.rejected.WithLabelValues("bad"), m.rejected.WithLabelValues("late"), m.rejected.WithLabelValues("future")
	return m
}

var partitionLabels = []string{"source", "topic", "partition"}

// Resumed tells the txid that the store held when the pipeline started.
func (m *Metrics) Resumed(txid batch.Txid) { m.committed.Set(float64(txid)) }

// AttemptBegun counts the beginning of a batch.
func (m *Metrics) AttemptBegun() { m.attempts.Inc() }

// AttemptFailed counts a failed attempt by its cause.
func (m *Metrics) AttemptFailed(kind batch.Kind, code batch.Code) {
	m.failures.WithLabelValues(kind.String(), string(code)).Inc()
}

// BatchCommitted counts a committed batch and all that its entry tells.
func (m *Metrics) BatchCommitted(e *txstate.Entry) {
	m.batches.Inc()
	m.committed.Set(float64(e.Txid))
	m.plan.Observe(e.Took.Plan.Seconds())
	m.read.Observe(e.Took.Read.Seconds())
	m.process.Observe(e.Took.Process.Seconds())
	m.commit.Observe(e.Took.Commit.Seconds())
	for i := range e.Ranges {
		r := &e.Ranges[i]
		m.records.WithLabelValues(r.Source).Add(float64(r.Records))
		m.bytes.WithLabelValues(r.Source).Add(float64(r.Bytes))
	}
	for _, s := range e.States {
		m.writes.WithLabelValues(s.State).Add(float64(s.Writes))
	}
	m.bad.Add(float64(e.Counts.Rejected))
	m.late.Add(float64(e.Counts.Late))
	m.future.Add(float64(e.Counts.Future))
}

// LagGrowing tells whether the lag of a source keeps growing.
func (m *Metrics) LagGrowing(source string, is bool) {
	m.growing.WithLabelValues(source).Set(truth(is))
}

func (m *Metrics) watch(b Backend) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.backend = b
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.attempts, m.failures, m.batches, m.seconds, m.records, m.bytes, m.writes, m.rejected, m.committed, m.growing,
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
	n := &m.now
	for _, d := range []*prometheus.Desc{
		n.ready, n.leading, n.epoch, n.inFlight, n.failing, n.lastError, n.position, n.end, n.logEnd, n.lag, n.oldest, n.unavailable,
		n.mirrorTxid, n.mirrorFailing, n.mirrorFailures,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
	m.mu.Lock()
	backend := m.backend
	m.mu.Unlock()
	if backend == nil {
		return
	}
	st := backend.Status(context.Background())
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	n := &m.now
	gauge(n.ready, truth(st.Ready))
	if st.Role != "" {
		gauge(n.leading, truth(st.Role == RoleLeader))
	}
	gauge(n.epoch, float64(st.Epoch))
	gauge(n.inFlight, float64(len(st.InFlight)))
	gauge(n.failing, truth(st.Failing))
	if e := st.LastError; e != nil {
		gauge(n.lastError, float64(e.Since.UnixMilli())/1e3, e.Kind, string(e.Code))
	}
	for i := range st.Partitions {
		p := &st.Partitions[i]
		labels := p.labels()
		for _, f := range [...]struct {
			desc  *prometheus.Desc
			value int64
		}{{n.position, p.Committed}, {n.end, p.End}, {n.logEnd, p.LogEnd}, {n.lag, p.Lag}} {
			if f.value >= 0 { // what isn't known yet has no sample
				gauge(f.desc, float64(f.value), labels...)
			}
		}
		if !p.Oldest.IsZero() {
			gauge(n.oldest, float64(p.Oldest.UnixMilli())/1e3, labels...)
		}
		gauge(n.unavailable, truth(p.Error != ""), labels...)
	}
	for i := range st.Mirrors {
		mirror := &st.Mirrors[i]
		gauge(n.mirrorTxid, float64(mirror.Txid), mirror.Name)
		gauge(n.mirrorFailing, truth(mirror.Error != nil), mirror.Name)
		for code, count := range mirror.Failures {
			ch <- prometheus.MustNewConstMetric(n.mirrorFailures, prometheus.CounterValue, float64(count), mirror.Name, string(code))
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
