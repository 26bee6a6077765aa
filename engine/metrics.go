package engine

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// Metrics counts what a run does and shows where it stands, for Prometheus. Every metric carries the label pipeline.
//
// It costs a few atomic additions per batch and nothing per record. What describes the present (lag, batches in flight, readiness)
// is taken from a Status when it is collected; what isn't known yet has no sample.
type Metrics struct {
	attempts  prometheus.Counter
	failures  *prometheus.CounterVec // kind, code
	batches   prometheus.Counter
	checked   prometheus.Counter
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
	dead      prometheus.Counter
	committed prometheus.Gauge

	now    statusDescs
	status func() Status
	ended  <-chan struct{} // closed when the run has ended; nil if there is none
}

var (
	_ prometheus.Collector = (*Metrics)(nil)
	_ Observer             = (*Metrics)(nil)
)

// statusDescs are the metrics made from a Status.
type statusDescs struct {
	ready, leading, epoch, inFlight, failing, lastError *prometheus.Desc
	position, end, logEnd, lag, oldest, unavailable     *prometheus.Desc
	mirrorTxid, mirrorFailing, mirrorFailures           *prometheus.Desc
	sinkTxid, sinkRecords                               *prometheus.Desc
	ledgerFirst, ledgerBase, ledgerBytes, ledgerHeld    *prometheus.Desc

	saveTxid, saveAge, saveSeconds, saveBytes, saves, saveFailing, saveFailures *prometheus.Desc
}

// NewMetrics returns the metrics of a pipeline whose status is asked for whenever they are collected. A run makes its own for
// Options.Registerer; others are for a pipeline that doesn't run.
func NewMetrics(pipeline string, status func() Status) *Metrics {
	labels := prometheus.Labels{"pipeline": pipeline}
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "tridentd", Name: name, Help: help, ConstLabels: labels}
	}
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("tridentd_"+name, help, variable, labels)
	}
	partition := []string{"source", "topic", "partition"}
	m := &Metrics{
		status:   status,
		attempts: prometheus.NewCounter(counter("attempts_total", "Beginnings of batches, first ones and repeated ones.")),
		failures: prometheus.NewCounterVec(counter("attempts_failed_total",
			"Attempts that failed, by what the failure means and its cause."), []string{"kind", "code"}),
		batches: prometheus.NewCounter(counter("batches_total", "Batches committed since the process started.")),
		checked: prometheus.NewCounter(counter("batches_checked_total", "Batches that were computed twice and came out equal (run --check-determinism).")),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "tridentd", Name: "batch_seconds", ConstLabels: labels,
			Help:    "Seconds that committed batches spent in each phase: plan, read, process, commit.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 17), // 0.5 ms to 33 s
		}, []string{"phase"}),
		records:  prometheus.NewCounterVec(counter("records_total", "Records in committed batches."), []string{"source"}),
		bytes:    prometheus.NewCounterVec(counter("bytes_total", "Bytes of keys, values and header values in committed batches."), []string{"source"}),
		writes:   prometheus.NewCounterVec(counter("state_writes_total", "Keys written to a state by committed batches."), []string{"state"}),
		rejected: prometheus.NewCounterVec(counter("rows_rejected_total", "Rows turned away: bad, late, or too far in the future."), []string{"reason"}),
		dead:     prometheus.NewCounter(counter("dead_letters_total", "Rows turned away that became dead letters, of committed batches.")),
		committed: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "tridentd", Name: "committed_txid", ConstLabels: labels, Help: "The last committed txid.",
		}),
		now: statusDescs{
			ready:       desc("ready", "1 if batches can be processed, 0 if something stands in the way (/readyz says what)."),
			leading:     desc("leading", "1 in the process that has the pipeline's lock, 0 in one that waits for it; none without a lock."),
			epoch:       desc("epoch", "The epoch of this run; each start takes a higher one."),
			inFlight:    desc("batches_in_flight", "Batches begun and not yet committed."),
			failing:     desc("failing", "1 while the last failure still stands: nothing has committed since."),
			lastError:   desc("last_error_timestamp_seconds", "When the last failure of this process began, by kind and code.", "kind", "code"),
			position:    desc("partition_committed_offset", "The next offset to be processed.", partition...),
			end:         desc("partition_end_offset", "The offset after the last record that can be read.", partition...),
			logEnd:      desc("partition_log_end_offset", "The offset after the last record, readable or held back by an open transaction.", partition...),
			lag:         desc("lag_records", "Offsets between the committed position and the end.", partition...),
			oldest:      desc("oldest_record_timestamp_seconds", "Timestamp of the oldest record fetched and not yet processed.", partition...),
			unavailable: desc("partition_unavailable", "1 while the partition can't be read.", partition...),

			mirrorTxid:     desc("mirror_txid", "The txid up to which a mirror of the committed positions has been written.", "mirror"),
			mirrorFailing:  desc("mirror_failing", "1 while something keeps a mirror from being up to date.", "mirror"),
			mirrorFailures: desc("mirror_failures_total", "What went wrong with a mirror since the process started, by cause.", "mirror", "code"),

			sinkTxid:    desc("sink_txid", "The last committed txid that had output for a sink.", "sink"),
			sinkRecords: desc("sink_records_total", "Records that a sink was given by committed batches, since the pipeline began.", "sink"),

			ledgerFirst: desc("ledger_first_txid", "The txid of the first entry that the ledger holds."),
			ledgerHeld:  desc("ledger_held", "1 while a savepoint keeps the ledger beyond its bounds."),
			ledgerBase:  desc("ledger_base_txid", "The txid behind which the earliest replay can begin; 0 while nothing is trimmed."),
			ledgerBytes: desc("ledger_bytes", "Bytes of the ledger and of the changes kept beside it, in tables on the disk."),

			saveTxid:     desc("savepoint_txid", "The txid of the last savepoint made by schedule."),
			saveAge:      desc("savepoint_age_seconds", "Seconds since the last savepoint made by schedule held all that had committed."),
			saveSeconds:  desc("savepoint_duration_seconds", "How long the last savepoint of this process took; batches went on meanwhile."),
			saveBytes:    desc("savepoint_bytes", "The size of the last savepoint made by schedule."),
			saves:        desc("savepoints_total", "Savepoints made by schedule since the process started."),
			saveFailing:  desc("savepoint_failing", "1 while a savepoint that is due can't be made."),
			saveFailures: desc("savepoint_failures_total", "Attempts to make a savepoint by schedule that failed, since the process started."),
		},
	}
	phase := func(name string) prometheus.Observer { return m.seconds.WithLabelValues(name) }
	m.plan, m.read, m.process, m.commit = phase("plan"), phase("read"), phase("process"), phase("commit")
	m.bad, m.late, m.future = m.rejected.WithLabelValues("bad"), m.rejected.WithLabelValues("late"), m.rejected.WithLabelValues("future")
	return m
}

// Resumed implements Observer.
func (m *Metrics) Resumed(txid batch.Txid) { m.committed.Set(float64(txid)) }

// Begun implements Observer.
func (m *Metrics) Begun(batch.Txid, batch.Attempt) { m.attempts.Inc() }

// Failed implements Observer.
func (m *Metrics) Failed(err error) {
	m.failures.WithLabelValues(batch.KindOf(err).String(), string(batch.CodeOf(err))).Inc()
}

// Committed implements Observer: it counts the batch and all that its entry tells.
func (m *Metrics) Committed(e *txstate.Entry) {
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
	m.dead.Add(float64(e.Counts.Dead))
}

func (m *Metrics) counted() []prometheus.Collector {
	return []prometheus.Collector{m.attempts, m.failures, m.batches, m.checked, m.seconds, m.records, m.bytes, m.writes, m.rejected, m.dead, m.committed}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.counted() {
		c.Describe(ch)
	}
	n := &m.now
	for _, d := range []*prometheus.Desc{
		n.ready, n.leading, n.epoch, n.inFlight, n.failing, n.lastError, n.position, n.end, n.logEnd, n.lag, n.oldest, n.unavailable,
		n.mirrorTxid, n.mirrorFailing, n.mirrorFailures, n.sinkTxid, n.sinkRecords,
		n.ledgerFirst, n.ledgerBase, n.ledgerBytes, n.ledgerHeld,
		n.saveTxid, n.saveAge, n.saveSeconds, n.saveBytes, n.saves, n.saveFailing, n.saveFailures,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.counted() {
		c.Collect(ch)
	}
	st := m.status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	n := &m.now
	gauge(n.ready, truth(len(st.Reasons) == 0))
	if st.Role != Sole {
		gauge(n.leading, truth(st.Role == Leader))
	}
	gauge(n.epoch, float64(st.Epoch))
	gauge(n.inFlight, float64(len(st.InFlight)))
	gauge(n.failing, truth(st.Failing))
	if err := st.Failure; err != nil && !st.FailureSince.IsZero() {
		gauge(n.lastError, float64(st.FailureSince.UnixMilli())/1e3, batch.KindOf(err).String(), string(batch.CodeOf(err)))
	}
	for i := range st.Partitions {
		p := &st.Partitions[i]
		labels := []string{p.Source, p.Topic, strconv.FormatInt(int64(p.Number), 10)}
		for _, f := range [...]struct {
			desc  *prometheus.Desc
			value int64
		}{{n.position, p.Committed}, {n.end, p.End}, {n.logEnd, p.LogEnd}, {n.lag, p.Lag()}} {
			if f.value >= 0 {
				gauge(f.desc, float64(f.value), labels...)
			}
		}
		if !p.Oldest.IsZero() {
			gauge(n.oldest, float64(p.Oldest.UnixMilli())/1e3, labels...)
		}
		gauge(n.unavailable, truth(p.Err != nil), labels...)
	}
	for i := range st.Mirrors {
		mirror := &st.Mirrors[i]
		gauge(n.mirrorTxid, float64(mirror.Txid), mirror.Name)
		gauge(n.mirrorFailing, truth(mirror.Err != nil), mirror.Name)
	}
	for _, s := range st.Sinks {
		gauge(n.sinkTxid, float64(s.Txid), s.Name)
		ch <- prometheus.MustNewConstMetric(n.sinkRecords, prometheus.CounterValue, float64(s.Records), s.Name)
	}
	if l := st.Ledger; l != nil {
		gauge(n.ledgerFirst, float64(l.First))
		gauge(n.ledgerBase, float64(l.Base))
		gauge(n.ledgerHeld, truth(l.HeldFor != ""))
		gauge(n.ledgerBytes, float64(l.Bytes))
	}
	if s := st.Savepoints; s != nil {
		gauge(n.saveFailing, truth(s.Err != nil))
		for d, v := range map[*prometheus.Desc]int64{n.saves: s.Made, n.saveFailures: s.Failures} { // order: the registry sorts
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
		}
		if s.Name != "" {
			gauge(n.saveTxid, float64(s.Txid))
			gauge(n.saveBytes, float64(s.Bytes))
		}
		if !s.Covered.IsZero() {
			gauge(n.saveAge, time.Since(s.Covered).Seconds())
		}
		if s.Took > 0 {
			gauge(n.saveSeconds, s.Took.Seconds())
		}
	}
	for _, mirror := range addFailures(st.Left, st.Mirrors) {
		for code, count := range mirror.Failures { // order: the registry sorts
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

// register shows the metrics of a run that is about to begin. Those of an earlier run of the pipeline, which has ended, make way.
func (m *Metrics) register(pipeline string, r prometheus.Registerer) error {
	err := r.Register(m)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if old, ok := already.ExistingCollector.(*Metrics); ok && old.hasEnded() {
			r.Unregister(old)
			err = r.Register(m)
		}
	}
	if err == nil {
		return nil
	}
	e := batch.NewError(batch.Permanent, batch.CodeConfiguration, "start", fmt.Errorf("its metrics can't be registered: %w", err),
		"give each run that is under way at the same time a Registerer of its own, such as one of prometheus.WrapRegistererWith")
	e.Pipeline = pipeline
	return e
}

func (m *Metrics) hasEnded() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

// observers tells each of them.
type observers []Observer

func (os observers) Resumed(txid batch.Txid) {
	for _, o := range os {
		o.Resumed(txid)
	}
}

func (os observers) Begun(txid batch.Txid, attempt batch.Attempt) {
	for _, o := range os {
		o.Begun(txid, attempt)
	}
}

func (os observers) Failed(err error) {
	for _, o := range os {
		o.Failed(err)
	}
}

func (os observers) Committed(e *txstate.Entry) {
	for _, o := range os {
		o.Committed(e)
	}
}
