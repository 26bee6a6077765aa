package daemon_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/server"
)

// failingJob counts values by a step that fails, as a server that is away does, for every attempt of txid 2 while away
// is set. The attempts are counted.
func failingJob(t *testing.T, b *brokers, away *atomic.Bool) (j *job, attempts *atomic.Int64) {
	attempts = new(atomic.Int64)
	p := engine.New("failing", engine.WithBatching(engine.Batching{MaxRecords: 10, MaxPending: 1, RetryMin: 20 * time.Millisecond}))
	s := engine.TryMap(engine.From(p, "lines", kafka.New(b.addrs...).Topics("t"), codec.String()), func(b *engine.Batch, v string) (string, error) {
		if b.Txid() == 2 && away.Load() {
			attempts.Add(1)
			return "", engine.Transient(errors.New("the state is away"))
		}
		return v, nil
	})
	engine.Aggregate(engine.GroupBy(s, func(v string) string { return v }, "value"), "counts", agg.Count[string]("n"))
	return goJob(t, p), attempts
}

// retriedRecordsAreDeleted: a batch fails again and again, and its records are deleted meanwhile. Either it commits with
// just the records that it began with, or the pipeline stops with what is gone; it never takes others in their place.
func retriedRecordsAreDeleted(t *testing.T, b *brokers) {
	t.Run("held in memory", func(t *testing.T) {
		b.topic("t", 1)
		defer b.drop("t")
		b.produce("t", append(times(10, "a"), times(10, "b")...)...)
		var away atomic.Bool
		away.Store(true)
		j, attempts := failingJob(t, b, &away)
		stop := j.start()
		j.await("the failure", func(st *server.Status) bool { return st.Failing && attempts.Load() >= 2 })
		b.deleteBelow("t", 15)
		n, began := attempts.Load(), time.Now()
		for attempts.Load() < n+3 && time.Since(began) < patience {
			time.Sleep(10 * time.Millisecond)
		}
		// A back-off that grows from 20 ms leaves room for so few, and for some more if this goroutine had to wait for its turn.
		if more, spent := attempts.Load()-n, time.Since(began); more > 5+int64(spent/(2*time.Second)) || spent < 100*time.Millisecond {
			t.Errorf("%d attempts within %s: no back-off", more, spent)
		}
		away.Store(false)
		j.await("txid 2", func(st *server.Status) bool { return st.Committed == 2 })
		if code, log := stop(); code != 0 {
			t.Fatalf("exit %d\n%s", code, log)
		}
		j.holds("counts", "a,10", "b,10")
		j.checkRanges(0, 20)
		if e := j.ledger()[1]; e.Attempts < 4 || e.Ranges[0].Start != 10 || e.Ranges[0].End != 20 {
			t.Errorf("txid 2: %+v", e)
		}
	})
	t.Run("to be read again", func(t *testing.T) {
		b.topic("t", 1)
		b.produce("t", append(times(10, "a"), times(10, "b")...)...)
		var away atomic.Bool
		away.Store(true)
		j, attempts := failingJob(t, b, &away)
		stop := j.start()
		j.await("the failure", func(st *server.Status) bool { return st.Failing && attempts.Load() >= 2 })
		if code, log := stop(); code != 0 {
			t.Fatalf("exit %d\n%s", code, log)
		}
		b.deleteBelow("t", 15)
		away.Store(false)
		log := j.refused(4, "lines/t-0", "10", "15", "20")
		if strings.Count(log, "[ERROR]") > 3 {
			t.Errorf("it is tried again and again:\n%s", log)
		}
		j.holds("counts", "a,10")
		j.checkRanges(0, 10)
	})
}

// TestG03RetriedRecordsAreDeleted runs the case on the embedded Kafka; TestCasesOnKafka does on a real one.
func TestG03RetriedRecordsAreDeleted(t *testing.T) {
	t.Parallel()
	retriedRecordsAreDeleted(t, fakeBrokers(t))
}
