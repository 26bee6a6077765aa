package spec

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/internal/plan"
)

// TestEnvironmentArrivesAsItIs puts a value that YAML would read otherwise into a variable.
func TestEnvironmentArrivesAsItIs(t *testing.T) {
	const secret = `a: b #c "d"`
	p, err := Parse("p.yaml", []byte(`
pipeline: p
# ${NOPE}
sources:
  s:
    kafka: {brokers: ["localhost:9092"], topics: ["${T}"], sasl: {mechanism: PLAIN, user: u, password: "${PW}"}}
    decode: string
streams:
  x: {from: s, steps: [{aggregate: {n: count()}}]}
`), Options{Env: func(n string) (string, bool) {
		v, ok := map[string]string{"PW": secret, "T": "${PW}"}[n]
		return v, ok
	}})
	if err != nil {
		t.Fatal(err)
	}
	k := p.KafkaSources()[0].Config
	if k.SASL.Password != secret {
		t.Errorf("the password arrives as %q", k.SASL.Password)
	}
	if k.Topics[0] != "${PW}" {
		t.Errorf("a variable's content is read again: %q", k.Topics[0])
	}
	if k.Group != "tridentd-p" {
		t.Errorf("group %q", k.Group)
	}
	if pl, err := p.Plan(); err != nil || strings.Contains(pl.Text+strings.Join(pl.Lines, ""), secret) {
		t.Errorf("a secret in the plan, or %v", err)
	}
}

func TestLoad(t *testing.T) {
	_, err := Load("testdata/none.yaml", Options{})
	var ps Problems
	if !errors.As(err, &ps) || !strings.Contains(err.Error(), "testdata/none.yaml: can't be read: no such file") {
		t.Errorf("a file that isn't there: %v", err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "p.yaml")
	if err := os.WriteFile(file, []byte("pipeline: \xff\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var p Problem
	if _, err := Load(file, Options{}); !errors.As(err, &p) || p.Line != 1 || p.File != file {
		t.Errorf("a file that isn't UTF-8: %v", err)
	}
}

// TestPlan looks at what a plan hands to the executor.
func TestPlan(t *testing.T) {
	p := parsed(t, `
pipeline: p
on_bad_record: skip
ledger: {changes: keep, retention: {age: 0s, size: 1GiB, batches: 9}, held: {age: 30d, size: 20GiB}}
savepoints: {to: /mnt/backup, every: 30m, keep: 3}
batch: {max_records: 7, max_bytes: 1MiB, max_pending: 2, interval: 1s, timeout: 1m, retries: {min: 1s, max: 2s, attempts: 3, for: 1d}}
sources:
  b:
    kafka: {brokers: ["localhost:9092"], topics: [t]}
    decode: json
    types: {at: timestamp}
    time: {field: at, lateness: 1h, idle: 2m, future: 3d}
    on_bad_record: stop
  a:
    kafka: {brokers: ["localhost:9092"], topics: [u]}
    decode: json
    types: {at: timestamp, f: float}
    time: {field: at}
streams:
  w:
    from: [b, a]
    steps:
      - window: {tumbling: 1d, offset: 1h, retention: 2d}
      - group_by: [k]
      - aggregate: {n: count(), m: max(at)}
        state: days
  v:
    from: b
    steps:
      - window: {tumbling: 1h}
      - aggregate: {n: count()}
  f:
    from: a
    steps:
      - aggregate: {s: sum(f)}
`)
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	want := plan.Limits{
		MaxRecords: 7, MaxBytes: 1 << 20, MaxPending: 2, Interval: time.Second, Timeout: time.Minute,
		Retry: plan.Retry{Min: time.Second, Max: 2 * time.Second, Attempts: 3, For: 24 * time.Hour},
	}
	if want := (plan.Ledger{Changes: true, MaxAge: -1, MaxBytes: 1 << 30, MaxBatches: 9, HeldAge: 30 * 24 * time.Hour, HeldBytes: 20 << 30}); pl.Ledger != want {
		t.Errorf("ledger %+v, want %+v", pl.Ledger, want)
	}
	if want := (plan.Savepoints{To: "/mnt/backup", Every: 30 * time.Minute, Keep: 3}); pl.Savepoints != want {
		t.Errorf("savepoints %+v, want %+v", pl.Savepoints, want)
	}
	if pl.Batch != want {
		t.Errorf("limits %+v, want %+v", pl.Batch, want)
	}
	if pl.Sources[0].ID != "a" || pl.Sources[1].ID != "b" {
		t.Fatalf("sources %s, %s: they go by name", pl.Sources[0].ID, pl.Sources[1].ID)
	}
	a, b := pl.Sources[0], pl.Sources[1]
	if a.OnBad != plan.Skip || b.OnBad != plan.Stop {
		t.Errorf("bad records: a %d, b %d", a.OnBad, b.OnBad)
	}
	if et := (plan.EventTime{Lateness: time.Hour, Idle: 2 * time.Minute, Future: 72 * time.Hour}); *b.Time != et {
		t.Errorf("event time of b: %+v", *b.Time)
	}
	if *a.Time != (plan.EventTime{}) {
		t.Errorf("event time of a: %+v, defaults are the executor's", *a.Time)
	}
	for i, c := range []struct {
		name, state string
		mergeable   bool
		times       []int
		key         int
		size        time.Duration
	}{
		{"f", "f", false, nil, 0, 0},
		{"v", "v", true, []int{1}, 1, time.Hour},
		{"w", "days", true, []int{0, 1}, 2, 24 * time.Hour},
	} {
		e := pl.Exchanges[i]
		s := e.State
		if e.Name != c.name || s.Schema.Name != c.state || s.Mergeable != c.mergeable || len(s.Schema.Key) != c.key {
			t.Errorf("exchange %d: %s, state %s, mergeable %t, key %v", i, e.Name, s.Schema.Name, s.Mergeable, s.Schema.Key)
		}
		if len(s.TimeSources) != len(c.times) {
			t.Errorf("%s: time sources %v, want %v", c.name, s.TimeSources, c.times)
		}
		if c.size == 0 {
			if s.Schema.Window != nil {
				t.Errorf("%s: window %+v", c.name, s.Schema.Window)
			}
		} else if w := s.Schema.Window; w == nil || w.Size != int64(c.size) {
			t.Errorf("%s: window %+v", c.name, w)
		}
	}
	if w := pl.Exchanges[2].State.Schema.Window; w.Offset != int64(time.Hour) || w.Retention != int64(48*time.Hour) {
		t.Errorf("window %+v", w)
	}
	if again, _ := p.Plan(); again == pl || again.Sources[0] == pl.Sources[0] {
		t.Error("two plans share what they are made of")
	}
}

func TestDurations(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"500ms": 500 * time.Millisecond, "24h": 24 * time.Hour, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "0s": 0, "0": 0,
		"1.5d": 36 * time.Hour, "1h30m": 90 * time.Minute,
	} {
		if got, err := parseDuration(in); err != nil || got != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "5", "d", "1dd", "1e3d", "-1s", "-1d", "1d-2d", "200000d", "1w", "NaNd", "0x1d", "1 d"} {
		if got, err := parseDuration(in); err == nil {
			t.Errorf("%q is taken for %s", in, got)
		}
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{"64MiB": 64 << 20, "1 GiB": 1 << 30, "10": 10, "5kB": 5000, "5KB": 5000, "7B": 7} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("%s: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "MiB", "-1", "1.5MiB", "9999999999999GiB", "1TB"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("%q is taken for %d", in, got)
		}
	}
}

// TestTimes holds the reader of the usual form against time.Parse.
func TestTimes(t *testing.T) {
	for _, in := range []string{
		"1970-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2000-02-29T12:34:56Z", "1900-02-28T00:00:00Z", "2024-12-31T23:59:59Z",
		"1678-01-01T00:00:00Z", "2261-12-31T23:59:59Z", "2013-01-01T10:00:00.123456789Z", "2013-01-01T10:00:00+05:30",
	} {
		want, err := time.Parse(time.RFC3339Nano, in)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseTime([]byte(in)); err != nil || got != want.UnixNano() {
			t.Errorf("%s: %s, %v", in, time.Unix(0, got).UTC(), err)
		}
	}
	for _, in := range []string{
		"", "2013-01-01", "2013-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2013-13-01T00:00:00Z", "2013-00-01T00:00:00Z", "2013-01-32T00:00:00Z",
		"2013-01-01T24:00:00Z", "2013-01-01T00:60:00Z", "1677-12-31T23:59:59Z", "2262-01-01T00:00:00Z", "2013-01-01T00:00:00", "x013-01-01T00:00:00Z",
	} {
		if got, err := parseTime([]byte(in)); err == nil {
			t.Errorf("%q is taken for %s", in, time.Unix(0, got).UTC())
		}
	}
	for day := int64(-106_000); day < 106_000; day += 13 {
		at := time.Unix(day*86400+3661, 0).UTC()
		if at.Year() < firstYear || at.Year() > lastYear {
			continue
		}
		if got, ok := parseUTC([]byte(at.Format(time.RFC3339))); !ok || got != at.UnixNano() {
			t.Fatalf("%s: %d, %t", at, got, ok)
		}
	}
}
