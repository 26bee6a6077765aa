//go:build realkafka

package daemon_test

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/sink/kafkasink"
)

const passing = `pipeline: passing
connections:
  kafka: {brokers: BROKERS}
sources:
  docs: {kafka: {topics: [in]}, decode: json, types: {id: string}}
streams:
  rows: {from: docs, steps: [{filter: true}]}
sinks:
  out: {from: rows, kafka: {topic: out, key: id}}
`

// TestTransactions leaves transactions open under the ids of a pipeline's sinks, one that it has and one that it no longer has, and settles
// them by command: readers go on, and the pipeline too.
func TestTransactions(t *testing.T) {
	_, b := ownKafka(t)
	b.topic("in", 1)
	b.topic("out", 1)
	b.topic("elsewhere", 1)
	b.produce("in", `{"id":"a"}`, `{"id":"b"}`)
	j := newJob(t, b, passing)
	type row struct {
		Sink, State, Since, Partitions string
		ID                             string `json:"transactional_id"`
		Open                           bool
	}
	list := func() map[string]row {
		t.Helper()
		code, out, errs := j.command("transactions", "--format", "json")
		var all []row
		if err := json.Unmarshal([]byte(out), &all); code != 0 || err != nil {
			t.Fatalf("exit %d, %v\n%s%s", code, err, out, errs)
		}
		by := map[string]row{}
		for _, r := range all {
			if r.ID != kafkasink.TransactionalID("passing", r.Sink) {
				t.Errorf("%+v", r)
			}
			by[r.Sink] = r
		}
		return by
	}
	if all := list(); len(all) != 0 {
		t.Errorf("before the first run: %v", all)
	}
	j.run(0)
	if all := list(); len(all) != 1 || all["out"].State != "CompleteCommit" || all["out"].Open {
		t.Errorf("after a run: %v", all)
	}

	for id, topic := range map[string]string{"passing.out": "out", "passing.former": "out", "other.out": "elsewhere"} {
		left, err := kgo.NewClient(kgo.SeedBrokers(b.addrs...), kgo.TransactionalID("tridentd.sink."+id), kgo.DefaultProduceTopic(topic))
		if err != nil {
			t.Fatal(err)
		}
		defer left.Close()
		if err := left.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := left.ProduceSync(t.Context(), kgo.StringRecord("left")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for sink, r := range list() {
		if since, err := time.Parse(time.RFC3339Nano, r.Since); !r.Open || r.State != "Ongoing" || r.Partitions != "out-0" || err != nil || time.Since(since).Abs() > 10*time.Minute {
			t.Errorf("%s: %+v, %v", sink, r, err)
		}
	}
	code, out, errs := j.command("transactions", "--settle")
	if code != 2 || !strings.Contains(errs, "--yes") {
		t.Errorf("without an answer: exit %d\n%s%s", code, out, errs)
	}

	// Not while the pipeline runs, which keeps its own in order.
	p := j.spawn(j.runArgs()...)
	j.awaitNext(2)
	if code, _, errs := j.command("transactions", "--settle", "--yes"); code != 1 || !strings.Contains(errs, "in use") {
		t.Errorf("while it runs: exit %d\n%s", code, errs)
	}
	p.signal(syscall.SIGTERM)
	if code := p.exit(stopLimit); code != 0 {
		t.Fatalf("exit %d\n%s", code, p.errs.String())
	}
	all := list()
	if all["out"].Open || !all["former"].Open {
		t.Errorf("after another run: %v", all)
	}

	code, out, errs = j.command("transactions", "--settle", "--yes")
	if code != 0 || errs != "tridentd.sink.passing.former is settled\n" || strings.Count(out, "\n") != 3 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if all := list(); all["former"].Open {
		t.Errorf("settled: %v", all)
	}
	ends, err := b.adm.ListEndOffsets(t.Context(), "out")
	if err != nil {
		t.Fatal(err)
	}
	stable, err := b.adm.ListCommittedOffsets(t.Context(), "out")
	if err != nil {
		t.Fatal(err)
	}
	if end, _ := ends.Lookup("out", 0); stable["out"][0].Offset != end.Offset {
		t.Errorf("readers come to %d of %d", stable["out"][0].Offset, end.Offset)
	}
	if code, _, errs := j.command("transactions", "--settle", "--yes"); code != 0 || errs != "nothing to settle: none is open\n" {
		t.Errorf("exit %d\n%s", code, errs)
	}

	// Another pipeline's is left alone.
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{"tridentd.sink.other.out"}
	resp, err := req.RequestWith(context.Background(), b.cl)
	if err != nil || len(resp.TransactionStates) != 1 || resp.TransactionStates[0].State != "Ongoing" {
		t.Errorf("%+v, %v", resp, err)
	}
}
