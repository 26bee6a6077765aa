package savepoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tridentd/tridentd/internal/scratch"
)

// copyPrefix begins the names of directories for copies.
const copyPrefix = "copy-"

// MakeCopies makes a directory for copies of a store in the store's own, where they cost nothing but links. remove removes it with
// all that is in it.
func MakeCopies(dir string) (tmp string, remove func() error, err error) {
	tmp, remove, err = scratch.Make(dir, copyPrefix)
	if err != nil {
		return "", nil, fmt.Errorf("a copy of the store: %w", err)
	}
	return tmp, remove, nil
}

// SweepCopies removes the copies of processes that have gone without doing so: their links would keep files on the disk that the
// store doesn't need any more.
func SweepCopies(dir string) {
	scratch.Sweep(dir, copyPrefix)
	found, _ := filepath.Glob(filepath.Join(dir, copyPrefix+"*"))
	for _, path := range found {
		// The lock of one in use is there before it and goes after it.
		if strings.HasSuffix(path, scratch.LockSuffix) {
			continue
		}
		if _, err := os.Lstat(path + scratch.LockSuffix); errors.Is(err, fs.ErrNotExist) {
			os.RemoveAll(path) //nolint:errcheck // the next one tries again
		}
	}
}
