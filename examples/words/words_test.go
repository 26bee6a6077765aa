package main

import (
	"maps"
	"testing"

	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
	"github.com/tridentd/tridentd/spec/spectest"
)

func TestWords(t *testing.T) {
	build := func() *engine.Pipeline { return Words(kafka.FromEnv()) }
	in := []enginetest.Input{{"lines": {"a b"}}, {"lines": {"A"}}} // two batches
	r := enginetest.Run(t, build(), in...)
	if got := enginetest.State[string, int64](r, "counts"); !maps.Equal(got, map[string]int64{"a": 2, "b": 1}) {
		t.Errorf("counts: %v", got)
	}
	enginetest.Deterministic(t, build, in...) // every crash point, 1, 2 and 16 procs, other pipelining: same bytes
}

// TestDeclared runs the tests in words_test.yaml.
func TestDeclared(t *testing.T) { spectest.Run(t, "words.yaml") }
