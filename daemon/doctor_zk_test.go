//go:build realzk

package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tridentd/tridentd/internal/testenv"
)

// TestDoctorZooKeeperForKafka: ZooKeeper's address is given for a broker's.
func TestDoctorZooKeeperForKafka(t *testing.T) {
	z := testenv.ZooKeeper(t)
	w := &groupWorld{t: t, pipeline: "words", dir: t.TempDir()}
	w.file, w.data = filepath.Join(w.dir, "words.yaml"), filepath.Join(w.dir, "data")
	w.write(fmt.Sprintf(`pipeline: words
sources:
  lines:
    kafka: {brokers: [%q], topics: [lines]}
    decode: string
streams:
  counts:
    from: lines
    steps:
      - group_by: [value]
      - aggregate: {n: count()}
`, z.Servers()[0]))
	w.finds(w.doctor(1), "error", "kafka "+z.Servers()[0], "not_kafka", "ZooKeeper answers")
}

// TestDoctorRecord follows what ZooKeeper's record says beside the store.
func TestDoctorRecord(t *testing.T) {
	z := testenv.ZooKeeper(t)
	root := z.Chroot(t, "doctor")
	w := &groupWorld{t: t, pipeline: "words", dir: t.TempDir()}
	w.file, w.data = filepath.Join(w.dir, "words.yaml"), filepath.Join(w.dir, "data")
	input := filepath.Join(w.dir, "in.txt")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(input, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a\n")
	w.write(fmt.Sprintf(`pipeline: words
zookeeper: {servers: %q, chroot: %s, update_interval: 0s}
sources:
  lines:
    file: {paths: [in.txt]}
    decode: string
streams:
  counts:
    from: lines
    steps:
      - group_by: [value]
      - aggregate: {n: count()}
`, z.Addr, root))
	const record = "zookeeper record"
	w.finds(w.doctor(0), "ok", record, "", "nothing yet")
	w.run(0)
	w.finds(w.doctor(0), "ok", record, "", "says txid 1, as the store")

	conn := z.Conn(t)
	base := root + "/trident/words/"
	nodes := []string{"record", "sources/lines/0000"}
	get := func() (all []string) {
		t.Helper()
		for _, name := range nodes {
			data, _, err := conn.Get(base + name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(data))
		}
		return all
	}
	set := func(all ...string) {
		t.Helper()
		for i, data := range all {
			if _, err := conn.Set(base+nodes[i], []byte(data), -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	old := get()
	copied := filepath.Join(w.dir, "copy")
	if err := os.CopyFS(copied, os.DirFS(w.data)); err != nil {
		t.Fatal(err)
	}
	write("a\nb\n")
	w.run(0)
	newer := get()
	set(old...)
	w.finds(w.doctor(0), "ok", record, "", "says txid 1, the store stands at 2: the next run brings it forward")
	set(newer...)
	has := w.data
	w.data = copied // a store from before the second batch
	w.finds(w.doctor(1), "error", record, "record_ahead", "the store stands at txid 1")
	w.data = filepath.Join(w.dir, "empty")
	w.finds(w.doctor(1), "error", record, "store_missing", "up to txid 2")
	w.data = has
	set("{oops")
	w.finds(w.doctor(0), "warn", record, "record_garbled", "written anew by the next run")
	w.data = filepath.Join(w.dir, "empty")
	w.finds(w.doctor(1), "error", record, "record_garbled", "")
	children, _, err := conn.Children(root + "/trident/words")
	if slices.Sort(children); err != nil || !slices.Equal(children, []string{"record", "sources"}) {
		t.Errorf("doctor leaves %q, %v", children, err)
	}
	if all := get(); all[0] != "{oops" || all[1] != newer[1] {
		t.Errorf("doctor wrote the record: %q", all)
	}
}

// TestDoctorInTimeWithoutQuorum: two of three servers are gone, the third is paused.
func TestDoctorInTimeWithoutQuorum(t *testing.T) {
	z := testenv.OwnZooKeeper(t, testenv.Nodes(3))
	w := &groupWorld{t: t, pipeline: "words", dir: t.TempDir()}
	w.file, w.data = filepath.Join(w.dir, "words.yaml"), filepath.Join(w.dir, "data")
	w.write(fmt.Sprintf(`pipeline: words
zookeeper: {servers: %q}
sources:
  lines:
    generate: {kind: words, count: 10}
streams:
  total:
    from: lines
    steps:
      - aggregate: {n: count()}
`, z.Addr))
	z.Kill(t, 1)
	z.Kill(t, 2)
	z.Pause(t, 3)
	began := time.Now()
	all := w.doctor(1)
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
	w.finds(all, "error", "zookeeper "+z.Servers()[0], "zk_refused", "")
	w.finds(all, "error", "zookeeper "+z.Servers()[2], "zk_no_answer", "")
	z.Resume(t, 3)
}
