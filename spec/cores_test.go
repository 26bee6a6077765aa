package spec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// coresPipeline has what a result could depend on by mistake: windows with late rows, a lookup, bad records that are
// skipped in several steps, and sums of floats, of two sources.
const coresPipeline = `
pipeline: cores
on_bad_record: skip
batch: {max_records: 7}
sources:
  views:
    file: {paths: [views-*.jsonl]}
    decode: json
    types: {at: timestamp}
    time: {field: at, lateness: 2s}
  buys:
    file: {paths: [buys.jsonl]}
    decode: json
    types: {at: timestamp}
    time: {field: at, lateness: 2s}
states:
  teams:
    static: {file: {paths: [teams.csv]}, decode: csv, key: user}
streams:
  windowed:
    from: [views, buys]
    steps:
      - window: {tumbling: 10s, retention: 20s}
      - group_by: [user]
      - aggregate: {n: count(), first: first(n), mean: avg(x)}
  by_team:
    from: views
    steps:
      - lookup: {state: teams, key: user, as: t}
      - set: {team: t.team, tenth: 100 / n}
      - group_by: [team]
      - aggregate: {n: count(), sum: sum(x), last: last(tenth)}
  per_batch:
    from: [views, buys]
    steps:
      - group_by: [user]
      - batch_aggregate: {n: count(), sum: sum(x), ns: collect(n), users: distinct(user)}
      - set: {share: 10 / (n - 1)}
  chained:
    from: [per_batch, views]
    steps:
      - set:
          k: n % 3
      - distinct: [k, user]
      - group_by: [k]
      - batch_aggregate: {users: count()}
      - aggregate: {n: count(), users: sum(users), most: max(k)}
  sketches:
    from: [per_batch, buys]
    steps:
      - group_by: [user]
      - aggregate:
          n: count()
          last: last_n(n, 3)
          best: top(n, 2, share)
          p90: quantile(n, 0.9)
          spread: variance(share)
          at: max_by(n, share)
          ns: distinct(n)
  all:
    from: [views, buys]
    steps:
      - filter: n > 3
      - group_by: [user]
      - aggregate: {n: count(), sum: sum(n), sum_x: sum(x)}
`

// writeCores writes the pipeline's files: rows out of order, some late, some that can't be decoded, some that a step fails on.
func writeCores(t *testing.T, dir string) {
	t.Helper()
	write := func(name string, lines []string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	users := []string{"ann", "bob", "cem", "dan", ""}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	files := map[string][]string{}
	for i := range 240 {
		name := fmt.Sprintf("views-%d.jsonl", i%3)
		if i%4 == 3 {
			name = "buys.jsonl"
		}
		at := start.Add(time.Duration(i) * time.Second)
		switch i % 13 {
		case 3:
			at = at.Add(-30 * time.Second)
		case 5:
			files[name] = append(files[name], `{"user":`)
			continue
		case 9:
			at = at.Add(1000 * time.Hour)
		}
		files[name] = append(files[name], fmt.Sprintf(`{"user":%q,"n":%d,"x":%g,"at":%q}`, users[i%len(users)], i%9, 1/float64(i+1), at.Format(time.RFC3339)))
	}
	for name, lines := range files { // order: each file by itself
		write(name, lines)
	}
	write("teams.csv", []string{"user,team", "ann,red", "bob,blue", "cem,red"})
}

// driven is what a pipeline's store holds after entries.
type driven struct {
	entries []txstate.Entry
	states  []pebblestate.StateDigest
}

func drive(t *testing.T, p *Pipeline, entries []txstate.Entry, procs, pending int) driven {
	t.Helper()
	ctx := t.Context()
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: dir, Pipeline: p.Name(), Shards: 16, CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	x := exec.New(exec.Config{Plan: pl, DB: db, Shards: db.Shards(), Procs: procs, Now: time.Now})
	if _, err = x.Open(ctx); err == nil {
		err = x.Drive(ctx, entries, pending)
	}
	if err := errors.Join(err, x.Close(context.WithoutCancel(ctx)), db.Close()); err != nil {
		t.Fatal(err)
	}
	return driven{ledger(t, p, dir), digests(t, p, dir)}
}

func atRest(t *testing.T, p *Pipeline, dir string) *pebblestate.DB {
	t.Helper()
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: dir, Pipeline: p.Name(), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func ledger(t *testing.T, p *Pipeline, dir string) (all []txstate.Entry) {
	t.Helper()
	db := atRest(t, p, dir)
	defer closing(t, db.Close)
	for e, err := range db.Store().Entries(t.Context(), 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func digests(t *testing.T, p *Pipeline, dir string) []pebblestate.StateDigest {
	t.Helper()
	db := atRest(t, p, dir)
	defer closing(t, db.Close)
	all, err := db.StateDigests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSameBytesOnAnyCores runs the same batches on any number of cores, with one and with several in flight: ledger and
// states are the same, byte for byte.
func TestSameBytesOnAnyCores(t *testing.T) {
	src := t.TempDir()
	writeCores(t, src)
	file := filepath.Join(src, "cores.yaml")
	if err := os.WriteFile(file, []byte(coresPipeline), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Load(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	// The ranges are those of a run; the clock is made to move, so that windows close and expire.
	dir := t.TempDir()
	drain(t, p, dir, 2)
	entries := ledger(t, p, dir)
	for i := range entries {
		entries[i].Time = entries[i].Time.Add(time.Duration(i) * 15 * time.Second)
		entries[i].Chain = 0 // not a record to be held against
	}
	if len(entries) < 8 {
		t.Fatalf("only %d batches", len(entries))
	}

	want := drive(t, p, entries, 1, 1)
	rows := map[string]int64{}
	for _, s := range want.states {
		rows[s.State] = s.Rows
	}
	var n txstate.Counts
	for _, e := range want.entries {
		n.Rejected, n.Late, n.Future = n.Rejected+e.Counts.Rejected, n.Late+e.Counts.Late, n.Future+e.Counts.Future
	}
	if n.Rejected == 0 || n.Late == 0 || n.Future == 0 || rows["_rejected"] != n.Rejected+n.Late+n.Future {
		t.Errorf("turned away were %+v, kept are %d", n, rows["_rejected"])
	}
	for _, s := range []string{"windowed", "_windows", "by_team", "chained", "sketches", "all"} {
		if rows[s] == 0 {
			t.Errorf("state %s is empty", s)
		}
	}

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 2, 16} {
		runtime.GOMAXPROCS(procs)
		for _, pending := range []int{1, 4} {
			got := drive(t, p, entries, procs, pending)
			when := fmt.Sprintf("%d procs, %d in flight", procs, pending)
			if !slices.Equal(got.states, want.states) {
				t.Errorf("%s: states\n%+v, want\n%+v", when, got.states, want.states)
			}
			if len(got.entries) != len(want.entries) {
				t.Fatalf("%s: %d batches, want %d", when, len(got.entries), len(want.entries))
			}
			for i := range got.entries {
				g, w := &got.entries[i], &want.entries[i]
				if g.Chain != w.Chain || g.Counts != w.Counts || !slices.Equal(g.Watermarks, w.Watermarks) {
					t.Errorf("%s: txid %d is\n%+v, want\n%+v", when, batch.Txid(i+1), g, w)
				}
			}
		}
	}
}

// TestFirstBadRecordOnAnyCores stops at the same bad record on any number of cores: the first of its batch, in the order of
// partitions and offsets, whatever step it fails in.
func TestFirstBadRecordOnAnyCores(t *testing.T) {
	src := t.TempDir()
	writeCores(t, src)
	file := filepath.Join(src, "cores.yaml")
	text := strings.NewReplacer("on_bad_record: skip", "on_bad_record: stop", "max_records: 7", "max_records: 50").Replace(coresPipeline)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Load(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	// One batch, in which every partition has a bad record.
	entry := txstate.Entry{Txid: 1, Attempt: batch.Attempt{Epoch: 1, N: 1}, Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Seed: 1}
	var want string
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 2, 16} {
		runtime.GOMAXPROCS(procs)
		for range 5 {
			db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: t.TempDir(), Pipeline: p.Name(), Shards: 16, CreateIfMissing: true})
			if err != nil {
				t.Fatal(err)
			}
			x := exec.New(exec.Config{Plan: pl, DB: db, Shards: db.Shards(), Procs: procs, Now: time.Now})
			if _, err := x.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			if entry.Ranges == nil {
				ends, err := x.Ends(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for part := range ends { // order: sorted below
					entry.Ranges = append(entry.Ranges, txstate.RangeEntry{Range: batch.Range{Partition: part, End: 20, LeaderEpoch: batch.NoEpoch}})
				}
				slices.SortFunc(entry.Ranges, func(a, b txstate.RangeEntry) int { return a.Compare(b.Partition) })
			}
			err = x.Drive(t.Context(), []txstate.Entry{entry}, 1)
			if cerr := errors.Join(x.Close(context.WithoutCancel(t.Context())), db.Close()); cerr != nil {
				t.Fatal(cerr)
			}
			var e *batch.Error
			if !errors.As(err, &e) || e.Code != batch.CodeBadRecord || e.Partition != entry.Ranges[0].Partition {
				t.Fatalf("%d procs: stopped by %v, want the first bad record of %v", procs, err, entry.Ranges[0])
			}
			if want == "" {
				want = err.Error()
			}
			if err.Error() != want {
				t.Errorf("%d procs: stopped by %v, want %s", procs, err, want)
			}
		}
	}
}
