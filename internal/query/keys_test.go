package query

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

var undeclared = state.Schema{Name: "s", Key: []state.Column{{Name: "u", Type: "any"}, {Name: "v", Type: "any"}}}

func finds(t interface{ Fatalf(string, ...any) }, text string, v value.Value) bool {
	prefixes, err := Prefixes(undeclared, []string{text})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return slices.ContainsFunc(prefixes, func(p []byte) bool { return bytes.Equal(p, value.AppendKey(nil, v)) })
}

// TestPrefixesFindWhatIsShown: where no type is declared, a value is found by the text that a table shows it as, and a string by its JSON,
// too.
func TestPrefixesFindWhatIsShown(t *testing.T) {
	for typ, draw := range drawn {
		t.Run(typ, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				v := draw(rt)
				text := string(value.AppendText(nil, v))
				if v.Kind() == value.String {
					if !finds(rt, string(value.AppendJSON(nil, v)), v) {
						rt.Fatalf("%q isn't found by its JSON", text)
					}
					if strings.HasPrefix(strings.TrimSpace(text), `"`) {
						return
					}
				}
				if !finds(rt, text, v) {
					rt.Fatalf("%s %q isn't found", v.Kind(), text)
				}
			})
		})
	}
}

func TestPrefixesOfUndeclared(t *testing.T) {
	one, two, list := value.IntOf(1), value.FloatOf(2), value.ListOf([]value.Value{value.IntOf(1)})
	for _, c := range []struct {
		text      string
		found     []value.Value
		different []value.Value
	}{
		{"t", []value.Value{value.StringOf("t")}, []value.Value{value.BoolOf(true)}},
		{"True", []value.Value{value.StringOf("True")}, []value.Value{value.BoolOf(true)}},
		{"true", []value.Value{value.BoolOf(true), value.StringOf("true")}, nil},
		{"1", []value.Value{one, value.FloatOf(1), value.StringOf("1")}, []value.Value{two}},
		{`"1"`, []value.Value{value.StringOf("1")}, []value.Value{one, value.StringOf(`"1"`)}},
		{`"\"1\""`, []value.Value{value.StringOf(`"1"`)}, nil},
		{"2.0", []value.Value{two, value.StringOf("2.0")}, []value.Value{value.IntOf(2)}},
		{"null", []value.Value{value.NullValue(), value.StringOf("null")}, nil},
		{"", []value.Value{value.StringOf("")}, []value.Value{value.NullValue()}},
		{"[1]", []value.Value{list, value.JSONOf("[1]"), value.StringOf("[1]")}, nil},
		{`{"a":1}`, []value.Value{value.JSONOf(`{"a":1}`), value.StringOf(`{"a":1}`)}, nil},
		{"18446744073709551615", []value.Value{value.UintOf(1<<64 - 1)}, nil},
	} {
		for _, v := range c.found {
			if !finds(t, c.text, v) {
				t.Errorf("%s doesn't find the %s %s", c.text, v.Kind(), v)
			}
		}
		for _, v := range c.different {
			if finds(t, c.text, v) {
				t.Errorf("%s finds the %s %s", c.text, v.Kind(), v)
			}
		}
	}
	// All pairs, in the order of keys, each once.
	prefixes, err := Prefixes(undeclared, []string{"true", "true"})
	if err != nil || len(prefixes) != 9 || !slices.IsSortedFunc(prefixes, bytes.Compare) { // a bool, a string, and base64
		t.Errorf("%d prefixes: %x, %v", len(prefixes), prefixes, err)
	}
	wide := state.Schema{Name: "s", Key: []state.Column{{Name: "u", Type: "int"}}}
	if p, err := Prefixes(wide, []string{"18446744073709551615"}); err != nil || !bytes.Equal(p[0], value.AppendKey(nil, value.UintOf(1<<64-1))) {
		t.Errorf("an integer beyond int64: %x, %v", p, err)
	}
	if _, err := Prefixes(undeclared, []string{"1", "2", "3"}); err == nil || !strings.Contains(err.Error(), "3 key values for state s, whose key has 2 columns") {
		t.Errorf("%v", err)
	}
}
