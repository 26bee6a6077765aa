package spec_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/spec"
	"github.com/tridentd/tridentd/spec/spectest"
	"github.com/tridentd/tridentd/txstate"
)

const visits = `pipeline: visits
on_bad_record: skip
sources:
  visits:
    file: {paths: [visits.txt]}
    decode: json
    types: {ip: string, n: int}
streams:
  by_country:
    from: visits
    steps:
      - filter: not bot(agent)
      - set:
          country: country(ip)
      - group_by: [country]
      - aggregate:
          n: count()
          weight: sum(weight(n, 2))
tests:
  - name: a function's null, its error and its panic
    batches:
      - records:
          visits:
            - {ip: 1.1.1.1, agent: x, n: 1}
            - {ip: "?", agent: x, n: 2}
            - {ip: 1.1.1.2, agent: null, n: 4}
            - {ip: bad, agent: x, n: 1}
            - {ip: 1.1.1.1, agent: bot, n: 1}
            - {ip: 1.1.1.1, agent: x, n: -1}
        expect:
          states:
            by_country:
              - {country: au, n: 2, weight: 10}
              - {country: null, n: 1, weight: 4}
          rejected:
            - {offset: 3, step: set, cause: "country(ip): no such address"}
            - {offset: 5, step: aggregate, cause: "weight(n, 2): panic: negative"}
`

func visitFunctions() []spec.Func {
	return []spec.Func{
		spec.Function("country", func(ip string) (*string, error) {
			switch ip {
			case "?":
				return nil, nil
			case "bad":
				return nil, errors.New("no such address")
			}
			au := "au"
			return &au, nil
		}, spec.Outside),
		spec.Function("bot", func(agent *string) bool { return agent != nil && *agent == "bot" }, spec.Pure),
		spec.Function("weight", func(n, by int64) int64 {
			if n < 0 {
				panic("negative")
			}
			return n * by
		}, spec.Pure),
	}
}

func writeVisits(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "visits.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFunctions(t *testing.T) {
	path := writeVisits(t, visits)
	spectest.Run(t, path, spec.Options{Functions: visitFunctions()})

	p, err := spec.Load(path, spec.Options{Functions: visitFunctions()})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Join(pl.Lines, "\n")
	for _, want := range []string{"function bot(string or null) bool, pure", "function country(string) string or null, outside", "note: not replayable: country()"} {
		if !strings.Contains(lines, want) {
			t.Errorf("the plan lacks %q:\n%s", want, lines)
		}
	}
	if !strings.Contains(pl.Text, "function weight(int, int) int, pure") {
		t.Errorf("the plan's text doesn't tell what weight is:\n%s", pl.Text)
	}
}

func TestFunctionMistakes(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to  string
		functions []spec.Func
		want      string
	}{
		"not registered": {"", "", nil, "visits.yaml:12:21: unknown function bot()"},
		"wrong type":     {"country(ip)", "country(n)", visitFunctions(), "visits.yaml:14:28: country() needs a string, n is an int"},
		"misspelt":       {"country(ip)", "contry(ip)", visitFunctions(), "did you mean country?"},
		"built in":       {"", "", []spec.Func{spec.Function("lower", strings.ToLower, spec.Pure)}, "function lower: expressions mean something else by that name"},
		"not a function": {"", "", []spec.Func{spec.Function("f", 3, spec.Pure)}, "function f: it is a int, not a function"},
		"empty":          {"", "", make([]spec.Func, 1), "wasn't made by spec.Function"},
		"twice":          {"", "", append(visitFunctions(), visitFunctions()...), "two functions are named"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := spec.Load(writeVisits(t, strings.Replace(visits, tc.from, tc.to, 1)), spec.Options{Functions: tc.functions})
			var p spec.Problems
			if !errors.As(err, &p) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v lacks %q", err, tc.want)
			}
		})
	}
}

// TestTransientFunction: an error that is marked as passing begins the batch again, whatever is done with bad records.
func TestTransientFunction(t *testing.T) {
	path := writeVisits(t, visits)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "visits.txt"), []byte(`{"ip": "a", "agent": "x", "n": 1}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	fs := visitFunctions()
	fs[0] = spec.Function("country", func(string) (*string, error) {
		if calls.Add(1) < 3 {
			return nil, engine.Transient(errors.New("the server is away"))
		}
		return nil, nil
	}, spec.Outside)
	p, err := spec.Load(path, spec.Options{Functions: fs})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var failures []error
	obs := &failing{each: func(err error) { failures = append(failures, err) }}
	if err := engine.Run(context.WithoutCancel(t.Context()), engine.Wrap(pl), engine.Options{DataDir: t.TempDir(), UntilCaughtUp: true, Observer: obs}); err != nil {
		t.Fatal(err)
	}
	if calls.Load() != 3 || len(failures) != 2 || batch.KindOf(failures[0]) != batch.Transient || !strings.Contains(failures[0].Error(), "the server is away") {
		t.Errorf("%d calls, failures %v", calls.Load(), failures)
	}
}

// failing passes each failure on.
type failing struct{ each func(error) }

func (f *failing) Resumed(batch.Txid)              {}
func (f *failing) Begun(batch.Txid, batch.Attempt) {}
func (f *failing) Failed(err error)                { f.each(err) }
func (f *failing) Committed(*txstate.Entry)        {}
