// Package savepoint keeps copies of pipelines' stores. A savepoint is a whole store (states, positions and ledger) as of one
// committed txid, with a checksum of each file: it is used only if every byte is as it was written, and one that was
// interrupted while it was made isn't taken for one.
//
// A place is a directory that holds savepoints, <place>/<pipeline>/<name>:
//
//	savepoint.json   what it is: see Info
//	store/           a data directory of the pipeline, at rest
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

	"github.com/tridentd/tridentd/batch"
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
	Format   int                       `json:"format"`
	Name     string                    `json:"name"`
	Pipeline string                    `json:"pipeline"`
	Txid     batch.Txid                `json:"txid"`
	Epoch    batch.Epoch               `json:"epoch"`
	Chain    string                    `json:"chain"` // the ledger's digest as of Txid, hexadecimal
	Created  time.Time                 `json:"created"`
	Bytes    int64                     `json:"bytes"`
	States   []pebblestate.StateDigest `json:"states"`
	Files    []File                    `json:"files"` // of the store, by path
}

// File is one file of a savepoint's store.
type File struct {
	Path   string `json:"path"` // below store/, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

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

// Place is a directory that holds the savepoints of one pipeline.
type Place struct {
	dir      string
	pipeline string
}

// At is the place of a pipeline's savepoints below root.
func At(root, pipeline string) Place { return Place{filepath.Join(root, pipeline), pipeline} }

// Dir is the directory of a savepoint.
func (p Place) Dir(name string) string { return filepath.Join(p.dir, name) }

// Store is the store of a savepoint.
func (p Place) Store(name string) string { return filepath.Join(p.dir, name, storeName) }

// Create makes a savepoint of the copy that checkpoint makes of a store: in a directory of its own in scratch, which should lie
// on the store's device, so that copying takes no time while batches wait. An empty name stands for one made of the txid.
func (p Place) Create(ctx context.Context, name, scratch string, now time.Time, checkpoint func(ctx context.Context, dir string) error) (_ Info, err error) {
	if name != "" {
		if err := CheckName(name); err != nil {
			return Info{}, err
		}
		if err := p.free(name); err != nil {
			return Info{}, err
		}
	}
	tmp, err := os.MkdirTemp(scratch, fmt.Sprintf("copy-%d-", os.Getpid()))
	if err != nil {
		return Info{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	copied := filepath.Join(tmp, storeName)
	if err := checkpoint(ctx, copied); err != nil {
		return Info{}, err
	}
	info, err := p.inspect(ctx, copied)
	if err != nil {
		return Info{}, err
	}
	if name == "" {
		name = fmt.Sprintf("txid-%012d", info.Txid)
		if err := p.free(name); err != nil {
			return Info{}, err
		}
	}
	info.Name, info.Created = name, now.UTC().Truncate(time.Second)
	return info, p.fill(info, func(dir string) error {
		if os.Rename(copied, dir) == nil {
			return nil
		}
		return copyTree(ctx, copied, dir) // another device
	})
}

// free fails if there is a savepoint of that name.
func (p Place) free(name string) error {
	switch _, err := os.Lstat(p.Dir(name)); {
	case err == nil:
		return refuse("create", "choose another name, or remove it first", "savepoint %s exists", name)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// fill makes the savepoint that info describes: its store is put in place by store. It takes its name last.
func (p Place) fill(info Info, store func(dir string) error) error {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	// Each has a directory of its own: of two that make a savepoint of one name, one fails.
	dir, err := os.MkdirTemp(p.dir, info.Name+".*"+partial)
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := store(filepath.Join(dir, storeName)); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	b, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(dir, infoName), append(b, '\n')); err != nil {
		return err
	}
	if err := syncTree(dir); err != nil {
		return err
	}
	if err := os.Rename(dir, p.Dir(info.Name)); err != nil {
		return errors.Join(p.free(info.Name), err, os.RemoveAll(dir))
	}
	return syncDir(p.dir)
}

// inspect describes a store at rest.
func (p Place) inspect(ctx context.Context, dir string) (Info, error) {
	info := Info{Format: FormatVersion, Pipeline: p.pipeline}
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: dir, Pipeline: p.pipeline, ReadOnly: true})
	if err != nil {
		return info, err
	}
	snap, err := db.Store().Load(ctx)
	if err == nil {
		info.Txid, info.Epoch, info.Chain = snap.Txid, snap.Epoch, fmt.Sprintf("%016x", snap.Chain)
		info.States, err = db.StateDigests(ctx)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return info, err
	}
	info.Files, err = sums(ctx, dir)
	for _, f := range info.Files {
		info.Bytes += f.Size
	}
	return info, err
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

// List describes the savepoints of the place, the oldest first. What can't be read is an error beside the others.
func (p Place) List() ([]Info, error) {
	entries, err := os.ReadDir(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Info
	for _, e := range entries {
		if !e.IsDir() || strings.HasSuffix(e.Name(), partial) {
			continue
		}
		info, lerr := p.Load(e.Name())
		if lerr != nil {
			err = errors.Join(err, lerr)
			continue
		}
		all = append(all, info)
	}
	slices.SortStableFunc(all, func(a, b Info) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return int(int64(a.Txid) - int64(b.Txid))
	})
	return all, err
}

// Load reads what a savepoint says of itself.
func (p Place) Load(name string) (Info, error) {
	if err := CheckName(name); err != nil {
		return Info{}, err
	}
	path := filepath.Join(p.Dir(name), infoName)
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Info{}, p.missing(name)
	case err != nil:
		return Info{}, err
	}
	info, err := decode(b)
	if err != nil {
		return Info{}, damagedFile(path, err)
	}
	return info, p.ours(info, path)
}

func (p Place) missing(name string) error {
	var have []string
	entries, _ := os.ReadDir(p.dir)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), partial) {
			have = append(have, e.Name())
		}
	}
	what := "there is none"
	if len(have) > 0 {
		what = "there is " + strings.Join(have, ", ")
	}
	return refuse("load", "name one that is there", "no savepoint %s in %s; %s", name, p.dir, what)
}

func (p Place) ours(info Info, path string) error {
	if info.Pipeline != p.pipeline {
		return batch.NewError(batch.Permanent, batch.CodeStoreForeign, "savepoint", fmt.Errorf("%s is of pipeline %s, not of %s", path, info.Pipeline, p.pipeline), "name the right pipeline")
	}
	return nil
}

// decode reads savepoint.json and checks all that can be checked without the files.
func decode(b []byte) (Info, error) {
	var info Info
	if err := json.Unmarshal(b, &info); err != nil {
		return info, err
	}
	switch {
	case info.Format < 1 || info.Format > FormatVersion:
		return info, fmt.Errorf("format version %d; this build knows up to %d", info.Format, FormatVersion)
	case !namePattern.MatchString(info.Name) || info.Pipeline == "" || len(info.Files) == 0:
		return info, errors.New("name, pipeline or files are missing")
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

// Verify reads every byte of a savepoint and compares: the files, and the states that they hold.
func (p Place) Verify(ctx context.Context, name string) (Info, error) {
	info, err := p.Load(name)
	if err != nil {
		return info, err
	}
	found, err := p.check(ctx, info, p.Store(name))
	if err != nil {
		return info, err
	}
	return info, p.same(info, found, p.Store(name))
}

// same compares what a store holds with what is said of it.
func (p Place) same(info, found Info, path string) error {
	if found.Txid != info.Txid || found.Chain != info.Chain || !slices.Equal(found.States, info.States) {
		return damagedFile(path, fmt.Errorf("it holds txid %d, chain %s, the savepoint is of txid %d, chain %s", found.Txid, found.Chain, info.Txid, info.Chain))
	}
	return nil
}

// check compares the files of a store with what info says, then opens it.
func (p Place) check(ctx context.Context, info Info, dir string) (Info, error) {
	files, err := sums(ctx, dir)
	if err != nil {
		return Info{}, err
	}
	for i, want := range info.Files {
		switch {
		case i >= len(files) || files[i].Path > want.Path:
			return Info{}, damagedFile(filepath.Join(dir, filepath.FromSlash(want.Path)), errors.New("it is missing"))
		case files[i].Path < want.Path:
			return Info{}, damagedFile(filepath.Join(dir, filepath.FromSlash(files[i].Path)), errors.New("it doesn't belong here"))
		case files[i] != want:
			return Info{}, damagedFile(filepath.Join(dir, filepath.FromSlash(want.Path)), fmt.Errorf("%d bytes with sum %s, should be %d with %s", files[i].Size, files[i].SHA256, want.Size, want.SHA256))
		}
	}
	if n := len(info.Files); len(files) > n {
		return Info{}, damagedFile(filepath.Join(dir, filepath.FromSlash(files[n].Path)), errors.New("it doesn't belong here"))
	}
	return p.inspect(ctx, dir)
}

// Restore verifies a savepoint and copies its store to dir, which must not exist or be empty.
func (p Place) Restore(ctx context.Context, name, dir string) (Info, error) {
	info, err := p.Verify(ctx, name)
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
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return info, err
	}
	tmp := dir + partial
	if err := os.RemoveAll(tmp); err != nil {
		return info, err
	}
	if err := copyTree(ctx, p.Store(name), tmp); err != nil {
		return info, errors.Join(err, os.RemoveAll(tmp))
	}
	if err := errors.Join(syncTree(tmp), os.Rename(tmp, dir)); err != nil {
		return info, err
	}
	return info, syncDir(filepath.Dir(dir))
}

// Remove deletes a savepoint. It stops being one before anything of it goes.
func (p Place) Remove(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, err := os.Lstat(p.Dir(name)); errors.Is(err, fs.ErrNotExist) {
		return p.missing(name)
	}
	tmp := p.Dir(name) + partial
	if err := errors.Join(os.RemoveAll(tmp), os.Rename(p.Dir(name), tmp)); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(tmp), syncDir(p.dir))
}
