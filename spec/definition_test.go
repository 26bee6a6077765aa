package spec

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/tridentd/tridentd/internal/plan"
)

func definitionOf(t *testing.T, yaml string) *plan.Definition {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Load(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return pl.Definition
}

func TestDefinitionSaysWhatDecidesTheResults(t *testing.T) {
	got, err := json.MarshalIndent(definitionOf(t, `
pipeline: words
batch: {max_records: 7}
sources:
  lines: {generate: {kind: words, seed: 1, count: 10}}
streams:
  words:
    from: lines
    steps:
      - filter: len(value) > 1
  counts:
    from: words
    steps:
      - filter: value != "x"
      - group_by: [value]
      - aggregate: {n: count()}
`), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
 "sources": [
  {
   "name": "lines",
   "settings": [
    {
     "name": "input",
     "value": "generated words, seed 1, partitions 1"
    },
    {
     "name": "decode",
     "value": "decode string"
    },
    {
     "name": "on_bad_record",
     "value": "stop",
     "policy": true
    }
   ]
  }
 ],
 "states": [
  {
   "schema": {
    "name": "counts",
    "kind": "aggregate",
    "key": [
     {
      "name": "value",
      "type": "string"
     }
    ],
    "values": [
     {
      "name": "n",
      "type": "int",
      "agg": "count"
     }
    ]
   },
   "ways": [
    {
     "source": "lines",
     "steps": [
      "filter len(value) \u003e 1",
      "filter value != \"x\"",
      "group_by value",
      "aggregate n = count()"
     ]
    }
   ]
  }
 ]
}`
	if string(got) != want {
		t.Errorf("got %s", got)
	}
}
