package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/txstate"
)

// drainAt ends a run once a txid has committed.
type drainAt struct {
	txid batch.Txid
	h    chan *engine.Handle
}

func (*drainAt) Resumed(batch.Txid)              {}
func (*drainAt) Begun(batch.Txid, batch.Attempt) {}
func (*drainAt) Failed(error)                    {}

func (d *drainAt) Committed(e *txstate.Entry) {
	if e.Txid == d.txid {
		h := <-d.h
		h.Drain()
	}
}

// A table that is loaded first is read to its end before the other source begins, also if a run ends on the way; once it has been,
// the other doesn't wait any more.
func TestLoadFirst(t *testing.T) {
	dir := t.TempDir()
	add := func(name, prefix string, n int) string {
		path := filepath.Join(dir, name)
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(strings.Join(numbered(n, prefix), "\n") + "\n"); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rows, asks := add("table.txt", "t", 40), add("asks.txt", "t", 20)
	build := func() *engine.Pipeline {
		p := engine.New("test", engine.WithBatching(engine.Batching{MaxRecords: 5}))
		table := engine.Latest(engine.From(p, "table", file.Paths(rows), codec.String(), engine.LoadFirst), "rows", func(s string) string { return s })
		found := engine.Lookup(engine.From(p, "asks", file.Paths(asks), codec.String()), table, func(s string) string { return s }, func(s string, row *string) string {
			return fmt.Sprint(row != nil)
		})
		count(found, "found")
		return p
	}
	var entries []txstate.Entry
	run := func(observer engine.Observer, started func(*engine.Handle)) {
		t.Helper()
		h, err := engine.Start(t.Context(), build(), engine.Options{DataDir: filepath.Join(dir, "data"), UntilCaughtUp: true, Observer: observer})
		if err != nil {
			t.Fatal(err)
		}
		started(h)
		if err := h.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	read := func() {
		t.Helper()
		h, err := engine.Start(t.Context(), build(), engine.Options{DataDir: filepath.Join(dir, "data")})
		if err != nil {
			t.Fatal(err)
		}
		entries = nil
		for e, err := range h.Entries(t.Context(), 1, 0) {
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, e)
		}
		found, _, err := engine.ReadState[string, int64](t.Context(), h, "found")
		if err != nil && len(entries) > 8 {
			t.Fatal(err)
		}
		if found["false"] > 0 {
			t.Errorf("%d were looked up before their rows had been loaded", found["false"])
		}
		h.Drain()
		if err := h.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	d := &drainAt{txid: 3, h: make(chan *engine.Handle, 1)}
	run(d, func(h *engine.Handle) { d.h <- h })
	run(nil, func(*engine.Handle) {})
	read()
	next := map[string]int64{}
	for _, e := range entries {
		for _, r := range e.Ranges {
			if r.Source == "asks" && next["table"] < 40 {
				t.Errorf("txid %d reads %s, the table only to %d", e.Txid, r.Range, next["table"])
			}
			next[r.Source] = r.End
		}
	}
	if next["table"] != 40 || next["asks"] != 20 {
		t.Fatalf("read up to %v", next)
	}
	last := len(entries)
	add("table.txt", "t", 1000)
	add("asks.txt", "t", 20)
	run(nil, func(*engine.Handle) {})
	read()
	for _, e := range entries[last:] {
		for _, r := range e.Ranges {
			if r.Source == "table" {
				next["table"] = r.End
			} else if next["table"] == 1040 {
				t.Errorf("the other source waited until txid %d", e.Txid)
			} else {
				return
			}
		}
	}
	t.Error("the other source wasn't read")
}
