package pebblestate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
)

// A base is a copy of the database as of an earlier txid, in the database's own directory: what a replay begins at once
// the ledger has been trimmed. Its tables are hard links of the database's, so that making one takes moments; what it
// costs is the room of tables that the database itself has replaced since. It is no savepoint: it shares its bytes, and its
// fate, with the database.
//
// It lies in base/<txid>, and is one only under that name: while it is made, and while it is removed, the name ends in
// ".partial".

// BasesDir is the directory of the bases, in the data directory.
const BasesDir = "base"

const (
	basePartial     = ".partial"
	baseMaking      = "making" + basePartial
	baseInfoName    = "BASE"
	baseTxidDigits  = 20
	baseInfoVersion = 1
)

// Base describes a base.
type Base struct {
	Txid    batch.Txid
	Chain   uint64 // the ledger's as of Txid
	Created time.Time
	Bytes   int64 // of its files, whether or not the database still has them too
}

// baseInfo is the content of BASE: a line of JSON, and a line with the CRC-32C of that.
type baseInfo struct {
	Format   int        `json:"format"`
	Pipeline string     `json:"pipeline"`
	Txid     batch.Txid `json:"txid"`
	Chain    string     `json:"chain"`
	Created  time.Time  `json:"created"`
	Files    []baseFile `json:"files"` // by path
}

// baseFile is one file of a base. Tables have no checksum here: each of their blocks has one, which every read checks, and
// to compute another would mean to read the whole state.
type baseFile struct {
	Path string  `json:"path"` // below the base, with slashes
	Size int64   `json:"size"`
	Sum  *uint32 `json:"crc32c,omitempty"`
}

func (i *baseInfo) base() Base {
	b := Base{Txid: i.Txid, Created: i.Created}
	b.Chain, _ = strconv.ParseUint(i.Chain, 16, 64) // checked by decodeBaseInfo
	for _, f := range i.Files {
		b.Bytes += f.Size
	}
	return b
}

func (i *baseInfo) encode() []byte {
	b, err := json.Marshal(i)
	if err != nil {
		panic(err) // strings, numbers and a time within the calendar
	}
	return fmt.Appendf(b, "\n%08x\n", crc32.Checksum(b, castagnoli))
}

func decodeBaseInfo(b []byte) (i baseInfo, err error) {
	text, sum, ok := strings.Cut(string(b), "\n")
	if !ok || sum != fmt.Sprintf("%08x\n", crc32.Checksum([]byte(text), castagnoli)) {
		return i, errors.New("its checksum is wrong")
	}
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		return i, err
	}
	if i.Format < 1 || i.Format > baseInfoVersion {
		return i, fmt.Errorf("it has version %d, this build knows up to %d", i.Format, baseInfoVersion)
	}
	if _, err := strconv.ParseUint(i.Chain, 16, 64); err != nil {
		return i, fmt.Errorf("its chain is %q", i.Chain)
	}
	for n, f := range i.Files {
		if !fs.ValidPath(f.Path) || f.Path == "." || f.Size < 0 || n > 0 && i.Files[n-1].Path >= f.Path {
			return i, fmt.Errorf("it lists a file %q of %d bytes", f.Path, f.Size)
		}
	}
	return i, nil
}

// isTable tells whether a file of Pebble's holds tables or their values: it is never changed once it is written.
func isTable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}

func baseName(txid batch.Txid) string { return fmt.Sprintf("%0*d", baseTxidDigits, uint64(txid)) }

// BasePath is where the base as of a txid lies, below the data directory.
func BasePath(txid batch.Txid) string { return BasesDir + "/" + baseName(txid) }

// brokenBase is the error of a base that isn't as it was made: the database isn't concerned.
func brokenBase(path string, err error) error {
	return batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "base", fmt.Errorf("%s, in a copy of the store that replays begin at, is damaged or missing: %w", path, oneLine{err}),
		"remove that copy's directory: the store itself is whole, and needs it for replays only")
}

func (db *DB) baseDir(name string) string {
	return db.opts.FS.PathJoin(db.opts.Dir, BasesDir, name)
}

// Bases lists the bases, the oldest first. One whose description can't be read is none; that is logged.
func (db *DB) Bases() ([]Base, error) {
	names, err := listDir(db.opts.FS, db.opts.FS.PathJoin(db.opts.Dir, BasesDir))
	if err != nil {
		return nil, err
	}
	var all []Base
	for _, name := range names {
		txid, err := strconv.ParseUint(name, 10, 64)
		if err != nil || len(name) != baseTxidDigits {
			continue
		}
		info, err := db.readBase(batch.Txid(txid))
		if err != nil {
			db.opts.Logger.Warn("a base of the ledger can't be used", "error", err)
			continue
		}
		all = append(all, info.base())
	}
	slices.SortFunc(all, func(a, b Base) int { return cmp.Compare(a.Txid, b.Txid) })
	return all, nil
}

func (db *DB) readBase(txid batch.Txid) (info baseInfo, err error) {
	o := &db.opts
	path := o.FS.PathJoin(db.baseDir(baseName(txid)), baseInfoName)
	b, err := readFile(o.FS, path)
	if err != nil {
		return info, err
	}
	if info, err = decodeBaseInfo(b); err == nil && (info.Txid != txid || info.Pipeline != db.format.Pipeline) {
		err = fmt.Errorf("it is of pipeline %s as of txid %d", info.Pipeline, info.Txid)
	}
	if err != nil {
		return info, brokenBase(path, err)
	}
	return info, nil
}

// MakeBase makes a base of the last committed batch. now is only told by it. If there is one already, that is returned.
//
// Commits wait while the copy's links are made, not while tables are written or anything is read.
func (db *DB) MakeBase(ctx context.Context, now time.Time) (Base, error) {
	db.basing.Lock()
	defer db.basing.Unlock()
	if db.opts.ReadOnly {
		return Base{}, batch.NewError(batch.Permanent, batch.CodeInternal, "make a base", errors.New("the database was opened for reading"), "")
	}
	if err := db.sweepBases(); err != nil {
		return Base{}, err
	}
	making := db.baseDir(baseMaking)
	txid, err := db.Checkpoint(ctx, making)
	if err != nil {
		return Base{}, err
	}
	if info, err := db.readBase(txid); err == nil {
		return info.base(), db.sweepBases()
	}
	info := baseInfo{Format: baseInfoVersion, Pipeline: db.format.Pipeline, Txid: txid, Created: now.UTC().Truncate(time.Second)}
	chain, err := db.chainAt(ctx, txid)
	if err != nil {
		return Base{}, err
	}
	info.Chain = fmt.Sprintf("%016x", chain)
	if info.Files, err = listBase(db.opts.FS, making); err != nil {
		return Base{}, err
	}
	if err := writeFile(db.opts.FS, making, baseInfoName, info.encode()); err != nil {
		return Base{}, err
	}
	whole := db.baseDir(baseName(txid))
	if err := db.opts.FS.RemoveAll(whole); err != nil { // one that can't be read
		return Base{}, err
	}
	if err := db.opts.FS.Rename(making, whole); err != nil {
		return Base{}, err
	}
	return info.base(), syncDir(db.opts.FS, db.opts.FS.PathJoin(db.opts.Dir, BasesDir))
}

// chainAt is the ledger's digest as of a txid whose entry is there.
func (db *DB) chainAt(ctx context.Context, txid batch.Txid) (chain uint64, err error) {
	found := txid == 0
	for e, err := range db.Store().Entries(ctx, txid, txid) {
		if err != nil {
			return 0, err
		}
		chain, found = e.Chain, true
	}
	if !found {
		return 0, fmt.Errorf("the ledger has no entry of txid %d", txid)
	}
	return chain, nil
}

// listBase describes the files of a data directory at rest.
func listBase(fsys vfs.FS, dir string) ([]baseFile, error) {
	var files []baseFile
	for _, sub := range []string{"", dbName} {
		names, err := listDir(fsys, fsys.PathJoin(dir, sub))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if sub == "" && name == dbName {
				continue
			}
			f := baseFile{Path: name}
			if sub != "" {
				f.Path = sub + "/" + name
			}
			path := fsys.PathJoin(dir, sub, name)
			if isTable(name) {
				st, err := fsys.Stat(path)
				if err != nil {
					return nil, err
				}
				f.Size = st.Size()
			} else {
				b, err := readFile(fsys, path)
				if err != nil {
					return nil, err
				}
				sum := crc32.Checksum(b, castagnoli)
				f.Size, f.Sum = int64(len(b)), &sum
			}
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b baseFile) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

// RemoveBases removes the bases below a txid.
func (db *DB) RemoveBases(below batch.Txid) error {
	db.basing.Lock()
	defer db.basing.Unlock()
	o := &db.opts
	dir := o.FS.PathJoin(o.Dir, BasesDir)
	names, err := listDir(o.FS, dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if txid, err := strconv.ParseUint(name, 10, 64); err != nil || batch.Txid(txid) >= below {
			continue
		}
		if err := o.FS.Rename(db.baseDir(name), db.baseDir(name+basePartial)); err != nil {
			return err
		}
	}
	return db.sweepBases()
}

// sweepBases removes what was being made or removed when a process ended. REQUIRES: db.basing is held.
func (db *DB) sweepBases() error {
	o := &db.opts
	dir := o.FS.PathJoin(o.Dir, BasesDir)
	names, err := listDir(o.FS, dir)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, basePartial) })
	if len(names) == 0 {
		return nil
	}
	// What goes must have lost its name for good before a file of it does.
	if err := syncDir(o.FS, dir); err != nil {
		return err
	}
	for _, name := range names {
		if err := o.FS.RemoveAll(db.baseDir(name)); err != nil {
			return err
		}
	}
	return nil
}

// RestoreBase makes a data directory of its own in dir, which must not exist, of the base as of txid. What is not a table
// is copied; tables are linked, where dir lies on the same device. A base that isn't as it was made is refused with
// batch.CodeStoreDamaged.
func (db *DB) RestoreBase(ctx context.Context, txid batch.Txid, dir string) (Base, error) {
	info, err := db.readBase(txid)
	if err != nil {
		return Base{}, err
	}
	return info.base(), copyBase(ctx, db.opts.FS, db.baseDir(baseName(txid)), dir, &info)
}

// LinkBases gives the database in to, a checkpoint of the one in from that may be open elsewhere, the bases of that one. It
// wraps fs.ErrNotExist if one is removed meanwhile, and may have done a part then.
func LinkBases(ctx context.Context, from, to string) error {
	fsys := vfs.Default
	names, err := listDir(fsys, fsys.PathJoin(from, BasesDir))
	if err != nil {
		return err
	}
	for _, name := range names {
		if len(name) != baseTxidDigits {
			continue
		}
		source, target := fsys.PathJoin(from, BasesDir, name), fsys.PathJoin(to, BasesDir, name)
		path := fsys.PathJoin(source, baseInfoName)
		b, err := readFile(fsys, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		info, err := decodeBaseInfo(b)
		if err != nil {
			continue // it isn't one, see Bases
		}
		if err := copyBase(ctx, fsys, source, target, &info); err != nil {
			return err
		}
		if err := writeFile(fsys, target, baseInfoName, b); err != nil {
			return err
		}
	}
	return nil
}

// copyBase copies what info lists.
func copyBase(ctx context.Context, fsys vfs.FS, from, to string, info *baseInfo) error {
	if err := makeDir(fsys, fsys.PathJoin(to, dbName)); err != nil {
		return err
	}
	if err := writeFile(fsys, to, creatingName, nil); err != nil {
		return err
	}
	var last []byte // FORMAT, which makes it a database
	for _, f := range info.Files {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		name := fsys.PathJoin(strings.Split(f.Path, "/")...)
		source, target := fsys.PathJoin(from, name), fsys.PathJoin(to, name)
		st, err := fsys.Stat(source)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return brokenBase(source, err)
		case err != nil:
			return err
		case st.Size() != f.Size:
			return brokenBase(source, fmt.Errorf("%d bytes, should be %d", st.Size(), f.Size))
		case f.Sum == nil:
			if err := vfs.LinkOrCopy(fsys, source, target); err != nil {
				return err
			}
			continue
		}
		b, err := readFile(fsys, source)
		switch {
		case err != nil:
			return err
		case crc32.Checksum(b, castagnoli) != *f.Sum:
			return brokenBase(source, errors.New("its checksum is wrong"))
		case f.Path == formatName:
			last = b
			continue
		}
		if err := writeFile(fsys, fsys.PathDir(target), fsys.PathBase(target), b); err != nil {
			return err
		}
	}
	if last == nil {
		return brokenBase(fsys.PathJoin(from, formatName), errors.New("it is missing"))
	}
	if err := writeFile(fsys, to, formatName, last); err != nil {
		return err
	}
	return errors.Join(fsys.Remove(fsys.PathJoin(to, creatingName)), syncDir(fsys, to))
}
