package replay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/replay"
)

// quiet is a log of Pebble's that says nothing.
type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// merged folds operands as the store does.
type merged struct{ value []byte }

func (m *merged) MergeNewer(value []byte) (err error) {
	m.value, err = agg.Merge(nil, m.value, value)
	return err
}

func (m *merged) MergeOlder(value []byte) (err error) {
	m.value, err = agg.Merge(nil, value, m.value)
	return err
}

func (m *merged) Finish(bool) ([]byte, io.Closer, error) { return m.value, nil, nil }

// alter changes the keys of the store at rest, past everything that guards them.
func (w *world) alter(data string, f func(db *pebble.DB) error) {
	w.t.Helper()
	db, err := pebble.Open(filepath.Join(w.dir, data, "words", "db"), &pebble.Options{
		Logger: quiet{}, Merger: &pebble.Merger{Name: "tridentd.agg.v1", Merge: func(_, value []byte) (pebble.ValueMerger, error) { return &merged{slices.Clone(value)}, nil }}, FormatMajorVersion: pebble.FormatValueSeparation,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(f(db), db.Flush(), db.Close()); err != nil {
		w.t.Fatal(err)
	}
}

// TestPositions: a position that isn't what the ranges add up to is told: the next run would count records twice, or leave some out.
func TestPositions(t *testing.T) {
	w := newWorld(t)
	w.run("data")
	w.write("in-9.txt", strings.Repeat("W9\n", 80*perBatch)) // more batches than the store looks at when it is opened
	w.run("data")
	if rep, err := w.verify("data", replay.Options{}); err != nil || !rep.States {
		t.Fatalf("%+v, %v", rep, err)
	}
	var keys, values [][]byte
	w.alter("data", func(db *pebble.DB) error {
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{3}, UpperBound: []byte{4}})
		if err != nil {
			return err
		}
		for it.First(); it.Valid(); it.Next() {
			if bytes.Contains(it.Key(), []byte("in-")) {
				keys, values = append(keys, slices.Clone(it.Key())), append(values, slices.Clone(it.Value()))
			}
		}
		return it.Close()
	})
	if len(keys) != fileCount+1 {
		t.Fatalf("%d positions", len(keys))
	}
	differs := func(what string, says ...string) {
		t.Helper()
		_, err := w.verify("data", replay.Options{})
		d, ok := errors.AsType[*replay.Different](err)
		if !ok || !strings.HasPrefix(d.What, "the position of lines/") {
			t.Fatalf("%s: %v", what, err)
		}
		for _, s := range says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q isn't said in: %v", what, s, err)
			}
		}
	}
	w.alter("data", func(db *pebble.DB) error { return db.Delete(keys[0], pebble.Sync) })
	differs("deleted", "in-0.txt", "recorded none, now offset 1000, moved by txid")
	other := slices.Clone(values[0])
	other[len(other)-1] = 7
	w.alter("data", func(db *pebble.DB) error { return db.Set(keys[0], other, pebble.Sync) })
	differs("another", "in-0.txt", "joined with txid 7", "joined with txid 1")
	w.alter("data", func(db *pebble.DB) error {
		return errors.Join(db.Set(keys[0], values[0], pebble.Sync), db.Set(bytes.Replace(keys[0], []byte("in-0"), []byte("in-5"), 1), values[0], pebble.Sync))
	})
	differs("of nothing", "in-5.txt", "now none")
	w.alter("data", func(db *pebble.DB) error {
		return db.Delete(bytes.Replace(keys[0], []byte("in-0"), []byte("in-5"), 1), pebble.Sync)
	})
	if _, err := w.verify("data", replay.Options{}); err != nil {
		t.Fatal(err)
	}
	// A row that can't be decoded any more is told as it is.
	var row, value []byte
	w.alter("data", func(db *pebble.DB) error {
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{0x10}, UpperBound: []byte{0x11}})
		if err != nil {
			return err
		}
		if it.First() {
			row, value = slices.Clone(it.Key()), slices.Clone(it.Value())
		}
		return errors.Join(it.Close(), db.Set(row, append(slices.Clone(value), value...), pebble.Sync))
	})
	if _, err := w.verify("data", replay.Options{}); err == nil || !strings.Contains(err.Error(), "the final states") || !strings.Contains(err.Error(), fmt.Sprintf("recorded bytes %x%x, now ", value, value)) {
		t.Errorf("a row that is garbled: %v", err)
	}
	w.alter("data", func(db *pebble.DB) error { return db.Set(row, value, pebble.Sync) })
	// What was moved last is looked at by every start.
	w.alter("data", func(db *pebble.DB) error { return db.Delete(keys[fileCount], pebble.Sync) })
	err := engine.Run(t.Context(), w.pipeline(), engine.Options{DataDir: filepath.Join(w.dir, "data"), UntilCaughtUp: true})
	if batch.CodeOf(err) != batch.CodeStoreDamaged || !strings.Contains(err.Error(), "in-9.txt") || !strings.Contains(err.Error(), "has moved it to offset 5120, the store has no position of it") {
		t.Errorf("a start without the last position: %v", err)
	}
	// The head of the chain by whoever opens the store.
	w.alter("data", func(db *pebble.DB) error {
		key := []byte("\x01committed")
		b, closer, err := db.Get(key)
		if err != nil {
			return err
		}
		b = slices.Clone(b)
		b[3] ^= 1
		return errors.Join(closer.Close(), db.Set(keys[fileCount], values[fileCount], pebble.Sync), db.Set(key, b, pebble.Sync))
	})
	db, err := pebblestate.Open(t.Context(), pebblestate.Options{Dir: filepath.Join(w.dir, "data", "words"), Pipeline: "words", ReadOnly: true})
	if err == nil {
		err = db.Close()
	}
	if batch.CodeOf(err) != batch.CodeStoreDamaged || !strings.Contains(err.Error(), "the head of the chain") {
		t.Errorf("opened with another head: %v", err)
	}
}
