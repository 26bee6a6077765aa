package daemon_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/server"
)

// counting is a pipeline that counts the records of topic t by value; settings go to the source.
func counting(settings string) string {
	return `pipeline: counting
sources:
  lines:
    kafka: {brokers: BROKERS, topics: [t]` + settings + `}
    decode: string
streams:
  counts:
    from: lines
    steps:
      - group_by: [value]
      - aggregate: {n: count()}
`
}

// checkRanges checks that the ranges of each partition follow each other from the first to the last offset.
func (j *job) checkRanges(first, last int64) {
	j.t.Helper()
	next := map[string]int64{}
	for i, e := range j.ledger() {
		if int(e.Txid) != i+1 {
			j.t.Errorf("entry %d has txid %d", i+1, e.Txid)
		}
		for _, r := range e.Ranges {
			p := fmt.Sprintf("%s/%d", r.Topic, r.Partition)
			if _, seen := next[p]; !seen {
				next[p] = first
			}
			if r.Start != next[p] {
				j.t.Errorf("txid %d: %s begins at %d, want %d", e.Txid, p, r.Start, next[p])
			}
			next[p] = r.End
		}
	}
	for p, n := range next {
		if n != last {
			j.t.Errorf("%s ends at %d, want %d", p, n, last)
		}
	}
}

// TestG01StartPolicyCountsOnce: where the first run begins decides nothing later.
func TestG01StartPolicyCountsOnce(t *testing.T) {
	t.Parallel()
	t.Run("twice from the earliest", func(t *testing.T) {
		t.Parallel()
		b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
		b.produce("t", times(5, "a")...)
		j := newJob(t, b, counting(", start: earliest"))
		j.run(0)
		j.run(0)
		j.holds("counts", "a,5")
		j.checkRanges(0, 5)
	})
	t.Run("latest of an empty topic", func(t *testing.T) {
		t.Parallel()
		b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
		j := newJob(t, b, counting(", start: latest"))
		j.run(0)
		b.produce("t", times(3, "a")...)
		j.run(0)
		j.holds("counts", "a,3")
		j.checkRanges(0, 3)
	})
	t.Run("killed before the first record", func(t *testing.T) {
		t.Parallel()
		b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
		j := newJob(t, b, counting(", start: latest"))
		p := j.spawn(j.runArgs()...)
		j.await("a position", func(st *server.Status) bool {
			return st.Ready && len(st.Partitions) == 1 && st.Partitions[0].Committed == 0
		})
		p.signal(syscall.SIGKILL)
		p.exit(patience)
		b.produce("t", times(3, "a")...)
		j.run(0)
		j.holds("counts", "a,3")
		j.checkRanges(0, 3)
	})
	t.Run("far behind", func(t *testing.T) {
		t.Parallel()
		b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
		b.produce("t", times(10, "a")...)
		j := newJob(t, b, counting(", start: earliest"))
		j.run(0)
		j.rewrite(b, counting(", start: latest"))
		for range 15 {
			b.produce("t", times(10_000, "a")...)
		}
		j.run(0)
		j.holds("counts", "a,150010")
		j.checkRanges(0, 150_010)
	})
}

// TestG02PositionBelowTheLogStart: what retention has taken is told, and never skipped or read from elsewhere.
func TestG02PositionBelowTheLogStart(t *testing.T) {
	t.Parallel()
	positionBelowTheLogStart(t, fakeBrokers(t))
}

func positionBelowTheLogStart(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.produce("t", times(10, "a")...)
	j := newJob(t, b, counting(""))
	j.run(0)
	j.holds("counts", "a,10")
	b.produce("t", times(10, "a")...)
	b.deleteBelow("t", 15)
	before := j.ranges()
	for range 2 { // the second start is as wise as the first
		j.refused(4, "topic t partition 0", "wanted 10, available [15,20), 5 lost")
		j.holds("counts", "a,10")
	}
	if after := j.ranges(); !slices.Equal(before, after) {
		t.Errorf("the ledger was %q and is %q", before, after)
	}
	j.lag(0, "10,20,5,0", "5 offsets behind the position are gone")
	out, errs := j.offsets(0, "reset", "--to", "earliest", "--yes", "--format", "csv")
	j.tells(out, "lines,t,0,10,15,5,0,5 of them are gone")
	j.tells(errs, "5 records would be skipped", "reset as txid 2")
	j.holds("counts", "a,10")
	j.run(0)
	j.holds("counts", "a,15")
	if got, want := j.ranges(), append(before, "2 t/0[10,15)", "3 t/0[15,20)"); !slices.Equal(got, want) {
		t.Errorf("the ledger is %q, want %q", got, want)
	}
	code, out, errs := j.command("ledger")
	if code != 0 {
		t.Errorf("ledger: exit %d\n%s", code, errs)
	}
	j.tells(out, "reset lines/t-0 10→15", "lines/t-0 [15,20)")
}

// TestG06OpenTransaction: a transaction that is open holds the records behind it back, and the status says so.
func TestG06OpenTransaction(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]kgo.TransactionEndTry{"aborted": kgo.TryAbort, "committed": kgo.TryCommit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			openTransaction(t, fakeBrokers(t), how)
		})
	}
}

func openTransaction(t *testing.T, b *brokers, how kgo.TransactionEndTry) {
	b.topic("t", 1)
	b.produce("t", times(5, "a")...)
	j := newJob(t, b, counting(""))
	stop := j.start()
	j.awaitNext(5)
	x := b.begin("held-" + strconv.FormatBool(bool(how)))
	x.produce("t", "a")
	b.produce("t", times(4, "a")...)
	j.await("the transaction shows", func(st *server.Status) bool {
		p := st.Partitions[0]
		return p.Committed == 5 && p.End == 5 && p.LogEnd == 10 && p.Error == "" && st.Ready
	})
	code, out, errs := j.command("status")
	if code != 0 {
		t.Errorf("status: exit %d\n%s", code, errs)
	}
	j.tells(out, "held back by an open transaction: the log ends at 10", "\nready\n")
	time.Sleep(300 * time.Millisecond) // several fetches, none of which may pass on what is held
	j.holds("counts", "a,5")
	x.end(how)
	want := "a,9"
	if how == kgo.TryCommit {
		want = "a,10"
	}
	j.awaitNext(11) // the marker has an offset too
	j.holds("counts", want)
	if code, log := stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, log)
	}
	j.run(0)
	j.holds("counts", want)
}

// put writes one record of topic t with a key, in a batch of its own.
func (b *brokers) put(key string) {
	b.t.Helper()
	b.send(&kgo.Record{Topic: "t", Key: []byte(key), Value: []byte("a")})
}

const limitTwo = "\nbatch: {max_records: 2}"

// TestG07CompactionGaps: offsets that compaction has taken neither stop progress nor count as loss, nor do they count
// as records.
func TestG07CompactionGaps(t *testing.T) {
	t.Parallel()
	gaps := strings.Replace(counting(""), "\n", limitTwo+"\n", 1)
	t.Run("from the beginning", func(t *testing.T) {
		t.Parallel()
		b := fakeBrokers(t)
		b.topic("t", 1, "cleanup.policy", "compact")
		for key := range strings.FieldsSeq("a x x b x x x x d") {
			b.put(key)
		}
		b.fake.Compact() // leaves 0, 3, 7 and 8
		j := newJob(t, b, gaps)
		stop := j.start()
		j.await("the end, without lag", func(st *server.Status) bool {
			return len(st.Partitions) == 1 && st.Partitions[0].Committed == 9 && st.Partitions[0].Lag == 0
		})
		if code, log := stop(); code != 0 {
			t.Errorf("exit %d\n%s", code, log)
		}
		j.holds("counts", "a,4")
		j.checkRanges(0, 9)
		entries := j.ledger()
		if len(entries) != 2 || entries[0].Records != 2 || entries[1].Records != 2 {
			t.Errorf("ledger %+v, want two batches of two records", entries)
		}
	})
	t.Run("a position within a gap", func(t *testing.T) {
		t.Parallel()
		b := fakeBrokers(t)
		b.topic("t", 1, "cleanup.policy", "compact")
		for key := range strings.FieldsSeq("a b c d") {
			b.put(key)
		}
		j := newJob(t, b, gaps)
		j.run(0)
		j.checkRanges(0, 4)
		for key := range strings.FieldsSeq("x x x x e") {
			b.put(key)
		}
		b.fake.Compact() // 4 to 6 are gone
		j.run(0)
		j.holds("counts", "a,6")
		j.checkRanges(0, 9)
		if last := j.ledger()[2]; len(j.ledger()) != 3 || last.Records != 2 || last.Ranges[0].Start != 4 {
			t.Errorf("the last batch is %+v, want one of two records from offset 4", last)
		}
	})
}

// diskBrokers are two brokers that keep their data and their addresses over restarts.
type diskBrokers struct {
	t     *testing.T
	dir   string
	addrs map[string]string // what was listened on, by the order of the listeners
}

func (d *diskBrokers) open() *brokers {
	d.t.Helper()
	var mu sync.Mutex
	n := 0
	listen := func(network, _ string) (net.Listener, error) {
		mu.Lock()
		defer mu.Unlock()
		id := strconv.Itoa(n)
		n++
		if addr, known := d.addrs[id]; known {
			return net.Listen(network, addr)
		}
		l := testenv.Listen(d.t)
		d.addrs[id] = l.Addr().String()
		return l, nil
	}
	b := fakeBrokers(d.t, kfake.NumBrokers(2), kfake.DataDir(d.dir), kfake.ListenFn(listen))
	return b
}

// TestG08LogCutBack: a log that was cut back and written anew is noticed before anything of it is read.
func TestG08LogCutBack(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("running %v", running), func(t *testing.T) {
			t.Parallel()
			d := &diskBrokers{t: t, dir: filepath.Join(t.TempDir(), "kafka"), addrs: map[string]string{}}
			b := d.open()
			b.topic("t", 1)
			lead := func(b *brokers, node int32) {
				t.Helper()
				if err := b.fake.MoveTopicPartition("t", 0, node); err != nil {
					t.Fatal(err)
				}
			}
			lead(b, 0)
			b.produce("t", times(11, "a")...)
			b.fake.Close()
			replica := filepath.Join(t.TempDir(), "replica") // it lags behind by the two records that follow
			if err := os.CopyFS(replica, os.DirFS(d.dir)); err != nil {
				t.Fatal(err)
			}

			b = d.open()
			b.produce("t", times(2, "a")...)
			j := newJob(t, b, counting(", group: off"))
			var p *process
			if running {
				p = j.spawn(j.runArgs()...)
				j.awaitNext(13)
			} else {
				j.run(0)
			}
			b.fake.Close()

			d.dir = replica
			b = d.open()
			lead(b, 1)
			b.produce("t", times(4, "b")...) // offsets 11 to 14
			j.rewrite(b, counting(", group: off"))
			var errs string
			if running {
				if code := p.exit(patience); code != 4 {
					t.Fatalf("exit %d\n%s", code, p.errs.String())
				}
				errs = p.errs.String()
			} else {
				errs = j.run(4)
			}
			j.tells(errs, "the log of topic t partition 0 was cut back", "had 13", "leader epoch")
			j.holds("counts", "a,13")
			j.checkRanges(0, 13)
			j.refused(4, "was cut back", "had 13")
			j.holds("counts", "a,13")

			// The explicit choice: what was written anew counts, and what is gone isn't taken back.
			out, _ := j.offsets(0, "reset", "--to", "11", "--yes", "--format", "csv")
			j.tells(out, "lines,t,0,13,11,0,2,")
			j.run(0)
			j.holds("counts", "a,13", "b,4")
			j.run(0)
			j.holds("counts", "a,13", "b,4")
		})
	}
}

// TestG11AttemptsWithManyInFlight: a batch that fails while others are in flight behind it keeps its txid, and theirs
// follow without a gap.
func TestG11AttemptsWithManyInFlight(t *testing.T) {
	t.Parallel()
	b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
	values, sum := make([]string, 1000), 0
	for i := range values {
		values[i] = strconv.Itoa(i)
		sum += i
	}
	b.produce("t", values...)
	var failed atomic.Int32
	p := engine.New("sums", engine.WithBatching(engine.Batching{MaxPending: 8, MaxRecords: 10, RetryMin: time.Millisecond}))
	numbers := engine.TryMap(engine.From(p, "numbers", kafka.New(b.addrs...).Topics("t"), codec.String()),
		func(bt *engine.Batch, s string) (int64, error) {
			if bt.Txid() == 3 && s == "25" && failed.Add(1) <= 2 {
				return 0, engine.Transient(errors.New("not now"))
			}
			return strconv.ParseInt(s, 10, 64)
		})
	engine.Aggregate(engine.GroupBy(numbers, func(int64) string { return "all" }, "key"), "sums", agg.SumOf("sum", func(n int64) int64 { return n }))
	j := goJob(t, p)
	log := j.run(0)
	j.holds("sums", fmt.Sprintf("all,%d", sum))
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprintf("%d t/0[%d,%d)", i+1, 10*i, 10*i+10))
	}
	if got := j.ranges(); !slices.Equal(got, want) {
		t.Errorf("ledger %q", got)
	}
	for _, e := range j.ledger() {
		switch {
		case e.Txid == 3 && e.Attempts != 3:
			t.Errorf("txid 3 has %d attempts, want 3", e.Attempts)
		case e.Txid < 3 && e.Attempts != 1:
			t.Errorf("txid %d has %d attempts, want 1", e.Txid, e.Attempts)
		}
	}
	if n := strings.Count(log, "not now"); n < 2 {
		t.Errorf("two failures are logged %d times\n%s", n, log)
	}
	if failed.Load() != 3 {
		t.Errorf("the step met txid 3 %d times, want 3", failed.Load())
	}
}

// TestG31TopicTakenOffTheList: a topic that is no longer listed is not read, keeps its position and is named.
func TestG31TopicTakenOffTheList(t *testing.T) {
	t.Parallel()
	b := fakeBrokers(t, kfake.SeedTopics(1, "a", "b"))
	text := func(topics string) string { return strings.Replace(counting(""), "[t]", topics, 1) }
	j := newJob(t, b, text("[a, b]"))
	both := func(n int) {
		t.Helper()
		b.produce("a", times(n, "x")...)
		b.produce("b", times(n, "x")...)
	}
	both(4)
	j.run(0)
	j.holds("counts", "x,8")
	both(2)
	j.rewrite(b, text("[b]"))
	log := j.run(0)
	j.holds("counts", "x,10")
	named := false
	for l := range strings.Lines(log) {
		named = named || strings.Contains(l, "[WARN]") && strings.Contains(l, "saved position") && strings.Contains(l, "topic=a")
	}
	if !named {
		t.Errorf("no warning that topic a has a saved position and isn't listed\n%s", log)
	}
	j.rewrite(b, text("[a, b]"))
	j.run(0)
	j.holds("counts", "x,12")
	j.checkRanges(0, 6)
}
