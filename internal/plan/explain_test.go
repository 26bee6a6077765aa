package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/state"
)

// waits is an operator that tells what it keeps.
type waits struct{ Operator }

func (waits) Keeps() (waiting, output string) { return "a while", "longer" }

func TestExplain(t *testing.T) {
	windowed := &State{Schema: state.Schema{Name: "hourly", Window: &state.Window{Retention: int64(36 * time.Hour)}}, Emit: EmitCloses}
	hourly := &Exchange{Name: "hourly", State: windowed, Next: func() StageTask { return nil }}
	sum := func(dst, a, b []byte) ([]byte, error) { return dst, nil }
	p := &Plan{
		Sources: []*Source{{ID: "in", Parallel: 2}},
		Exchanges: []*Exchange{
			{Name: "counts", Merge: sum, State: &State{Schema: state.Schema{Name: "counts"}, Mergeable: true}},
			hourly,
			{Name: "sessions", State: &State{Schema: state.Schema{Name: "sessions.open"}}, Output: &State{Schema: state.Schema{Name: "sessions"}}, Operator: func() Operator { return waits{} }},
			{Name: "other", State: &State{Schema: state.Schema{Name: "other"}}, Operator: func() Operator { return nil }},
			{Name: "totals", Merge: sum, Next: func() StageTask { return nil }, Parallel: 3},
		},
		Persists: []*Persist{{Name: "first", Schema: state.Schema{Name: "first"}, Before: hourly}, {Name: "last", Schema: state.Schema{Name: "last"}}},
		Statics:  []*Static{{Name: "countries"}},
		Sinks:    []*Sink{{Name: "out", Describe: "kafka topic out"}},
		Ledger:   Ledger{Changes: true, MaxBytes: -1, MaxBatches: 10},
	}
	x := p.Explain(16)
	var stages []string
	for _, s := range x.Stages {
		stages = append(stages, s.What)
	}
	if want := []string{"source in", "exchange counts", "persist first", "exchange hourly", "exchange sessions", "exchange other", "exchange totals", "persist last", "sink out"}; !slices.Equal(stages, want) {
		t.Errorf("stages %q, want %q", stages, want)
	}
	said := map[string]string{}
	for _, r := range append(x.Stages, x.Kept...) {
		said[r.What] = r.Says
	}
	for what, want := range map[string]string{
		"source in":         "at most 2 at once",
		"exchange counts":   "16 shards by key; state counts is written without being read",
		"exchange hourly":   "16 shards by key; state hourly is read, changed and written; then a task for each shard takes the rows of windows that close on",
		"exchange sessions": "an operator with timers, which waits in state sessions.open and writes to state sessions",
		"exchange totals":   "16 shards by key, at most 3 at once; totals of the batch; then a task for each shard takes its rows on",

		"state counts":        "for good",
		"state hourly":        "1d12h of batch time after the window has closed",
		"state sessions.open": "a while",
		"state sessions":      "longer",
		"state other":         "as its operator says",
		"state first":         "until its function deletes them",
		"ledger":              "7d or 10 batches, whichever is less; with what each batch changed",
		"savepoints":          "those made by command",
	} {
		if !strings.Contains(said[what], want) {
			t.Errorf("%s: %q lacks %q", what, said[what], want)
		}
	}
	p.Savepoints = Savepoints{To: "/backups", Every: 90 * time.Minute}
	p.Ledger = Ledger{MaxAge: -1}
	kept := fmt.Sprint(p.Explain(16).Kept)
	for _, want := range []string{"{savepoints the last 24, one every 1h30m}", "{ledger 2 GiB}"} {
		if !strings.Contains(kept, want) {
			t.Errorf("%s lacks %s", kept, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 500 * time.Millisecond: "500ms", time.Second: "1s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h",
		90 * time.Minute: "1h30m", time.Hour + 3*time.Second: "1h0m3s", 24 * time.Hour: "1d", 7*24*time.Hour + 2*time.Hour: "7d2h", 10 * time.Minute: "10m", 20 * time.Hour: "20h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
