package replay_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/replay"
)

// Where things lie in the store, as docs/internals/format.md says.
const (
	kindChangesKey = 0x08
	kindRowKey     = 0x10
)

// raw opens the files of a store at rest as what they are.
func (w *world) raw(data string) *pebble.DB {
	w.t.Helper()
	db, err := pebble.Open(filepath.Join(w.dir, data, "words", "db"), &pebble.Options{
		FormatMajorVersion: pebble.FormatValueSeparation, ErrorIfNotExists: true, Logger: silent{},
		Merger: &pebble.Merger{Name: "tridentd.agg.v1", Merge: func(_, value []byte) (pebble.ValueMerger, error) {
			return &cells{bytes.Clone(value)}, nil
		}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return db
}

// cells merges operands as the store does.
type cells struct{ acc []byte }

func (c *cells) MergeNewer(value []byte) (err error) {
	c.acc, err = agg.Merge(nil, c.acc, value)
	return err
}

func (c *cells) MergeOlder(value []byte) (err error) {
	c.acc, err = agg.Merge(nil, value, c.acc)
	return err
}

func (c *cells) Finish(bool) ([]byte, io.Closer, error) { return c.acc, nil, nil }

type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// tamper changes one byte behind the last occurrence of mark in the first chunk of a batch's kept changes.
func (w *world) tamper(data string, txid batch.Txid, mark []byte, sum bool) {
	w.t.Helper()
	db := w.raw(data)
	key := append(binary.BigEndian.AppendUint64([]byte{kindChangesKey}, uint64(txid)), 0, 0, 0, 0)
	v, closer, err := db.Get(key)
	if err != nil {
		w.t.Fatal(err)
	}
	b := bytes.Clone(v)
	i := bytes.LastIndex(b, mark)
	if i < 0 {
		w.t.Fatalf("no %q in %q", mark, b)
	}
	i += len(mark)
	n := int(b[i]) // the value's length
	b[i+n] ^= 2
	if sum {
		table := crc32.MakeTable(crc32.Castagnoli)
		body := b[:len(b)-4]
		binary.BigEndian.PutUint32(b[len(body):], crc32.Update(crc32.Checksum(key, table), table, body))
	}
	if err := errors.Join(closer.Close(), db.Set(key, b, pebble.Sync), db.Close()); err != nil {
		w.t.Fatal(err)
	}
}

func different(t *testing.T, err error) *replay.Different {
	t.Helper()
	d, ok := errors.AsType[*replay.Different](err)
	if !ok {
		t.Fatalf("%v, want a difference", err)
	}
	return d
}

func TestKeptEqual(t *testing.T) {
	w := newWorld(t)
	w.keep = true
	w.run("data")
	for _, o := range []replay.Options{{}, {Procs: 1, Pending: 1}, {Procs: 16, Pending: 16}, {From: 5}} {
		rep, err := w.verify("data", o)
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		if rep.Kept != rep.Batches || rep.Batches < 10 || rep.Before != nil {
			t.Errorf("%+v: changes of %d batches of %d were compared", o, rep.Kept, rep.Batches)
		}
	}
	// What is built keeps them as well.
	rep, err := w.verify("data", replay.Options{To: 4, Dir: filepath.Join(w.dir, "other", "words")})
	if err != nil {
		t.Fatal(err)
	}
	for txid := batch.Txid(1); txid <= rep.To; txid++ {
		was, is := w.open("data", true), w.open("other", true)
		a, _, err := was.Changes(t.Context(), txid)
		b, ok, err2 := is.Changes(t.Context(), txid)
		if err != nil || err2 != nil || !ok || fmt.Sprint(len(a)) != fmt.Sprint(len(b)) {
			t.Errorf("txid %d: %v, %v, %t", txid, err, err2, ok)
		}
		if err := errors.Join(was.Close(), is.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeptChangedByHand: a byte of a kept write that was changed is told by txid and key, with a right checksum and a wrong one.
func TestKeptChangedByHand(t *testing.T) {
	for name, sum := range map[string]bool{"checksum right": true, "checksum wrong": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.keep = true
			w.run("data")
			const txid = 7
			w.tamper("data", txid, []byte("w10\x00\x01"), sum)
			_, err := w.verify("data", replay.Options{Procs: 2})
			d := different(t, err)
			if d.Txid != txid || !d.Writes || len(d.Keys) != 1 {
				t.Fatalf("%+v", d)
			}
			k := d.Keys[0]
			if k.State != "counts" || k.Key != "word=w10" || k.Want == k.Got || !strings.HasSuffix(k.Want, " added") || !strings.HasSuffix(k.Got, " added") || len(k.From) == 0 {
				t.Errorf("%+v", k)
			}
			if sum == strings.Contains(d.Want, "checksum") || !strings.Contains(err.Error(), "by hand") {
				t.Error(err)
			}
		})
	}
}

// TestRowChangedByHand: the row of a state that was changed is told with the batch that wrote it last.
func TestRowChangedByHand(t *testing.T) {
	w := newWorld(t)
	w.keep = true
	w.write("in-2.txt", strings.Repeat("a b\n", lineCount/2)+"only here\n"+strings.Repeat("a b\n", lineCount/2))
	w.run("data")
	db := w.raw("data")
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{kindRowKey}, UpperBound: []byte{kindRowKey + 1}})
	if err != nil {
		t.Fatal(err)
	}
	var key, value []byte
	for it.First(); it.Valid(); it.Next() {
		if bytes.Contains(it.Key(), []byte("here\x00\x01")) && !bytes.Contains(it.Key(), []byte("only")) {
			key, value = bytes.Clone(it.Key()), bytes.Clone(it.Value())
		}
	}
	if key == nil {
		t.Fatal("no such row")
	}
	value[len(value)-1] ^= 2
	if err := errors.Join(it.Close(), db.Set(key, value, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	rep, err := w.verify("data", replay.Options{})
	d := different(t, err)
	if d.What != "the final states" || d.Writes || len(d.Keys) != 1 || d.Keys[0].Key != "word=here" || d.Keys[0].Last == 0 || d.Keys[0].Last >= rep.To {
		t.Errorf("%+v", d)
	}
}

// TestKeptImpureStep: with kept changes a step that isn't pure shows in the batch itself, with both values and the partition.
func TestKeptImpureStep(t *testing.T) {
	w := newWorld(t)
	w.keep = true
	var calls atomic.Int64
	w.bend = func(s string) string {
		if n := calls.Add(1); s == "Late" {
			return fmt.Sprintf("%s-%t", s, n <= 2*fileCount*lineCount)
		}
		return s
	}
	w.write("in-2.txt", strings.Repeat("a b\n", lineCount-1)+"a Late\n")
	w.run("data")
	_, err := w.verify("data", replay.Options{})
	d := different(t, err)
	if d.What != "state counts" || !d.Writes || len(d.Keys) != 2 {
		t.Fatalf("%+v", d)
	}
	gone, fresh := d.Keys[1], d.Keys[0]
	if gone.Key != "word=Late-true" || gone.Want != "n=1 added" || gone.Got != "" || fresh.Key != "word=Late-false" || fresh.Want != "" || fresh.Got != "n=1 added" {
		t.Errorf("%+v", d.Keys)
	}
	if len(fresh.From) != 1 || !strings.HasSuffix(fresh.From[0].Topic, "in-2.txt") {
		t.Errorf("key %s of %v", fresh.Key, fresh.From)
	}
}

// TestRule9WhatADifferenceNames: with kept changes key and both values of the batch; without them its txid and state, and keys only
// where the final states differ, which a ledger that went on doesn't tell of an earlier txid.
func TestRule9WhatADifferenceNames(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("keep %t", keep), func(t *testing.T) {
			w := newWorld(t)
			w.keep = keep
			var calls atomic.Int64
			w.bend = func(s string) string {
				if n := calls.Add(1); s == "Late" {
					return fmt.Sprintf("%s-%t", s, n <= 2*fileCount*lineCount)
				}
				return s
			}
			w.write("in-2.txt", "a Late\n"+strings.Repeat("a b\n", lineCount-1))
			w.run("data")
			_, err := w.verify("data", replay.Options{})
			whole := different(t, err)
			calls.Store(3 * fileCount * lineCount) // as it is now
			_, err = w.verify("data", replay.Options{To: whole.Txid})
			part := different(t, err)
			if part.Txid != whole.Txid || part.What != "state counts" || whole.What != part.What {
				t.Errorf("%+v, up to that txid %+v", whole, part)
			}
			for _, d := range []*replay.Different{whole, part} {
				switch {
				case !keep && d == part:
					if len(d.Keys) != 0 {
						t.Errorf("keys of a batch whose changes weren't kept: %+v", d)
					}
				case len(d.Keys) != 2 || d.Writes != keep:
					t.Errorf("%+v", d)
				default:
					if now, was := d.Keys[0], d.Keys[1]; now.Key != "word=Late-false" || now.Want != "" || now.Got == "" || was.Key != "word=Late-true" || was.Want == "" || was.Got != "" {
						t.Errorf("%+v", d.Keys)
					}
				}
			}
		})
	}
}

// TestBeforeFrom: what differs before the first txid asked for is told as that, and not as a difference of that txid.
func TestBeforeFrom(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep %t", keep), func(t *testing.T) {
			w := newWorld(t)
			w.keep = keep
			var calls atomic.Int64
			w.bend = func(s string) string {
				if n := calls.Add(1); s == "Early" {
					return fmt.Sprintf("%s-%t", s, n <= 2*fileCount*lineCount)
				}
				return s
			}
			w.write("in-0.txt", "a Early\n"+strings.Repeat("a b\n", lineCount-1))
			w.run("data")
			var at batch.Txid // which batch reads it depends on what had been fetched
			_, ledger := w.load("data")
			for _, e := range ledger {
				for _, r := range e.Ranges {
					if r.Start == 0 && strings.HasSuffix(r.Topic, "in-0.txt") {
						at = e.Txid
					}
				}
			}
			from := at + 4
			rep, err := w.verify("data", replay.Options{From: from, To: from + 3})
			if err != nil || rep.Before == nil || rep.Before.Txid != at || rep.Before.What != "state counts" || rep.Batches != 4 {
				t.Fatalf("%+v, %v", rep, err)
			}
			calls.Store(3 * fileCount * lineCount) // as it is now
			rep, err = w.verify("data", replay.Options{From: from})
			d := different(t, err)
			if rep.Before == nil || d.What != "the final states" || len(d.Causes) != 1 || !strings.Contains(d.Causes[0], fmt.Sprintf("before txid %d differs: from txid %d on", from, at)) {
				t.Errorf("%+v", d)
			}
			_, err = w.verify("data", replay.Options{})
			if d := different(t, err); d.Txid != at {
				t.Errorf("%+v", d)
			}
		})
	}
}
