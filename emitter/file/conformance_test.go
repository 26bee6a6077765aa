package file

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/emittertest"
)

// quick are figures at which blocks, read-ahead and polls all come into play.
var quick = tuning{poll: 5 * time.Millisecond, block: 64, record: 1 << 20, ahead: 4096, open: 2, workers: 2}

func open(t *testing.T, dir string, framing emitter.Framing, globs ...string) *Emitter {
	t.Helper()
	em, err := Source{globs: globs, tuning: quick}.Open("src", framing, emitter.Env{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return em.(*Emitter)
}

func appendFile(t fataler, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// write writes a file in the form that its name asks for. A gzip file gets a member for each text.
func write(t *testing.T, path string, texts ...string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, text := range texts {
		var w io.WriteCloser
		switch filepath.Ext(path) {
		case ".gz":
			w = gzip.NewWriter(f)
		case ".zst":
			if w, err = zstd.NewWriter(f); err != nil {
				t.Fatal(err)
			}
		default:
			w = nopCloser{f}
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func TestConformancePlain(t *testing.T) {
	for _, c := range []struct {
		name    string
		framing emitter.Framing
		header  string
		line    func(string) string
	}{
		{"lines", emitter.Lines, "\ufeff", func(v string) string { return v + "\r\n" }},
		{"csv", emitter.CSV, "value\n", func(v string) string { return v + "\n\n" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			emittertest.Run(t, func(t *testing.T) *emittertest.Source {
				dir := t.TempDir()
				path := func(i int) string { return filepath.Join(dir, fmt.Sprintf("part-%02d.txt", i)) }
				n := 3
				for i := range n {
					appendFile(t, path(i), c.header)
				}
				return &emittertest.Source{
					Open:       func(t *testing.T) emitter.Emitter { return open(t, dir, c.framing, "part-*.txt") },
					Partitions: n,
					Append: func(t *testing.T, p int, values []string) {
						for _, v := range values {
							appendFile(t, path(p), c.line(v))
						}
					},
					AddPartition: func(t *testing.T) { appendFile(t, path(n), c.header); n++ },
				}
			})
		})
	}
}

func TestConformanceCompressed(t *testing.T) {
	const records = 70
	var lines, quoted strings.Builder
	for i := range records {
		fmt.Fprintf(&lines, "line %d %s", i, strings.Repeat("x", i))
		if i < records-1 {
			lines.WriteByte('\n') // the last line has no end
		}
		fmt.Fprintf(&quoted, "%d,\"a \"\"b\"\"\nc %d\"\n", i, i*i)
	}
	for ext, framing := range map[string]emitter.Framing{".gz": emitter.Lines, ".zst": emitter.CSV} {
		t.Run(ext[1:], func(t *testing.T) {
			emittertest.Run(t, func(t *testing.T) *emittertest.Source {
				dir := t.TempDir()
				for _, name := range []string{"a", "b"} {
					if framing == emitter.CSV {
						write(t, filepath.Join(dir, name+ext), "n,text\n"+quoted.String())
					} else {
						write(t, filepath.Join(dir, name+ext), lines.String())
					}
				}
				return &emittertest.Source{
					Open:       func(t *testing.T) emitter.Emitter { return open(t, dir, framing, "a"+ext, "b"+ext) },
					Partitions: 2, Records: records,
				}
			})
		})
	}
}
