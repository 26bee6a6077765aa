package engine_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/plan"
)

func TestDefinitionFollowsEachStateToItsSources(t *testing.T) {
	define := func(more bool) map[string][]plan.Way {
		p := engine.New("test")
		lines := engine.From(p, "lines", nowhere{}, codec.String())
		if more {
			engine.Aggregate(engine.GroupBy(engine.Map(lines, func(s string) string { return s }), func(s string) string { return s }), "more", agg.Count[string]("n"))
		}
		others := engine.From(p, "others", nowhere{}, codec.String())
		long := lines.Filter(func(s string) bool { return s != "" }).Peek(func(*engine.Batch, string) {})
		both := engine.Merge(long, engine.Map(others, func(s string) string { return s }))
		totals := engine.BatchAggregate[int64](engine.GroupBy(both, func(s string) string { return s }), "totals", agg.Count[string]("n"))
		engine.Aggregate(engine.GroupBy(totals, func(t engine.Total[string, int64]) string { return t.Key }), "counts", agg.Count[engine.Total[string, int64]]("n"))
		pl, err := p.Plan()
		if err != nil {
			t.Fatal(err)
		}
		ways := map[string][]plan.Way{}
		for _, s := range pl.Definition.States {
			ways[s.Schema.Name] = s.Ways
		}
		return ways
	}
	const total = "batch aggregate n count(int) by [key]"
	want := []plan.Way{
		{Source: "lines", Steps: []string{"filter", total, "group", "aggregate"}},
		{Source: "others", Steps: []string{"map", total, "group", "aggregate"}},
	}
	if got := define(false)["counts"]; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := define(true)["counts"]; !reflect.DeepEqual(got, want) {
		t.Errorf("a stream more changes it: %+v", got)
	}
}

// TestReservedName: what the pipelines' savepoints lie in can't be a pipeline's own directory.
func TestReservedName(t *testing.T) {
	for _, name := range []string{"savepoints", "Savepoints"} {
		if _, err := engine.New(name).Plan(); err == nil || !strings.Contains(err.Error(), "holds the pipelines' savepoints") {
			t.Errorf("a pipeline named %s: %v", name, err)
		}
	}
}
