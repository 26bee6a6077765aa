package agg_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/agg"
)

// TestReferenceListsAllFunctions holds docs/reference/aggregates.md against the functions.
func TestReferenceListsAllFunctions(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/aggregates.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)\\((|x[a-z, ]*)\\)` \\|(.*)\\|$").FindAllStringSubmatch(string(page), -1) {
		cells := strings.Split(m[3], "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows[m[1]] = append([]string{m[2]}, cells...)
	}
	types := []string{"int", "float", "decimal", "string", "timestamp", "bool", "bytes", "list", "any"}
	for _, name := range agg.Names() {
		f, _ := agg.Lookup(name)
		row, ok := rows[name]
		if !ok {
			t.Errorf("%s has no row", name)
			continue
		}
		delete(rows, name)
		if got := strings.Split(row[0], ", "); f.MaxArgs == 0 != (row[0] == "") || f.MaxArgs > 0 && len(got) != f.MaxArgs || f.Param != "" && got[1] != f.Param {
			t.Errorf("%s(%s): it takes up to %d arguments %s", name, row[0], f.MaxArgs, f.Param)
		}
		of, result, exact := row[2], row[3], row[5]
		for _, typ := range types {
			got, err := f.Result(typ)
			taken := of == "everything" || of == "all but lists" && typ != "list" || of == "records" || slices.Contains(strings.Split(of, ", "), typ) || of == "bool" && typ == "any"
			if (err == nil) != taken {
				t.Errorf("%s of %s: %v; the page says %q", name, typ, err, of)
				continue
			}
			if err != nil {
				continue
			}
			want := map[string]string{"the same": typ, "int": "int", "float": "float", "list": "list", "int: float, else the same": strings.Replace(typ, "int", "float", 1)}[result]
			if got != want {
				t.Errorf("%s of %s is a %s; the page says %s", name, typ, got, want)
			}
			says := exact == "yes" || strings.Contains(fmt.Sprintf(", %s,", exact), fmt.Sprintf(" %s,", typ))
			if f.MaxArgs > 0 && f.Exact(typ) != says {
				t.Errorf("%s of %s is exact: %v; the page says %q", name, typ, f.Exact(typ), exact)
			}
		}
	}
	for name := range rows {
		t.Errorf("the page has a row for %s", name)
	}
}
