//go:build realzk

package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/internal/testenv"
)

// topology is a Storm topology that has counted words of a topic up to some point, and stands still.
type topology struct {
	t      *testing.T
	zk     *testenv.ZooKeeperServer
	chroot string
	conn   *zk.Conn
	kafka  *brokers
	topic  string
	job    *job
}

// newTopology makes a topic with two partitions of records "w<i mod 5>", 50 and 20 of them, and the pipeline that is to go on.
func newTopology(t *testing.T) *topology {
	t.Helper()
	k := testenv.Kafka(t)
	top := &topology{t: t, zk: testenv.ZooKeeper(t), kafka: connect(t, k.Brokers()), topic: k.Topic(t, "lines", 2, nil)}
	top.chroot, top.conn = top.zk.Chroot(t, "storm"), top.zk.Conn(t)
	for p, n := range []int{50, 20} {
		recs := make([]*kgo.Record, n)
		for i := range recs {
			recs[i] = &kgo.Record{Topic: top.topic, Partition: int32(p), Value: fmt.Appendf(nil, "w%d", i%5)}
		}
		top.kafka.send(recs...)
	}
	name := testenv.Unique("words")
	top.job = newJob(t, top.kafka, fmt.Sprintf("pipeline: %s\nsources:\n  lines:\n    kafka: {brokers: BROKERS, topics: [%s]}\n    decode: string\nstreams:\n  counts:\n    from: lines\n    steps:\n      - group_by: [value]\n      - aggregate: {n: count()}\n", name, top.topic))
	return top
}

// node makes a node, and those above it as Curator does.
func (top *topology) node(path, data string) {
	top.t.Helper()
	at := top.chroot
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, part := range parts {
		at += "/" + part
		content := "127.0.0.1"
		if i == len(parts)-1 {
			content = data
		}
		if _, err := top.conn.Create(at, []byte(content), 0, zk.WorldACL(zk.PermAll)); err != nil && (err != zk.ErrNodeExists || i == len(parts)-1) { //nolint:errorlint // the client's own values
			top.t.Fatalf("%s: %v", at, err)
		}
	}
}

// imports runs offsets import, which must end with the code.
func (top *topology) imports(want int, flags ...string) (out, errs string) {
	top.t.Helper()
	return top.job.offsets(want, "import", append([]string{"--servers", top.zk.Addr, "--chroot", top.chroot, "--format", "csv"}, flags...)...)
}

// goesOn runs the pipeline, which must come to what counting everything once comes to.
func (top *topology) goesOn(want string) {
	top.t.Helper()
	top.job.run(0)
	if got := top.job.counted(); got != want {
		top.t.Errorf("counts %s, want %s", got, want)
	}
	if code, out := top.job.verify(); code != 0 {
		top.t.Errorf("replay: exit %d\n%s", code, out)
	}
}

const allCounted = "w0,14 w1,14 w2,14 w3,14 w4,14"

// TestImportFromTrident: an opaque topology has counted [0,30) and [0,10), and was killed while txid 12 committed: its nodes
// are written, its counts in part. The pipeline takes offsets and counts of txid 11, and in the end each record counts once.
func TestImportFromTrident(t *testing.T) {
	for name, node := range map[string]func(topic string, partition int, first, next int64) (string, string){
		"storm-kafka 1.2.4": func(topic string, partition int, first, next int64) (string, string) {
			return fmt.Sprintf("partition_%d", partition), fmt.Sprintf(`{"instanceId":"words-1-1700000000","partition":%d,"offset":%d,"topology":{"name":"words","id":"words-1-1700000000"},"topic":%q,"nextOffset":%d,"broker":{"host":"kafka1","port":9092}}`, partition, first, topic, next)
		},
		"storm-kafka-client 2.8.3": func(topic string, partition int, first, next int64) (string, string) {
			return fmt.Sprintf("%s@%d", topic, partition), fmt.Sprintf(`{"topologyId":"words-1-1700000000","lastOffset":%d,"firstOffset":%d}`, next-1, first)
		},
	} {
		t.Run(name, func(t *testing.T) {
			top := newTopology(t)
			top.node("/transactional/words/coordinator/currtx", "12")
			top.node("/transactional/words/coordinator/currattempts", `{"12":0}`)
			top.node("/transactional/words/coordinator/meta", "7")
			for p, ranges := range [][][2]int64{{{20, 30}, {30, 45}}, {{5, 10}, {10, 15}}} {
				for i, r := range ranges {
					dir, data := node(top.topic, p, r[0], r[1])
					if i == 0 {
						top.node("/transactional/words/user/"+dir, "7")
					}
					top.node(fmt.Sprintf("/transactional/words/user/%s/%d", dir, 11+i), data)
				}
			}
			// After [0,30) and [0,10) each word has 6 + 2. Txid 12 adds 3 + 1 to each, and has got to two of them.
			top.job.put("counts.jsonl", `{"value":"w0","n":[12,12,8]}
{"value":"w1","n":[11,8,6]}
{"value":"w2","n":[12,12,8]}
{"value":"w3","n":[11,8,6]}
{"value":"w4","n":[9,8,7]}
{"value":"made by txid 12","n":[12,1,null]}
`)
			state := []string{"--state", "counts=" + top.job.dir + "/counts.jsonl"}
			out, errs := top.imports(2, append(state, "--from", "trident-zk", "--spout-id", "words", "--state-format", "transactional", "--yes")...)
			top.job.tells(errs, "counts.jsonl:1: column n: [12,12,8] is no transactional value")
			if out != "" {
				t.Errorf("shown\n%s", out)
			}
			out, errs = top.imports(0, append(state, "--from", "trident-zk", "--spout-id", "words", "--state-format", "opaque", "--yes")...)
			top.job.tells(out, fmt.Sprintf("lines,%s,0,30,20,11,words", top.topic), fmt.Sprintf("lines,%s,1,10,10,11,words", top.topic), top.chroot+"/transactional/words/user/")
			top.job.tells(errs, "state counts begins with 5 rows", "imported as txid 1")
			top.goesOn(allCounted)
		})
	}
}

// TestImportFromSpout: a KafkaSpout's offsets are those to be processed next.
func TestImportFromSpout(t *testing.T) {
	top := newTopology(t)
	for p, next := range []int64{30, 10} {
		top.node(fmt.Sprintf("/kafka/words/partition_%d", p), fmt.Sprintf(`{"topology":{"id":"f0a4\/1","name":"words"},"offset":%d,"partition":%d,"broker":{"host":"kafka1","port":9092},"topic":%q}`, next, p, top.topic))
	}
	from := []string{"--from", "storm-zk", "--zk-path", "/kafka", "--spout-id", "words"}
	out, errs := top.imports(2, from...)
	top.job.tells(out+errs, fmt.Sprintf("lines,%s,0,30,20,,words,", top.topic), "nothing was changed")
	top.imports(0, append(from, "--yes")...)
	top.goesOn("w0,6 w1,6 w2,6 w3,6 w4,6") // without its counts: what came later
	if top.job.ledger()[0].Imported != fmt.Sprintf("storm-zk %s%s/kafka words", top.zk.Addr, top.chroot) {
		t.Errorf("imported from %q", top.job.ledger()[0].Imported)
	}
}

// TestImportOfGarbage: what isn't understood is named by its path, and nothing begins.
func TestImportOfGarbage(t *testing.T) {
	top := newTopology(t)
	top.node("/transactional/words/coordinator/currtx", "12")
	top.node("/transactional/words/user/partition_0/11", `{"offset":1`)
	top.node("/transactional/words/user/notes", "mine")
	from := []string{"--from", "trident-zk", "--spout-id", "words", "--yes"}
	_, errs := top.imports(1, from...)
	top.job.tells(errs, top.chroot+"/transactional/words/user/partition_0/11 isn't JSON", top.chroot+"/transactional/words/user/notes is no node of a Kafka spout")
	_, errs = top.imports(1, "--from", "trident-zk", "--spout-id", "other", "--yes")
	top.job.tells(errs, top.chroot+"/transactional/other doesn't exist")
	var stdout, stderr lockedBuffer
	if code := daemon.Execute(t.Context(), []string{"ledger", top.job.file, "--data", top.job.data}, &stdout, &stderr); code != 2 {
		t.Errorf("the store has begun: exit %d\n%s%s", code, stdout.String(), stderr.String())
	}
	_, errs = top.job.offsets(1, "import", "--servers", "127.0.0.1:1", "--from", "trident-zk", "--spout-id", "words", "--yes", "--timeout", "3s")
	top.job.tells(errs, "127.0.0.1:1", "refused")
}

// TestImportBesideARecord: a pipeline that keeps its record in ZooKeeper shows there what was imported; an empty directory isn't
// believed beside that record.
func TestImportBesideARecord(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "import")
	j := newJob(t, nil, fmt.Sprintf("pipeline: counting\nzookeeper: {servers: %q, chroot: %s}\nsources:\n  lines: {file: {paths: [lines.txt]}, decode: string}\nstreams:\n  counts:\n    from: lines\n    steps:\n      - group_by: [value]\n      - aggregate: {n: count()}\n", z.Addr, chroot))
	j.put("lines.txt", "a\nb\nc\n")
	j.put("positions.csv", "topic,partition,next\nlines.txt,0,2\n")
	from := []string{"--from", "file", "--path", j.dir + "/positions.csv", "--yes"}
	j.offsets(0, "import", from...)
	j.run(0)
	if got := j.counted(); got != "c,1" {
		t.Errorf("counts %s", got)
	}
	r := recordAt(t, z.Conn(t), chroot+"/trident/counting")
	if r.Committed.Txid != 2 || r.positions["lines.txt-0"] != 3 {
		t.Errorf("record %+v", r)
	}
	j.data = j.dir + "/another"
	_, errs := j.offsets(1, "import", from...)
	j.tells(errs, "holds txid 2 of pipeline counting", "it has run before")
}
