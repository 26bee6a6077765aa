package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/tridentd/tridentd"

// listed is what go list tells of a package.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Export     string // file of compiled type information
	Error      *struct{ Err string }
	Module     *struct{ Path string }
}

// name is the import path within the module: "emitter/kafka".
func (p *listed) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// tree is the module as go list sees it, dependencies included.
type tree struct {
	ours []*listed // in import path order
	all  map[string]*listed
}

var load = sync.OnceValues(func() (*tree, error) {
	cmd := exec.Command("go", "list", "-e", "-export", "-deps",
		"-json=ImportPath,Dir,GoFiles,Imports,Export,Error,Module", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	t := &tree{all: map[string]*listed{}}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return t, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		t.all[p.ImportPath] = &p
		if p.Module != nil && p.Module.Path == module {
			t.ours = append(t.ours, &p)
		}
	}
})

func loadTree(t *testing.T) *tree {
	t.Helper()
	tr, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// checked is a package with its syntax and types.
type checked struct {
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
}

// check parses and type-checks files, taking what they import from export data.
func (t *tree) check(path string, files map[string]any) (*checked, error) {
	c := &checked{fset: token.NewFileSet(), info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{},
		Uses:  map[*ast.Ident]types.Object{},
	}}
	for name, src := range files {
		f, err := parser.ParseFile(c.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		c.files = append(c.files, f)
	}
	conf := types.Config{Importer: importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		p := t.all[path]
		if p == nil || p.Export == "" {
			return nil, fmt.Errorf("no export data for %s: does it compile?", path)
		}
		return os.Open(p.Export)
	})}
	_, err := conf.Check(path, c.fset, c.files, c.info)
	return c, err
}

func (t *tree) checkPackage(p *listed) (*checked, error) {
	files := map[string]any{}
	for _, f := range p.GoFiles {
		files[filepath.Join(p.Dir, f)] = nil
	}
	return t.check(p.ImportPath, files)
}

// finding is a place where a rule is broken.
type finding struct {
	pos  token.Position
	text string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.pos.Filename, f.pos.Line, f.text) }

// excused tells the lines to which a comment with the given beginning applies: its own last line and the next.
func (c *checked) excused(file *ast.File, word string) map[int]bool {
	lines := map[int]bool{}
	for _, g := range file.Comments {
		for i, cm := range g.List {
			text := strings.TrimSpace(strings.TrimPrefix(cm.Text, "//"))
			if !strings.HasPrefix(text, word+":") || len(strings.TrimSpace(text[len(word)+1:])) == 0 {
				continue
			}
			// A longer reason goes on over the lines of its group.
			for _, rest := range g.List[i:] {
				lines[c.fset.Position(rest.Pos()).Line] = true
			}
			lines[c.fset.Position(g.End()).Line+1] = true
		}
	}
	return lines
}
