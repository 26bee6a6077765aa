package pebblestate

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
)

// FormatVersion is the version of everything that docs/internals/format.md describes.
const FormatVersion = 1

// The names in the data directory.
const (
	formatName   = "FORMAT"   // what the database is; its presence says that it was created whole
	creatingName = "CREATING" // stands beside a database whose creation hasn't ended
	lockName     = "LOCK"     // locked by the process that works here
	ownerName    = "owner"    // who that is, for messages
	floorName    = "floor"    // the txid that the database can't be below
	dbName       = "db"       // Pebble's files
)

// format is the content of FORMAT. The database holds a copy under keyFormat.
type format struct {
	Format   int       `json:"format"`
	Pipeline string    `json:"pipeline"`
	Shards   int       `json:"shards"`
	Created  time.Time `json:"created"`
}

func (f format) encode() []byte {
	b, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings, numbers and a time within the calendar
	}
	return append(b, '\n')
}

func decodeFormat(b []byte) (f format, err error) {
	if err := json.Unmarshal(b, &f); err != nil {
		return f, err
	}
	if f.Format < 1 || f.Pipeline == "" || f.Shards < 1 || f.Shards > MaxShards {
		return f, fmt.Errorf("it holds %+v", f)
	}
	return f, nil
}

// owner is who holds the lock.
type owner struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
}

func self() owner {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return owner{PID: os.Getpid(), Host: host, Started: time.Now().UTC()}
}

func readFile(fsys vfs.FS, path string) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

// writeFile replaces a file in one step: after a crash it is there whole, as it was or as it is now.
func writeFile(fsys vfs.FS, dir, name string, b []byte) error {
	tmp := fsys.PathJoin(dir, name+".tmp")
	f, err := fsys.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(slices.Clone(b)) // Write may change what it is given
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, fsys.PathJoin(dir, name)); err != nil {
		return err
	}
	return syncDir(fsys, dir)
}

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// makeDir makes dir and what is missing above it, durably.
func makeDir(fsys vfs.FS, dir string) error {
	var missing []string
	for d := dir; ; d = fsys.PathDir(d) {
		if _, err := fsys.Stat(d); err == nil || fsys.PathDir(d) == d {
			break
		}
		missing = append(missing, d)
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range slices.Backward(missing) {
		if err := syncDir(fsys, fsys.PathDir(d)); err != nil {
			return err
		}
	}
	return nil
}

// listDir returns the names in dir; none if it doesn't exist.
func listDir(fsys vfs.FS, dir string) ([]string, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	slices.Sort(names)
	return names, err
}

// floor keeps, outside Pebble's files, the txid below which the database can't be unless something of it was lost:
// a log that was removed or cut, a MANIFEST that ends early. Pebble takes such a database for an older one.
//
// It is written in place after each commit's sync has returned, without a sync of its own: it survives the end of
// the process, and after a crash of the machine it tells an older txid, never a higher one than has been synced.
//
// A file that somebody removes is put back by the next write; one that is replaced by another of its name is not
// noticed until the next start, which then has that one's promise.
type floor struct {
	fs   vfs.FS
	path string
	log  hclog.Logger
	f    vfs.File
	last floorMark
}

// floorMark is the file's content: txid and phase, and a checksum over both.
type floorMark struct {
	txid  batch.Txid
	phase phase
}

// phase is what the process was about when it wrote the mark.
type phase byte

const (
	working phase = iota
	// closed: the database was closed in order, so that every file of it must be whole to its end.
	closed
	// opening: Pebble was about to open it for writing. It then brings what the logs hold into tables, and removes
	// them before it makes a new one: a database without a log is no damaged one.
	opening
)

const floorSize = 16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (m floorMark) encode() []byte {
	b := make([]byte, floorSize)
	binary.BigEndian.PutUint64(b, uint64(m.txid))
	b[8] = byte(m.phase)
	binary.BigEndian.PutUint32(b[12:], crc32.Checksum(b[:12], castagnoli))
	return b
}

func decodeFloor(b []byte) (m floorMark, ok bool) {
	if len(b) != floorSize || crc32.Checksum(b[:12], castagnoli) != binary.BigEndian.Uint32(b[12:]) {
		return m, false
	}
	return floorMark{txid: batch.Txid(binary.BigEndian.Uint64(b)), phase: phase(b[8])}, true
}

// readFloor returns the mark; the zero mark, which promises nothing, if the file is missing or was torn by a crash.
func readFloor(fsys vfs.FS, dir string) (floorMark, error) {
	b, err := readFile(fsys, fsys.PathJoin(dir, floorName))
	if errors.Is(err, fs.ErrNotExist) {
		return floorMark{}, nil
	}
	m, _ := decodeFloor(b)
	return m, err
}

// openFloor opens the file for the process that is about to open the database.
func openFloor(fsys vfs.FS, dir string, log hclog.Logger, txid batch.Txid) (*floor, error) {
	fl := &floor{fs: fsys, path: fsys.PathJoin(dir, floorName), log: log}
	var err error
	if fl.f, err = fsys.OpenReadWrite(fl.path, vfs.WriteCategoryUnspecified); err != nil {
		return nil, err
	}
	if err := fl.enter(opening, txid); err != nil {
		return nil, errors.Join(err, fl.f.Close())
	}
	return fl, nil
}

// enter begins a phase, durably.
func (fl *floor) enter(p phase, txid batch.Txid) error {
	if err := fl.write(floorMark{txid: txid, phase: p}); err != nil {
		return err
	}
	return fl.f.Sync()
}

func (fl *floor) write(m floorMark) error {
	fl.last = m
	if _, err := fl.fs.Stat(fl.path); errors.Is(err, fs.ErrNotExist) {
		fl.log.Warn("a file of the data directory had been removed and is put back", "file", fl.path)
		f, err := fl.fs.OpenReadWrite(fl.path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		if err := fl.f.Close(); err != nil {
			fl.log.Warn("closing a removed file", "file", fl.path, "error", err)
		}
		fl.f = f
	}
	_, err := fl.f.WriteAt(m.encode(), 0)
	return err
}

// close ends the file; clean says that the database has been closed in order.
func (fl *floor) close(clean bool) error {
	var err error
	if clean {
		err = fl.enter(closed, fl.last.txid)
	}
	return errors.Join(err, fl.f.Close())
}
