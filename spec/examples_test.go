package spec

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
)

const examples = "../examples"

// drain runs a pipeline until its sources' present ends, one batch after the other, and returns the state's digest.
func drain(t *testing.T, p *Pipeline, dir string, procs int) uint64 {
	t.Helper()
	ctx := t.Context()
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: dir, Pipeline: p.Name(), Shards: 16, CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, db.Close)
	x := exec.New(exec.Config{Plan: pl, DB: db, Shards: db.Shards(), Procs: procs, Now: time.Now})
	snap, err := x.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, func() error { return x.Close(context.WithoutCancel(ctx)) })
	ends, err := x.Ends(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for txid := snap.Txid + 1; !x.Reached(ends); {
		// The clock stands still, so that runs can be compared.
		b := &batch.Batch{Txid: txid, Attempt: batch.Attempt{Epoch: x.Epoch(), N: 1}, Seed: uint64(txid), Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		ok, err := x.Plan(ctx, b, false)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			select {
			case <-x.Ready():
			case <-time.After(time.Minute):
				t.Fatal("the sources have nothing, and haven't reached their ends")
			}
			continue
		}
		if err := x.Process(ctx, b); err != nil {
			t.Fatal(err)
		}
		if err := x.Commit(ctx, []*batch.Batch{b}); err != nil {
			t.Fatal(err)
		}
		x.Success(b)
		txid++
	}
	// When a window was seen to have closed depends on where the batches were cut, which the sources decide by what
	// they have read ahead: what is compared are the pipeline's own states.
	all, err := db.StateDigests(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h := xxhash.New()
	for _, d := range all {
		if !strings.HasPrefix(d.State, "_") {
			fmt.Fprintf(h, "%s %d %x\n", d.State, d.Rows, d.Digest)
		}
	}
	return h.Sum64()
}

func closing(t *testing.T, f func() error) {
	if err := f(); err != nil {
		t.Error(err)
	}
}

// rows reads a state as `query --format json` shows it.
func rows(t *testing.T, dir, pipeline, name string) []byte {
	t.Helper()
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: dir, Pipeline: pipeline, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, db.Close)
	snap, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, snap.Close)
	schema, err := query.Schema(snap, name)
	if err != nil {
		t.Fatal(err)
	}
	cols := query.Columns(schema)
	var out []byte
	err = query.Rows(t.Context(), snap, schema, nil, func(row []value.Value) error {
		sep := ",\n{"
		if out == nil {
			sep = "[{"
		}
		out = append(out, sep...)
		for i, v := range row {
			if i > 0 {
				out = append(out, ',')
			}
			out = value.AppendJSON(fmt.Appendf(out, "%q:", cols[i].Name), v)
		}
		out = append(out, '}')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(out, ']')
}

// sameJSON compares two lists of rows, numbers exactly by their values: 10 and 10.0 are one number.
func sameJSON(t *testing.T, what string, got, want []byte) {
	t.Helper()
	var g, w any
	for _, d := range []struct {
		text []byte
		into *any
	}{{got, &g}, {want, &w}} {
		dec := json.NewDecoder(bytes.NewReader(d.text))
		dec.UseNumber()
		if err := dec.Decode(d.into); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, row := range (*d.into).([]any) {
			for k, v := range row.(map[string]any) {
				if n, ok := v.(json.Number); ok {
					r, ok := new(big.Rat).SetString(n.String())
					if !ok {
						t.Fatalf("%s: %s is no number", what, n)
					}
					row.(map[string]any)[k] = r.RatString()
				}
			}
		}
	}
	if reflect.DeepEqual(g, w) {
		return
	}
	gl, wl := g.([]any), w.([]any)
	for i := range min(len(gl), len(wl)) {
		if !reflect.DeepEqual(gl[i], wl[i]) {
			t.Fatalf("%s: row %d is %v, want %v", what, i, gl[i], wl[i])
		}
	}
	t.Fatalf("%s: %d rows, want %d", what, len(gl), len(wl))
}

func TestFlights(t *testing.T) {
	file := filepath.Join(examples, "flights", "flights.yaml")
	p, err := Load(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var first uint64
	for i, procs := range []int{1, 2, 16} {
		dir := t.TempDir()
		digest := drain(t, p, dir, procs)
		if again := drain(t, p, dir, procs); again != digest {
			t.Errorf("a second run changes the digest from %x to %x", digest, again)
		}
		if i == 0 {
			first = digest
		}
		if digest != first {
			t.Errorf("with %d procs the digest is %x, not %x", procs, digest, first)
		}
		for _, state := range []string{"by_carrier", "daily", "routes"} {
			want, err := os.ReadFile(filepath.Join(examples, "flights", "testdata", state+".json"))
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, state, rows(t, dir, p.Name(), state), want)
		}
	}
}

// TestWordsExample holds the example against the checks that a run makes; package daemon runs it.
func TestWordsExample(t *testing.T) {
	env := map[string]string{"KAFKA_BROKERS": "kafka-1:9092,kafka-2:9092"}
	p, err := Load(filepath.Join(examples, "words", "words.yaml"), Options{Env: func(n string) (string, bool) {
		v, ok := env[n]
		return v, ok
	}})
	if err != nil {
		t.Fatal(err)
	}
	k := p.KafkaSources()
	if len(k) != 1 || k[0].ID != "lines" || k[0].Config.Group != "words" {
		t.Fatalf("Kafka sources: %+v", k)
	}
	if got, want := k[0].Config.Brokers, []string{"kafka-1:9092", "kafka-2:9092"}; !reflect.DeepEqual(got, want) {
		t.Errorf("brokers %v, want %v", got, want)
	}
}

// TestGenerated runs a job over generated records, with and without declared types, cut into batches in two ways.
func TestGenerated(t *testing.T) {
	var want []byte
	for _, c := range []struct{ batch, types string }{
		{"{max_records: 5000}", ""}, {"{max_records: 77}", ""}, {"{max_records: 500}", ", types: {user: string, page: string, ms: timestamp, n: int}"},
	} {
		p, err := Parse("p.yaml", []byte(`
pipeline: users
batch: `+c.batch+`
sources:
  s: {generate: {kind: users, seed: 3, partitions: 3, count: 4000}`+c.types+`}
streams:
  totals:
    from: s
    steps:
      - group_by: [user]
      - aggregate: {n: count(), total: sum(n), worst: max(n), pages: min(page)}
`), Options{})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		drain(t, p, dir, 2)
		got := rows(t, dir, p.Name(), "totals")
		if want == nil {
			want = got
			var all []struct{ N int }
			if err := json.Unmarshal(got, &all); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, r := range all {
				n += r.N
			}
			if n != 4000 || len(all) < 100 {
				t.Fatalf("%d records of %d users, want 4000 of hundreds", n, len(all))
			}
		}
		sameJSON(t, "batch "+c.batch+c.types, got, want)
	}
}
