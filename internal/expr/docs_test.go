package expr

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/internal/vec"
)

// TestReference holds the reference against the package: each function has its place there, each function there
// exists, and each example gives what it says.
func TestReference(t *testing.T) {
	content, err := os.ReadFile("../../docs/reference/expressions.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(content), `\|`, "|")
	documented := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| (`[a-zA-Z_]+\\(.*?\\)`(?:, `[a-zA-Z_]+\\(.*?\\)`)*) \\|")
	call := regexp.MustCompile("`([a-zA-Z_]+)\\(")
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		for _, c := range call.FindAllStringSubmatch(m[1], -1) {
			documented[c[1]] = true
		}
	}
	for name := range functions {
		if !documented[name] {
			t.Errorf("%s() isn't documented", name)
		}
	}
	for name := range documented {
		if functions[name] == nil && name != "coalesce" {
			t.Errorf("%s() is documented and doesn't exist", name)
		}
	}

	example := regexp.MustCompile("`([^`]+)` = `([^`]+)`")
	examples := example.FindAllStringSubmatch(page, -1)
	if len(examples) < 60 {
		t.Errorf("only %d examples", len(examples))
	}
	for _, m := range examples {
		src, want := m[1], m[2]
		if src == "a" {
			continue
		}
		p := mustCompile(t, src, NewScope())
		var ctx Context
		var out vec.Column
		p.Eval(&ctx, &vec.Rows{N: 1}, nil, &out)
		if got := literal(out.Value(0)); got != want {
			t.Errorf("%s = %s, the page says %s", src, got, want)
		}
	}
}
