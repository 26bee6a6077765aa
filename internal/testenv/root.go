package testenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Root returns the directory of the module that the test's package belongs to: the nearest one upwards from the
// working directory that has a go.mod. (go test runs a test in its package's directory.)
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("testenv: %w", err)
	}
	for dir := start; ; {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("testenv: %w", err)
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("testenv: no go.mod above %s", start)
		}
		dir = up
	}
}
