package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/internal/names"
)

// found is a file that a source reads.
type found struct {
	topic string // the name in partitions
	path  string // where to open it
	named bool   // given by its name, so that it must be there
}

const meta = "*?["

func checkPattern(g string) error {
	switch {
	case g == "":
		return configuration(errors.New("an empty path"), "give each path a name")
	case strings.Contains(g, "**"):
		return configuration(fmt.Errorf("path %q: ** isn't supported", g), "write one pattern for each depth, such as dir/*/*.csv")
	}
	if _, err := filepath.Match(g, ""); err != nil {
		return configuration(fmt.Errorf("path %q: %w", g, err), `close the bracket, or write \[ for the character itself`)
	}
	return nil
}

// expand returns the files that the globs name at present, in partition order.
func expand(dir string, globs []string) ([]found, error) {
	var all []found
	seen := map[string]bool{} // by path: a file that two globs name is one partition
	add := func(f found) {
		if !seen[f.path] {
			seen[f.path] = true
			all = append(all, f)
		}
	}
	for _, g := range globs {
		path := resolve(dir, g)
		if _, err := os.Lstat(path); err == nil || !strings.ContainsAny(g, meta) {
			add(found{topic: filepath.ToSlash(filepath.Clean(g)), path: path, named: true})
			continue
		}
		pattern := filepath.Clean(g)
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(quote(dir), pattern)
		}
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, m := range matches {
			if hidden(m) && !hidden(g) {
				continue
			}
			if info, err := os.Stat(m); err != nil || !info.Mode().IsRegular() {
				continue
			}
			topic := m
			if !filepath.IsAbs(g) {
				if topic, err = filepath.Rel(filepath.Join(dir, "."), m); err != nil {
					return nil, err
				}
			}
			add(found{topic: filepath.ToSlash(topic), path: m})
		}
	}
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(a.topic, b.topic) })
	return all, nil
}

func hidden(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }

func resolve(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// quote makes dir a pattern that matches dir alone.
func quote(dir string) string {
	var b strings.Builder
	for _, r := range dir {
		if strings.ContainsRune(meta+`\`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// check tells whether a file that was found can be read at all.
func check(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &irregular{path: path, mode: info.Mode()}
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// nearest returns the existing file whose name is most like that of path.
func nearest(path string) (string, bool) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nearest(filepath.Dir(path))
	}
	var candidates []string
	for _, e := range entries {
		candidates = append(candidates, e.Name())
	}
	name, ok := names.Nearest(filepath.Base(path), candidates)
	return filepath.Join(filepath.Dir(path), name), ok
}
