package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// run is an opened emitter and where each file stands.
type run struct {
	t  fataler
	em *Emitter
	at map[batch.Partition]batch.Position
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// begin opens an emitter at the saved positions and admits what is new.
func begin(t fataler, em *Emitter, saved map[batch.Partition]batch.Position) (*run, error) {
	t.Helper()
	var ps []batch.Position
	for _, p := range saved {
		ps = append(ps, p)
	}
	r := &run{t: t, em: em, at: map[batch.Partition]batch.Position{}}
	maps.Copy(r.at, saved)
	starts, err := em.Open(context.Background(), ps, len(ps) == 0)
	if err != nil {
		return r, errors.Join(err, em.Close(context.Background()))
	}
	r.admit(starts)
	return r, nil
}

func mustBegin(t fataler, em *Emitter, saved map[batch.Partition]batch.Position) *run {
	t.Helper()
	r, err := begin(t, em, saved)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return r
}

func (r *run) admit(ps []batch.Position) {
	for _, p := range ps {
		r.at[p.Partition] = p
	}
	r.em.Admit(ps)
}

func (r *run) close() {
	r.t.Helper()
	if err := r.em.Close(context.Background()); err != nil {
		r.t.Fatalf("Close: %v", err)
	}
}

func part(topic string) batch.Partition { return batch.Partition{Source: "src", Topic: topic} }

// until waits for cond.
func (r *run) until(what string, cond func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("no %s; status %+v, error %v", what, r.em.Status(), r.em.Err())
		}
		select {
		case <-r.em.Ready():
		case <-time.After(time.Millisecond):
		}
	}
}

// batchOf plans, reads and commits the next range of a file.
func (r *run) batchOf(p batch.Partition, limit emitter.Limit) (texts []string, fields []string) {
	r.t.Helper()
	var rg batch.Range
	r.until("range of "+p.Topic, func() (ok bool) { rg, ok = r.em.Plan(p, r.at[p].Next, limit); return ok })
	texts, fields = r.read(rg)
	r.em.Ack(1, []batch.Range{rg})
	r.at[p] = rg.Position()
	return texts, fields
}

func (r *run) read(rg batch.Range) (texts, fields []string) {
	r.t.Helper()
	next := rg.Start
	if err := r.em.Read(context.Background(), rg, func(c *batch.Chunk) error {
		for _, rec := range c.Records {
			if rec.Offset != next {
				r.t.Fatalf("%v: record %d where %d is due", rg, rec.Offset, next)
			}
			next++
			texts = append(texts, string(rec.Value))
		}
		fields = c.Fields
		return nil
	}); err != nil {
		r.t.Fatalf("Read(%v): %v", rg, err)
	}
	if next != rg.End {
		r.t.Fatalf("%v ended at record %d", rg, next)
	}
	return texts, fields
}

// take commits exactly n records of a file.
func (r *run) take(p batch.Partition, n int) (texts []string) {
	r.t.Helper()
	for len(texts) < n {
		more, _ := r.batchOf(p, emitter.Limit{Records: int64(n - len(texts))})
		texts = append(texts, more...)
	}
	return texts
}

func (r *run) want(p batch.Partition, want ...string) {
	r.t.Helper()
	if got := r.take(p, len(want)); !slices.Equal(got, want) {
		r.t.Fatalf("%s: %q, want %q", p.Topic, got, want)
	}
}

// idle waits for the end of a file and checks that nothing more is to be planned.
func (r *run) idle(p batch.Partition) {
	r.t.Helper()
	r.until("end of "+p.Topic, func() bool {
		for _, st := range r.em.Status() {
			if st.Partition == p {
				return st.AtEnd
			}
		}
		return false
	})
	if rg, ok := r.em.Plan(p, r.at[p].Next, emitter.Limit{}); ok {
		r.t.Fatalf("planned %v behind the end", rg)
	}
}

func wantError(t *testing.T, err error, code batch.Code, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", code)
	}
	if batch.KindOf(err) != batch.Permanent || batch.CodeOf(err) != code {
		t.Fatalf("%v %v, want permanent %v: %v", batch.KindOf(err), batch.CodeOf(err), code, err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Fatalf("error lacks %q: %v", p, err)
		}
	}
}

func TestLastLineWithoutEnd(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	appendFile(t, path, "a\nb\nc")
	p := part("log")
	r := mustBegin(t, open(t, dir, emitter.Lines, "log"), nil)
	r.want(p, "a", "b")
	r.idle(p) // c may still be in the writing
	appendFile(t, path, "d\ne")
	r.want(p, "cd")
	r.idle(p)
	ends, err := r.em.Ends(context.Background())
	if err != nil || ends[p] != 4 {
		t.Fatalf("Ends: %v, %v", ends, err)
	}
	r.want(p, "e") // the run takes the file as it is
	r.idle(p)
	saved := maps.Clone(r.at)
	appendFile(t, path, "\r\nf\n") // the line end comes late: the record stays as it was
	r.want(p, "f")
	r.close()

	// Read again with the line end in place, and at a restart.
	r = mustBegin(t, open(t, dir, emitter.Lines, "log"), saved)
	if texts, _ := r.read(batch.Range{Partition: p, Start: 2, End: 4, Identity: saved[p].Identity}); !slices.Equal(texts, []string{"cd", "e"}) {
		t.Errorf("read again: %q", texts)
	}
	r.want(p, "f")
	r.close()
}

func TestTakenLineGoesOn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	appendFile(t, path, "a\nb")
	p := part("log")
	r := mustBegin(t, open(t, dir, emitter.Lines, "log"), nil)
	if _, err := r.em.Ends(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.want(p, "a", "b")
	r.idle(p)
	appendFile(t, path, "c\n")
	r.until("error", func() bool { return r.em.Err() != nil })
	wantError(t, r.em.Err(), batch.CodeFileChanged, "src/log-0 offset 2", "goes on within that line", "put the file back")
	saved := maps.Clone(r.at)
	r.close()
	_, err := begin(t, open(t, dir, emitter.Lines, "log"), saved)
	wantError(t, err, batch.CodeFileChanged, "goes on within that line")
}

func TestChangedFiles(t *testing.T) {
	const content = "one\ntwo\nthree\nfour\n"
	for _, name := range []string{"f.txt", "f.gz", "f.zst"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, name)
			write(t, path, content)
			p := part(name)
			r := mustBegin(t, open(t, dir, emitter.Lines, name), nil)
			r.want(p, "one", "two")
			saved := maps.Clone(r.at)
			r.close()
			if want := "8:"; !strings.HasPrefix(saved[p].Identity, want) || len(saved[p].Identity) != len(want)+16 {
				t.Errorf("identity %q", saved[p].Identity)
			}

			write(t, path, "one\ntwo\nTHREE\nfour\nfive\n") // behind the position: nobody has seen it
			r = mustBegin(t, open(t, dir, emitter.Lines, name), saved)
			r.want(p, "THREE", "four", "five")
			r.close()

			write(t, path, "one\nTwo\nthree\nfour\n")
			_, err := begin(t, open(t, dir, emitter.Lines, name), saved)
			wantError(t, err, batch.CodeFileChanged, "src/"+name+"-0 offset 2", "the first 8 bytes differ", "another name")

			write(t, path, "one\n")
			_, err = begin(t, open(t, dir, emitter.Lines, name), saved)
			wantError(t, err, batch.CodeFileChanged, "8 bytes were read before, now the file holds 4")

			if err := os.Rename(path, filepath.Join(dir, "g"+filepath.Ext(name))); err != nil {
				t.Fatal(err)
			}
			_, err = begin(t, open(t, dir, emitter.Lines, name), saved)
			wantError(t, err, batch.CodeFileMissing, path+" does not exist", "did you mean", "g"+filepath.Ext(name))

			write(t, path, content) // as it was
			r = mustBegin(t, open(t, dir, emitter.Lines, name), saved)
			r.want(p, "three", "four")
			r.close()
		})
	}
}

func TestChangedWhileOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	p := part("log")
	start := func() *run {
		if err := os.WriteFile(path, []byte("a\nb\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		r := mustBegin(t, open(t, dir, emitter.Lines, "log"), nil)
		r.want(p, "a", "b")
		r.idle(p)
		return r
	}
	replace := func(text string) {
		tmp := filepath.Join(dir, ".new")
		if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, path); err != nil {
			t.Fatal(err)
		}
	}
	r := start()
	if err := os.Truncate(path, 2); err != nil {
		t.Fatal(err)
	}
	r.until("error", func() bool { return r.em.Err() != nil })
	wantError(t, r.em.Err(), batch.CodeFileChanged, "4 bytes were read before, now the file holds 2")
	r.close()

	r = start()
	replace("a\nb\nc\n") // another file that begins alike
	r.want(p, "c")
	replace("A\nb\nc\nd\n")
	r.until("error", func() bool { return r.em.Err() != nil })
	wantError(t, r.em.Err(), batch.CodeFileChanged, "the first 6 bytes differ")
	r.close()

	r = start()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * quick.poll)
	r.idle(p) // all of it had been read
	if err := r.em.Err(); err != nil {
		t.Error(err)
	}
	r.close()
}

// TestJoinedAndCutGzip is the case of two files joined into one, whole and cut off.
func TestJoinedAndCutGzip(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.gz")
	write(t, path, "1\n2\n3\n", "4\n5\n6\n")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := part("f.gz")
	r := mustBegin(t, open(t, dir, emitter.Lines, "f.gz"), nil)
	r.want(p, "1", "2", "3", "4", "5", "6")
	r.idle(p)
	r.close()

	if err := os.WriteFile(path, whole[:len(whole)-20], 0o644); err != nil {
		t.Fatal(err)
	}
	r = mustBegin(t, open(t, dir, emitter.Lines, "f.gz"), nil)
	ends, err := r.em.Ends(context.Background())
	if err != nil || ends[p] < 4 {
		t.Fatalf("Ends of a cut file: %v, %v; at least the record at the fault counts", ends, err)
	}
	readable := int(ends[p]) - 1
	r.until("failure", func() bool { return r.em.Status()[0].Err != nil })
	if err := r.em.Err(); err != nil {
		t.Fatalf("stopped before what is whole has committed: %v", err)
	}
	r.take(p, 2)
	if err := r.em.Err(); err != nil {
		t.Fatalf("stopped before what is whole has committed: %v", err)
	}
	r.take(p, readable-2)
	wantError(t, r.em.Err(), batch.CodeFileDamaged, fmt.Sprintf("src/f.gz-0 offset %d", readable), fmt.Sprintf("damaged behind record %d", readable-1), "cut off", "whole copy")
	saved := maps.Clone(r.at)
	r.close()

	// Started again without a repair: the same stop, nothing new.
	r = mustBegin(t, open(t, dir, emitter.Lines, "f.gz"), saved)
	r.until("error", func() bool { return r.em.Err() != nil })
	wantError(t, r.em.Err(), batch.CodeFileDamaged)
	r.close()

	// Cut below the position.
	if err := os.WriteFile(path, whole[:15], 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = begin(t, open(t, dir, emitter.Lines, "f.gz"), saved)
	wantError(t, err, batch.CodeFileDamaged, fmt.Sprintf("damaged before record %d, where reading was to go on", readable))

	if err := os.WriteFile(path, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	r = mustBegin(t, open(t, dir, emitter.Lines, "f.gz"), saved)
	for i := readable; i < 6; i++ {
		r.want(p, fmt.Sprint(i+1))
	}
	r.idle(p)
	r.close()
}

func TestGarbledFiles(t *testing.T) {
	for name, data := range map[string][]byte{
		"text.gz": []byte("no gzip at all\n"), "empty.gz": nil, "text.zst": []byte("no zstd at all, but long enough\n"),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
		r := mustBegin(t, open(t, dir, emitter.Lines, name), nil)
		r.until("error", func() bool { return r.em.Err() != nil })
		wantError(t, r.em.Err(), batch.CodeFileDamaged, "src/"+name+"-0 offset 0", "before its first record")
		ends, err := r.em.Ends(context.Background())
		if err != nil || ends[part(name)] != 1 {
			t.Errorf("%s: Ends %v, %v", name, ends, err)
		}
		r.close()
	}
	// A changed byte in the middle: the checksum finds it at the latest.
	dir := t.TempDir()
	path := filepath.Join(dir, "f.gz")
	write(t, path, strings.Repeat("some line of text\n", 100))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-6] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	r := mustBegin(t, open(t, dir, emitter.Lines, "f.gz"), nil)
	r.take(part("f.gz"), 100)
	r.until("error", func() bool { return r.em.Err() != nil })
	wantError(t, r.em.Err(), batch.CodeFileDamaged, "offset 100", "garbled")
	r.close()
}

func TestCSVRecordsAndColumns(t *testing.T) {
	dir := t.TempDir()
	appendFile(t, filepath.Join(dir, "a.csv"), "\ufeffid,\"full name\"\r\n1,\"x\r\ny\"\r\n\r\n2,z\r\n")
	appendFile(t, filepath.Join(dir, "b.csv"), "\nother\n\"p\"\"q\"")
	appendFile(t, filepath.Join(dir, "c.csv"), "only,a,header")
	r := mustBegin(t, open(t, dir, emitter.CSV, "*.csv"), nil)
	ends, err := r.em.Ends(context.Background())
	if err != nil || ends[part("a.csv")] != 2 || ends[part("b.csv")] != 1 || ends[part("c.csv")] != 0 {
		t.Fatalf("Ends: %v, %v", ends, err)
	}
	texts, fields := r.batchOf(part("a.csv"), emitter.Limit{Records: 1})
	if !slices.Equal(texts, []string{"1,\"x\r\ny\""}) || !slices.Equal(fields, []string{"id", "full name"}) {
		t.Errorf("%q of %q", texts, fields)
	}
	saved := maps.Clone(r.at)
	texts, fields = r.batchOf(part("b.csv"), emitter.Limit{})
	if !slices.Equal(texts, []string{`"p""q"`}) || !slices.Equal(fields, []string{"other"}) {
		t.Errorf("%q of %q", texts, fields)
	}
	r.idle(part("b.csv"))
	r.idle(part("c.csv"))
	r.close()

	// The columns are known after a restart, and to what is read again.
	delete(saved, part("b.csv"))
	r = mustBegin(t, open(t, dir, emitter.CSV, "*.csv"), saved)
	if texts, fields := r.batchOf(part("a.csv"), emitter.Limit{}); !slices.Equal(texts, []string{"2,z"}) || !slices.Equal(fields, []string{"id", "full name"}) {
		t.Errorf("%q of %q", texts, fields)
	}
	if texts, fields := r.read(batch.Range{Partition: part("a.csv"), Start: 0, End: 1}); texts[0] != "1,\"x\r\ny\"" || len(fields) != 2 {
		t.Errorf("%q of %q", texts, fields)
	}
	r.close()

	// A header line that changed below the position is a changed file.
	write(t, filepath.Join(dir, "a.csv"), "id,name\n1,x\n")
	_, err = begin(t, open(t, dir, emitter.CSV, "*.csv"), saved)
	wantError(t, err, batch.CodeFileChanged)
}

func TestFaultyText(t *testing.T) {
	for _, c := range []struct {
		name, text string
		framing    emitter.Framing
		whole      int
		want       []string
	}{
		{"unclosed", "a\n1\n\"2\n" + strings.Repeat("3\n", 800), emitter.CSV, 1, []string{"offset 1", "a record of more than 1000 bytes at byte 4 of the file", "quote"}},
		{"long", "ok\nok\n" + strings.Repeat("x", 1200) + "\n", emitter.Lines, 2, []string{"offset 2", "more than 1000 bytes", "line"}},
		{"header", "a\"b\n1\n", emitter.CSV, 0, []string{"header line: offset 1: a quote", "first line"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			appendFile(t, filepath.Join(dir, "f"), c.text)
			em := open(t, dir, c.framing, "f")
			em.source.record = 1000
			r := mustBegin(t, em, nil)
			r.take(part("f"), c.whole)
			r.until("error", func() bool { return r.em.Err() != nil })
			wantError(t, r.em.Err(), batch.CodeBadRecord, c.want...)
			ends, err := r.em.Ends(context.Background())
			if err != nil || ends[part("f")] != int64(c.whole)+1 {
				t.Errorf("Ends: %v, %v", ends, err)
			}
			r.close()
		})
	}
}

func TestPatterns(t *testing.T) {
	dir := t.TempDir()
	odd := filepath.Join(dir, "in[1]") // a directory whose name looks like a pattern
	if err := os.MkdirAll(filepath.Join(odd, "d.log"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"b.log", "a.log", ".hidden.log", "a.txt", "x[1].txt"} {
		appendFile(t, filepath.Join(odd, n), n+"\n")
	}
	topics := func(globs ...string) []string {
		r := mustBegin(t, open(t, odd, emitter.Lines, globs...), nil)
		defer r.close()
		var ts []string
		for _, p := range r.em.Partitions() {
			ts = append(ts, p.Topic)
		}
		return ts
	}
	for _, c := range []struct {
		globs, want []string
	}{
		{[]string{"*.log"}, []string{"a.log", "b.log"}},
		{[]string{"./b.log", "*.log", "../in\\[1\\]/a.log"}, []string{"a.log", "b.log"}},
		{[]string{filepath.Join(odd, "b.log")}, []string{filepath.Join(odd, "b.log")}},
		{[]string{"x[1].txt", ".*.log"}, []string{".hidden.log", "x[1].txt"}},
		{[]string{"none-*"}, nil},
	} {
		if got := topics(c.globs...); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.globs, got, c.want)
		}
	}

	r := mustBegin(t, open(t, odd, emitter.Lines, "*.log", "*.gz"), nil)
	defer r.close()
	write(t, filepath.Join(odd, "later.gz"), "1\n2\n")
	var fresh []batch.Position
	r.until("new file", func() bool { fresh = append(fresh, r.em.Discovered()...); return len(fresh) > 0 })
	if len(fresh) != 1 || fresh[0] != (batch.Position{Partition: part("later.gz"), LeaderEpoch: batch.NoEpoch}) {
		t.Fatalf("discovered %v", fresh)
	}
	r.admit(fresh)
	r.want(part("later.gz"), "1", "2")
}

func TestRefusedPaths(t *testing.T) {
	dir := t.TempDir()
	appendFile(t, filepath.Join(dir, "flights.csv"), "a\n")
	for _, c := range []struct {
		globs []string
		code  batch.Code
		want  string
	}{
		{nil, batch.CodeConfiguration, "names no file"},
		{[]string{""}, batch.CodeConfiguration, "an empty path"},
		{[]string{"a/**/b"}, batch.CodeConfiguration, "** isn't supported"},
		{[]string{"a[b"}, batch.CodeConfiguration, "syntax error in pattern"},
		{[]string{"."}, batch.CodeConfiguration, "is a directory"},
		{[]string{"flihgts.csv"}, batch.CodeFileMissing, "did you mean " + filepath.Join(dir, "flights.csv")},
	} {
		em, err := Paths(c.globs...).Open("src", emitter.CSV, emitter.Env{Dir: dir})
		if err == nil {
			_, err = em.Open(t.Context(), nil, true)
		}
		wantError(t, err, c.code, c.want)
	}
	if got, want := Paths("b", "a*").Describe(), "files b, a*"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestPositionWithoutFingerprint(t *testing.T) {
	dir := t.TempDir()
	appendFile(t, filepath.Join(dir, "f"), "a\nb\nc\n")
	p := part("f")
	at := func(n int64, identity string) map[batch.Partition]batch.Position {
		return map[batch.Partition]batch.Position{p: {Partition: p, Next: n, Identity: identity}}
	}
	r := mustBegin(t, open(t, dir, emitter.Lines, "f"), at(2, ""))
	r.want(p, "c")
	r.idle(p)
	r.close()
	r = mustBegin(t, open(t, dir, emitter.Lines, "f"), at(4, ""))
	r.until("error", func() bool { return r.em.Err() != nil })
	wantError(t, r.em.Err(), batch.CodeOutOfRange, "the position is at record 4, the file holds 3")
	r.close()
	_, err := begin(t, open(t, dir, emitter.Lines, "f"), at(2, "nonsense"))
	wantError(t, err, batch.CodeConfiguration, `"nonsense" is no fingerprint`)
}

func TestReadAgainNotices(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	appendFile(t, path, strings.Repeat("0123456789\n", 50))
	p := part("f")
	r := mustBegin(t, open(t, dir, emitter.Lines, "f"), nil)
	var ranges []batch.Range
	for range 5 {
		var rg batch.Range
		r.until("range", func() (ok bool) { rg, ok = r.em.Plan(p, r.at[p].Next, emitter.Limit{Records: 10}); return ok })
		r.em.Ack(1, []batch.Range{rg})
		r.at[p] = rg.Position()
		ranges = append(ranges, rg)
	}
	fail := func(rg batch.Range) error {
		return r.em.Read(t.Context(), rg, func(*batch.Chunk) error { return nil })
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("0123456789\n", 25)+strings.Repeat("012345678x\n", 15)), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, rg := range ranges {
		err := fail(rg)
		switch {
		case rg.End <= 25 && err != nil:
			t.Errorf("range %d: %v", i, err)
		case rg.End > 25 && rg.End <= 40:
			wantError(t, err, batch.CodeUnreplayable, fmt.Sprintf("[%d,%d) cannot be read again", rg.Start, rg.End), "differ")
		case rg.End > 40:
			wantError(t, err, batch.CodeUnreplayable, "the file holds 40 records")
		}
	}
	wantError(t, fail(batch.Range{Partition: part("other"), End: 1}), batch.CodeUnreplayable, "doesn't read this file")
	r.close()
}

// TestReadAheadIsBounded checks that the workers stop, and that all files are read in the end.
func TestReadAheadIsBounded(t *testing.T) {
	dir := t.TempDir()
	var globs []string
	for i := range 20 {
		name := fmt.Sprintf("f%02d", i)
		globs = append(globs, name)
		appendFile(t, filepath.Join(dir, name), strings.Repeat(name+"\n", 1000))
	}
	r := mustBegin(t, open(t, dir, emitter.Lines, globs...), nil)
	defer r.close()
	bounded := func() {
		r.em.mu.Lock()
		defer r.em.mu.Unlock()
		var sum int64
		for _, f := range r.em.order {
			sum += f.ahead
		}
		if sum != r.em.ahead || r.em.open > quick.open || sum > quick.ahead+int64(quick.workers*quick.block) {
			t.Fatalf("%d bytes ahead (%d counted), %d files open", sum, r.em.ahead, r.em.open)
		}
	}
	time.Sleep(10 * time.Millisecond)
	left := 20 * 1000
	for left > 0 {
		bounded()
		progress := false
		for _, p := range r.em.Partitions() {
			if rg, ok := r.em.Plan(p, r.at[p].Next, emitter.Limit{Records: 300}); ok {
				r.read(rg)
				r.em.Ack(1, []batch.Range{rg})
				r.at[p] = rg.Position()
				left -= int(rg.End - rg.Start)
				progress = true
			}
		}
		if !progress {
			select {
			case <-r.em.Ready():
			case <-time.After(time.Minute):
				t.Fatalf("%d records left and nothing happens", left)
			}
		}
	}
}

// TestAnySplit reads random content in random batches with restarts, growth and dropped batches between them, and
// compares with a plain split of the text.
func TestAnySplit(outer *testing.T) {
	rapid.Check(outer, func(t *rapid.T) {
		dir := outer.TempDir()
		path := filepath.Join(dir, "f")
		line := rapid.StringOfN(rapid.SampledFrom([]rune("ab\"é\r ")), 0, 90, -1)
		var want []string
		grow := func() {
			for range rapid.IntRange(1, 12).Draw(t, "lines") {
				l := line.Draw(t, "line")
				want = append(want, strings.TrimSuffix(l, "\r"))
				appendFile(t, path, l+"\n")
			}
		}
		grow()
		reopen := func(saved map[batch.Partition]batch.Position) *run {
			em, err := Source{globs: []string{"f"}, tuning: quick}.Open("src", emitter.Lines, emitter.Env{Dir: dir})
			if err != nil {
				t.Fatalf("%v", err)
			}
			return mustBegin(t, em.(*Emitter), saved)
		}
		p := part("f")
		r := reopen(nil)
		defer func() { r.close() }()
		var got []string
		for step := 0; step < 25 || len(got) < len(want); step++ {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				r.close()
				r = reopen(r.at)
			case 1:
				if step < 25 {
					grow()
				}
			case 2: // a batch that is dropped
				r.em.Plan(p, r.at[p].Next, emitter.Limit{Records: 5})
			default:
				if len(got) == len(want) {
					continue
				}
				texts, _ := r.batchOf(p, emitter.Limit{Records: rapid.Int64Range(1, 8).Draw(t, "records")})
				got = append(got, texts...)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("\n got %q\nwant %q", got, want)
		}
	})
}

func BenchmarkReadAhead(b *testing.B) {
	dir := b.TempDir()
	var text bytes.Buffer
	const records = 500_000
	for i := range records {
		fmt.Fprintf(&text, "{\"user\":\"u%07d\",\"page\":\"/products/%d\",\"ms\":1764633600123,\"n\":17}\n", i%100000, i%999)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), text.Bytes(), 0o644); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	p := part("f")
	for b.Loop() {
		em, err := Paths("f").Open("src", emitter.Lines, emitter.Env{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		starts, err := em.Open(b.Context(), nil, true)
		if err != nil {
			b.Fatal(err)
		}
		em.Admit(starts)
		for n := int64(0); n < records; {
			r, ok := em.Plan(p, n, emitter.Limit{Records: 50_000})
			if !ok {
				<-em.Ready()
				continue
			}
			if err := em.Read(b.Context(), r, func(*batch.Chunk) error { return nil }); err != nil {
				b.Fatal(err)
			}
			em.Ack(1, []batch.Range{r})
			n = r.End
		}
		if err := em.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(records*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// TestManyCompressedGoOn restarts in the middle of more files than may be open.
func TestManyCompressedGoOn(t *testing.T) {
	dir := t.TempDir()
	var globs []string
	for i := range 6 {
		name := fmt.Sprintf("f%d%s", i, []string{".gz", ".zst", ".csv"}[i%3])
		globs = append(globs, name)
		var text strings.Builder
		for j := range 40 {
			fmt.Fprintf(&text, "%s record %d\n", name, j)
		}
		write(t, filepath.Join(dir, name), text.String())
	}
	want := func(name string, from, n int) (ws []string) {
		for j := range n {
			ws = append(ws, fmt.Sprintf("%s record %d", name, from+j))
		}
		return ws
	}
	saved := map[batch.Partition]batch.Position{}
	for done := 0; done < 40; done += 10 {
		r := mustBegin(t, open(t, dir, emitter.Lines, globs...), maps.Clone(saved))
		for _, g := range globs {
			r.want(part(g), want(g, done, 10)...)
		}
		saved = r.at
		r.close()
	}
}

// TestPlanGoesBackBelowCommitted plans from offsets whose records are no longer held, while workers are at it.
func TestPlanGoesBackBelowCommitted(t *testing.T) {
	for _, name := range []string{"f", "f.gz"} {
		dir := t.TempDir()
		var text strings.Builder
		var all []string
		for i := range 300 {
			all = append(all, fmt.Sprintf("record %d", i))
			text.WriteString(all[i] + "\n")
		}
		write(t, filepath.Join(dir, name), text.String())
		p := part(name)
		r := mustBegin(t, open(t, dir, emitter.Lines, name), nil)
		for _, n := range []int64{0, 250, 13, 299, 100, 0} {
			r.at[p] = batch.Position{Partition: p, Next: n}
			r.want(p, all[n:min(int(n)+20, 300)]...)
			for _, from := range []int64{200, 0, 150, 0} { // no time to read between them
				r.em.Plan(p, from, emitter.Limit{Records: 1})
			}
		}
		r.close()
	}
}
