package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
)

// importScenarios run on kfake and on a real broker, each with topic t to itself.
var importScenarios = map[string]func(*testing.T, *brokers){
	"a group": importOfGroup, "storm-client": importOfStormClient, "gone": importOfWhatIsGone, "has run": importBesideAnOwnGroup, "running": importWhileRunning,
	"one topic of two": importOfOneTopic,
}

func TestImport(t *testing.T) {
	t.Parallel()
	for name, run := range importScenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, fakeBrokers(t))
		})
	}
}

// fill writes n records to a partition of topic t: a0, a1, … in partition 0, b0, … in partition 1.
func (b *brokers) fill(partition int32, n int) {
	b.t.Helper()
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = &kgo.Record{Topic: "t", Partition: partition, Value: fmt.Appendf(nil, "%c%d", 'a'+partition, i)}
	}
	b.send(recs...)
}

// commitAs commits an offset of topic t to group app, with metadata.
func (b *brokers) commitAs(partition int32, offset int64, metadata string) {
	b.t.Helper()
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: "t", Partition: partition, At: offset, LeaderEpoch: -1, Metadata: metadata})
	if err := b.adm.CommitAllOffsets(b.t.Context(), "app", o); err != nil {
		b.t.Fatal(err)
	}
}

// counted are the rows of the state of counting, "a4,1".
func (j *job) counted() string {
	j.t.Helper()
	code, out, errs := j.command("query", "counts", "--format", "csv")
	if code != 0 {
		j.t.Fatalf("query: exit %d\n%s", code, errs)
	}
	return strings.Join(strings.Fields(out)[1:], " ")
}

func importOfGroup(t *testing.T, b *brokers) {
	b.topic("t", 2)
	b.fill(0, 7)
	b.fill(1, 2)
	b.commitAs(0, 4, "")
	j := newJob(t, b, counting(""))
	out, _ := j.offsets(0, "import", "--from", "kafka-group", "--group", "app", "--yes", "--format", "csv")
	j.tells(out, "lines,t,0,4,3,,,group app,", "lines,t,1,0,2,,,the source's own start,")
	j.run(0)
	if got := j.counted(); got != "a4,1 a5,1 a6,1 b0,1 b1,1" {
		t.Errorf("counts %s", got)
	}
	if got := b.groupHolds(ownGroup); got != 7 {
		t.Errorf("the group of the pipeline holds %d, want 7", got)
	}
	if e := j.ledger(); len(e) < 2 || e[0].Imported != "kafka-group app" || !e[0].Reset || len(e[0].Ranges) != 2 {
		t.Errorf("ledger %+v", e)
	}
	if code, out := j.verify(); code != 0 {
		t.Errorf("replay: exit %d\n%s", code, out)
	}
	// What another group's commit was is as it was.
	all, err := b.adm.FetchOffsets(t.Context(), "app")
	if o, ok := all.Lookup("t", 0); err != nil || !ok || o.At != 4 {
		t.Errorf("group app holds %+v, %v", o, err)
	}
}

func importOfStormClient(t *testing.T, b *brokers) {
	b.topic("t", 2)
	b.fill(0, 6)
	b.fill(1, 4)
	b.commitAs(0, 4, `{"topologyId":"words-1-1700000000","taskId":3,"threadName":"Thread-9-spout-executor[3, 3]"}`)
	b.commitAs(1, 2, "{topic-partition=t-1, offset=2, numFails=0, thread='Thread-9'}") // the last that was processed
	j := newJob(t, b, counting(""))
	_, errs := j.offsets(2, "import", "--from", "kafka-group", "--group", "app", "--yes")
	j.tells(errs, "an old storm-kafka-client committed it, whose offsets have been processed already", "say --from storm-client")
	out, _ := j.offsets(0, "import", "--from", "storm-client", "--group", "app", "--yes", "--format", "csv")
	j.tells(out, "lines,t,0,4,2,,words-1-1700000000,group app,", "lines,t,1,3,1,,,group app,")
	j.run(0)
	if got := j.counted(); got != "a4,1 a5,1 b3,1" {
		t.Errorf("counts %s", got)
	}

	b.commitAs(1, 2, "by hand")
	other := newJob(t, b, strings.Replace(counting(""), "counting", "other", 1))
	_, errs = other.offsets(2, "import", "--from", "storm-client", "--group", "app", "--yes")
	other.tells(errs, "the commit isn't a KafkaSpout's", "say --from kafka-group")
	_, errs = other.offsets(2, "import", "--from", "storm-client", "--group", "nobody", "--yes")
	other.tells(errs, "group nobody holds no offset of a topic that the pipeline reads")
}

func importOfWhatIsGone(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.fill(0, 8)
	b.deleteBelow("t", 6)
	b.commitAs(0, 4, "")
	j := newJob(t, b, counting(""))
	_, errs := j.offsets(1, "import", "--from", "kafka-group", "--group", "app", "--yes")
	j.tells(errs, "2 records were to be processed next and are gone: what is there begins at 6", "--skip-gone")
	out, _ := j.offsets(0, "import", "--from", "kafka-group", "--group", "app", "--skip-gone", "--yes", "--format", "csv")
	j.tells(out, "lines,t,0,6,2,,,group app,2 records are gone and skipped")
	j.run(0)
	if got := j.counted(); got != "a6,1 a7,1" {
		t.Errorf("counts %s", got)
	}
	if r := j.ledger()[0].Ranges[0]; r.Start != 4 || r.End != 6 {
		t.Errorf("the gap in the ledger is [%d,%d)", r.Start, r.End)
	}

	b.commitAs(0, 9, "")
	other := newJob(t, b, strings.Replace(counting(""), "counting", "other", 1))
	_, errs = other.offsets(1, "import", "--from", "kafka-group", "--group", "app", "--yes")
	other.tells(errs, "it lies beyond the end, 8")
}

// importOfOneTopic: the topics that aren't wanted from the origin begin where the source's start says, not at their beginning.
func importOfOneTopic(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.topic("t-other", 1)
	b.fill(0, 6)
	b.produce("t-other", "old0", "old1", "old2")
	b.commitAs(0, 4, "")
	j := newJob(t, b, strings.Replace(counting(", start: latest"), "topics: [t]", "topics: [t, t-other]", 1))
	out, _ := j.offsets(0, "import", "--from", "kafka-group", "--group", "app", "--topic", "t", "--yes", "--format", "csv")
	j.tells(out, "lines,t,0,4,2,,,group app,", "lines,t-other,0,3,0,,,the source's own start,")
	b.produce("t-other", "new0")
	j.run(0)
	if got := j.counted(); got != "a4,1 a5,1 new0,1" {
		t.Errorf("counts %s", got)
	}

	other := newJob(t, b, strings.Replace(counting(""), "counting", "other", 1))
	other.put("rows.jsonl", "")
	errs := other.must(2, "state", "import", "counts", filepath.Join(other.dir, "rows.jsonl"), "--from", "start", "--topic", "t", "--yes")
	other.tells(errs, "--topic has no meaning with --from start")
}

// importBesideAnOwnGroup: an empty directory isn't believed where the pipeline's group holds its txid.
func importBesideAnOwnGroup(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.fill(0, 3)
	j := newJob(t, b, counting(""))
	j.run(0)
	j.data = filepath.Join(j.dir, "another")
	b.commitAs(0, 1, "")
	_, errs := j.offsets(1, "import", "--from", "kafka-group", "--group", "app", "--yes")
	j.tells(errs, ownGroup, "it has run before")
}

func importWhileRunning(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.fill(0, 3)
	b.commitAs(0, 1, "")
	j := newJob(t, b, counting(""))
	stop := j.start()
	j.awaitNext(3)
	_, errs := j.offsets(1, "import", "--from", "kafka-group", "--group", "app", "--yes")
	j.tells(errs, "pipeline counting is running")
	if code, log := stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, log)
	}
}

// lengths are aggregates of lines.
type lengths struct {
	N     agg.Counter
	Bytes agg.Sum[int64]
	Mean  agg.Mean[int64]
	Last  agg.Last[string]
}

// TestImportInGo: states of a pipeline in Go begin with rows like those of a declared one, and a store that an import has left
// without having written to it takes the next.
func TestImportInGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	lines := write("lines.txt", "a one\nb two\na three\n")
	p := engine.New("lengths")
	byFirst := engine.GroupBy(engine.From(p, "lines", file.Paths(lines), codec.String()), func(s string) string { return s[:1] }, "first")
	engine.Aggregate(byFirst, "lengths", agg.Fields(func(a *lengths, s string) {
		a.N.Inc()
		a.Bytes.Add(int64(len(s)))
		a.Mean.Add(int64(len(s)))
		a.Last.Add(s)
	}))
	engine.Aggregate(byFirst, "joined", agg.Reduce("text", func(acc, s string) string { return acc + s }))
	j := goJob(t, p)

	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: j.store(), Pipeline: "lengths", Shards: plan.DefaultShards, CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	state := func(want int, name, path string) string {
		t.Helper()
		var stdout, stderr lockedBuffer
		args := []string{"state", "import", "lengths", name, path, "--data", j.data, "--from", "file", "--path", write("positions.csv", "topic,partition,next\n"+lines+",0,2\n"), "--yes"}
		if code := daemon.Execute(t.Context(), args, &stdout, &stderr, p); code != want {
			t.Fatalf("exit %d, want %d\n%s%s", code, want, stdout.String(), stderr.String())
		}
		return stderr.String()
	}
	j.tells(state(2, "joined", write("joined.jsonl", `{"first":"a","text":"a one"}`)), "aggregate text: a user's own aggregate can't be gone on with from what it shows")
	state(0, "lengths", write("lengths.jsonl", `{"first":"a","n":1,"bytes":5,"mean":{"sum":5,"count":1},"last":"a one"}
{"first":"b","n":1,"bytes":5,"mean":{"sum":5,"count":1},"last":"b two"}
`))
	j.run(0)
	j.holds("lengths", "a,2,12,6,a three", "b,1,5,5,b two")
	j.holds("joined", "a,a three")
	if code, out := j.verify(); code != 0 {
		t.Errorf("replay: exit %d\n%s", code, out)
	}
}
