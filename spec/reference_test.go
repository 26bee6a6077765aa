package spec

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestPublished holds the published reference and schema against the grammar. With -rewrite it writes them.
func TestPublished(t *testing.T) {
	for name, want := range map[string][]byte{"pipeline.md": Reference(), "pipeline.schema.json": Schema()} {
		path := filepath.Join("..", "docs", "reference", name)
		if flag.Lookup("rewrite").Value.String() == "true" {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the grammar says; write it again with `go test ./spec -run TestPublished -rewrite`", path)
		}
	}
}

// TestGrammarIsDescribed asks for a description of everything that can be written.
func TestGrammarIsDescribed(t *testing.T) {
	var walk func(path string, f *field)
	walk = func(path string, f *field) {
		if f.later {
			return
		}
		if f.name != "" && f.doc == "" && f.name != "source" && f.name != "state" && f.name != "stream" && f.name != "step" {
			t.Errorf("%s has no description", path)
		}
		if f.doc != "" && !strings.HasSuffix(f.doc, ".") {
			t.Errorf("%s: the description is no sentence: %s", path, f.doc)
		}
		if f.example != "" {
			var v map[string]any
			if err := yaml.Unmarshal([]byte(f.example), &v); err != nil {
				t.Errorf("%s: the example is not YAML: %v", path, err)
			} else if _, ok := v[f.name]; !ok {
				t.Errorf("%s: the example is of something else: %s", path, f.example)
			}
		}
		seen := map[string]bool{}
		for _, c := range f.fields {
			if seen[c.name] {
				t.Errorf("%s.%s is there twice", path, c.name)
			}
			seen[c.name] = true
			walk(path+"."+c.name, c)
		}
		for _, c := range []*field{f.item, f.enumOr} {
			if c != nil {
				walk(path+"[]", c)
			}
		}
	}
	walk("", grammar())
}

// TestSchemaIsJSON checks the schema's references to itself are none, and that each object is closed.
func TestSchemaIsJSON(t *testing.T) {
	var s map[string]any
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if _, ok := v["properties"].(map[string]any); ok && v["type"] == "object" {
				if v["additionalProperties"] != false {
					t.Errorf("%s takes unknown fields", path)
				}
			}
			for k, c := range v {
				walk(path+"/"+k, c)
			}
		case []any:
			for _, c := range v {
				walk(path, c)
			}
		}
	}
	walk("", s)
	if s["additionalProperties"] != false {
		t.Error("the file takes unknown fields")
	}
}
