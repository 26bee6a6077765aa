package lint

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/tridentd/tridentd/internal/testenv"
)

// texts passes the text files of the tree: those that git tracks, or all where this isn't a git checkout.
func texts(t *testing.T, yield func(name string, content []byte)) {
	t.Helper()
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	names, err := tracked(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 10 {
		t.Fatalf("only %d files in %s", len(names), root)
	}
	const largest = 1 << 20
	for _, name := range names {
		file := filepath.Join(root, filepath.FromSlash(name))
		fi, err := os.Lstat(file)
		if err != nil || !fi.Mode().IsRegular() || fi.Size() > largest {
			continue // removed and not yet committed, a link, or data
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Contains(b, []byte{0}) {
			yield(name, b)
		}
	}
}

func tracked(root string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		cmd := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z")
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("git ls-files: %w", err)
		}
		return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
	}
	var names []string
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, file)
		names = append(names, filepath.ToSlash(rel))
		return err
	})
	return names, err
}

// banned is what no file may hold. The patterns are put together from pieces, so that this file doesn't hold it either.
var banned = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{
		regexp.MustCompile(`\b(` + strings.Join([]string{"TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"}, "|") + `)\b`),
		"a mark of unfinished work",
	},
	{
		regexp.MustCompile(`(^|[^.\w-])/(` + strings.Join([]string{"wo" + "rk", "fa" + "rm", "ro" + "ot", "ho" + "me", "Us" + "ers"}, "|") + `)/\w`),
		"a path of one machine",
	},
	{
		regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
			`repo1?\.ma` + `ven`, `maven\.(org|apache)`, `proxy\.gol` + `ang`, `sum\.gol` + `ang`, `registry\.np` + `mjs`, `py` + `pi\.org`,
			`pythonho` + `sted`, `cra` + `tes\.io`, `(deb|security)\.deb` + `ian`,
		}, "|") + `)`),
		"the address of a package registry",
	},
}

func findBanned(content []byte) []string {
	var found []string
	for i, line := range strings.Split(string(content), "\n") {
		for _, b := range banned {
			if m := b.pattern.FindString(line); m != "" {
				found = append(found, fmt.Sprintf("%d: %q: %s", i+1, m, b.why))
			}
		}
	}
	return found
}

func TestNothingUnwantedInTexts(t *testing.T) {
	texts(t, func(name string, content []byte) {
		if path.Base(name) == "go.sum" {
			return
		}
		for _, f := range findBanned(content) {
			t.Errorf("%s:%s", name, f)
		}
	})
}

func TestFindBanned(t *testing.T) {
	in := strings.Join([]string{
		"// TO" + "DO: later", "cd /wo" + "rk/main", "https://repo1.ma" + "ven.org/x",
		"mktemp -d x-XXXXXX", "see docs/work/main.md", "$HOME/.cache", "a/ro" + "ot/b", "TODOS",
	}, "\n")
	found := findBanned([]byte(in))
	if len(found) != 3 {
		t.Fatalf("found %q, want the first three lines", found)
	}
	for i, f := range found {
		if !strings.HasPrefix(f, fmt.Sprintf("%d: ", i+1)) {
			t.Errorf("found %q", f)
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(<?([^)<>\s]+)>?(?:\s+"[^"]*")?\)`)
	heading = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	scheme  = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
)

// prose cuts fenced blocks and code spans out of a Markdown text.
func prose(text string) string {
	var out []string
	fence := ""
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence != "":
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			line = ""
		case strings.HasPrefix(trimmed, "```"), strings.HasPrefix(trimmed, "~~~"):
			fence, line = trimmed[:3], ""
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

var codeSpan = regexp.MustCompile("`[^`\n]+`")

// anchors are the names under which a text's headings can be linked to, as GitHub makes them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.SplitSeq(prose(text), "\n") {
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		title := link.ReplaceAllString(strings.ReplaceAll(m[1], "`", ""), "")
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, title)
		name := slug
		for n := 1; found[name]; n++ {
			name = fmt.Sprintf("%s-%d", slug, n)
		}
		found[name] = true
	}
	return found
}

// deadLinks lists links of the Markdown file name that lead nowhere. read returns a file by its path in the tree.
func deadLinks(name, text string, read func(string) (string, error)) []string {
	var dead []string
	for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(prose(text), ""), -1) {
		target := m[1]
		if scheme.MatchString(target) || strings.HasPrefix(target, "//") {
			continue
		}
		file, anchor, _ := strings.Cut(target, "#")
		to, content := name, text
		if file != "" {
			to = path.Join(path.Dir(name), file)
			var err error
			if content, err = read(to); err != nil {
				dead = append(dead, target)
				continue
			}
		}
		if anchor != "" && strings.HasSuffix(to, ".md") && !anchors(content)[anchor] {
			dead = append(dead, target)
		}
	}
	return dead
}

// becomes tells which page a text is the source of: its links are meant from there.
var becomes = map[string]string{"spec/reference.md": "docs/reference/pipeline.md"}

func TestLinks(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) (string, error) {
		file := filepath.Join(root, filepath.FromSlash(name))
		if fi, err := os.Stat(file); err != nil || fi.IsDir() {
			return "", err
		}
		b, err := os.ReadFile(file)
		return string(b), err
	}
	texts(t, func(name string, content []byte) {
		if !strings.HasSuffix(name, ".md") {
			return
		}
		if to, ok := becomes[name]; ok {
			name = to
		}
		for _, target := range deadLinks(name, string(content), read) {
			t.Errorf("%s: the link to %s leads nowhere", name, target)
		}
	})
}

func TestDeadLinks(t *testing.T) {
	files := map[string]string{
		"docs/a.md": "# One two\n\n## `b` and C's\n\n## Twice\n\n## Twice\n",
		"README.md": "# R\n",
	}
	read := func(name string) (string, error) {
		if c, ok := files[name]; ok {
			return c, nil
		}
		return "", fs.ErrNotExist
	}
	text := "# Here\n[x](a.md) [x](a.md#one-two) [x](a.md#b-and-cs) [x](a.md#twice-1) [x](../README.md) [x](#here)\n" +
		"[x](https://example.org/y) [x](mailto:a@example.org) `[x](no.md)`\n```\n[x](no.md)\n```\n" +
		"[x](no.md) [x](a.md#none) [x](#none) [x](/README.md)\n"
	got := strings.Join(deadLinks("docs/b.md", text, read), " ")
	if want := "no.md a.md#none #none /README.md"; got != want {
		t.Errorf("dead links %q, want %q", got, want)
	}
}
