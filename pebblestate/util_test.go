package pebblestate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/txstate/txstatetest"
)

const testDir = "/data/words"

// addMerge adds 64-bit numbers: exact and associative, like the merge of counts.
func addMerge(dst, older, newer []byte) ([]byte, error) {
	if len(older) != 8 || len(newer) != 8 {
		return nil, errors.New("operands aren't numbers")
	}
	return binary.BigEndian.AppendUint64(dst, binary.BigEndian.Uint64(older)+binary.BigEndian.Uint64(newer)), nil
}

func num(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func testOptions(fs vfs.FS) Options {
	return Options{
		Dir: testDir, FS: fs, Pipeline: "words", Shards: 4, CreateIfMissing: true,
		CacheBytes: 1 << 20, MemTableBytes: 256 << 10, merge: addMerge,
		Fatal: func(err error) { panic(fmt.Sprintf("fatal: %v", err)) },
	}
}

func mustOpen(t testing.TB, o Options) *DB {
	t.Helper()
	db, err := Open(t.Context(), o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return db
}

func mustClose(t testing.TB, db *DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

func mustCommit(t testing.TB, db *DB, commits ...Commit) {
	t.Helper()
	if err := db.Commit(t.Context(), commits); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

func txidOf(t testing.TB, db *DB) batch.Txid {
	t.Helper()
	snap, err := db.Store().Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return snap.Txid
}

func wantCode(t testing.TB, err error, code batch.Code, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", code)
	}
	if batch.CodeOf(err) != code {
		t.Fatalf("got %s: %v, want %s", batch.CodeOf(err), err, code)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Fatalf("%q doesn't name %q", err, text)
		}
	}
}

// commitOf is a commit of txid with writes by state.
func commitOf(txid batch.Txid, sets ...*state.WriteSet) Commit {
	e, pos := txstatetest.Simple(txid, 1)
	return Commit{Entry: e, Positions: pos, Sets: sets}
}

// setOf puts writes into the order and shards of a write set.
func setOf(name string, shards int, writes ...state.Write) *state.WriteSet {
	s := &state.WriteSet{State: name, Shards: make([][]state.Write, shards)}
	slices.SortFunc(writes, func(a, b state.Write) int { return strings.Compare(string(a.Key), string(b.Key)) })
	for _, w := range writes {
		i := state.ShardOf(w.Key, shards)
		s.Shards[i] = append(s.Shards[i], w)
		s.Writes++
	}
	return s
}

func set(key, value string) state.Write {
	return state.Write{Op: state.Set, Key: []byte(key), Value: []byte(value)}
}

func add(key string, n uint64) state.Write {
	return state.Write{Op: state.Merge, Key: []byte(key), Value: num(n)}
}

func del(key string) state.Write { return state.Write{Op: state.Delete, Key: []byte(key)} }

// model is what a database should hold: state, key, value.
type model map[string]map[string]string

func (m model) clone() model {
	c := model{}
	for name, rows := range m {
		c[name] = maps.Clone(rows)
	}
	return c
}

func (m model) apply(s *state.WriteSet) {
	rows := m[s.State]
	if rows == nil {
		rows = map[string]string{}
		m[s.State] = rows
	}
	for _, w := range s.DropWindows {
		for k := range rows {
			if strings.HasPrefix(k, string(w)) {
				delete(rows, k)
			}
		}
	}
	for _, writes := range s.Shards {
		for _, w := range writes {
			switch old, ok := rows[string(w.Key)]; {
			case w.Op == state.Delete:
				delete(rows, string(w.Key))
			case w.Op == state.Merge && ok:
				v, err := addMerge(nil, []byte(old), w.Value)
				if err != nil {
					panic(err)
				}
				rows[string(w.Key)] = string(v)
			default:
				rows[string(w.Key)] = string(w.Value)
			}
		}
	}
}

// rows lists a state's rows with from <= key < to as "key=value", in key order.
func (m model) rows(name, from, to string) []string {
	var rows []string
	for k, v := range m[name] {
		if k >= from && (to == "" || k < to) {
			rows = append(rows, fmt.Sprintf("%q=%x", k, v))
		}
	}
	sort.Strings(rows)
	return rows
}

func scan(t testing.TB, s *Snapshot, name string, from, to []byte) []string {
	t.Helper()
	var rows []string
	last := ""
	for row, err := range s.Scan(t.Context(), name, from, to) {
		if err != nil {
			t.Fatalf("Scan: %v", err)
		}
		if k := string(row.Key); len(rows) > 0 && k <= last {
			t.Fatalf("Scan yields %q after %q", k, last)
		}
		last = string(row.Key)
		rows = append(rows, fmt.Sprintf("%q=%x", row.Key, row.Value))
	}
	sort.Strings(rows)
	return rows
}

// mustHold compares the database's states with the model, by scans.
func mustHold(t testing.TB, db *DB, m model) {
	t.Helper()
	s, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for name := range m {
		got, want := scan(t, s, name, nil, nil), m.rows(name, "", "")
		if !slices.Equal(got, want) {
			t.Fatalf("state %s at txid %d:\n got %v\nwant %v", name, s.Txid(), got, want)
		}
	}
}

func positionsOf(t testing.TB, db *DB) []txstate.SavedPosition {
	t.Helper()
	snap, err := db.Store().Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return snap.Positions
}
