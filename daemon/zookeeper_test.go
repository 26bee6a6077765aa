//go:build realzk

package daemon_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/server"
)

// keptRecord is what the tests read of a record, and of its pages.
type keptRecord struct {
	Pipeline  string
	Epoch     int
	Committed struct{ Txid int64 }
	Sources   map[string]struct{ Pages, Partitions int }
	positions map[string]int64 // topic-partition: next
}

// recordAt reads a pipeline's record.
func recordAt(t *testing.T, c *zk.Conn, path string) *keptRecord {
	t.Helper()
	data, _, err := c.Get(path + "/record")
	if err != nil {
		t.Fatalf("%s/record: %v", path, err)
	}
	r := &keptRecord{positions: map[string]int64{}}
	if err := json.Unmarshal(data, r); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	for source, s := range r.Sources {
		for page := range s.Pages {
			data, _, err := c.Get(fmt.Sprintf("%s/sources/%s/%04d", path, source, page))
			if err != nil {
				t.Fatal(err)
			}
			var p struct {
				Positions []struct {
					Topic     string
					Partition int32
					Next      int64
				}
			}
			if err := json.Unmarshal(data, &p); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			for _, at := range p.Positions {
				r.positions[fmt.Sprintf("%s-%d", at.Topic, at.Partition)] = at.Next
			}
		}
	}
	return r
}

// total is the sum of all positions.
func (r *keptRecord) total() (n int64) {
	for _, next := range r.positions { // order: a sum
		n += next
	}
	return n
}

// committedTxid is the last batch of a job at rest.
func (j *job) committedTxid() int64 {
	j.t.Helper()
	code, out, errs := j.command("ledger", "--format", "json")
	var rows []struct{ Txid int64 }
	if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil || len(rows) == 0 {
		j.t.Fatalf("ledger: exit %d, %v\n%s%s", code, err, out, errs)
	}
	return rows[len(rows)-1].Txid
}

// number is the only figure of a state without a group.
func (j *job) number(state string) string {
	j.t.Helper()
	code, out, errs := j.command("query", state, "--format", "csv")
	if code != 0 {
		j.t.Fatalf("query: exit %d\n%s", code, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

// generated is a pipeline that counts generated records.
func generated(count, rate int, settings string) string {
	return fmt.Sprintf(`pipeline: words
batch: {interval: 50ms}
zookeeper: {%s}
sources:
  lines:
    generate: {kind: words, count: %d, rate: %d, partitions: 2}
streams:
  counts:
    from: lines
    steps:
      - aggregate: {n: count()}
`, settings, count, rate)
}

// TestZooKeeperOutage: ZooKeeper goes away in the middle of a run and comes back. With policy continue no batch waits, with
// stall none commits; in both the count is exact and ZooKeeper is right afterwards.
func TestZooKeeperOutage(t *testing.T) {
	count, lasts, outage := 100_000, 20*time.Second, 6*time.Second
	if testenv.Full() {
		count, lasts, outage = 1_000_000, 3*time.Minute, time.Minute
	}
	for _, policy := range []string{"continue", "stall"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			z := testenv.OwnZooKeeper(t)
			j := newJob(t, nil, generated(count, count/int(lasts.Seconds()), fmt.Sprintf("servers: %q, update_interval: 500ms, while_away: %s", z.Addr, policy)))
			stop := j.start()
			at := func() server.Status {
				t.Helper()
				client, err := server.Dial(j.store())
				if err != nil {
					return server.Status{}
				}
				defer client.Close()
				st, err := client.Status(t.Context())
				if err != nil {
					return server.Status{}
				}
				return st
			}
			until := func(what string, ok func(server.Status) bool) server.Status {
				t.Helper()
				for deadline := time.Now().Add(lasts + time.Minute); ; time.Sleep(50 * time.Millisecond) {
					st := at()
					if ok(st) {
						return st
					}
					if time.Now().After(deadline) {
						t.Fatalf("waited in vain for %s; status %+v", what, st)
					}
				}
			}
			until("a third", func(st server.Status) bool { return committed(st) >= int64(count)/3 })
			z.Stop(t)
			gone := until("the outage to show", func(st server.Status) bool {
				return len(st.Mirrors) == 1 && st.Mirrors[0].Error != nil && strings.HasPrefix(string(st.Mirrors[0].Error.Code), "zk_")
			})
			if policy == "stall" {
				gone = until("batches to wait", func(st server.Status) bool {
					return slices.ContainsFunc(st.Reasons, func(r string) bool { return strings.HasPrefix(r, "commits wait for ZooKeeper: ") })
				})
				if gone.Ready {
					t.Error("ready, although no batch commits")
				}
			}
			last, lastMoved, longest := gone.Committed, time.Now(), time.Duration(0)
			for began := time.Now(); time.Since(began) < outage; time.Sleep(50 * time.Millisecond) {
				st := at()
				switch {
				case policy == "stall" && st.Committed != gone.Committed:
					t.Fatalf("txid %d has committed while ZooKeeper is away; it was %d", st.Committed, gone.Committed)
				case policy == "continue" && !st.Ready:
					t.Fatalf("not ready: %q", st.Reasons)
				case st.Committed > last:
					last, lastMoved = st.Committed, time.Now()
				}
				longest = max(longest, time.Since(lastMoved))
			}
			if policy == "continue" && (longest > outage/2 || last < gone.Committed+10) {
				t.Errorf("for %s nothing committed; from txid %d to %d in the outage", longest, gone.Committed, last)
			}
			z.Start(t)
			until("ZooKeeper to be right again", func(st server.Status) bool {
				return len(st.Mirrors) == 1 && st.Mirrors[0].Error == nil && st.Committed > gone.Committed && st.Mirrors[0].Txid > gone.Committed
			})
			until("the end of the input", func(st server.Status) bool { return committed(st) == int64(count) })
			code, log := stop()
			if code != 0 {
				t.Errorf("exit %d\n%s", code, log)
			}
			if n := strings.Count(log, "is up to date again"); n != 1 {
				t.Errorf("the end of the outage is told %d times\n%s", n, log)
			}
			if n := j.number("counts"); n != fmt.Sprint(count) {
				t.Errorf("counted %s of %d", n, count)
			}
			r := recordAt(t, z.Conn(t), "/trident/words")
			if r.Committed.Txid != j.committedTxid() || r.total() != int64(count) {
				t.Errorf("ZooKeeper is at txid %d and %d records, the store at %d and %d", r.Committed.Txid, r.total(), j.committedTxid(), count)
			}
		})
	}
}

// TestZooKeeperRecord: right after a run the record is what the store says, readable by ZooKeeper's own client.
func TestZooKeeperRecord(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "run")
	j := newJob(t, nil, generated(1000, 0, fmt.Sprintf("servers: %q, chroot: %s/made/here, update_interval: 0s", z.Addr, chroot)))
	j.run(0)
	r := recordAt(t, z.Conn(t), chroot+"/made/here/trident/words")
	if r.Pipeline != "words" || r.Committed.Txid != j.committedTxid() || r.total() != 1000 || r.Sources["lines"].Partitions != 2 {
		t.Errorf("the record is %+v", r)
	}
	out := z.Cli(t, "get", chroot+"/made/here/trident/words/record")
	if !strings.Contains(out, `"pipeline": "words"`) {
		t.Errorf("zkCli prints\n%s", out)
	}
	var shown, errs lockedBuffer
	if code := daemon.Execute(t.Context(), []string{"offsets", "show", j.file, "--data", j.data, "--format", "json"}, &shown, &errs); code != 0 {
		t.Fatalf("offsets show: exit %d\n%s", code, errs.String())
	}
	var rows []struct {
		Next          int64 `json:"next"`
		Txid          int64 `json:"txid"`
		ZooKeeperNext int64 `json:"zookeeper_next"`
		ZooKeeperTxid int64 `json:"zookeeper_txid"`
	}
	if err := json.Unmarshal([]byte(shown.String()), &rows); err != nil || len(rows) != 2 {
		t.Fatalf("%v\n%s", err, shown.String())
	}
	for _, row := range rows {
		if row.ZooKeeperNext != 500 || row.ZooKeeperNext != row.Next || row.ZooKeeperTxid != row.Txid || row.Txid == 0 {
			t.Errorf("side by side: %+v", row)
		}
	}
}

// TestZooKeeperReconciled goes through what a start may find, as whole commands: none of it starts again at txid 1.
func TestZooKeeperReconciled(t *testing.T) {
	z := testenv.ZooKeeper(t)
	by := z.Conn(t)
	for _, policy := range []string{"continue", "stall"} {
		t.Run(policy, func(t *testing.T) {
			chroot := z.Chroot(t, "found")
			path := chroot + "/trident/words"
			settings := fmt.Sprintf("servers: %q, chroot: %s, while_away: %s", z.Addr, chroot, policy)
			j := newJob(t, nil, generated(500, 0, settings))
			j.run(0)
			older := filepath.Join(t.TempDir(), "older")
			if err := os.CopyFS(older, os.DirFS(j.data)); err != nil {
				t.Fatal(err)
			}
			more := func(n int) { j.put("pipeline.yaml", generated(n, 0, settings)) }
			right := func(n int64) {
				t.Helper()
				r := recordAt(t, by, path)
				if r.Pipeline != "words" || r.total() != n || r.Committed.Txid != j.committedTxid() || j.number("counts") != fmt.Sprint(n) {
					t.Errorf("the record is %+v, %s are counted, want %d", r, j.number("counts"), n)
				}
			}
			more(800)
			j.run(0)
			right(800)

			// Deleted, and rubbish.
			if err := by.Delete(path+"/record", -1); err != nil {
				t.Fatal(err)
			}
			j.run(0)
			right(800)
			if _, err := by.Set(path+"/record", []byte("{rubbish"), -1); err != nil {
				t.Fatal(err)
			}
			if log := j.run(0); !strings.Contains(log, "record.garbled-") {
				t.Errorf("no word of the rubbish\n%s", log)
			}
			right(800)

			// A store that was computed again from the ledger is of the same history.
			data, again := j.data, filepath.Join(t.TempDir(), "again")
			if code, _, errs := j.command("replay", "--into", again); code != 0 {
				t.Fatalf("replay: exit %d\n%s", code, errs)
			}
			for _, j.data = range []string{again, data} {
				j.run(0)
				right(800)
			}

			// An older copy of the store: ZooKeeper is ahead.
			j.data = older
			if log := j.refused(4, "txid", path+"/record", "--data", "offsets export"); !strings.Contains(log, "ahead of the store") {
				t.Errorf("an older store: %s", log)
			}
			if got := j.number("counts"); got != "500" {
				t.Errorf("the older store has %s", got)
			}
			export := func() {
				t.Helper()
				var errs lockedBuffer
				if code := daemon.Execute(t.Context(), []string{"offsets", "export", j.file, "--data", j.data, "--to", "zookeeper"}, &errs, &errs); code != 0 {
					t.Errorf("export: exit %d\n%s", code, errs.String())
				}
			}
			export()
			j.run(0)
			right(800)

			// The first store again: both are at the same txid, but the copy has gone a way of its own.
			j.data = data
			j.refused(4, "another history", path+"/record", "offsets export")
			export()
			more(900)
			j.run(0)
			right(900)

			// An empty store.
			j.data = filepath.Join(t.TempDir(), "empty")
			j.refused(4, "is empty", "--fresh", "zookeeper "+path)
			before, _, err := by.Get(path + "/record")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := by.Set(path+"/record", []byte("{rubbish"), -1); err != nil {
				t.Fatal(err)
			}
			j.refused(4, path+"/record", "can't be read", "--fresh")
			// Another pipeline's, also with --fresh.
			foreign := strings.Replace(string(before), `"pipeline": "words"`, `"pipeline": "sums"`, 1)
			if _, err := by.Set(path+"/record", []byte(foreign), -1); err != nil {
				t.Fatal(err)
			}
			j.refused(4, path+"/record", "pipeline sums")
			j.run(4, "--fresh")
			if after, _, err := by.Get(path + "/record"); err != nil || string(after) != foreign {
				t.Errorf("another pipeline's record is now %q, %v", after, err)
			}
			if _, err := by.Set(path+"/record", before, -1); err != nil {
				t.Fatal(err)
			}
			j.run(0, "--fresh")
			right(900)
		})
	}
}

// TestG18ManyPartitions: a pattern source over 2,500 topics with names of 100 characters and ten partitions each.
func TestG18ManyPartitions(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "wide")
	var topics []string
	for i := range 2500 {
		topics = append(topics, fmt.Sprintf("%s%04d", strings.Repeat("t", 96), i))
	}
	b := fakeBrokers(t, kfake.SeedTopics(10, topics...))
	var recs []*kgo.Record
	for i := 0; i < len(topics); i += 10 {
		recs = append(recs, &kgo.Record{Topic: topics[i], Partition: int32(i / 10 % 10), Value: []byte("a")})
	}
	b.send(recs...)
	j := newJob(t, b, fmt.Sprintf(`pipeline: wide
zookeeper: {servers: %q, chroot: %s, while_away: stall}
sources:
  lines:
    kafka: {brokers: BROKERS, pattern: "t{96}[0-9]{4}", group: off}
    decode: string
streams:
  counts:
    from: lines
    steps:
      - aggregate: {n: count()}
`, z.Addr, chroot))
	log := j.run(0)
	if n := j.number("counts"); n != "250" {
		t.Errorf("counted %s", n)
	}
	if strings.Contains(log, "WARN") {
		t.Errorf("there are warnings\n%s", log)
	}
	by := z.Conn(t)
	r := recordAt(t, by, chroot+"/trident/wide")
	if len(r.positions) != 25000 || r.total() != 250 {
		t.Errorf("%d positions in ZooKeeper, with %d records", len(r.positions), r.total())
	}
	if pages, _, err := by.Children(chroot + "/trident/wide/sources/lines"); err != nil || len(pages) != r.Sources["lines"].Pages {
		t.Errorf("pages %q, %v", pages, err)
	}
}
