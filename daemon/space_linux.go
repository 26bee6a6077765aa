package daemon

import "golang.org/x/sys/unix"

// spaceOf is the room that the user may still use on the device that holds a directory, and its size.
func spaceOf(dir string) (free, size uint64, known bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, 0, false
	}
	return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), true
}

// mayWrite tells why files can't be made in a directory, without making one.
func mayWrite(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
