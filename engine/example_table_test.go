package engine_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The table of Trident's operations names all examples, and no others.
func TestExamplesAreInTheTable(t *testing.T) {
	files, err := filepath.Glob("example*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string]bool{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && regexp.MustCompile(`^Example`).MatchString(fn.Name.Name) {
				examples[fn.Name.Name] = true
			}
		}
	}
	table, err := os.ReadFile(filepath.Join("..", "docs", "reference", "trident.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`(Example\\w*)`").FindAllSubmatch(table, -1) {
		named[string(m[1])] = true
		if !examples[string(m[1])] {
			t.Errorf("trident.md names %s, which isn't there", m[1])
		}
	}
	for name := range examples { // order: each by itself
		if !named[name] {
			t.Errorf("trident.md lacks %s", name)
		}
	}
}
