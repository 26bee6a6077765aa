package daemon_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/pebblestate"
)

// TestRule4RestoreBehindASink: behind a restore every txid up to the highest that a sink's target holds is run again with its recorded
// ranges, or the start is refused. The restored store has an epoch above the one that it replaces.
func TestRule4RestoreBehindASink(t *testing.T) {
	t.Parallel()
	j := newJob(t, nil, `pipeline: sent
batch: {max_records: 2}
sources:
  lines:
    file: {paths: ["in-*.txt"]}
    decode: string
streams:
  counts:
    from: lines
    steps:
      - group_by: [value]
      - aggregate: {n: count()}
sinks:
  out: {from: lines, fields: [value], file: {dir: out}}
`)
	sent := func() []string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(j.dir, "out", "out-*.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, strings.Fields(string(b))...)
		}
		return all
	}
	holds := func(want ...string) {
		t.Helper()
		for i, w := range want {
			want[i] = `{"value":"` + w + `"}`
		}
		if got := sent(); !slices.Equal(got, want) {
			t.Errorf("the sink's folder holds %q, want %q", got, want)
		}
	}
	j.put("in-1.txt", "a\nb\nc\nd\n")
	j.run(0)
	j.must(0, "savepoint", "create", "--name", "s")
	j.put("in-2.txt", "e\nf\ng\nh\n")
	j.run(0)
	before, was := j.ranges(), j.epoch(j.store())
	if len(before) != 4 {
		t.Fatalf("batches %q", before)
	}
	holds("a", "b", "c", "d", "e", "f", "g", "h")

	// back puts what was replaced in the directory's place again.
	back := func() {
		t.Helper()
		aside := j.beside()
		if len(aside) != 1 || !pebblestate.Exists(aside[0]) {
			t.Fatalf("there is %v beside the directory", aside)
		}
		if err := os.RemoveAll(j.store()); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(aside[0], j.store()); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []struct {
		txid string
		more []string
	}{{txid: "2"}, {txid: "3", more: []string{"--to-txid", "3"}}} {
		j.must(0, "savepoint", "restore", append([]string{"s", "--replace"}, to.more...)...)
		j.refused(4, "sink out", "the target holds txid 4, the store ends at txid "+to.txid, "savepoint restore --to-txid")
		if got := j.ranges(); !slices.Equal(got, before[:len(got)]) || len(got) != int(to.txid[0]-'0') {
			t.Errorf("a start that was refused has left the batches %q", got)
		}
		holds("a", "b", "c", "d", "e", "f", "g", "h")
		back()
	}
	j.must(0, "savepoint", "restore", "s", "--replace", "--to-txid", "4")
	if got := j.ranges(); !slices.Equal(got, before) {
		t.Errorf("batches %q, recorded were %q", got, before)
	}
	if got := j.epoch(j.store()); got < was {
		t.Errorf("epoch %d, that of what was replaced is %d", got, was)
	}
	j.put("in-3.txt", "i\n")
	j.run(0)
	if got := j.epoch(j.store()); got <= was {
		t.Errorf("the run has epoch %d, that of what was replaced is %d", got, was)
	}
	holds("a", "b", "c", "d", "e", "f", "g", "h", "i")
	j.holds("counts", "a,1", "b,1", "c,1", "d,1", "e,1", "f,1", "g,1", "h,1", "i,1")
	if code, said := j.verify(); code != 0 {
		t.Errorf("exit %d\n%s", code, said)
	}
}
