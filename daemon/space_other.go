//go:build !linux

package daemon

import "os"

// spaceOf knows nothing here.
func spaceOf(string) (free, size uint64, known bool) { return 0, 0, false }

// mayWrite tells why files can't be made in a directory, by making one.
func mayWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".tridentd-doctor-*")
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Remove(f.Name())
}
