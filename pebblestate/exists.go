package pebblestate

import (
	"os"
	"path/filepath"
)

// Exists tells whether dir holds a database that was created whole.
func Exists(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, formatName))
	return err == nil && info.Mode().IsRegular()
}
