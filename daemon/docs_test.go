package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/testenv"
)

// TestMetricsAreDocumented: every metric has its line in docs/operating.md, and every line its metric.
func TestMetricsAreDocumented(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	descs := make(chan *prometheus.Desc, 100)
	for _, c := range []prometheus.Collector{engine.NewMetrics("words", nil), newLagGrowing("words")} {
		c.Describe(descs)
	}
	close(descs)
	var have, told []string
	fqName := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range descs {
		have = append(have, fqName.FindStringSubmatch(d.String())[1])
	}
	for line := range strings.SplitSeq(string(page), "\n") {
		cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !ok || !strings.HasPrefix(cell, "`tridentd_") {
			continue
		}
		for name := range strings.SplitSeq(cell, ", ") {
			told = append(told, strings.Trim(name, "`"))
		}
	}
	slices.Sort(have)
	slices.Sort(told)
	if !slices.Equal(have, told) {
		t.Errorf("metrics\n%q\nin docs/operating.md\n%q", have, told)
	}
}

// TestFreshIsDocumented: whatever --fresh writes over is named, in its help and in docs/reference/commands.md.
func TestFreshIsDocumented(t *testing.T) {
	var help strings.Builder
	if code := Execute(t.Context(), []string{"run", "--help"}, &help, &help); code != exitDone {
		t.Fatalf("exit %d\n%s", code, help.String())
	}
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference", "commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"help": help.String(), "commands.md": string(page)} {
		line := regexp.MustCompile(`(?m)^.*--fresh.*$`).FindString(text)
		for _, want := range []string{"consumer group", "ZooKeeper"} {
			if !strings.Contains(line, want) {
				t.Errorf("%s says nothing of %s: %q", where, want, line)
			}
		}
	}
}
