package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/savepoint"
)

// saved is a job that has run and has a savepoint s, as of its first batches, and went on.
func saved(t *testing.T) *job {
	t.Helper()
	j := newJob(t, nil, `pipeline: saved
sources:
  lines:
    file: {paths: [a.txt]}
    decode: string
streams:
  counts:
    from: lines
    steps:
      - group_by: [value]
      - aggregate: {n: count()}
`)
	j.put("a.txt", "a\nb\n")
	j.run(0)
	j.must(0, "savepoint", "create", "--name", "s")
	j.put("a.txt", "a\nb\na\n")
	j.run(0)
	j.holds("counts", "a,2", "b,1")
	return j
}

// must runs a command of two words and checks its exit code.
func (j *job) must(want int, command, sub string, rest ...string) string {
	j.t.Helper()
	var stdout, stderr lockedBuffer
	args := slices.Concat([]string{command, sub, j.file}, rest, []string{"--data", j.data})
	if code := daemon.Execute(j.t.Context(), args, &stdout, &stderr, j.goes...); code != want {
		j.t.Fatalf("%s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, stdout.String(), stderr.String())
	}
	return stderr.String()
}

// beside lists what lies beside the job's data directory under its name.
func (j *job) beside() []string {
	j.t.Helper()
	found, err := filepath.Glob(j.store() + ".*")
	if err != nil {
		j.t.Fatal(err)
	}
	return found
}

func (j *job) epoch(dir string) batch.Epoch {
	j.t.Helper()
	db, err := pebblestate.Open(j.t.Context(), pebblestate.Options{Dir: dir, ReadOnly: true})
	if err != nil {
		j.t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // nothing was written
	snap, err := db.Store().Load(j.t.Context())
	if err != nil {
		j.t.Fatal(err)
	}
	return snap.Epoch
}

// TestRestoreInUse: a directory in which somebody works isn't moved, although nothing answers at its socket yet.
func TestRestoreInUse(t *testing.T) {
	t.Parallel()
	j := saved(t)
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: j.store(), Pipeline: "saved"})
	if err != nil {
		t.Fatal(err)
	}
	j.tells(j.must(1, "savepoint", "restore", "s", "--replace"), "is in use by process")
	if found := j.beside(); len(found) > 0 {
		t.Errorf("there is %v beside the directory", found)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	j.holds("counts", "a,2", "b,1")
	was := j.epoch(j.store())
	j.must(0, "savepoint", "restore", "s", "--replace")
	j.holds("counts", "a,1", "b,1")
	if found := j.beside(); len(found) != 1 || !strings.HasPrefix(found[0], j.store()+".replaced-") || !pebblestate.Exists(found[0]) {
		t.Errorf("there is %v beside the directory", found)
	}
	if got := j.epoch(j.store()); got < was {
		t.Errorf("epoch %d, that of what was replaced is %d", got, was)
	}
	j.run(0)
	j.holds("counts", "a,2", "b,1")
}

// TestRestoreInterrupted: whatever moment a restore ends at, nothing begins anew in the directory's place and nothing is lost.
func TestRestoreInterrupted(t *testing.T) {
	t.Parallel()
	move := func(j *job, from, to string) {
		j.t.Helper()
		if err := os.Rename(j.store()+from, j.store()+to); err != nil {
			j.t.Fatal(err)
		}
	}
	refused := func(j *job, texts ...string) {
		j.t.Helper()
		j.refused(4, append(texts, "holds no data")...)
		j.put("positions.csv", "topic,partition,next\na.txt,0,1\n")
		errs := j.must(1, "offsets", "import", "--from", "file", "--path", filepath.Join(j.dir, "positions.csv"), "--yes")
		j.tells(errs, append(texts, "holds no data")...)
		if pebblestate.Exists(j.store()) {
			j.t.Error("a store was made")
		}
	}

	t.Run("before the copy is in place", func(t *testing.T) {
		t.Parallel()
		j := saved(t)
		was := j.epoch(j.store())
		j.must(0, "savepoint", "restore", "s", "--replace")
		aside := strings.TrimPrefix(j.beside()[0], j.store())
		move(j, "", ".restored")
		refused(j, j.store()+".restored", j.store()+aside, "move the one that the pipeline is to go on from")
		// Going back.
		move(j, aside, "")
		j.run(0)
		j.holds("counts", "a,2", "b,1")
		// Going on: what was whole is kept.
		move(j, "", aside)
		j.tells(j.must(0, "savepoint", "restore", "s"), ".replaced-")
		j.holds("counts", "a,1", "b,1")
		if found := j.beside(); len(found) != 2 {
			t.Errorf("there is %v beside the directory", found)
		}
		if got := j.epoch(j.store()); got < was {
			t.Errorf("epoch %d, that of what lies aside is %d", got, was)
		}
	})
	t.Run("before the copy is whole", func(t *testing.T) {
		t.Parallel()
		j := saved(t)
		if err := os.RemoveAll(j.store()); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(j.store()+".restoring.partial", 0o750); err != nil {
			t.Fatal(err)
		}
		refused(j, j.store()+".restoring.partial", "restore the savepoint again")
		j.must(0, "savepoint", "restore", "s")
		j.holds("counts", "a,1", "b,1")
		if found := j.beside(); len(found) > 0 {
			t.Errorf("there is %v beside the directory", found)
		}
	})
	t.Run("before the replaced has its name", func(t *testing.T) {
		t.Parallel()
		j := saved(t)
		j.must(0, "savepoint", "restore", "s", "--replace")
		move(j, strings.TrimPrefix(j.beside()[0], j.store()), ".restored")
		j.run(0)
		j.must(0, "savepoint", "restore", "s", "--replace")
		if found := j.beside(); len(found) != 2 || !pebblestate.Exists(found[0]) || !pebblestate.Exists(found[1]) {
			t.Errorf("there is %v beside the directory", found)
		}
	})
}

// TestSavepointCommandsSweep: without a schedule, too, what a killed command has left goes once nobody has written to it for long.
func TestSavepointCommandsSweep(t *testing.T) {
	dir := t.TempDir()
	yaml, data, place := filepath.Join(dir, "made.yaml"), filepath.Join(dir, "data"), filepath.Join(dir, "place")
	writeFile(t, yaml, "pipeline: made\nsources:\n  words:\n    generate: {kind: words, count: 50}\nstreams:\n  total:\n    from: words\n    steps:\n      - aggregate: {n: count()}\n")
	command(t, 0, "run", yaml, "--data", data, "--until", "caught-up", "--listen", "off")
	left := func(name string, age time.Duration) string {
		t.Helper()
		path := filepath.Join(place, "made", name)
		file := filepath.Join(path, "store", "FORMAT")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, file, "")
		for _, p := range []string{file, filepath.Dir(file), path} {
			if err := os.Chtimes(p, time.Time{}, time.Now().Add(-age)); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	archive := filepath.Join(dir, "a.tar.zst")
	for i, args := range [][]string{
		{"savepoint", "create", yaml, "--data", data, "--place", place, "--name", "first"},
		{"savepoint", "import", yaml, archive, "--data", data, "--place", place, "--name", "second"},
	} {
		old, fresh := left(fmt.Sprintf("old.%d.partial", i), 2*savepoint.LeftBehind), left(fmt.Sprintf("fresh.%d.partial", i), time.Hour)
		command(t, 0, args...)
		if _, err := os.Stat(old); err == nil {
			t.Errorf("%v: %s is still there", args, old)
		}
		if _, err := os.Stat(fresh); err != nil {
			t.Errorf("%v: what somebody may be writing is gone: %v", args, err)
		}
		if i == 0 {
			command(t, 0, "savepoint", "export", yaml, "first", archive, "--data", data, "--place", place)
		}
	}
}
