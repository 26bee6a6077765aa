package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/internal/testenv"
)

func operatingPage(t *testing.T) (root, page string) {
	t.Helper()
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "docs", "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	return root, string(b)
}

// The codes of errors are labels of metrics, so they are documented with them.
func TestErrorCodesAreDocumented(t *testing.T) {
	root, page := operatingPage(t)
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "batch", "error.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Code") {
			return true
		}
		lit, ok := spec.Values[0].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		code, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		n++
		if !strings.Contains(page, "| `"+code+"` |") {
			t.Errorf("docs/operating.md doesn't tell of the code %s", code)
		}
		return true
	})
	if n < 10 {
		t.Errorf("found only %d codes in batch/error.go", n)
	}
}
