package daemon_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/server"
)

// offsets runs a command of offsets, which must end with the code.
func (j *job) offsets(want int, sub string, flags ...string) (out, errs string) {
	j.t.Helper()
	var stdout, stderr lockedBuffer
	args := append([]string{"offsets", sub, j.file, "--data", j.data}, flags...)
	if code := daemon.Execute(j.t.Context(), args, &stdout, &stderr, j.goes...); code != want {
		j.t.Fatalf("offsets %s %v: exit %d, want %d\n%s%s", sub, flags, code, want, stdout.String(), stderr.String())
	}
	return stdout.String(), stderr.String()
}

// lag runs lag, which must end with the code, and checks the figures of each partition: committed, end, lag and what is held
// back, then texts that must be told as well.
func (j *job) lag(want int, figures string, texts ...string) {
	j.t.Helper()
	code, out, errs := j.command("lag", "--format", "csv")
	if code != want {
		j.t.Fatalf("lag: exit %d, want %d\n%s%s", code, want, out, errs)
	}
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil {
		j.t.Fatal(err)
	}
	var got []string
	for _, r := range rows[1:] {
		got = append(got, strings.Join(r[3:7], ","))
	}
	if g := strings.Join(got, " "); g != figures {
		j.t.Errorf("lag: %q, want %q\n%s", g, figures, out)
	}
	j.tells(out+errs, texts...)
}

// groupHolds is what a group holds of partition 0 of topic t; -1 if that is nothing.
func (b *brokers) groupHolds(group string) int64 {
	b.t.Helper()
	all, err := b.adm.FetchOffsets(b.t.Context(), group)
	if err != nil {
		return -1
	}
	if o, ok := all.Lookup("t", 0); ok {
		return o.At
	}
	return -1
}

// commit writes a group's offset of partition 0 of topic t, as an ordinary consumer does.
func (b *brokers) commit(group string, offset int64) {
	b.t.Helper()
	var o kadm.Offsets
	o.AddOffset("t", 0, offset, -1)
	if err := b.adm.CommitAllOffsets(b.t.Context(), group, o); err != nil {
		b.t.Fatal(err)
	}
}

// forget deletes groups, so that the next case begins without any.
func (b *brokers) forget(groups ...string) {
	b.t.Helper()
	for _, g := range groups {
		_, _ = b.adm.DeleteGroups(b.t.Context(), g) // it may not be there
	}
}

// drop deletes a topic, so that the next case begins with an empty one.
func (b *brokers) drop(topic string) {
	b.t.Helper()
	resp, err := b.adm.DeleteTopics(context.Background(), topic)
	if err == nil {
		err = resp[topic].Err
	}
	if err != nil {
		b.t.Fatalf("delete topic %s: %v", topic, err)
	}
	b.cl.PurgeTopicsFromClient(topic)
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		topics, err := b.adm.ListTopics(context.Background())
		if err == nil && !topics.Has(topic) {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("topic %s is still there: %v", topic, err)
		}
	}
}

const ownGroup = "tridentd-counting"

// offsetScenarios run on kfake and on a real broker.
var offsetScenarios = map[string]func(*testing.T, *brokers){
	"G33a": lagOfWhatExists, "G33b": lagWhileRunning, "lag of an open transaction": lagOfOpenTransaction, "G36b": resetAtRest,
	"G04": offsetsOfForeignGroup, "reset to a time": resetToTime, "reset of one partition": resetOfOnePartition,
	"a topic made again": resetOfNewTopic, "export": exportToGroup, "moving from a consumer": movedFromConsumer,
	"two pipelines": twoPipelines, "two sources": twoSources, "started twice": startedTwice,
}

func TestOffsets(t *testing.T) {
	t.Parallel()
	for name, run := range offsetScenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, fakeBrokers(t))
		})
	}
}

// lagOfWhatExists: a partition that was never read has as much lag as there is, from where it would begin.
func lagOfWhatExists(t *testing.T, b *brokers) {
	b.topic("t", 1)
	for range 7 {
		b.produce("t", times(15, "a")...)
	}
	b.deleteBelow("t", 100)
	j := newJob(t, b, counting(", start: earliest"))
	j.lag(0, ",105,5,0", "not read yet")
	j.rewrite(b, counting(", start: latest"))
	j.lag(0, ",105,0,0")
	j.rewrite(b, counting(`, group: other, start: "committed:latest"`))
	j.lag(0, ",105,0,0")
	b.commit("other", 103)
	j.lag(0, ",105,2,0")
	b.forget("other")

	j.rewrite(b, counting(", start: latest"))
	j.run(0)
	b.produce("t", "a", "a", "a")
	j.lag(0, "105,108,3,0")
	code, out, errs := j.command("lag")
	if code != 0 {
		t.Errorf("exit %d\n%s", code, errs)
	}
	j.tells(out, "held_back", "total: lag 3, held back 0, the oldest record is ")
	code, out, _ = j.command("lag", "--format", "json")
	var rows []struct {
		Committed, End, Lag int64
		Oldest              time.Time
		Age                 float64 `json:"age_seconds"`
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil || code != 0 || len(rows) != 1 {
		t.Fatalf("exit %d, %v\n%s", code, err, out)
	}
	if r := rows[0]; r.Lag != 3 || time.Since(r.Oldest) > time.Minute || r.Age < 0 || r.Age > 60 {
		t.Errorf("%+v", r)
	}
	j.run(0)
	j.lag(0, "108,108,0,0")
}

// lagWhileRunning: whatever is produced and processed meanwhile, no lag is negative, and it works by the running process.
func lagWhileRunning(t *testing.T, b *brokers) {
	b.topic("t", 2)
	j := newJob(t, b, counting(""))
	stop := j.start()
	done := make(chan struct{})
	cl := b.cl
	go func() {
		defer close(done)
		for i := range 200 {
			cl.Produce(t.Context(), &kgo.Record{Topic: "t", Partition: int32(i % 2), Value: []byte("a")}, nil)
			time.Sleep(2 * time.Millisecond)
		}
	}()
	looks := 0
	for running := true; running; looks++ {
		select {
		case <-done:
			running = false
		default:
		}
		code, out, errs := j.command("lag", "--format", "csv")
		if code != 0 || strings.Contains(out, ",-") {
			t.Fatalf("exit %d\n%s%s", code, out, errs)
		}
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	j.awaitNext(200)
	j.lag(0, "100,100,0,0 100,100,0,0")
	if code, log := stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, log)
	}
	j.lag(0, "100,100,0,0 100,100,0,0")
	if looks < 2 {
		t.Errorf("lag was asked %d times only", looks)
	}
}

func lagOfOpenTransaction(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.produce("t", times(5, "a")...)
	j := newJob(t, b, counting(""))
	x := b.begin("lag-held")
	x.produce("t", "a")
	b.produce("t", times(4, "a")...)
	j.lag(0, ",5,5,5", "an open transaction holds the partition back")
	j.run(0)
	j.lag(0, "5,5,0,5", "an open transaction holds the partition back")
	x.end(kgo.TryAbort)
	j.eventually(func() bool {
		_, out, _ := j.command("lag", "--format", "csv")
		return strings.Contains(out, "lines,t,0,5,11,6,0,")
	})
	code, out, _ := j.command("lag", "--format", "csv")
	if rows, err := csv.NewReader(strings.NewReader(out)).ReadAll(); code != 0 || err != nil || len(rows) != 2 || rows[1][7] == "" {
		t.Errorf("the time of the first record behind an aborted one isn't told: exit %d, %v\n%s", code, err, out)
	}
}

// eventually waits for a condition that the job's status doesn't tell.
func (j *job) eventually(ok func() bool) {
	j.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			j.t.Fatalf("not within %s", patience)
		}
	}
}

// resetAtRest: positions are changed at rest only, after an explicit choice, and the group follows also backwards.
func resetAtRest(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.produce("t", times(10, "a")...)
	j := newJob(t, b, counting(""))
	j.offsets(2, "reset", "--to", "0") // it has never run
	stop := j.start()
	j.awaitNext(10)
	j.await("the group shows it", func(*server.Status) bool { return b.groupHolds(ownGroup) == 10 })
	_, errs := j.offsets(1, "reset", "--to", "0", "--yes")
	j.tells(errs, "pipeline counting is running (process ", "only at rest")
	if code, log := stop(); code != 0 {
		t.Fatalf("exit %d\n%s", code, log)
	}
	j.holds("counts", "a,10")

	before := files(t, j.store())
	out, errs := j.offsets(2, "reset", "--to", "0", "--format", "csv")
	j.tells(out, "lines,t,0,10,0,0,10,")
	j.tells(errs, "10 records would be read, and count again", "nothing was changed: say --yes")
	if changed := differing(before, files(t, j.store())); len(changed) > 0 {
		t.Errorf("files changed without a yes: %q", changed)
	}
	for _, bad := range [][]string{{"--to", "11"}, {"--to", "-1"}, {"--to", "yesterday"}, {"--to", "0", "--topic", "other"}, {"--to", "0", "--source", "other"}, {"--to", "0", "--partition", "1"}, {}} {
		j.offsets(2, "reset", append(bad, "--yes")...)
	}
	j.holds("counts", "a,10")
	if got := j.ranges(); len(got) != 1 {
		t.Errorf("ledger %q", got)
	}

	_, errs = j.offsets(0, "reset", "--to", "0", "--yes")
	j.tells(errs, "reset as txid 2")
	j.lag(0, "0,10,10,0")
	_, errs = j.offsets(0, "reset", "--to", "earliest", "--yes")
	j.tells(errs, "nothing to change")
	stop = j.start()
	j.awaitNext(10)
	j.holds("counts", "a,20")
	j.await("the group is right", func(st *server.Status) bool {
		return b.groupHolds(ownGroup) == 10 && len(st.Mirrors) == 1 && st.Mirrors[0].Error == nil && st.Mirrors[0].Txid == 3
	})
	if code, log := stop(); code != 0 || strings.Contains(log, "group_") {
		t.Errorf("exit %d\n%s", code, log)
	}
	if got, want := j.ranges(), []string{"1 t/0[0,10)", "2 t/0[10,0)", "3 t/0[0,10)"}; !slices.Equal(got, want) {
		t.Errorf("ledger %q, want %q", got, want)
	}
	if code, out, errs := j.command("replay", "--verify"); code != 0 {
		t.Errorf("replay: exit %d\n%s%s", code, out, errs)
	}

	// Backwards with nothing to read: the group goes back.
	b.deleteBelow("t", 10)
	b.produce("t", times(5, "b")...)
	j.run(0)
	j.offsets(0, "reset", "--to", "latest", "--yes") // it stands there
	j.offsets(0, "reset", "--to", "12", "--yes")
	j.rewrite(b, counting(", isolation: read_committed"))
	j.run(0)
	j.holds("counts", "a,20", "b,8")
	if got := b.groupHolds(ownGroup); got != 15 {
		t.Errorf("the group holds %d", got)
	}
}

// offsetsOfForeignGroup: a consumer of somebody else's in the group: both values show, and who wrote which.
func offsetsOfForeignGroup(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.produce("t", times(10, "a")...)
	j := newJob(t, b, counting(""))
	out, _ := j.offsets(0, "show", "--format", "csv")
	if strings.Count(out, "\n") != 1 {
		t.Errorf("before the first run:\n%s", out)
	}
	j.run(0)
	out, _ = j.offsets(0, "show", "--format", "csv")
	j.tells(out, "source,topic,partition,next,txid,group_next,group_txid,group_by,zookeeper_next,zookeeper_txid,zookeeper_by\nlines,t,0,10,1,10,1,,,,\n")
	b.commit(ownGroup, 4)
	out, _ = j.offsets(0, "show", "--format", "csv")
	j.tells(out, "lines,t,0,10,1,4,,somebody else,,,\n")

	stop := j.start()
	j.await("the group is repaired", func(*server.Status) bool { return b.groupHolds(ownGroup) == 10 })
	consumer, err := kgo.NewClient(kgo.SeedBrokers(b.addrs...), kgo.ConsumerGroup(ownGroup), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	j.await("the consumer is a member", func(*server.Status) bool {
		_, generation := consumer.GroupMetadata()
		return generation > 0
	})
	b.produce("t", times(5, "a")...)
	j.awaitNext(15)
	j.await("the refusal shows", func(st *server.Status) bool { return st.Mirrors[0].Error != nil })
	out, _ = j.offsets(0, "show", "--format", "csv")
	j.tells(out, "lines,t,0,15,2,10,1,,,,\n")
	consumer.Close()
	j.await("the mirror catches up", func(*server.Status) bool { return b.groupHolds(ownGroup) == 15 })
	if code, log := stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, log)
	}
	j.holds("counts", "a,15")
}

func resetToTime(t *testing.T, b *brokers) {
	b.topic("t", 1)
	day := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 10 {
		b.send(&kgo.Record{Topic: "t", Value: []byte("a"), Timestamp: day.Add(time.Duration(i) * time.Hour)})
	}
	j := newJob(t, b, counting(""))
	j.run(0)
	out, _ := j.offsets(0, "reset", "--to", day.Add(3*time.Hour).Format(time.RFC3339), "--yes", "--format", "csv")
	j.tells(out, "lines,t,0,10,3,0,7,")
	_, errs := j.offsets(0, "reset", "--to", day.Add(100*time.Hour).Format(time.RFC3339), "--yes")
	j.tells(errs, "7 records would be skipped")
	j.offsets(0, "reset", "--to", day.Add(7*time.Hour+time.Millisecond).Format(time.RFC3339Nano), "--yes")
	j.run(0)
	j.holds("counts", "a,12")
}

func resetOfOnePartition(t *testing.T, b *brokers) {
	b.topic("t", 3)
	for p := range int32(3) {
		b.sendTo(p, 4)
	}
	j := newJob(t, b, counting(""))
	j.run(0)
	out, _ := j.offsets(0, "reset", "--to", "1", "--topic", "t", "--partition", "1", "--yes", "--format", "csv")
	if strings.Count(out, "\n") != 2 || !strings.Contains(out, "lines,t,1,4,1,0,3,") {
		t.Errorf("\n%s", out)
	}
	// A partition that came since the last run is set, too.
	if _, err := b.adm.CreatePartitions(t.Context(), 1, "t"); err != nil {
		t.Fatal(err)
	}
	j.eventually(func() bool {
		_, out, _ := j.command("lag", "--format", "csv")
		return strings.Count(out, "\n") == 5
	})
	b.cl.ForceMetadataRefresh()
	j.eventually(func() bool {
		return b.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: 3, Value: []byte("b")}).FirstErr() == nil
	})
	j.offsets(0, "reset", "--to", "latest", "--partition", "3", "--yes")
	b.send(&kgo.Record{Topic: "t", Partition: 3, Value: []byte("c")})
	j.run(0)
	j.holds("counts", "a,15", "c,1")
	if code, out, errs := j.command("replay", "--verify"); code != 0 {
		t.Errorf("replay: exit %d\n%s%s", code, out, errs)
	}
}

// resetOfNewTopic: a topic made again under its name is another topic, until somebody says to go on with it.
func resetOfNewTopic(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.produce("t", times(10, "a")...)
	j := newJob(t, b, counting(""))
	j.run(0)
	b.drop("t")
	b.topic("t", 1)
	b.cl.ForceMetadataRefresh()
	b.produce("t", times(4, "b")...)
	j.refused(4, "deleted and made again")
	out, _ := j.offsets(0, "reset", "--to", "earliest", "--yes", "--format", "csv")
	j.tells(out, "lines,t,0,10,0,0,4,it was made again under its name")
	j.run(0)
	j.holds("counts", "a,10", "b,4")
	if got := b.groupHolds(ownGroup); got != 4 {
		t.Errorf("the group holds %d, want 4", got)
	}
	if code, _, errs := j.command("replay", "--verify"); code != 1 {
		t.Errorf("replay of a topic that is no more: exit %d\n%s", code, errs)
	}
}

func exportToGroup(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.produce("t", times(10, "a")...)
	j := newJob(t, b, counting(""))
	j.offsets(2, "export", "--to", "group:next")
	j.run(0)
	_, errs := j.offsets(0, "export", "--to", "group:next")
	j.tells(errs, "kafka group next", "1 partitions written, as of txid 1")
	b.commit(ownGroup, 42)
	j.offsets(0, "export", "--to", "group")
	if own, next := b.groupHolds(ownGroup), b.groupHolds("next"); own != 10 || next != 10 {
		t.Errorf("the groups hold %d and %d", own, next)
	}
	// An ordinary consumer goes on there.
	b.produce("t", "b")
	consumer, err := kgo.NewClient(kgo.SeedBrokers(b.addrs...), kgo.ConsumerGroup("next"), kgo.ConsumeTopics("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	fs := consumer.PollFetches(t.Context())
	if rs := fs.Records(); len(rs) != 1 || string(rs[0].Value) != "b" {
		t.Errorf("the consumer got %v, %v", rs, fs.Errors())
	}
	_, errs = j.offsets(1, "export", "--to", "group:next")
	j.tells(errs, "has members")
	consumer.Close()

	stop := j.start()
	j.awaitNext(11)
	_, errs = j.offsets(1, "export", "--to", "group")
	j.tells(errs, "is running and keeps kafka group "+ownGroup)
	j.offsets(1, "export", "--to", "group:"+ownGroup)
	j.eventually(func() bool {
		var out, errs lockedBuffer
		return daemon.Execute(t.Context(), []string{"offsets", "export", j.file, "--data", j.data, "--to", "group:next"}, &out, &errs) == 0
	})
	if got := b.groupHolds("next"); got != 11 {
		t.Errorf("the group holds %d", got)
	}
	out, _ := j.offsets(0, "export", "--to", "file:-")
	if code, log := stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, log)
	}
	path := filepath.Join(j.dir, "positions.json")
	j.offsets(0, "export", "--to", "file:"+path)
	content, err := os.ReadFile(path)
	if err != nil || string(content) != out {
		t.Errorf("%v: the file holds\n%s, running it was\n%s", err, content, out)
	}
	var ps server.Positions
	if err := json.Unmarshal(content, &ps); err != nil || ps.Pipeline != "counting" || ps.Txid != 2 || len(ps.Positions) != 1 || ps.Positions[0].Next != 11 {
		t.Errorf("%v: %+v", err, ps)
	}
	j.offsets(2, "export", "--to", "zookeeper") // the pipeline names none
	j.offsets(2, "export", "--to", "somewhere")
	b.forget("next")
}

// movedFromConsumer: an ordinary consumer stops, and the pipeline goes on where it stood, with what it had never committed
// by the fallback.
func movedFromConsumer(t *testing.T, b *brokers) {
	for fallback, want := range map[string]string{"earliest": "a,7", "latest": "a,3"} {
		b.topic("t", 2)
		for p := range int32(2) {
			b.sendTo(p, 4)
		}
		consumer, err := kgo.NewClient(kgo.SeedBrokers(b.addrs...), kgo.ConsumerGroup("app"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit())
		if err != nil {
			t.Fatal(err)
		}
		committed := false
		for !committed {
			fs := consumer.PollFetches(t.Context())
			if err := fs.Err(); err != nil {
				t.Fatal(err)
			}
			fs.EachRecord(func(r *kgo.Record) {
				if r.Partition == 0 && r.Offset == 0 {
					committed = true
					if err := consumer.CommitRecords(t.Context(), r); err != nil {
						t.Error(err)
					}
				}
			})
		}
		consumer.Close()
		j := newJob(t, b, counting(fmt.Sprintf(", group: app, start: \"committed:%s\"", fallback)))
		j.run(0)
		j.holds("counts", want)
		if got := b.groupHolds("app"); got != 4 {
			t.Errorf("the group holds %d, want 4", got)
		}
		b.drop("t")
		b.forget("app")
	}
	b.topic("t", 1)
}

// twoPipelines read one topic: by their own groups they are apart; in one group the second one's offsets stay out, and both
// count right.
func twoPipelines(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.produce("t", times(10, "a")...)
	one := newJob(t, b, counting(""))
	other := newJob(t, b, strings.Replace(counting(""), "counting", "another", 1))
	one.run(0)
	other.run(0)
	one.holds("counts", "a,10")
	other.holds("counts", "a,10")
	if a, c := b.groupHolds(ownGroup), b.groupHolds("tridentd-another"); a != 10 || c != 10 {
		t.Errorf("the groups hold %d and %d", a, c)
	}
	b.produce("t", times(2, "a")...)
	other.rewrite(b, strings.Replace(counting(", group: "+ownGroup), "counting", "another", 1))
	stop := other.start()
	other.awaitNext(12)
	other.await("the refusal shows", func(st *server.Status) bool {
		return len(st.Mirrors) == 1 && st.Mirrors[0].Error != nil && strings.Contains(st.Mirrors[0].Error.Message, "belongs to pipeline counting")
	})
	out, _ := other.offsets(0, "show", "--format", "csv")
	other.tells(out, "lines,t,0,12,2,10,,pipeline counting,,,")
	if code, log := stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, log)
	}
	if got := b.groupHolds(ownGroup); got != 10 {
		t.Errorf("the group holds %d: another pipeline wrote over it", got)
	}
	one.run(0)
	one.holds("counts", "a,12")
	other.holds("counts", "a,12")
	b.forget("tridentd-another")
}

// twoSources of one pipeline read one topic: in one group they are refused, with groups of their own each keeps its offsets.
func twoSources(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.produce("t", times(10, "a")...)
	text := func(group string) string {
		return `pipeline: counting
sources:
  lines:
    kafka: {brokers: BROKERS, topics: [t]}
    decode: string
  others:
    kafka: {brokers: BROKERS, topics: [t]` + group + `}
    decode: string
streams:
  counts:
    from: [lines, others]
    steps:
      - group_by: [value]
      - aggregate: {n: count()}
`
	}
	j := newJob(t, b, text(""))
	j.refused(2, "sources lines and others would both write", "group: off")
	j.rewrite(b, text(", group: second"))
	j.run(0)
	j.holds("counts", "a,20")
	if a, c := b.groupHolds(ownGroup), b.groupHolds("second"); a != 10 || c != 10 {
		t.Errorf("the groups hold %d and %d", a, c)
	}
	out, _ := j.offsets(0, "show", "--format", "csv")
	if strings.Count(out, ",t,0,10,") != 2 || strings.Count(out, "by\n") != 1 || strings.Contains(out, "source ") {
		t.Errorf("\n%s", out)
	}
	_, errs := j.offsets(2, "export", "--to", "group:third")
	j.tells(errs, "both read topic t", "--source")
	j.offsets(0, "export", "--to", "group:third", "--source", "others")
	j.offsets(0, "reset", "--to", "6", "--source", "others", "--yes")
	j.run(0)
	j.holds("counts", "a,24")
	if a, c, d := b.groupHolds(ownGroup), b.groupHolds("second"), b.groupHolds("third"); a != 10 || c != 10 || d != 10 {
		t.Errorf("the groups hold %d, %d and %d", a, c, d)
	}

	// While it runs no group that it writes is written, also not for another of its sources.
	stop := j.start()
	j.eventually(func() bool { st, ok := j.status(); return ok && st.Ready })
	for source, group := range map[string]string{"lines": "second", "others": ownGroup} {
		_, errs := j.offsets(1, "export", "--to", "group:"+group, "--source", source)
		j.tells(errs, "is running and keeps kafka group "+group)
	}
	if code, log := stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, log)
	}
	j.rewrite(b, text(", group: \"off\""))
	stop = j.start()
	j.eventually(func() bool { st, ok := j.status(); return ok && st.Ready })
	_, errs = j.offsets(1, "export", "--to", "group", "--source", "others") // which has the name of the other's
	j.tells(errs, "is running and keeps kafka group "+ownGroup)
	j.offsets(0, "export", "--to", "group:second", "--source", "others")
	if code, log := stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, log)
	}
	b.forget("second", "third")
}

// startedTwice: the second process on one directory is refused; one on another directory is refused by the group.
func startedTwice(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.produce("t", times(10, "a")...)
	j := newJob(t, b, counting(""))
	stop := j.start()
	j.awaitNext(10)
	j.await("the group shows it", func(*server.Status) bool { return b.groupHolds(ownGroup) == 10 })
	j.tells(j.run(1), "in use by")
	twin := newJob(t, b, counting(""))
	twin.refused(4, "is empty (txid 0, no positions)", "kafka group "+ownGroup)
	b.produce("t", "a")
	j.awaitNext(11)
	if code, log := stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, log)
	}
	j.holds("counts", "a,11")
}

// TestLagOfDeadBroker: what can't be asked is named in time, at rest and while the pipeline runs.
func TestLagOfDeadBroker(t *testing.T) {
	t.Parallel()
	b := fakeBrokers(t)
	lagOfDeadBroker(t, b, b.fake.Close)
}

func lagOfDeadBroker(t *testing.T, b *brokers, kill func()) {
	b.topic("t", 1)
	b.produce("t", times(10, "a")...)
	j := newJob(t, b, counting(""))
	stop := j.start()
	j.awaitNext(10)
	kill()
	check := func() {
		t.Helper()
		began := time.Now()
		j.lag(1, "10,,,", b.addrs[0])
		if took := time.Since(began); took > patience {
			t.Errorf("lag took %s", took)
		}
		_, errs := j.offsets(1, "show")
		j.tells(errs, "consumer group "+ownGroup)
		j.offsets(1, "reset", "--to", "earliest", "--yes")
	}
	check()
	if code, log := stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, log)
	}
	check()
	j.holds("counts", "a,10")
	if len(j.ledger()) != 1 {
		t.Errorf("ledger %q", j.ranges())
	}
}

// TestLagOfHangingServer: something takes connections and never answers.
func TestLagOfHangingServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	j := newJob(t, &brokers{t: t, addrs: []string{l.Addr().String()}}, counting(""))
	began := time.Now()
	code, out, errs := j.command("lag", "--timeout", "1s")
	if took := time.Since(began); code != 1 || took > 9*time.Second { // without the limit it would be ten seconds
		t.Errorf("exit %d after %s\n%s%s", code, took, out, errs)
	}
	j.tells(errs, l.Addr().String())
}

// TestOffsetsInGo: a program's own pipeline has the same commands.
func TestOffsetsInGo(t *testing.T) {
	t.Parallel()
	b := fakeBrokers(t)
	b.topic("t", 1)
	b.produce("t", times(10, "a")...)
	p := engine.New("counting")
	lines := engine.From(p, "lines", kafka.New(b.addrs...).Topics("t"), codec.String())
	engine.Aggregate(engine.GroupBy(lines, func(s string) string { return s }, "value"), "counts", agg.Count[string]("n"))
	j := goJob(t, p)
	j.lag(0, ",10,10,0")
	j.run(0)
	j.lag(0, "10,10,0,0")
	j.offsets(0, "reset", "--to", "8", "--yes")
	j.run(0)
	j.holds("counts", "a,12")
	j.offsets(0, "export", "--to", "group:next")
	out, _ := j.offsets(0, "show", "--format", "csv")
	j.tells(out, "lines,t,0,10,3,10,3,")
	if got := b.groupHolds("next"); got != 10 {
		t.Errorf("the group holds %d", got)
	}
}

// TestOffsetsOfFiles: files have offsets to be set, too; the lines behind them count.
func TestOffsetsOfFiles(t *testing.T) {
	t.Parallel()
	j := newJob(t, nil, `pipeline: counting
sources:
  lines:
    file: {paths: ["*.txt"]}
    decode: string
streams:
  counts:
    from: lines
    steps:
      - group_by: [value]
      - aggregate: {n: count()}
`)
	j.put("a.txt", lines("x", "x", "y"))
	j.put("b.txt", lines("x"))
	j.lag(0, ",3,3,0 ,1,1,0")
	j.run(0)
	j.put("a.txt", lines("x", "x", "y", "y"))
	j.lag(0, "3,4,1,0 1,1,0,0")
	out, _ := j.offsets(0, "reset", "--to", "1", "--topic", "a.txt", "--yes", "--format", "csv")
	j.tells(out, "lines,a.txt,0,3,1,0,2,")
	j.run(0)
	j.holds("counts", "x,4", "y,3")
	_, errs := j.offsets(2, "reset", "--to", "2026-01-01T00:00:00Z", "--yes")
	j.tells(errs, "have no time")
	if code, out, errs := j.command("replay", "--verify"); code != 0 {
		t.Errorf("replay: exit %d\n%s%s", code, out, errs)
	}
}

// sendTo writes records to one partition of topic t.
func (b *brokers) sendTo(partition int32, n int) {
	b.t.Helper()
	for range n {
		b.send(&kgo.Record{Topic: "t", Partition: partition, Value: []byte("a")})
	}
}

// TestResetWhileHeld: a process that has stopped for good and stays up doesn't hold the store: the choice that it asks for can
// be made beside it.
func TestResetWhileHeld(t *testing.T) {
	t.Parallel()
	b := fakeBrokers(t)
	b.topic("t", 1)
	b.produce("t", times(10, "a")...)
	j := newJob(t, b, counting(""))
	j.run(0)
	b.produce("t", times(10, "a")...)
	b.deleteBelow("t", 15)
	stop := j.start("--on-stop", "hold")
	j.await("the stop for good", func(st *server.Status) bool { return st.Failing })
	j.eventually(func() bool {
		code, _, _ := j.command("lag")
		return code == 0
	})
	j.lag(0, "10,20,5,0")
	out, _ := j.offsets(0, "show", "--format", "csv")
	j.tells(out, "lines,t,0,10,1,10,1,")
	j.offsets(0, "reset", "--to", "earliest", "--yes")
	if code, log := stop(); code != 4 {
		t.Errorf("exit %d\n%s", code, log)
	}
	j.run(0)
	j.holds("counts", "a,15")
}
