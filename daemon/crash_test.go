//go:build crash

package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/txstate"
)

// The words of the test: a line holds three of them.
const vocabulary = 500

func word(i int) string { return fmt.Sprintf("word%03d", i%vocabulary) }

func line(i int) string { return word(i) + " " + word(i*7) + " " + word(i*i) }

// TestKill counts the words of lines that are produced meanwhile, in a process that is killed by SIGKILL again and
// again. Every word must be counted once, the ledger must have neither gap nor overlap, and an undisturbed run over
// the same ledger must give the same bytes.
func TestKill(t *testing.T) {
	lines, kills, rate := 150_000, 15, 15_000
	if testenv.Full() {
		lines, kills, rate = 1_000_000, 100, 12_000
	}
	k := testenv.Kafka(t)
	topic := k.Topic(t, "lines", 4, nil)
	dir := t.TempDir()
	bin := build(t, dir)
	file := filepath.Join(dir, "words.yaml")
	write(t, file, fmt.Sprintf(`pipeline: words
batch:
  max_records: 20000
  interval: 40ms               # so that at any moment data wait for the next batch
sources:
  lines:
    kafka: {brokers: ["%s"], topics: [%s], start: earliest}
    decode: string
streams:
  counts:
    from: lines
    steps:
      - flat_map:
          word: split(lower(value), " ")
      - filter: word != ""
      - group_by: [word]
      - aggregate: {n: count()}
`, strings.Join(k.Brokers(), `", "`), topic))
	data := filepath.Join(dir, "data")

	var acked, allowed atomic.Int64
	produced := make(chan error, 1)
	go func() { produced <- produce(t.Context(), k.Brokers(), topic, lines, rate, &allowed, &acked) }()

	const seed = 20261201
	rng := rand.New(rand.NewPCG(seed, 1))
	store := filepath.Join(data, "words")
	var last batch.Txid
	between, saved := 0, false
	for i := range kills {
		// A third of the round's lines now, the others once the process has committed: so data wait up to the last
		// kill, whatever time a start takes.
		round := int64(lines) * 2 / 3 / int64(kills) // the third that is left is for rounds in which all had been taken
		allowed.Store(round*int64(i) + round/3)
		cmd := start(t, bin, file, data)
		committed := false
		if rng.IntN(10) > 0 {
			committed = awaitCommit(t, store, last)
		} // else at any moment, the start included
		if i >= kills/2 && committed && !saved {
			saved = true
			// Under load; what is made of it is looked at in the end.
			out, err := exec.Command(bin, "savepoint", "create", file, "--data", data, "--name", "half").CombinedOutput()
			if err != nil {
				t.Errorf("savepoint: %v\n%s", err, out)
			}
		}
		allowed.Store(round * int64(i+1))
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		had := acked.Load()
		if committed {
			had = awaitWaiting(t, store, int64(rate/20), &allowed, &acked)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() //nolint:errcheck // it was killed
		txid, done := progressOf(t, store)
		if txid < last {
			t.Fatalf("kill %d: txid %d after %d", i+1, txid, last)
		}
		last = txid
		if committed && done < had {
			between++
		}
		if i%10 == 9 {
			t.Logf("%d kills: txid %d, %d of %d lines committed", i+1, txid, done, lines)
		}
	}
	allowed.Store(int64(lines))
	if need := kills * 8 / 10; between < need {
		t.Errorf("only %d of %d kills came between two commits with data waiting; %d are needed", between, kills, need)
	}
	if err := <-produced; err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(bin, "run", file, "--data", data, "--until", "caught-up", "--listen", "off").CombinedOutput()
	if err != nil {
		t.Fatalf("the last run: %v\n%s", err, out)
	}

	want := map[string]int64{}
	for i := range lines {
		for w := range strings.FieldsSeq(line(i)) {
			want[w]++
		}
	}
	db := openStore(t, filepath.Join(data, "words"), true)
	got := counts(t, db)
	if len(got) != len(want) {
		t.Errorf("%d words, want %d", len(got), len(want))
	}
	for w, n := range want {
		if got[w] != n {
			t.Errorf("%s: counted %d times, want %d", w, got[w], n)
		}
	}
	entries := ledger(t, db)
	checkLedger(t, entries, int64(lines))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	// An undisturbed run over the same ledger gives the same bytes, whatever the number of cores.
	for _, procs := range []string{"1", "2", "16"} {
		out, err := exec.Command(bin, "replay", file, "--data", data, "--verify", "--procs", procs).CombinedOutput()
		if err != nil || !strings.Contains(string(out), grouped(int64(lines))+" records: input, changes and final state equal") {
			t.Errorf("replay with %s procs: %v\n%s", procs, err, out)
		}
		t.Logf("procs %s: %s", procs, bytes.TrimSpace(out))
	}
	fromSavepoint(t, bin, file, data, got)
	t.Logf("%d lines, %d kills (%d between two commits with data waiting), %d batches", lines, kills, between, len(entries))
}

// fromSavepoint takes the savepoint elsewhere as an archive, runs on from there, and checks that the end is the same; so it
// is from an older txid than the savepoint's, run again from the ledger.
func fromSavepoint(t *testing.T, bin, file, data string, want map[string]int64) {
	t.Helper()
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(bin, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	check := func(data string) {
		t.Helper()
		run("run", file, "--data", data, "--until", "caught-up", "--listen", "off")
		db := openStore(t, filepath.Join(data, "words"), true)
		defer db.Close() //nolint:errcheck // nothing was written
		if got := counts(t, db); !maps.Equal(got, want) {
			t.Errorf("from %s: %d words, or other counts than the undisturbed run's %d", data, len(got), len(want))
		}
	}
	archive, other := filepath.Join(dir, "half.tar.zst"), filepath.Join(dir, "other")
	run("savepoint", "export", file, "half", archive, "--data", data)
	run("savepoint", "import", file, archive, "--data", other)
	run("savepoint", "restore", file, "half", "--data", other)
	check(other)
	older := filepath.Join(dir, "older")
	run("replay", file, "--data", data, "--into", older, "--to", "3")
	check(older)
	out := run("replay", file, "--data", other, "--verify")
	t.Logf("from the savepoint: %s", strings.TrimSpace(out))
}

// awaitWaiting waits until lines wait for the process that works in dir, and returns how many there are in all. While it waits, and for
// a moment longer, lines keep coming: if less than ahead are left of those that were allowed, as many more are.
func awaitWaiting(t *testing.T, dir string, ahead int64, allowed, acked *atomic.Int64) (had int64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		had = acked.Load()
		if allowed.Load() < had+ahead {
			allowed.Add(ahead)
		}
		c, err := server.Dial(dir)
		if err != nil {
			continue
		}
		st, err := c.Status(t.Context())
		c.Close()
		if err == nil && committed(st) < had {
			return acked.Load() // the answer may have taken its time
		}
	}
	t.Error("no lines wait within a minute")
	return had
}

// produce sends the lines at a limited rate, no more than are allowed so far, and counts those that the broker has
// acknowledged.
func produce(ctx context.Context, brokers []string, topic string, n, rate int, allowed, acked *atomic.Int64) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	var failed atomic.Pointer[error]
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	began, held := time.Now(), time.Duration(0) // held: while no more were allowed, which the rate doesn't make up for
	last := began
	for i := 0; i < n; {
		now := time.Now()
		due := int(float64(rate) * (now.Sub(began) - held).Seconds())
		if limit := int(allowed.Load()); due > limit {
			held += now.Sub(last)
			due = limit
		}
		last = now
		for ; i < min(due, n); i++ {
			cl.Produce(ctx, &kgo.Record{Value: []byte(line(i))}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Store(&err)
					return
				}
				acked.Add(1)
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func counts(t *testing.T, db *pebblestate.DB) map[string]int64 {
	t.Helper()
	snap, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close() //nolint:errcheck // nothing was written
	schema, err := query.Schema(snap, "counts")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	err = query.Rows(t.Context(), snap, schema, nil, func(row []value.Value) error {
		got[strings.Clone(row[0].Str())] = row[1].Int()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func ledger(t *testing.T, db *pebblestate.DB) []txstate.Entry {
	t.Helper()
	var all []txstate.Entry
	for e, err := range db.Store().Entries(t.Context(), 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// checkLedger asserts txids without a gap, ranges without gap or overlap, and that attempts rise from restart to
// restart.
func checkLedger(t *testing.T, entries []txstate.Entry, total int64) {
	t.Helper()
	next := map[batch.Partition]int64{}
	var done int64
	var last batch.Attempt
	for i, e := range entries {
		if e.Txid != batch.Txid(i+1) {
			t.Fatalf("entry %d has txid %d", i+1, e.Txid)
		}
		if e.Attempt.Epoch < last.Epoch {
			t.Errorf("txid %d has epoch %d after %d", e.Txid, e.Attempt.Epoch, last.Epoch)
		}
		last = e.Attempt
		for _, r := range e.Ranges {
			if r.Start != next[r.Partition] {
				t.Errorf("txid %d: %s begins at %d, the batch before ended at %d", e.Txid, r.Partition, r.Start, next[r.Partition])
			}
			next[r.Partition] = r.End
			done += r.Records
		}
	}
	if done != total {
		t.Errorf("the ledger holds %d records, want %d", done, total)
	}
}

// grouped writes a number as the commands do.
func grouped(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}
