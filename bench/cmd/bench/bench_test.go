//go:build realkafka

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tridentd/tridentd/internal/testenv"
)

// TestBench runs the command on few records: every program must count right, and every scenario say what it measured.
func TestBench(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	bin := filepath.Join(t.TempDir(), "bench")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), bin, "-root", root, "-n", "20000", "-rounds", "1", "-keys", "5000", "-seconds", "2", "-rate", "20000", "-json", report,
		"drain", "keys", "operators", "live", "latency", "restart")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for _, row := range r.Rows {
		rows[row.Scenario]++
		if row.Rate <= 0 || row.Ratio <= 0 || row.PeakMemory <= 0 || row.Runs != 1 {
			t.Errorf("%+v", row)
		}
	}
	if rows["drain"] != 3 || rows["keys"] != 2 || rows["operators"] != 4 {
		t.Errorf("rows by scenario: %v", rows)
	}
	figures := map[string]float64{}
	for _, f := range r.Figures {
		figures[f.Scenario+": "+f.Name] = f.Value
	}
	for _, name := range []string{"live: sent", "latency: produce to acknowledged, p50", "latency: produce to committed and synced, p99", "restart: data directory"} {
		if figures[name] <= 0 {
			t.Errorf("%s is %v", name, figures[name])
		}
	}
	if figures["latency: produce to committed and synced, p50"] < figures["latency: produce to acknowledged, p50"]/2 {
		t.Errorf("commits came long before acknowledgements: %v", figures)
	}
	if len(r.Goals) != 16 {
		t.Errorf("%d goals, want 16: %+v", len(r.Goals), r.Goals)
	}
}
