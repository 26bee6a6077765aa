package savepoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// MakeCopies makes a directory for copies of a store in the store's own, where they cost nothing but links. Its name tells whose
// it is; whoever made it removes it.
func MakeCopies(dir string) (string, error) {
	tmp, err := os.MkdirTemp(dir, fmt.Sprintf("copy-%d-", os.Getpid()))
	if err != nil {
		return "", fmt.Errorf("a directory for a copy of the store: %w", err)
	}
	return tmp, nil
}

// SweepCopies removes the copies of processes that have gone without doing so: their links would keep files on the disk that the
// store doesn't need any more. A process that has just taken the store, and made no copy yet, says that it is fresh: what bears
// its number is then that of one before it, which isn't rare in containers.
func SweepCopies(dir string, fresh bool) {
	found, _ := filepath.Glob(filepath.Join(dir, "copy-*"))
	for _, name := range found {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(name), "copy-"), "-")
		n, err := strconv.Atoi(pid)
		if err != nil || n <= 0 {
			continue
		}
		if fresh && n == os.Getpid() || errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
			os.RemoveAll(name) //nolint:errcheck // the next one tries again
		}
	}
}
