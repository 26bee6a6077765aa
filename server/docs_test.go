package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

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

// Every metric has its line in docs/operating.md, and every line its metric.
func TestMetricsAreDocumented(t *testing.T) {
	_, page := operatingPage(t)
	m := NewMetrics("words")
	descs := make(chan *prometheus.Desc, 100)
	m.Describe(descs)
	close(descs)
	var have []string
	fqName := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range descs {
		have = append(have, fqName.FindStringSubmatch(d.String())[1])
	}
	var told []string
	for line := range strings.SplitSeq(page, "\n") {
		cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !ok || !strings.HasPrefix(cell, "`tridentd_") {
			continue
		}
		for name := range strings.SplitSeq(cell, ", ") {
			told = append(told, strings.Trim(name, "`"))
		}
	}
	slices.Sort(have)
	slices.Sort(told)
	if !slices.Equal(have, told) {
		t.Errorf("metrics\n%q\nin docs/operating.md\n%q", have, told)
	}
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
