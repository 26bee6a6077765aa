package pebblestate

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/enc"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/txstate/txstatetest"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.golden anew")

// golden compares bytes with a file of hexadecimal digits. A difference means that databases in the field can't be
// read any more: it needs a new version of the value, or of the format.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	var b strings.Builder
	for i := 0; i < len(got); i += 32 {
		fmt.Fprintln(&b, hex.EncodeToString(got[i:min(i+32, len(got))]))
	}
	path := filepath.Join("testdata", name+".golden")
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s:\n got\n%swant\n%s", name, b.String(), want)
	}
}

var (
	goldenPartition = batch.Partition{Source: "orders", Topic: "orders-v1", Number: 7}
	goldenTime      = time.UnixMilli(1_700_000_000_123).UTC()
	goldenEntry     = txstate.Entry{
		Txid: 300, Attempt: batch.Attempt{Epoch: 4, N: 2}, Attempts: 3, Time: goldenTime, Seed: 0x0102030405060708,
		Ranges: []txstate.RangeEntry{{
			Range:     batch.Range{Partition: goldenPartition, Start: 1000, End: 1100, Identity: "AbC", LeaderEpoch: 5},
			Input:     batch.Input{Records: 98, Bytes: 4096, Digest: 0x1112131415161718},
			EventTime: goldenTime.UnixNano(),
		}},
		Idle:       []batch.Partition{{Source: "orders", Topic: "orders-v1", Number: 8}},
		Joined:     []batch.Position{{Partition: goldenPartition, Next: 1000, Identity: "AbC", LeaderEpoch: batch.NoEpoch}},
		Watermarks: []txstate.Watermark{{Source: "orders", Time: -1}},
		Reset:      true,
		Counts:     txstate.Counts{Read: 98, Filtered: txstate.Uncounted, Rejected: 1, Late: 2, Future: 3},
		States:     []txstate.StateDigest{{State: "by_word", Writes: 12, Digest: 0x2122232425262728}},
		Statics:    []txstate.StaticVersion{{Name: "airlines", Rows: 16, Digest: 0x3132333435363738}},
		Chain:      0x4142434445464748, Build: "v1 amd64 v1", Plan: 0x5152535455565758,
		Committed: goldenTime.Add(time.Second),
		Took:      txstate.Durations{Plan: 1, Read: 2000, Process: 3_000_000, Commit: 4_000_000_000},
	}
	goldenReset = txstate.Entry{
		Counts: txstate.Counts{Filtered: txstate.Uncounted},
		Txid:   301, Attempt: batch.Attempt{Epoch: 5, N: 1}, Attempts: 1, Time: goldenTime, Reset: true, Chain: 0x5152535455565758,
		Ranges: []txstate.RangeEntry{{
			Range:     batch.Range{Partition: goldenPartition, Start: 1100, End: 40, Identity: "DeF", LeaderEpoch: batch.NoEpoch},
			EventTime: txstate.NoTime,
		}},
		Watermarks: goldenEntry.Watermarks, Build: "v1.2.3 arm64", Plan: 0x6162636465666768, Committed: goldenTime,
	}
	goldenImport = txstate.Entry{
		Counts: txstate.Counts{Filtered: txstate.Uncounted},
		Txid:   1, Attempt: batch.Attempt{Epoch: 1, N: 1}, Attempts: 1, Time: goldenTime, Reset: true, Imported: "trident-zk zk:2181/transactional words",
		Chain: 0x7172737475767778,
		Ranges: []txstate.RangeEntry{{
			Range:     batch.Range{Partition: goldenPartition, Start: 120, End: 120, Identity: "AbC", LeaderEpoch: batch.NoEpoch},
			EventTime: txstate.NoTime,
		}},
		Joined:  []batch.Position{{Partition: goldenPartition, Next: 120, Identity: "AbC", LeaderEpoch: batch.NoEpoch}},
		States:  []txstate.StateDigest{{State: "by_word", Writes: 2, Digest: 0x2122232425262728}},
		Statics: []txstate.StaticVersion{{Name: "state by_word", Rows: 2, Digest: 0x2122232425262728}},
		Build:   "v1.2.3 arm64", Plan: 0x6162636465666768, Committed: goldenTime,
	}
	goldenPosition = txstate.SavedPosition{
		Position:  batch.Position{Partition: goldenPartition, Next: 1100, Identity: "AbC", LeaderEpoch: 5},
		EventTime: txstate.NoTime, MovedAt: goldenTime, Txid: 300, Joined: 2,
	}
)

func TestGolden(t *testing.T) {
	whole := goldenEntry
	whole.Counts.Filtered = 40
	whole.Sinks = []txstate.SinkDigest{{Sink: "out", Records: 70, Chain: 0x8182838485868788}}
	whole.Counts.Dead = 4
	golden(t, "entry", appendEntry(nil, &whole))
	golden(t, "position", appendPosition(nil, &goldenPosition))
	golden(t, "position_key", positionKey(goldenPartition))
	golden(t, "ledger_key", txidKey(kindLedger, 300))
	golden(t, "committed", committed{txid: 300, chain: 0x4142434445464748, time: goldenTime}.append(nil))
	golden(t, "state", appendState(nil, 300, &state.Schema{
		Name: "by_word", Kind: "aggregate", Key: []state.Column{{Name: "word", Type: "string"}},
		Values: []state.Column{{Name: "n", Type: "int", Agg: "count"}}, Window: &state.Window{Size: 1, Offset: 2, Retention: 3},
	}))
	golden(t, "row_key", append(appendShard(rowPrefix(300), 513), "key"...))
	golden(t, "static", appendStatic(nil, &StaticTable{Digest: 9, Parts: []StaticPart{
		{Partition: goldenPartition, Fields: []string{"a", "b"}, Records: make([]batch.Record, 3)}, {Partition: goldenPartition},
	}}))
	golden(t, "record", appendRecord(nil, &batch.Record{
		Offset: 5, Timestamp: 6, Value: []byte{}, Headers: []batch.Header{{Key: "h"}, {Key: "i", Value: []byte("v")}},
	}))
	golden(t, "static_row_key", staticRowKey("air\x00lines", 2, 3, 4))
	golden(t, "floor", floorMark{txid: 300, phase: closed}.encode())
	golden(t, "format", format{Format: 1, Pipeline: "words", Shards: 256, Created: time.Unix(1_700_000_000, 0).UTC()}.encode())
}

// TestEarlierEntries reads what earlier builds have written, and what is written of that.
func TestEarlierEntries(t *testing.T) {
	counted, migrated := goldenEntry, goldenReset
	counted.Counts.Filtered = 40
	migrated.Migrated = []string{"accept", "drop c"}
	delivered := counted
	delivered.Sinks = []txstate.SinkDigest{{Sink: "out", Records: 70, Chain: 0x8182838485868788}}
	v3 := readGolden(t, "entry_v1_reset")
	v3[0] = migrationVersion
	v3 = append(v3, "\x02\x06accept\x06drop c"...)
	for _, c := range []struct {
		name string
		b    []byte
		want txstate.Entry
	}{
		{"version 1", readGolden(t, "entry_v1"), goldenEntry},
		{"version 1, a reset", readGolden(t, "entry_v1_reset"), goldenReset},
		{"version 2", readGolden(t, "entry_v2"), goldenImport},
		{"version 3", v3, migrated},
		{"version 4", readGolden(t, "entry_v4"), counted},
		{"version 5", readGolden(t, "entry_v5"), delivered},
	} {
		got, err := decodeEntry(c.b)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", c.name, err, got, c.want)
		}
		if got, err = decodeEntry(appendEntry(nil, &got)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s, written anew: %v\n got %+v\nwant %+v", c.name, err, got, c.want)
		}
	}
}

func readGolden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFlippedEntries turns over each bit of an entry.
func TestFlippedEntries(t *testing.T) {
	e := goldenEntry
	e.Sinks = []txstate.SinkDigest{{Sink: "out", Records: 70, Chain: 1}}
	b := appendEntry(nil, &e)
	for i := range 8 * len(b) {
		b[i/8] ^= 1 << (i % 8)
		if got, err := decodeEntry(b); !errors.Is(err, enc.ErrMalformed) {
			t.Errorf("bit %d turned over is read as %+v, %v", i, got, err)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}

func TestEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := txstatetest.EntryGen(batch.Txid(rapid.Uint64().Draw(rt, "txid")), batch.Epoch(rapid.Uint64().Draw(rt, "epoch"))).Draw(rt, "entry")
		b := appendEntry(nil, &e)
		got, err := decodeEntry(b)
		if err != nil || !reflect.DeepEqual(got, e) {
			rt.Fatalf("%v\n got %+v\nwant %+v", err, got, e)
		}
		if _, err := decodeEntry(b[:rapid.IntRange(0, len(b)-1).Draw(rt, "cut")]); !errors.Is(err, enc.ErrMalformed) {
			rt.Fatalf("a cut entry: %v", err)
		}
		if _, err := decodeEntry(append(b, 0)); !errors.Is(err, enc.ErrMalformed) {
			rt.Fatalf("an entry with a byte more: %v", err)
		}
	})
}

func TestPositionRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := txstatetest.PositionGen().Draw(rt, "position")
		got, err := decodePosition(positionKey(p.Partition), appendPosition(nil, &p))
		if err != nil || got != p {
			rt.Fatalf("%v\n got %+v\nwant %+v", err, got, p)
		}
		q := txstatetest.PositionGen().Draw(rt, "another")
		byKey := strings.Compare(string(positionKey(p.Partition)), string(positionKey(q.Partition)))
		if byPartition := p.Partition.Compare(q.Partition); byKey != byPartition {
			rt.Fatalf("%v and %v compare as %d, their keys as %d", p.Partition, q.Partition, byPartition, byKey)
		}
	})
}

func TestUnknownVersions(t *testing.T) {
	e := appendEntry(nil, &goldenEntry)
	e[0] = entryVersion + 1
	p := appendPosition(nil, &goldenPosition)
	p[0] = positionVersion + 1
	_, eerr := decodeEntry(e)
	_, perr := decodePosition(positionKey(goldenPartition), p)
	for _, err := range []error{eerr, perr} {
		if err == nil || !strings.Contains(err.Error(), "are known") && !strings.Contains(err.Error(), "is known") {
			t.Errorf("a value of a later version: %v", err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(appendEntry(nil, &goldenEntry))
	f.Add(appendPosition(nil, &goldenPosition))
	f.Add(appendStatic(nil, &StaticTable{Parts: []StaticPart{{Partition: goldenPartition, Fields: []string{"a"}}}}))
	f.Add(floorMark{txid: 3}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := len(b) - checksumSize; n > 0 && b[0] == entryVersion { // its bytes are to get past the checksum
			b = enc.AppendUint64(slices.Clone(b[:n]), xxhash.Sum64(b[:n]))
		}
		if e, err := decodeEntry(b); err == nil {
			if got, err := decodeEntry(appendEntry(nil, &e)); err != nil || !reflect.DeepEqual(got, e) {
				t.Errorf("%+v came back as %+v, %v", e, got, err)
			}
		}
		_, _ = decodePosition(positionKey(goldenPartition), b)
		if len(b) > 0 {
			_, _ = decodePositionKey(b)
			_, _ = decodeTxidKey(b)
		}
		_, _, _ = decodeStatic(b)
		_, _, _ = decodeState(b)
		_, _ = decodeCommitted(b)
		_, _ = decodeFormat(b)
		_, _ = decodeFloor(b)
		r := enc.NewReader(b)
		readRecord(r)
		scanRecords(b)
	})
}
