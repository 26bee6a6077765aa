package pebblestate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
)

// ErrUnknownOutcome is wrapped by the error of a write of which nobody can tell whether it will be found when the
// database is opened again. The handle is of no more use: close it, open the database and read the txid.
var ErrUnknownOutcome = errors.New("the outcome of the write is unknown")

// ErrNotExist is wrapped by the error of opening a database that was never created.
var ErrNotExist = errors.New("there is no database")

// ErrClosed is returned by whatever is asked of a closed database.
var ErrClosed = errors.New("the database is closed")

const (
	remedyDamaged = "restore a savepoint, or rebuild by replay"
	remedyFull    = "free space on the device and start again: nothing that had committed is lost"
)

func damaged(path string, err error) error {
	return batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "open", fmt.Errorf("%s is damaged or missing: %w", path, oneLine{err}), remedyDamaged)
}

// oneLine leaves out the details that Pebble's errors carry on further lines.
type oneLine struct{ error }

func (e oneLine) Error() string {
	text, _, _ := strings.Cut(e.error.Error(), "\n")
	return text
}

func (e oneLine) Unwrap() error { return e.error }

// garbled is the error of a record that Pebble returned whole but that doesn't decode.
func (db *DB) garbled(what string, err error) error {
	return batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "read", fmt.Errorf("%s in %s: %w", what, db.pebbleDir(), err), remedyDamaged)
}

func (db *DB) pebbleDir() string { return db.opts.FS.PathJoin(db.opts.Dir, dbName) }

// damagedBy is the error of a file that Pebble found corrupted.
func (db *DB) damagedBy(path string, err error) error {
	if path == "" {
		path = fileIn(db.pebbleDir(), db.opts.FS, err)
	}
	e := func() *batch.Error {
		target := &batch.Error{}
		_ = errors.As(damaged(path, err), &target)
		return target
	}()
	e.Op = "read"
	return e
}

// failedRead makes an error of one that Pebble returned for a read.
func (db *DB) failedRead(err error) error {
	var e *batch.Error
	switch {
	case err == nil || errors.As(err, &e):
		return err
	case pebble.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist):
		return db.damagedBy("", err)
	}
	return fmt.Errorf("reading %s: %w", db.pebbleDir(), err)
}

// also returns err, together with what went wrong while cleaning up after it, if anything did.
func also(err, cleanup error) error {
	if cleanup == nil {
		return err
	}
	return errors.Join(err, cleanup)
}

// closed closes an iterator and returns err, or else what the iterator met.
func (db *DB) closed(it *pebble.Iterator, err error) error {
	if e := db.failedRead(it.Close()); err == nil {
		err = e
	}
	return err
}

// openError makes an error of one that Pebble returned for opening a database that had been created whole.
func openError(dir string, fsys vfs.FS, err error) error {
	var e *batch.Error
	switch {
	case errors.As(err, &e):
		return err
	case isFull(err):
		return batch.NewError(batch.Permanent, batch.CodeStoreFull, "open", err, remedyFull)
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "open", err, "give the process access to "+dir)
	case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM):
		return batch.NewError(batch.Transient, batch.CodeUnavailable, "open", err, "raise the limits of the process")
	}
	return damaged(fileIn(dir, fsys, err), err)
}

var (
	reFile  = regexp.MustCompile(`\d{6,}\.(sst|log|blob)|MANIFEST-\d{6,}|OPTIONS-\d{6,}|marker\.[a-z-]+\.\d+[^\s"]*`)
	reTable = regexp.MustCompile(`(?:L\d:|file) (\d{6,})`)
	reWAL   = regexp.MustCompile(`(?i)\bwal (\d+)`)
)

// fileIn finds the file that an error of Pebble is about; dir itself if it can't.
func fileIn(dir string, fsys vfs.FS, err error) string {
	text := fmt.Sprintf("%+v", err) // details tell which log was replayed
	var number int
	switch {
	case errors.Is(err, pebble.ErrDBDoesNotExist):
		return fsys.PathJoin(dir, "marker.manifest.*")
	case errors.Is(err, pebble.ErrDBNotPristine):
		return fsys.PathJoin(dir, "marker.format-version.*")
	}
	if m := reFile.FindString(err.Error()); m != "" {
		return fsys.PathJoin(dir, m)
	}
	if m := reTable.FindStringSubmatch(err.Error()); m != nil {
		return fsys.PathJoin(dir, m[1]+".sst")
	}
	if m := reWAL.FindStringSubmatch(text); m != nil {
		if _, err := fmt.Sscan(m[1], &number); err == nil {
			return fsys.PathJoin(dir, fmt.Sprintf("%06d.log", number))
		}
	}
	return dir
}

// manifest is what is known of the MANIFEST before Pebble reads it. Pebble takes the first broken record for the
// file's end, and then removes what the shorter MANIFEST doesn't name.
type manifest struct {
	path string
	torn bool // the last record is broken: a crash may have done that
}

// checkFiles looks for what Pebble doesn't notice: it must pass before Pebble opens the database for writing.
func checkFiles(fsys vfs.FS, dir string, mark floorMark) (m manifest, err error) {
	names, err := listDir(fsys, dir)
	if err != nil {
		return m, err
	}
	logs := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasSuffix(n, ".log") })
	// While it works, Pebble makes a log before it removes the one before: at any time there is one.
	if len(logs) == 0 && mark.phase != opening {
		return m, damaged(fsys.PathJoin(dir, "*.log"), errors.New("there is no write-ahead log"))
	}
	desc, err := pebble.Peek(dir, fsys)
	if err != nil {
		return m, openError(dir, fsys, err)
	}
	if !desc.Exists {
		return m, openError(dir, fsys, pebble.ErrDBDoesNotExist)
	}
	m.path = desc.ManifestFilename
	b, err := readFile(fsys, m.path)
	if err != nil {
		return m, damaged(m.path, err)
	}
	good, more := scanRecords(b)
	switch {
	case good == len(b):
	case good == 0:
		return m, damaged(m.path, errors.New("its first record is broken"))
	case more:
		return m, damaged(m.path, fmt.Errorf("the record at byte %d is broken, whole ones follow", good))
	case mark.phase == closed:
		return m, damaged(m.path, fmt.Errorf("the record at byte %d is broken, although the database was closed in order", good))
	default:
		m.torn = true
	}
	return m, nil
}

// Layout of the chunks in a MANIFEST: blocks of 32 KiB hold chunks of [checksum 4][length 2][type 1], little endian,
// types 1 (a whole record), 2, 3 and 4 (its first, middle and last piece); a block's rest that is too short for a
// header is zero.
const (
	recordBlock  = 32 << 10
	recordHeader = 7
	recordFirst  = 2
)

// scanRecords returns how far b consists of whole chunks, and whether a later record begins after that. One record
// is synced before the next is written: a crash can leave holes in the last one, but no record behind a hole.
func scanRecords(b []byte) (good int, more bool) {
	for good < len(b) {
		if left := recordBlock - good%recordBlock; left < recordHeader {
			good = min(good+left, len(b))
			continue
		}
		n := chunkAt(b, good)
		if n == 0 {
			break
		}
		good += n
	}
	if good < len(b) && !slices.ContainsFunc(b[good:], func(c byte) bool { return c != 0 }) {
		return len(b), false // space that was allocated ahead
	}
	for i := good + 1; i < len(b); i++ {
		if chunkAt(b, i) > 0 && b[i+6] <= recordFirst {
			return good, true
		}
	}
	return good, false
}

// chunkAt returns the size of the whole chunk at b[i:]; 0 if there is none.
func chunkAt(b []byte, i int) int {
	left := min(len(b)-i, recordBlock-i%recordBlock)
	if left < recordHeader {
		return 0
	}
	typ, n := b[i+6], recordHeader+int(binary.LittleEndian.Uint16(b[i+4:]))
	if typ < 1 || typ > 4 || n > left {
		return 0
	}
	sum := crc32.Checksum(b[i+6:i+n], castagnoli)
	if sum = sum>>15 | sum<<17; sum+0xa282ead8 != binary.LittleEndian.Uint32(b[i:]) {
		return 0
	}
	return n
}
