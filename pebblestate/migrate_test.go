package pebblestate

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/txstate/txstatetest"
)

func rowsOf(pairs ...string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for i := 0; i < len(pairs); i += 2 {
			if !yield(Row{Key: []byte(pairs[i]), Value: []byte(pairs[i+1])}, nil) {
				return
			}
		}
	}
}

func migrationOf(txid batch.Txid) Migration {
	e, _ := txstatetest.Simple(txid, 1)
	e.Ranges, e.Reset, e.Migrated = nil, true, []string{"accept"}
	return Migration{Entry: e, Plan: Plan{Sum: uint64(txid), Definition: []byte(`{"n":1}`)}}
}

func TestMigrateDropsRenamesAndKeepsTheRest(t *testing.T) {
	fs := vfs.NewMem()
	db := mustOpen(t, testOptions(fs))
	mustCommit(t, db, commitOf(1, setOf("a", 4, set("k", "1")), setOf("b", 4, set("k", "2")), setOf("c", 4, set("k", "3"))))
	m := migrationOf(2)
	m.Drop, m.Rename = []string{"c"}, map[string]string{"a": "b", "b": "a"}
	m.Sources = map[string]string{positionsOf(t, db)[0].Source: "other"}
	if err := db.Migrate(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		mustHold(t, db, model{"a": {"k": "2"}, "b": {"k": "1"}, "c": {}})
		for _, p := range positionsOf(t, db) {
			if p.Source != "other" {
				t.Errorf("a position of source %s", p.Source)
			}
		}
		if p, ok, err := db.Plan(t.Context()); err != nil || !ok || p.Sum != 2 || string(p.Definition) != `{"n":1}` {
			t.Errorf("plan %+v, %v, %v", p, ok, err)
		}
		for e, err := range db.Store().Entries(t.Context(), 2, 2) {
			if err != nil || !slices.Equal(e.Migrated, []string{"accept"}) {
				t.Errorf("entry %+v, %v", e, err)
			}
		}
	}
	check()
	mustClose(t, db)
	db = mustOpen(t, testOptions(fs))
	check()
	// The id of what was dropped is nobody's: a new state is empty.
	mustCommit(t, db, commitOf(3, setOf("d", 4, set("x", "9"))))
	mustHold(t, db, model{"a": {"k": "2"}, "b": {"k": "1"}, "d": {"x": "9"}})
	if got := db.current.Load().states["d"].id; got != 4 {
		t.Errorf("state d has id %d, c had 3", got)
	}
	mustClose(t, db)
}

// TestMigrateEndsWhatAnEarlierSourceHasLeft: a source that takes a name begins with its own positions only.
func TestMigrateEndsWhatAnEarlierSourceHasLeft(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	left := batch.Position{Partition: batch.Partition{Source: "other", Topic: "gone", Number: 7}}
	if err := db.Store().Admit(t.Context(), []batch.Position{left}); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, db, commitOf(1, setOf("a", 4, set("k", "1"))))
	before := positionsOf(t, db)
	m := migrationOf(2)
	for _, p := range before {
		if p.Source != "other" {
			m.Sources = map[string]string{p.Source: "other"}
		}
	}
	if err := db.Migrate(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	after := positionsOf(t, db)
	if len(after) != len(before)-1 || slices.ContainsFunc(after, func(p txstate.SavedPosition) bool { return p.Source != "other" || p.Partition == left.Partition }) {
		t.Errorf("positions %v, were %v", after, before)
	}
}

func TestLoadReplacesAState(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.MaxBatchBytes = 1 << 10 // so that it takes several writes
	db := mustOpen(t, o)
	mustCommit(t, db, commitOf(1, setOf("a", 4, set("old", "1"))))
	var pairs []string
	want := map[string]string{}
	for i := range 200 {
		k, v := fmt.Sprintf("key %d", i), fmt.Sprintf("value %d", i)
		pairs, want[k] = append(pairs, k, v), v
	}
	n, err := db.Load(t.Context(), state.Schema{Name: "a", Kind: "rows"}, rowsOf(pairs...))
	if err != nil || n != 200 {
		t.Fatalf("Load: %d, %v", n, err)
	}
	mustHold(t, db, model{"a": want})
	if _, err := db.Load(t.Context(), state.Schema{Name: "b"}, func(yield func(Row, error) bool) { yield(Row{}, errStop) }); !errors.Is(err, errStop) {
		t.Errorf("a source of rows that fails: %v", err)
	}
	mustClose(t, db)
	db = mustOpen(t, o)
	mustHold(t, db, model{"a": want})
	mustClose(t, db)
}

var errStop = errors.New("stop")

func TestAGarbledPlanIsRefused(t *testing.T) {
	p := Plan{Sum: 7, Definition: []byte(`{"states":[]}`)}
	key, value := planKey(7), appendPlan(nil, &p)
	if got, err := decodePlan(key, value); err != nil || got.Sum != 7 || string(got.Definition) != string(p.Definition) {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range value {
		b := slices.Clone(value)
		b[i] ^= 1
		if _, err := decodePlan(key, b); err == nil {
			t.Errorf("byte %d changed: no error", i)
		}
	}
	if _, err := decodePlan(planKey(8), value); err == nil {
		t.Error("it passes for another plan")
	}
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	if _, ok, err := db.Plan(t.Context()); ok || err != nil {
		t.Errorf("a plan in an empty store: %v, %v", ok, err)
	}
	if err := db.SetPlan(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := db.pebble.Delete(planKey(7), nil); err != nil {
		t.Fatal(err)
	}
	if err := db.publish(0, db.current.Load().states); err != nil {
		t.Fatal(err)
	}
	if _, _, err := db.Plan(t.Context()); batch.CodeOf(err) != batch.CodeStoreDamaged {
		t.Errorf("a description that is missing: %v", err)
	}
}

func FuzzDecodePlan(f *testing.F) {
	p := Plan{Sum: 7, Definition: []byte(`{"states":[]}`)}
	f.Add(planKey(7), appendPlan(nil, &p))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if len(key) == 0 {
			return
		}
		if p, err := decodePlan(key, value); err == nil && string(appendPlan(nil, &p)) != string(value) {
			t.Errorf("%x is read as %+v", value, p)
		}
	})
}
