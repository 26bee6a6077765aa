package model_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// apart are the functions of package engine on streams that no drawn pipeline has, with the reason.
var apart = map[string]string{
	"engine.FutureBound": "it is a setting of a source; the default takes part",
	"engine.IdleAfter":   "batches have their idle partitions given",
	"engine.LoadFirst":   "batches have their ranges given",
}

// takesPart are those types of which a function that takes or returns one is an operator, or a setting of one.
var takesPart = []string{
	"Stream", "Grouped", "State", "Table", "Side", "AnySide", "QueryStream", "sourceDef", "TimeOption", "WindowOption", "KV", "Windowed",
}

// TestOperatorsTakePart: whatever package engine has for streams is used by the pipelines that are drawn, or stands in apart: a new operator needs a
// model, or a reason.
func TestOperatorsTakePart(t *testing.T) {
	used := map[string]bool{} // functions behind the package's name, methods without
	for _, name := range []string{"build_test.go", "model_test.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if of, ok := s.X.(*ast.Ident); ok && of.Name == "engine" {
					used["engine."+s.Sel.Name] = true
				} else {
					used[s.Sel.Name] = true
				}
			}
			return true
		})
	}
	var all []string
	dir := filepath.Join("..", "..", "engine")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.IsExported() && ofStreams(fn) {
				if fn.Recv == nil {
					all = append(all, "engine."+fn.Name.Name)
				} else {
					all = append(all, fn.Name.Name)
				}
			}
		}
	}
	if len(all) < 50 || !slices.Contains(all, "engine.BatchJoin") || !slices.Contains(all, "Shuffle") {
		t.Fatalf("only %d operators were found: %v", len(all), all)
	}
	for name := range apart { // order: each by itself
		if !slices.Contains(all, name) {
			t.Errorf("%s stands in apart, and is no operator", name)
		}
	}
	for _, name := range all {
		if reason := apart[name]; !used[name] && reason == "" {
			t.Errorf("%s takes no part: give it a model, or say in apart why not", name)
		} else if used[name] && reason != "" {
			t.Errorf("%s takes part, though apart says that it doesn't", name)
		}
	}
}

// ofStreams tells whether a function's receiver, parameters or results are of takesPart.
func ofStreams(fn *ast.FuncDecl) bool {
	found := false
	for _, part := range []*ast.FieldList{fn.Recv, fn.Type.Params, fn.Type.Results} {
		if part == nil {
			continue
		}
		for _, field := range part.List {
			ast.Inspect(field.Type, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && slices.Contains(takesPart, id.Name) {
					found = true
				}
				return true
			})
		}
	}
	return found
}
