package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/internal/testenv"
)

// TestPages does what a reader of the pages on replays does: the commands that a page shows, in its order, in one directory. What they
// print is what stands there, line by line, but for figures, times and digests; … stands for the rest of a line, or for any lines.
func TestPages(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	flights := func(s *session) {
		if err := os.CopyFS(s.dir, os.DirFS(filepath.Join(root, "examples", "flights"))); err != nil {
			s.t.Fatal(err)
		}
		s.does("run flights.yaml --until caught-up --listen off")
	}
	lines := func(s *session) {
		s.put("lines.yaml", "pipeline: lines\nbatch: {max_records: 2}\nledger: {retention: {batches: 8}}\n"+`sources:
  lines:
    file: {paths: ["in-*.txt"]}
    decode: string
streams:
  counts:
    from: lines
    steps:
      - group_by: [value]
      - aggregate: {n: count()}
`)
		for n, count := range []int{24, 0, 4} { // the second run makes a base and trims
			if count > 0 {
				s.put(fmt.Sprintf("in-%d.txt", n), strings.Repeat("a\n", count))
			}
			s.does("run lines.yaml --until caught-up --listen off")
		}
	}
	for page, before := range map[string]map[string]func(*session){ // what a page takes for granted, by the heading that it comes behind
		"guide/check.md": {
			"": flights,
			"Which key differs": func(s *session) {
				s.put("plain.yaml", s.read("flights.yaml"))
				s.move("tridentd-data", "plain")
				s.put("flights.yaml", s.read("plain.yaml")+"\nledger: {changes: keep}\n")
				s.does("run flights.yaml --until caught-up --listen off")
			},
			"What a batch read and wrote": func(s *session) {
				s.put("flights.yaml", s.read("plain.yaml"))
				s.move("tridentd-data", "kept")
				s.move("plain", "tridentd-data")
			},
		},
		"reference/savepoints.md": {
			"": flights,
			"Restoring": func(s *session) {
				s.does("replay flights.yaml --into early --to 3")
				s.does("savepoint create flights.yaml --data early --place place --name three")
			},
		},
		"reference/ledger.md": {"": flights, "Where a replay begins": lines},
		"reference/migrate.md": {"": func(s *session) {
			s.put("in.txt", "a\nbb\nccc\n")
			const was = "pipeline: words\nsources:\n  lines:\n    file: {paths: [in.txt]}\n    decode: string\nstreams:\n  counts:\n    from: lines\n    steps:\n%s" +
				"      - group_by: [value]\n      - aggregate: {n: count()}\n"
			s.put("words.yaml", fmt.Sprintf(was, ""))
			s.does("run words.yaml --until caught-up --listen off")
			s.put("words.yaml", fmt.Sprintf(was, "      - filter: len(value) > 1\n")+
				"  lengths:\n    from: lines\n    steps:\n      - set: {length: len(value)}\n      - group_by: [length]\n      - aggregate: {n: count()}\n")
		}},
	} { // order: each page has a directory of its own
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, "docs", page))
			if err != nil {
				t.Fatal(err)
			}
			s := &session{t: t, dir: t.TempDir()}
			t.Chdir(s.dir)
			before[""](s)
			begun := 1
			for _, step := range pageSteps(string(text)) {
				if step.command == "" {
					if f := before[step.heading]; f != nil {
						f(s)
						begun++
					}
					continue
				}
				s.shows(step)
			}
			if begun != len(before) {
				t.Errorf("%d of the headings that something comes behind are there, want %d", begun, len(before))
			}
			if s.commands == 0 {
				t.Error("the page shows no command")
			}
		})
	}
}

// session is a reader at work.
type session struct {
	t        *testing.T
	dir      string
	commands int
}

func (s *session) put(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) read(name string) string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

func (s *session) move(from, to string) {
	s.t.Helper()
	if err := os.Rename(filepath.Join(s.dir, from), filepath.Join(s.dir, to)); err != nil {
		s.t.Fatal(err)
	}
}

// command runs a command and returns its exit code and what it printed, log lines aside.
func (s *session) command(line string) (code int, printed []string) {
	s.t.Helper()
	var out lockedBuffer
	code = daemon.Execute(s.t.Context(), strings.Fields(line), &out, &out)
	for l := range strings.Lines(out.String()) {
		if l = strings.TrimRight(l, " \n"); !logLine.MatchString(l) && l != "" {
			printed = append(printed, l)
		}
	}
	return code, printed
}

var logLine = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+ \[[A-Z]+\] `)

// does runs a command that must succeed.
func (s *session) does(line string) {
	s.t.Helper()
	if code, printed := s.command(line); code != 0 {
		s.t.Fatalf("tridentd %s: exit %d\n%s", line, code, strings.Join(printed, "\n"))
	}
}

// shows runs a command of a page and compares what it prints.
func (s *session) shows(step pageStep) {
	s.t.Helper()
	s.commands++
	_, printed := s.command(step.command)
	var want strings.Builder
	for _, l := range step.output {
		if l == "…" {
			want.WriteString(`(.*\n)*`)
			continue
		}
		for i, part := range strings.Split(l, "…") {
			if i > 0 {
				want.WriteString(".*")
			}
			want.WriteString(regexp.QuoteMeta(figureless(part)))
		}
		want.WriteString(`\n`)
	}
	var got strings.Builder
	for _, l := range printed {
		got.WriteString(figureless(l) + "\n")
	}
	if !regexp.MustCompile(`^` + want.String() + `$`).MatchString(got.String()) {
		s.t.Errorf("tridentd %s prints\n%s\nthe page shows\n%s", step.command, strings.Join(printed[:min(len(printed), 40)], "\n"), strings.Join(step.output, "\n"))
	}
}

var (
	stamp  = regexp.MustCompile(`\d{4}-?\d\d-?\d\dT[\d:.]+Z?`)
	digest = regexp.MustCompile(`\b([0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{16})\b`)
	figure = regexp.MustCompile(`\d[\d,]*(\.\d+)?(µs|ms|s\b)?`)
	blanks = regexp.MustCompile(`\s+`)
)

// figureless is a line without what differs from one run to the next.
func figureless(l string) string {
	l = stamp.ReplaceAllString(l, "TIME")
	l = digest.ReplaceAllString(l, "DIGEST")
	l = figure.ReplaceAllString(l, "N")
	return blanks.ReplaceAllString(strings.TrimSpace(l), " ")
}

// pageStep is a heading of a page, or a command of its with what it prints.
type pageStep struct {
	heading string
	command string
	output  []string
}

// pageSteps finds the headings and the commands of a page: those in blocks, fenced or indented, behind "$ tridentd".
func pageSteps(page string) (steps []pageStep) {
	fenced, open := false, false
	for l := range strings.Lines(page) {
		l = strings.TrimRight(l, "\n")
		switch {
		case strings.HasPrefix(l, "```"):
			fenced, open = !fenced, false
			continue
		case !fenced && strings.HasPrefix(l, "#"):
			steps = append(steps, pageStep{heading: strings.TrimLeft(l, "# ")})
		}
		if inside := strings.HasPrefix(l, "    "); !fenced && !inside {
			open = false
			continue
		} else if !fenced {
			l = l[4:]
		}
		switch command, ok := strings.CutPrefix(l, "$ tridentd "); {
		case ok:
			steps, open = append(steps, pageStep{command: command}), true
		case strings.HasPrefix(l, "$ "):
			open = false
		case open && l != "":
			last := &steps[len(steps)-1]
			last.output = append(last.output, l)
		}
	}
	return steps
}
