package storm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fixture reads nodes of testdata, parents first.
func fixture(t *testing.T, name string) (paths []string, nodes memory) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	nodes = memory{}
	for line := range strings.Lines(string(text)) {
		path, data, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if ok {
			paths, nodes[path] = append(paths, path), data
		}
	}
	return paths, nodes
}

// written is what each fixture comes to.
var written = []struct {
	file string
	read func(t *testing.T, n Nodes, below string) (*Left, error)
	want string
}{
	{"trident-2.8.3.txt", func(t *testing.T, n Nodes, below string) (*Left, error) {
		return ReadTrident(t.Context(), n, below+"/transactional", "words")
	}, "my-li.nes-0=120 my-li.nes-1=40 current 12"},
	{"trident-1.2.4.txt", func(t *testing.T, n Nodes, below string) (*Left, error) {
		return ReadTrident(t.Context(), n, below+"/transactional", "words")
	}, "lines-0=120 lines-1=40 current 12"},
	{"spout-1.2.4.txt", func(t *testing.T, n Nodes, below string) (*Left, error) {
		return ReadSpout(t.Context(), n, below+"/kafka", "words")
	}, "lines-0=120 lines-1=40 current 0"},
}

func TestAsStormWrites(t *testing.T) {
	for _, w := range written {
		t.Run(w.file, func(t *testing.T) {
			_, nodes := fixture(t, w.file)
			l, err := w.read(t, nodes, "")
			expect(t, l, err, w.want)
		})
	}
}
