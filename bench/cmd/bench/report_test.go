package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}} {
		if got := median(c.in); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

// TestSummary has the machine slow down in the second round, for both programs: the ratio is taken within rounds.
func TestSummary(t *testing.T) {
	runs := []Run{
		{Program: "b", Round: 1, Rate: 50, Records: 1e6, CPU: 2, Other: 0.5},
		{Program: "a", Round: 1, Rate: 100, Records: 1e6, CPU: 1, PeakMemory: 7},
		{Program: "a", Round: 2, Rate: 10, Records: 1e6, CPU: 1, PeakMemory: 9},
		{Program: "b", Round: 2, Rate: 5, Records: 1e6, CPU: 2},
		{Program: "b", Round: 3, Rate: 30, Records: 1e6, CPU: 2},
		{Program: "a", Round: 3, Rate: 60, Records: 1e6, CPU: 1, PeakMemory: 8},
	}
	rows := summary(runs, []string{"a", "b", "never ran"})
	if len(rows) != 2 {
		t.Fatalf("%d rows, want 2", len(rows))
	}
	a, b := rows[0], rows[1]
	if a.Program != "a" || a.Rate != 60 || a.Slowest != 10 || a.Fastest != 100 || a.Ratio != 1 || a.PeakMemory != 8 || a.Disturbed != 0 {
		t.Errorf("%+v", a)
	}
	if b.Rate != 30 || b.Ratio != 0.5 || b.CPURatio != 2 || b.CPUPerMillion != 2 || b.Disturbed != 1 || b.Runs != 3 {
		t.Errorf("%+v", b)
	}
}

func TestReport(t *testing.T) {
	b := &bench{report: newReport()}
	b.report.Runs = []Run{{Scenario: "drain", Program: "ours", Round: 1, Records: 1000, Rate: 2_500_000, CPU: 0.5, Other: 0.2}}
	rows := b.finish("drain", []*program{{name: "ours"}})
	b.atLeast("speed", 2.5, 3, "M records/s", rows[0].Disturbed > 0)
	b.atMost("memory", 100, 250, "MB", false)
	var out bytes.Buffer
	b.report.print(&out)
	for _, want := range []string{
		"| ours | 1000 | 2.50M |", "| speed | at least 3 M records/s | 2.5 | missed, but the machine wasn't quiet |", "| memory | at most 250 MB | 100 | met |", "Not a quiet machine: in 1 runs",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	name := filepath.Join(t.TempDir(), "report.json")
	if err := b.report.save(name); err != nil {
		t.Fatal(err)
	}
	var again Report
	if text, err := os.ReadFile(name); err != nil {
		t.Fatal(err)
	} else if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if len(again.Runs) != 1 || again.Runs[0] != b.report.Runs[0] || len(again.Goals) != 2 {
		t.Errorf("%+v", again)
	}
}

func TestChosen(t *testing.T) {
	names := func(todo []scenario) (out []string) {
		for _, s := range todo {
			out = append(out, s.name)
		}
		return out
	}
	if got, err := chosen(nil); err != nil || !slices.Equal(names(got), []string{"drain"}) {
		t.Errorf("%v %v", names(got), err)
	}
	if got, err := chosen([]string{"live", "drain"}); err != nil || !slices.Equal(names(got), []string{"drain", "live"}) {
		t.Errorf("%v %v", names(got), err)
	}
	if got, err := chosen([]string{"all"}); err != nil || len(got) != len(scenarios) {
		t.Errorf("%v %v", names(got), err)
	}
	if _, err := chosen([]string{"drains"}); err == nil || !strings.Contains(err.Error(), "drains") {
		t.Error(err)
	}
}

func TestProc(t *testing.T) {
	m, err := parseMachine("cpu  100 20 30 1000 50 7 8 40 0 0\ncpu0 1 2 3\n")
	if err != nil || m.busy != 190*tick || m.all != 1255*tick {
		t.Errorf("%+v %v", m, err)
	}
	if _, err := parseMachine("intr 5"); err == nil {
		t.Error("no error for a text that is no /proc/stat")
	}
	p, err := parseProcess("12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20")
	if err != nil || p != 3*time.Second {
		t.Errorf("%v %v", p, err)
	}
	if _, err := parseProcess("12 (x) S"); err == nil {
		t.Error("no error for a text that is no /proc/PID/stat")
	}
}

func TestOthers(t *testing.T) {
	before := usage{machine: machine{busy: 10 * time.Second, all: 100 * time.Second}, servers: time.Second}
	after := usage{machine: machine{busy: 20 * time.Second, all: 120 * time.Second}, own: 5 * time.Second, servers: 2 * time.Second}
	if got := others(before, after); got != 0.2 {
		t.Errorf("others took %v of the machine, want 0.2", got)
	}
	after.own = 50 * time.Second // ticks are coarse: never less than nothing
	if got := others(before, after); got != 0 {
		t.Errorf("others took %v of the machine, want 0", got)
	}
}

func TestWaits(t *testing.T) {
	ms := int64(time.Millisecond)
	done := [][]commit{{{end: 2, at: 5 * ms}, {end: 5, at: 9 * ms}}}
	produced, committed, err := waits([]sending{{offset: 1, sent: ms, acked: 2 * ms}, {offset: 2, sent: 2 * ms, acked: 4 * ms}}, done)
	if err != nil || !slices.Equal(produced, []float64{1, 2}) || !slices.Equal(committed, []float64{4, 7}) {
		t.Errorf("%v %v %v", produced, committed, err)
	}
	if _, _, err := waits([]sending{{offset: 5}}, done); err == nil {
		t.Error("no error for a record whose commit wasn't noted")
	}
}

func TestLags(t *testing.T) {
	got := lags([]int64{10, 20, 30}, []int64{100, 200, 300}, []int64{15, 20, 31}, []int64{80, 150, 300})
	if !slices.Equal(got, []int64{100, 50, 150}) {
		t.Errorf("%v", got)
	}
}
