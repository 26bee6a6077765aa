// Package scratch makes directories that are thrown away, and guarantees that none outlives its process for long: what a killed one
// has left is removed by the next that makes one, and never what somebody still uses, whatever the process's number and namespace.
package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// LockSuffix is added to a directory's name: that file is there before the directory and goes after it, and is locked by the process
// that uses it.
const LockSuffix = ".lock"

// Make makes an empty directory in parent, or in the system's directory for temporary files, whose name begins with prefix. It
// first removes those of the same prefix whose process has ended without removing them. remove gives the directory up; it may have
// been renamed, or removed, meanwhile.
func Make(parent, prefix string) (dir string, remove func() error, err error) {
	if parent == "" {
		parent = os.TempDir()
	}
	Sweep(parent, prefix)
	for {
		lock, err := os.CreateTemp(parent, prefix+"*"+LockSuffix)
		if err != nil {
			return "", nil, fmt.Errorf("a directory that is thrown away: %w", err)
		}
		if !held(lock) {
			// Another process has taken it for one that was left behind.
			lock.Close() //nolint:errcheck // nothing was written
			continue
		}
		dir = strings.TrimSuffix(lock.Name(), LockSuffix)
		remove = func() error {
			// The lock goes last: what it stands for is gone then.
			return errors.Join(os.RemoveAll(dir), os.Remove(lock.Name()), lock.Close())
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			return "", nil, errors.Join(fmt.Errorf("a directory that is thrown away: %w", err), os.Remove(lock.Name()), lock.Close())
		}
		return dir, remove, nil
	}
}

// held takes the lock, unless another has it or has removed the file.
func held(lock *os.File) bool {
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return false
	}
	here, err := lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(lock.Name())
	return err == nil && os.SameFile(here, there)
}

// locks lists the locks of a prefix, in the order of names.
func locks(parent, prefix string) ([]string, error) {
	names, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, n := range names {
		if strings.HasPrefix(n.Name(), prefix) && strings.HasSuffix(n.Name(), LockSuffix) {
			paths = append(paths, filepath.Join(parent, n.Name()))
		}
	}
	return paths, nil
}

// InUse lists the directories of a prefix that somebody holds the lock of, in the order of names.
func InUse(parent, prefix string) ([]string, error) {
	paths, err := locks(parent, prefix)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, path := range paths {
		lock, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) { // given up meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		switch err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EWOULDBLOCK):
			dirs = append(dirs, strings.TrimSuffix(path, LockSuffix))
		case err != nil:
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), lock.Close())
		}
		lock.Close() //nolint:errcheck // nothing was written
	}
	return dirs, nil
}

// Sweep removes directories of a prefix that nobody holds the lock of. What can't be removed is left to the next one.
func Sweep(parent, prefix string) {
	paths, err := locks(parent, prefix)
	if err != nil {
		return
	}
	for _, path := range paths {
		lock, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if held(lock) && os.RemoveAll(strings.TrimSuffix(path, LockSuffix)) == nil {
			os.Remove(path) //nolint:errcheck // see above
		}
		lock.Close() //nolint:errcheck // nothing was written
	}
}
