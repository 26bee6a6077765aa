package savepoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// copyFiles copies the files of a store that info lists to a directory that doesn't exist, and compares what it has copied: a store
// that somebody takes away meanwhile must not become a savepoint.
func copyFiles(ctx context.Context, info Info, from, to string) error {
	for _, f := range info.Files {
		if err := copyFile(ctx, f, filepath.Join(from, filepath.FromSlash(f.Path)), filepath.Join(to, filepath.FromSlash(f.Path))); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(ctx context.Context, f File, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was only read
	if err := extract(&reader{ctx, in}, to, f); err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	return nil
}

// writeFrom writes what fill does to a new file, or over what an attempt before has left.
func writeFrom(path string, fill func(w io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func writeSynced(path string, b []byte) error {
	return writeFrom(path, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

// syncTree makes the entries of all directories below dir durable.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDir(path)
	})
}

// makeDir makes a directory and what is missing above it, durably.
func makeDir(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	var made []string // the directories that get an entry
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || filepath.Dir(d) == d {
			break
		}
		made = append(made, filepath.Dir(d))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, parent := range slices.Backward(made) {
		if err := syncDir(parent); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
