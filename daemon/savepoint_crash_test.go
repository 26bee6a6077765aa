//go:build crash

package daemon_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/savepoint"
)

// saving is a pipeline over made-up words in processes of its own, whose savepoints are taken, moved and restored.
type saving struct {
	t         *testing.T
	dir       string
	bin, file string
	quick     string // as file, but its input doesn't take its time
	rng       *rand.Rand
	kills     int
	lines     int64
	// Of the run that nobody disturbs.
	want []pebblestate.StateDigest
}

// newSaving runs the pipeline undisturbed. It has some settings more, and so many lines at a rate, or ten times as many. The rate is that
// of the runs that are disturbed: what is done to them must find them at work, however slow the machine is.
func newSaving(t *testing.T, lines int64, rate int, more string) *saving {
	t.Helper()
	s := &saving{t: t, dir: t.TempDir(), rng: rand.New(rand.NewPCG(20261202, 1)), kills: 6, lines: lines}
	if testenv.Full() {
		s.lines, s.kills = 10*s.lines, 10*s.kills
	}
	s.bin, s.file, s.quick = build(t, s.dir), filepath.Join(s.dir, "saved.yaml"), filepath.Join(s.dir, "quick.yaml")
	text := fmt.Sprintf(`pipeline: saved
batch: {max_records: 500, interval: 10ms}
%s
sources:
  lines:
    generate: {kind: words, count: %d, partitions: 4RATE}
streams:
  counts:
    from: lines
    steps:
      - flat_map:
          word: split(lower(value), " ")
      - group_by: [word]
      - aggregate: {n: count(), longest: max(len(word))}
  total:
    from: lines
    steps:
      - aggregate: {n: count()}
`, more, s.lines)
	write(t, s.file, strings.Replace(text, "RATE", fmt.Sprintf(", rate: %d", rate), 1))
	write(t, s.quick, strings.Replace(text, "RATE", "", 1))
	s.finish("undisturbed")
	s.want = s.digests("undisturbed")
	if len(s.want) != 2 || s.want[1].Rows != 1 {
		t.Fatalf("the undisturbed run holds %v", s.want)
	}
	return s
}

func (s *saving) data(name string) string  { return filepath.Join(s.dir, name) }
func (s *saving) store(name string) string { return filepath.Join(s.dir, name, "saved") }

// do runs a command to its end.
func (s *saving) do(args ...string) string {
	s.t.Helper()
	out, err := exec.Command(s.bin, args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// finish runs the pipeline in a directory to the end of its input.
func (s *saving) finish(name string) {
	s.t.Helper()
	s.do("run", s.quick, "--data", s.data(name), "--until", "caught-up", "--listen", "off")
}

func (s *saving) digests(name string) []pebblestate.StateDigest {
	s.t.Helper()
	db := openStore(s.t, s.store(name), true)
	defer db.Close() //nolint:errcheck // nothing was written
	all, err := db.StateDigests(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

func (s *saving) txid(name string) batch.Txid {
	s.t.Helper()
	txid, _ := progressOf(s.t, s.store(name))
	return txid
}

// same checks that the states in a directory are those of the undisturbed run, and that the ledger tells how they came about.
func (s *saving) same(name string) {
	s.t.Helper()
	if got := s.digests(name); !slices.Equal(got, s.want) {
		s.t.Errorf("%s holds %v, the undisturbed run %v", name, got, s.want)
	}
	out := s.do("replay", s.file, "--data", s.data(name), "--verify")
	if !strings.Contains(out, "final state equal (byte for byte)") {
		s.t.Errorf("%s: replay: %s", name, out)
	}
}

// killed runs a command that is killed at a moment of its first while, and tells whether it had ended well before.
func (s *saving) killed(while time.Duration, args ...string) (ended bool) {
	s.t.Helper()
	cmd := exec.Command(s.bin, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			s.t.Fatalf("%s: %v", strings.Join(args, " "), err)
		}
		return true
	case <-time.After(time.Duration(s.rng.Int64N(int64(while)))):
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatal(err)
	}
	return <-done == nil
}

// took runs a command and returns for how long.
func (s *saving) took(args ...string) time.Duration {
	s.t.Helper()
	began := time.Now()
	s.do(args...)
	return time.Since(began)
}

// underLoad runs the pipeline in a directory, takes savepoints while it works, and kills it.
func (s *saving) underLoad(name string, savepoints ...string) {
	s.t.Helper()
	cmd := start(s.t, s.bin, s.file, s.data(name))
	var last batch.Txid
	for _, sp := range savepoints {
		awaitCommit(s.t, s.store(name), last+20)
		s.do("savepoint", "create", s.file, "--data", s.data(name), "--name", sp)
		info, err := savepoint.At(filepath.Join(s.data(name), "savepoints"), "saved").Load(s.t.Context(), sp)
		if err != nil || info.Txid <= last {
			s.t.Fatalf("savepoint %s is of txid %d behind %d, %v", sp, info.Txid, last, err)
		}
		last = info.Txid
	}
	awaitCommit(s.t, s.store(name), last+20)
	if err := cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	cmd.Wait()                                                                       //nolint:errcheck // it was killed
	if err := os.Remove(filepath.Join(s.store(name), "tridentd.sock")); err != nil { // which can't be copied
		s.t.Fatal(err)
	}
}

// wholeOrNone checks that each savepoint that is listed in a directory is whole.
func (s *saving) wholeOrNone(name string) (found int) {
	s.t.Helper()
	p := savepoint.At(filepath.Join(s.data(name), "savepoints"), "saved")
	all, err := p.List(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, i := range all {
		if _, err := p.Verify(s.t.Context(), i.Name); err != nil {
			s.t.Errorf("a kill has left a savepoint that isn't whole: %v", err)
		}
	}
	return len(all)
}

// TestSavepointElsewhere: a savepoint taken under load, exported; the directory is lost, the archive is imported and restored on
// another machine by commands that are killed at random, and the run there ends as the one that nobody disturbed.
func TestSavepointElsewhere(t *testing.T) {
	t.Parallel()
	s := newSaving(t, 40_000, 2000, "")
	s.underLoad("lost", "half")
	archive := filepath.Join(s.dir, "half.tar.zst")
	export := []string{"savepoint", "export", s.file, "half", archive, "--data", s.data("lost")}
	while := s.took(export...)
	for range s.kills {
		if err := os.Remove(archive); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if !s.killed(while, export...) {
			if _, err := os.Stat(archive); err == nil { // it had its name already
				s.do("savepoint", "import", s.file, archive, "--data", s.data("unused"), "--place", filepath.Join(s.dir, fmt.Sprint("place-", s.rng.Uint64())))
			}
		}
	}
	s.do(export...)
	if err := os.RemoveAll(s.data("lost")); err != nil {
		t.Fatal(err)
	}

	imports := []string{"savepoint", "import", s.file, archive, "--data", s.data("new")}
	while = s.took("savepoint", "import", s.file, archive, "--data", s.data("timed"))
	between := 0
	for range s.kills {
		if s.killed(while, imports...) || s.wholeOrNone("new") > 0 {
			s.do("savepoint", "remove", s.file, "half", "--data", s.data("new"))
			continue
		}
		between++
	}
	t.Logf("%d of %d imports were killed before there was a savepoint", between, s.kills)
	s.do(imports...)

	restore := []string{"savepoint", "restore", s.file, "half", "--data", s.data("new")}
	while = s.took("savepoint", "restore", s.file, "half", "--data", s.data("timed"))
	between = 0
	for range s.kills {
		ended := s.killed(while, restore...)
		if pebblestate.Exists(s.store("new")) {
			if got, want := s.digests("new"), s.digests("timed"); !slices.Equal(got, want) {
				t.Errorf("a killed restore made %v, a whole one %v", got, want)
			}
			if err := os.RemoveAll(s.store("new")); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if ended {
			t.Error("a restore that ended well made nothing")
		}
		between++
	}
	t.Logf("%d of %d restores were killed before there was a store", between, s.kills)
	s.do(restore...)
	s.finish("new")
	s.same("new")
}

// TestSavepointBack: a pipeline goes back to an older txid than it had come to, by a savepoint and the ledger behind it, in commands
// that are killed at random: whatever the moment its directory holds all of the one or all of the other, and the run from there
// ends as the one that nobody disturbed.
func TestSavepointBack(t *testing.T) {
	t.Parallel()
	s := newSaving(t, 40_000, 2000, "")
	s.underLoad("data", "first", "second")
	infos, err := savepoint.At(filepath.Join(s.data("data"), "savepoints"), "saved").List(t.Context())
	if err != nil || len(infos) != 2 {
		t.Fatalf("%v, %v", infos, err)
	}
	had, to := s.txid("data"), (infos[0].Txid+infos[1].Txid)/2
	if had <= infos[1].Txid {
		t.Fatalf("the killed run had come to txid %d, the second savepoint is of %d", had, infos[1].Txid)
	}
	for _, dir := range []string{"timed", "second"} {
		if err := os.CopyFS(s.data(dir), os.DirFS(s.data("data"))); err != nil {
			t.Fatal(err)
		}
	}
	back := func(dir string) []string {
		return []string{"savepoint", "restore", s.file, "first", "--data", s.data(dir), "--replace", "--to-txid", fmt.Sprint(to)}
	}
	while := s.took(back("timed")...)
	if got := s.txid("timed"); got != to {
		t.Fatalf("restored to txid %d, want %d", got, to)
	}
	want := s.digests("timed")
	between := 0
	for range s.kills {
		if !s.killed(while, back("data")...) {
			between++
		}
		switch got := s.txid("data"); {
		case got == to:
			if d := s.digests("data"); !slices.Equal(d, want) {
				t.Fatalf("a killed restore made %v, a whole one %v", d, want)
			}
			// Again from where it had been: what was replaced lies beside.
			aside, err := filepath.Glob(s.store("data") + ".re*")
			if err != nil || len(aside) == 0 {
				t.Fatalf("what was replaced isn't kept: %v, %v", aside, err)
			}
			for _, dir := range append(aside, s.store("data")) {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.CopyFS(s.store("data"), os.DirFS(s.store("second"))); err != nil {
				t.Fatal(err)
			}
		case got != had:
			t.Fatalf("the directory is at txid %d: it was at %d, and was to be at %d", got, had, to)
		}
	}
	t.Logf("%d of %d restores were killed before their end", between, s.kills)
	s.do(back("data")...)
	if got := s.txid("data"); got != to {
		t.Fatalf("restored to txid %d, want %d", got, to)
	}
	s.finish("data")
	s.same("data")
}

// TestSavepointUpload kills the making of savepoints in a bucket of files, and the run that makes them by schedule: each that is
// listed is whole.
func TestSavepointUpload(t *testing.T) {
	t.Parallel()
	bucket := "file://" + filepath.ToSlash(t.TempDir())
	s := newSaving(t, 40_000, 2000, fmt.Sprintf("savepoints: {to: %q, every: 150ms, keep: 3}", bucket))
	check := func() {
		t.Helper()
		out := s.do("savepoint", "list", s.file, "--data", s.data("data"), "--format", "csv")
		for row := range strings.Lines(out) {
			if name, _, _ := strings.Cut(row, ","); name != "name" {
				s.do("savepoint", "verify", s.file, name, "--data", s.data("data"))
			}
		}
	}
	between := 0
	for i := range s.kills {
		cmd := start(t, s.bin, s.file, s.data("data"))
		awaitCommit(t, s.store("data"), batch.Txid(20*i))
		if !s.killed(200*time.Millisecond, "savepoint", "create", s.file, "--data", s.data("data"), "--name", fmt.Sprint("hand-", i)) {
			between++
		}
		time.Sleep(time.Duration(s.rng.IntN(300)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() //nolint:errcheck // it was killed
		check()
	}
	t.Logf("%d of %d were killed before their end", between, s.kills)
	s.finish("data")
	s.same("data")
	check()
	if left, err := filepath.Glob(filepath.Join(s.store("data"), "copy-*")); err != nil || len(left) > 1 {
		t.Errorf("copies of killed processes are left: %v, %v", left, err) // the last killed one's may be, if its number is somebody's
	}
}
