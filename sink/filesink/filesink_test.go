package filesink

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/sinktest"
)

// folder is where sinks write.
type folder struct {
	t   *testing.T
	dir string
}

func (f folder) Open() (sink.Sink, error) {
	return New(Config{Pipeline: "p", Sink: "out", Dir: filepath.Join(f.dir, "a", "b")})
}

func (f folder) Records(context.Context) ([]sink.Record, error) {
	names, err := filepath.Glob(filepath.Join(f.dir, "a", "b", "out-*.jsonl"))
	if err != nil {
		return nil, err
	}
	var all []sink.Record
	for _, name := range names { // sorted
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		lines := bytes.Split(b, []byte("\n"))
		for _, l := range lines[:len(lines)-1] {
			all = append(all, sink.Record{Value: l})
		}
	}
	return all, nil
}

// claimed returns a sink that has claimed the folder for an epoch.
func (f folder) claimed(epoch batch.Epoch) *Sink {
	f.t.Helper()
	k, err := f.Open()
	must(f.t, err)
	_, err = k.Claim(f.t.Context(), epoch)
	must(f.t, err)
	return k.(*Sink)
}

func TestConformance(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Target { return folder{t, t.TempDir()} }, sinktest.ValuesOnly())
}

func out(txid batch.Txid, epoch batch.Epoch, values ...string) *sink.Output {
	o := &sink.Output{Txid: txid, Epoch: epoch, Chain: uint64(txid), Time: time.Unix(1, 0), Count: int64(len(values))}
	var recs []sink.Record
	for i, v := range values {
		recs = append(recs, sink.Record{Offset: int64(10 + i), Value: []byte(v)})
	}
	o.Parts = []sink.Part{{Partition: batch.Partition{Source: "in", Topic: "t", Number: 2}, Records: recs}}
	return o
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNamingCutOff stops between the step that decides and the renaming.
func TestNamingCutOff(t *testing.T) {
	f := folder{t, t.TempDir()}
	s := f.claimed(1)
	must(t, s.Prepare(t.Context(), out(3, 1, "a")))
	must(t, s.journal.take(s.at, s.part))
	if recs, err := f.Records(t.Context()); err != nil || len(recs) != 0 {
		t.Fatalf("%d records, %v", len(recs), err)
	}
	next, err := f.Open()
	must(t, err)
	p, err := next.Claim(t.Context(), 2)
	must(t, err)
	if p != (sink.Progress{Txid: 3, Epoch: 2, Chain: 3}) {
		t.Errorf("progress %+v", p)
	}
	if recs, err := f.Records(t.Context()); err != nil || len(recs) != 1 {
		t.Errorf("%d records, %v", len(recs), err)
	}
}

// TestLongSleep wakes a zombie when the step that it was about to take has been trimmed.
func TestLongSleep(t *testing.T) {
	f := folder{t, t.TempDir()}
	old := f.claimed(1)
	must(t, old.Prepare(t.Context(), out(1, 1, "zombie")))
	now := f.claimed(2)
	for txid := batch.Txid(1); txid <= 3*kept; txid++ {
		must(t, now.Prepare(t.Context(), out(txid, 2, "b")))
		must(t, now.Commit(t.Context()))
	}
	if ns, err := now.journal.numbers(); err != nil || len(ns) != kept || ns[0] < 3 {
		t.Fatalf("steps %v, %v", ns, err)
	}
	if err := old.Commit(t.Context()); err == nil {
		t.Fatal("the zombie's commit succeeded")
	}
	recs, err := f.Records(t.Context())
	must(t, err)
	for _, r := range recs {
		if string(r.Value) != "b" {
			t.Fatalf("a zombie's record is seen: %q", r.Value)
		}
	}
	must(t, now.Prepare(t.Context(), out(3*kept+1, 2, "b")))
	must(t, now.Commit(t.Context()))
}

func TestLeftoversAreRemoved(t *testing.T) {
	f := folder{t, t.TempDir()}
	k := f.claimed(1)
	must(t, k.Prepare(t.Context(), out(1, 1, "a")))
	next := f.claimed(2)
	if left, err := filepath.Glob(filepath.Join(next.journal.dir, "*.part")); err != nil || len(left) != 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestSweepOfAZombie lets a process that was frozen within its claim go on once another has taken over and written a batch aside.
func TestSweepOfAZombie(t *testing.T) {
	f := folder{t, t.TempDir()}
	old := f.claimed(1)
	now := f.claimed(2)
	must(t, now.Prepare(t.Context(), out(1, 2, "a")))
	must(t, old.sweep(1))
	must(t, now.Commit(t.Context()))
	if recs, err := f.Records(t.Context()); err != nil || len(recs) != 1 {
		t.Errorf("%d records, %v", len(recs), err)
	}
}

// TestPartIsGone removes what was written aside before it gets its name.
func TestPartIsGone(t *testing.T) {
	f := folder{t, t.TempDir()}
	k := f.claimed(1)
	must(t, k.Prepare(t.Context(), out(1, 1, "a")))
	must(t, os.Remove(k.partName(k.part, 0)))
	if err := k.Commit(t.Context()); err == nil || !strings.Contains(err.Error(), "txid 1") {
		t.Errorf("a batch whose file is gone: %v", err)
	}
}

// TestStepFromBefore finishes the naming of a batch whose step lists no files, as those of earlier versions.
func TestStepFromBefore(t *testing.T) {
	f := folder{t, t.TempDir()}
	s := f.claimed(1)
	must(t, s.Prepare(t.Context(), out(3, 1, "a")))
	s.part.Files = nil
	must(t, s.journal.take(s.at, s.part))
	next, err := New(Config{Pipeline: "p", Sink: "out", Dir: s.cfg.Dir, Format: Format{Form: FormCSV, Columns: []Column{{Name: "v"}}}})
	must(t, err)
	_, err = next.Claim(t.Context(), 2)
	must(t, err)
	if recs, err := f.Records(t.Context()); err != nil || len(recs) != 1 {
		t.Errorf("%d records, %v", len(recs), err)
	}
}

func TestGarbledJournal(t *testing.T) {
	for _, garbage := range []string{"", "{", `{"tridentd":1,"step":7}`, `{"tridentd":1,"step":1,"chain":"x"}`} {
		f := folder{t, t.TempDir()}
		k := f.claimed(1)
		must(t, os.WriteFile(k.journal.path(1), []byte(garbage), 0o600))
		next, err := f.Open()
		must(t, err)
		_, err = next.Progress(t.Context())
		if batch.CodeOf(err) != batch.CodeStoreDamaged || batch.KindOf(err) != batch.Permanent {
			t.Errorf("%q: %v", garbage, err)
		}
	}
}

func TestLineBreak(t *testing.T) {
	f := folder{t, t.TempDir()}
	k := f.claimed(1)
	err := k.Prepare(t.Context(), out(1, 1, "a", "b\nc"))
	if e, ok := errors.AsType[*batch.Error](err); !ok || e.Code != batch.CodeBadRecord || e.Offset != 11 || e.Partition.Number != 2 {
		t.Errorf("a value of two lines: %v", err)
	}
}

func TestNoFolder(t *testing.T) {
	if _, err := New(Config{Pipeline: "p", Sink: "s"}); err == nil || !strings.Contains(err.Error(), "dir") {
		t.Errorf("no folder: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	s, err := New(Config{Pipeline: "p", Sink: "s", Dir: file})
	must(t, err)
	if _, err := s.Claim(t.Context(), 1); err == nil || batch.KindOf(err) != batch.Transient {
		t.Errorf("a file where the folder should be: %v", err)
	}
}
