package server

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

func dial(t *testing.T, dir string) *Client {
	t.Helper()
	c, err := Dial(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// rowSink keeps rows as text.
type rowSink struct {
	txid    batch.Txid
	columns []state.Column
	rows    []string
	err     error // returned by Row
}

func (r *rowSink) Begin(txid batch.Txid, columns []state.Column) error {
	r.txid, r.columns = txid, columns
	return nil
}

func (r *rowSink) Row(values []value.Value) error {
	var b []byte
	for _, v := range values {
		b = append(append(b, v.Kind().String()...), '=')
		b = append(value.AppendText(b, v), ' ')
	}
	r.rows = append(r.rows, string(b))
	return r.err
}

func TestClient(t *testing.T) {
	b, dir := newBackend(), t.TempDir()
	start(t, Config{Backend: b, Listen: ListenOff, Dir: dir})
	c := dial(t, dir)

	st, err := c.Status(t.Context())
	if err != nil || st.Pipeline != "words" || !st.Started.Equal(started) {
		t.Errorf("status %+v, %v", st, err)
	}
	schemas, err := c.States(t.Context())
	if err != nil || len(schemas) != 1 || schemas[0].Name != "counts" || schemas[0].Values[1].Type != "decimal" {
		t.Errorf("states %+v, %v", schemas, err)
	}

	var got rowSink
	if err := c.Query(t.Context(), "counts", nil, &got); err != nil {
		t.Fatal(err)
	}
	if got.txid != 3 || len(got.columns) != 3 || got.columns[1] != wordColumns[1] {
		t.Errorf("txid %d, columns %v", got.txid, got.columns)
	}
	var want rowSink
	for _, row := range b.rows {
		_ = want.Row(row)
	}
	if strings.Join(got.rows, "\n") != strings.Join(want.rows, "\n") {
		t.Errorf("rows\n%q\nwant\n%q", got.rows, want.rows)
	}

	var txids []batch.Txid
	if err := c.Ledger(t.Context(), 2, 0, func(e LedgerEntry) error {
		txids = append(txids, e.Txid)
		return nil
	}); err != nil || len(txids) != 2 || txids[0] != 2 {
		t.Errorf("ledger %v, %v", txids, err)
	}

	if err := c.Stop(t.Context()); err != nil || b.stops.Load() != 1 {
		t.Errorf("stop: %v, %d times", err, b.stops.Load())
	}
}

func TestClientErrors(t *testing.T) {
	b, dir := newBackend(), t.TempDir()
	start(t, Config{Backend: b, Listen: ListenOff, Dir: dir})
	c := dial(t, dir)

	err := c.Query(t.Context(), "count", nil, &rowSink{})
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), `no state "count"`) {
		t.Errorf("unknown state: %v", err)
	}
	err = c.Query(t.Context(), "counts", []string{"a", "b"}, &rowSink{})
	if batch.CodeOf(err) != batch.CodeConfiguration || !strings.Contains(err.Error(), "(give one key)") {
		t.Errorf("too many keys: %v", err)
	}

	b.grow(10_000)
	b.failAt = 9_999
	b.err = batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "query", errors.New("table 000007 is damaged"), "restore a savepoint")
	var got rowSink
	err = c.Query(t.Context(), "counts", nil, &got)
	if err == nil || err.Error() != b.err.Error() || batch.CodeOf(err) != batch.CodeStoreDamaged || len(got.rows) != b.failAt-1 {
		t.Errorf("failure under way: %v after %d rows, want %v after %d", err, len(got.rows), b.err, b.failAt-1)
	}
	err = c.Ledger(t.Context(), 1, 0, func(LedgerEntry) error { return nil })
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("ledger cut off: %v", err)
	}

	b.failAt = 0
	mine := errors.New("pipe closed")
	if err := c.Query(t.Context(), "counts", nil, &rowSink{err: mine}); !errors.Is(err, mine) {
		t.Errorf("the caller's own error came back as %v", err)
	}
}

func TestReadRowsRefusesGarbage(t *testing.T) {
	head := "h\x1e" + `{"txid":3,"columns":[{"name":"a","type":"int"}]}`
	head = "h" + string([]byte{byte(len(head) - 2)}) + head[2:]
	one := string(value.AppendBinary(nil, value.IntOf(1)))
	row := "r" + string([]byte{byte(len(one))}) + one
	for name, in := range map[string]string{
		"nothing":        "",
		"no head":        ".\x00",
		"head not JSON":  "h\x01x",
		"no end":         head + row,
		"cut in a row":   head + row[:len(row)-1],
		"unknown frame":  head + "z\x00",
		"huge":           head + "r\xff\xff\xff\xff\xff\x01",
		"row too long":   head + "r" + string([]byte{byte(len(one) + 1)}) + one + "x",
		"row too short":  head + "r\x00",
		"error not JSON": head + "e\x01x",
	} {
		if err := readRows(strings.NewReader(in), &rowSink{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	var got rowSink
	if err := readRows(strings.NewReader(head+row+".\x00"), &got); err != nil || len(got.rows) != 1 {
		t.Errorf("a good answer: %v, %v", got.rows, err)
	}
}

func TestNotRunning(t *testing.T) {
	dir := t.TempDir()
	if _, err := Dial(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("no socket: %v", err)
	}
	if _, err := Dial(filepath.Join(dir, "missing")); !errors.Is(err, ErrNotRunning) {
		t.Errorf("no directory: %v", err)
	}

	s, err := Start(Config{Backend: newBackend(), Listen: ListenOff, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, dir)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("the daemon ended after Dial: %v", err)
	}
	if err := c.Wait(t.Context()); err != nil {
		t.Errorf("Wait for one that ended: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("Close left %v, %v", left, err)
	}
}

func TestWait(t *testing.T) {
	dir := t.TempDir()
	start(t, Config{Backend: newBackend(), Listen: ListenOff, Dir: dir})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := dial(t, dir).Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait for one that runs: %v", err)
	}
}

// stale leaves a socket as a killed process does.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	dir := t.TempDir()
	stale(t, filepath.Join(dir, SocketName))
	if _, err := Dial(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a dead socket: %v", err)
	}
	start(t, Config{Backend: newBackend(), Listen: ListenOff, Dir: dir})
	if _, err := dial(t, dir).Status(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSocketInUse(t *testing.T) {
	dir := t.TempDir()
	start(t, Config{Backend: newBackend(), Listen: ListenOff, Dir: dir})
	_, err := Start(Config{Backend: newBackend(), Listen: "127.0.0.1:0", Dir: dir})
	if batch.CodeOf(err) != batch.CodeStoreInUse {
		t.Errorf("a second daemon: %v", err)
	}
	if _, err := dial(t, dir).Status(t.Context()); err != nil {
		t.Errorf("the first was disturbed: %v", err)
	}
}

func TestSocketIsTheOwnersOnly(t *testing.T) {
	dir := t.TempDir()
	start(t, Config{Backend: newBackend(), Listen: ListenOff, Dir: dir})
	fi, err := os.Stat(filepath.Join(dir, SocketName))
	if err != nil || fi.Mode().Perm() != 0o600 || fi.Mode().Type() != fs.ModeSocket {
		t.Errorf("socket %v, %v", fi, err)
	}
}

// A unix address holds about a hundred bytes; data directories may be deeper.
func TestLongPaths(t *testing.T) {
	tmp := t.TempDir()
	short, err := os.MkdirTemp("", "s") //nolint:usetesting // t.TempDir is too long already
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	t.Setenv("TMPDIR", short)
	dir := filepath.Join(tmp, strings.Repeat("deep/", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	// What a killed process leaves: the pointer and the socket in its temporary directory.
	old := filepath.Join(short, "tridentd-old")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	stale(t, filepath.Join(old, SocketName))
	pointer := filepath.Join(dir, socketPathName)
	if err := os.WriteFile(pointer, []byte(filepath.Join(old, SocketName)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a dead pointer: %v", err)
	}

	s, err := Start(Config{Backend: newBackend(), Listen: ListenOff, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the dead one's directory: %v", err)
	}
	if st, err := dial(t, dir).Status(t.Context()); err != nil || st.Pipeline != "words" {
		t.Errorf("status %+v, %v", st, err)
	}
	if _, err := Start(Config{Backend: newBackend(), Listen: ListenOff, Dir: dir}); batch.CodeOf(err) != batch.CodeStoreInUse {
		t.Errorf("a second daemon: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, short} {
		if left, err := os.ReadDir(d); err != nil || len(left) != 0 {
			t.Errorf("Close left %v in %s, %v", left, d, err)
		}
	}
}

func TestNoPlaceForTheSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	_, err := Start(Config{Backend: newBackend(), Listen: ListenOff, Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "too long for a socket") {
		t.Errorf("err = %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
