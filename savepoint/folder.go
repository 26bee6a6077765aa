package savepoint

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// folder is a storage in a directory: <dir>/<name>/savepoint.json and <dir>/<name>/store/. What is being made, and what is being
// removed, has a name that ends in .partial.
type folder struct{ dir string }

func folderOf(root, pipeline string) folder { return folder{filepath.Join(root, pipeline)} }

func (f folder) path(name, file string) string {
	return filepath.Join(f.dir, name, filepath.FromSlash(file))
}

func (f folder) local(info Info) string { return filepath.Join(f.dir, info.Name, info.store()) }
func (f folder) close() error           { return nil }

// scratch lies on the folder's device, so that put only renames. Each has a directory of its own: of two that make a savepoint of
// one name, one fails.
func (f folder) scratch(name string) (dir string, remove func() error, err error) {
	if err := makeDir(f.dir); err != nil {
		return "", nil, err
	}
	dir, err = os.MkdirTemp(f.dir, name+".*"+partial)
	return dir, func() error { return os.RemoveAll(dir) }, err
}

func (f folder) put(ctx context.Context, info Info, from string) (err error) {
	dir, discard, err := f.scratch(info.Name)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, discard())
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	info.Store = ""
	store := filepath.Join(dir, storeName)
	if os.Rename(from, store) != nil {
		if err := copyFiles(ctx, info, from, store); err != nil { // another device
			return err
		}
	}
	b, err := encode(info)
	if err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(dir, infoName), b); err != nil {
		return err
	}
	if err := syncTree(dir); err != nil {
		return err
	}
	to := filepath.Join(f.dir, info.Name)
	if err := os.Rename(dir, to); err != nil {
		if _, serr := os.Lstat(to); serr == nil {
			return taken(info.Name)
		}
		return err
	}
	return syncDir(f.dir)
}

func (f folder) names(context.Context) ([]string, error) {
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && CheckName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func (f folder) load(_ context.Context, name string) ([]byte, error) {
	b, err := os.ReadFile(f.path(name, infoName))
	if errors.Is(err, fs.ErrNotExist) {
		if _, serr := os.Lstat(f.path(name, "")); serr == nil {
			return nil, damagedFile(f.path(name, infoName), errors.New("it is missing"))
		}
		return nil, errNone
	}
	return b, err
}

func (f folder) files(_ context.Context, info Info) ([]File, error) {
	dir := f.local(info)
	var files []File
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || slices.Contains(transient, d.Name()) {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		files = append(files, File{Path: filepath.ToSlash(rel), Size: st.Size()})
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = damagedFile(dir, errors.New("it is missing"))
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, err
}

func (f folder) open(_ context.Context, info Info, path string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(f.local(info), filepath.FromSlash(path)))
}

func (f folder) remove(_ context.Context, name string) error {
	if _, err := os.Lstat(f.path(name, "")); errors.Is(err, fs.ErrNotExist) {
		return errNone
	}
	tmp := f.path(name, "") + partial
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Rename(f.path(name, ""), tmp); err != nil {
		return err
	}
	if err := syncDir(f.dir); err != nil { // it must have lost its name for good before a file of it goes
		return err
	}
	return errors.Join(os.RemoveAll(tmp), syncDir(f.dir))
}

func (f folder) sweep(_ context.Context, since time.Time) error {
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), partial) {
			continue
		}
		dir := filepath.Join(f.dir, e.Name())
		last, werr := lastWritten(dir)
		if werr == nil && last.Before(since) {
			werr = os.RemoveAll(dir)
		}
		if !errors.Is(werr, fs.ErrNotExist) { // somebody else was faster
			err = errors.Join(err, werr)
		}
	}
	return err
}

// lastWritten is when something was last written below a directory. Files that were linked there say nothing; what made the links
// has changed their directory.
func lastWritten(dir string) (last time.Time, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil && st.ModTime().After(last) {
			last = st.ModTime()
		}
		return err
	})
	return last, err
}
