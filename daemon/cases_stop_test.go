package daemon_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/server"
)

// stopLimit is for how long a stop may take, whatever is down: what docs/operating.md promises.
const stopLimit = 20 * time.Second

// TestG36StopWithoutABroker: a stop is over in time although the broker is gone, and nothing is counted twice or lost.
func TestG36StopWithoutABroker(t *testing.T) {
	t.Parallel()
	d := &diskBrokers{t: t, dir: filepath.Join(t.TempDir(), "kafka"), addrs: map[string]string{}}
	b := d.open()
	b.topic("t", 1)
	b.produce("t", times(10, "a")...)
	j := newJob(t, b, counting(""))
	p := j.spawn(j.runArgs()...)
	j.awaitNext(10)
	b.fake.Close()
	j.await("the broker's absence", func(st *server.Status) bool { return !st.Ready })
	p.signal(syscall.SIGTERM)
	if code := p.exit(stopLimit); code != 0 {
		t.Errorf("exit %d\n%s", code, p.errs.String())
	}

	p = j.spawn(j.runArgs()...) // it can't even open its sources
	j.await("the broker's absence", func(st *server.Status) bool {
		return !st.Ready && st.LastError != nil && strings.Contains(st.LastError.Message, "connection refused")
	})
	p.signal(syscall.SIGTERM)
	if code := p.exit(stopLimit); code != 0 {
		t.Errorf("exit %d\n%s", code, p.errs.String())
	}
	p.inOrder()

	b = d.open()
	b.produce("t", times(5, "a")...)
	p = j.spawn(j.runArgs()...)
	j.awaitNext(15)
	b.fake.Close()
	p.signal(syscall.SIGTERM)
	time.Sleep(50 * time.Millisecond) // it may take the first one before the second comes
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.exit(stopLimit); code != 0 && code != 1 {
		t.Errorf("exit %d after two signals\n%s", code, p.errs.String())
	}

	b = d.open()
	b.produce("t", times(5, "a")...)
	j.run(0)
	j.holds("counts", "a,20")
	j.checkRanges(0, 20)
}

// slowJob is a job whose step takes took for the first slow attempts of a batch, and no time afterwards.
func slowJob(t *testing.T, b *brokers, batching engine.Batching, took time.Duration, slow int32) (j *job, calls *atomic.Int32) {
	calls = new(atomic.Int32)
	p := engine.New("slow", engine.WithBatching(batching))
	s := engine.Map(engine.From(p, "lines", kafka.New(b.addrs...).Topics("t"), codec.String()), func(v string) string {
		if calls.Add(1) <= slow {
			time.Sleep(took)
		}
		return v
	})
	engine.Aggregate(engine.GroupBy(s, func(v string) string { return v }, "value"), "counts", agg.Count[string]("n"))
	return goJob(t, p), calls
}

var backoffs = regexp.MustCompile(`retry_in=(\S+)`)

// TestG36BatchTimeout: a step that is slower than the batch's time-out shows as such, and is not tried ever faster.
func TestG36BatchTimeout(t *testing.T) {
	t.Parallel()
	batching := engine.Batching{Timeout: 100 * time.Millisecond, RetryMin: 40 * time.Millisecond}
	t.Run("for a while", func(t *testing.T) {
		t.Parallel()
		b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
		b.produce("t", "a")
		j, _ := slowJob(t, b, batching, 300*time.Millisecond, 4)
		log := j.run(0)
		j.holds("counts", "a,1")
		// Four attempts sleep through their time; a machine that is busy may let others run out of it, too.
		n := strings.Count(log, "timed out after 100ms")
		if e := j.ledger()[0]; n < 4 || int(e.Attempts) != n+1 {
			t.Errorf("%d time-outs in the log, %d attempts in the ledger, want at least 4 and one more\n%s", n, e.Attempts, log)
		}
		var waits []time.Duration
		for _, m := range backoffs.FindAllStringSubmatch(log, -1) {
			d, err := time.ParseDuration(m[1])
			if err != nil {
				t.Fatal(err)
			}
			waits = append(waits, d)
		}
		if len(waits) != n || waits[3] < 3*waits[0] {
			t.Errorf("back-offs %v, want %d that grow\n%s", waits, n, log)
		}
	})
	t.Run("for ever", func(t *testing.T) {
		t.Parallel()
		b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
		b.produce("t", "a")
		bounded := batching
		bounded.Attempts = 3
		j, calls := slowJob(t, b, bounded, 300*time.Millisecond, 1000)
		j.refused(4, "timed out after 100ms", "gave up after 3 failed attempts")
		if n := calls.Load(); n < 1 || n > 3 { // an attempt may run out of its time before it gets to the step
			t.Errorf("the step ran %d times, want at most 3", n)
		}
		if n := len(j.ledger()); n != 0 {
			t.Errorf("%d batches committed", n)
		}
	})
}
