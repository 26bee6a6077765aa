package exec_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// The scenarios of this file are the rules for crashes and races that concern one machine.

// A start takes an epoch above every one before and writes it, synced, before it asks a source for anything.
func TestRule1EpochIsClaimedFirst(t *testing.T) {
	w := newWorld(t)
	w.fill(40)
	w.batch.MaxPending = 1
	mem := vfs.NewCrashableMem()
	var claimed []batch.Epoch
	w.events.opened = func() {
		claimed = append(claimed, w.outcomeOf(mem.CrashClone(vfs.CrashCloneCfg{})).snap.Epoch)
	}
	var attempts []batch.Attempt
	for run := range 3 {
		p, err := w.start(mem)
		if err != nil {
			t.Fatal(err)
		}
		if want := batch.Epoch(run + 1); p.Epoch() != want || len(claimed) != run+1 || claimed[run] != want {
			t.Fatalf("start %d has epoch %d; what was synced when its sources were opened: %v", run+1, p.Epoch(), claimed)
		}
		if run == 0 {
			p.finishNow(t) // a start that does nothing has spent its epoch all the same
			continue
		}
		p.done = func(*txstate.Entry) bool { return true }
		if err := p.finish(); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range w.outcomeOf(mem).entries {
		if n := len(attempts); n > 0 && e.Attempt.Compare(attempts[n-1]) < 0 {
			t.Errorf("txid %d has attempt %s, the one before %s", e.Txid, e.Attempt, attempts[n-1])
		}
		attempts = append(attempts, e.Attempt)
	}
	if n := len(attempts); n < 4 || attempts[0].Epoch != 2 || attempts[n-1].Epoch != 3 {
		t.Errorf("attempts %v", attempts)
	}
}

// Time(T) = max(now, Time(T-1)), also where the clock of the machine has gone back between two processes.
func TestRule1ClockDoesNotFall(t *testing.T) {
	w := newWorld(t)
	w.fill(40)
	fs := vfs.NewMem()
	ahead := ticking()
	w.now = func() time.Time { return ahead().Add(time.Hour) }
	w.part(fs, 2)
	n := len(w.outcomeOf(fs).entries)
	w.now = ticking()
	o := w.once(fs)
	if len(o.entries) < n+2 {
		t.Fatalf("%d batches, %d of them with the clock an hour ahead", len(o.entries), n)
	}
	for _, e := range o.entries {
		if want := clock0.Add(time.Hour); !e.Time.Equal(want) {
			t.Errorf("txid %d has the clock %s, want %s", e.Txid, e.Time, want)
		}
	}
}

// User functions see neither attempt nor epoch, and Rand is of the record.
func TestRule1AttemptDoesNotShow(t *testing.T) {
	w := newWorld(t)
	w.fill(40)
	first := vfs.NewMem()
	o := w.once(first)
	find := w.tablesOf(t, o)
	var entries []txstate.Entry
	for i := range o.entries {
		e := o.entries[i].Clone()
		e.Attempt = batch.Attempt{Epoch: 40, N: 7}
		entries = append(entries, e)
	}
	fs := vfs.NewMem()
	if err := w.drive(fs, entries, 2, func(c *exec.Config) { c.Tables = find }); err != nil {
		t.Fatal(err)
	}
	w.same(o, w.outcomeOf(fs), "in another epoch")
}

// Queries, reads and Success see a batch only when its sync has returned.
func TestRule2NothingIsSeenBeforeItsSync(t *testing.T) {
	w := newWorld(t)
	w.batch.MaxRecords = 0 // all in one batch
	w.fill(30)
	var mu sync.Mutex
	var armed bool
	reached, release := make(chan struct{}), make(chan struct{})
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !strings.HasSuffix(op.Path, ".log") || op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData {
			return nil
		}
		mu.Lock()
		hold := armed
		armed = false
		mu.Unlock()
		if hold {
			close(reached)
			<-release
		}
		return nil
	}))
	p, err := w.start(fs)
	if err != nil {
		t.Fatal(err)
	}
	w.hook = func(call string, _ *batch.Batch, after bool) error {
		if call == "commit" && !after {
			mu.Lock()
			armed = true
			mu.Unlock()
		}
		return nil
	}
	ended := make(chan error, 1)
	told := make(chan batch.Txid, 10)
	p.done = func(e *txstate.Entry) bool {
		if e != nil {
			told <- e.Txid
		}
		return true
	}
	go func() { ended <- p.finish() }()
	<-reached
	snap, err := p.db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, err := range snap.Scan(t.Context(), "words", nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		rows++
	}
	reader, err := p.db.State("kept")
	if err != nil {
		t.Fatal(err)
	}
	_, ok, err := reader.Get(t.Context(), value.AppendKey(nil, value.StringOf("bob")))
	if err != nil {
		t.Fatal(err)
	}
	txid, _ := p.Committed()
	if snap.Txid() != 0 || rows != 0 || ok || txid != 0 || len(told) != 0 {
		t.Errorf("before the sync: a query sees txid %d and %d rows, a read finds a value: %t, committed is %d, told were %d", snap.Txid(), rows, ok, txid, len(told))
	}
	if err := snap.Close(); err != nil {
		t.Error(err)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 {
		t.Errorf("%d batches were told", len(told))
	}
	if err := w.outcomeOf(fs).check(w); err != nil {
		t.Error(err)
	}
}

// Merge operands are written only for what is exactly associative; where that form is allowed it is never asked for the
// new values. (TestSameBytes: which form it is doesn't show.)
func TestRule5WhatIsWrittenAsMergeOperands(t *testing.T) {
	w := newWorld(t)
	for _, e := range w.pipeline().Exchanges {
		want := false
		switch e.Name {
		case "sums", "windowed", "windowed_too", "rolls", "team_events", "sizes", "words":
			want = true
		case "means", "lasts":
		case "per_batch":
			continue
		default:
			t.Errorf("state %s isn't expected", e.Name)
		}
		if e.State.Mergeable != want {
			t.Errorf("state %s is written as merge operands: %t", e.Name, e.State.Mergeable)
		}
	}
	defer func() {
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "merge operands") {
			t.Errorf("a state written as merge operands whose new values are asked for: %v", v)
		}
	}()
	exec.New(exec.Config{Plan: &plan.Plan{Exchanges: []*plan.Exchange{{
		Name: "x", State: &plan.State{Schema: state.Schema{Name: "x"}, Mergeable: true, Emit: plan.EmitUpdates}, Next: func() plan.StageTask { return nil },
	}}}})
}

// An integer sum has room for what is added: it doesn't wrap round where nobody reads it.
func TestRule5SumsAreWide(t *testing.T) {
	w := newWorld(t)
	const most = 1<<63 - 1
	for range 9 {
		w.events.add(0, record("ann", most, 0))
	}
	fs := vfs.NewMem()
	w.once(fs)
	db, err := w.open(fs)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	reader, err := db.State("sums")
	if err != nil {
		t.Fatal(err)
	}
	cells, ok, err := reader.Get(t.Context(), value.AppendKey(nil, value.StringOf("ann")))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	want, err := agg.Merge(nil, agg.AppendSumInt(nil, 4, most-8, 9), agg.AppendSumInt(nil, 0, 0, 0)) // 9 * (2^63-1)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(cells, want) {
		v, _ := agg.Results(nil, cells)
		t.Errorf("9 * (2^63-1) is kept as %v", v)
	}
}

// Ledger entries list the partitions that moved, no others.
func TestRule9EntriesListWhatMoved(t *testing.T) {
	w := newWorld(t)
	for n := range int32(40) {
		w.events.add(n, record("ann", 1, 0))
	}
	fs := vfs.NewMem()
	w.once(fs)
	w.events.add(17, record("ann", 1, 0), record("ann", 2, 0))
	o := w.once(fs)
	last := o.entries[len(o.entries)-1]
	if len(last.Ranges) != 1 || last.Ranges[0].Number != 17 || last.Ranges[0].Start != 1 || last.Ranges[0].End != 3 {
		t.Errorf("ranges %v", last.Ranges)
	}
	if len(o.snap.Positions) != 40+2 { // and a marker for each source
		t.Errorf("%d positions", len(o.snap.Positions))
	}
	for _, p := range o.snap.Positions {
		if p.Source == "events" && p.Topic != "" && (p.Txid == last.Txid) != (p.Number == 17) {
			t.Errorf("%s was moved by txid %d", p.Position, p.Txid)
		}
	}
}
