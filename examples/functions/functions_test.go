package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/spec"
	"github.com/tridentd/tridentd/spec/spectest"
)

func TestVisits(t *testing.T) {
	spectest.Run(t, "visits.yaml", spec.Options{Functions: program().Functions})
}

// TestCommands runs the example as users do. The seed of a batch isn't known beforehand, but recorded: the replay's sample is the run's.
func TestCommands(t *testing.T) {
	data := t.TempDir()
	command := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := program().Execute(t.Context(), append(args, "--data", data), &out, &errs); code != 0 {
			t.Fatalf("%v: exit %d\n%s", args, code, errs.String())
		}
		return out.String()
	}
	command("run", "visits.yaml", "--until", "caught-up", "--listen", "off")
	const families = `family   section   visits
curl                   14
curl     blog          18
curl     docs          34
curl     download      14
safari                 14
safari   blog          16
safari   docs          30
safari   download      20
unknown                12
unknown  blog           6
unknown  docs          16
unknown  download       6
`
	if got := command("query", "visits.yaml", "by_family"); got != families {
		t.Errorf("by_family:\n%s\nwant\n%s", got, families)
	}
	const sample = `path              visits
/                     12
/blog/1               11
/docs/                 7
/docs/guide            8
/download/latest       8
`
	if got := command("query", "visits.yaml", "sample"); len(strings.Split(got, "\n")) != len(strings.Split(sample, "\n")) {
		t.Errorf("sample:\n%s\nwant something like\n%s", got, sample)
	}
	if got := command("replay", "visits.yaml", "--verify"); !strings.Contains(got, "equal (byte for byte)") {
		t.Error(got)
	}
}
