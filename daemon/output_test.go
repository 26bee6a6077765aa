package daemon

import (
	"strings"
	"testing"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// TestWhatATerminalObeys: no value of a state moves the cursor, rings or changes colours.
func TestWhatATerminalObeys(t *testing.T) {
	for _, s := range []string{"a\x1b[2Jb", "bell\a", "back\b", "c1\u009b31m", "nul\x00", "line\nline", "del\x7f", "\xff"} {
		got := printable(s)
		if got == s || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }) {
			t.Errorf("%q is printed as %q", s, got)
		}
	}
	for _, s := range []string{"", "plain", "Zoë 東京 🙂", `back\slash "quoted"`} {
		if got := printable(s); got != s {
			t.Errorf("%q is printed as %q", s, got)
		}
	}
}

// TestNullAndEmpty: each form tells a null from an empty string.
func TestNullAndEmpty(t *testing.T) {
	for format, want := range map[string]string{
		formatCSV:   "s,t\n,\"\"\n\"a,\"\"b\"\"\",\" c\"\n",
		formatTable: "s      t\nNULL\na,\"b\"   c\n",
		formatJSON:  "[\n  {\"s\": null, \"t\": \"\"},\n  {\"s\": \"a,\\\"b\\\"\", \"t\": \" c\"}\n]\n",
	} {
		var b strings.Builder
		p := newStatePrinter(format, &b)
		if err := p.Begin(0, []state.Column{{Name: "s", Type: "string"}, {Name: "t", Type: "string"}}); err != nil {
			t.Fatal(err)
		}
		for _, row := range [][]value.Value{{value.NullValue(), value.StringOf("")}, {value.StringOf(`a,"b"`), value.StringOf(" c")}} {
			if err := p.Row(row); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.end(); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("%s:\n%q, want\n%q", format, b.String(), want)
		}
	}
}
