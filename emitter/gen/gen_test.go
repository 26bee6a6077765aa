package gen

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/emittertest"
)

func TestConformance(t *testing.T) {
	for _, name := range []string{"users", "measured"} {
		t.Run(name, func(t *testing.T) {
			emittertest.Run(t, func(t *testing.T) *emittertest.Source {
				cfg, ok := Named(name)
				if !ok {
					cfg, _ = Named("words")
					cfg.Name, cfg.MaxBytes = name, 0
				}
				cfg.Seed, cfg.Partitions, cfg.Count = 7, 3, 180
				return &emittertest.Source{Open: func(t *testing.T) emitter.Emitter { return open(t, cfg) }, Partitions: 3, Records: 60}
			})
		})
	}
}

func open(t *testing.T, cfg Config) emitter.Emitter {
	t.Helper()
	em, err := New(cfg).Open("g", emitter.Lines, emitter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	return em
}

func begin(t *testing.T, cfg Config, saved ...batch.Position) emitter.Emitter {
	t.Helper()
	em := open(t, cfg)
	starts, err := em.Open(t.Context(), saved, len(saved) == 0)
	if err != nil {
		t.Fatal(err)
	}
	em.Admit(starts)
	t.Cleanup(func() {
		if err := em.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return em
}

// TestKinds pins what each kind makes: recorded batches depend on it.
func TestKinds(t *testing.T) {
	want := map[string][]string{
		"words": {
			"1767225600000//is", "1767225600001//the of", "1767226600000//of the batch a garden and stream is bird is offset road",
			"1767225600000//to whole in of", "1767225600001//letter tree the the the the", "1767226600000//and the state state",
		},
		"users": {
			`1767225600000//{"user":"u473","page":"/products/2","ms":1767225600000,"n":52}`,
			`1767225600001//{"user":"u0","page":"/products/66","ms":1767225600001,"n":10}`,
			`1767226600000//{"user":"u10003","page":"/products/87","ms":1767226600000,"n":73}`,
			`1767225600000//{"user":"u3","page":"/products/3","ms":1767225600000,"n":19}`,
			`1767225600001//{"user":"u7308","page":"/products/226","ms":1767225600001,"n":67}`,
			`1767226600000//{"user":"u5001","page":"/products/46","ms":1767226600000,"n":76}`,
		},
		"orders": {
			`1767225600000/o0-0/{"id":"o0-0","customer":"c2503","amount":"453.22","placed_at":"2026-01-01T00:00:00Z"}`,
			`1767225600001/o0-1/{"id":"o0-1","customer":"c1659","amount":"412.97","placed_at":"2026-01-01T00:00:00.001Z"}`,
			`1767226600000/o0-1000000/{"id":"o0-1000000","customer":"c613","amount":"159.49","placed_at":"2026-01-01T00:16:40Z"}`,
			`1767225600000/o1-0/{"id":"o1-0","customer":"c3623","amount":"492.43","placed_at":"2026-01-01T00:00:00Z"}`,
			`1767225600001/o1-1/{"id":"o1-1","customer":"c1964","amount":"362.75","placed_at":"2026-01-01T00:00:00.001Z"}`,
			`1767226600000/o1-1000000/{"id":"o1-1000000","customer":"c3702","amount":"174.01","placed_at":"2026-01-01T00:16:40Z"}`,
		},
		"events": {
			`1767225600000/s897/{"sensor":"s897","value":52.4,"at":"2025-12-31T23:59:37.571Z"}`,
			`1767225600001/s860/{"sensor":"s860","value":28.7,"at":"2025-12-31T23:59:49.842Z"}`,
			`1767226600000/s626/{"sensor":"s626","value":-19.7,"at":"2026-01-01T00:16:13.132Z"}`,
			`1767225600000/s260/{"sensor":"s260","value":20.5,"at":"2025-12-31T23:59:35.105Z"}`,
			`1767225600001/s18/{"sensor":"s18","value":40.8,"at":"2025-12-31T23:59:31.444Z"}`,
			`1767226600000/s87/{"sensor":"s87","value":21.3,"at":"2026-01-01T00:16:10.555Z"}`,
		},
	}
	for _, name := range Kinds() {
		cfg, _ := Named(name)
		cfg.Seed, cfg.Partitions = 42, 2
		em := begin(t, cfg)
		var got []string
		for _, p := range em.Partitions() {
			for _, off := range []int64{0, 1, 1_000_000} {
				if err := em.Read(t.Context(), batch.Range{Partition: p, Start: off, End: off + 1}, func(c *batch.Chunk) error {
					r := c.Records[0]
					got = append(got, fmt.Sprintf("%d/%s/%s", r.Timestamp, r.Key, r.Value))
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !slices.Equal(got, want[name]) {
			t.Errorf("%s:\n%#v", name, got)
		}
	}
	if _, ok := Named("nothing"); ok {
		t.Error("an unknown kind was found")
	}
}

func TestKindsAreWellFormed(t *testing.T) {
	for _, name := range []string{"users", "orders", "events"} {
		cfg, _ := Named(name)
		em := begin(t, cfg)
		n := 0
		if err := em.Read(t.Context(), batch.Range{Partition: em.Partitions()[0], Start: 1 << 40, End: 1<<40 + 3000}, func(c *batch.Chunk) error {
			for _, r := range c.Records {
				var v map[string]any
				if err := json.Unmarshal(r.Value, &v); err != nil {
					return fmt.Errorf("%s: %w", r.Value, err)
				}
				for _, f := range []string{"placed_at", "at"} {
					if s, ok := v[f].(string); ok {
						if _, err := time.Parse(time.RFC3339, s); err != nil {
							return err
						}
					}
				}
				n++
			}
			return nil
		}); err != nil || n != 3000 {
			t.Errorf("%s: %d records, %v", name, n, err)
		}
	}
}

// TestZipfTable compares the guided search with a search of the whole table.
func TestZipfTable(t *testing.T) {
	for _, n := range []int{1, 2, 64, 1000, 100_000} {
		r := zipf(n)
		b := batch.Batch{Seed: 3}
		for i := range int64(3000) {
			x := b.Rand("z", batch.Partition{}, i).Uint64() % r.sums[n-1]
			want := sort.Search(n, func(k int) bool { return r.sums[k] > x })
			if got := r.draw(b.Rand("z", batch.Partition{}, i)); got != want {
				t.Fatalf("of %d ranks %d was drawn, want %d", n, got, want)
			}
		}
	}
}

func TestZipf(t *testing.T) {
	r := zipf(1000)
	b := batch.Batch{Seed: 1}
	counts := make([]int, 1000)
	const n = 200_000
	for i := range n {
		counts[r.draw(b.Rand("z", batch.Partition{}, int64(i)))]++
	}
	h := 0.0
	for k := range 1000 {
		h += 1 / float64(k+1)
	}
	for _, k := range []int{0, 1, 9, 99} {
		want := n / h / float64(k+1)
		if math.Abs(float64(counts[k])-want) > 6*math.Sqrt(want) {
			t.Errorf("rank %d was drawn %d times, %.0f are due", k, counts[k], want)
		}
	}
}

// clock is a clock that stands until it is set.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.t }

func (c *clock) set(since time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = time.Unix(1000, 0).Add(since)
}

func TestRate(t *testing.T) {
	cfg, _ := Named("words")
	var c clock
	c.set(0)
	cfg.Rate, cfg.Partitions, cfg.Count, cfg.Now = 100, 2, 130, c.now
	em := begin(t, cfg)
	p := em.Partitions()[1]
	plan := func(from int64) int64 {
		r, ok := em.Plan(p, from, emitter.Limit{})
		if !ok {
			return from
		}
		return r.End
	}
	ends := func() int64 {
		m, err := em.Ends(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m[p]
	}
	for _, step := range []struct {
		at   time.Duration
		want int64
	}{{0, 0}, {19 * time.Millisecond, 0}, {20 * time.Millisecond, 1}, {time.Second, 50}, {500 * time.Millisecond, 25}, {time.Hour, 65}} {
		c.set(step.at)
		if got := plan(0); got != step.want {
			t.Errorf("after %v: %d records, want %d", step.at, got, step.want)
		}
		if st := em.Status()[1]; st.End != step.want || !st.AtEnd {
			t.Errorf("after %v: status %+v", step.at, st)
		}
		if got := ends(); got != 65 {
			t.Errorf("after %v: the end is %d, the whole count is due", step.at, got)
		}
	}
	select {
	case <-em.Ready():
	case <-time.After(time.Minute):
		t.Error("nothing signals that offsets come into being")
	}

	// After a restart the rate counts from the position on.
	c.set(0)
	cfg.Count = 0
	em = begin(t, cfg, batch.Position{Partition: p, Next: 1000, Identity: "words:0"})
	c.set(time.Second)
	if got := plan(1000); got != 1050 {
		t.Errorf("planned to %d, want 1050", got)
	}
	if got := ends(); got != 1050 {
		t.Errorf("the end of an endless source is %d, want 1050", got)
	}
}

func TestLimitsOfEndless(t *testing.T) {
	cfg, _ := Named("users")
	em := begin(t, cfg)
	p := em.Partitions()[0]
	if r, ok := em.Plan(p, 5, emitter.Limit{}); !ok || r.End != 5+planRecords {
		t.Errorf("%v, %v", r, ok)
	}
	if st := em.Status()[0]; st.End != -1 || st.AtEnd {
		t.Errorf("%+v", st)
	}
	_, err := em.Ends(t.Context())
	if batch.CodeOf(err) != batch.CodeConfiguration || batch.KindOf(err) != batch.Permanent {
		t.Errorf("Ends of an endless source: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	words, _ := Named("words")
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Make = nil }, "Make is not set"},
		{func(c *Config) { c.Partitions = -1 }, "Partitions"},
		{func(c *Config) { c.Rate = math.NaN() }, "Rate"},
		{func(c *Config) { c.Count = -1 }, "Count"},
		{func(c *Config) { c.MaxBytes = -1 }, "MaxBytes"},
	} {
		cfg := words
		c.change(&cfg)
		if _, err := New(cfg).Open("g", emitter.Lines, emitter.Env{}); err == nil || !strings.Contains(err.Error(), c.want) || batch.KindOf(err) != batch.Permanent {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	p := batch.Partition{Source: "g", Topic: "words"}
	em := open(t, words)
	if _, err := em.Open(t.Context(), []batch.Position{{Partition: p, Next: 3, Identity: "words:1"}}, false); batch.CodeOf(err) != batch.CodeConfiguration ||
		!strings.Contains(err.Error(), "generated as words:1, now they would be words:0") {
		t.Errorf("another seed: %v", err)
	}
	words.Count = 10
	em = begin(t, words)
	for _, r := range []batch.Range{{Partition: p, End: 11}, {Partition: p, End: 1, Identity: "words:9"}, {Partition: batch.Partition{Source: "g", Topic: "words", Number: 1}, End: 1}} {
		err := em.Read(t.Context(), r, func(*batch.Chunk) error { return errors.New("yielded") })
		if batch.CodeOf(err) != batch.CodeUnreplayable || batch.KindOf(err) != batch.Permanent {
			t.Errorf("%v: %v", r, err)
		}
	}
	if got, want := New(words).Describe(), "generated words, seed 0, partitions 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestMakeWithHeadersAndKeys(t *testing.T) {
	em := begin(t, Config{Count: 3, Make: func(rng *batch.Rand, p int32, off int64, rec *batch.Record) {
		if off == 1 {
			rec.Key = []byte{}
		}
		rec.Value = append(rec.Value, bytes.Repeat([]byte{'v'}, int(off)*40_000)...)
		rec.Headers = []batch.Header{{Key: "h", Value: []byte{byte(off)}}}
	}})
	p := em.Partitions()[0]
	r, ok := em.Plan(p, 0, emitter.Limit{Bytes: 40_010})
	if !ok || r.End != 2 {
		t.Errorf("%v, %v", r, ok)
	}
	r.End = 3
	if err := em.Read(t.Context(), r, func(c *batch.Chunk) error {
		for i, rec := range c.Records {
			if (rec.Key == nil) != (i != 1) || len(rec.Value) != i*40_000 || rec.Headers[0].Value[0] != byte(i) {
				t.Errorf("record %d: key %v, %d bytes, headers %v", i, rec.Key, len(rec.Value), rec.Headers)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func BenchmarkUsers(b *testing.B) {
	cfg, _ := Named("users")
	em, err := New(cfg).Open("g", emitter.Lines, emitter.Env{})
	if err != nil {
		b.Fatal(err)
	}
	p := batch.Partition{Source: "g", Topic: "users"}
	b.ReportAllocs()
	n := int64(0)
	for b.Loop() {
		if err := em.Read(b.Context(), batch.Range{Partition: p, Start: n, End: n + 1024}, func(*batch.Chunk) error { return nil }); err != nil {
			b.Fatal(err)
		}
		n += 1024
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
