package enginetest_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/window"
)

type view struct {
	Page string    `json:"page"`
	At   time.Time `json:"at"`
}

type pageCount struct {
	Window time.Time
	Page   string
	N      int64
}

// views counts page views a minute, and watches what closes.
func views() *engine.Pipeline {
	p := engine.New("views", engine.OnBadRecord(engine.Skip))
	in := engine.From(p, "views", file.Paths("/nowhere/*"), codec.JSON[view]()).EventTime(func(v view) time.Time { return v.At }, 10*time.Second)
	perMinute := engine.Aggregate(engine.GroupByWindow(in, window.Tumbling(time.Minute), func(v view) string { return v.Page }, "page"), "per_minute", agg.Count[view]("n"))
	closed := engine.Map(engine.Closed[int64](perMinute), func(r engine.Result[string, int64]) pageCount {
		return pageCount{r.Window.Start, r.Key, r.Value}
	})
	enginetest.Watch(closed, "closed")
	return p
}

func at(minute, second int) time.Time { return time.Date(2026, 1, 1, 0, minute, second, 0, time.UTC) }

func viewAt(page string, t time.Time) string {
	return `{"page":"` + page + `","at":"` + t.Format(time.RFC3339) + `"}`
}

func viewsInput() []enginetest.Input {
	late := enginetest.AdvanceTo(at(1, 0))
	late["views/1"] = []string{viewAt("late", at(0, 59)), "no JSON", viewAt("c", at(1, 0))}
	return []enginetest.Input{
		{"views": {viewAt("a", at(0, 5)), viewAt("b", at(0, 6))}, "views/1": {viewAt("a", at(0, 7))}},
		{"views": {viewAt("a", at(0, 50))}},
		late,
		{},
		enginetest.AdvanceTo(at(2, 0)),
	}
}

func TestAdvanceTo(t *testing.T) {
	r := enginetest.Run(t, views(), viewsInput()...)
	for txid, want := range map[batch.Txid][]pageCount{
		1: nil, 2: nil, 3: {{at(0, 0), "a", 3}, {at(0, 0), "b", 1}}, 4: nil, 5: {{at(1, 0), "c", 1}},
	} {
		got := enginetest.Rows[pageCount](r, "closed", txid)
		slices.SortFunc(got, func(a, b pageCount) int { return strings.Compare(a.Page, b.Page) })
		if !slices.Equal(got, want) {
			t.Errorf("txid %d closed %v, want %v", txid, got, want)
		}
	}
	if got := r.RejectedIn(3); len(got) != 2 || got[0].Kind != "late" || got[0].Partition != 1 || got[0].Txid != 3 || got[1].Kind != "bad" || got[1].Value != "no JSON" {
		t.Errorf("rejected in txid 3: %+v", got)
	}
	for _, txid := range []batch.Txid{0, 1, 2, 4, 5} {
		if got := r.RejectedIn(txid); len(got) != 0 {
			t.Errorf("rejected in txid %d: %+v", txid, got)
		}
	}
	if got := len(r.Rejected()); got != 2 {
		t.Errorf("%d rows rejected in all, want 2", got)
	}
	enginetest.Deterministic(t, views, viewsInput()...)
}

type user struct{ ID, Name string }

// names keeps the last name of each user, until a null value removes it.
func names() *engine.Pipeline {
	p := engine.New("names")
	in := engine.From(p, "users", file.Paths("/nowhere/*"), codec.Bytes())
	engine.PartitionPersist(in, "names", func(b *engine.Batch, values [][]byte, st *engine.KV[string, user]) error {
		for _, v := range values {
			id, name, ok := strings.Cut(string(v), "=")
			if !ok {
				if err := st.Delete(id); err != nil {
					return err
				}
				continue
			}
			if err := st.Set(id, user{id, name}); err != nil {
				return err
			}
		}
		return nil
	}, "id")
	return p
}

func TestAt(t *testing.T) {
	r := enginetest.Run(t, names(), enginetest.Input{"users": {"1=a", "2=b"}}, enginetest.Input{"users": {"1=c"}}, enginetest.Input{"users": {"2"}})
	if got, want := enginetest.State[string, user](r.At(1), "names"), (map[string]user{"1": {"1", "a"}, "2": {"2", "b"}}); !maps.Equal(got, want) {
		t.Errorf("txid 1 left %v, want %v", got, want)
	}
	if got, want := enginetest.State[string, user](r, "names"), (map[string]user{"1": {"1", "c"}}); !maps.Equal(got, want) {
		t.Errorf("the run left %v, want %v", got, want)
	}
	type change = enginetest.Change[user]
	for txid, want := range map[batch.Txid]map[string]change{
		1: {"1": {Now: &user{"1", "a"}}, "2": {Now: &user{"2", "b"}}},
		2: {"1": {&user{"1", "a"}, &user{"1", "c"}}},
		3: {"2": {Was: &user{"2", "b"}}},
	} {
		if got := enginetest.Changes[string, user](r.At(txid), "names"); !reflect.DeepEqual(got, want) {
			t.Errorf("txid %d changed %v, want %v", txid, got, want)
		}
	}
	if r.Txid() != 3 || r.At(2).Txid() != 2 || len(r.At(2).Entries) != 2 {
		t.Errorf("txids %d and %d", r.Txid(), r.At(2).Txid())
	}
}

func TestRecord(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("keys")
		in := engine.From(p, "in", file.Paths("/nowhere/*"), rawRecord{})
		enginetest.Watch(in, "seen")
		return p
	}
	in := enginetest.Input{"in": {"plain", enginetest.Record(batch.Record{Key: []byte("k")}), enginetest.Record(batch.Record{Value: []byte{0xff}, Timestamp: 7})}}
	r := enginetest.Run(t, build(), in.At(at(5, 0)))
	want := []raw{{Value: "plain"}, {Key: "k", Null: true}, {Value: "\xff", Timestamp: 7}}
	if got := enginetest.Rows[raw](r, "seen", 1); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := r.Entries[0].Time; !got.Equal(at(5, 0)) {
		t.Errorf("the batch's clock is %s", got)
	}
}

// raw is what a record is.
type raw struct {
	Key, Value string
	Null       bool
	Timestamp  int64
}

// rawRecord decodes records to raw.
type rawRecord struct{}

func (rawRecord) Describe() string         { return "raw" }
func (rawRecord) CSV() bool                { return false }
func (rawRecord) Err() error               { return nil }
func (rawRecord) Begin([]string) error     { return nil }
func (d rawRecord) New() codec.Decode[raw] { return d }

func (rawRecord) Decode(r *batch.Record, into *raw) error {
	*into = raw{string(r.Key), string(r.Value), r.Value == nil, r.Timestamp}
	return nil
}

// fatalTB notes what a test would have failed with.
type fatalTB struct {
	testing.TB
	message string
}

func (f *fatalTB) Helper() {}

func (f *fatalTB) Fatal(args ...any) {
	f.message = fmt.Sprint(args...)
	panic(f)
}

func (f *fatalTB) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

func TestMistakes(t *testing.T) {
	early := enginetest.AdvanceTo(at(0, 1))
	for name, tc := range map[string]struct {
		in   []enginetest.Input
		want string
	}{
		"no such source":      {[]enginetest.Input{{"viws": {"x"}}}, `no source "viws"`},
		"no partition":        {[]enginetest.Input{{"views/x": {"x"}}}, `"x" is not a partition number`},
		"clock goes back":     {[]enginetest.Input{enginetest.Input{}.At(at(2, 0)), enginetest.Input{}.At(at(1, 0))}, "batch 2: its clock 2026-01-01T00:01:00Z lies before"},
		"time goes back":      {[]enginetest.Input{{}, enginetest.AdvanceTo(at(1, 0)), early}, "has come to 2026-01-01T00:01:00Z before"},
		"time before a batch": {[]enginetest.Input{early}, "begin with a batch"},
	} {
		t.Run(name, func(t *testing.T) {
			tb := &fatalTB{TB: t}
			func() {
				defer func() { recover() }() //nolint:errcheck // Fatal of fatalTB ends it
				enginetest.Try(tb, views(), tc.in...)
			}()
			if !strings.Contains(tb.message, tc.want) {
				t.Errorf("%q lacks %q", tb.message, tc.want)
			}
		})
	}
}

// nowhere is a target that nobody may contact.
type nowhere struct{}

func (nowhere) Describe() string { return "nowhere" }

func (nowhere) Encode(v view, r *sink.Record) error {
	r.Key, r.Value = []byte(v.Page), []byte(v.At.Format(time.RFC3339))
	return nil
}

func (nowhere) Open(string, string, emitter.Env) (sink.Sink, error) { panic("a target was opened") }

func TestOutput(t *testing.T) {
	build := func() *engine.Pipeline {
		p := engine.New("views")
		in := engine.From(p, "views", file.Paths("/nowhere/*"), codec.JSON[view]()).EventTime(func(v view) time.Time { return v.At }, 0)
		engine.To(in.Filter(func(v view) bool { return v.Page != "" }), "out", nowhere{})
		return p
	}
	in := []enginetest.Input{{"views": {viewAt("a", at(0, 1)), viewAt("b", at(0, 2))}}, {"views": {viewAt("", at(0, 3))}}, {"views": {viewAt("c", at(0, 4))}}}
	r := enginetest.Run(t, build(), in...)
	for txid, want := range map[batch.Txid][]string{1: {"a 2026-01-01T00:00:01Z", "b 2026-01-01T00:00:02Z"}, 2: nil, 3: {"c 2026-01-01T00:00:04Z"}} {
		var got []string
		for _, rec := range r.Output("out", txid) {
			got = append(got, string(rec.Key)+" "+string(rec.Value))
			if stamp := time.UnixMilli(rec.Timestamp).UTC().Format(time.RFC3339); stamp != string(rec.Value) {
				t.Errorf("the record of %s is stamped %s", rec.Value, stamp)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("txid %d: %q, want %q", txid, got, want)
		}
	}
	enginetest.Deterministic(t, build, in...)
}
