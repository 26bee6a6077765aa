package spec

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
		if f.name != "" && f.doc == "" && f.name != "source" && f.name != "state" && f.name != "stream" && f.name != "step" && f.name != "sink" && f.name != "query" {
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

// TestSchemaIsClosed checks that no object takes unknown fields.
func TestSchemaIsClosed(t *testing.T) {
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

// conforms tells why a value doesn't fit a schema; empty if it does. It knows what Schema uses.
func conforms(s map[string]any, v any) string {
	fits := func(s any, v any) bool { return conforms(s.(map[string]any), v) == "" }
	str, isString := v.(string)
	if p, ok := s["pattern"].(string); ok && isString && !regexp.MustCompile(p).MatchString(str) {
		return fmt.Sprintf("%q doesn't match %s", str, p)
	}
	if types := s["type"]; types != nil {
		list, ok := types.([]any)
		if !ok {
			list = []any{types}
		}
		if !slices.Contains(list, any(typeName(v))) && !(typeName(v) == "integer" && slices.Contains(list, any("number"))) {
			return fmt.Sprintf("%v is %s, not %v", v, typeName(v), types)
		}
	}
	if e, ok := s["enum"].([]any); ok && !slices.Contains(e, v) {
		return fmt.Sprintf("%v is none of %v", v, e)
	}
	if least, ok := s["minimum"].(float64); ok && v.(float64) < least {
		return fmt.Sprintf("%v is below %v", v, least)
	}
	if any, ok := s["anyOf"].([]any); ok && !slices.ContainsFunc(any, func(s interface{}) bool { return fits(s, v) }) {
		return fmt.Sprintf("%v fits none", v)
	}
	if one, ok := s["oneOf"].([]any); ok {
		n := 0
		for _, s := range one {
			if fits(s, v) {
				n++
			}
		}
		if n != 1 {
			return fmt.Sprintf("%v fits %d of what it may fit one", v, n)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		required, _ := s["required"].([]any)
		for _, r := range required {
			if _, ok := v[r.(string)]; !ok {
				return fmt.Sprintf("%v is missing", r)
			}
		}
		props, _ := s["properties"].(map[string]any)
		for k, c := range v {
			sub, known := props[k].(map[string]any)
			if names, ok := s["propertyNames"]; ok && !fits(names, k) {
				return k + " is no name"
			}
			if !known {
				more, ok := s["additionalProperties"].(map[string]any)
				if !ok && s["additionalProperties"] != nil {
					return k + " is unknown"
				}
				sub = more
			}
			if why := conforms(sub, c); why != "" {
				return k + ": " + why
			}
		}
	case []any:
		items, _ := s["items"].(map[string]any)
		for _, c := range v {
			if why := conforms(items, c); why != "" {
				return why
			}
		}
	}
	return ""
}

func typeName(v any) string {
	switch v := v.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
		return "number"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	}
	return "null"
}

// TestSchema holds files against the schema: what Parse takes and refuses for its shape, the schema does.
func TestSchema(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	check := func(src string) string {
		j, err := yaml.YAMLToJSON([]byte(src))
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(j, &v); err != nil {
			t.Fatal(err)
		}
		return conforms(schema, v)
	}
	for _, file := range []string{"flights/flights.yaml", "words/words.yaml"} {
		src, err := os.ReadFile(filepath.Join(examples, file))
		if err != nil {
			t.Fatal(err)
		}
		if why := check(string(src)); why != "" {
			t.Errorf("%s: %s", file, why)
		}
	}
	if why := check(wide); why != "" {
		t.Errorf("the pipeline of all operators: %s", why)
	}
	base := "pipeline: p\nsources: {s: {file: {paths: [a]}, decode: csv}}\nstreams: {x: {from: s, steps: [{aggregate: {n: count()}}]}}\n"
	if why := check(base); why != "" {
		t.Fatalf("the base: %s", why)
	}
	for _, bad := range []string{
		strings.Replace(base, "pipeline: p", "pipeline: a.b", 1),
		strings.Replace(base, "pipeline: p", "", 1),
		strings.Replace(base, "paths", "path", 1),
		strings.Replace(base, "csv", "xml", 1),
		strings.Replace(base, "decode", "kafka: {topics: [t]}, decode", 1),
		strings.Replace(base, "aggregate", "filter: a, aggregate", 1),
		strings.Replace(base, "count()", "count", 1),
		base + "batch: {max_records: 0}\n",
		base + "batch: {interval: soon}\n",
		base + "batch: {max_bytes: 1XB}\n",
		base + "dead_letters: {}\n",
		base + "sinks: {k: {from: x}}\n",
	} {
		if check(bad) == "" {
			t.Errorf("the schema takes\n%s", bad)
		}
	}
}
