package daemon

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// exchange swaps two directories in one step, or fails with errors.ErrUnsupported where the file system can't.
func exchange(a, b string) error {
	switch err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
		return errors.ErrUnsupported
	default:
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
}
