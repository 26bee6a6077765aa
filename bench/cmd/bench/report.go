package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"
)

// Report is all that was measured.
type Report struct {
	Date    time.Time `json:"date"`
	Machine string    `json:"machine"`
	Cores   int       `json:"cores"`
	Memory  int64     `json:"memory_bytes"`
	Go      string    `json:"go"`
	Runs    []Run     `json:"runs"`
	Rows    []Row     `json:"rows"`
	Figures []Figure  `json:"figures,omitempty"`
	Goals   []Goal    `json:"goals"`
}

// Row is what the runs of one program come to: medians.
type Row struct {
	Scenario string  `json:"scenario"`
	Program  string  `json:"program"`
	Records  int64   `json:"records"`
	Rate     float64 `json:"records_per_second"`
	Slowest  float64 `json:"slowest"`
	Fastest  float64 `json:"fastest"`
	// Ratio is the median, over the rounds, of this program's rate and that of the first one of the scenario in the same round.
	Ratio         float64 `json:"ratio"`
	CPUPerMillion float64 `json:"cpu_seconds_per_million"`
	CPURatio      float64 `json:"cpu_ratio"`
	ServersCPU    float64 `json:"servers_cpu_seconds"`
	PeakMemory    int64   `json:"peak_memory_bytes"`
	Allocs        float64 `json:"allocations_per_record"`
	Disturbed     int     `json:"disturbed_runs"`
	Runs          int     `json:"runs"`
}

// Figure is something measured that isn't a rate.
type Figure struct {
	Scenario string  `json:"scenario"`
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
}

// Goal is a figure with what it should be.
type Goal struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Limit     float64 `json:"limit"`
	AtMost    bool    `json:"at_most"` // otherwise at least
	Met       bool    `json:"met"`
	Disturbed bool    `json:"disturbed"` // others used the machine meanwhile
}

func newReport() Report {
	return Report{Date: time.Now().UTC().Truncate(time.Second), Machine: cpuModel(), Cores: runtime.NumCPU(), Memory: memoryTotal(), Go: runtime.Version()}
}

// median of nothing is 0.
func median[T int64 | float64](vs []T) T {
	if len(vs) == 0 {
		return 0
	}
	vs = slices.Sorted(slices.Values(vs))
	if len(vs)%2 == 1 {
		return vs[len(vs)/2]
	}
	return (vs[len(vs)/2-1] + vs[len(vs)/2]) / 2
}

// summary makes the rows of a scenario, one for each of the programs that ran. Ratios to the first program are taken
// within a round, where both had the machine in much the same state.
func summary(runs []Run, programs []string) []Row {
	base := map[int]Run{}
	by := map[string][]Run{}
	for _, r := range runs {
		if r.Program == programs[0] {
			base[r.Round] = r
		}
		by[r.Program] = append(by[r.Program], r)
	}
	var rows []Row
	for _, name := range programs {
		rs := by[name]
		if len(rs) == 0 {
			continue
		}
		row := Row{Scenario: rs[0].Scenario, Program: name, Records: rs[0].Records, Runs: len(rs)}
		var rate, ratio, cpu, cpuRatio, servers, allocs []float64
		var memory []int64
		for _, r := range rs {
			rate = append(rate, r.Rate)
			cpu = append(cpu, r.CPU/float64(r.Records)*1e6)
			servers = append(servers, r.Servers)
			allocs = append(allocs, float64(r.Allocs)/float64(r.Records))
			memory = append(memory, r.PeakMemory)
			if r.Other > quietShare {
				row.Disturbed++
			}
			if b, ok := base[r.Round]; ok {
				ratio = append(ratio, r.Rate/b.Rate)
				if b.CPU > 0 { // it is told in hundredths of a second
					cpuRatio = append(cpuRatio, r.CPU/float64(r.Records)/(b.CPU/float64(b.Records)))
				}
			}
		}
		row.Rate, row.Slowest, row.Fastest = median(rate), slices.Min(rate), slices.Max(rate)
		row.Ratio, row.CPUPerMillion, row.CPURatio = median(ratio), median(cpu), median(cpuRatio)
		row.ServersCPU, row.Allocs, row.PeakMemory = median(servers), median(allocs), median(memory)
		rows = append(rows, row)
	}
	return rows
}

// finish adds a scenario's rows.
func (b *bench) finish(scenario string, programs []*program) []Row {
	var names []string
	for _, p := range programs {
		names = append(names, p.name)
	}
	var runs []Run
	for _, r := range b.report.Runs {
		if r.Scenario == scenario {
			runs = append(runs, r)
		}
	}
	rows := summary(runs, names)
	b.report.Rows = append(b.report.Rows, rows...)
	return rows
}

func find(rows []Row, program string) (Row, bool) {
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Program == program })
	if i < 0 {
		return Row{}, false
	}
	return rows[i], true
}

func (b *bench) figure(scenario, name string, v float64, unit string) {
	b.report.Figures = append(b.report.Figures, Figure{scenario, name, v, unit})
}

func (b *bench) atLeast(name string, v, limit float64, unit string, disturbed bool) {
	b.report.Goals = append(b.report.Goals, Goal{name, v, unit, limit, false, v >= limit, disturbed})
}

func (b *bench) atMost(name string, v, limit float64, unit string, disturbed bool) {
	b.report.Goals = append(b.report.Goals, Goal{name, v, unit, limit, true, v <= limit, disturbed})
}

// print writes the tables as Markdown, which reads as well in a terminal.
func (r *Report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s, %d cores (%s), %d GiB, %s\n", r.Date.Format("2006-01-02"), r.Cores, r.Machine, (r.Memory+1<<29)>>30, r.Go)
	scenario := ""
	disturbed := 0
	for _, row := range r.Rows {
		if row.Scenario != scenario {
			scenario = row.Scenario
			fmt.Fprintf(w, "\n%s\n\n| program | records | records/s | slowest to fastest | of the first | CPU s per million | CPU of the first | servers' CPU s | peak MB | allocations per record | runs disturbed |\n|---|---|---|---|---|---|---|---|---|---|---|\n", scenario)
		}
		allocs := "–"
		if row.Allocs > 0 {
			allocs = fmt.Sprintf("%.3f", row.Allocs)
		}
		fmt.Fprintf(w, "| %s | %d | %s | %s to %s | %.2f | %.2f | %.2f | %.1f | %d | %s | %d of %d |\n", row.Program, row.Records, short(row.Rate), short(row.Slowest), short(row.Fastest),
			row.Ratio, row.CPUPerMillion, row.CPURatio, row.ServersCPU, row.PeakMemory>>20, allocs, row.Disturbed, row.Runs)
		disturbed += row.Disturbed
	}
	if len(r.Figures) > 0 {
		fmt.Fprint(w, "\n| figure | | |\n|---|---|---|\n")
		for _, f := range r.Figures {
			fmt.Fprintf(w, "| %s | %s | %.3g %s |\n", f.Scenario, f.Name, f.Value, f.Unit)
		}
	}
	if len(r.Goals) > 0 {
		fmt.Fprint(w, "\n| goal | limit | measured | |\n|---|---|---|---|\n")
		for _, g := range r.Goals {
			bound, verdict := "at least", "missed"
			if g.AtMost {
				bound = "at most"
			}
			if g.Met {
				verdict = "met"
			}
			if g.Disturbed {
				verdict += ", but the machine wasn't quiet"
			}
			fmt.Fprintf(w, "| %s | %s %.3g %s | %.3g | %s |\n", g.Name, bound, g.Limit, g.Unit, g.Value, verdict)
		}
	}
	if disturbed > 0 {
		fmt.Fprintf(w, "\nNot a quiet machine: in %d runs others took more than %.0f %% of it. Such figures can't be held against others.\n", disturbed, 100*quietShare)
	}
}

func (r *Report) save(name string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(b, '\n'), 0o644)
}

// short is a number with a unit: 3.42M.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.1fk", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}
