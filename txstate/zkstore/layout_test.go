package zkstore

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.golden anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs; got\n%s\nwant\n%s", path, got, want)
	}
}

func saved(source, topic string, number int32, next int64, txid batch.Txid) txstate.SavedPosition {
	return txstate.SavedPosition{
		Position: batch.Position{Partition: batch.Partition{Source: source, Topic: topic, Number: number}, Next: next, LeaderEpoch: batch.NoEpoch}, Txid: txid,
	}
}

// TestLayout compares every kind of node with the files that docs/internals/zookeeper.md refers to.
func TestLayout(t *testing.T) {
	at := txstate.Point{
		Txid: 12, Epoch: 3, Time: time.Date(2026, 12, 1, 10, 0, 1, 500e6, time.UTC), Chain: 0x9f31c2,
		Positions: []txstate.SavedPosition{
			saved("lines", "", 0, 0, 0), saved("lines", "lines", 0, 20, 12), saved("lines", "lines", 1, 0, 0), saved("tables", "a \"quoted\" <file>.csv", 0, 7, 4),
		},
	}
	written := time.Date(2026, 12, 1, 10, 0, 2, 123456789, time.UTC)
	full := contentOf("words", "0123456789abcdef0123456789abcdef", &at, &workingPart{Txid: 13, Attempt: 2, Epoch: 3}, written)
	golden(t, "record", full.record.encode())
	for _, p := range full.pages {
		golden(t, "page-"+p.source, p.data)
	}
	first := contentOf("words", "0123456789abcdef0123456789abcdef", &txstate.Point{Epoch: 1}, nil, written)
	golden(t, "record-first", first.record.encode())
	if len(first.pages) != 0 {
		t.Errorf("%d pages without a position", len(first.pages))
	}
	for _, b := range [][]byte{full.record.encode(), first.record.encode()} {
		r, err := parseRecord(b)
		if err != nil || string(r.encode()) != string(b) {
			t.Errorf("read as %+v, %v", r, err)
		}
	}
}

// TestPages: whatever the names and numbers, pages stay below their size, hold every position once in order, and which page a
// partition is on doesn't depend on where it stands.
func TestPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topic := rapid.OneOf(rapid.StringN(1, 30, 200), rapid.StringMatching(`[<>&"\\]{1,200}`), rapid.Just(strings.Repeat("\xff", 150)), rapid.StringMatching(`[a-z]{100}`))
		var all []txstate.SavedPosition
		for _, name := range rapid.SliceOfNDistinct(topic, 1, 20, rapid.ID).Draw(t, "topics") {
			for n := range rapid.IntRange(1, 300).Draw(t, "partitions") {
				all = append(all, saved("s", name, int32(n), rapid.Int64Min(0).Draw(t, "next"), batch.Txid(rapid.Uint64().Draw(t, "txid"))))
			}
		}
		slices.SortFunc(all, func(a, b txstate.SavedPosition) int { return a.Compare(b.Partition) })
		cut := pages("p", "store", "s", all)
		var got []positionPart
		for i := range cut {
			b := cut[i].encode()
			if len(b) > maxPage {
				t.Fatalf("page %d has %d bytes", i, len(b))
			}
			p, err := parsePage(b)
			if err != nil {
				t.Fatal(err)
			}
			if p.Page != i || p.Source != "s" || len(p.Positions) != len(cut[i].Positions) {
				t.Fatalf("page %d is read as page %d of %s with %d positions", i, p.Page, p.Source, len(p.Positions))
			}
			got = append(got, cut[i].Positions...)
		}
		if len(got) != len(all) {
			t.Fatalf("%d positions of %d", len(got), len(all))
		}
		moved := slices.Clone(all)
		for i, p := range all {
			if g := got[i]; g.Topic != p.Topic || g.Partition != p.Number || g.Next != p.Next || g.Txid != p.Txid {
				t.Fatalf("position %d is %+v, want %v", i, g, p)
			}
			moved[i].Next, moved[i].Txid = math.MaxInt64, math.MaxUint64
		}
		for i, p := range pages("p", "store", "s", moved) {
			if len(p.Positions) != len(cut[i].Positions) {
				t.Fatalf("page %d has %d positions once they have moved, %d before", i, len(p.Positions), len(cut[i].Positions))
			}
		}
	})
}

// wide is 2,500 topics with names of 100 characters and 10 partitions each.
func wide(txid func(topic int) batch.Txid) []txstate.SavedPosition {
	var all []txstate.SavedPosition
	for topic := range 2500 {
		name := fmt.Sprintf("%s%04d", strings.Repeat("t", 96), topic)
		for n := range int32(10) {
			all = append(all, saved("wide", name, n, int64(txid(topic)), txid(topic)))
		}
	}
	return all
}

// TestWide: 25,000 partitions with long names.
func TestWide(t *testing.T) {
	at := txstate.Point{Txid: 1, Positions: wide(func(int) batch.Txid { return math.MaxUint64 })}
	c := contentOf("p", "store", &at, nil, time.Time{})
	total := 0
	for _, p := range c.pages {
		if total += len(p.data); len(p.data) > maxPage {
			t.Errorf("page %d has %d bytes", p.page, len(p.data))
		}
	}
	if len(c.pages) < total/maxPage || len(c.pages) > 2*total/maxPage+1 {
		t.Errorf("%d bytes in %d pages", total, len(c.pages))
	}
	if n := len(c.record.encode()); n > 1000 {
		t.Errorf("the record has %d bytes", n)
	}
	if s := c.record.Sources["wide"]; s.Pages != len(c.pages) || s.Partitions != 25000 {
		t.Errorf("the record says %+v", s)
	}
}

// TestParse: what nobody of ours has written is recognised.
func TestParse(t *testing.T) {
	for _, bad := range []string{
		"", "x", "[]", "{}", `{"tridentd":1}`, `{"tridentd":0,"pipeline":"p","committed":{"chain":"0000000000000001"}}`,
		`{"tridentd":1,"pipeline":"p","store":"s","committed":{"txid":1,"chain":"xyz"}}`, `{"tridentd":1,"pipeline":"p","committed":{"txid":-1}}`,
		`{"topology":{"id":"x","name":"y"},"offset":1,"partition":0,"broker":{"host":"h","port":9092},"topic":"t"}`,
	} {
		if r, err := parseRecord([]byte(bad)); err == nil {
			t.Errorf("%s: read as %+v", bad, r)
		}
		if p, err := parsePage([]byte(bad)); err == nil {
			t.Errorf("%s: read as %+v", bad, p)
		}
	}
	later := `{"tridentd":2,"pipeline":"p","store":"s","new":{"a":1},"committed":{"txid":3,"chain":"00000000000000ff","new":1}}`
	if r, err := parseRecord([]byte(later)); err != nil || r.Committed.Txid != 3 {
		t.Errorf("a later version: %+v, %v", r, err)
	}
}
