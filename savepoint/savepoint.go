// Package savepoint keeps copies of pipelines' stores. A savepoint is a whole store (states, positions and ledger) as of one
// committed txid, with a checksum of each file: it is used only if every byte is as it was written, and one that was
// interrupted while it was made isn't taken for one.
//
// A Place holds savepoints, in a folder or in a bucket, at <place>/<pipeline>/<name>:
//
//	savepoint.json   what it is: see Info; it is written last
//	store/           a data directory of the pipeline, at rest; in a bucket its name is longer
//
// So a savepoint can be copied from the one kind to the other as it is.
package savepoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/scratch"
	"github.com/tridentd/tridentd/pebblestate"
)

// FormatVersion is the version of Info and of the layout.
const FormatVersion = 1

const (
	infoName  = "savepoint.json"
	storeName = "store"
	// partial marks what is being made; it is no savepoint.
	partial = ".partial"
)

// Info describes a savepoint.
type Info struct {
	Format    int                       `json:"format"`
	Name      string                    `json:"name"`
	Pipeline  string                    `json:"pipeline"`
	Identity  string                    `json:"identity,omitempty"` // of the store: a pipeline may have several
	Made      Reason                    `json:"made,omitempty"`
	Txid      batch.Txid                `json:"txid"`
	Epoch     batch.Epoch               `json:"epoch"`
	Chain     string                    `json:"chain"` // the ledger's digest as of Txid, hexadecimal
	Created   time.Time                 `json:"created"`
	Committed time.Time                 `json:"committed,omitzero"` // when Txid was
	Plan      string                    `json:"plan,omitempty"`     // hash of the plan that ran Txid, hexadecimal
	Build     string                    `json:"build,omitempty"`    // that ran Txid
	Bytes     int64                     `json:"bytes"`
	Positions []Position                `json:"positions,omitempty"` // the next offsets, in order of source, topic and partition
	States    []pebblestate.StateDigest `json:"states"`
	Store     string                    `json:"store,omitempty"` // the folder of the store's files; empty: store
	Files     []File                    `json:"files"`           // of the store, by path
}

// Reason says what a savepoint was made for.
type Reason string

// The reasons. A schedule removes only what a schedule has made.
const (
	ByHand         Reason = "" // savepoints that don't say are kept, too
	BySchedule     Reason = "schedule"
	ForMigration   Reason = "migration"
	schedulePrefix        = "schedule-"
	migratePrefix         = "migration-"
)

// Position is how far one partition had come.
type Position struct {
	Source    string `json:"source"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Next      int64  `json:"next"`
}

// File is one file of a savepoint's store.
type File struct {
	Path   string `json:"path"` // below the store's folder, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// store is the folder of the store's files.
func (i *Info) store() string {
	if i.Store == "" {
		return storeName
	}
	return i.Store
}

var (
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	storePattern = regexp.MustCompile(`^(store(-[0-9a-f]{1,32})?)?$`)
)

// CheckName tells whether a savepoint may be called name.
func CheckName(name string) error {
	if !namePattern.MatchString(name) || strings.HasSuffix(name, partial) {
		return refuse("name", "name it with letters, digits, _, . and -, beginning with a letter or digit, at most 128", "savepoint name %q", name)
	}
	return nil
}

func refuse(op, remedy, format string, args ...any) error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "savepoint "+op, fmt.Errorf(format, args...), remedy)
}

func damagedFile(path string, err error) error {
	return batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "savepoint", fmt.Errorf("%s: %w", path, err), "use another savepoint")
}

// Checkpoint copies a store to dir, which doesn't exist.
type Checkpoint func(ctx context.Context, dir string) error

// Create makes a savepoint of the copy that checkpoint makes of a store: in a directory of its own in beside, which should lie
// on the store's device, so that copying takes no time while batches wait. An empty name stands for one made of the txid.
func (p Place) Create(ctx context.Context, name, beside string, now time.Time, checkpoint Checkpoint) (Info, error) {
	if name == "" {
		return p.create(ctx, ByHand, beside, now, checkpoint, func(info *Info) string { return fmt.Sprintf("txid-%012d", info.Txid) })
	}
	if err := CheckName(name); err != nil {
		return Info{}, err
	}
	if err := p.free(ctx, name); err != nil {
		return Info{}, err
	}
	return p.create(ctx, ByHand, beside, now, checkpoint, func(*Info) string { return name })
}

// Scheduled is Create for a savepoint that is made because its time has come, and that Expire removes.
func (p Place) Scheduled(ctx context.Context, beside string, now time.Time, checkpoint Checkpoint) (Info, error) {
	return p.create(ctx, BySchedule, beside, now, checkpoint, timed(schedulePrefix))
}

// BeforeMigration makes the savepoint that a change of a store begins with, so that there is always a way back. db is the store
// that is about to be changed; beside is a directory on its device, and the savepoint shares files with the store by hard links
// if the place lies there too.
func (p Place) BeforeMigration(ctx context.Context, db *pebblestate.DB, beside string, now time.Time) (Info, error) {
	return p.create(ctx, ForMigration, beside, now, func(ctx context.Context, dir string) error {
		_, err := db.Checkpoint(ctx, dir)
		return err
	}, timed(migratePrefix))
}

// timed names savepoints by txid and time: those of one txid have several names.
func timed(prefix string) func(*Info) string {
	return func(info *Info) string {
		return fmt.Sprintf("%stxid-%012d-%s", prefix, info.Txid, info.Created.Format("20060102T150405.000Z"))
	}
}

func (p Place) create(ctx context.Context, made Reason, beside string, now time.Time, checkpoint Checkpoint, name func(*Info) string) (_ Info, err error) {
	tmp, remove, err := MakeCopies(beside)
	if err != nil {
		return Info{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	// From here on the ledger is kept for it: see InMaking.
	if err := mark(tmp, nil); err != nil {
		return Info{}, err
	}
	copied := filepath.Join(tmp, storeName)
	if err := checkpoint(ctx, copied); err != nil {
		return Info{}, err
	}
	info, err := p.inspect(ctx, copied, func(info *Info) error {
		info.Made, info.Created = made, now.UTC().Truncate(time.Millisecond)
		info.Name = name(info)
		return errors.Join(mark(tmp, info), p.free(ctx, info.Name))
	})
	if err != nil {
		return Info{}, err
	}
	if info.Files, err = sums(ctx, copied); err != nil {
		return Info{}, err
	}
	for _, f := range info.Files {
		info.Bytes += f.Size
	}
	return info, p.storage.put(ctx, info, copied)
}

// Expire removes the oldest of the savepoints that a schedule has made of the store with that identity, until keep are left, and
// returns the names of those that went. One that can't be read or removed is an error beside that.
func (p Place) Expire(ctx context.Context, identity string, keep int) (gone []string, err error) {
	all, err := p.List(ctx)
	all = slices.DeleteFunc(all, func(i Info) bool { return i.Made != BySchedule || i.Identity != identity })
	for i := range max(0, len(all)-keep) {
		if rerr := p.Remove(ctx, all[i].Name); rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		gone = append(gone, all[i].Name)
	}
	return gone, err
}

// inspectCache bounds the memory for reading a store that is looked at once.
const inspectCache = 8 << 20

// inspect describes a store at rest, but for its files. known is called once txid and chain are: states take a while to read.
func (p Place) inspect(ctx context.Context, dir string, known func(*Info) error) (Info, error) {
	info := Info{Format: FormatVersion, Pipeline: p.pipeline}
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: dir, Pipeline: p.pipeline, ReadOnly: true, CacheBytes: inspectCache})
	if err != nil {
		return info, err
	}
	return info, errors.Join(describe(ctx, db, &info, known), db.Close())
}

func describe(ctx context.Context, db *pebblestate.DB, info *Info, known func(*Info) error) error {
	snap, err := db.Store().Load(ctx)
	if err != nil {
		return err
	}
	if info.Identity, err = db.Identity(ctx); err != nil {
		return err
	}
	info.Txid, info.Epoch, info.Chain = snap.Txid, snap.Epoch, fmt.Sprintf("%016x", snap.Chain)
	if err := known(info); err != nil {
		return err
	}
	for _, p := range snap.Positions {
		if p.Topic != "" {
			info.Positions = append(info.Positions, Position{p.Source, p.Topic, p.Number, p.Next})
		}
	}
	if snap.Txid > 0 {
		for e, err := range db.Store().Entries(ctx, snap.Txid, snap.Txid) {
			if err != nil {
				return err
			}
			info.Committed, info.Build, info.Plan = e.Committed.UTC(), e.Build, fmt.Sprintf("%016x", e.Plan)
		}
	}
	info.States, err = db.StateDigests(ctx)
	return err
}

// Names of files that belong to whoever has the store open, not to the store.
var transient = []string{"LOCK", "owner"}

// sums lists the files of a store with their checksums.
func sums(ctx context.Context, dir string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || slices.Contains(transient, d.Name()) {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, err := sumOf(ctx, path)
		f.Path = filepath.ToSlash(rel)
		files = append(files, f)
		return err
	})
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, err
}

func sumOf(ctx context.Context, path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	h := sha256.New()
	n, err := io.Copy(h, &reader{ctx, f})
	return File{Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}

// decode reads savepoint.json and checks all that can be checked without the files.
func decode(b []byte) (Info, error) {
	var info Info
	if len(b) > maxInfo {
		return info, fmt.Errorf("it is larger than %d bytes", maxInfo)
	}
	if err := json.Unmarshal(b, &info); err != nil {
		return info, err
	}
	switch {
	case info.Format < 1 || info.Format > FormatVersion:
		return info, fmt.Errorf("format version %d; this build knows up to %d", info.Format, FormatVersion)
	case CheckName(info.Name) != nil || info.Pipeline == "" || len(info.Files) == 0:
		return info, errors.New("name, pipeline or files are missing")
	case !storePattern.MatchString(info.Store):
		return info, fmt.Errorf("the store lies in %q", info.Store)
	}
	for i, f := range info.Files {
		sum, err := hex.DecodeString(f.SHA256)
		switch {
		case !filepath.IsLocal(filepath.FromSlash(f.Path)) || strings.Contains(f.Path, `\`):
			return info, fmt.Errorf("file %q lies elsewhere", f.Path)
		case err != nil || len(sum) != sha256.Size || f.Size < 0:
			return info, fmt.Errorf("file %s: no checksum", f.Path)
		case i > 0 && info.Files[i-1].Path >= f.Path:
			return info, fmt.Errorf("file %s isn't in order", f.Path)
		}
	}
	return info, nil
}

// Verify reads every byte of a savepoint and compares: the files, and the states that they hold. One in a bucket is fetched into a
// temporary directory for that.
func (p Place) Verify(ctx context.Context, name string) (Info, error) {
	info, err := p.Load(ctx, name)
	if err != nil {
		return info, err
	}
	return info, p.whole(ctx, info, func(string) error { return nil })
}

// whole verifies a savepoint and passes a directory that holds its store to f, which must not change it.
func (p Place) whole(ctx context.Context, info Info, f func(dir string) error) (err error) {
	dir := p.storage.local(info)
	if dir != "" {
		if err := p.filed(ctx, info); err != nil {
			return err
		}
		err = p.each(ctx, info, func(ctx context.Context, f File) error { return p.sum(ctx, info, f, io.Discard) })
	} else {
		tmp, remove, terr := scratch.Make("", temporary)
		if terr != nil {
			return terr
		}
		defer func() { err = errors.Join(err, remove()) }()
		dir = filepath.Join(tmp, storeName)
		err = p.fetch(ctx, info, dir)
	}
	if err != nil {
		return err
	}
	if err := p.same(ctx, info, dir, p.storage.path(info.Name, info.store())); err != nil {
		return err
	}
	return f(dir)
}

// same compares what a store holds with what is said of it.
func (p Place) same(ctx context.Context, info Info, dir, path string) error {
	found, err := p.inspect(ctx, dir, func(*Info) error { return nil })
	if err != nil {
		return err
	}
	switch {
	case found.Txid != info.Txid || found.Chain != info.Chain || found.Epoch != info.Epoch:
		err = fmt.Errorf("it holds txid %d, chain %s, epoch %d, the savepoint is of txid %d, chain %s, epoch %d", found.Txid, found.Chain, found.Epoch, info.Txid, info.Chain, info.Epoch)
	case found.Identity != info.Identity:
		err = fmt.Errorf("it is a copy of the store %s, the savepoint is one of %s", found.Identity, info.Identity)
	case !slices.Equal(found.States, info.States):
		err = fmt.Errorf("it holds the states %v, the savepoint those of %v", found.States, info.States)
	case !slices.Equal(found.Positions, info.Positions):
		err = fmt.Errorf("it holds the positions %v, the savepoint those of %v", found.Positions, info.Positions)
	default:
		return nil
	}
	return damagedFile(path, err)
}

// filed compares which files lie in a savepoint's store with what info says.
func (p Place) filed(ctx context.Context, info Info) error {
	files, err := p.storage.files(ctx, info)
	if err != nil {
		return err
	}
	bad := func(file, what string) error {
		return damagedFile(p.storage.path(info.Name, info.store()+"/"+file), errors.New(what))
	}
	for i, want := range info.Files {
		switch {
		case i >= len(files) || files[i].Path > want.Path:
			return bad(want.Path, "it is missing")
		case files[i].Path < want.Path:
			return bad(files[i].Path, "it doesn't belong here")
		case files[i].Size != want.Size:
			return bad(want.Path, fmt.Sprintf("%d bytes, should be %d", files[i].Size, want.Size))
		}
	}
	if n := len(info.Files); len(files) > n {
		return bad(files[n].Path, "it doesn't belong here")
	}
	return nil
}

// each calls f for every file of a savepoint, a few at once.
func (p Place) each(ctx context.Context, info Info, f func(ctx context.Context, f File) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, file := range info.Files {
		g.Go(func() error { return f(ctx, file) })
	}
	return g.Wait()
}

// sum copies a file of a savepoint to w and compares it with its checksum.
func (p Place) sum(ctx context.Context, info Info, f File, w io.Writer) error {
	path := p.storage.path(info.Name, info.store()+"/"+f.Path)
	r, err := p.storage.open(ctx, info, f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return damagedFile(path, errors.New("it is missing"))
	}
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(h, w), &reader{ctx, r})
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); n != f.Size || got != f.SHA256 {
		return damagedFile(path, fmt.Errorf("%d bytes with sum %s, should be %d with %s", n, got, f.Size, f.SHA256))
	}
	return nil
}

// fetch copies the store of a savepoint to a directory that doesn't exist. They are copies, not links: a savepoint must not share
// a file that somebody opens for writing.
func (p Place) fetch(ctx context.Context, info Info, dir string) error {
	if err := p.filed(ctx, info); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return p.each(ctx, info, func(ctx context.Context, f File) error {
		to := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		_, err := again(ctx, firstWait, func() (struct{}, error) {
			return struct{}{}, writeFrom(to, func(w io.Writer) error { return p.sum(ctx, info, f, w) })
		})
		return err
	})
}

// Restore copies the store of a savepoint to dir, which must not exist or be empty, and verifies what it has copied before it takes
// that name.
func (p Place) Restore(ctx context.Context, name, dir string) (Info, error) {
	info, err := p.Load(ctx, name)
	if err != nil {
		return info, err
	}
	switch entries, err := os.ReadDir(dir); {
	case err == nil && len(entries) > 0:
		return info, refuse("restore", "name another directory, or move it away", "%s isn't empty", dir)
	case err == nil:
		if err := os.Remove(dir); err != nil {
			return info, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return info, err
	}
	tmp := dir + partial
	if err := os.RemoveAll(tmp); err != nil {
		return info, err
	}
	err = p.fetch(ctx, info, tmp)
	if err == nil {
		err = p.same(ctx, info, tmp, p.storage.path(info.Name, info.store()))
	}
	if err != nil {
		return info, errors.Join(err, os.RemoveAll(tmp))
	}
	if err := syncTree(tmp); err != nil {
		return info, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return info, err
	}
	return info, syncDir(filepath.Dir(dir))
}
