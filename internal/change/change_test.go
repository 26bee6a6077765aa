package change

import (
	"slices"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/state"
)

func schema(name string, aggs ...string) state.Schema {
	s := state.Schema{Name: name, Kind: "aggregate", Key: []state.Column{{Name: "k", Type: "string"}}}
	for _, a := range aggs {
		s.Values = append(s.Values, state.Column{Name: a, Type: "int", Agg: a})
	}
	return s
}

func source(name, input string) plan.Part {
	return plan.Part{Name: name, Settings: []plan.Setting{{Name: "input", Value: input}, {Name: "on_bad_record", Value: "stop", Policy: true}}}
}

// waiting is a state of rows that wait, of which the fields are told; none: they aren't.
func waiting(fields ...string) state.Schema {
	s := state.Schema{Name: "a.join", Kind: "opaque", Key: []state.Column{{Name: "k", Type: "string"}}}
	for _, f := range fields {
		s.Values = append(s.Values, state.Column{Name: f, Type: "int"})
	}
	return s
}

// TestWhatIsInOpaqueValues: another name is another thing there; what isn't told can't differ.
func TestWhatIsInOpaqueValues(t *testing.T) {
	of := func(s state.Schema) *plan.StateDefinition { return &plan.StateDefinition{Schema: s} }
	for _, c := range []struct {
		was, is state.Schema
		says    string
	}{
		{waiting("time", "x"), waiting("time", "x"), ""},
		{waiting("time", "x"), waiting("time", "y"), "what it keeps"},
		{waiting("time"), waiting("time", "y"), "what it keeps"},
		{waiting(), waiting("time", "y"), ""},
		{waiting("time", "y"), waiting(), ""},
	} {
		var cmp comparison
		cmp.schema(of(c.was), of(c.is))
		got := ""
		for _, d := range cmp.all {
			got += d.Aspect
		}
		if got != c.says {
			t.Errorf("%v, then %v: %q, want %q", c.was.Values, c.is.Values, got, c.says)
		}
	}
}

// base is a pipeline with two states.
func base() plan.Definition {
	other := source("other", "topic b (x)")
	other.Settings[0].Items = []string{"b"}
	return plan.Definition{
		Sources: []plan.Part{source("lines", "topic a"), other},
		Tables:  []plan.Part{{Name: "table", Settings: []plan.Setting{{Name: "input", Value: "t.csv"}}}},
		States: []plan.StateDefinition{
			{Schema: schema("a", "count"), Ways: []plan.Way{{Source: "lines", Steps: []string{"filter x", "group_by k", "count"}}}, Tables: []string{"table"}},
			{Schema: schema("b", "sum"), Ways: []plan.Way{{Source: "other", Steps: []string{"group_by k", "sum"}}}},
		},
	}
}

func stored(d plan.Definition) []state.Schema {
	all := []state.Schema{{Name: "_rejected"}}
	for _, s := range d.States {
		all = append(all, s.Schema)
	}
	return all
}

func TestWhatGoesOnAndWhatDoesNot(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(d *plan.Definition)
		need   Need
		says   string
	}{
		{"a filter", func(d *plan.Definition) { d.States[0].Ways[0].Steps[0] = "filter y" }, Accept, "state a: step 1 from lines: was filter x, is filter y"},
		{"a step more", func(d *plan.Definition) {
			d.States[0].Ways[0].Steps = slices.Insert(d.States[0].Ways[0].Steps, 1, "set z")
		}, Accept, "step 2 from lines: was nothing, is set z"},
		{"the topic", func(d *plan.Definition) { d.Sources[0].Settings[0].Value = "topic c" }, Accept, "source lines: input: was topic a, is topic c (feeds a)"},
		{"a topic more", func(d *plan.Definition) {
			d.Sources[1].Settings[0] = plan.Setting{Name: "input", Value: "topic b, c (x)", Items: []string{"b", "c"}}
		}, Nothing, "source other: input: was topic b (x), is topic b, c (x); what is listed anew"},
		{"other topics", func(d *plan.Definition) {
			d.Sources[1].Settings[0] = plan.Setting{Name: "input", Value: "topic c (x)", Items: []string{"c"}}
		}, Accept, "was topic b (x), is topic c (x) (feeds b)"},
		{"another isolation", func(d *plan.Definition) {
			d.Sources[1].Settings[0] = plan.Setting{Name: "input", Value: "topic b (y)", Items: []string{"b"}}
		}, Accept, "was topic b (x), is topic b (y) (feeds b)"},
		{"the table's file", func(d *plan.Definition) { d.Tables[0].Settings[0].Value = "u.csv" }, Accept, "table table: input: was t.csv, is u.csv (feeds a)"},
		{"another source feeds it", func(d *plan.Definition) {
			d.States[1].Ways = append(d.States[1].Ways, plan.Way{Source: "lines", Steps: []string{"sum"}})
		}, Accept, "state b: it is also fed from lines: sum"},
		{"a source feeds it no more", func(d *plan.Definition) { d.States[1].Ways[0].Source = "lines" }, Accept, "isn't fed from other any more"},
		{"the policy", func(d *plan.Definition) { d.Sources[0].Settings[1].Value = "skip" }, Nothing, "on_bad_record: was stop, is skip; it counts from now on"},
		{"another aggregate", func(d *plan.Definition) { d.States[0].Schema = schema("a", "count", "sum") }, Rebuild, "what it keeps: was [count count(int)] by [k string], is [count count(int), sum sum(int)] by [k string]"},
		{"another name of a column", func(d *plan.Definition) { d.States[0].Schema.Values[0].Name = "n" }, Accept, "names of columns"},
		{"another window", func(d *plan.Definition) { d.States[0].Schema.Window = &state.Window{Size: 1e9} }, Rebuild, "in windows of 1s"},
		{"a new state", func(d *plan.Definition) {
			d.States = append(d.States, plan.StateDefinition{Schema: schema("c", "max")})
		}, Nothing, "state c: added"},
		{"a state less", func(d *plan.Definition) { d.States = d.States[:1] }, Nothing, "state b: removed"},
		{"a new name", func(d *plan.Definition) { d.States[0].Schema.Name = "a2" }, Rename, "it looks like state a, which is gone"},
		{"a new source", func(d *plan.Definition) { d.Sources = append(d.Sources, source("third", "topic t")) }, Nothing, "source third: added: topic t"},
	} {
		t.Run(c.name, func(t *testing.T) {
			is := base()
			c.change(&is)
			r, err := Resolve(base(), is, stored(base()), Decisions{})
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			for _, d := range r.Differences {
				said = append(said, d.String())
			}
			if !strings.Contains(strings.Join(said, "\n"), c.says) {
				t.Errorf("%q isn't said in:\n%s", c.says, strings.Join(said, "\n"))
			}
			switch {
			case c.need == Nothing && len(r.Open) > 0:
				t.Errorf("open: %v", r.Open)
			case c.need != Nothing && !slices.ContainsFunc(r.Open, func(d Difference) bool { return d.Need == c.need }):
				t.Errorf("open: %v, want one that needs %s", r.Open, c.need)
			}
			all, err := Resolve(base(), is, stored(base()), Decisions{Accept: true})
			if err != nil {
				t.Fatal(err)
			}
			if open := len(all.Open) > 0; open != (c.need == Rebuild) {
				t.Errorf("accepted, open: %v", all.Open)
			}
			if whole, err := Resolve(base(), is, stored(base()), Decisions{RebuildAll: true}); err != nil || len(whole.Open) > 0 {
				t.Errorf("rebuilt as a whole, open: %v, %v", whole, err)
			}
		})
	}
	if r, err := Resolve(base(), base(), stored(base()), Decisions{}); err != nil || len(r.Differences)+len(r.Steps) > 0 {
		t.Errorf("nothing has changed: %+v, %v", r, err)
	}
}

func TestRenames(t *testing.T) {
	is := base()
	is.States[0].Schema.Name = "a2"
	is.Sources[0].Name = "lines2"
	is.States[0].Ways[0].Source = "lines2"
	r, err := Resolve(base(), is, stored(base()), Decisions{Rename: map[string]string{"a": "a2"}, Sources: map[string]string{"lines": "lines2"}})
	if err != nil || len(r.Open) > 0 || len(r.Differences) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	var steps []string
	for _, s := range r.Steps {
		steps = append(steps, s.String())
	}
	if !slices.Equal(steps, []string{"rename source:lines=lines2", "rename a=a2"}) {
		t.Errorf("steps %v", steps)
	}
	for _, bad := range []Decisions{
		{Rename: map[string]string{"nope": "a2"}},
		{Rename: map[string]string{"a": "nope"}},
		{Rename: map[string]string{"a": "b"}},
		{Rename: map[string]string{"a": "a2", "b": "a2"}},
		{Rename: map[string]string{"a": "a2"}, Drop: []string{"a"}},
		{Sources: map[string]string{"lines": "lines2", "other": "lines2"}},
		{Sources: map[string]string{"nope": "lines2"}},
		{Sources: map[string]string{"lines": "other"}},
		{Drop: []string{"b"}},
		{Drop: []string{"nope"}},
		{Drop: []string{"_rejected"}},
		{Backfill: []string{"b"}},
		{Backfill: []string{"nope"}},
		{Rebuild: []string{"a2"}},
		{Rebuild: []string{"nope"}},
		{Rename: map[string]string{"_rejected": "a2"}},
	} {
		if _, err := Resolve(base(), is, stored(base()), bad); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}

func TestAStateThatComesBackIsNotTakenForANewOne(t *testing.T) {
	was := base()
	was.States = was.States[:1]
	r, err := Resolve(was, base(), stored(base()), Decisions{})
	if err != nil || len(r.Open) != 1 || r.Open[0].Need != Accept || r.Open[0].Name != "b" {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, d := range []Decisions{{Accept: true}, {Drop: []string{"b"}}, {Backfill: []string{"b"}}, {Rebuild: []string{"b"}}} {
		if r, err := Resolve(was, base(), stored(base()), d); err != nil || len(r.Open) > 0 || len(r.Steps) == 0 {
			t.Errorf("%+v: %+v, %v", d, r, err)
		}
	}
	other := base()
	other.States[1].Schema = schema("b", "max")
	if r, err := Resolve(was, other, stored(base()), Decisions{Accept: true}); err != nil || len(r.Open) != 1 || r.Open[0].Need != Rebuild {
		t.Errorf("with another content: %+v, %v", r, err)
	}
}

func TestRetentionChangesTheSchemaOnly(t *testing.T) {
	was, is := base(), base()
	was.States[0].Schema.Window = &state.Window{Size: 1e9, Retention: 1e9}
	is.States[0].Schema.Window = &state.Window{Size: 1e9, Retention: 2e9}
	r, err := Resolve(was, is, stored(was), Decisions{})
	if err != nil || len(r.Open) > 0 || len(r.Schemas) != 1 || r.Schemas[0].Window.Retention != 2e9 {
		t.Errorf("%+v, %v", r, err)
	}
}
